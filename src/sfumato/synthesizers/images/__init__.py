"""Synthetic images, drawn from noisy numbers that were learned from labelled images."""
