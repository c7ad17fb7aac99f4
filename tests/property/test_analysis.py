"""Whatever is measured, comparisons and gates keep their promises."""

from __future__ import annotations

import json
import math
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.unit.made_gates import made_gate, noisy, told
from tests.unit.made_runs import experiment, made_case, made_failure, made_manifest, made_record, spread, write_run

from collbench.analysis.compare import Comparison, compare
from collbench.analysis.estimate import centre, ratio_in_blocks, ratio_of_sides
from collbench.analysis.factors import find_factor
from collbench.analysis.gate import judge
from collbench.analysis.pairs import Pair, within
from collbench.analysis.results import cells_of
from collbench.analysis.runs import Observed, observe
from collbench.cli import run_command
from collbench.errors import RequestError
from collbench.report.cells import document, launch_tables, tables
from collbench.report.gate import document as gate_document
from collbench.report.gate import junit, markdown, names_of
from collbench.report.tables import FORMATS
from collbench.report.verdict import tables as of_verdict
from collbench.schema.case import Case
from collbench.schema.record import Record
from collbench.schema.store import Margin, read_gate_plan

#: Times as clocks give them, and such as only a made-up file has.
usual = st.floats(1e-7, 1e-1)
strange = st.sampled_from([0.0, 5e-324, 1e-300, 1e-9, 1.0, 1e300, 1.7e308])
tied = st.sampled_from([1e-6, 2e-6])
PLACES = [("host", None), ("multi", "strict"), ("single", "strict"), ("multi", "net")]
cases = st.builds(
    lambda place, size, collective: made_case(*place, size=size, workload=collective, image="openmpi"),
    st.sampled_from(PLACES), st.sampled_from([0, 8, 1024]), st.sampled_from(["allreduce", "bcast"]),
)  # fmt: skip


@st.composite
def measured(draw: st.DrawFn, times: st.SearchStrategy[float], least: int = 0) -> list[Record]:
    """Records of any of these cases and launches, measured, failed or skipped, without samples as often as with."""
    found = []
    for case in draw(st.lists(cases, min_size=min(least, 1), max_size=6, unique=True)):
        for launch in draw(st.lists(st.integers(0, 9), min_size=least, max_size=9, unique=True)):
            if draw(st.integers(0, 7)) == 0:
                status = draw(st.sampled_from(["failed", "skipped"]))
                found.append(made_failure(case, launch, draw(st.sampled_from(["died", "", "a|b"])), status))
            else:
                found.append(made_record(case, launch, draw(times), draw(times)))
    return found


def observed(records: Sequence[Record]) -> Observed:
    return Observed("run", (made_manifest(experiment=experiment(["openmpi"])),), cells_of(records), ())


def by_policy(records: Sequence[Record], in_blocks: bool = True) -> dict[tuple[Case, Case], Comparison]:
    run = observed(records)
    if len({cell.case.where.policy for cell in run.cells.values()}) < 2:
        return {}
    try:
        pairs = within(run, find_factor("policy"), frozenset())
    except RequestError:  # no two of these places are a question
        return {}
    return {(one.pair.base.case, one.pair.other.case): one for one in compare(pairs, in_blocks=in_blocks)}


def numbers(one: Comparison) -> list[float | None]:
    intervals = [end for found in (one.base, one.other, one.ratio) if found for end in found.interval or ()]
    values = [found.value for found in (one.base, one.other, one.ratio) if found]
    return [*values, *intervals, one.sizes, one.paper_diff]


def same(one: Comparison, other: Comparison) -> bool:
    return (one.verdict, one.why, one.launches_more) == (other.verdict, other.why, other.launches_more) and all(
        a == b or (a is not None and b is not None and math.isclose(a, b, rel_tol=1e-9))
        for a, b in zip(numbers(one), numbers(other), strict=True)
    )


@given(records=measured(usual), data=st.data(), in_blocks=st.booleans())
def test_the_order_of_records_changes_nothing(records: list[Record], data: st.DataObject, in_blocks: bool) -> None:
    shuffled = data.draw(st.permutations(records))
    one, other = by_policy(records, in_blocks), by_policy(shuffled, in_blocks)
    assert one.keys() == other.keys()
    assert all(same(one[key], other[key]) for key in one)


@pytest.mark.slow
@given(records=measured(usual | tied, least=6), power=st.integers(-16, 16))
def test_a_clock_that_runs_twice_as_fast_changes_no_verdict(records: list[Record], power: int) -> None:
    """Powers of two change no digit of a float, so the ratios are the same, and times are so many times as long.

    Not so short that they count as 0, below a picosecond.
    """
    times = 2.0**power

    def scaled(record: Record) -> Record:
        if record.seconds is None:
            return record
        return made_record(record.case, record.launch, record.seconds.p50 * times, record.seconds.mean * times)

    before, after = by_policy(records), by_policy([scaled(record) for record in records])
    assert before.keys() == after.keys()
    for key, one in before.items():
        other = after[key]
        assert one.verdict == other.verdict
        if one.ratio and other.ratio:
            assert one.ratio.value == pytest.approx(other.ratio.value)
        if one.base and other.base:
            assert other.base.value == one.base.value * times


sides = st.integers(1, 14).flatmap(lambda n: st.tuples(*[st.lists(usual | tied, min_size=n, max_size=n)] * 2))


@given(sides)
def test_swapped_sides_are_the_inverse(both: tuple[list[float], list[float]]) -> None:
    mine, theirs = both
    for estimated in (ratio_in_blocks, ratio_of_sides):
        one, other = estimated(mine, theirs), estimated(theirs, mine)
        assert one.value * other.value == pytest.approx(1.0)
        assert (one.interval is None) == (other.interval is None) == (len(mine) < 6)
        if one.interval and other.interval:
            assert one.interval == pytest.approx((1 / other.interval[1], 1 / other.interval[0]))


@given(records=measured(usual | tied, least=6), in_blocks=st.booleans())
def test_swapped_sides_turn_faster_into_slower_and_nothing_else(records: list[Record], in_blocks: bool) -> None:
    turned = {"faster": "slower", "slower": "faster"}
    for one in by_policy(records, in_blocks).values():
        pair = Pair(one.pair.other, one.pair.base, one.pair.other_name, one.pair.base_name)
        straight, swapped = compare([one.pair], in_blocks=in_blocks)[0], compare([pair], in_blocks=in_blocks)[0]
        assert swapped.verdict == turned.get(straight.verdict, straight.verdict)
        if straight.ratio is not None and swapped.ratio is not None:
            assert swapped.ratio.value == pytest.approx(1 / straight.ratio.value)


@given(st.lists(usual | tied | strange, min_size=1, max_size=40))
def test_an_interval_holds_its_value_and_lies_within_the_values(values: list[float]) -> None:
    found = centre(values)
    assert found.value == pytest.approx(float(np.median(np.array(values) / 2)) * 2) or found.value == math.inf
    assert (found.interval is None) == (len(values) < 6)
    if found.interval:
        low, high = found.interval
        slack = 1 + 1e-12
        assert min(values) / slack <= low <= found.value * slack and found.value <= high * slack
        assert high <= max(values) * slack


@given(records=measured(usual | tied | strange), margin=st.sampled_from([0.0, 0.02, 9.0]), in_blocks=st.booleans())
def test_whatever_was_recorded_every_style_prints_it(records: list[Record], margin: float, in_blocks: bool) -> None:
    """One launch, ties, zeros, times beyond all clocks, failures: a table or a JSON document without NaN."""
    run = observed(records)
    launch_tables(run.cells)
    found = list(by_policy(records, in_blocks).values())
    shown = [*of_verdict(found, margin), *tables(found)]
    for style in FORMATS.values():
        assert "nan" not in style(shown)
    text = msgspec.json.encode(document(found, margin))
    assert b"NaN" not in text and b"Infinity" not in text
    for one in json.loads(text)["comparisons"]:
        assert one["ratio"] is None or one["ratio"]["interval"] is None or one["sizes"] > 0
        assert (one["ratio"] is None) == (one["verdict"] == "not comparable")


@settings(max_examples=40)
@given(records=measured(usual | tied | strange), cut=st.integers(0, 400), kept=st.booleans(), data=st.data())
def test_a_run_on_disk_is_compared_or_refused(records: list[Record], cut: int, kept: bool, data: st.DataObject) -> None:
    """Empty, cut off in its last line, its samples missing: an exit code and, where it is 2, a sentence."""
    with tempfile.TemporaryDirectory() as temporary:
        run = write_run(Path(temporary) / "run", {}, experiment=experiment(["openmpi"]))
        lines = b"".join(msgspec.json.encode(record) + b"\n" for record in records)
        lines = lines.replace(b'"file":null', b'"file":"samples/gone-0.npy"') if kept else lines
        (run / "records.jsonl").write_bytes(lines[: max(len(lines) - cut, 0)])
        style = data.draw(st.sampled_from([*FORMATS, "json"]))
        arguments = data.draw(st.sampled_from([("--by", "policy"), ("--by", "isolation"), (str(run),)]))
        assert called(str(run), *arguments, "--style", style) in (0, 2)


def called(*arguments: str) -> int:
    """The exit code of `collbench compare`; an exception that is no CollbenchError comes through."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["collbench", "compare", *arguments])
        return run_command(speaks=False)


@pytest.mark.slow
@given(st.lists(measured(usual), max_size=3))
def test_runs_in_a_folder_count_their_launches_through(several: list[list[Record]]) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        for number, records in enumerate(several):
            run = write_run(Path(temporary) / str(number), {})
            (run / "records.jsonl").write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in records))
        assume(several)
        found = observe(Path(temporary))
    for case, cell in found.cells.items():
        measured_here = [record for records in several for record in records
                         if record.case == case and record.status == "ok"]  # fmt: skip
        assert len(cell.medians) == len(measured_here)
        assert len(set(cell.launches)) == len(cell.launches)
        assert not cell.repeated


# Whatever was measured, each planned cell is accounted for once, and nothing passes that lacks an answer

LAUNCHES = 8

#: From the fastest to the slowest.
GOOD = ("faster", "fine", "slower")
KINDS = (*GOOD, "noisy", "none", "few", "failed", "skipped", "contended", "one failed")


def entries(kind: str, case: Case) -> Sequence[Any]:
    """What a side has of a cell."""
    times = spread(1e-6, LAUNCHES)
    known: dict[str, Sequence[Any]] = {
        "fine": times, "slower": spread(2e-6, LAUNCHES), "faster": spread(0.5e-6, LAUNCHES),
        "noisy": noisy(1e-6, LAUNCHES), "none": [], "few": times[:5], "failed": ["no memory"] * LAUNCHES,
        "skipped": [made_failure(case, number, "not here", "skipped") for number in range(LAUNCHES)],
        "contended": told(case, times, contended=True), "one failed": ["no memory", *times[1:]],
    }  # fmt: skip
    return known[kind]


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from(KINDS)), min_size=1, max_size=5))
def test_every_planned_cell_is_accounted_for(kinds: list[tuple[str, str]]) -> None:
    cases = [made_case(image="openmpi", size=8 << number) for number in range(len(kinds))]
    base, other = (
        {case: entries(kind[side], case) for case, kind in zip(cases, kinds, strict=True)} for side in (0, 1)
    )
    with tempfile.TemporaryDirectory() as folder:
        path = made_gate(Path(folder), base, other, launches=LAUNCHES)
        found = judge(read_gate_plan(path), observe(path), (Margin(0.02),))
    names = names_of(found.answers)
    told_of = gate_document(found, names)
    assert (
        told_of["planned"] == len(cases) == sum(told_of[name] for name in ("broken", "lost", "no_loss", "not_answered"))
    )
    tests = [*ElementTree.fromstring(junit(found, names)).iter("testcase")]  # noqa: S314 - our own
    assert len(tests) == len(cases)
    assert sum(case.find("failure") is None and case.find("error") is None for case in tests) == told_of["no_loss"]
    assert f"{len(cases)} cells planned" in markdown(found, names)
    for answer, kind in zip(found.answers, kinds, strict=True):
        assert (answer.doubt is None) == (answer.state in ("loss", "no loss"))
        if not set(kind) <= {*GOOD, "noisy"}:
            assert answer.state != "no loss"
            assert found.code != 0
        elif set(kind) <= set(GOOD):
            assert (answer.state == "loss") == (GOOD.index(kind[1]) > GOOD.index(kind[0]))
