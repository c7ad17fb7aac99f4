"""What the machine is: processors, GPUs, control groups, confinement, and who started this process."""
