"""Intervals and bounds from launches: against their definition, tried at every place, and how often they hold."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from collbench.analysis.bounds import TUNING, Launches, bounds, excluded, intervals, intervals_of_sides, of_controls

Logs = NDArray[np.float64]


def made(seed: int, blocks: int, cells: int, spread: float = 0.03) -> Logs:
    """[cells, blocks]: logarithms of ratios, which cells of one block share in part."""
    draw = np.random.default_rng(seed)
    return draw.normal(0, spread, (cells, blocks)) + draw.normal(0, spread / 2, blocks)


def cells_of(logs: Logs) -> list[dict[int, float]]:
    return [dict(enumerate(row.tolist())) for row in logs]


def psi(row: Logs, place: float) -> Logs:
    most = TUNING * 1.4826 * float(np.median(np.abs(row - place)))
    return np.clip(row - place, -most, most)


def signs(blocks: int) -> Logs:
    return np.array(list(product((1.0, -1.0), repeat=blocks)))


def studentised(values: Logs, flipped: Logs) -> Logs:
    """Of each arrangement; a monotone function of t where all cells have as many blocks."""
    found: Logs = flipped @ values / np.sqrt(len(values) * (values**2).sum())
    return found


def excludes_above(row: Logs, place: float) -> bool:
    """Whether so large a loss is excluded by one cell's own test."""
    found = studentised(psi(row, place), signs(len(row)))
    return bool(np.mean(found <= found[0] + 1e-9) <= 0.05)


def excludes_below(logs: Logs, cell: int, place: float) -> bool:
    """Whether so small a loss is excluded by the test of all cells, in which all lose as much."""
    flipped = signs(logs.shape[1])
    found = np.array([studentised(psi(row, place), flipped) for row in logs])
    return bool(np.mean(found.max(axis=0) >= found[cell, 0] - 1e-9) <= 0.05)


@pytest.mark.parametrize("blocks", [6, 7, 8])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_bound_is_where_the_test_no_longer_rejects(seed: int, blocks: int) -> None:
    logs = made(seed, blocks, 3)
    found = bounds(cells_of(logs))
    for index, one in enumerate(found):
        step = 1e-3 * (one.upper - one.value)
        assert excludes_above(logs[index], one.upper + step) and not excludes_above(logs[index], one.upper - step)
        wide = 1e-3 * (one.value - one.lower)
        assert excludes_below(logs, index, one.lower - wide)
        assert not excludes_below(logs, index, one.lower + wide)


def test_where_all_cells_are_alike_as_many_are_named_falsely_as_it_says() -> None:
    """Modes that all cells share move their locations; the others must not stand there when one is tested."""
    draw, trials, wrong = np.random.default_rng(3), 200, 0
    for _ in range(trials):
        modes = draw.random((2, 6)) < 0.2
        logs = draw.normal(0, 0.014, (14, 6)) + 0.26 * (modes[1].astype(float) - modes[0])
        wrong += any(one.lower > 0 for one in bounds(cells_of(logs)))
    assert wrong <= 0.05 * trials + 2 * (0.05 * 0.95 * trials) ** 0.5


def test_a_location_is_the_root_of_psi_and_lies_between_its_bounds() -> None:
    logs = made(4, 9, 2)
    for row, one in zip(logs, bounds(cells_of(logs)), strict=True):
        assert psi(row, one.value).sum() == pytest.approx(0.0, abs=1e-8)
        assert one.lower < one.value < one.upper


def test_a_loss_in_every_block_moves_all_three_by_as_much() -> None:
    logs = made(5, 8, 4)
    for before, after in zip(bounds(cells_of(logs)), bounds(cells_of(logs + 0.1)), strict=True):
        assert np.array(after) - np.array(before) == pytest.approx([0.1] * 3, abs=1e-6)


def test_one_launch_that_is_far_off_moves_them_little() -> None:
    logs = made(6, 12, 1)
    (before,) = bounds(cells_of(logs))
    logs[0, 3] = 3.0
    (after,) = bounds(cells_of(logs))
    assert np.array(after) == pytest.approx(np.array(before), abs=0.03)


def test_equal_ratios_have_bounds_where_they_are() -> None:
    assert np.array(bounds(cells_of(np.full((2, 8), 0.05)))) == pytest.approx(np.full((2, 3), 0.05), abs=1e-9)


def test_cells_need_not_have_the_same_blocks() -> None:
    first, second = made(7, 10, 2)
    found = bounds(
        [dict(enumerate(first.tolist())), {number + 4: value for number, value in enumerate(second.tolist())}]
    )
    alone = [bounds([dict(enumerate(row.tolist()))])[0] for row in (first, second)]
    assert [one.value for one in found] == pytest.approx([one.value for one in alone])
    assert [one.upper for one in found] == pytest.approx([one.upper for one in alone], abs=0.01)


@pytest.mark.parametrize("blocks", [6, 8])
def test_they_hold_as_often_as_they_say(blocks: int) -> None:
    trials, lower, upper = 200, 0, 0
    for seed in range(trials):
        found = bounds(cells_of(made(seed, blocks, 5)))
        lower += any(one.lower > 0 for one in found)
        upper += found[0].upper < 0
    most = 0.05 * trials + 2 * (0.05 * 0.95 * trials) ** 0.5
    assert lower <= most and upper <= most
    assert upper >= 2, "they are not wider than they need be"


# Intervals: of all sizes of a question at once ------------------------------------------------------------------------


def sides(seed: int | list[int], launches: int, cells: int, effect: float = 0.0) -> list[Launches]:
    """Cells whose launches are in part alike; the other side takes e^`effect` times as long."""
    draw = np.random.default_rng(seed)
    shared = draw.normal(0, 0.02, (2, launches))
    logs = draw.normal(0, 0.03, (cells, 2, launches)) + shared + np.array([[0.0], [effect]])
    numbers = range(launches)
    return [Launches(base.tolist(), other.tolist(), numbers, numbers) for base, other in np.exp(logs)]


def shifted(cells: list[Launches], by: float) -> list[Launches]:
    return [cell._replace(other=[time * float(np.exp(by)) for time in cell.other]) for cell in cells]


def exchanged(cells: list[Launches]) -> list[Launches]:
    return [Launches(cell.other, cell.base, cell.of_other, cell.of_base) for cell in cells]


both_ways = pytest.mark.parametrize("in_blocks", [True, False])


def score_in_blocks(cell: Launches, place: float) -> Logs:
    """Of every way to exchange the sides of blocks."""
    logs = np.log(cell.other) - np.log(cell.base)
    return np.abs(studentised(psi(logs, place), signs(len(logs))))


def score_of_sides(cell: Launches, place: float) -> Logs:
    """Of every way to deal the launches to two sides, as many to each as were measured: a monotone function of t."""
    logs = np.concatenate((np.log(cell.other) - place, np.log(cell.base)))
    bounded = psi(logs, float(np.median(logs)))
    dealt = np.array([np.isin(np.arange(len(logs)), one) for one in combinations(range(len(logs)), len(cell.other))])
    apart = [bounded[names].mean() - bounded[~names].mean() for names in dealt]
    found: Logs = np.abs(apart) / bounded.std()
    return found


@both_ways
@pytest.mark.parametrize("seed", [1, 2])
def test_an_end_is_where_the_test_of_all_sizes_no_longer_rejects(seed: int, in_blocks: bool) -> None:
    """The others stand at their own locations; the arrangement that was measured is the first of all."""
    cells = sides(seed, 7 if in_blocks else 6, 3)
    found = intervals(cells, in_blocks)
    scores = score_in_blocks if in_blocks else score_of_sides

    def excludes(index: int, place: float) -> bool:
        places = [place if number == index else one.value for number, one in enumerate(found)]
        largest = np.max([scores(cell, at) for cell, at in zip(cells, places, strict=True)], axis=0)
        return bool(np.mean(largest >= scores(cells[index], place)[0] - 1e-9) <= 0.05)

    for index, (value, low, high) in enumerate(found):
        for end, sign in ((low, -1.0), (high, 1.0)):
            step = 1e-3 * sign * abs(end - value)
            assert excludes(index, end + step) and not excludes(index, end - step)


@both_ways
@pytest.mark.parametrize("number", [1, 5])
def test_intervals_hold_all_sizes_at_once_as_often_as_they_say(number: int, in_blocks: bool) -> None:
    """In 5 % of 200 repetitions, but for what is chance, any leaves out the true ratio."""
    trials, missed = 200, 0
    for trial in range(trials):
        found = intervals(sides([1, trial], 8 if in_blocks else 6, number, 0.1), in_blocks)
        missed += any(not low <= 0.1 <= high for _, low, high in found)
    assert 3 <= missed <= 0.05 * trials + 2 * (0.05 * 0.95 * trials) ** 0.5


@both_ways
def test_more_sizes_have_wider_intervals(in_blocks: bool) -> None:
    cells = sides(3, 8, 6)
    (value, low, high), *_ = intervals(cells, in_blocks)
    ((alone, low_alone, high_alone),) = intervals(cells[:1], in_blocks)
    assert low < low_alone < alone == value < high_alone < high


@both_ways
def test_exchanged_sides_have_the_mirrored_interval(in_blocks: bool) -> None:
    cells = sides(4, 7, 3, 0.02)
    for (value, low, high), one in zip(
        intervals(cells, in_blocks), intervals(exchanged(cells), in_blocks), strict=True
    ):
        assert tuple(one) == pytest.approx((-value, -high, -low), abs=1e-7)


@both_ways
def test_a_side_that_takes_longer_by_a_factor_shifts_intervals_by_it(in_blocks: bool) -> None:
    cells = sides(5, 8, 3)
    before, after = intervals(cells, in_blocks), intervals(shifted(cells, 0.3), in_blocks)
    assert np.array(after) - np.array(before) == pytest.approx(np.full((3, 3), 0.3), abs=1e-7)


def test_what_blocks_share_does_not_count_in_blocks() -> None:
    cells = sides(6, 8, 2)
    drift = np.exp(np.linspace(0, 3, 8)).tolist()
    moved = [cell._replace(base=np.multiply(cell.base, drift), other=np.multiply(cell.other, drift)) for cell in cells]
    assert np.array(intervals(moved, True)) == pytest.approx(np.array(intervals(cells, True)), abs=1e-7)


@both_ways
def test_one_launch_that_is_far_off_moves_an_interval_little(in_blocks: bool) -> None:
    (cell,) = sides(7, 12, 1)
    (before,) = intervals([cell], in_blocks)
    after = [intervals([cell._replace(other=[*cell.other[:3], far, *cell.other[4:]])], in_blocks)[0]
             for far in (1.3, 20.0, 2000.0)]  # fmt: skip
    width = before.high - before.low
    assert after[0].high - after[0].low < 2 * width
    assert abs(after[0].value - before.value) < 0.1 * width
    for one in after[1:]:
        assert tuple(one) == pytest.approx(tuple(after[0]), abs=0.02 * width)


@both_ways
def test_times_that_all_are_equal_have_an_interval_of_no_width(in_blocks: bool) -> None:
    cell = Launches([1e-5] * 8, [2e-5] * 8, range(8), range(8))
    assert list(intervals([cell], in_blocks)[0]) == pytest.approx([np.log(2)] * 3, abs=1e-9)


@both_ways
def test_with_fewer_than_six_launches_an_interval_has_no_ends(in_blocks: bool) -> None:
    (cell,) = sides(8, 6, 1)
    few = 5 if in_blocks else 3
    less = Launches(cell.base[:few], cell.other[:few], range(few), range(few))
    assert intervals([less], in_blocks)[0][1:] == (-np.inf, np.inf)
    assert np.isfinite(intervals([cell], in_blocks)[0]).all()


def without(cell: Launches, *numbers: int) -> Launches:
    kept = [index for index, number in enumerate(cell.of_base) if number not in numbers]
    base, other = ([side[index] for index in kept] for side in (cell.base, cell.other))
    return Launches(base, other, *([cell.of_base[index] for index in kept],) * 2)


@both_ways
def test_cells_that_lack_different_blocks_are_judged_by_those_that_each_has(in_blocks: bool) -> None:
    whole, second, third = sides(9, 9, 3)
    cells = [whole, without(second, 0), without(third, 2, 8)]
    found = intervals(cells, in_blocks)
    alone = [intervals([cell], in_blocks)[0] for cell in cells]
    assert [one.value for one in found] == pytest.approx([one.value for one in alone])
    assert all(one.low <= own.low + 1e-6 and own.high - 1e-6 <= one.high
               for one, own in zip(found, alone, strict=True))  # fmt: skip
    assert all(one.high - one.low < 2 * (own.high - own.low) for one, own in zip(found, alone, strict=True))


@both_ways
def test_launches_are_exchanged_together_by_their_numbers(in_blocks: bool) -> None:
    """Cells that have the same ratios in the same launches stand out together; a confidence of 50 % shows it."""
    (cell,) = sides(10, 7, 1)
    part = without(cell, 0, 1)
    backwards = Launches(part.base[::-1], part.other[::-1], part.of_base[::-1], part.of_other[::-1])
    elsewhere = part._replace(of_base=part.of_base[::-1], of_other=part.of_other[::-1])
    (same, *_), (again, *_), (others, *_) = (
        intervals([cell, one], in_blocks, 0.5) for one in (part, backwards, elsewhere)
    )
    assert tuple(again) == pytest.approx(tuple(same), abs=1e-7)
    assert same.high - same.low < 0.95 * (others.high - others.low)


@both_ways
def test_places_that_are_excluded_are_those_outside_the_intervals(in_blocks: bool) -> None:
    cells = sides(11, 8, 3)
    found = intervals(cells, in_blocks)
    places = [[low - 0.01, low + 1e-4, value, high - 1e-4, high + 0.01] for value, low, high in found]
    assert excluded(cells, in_blocks, places) == [[True, False, False, False, True]] * 3


# The best of several options ------------------------------------------------------------------------------------------


def options(seed: int, number: int, launches: int) -> dict[tuple[str, str], Launches]:
    """By (other, control) pairs of options that do not differ."""
    logs = np.random.default_rng(seed).normal(0, 0.03, (number, launches))
    times = {f"o{index}": np.exp(row).tolist() for index, row in enumerate(logs)}
    blocks = range(launches)
    return {(other, control): Launches(times[control], times[other], blocks, blocks)
            for other, control in combinations(times, 2)}  # fmt: skip


@both_ways
def test_of_equal_options_the_best_is_seldom_called_worse_than_any(in_blocks: bool) -> None:
    """The first stands for the best: with 95 % none of its bounds is above 0."""
    trials, wrong = 100, 0
    for seed in range(trials):
        found = of_controls(options(seed, 4, 8 if in_blocks else 6), in_blocks)
        assert len(found) == 12
        wrong += any(low > 0 for (other, _), low in found.items() if other == "o0")
    assert wrong <= 0.05 * trials + 2 * (0.05 * 0.95 * trials) ** 0.5


@both_ways
def test_who_is_named_first_of_a_pair_changes_no_bound(in_blocks: bool) -> None:
    pairs = options(1, 3, 8)
    turned = {key[::-1]: exchanged([cell])[0] for key, cell in pairs.items()}
    assert of_controls(turned, in_blocks) == pytest.approx(of_controls(pairs, in_blocks), abs=1e-7)


def test_between_sides_that_spread_unequally_a_bound_is_welchs() -> None:
    """Exchanges take them for equal, and come too near; of distances that are not bounded, as `scipy.stats` has it."""
    distances = np.array([-1.6, -1.0, -0.9, 0.0, 0.9, 1.0, 1.6])
    base, other = 0.001 * distances, 0.05 + 0.03 * distances
    cell = Launches(np.exp(base).tolist(), np.exp(other).tolist(), range(7), range(7))
    found = of_controls({(wide, "narrow"): cell for wide in "abcde"}, False)
    low, _ = stats.ttest_ind(other, base, equal_var=False).confidence_interval(1 - 2 * 0.05 / 5)
    assert [found[wide, "narrow"] for wide in "abcde"] == [pytest.approx(low, abs=2e-4)] * 5


def test_of_two_options_a_bound_is_that_of_the_pair() -> None:
    pairs = options(2, 2, 9)
    ((key, cell),) = pairs.items()
    (known,) = bounds([dict(enumerate((np.log(cell.other) - np.log(cell.base)).tolist()))])
    found = of_controls(pairs, True)
    lower, upper = found[key], -found[key[::-1]]
    assert upper == pytest.approx(known.upper, abs=1e-6)
    assert lower == pytest.approx(known.lower, abs=1e-3 * (known.value - known.lower)), "between places, by a line"


def test_between_sides_of_many_launches_exchanged_sides_have_the_mirrored_interval() -> None:
    """Arrangements are a sample then, which does not depend on which side is the base."""
    draw = np.random.default_rng(4)
    times = [np.exp(draw.normal(0, 0.05, (2, 12))).tolist() for _ in range(3)]
    cells = [Launches(base, other, range(12), range(12)) for base, other in times]
    back = [Launches(other, base, range(12), range(12)) for base, other in times]
    for one, turned in zip(intervals(cells, False), intervals(back, False), strict=True):
        assert (one.value, one.low, one.high) == pytest.approx((-turned.value, -turned.high, -turned.low))


def test_cells_of_several_sides_without_blocks_have_their_parts_of_alpha() -> None:
    draw = np.random.default_rng(5)
    times = np.exp(draw.normal(0, 0.02, (3, 2, 9)))
    cells = [Launches(base.tolist(), other.tolist(), range(9), range(9)) for base, other in times]
    assert intervals_of_sides(cells, in_blocks=True) == intervals(cells, True)
    found = intervals_of_sides(cells, in_blocks=False)
    assert found == [intervals([cell], False, 0.05 / 3)[0] for cell in cells]
    assert all(one.high - one.low > own.high - own.low
               for one, own in zip(found, (intervals([cell], False)[0] for cell in cells), strict=True))  # fmt: skip
