"""Tables of comparisons and their verdict in words: losses first, nothing left unsaid."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.advised_runs import advice_on
from tests.unit.conftest import Collbench
from tests.unit.made_runs import Entry, host, made_case, made_record, spread, write_run

from collbench.analysis.compare import MARGIN, Comparison, hidden_by_clock
from collbench.analysis.compare import compare as compared
from collbench.analysis.estimate import centre, ratio_in_blocks, ratio_of_sides
from collbench.analysis.factors import find_factor
from collbench.analysis.pairs import across, within
from collbench.analysis.runs import observe
from collbench.report.tables import Table
from collbench.report.verdict import MOST_ROWS, sentence, tables
from collbench.schema.case import Case
from collbench.units import format_size

US, NS = 1e-6, 1e-9
HOST, MULTI = made_case("host", image="a", size=8), made_case("multi", "strict", image="a", size=8)


def steady(us: float = 1.0, launches: int = 10) -> list[float]:
    """Launches spread by a part of a per cent."""
    return spread(us * US, launches, 0.001)


Sides = tuple[Sequence[Entry], Sequence[Entry]]

#: By size the host and a container: two sizes slower, one faster, one the same, one open, and one failed.
LAUNCHES: dict[int, Sides] = {
    8: (steady(10), steady(11.2)), 64: (steady(10), steady(15)), 512: (steady(10), steady(7.5)),
    4096: (steady(10), steady(10)),
    32768: (spread(10 * US), [10 * US * (0.8 if block % 2 else 1.25) for block in range(10)]),
    65536: (spread(10 * US), ["died"] * 10),
}  # fmt: skip


def at_sizes(launches: Mapping[int, Sides], **fields: str) -> dict[Case, Sequence[Entry]]:
    return {case.having(size=size, **fields): entries for size, both in launches.items()
            for case, entries in zip((HOST, MULTI), both, strict=True)}  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", at_sizes(LAUNCHES))


def by_policy(run: Path) -> list[Comparison]:
    return compared(within(observe(run), find_factor("policy"), frozenset()))


def grid_of(run: Path) -> Table:
    """What is shown first of a host and a container."""
    (table,) = tables(by_policy(run), 0.05)
    return table


def document(compare: Collbench, run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(compare(run, "--by", "policy", "--style", "json").out)
    return found


def test_each_size_has_its_verdict_and_the_first_line_is_the_answer(compare: Collbench, run: Path) -> None:
    shown = document(compare, run)
    assert {one["base"]["case"]["what"]["size"]: one["verdict"] for one in shown["comparisons"]} == {
        8: "slower", 64: "slower", 512: "faster", 4096: "same", 32768: "unclear", 65536: "not comparable"}  # fmt: skip
    lines = compare(run, "--by", "policy").out.splitlines()
    assert lines[0] == shown["answer"]
    (more,) = (one["launches_more"] for one in shown["comparisons"] if one["verdict"] == "unclear")
    assert sum(line.startswith("* ") and f" {more} more " in line for line in lines) == 1
    every = compare(run, "--by", "policy", "--all").out
    assert every.startswith(shown["answer"]) and "--all" not in every, "nothing is left to ask for"
    assert all(word in every for word in ("unclear (", "not comparable (", " same"))
    assert len(compare(run, "--by", "policy", "--style", "csv").out.splitlines()) == 7, "a head and all six cells"


#: Of the run's sizes those that an answer is of.
MIXES: dict[str, tuple[int, ...]] = {
    "every verdict": (8, 64, 512, 4096, 32768, 65536), "slower": (8, 64), "faster": (512,), "same": (4096,),
    "unclear": (32768,), "slower, same": (8, 4096), "same, unclear": (4096, 32768), "not compared": (65536,),
}  # fmt: skip


def test_the_answer_of_each_mix_of_verdicts(golden: Callable[[str, str], None], run: Path, tmp_path: Path) -> None:
    comparisons = by_policy(run)
    lines = {name: sentence([one for one in comparisons if one.pair.base.case["size"] in sizes], MARGIN)
             for name, sizes in MIXES.items()}  # fmt: skip
    few = write_run(tmp_path / "few", {HOST: spread(US, 4), MULTI: spread(US, 4)})
    lines["too few launches"] = sentence(by_policy(few), MARGIN)
    for name, factor in (("slower", 1.5), ("same", 1.0)):
        before, after = (observe(write_run(tmp_path / f"{name}{n}", {HOST: steady(by)}))
                         for n, by in enumerate((1.0, factor)))  # fmt: skip
        lines[f"of two runs, {name}"] = sentence(compared(across(before, after, None, frozenset())), MARGIN)
    # a loss that is not excluded is not called none; launches of one side differ from each other
    apart = write_run(tmp_path / "apart", {HOST: steady(), MULTI: [US * (1 + n % 2) for n in range(10)]})
    lines["launches apart"] = "\n".join((sentence(by_policy(apart), MARGIN), *grid_of(apart).notes))
    text = "".join(f"{name}: {answer}\n" for name, answer in lines.items())
    golden("compare-answers.txt", text.replace(f"{tmp_path}/", ""))


def test_of_many_differences_the_largest_losses_are_shown(compare: Collbench, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", at_sizes({8 << step: (steady(10), steady(11 + step)) for step in range(30)}))
    grid = grid_of(run)
    sizes = {row[grid.columns.index("size (B)")] for row in grid.rows}
    assert sizes == {format_size(8 << step) for step in range(30 - MOST_ROWS, 30)}
    assert compare(run, "--by", "policy", "--style", "csv").out.count("slower") == 30


def test_a_row_is_named_by_what_tells_it_from_the_others(tmp_path: Path) -> None:
    cells: dict[Case, Sequence[Entry]] = {}
    for op, us in (("sum", 1.2), ("max", 1.4)):
        for image in ("a", "b"):
            cells |= at_sizes({8: (steady(), steady(us))}, op=op, image=image)
    grid = grid_of(write_run(tmp_path / "run", cells))
    assert "size (B)" not in grid.columns and "image" in grid.columns
    assert len({row[:-1] for row in grid.rows}) == len(grid.rows) == 4


def test_rows_of_sides_of_a_plan_are_apart(tmp_path: Path) -> None:
    grid = grid_of(write_run(tmp_path / "run", {case.having(side=side): steady() for case in (HOST, MULTI)
                                                for side in ("old", "new")}))  # fmt: skip
    assert {row[grid.columns.index("side")] for row in grid.rows} == {"old", "new"}


# Medians that are multiples of the clock's step -----------------------------------------------------------------------


def stepped(true: float, seed: int) -> list[Entry]:
    """25 launches around a time in ns, spread by half a per cent, as a clock with steps of 10 ns shows them."""
    times = np.random.default_rng(seed).normal(true, 0.005 * true, 25)
    return [float(time) * NS for time in np.rint(times / 10) * 10]


def on_clock(path: Path, base: Sequence[Entry], other: Sequence[Entry], step: float | None = 10 * NS) -> Comparison:
    [comparison] = by_policy(write_run(path, {HOST: base, MULTI: other}, hosts=(host(clock_step=step),)))
    return comparison


@pytest.mark.parametrize("seed", range(6))
def test_three_per_cent_below_the_step_is_never_the_same(tmp_path: Path, seed: int) -> None:
    """200 ns against 206 ns: all medians are 200 or 210 ns."""
    comparison = on_clock(tmp_path / "run", stepped(199.0, seed), stepped(205.2, seed + 100))
    assert comparison.verdict == "unclear" and comparison.launches_more is None
    assert comparison.ratio is not None and comparison.ratio.interval is not None
    assert hidden_by_clock(comparison.ratio, MARGIN)
    assert comparison.ratio.interval[0] <= 205.2 / 199.0 <= comparison.ratio.interval[1]
    assert comparison.base is not None and comparison.base.interval is not None
    assert comparison.base.interval[1] - comparison.base.interval[0] >= 9.99 * NS


def test_what_an_option_may_lose_is_no_less_than_the_step_leaves_open(tmp_path: Path) -> None:
    """All launches of both sides take 200 ns, by a clock of which each median may be 5 ns off."""
    cells = dict.fromkeys((HOST, MULTI), [200 * NS] * 10)
    (advice,) = advice_on(write_run(tmp_path / "run", cells, hosts=(host(clock_step=10 * NS),)))
    assert [one.at_most for one in advice.sizes[0].options.values()] == pytest.approx([1 / (1 - 5 / 200) ** 2] * 2)


def test_what_is_seen_through_the_steps(tmp_path: Path) -> None:
    """Half as long again; times of 20 operations, of which the step is a twentieth; times finer than their steps."""
    assert on_clock(tmp_path / "longer", stepped(200.0, 1), stepped(300.0, 2)).verdict == "slower"
    of_host, inside = ([made_record(case, n, 200 * NS, burst=20, cadence="streaming") for n in range(10)]
                       for case in (HOST, MULTI))  # fmt: skip
    assert on_clock(tmp_path / "bursts", of_host, inside).verdict == "same"
    times = [(200 + 0.7 * n) * NS for n in range(10)]
    finer = on_clock(tmp_path / "finer", times, times, None)
    assert finer.ratio is not None and (finer.verdict, finer.ratio.resolution) == ("same", 0.0)


def test_intervals_are_wider_by_half_a_step_on_each_side() -> None:
    times, others = [200.0] * 10, [300.0] * 10
    assert centre(times, half_step=5.0).interval == (195.0, 205.0)
    for ratio in (ratio_in_blocks, ratio_of_sides):
        low, high = ratio(others, times, half_steps=(5.0, 5.0)).interval or (0.0, 0.0)
        assert low == pytest.approx(1.5 * (1 - 5 / 300) * (1 - 5 / 200))
        assert high == pytest.approx(1.5 / (1 - 5 / 300) / (1 - 5 / 200))
