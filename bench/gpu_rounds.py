"""Launches of several programs in turn, and what is compared of them: medians of launches, with their spread."""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from gpu_installation import GpuInstallation, describe_gpus
from gpu_libraries import Libraries
from installation import LaunchFailed
from machine import describe

#: A program that never worked is not tried again after so many failures: torch may be missing.
HOPELESS = 2


@dataclass(frozen=True)
class Median:
    """What one launch of a program says of a size: the median in seconds of `what` was timed."""

    kind: str
    what: str
    bytes: int
    seconds: float
    round: int = 0


@dataclass(frozen=True)
class Failed:
    """What a launch was to measure and did not: the others of its numbers count."""

    what: str
    reason: str


@dataclass(frozen=True)
class Rounds:
    """All launches, and the reasons of those that failed."""

    found: list[Median]
    failures: list[str]

    def seconds(self, kind: str, what: str, size: int) -> dict[int, float]:
        """By round."""
        asked = (kind, what, size)
        return {one.round: one.seconds for one in self.found if (one.kind, one.what, one.bytes) == asked}

    def ratio(self, of: tuple[str, str], over: tuple[str, str], size: int) -> Ratio | None:
        """Of two (kind, what) at a size; None where one was never measured."""
        first, second = self.seconds(*of, size), self.seconds(*over, size)
        if not first or not second:
            return None
        both = [first[number] / second[number] for number in sorted(first.keys() & second.keys())]
        return Ratio(median(first.values()) / median(second.values()), both)

    def require(self) -> None:
        """End the program with an error where nothing at all was measured."""
        if not self.found:
            raise SystemExit("nothing was measured")

    def data(self, asked: argparse.Namespace, **more: Any) -> dict[str, Any]:
        """What is kept as JSON."""
        launches = [asdict(one) for one in self.found]
        where = {"seed": asked.seed, "machine": describe(), "gpus": describe_gpus()}
        return where | more | {"failed": self.failures, "launches": launches}


@dataclass(frozen=True)
class Ratio:
    """Medians of launches over each other, and the same of each round, whose launches were neighbours in time."""

    value: float
    rounds: list[float]

    @property
    def range(self) -> str:
        """Smallest and largest of the rounds."""
        return f"{min(self.rounds):.3f} .. {max(self.rounds):.3f}" if self.rounds else "-"


Launch = Callable[[], Sequence[Median | Failed]]


@dataclass(frozen=True)
class Group:
    """Programs that are started as neighbours, in the first and then every `every`-th round."""

    launches: Mapping[str, Launch]
    every: int = 1


def interleaved(
    groups: Sequence[Group], rounds: int, seed: int, limit: float, keep: Callable[[Rounds], None]
) -> Rounds:
    """A round starts the programs of its groups once, in random order. Nothing new begins after `limit` seconds.

    After every launch `keep` gets what there is: whoever ends this program finds it on disk.
    """
    order, until = random.Random(seed), time.monotonic() + limit  # noqa: S311 - an order, not a secret
    outcome = Rounds([], [])
    failed: dict[str, int] = {}
    worked: set[str] = set()
    for number in range(rounds):
        for group in (group for group in groups if number % group.every == 0):
            for name in order.sample(list(group.launches), len(group.launches)):
                if time.monotonic() > until:
                    return outcome
                if name not in worked and failed.get(name, 0) >= HOPELESS:
                    continue
                if _once(group.launches[name], name, number, outcome):
                    worked.add(name)
                else:
                    failed[name] = failed.get(name, 0) + 1
                keep(outcome)
        print(f"round {number + 1} of {rounds}, {len(outcome.failures)} launches failed", flush=True)
    return outcome


def _once(launch: Launch, name: str, number: int, outcome: Rounds) -> bool:
    """Whether the launch measured anything. One that goes wrong in any way at all must not take the others along."""
    try:
        told = launch()
    except Exception as error:
        reason = str(error) if isinstance(error, LaunchFailed) else f"{type(error).__name__}: {error}"
        told = (Failed(name, reason),)
    found = [replace(one, round=number) for one in told if isinstance(one, Median)]
    outcome.found.extend(found)
    outcome.failures.extend(f"round {number}, {one.what}: {one.reason}" for one in told if isinstance(one, Failed))
    return bool(found)


def launch(
    here: GpuInstallation,
    libraries: Libraries | None,
    plan: Path,
    limit: float,
    take: Callable[[dict[str, Any]], Sequence[Median | Failed]],
) -> list[Median | Failed]:
    """One launch of collbench: what `take` makes of each record that is ok, and why the others are not.

    Raises:
        LaunchFailed: the launch failed as a whole, or measured another NCCL than these libraries.
    """
    document = here.document(limit, "run", plan)
    if libraries is not None:
        libraries.check(document["manifest"])
    found: list[Median | Failed] = []
    for record in document["records"]:
        case = record["case"]
        if record["status"] == "ok":
            found.extend(take(record))
        else:
            size = case["what"].get("size", 0)
            found.append(Failed(f"{case['how']['backend']} {case['workload']} {size} B", record["reason"]))
    return found


def shown(values: Mapping[int, float], unit: float, digits: int) -> str:
    """`5.12 (5.01 .. 5.40)`: median, smallest and largest launch, in a unit of so many seconds."""
    if not values:
        return "-"
    low, middle, high = (f"{one / unit:.{digits}f}" for one in (min(values.values()), median(values.values()),
                                                                 max(values.values())))  # fmt: skip
    return f"{middle} ({low} .. {high})"


def failures_text(outcome: Rounds) -> str:
    """What failed, at the end of a page; empty where nothing did."""
    if not outcome.failures:
        return ""
    return "\nLaunches that failed and are left out:\n\n" + "".join(f"- {one}\n" for one in outcome.failures)
