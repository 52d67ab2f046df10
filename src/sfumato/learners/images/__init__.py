"""What is learned from images by noisy sums: a generator of each class, and a linear teacher on scattering features."""
