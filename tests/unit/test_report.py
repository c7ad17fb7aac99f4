"""The report: its answer, its plots, its page, figures as files."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from tests.unit.advised_runs import US, advice_on, two_libraries
from tests.unit.conftest import Collbench
from tests.unit.made_runs import Entry, experiment, image, library, made_case, made_record, spread, write_run

from collbench.analysis.compare import Comparison, Reason, compare, planned
from collbench.analysis.factors import find_factor
from collbench.analysis.options import questions
from collbench.analysis.pairs import within
from collbench.analysis.runs import observe
from collbench.report.advice import Advised, complete
from collbench.report.cells import tables
from collbench.report.numbers import is_numbered, numbered, times
from collbench.report.page import contents, figures
from collbench.report.page.pictures import choices
from collbench.report.page.render import BETTER, MOST_WORDS, OPEN, SERIES, WORSE, seen_at_once
from collbench.report.paper import beside, paper
from collbench.report.verdict import what_tells
from collbench.schema.case import Case
from collbench.schema.record import Work

Cells = dict[Case, list[Entry]]


def test_conclusions_of_a_paper_are_counted_at_every_step(tmp_path: Path) -> None:
    """Two containers take twice the time of one at the strict step, and less at the other one."""
    times = {("multi", "strict"): 10, ("single", "strict"): 20, ("multi", "ipc"): 10, ("single", "ipc"): 5}
    cells: Cells = {
        made_case(policy, step, image="openmpi", workload=name, op=None if name[:2] == "ps" else "sum",
                  root=0 if name[:2] == "ps" else None): [*spread(time * US)]
        for (policy, step), time in times.items() for name in ("ps_bcast", "allreduce")
    }  # fmt: skip
    sides = (image("openmpi", libraries=(library(),)),)
    known = experiment(("openmpi",), images=sides, environments=sides)
    observed = observe(write_run(tmp_path / "run", cells, experiment=known))
    shown = beside([observed], paper("choi2021"))
    places = {place["isolation"]: place["verdicts"] for place in shown.document["places"]}
    assert places == {
        "strict": {"unclear": 1, "not measured": 4}, "ipc": {"does not hold here": 1, "not measured": 4}
    }  # fmt: skip
    texts = " ".join(cell for table in shown.more for row in (table.columns, *table.rows) for cell in row)
    assert "ps_bcast, 1 worker: " in texts and "1 GPU:" not in texts


def test_advise_names_the_gravest_of_what_could_mislead_and_all_with_why(here: Collbench, tmp_path: Path) -> None:
    host = [US * (1 + launch % 2) for launch in range(8)]
    cells: Cells = {
        made_case(): [*host], made_case("multi", "strict"): [*spread(9 * US, 8)],
        made_case("single", "strict"): ["died"] * 8,
    }  # fmt: skip
    known = experiment(("openmpi",), launches=8, left_out=("a step that is missing",), differences=("another Python",))
    run = write_run(tmp_path / "run", cells, experiment=known)
    brief, whole = here("advise", run).out, here("advise", run, "--why").out
    assert " failed: died" in brief and " failed: died" in whole
    assert "another Python" not in brief and "another Python" in whole
    assert "another Python" in here("advise", run, "--style", "json").out


def test_an_answer_is_seen_at_once_and_what_is_longer_is_folded() -> None:
    line = " ".join(["word"] * 20 + ["5 %"])
    assert MOST_WORDS == 60
    assert [seen_at_once([line] * lines) for lines in (1, 2, 3, 4)] == [1, 2, 2, 2], "signs are no words"
    assert seen_at_once([line * 9, line]) == 1


def test_the_size_of_a_small_file_is_not_zero(here: Collbench, run: Path, tmp_path: Path) -> None:
    out = here("report", run, "-o", tmp_path / "x.txt").out
    assert out.endswith(f": {-(-(tmp_path / 'x.txt').stat().st_size // 1000)} kB\n")


def test_reasons_that_differ_in_a_number_are_one(tmp_path: Path) -> None:
    (one,) = planned(observe(two_libraries(tmp_path / "run", {8: (10, 20)})))
    drifting = [replace(one, verdict="unclear", launches_more=None, why=Reason("drift", (share,)))
                for share in (0.1, 0.11)]  # fmt: skip
    others = [replace(one, verdict="unclear", launches_more=None, why=Reason(kind))
              for kind in ("clock 0", "dependent", "no common blocks", "no launches")]  # fmt: skip
    assert "; " not in what_tells(drifting) and "11 %" in what_tells(drifting)
    assert [text.split()[0] for text in what_tells([*drifting, *others]).split("; ")[4:]] == ["1"]


def test_a_table_for_a_column_of_a_paper_has_few_columns(tmp_path: Path) -> None:
    """One image a table: what the base took, the difference and the verdict without what it lacks."""
    compared = planned(observe(two_libraries(tmp_path / "run", {8: (10, 20), 1024: (10, 20)})))
    compared[0] = replace(compared[0], verdict="unclear", why=Reason("dependent"))
    (whole, *_), (narrow,) = tables(compared), tables(compared, narrow=True)
    assert {"other (us)", "launches"} <= set(whole.columns)
    assert narrow.columns == ("size (B)", "mpich (us)", "difference (%)", "difference 95 %", "verdict")
    assert [row[-1] for row in narrow.rows] == ["unclear", "faster"]


# Runs of one option, of one launch ------------------------------------------------------------------------------------

HOST, SINGLE = made_case(), made_case("single", "strict")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    cells = {case.having(size=size): spread(size * 1e-9, 7) for case in (HOST, SINGLE) for size in (1024, 4096)}
    return write_run(tmp_path / "run", cells)


@pytest.fixture
def alone(tmp_path: Path) -> tuple[Path, Path]:
    cells = {made_case(size=size): [size * 1e-9] for size in (1024, 4096, 65536)}
    return write_run(tmp_path / "a", cells), write_run(tmp_path / "b", cells)


def test_one_option_has_times_and_no_drift_between_sides(
    here: Collbench, alone: tuple[Path, Path], tmp_path: Path
) -> None:
    assert "1.02 us at 1K, 65.5 us at 64K; 1 launch" in here("advise", alone[0]).out.splitlines()[0]
    assert "drift between" not in here("advise", *alone).out
    both = write_run(tmp_path / "both", {HOST: spread(1e-6, 7), SINGLE: spread(2e-6, 7)})
    assert "drift between" in here("advise", both).out


def page_of(here: Collbench, folder: Path, *runs: Path) -> str:
    assert here("report", *runs, "--output", folder / "page.html").code == 0
    return (folder / "page.html").read_text()


def test_the_page_of_two_runs_names_each(here: Collbench, alone: tuple[Path, Path], run: Path, tmp_path: Path) -> None:
    """One launch has no interval, and captions tell of whiskers only where there are some."""
    text = page_of(here, tmp_path, *alone)
    links = re.findall(r'<a href="#run-[12]">([^<]*)</a>', text)
    assert len(set(links)) == 2 and all(str(run) in link for run, link in zip(alone, links, strict=True))
    assert len(re.findall("performance guidelines", text, re.IGNORECASE)) == 2, "once in each run"
    assert "hiskers" not in text
    text = page_of(here, tmp_path, run)
    assert text.count("Whiskers: 95 %") == 2 and "whiskers: 95 %" in text


@pytest.mark.parametrize(("policies", "shown"), [('["host"]', False), ('["host", "multi"]', True)])
def test_one_cell_has_no_order(here: Collbench, tmp_path: Path, policies: str, shown: bool) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(f'collectives = ["bcast"]\nsizes = ["8"]\nimages = ["a"]\nengine = "fake"\npolicies = {policies}\n')
    planned = here("plan", plan, "--order")
    assert (planned.code, "order of" in planned.out) == (0, shown), planned


# `report --figure` ----------------------------------------------------------------------------------------------------


def test_a_figure_is_a_page_or_a_vector_file_in_colours_for_paper(here: Collbench, run: Path, tmp_path: Path) -> None:
    assert here("report", run, "--figure", "1", "-o", tmp_path / "x.pdf").code == 0
    assert (tmp_path / "x.pdf").read_bytes().startswith(b"%PDF-")
    assert here("report", run, "--figure", "time against size", "-o", tmp_path / "x.svg").code == 0
    text = (tmp_path / "x.svg").read_text()
    assert text.startswith("<?xml") and "<svg" in text
    assert "#0b6bb8" in text, "the first series"
    assert not re.findall(r"#0101[0-9a-f]{2}", text) and "var(--" not in text


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (("--figure", "no such thing", "-o", "x.svg"), "time against size"),
        (("--figure", "99", "-o", "x.svg"), "time against size"),
        (("--figure", "against size", "-o", "x.svg"), "bus bandwidth"),
        (("--figure", "1", "-o", "x.html"), ".svg or .pdf"), (("-o", "x.svg"), "--figure"),
    ],
)  # fmt: skip
def test_what_names_no_single_figure_is_refused_with_what_there_is(
    here: Collbench, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...], named: str
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = here("report", run, *flags)
    assert (refused.code, named in refused.err) == (2, True), refused.err
    assert not list(tmp_path.glob("x.*"))


# What plots draw ------------------------------------------------------------------------------------------------------

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
    plots: list[Drawn] = []

    def draw(name: str, title: str, caption: str, paint: Callable[[Axes], None], *more: Any) -> None:
        axes = Figure().add_subplot()
        paint(axes)
        plots.append(Drawn(title, caption, more[1] if len(more) > 1 else "", axes))

    monkeypatch.setattr(figures, "draw", draw)
    return plots


def draw_curves(path: Path, cells: Mapping[Case, Sequence[Entry]]) -> None:
    (question,) = questions(observe(write_run(path, cells)), {})
    figures.curves(question, "x", "title")


def isolated(step: str) -> Case:
    return made_case("multi", step, image="a")


def climbed(path: Path, cells: Cells, drawn: list[Drawn]) -> tuple[Drawn, list[Comparison]]:
    """The one ladder of a run with these cells, and its comparisons."""
    observed = observe(write_run(path, {made_case(image="a"): DRIFT, **cells}))
    (question,) = questions(observed, {})
    compared = compare(within(observed, find_factor("policy"), frozenset()), in_blocks=observed.interleaved)
    figures.ladders(question, 1024, compared, "x", "title")
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
    cells: Cells = {
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


def test_what_is_same_or_not_comparable_or_has_no_interval_is_no_difference(tmp_path: Path, drawn: list[Drawn]) -> None:
    late = [made_record(isolated("strict"), block, time, align="barrier") for block, time in enumerate(DRIFT)]
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
    report = contents.chapter(observe(write_run(tmp_path / "run", cells)), {}, 0.02)
    (plot,) = (one for one in drawn if "the ladder" in one.title)
    assert plot.values.split("; ") == [
        "multi net 12.2 us", "multi ipc 1.50x (1.50 .. 1.50), slower", "multi strict 2.00x (2.00 .. 2.00), slower"
    ]  # fmt: skip
    titles = [section.title for section in report.sections if section.title.startswith("Verdicts")]
    assert titles == ["Verdicts by policy", "Verdicts by isolation"]


def test_there_is_no_ladder_where_nothing_is_compared(tmp_path: Path, drawn: list[Drawn]) -> None:
    run = write_run(tmp_path / "run", {made_case("multi", step, image="a"): DRIFT for step in ("ipc", "net", "strict")})
    (question,) = questions(observe(run), {})
    figures.ladders(question, 1024, [], "x", "title")
    assert not drawn


def test_lines_are_dotted_over_sizes_that_nobody_measured(tmp_path: Path, drawn: list[Drawn]) -> None:
    draw_curves(tmp_path / "run", {made_case(image=image, size=size): spread(time * US * size, 7)
                for image, time in (("a", 1), ("b", 2)) for size in (8, 64 << 10, 1 << 20)})  # fmt: skip
    for plot in drawn:
        lines = plot.axes.get_lines()
        assert sum(line.get_linestyle() == ":" for line in lines) == 2
        (solid, _) = (line for line in lines if line.get_marker() not in ("", "None", None))
        assert [math.isnan(value) for value in numbers(solid.get_ydata())] == [False, True, False, False]
        assert "Dotted" in plot.caption
    assert len(drawn) == 2


def test_bandwidth_is_of_the_bytes_that_move_also_beside_failures(tmp_path: Path, drawn: list[Drawn]) -> None:
    """Of 40 bytes asked for, 32 move; the last option failed at every size, and moved nothing."""
    cells: Cells = {}
    for size in (40, 80):
        case, moved = made_case(image="a", size=size), Work(amount=size - 8, count=1, bus_factor=0.5)
        cells[case] = [made_record(case, launch, US, work=moved) for launch in range(7)]
        cells[made_case(image="b", size=size)] = ["broken"] * 7
    draw_curves(tmp_path / "run", cells)
    (_, bandwidth) = drawn
    (line,) = (line for line in bandwidth.axes.get_lines() if line.get_label() == "a")
    assert numbers(line.get_ydata()) == pytest.approx([32 * 0.5 / US / 1e9, 72 * 0.5 / US / 1e9])


def test_near_sizes_are_joined_and_every_interval_is_a_whisker_of_its_own(tmp_path: Path, drawn: list[Drawn]) -> None:
    """Areas of nine series lie on each other, and nobody tells them apart."""
    draw_curves(tmp_path / "run", {made_case(image=f"image{number}", size=size): spread((1 + number) * US * size, 7)
                for number in range(9) for size in (8, 128, 1024)})  # fmt: skip
    for plot in drawn:
        assert not [line for line in plot.axes.get_lines() if line.get_linestyle() == ":"]
        assert "Dotted" not in plot.caption
        places = [tuple(place for place, _, _ in series) for series in whiskers(plot.axes)]
        assert len(set(places)) == 9  # beside each other
        assert all(math.log2(128 / 8) > 2 * math.log2(place[0] / 8) for place in places)


def test_series_without_intervals_stand_at_their_sizes(tmp_path: Path, drawn: list[Drawn]) -> None:
    draw_curves(
        tmp_path / "run", {made_case(image=image, size=size): [US * size] for image in "ab" for size in (8, 64)}
    )
    lines = [line for plot in drawn for line in plot.axes.get_lines()]
    assert len(lines) == 4 and all(numbers(line.get_xdata()) == [8.0, 64.0] for line in lines)


# The picture of an answer ---------------------------------------------------------------------------------------------


def painted(advices: list[Advised]) -> tuple[list[Axes], str]:
    """The panels of the one picture, and what those hear who cannot see it."""
    (picture,) = choices(advices, 0.02, "x")
    figure = Figure()
    picture.paint(figure.add_subplot())
    return figure.axes, picture.values


def advised(run: Path) -> list[Advised]:
    return complete(advice_on(run), True)


def test_every_option_has_its_ratio_interval_and_verdict_over_the_fastest(tmp_path: Path) -> None:
    """At one size: the host, as fast within the margin, slower, undecided, and one that fails."""
    advices = advised(write_run(tmp_path / "run", {
        made_case(image="mpich"): spread(10 * US, 10, 0.001),
        made_case("multi", "strict", image="mpich"): spread(10.05 * US, 10, 0.001),
        made_case("single", "strict", image="mpich"): spread(30 * US, 10, 0.001),
        made_case(image="openmpi"): [10.5 * US * (0.8 if block % 2 else 1.25) for block in range(10)],
        made_case("single", "strict", image="openmpi"): ["died"] * 10,
    }))  # fmt: skip
    (axes,), values = painted(advices)
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        "mpich", "host", "multi strict", "single strict", "openmpi", "host", "single strict"]  # fmt: skip
    lines = {float(line.get_ydata()[0]): line for line in axes.get_lines() if line.get_marker() in ("s", ">", "o")}  # type: ignore[arg-type, index]
    assert set(lines) == {1.0, 2.0, 3.0, 5.0}
    (size,) = advices[0].advice.sizes
    options = {advices[0].advice.question.name(option): of_option for option, of_option in size.options.items()}
    noisy, single = options["openmpi, host"], options["mpich, single strict"]
    assert list(lines[5.0].get_xdata()) == pytest.approx([noisy.ratio, noisy.ratio, noisy.at_most])  # type: ignore[arg-type]
    assert list(lines[3.0].get_xdata()) == pytest.approx([single.ratio] * 3)  # type: ignore[arg-type]
    looks = [(to_hex(str(lines[row].get_color())), lines[row].get_marker()) for row in (1.0, 2.0, 3.0, 5.0)]
    assert looks == [(SERIES[0], "s"), (WORSE, ">"), (WORSE, ">"), (SERIES[0], "s")]
    assert axes.texts[-1].get_text() == "failed" and "openmpi, single strict failed" in values


def test_the_margin_and_the_option_to_take_are_shaded_where_one_is_known(tmp_path: Path) -> None:
    cells = {made_case(policy, step, image="a"): spread(time * US) for policy, step, time in
             (("host", None, 10), ("multi", "strict", 10.05), ("single", "strict", 30))}  # fmt: skip
    (axes,), _ = painted(advised(write_run(tmp_path / "run", cells)))
    margin, taken = axes.patches
    across, along = margin.get_window_extent(), taken.get_window_extent()
    ends = [axes.transData.inverted().transform(point) for point in ((across.x0, 0), (across.x1, 0))]
    assert [end[0] for end in ends] == pytest.approx([1 / 1.02, 1.02])
    rows = [axes.transData.inverted().transform((0, end))[1] for end in (along.y0, along.y1)]
    assert sorted(rows) == pytest.approx([-0.45, 0.45])
    (axes,), _ = painted(advised(two_libraries(tmp_path / "few", {8: (10, 20)}, launches=4)))
    assert len(axes.patches) == 1, "the margin alone"


def test_one_operation_has_its_sizes_side_by_side_and_several_their_largest(tmp_path: Path) -> None:
    panels, _ = painted(advised(two_libraries(tmp_path / "one", {8 << step: (10.0, 20.0) for step in range(7)})))
    assert [axes.get_title(loc="left").rpartition(" at ")[2] for axes in panels] == ["8", "64", "512"]
    cells: Cells = {
        made_case(image=image, size=size, op=op): [*spread(US * time)]
        for image, time in (("a", 1.0), ("b", 2.0)) for size in (8, 512) for op in ("sum", "max")
    }  # fmt: skip
    panels, _ = painted(advised(write_run(tmp_path / "several", cells)))
    assert sorted(axes.get_title(loc="left") for axes in panels) == [
        "allreduce max float32, 2 ranks at 512", "allreduce sum float32, 2 ranks at 512"]  # fmt: skip


def test_without_a_choice_there_is_no_picture(tmp_path: Path) -> None:
    assert choices(advised(write_run(tmp_path / "run", {made_case(): spread(US)})), 0.02, "x") == ()


@pytest.mark.parametrize("slowest", [10.5, 12, 15, 39, 80, 500])
def test_the_numbers_of_an_axis_are_apart(tmp_path: Path, slowest: float) -> None:
    """One of twelve parts of the axis for each."""
    cells = {made_case(image="a"): spread(10 * US), made_case("multi", "strict", image="a"): spread(slowest * US)}
    (axes,), _ = painted(advised(write_run(tmp_path / "run", cells)))
    ticks, (low, high) = np.log(axes.get_xticks()), np.log(axes.get_xlim())
    assert len(ticks) > 2 or slowest < 11
    assert np.diff(ticks).min(initial=np.inf) > (high - low) / 12


# Figures of each rank in a table --------------------------------------------------------------------------------------


def test_a_column_has_the_range_of_all_ranks() -> None:
    rows = [
        {"accuracy": 0.9, "steps of worker 0": 498.0, "steps of worker 1": 502.0, "bytes of server 0": 318_040.0},
        {"accuracy": 0.8},
        {"steps of worker 0": 1000.0, "bytes of server 0": 440.0, "bytes of server 1": 317_600.0},
    ]
    assert numbered(rows) == {
        "steps of workers": ["498 .. 502", "", "1000"], "bytes of servers": ["318040", "", "440 .. 317600"]
    }  # fmt: skip
    assert not any(map(is_numbered, ("accuracy", "residual", "top 5", "share of pages")))
    assert numbered([{"top 5": 1.0}]) == {}
