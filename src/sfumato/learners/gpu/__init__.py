"""What runs on a GPU only: Triton kernels, CUDA graphs, memory formats."""
