"""Per-sample gradients and their clipped sums, layer by layer. Needs torch."""
