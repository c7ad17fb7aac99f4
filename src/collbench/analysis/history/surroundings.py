"""What changed in the environment of runs: library, kernel, image and whatever else manifests say, run by run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from collbench.analysis.environment import Side
from collbench.analysis.history.reading import MACHINE, TimedRun

#: Facts that say nothing by themselves: a job has another number each time.
_UNTOLD = frozenset({*MACHINE, "allocation"})

#: What explains a change most often, and what least often.
_FIRST = ("library", "library-file", "gpu-driver", "kernel", "image-id", "collbench")
_LAST = ("host", "boot")

#: Facts whose values say nothing to a person.
_ANOTHER = {"boot": "another one, the machine was restarted"}

#: A fact that differs in more than this share of the runs, and this often, explains no change.
_RESTLESS = (1 / 3, 3)


@dataclass(frozen=True)
class Renewal:
    """The run of that number is the first on this side in which these facts are others: name, and `old -> new`."""

    run: int
    machine: str
    side: Side
    facts: dict[str, str]


@dataclass(frozen=True)
class Surroundings:
    """All renewals in time; `restless` are facts that differ so often that they are left out."""

    renewals: tuple[Renewal, ...]
    restless: tuple[str, ...]


def surroundings(runs: Sequence[TimedRun]) -> Surroundings:
    """Each run against the one before it on the same side of the same machine."""
    before: dict[tuple[str, Side], dict[str, str]] = {}
    found: list[Renewal] = []
    steps = 0
    for number, run in enumerate(runs):
        for side, facts in run.facts.items():
            known = before.get((run.machine, side))
            before[run.machine, side] = facts
            if known is None:
                continue
            steps += 1
            if apart := _apart(known, facts):
                found.append(Renewal(number, run.machine, side, apart))
    counts = Counter(name for renewal in found for name in renewal.facts)
    share, times = _RESTLESS
    restless = {name for name, count in counts.items() if count > times and count > share * steps}
    kept = [
        Renewal(
            one.run, one.machine, one.side, {name: told for name, told in one.facts.items() if name not in restless}
        )
        for one in found
    ]
    return Surroundings(tuple(one for one in kept if one.facts), tuple(sorted(restless)))


def told(facts: dict[str, str]) -> str:
    """`library Open MPI 5.0.8 -> 5.0.9; kernel 6.1 -> 6.6`."""
    return "; ".join(f"{name} {text}" for name, text in facts.items())


def _apart(old: dict[str, str], new: dict[str, str]) -> dict[str, str]:
    """The facts that differ, each with what differs of it; the file of a library only where its version is the same."""
    known = dict.fromkeys((*_FIRST, *(name for name in (*old, *new) if name not in _LAST), *_LAST))
    names = [name for name in known if name not in _UNTOLD and old.get(name, "") != new.get(name, "")]
    found = {name: _ANOTHER.get(name) or _arrow(old.get(name, ""), new.get(name, "")) for name in names}
    if "library" in found:
        found.pop("library-file", None)
    return found


def _arrow(old: str, new: str) -> str:
    before, after = old.split(", "), new.split(", ")
    gone, come = ([part for part in own if part not in other] for own, other in ((before, after), (after, before)))
    if len(gone) == len(come) == 1:
        return f"{gone[0] or 'none'} -> {_without_start(gone[0], come[0]) or 'none'}"
    return f"{', '.join(gone) or 'none'} -> {', '.join(come) or 'none'}"


def _without_start(old: str, new: str) -> str:
    """`5.0.9` of `Open MPI 5.0.9`, where the old one was `Open MPI 5.0.8`: the new one without its first words."""
    words, others = new.split(" "), old.split(" ")
    same = next((index for index, (a, b) in enumerate(zip(words, others, strict=False)) if a != b), 0)
    return " ".join(words[same:])
