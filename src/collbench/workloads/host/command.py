"""command: a program of your own, timed as a whole or by a number that it prints.

A case has its words, as a shell would quote them. They are started in a folder with copies of the `files` that they
need, which lie at the same paths in containers. An execution is a sample.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collbench.schema.case import Case
from collbench.schema.command import MARK, use_of
from collbench.schema.manifest import Library
from collbench.schema.record import Work
from collbench.units import SECONDS
from collbench.workloads.program import Measure, Program, SideCommand, Unreadable, parameter

#: Units of a printed time, in seconds; `m` may be metres.
TIMES = {unit: length for unit, length in SECONDS.items() if unit != "m"}
_PREFIXES = ("", "k", "K", "M", "G", "T", "m", "u", "n", "Ki", "Mi", "Gi")

#: A sample of a score is the time for a million of its units, as if it were a rate: times are whole nanoseconds.
SCORED_UNITS = 1e6
#: Of a number that is better lower, the seconds that stand for 1: it may be as large as 1e12, and as small as 1e-6.
SECONDS_PER_UNIT = 1e-3

#: A number as programs print it; the word behind it may be its unit.
NUMBER = r"[-+]?(?:\d{1,3}(?:[,_]\d{3})+|\d+)?\.?\d*(?:[eE][-+]?\d+)?"
#: What follows a part of a number, and what stands before one; three digits, which may follow a comma in a number.
_GOES_ON = re.compile(r"\.?\d|[,_]\d{3}(?!\d)|[eE][-+]?\d")
_BEGAN, _GROUP = re.compile(r"\d(\.|[eE][-+]?)?$"), re.compile(r"\d{3}(?!\d)")
_WORD = re.compile(r"[ \t]*([A-Za-zµμ%][\w/%]*)")

#: Words for units of time that are none of `TIMES`.
_OTHER_TIMES = re.compile(r"[mnuµμ]?s(ec(ond)?s?)?|min(ute)?s?|h(ou)?rs?", re.IGNORECASE)

#: The shortest time (s) that whole nanoseconds keep to 1 %.
SHORTEST = 50e-9

SEARCH = 5.0  #: Longest search for a metric in an output (s).

_LONGEST = 80  # letters of its output that a message quotes


def refuses(case: Case) -> str | None:
    """A metric that no execution can give."""
    metric, unit, better = case["metric"], case["unit"], case["better"]
    if not shlex.split(case["command"]):
        return "name a command"
    if better not in ("", "lower", "higher"):
        return f"better is lower or higher, and not {better}"
    if not metric:
        return "unit and better are those of a metric, and it has none" if unit or better else None
    try:
        groups = re.compile(metric).groups
    except re.error as error:
        return f"metric is no regular expression ({error})"
    if groups != 1:
        return f"metric has {groups} groups; put parentheses around the number, and nothing else"
    if not unit:
        return f"metric needs a unit: a time ({', '.join(TIMES)}), a rate such as MB/s, or a word of yours"
    if not better and unit not in TIMES and _OTHER_TIMES.fullmatch(unit):
        return f"unit {unit} is none of the times {', '.join(TIMES)}; write one of them, or say which is better"
    return f"better is higher, and its unit {unit} is a time" if better == "higher" and unit in TIMES else None


@dataclass(frozen=True)
class _Result(Measure):
    """A time, or what the program printed, in the unit of the case."""

    def work(self, case: Case) -> Work:
        unit = case["unit"]
        if not case["metric"] or unit in TIMES:
            return Work(amount=1.0, unit="executions", shown="time")
        if case["better"] == "lower":
            return Work(amount=1 / SECONDS_PER_UNIT, unit=unit, shown="number")
        return Work(amount=SCORED_UNITS, unit=unit, shown="score")


def seconds(case: Case, output: str) -> float:
    """The time that it printed; of a score that of `SCORED_UNITS`. Unreadable: no number, or one in another unit."""
    metric, unit = case["metric"], case["unit"]
    with _limited(Unreadable(f"metric {metric!r} takes longer than {SEARCH:.0f} s to find in its output; simplify it")):
        matches = list(re.finditer(metric, output, re.MULTILINE))
    if not matches:
        last = next((line.strip() for line in reversed(output.splitlines()) if line.strip()), "nothing was printed")
        raise Unreadable(f"metric {metric!r} is not in its output (last line: {last[:_LONGEST]})")
    number, (start, end) = matches[-1][1], matches[-1].span(1)
    if number is None or re.fullmatch(NUMBER, number.strip()) is None or re.search(r"\d", number) is None:
        raise Unreadable(f"metric {metric!r} found {str(number)[:_LONGEST]!r}, which is not a number")
    before = output[max(start - _LONGEST, 0) : start]
    if _GOES_ON.match(output, end) or _BEGAN.search(before) or (_GROUP.match(number) and before[-1:] in (",", "_")):
        whole = re.split(r"\s", before)[-1] + output[start : end + _LONGEST].split()[0]
        raise Unreadable(f"metric {metric!r} found {number} of {whole}; its group must take all of it, as (\\S+) does")
    behind = _WORD.match(output, end)
    if behind is not None and behind[1] != unit and _is_other_unit(behind[1], unit):
        raise Unreadable(f"printed {number} {behind[1]}, and the unit of its metric is {unit}")
    value = float(number.replace(",", "").replace("_", ""))
    if not value > 0.0:
        raise Unreadable(f"metric {metric!r} is {number}; a time or a rate is above 0")
    if unit in TIMES or case["better"] == "lower":
        kept = value * TIMES.get(unit, SECONDS_PER_UNIT)
    else:
        kept = SCORED_UNITS / value
    if kept < SHORTEST:
        way = "give it the unit ns/op, say, with better lower" if unit in TIMES else "print it in another unit"
        raise Unreadable(f"printed {number} {unit}, of which a record cannot hold 1 %; {way}")
    return kept


@contextlib.contextmanager
def _limited(error: Exception) -> Iterator[None]:
    """Ends a search that nested repetitions make endless, by `error`. It holds the interpreter, but sees signals."""

    def expired(*_: object) -> None:
        raise error

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, expired)
    signal.setitimer(signal.ITIMER_REAL, SEARCH)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _is_other_unit(word: str, unit: str) -> bool:
    """Whether a word is a unit that a number of this unit may not be in: `GB/s` or `kB/s` for `MB/s`."""
    word = re.sub("[µμ]", "u", word)
    mine, others = ({text.removeprefix(prefix) for prefix in _PREFIXES} - {""} for text in (unit, word))
    return word != unit and (word in TIMES or bool(mine & others) or word.endswith(("B/s", "FLOP/s")))


def _files(case: Mapping[str, Any] | Case) -> list[str]:
    files = case["files"] if isinstance(case, Case) else case.get("files", "")
    return shlex.split(files or "")


def _copies(case: Case) -> Sequence[SideCommand]:
    """A folder with copies of the files alone: an execution changes no original, and the next one does not see it."""
    steps, files = ["chmod -R u+rwX .", "find . -mindepth 1 -delete"], _files(case)
    for path in files:
        if any(path.startswith(f"{other}/") for other in files):
            continue  # it is copied with its folder
        place = Path(path.partition(MARK)[2])
        steps.append(f"mkdir -p -- {shlex.quote(str(place.parent))}")
        steps.append(f"cp -RL -- {shlex.quote(path)} {shlex.quote(str(place))}")
    return (SideCommand(("sh", "-c", " && ".join(steps)), title="files"),)


def _check(case: Case) -> Sequence[SideCommand]:
    return (SideCommand(("sh", "-c", case["check"]), title=f"check {case['check']!r}"),) if case["check"] else ()


def _lacks(case: Case, folder: Path) -> str | None:
    lost = next((path for path in _files(case) if not Path(path).exists()), None)
    return None if lost is None else f"there is no {lost.replace(MARK, '/', 1)} here"


@dataclass(frozen=True)
class _Command(Program):
    """Each command is a use of its own: its program must be there, and be the same file on both sides."""

    def read(self, case: Case, output: str, wall: float) -> Mapping[str, Sequence[float]]:
        return {self.measures[0].name: [seconds(case, output) if case["metric"] else wall]}

    def use(self, case: Case) -> str:
        return use_of(case["command"], _files(case))

    def uses(self, benchmark: str | Mapping[str, Any]) -> tuple[str, ...]:
        command = "" if isinstance(benchmark, str) else str(benchmark.get("command", ""))
        return (use_of(command, [] if isinstance(benchmark, str) else _files(benchmark)),)

    def missing(self, choice: str = "") -> str | None:
        program, *files = shlex.split(choice) or ["sh"]
        found = _among(program, files) or shutil.which(program)
        way = " (to have it in an image: collbench image build tools --as NAME --build-arg PACKAGES=PACKAGE)"
        return None if found else f"{program} was not found{way}"

    def libraries(self, choice: str = "") -> tuple[Library, ...]:
        program, *files = shlex.split(choice) or ["sh"]
        paths = {Path(path).name: path.replace(MARK, "/", 1) for path in files if Path(path).is_file()}
        if not _among(program, files) and (path := shutil.which(program)) is not None:
            paths[Path(program).name] = path
        return tuple(Library(name=name, version="", path=path) for name, path in paths.items())


def _among(program: str, files: Sequence[str]) -> bool:
    """Whether a program is one of the files, or in one of the folders, that the command needs."""
    places = [Path(path.partition(MARK)[2]) for path in files]
    return "/" in program and any(place in (Path(program), *Path(program).parents) for place in places)


WORKLOAD = _Command(
    name="command", title="Command", summary="a command of yours: the time that it takes, or a number that it prints",
    measures=(_Result("result", lambda case: 1.0),), repeated=True, scratch=True, notes_stderr=True, own_threads=True,
    argv=lambda case, times: shlex.split(case["command"]), parse=lambda output: {}, verify=lambda case, output: 0,
    elapsed=lambda case, output: 0.0, refuses=refuses, lacks=_lacks, before=_copies, after=_check,
    axes=(
        parameter("command", "", "its words"),
        parameter("metric", "", "regular expression with one group: the number; none: the time of the process"),
        parameter("unit", "", "unit of the number: a time, a rate such as MB/s, or a word"),
        parameter("better", "", "lower or higher: times are lower, others higher"),
        parameter("files", "", "files that it needs", kind="how"),
        parameter("check", "", "shell command that must succeed after the last execution", kind="how"),
    ),
)  # fmt: skip
