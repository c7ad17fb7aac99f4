"""Programs of this package that workloads start, each in a process of its own."""
