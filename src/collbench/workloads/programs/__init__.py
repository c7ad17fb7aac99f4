"""Programs of this package that workloads start as processes."""
