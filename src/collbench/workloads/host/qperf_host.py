"""qperf_host: bandwidth and latency of TCP between a process on the host and a container, or another process.

The client is on the host. What starts the server needs the engine's client, and so is in `collbench.launch`.
"""

from __future__ import annotations

import re
import sys
from dataclasses import replace

from collbench.machine.facts import Stretch, Waited
from collbench.workloads.host import container_start, qperf
from collbench.workloads.program import parameter

ENGINE = "engine: "  #: Before the name of the engine, in a line behind the client's output.

#: A container with `none` cannot be reached.
PROCESSES = tuple(kind for kind in (container_start.BARE, *container_start.NETWORK) if not kind.endswith(":none"))

WORKLOAD = replace(
    qperf.WORKLOAD, name="qperf_host", suite="containers", title="qperf from the host",
    summary="bandwidth and latency of TCP from the host to a server in a container, or on the host too",
    argv=lambda case, times: (
        sys.executable, "-m", "collbench.launch.engines.docker.server", f"--process={case['process']}",
        f"--container_image={case['container_image']}", "--", *qperf.options(case),
    ),
    notes=lambda output: [note for note in re.findall(f"^{ENGINE}(.+)$", output, re.MULTILINE) if note != "none"],
    refuses=lambda case: None, distributed=False, reporter=None,
    slices=lambda output: Stretch(0.0, Waited()),  # the work of a container looks like that of others
    axes=(
        *qperf.WORKLOAD.axes,
        parameter("process", "container:bridge", "where the server is: bare on the host, or in a container with a "
                  "network", among=PROCESSES, kind="how"),
        parameter("container_image", "collbench/torch", "image of the container, which must be present", kind="how"),
    ),
)  # fmt: skip
