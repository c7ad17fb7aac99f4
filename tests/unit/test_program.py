"""Workloads that are programs: their cases, what is made of their output, and how one that goes wrong fails."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import msgspec
import numpy as np
import pytest
from tests.processes import LIMIT, wait_for
from tests.unit.made_programs import GOOD, PLAN, gone, printing, row_with, run_row, shell, written

from collbench import workloads
from collbench.bindings.spec import WorldSettings
from collbench.errors import Interrupted, RequestError
from collbench.machine import launcher
from collbench.machine.facts import Stretch, Waited, rank_facts
from collbench.registry import defined
from collbench.report.remarks import of_records as cautions
from collbench.run import facts_of_ranks
from collbench.run.cases import program_cases
from collbench.run.child import Finished, ProgramFailed, execute
from collbench.run.experiment import plan_experiment
from collbench.run.program import AloneSession, ProgramStarter, _sum
from collbench.schema.axes import Axis, AxisKind
from collbench.schema.case import Case, Where
from collbench.schema.plan import Plan, check_plan, load_plan
from collbench.schema.record import CpuTime, Record, Work, summarise
from collbench.workloads import dl, gpu, host
from collbench.workloads.program import Measure, Program, parameter

built = pytest.mark.skipif(workloads.get("stream").needs() is not None, reason=workloads.get("stream").needs() or "")
Golden = Callable[[str, str], None]


# Cases ---------------------------------------------------------------------------------------------------------------


def other(**fields: Any) -> Program:
    """A program of two axes of its own."""
    axes = (Axis("level", "how", "", neutral=6), Axis("mode", "what", "", neutral="fast"))
    measures = (Measure("all", lambda case: 1.0, "events"),)
    return Program("other", "", "", measures, shell(""), lambda output: {}, lambda *_: 0, axes=axes, **fields)


def test_cases_are_every_combination_of_sizes_and_axes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workloads, "get", lambda name: other(sizes=("1K",)))
    (usual,) = program_cases(Plan(benchmarks=("other",)), 1)
    assert (usual.case.what, usual.case.how) == ({"mode": "fast", "size": 1024}, {"level": 6})
    table = {"name": "other", "size": ("8", 16), "level": (1, "9", 1), "mode": ("fast", "slow")}
    cases = program_cases(Plan(benchmarks=(table, {**table, "level": 9})), 1)
    assert len(cases) == len(set(cases)) == 8
    assert cases[0].identities == (cases[0].case.having(measure="all"),)


unknown = Mock(side_effect=KeyError("key"))

#: Of `other`: parameters, and fields with which it cannot tell about a case.
IMPOSSIBLE: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"levle": (1,)}, {}), ({"level": ("high",)}, {}), ({"level": (True,)}, {}), ({"mode": 1}, {}), ({"level": ()}, {}),
    ({}, {"refuses": unknown}), ({}, {"memory": unknown}), ({}, {"measures": (Measure("all", unknown),)})
]  # fmt: skip

#: Parameters of benchmarks, and the ranks, of which there is no case.
REFUSED: list[tuple[str, dict[str, Any], int]] = [
    ("linpack", {"n": 200, "lda": 199}, 1), ("linpack", {"n": 200, "lda": 208, "blas": "mkl"}, 1),
    ("linpack", {"n": 200, "blas": "atlas"}, 1), ("dgemm", {"n": 0}, 1), ("hpcg", {"n": 20}, 1), ("hpcg", {"n": 8}, 1),
    ("stream", {"size": 81, "arrays": "any"}, 1), ("stream", {"size": 1, "arrays": "any"}, 1),
    ("fio", {"depth": 2}, 1), ("fio", {"depth": 2, "ioengine": "libaio", "direct": 0}, 1),
    ("fio", {"cache": "warm"}, 1), ("fio", {"size": 4095}, 1), ("fio", {"ioengine": "posixaio"}, 1),
    ("fio", {"direct": 2}, 1), ("fio", {"bs": "4x"}, 1), ("fio", {"jobs": 3}, 1),
    ("fio", {"jobs": 4, "size": 8192}, 1), ("fio", {"rw": "rw", "direct": 0}, 1), ("fio", {"read_percent": 100}, 1),
    ("loading", {"example": 4100}, 1), ("loading", {"size": "31M"}, 1), ("checkpoint", {"size": "1M", "shards": 3}, 1),
    ("checkpoint", {"size": 0}, 1),
    ("ioping", {"count": 1}, 1),  # the first request is left out
    ("ioping", {"mode": "warm"}, 1), ("dd", {"count": 0}, 1), ("sysbench_fileio", {"size": "1M"}, 1),
    ("sysbench_fileio", {"events": 0}, 1), ("deepbench_gemm", {"problem": "7680x5481x2560_NN"}, 1),
    ("deepbench_rnn", {"problem": "gru_h1536_n32_t188"}, 1), ("deepbench_conv", {"precision": "float64"}, 1),
    ("deepbench_conv", {"device": "gpu"}, 1), ("deepbench_gemm", {"blas": "cupy"}, 1),
    ("deepbench_gemm", {"blas": "cupy", "device": "cuda", "precision": "float16"}, 1),
    ("fathom", {"network": "residul"}, 1), ("gpu_transpose", {"order": 100}, 1), ("gpu_histogram", {"bins": 128}, 1),
    ("gpu_histogram", {"size": 6}, 1), ("gpu_launch", {"burst": 150}, 1), ("gpu_copy", {"size": 0}, 1),
    ("gpu_copy", {"memory": "pined"}, 1), ("gpu_gemm", {"k": 17_000_000}, 1), ("train", {"network": "resnet"}, 1),
    ("train", {"steps": 0}, 1), ("train", {"device": "tpu"}, 1), ("train", {"epoch": -1}, 1),
    ("train", {"data": "digits", "network": "alexnet"}, 1), ("train", {"data": "mnist", "network": "lstm"}, 1),
    ("train", {"data": "cifar10", "network": "fcn5"}, 1), ("train", {"data": "ptb", "network": "fcn5"}, 1),
    ("parameter_server", {"servers": 1}, 1), ("parameter_server", {"servers": 3}, 2),
    ("parameter_server", {"servers": 0}, 3),
]  # fmt: skip

#: Plans of which there is no experiment.
UNPLANNED: list[tuple[Plan, WorldSettings]] = [
    (Plan(), WorldSettings()), (Plan(benchmarks=("stream",), sizes=("8",)), WorldSettings()),
    (Plan(benchmarks=({"size": 8},)), WorldSettings()), (Plan(benchmarks=("streem",)), WorldSettings()),
    (Plan(benchmarks=({"name": "stream", "a": 1},)), WorldSettings()),
    (Plan(benchmarks=({"name": "stream", "arrays": "any", "size": ("8", "9")},)), WorldSettings()),
    (Plan(benchmarks=("stream",)), WorldSettings(ranks=2)),
    (Plan(benchmarks=("stream",)), WorldSettings(fault="hang:0")),
    (Plan(collectives=("bcast",), backends=("fake",), benchmarks=("stream",)), WorldSettings())
]  # fmt: skip


def test_cases_that_cannot_be_are_refused(golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []

    def refuse(make: Callable[..., Any], *arguments: Any) -> str:
        with pytest.raises(RequestError) as refused:
            make(*arguments)
        lines.append(f"{type(refused.value).__name__}: {refused.value}")
        return lines[-1]

    for name, parameters, ranks in REFUSED:
        assert f"benchmark {name}" in refuse(program_cases, Plan(benchmarks=({"name": name, **parameters},)), ranks)
    for plan, settings in UNPLANNED:
        refuse(lambda plan, settings: plan_experiment(check_plan(plan), settings, ()), plan, settings)
    alone = ProgramStarter(
        ("ddp", "train data=made-up", "train data=digits", "parameter_server data=made-up"), together=False
    )
    refuse(alone.world_size, WorldSettings(ranks=2))
    for parameters, fields in IMPOSSIBLE:
        monkeypatch.setattr(workloads, "get", lambda name, fields=fields: replace(other(), **fields))
        refuse(program_cases, Plan(benchmarks=({"name": "other", **parameters},)), 1)
    golden("programs-refused.txt", "\n".join(lines) + "\n")


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
    started = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}
    done = collbench("run", plan, **started)
    assert done.returncode == 2
    assert re.fullmatch(r"collbench: benchmarks stream: .* 2\. .*\n", done.stderr)


def test_families_have_the_benchmarks_that_are_listed() -> None:
    for group in (dl, gpu, host):
        for family, names in group.FAMILIES.items():
            programs = defined(group.__name__, family, "WORKLOADS")
            assert tuple(programs) == names == tuple(program.name for program in programs.values())


# Output --------------------------------------------------------------------------------------------------------------


def test_a_stored_output_becomes_a_record_for_each_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = run_row(monkeypatch, row_with(printing(GOOD)))
    amounts = {"copy": 160, "scale": 160, "add": 240, "triad": 240}
    assert [record.case.what for record, _ in rows] == [{"measure": measure, "size": 80} for measure in amounts]
    for (record, samples), amount in zip(rows, amounts.values(), strict=True):
        assert record.status == "ok"
        assert samples.tolist() == [[10, 20, 30]]  # without the warm-up
        assert record.seconds is not None and record.seconds.p50 == pytest.approx(20e-9)
        assert record.check is not None and record.check.wrong == 0
        assert record.samples is not None and (record.samples.n, record.samples.warmup) == (3, 1)
        assert record.notes[-1] == "kernels compiled by C"
        assert record.work == Work(amount=amount, unit="bytes", shown="rate")


def test_a_program_is_watched_for_as_long_as_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the session's clock, in seconds; what was seen comes before what the program says of itself.

    Of a program in turns only its slices are watched: what others used of its cores between them was its partner's, and
    what it used itself is taken off already.
    """
    clock, contended = iter((5 * 10**9, 7 * 10**9)), Mock(return_value=(True, ("held up",)))
    monkeypatch.setattr(facts_of_ranks, "contended", contended)
    row, slices = row_with(printing(GOOD)), Stretch(3.0, Waited(1.0))
    run_row(monkeypatch, replace(row, slices=lambda output: slices))
    ((stretch, world, *own),) = (call.args for call in contended.call_args_list)
    assert (stretch, world.size, own) == (slices, 1, [])
    monkeypatch.setattr(AloneSession, "clock", staticmethod(lambda: next(clock)))
    for record, _ in run_row(monkeypatch, row):
        assert (record.contended, record.notes) == (True, ("held up", "kernels compiled by C"))
        assert (record.clock, record.oversubscribed, len(record.confinement)) == ("local", False, 1)
        assert record.ranks is not None
        assert (record.ranks.binding, record.ranks.container) == ((rank_facts().binding,), (rank_facts().container,))
        assert record.ranks.p50 == pytest.approx((20e-9,))
    stretch, world, *own = contended.call_args.args
    assert (stretch.seconds, world.size, len(own), contended.call_count) == (2.0, 1, 1, 2)


def test_no_work_of_a_program_is_not_called_empty_calls() -> None:
    case = Case(workload="other", what={"measure": "all", "size": 1}, where=Where(ranks=1))
    work, seconds = Work(amount=0, unit="bytes", shown="rate"), summarise(np.array([1000, 1000]))
    assert cautions([Record(case=case, launch=0, status="ok", work=work, seconds=seconds)]) == []


# Failures ------------------------------------------------------------------------------------------------------------


def blank_lines_after(text: str, number: int) -> str:
    """Of standard error the last 16 KiB are kept."""
    return f"{{ echo {text}; head -c {number} /dev/zero | tr '\\0' '\\n'; }} >&2; exit 4"


OUTPUTS = [
    "", GOOD[:40], "[]", "{}", GOOD.replace('"triad"', '"tried"'), GOOD.replace("[9, 10, 20, 30]", "[9, 10, 20]", 1),
    GOOD.replace("[9, 10, 20, 30]", "[9, 10, 20, 30, 40]", 1), GOOD.replace("30]", "NaN]", 1),
    GOOD.replace("30]", "-1]", 1), GOOD.replace('"wrong": 0', '"wrong": 5'),
    # A wrong result is said before times are looked at.
    GOOD.replace("[9, 10, 20, 30]", "[]").replace('"wrong": 0', '"wrong": 1'),
]  # fmt: skip

SCRIPTS = [
    "echo first >&2; echo the last >&2; exit 3", "exit 4", "printf '%400s' x | tr ' ' y >&2; exit 4",
    blank_lines_after("first", 16384 - 6), blank_lines_after("first", 16384), "head -c 16777217 /dev/zero",
    "head -c 16777216 /dev/zero",  # may be printed, and is no result
    "echo '  module = Module(' >&2; kill -9 $$", "{ echo 'terminate: lost'; echo '  at step 3'; } >&2; kill -6 $$",
    "echo '  indented' >&2; exit 4", "yes", "yes >&2 & yes", "yes | head -c 9000000 >&2; exit 5",
    "sleep 3600 & sleep 3600", "exec >&- 2>&-; sleep 3600", "exec setsid sleep 3600",
]  # fmt: skip


def test_a_program_that_goes_wrong_fails_every_measure_and_says_why(monkeypatch: pytest.MonkeyPatch,
                                                                    golden: Golden) -> None:  # fmt: skip
    rows = {f"prints {output}": row_with(printing(output)) for output in OUTPUTS}
    rows |= {script: row_with(shell(script)) for script in SCRIPTS}
    rows["not there"] = row_with(lambda case, times: ("/no/such/program",))
    rows["argv raises"] = row_with(Mock(side_effect=KeyError("blocks")))
    text = ""
    for title, row in rows.items():
        limit = "300ms" if "sleep" in title else f"{LIMIT:g}s"
        records = run_row(monkeypatch, row, msgspec.structs.replace(PLAN, timeout=limit))
        assert [(record.status, record.seconds, samples) for record, samples in records] == [("failed", None, None)] * 4
        (reason,) = {record.reason for record, _ in records}
        text += f"# {title}\n{reason}\n"
    golden("programs-failed.txt", text)


def test_without_what_it_needs_it_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """An output that is no text fails it: of that Python says other things in other versions."""
    rows = run_row(monkeypatch, replace(row_with(shell("exit 1")), needs=lambda: "no kernels"))
    assert [(record.status, record.reason) for record, _ in rows] == [("skipped", "no kernels")] * 4
    for record, _ in run_row(monkeypatch, row_with(printing(GOOD[:-20] + "\udc80"))):
        assert record.status == "failed" and "stream" in str(record.reason)


def test_of_several_ranks_the_one_whose_process_was_killed_is_named() -> None:
    with pytest.raises(ProgramFailed, match=r"^sh of rank 2 .* 9 \(Killed\)"):
        execute(("sh", "-c", "kill -9 $$"), LIMIT, lambda: None, variables={"RANK": "2"})


@pytest.mark.parametrize(("passed", "named"), [(0.2, " 7"), (0.4, " 300 ms ")])
def test_a_program_within_its_limit_is_waited_for(monkeypatch: pytest.MonkeyPatch, passed: float, named: str) -> None:
    """By a clock of our own: 0.2 of 0.3 s have passed whenever it is looked at, or 0.4."""
    now = chain((100.0,), repeat(100.0 + passed))
    monkeypatch.setattr("collbench.run.child.time", SimpleNamespace(monotonic=now.__next__, sleep=time.sleep))
    plan = msgspec.structs.replace(PLAN, timeout="300ms")
    ((record, _), *_) = run_row(monkeypatch, row_with(shell("sleep 0.1; exit 7")), plan)
    assert named in f"{record.reason} "


def reason_of(monkeypatch: pytest.MonkeyPatch, script: str, watch: Any = None) -> str:
    """Why a program with this script fails."""
    ((record, _), *_) = run_row(monkeypatch, row_with(shell(script)), watch=watch)
    return str(record.reason)


def pid_in(path: Path, number: str) -> str:
    """Of a script: the number is written whole."""
    return f"echo {number} > {path}.part; mv {path}.part {path}"


def test_children_of_a_program_end_with_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    assert reason_of(monkeypatch, f"sleep 3600 & {pid_in(pid, '$!')}; exit 7").endswith(" 7")
    assert gone(written(pid))


def test_told_to_stop_it_ends_the_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pid = tmp_path / "pid"

    class StopsOnceItRuns:
        beats = 0

        @property
        def stopped(self) -> int | None:
            return signal.SIGTERM if pid.exists() else None

        def beat(self, doing: str) -> None:
            self.beats += doing == "stream size=80 arrays=any threads=1"

    watch = StopsOnceItRuns()
    with pytest.raises(Interrupted):
        reason_of(monkeypatch, f"{pid_in(pid, '$$')}; sleep 3600", watch)
    assert watch.beats > 0
    assert gone(written(pid))


ALONE = """\
from collbench.run.child import execute
import sys
execute(("sh", "-c", sys.argv[1]), 3600, lambda: None)
"""


def test_the_kernel_ends_it_when_its_parent_is_gone(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    parent = subprocess.Popen([sys.executable, "-c", ALONE, f"{pid_in(pid, '$$')}; exec sleep 3600"])
    try:
        child = written(pid)
    finally:
        parent.kill()
        parent.wait(LIMIT)
    assert gone(child)


def test_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked for points in numbers; threads are the cores, whatever we set for ourselves."""
    for name in (launcher.OWN, "OPENBLAS_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in (("LC_ALL", "de_DE.UTF-8"), ("OMP_NUM_THREADS", "77")):
        monkeypatch.setenv(name, value)
    launcher.set_own({"OPENBLAS_NUM_THREADS": "1"})
    reason = reason_of(monkeypatch, 'echo "$LC_ALL $OMP_NUM_THREADS $OPENBLAS_NUM_THREADS." >&2; exit 1')
    assert reason.endswith(f": C {len(os.sched_getaffinity(0))} .")


@pytest.mark.slow
@built
def test_ctrl_c_ends_the_program_and_keeps_what_was_measured(tmp_path: Path, bare_environment: dict[str, str]) -> None:
    plan, run = tmp_path / "plan.toml", tmp_path / "run"
    sizes = 'benchmarks = [{ name = "stream", arrays = "any", size = ["80", "8M"] }]\niters = 100000\n'
    plan.write_text(sizes, encoding="utf-8")
    running = subprocess.Popen([sys.executable, "-m", "collbench", "run", plan, "--out", run], env=bare_environment,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True)  # fmt: skip
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children")
    try:
        records = run / "records.jsonl"
        wait_for(lambda: records.exists() and records.read_bytes().count(b"\n") == 4)
        wait_for(lambda: len(children.read_text(encoding="utf-8").split()) == 2)
        guard, child = children.read_text(encoding="utf-8").split()
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=LIMIT)
    finally:
        running.kill()
        running.wait()
    assert running.returncode == 130
    assert err.startswith("collbench: ") and err.endswith(f" 4 records are in {run}: collbench show {run}\n")
    assert gone(int(child)) and gone(int(guard))


@pytest.mark.parametrize(("name", "kind"), [("side", "what"), ("size", "how"), ("ranks", "where")])
def test_a_parameter_cannot_have_the_name_of_another_axis(name: str, kind: AxisKind) -> None:
    with pytest.raises(ValueError, match=name):
        parameter(name, "", "what it means", kind=kind)


def test_the_time_of_several_executions_is_added_up() -> None:
    together = _sum(CpuTime(user=1.0, system=2.0, wall=4.0), Finished("", 0.5, 0.25, 0.125))
    assert together == CpuTime(user=1.5, system=2.25, wall=4.125)
