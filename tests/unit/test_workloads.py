"""Workloads that are programs: their cases, their output, stream and its check."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.unit.made_programs import GOOD, printing, row_with, run_row, shell

from collbench import workloads
from collbench.bindings.spec import WorldSettings
from collbench.errors import PlanError, RequestError
from collbench.machine.facts import Stretch, Waited, last_level_cache, rank_facts
from collbench.registry import defined
from collbench.report.caveats import of_records as cautions
from collbench.run import facts_of_ranks
from collbench.run.expand import program_cases
from collbench.run.experiment import plan_experiment
from collbench.run.worlds_of_programs import AloneSession, OneStarter
from collbench.schema.axes import Axis
from collbench.schema.case import Case, Where
from collbench.schema.plan import Plan, check_plan, load_plan
from collbench.schema.record import Record, Work, summarise
from collbench.workloads import dl, gpu, host
from collbench.workloads.host import stream as stream_program
from collbench.workloads.program import Measure, Program

built = pytest.mark.skipif(workloads.get("stream").needs() is not None, reason=workloads.get("stream").needs() or "")


def test_a_stored_output_becomes_a_record_for_each_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    found = run_row(monkeypatch, row_with(printing(GOOD)))
    assert [record.case.what for record, _ in found] == [
        {"measure": measure, "size": 80} for measure in ("copy", "scale", "add", "triad")
    ]
    for record, samples in found:
        assert record.status == "ok"
        assert samples.tolist() == [[10, 20, 30]]  # without the warm-up
        assert record.seconds is not None
        assert record.seconds.p50 == pytest.approx(20e-9)
        assert record.check is not None and record.check.wrong == 0
        assert record.samples is not None and (record.samples.n, record.samples.warmup) == (3, 1)
        assert record.notes[-1] == "kernels compiled by C"
    works = [record.work for record, _ in found]
    assert [(one.amount, one.unit, one.shown) for one in works if one] == [
        (160, "bytes", "rate"), (160, "bytes", "rate"), (240, "bytes", "rate"), (240, "bytes", "rate")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("", "cannot read the output of stream (JSONDecodeError"),
        (GOOD[:40], "cannot read the output of stream (JSONDecodeError"),
        ("[]", "cannot read the output of stream (TypeError"),
        ("{}", "cannot read the output of stream (KeyError"),
        (GOOD.replace('"triad"', '"tried"'), "stream printed 0 times of triad; expected 4"),
        (GOOD.replace("[9, 10, 20, 30]", "[9, 10, 20]", 1), "stream printed 3 times of copy; expected 4"),
        (GOOD.replace("[9, 10, 20, 30]", "[9, 10, 20, 30, 40]", 1), "stream printed 5 times of copy; expected 4"),
        (GOOD.replace("30]", "NaN]", 1), "stream printed nan s as a time of copy"),
        (GOOD.replace("30]", "-1]", 1), "stream printed -1e-09 s as a time of copy"),
        (GOOD.replace('"wrong": 0', '"wrong": 5'), "wrong result: stream counted 5 wrong values"),
        (GOOD[:-20] + "\udc80", "cannot read the output of stream"),
    ],
)
def test_a_damaged_output_fails_every_measure(monkeypatch: pytest.MonkeyPatch, output: str, reason: str) -> None:
    found = run_row(monkeypatch, row_with(printing(output)))
    assert len(found) == 4
    for record, samples in found:
        assert (record.status, record.seconds, samples) == ("failed", None, None)
        assert record.reason is not None and record.reason.startswith(reason)


def test_a_program_is_watched_for_as_long_as_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the session's clock, in seconds; what was seen comes before what the program says of itself."""
    clock, given = iter((5 * 10**9, 7 * 10**9)), list[Any]()

    def contended(stretch: Stretch, world: Any, own: Any) -> tuple[bool, tuple[str, ...]]:
        given.append((stretch.seconds, world.size))
        return True, ("held up",)

    monkeypatch.setattr(AloneSession, "clock", staticmethod(lambda: next(clock)))
    monkeypatch.setattr(facts_of_ranks, "contended", contended)
    for record, _ in run_row(monkeypatch, row_with(printing(GOOD))):
        assert (record.contended, record.notes) == (True, ("held up", "kernels compiled by C"))
        assert (record.clock, record.oversubscribed, len(record.confinement)) == ("local", False, 1)
        assert record.ranks is not None
        assert (record.ranks.binding, record.ranks.container) == ((rank_facts().binding,), (rank_facts().container,))
        assert record.ranks.p50 == pytest.approx((20e-9,))
    assert given == [(2.0, 1)]


def test_of_a_program_in_turns_only_its_slices_are_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """What others used of its cores between them was its partner's, and what it used itself is taken off already."""
    slices, given = Stretch(3.0, Waited(1.0)), list[Any]()

    def contended(*watched: Any) -> tuple[bool, tuple[str, ...]]:
        given.append((watched[0], watched[2:]))
        return False, ()

    monkeypatch.setattr(facts_of_ranks, "contended", contended)
    run_row(monkeypatch, replace(row_with(printing(GOOD)), slices=lambda output: slices))
    assert given == [(slices, ())]


def test_a_wrong_result_is_said_before_times_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    output = GOOD.replace("[9, 10, 20, 30]", "[]").replace('"wrong": 0', '"wrong": 1')
    for record, _ in run_row(monkeypatch, row_with(printing(output))):
        assert record.reason == "wrong result: stream counted 1 wrong value"
        assert record.check is not None and record.check.wrong == 1


@built
@pytest.mark.parametrize("times", [1, 7, 2 * stream_program.MOST_ROUNDS + 3])
def test_the_kernels_do_what_their_check_expects(times: int) -> None:
    taken, wrong = stream_program.run(4096, times)
    assert wrong == 0
    assert {name: len(ns) for name, ns in taken.items()} == dict.fromkeys(("copy", "scale", "add", "triad"), times)


@built
@pytest.mark.parametrize("spoilt", [0, 1, 2])
@pytest.mark.parametrize("change", [1 + 1e-12, 0.0, float("nan"), float("inf")])
def test_the_check_finds_every_element_that_is_off(spoilt: int, change: float) -> None:
    from collbench.workloads import _stream

    arrays: list[Any] = [np.zeros(1000) for _ in range(3)]
    a, b, c = arrays
    _stream.fill(a, b, c)
    for _ in range(5):
        _stream.kernels(a, b, c)
    assert _stream.wrong(a, b, c, 5, stream_program.TOLERANCE) == 0
    assert _stream.wrong(a, b, c, 4, stream_program.TOLERANCE) == 3000
    arrays[spoilt][[0, 500, 999]] *= change
    assert _stream.wrong(a, b, c, 5, stream_program.TOLERANCE) == 3


@built
def test_an_element_spoilt_in_any_part_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A result is checked before the arrays are filled anew."""
    from collbench.workloads import _stream

    rounds: list[tuple[int, int, int, int]] = []

    def spoils_the_first(a: Any, b: Any, c: Any) -> tuple[int, int, int, int]:
        found = _stream.kernels(a, b, c)
        rounds.append(found)
        if len(rounds) == stream_program.MOST_ROUNDS:
            a[:8] = b"\xff" * 8
        return found

    module = SimpleNamespace(kernels=spoils_the_first, fill=_stream.fill, wrong=_stream.wrong)
    monkeypatch.setattr(workloads, "_stream", module)
    assert stream_program.run(800, stream_program.MOST_ROUNDS + 1)[1] == 1


@built
def test_arrays_of_other_lengths_are_refused() -> None:
    from collbench.workloads import _stream

    array = bytearray(32)
    with pytest.raises(ValueError, match="differ in length"):
        _stream.fill(array, array, bytearray(40))
    with pytest.raises(BufferError):
        _stream.fill(array, array, bytes(32))


def other(**fields: Any) -> Program:
    """A program of two axes of its own."""
    axes = (Axis("level", "how", "", neutral=6), Axis("mode", "what", "", neutral="fast"))
    measures = (Measure("all", lambda case: 1.0, "events"),)
    return Program("other", "", "", measures, shell(""), lambda output: {}, lambda *_: 0, axes=axes, **fields)


def test_cases_are_every_combination_of_sizes_and_own_axes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workloads, "get", lambda name: other(sizes=("1K",)))
    (usual,) = program_cases(Plan(benchmarks=("other",)), 1)
    assert (usual.case.what, usual.case.how) == ({"mode": "fast", "size": 1024}, {"level": 6})
    asked = {"name": "other", "size": ("8", 16), "level": (1, "9", 1), "mode": ("fast", "slow")}
    plan = Plan(benchmarks=(asked, {**asked, "level": 9}))
    found = program_cases(plan, 1)
    assert len(found) == len(set(found)) == 8
    assert found[0].identities == (found[0].case.having(measure="all"),)


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({"levle": (1,)}, "benchmark other: has no parameter 'levle'. Did you mean level?"),
        ({"level": ("high",)}, "benchmark other: level 'high': not a whole number, as its default 6 is."),
        ({"level": (True,)}, "benchmark other: level True: not a whole number, as its default 6 is."),
        ({"mode": 1}, "benchmark other: mode 1: not a text, as its default 'fast' is."),
        ({"level": ()}, "benchmark other: level: the list is empty"),
    ],
)
def test_parameters_that_the_program_does_not_have(monkeypatch: pytest.MonkeyPatch, axes: Any, message: str) -> None:
    monkeypatch.setattr(workloads, "get", lambda name: other())
    with pytest.raises(PlanError, match=re.escape(message)):
        program_cases(Plan(benchmarks=({"name": "other", **axes},)), 1)


@pytest.mark.parametrize(
    ("plan", "options", "message"),
    [
        (Plan(), WorldSettings(), "collectives: the list is empty, and so is benchmarks"),
        (
            Plan(benchmarks=("stream",), sizes=("8",)),
            WorldSettings(),
            "sizes: those of collectives, and there are none.",
        ),
        (Plan(benchmarks=({"size": 8},)), WorldSettings(), "benchmarks: {'size': 8} has no name."),
        (Plan(benchmarks=("streem",)), WorldSettings(), "benchmark 'streem': unknown. Did you mean stream?"),
        (Plan(benchmarks=({"name": "stream", "a": 1},)), WorldSettings(), "benchmark stream: has no parameter 'a'."),
        (
            Plan(benchmarks=("stream",)),
            WorldSettings(ranks=2),
            "benchmarks stream: run on one rank, and there are 2.",
        ),
        (Plan(benchmarks=("stream",)), WorldSettings(fault="hang:0"), "--fault: only the fake backend"),
        (
            Plan(collectives=("bcast",), backends=("fake",), benchmarks=("stream",)),
            WorldSettings(),
            "the times of fake are simulated",
        ),
    ],
)
def test_plans_that_cannot_be(plan: Plan, options: WorldSettings, message: str) -> None:
    with pytest.raises(RequestError, match=re.escape(message)):
        plan_experiment(check_plan(plan), options, ())


def test_a_plan_file_names_workloads_and_their_axes(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text('[[benchmarks]]\nname = "stream"\nlevel = [1, 2]\nmode = "a"\n', encoding="utf-8")
    plan = load_plan(path)
    assert (plan.workloads, plan.collectives, plan["sizes"]) == (("stream",), (), None)
    assert plan.benchmarks == ({"name": "stream", "level": (1, 2), "mode": "a"},)
    path.write_text('benchmarks = ["stream", {name = "sysbench_cpu", threads = 2}]\n', encoding="utf-8")
    assert load_plan(path).workloads == ("stream", "sysbench_cpu")


def test_several_ranks_are_refused_with_one_message(collbench: Any, tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text('benchmarks = ["stream"]\n', encoding="utf-8")
    for rank, said in (("0", "collbench: benchmarks stream: run on one rank, and there are 2. Start one rank.\n"),):
        started = {"OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": rank}
        done = collbench("run", plan, **started)
        assert (done.returncode, done.stderr) == (2, said)


def test_those_that_take_several_ranks_are_named_beside_one_that_does_not() -> None:
    alone = OneStarter(("ddp", "train data=made-up", "train data=digits", "parameter_server data=made-up"))
    with pytest.raises(RequestError) as refused:
        alone.world_size(WorldSettings(ranks=2))
    assert str(refused.value) == (
        "benchmarks train: run on one rank, and there are 2. Start one rank, or name ddp, parameter_server alone, "
        "which run on several."
    )


@pytest.mark.parametrize(
    ("fields", "asked"),
    [
        ({"refuses": lambda case: 1 // 0}, "refuses"),
        ({"memory": lambda case: 1 // 0}, "memory"),
        ({"measures": (Measure("all", lambda case: 1 // 0),)}, "amount of all"),
    ],
)
def test_a_workload_that_cannot_tell_about_a_case(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], asked: str
) -> None:
    monkeypatch.setattr(workloads, "get", lambda name: replace(other(), **fields))
    with pytest.raises(PlanError) as refused:
        program_cases(Plan(benchmarks=("other",)), 1)
    assert str(refused.value).startswith(
        f"benchmark other mode=fast level=6: its {asked} raised ZeroDivisionError: integer division"
    )


def test_an_error_of_argv_fails_the_case(monkeypatch: pytest.MonkeyPatch) -> None:
    def argv(case: Any, times: int) -> Any:
        raise KeyError("blocks")

    found = run_row(monkeypatch, row_with(argv))
    assert {(record.status, record.reason) for record, _ in found} == {
        ("failed", "benchmark stream size=80 arrays=any: its argv raised KeyError: 'blocks'")
    }


def test_no_work_of_a_program_is_not_called_empty_calls() -> None:
    case = Case(workload="other", what={"measure": "all", "size": 1}, where=Where(ranks=1))
    seconds = summarise(np.array([1000, 1000]))
    record = Record(case=case, launch=0, status="ok", work=Work(amount=0, unit="bytes", shown="rate"), seconds=seconds)
    assert cautions([record]) == []


@built
def test_the_record_has_the_notes_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = (f"kernels compiled by {compiler()}", *stream_program.in_cache(80, last_level_cache()))
    for record, _ in run_row(monkeypatch, workloads.get("stream")):
        assert record.status == "ok" and record.notes[-len(expected) :] == expected


def compiler() -> str:
    from collbench.workloads import _stream

    return _stream.COMPILER


def test_families_have_the_benchmarks_that_are_listed() -> None:
    families = [(group, *family) for group in (dl, gpu, host) for family in group.FAMILIES.items()]
    for group, family, names in families:
        programs = defined(group.__name__, family, "WORKLOADS")
        assert tuple(programs) == names
        assert all(programs[name].name == name for name in names)
