"""Synthetic images: a mixture of Gaussians per class in a noisy low-frequency basis, and labels of a private teacher."""
