"""Samples within launches that a median hides: no verdict, gate or advice overlooks them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.advised_runs import US, advice_on
from tests.unit.conftest import Collbench
from tests.unit.made_runs import Entry, made_case, made_record, spread, write_run

from collbench.analysis.compare import Comparison, compare, turned
from collbench.analysis.factors import FACTORS
from collbench.analysis.pairs import opposed
from collbench.analysis.runs import observe
from collbench.schema.case import Case
from collbench.schema.record import Samples


def measured(path: Path, means: float, samples: int = 1000, launches: int = 12) -> Path:
    """Equal medians on the host and in a container, where launch means are so many times as long."""
    cells: dict[Case, list[Entry]] = {}
    for place, factor in ((("host", None), 1.0), (("multi", "strict"), means)):
        case = made_case(*place, image="a")
        taken = Samples(n=samples, invalid=0, warmup=5)
        cells[case] = [
            made_record(case, number, time, mean=time * factor * 1.01, samples=taken)
            for number, time in enumerate(spread(10 * US, launches, 0.002))
        ]
    return write_run(path, cells)


def compared(run: Path) -> Comparison:
    (pair,) = opposed(observe(run).cells.values(), FACTORS["policy"])
    (found,) = compare([pair])
    return found


def test_samples_far_slower_on_one_side_stand_beside_the_verdict(tmp_path: Path) -> None:
    """Of 40 % of the samples ten times as long the mean is 4.6 times as long, and the median the same."""
    found = compared(measured(tmp_path / "run", 4.6))
    assert found.verdict == "same" and found.slow is not None
    assert found.slow.means == pytest.approx(4.6, rel=0.01) and found.slow.on_other
    back = turned(found).slow
    assert back is not None and back.means == pytest.approx(1 / 4.6, rel=0.01) and not back.on_other
    assert replace(back.turned, means=None) == replace(found.slow, means=None)


@pytest.mark.parametrize(("means", "samples", "launches"), [(1.2, 1000, 12), (4.6, 100, 12), (4.6, 1000, 6)])
def test_a_little_and_what_is_not_known_is_no_tail(tmp_path: Path, means: float, samples: int, launches: int) -> None:
    """Below 1.25, of few samples, and of six launches, of which no bound is at 1 %."""
    assert compared(measured(tmp_path / "run", means, samples, launches)).slow is None


def test_a_check_fails_and_the_steady_option_is_taken(here: Collbench, tmp_path: Path) -> None:
    run = measured(tmp_path / "run", 4.6)
    assert here("compare", run, "--by", "policy", "--fail-on", "slower").code == 1
    (entry,) = json.loads(here("compare", run, "--by", "policy", "--style", "json").out)["comparisons"]
    assert entry["slow"]["means"] == pytest.approx(4.6, rel=0.01)
    (advice,) = advice_on(run)
    (size,) = advice.sizes
    assert size.take["policy"] == "host"
    assert [one.slow_at_times for one in size.options.values()] == [False, True]
