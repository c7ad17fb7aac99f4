# Ramble application of collbench: ramble repo add integrations/ramble

from ramble.appkit import *


class Collbench(ExecutableApplication):
    """Collective operations by collbench; figures of merit are the time, the bus bandwidth and the wrong elements of
    each size, from the columns of nccl-tests."""

    name = "collbench"

    maintainers("collbench")

    tags("benchmark-app", "mpi", "collectives")

    software_spec("openmpi", pkg_spec="openmpi@5:", package_manager="spack*")
    software_spec("collbench", pkg_spec="py-collbench@main+mpi ^openmpi@5:", package_manager="spack*")

    executable("collective", "collbench {collective} -b {smallest} -e {largest} --style nccl-tests", use_mpi=True)

    workload("sweep", executables=["collective"])

    workload_variable("collective", default="allreduce", description="The operation", workloads=["sweep"])
    workload_variable("smallest", default="8", description="The smallest size", workloads=["sweep"])
    workload_variable("largest", default="4M", description="The largest size", workloads=["sweep"])

    row = (
        r"^\s*(?P<size>\d+)\s+\d+\s+\w+\s+\w+\s+-?\d+\s+"
        r"(?P<time>[0-9.]+)\s+[0-9.]+\s+(?P<busbw>[0-9.]+)\s+(?P<wrong>\d+)"
    )
    figure_of_merit_context("size", regex=row, output_format="{size} B")
    figure_of_merit("time", units="us", group_name="time", contexts=["size"], fom_regex=row)
    figure_of_merit("bus bandwidth", units="GB/s", group_name="busbw", contexts=["size"], fom_regex=row)
    figure_of_merit("wrong elements", units="", group_name="wrong", contexts=["size"], fom_regex=row)

    success_criteria("measured", mode="string", match=r"# Out of bounds values : 0 OK", file="{log_file}")
