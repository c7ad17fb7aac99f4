"""Of one pair the same is said everywhere, whichever side is the base."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.made_runs import made_case, write_run

from collbench.analysis.compare import compare, turned
from collbench.analysis.factors import FACTORS
from collbench.analysis.pairs import opposed
from collbench.analysis.runs import observe

NOISE = [1.0, 1.0, 1.3] * 20


@pytest.mark.parametrize(
    ("base", "other"),
    [([1.0] * 10, [1.5, 1.6] * 5), ([2.0, 2.1] * 5, [1.0] * 10), (NOISE, [1.001] * 60), ([1.0] * 4, [1.1] * 4)],
)
def test_sides_that_change_places_have_the_opposite_verdict(
    tmp_path: Path, base: list[float], other: list[float]
) -> None:
    run = observe(write_run(tmp_path / "run", {made_case("host"): base, made_case("multi", "strict"): other}))
    (pair,) = opposed(run.cells.values(), FACTORS["policy"])
    back = replace(pair, base=pair.other, other=pair.base, base_name=pair.other_name, other_name=pair.base_name)
    (one,), (opposite,) = compare([pair]), compare([back])
    found = turned(one)
    assert found.ratio is not None and opposite.ratio is not None
    assert found.ratio.value == pytest.approx(opposite.ratio.value)
    assert (found.ratio.interval or ()) == pytest.approx(opposite.ratio.interval or ())
    assert replace(found, ratio=opposite.ratio) == opposite
