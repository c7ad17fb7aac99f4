"""Programs that run on a GPU; each is started as `python -m collbench.workloads.programs.gpu.NAME`."""
