"""What plots draw: the ladder shows the ratios and verdicts of `compare`; lines end where nothing was measured."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from tests.unit.made_runs import Entry, made_case, made_record, spread, write_run

from collbench.analysis.compare import Comparison, compare
from collbench.analysis.factors import find_factor
from collbench.analysis.options import questions
from collbench.analysis.pairs import within
from collbench.analysis.runs import Observed, observe
from collbench.report.numbers import times
from collbench.report.page import contents
from collbench.report.page.drawing import BETTER, OPEN, SERIES, WORSE
from collbench.report.page.figures import curves
from collbench.report.page.figures import places as places_module
from collbench.schema.case import Case
from collbench.schema.record import Work

US = 1e-6

#: Ten blocks that drift by half.
DRIFT = [10 * US * (1 + block / 20) for block in range(10)]


class Drawn(NamedTuple):
    """A plot as it was asked for, painted on axes of its own."""

    title: str
    caption: str
    values: str
    axes: Axes


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Drawn]:
    """What ladders and curves draw, in their order."""
    found: list[Drawn] = []

    def draw(name: str, title: str, caption: str, paint: Callable[[Axes], None], *more: Any) -> None:
        axes = Figure().add_subplot()
        paint(axes)
        found.append(Drawn(title, caption, more[1] if len(more) > 1 else "", axes))

    monkeypatch.setattr(places_module, "draw", draw)
    monkeypatch.setattr(curves, "draw", draw)
    return found


def by_policy(observed: Observed) -> list[Comparison]:
    return compare(within(observed, find_factor("policy"), frozenset()), in_blocks=observed.interleaved)


def isolated(step: str) -> Case:
    return made_case("multi", step, image="a")


def climbed(path: Path, cells: dict[Case, list[Entry]], drawn: list[Drawn]) -> tuple[Drawn, list[Comparison]]:
    """The one ladder of a run with these cells, and its comparisons."""
    observed = observe(write_run(path, {made_case(image="a"): DRIFT, **cells}))
    (question,) = questions(observed, {})
    compared = by_policy(observed)
    places_module.ladders(question, 1024, compared, "x", "title")
    (one,) = drawn
    return one, compared


def labels(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def whiskers(axes: Axes) -> list[list[tuple[float, float, float]]]:
    """Of every series its whiskers: where they stand, and their ends."""
    lines = [one for one in axes.collections if isinstance(one, LineCollection)]
    assert len(lines) == len(axes.collections)  # and no areas
    return [[(float(low[0]), float(low[1]), float(high[1])) for low, high in one.get_segments()] for one in lines]


def numbers(values: object) -> list[float]:
    return [float(value) for value in np.asarray(values, dtype=float)]


def test_the_ladder_has_the_ratios_intervals_and_verdicts_of_compare(tmp_path: Path, drawn: list[Drawn]) -> None:
    """Medians of all launches would say otherwise: one place was not measured in the first, quick blocks."""
    cells: dict[Case, list[Entry]] = {
        isolated("ipc"): [time * (1.2 if block % 2 else 0.7) for block, time in enumerate(DRIFT)],
        isolated("limits"): [None, None, None, *(time * 0.8 for time in DRIFT[3:])],
        isolated("strict"): [time * (1.5 + block / 1000) for block, time in enumerate(DRIFT)],
    }
    plot, compared = climbed(tmp_path / "run", cells, drawn)
    first = float(plot.axes.patches[0].get_height())  # type: ignore[attr-defined]
    assert first == pytest.approx((DRIFT[4] + DRIFT[5]) / 2)
    assert [one.verdict for one in compared] == ["unclear", "faster", "slower"]
    for one, bar, ends in zip(compared, plot.axes.patches[1:], chain(*whiskers(plot.axes)), strict=True):
        assert one.ratio is not None and one.ratio.interval is not None
        low, high = sorted((first, first * one.ratio.value))
        assert (bar.get_y(), bar.get_height()) == pytest.approx((low, high - low))  # type: ignore[attr-defined]
        assert ends[1:] == pytest.approx([first * end for end in one.ratio.interval])
        assert f"{one.pair.other_name} {times(one.ratio)}, {one.verdict}" in plot.values
    assert [to_hex(bar.get_facecolor()) for bar in plot.axes.patches] == [SERIES[0], OPEN, BETTER, WORSE]
    assert labels(plot.axes) == ["12.2 us", "0.92x ?", "0.80x", "1.50x"]


def test_what_is_the_same_or_not_comparable_or_has_no_interval_is_no_difference(
    tmp_path: Path, drawn: list[Drawn]
) -> None:
    late = [made_record(isolated("strict"), block, time, gate="barrier") for block, time in enumerate(DRIFT)]
    plot, _ = climbed(tmp_path / "run", {
        isolated("ipc"): [time * (1 + block / 10000) for block, time in enumerate(DRIFT)],
        isolated("limits"): [*(2 * time for time in DRIFT[:4])],
        isolated("strict"): [*late],
    }, drawn)  # fmt: skip
    assert labels(plot.axes)[1:] == ["1.00x =", "2.00x ?", "-"]
    assert [to_hex(bar.get_facecolor()) for bar in plot.axes.patches] == [SERIES[0], OPEN, OPEN]
    assert "multi strict not comparable" in plot.values


def test_steps_of_one_policy_have_a_ladder_too(tmp_path: Path, drawn: list[Drawn]) -> None:
    cells = {made_case("multi", step, image="a"): [time * factor for time in DRIFT]
             for step, factor in (("net", 1), ("ipc", 1.5), ("strict", 2))}  # fmt: skip
    found = contents.chapter(observe(write_run(tmp_path / "run", cells)), {}, 0.02)
    (plot,) = (one for one in drawn if "the ladder" in one.title)
    assert (
        plot.values
        == "multi net 12.2 us; multi ipc 1.50x (1.50 .. 1.50), slower; multi strict 2.00x (2.00 .. 2.00), slower"
    )
    assert [section.title for section in found.sections if section.title.startswith("Verdicts")] == [
        "Verdicts by policy", "Verdicts by isolation"]  # fmt: skip


def test_there_is_no_ladder_where_nothing_is_compared(tmp_path: Path, drawn: list[Drawn]) -> None:
    run = write_run(tmp_path / "run", {made_case("multi", step, image="a"): DRIFT for step in ("ipc", "net", "strict")})
    (question,) = questions(observe(run), {})
    places_module.ladders(question, 1024, [], "x", "title")
    assert not drawn


def test_lines_are_dotted_over_sizes_that_nobody_measured(tmp_path: Path, drawn: list[Drawn]) -> None:
    cells = {made_case(image=image, size=size): spread(time * US * size, 7)
             for image, time in (("a", 1), ("b", 2)) for size in (8, 64 << 10, 1 << 20)}  # fmt: skip
    (question,) = questions(observe(write_run(tmp_path / "run", cells)), {})
    curves.curves(question, "x", "title")
    for plot in drawn:
        lines = plot.axes.get_lines()
        assert sum(line.get_linestyle() == ":" for line in lines) == 2
        (solid, _) = (line for line in lines if line.get_marker() not in ("", "None", None))
        assert [math.isnan(value) for value in numbers(solid.get_ydata())] == [False, True, False, False]
        assert "Dotted: no size was measured in between." in plot.caption
    assert len(drawn) == 2


def test_bandwidth_is_of_the_bytes_that_move_and_an_option_that_failed_takes_no_other_with_it(
    tmp_path: Path, drawn: list[Drawn]
) -> None:
    """Of 40 bytes asked for, 32 move; the last option failed at every size, and moved nothing."""
    cells: dict[Case, list[Entry]] = {}
    for size in (40, 80):
        good = made_case(image="a", size=size)
        moved = Work(amount=size - 8, count=1, bus_factor=0.5)
        cells[good] = [msgspec.structs.replace(made_record(good, launch, US), work=moved) for launch in range(7)]
        cells[made_case(image="b", size=size)] = ["broken"] * 7
    (question,) = questions(observe(write_run(tmp_path / "run", cells)), {})
    curves.curves(question, "x", "title")
    (_, bandwidth) = drawn
    (line,) = (line for line in bandwidth.axes.get_lines() if line.get_label() == "a")
    assert numbers(line.get_ydata()) == pytest.approx([32 * 0.5 / US / 1e9, 72 * 0.5 / US / 1e9])


def test_sizes_that_are_near_are_joined_and_every_interval_is_a_whisker_of_its_own(
    tmp_path: Path, drawn: list[Drawn]
) -> None:
    """Areas of nine series lie on each other, and nobody tells them apart."""
    cells = {made_case(image=f"image{number}", size=size): spread((1 + number) * US * size, 7)
             for number in range(9) for size in (8, 128, 1024)}  # fmt: skip
    (question,) = questions(observe(write_run(tmp_path / "run", cells)), {})
    curves.curves(question, "x", "title")
    for plot in drawn:
        assert not [line for line in plot.axes.get_lines() if line.get_linestyle() == ":"]
        assert "Dotted" not in plot.caption
        places = [tuple(place for place, _, _ in one) for one in whiskers(plot.axes)]
        assert len(set(places)) == 9  # beside each other
        assert all(math.log2(128 / 8) > 2 * math.log2(place[0] / 8) for place in places)


def test_series_without_intervals_stand_at_their_sizes(tmp_path: Path, drawn: list[Drawn]) -> None:
    cells = {made_case(image=image, size=size): [US * size] for image in "ab" for size in (8, 64)}
    (question,) = questions(observe(write_run(tmp_path / "run", cells)), {})
    curves.curves(question, "x", "title")
    lines = [line for plot in drawn for line in plot.axes.get_lines()]
    assert len(lines) == 4 and all(numbers(line.get_xdata()) == [8.0, 64.0] for line in lines)
