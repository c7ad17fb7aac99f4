"""copyup: open a file of an image's layer for writing, which copies it to the container's layer (overlayfs).

A container copies a file once, so a launch gives one sample.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from collbench.schema.case import Case
from collbench.workloads._files import kind_of
from collbench.workloads._own import started
from collbench.workloads.program import Measure, Program

#: A folder of the image, with a file of each size; its name is the size.
LAYER = Path("/collbench/layer")


def lacks(case: Case, folder: Path) -> str | None:
    """It must be a file of an overlay, and the storage that is measured too."""
    path = LAYER / str(case["size"])
    if not path.exists():
        return f"there is no {path}: it is in containers of the image tools, each of which can copy it once"
    kinds = {"the image's layer": kind_of(path), "the storage": kind_of(folder)}
    others = [f"{what} is {kind}" for what, kind in kinds.items() if kind != "overlay"]
    return f"only overlayfs copies a file when it is opened; {' and '.join(others)}" if others else None


def argv(case: Case, times: int) -> Sequence[str]:
    return started("copyup", "open", f"{LAYER / str(case['size'])}")


def parse(output: str) -> Mapping[str, Sequence[float]]:
    return {"open": [json.loads(output)["ns"] * 1e-9]}


def verify(case: Case, output: str) -> int:
    """Blocks of the copy that differ from the file, and whether it has another size."""
    found = json.loads(output)
    return int(found["wrong"]) + int(found["bytes"] != case["size"])


WORKLOAD = Program(
    name="copyup",
    suite="io",
    title="copy-up",
    summary="first opening of an image's file for writing, which copies it to the container's layer",
    measures=(Measure("open", lambda case: case["size"], once=True),),
    argv=argv,
    parse=parse,
    verify=verify,
    lacks=lacks,
    files=True,
    sizes=("1M", "64M", "256M"),
)
