"""How many launches a verdict lacks: what they could see, what a command suggests, what the next block executes."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import t
from tests.unit.conftest import Collbench
from tests.unit.made_gates import SMALL, made_gate
from tests.unit.made_runs import Entry, experiment, library, made_case, made_cell, spread, write_run
from tests.unit.made_suite import CPU, write_suite

from collbench.analysis import planning
from collbench.analysis.bounds import Launches, in_order, intervals
from collbench.analysis.compare import CHANCE, MOST, Comparison, Reason, by_suite, judge, launches_more
from collbench.analysis.estimate import FEWEST, Estimate, in_logarithms
from collbench.analysis.pairs import Pair
from collbench.analysis.planning import OpenAtPlace, cost, false_positives, next_block, power, smallest
from collbench.analysis.runs import observe
from collbench.cli.launch import launch_command
from collbench.report.page.contents import sentences
from collbench.report.verdict import ALTERNATELY, EXTEND, what_tells
from collbench.schema.case import Case
from collbench.schema.manifest import Until

Sides = NDArray[np.float64]


def ratios(sides: Sides) -> list[Estimate]:
    """Of a question, [cells, 2, n]: base and other side in blocks."""
    blocks = range(sides.shape[-1])
    cells = [Launches(base.tolist(), other.tolist(), blocks, blocks) for base, other in sides]
    return [in_logarithms(Estimate(value, (low, high), len(blocks)), 0.0)
            for value, low, high in intervals(cells, in_blocks=True)]  # fmt: skip


def test_six_launches_settle_one_cell_of_a_hundred_that_takes_twice_the_time() -> None:
    draw = np.random.default_rng(3)
    sides = np.exp(draw.normal(0, 0.01, (100, 2, 6)))
    sides[0, 1] *= 2.0
    assert judge(ratios(sides)[0], 0.02)[0] == "slower"


def test_among_more_sizes_it_takes_more_launches() -> None:
    draw = np.random.default_rng(3)
    sides = np.exp(draw.normal(0, 0.05, (20, 2, 10)))
    sides[0, 1] *= 1.03
    more = [launches_more(ratios(sides[:sizes])[0], 0.02) for sizes in (1, 4, 20)]
    assert more[0] is not None and more[1] is not None and more[2] is not None
    assert more[0] < more[1] < more[2]


def test_after_the_launches_that_are_advised_four_cells_in_five_have_a_verdict() -> None:
    """Spread 3 %, 10 blocks, differences of 0, 3 and 4 %: the plan is made, then that many blocks are drawn besides."""
    draw = np.random.default_rng(7)
    decided = []
    for effect in (0.0, 0.03, 0.04) * 90:
        pair = np.exp(draw.normal(0, 0.03, (1, 2, MOST)))
        pair[0, 1] *= 1 + effect
        _, _, more = judge(ratios(pair[..., :10])[0], 0.02)
        if more is not None and more < MOST - 10:
            decided.append(judge(ratios(pair[..., : 10 + more])[0], 0.02)[0] != "unclear")
    assert len(decided) > 150
    assert 0.7 <= np.mean(decided) <= 0.95


def test_what_is_lacking_grows_about_with_the_square_of_the_spread() -> None:
    ends = [1.1**times for times in (0.5, 1.0)]
    needed = [10 + (launches_more(Estimate(1.0, (1 / end, end), 10), 0.02) or 0) for end in ends]
    assert 3.0 <= needed[1] / needed[0] <= 4.5


def known(launches: int = 1000) -> Estimate:
    """Equal sides whose launches spread by 5 %, which so many have shown."""
    half = float(t.ppf(0.975, launches - 1)) * 0.05 * math.sqrt(2 / launches)
    return Estimate(1.0, (math.exp(-half), math.exp(half)), launches)


@pytest.mark.parametrize("later", [7, 12])
def test_four_runs_in_five_show_the_difference_that_a_plan_says_they_show(later: int) -> None:
    draw = np.random.default_rng(5)
    (difference,) = power([known()], later, 0.05).differences
    shown = []
    for _ in range(200):
        sides = np.exp(draw.normal(0, 0.05, (1, 2, later)))
        sides[0, 1] *= 1 + difference
        shown.append(ratios(sides)[0].excludes(1.0))
    assert abs(np.mean(shown) - CHANCE) < 0.1


def test_equal_cells_are_the_same_in_four_runs_of_five_from_the_number_that_says_so() -> None:
    draw = np.random.default_rng(5)
    first = next(number for number in range(6, 100) if power([known()], number, 0.1).same)
    same = [ratios(np.exp(draw.normal(0, 0.05, (1, 2, first))))[0].within(1 / 1.1, 1.1) for _ in range(200)]
    assert abs(np.mean(same) - CHANCE) < 0.1


def test_a_cell_without_an_interval_is_no_part_of_what_launches_decide() -> None:
    """And what the clock leaves open does not shrink with launches."""
    ratio, endless = Estimate(1.0, (0.9, 1.1), 8), Estimate(1.0, (0.0, math.inf), 6)
    assert power([ratio, Estimate(1.0, None, 3), endless], 10, 0.05) == power([ratio], 10, 0.05)
    coarse = Estimate(1.0, (0.9, 1.1), 8, resolution=0.04)
    assert power([coarse], 1000, 0.05).differences[0] > math.expm1(0.04)


# What so many launches can see ----------------------------------------------------------------------------------------


def sides(spread: float, launches: int = 10, cells: int = 3, between: float = 0.0) -> list[Launches]:
    """Launches of one thing under two names, with a spread within blocks and one between them (shares)."""
    generator = np.random.default_rng(5)
    made = []
    for _ in range(cells):
        block = generator.normal(0, between, launches)
        base, other = (np.exp(block + generator.normal(0, spread, launches)) * 1e-5 for _ in range(2))
        made.append(in_order(base.tolist(), other.tolist()))
    return made


def test_names_that_mean_nothing_are_seldom_called_different() -> None:
    """Over all swaps of eight blocks about 5 % of them have any cell whose interval excludes equality.

    Not exactly: each interval is that of a test in which the other cells stand at their own locations.
    """
    assert 0.02 < false_positives(sides(0.05, launches=8, cells=8)) < 0.06


@pytest.mark.slow
def test_quiet_launches_see_smaller_differences() -> None:
    quiet, loud = smallest(sides(0.005), 0.02), smallest(sides(0.05), 0.02)
    assert all(share is not None and share <= 0.03 for share in quiet)
    assert all(share is not None and share >= 0.05 for share in loud)
    assert smallest(sides(3.0), 0.05) == [None] * 3, "none that is tried overcomes so much"


def test_drift_from_block_to_block_hides_little() -> None:
    assert all(share is not None and share <= 0.05 for share in smallest(sides(0.005, between=0.3), 0.02))


def test_a_difference_is_put_into_one_cell_beside_others_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six launches tell one cell of eight; in launches that spread by more, one of many takes a larger difference."""
    monkeypatch.setattr(planning, "STEPS", (0.03, 0.04, 0.05, 0.06, 0.07, 0.08, 0.1))
    assert all(one is not None and one <= 0.1 for one in smallest(sides(0.005, 6, 8), 0.02))
    alone, among = smallest(sides(0.02, 7, 1), 0.02), smallest(sides(0.02, 7, 12), 0.02)
    assert alone[0] is not None
    assert among[0] is None or among[0] > alone[0]


# What would tell more of what is undecided ----------------------------------------------------------------------------

BEGINS = EXTEND.partition("{")[0]
HOST, SINGLE = made_case(image="openmpi"), made_case("single", "strict", image="openmpi")
BY_POLICY = ("--by", "policy")


def undecided(
    seed: int, *cases: Case, launches: int = 9, apart: float = 0.03, spread: float = 0.06
) -> dict[Case, list[Entry]]:
    """The second case takes 3 % longer, and launches differ by twice as much."""
    draw = np.random.default_rng(seed)
    return {case: [float(1e-5 * np.exp(draw.normal(apart * place, spread))) for _ in range(launches)]
            for place, case in enumerate(cases)}  # fmt: skip


def hopeless() -> dict[Case, list[Entry]]:
    """Launches differ by more than any number of them could settle."""
    return undecided(3, HOST, SINGLE, apart=0.0, spread=2.0)


def extended(out: str, run: Path, command: str = "launch") -> list[int]:
    """The numbers of launches that the run is to get, by the command that is suggested."""
    line = rf"\* next: collbench {command} .*--resume {re.escape(str(run))} --until decided --launches ([0-9]+)"
    return [int(number) for number in re.findall(f"^{line}", out, re.MULTILINE)]


def answers(compare: Collbench, run: Path, *flags: str) -> list[tuple[str, int | None]]:
    """The verdict of each comparison, and the launches that it lacks."""
    document = json.loads(compare(run, *BY_POLICY, *flags, "--style", "json").out)
    return [(one["verdict"], one["launches_more"]) for one in document["comparisons"]]


@pytest.mark.parametrize(
    ("seed", "launches", "planned", "until", "most"),
    [
        (4, 9, 9, "launches", 18), (4, 9, 9, "decided", 18),
        # twice as many decide too few, are more than enough, or would have to be over four times as many
        (1, 7, 7, "launches", 18), (20, 7, 7, "launches", 14), (3, 7, 7, "launches", 14),
        (4, 7, 14, "decided", 28),  # fewer than it was to have would be refused
        (4, 2, 2, "launches", FEWEST),
        (4, 9, 600, "decided", 1000), (4, 9, 1000, "decided", None),  # a plan may have no more
    ],
)  # fmt: skip
def test_a_run_that_launch_made_is_extended_by_as_many_launches_as_decide_anything(
    compare: Collbench, tmp_path: Path, seed: int, launches: int, planned: int, until: Until, most: int | None
) -> None:
    made = experiment(("openmpi",), launches=planned, until=until)
    run = write_run(tmp_path / "run", undecided(seed, HOST, SINGLE, launches=launches), experiment=made)
    out = compare(run, *BY_POLICY).out
    assert (extended(out, run), ALTERNATELY in out) == ([] if most is None else [most], False)
    assert launches < FEWEST or answers(compare, run)[0][0] == "unclear"
    if launches == planned == 7:
        assert answers(compare, run) == [("unclear", {1: 11, 20: 1, 3: 60}[seed])]


def test_the_command_has_the_flags_of_launch() -> None:
    flags = {name for parameter in launch_command.params for name in parameter.opts}
    assert {"--resume", "--until", "--launches"} == set(re.findall(r"--[a-z]+", EXTEND)) <= flags


def test_two_runs_or_folders_are_to_be_measured_alternately(
    compare: Collbench, here: Collbench, tmp_path: Path
) -> None:
    """Neither of two runs has both sides; runs of mpirun in a folder could not be continued."""
    for name, apart in (("a", 0.0), ("b", 0.06)):
        write_run(tmp_path / name, {HOST: undecided(4, HOST, HOST, apart=apart)[HOST]})
    out = compare(tmp_path / "a", tmp_path / "b").out
    assert f"* {ALTERNATELY}" in out and BEGINS not in out
    assert BEGINS not in compare(tmp_path / "a", tmp_path / "b", "--in-blocks").out
    host = made_case()
    for number in range(7):
        write_run(tmp_path / "all" / str(number), undecided(number, host, host.having(driver="python"), launches=1))
    out = here("compare", tmp_path / "all", "--by", "driver").out
    assert f"* {ALTERNATELY}" in out and "--resume" not in out


@pytest.mark.parametrize("until", ["launches", "decided"])
def test_no_launches_that_would_not_tell(compare: Collbench, here: Collbench, tmp_path: Path, until: Until) -> None:
    """Until decided, what is resumed would end at once."""
    run = write_run(tmp_path / "run", hopeless(), experiment=experiment(("openmpi",), launches=9, until=until))
    assert answers(compare, run) == [("unclear", None)]
    assert all(BEGINS not in out for out in (compare(run, *BY_POLICY).out, here("advise", run).out))


def test_what_only_the_readers_margin_leaves_open_starts_nothing(compare: Collbench, tmp_path: Path) -> None:
    """Launches are made until it is decided by their own margin."""
    cells: dict[Case, list[Entry]] = {
        case: [1e-5 * (1 + 0.001 * (number % 3) * place) for number in range(20)]
        for place, case in enumerate((HOST, SINGLE))
    }
    run = write_run(tmp_path / "run", cells, experiment=experiment(("openmpi",), launches=20, until="decided"))
    narrow = ("--margin", "0.05%")
    assert [answers(compare, run)[0][0], answers(compare, run, *narrow)[0][0]] == ["same", "unclear"]
    assert BEGINS not in compare(run, *BY_POLICY, *narrow).out


def test_a_gate_is_resumed_as_a_gate(compare: Collbench, tmp_path: Path) -> None:
    times = undecided(4, HOST, SINGLE)
    run = made_gate(tmp_path, {SMALL: times[HOST]}, {SMALL: times[SINGLE]}, launches=9)
    assert extended(compare(run, "--by", "side").out, run, "gate") == [18]


# How many launches would decide, or why launches would not ------------------------------------------------------------

OVER = Reason("launches", (None,))


def unclear(ratio: float, more: int | None, why: Reason | None = None, size: int = 8) -> Comparison:
    """A cell that needs so many more launches, or has no interval where `why` says so."""
    pair = Pair(made_cell(made_case(size=size), ()), made_cell(made_case(size=size), ()), "a", "b")
    interval = None if why is not None and why.kind == "few launches" else (0.9 * ratio, 1.1 * ratio)
    return Comparison(pair, None, None, Estimate(ratio, interval, 7), 3, None, "unclear",
                      why or Reason("launches", (more,)), more, True, (7, 7))  # fmt: skip


FEW = unclear(1.8, 2, Reason("few launches", (2,)))
CLOCK = unclear(1.001, None, Reason("clock", (0.042,)))


CELLS = (
    [unclear(1.009, 5), unclear(1.46, 22, size=1 << 20), unclear(0.9, None, OVER), unclear(0.97, 841)],
    [FEW, unclear(1.1, 16)], [FEW], [unclear(1.1, 5), unclear(1.2, 9)],
    [unclear(1.1, None, OVER), unclear(1.2, None, OVER)], [CLOCK],
    [unclear(1.1, None, Reason("blocks", (blocks,))) for blocks in (14, 9, 9)],
    [unclear(1.1, None, Reason("blocks", (9,))), CLOCK, CLOCK],
)  # fmt: skip


def test_what_would_tell(golden: Callable[[str, str], None]) -> None:
    golden("what-would-tell.txt", "".join(f"{what_tells(cells)}\n" for cells in CELLS))


# What places execute in the next block --------------------------------------------------------------------------------

Side = tuple[str, int]


def compared(*pairs: tuple[str, str], sizes: tuple[int, ...] = (8, 64)) -> list[tuple[Side, Side]]:
    return [((base, size), (other, size)) for base, other in pairs for size in sizes]


def both(base: str, other: str, size: int) -> set[Side]:
    return {(base, size), (other, size)}


def executed(here: set[int], elsewhere: set[int] | None = None) -> OpenAtPlace[int]:
    return OpenAtPlace(frozenset(here), frozenset(elsewhere or ()))


STAR = compared(("host", "strict"), ("host", "files"), ("host", "limits"))
IMAGES = compared(("a host", "a strict"), ("b host", "b strict"), ("a host", "b host"))
RANKS = compared(("2", "2 strict"), ("4", "4 strict"))

#: What is compared and what of it is open; what each place executes.
BLOCKS: dict[str, tuple[list[tuple[Side, Side]], set[Side], dict[str, OpenAtPlace[int]]]] = {
    "nothing": (STAR, set(), {}),
    "a place without anything open": (
        STAR, both("host", "files", 64), {"host": executed({64}), "files": executed({64})},
    ),
    "what is open elsewhere, at all that are compared": (
        STAR, both("host", "strict", 8) | both("host", "files", 64),
        {"host": executed({8, 64}), "strict": executed({8}, {64}), "files": executed({64}, {8})},
    ),
    "the same though nothing between them is open": (
        IMAGES, both("a host", "a strict", 8) | both("b host", "b strict", 64),
        {"a host": executed({8}, {64}), "a strict": executed({8}, {64}), "b host": executed({64}, {8}),
         "b strict": executed({64}, {8})},
    ),
    "not compared": (
        RANKS, both("2", "2 strict", 8) | both("4", "4 strict", 64),
        {"2": executed({8}), "2 strict": executed({8}), "4": executed({64}), "4 strict": executed({64})},
    ),
    "over one that is not launched": (
        STAR, {("strict", 8), ("files", 64)}, {"strict": executed({8}), "files": executed({64})},
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", BLOCKS)
def test_what_places_execute_in_the_next_block(what: str) -> None:
    pairs, still_open, expected = BLOCKS[what]
    assert next_block(pairs, still_open) == expected


def test_a_chain_is_one_group_whatever_the_order() -> None:
    names = [str(number) for number in range(9)]
    chain = compared(*itertools.pairwise(names), sizes=(1,))
    still_open = {(name, number) for number, name in enumerate(names)}
    for pairs in (chain, chain[::-1], chain[::2] + chain[1::2]):
        blocks = next_block(pairs, still_open)
        assert {block.here | block.elsewhere for block in blocks.values()} == {frozenset(range(9))}
        assert all(block.here == {number} for number, block in enumerate(blocks[name] for name in names))


# Of sides that were not measured alternately the machine may be what differs ------------------------------------------


@pytest.mark.parametrize(
    ("factors", "verdicts"),
    [((1.5, 1.2, 0.5), ["slower", "slower", "faster"]), ((1.0, 1.0, 0.5), ["same", "same", "faster"]),
     ((1.0, 1.0, 1.0), ["same"] * 3)],
)  # fmt: skip
def test_two_runs_are_compared(
    compare: Collbench, tmp_path: Path, factors: tuple[float, ...], verdicts: list[str]
) -> None:
    """The answer says so, whatever it is, and a note below."""
    cases = [made_case(size=8 << number) for number in range(3)]
    base, other = (
        write_run(tmp_path / name, {case: spread(1e-5 * by, share=0.001) for case, by in zip(cases, of, strict=True)})
        for name, of in (("a", (1.0,) * 3), ("b", factors))
    )
    comparisons = json.loads(compare(base, other, "--style", "json").out)["comparisons"]
    assert [(one["verdict"], one["blocks"]) for one in comparisons] == [(verdict, False) for verdict in verdicts]
    assert " ".join(compare(base, other).out.split()).count("measured alternately") == 2
    assert "alternately" not in compare(base, other, "--in-blocks").out


def test_advice_from_two_runs_has_the_condition_that_of_one_has_not(here: Collbench, tmp_path: Path) -> None:
    case = made_case(image=None)
    runs = [write_run(tmp_path / name, {case: spread(time)}, libraries=(library(name, "5.0"),))
            for name, time in (("MPICH", 2e-5), ("Open MPI", 1e-5))]  # fmt: skip
    assert "measured alternately" in here("advise", *runs, "--ignore", "launcher").out
    assert "alternately" not in here("advise", *runs, "--in-blocks", "--ignore", "launcher").out


def test_a_suite_in_a_report(tmp_path: Path) -> None:
    run = observe(write_suite(tmp_path / "run", CPU, slower={"dgemm": 1.06}))
    suites = {made.case.workload: "cpu" for made in CPU}
    for interleaved in (True, False):
        (line,) = sentences(by_suite(replace(run, interleaved=interleaved), "policy", suites, 0.02), 0.02)
        assert ("measured alternately" in line) is not interleaved


def test_what_a_difference_takes_by_cohens_formula() -> None:
    """((1.96 + 0.84) x 0.1 / log 1.05)^2 = 32.97 blocks for a spread of 10 %; a single launch has none."""
    cells = [in_order([1.0], [5.0]), in_order([1.0, 1.0], [1.0, math.exp(0.1 * math.sqrt(2))])]
    price = cost(cells, 0.05)
    assert price is not None
    assert price.spread == pytest.approx(0.1)
    assert price.launches == 33
    assert cost(cells[:1], 0.05) is None
