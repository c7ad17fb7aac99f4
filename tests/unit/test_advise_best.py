"""The best of many options may be the best by chance: what is said of it holds nevertheless."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.unit.made_runs import made_case, made_cell

from collbench.analysis.advise import advise
from collbench.analysis.options import FACTORS, Option, Question

MANY = 18


def question(times: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> Question:
    """Options with such launch medians (s), [options, launches]."""
    cells = {}
    for number, medians in enumerate(times.tolist()):
        name = f"option{number:02d}"
        option = Option(tuple(name if factor == "library" else "" for factor in FACTORS))
        cells[option] = made_cell(made_case(image=name), medians)
    return Question(made_case(), {8: cells}, ("library",))


@pytest.mark.slow
@pytest.mark.parametrize("n", [7, 10])
def test_the_best_option_is_seldom_out_and_losses_are_seldom_larger_than_their_bounds(n: int) -> None:
    """Of 6 options, equal or up to 10 % apart, the first is the best; both errors are below 5 % and two deviations."""
    draw = np.random.default_rng([6, n])
    trials, few, ends = 200, 6, (0.0, 0.1)
    lost = wrong = 0
    for end in ends:
        effects = np.linspace(0, end, few)[:, None]
        for _ in range(trials):
            each = question(np.exp(effects + draw.normal(0, 0.05, (few, n))))
            (size,) = advise([each], True)[0].sizes
            found = [size.options[option] for option in sorted(size.options)]
            lost += found[0].out
            wrong += any(one.bound < math.exp(effect)
                         for one, effect in zip(found, effects[:, 0].tolist(), strict=True))  # fmt: skip
    most = 0.05 + 2 * math.sqrt(0.05 * 0.95 / (trials * len(ends)))
    assert lost / (trials * len(ends)) <= most and wrong / (trials * len(ends)) <= most


def test_an_option_that_is_better_than_all_is_taken_among_many() -> None:
    times = np.exp(np.random.default_rng(2).normal(0, 0.01, (MANY, 7)))
    times[3] *= 1.5
    times[11] *= 0.8
    (found,) = advise([question(times)], True)
    (size,) = found.sizes
    assert size.take["library"] == "option11" and size.bound == 1.0
    assert [option["library"] for option in size.possible] == ["option11"]
