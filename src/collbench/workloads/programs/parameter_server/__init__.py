"""One rank of a training with parameter servers: `python -m collbench.workloads.programs.parameter_server`."""
