"""Machines made of a directory, what their programs answer, and findings made by hand."""

from __future__ import annotations

import re

from collbench.doctor.frame import Finding, Machine, Problem, ProgramOutput
from collbench.machine.launcher import Launcher

NO_LAUNCHER = Launcher("none")
FOUR_RANKS = Launcher("openmpi", 0, 4, 0)


def no_program(argv: tuple[str, ...]) -> ProgramOutput:
    raise FileNotFoundError(argv[0])


def write(machine: Machine, name: str, text: str) -> None:
    path = machine.path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def program(machine: Machine, name: str) -> str:
    write(machine, f"bin/{name}", "#!/bin/sh\n")
    machine.path(f"bin/{name}").chmod(0o755)
    return str(machine.path(f"bin/{name}"))


def only(finding: Finding, severity: str) -> Problem:
    """The one problem, which must say cause, effect and fix, in sentences of at most 25 words."""
    assert [problem.severity for problem in finding.problems] == [severity]
    assert finding.status == severity
    problem = finding.problems[0]
    assert problem.cause and problem.effect and problem.fix
    assert max(len(sentence.split()) for sentence in re.split("[;:] ", f"{problem.cause}; {problem.effect}")) <= 25
    return problem


GOOD = Finding("all well")
WARNED = Finding("so so", (Problem("warn", "why " * 40, "what", "do this"),))
FAILED = Finding("bad", (Problem("fail", "why", "what", "do " * 60),))
UNKNOWN = Finding("?", (Problem("unknown", "why", "what", "do this"),))
