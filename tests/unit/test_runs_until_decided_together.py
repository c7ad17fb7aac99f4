"""Runs that ended when their own comparisons were decided are not combined; each alone, and across, they are judged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.conftest import Collbench
from tests.unit.made_runs import experiment, made_case, spread, write_run

from collbench.schema.manifest import Until

SIDES = [made_case(image="openmpi"), made_case("single", "strict", image="openmpi")]


def run(path: Path, until: Until) -> Path:
    cells = {case: spread(time * 1e-6, 8) for case, time in zip(SIDES, (10, 11), strict=True)}
    return write_run(path, cells, experiment=experiment(("openmpi",), launches=8, until=until))


@pytest.fixture
def both(tmp_path: Path) -> tuple[Path, Path]:
    return run(tmp_path / "runs" / "fixed", "launches"), run(tmp_path / "runs" / "stopped", "decided")


def test_they_are_not_advised_on_together(here: Collbench, both: tuple[Path, Path]) -> None:
    code, out, err = here("advise", *both)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"{both[1]} was launched until decided: " in err and "Analyse each run by itself" in err
    assert all(here("advise", one).code == 0 for one in both)


@pytest.mark.parametrize("command", ["advise", "report", "compare"])
def test_a_folder_of_such_runs_is_refused(here: Collbench, both: tuple[Path, Path], command: str) -> None:
    words = ["--by", "policy"] if command == "compare" else []
    code, _, err = here(command, both[0].parent, *words)
    assert code == 2 and f"{both[1]} was launched until decided: " in err, err


def test_a_folder_of_one_run_is_that_run(here: Collbench, tmp_path: Path) -> None:
    stopped = run(tmp_path / "runs" / "stopped", "decided")
    assert here("compare", stopped.parent, "--by", "policy").code == 0


def test_two_are_compared_with_each_other(here: Collbench, tmp_path: Path) -> None:
    made = [write_run(tmp_path / name, {SIDES[0]: spread(time * 1e-6, 8)},
                      experiment=experiment(("openmpi",), launches=8, until="decided"))
            for name, time in (("a", 10.0), ("b", 11.0))]  # fmt: skip
    (one,) = json.loads(here("compare", *made, "--style", "json").out)["comparisons"]
    assert (one["verdict"], one["blocks"]) == ("slower", False)
