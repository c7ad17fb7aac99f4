"""A program that goes wrong fails its case and says why; nothing of it is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from tests.processes import LIMIT
from tests.unit.made_programs import PLAN, gone, row_with, run_row, shell, written

from collbench import workloads
from collbench.errors import Interrupted
from collbench.machine import process
from collbench.run.child import ProgramFailed, execute
from collbench.run.failures import Unwatched

built = pytest.mark.skipif(workloads.get("stream").needs() is not None, reason=workloads.get("stream").needs() or "")


def test_without_what_it_needs_it_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    row = replace(row_with(shell("exit 1")), needs=lambda: "no kernels")
    assert [(record.status, record.reason) for record, _ in run_row(monkeypatch, row)] == [
        ("skipped", "no kernels")
    ] * 4


def blank_lines_after(text: str, number: int) -> str:
    """Of standard error the last 16 KiB are kept."""
    return f"{{ echo {text}; head -c {number} /dev/zero | tr '\\0' '\\n'; }} >&2; exit 4"


#: Nobody else says why a process was killed.
OUT_OF_MEMORY = "perhaps by the kernel, because memory ran out (dmesg would say so)"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo first >&2; echo the last >&2; exit 3", "sh ended with exit code 3: the last"),
        ("exit 4", "sh ended with exit code 4"),
        ("printf '%400s' x | tr ' ' y >&2; exit 4", f"sh ended with exit code 4: {'y' * 300}"),
        (blank_lines_after("first", 16384 - 6), "sh ended with exit code 4: first"),
        (blank_lines_after("first", 16384), "sh ended with exit code 4"),
        ("head -c 16777217 /dev/zero", "it printed more than 16 MiB"),
        ("echo '  module = Module(' >&2; kill -9 $$", f"sh ended with signal 9 (Killed): {OUT_OF_MEMORY}"),
        (
            "{ echo 'terminate: lost'; echo '  at step 3'; } >&2; kill -6 $$",
            "sh ended with signal 6 (Aborted): terminate: lost",
        ),
        ("echo '  indented' >&2; exit 4", "sh ended with exit code 4: indented"),
        ("yes", "it printed more than 16 MiB"),
        ("yes >&2 & yes", "it printed more than 16 MiB"),
        ("yes | head -c 9000000 >&2; exit 5", "sh ended with exit code 5: y"),
        ("sleep 3600 & sleep 3600", "sh did not end within 300 ms (the limit is -T, or timeout in a plan)"),
        ("exec >&- 2>&-; sleep 3600", "sh did not end within 300 ms (the limit is -T, or timeout in a plan)"),
    ],
)
def test_a_program_that_goes_wrong_fails_its_case_and_says_why(
    monkeypatch: pytest.MonkeyPatch, script: str, reason: str
) -> None:
    limit = "300ms" if "sleep" in script else f"{LIMIT:g}s"
    found = run_row(monkeypatch, row_with(shell(script)), msgspec.structs.replace(PLAN, timeout=limit))
    assert [(record.status, record.reason) for record, _ in found] == [("failed", reason)] * 4


def test_of_several_ranks_the_one_whose_process_was_killed_is_named() -> None:
    with pytest.raises(ProgramFailed, match=r"^sh of rank 2 ended with signal 9 \(Killed\): perhaps by the kernel"):
        execute(("sh", "-c", "kill -9 $$"), LIMIT, Unwatched(), "", variables={"RANK": "2"})


def test_a_program_may_print_as_much_as_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """16 MiB of nothing, which is no result."""
    ((record, _), *_) = run_row(monkeypatch, row_with(shell("head -c 16777216 /dev/zero")))
    assert (record.reason or "").startswith("cannot read the output of stream (JSONDecodeError")


def test_a_program_within_its_limit_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock of our own: 0.2 of 0.3 s have passed whenever it is looked at, and then 0.4."""
    for passed, said in (
        (0.2, "sh ended with exit code 7"),
        (0.4, "sh did not end within 300 ms (the limit is -T, or timeout in a plan)"),
    ):
        now = chain((100.0,), repeat(100.0 + passed))
        monkeypatch.setattr("collbench.run.child.time", SimpleNamespace(monotonic=now.__next__, sleep=time.sleep))
        found = run_row(
            monkeypatch, row_with(shell("sleep 0.1; exit 7")), msgspec.structs.replace(PLAN, timeout="300ms")
        )
        assert found[0][0].reason == said


def test_a_program_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    ((record, _), *_) = run_row(monkeypatch, row_with(lambda case, times: ("/no/such/program",)))
    assert record.reason == "cannot start /no/such/program: No such file or directory"


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
            self.beats += doing == "stream size=80 arrays=any"

    watch = StopsOnceItRuns()
    script = f"echo $$ > {pid}.part; mv {pid}.part {pid}; sleep 3600"
    with pytest.raises(Interrupted):
        run_row(monkeypatch, row_with(shell(script)), watch=watch)  # type: ignore[arg-type]
    assert watch.beats > 0
    assert gone(written(pid))


ALONE = """\
from collbench.run.child import execute
from collbench.run.failures import Unwatched
import sys
script = f"echo $$ > {sys.argv[1]}.part; mv {sys.argv[1]}.part {sys.argv[1]}; exec sleep 3600"
execute(("sh", "-c", script), 3600, Unwatched(), "")
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


@pytest.mark.slow
@built
def test_ctrl_c_ends_the_program_and_keeps_what_was_measured(tmp_path: Path, bare_environment: dict[str, str]) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(
        'benchmarks = [{ name = "stream", arrays = "any", size = ["80", "8M"] }]\niters = 100000\n', encoding="utf-8"
    )
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
        while time.monotonic() < end and len(started := children.read_text(encoding="utf-8").split()) < 2:
            time.sleep(0.02)
        guard, child = started
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=LIMIT)
    finally:
        running.kill()
        running.wait()
    assert running.returncode == 130
    assert said == f"collbench: interrupted. 4 records are in {tmp_path / 'run'}: collbench show {tmp_path / 'run'}\n"
    assert gone(int(child))
    assert gone(int(guard))


def test_threads_are_the_cores_whatever_we_set_for_ourselves(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (process.OWN, "OPENBLAS_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "77")
    process.set_own({"OPENBLAS_NUM_THREADS": "1"})
    script = 'echo "$OMP_NUM_THREADS $OPENBLAS_NUM_THREADS." >&2; exit 1'
    ((record, _), *_) = run_row(monkeypatch, row_with(shell(script)))
    assert record.reason == f"sh ended with exit code 1: {len(os.sched_getaffinity(0))} ."
