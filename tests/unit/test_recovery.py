"""What a step gives back of what isolation costs: by block, and only where it costs something."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.unit.made_runs import made_case, spread, write_run

from collbench.analysis.advise import advise
from collbench.analysis.options import questions
from collbench.analysis.runs import observe
from collbench.analysis.tradeoffs import Recovery, recoveries, shares
from collbench.report.advice import complete

US = 1e-6


@pytest.mark.parametrize(
    ("free", "isolated", "step", "share"),
    [
        (100, 300, 140, 0.8),
        (100, 300, 300, 0.0),
        (100, 300, 400, -0.5),  # slower than the most isolated
        (100, 300, 50, 1.25),  # quicker than without isolation
        (100, 100.5, 10, 100.0),  # next to nothing to give back: all of it
        (100, 100.5, 900, -100.0),
        (100, 100, 90, 100.0),  # isolation costs nothing
        (100, 80, 70, 100.0),
        (100, 80, 80, -100.0),
        (100, 80, 90, -100.0),
    ],
)
def test_the_part_of_the_cost_that_a_step_saves(free: float, isolated: float, step: float, share: float) -> None:
    assert shares(np.array([[free, isolated, step]], float)) == pytest.approx([share])


def test_every_block_has_its_own_share() -> None:
    assert shares(np.array([[1.0, 3.0, 2.0], [10.0, 30.0, 15.0]])) == pytest.approx([0.5, 0.75])


def recovered(path: Path, **times: float) -> dict[str, Recovery]:
    """By step, of one library: host, and single at these steps, in microseconds."""
    cells = {
        made_case("host" if step == "host" else "single", None if step == "host" else step, image="mpich"): spread(
            us * US
        )
        for step, us in times.items()
    }
    observed = observe(write_run(path, cells))
    (question,) = questions(observed, {})
    return {str(one.step["isolation"]): one for one in recoveries(question, 1024, True)}


def test_all_steps_but_the_most_isolated_are_held_against_it(tmp_path: Path) -> None:
    found = recovered(tmp_path / "run", host=100, strict=300, limits=250, ipc=120)
    assert {step: round(one.share, 2) for step, one in found.items()} == {"limits": 0.25, "ipc": 0.9}
    for one in found.values():
        assert (one.size, one.isolated["isolation"], one.free["policy"]) == (1024, "strict", "host")
        assert one.cost == pytest.approx(3.0)
        assert one.cost_interval == pytest.approx((3.0, 3.0))


@pytest.mark.parametrize("strict", [100, 90])
def test_isolation_that_costs_nothing_gives_nothing_back(tmp_path: Path, strict: float) -> None:
    assert recovered(tmp_path / "run", host=100, strict=strict, ipc=80) == {}


def test_without_another_step_or_less_isolation_there_is_nothing_to_say(tmp_path: Path) -> None:
    assert recovered(tmp_path / "one", host=100, strict=300) == {}
    assert recovered(tmp_path / "two", strict=300, ipc=100) == {}


@pytest.mark.parametrize(
    ("interval", "decided"),
    [(None, False), ((-0.2, 0.4), False), ((0.3, 0.9), True), ((-0.9, -0.3), True), ((-0.05, 0.08), True)],
)
def test_a_share_is_decided_where_its_interval_excludes_nothing_or_is_close_to_it(
    tmp_path: Path, interval: tuple[float, float] | None, decided: bool
) -> None:
    one = recovered(tmp_path / "run", host=100, strict=300, ipc=120)["ipc"]
    assert replace(one, share_interval=interval).decided is decided


def test_steps_whose_share_is_noise_are_named_once_without_a_number(tmp_path: Path) -> None:
    cells = {made_case(image="mpich"): spread(100 * US), made_case("single", "strict", image="mpich"): spread(3e-4),
             made_case("single", "ipc", image="mpich"): spread(120 * US),
             made_case("single", "limits", image="mpich"):
                 [300 * US * (0.7 if block % 2 else 1.4) for block in range(10)]}  # fmt: skip
    observed = observe(write_run(tmp_path / "run", cells))
    (advised,) = complete(advise(questions(observed, {}), True), True)
    decided = {one.step["isolation"]: one.decided for one in advised.recoveries}
    assert decided == {"ipc": True, "limits": False}
