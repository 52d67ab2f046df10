"""GPU support: Triton kernels, CUDA graphs and memory formats."""
