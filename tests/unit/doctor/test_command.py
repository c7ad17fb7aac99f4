"""The command: order, exit code, JSON. Its words are in tests/golden/test_doctor.py."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner
from tests.processes import LIMIT
from tests.unit.doctor.machines import FAILED, GOOD, NO_LAUNCHER, UNKNOWN, WARNED

from collbench import doctor
from collbench.cli import doctor as cli_doctor
from collbench.doctor import BackendHere
from collbench.doctor.frame import Finding, Machine
from collbench.machine import launcher
from collbench.machine.launcher import Launcher


def invoke(monkeypatch: pytest.MonkeyPatch, findings: dict[str, Finding], *arguments: str) -> tuple[int, str]:
    monkeypatch.setattr(launcher, "detect", lambda environ=None: NO_LAUNCHER)
    monkeypatch.setattr(doctor, "examine", lambda machine, without: iter(findings.items()))
    monkeypatch.setattr(doctor, "backends_here", lambda: (BackendHere("mpi", ("MPICH 5.0.0",)),))
    result = CliRunner().invoke(cli_doctor.doctor_command, list(arguments))
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
    found = json.loads(output)
    assert code == 1 and found["verdict"]
    assert found["backends"] == [{"name": "mpi", "libraries": ["MPICH 5.0.0"], "missing": None, "needs_gpu": False}]
    cma: dict[str, object] = {"check": "cma", "status": "ok", "seen": "all well", "problems": [], "cost": None}
    assert found["findings"][0] == cma
    assert found["findings"][1]["problems"] == [
        {"severity": "fail", "cause": "why", "effect": "what", "fix": "do " * 60}
    ]


def test_only_rank_0_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    def look(machine: Machine) -> None:
        pytest.fail("rank 1 looked")

    monkeypatch.setattr(doctor, "examine", look)
    monkeypatch.setattr(launcher, "detect", lambda environ=None: Launcher("mpich", 1, 2))
    result = CliRunner().invoke(cli_doctor.doctor_command, [])
    assert (result.exit_code, result.output) == (0, "")


def test_the_script_on_this_machine() -> None:
    """Whatever is found here: no traceback, the exit code that goes with the findings, every check there."""
    argv = [sys.executable, "-m", "collbench", "doctor", "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT, check=False)
    found = json.loads(done.stdout)
    failed = any(row["status"] == "fail" for row in found["findings"])
    assert done.returncode == (1 if failed else 0)
    assert tuple(row["check"] for row in found["findings"]) == tuple(doctor.checks())
    assert "Traceback" not in done.stderr
