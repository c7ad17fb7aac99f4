"""Single-node suites: CPU, I/O, GPU and deep-learning benchmarks, one file each."""
