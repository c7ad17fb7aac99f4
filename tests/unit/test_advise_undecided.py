"""Where nothing is established nothing is recommended: the fastest is named, what rivals it, and what would tell."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.unit.advised_runs import US, advice_on, ladder
from tests.unit.made_runs import Entry, made_case, spread, write_run

from collbench.analysis.advise import Advice, slower_alone
from collbench.analysis.compare import Comparison
from collbench.analysis.estimate import Estimate
from collbench.analysis.options import Option
from collbench.report.advice.answer import answer
from collbench.report.advice.sentences import Advised, complete, sentences
from collbench.report.advice.tables import costs, document
from collbench.schema.case import Case

NOISE = [0.8 if block % 2 else 1.25 for block in range(10)]


def noisy(seed: int) -> list[Entry]:
    return [10 * US * float(noise) for noise in np.random.default_rng(seed).uniform(0.7, 1.4, 10)]


def undecided(one: Comparison, ratio: Estimate) -> Comparison:
    """Among 45 comparisons this one is not established, whatever its own interval says."""
    return replace(one, ratio=ratio, verdict="inconclusive", p=0.016, p_adjusted=0.14, cells=45, launches_more=None,
                   why="needs more than 1000 more launches")  # fmt: skip


def with_ratio(advice: Advice, library: str, place: tuple[str, str], ratio: Estimate) -> Advice:
    """The same advice, where this option is undecided with this ratio."""

    def changed(option: Option, one: Comparison) -> Comparison:
        is_it = (option["library"], option["policy"], option["isolation"]) == (library, *place)
        return undecided(one, ratio) if is_it else one

    sizes = tuple(
        replace(size, others={option: changed(option, one) for option, one in size.others.items()})
        for size in advice.sizes
    )
    ranges = tuple(replace(of, sizes=tuple(one for one in sizes if one.size in {at.size for at in of.sizes}))
                   for of in advice.ranges)  # fmt: skip
    return replace(advice, sizes=sizes, ranges=ranges)


def run_of_two(path: Path) -> Advice:
    """The host with openmpi, the container 6x; mpich the same, its host 1.11x as slow, its container 3x."""
    times = {("openmpi", "host"): 10, ("openmpi", "multi"): 60, ("mpich", "host"): 11.1, ("mpich", "multi"): 30}
    cells = {made_case(policy, None if policy == "host" else "strict", image=image): spread(time * US)
             for (image, policy), time in times.items()}  # fmt: skip
    (advice,) = advice_on(write_run(path, cells))
    return advice


def test_nothing_is_taken_where_all_may_be_as_fast(tmp_path: Path) -> None:
    cells: dict[Case, list[Entry]] = {made_case(image="a", size=8): [*spread(10 * US)]}
    cells |= {made_case(image=name, size=8): [*spread(30 * US)] for name in "bcd"}
    cells |= {made_case(image=name, size=1024): noisy(turn)
              for turn, name in enumerate("abcd")}  # fmt: skip
    (advice,) = advice_on(write_run(tmp_path / "run", cells))
    first, _, third = answer(Advised(advice, (), ()))
    assert first == "Take a at 8; undecided at 1K."
    assert third.startswith("How sure: every other option is slower at 8; undecided at 1K: ")
    assert "was the fastest measured; 3 of 3 others may be as fast, at most 55.7 % slower; " in third
    (entry,) = document([Advised(advice, (), ())], [])["advice"]
    assert [(size["take"], size["sure"]) for size in entry["sizes"]] == [("a", "sure"), (None, "undecided")]
    (alone,) = advice_on(write_run(tmp_path / "alone", {case: own for case, own in cells.items() if case["size"] > 8}))
    first, *rest = answer(Advised(alone, (), ()))
    assert first.startswith("Undecided at 1K: ") and first.endswith(
        " was the fastest measured; 3 of 3 others may be as fast, at most 55.7 % slower."
    )
    assert not any("Take" in line or "Instead" in line for line in rest)


def test_the_fastest_of_each_size_is_named_where_they_differ(tmp_path: Path) -> None:
    cells = {made_case(image=image, size=size): [time * US * noise for noise in order]
             for size, times in ((8, (10, 10.2)), (1024, (10.2, 10)))
             for image, time, order in zip("ab", times, (NOISE, [1.0] * 10), strict=True)}  # fmt: skip
    (advice,) = advice_on(write_run(tmp_path / "run", cells))
    bests = [advice.question.name(one.best) for one in advice.sizes]
    first, *_ = answer(Advised(advice, (), ()))
    if bests[0] != bests[1]:
        assert first.startswith(f"Undecided at 8, 1K (fastest measured: {bests[0]} at 8; {bests[1]} at 1K): ")
    else:
        assert first.startswith(f"Undecided at 8, 1K: {bests[0]} was the fastest measured; ")
    assert not first.startswith("Take")


@pytest.mark.parametrize(("low", "alone"), [(1.57, True), (1.01, False), (0.9, False)])
def test_an_option_whose_own_interval_lies_above_the_best_is_not_said_to_be_as_fast(
    tmp_path: Path, low: float, alone: bool
) -> None:
    advice = with_ratio(run_of_two(tmp_path / "run"), "mpich", ("multi", "strict"), Estimate(1.9, (low, 6.37), 10))
    (size,) = advice.sizes
    assert [slower_alone(one) for one in size.undecided.values()] == [alone]
    text = " ".join([*answer(Advised(advice, (), ())), *sentences(Advised(advice, (), ()))])
    assert ("mpich, multi strict may be as fast" in text) is not alone
    assert ("possibly as fast: mpich, multi strict" in text) is not alone
    assert ("Slower by its own interval, but not established: mpich, multi strict; not even" in text) is alone
    assert ("slower by its own interval: 1, not established among 45 comparisons (p adjusted 0.14)" in text) is alone
    assert answer(Advised(advice, (), ()))[0].startswith("Undecided at 1K: openmpi, host was the fastest measured")


@pytest.mark.parametrize(("interval", "said"), [((1.57, 6.37), "1.11x"), ((0.9, 6.37), "undecided")])
def test_the_answer_and_the_table_say_the_same_of_a_library(
    tmp_path: Path, interval: tuple[float, float], said: str
) -> None:
    """The cheapest option of the other library is decided; another one of it is not."""
    ratio = Estimate(1.9, interval, 10)
    advised = Advised(with_ratio(run_of_two(tmp_path / "run"), "mpich", ("multi", "strict"), ratio), (), ())
    assert ("mpich: 1.11x" in " ".join(answer(advised))) is (said == "1.11x")
    (cell,) = (row[2] for row in costs(advised).rows if row[:2] == ("library", "mpich"))
    assert cell.startswith("1.11x" if said == "1.11x" else "open (0.90 .. 6.37)")


def test_a_cost_of_isolation_that_is_not_established_is_no_number(tmp_path: Path) -> None:
    (advice,) = advice_on(ladder(tmp_path / "run"))
    (advised,) = complete([advice], True)
    assert any("single strict takes 3.00x" in line for line in sentences(advised))
    isolation = {pair: undecided(one, Estimate(1.46, (1.28, 1.60), 10)) for pair, one in advice.isolation.items()}
    assert list(isolation), "a place and its most isolated step"
    lines = sentences(replace(advised, advice=replace(advice, isolation=isolation)))
    assert (
        "mpich: what single strict costs over host at 1K is undecided: by its own interval it is slower, "
        "not established among 45 comparisons (p adjusted 0.14)."
    ) in lines
    assert not any("Recovered" in line or "takes 3.00x (3.00 .. 3.00) the time of host" in line for line in lines)


def test_the_cost_of_isolation_is_tested_with_the_other_places_and_what_is_left_by_itself(tmp_path: Path) -> None:
    """Of six pairs two are places of mpich over its host, and one is the other library; three are left."""
    places = {("openmpi", "host", None): 10, ("mpich", "host", None): 20, ("mpich", "single", "strict"): 60,
              ("mpich", "single", "ipc"): 30}  # fmt: skip
    cells = {made_case(policy, step, image=image): spread(time * US) for (image, policy, step), time in places.items()}
    (advice,) = advice_on(write_run(tmp_path / "run", cells))
    ((free, isolated),) = advice.isolation
    one = advice.isolation[free, isolated]
    assert (free["policy"], isolated["isolation"], one.verdict, one.cells) == ("host", "strict", "slower", 2)
    assert sorted(other.cells for other in advice.sizes[0].others.values()) == [1, 3, 3]


@pytest.mark.parametrize(
    ("interval", "said"),
    [((1.14, 27.68), "ipc all of it"), ((0.4, 27.0), "ipc at least 40 %"), ((0.7, 0.9), "ipc 80 % (70 .. 90)")],
)
def test_a_share_whose_interval_has_no_end_is_no_number(
    tmp_path: Path, interval: tuple[float, float], said: str
) -> None:
    (advised,) = complete(advice_on(ladder(tmp_path / "run")), True)
    recoveries = [replace(one, share_interval=interval) for one in advised.recoveries if one.step["isolation"] == "ipc"]
    text = " ".join(sentences(replace(advised, recoveries=tuple(recoveries))))
    assert f"Recovered by: {said}." in text and "27" not in text


def test_each_end_of_a_price_has_its_size(tmp_path: Path) -> None:
    times = {8: (10, 374), 64: (10, 100), 512: (10, 49.8)}
    cells = {made_case(policy, step, image="a", size=size): spread(time * US)
             for size, both in times.items()
             for (policy, step), time in zip((("host", None), ("single", "strict")), both, strict=True)}  # fmt: skip
    (advice,) = advice_on(write_run(tmp_path / "run", cells))
    _, instead, _ = answer(Advised(advice, (), ()))
    assert instead == "Instead single strict: 4.98x at 512 to 37.4x the time at 8."
