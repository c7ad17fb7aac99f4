"""Bounds from launches in blocks: against their definition, tried at every place, and how often they hold."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from collbench.analysis.bounds import TUNING, bounds

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


def excludes_below(logs: Logs, cell: int, locations: list[float], place: float) -> bool:
    """Whether so small a loss is excluded by the test of all cells, in which the others stand at their locations."""
    flipped = signs(logs.shape[1])
    places = [place if index == cell else location for index, location in enumerate(locations)]
    found = np.array([studentised(psi(row, at), flipped) for row, at in zip(logs, places, strict=True)])
    return bool(np.mean(found.max(axis=0) >= found[cell, 0] - 1e-9) <= 0.05)


@pytest.mark.parametrize("blocks", [6, 7, 8])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_bound_is_where_the_test_no_longer_rejects(seed: int, blocks: int) -> None:
    logs = made(seed, blocks, 3)
    found = bounds(cells_of(logs))
    locations = [one.value for one in found]
    for index, one in enumerate(found):
        step = 1e-3 * (one.upper - one.value)
        assert excludes_above(logs[index], one.upper + step) and not excludes_above(logs[index], one.upper - step)
        wide = 1e-3 * (one.value - one.lower)
        assert excludes_below(logs, index, locations, one.lower - wide)
        assert not excludes_below(logs, index, locations, one.lower + wide)


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
