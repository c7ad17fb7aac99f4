"""Steps of a session: each under its limit, one failure for itself, nothing left running, everything packed."""

from __future__ import annotations

import signal
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from tests.unit.bench_modules import BENCH, bench
from tests.unit.test_bench_launches import PARENT, WAITS, alive, child_in

SESSION = """
import sys
from pathlib import Path
from installation import end_on_sigterm
from steps import Session, Step, archive
end_on_sigterm()
work, out = Path(sys.argv[1]), Path(sys.argv[2])
pack = lambda: archive(out / "all.tar.gz", {"log": work / "log"})
session = Session(work, out, 300, pack)
try:
    session.run([Step("first", 60, (sys.executable, "-c", "print('measured')")),
                 Step("second", 60, (sys.executable, "-c", sys.argv[3], sys.argv[4]))])
finally:
    pack()
"""


class Ran:
    """A session in a folder: what it said, and how often it was packed."""

    def __init__(self, where: Path, seconds: float, *steps: Any) -> None:
        self.packed = 0
        self.session = bench("steps").Session(where / "work", where, seconds, self.pack)
        self.session.run(steps)
        self.lines = (where / "steps.txt").read_text().splitlines()

    def pack(self) -> None:
        self.packed += 1
        if self.packed == 1:
            raise OSError("the disk is full")

    @property
    def verdicts(self) -> list[str]:
        """The first two words of the lines about steps."""
        steps = (line for line in self.lines if line.startswith(("ok ", "FAIL ", "SKIP ")))
        return [" ".join(line.replace(":", " ").split()[:2]) for line in steps]


def step(name: str, program: str, *arguments: str, limit: float = 60, **more: Any) -> Any:
    return bench("steps").Step(name, limit, (sys.executable, "-c", program, *arguments), **more)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench("steps"), "SHORTEST", 0.5)
    monkeypatch.setattr(bench("steps"), "GRACE", 1.0)


def test_one_failure_stops_nothing_and_all_is_packed_each_time(tmp_path: Path) -> None:
    ran = Ran(
        tmp_path, 300, step("good", ""), step("bad", "print('why'); raise SystemExit(5)"),
        bench("steps").Step("absent", 60, ("/no/such/program",)), step("allowed", "raise SystemExit(1)", codes=(0, 1)),
    )  # fmt: skip
    assert ran.verdicts == ["ok good", "FAIL bad", "FAIL absent", "ok allowed"]
    assert any("code 5" in line for line in ran.lines) and "      why" in ran.lines
    assert any("absent: cannot be started" in line for line in ran.lines)
    assert (ran.session.failed, ran.packed) == (2, 4)
    assert (tmp_path / "work" / "log" / "bad.txt").read_text() == "why\n"


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "program", [PARENT + WAITS, "import signal; signal.signal(15, signal.SIG_IGN)\n" + PARENT + WAITS]
)
def test_a_step_over_its_limit_leaves_nothing(tmp_path: Path, program: str) -> None:
    """Neither a child in a session of its own, nor a program that does not listen."""
    ran = Ran(tmp_path, 300, step("long", program, str(tmp_path / "child"), limit=4), step("next", ""))
    assert ran.verdicts == ["FAIL long", "ok next"]
    assert "FAIL  long: over its limit of 4 s" in ran.lines[0]
    assert not alive(child_in(tmp_path / "child"))


def test_a_step_that_ends_well_leaves_nothing_either(tmp_path: Path) -> None:
    assert Ran(tmp_path, 300, step("leaves", PARENT, str(tmp_path / "child"))).verdicts == ["ok leaves"]
    assert not alive(child_in(tmp_path / "child"))


def test_without_what_all_need_nothing_is_tried(tmp_path: Path) -> None:
    ran = Ran(tmp_path, 300, step("base", "raise SystemExit(1)", needed=True), step("next", ""))
    assert ran.verdicts == ["FAIL base"]


def test_what_steps_leave_goes_to_those_that_stretch_and_no_promise_is_broken() -> None:
    later = [step("b", "", limit=30), step("c", "", limit=10)]
    allowance = bench("steps").allowance
    assert allowance(step("a", "", limit=20), later, 100.0) == 20
    assert allowance(step("a", "", limit=20, stretches=True), later, 100.0) == 60
    assert allowance(step("a", "", limit=20, stretches=True), later, 50.0) == 20
    assert allowance(step("a", "", limit=20, stretches=True), [], 7.0) == 7


def test_a_step_without_time_is_said_and_counts(tmp_path: Path) -> None:
    ran = Ran(tmp_path, 2, step("late", ""))
    assert ran.verdicts == ["SKIP late"]
    assert ran.session.failed == 1


def test_sigterm_ends_a_session_and_keeps_what_it_has(tmp_path: Path) -> None:
    work, out = tmp_path / "work", tmp_path / "out"
    out.mkdir()
    argv = (sys.executable, "-c", SESSION, str(work), str(out), PARENT + WAITS, str(tmp_path / "child"))
    process = subprocess.Popen(argv, cwd=BENCH)
    try:
        child = child_in(tmp_path / "child")
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 128 + signal.SIGTERM
        assert not alive(child)
    finally:
        process.kill()
    assert (out / "steps.txt").read_text().startswith("ok    first")
    with tarfile.open(out / "all.tar.gz") as packed:
        first = packed.extractfile("log/first.txt")
        assert first is not None and first.read() == b"measured\n"
