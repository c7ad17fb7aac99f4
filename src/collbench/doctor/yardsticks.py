"""Check `yardsticks`: how far the cores move while nothing is measured: their distance, speed and copies."""

from __future__ import annotations

import time
from collections.abc import Sequence

from collbench import yardsticks
from collbench.analysis.planning import Movement, movements
from collbench.doctor.compiler import REINSTALL
from collbench.doctor.parts.finding import Check, Finding, Problem, found
from collbench.doctor.parts.processors import Machine, allowed
from collbench.schema.yardsticks import Reason
from collbench.yardsticks import Readings
from collbench.yardsticks.yardstick import Yardstick

#: Readings, and the time from one to the next (s).
READINGS, APART = 12, 0.1

_TITLES = {"copy": "copy bandwidth", "core_distance": "distance between cores", "core_speed": "speed of a core"}

_TWO_CORES = "taskset -cp 0-1 $$, in the shell that starts collbench"
_CAUSES: dict[Reason, tuple[str, str]] = {
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
    shares = ", ".join(f"{_title(one)} by {one.share * 100:.0f} %" for one in moved)
    seen = f"moved over {len(readings)} readings: {shares}" if moved else "nothing could be read"
    reason = next((reading.reason for reading in readings if reading.reason), None)
    return found(seen, _unread(reason), _restless([one for one in moved if one.share > _unit(one).resolution]))


def _title(moved: Movement) -> str:
    return _TITLES.get(moved.name, moved.name)


def _unit(moved: Movement) -> Yardstick:
    return yardsticks.get(moved.name)


def _unread(reason: Reason | None) -> Problem | None:
    if reason is None:
        return None
    cause, fix = _CAUSES[reason]
    return Problem("unknown", cause, "a run cannot say what the machine did between its launches", fix)


def _restless(moved: Sequence[Movement]) -> Problem | None:
    if not moved:
        return None
    ranges = ", ".join(f"{_title(one)} {one.least:.3g} to {one.largest:.3g} {_unit(one).unit}" for one in moved)
    cause = f"other programs or the hypervisor change the cores while nothing is measured: {ranges}"
    effect = "launches of the same differ, and a comparison needs more of them"
    fix = "collbench selftest says how many launches a side a difference takes now"
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


CHECK = Check("yardsticks", "cores that stay as far apart and as fast as they are", run)
