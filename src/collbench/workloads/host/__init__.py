"""Workloads of a host's processors, memory and storage. A program of ours is in the file of its workload."""

FAMILIES = {
    "dense": ("dgemm", "linpack"),
    "storage": ("dd", "fio", "ioping"),
    "training_files": ("loading", "checkpoint"),
    "sysbench": ("sysbench_cpu", "sysbench_fileio", "sysbench_memory", "sysbench_threads"),
}
HELPERS = ("blas", "files", "memory")
