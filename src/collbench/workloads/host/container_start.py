"""container_start: what a container costs before its program computes, and its removal; beside it the program alone.

The program (`_clock.c`) is static, and the same file everywhere: it says the clock, which containers share with the
host, and ends. The engine's client is in `collbench.launch`, and so is what is started here: it is above workloads.
"""

from __future__ import annotations

import sys
from pathlib import Path

from collbench.workloads.program import Measure, Program, parameter
from collbench.workloads.protocol import notes, slices, times, wrong

#: The program in a container.
CLOCK = Path(__file__).parents[1] / "_clock"

#: The process without a container, and networks by the one that is in a container.
BARE, NETWORK = "bare", {f"container:{network}": network for network in ("none", "bridge", "host")}


def _phase(name: str, of_container: bool = False) -> Measure:
    return Measure(name, lambda case: 1, "executions", shown="time",
                   applies=lambda case: not of_container or case["process"] != BARE)  # fmt: skip


WORKLOAD = Program(
    name="container_start", suite="containers", title="start of a container",
    summary="from the engine's call to the first instruction in a container, and its removal; or of a bare process",
    measures=(_phase("create", True), _phase("start"), _phase("exit"), _phase("removal", True), _phase("total")),
    argv=lambda case, times: (
        sys.executable, "-m", "collbench.launch.engines.docker.start", f"--times={times}",
        *(f"--{name}={case[name]}" for name in ("process", "container_image", "cache")),
    ),
    needs=lambda: None if CLOCK.exists() else "it was not built: reinstall with a C compiler and a static libc",
    parse=times, verify=wrong, notes=notes, slices=slices,
    # seen with Docker Engine 20.10 on two cores
    computes=lambda case, times: times * (0.4 * float(case["process"] != BARE) + 0.9 * float(case["cache"] == "cold")),
    axes=(
        parameter("process", "container:bridge", "bare on the host, or in a container with a network",
                  among=(BARE, *NETWORK), kind="how"),
        parameter("container_image", "collbench/tools", "image of the container, which must be present", kind="how"),
        parameter("cache", "warm", "page cache of the machine before a sample; cold needs root", among=("cold", "warm"),
                  kind="how"),
    ),
)  # fmt: skip
