"""Tables of comparisons and their verdict in words: losses first, nothing left unsaid."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.advised_runs import advice_on
from tests.unit.conftest import Collbench
from tests.unit.made_runs import Entry, host, made_case, made_record, spread, write_run

from collbench.analysis.compare import MARGIN, Comparison, compare
from collbench.analysis.compare import compare as compared
from collbench.analysis.estimate import centre, ratio_in_blocks, ratio_of_sides
from collbench.analysis.factors import find_factor
from collbench.analysis.pairs import across, within
from collbench.analysis.planning import hidden_by_clock
from collbench.analysis.runs import observe
from collbench.report.tables import Table
from collbench.report.verdict import MOST_ROWS, sentence, tables
from collbench.schema.case import Case
from collbench.units import format_size

US = 1e-6

#: By size what a container takes over the host, with a spread of a part of a per cent; a number alone is noise.
FACTORS = {8: 1.12, 64: 1.5, 512: 0.75, 4096: 1.0}


def sides(image: str, size: int) -> tuple[Case, Case]:
    return made_case("host", image=image, size=size), made_case("multi", "strict", image=image, size=size)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A host and a container: two sizes slower, one faster, one the same, one open and one that fails."""
    cells: dict[Case, list[Entry]] = {}
    for size, factor in FACTORS.items():
        host, multi = sides("a", size)
        cells |= {host: [*spread(10 * US, 10, 0.001)], multi: [*spread(10 * US * factor, 10, 0.001)]}
    host, multi = sides("a", 32768)
    cells |= {host: [*spread(10 * US)], multi: [10 * US * (0.8 if block % 2 else 1.25) for block in range(10)]}
    host, multi = sides("a", 65536)
    cells |= {host: [*spread(10 * US)], multi: ["died"] * 10}
    return write_run(tmp_path / "run", cells)


def grid_of(run: Path) -> Table:
    """What is shown first of a host and a container."""
    (table,) = tables(compared(within(observe(run), find_factor("policy"), frozenset())), 0.05)
    return table


def document(compare: Collbench, run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(compare(run, "--by", "policy", "--style", "json").out)
    return found


def verdicts(compare: Collbench, run: Path) -> dict[int, str]:
    """By size."""
    return {one["base"]["case"]["what"]["size"]: one["verdict"] for one in document(compare, run)["comparisons"]}


def test_each_size_has_its_verdict_and_the_first_line_is_the_answer(compare: Collbench, run: Path) -> None:
    assert verdicts(compare, run) == {
        8: "slower", 64: "slower", 512: "faster", 4096: "same", 32768: "unclear", 65536: "not comparable"
    }  # fmt: skip
    first, *_ = compare(run, "--by", "policy").out.splitlines()
    assert first == document(compare, run)["answer"]


#: Of the run's sizes those that an answer is of.
MIXES: dict[str, tuple[int, ...]] = {
    "every verdict": (8, 64, 512, 4096, 32768, 65536), "slower": (8, 64), "faster": (512,), "same": (4096,),
    "unclear": (32768,), "slower, same": (8, 4096), "same, unclear": (4096, 32768), "not compared": (65536,),
}  # fmt: skip


def test_the_answer_of_each_mix_of_verdicts(golden: Callable[[str, str], None], run: Path, tmp_path: Path) -> None:
    comparisons = compared(within(observe(run), find_factor("policy"), frozenset()))
    lines = {
        name: sentence([one for one in comparisons if one.pair.base.case["size"] in sizes], MARGIN)
        for name, sizes in MIXES.items()
    }
    host, multi = sides("a", 8)
    few = observe(write_run(tmp_path / "few", {host: spread(US, 4), multi: spread(US, 4)}))
    lines["too few launches"] = sentence(compared(within(few, find_factor("policy"), frozenset())), MARGIN)
    for name, factor in (("slower", 1.5), ("same", 1.0)):
        before, after = (observe(write_run(tmp_path / f"{name}{n}", {host: spread(US * by, 10, 0.001)}))
                for n, by in enumerate((1.0, factor)))  # fmt: skip
        lines[f"of two runs, {name}"] = sentence(compared(across(before, after, None, frozenset())), MARGIN)
    text = "".join(f"{name}: {answer}\n" for name, answer in lines.items())
    golden("compare-answers.txt", text.replace(f"{tmp_path}/", ""))


def test_what_is_open_is_said_once_with_what_would_tell(compare: Collbench, run: Path) -> None:
    (more,) = (one["launches_more"] for one in document(compare, run)["comparisons"] if one["verdict"] == "unclear")
    assert more is not None
    lines = compare(run, "--by", "policy").out.splitlines()
    assert sum(line.startswith("* ") and f"{more} more launch" in line for line in lines) == 1


def test_every_cell_is_there_for_who_asks(compare: Collbench, run: Path) -> None:
    out = compare(run, "--by", "policy", "--all").out
    assert [word for word in ("unclear (", "not comparable (", " same") if word not in out] == []
    data = compare(run, "--by", "policy", "--style", "csv").out
    assert len(data.splitlines()) == 7, "a head and all six cells"
    found = document(compare, run)
    assert out.startswith(found["answer"]) and len(found["comparisons"]) == 6


def test_too_few_launches_establish_nothing(compare: Collbench, tmp_path: Path) -> None:
    host, multi = sides("a", 8)
    (one,) = document(compare, write_run(tmp_path / "run", {host: spread(US, 4), multi: spread(US, 4)}))["comparisons"]
    assert (one["verdict"], one["launches_more"], one["ratio"]["interval"]) == ("unclear", 2, None)


def test_a_loss_that_is_not_excluded_is_not_called_none(compare: Collbench, tmp_path: Path) -> None:
    host, multi = sides("a", 8)
    noisy = [US * (0.8 if n % 2 else 1.3) for n in range(10)]
    cells: dict[Case, list[Entry]] = {host: [*spread(US, 10, 0.001)], multi: [*noisy]}
    assert verdicts(compare, write_run(tmp_path / "run", cells)) == {8: "unclear"}
    host, multi = sides("a", 16)
    cells |= {host: [*spread(US, 10, 0.001)], multi: [*spread(US, 10, 0.001)]}
    assert verdicts(compare, write_run(tmp_path / "more", cells)) == {8: "unclear", 16: "same"}


def test_with_every_cell_nothing_is_left_to_ask_for(compare: Collbench, run: Path) -> None:
    assert "--all" not in compare(run, "--by", "policy", "--all").out


def test_of_many_differences_the_largest_losses_are_shown(compare: Collbench, tmp_path: Path) -> None:
    cells: dict[Case, list[Entry]] = {}
    for step in range(30):
        host, multi = sides("a", 8 << step)
        cells |= {host: [*spread(10 * US, 10, 0.001)], multi: [*spread((11 + step) * US, 10, 0.001)]}
    grid = grid_of(write_run(tmp_path / "run", cells))
    sizes = {row[grid.columns.index("size (B)")] for row in grid.rows}
    assert sizes == {format_size(8 << step) for step in range(30 - MOST_ROWS, 30)}
    assert compare(tmp_path / "run", "--by", "policy", "--style", "csv").out.count("slower") == 30


def test_slow_launches_that_no_median_shows_are_in_the_table(compare: Collbench, tmp_path: Path) -> None:
    host, multi = sides("a", 8)
    steady = spread(US, 60, 0.002)
    jumping = [time * (2 if n % 6 == 0 else 1) for n, time in enumerate(steady)]
    run = write_run(tmp_path / "run", {host: steady, multi: jumping})
    (one,) = document(compare, run)["comparisons"]
    assert (one["verdict"], one["slow"]["launches"]) == ("same", [0, 10])
    assert all("slow" in compare(run, "--by", "policy", *flags).out for flags in ((), ("--all",)))


def test_a_row_is_named_by_what_tells_it_from_the_others(tmp_path: Path) -> None:
    cells: dict[Case, list[Entry]] = {}
    for op, factor in (("sum", 1.2), ("max", 1.4)):
        for image in ("a", "b"):
            host, multi = (case.having(op=op) for case in sides(image, 8))
            cells |= {host: [*spread(US, 10, 0.001)], multi: [*spread(factor * US, 10, 0.001)]}
    grid = grid_of(write_run(tmp_path / "run", cells))
    assert "size (B)" not in grid.columns and "image" in grid.columns
    assert len({row[:-1] for row in grid.rows}) == len(grid.rows) == 4


def test_that_launches_differ_from_each_other_is_said(compare: Collbench, tmp_path: Path) -> None:
    host, multi = sides("a", 8)
    cells: dict[Case, list[Entry]] = {host: [*spread(US, 10, 0.001)], multi: [US * (1 + n % 2) for n in range(10)]}
    lines = compare(write_run(tmp_path / "run", cells), "--by", "policy").out.splitlines()
    assert any(line.startswith("* in 1 of 1 cell ") and " half" in line for line in lines)


# Medians that are multiples of the clock's step -----------------------------------------------------------------------

HOST, MULTI = made_case("host", image="a"), made_case("multi", "strict", image="a")
NS = 1e-9


def stepped(true: float, launches: int, seed: int) -> list[Entry]:
    """Launches around a time in ns, spread by half a per cent, as a clock with steps of 10 ns shows them."""
    times = np.random.default_rng(seed).normal(true, 0.005 * true, launches)
    return [float(time) * NS for time in np.rint(times / 10) * 10]


def compared_clock(path: Path, base: list[Entry], other: list[Entry], step: float | None) -> Comparison:
    run = write_run(path, {HOST: base, MULTI: other}, hosts=(host(clock_step=step),))
    observed = observe(run)
    [found] = compare(within(observed, find_factor("policy"), frozenset()))
    return found


@pytest.mark.parametrize("seed", range(6))
def test_three_per_cent_below_the_step_is_never_the_same(tmp_path: Path, seed: int) -> None:
    """200 ns against 206 ns: all medians are 200 or 210 ns."""
    base, other = stepped(199.0, 25, seed), stepped(205.2, 25, seed + 100)
    comparison = compared_clock(tmp_path / "run", base, other, 10 * NS)
    assert comparison.verdict == "unclear" and comparison.launches_more is None
    assert comparison.ratio is not None and comparison.ratio.interval is not None
    assert hidden_by_clock(comparison.ratio, MARGIN)
    assert comparison.ratio.interval[0] <= 205.2 / 199.0 <= comparison.ratio.interval[1]
    assert comparison.base is not None and comparison.base.interval is not None
    assert comparison.base.interval[1] - comparison.base.interval[0] >= 9.99 * NS


def test_what_an_option_may_lose_is_no_less_than_the_step_leaves_open(tmp_path: Path) -> None:
    """All launches of both sides take 200 ns, by a clock of which each median may be 5 ns off."""
    run = write_run(
        tmp_path / "run", {HOST: [200 * NS] * 10, MULTI: [200 * NS] * 10}, hosts=(host(clock_step=10 * NS),)
    )
    (advice,) = advice_on(run)
    assert [one.at_most for one in advice.sizes[0].options.values()] == pytest.approx([1 / (1 - 5 / 200) ** 2] * 2)


def test_half_as_long_again_is_seen_through_the_steps(tmp_path: Path) -> None:
    comparison = compared_clock(tmp_path / "run", stepped(200.0, 25, 1), stepped(300.0, 25, 2), 10 * NS)
    assert comparison.verdict == "slower"


def test_a_burst_divides_the_step(tmp_path: Path) -> None:
    """A time of 20 operations is 20 times as long, so the clock's step is a twentieth of it."""
    entries = [[made_record(case, n, 200 * NS, burst=20, cadence="streaming") for n in range(10)]
               for case in (HOST, MULTI)]  # fmt: skip
    comparison = compared_clock(tmp_path / "run", list(entries[0]), list(entries[1]), 10 * NS)
    assert comparison.verdict == "same"


def test_times_finer_than_their_differences_are_as_they_were(tmp_path: Path) -> None:
    """Launches that never agree to the nanosecond show no step."""
    times: list[Entry] = [(200 + 0.7 * n) * NS for n in range(10)]
    comparison = compared_clock(tmp_path / "run", times, times, None)
    assert comparison.verdict == "same" and comparison.ratio is not None and comparison.ratio.resolution == 0.0


def test_intervals_are_wider_by_half_a_step_on_each_side() -> None:
    times, others = [200.0] * 10, [300.0] * 10
    assert centre(times, half_step=5.0).interval == (195.0, 205.0)
    for ratio in (ratio_in_blocks, ratio_of_sides):
        low, high = ratio(others, times, half_steps=(5.0, 5.0)).interval or (0.0, 0.0)
        assert low == pytest.approx(1.5 * (1 - 5 / 300) * (1 - 5 / 200))
        assert high == pytest.approx(1.5 / (1 - 5 / 300) / (1 - 5 / 200))
