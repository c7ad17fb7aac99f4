"""All checks together: what they ask of a machine, the command, and the command in a container of a launch."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from tests.processes import LIMIT, wait_for
from tests.unit.doctor.machines import FAILED, FOUR_RANKS, GOOD, NO_LAUNCHER, UNKNOWN, WARNED, having, only
from tests.unit.fake_engine import FakeCommand, FakeEngineSession, Play, Playing

from collbench import backends, doctor
from collbench.cli import prepare
from collbench.doctor import CHECKS, BackendHere, Finding, Machine, execute, here
from collbench.errors import CollbenchError, EngineError, Interrupted, LaunchFailed, PlanError, RequestError
from collbench.launch import stacks
from collbench.launch.stacks import ExaminedStack, examine, expanded_for
from collbench.launch.waiting import StopCheck
from collbench.machine import launcher, nvml
from collbench.machine.launcher import Launcher


def raising(error: Exception) -> Callable[..., Any]:
    def fall(*_: object) -> None:
        raise error

    return fall


def test_every_check_is_found() -> None:
    assert list(doctor.checks()) == sorted(CHECKS)
    assert len(CHECKS) >= 18


def test_every_check_ends_with_a_finding_here() -> None:
    findings = dict(doctor.examine(here()))
    assert tuple(findings) == tuple(doctor.checks())
    assert {name: one.problems for name, one in findings.items() if "itself failed" in one.observed} == {}
    for finding in findings.values():
        assert all(problem.cause and problem.effect and problem.fix for problem in finding.problems)


def test_a_check_that_raises_is_unknown_and_the_others_go_on(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CHECKS, "contention", raising(PermissionError("not for you")))
    findings = dict(doctor.examine(machine))
    assert tuple(findings) == tuple(doctor.checks())
    assert only(findings["contention"], "unknown").cause == "PermissionError: not for you"
    assert findings["cores"].status == "ok"


def test_the_worst_problem_is_the_status() -> None:
    unknown, warn, fail = (row.problems[0] for row in (UNKNOWN, WARNED, FAILED))
    assert Finding("").status == "ok"
    assert Finding("", (warn, unknown)).status == "warn"
    assert Finding("", (warn, unknown, fail)).status == "fail"


# Machines ------------------------------------------------------------------------------------------------------------


def test_a_program_answers_with_code_and_both_streams() -> None:
    output = execute((sys.executable, "-c", "import sys; print('out'); sys.stderr.write('err'); sys.exit(3)"))
    assert output.code == 3
    assert "out" in output.text and "err" in output.text


def test_a_program_that_hangs_ends_with_its_children(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    limits = iter((1, 10, 100))  # until it has come to start its child
    while not note.exists() or not note.read_text():
        with pytest.raises(TimeoutError, match=r"^sh .* 1(00?)? s$"):
            execute(("sh", "-c", f"sleep 3600 & echo $! > {note}; wait"), limit=next(limits))
    child = Path("/proc", note.read_text().strip(), "cmdline")
    wait_for(lambda: not child.exists() or b"sleep" not in child.read_bytes())


@pytest.mark.parametrize(
    ("started", "environ", "expected"),
    [
        (FOUR_RANKS, {}, 4),
        (FOUR_RANKS, {"OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, 2),
        (FOUR_RANKS, {"LOCAL_WORLD_SIZE": "3"}, 3),
        (FOUR_RANKS, {"MPI_LOCALNRANKS": "x"}, 4),
        (NO_LAUNCHER, {"LOCAL_WORLD_SIZE": "3"}, None),
    ],
)
def test_ranks_are_those_of_this_machine(
    machine: Machine, started: Launcher, environ: dict[str, str], expected: int | None
) -> None:
    assert having(machine, launcher=started, environ=environ).ranks == expected


# Backends ------------------------------------------------------------------------------------------------------------


def test_backends_have_libraries_or_a_reason() -> None:
    """As `usable` says; those that simulate are left out."""
    rows = doctor.backends_here()
    assert {row.name for row in rows} == {backend.name for backend in backends.every() if not backend.simulated}
    assert all((backends.missing(row.name) is None) == bool(row.libraries) == (not row.missing) for row in rows)


def test_without_a_gpu_nothing_on_gpus_is_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several ranks a backend refuses none before they have met: others may have a GPU."""
    monkeypatch.setattr(backends, "missing", lambda name: None)
    monkeypatch.setattr(nvml, "gpus", lambda root=None: ((), "no driver"))
    assert all(row.missing for row in doctor.backends_here() if row.needs_gpu)


def test_a_backend_whose_library_cannot_be_loaded_has_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(backends.get("torch-gloo")), "libraries", raising(RequestError("no libx.so")))
    monkeypatch.setattr(backends, "missing", lambda name: None)
    assert {row.name: row.missing for row in doctor.backends_here()}["torch-gloo"] == "RequestError: no libx.so"


# The command: its words are in tests/golden/doctor-*.txt --------------------------------------------------------------


def invoke(monkeypatch: pytest.MonkeyPatch, findings: dict[str, Finding], *arguments: str) -> tuple[int, str]:
    monkeypatch.setattr(launcher, "detect", lambda environ=None: NO_LAUNCHER)
    monkeypatch.setattr(doctor, "examine", lambda machine, without: iter(findings.items()))
    monkeypatch.setattr(doctor, "backends_here", lambda: (BackendHere("mpi", ("MPICH 5.0.0",)),))
    result = CliRunner().invoke(prepare.doctor_command, list(arguments))
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("findings", "code"),
    [
        ({"a": GOOD}, 0),
        ({"a": GOOD, "b": UNKNOWN}, 0),
        ({"a": WARNED, "b": UNKNOWN, "c": WARNED}, 0),
        ({"a": WARNED, "b": FAILED}, 1),
    ],
)
@pytest.mark.parametrize("flag", ["--json", "--all", ""])
def test_exit_code(monkeypatch: pytest.MonkeyPatch, findings: dict[str, Finding], code: int, flag: str) -> None:
    assert invoke(monkeypatch, findings, *([flag] if flag else []))[0] == code


def test_the_worst_comes_first_and_what_is_fine_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    _, output = invoke(monkeypatch, {"cma": GOOD, "unsure": UNKNOWN, "governor": WARNED, "shm": FAILED})
    names = [line.split()[0] for line in output.splitlines() if line.startswith(("cma", "unsure", "governor", "shm"))]
    assert names == ["shm", "governor", "unsure"]


def test_json(monkeypatch: pytest.MonkeyPatch) -> None:
    code, output = invoke(monkeypatch, {"cma": GOOD, "shm": FAILED}, "--json")
    document = json.loads(output)
    assert code == 1 and document["verdict"]
    assert document["backends"] == [{"name": "mpi", "libraries": ["MPICH 5.0.0"], "missing": None, "needs_gpu": False}]
    assert document["findings"][0] == {
        "check": "cma",
        "status": "ok",
        "seen": GOOD.observed,
        "problems": [],
        "cost": None,
    }
    (problem,) = document["findings"][1]["problems"]
    assert problem == {"severity": "fail", "cause": "why", "effect": "what", "fix": "do " * 60}


def test_only_rank_0_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "examine", lambda *_: pytest.fail("rank 1 looked"))
    monkeypatch.setattr(launcher, "detect", lambda environ=None: Launcher("mpich", 1, 2))
    result = CliRunner().invoke(prepare.doctor_command, [])
    assert (result.exit_code, result.output) == (0, "")


def test_the_script_on_this_machine() -> None:
    """Whatever is found here: no traceback, the exit code that goes with the findings, every check there."""
    argv = [sys.executable, "-m", "collbench", "doctor", "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT, check=False)
    findings = json.loads(done.stdout)["findings"]
    assert done.returncode == any(row["status"] == "fail" for row in findings)
    assert tuple(row["check"] for row in findings) == tuple(doctor.checks())
    assert "Traceback" not in done.stderr


# In the first container of a launch ----------------------------------------------------------------------------------


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary folder in which nothing may be left, and waits that take no time."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(stacks, "LOOK", 0.0)
    return tmp_path


def saying(code: int, *lines: str) -> Play:
    def play(command: FakeCommand) -> Playing:
        assert command.world.folders.placement.exists(), "engines mount it into every container"
        for line in lines:
            yield
            command.log.add(False, line)
        return code

    return play


def hang(command: FakeCommand) -> Playing:
    while True:
        yield


def examined(
    play: Play, policy: str = "single", check: StopCheck = lambda: None, **session: Any
) -> tuple[ExaminedStack, FakeEngineSession]:
    made = FakeEngineSession(play, **session)
    return examine(expanded_for("openmpi", policy, "strict", "fake"), made, ("collbench", "doctor"), check), made


def test_the_command_runs_in_the_first_container_and_nothing_is_left(temporary: Path) -> None:
    stack, session = examined(saying(0, "first", "second"))
    assert (stack.lines, stack.code) == (("first", "second"), 0)
    assert stack.title.startswith("openmpi, single, strict: ") and "2 containers" in stack.title
    ((command,),) = (opened.commands for opened in session.worlds)
    assert command.host == "cbfake-0-c0"
    assert command.argv == ("collbench", "doctor", "--without", "cma"), "it is alone there"
    assert command.environment == {}, "it is no rank: nothing binds it"
    assert (session.left, session.cleanings, list(temporary.iterdir())) == ([], 1, [])


@pytest.mark.parametrize("code", [0, 1, 2])
def test_ranks_that_share_a_container_may_read_each_others_memory(temporary: Path, code: int) -> None:
    """Whatever the command finds: doctor's own ends are answers."""
    stack, session = examined(saying(code), "multi")
    assert stack.code == code and session.worlds[0].commands[0].argv == ("collbench", "doctor")
    assert stack.title.startswith("openmpi, multi, strict: ") and stack.title.endswith(" 1 container")


@pytest.mark.parametrize(
    ("code", "lines", "last"),
    [(3, ("first", "the last"), ": the last"), (-1, (), "-1: without output"), (127, ("not found",), ": not found")],
)
def test_another_end_is_an_error_with_its_last_words(
    temporary: Path, code: int, lines: tuple[str, ...], last: str
) -> None:
    with pytest.raises(LaunchFailed, match=rf"^image openmpi: .* {code}: ") as caught:
        examined(saying(code, *lines))
    assert str(caught.value).endswith(last)
    assert list(temporary.iterdir()) == []


def test_who_gives_no_answer_is_not_waited_for(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(0, 10_000, 40))
    clock = SimpleNamespace(monotonic=lambda: float(next(now)), sleep=lambda seconds: None)
    monkeypatch.setattr("collbench.launch.stacks.time", clock)
    with pytest.raises(EngineError, match=r"^container cbfake-0-c0: .* 120 s\.$"):
        examined(hang)
    assert next(now) == 200, "the first look, three within the limit, and one after it"
    assert list(temporary.iterdir()) == []


def test_told_to_stop_it_waits_no_longer(temporary: Path) -> None:
    looks = iter((False, False, True))

    def check() -> None:
        if next(looks):
            raise Interrupted("interrupted.")

    with pytest.raises(Interrupted):
        examined(hang, check=check)
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(
    ("names", "error", "named"),
    [
        (("openmpi", "host", "strict", "fake"), RequestError, "--image: policy host "),
        (("openmpi", "sinlge", "strict", "fake"), PlanError, "policy 'sinlge'"),
        (("openmpi", "single", "loose", "fake"), PlanError, "isolation 'loose'"),
        (("openmpi", "single", "strict", "fkae"), CollbenchError, "engine 'fkae'"),
        (("Open MPI", "single", "strict", "fake"), PlanError, "image 'Open MPI'"),
    ],
)
def test_names_that_cannot_be_looked_into(
    names: tuple[str, str, str, str], error: type[CollbenchError], named: str
) -> None:
    with pytest.raises(error, match=named):
        expanded_for(*names)


def test_two_ranks_are_placed_however_few_cores_there_are() -> None:
    expanded = expanded_for("openmpi", "single", "strict", "fake")
    (cell,) = expanded.cells
    assert (cell.ranks, cell.isolation, expanded.plan.oversubscribe) == (2, "strict", True)
