"""Machines made of a directory, what their programs answer, and the outcomes of a check on such machines."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collbench.doctor import Finding, Machine, Problem, ProgramOutput
from collbench.machine.launcher import Launcher

NO_LAUNCHER = Launcher("none")
FOUR_RANKS = Launcher("openmpi", 0, 4, 0)

#: By a title: the severities of the problems ("ok" without any), and what a check finds on a machine.
Outcomes = Mapping[str, tuple[str, Callable[[Machine], Finding]]]


def no_program(argv: tuple[str, ...]) -> ProgramOutput:
    raise FileNotFoundError(argv[0])


def idle(folder: Path) -> Machine:
    """Four idle cores, no container, no launcher, nothing wrong."""
    made = Machine(folder, {"PATH": str(folder / "bin")}, NO_LAUNCHER, 1000, None, no_program)
    return having(made, {
        "sys/devices/system/cpu/online": "0-3",
        "proc/self/status": "Name:\tpython\nPPid:\t0\nCpus_allowed_list:\t0-7\n",
        "proc/pressure/cpu": "some avg10=1.50 avg60=0.00 avg300=0.00 total=12\nfull avg10=99.00 total=0",
        "proc/loadavg": "0.50 0.40 0.30 2/103 5335",
    })  # fmt: skip


def having(machine: Machine, files: Mapping[str, str] | None = None, **fields: Any) -> Machine:
    """The machine with these files and fields."""
    for name, text in (files or {}).items():
        path = machine.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return replace(machine, **fields)


def program(machine: Machine, name: str) -> str:
    having(machine, {f"bin/{name}": "#!/bin/sh\n"}).path(f"bin/{name}").chmod(0o755)
    return str(machine.path(f"bin/{name}"))


def answering(text: str) -> Callable[[tuple[str, ...]], ProgramOutput]:
    """Every program prints this."""
    return lambda argv: ProgramOutput(0, text)


def hanging(argv: tuple[str, ...]) -> ProgramOutput:
    raise TimeoutError("no answer within 10 s")


def printed(outcomes: Outcomes, folder: Path, machine_in: Callable[[Path], Machine] = idle) -> str:
    """Every finding as text, after a look at its severities. Python is that of an environment on the machine."""
    text = ""
    for number, (title, (severities, find)) in enumerate(outcomes.items()):
        (root := folder / str(number)).mkdir()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "executable", str(root / "venv/bin/python"))
            text += outcome(title, severities, find(machine_in(root))).replace(str(root), "")
    return text


def outcome(title: str, severities: str, finding: Finding) -> str:
    assert " ".join(problem.severity for problem in finding.problems) == severities.replace("ok", ""), title
    lines = [f"# {title}", f"seen: {finding.observed}"]
    for problem in finding.problems:
        check_words(problem)
        lines += [f"{problem.severity}: {problem.cause}", f"  effect: {problem.effect}", f"  fix: {problem.fix}"]
    return "\n".join(lines) + "\n"


def check_words(problem: Problem) -> None:
    """Cause, effect and fix are there, in sentences of at most 25 words."""
    assert problem.cause and problem.effect and problem.fix
    assert max(len(sentence.split()) for sentence in re.split("[;:] ", f"{problem.cause}; {problem.effect}")) <= 25


def only(finding: Finding, severity: str) -> Problem:
    """The one problem."""
    (problem,) = finding.problems
    assert problem.severity == severity
    check_words(problem)
    return problem


GOOD = Finding("all well")
WARNED = Finding("so so", (Problem("warn", "why " * 40, "what", "do this"),))
FAILED = Finding("bad", (Problem("fail", "why", "what", "do " * 60),))
UNKNOWN = Finding("?", (Problem("unknown", "why", "what", "do this"),))
