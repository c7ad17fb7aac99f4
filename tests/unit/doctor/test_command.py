"""The command: layout, verdict, exit code, JSON."""

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
from collbench.doctor.parts.finding import Finding
from collbench.doctor.parts.processors import Machine
from collbench.machine import launcher
from collbench.machine.launcher import Launcher


def invoke(monkeypatch: pytest.MonkeyPatch, findings: dict[str, Finding], *arguments: str) -> tuple[int, str]:
    monkeypatch.setattr(launcher, "detect", lambda environ=None: NO_LAUNCHER)
    monkeypatch.setattr(doctor, "examine", lambda machine, without: iter(findings.items()))
    result = CliRunner().invoke(cli_doctor.command, list(arguments))
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("findings", "code", "verdict"),
    [
        ({"a": GOOD}, 0, "Ready: nothing found"),
        ({"a": GOOD, "b": UNKNOWN}, 0, "Ready, as far as is known: b could"),
        ({"a": WARNED, "b": UNKNOWN, "c": WARNED}, 0, "see a, c."),
        ({"a": WARNED, "b": FAILED}, 1, "Not ready: b failed."),
    ],
)
def test_verdict_and_exit_code(
    monkeypatch: pytest.MonkeyPatch, findings: dict[str, Finding], code: int, verdict: str
) -> None:
    ended, output = invoke(monkeypatch, findings)
    assert ended == code
    assert verdict in output.splitlines()[-1]


def test_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    _, output = invoke(monkeypatch, {"cma": GOOD, "shm": FAILED})
    lines = output.splitlines()
    assert lines[0] == "ok       cma          all well"
    assert lines[1] == "fail     shm          bad"
    assert lines[2:4] == ["         cause   why", "         effect  what"]
    assert lines[4] == "         fix     " + "do " * 60


def test_long_causes_are_wrapped_under_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = invoke(monkeypatch, {"shm": WARNED})[1].splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[2].startswith(" " * 17 + "why")


def test_json(monkeypatch: pytest.MonkeyPatch) -> None:
    code, output = invoke(monkeypatch, {"cma": GOOD, "shm": FAILED}, "--json")
    found = json.loads(output)
    assert code == 1
    assert found["verdict"].startswith("Not ready: shm failed.")
    assert found["findings"][0] == {"check": "cma", "status": "ok", "seen": "all well", "problems": []}
    assert found["findings"][1]["problems"] == [
        {"severity": "fail", "cause": "why", "effect": "what", "fix": "do " * 60}
    ]


def test_only_rank_0_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    def look(machine: Machine) -> None:
        pytest.fail("rank 1 looked")

    monkeypatch.setattr(doctor, "examine", look)
    monkeypatch.setattr(launcher, "detect", lambda environ=None: Launcher("mpich", 1, 2))
    result = CliRunner().invoke(cli_doctor.command, [])
    assert (result.exit_code, result.output) == (0, "")


def test_the_script_on_this_machine() -> None:
    """Whatever is found here: no traceback, the exit code that goes with the findings, every check there."""
    argv = [sys.executable, "-m", "collbench", "doctor", "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT, check=False)
    found = json.loads(done.stdout)
    failed = any(row["status"] == "fail" for row in found["findings"])
    assert done.returncode == (1 if failed else 0)
    assert tuple(row["check"] for row in found["findings"]) == doctor.names()
    assert "Traceback" not in done.stderr
