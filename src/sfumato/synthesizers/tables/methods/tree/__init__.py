"""The labelled tree: noisy pairs along a tree, raked, and an additive model of the labels."""
