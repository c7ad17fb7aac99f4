"""What matters of what Slurm's programs print: the cause, not what follows from it."""

from __future__ import annotations

import re
from collections.abc import Iterable

#: Lines that only follow from others: advice to read the help, and how srun ends the tasks that are left. A hint on
#: hardware threads is kept without task/affinity, but for the binding of a task, which ranks do themselves.
_FOLLOWS = re.compile(
    r"^\s*$|^Try [\"'`]|_step_signal: Terminating|Force Terminated|Job step aborted|Exited with exit code"
    r"|\*\*\* (STEP|JOB) |: tasks? [\d,-]+: Terminated|lacks support for cpu binding"
)

#: Tasks that were killed: often because of another, sometimes all that is known.
_KILLED = re.compile(r": tasks? [\d,-]+: Killed")

#: A task whose program could not be started, as srun says it, and how the shell of a task (named so) says why.
_NOT_STARTED = re.compile(r"srun: error: (\S+: tasks? [\d,-]+: Exited with exit code 12[67])\b")
_OF_SHELL = re.compile(r"task: (?:(?:line )?\d+: )?(.+)")

_ERROR = re.compile(r"^\w+: (?:error|fatal): ")
_PROGRAM = re.compile(r"^\w+: (?:(?:error|fatal): )?")

#: Most lines that are quoted in a message.
_MOST = 3


def telling(lines: Iterable[str]) -> tuple[str, ...]:
    """Lines that do not merely follow from others."""
    left = tuple(line for line in lines if not _FOLLOWS.search(line))
    return tuple(line for line in left if not _KILLED.search(line)) or left


def first_cause(text: str) -> str:
    """Why a program of Slurm failed: its first errors; without any, its first lines."""
    lines = telling(text.splitlines())
    errors = [line for line in lines if _ERROR.match(line)] or lines
    return "; ".join(_PROGRAM.sub("", line) for line in errors[:_MOST])


def last_lines(text: str) -> str:
    """The end of a log."""
    return "; ".join(telling(text.splitlines())[-_MOST:])


def of_srun(lines: Iterable[str]) -> str:
    """What srun says of a step, in a log that the ranks print to as well: its first error, or its first words."""
    lines = tuple(lines)
    if cause := not_started(lines):
        return cause
    said = telling(line for line in lines if line.startswith("srun: "))
    first = next((line for line in said if _ERROR.match(line)), next(iter(said), ""))
    return first.removeprefix("srun: ")


def not_started(lines: Iterable[str]) -> str:
    """Node and cause where a program is not there, or cannot be executed; empty: every task has started its own."""
    lines = tuple(lines)
    where = next((match[1] for match in map(_NOT_STARTED.match, lines) if match), "")
    why = next((f" ({match[1]})" for match in map(_OF_SHELL.fullmatch, lines) if match), "")
    return f"{where}{why}" if where else ""
