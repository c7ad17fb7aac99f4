"""The suite `gpu`: copies, launches, and kernels that CuPy compiles at the start."""

FAMILIES = {"suite": ("gpu_convolution", "gpu_copy", "gpu_gemm", "gpu_histogram", "gpu_launch", "gpu_transpose")}
HELPERS = ("device",)
