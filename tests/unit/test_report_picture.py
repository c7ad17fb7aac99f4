"""The picture of an answer: every option over the fastest, with intervals, the margin, and the option to take."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from tests.unit.advised_runs import US, advice_on, two_libraries
from tests.unit.made_runs import Entry, made_case, spread, write_run

from collbench.report.advice import Advised, complete
from collbench.report.page.drawing import SERIES, WORSE
from collbench.report.page.figures.pictures import choices
from collbench.schema.case import Case

NOISE = [0.8 if block % 2 else 1.25 for block in range(10)]


def painted(advices: list[Advised]) -> tuple[list[Axes], str]:
    """The panels of the one picture, and what those hear who cannot see it."""
    (one,) = choices(advices, 0.02, "x")
    figure = Figure()
    one.paint(figure.add_subplot())
    return figure.axes, one.values


def of_places(path: Path) -> list[Advised]:
    """At one size: the host, as fast within the margin, slower, undecided, and one that fails."""
    times: dict[tuple[str, str, str | None], list[Entry]] = {
        ("mpich", "host", None): [*spread(10 * US, 10, 0.001)],
        ("mpich", "multi", "strict"): [*spread(10.05 * US, 10, 0.001)],
        ("mpich", "single", "strict"): [*spread(30 * US, 10, 0.001)],
        ("openmpi", "host", None): [10.5 * US * factor for factor in NOISE],
        ("openmpi", "single", "strict"): ["died"] * 10,
    }
    cells = {made_case(policy, step, image=image): entries for (image, policy, step), entries in times.items()}
    return complete(advice_on(write_run(path, cells)), True)


def test_every_option_has_its_ratio_interval_and_verdict_over_the_fastest(tmp_path: Path) -> None:
    advices = of_places(tmp_path / "run")
    (axes,), values = painted(advices)
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        "mpich", "host", "multi strict", "single strict", "openmpi", "host", "single strict"]  # fmt: skip
    lines = {float(line.get_ydata()[0]): line for line in axes.get_lines() if line.get_marker() in ("s", ">", "o")}  # type: ignore[arg-type, index]
    assert set(lines) == {1.0, 2.0, 3.0, 5.0}
    (size,) = advices[0].advice.sizes
    known = {advices[0].advice.question.name(option): found for option, found in size.options.items()}
    noisy, single = known["openmpi, host"], known["mpich, single strict"]
    assert list(lines[5.0].get_xdata()) == pytest.approx([noisy.ratio, noisy.ratio, noisy.at_most])  # type: ignore[arg-type]
    assert list(lines[3.0].get_xdata()) == pytest.approx([single.ratio] * 3)  # type: ignore[arg-type]
    looks = [(to_hex(str(lines[row].get_color())), lines[row].get_marker()) for row in (1.0, 2.0, 3.0, 5.0)]
    assert looks == [(SERIES[0], "s"), (WORSE, ">"), (WORSE, ">"), (SERIES[0], "s")]
    assert axes.texts[-1].get_text() == "failed" and "openmpi, single strict failed" in values


def test_the_margin_and_the_option_to_take_are_shaded(tmp_path: Path) -> None:
    cells = {made_case(policy, step, image="a"): spread(time * US) for policy, step, time in
             (("host", None, 10), ("multi", "strict", 10.05), ("single", "strict", 30))}  # fmt: skip
    (axes,), _ = painted(complete(advice_on(write_run(tmp_path / "run", cells)), True))
    margin, taken = axes.patches
    across, along = margin.get_window_extent(), taken.get_window_extent()
    ends = [axes.transData.inverted().transform(point) for point in ((across.x0, 0), (across.x1, 0))]
    assert [end[0] for end in ends] == pytest.approx([1 / 1.02, 1.02])
    rows = [axes.transData.inverted().transform((0, end))[1] for end in (along.y0, along.y1)]
    assert sorted(rows) == pytest.approx([-0.45, 0.45])


def test_no_option_is_shaded_where_none_is_known(tmp_path: Path) -> None:
    few = complete(advice_on(two_libraries(tmp_path / "run", {8: (10, 20)}, launches=4)), True)
    (axes,), _ = painted(few)
    assert len(axes.patches) == 1, "the margin alone"


def test_one_operation_has_its_sizes_side_by_side_and_several_their_largest(tmp_path: Path) -> None:
    sizes = {8 << step: (10.0, 20.0) for step in range(7)}
    one = complete(advice_on(two_libraries(tmp_path / "one", sizes)), True)
    panels, _ = painted(one)
    assert [axes.get_title(loc="left").rpartition(" at ")[2] for axes in panels] == ["8", "64", "512"]
    cells: dict[Case, list[Entry]] = {
        made_case(image=image, size=size, op=op): [*spread(US * time)]
        for image, time in (("a", 1.0), ("b", 2.0)) for size in (8, 512) for op in ("sum", "max")
    }  # fmt: skip
    several = complete(advice_on(write_run(tmp_path / "several", cells)), True)
    panels, _ = painted(several)
    assert sorted(axes.get_title(loc="left") for axes in panels) == [
        "allreduce max float32, 2 ranks at 512", "allreduce sum float32, 2 ranks at 512"]  # fmt: skip


def test_without_a_choice_there_is_no_picture(tmp_path: Path) -> None:
    only = complete(advice_on(write_run(tmp_path / "run", {made_case(): spread(US)})), True)
    assert choices(only, 0.02, "x") == ()


@pytest.mark.parametrize("slowest", [10.5, 12, 15, 39, 80, 500])
def test_the_numbers_of_an_axis_are_apart(tmp_path: Path, slowest: float) -> None:
    """One of twelve parts of the axis for each."""
    cells = {
        made_case("host", None, image="a"): spread(10 * US),
        made_case("multi", "strict", image="a"): spread(slowest * US),
    }
    (axes,), _ = painted(complete(advice_on(write_run(tmp_path / "run", cells)), True))
    ticks, (low, high) = np.log(axes.get_xticks()), np.log(axes.get_xlim())
    assert len(ticks) > 2 or slowest < 11
    assert np.diff(ticks).min(initial=np.inf) > (high - low) / 12
