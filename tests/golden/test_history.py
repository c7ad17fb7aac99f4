"""What `collbench history` says on its first screen, of made-up nights."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.unit.made_history import steps, write_history
from tests.unit.made_runs import library, made_case

from collbench.analysis.history import history
from collbench.report.history import MOST_ROWS, WORDS, SeriesNames, sentence
from collbench.report.history import tables as history_tables
from collbench.report.tables import terminal
from collbench.schema.case import Case

SIZES = [made_case(size=1024 << number) for number in range(6)]
PLACES = [made_case("host", None, image=image, size=1024 << number) for image in ("mpich", "openmpi")
          for number in range(12)]  # fmt: skip
QUIET = steps((1e-5, 33))
SLOWER = steps((1e-5, 20), (1.12e-5, 13))

Times = Sequence[float | str | None]

#: By what it shows: the nights of each cell.
HISTORIES: dict[str, dict[Case, Times]] = {
    "one change": {SIZES[0]: QUIET, SIZES[1]: SLOWER, SIZES[2]: SLOWER, SIZES[3]: QUIET},
    "two changes, the latest run, and a cell that failed": {
        SIZES[0]: QUIET, SIZES[1]: SLOWER, SIZES[2]: SLOWER, SIZES[3]: steps((1e-5, 28), (8e-6, 5)),
        SIZES[4]: steps((1e-5, 32), (3e-5, 1)), SIZES[5]: [*QUIET[:32], "died"],
    },
    "six times as long in all sizes of one image": {
        case: steps((1e-5, 25), (6e-5, 8)) if case.where.image == "mpich" else QUIET for case in PLACES
    },
    "more rows than a screen has": {
        case: steps((1e-5, 10 + number // 2), (1.5e-5, 23 - number // 2)) if number % 2 else QUIET
        for number, case in enumerate(made_case("single", "strict", image=f"image-{one}") for one in range(36))
    },
    "the latest run alone": {SIZES[0]: QUIET, SIZES[1]: steps((1e-5, 31), (2.1e-5, 2)), SIZES[2]: [*QUIET[:32], 7e-6]},
    "no change": {SIZES[0]: QUIET, SIZES[1]: QUIET},
    "waves": {size: [1e-5 * (1 + 0.03 * math.sin(number / 1.5)) for number in range(40)] for size in SIZES},
    "too few runs to know whether there are waves": {SIZES[0]: [1.0e-5, 1.01e-5, 1.02e-5, 0.99e-5, 0.98e-5, 0.99e-5,
                                                                1.01e-5, 1.0e-5, 1.01e-5]},
    "too few runs": {SIZES[0]: QUIET[:5]},
}  # fmt: skip


def newer(number: int) -> dict[str, Any]:
    """From night 20 on a newer library."""
    return {"libraries": (library(version="5.0.8" if number < 20 else "5.0.9"),)}


def test_first_screen(golden: Callable[[str, str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = []
    for name, cells in HISTORIES.items():
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        write_history(Path("nightly"), cells, newer)
        found = history(Path("nightly"), (), 0.02)
        names = SeriesNames([one.series for one in found.cells])
        (table,) = history_tables(found, names)
        text = terminal([table])
        assert len(sentence(found, names).split()) <= WORDS and len(table.rows) <= MOST_ROWS
        assert max(map(len, text.splitlines()[: 3 + len(table.rows)])) <= 100
        shown.append(f"## {name}\n\n{text}")
    golden("history.txt", "\n".join(shown))
