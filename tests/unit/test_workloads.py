"""Workloads that are programs: their cases, stream and its check, and what becomes of a program that goes wrong."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.processes import LIMIT

from collbench import workloads
from collbench.bindings.spec import Options
from collbench.errors import Interrupted, PlanError, RequestError
from collbench.machine.facts import rank_facts
from collbench.run.alone import AloneSession
from collbench.run.child import MOST_OUTPUT
from collbench.run.expand_programs import program_cases
from collbench.run.experiment import plan_experiment
from collbench.run.method import choose_method
from collbench.run.program import measure_program
from collbench.run.sampling import Watch
from collbench.run.watchdog import Unwatched
from collbench.schema.axes import Axis
from collbench.schema.plan import Plan, check_plan, load_plan
from collbench.schema.record import Record
from collbench.schema.store import read_run
from collbench.workloads.program import Measure, Program
from collbench.workloads.programs import stream as stream_program

PLAN = Plan(workloads=("stream",), sizes=("80",), warmup=1, iters=3)
GOOD = json.dumps(
    {"ns": {name: [9, 10, 20, 30] for name in ("copy", "scale", "add", "triad")}, "wrong": 0, "compiler": "C"}
)

built = pytest.mark.skipif(workloads.get("stream").needs() is not None, reason=workloads.get("stream").needs() or "")


def printing(text: str) -> Callable[[Any, int], Sequence[str]]:
    return lambda case, times: (sys.executable, "-c", "import sys; sys.stdout.write(sys.argv[1])", text)


def shell(script: str) -> Callable[[Any, int], Sequence[str]]:
    return lambda case, times: ("sh", "-c", script)


def run_row(
    monkeypatch: pytest.MonkeyPatch, row: Program, plan: Plan = PLAN, watch: Watch | None = None
) -> list[tuple[Record, Any]]:
    """What the only case of a plan gives with this row in the place of stream's."""
    monkeypatch.setattr(workloads, "get", lambda name: row)
    (case,) = program_cases(plan, 1)
    method = choose_method(plan, (rank_facts(None),), simulated=False)
    return list(measure_program(case, plan, AloneSession("single"), method, watch or Unwatched()))


def row_with(argv: Callable[[Any, int], Sequence[str]]) -> Program:
    return replace(workloads.get("stream"), argv=argv, needs=lambda: None)


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
        ("", "what stream printed cannot be read (JSONDecodeError"),
        (GOOD[:40], "what stream printed cannot be read (JSONDecodeError"),
        ("[]", "what stream printed cannot be read (TypeError"),
        ("{}", "what stream printed cannot be read (KeyError"),
        (GOOD.replace('"triad"', '"tried"'), "stream printed 0 times of triad, and was asked for 4"),
        (GOOD.replace("[9, 10, 20, 30]", "[9, 10, 20]", 1), "stream printed 3 times of copy, and was asked for 4"),
        (GOOD.replace("30]", "NaN]", 1), "stream printed nan s as a time of copy"),
        (GOOD.replace("30]", "-1]", 1), "stream printed -1e-09 s as a time of copy"),
        (GOOD.replace('"wrong": 0', '"wrong": 5'), "wrong result: 5 results are not what stream means"),
        (GOOD[:-20] + "\udc80", "what stream printed cannot be read"),
    ],
)
def test_a_damaged_output_fails_every_measure(monkeypatch: pytest.MonkeyPatch, output: str, reason: str) -> None:
    found = run_row(monkeypatch, row_with(printing(output)))
    assert len(found) == 4
    for record, samples in found:
        assert (record.status, record.seconds, samples) == ("failed", None, None)
        assert record.reason is not None and record.reason.startswith(reason)


def test_a_wrong_result_is_said_before_times_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    output = GOOD.replace("[9, 10, 20, 30]", "[]").replace('"wrong": 0', '"wrong": 1')
    for record, _ in run_row(monkeypatch, row_with(printing(output))):
        assert record.reason == "wrong result: 1 results are not what stream means"
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


def test_without_what_it_needs_it_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    row = replace(row_with(shell("exit 1")), needs=lambda: "no kernels")
    assert [(record.status, record.reason) for record, _ in run_row(monkeypatch, row)] == [
        ("skipped", "no kernels")
    ] * 4


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo first >&2; echo the last >&2; exit 3", "sh ended with exit code 3: the last"),
        ("exit 4", "sh ended with exit code 4"),
        ("kill -9 $$", "sh ended with signal 9 (Killed)"),
        ("yes", f"it printed more than {MOST_OUTPUT >> 20} MiB"),
        ("yes >&2 & yes", f"it printed more than {MOST_OUTPUT >> 20} MiB"),
        ("yes | head -c 9000000 >&2; exit 5", "sh ended with exit code 5: y"),
        ("sleep 3600 & sleep 3600", "sh did not end within 300 ms (-T sets the limit)"),
        ("exec >&- 2>&-; sleep 3600", "sh did not end within 300 ms (-T sets the limit)"),
    ],
)
def test_a_program_that_goes_wrong_fails_its_case_and_says_why(
    monkeypatch: pytest.MonkeyPatch, script: str, reason: str
) -> None:
    limit = "300ms" if "sleep" in script else f"{LIMIT:g}s"
    found = run_row(monkeypatch, row_with(shell(script)), msgspec.structs.replace(PLAN, timeout=limit))
    assert [(record.status, record.reason) for record, _ in found] == [("failed", reason)] * 4


def test_a_program_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    ((record, _), *_) = run_row(monkeypatch, row_with(lambda case, times: ("/no/such/program",)))
    assert record.reason == "cannot start /no/such/program: No such file or directory"


def gone(pid: int) -> bool:
    """Within the limit: no process, or one that nobody has reaped yet."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state in "ZX":
            return True
        time.sleep(0.02)
    return False


def written(path: Path) -> int:
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        if path.exists() and (text := path.read_text(encoding="utf-8")).endswith("\n"):
            return int(text)
        time.sleep(0.02)
    raise AssertionError(f"{path} was not written")


def test_children_of_a_program_end_with_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    script = f"sleep 3600 & echo $! > {pid}.part; mv {pid}.part {pid}; exit 7"
    ((record, _), *_) = run_row(monkeypatch, row_with(shell(script)))
    assert record.reason == "sh ended with exit code 7"
    assert gone(written(pid))


def test_told_to_stop_it_ends_the_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pid = tmp_path / "pid"

    class StopsOnceItRuns:
        beats = 0

        @property
        def stopped(self) -> int | None:
            return signal.SIGTERM if pid.exists() else None

        def beat(self, doing: str) -> None:
            self.beats += doing == "stream size=80"

    watch = StopsOnceItRuns()
    script = f"echo $$ > {pid}.part; mv {pid}.part {pid}; sleep 3600"
    with pytest.raises(Interrupted):
        run_row(monkeypatch, row_with(shell(script)), watch=watch)  # type: ignore[arg-type]
    assert watch.beats > 0
    assert gone(written(pid))


ALONE = """\
from collbench.run.child import output_of
from collbench.run.watchdog import Unwatched
import sys
script = f"echo $$ > {sys.argv[1]}.part; mv {sys.argv[1]}.part {sys.argv[1]}; exec sleep 3600"
output_of(("sh", "-c", script), 3600, Unwatched(), "")
"""


def test_the_kernel_ends_it_when_its_parent_is_gone(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    parent = subprocess.Popen([sys.executable, "-c", ALONE, pid])
    try:
        child = written(pid)
    finally:
        parent.kill()
        parent.wait(LIMIT)
    assert gone(child)


def test_it_is_asked_for_points_in_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    ((record, _), *_) = run_row(monkeypatch, row_with(shell('echo "$LC_ALL" >&2; exit 1')))
    assert record.reason == "sh ended with exit code 1: C"


def other(**fields: Any) -> Program:
    """A program of two axes of its own."""
    axes = (Axis("level", "how", "", neutral=6), Axis("mode", "what", "", neutral="fast"))
    measures = (Measure("all", lambda case: 1.0, "events"),)
    return Program("other", "", "", measures, shell(""), lambda output: {}, lambda *_: 0, axes=axes, **fields)


def test_cases_are_every_combination_of_sizes_and_own_axes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workloads, "get", lambda name: other(sizes=("1K",)))
    (usual,) = program_cases(Plan(workloads=("other",)), 1)
    assert (usual.case.what, usual.case.how) == ({"mode": "fast", "size": 1024}, {"level": 6})
    plan = Plan(workloads=("other", "other"), sizes=("8", "16"), axes={"level": (1, 9, 1), "mode": ("fast", "slow")})
    found = program_cases(plan, 1)
    assert len(found) == len(set(found)) == 8
    assert found[0].identities == (found[0].case.having(measure="all"),)


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({"levle": (1,)}, "axes: 'levle': other has no such axis. Did you mean level?"),
        ({"level": ("high",)}, "axes: level: 'high' is of another kind than 6, its usual value."),
        ({"level": (True,)}, "axes: level: True is of another kind than 6, its usual value."),
        ({"mode": (1,)}, "axes: mode: 1 is of another kind than 'fast', its usual value."),
    ],
)
def test_axes_that_the_program_does_not_have(monkeypatch: pytest.MonkeyPatch, axes: Any, message: str) -> None:
    monkeypatch.setattr(workloads, "get", lambda name: other())
    with pytest.raises(PlanError, match=re.escape(message)):
        program_cases(Plan(workloads=("other",), axes=axes), 1)


@pytest.mark.parametrize(
    ("plan", "options", "message"),
    [
        (Plan(), Options(), "collectives: the list is empty, and so is workloads"),
        (Plan(workloads=("stream",), axes={"level": ()}), Options(), "level: the list is empty"),
        (Plan(workloads=("streem",)), Options(), "workload 'streem': unknown. Did you mean stream?"),
        (Plan(workloads=("stream",), axes={"a": (1,)}), Options(), "axes: 'a': stream has no such axis."),
        (
            Plan(collectives=("bcast",), backends=("fake",), axes={"a": (1,)}),
            Options(),
            "a plan without workloads has no",
        ),
        (Plan(workloads=("stream",)), Options(ranks=2), "a program runs on one rank, and there are 2."),
        (Plan(workloads=("stream",)), Options(fault="hang:0"), "--fault: only the fake backend"),
        (
            Plan(collectives=("bcast",), backends=("fake",), workloads=("stream",)),
            Options(),
            "in no run with real ones",
        ),
    ],
)
def test_plans_that_cannot_be(plan: Plan, options: Options, message: str) -> None:
    with pytest.raises(RequestError, match=re.escape(message)):
        plan_experiment(check_plan(plan), options, ())


def test_a_plan_file_names_workloads_and_their_axes(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text('workloads = ["stream"]\n[axes]\nlevel = [1, 2]\nmode = ["a"]\n', encoding="utf-8")
    plan = load_plan(path)
    assert (plan.workloads, plan.collectives, plan.sizes) == (("stream",), (), None)
    assert plan.axes == {"level": (1, 2), "mode": ("a",)}


def test_several_ranks_are_refused_with_one_message(collbench: Any, tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text('workloads = ["stream"]\n', encoding="utf-8")
    for rank, said in (("0", "collbench: workloads: a program runs on one rank, and there are 2. Start one rank.\n"),):
        started = {"OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": rank}
        done = collbench("run", plan, **started)
        assert (done.returncode, done.stderr) == (2, said)


@built
def test_stream_from_a_plan_to_a_run_on_disk(collbench: Any, tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text('workloads = ["stream"]\nsizes = ["64K", "80"]\nwarmup = 2\niters = 6\n', encoding="utf-8")
    done = collbench("run", plan, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    run = read_run(tmp_path / "run")
    assert [(record.case["measure"], record.case["size"]) for record in run.records] == [
        (measure, size) for size in (65536, 80) for measure in ("copy", "scale", "add", "triad")
    ]
    for record in run.records:
        samples = run.samples(record)
        assert record.status == "ok"
        assert samples is not None and samples.shape == (1, 6)
        assert record.check is not None and record.check.wrong == 0
        assert record.confinement and record.ranks is not None
    assert run.manifest.libraries == ()
    shown = collbench("show", tmp_path / "run")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "\nstream\n" in shown.stdout and "(GB/s)" in shown.stdout and "communicates with nobody" not in shown.stdout
    for style in ("osu", "nccl-tests"):
        told = collbench("show", tmp_path / "run", "--style", style)
        assert told.returncode == 0
        assert "# stream triad 64K: no collective; --style table prints it" in told.stdout


@built
def test_a_size_that_no_array_has_fails_and_says_why(collbench: Any, tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text('workloads = ["stream"]\nsizes = ["81", "80"]\niters = 2\n', encoding="utf-8")
    done = collbench("run", plan)
    assert done.returncode == 1
    assert "! failed at 81: " in done.stdout and "use a multiple of 8" in done.stdout
    assert done.stdout.count("triad") == 1


@built
def test_ctrl_c_ends_the_program_and_keeps_what_was_measured(tmp_path: Path, bare_environment: dict[str, str]) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text('workloads = ["stream"]\nsizes = ["80", "8M"]\niters = 100000\n', encoding="utf-8")
    running = subprocess.Popen(
        [sys.executable, "-m", "collbench", "run", plan, "--out", tmp_path / "run"],
        env=bare_environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        records = tmp_path / "run" / "records.jsonl"
        end = time.monotonic() + LIMIT
        children = Path(f"/proc/{running.pid}/task/{running.pid}/children")
        while time.monotonic() < end and not (records.exists() and records.read_bytes().count(b"\n") == 4):
            time.sleep(0.02)
        while time.monotonic() < end and not (started := children.read_text(encoding="utf-8").split()):
            time.sleep(0.02)
        (child,) = started
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=LIMIT)
    finally:
        running.kill()
        running.wait()
    assert running.returncode == 130
    assert said == f"collbench: interrupted. 4 records are in {tmp_path / 'run'}: collbench show {tmp_path / 'run'}\n"
    assert gone(int(child))
