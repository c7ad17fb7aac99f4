"""Made-up runs that advice is taken from."""

from __future__ import annotations

from pathlib import Path

from tests.unit.made_runs import made_case, spread, write_run

from collbench.analysis.advise import Advice, advise
from collbench.analysis.options import questions
from collbench.analysis.runs import observe

US = 1e-6


def advice_on(path: Path, **given: str) -> list[Advice]:
    observed = observe(path)
    return advise(questions(observed, given), observed.interleaved)


def two_libraries(path: Path, sizes: dict[int, tuple[float, float]], launches: int = 10) -> Path:
    """A run in which each size takes so many microseconds with openmpi and with mpich."""
    cells = {}
    for size, times in sizes.items():
        for image, time in zip(("openmpi", "mpich"), times, strict=True):
            cells[made_case(image=image, size=size)] = spread(time * US, launches)
    return write_run(path, cells)


def ladder(path: Path) -> Path:
    places = {("host", None): 100, ("multi", "strict"): 110, ("single", "strict"): 300, ("single", "ipc"): 140,
              ("single", "limits"): 300}  # fmt: skip
    cells = {made_case(*place, image="mpich"): spread(time * US) for place, time in places.items()}
    return write_run(path, cells)
