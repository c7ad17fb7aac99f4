"""Programs of our own (`programs/`): how they are started, and how the JSON is read that they print."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping

from collbench.schema.case import Case

#: Significant digits of a loss that are compared: it is summed in float32, which has seven.
DIGITS = 6


def started(program: str, /, *words: str, **flags: object) -> tuple[str, ...]:
    """The command of a program, with words and flags: `--name value`."""
    named = (word for name, value in flags.items() for word in (f"--{name}", str(value)))
    return (sys.executable, "-m", f"collbench.workloads.programs.{program}", *words, *named)


def times(output: str) -> dict[str, list[float]]:
    """Seconds of each measure, of which `ns` has nanoseconds."""
    return {measure: [ns * 1e-9 for ns in taken] for measure, taken in json.loads(output)["ns"].items()}


def wrong(case: Case, output: str) -> int:
    return int(json.loads(output)["wrong"])


def figures(case: Case, output: str) -> Mapping[str, float]:
    return json.loads(output)["figures"]  # type: ignore[no-any-return]


def notes(output: str) -> tuple[str, ...]:
    return tuple(json.loads(output)["notes"])


def loss(case: Case, output: str) -> Mapping[str, float]:
    """That of a training, which must come out equal."""
    return {"loss": compared(json.loads(output)["loss"])}


def compared(loss: float) -> float:
    """The loss of a training as it is compared between sides."""
    return float(f"{loss:.{DIGITS}g}")
