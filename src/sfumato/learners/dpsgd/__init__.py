"""DP-SGD: sampling, noise, optimizers, accounting and checkpoints around the clipped gradients. Needs torch."""
