"""The best of many equal options is the best by chance, and none of the others is called worse for that."""

from __future__ import annotations

from array import array

import numpy as np
import pytest
from tests.unit.made_runs import made_case

from collbench.analysis.advise import advise
from collbench.analysis.observations import Cell
from collbench.analysis.options import FACTORS, Option, Question

MANY = 18


def question(times: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> Question:
    """Options with such launch medians (s), [options, launches]."""
    cells = {}
    for number, medians in enumerate(times.tolist()):
        name = f"option{number:02d}"
        option = Option(tuple(name if factor == "library" else "" for factor in FACTORS))
        values = array("d", medians)
        cells[option] = Cell(made_case(image=name), launches=array("q", range(len(values))), medians=values,
                             means=values, ways=[()] * len(values), how={()})  # fmt: skip
    return Question(made_case(), {8: cells}, ("library",))


@pytest.mark.slow
@pytest.mark.parametrize("n", [7, 10])
def test_of_equal_options_few_are_called_worse(n: int) -> None:
    """18 options that do not differ: in at most 6 % of questions is any of them called worse."""
    draw = np.random.default_rng([18, n])
    asked = [question(np.exp(draw.normal(0, 0.05, (MANY, n)))) for _ in range(60)]
    wrong = [any(one.verdict == "slower" for one in advise([each], True)[0].sizes[0].others.values()) for each in asked]
    assert np.mean(wrong) <= 0.06


def test_an_option_that_is_worse_than_all_is_called_so_among_many() -> None:
    times = np.exp(np.random.default_rng(2).normal(0, 0.01, (MANY, 7)))
    times[3] *= 1.5
    times[11] *= 0.8
    (found,) = advise([question(times)], True)
    (size,) = found.sizes
    others = {option["library"]: one for option, one in size.others.items()}
    assert size.best["library"] == "option11"
    assert {one.verdict for one in others.values()} == {"slower"}
    assert {one.cells for one in others.values()} == {MANY * (MANY - 1) // 2}
