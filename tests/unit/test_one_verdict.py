"""Of one pair the same is said everywhere: by compare, in advice, and on a page; and one test has all that is left."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.unit.advised_runs import US, advice_on
from tests.unit.conftest import Collbench
from tests.unit.made_runs import Entry, made_case, spread, write_run

from collbench.analysis.advise import Advice
from collbench.analysis.compare import Comparison, compare, turned
from collbench.analysis.estimate import Estimate
from collbench.analysis.factors import FACTORS
from collbench.analysis.models.steps import step_costs, training_steps
from collbench.analysis.observations import observe
from collbench.analysis.pairs import opposed
from collbench.analysis.same_launches import planned
from collbench.report.advice.sentences import at_most, complete
from collbench.report.page.contents import chapter
from collbench.schema.case import Case

RESULTS = Path(__file__).parents[2] / "results"


def told(advices: list[Advice]) -> Iterator[Comparison]:
    for advice in advices:
        yield from advice.isolation.values()
        for size in advice.sizes:
            yield from size.others.values()


@pytest.mark.parametrize("name", ["choi2021-cpu", "ladder", "one-container", "xu2017-cpu-io", "storage"])
def test_advice_has_the_verdicts_of_compare_on_the_pairs_that_compare_has(name: str) -> None:
    asked = {(one.pair.base.case, one.pair.other.case): one for one in planned(observe(RESULTS / name)) if one.ratio}
    asked |= {(other, base): turned(one) for (base, other), one in asked.items()}
    both = [(one, asked[pair]) for one in told(advice_on(RESULTS / name))
            if (pair := (one.pair.base.case, one.pair.other.case)) in asked]  # fmt: skip
    assert both
    for said, known in both:
        assert (said.verdict, said.p_adjusted, said.cells) == (known.verdict, known.p_adjusted, known.cells)


def test_a_page_says_one_thing_of_what_a_step_costs_over_the_host() -> None:
    """The table and the picture have 1.90x, slower with p adjusted 0.031; of all pairs it would be 0.16."""
    found = chapter(observe(RESULTS / "ladder"), {}, 0.02, figures=False)
    lines = [line for section in found.sections for line in section.lines]
    assert "undecided" not in " ".join(line for line in lines if "mpich: what single strict costs" in line)
    assert any(
        line.startswith("mpich: single strict takes 1.90x (1.81 .. 2.64) the time of host at 1M") for line in lines
    )
    tables = [table for section in found.sections for table in section.folded_tables if "allreduce" in table.title]
    (row,) = (
        row for table in tables for row in table.rows if row[:3] == ("mpich", "single strict vs host (docker)", "1M")
    )
    assert row[-2:] == ("0.031", "slower")


def test_what_a_step_costs_is_the_ratio_of_compare_where_a_launch_of_another_step_is_missing(tmp_path: Path) -> None:
    """The third step lacks the blocks in which the most isolated one was slow."""
    strict = [*spread(30 * US, 5), *spread(60 * US, 7)]
    cells: dict[Case, list[Entry]] = {
        made_case("host"): [*spread(10 * US, 12)], made_case("single", "strict"): [*strict],
        made_case("single", "ipc"): [*spread(15 * US, 6), *["died"] * 6],
    }  # fmt: skip
    run = write_run(tmp_path / "run", cells)
    (advised,) = complete(advice_on(run), True)
    ((cost),) = advised.advice.isolation.values()
    assert cost.ratio is not None and cost.ratio.value == pytest.approx(6, rel=0.05)
    out = " ".join(
        line for section in chapter(observe(run), {}, 0.02, figures=False).sections for line in section.lines
    )
    assert f"single strict takes {cost.ratio.value:.2f}x" in out


def test_what_a_place_costs_a_step_of_a_training_is_what_is_said_of_the_places() -> None:
    observed = observe(RESULTS / "ddp-cpu")
    known = planned(observed)
    by_cells = {(one.pair.base.case, one.pair.other.case): one for one in (*known, *map(turned, known))}
    costs = step_costs(observed, training_steps(observed), known=known).values()
    both = [(one, by_cells[pair]) for one in costs if (pair := (one.pair.base.case, one.pair.other.case)) in by_cells]
    assert both and all(one.p_adjusted == other.p_adjusted for one, other in both)


def unequal(seed: int, operations: int) -> dict[Case, list[float]]:
    """Libraries at places of their own: no factor alone tells two options apart."""
    draw = np.random.default_rng(seed)
    sides = ((("host", None), "a", 10.0), (("multi", "strict"), "b", 11.0))
    return {made_case(*place, image=image, op=op): (time * US * np.exp(draw.normal(0, 0.03, 8))).tolist()
            for op in ("sum", "max", "min", "prod")[:operations] for place, image, time in sides}  # fmt: skip


def test_pairs_that_differ_in_more_than_one_factor_are_tested_together_over_all_operations(tmp_path: Path) -> None:
    for number in (1, 3):
        run = write_run(tmp_path / str(number), unequal(4, number))
        assert [one.cells for one in told(advice_on(run))] == [number] * number
        assert not planned(observe(run))


def test_where_nothing_differs_few_runs_have_an_answer_whatever_the_number_of_operations(tmp_path: Path) -> None:
    draw = np.random.default_rng(8)
    ops, sides = ("sum", "max", "min", "prod"), (("host", None, "a"), ("multi", "strict", "b"))
    cases = [made_case(*place, image=image, op=op) for op in ops for *place, image in sides]
    false = 0
    for number in range(40):
        times = {case: (10 * US * np.exp(draw.normal(0, 0.05, 8))).tolist() for case in cases}
        advices = advice_on(write_run(tmp_path / str(number), times))
        false += any(one.verdict == "slower" for one in told(advices))
    assert false <= 4


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


def test_what_may_be_as_fast_is_bounded_where_all_intervals_are(tmp_path: Path) -> None:
    (advice,) = advice_on(
        write_run(tmp_path / "run", {made_case(): spread(US), made_case("multi", "strict"): spread(US)})
    )
    (one,) = advice.sizes[0].others.values()
    bounded = [replace(one, ratio=Estimate(1.0, ends, 10)) for ends in ((0.9, 1.101), (0.95, 1.04))]
    assert at_most(bounded) == ", at most 10.1 % slower"
    for ends in ((0.9, 2.01), (0.9, math.inf), None, (0.8, 0.9)):
        open_ = replace(one, ratio=Estimate(1.0, ends, 10))
        assert at_most([open_]) == ""
        assert at_most([open_, *bounded]) == (", at most 10.1 % slower" if ends == (0.8, 0.9) else "")


def test_an_answer_leaves_numbers_of_comparisons_to_the_evidence_and_its_legend_stands_there_once(
    here: Collbench,
) -> None:
    run = RESULTS / "ladder"
    brief, whole = here("advise", run).out, here("advise", run, "--why").out
    assert (
        "comparisons" not in brief and "p adjusted" not in brief and " cells, " not in brief.partition("what could")[0]
    )
    assert "* Slower by their own intervals, but not established: 11 options at 64K, 1M; the largest loss" in brief
    assert "not established among 54 to 768 comparisons (p adjusted 0.062 to " in whole
    assert "needs about 1 more launch; 10 of 38 need 708 or fewer, 28 more than 1000.\n" in whole
    assert whole.count("* 1.50x: 1.50 times the time of the fastest option at that size") == 1
