"""Check `yardsticks`: how far the cores move while nothing is measured: their distance, speed and copies."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from collbench import yardsticks
from collbench.analysis.bounds import in_order
from collbench.analysis.compare import MARGIN
from collbench.analysis.planning import Cost, Movement, cost, movements
from collbench.doctor.compiler import REINSTALL
from collbench.doctor.parts.finding import Finding, Problem, found
from collbench.doctor.parts.processors import Machine, allowed
from collbench.schema.store import NoReading
from collbench.yardsticks import Readings

#: Readings, and the time from one to the next (s).
READINGS, APART = 12, 0.1

_TWO_CORES = "taskset -cp 0-1 $$, in the shell that starts collbench"
_CAUSES: dict[NoReading, tuple[str, str]] = {
    "elsewhere": ("this process may use no core of this machine", _TWO_CORES),
    "not_built": ("the yardsticks in C were not built", f"in the checkout, with gcc and Python.h: {REINSTALL}"),
    "core_refused": ("this process cannot run on a core of its own list", _TWO_CORES),
    "too_few_cores": ("this process may use one core, and a distance is between two", _TWO_CORES),
    "late": ("a core ran no thread for a second", "ps -eo pid,pcpu,cls,comm --sort=-pcpu | head shows which program"),
    "failed": ("no memory or no thread for a reading", "ulimit -a shows the limits of this shell"),
}


def judge(readings: Sequence[Readings]) -> Finding:
    """Of readings one after the other."""
    moved = movements(reading.values for reading in readings)
    seen = f"{len(readings)} readings: {_ranges(moved)}" if moved else "nothing could be read"
    reason = next((reading.reason for reading in readings if reading.reason), None)
    restless = _restless([one for one in moved if one.share > yardsticks.get(one.name).resolution])
    return replace(found(seen, _unread(reason), restless), cost=_cost(readings))


def _cost(readings: Sequence[Readings]) -> Cost | None:
    """If launches spread as readings do, of which one is of each side in turn."""
    values = [[reading.values[name] for reading in readings] for name in readings[0].values]
    known = [[value for value in of_one if value] for of_one in values]
    return cost([in_order(one[:-1:2], one[1::2]) for one in known], MARGIN)


def _ranges(moved: Sequence[Movement]) -> str:
    """`core distance 94 to 755 ns, core speed 380 to 781 steps/us`."""
    return ", ".join(f"{one.name.replace('_', ' ')} {one.least:.3g} to {one.largest:.3g} "
                     f"{yardsticks.get(one.name).unit}" for one in moved)  # fmt: skip


def _unread(reason: NoReading | None) -> Problem | None:
    if reason is None:
        return None
    cause, fix = _CAUSES[reason]
    return Problem("unknown", cause, "a run cannot say what the machine did between its launches", fix)


def _restless(moved: Sequence[Movement]) -> Problem | None:
    if not moved:
        return None
    cause = f"the cores change while nothing is measured: {_ranges(moved)}"
    effect = "launches of one side differ: a comparison needs more of them, and duets, which measure in turns"
    fix = "ps -eo pid,pcpu,user,comm --sort=-pcpu | head; else ask for cores of your own"
    return Problem("warn", cause, effect, fix)


def run(machine: Machine) -> Finding:
    """A dozen readings over about a second and a half, on the cores that this process may use."""
    cores, readings = allowed(machine), []
    for _ in range(READINGS):
        readings.append(yardsticks.take(cores))
        if all(value is None for value in readings[-1].values.values()):
            break
        time.sleep(APART)
    return judge(readings)
