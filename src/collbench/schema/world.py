"""What a launcher tells the ranks of a world: their places, its shape, their turns; and what they report.

Orders and reports are a line of JSON each. The lines go through pipes in a folder of the world, or through TCP
connections to an `Address` that is there. Between a report and the next order every rank of a world sleeps in the
kernel, outside of its library.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from collbench.errors import RequestError, WorldMismatch
from collbench.schema.case import Alignment, Case
from collbench.schema.files import Amount, Count, refuse_irregular
from collbench.schema.record import Time

#: Set by a rank for the programs that it starts: the GPU that was planned for it (its UUID; empty: none).
GPU = "COLLBENCH_GPU"


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Container (None: the host), cores (`0-3,8`) and GPU (its UUID; None: no GPU) of one rank."""

    container: str | None
    cores: str
    gpu: str | None = None


def read_places(file: Path) -> tuple[Place, ...]:
    """The planned place of each rank, by rank. The file is JSON, one `Place` for each rank.

    Raises RequestError: it cannot be read, or does not hold what a launcher writes.
    """
    try:
        refuse_irregular(file)
        return msgspec.json.decode(file.read_bytes(), type=tuple[Place, ...])
    except (OSError, msgspec.DecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise RequestError(f"placement {file}: {why}. collbench launch writes such files.") from error


#: Set where a resource manager chooses machines and cores, and no file says which: JSON, one `Shape`, or a list of them
#: where hosts differ: in the order of ranks, each with hosts of its own.
SHAPE = "COLLBENCH_SHAPE"

#: Which ranks share a container: none is in one, those of a host do, every rank has its own, or so many share one.
Boxes = Literal["none", "host", "rank"] | int

#: The machine that a rank is on, where its hostname is that of a pod.
HOST = "COLLBENCH_HOST"


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """A world whose machines and cores are not known beforehand: `each` ranks with `cores` on each of `hosts`.

    `crowded`: ranks may share cores.
    """

    hosts: int
    each: int
    cores: int
    boxes: Boxes = "none"
    crowded: bool = False

    @property
    def ranks(self) -> int:
        return self.hosts * self.each


def text_of(shapes: tuple[Shape, ...]) -> str:
    """What `shapes` reads."""
    return msgspec.json.encode(shapes if len(shapes) > 1 else shapes[0]).decode()


def shapes(environ: Mapping[str, str] = os.environ) -> tuple[Shape, ...]:
    """The planned shape, in the order of ranks one for all hosts that are alike; empty where no launcher planned one.

    Raises WorldMismatch: the variable does not hold what a launcher writes.
    """
    if not (text := environ.get(SHAPE)):
        return ()
    try:
        decoded = msgspec.json.decode(text, type=Shape | tuple[Shape, ...])
    except msgspec.DecodeError as error:
        raise WorldMismatch(f"{SHAPE}: {error}. collbench launch sets this variable; unset it.") from error
    return (decoded,) if isinstance(decoded, Shape) else decoded


#: A time that can be compared (s).
Duration = Annotated[float, msgspec.Meta(gt=0, le=1e10)]

#: Names of the pipes in the folder of a world: of a rank's orders, and of the reports of rank 0.
ORDERS, REPORTS = "orders-{rank}", "reports"

#: In the folder of a world on other machines: the file with the driver's address, and the one that a rank makes which
#: does not reach it.
ADDRESS, UNREACHABLE = "address", "unreachable"

#: The variable that names this folder to the processes of a program whose ranks take turns.
VARIABLE = "COLLBENCH_TURNS"

#: Longest line (bytes): an order is written at once (PIPE_BUF, pipe(7)); a report names what all ranks hold.
LONGEST_ORDER, LONGEST_REPORT = 4096, 1 << 20


class Address(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a driver listens: names and numbers of its machine. A rank sends a line with the `token` and its number."""

    hosts: tuple[str, ...]
    port: int
    token: str


#: Share of the samples of a slice that is left out at either end of its mean. A median of few steps of the clock can
#: only be one of them, 4.5 % apart at 8 B.
TRIMMED = 0.1


class SliceRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long the slices of a duet are, fixed before its first launch.

    A case has so many `rounds` of one slice of each world. It has fewer, but at least the `fewest`, if these take more
    than twice the time of all, or if the plan fixes its samples and slices would have fewer than two. A slice lasts
    `seconds` and has at least `operations`, unless these would take `longest` (s). Before it `discard` operations, and
    `discard_seconds`, are not counted. It is valid if the ranks that slept beside it used at most the share
    `asleep_most` of a processor each, and `asleep` more than the ranks of the round's quietest world. The time to wake
    up, `waking` (s), does not count. A duet is given up where clearly more than the share `invalid` of its sleeps were
    none.
    """

    rounds: int = 20
    fewest: int = 6
    seconds: float = 0.025
    operations: int = 10
    longest: float = 2.0
    discard: int = 20
    discard_seconds: float = 0.005
    asleep: float = 0.01
    asleep_most: float = 0.03
    waking: float = 0.0003
    invalid: float = 0.1

    @property
    def usual(self) -> float:
        """How long the slices of a world take in all (s), where operations are short."""
        return self.rounds * (self.seconds + self.discard_seconds)

    def rounds_of(self, samples: int) -> int:
        """Rounds of a case whose plan fixes so many samples; none of none."""
        return min(max(self.fewest, min(samples // 2, self.rounds)), samples)

    def lasts(self, operation: float) -> float:
        """How long the slices of a world take in all (s), where an operation takes so long (s)."""
        measured = max(self.seconds, min(self.operations * operation, self.longest))
        most = max(self.seconds, self.discard_seconds) + operation
        discarded = min(max(self.discard * operation, self.discard_seconds), most)
        each = measured + discarded
        return max(min(self.rounds * each, 2 * self.usual), self.fewest * each)


class Order(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the ranks do next: `begin` the case before them, a `slice` of it, or all of it `alone`; `end` it.

    Of a slice: the alignment with its slack (ns), whether the case begins again (`anew`), how long it lasts (s), and of
    a plan that fixes samples how many `operations` it has, else 0; and how many worlds sleep meanwhile (`sleepers`).
    """

    act: Literal["begin", "slice", "alone", "end"]
    align: Alignment = "none"
    slack: int = 0
    anew: bool = False
    seconds: float = 0.0
    operations: int = 0
    sleepers: int = 0
    rule: SliceRule = SliceRule()

    @property
    def sleepers_share(self) -> float:
        """The share of a processor that ranks of the sleepers may use on it."""
        return self.sleepers * self.rule.asleep_most


class Report(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a world stands before it sleeps again.

    `stands`: before `case` (None: all are measured). `ready` for slices of it, with its alignment, slack (ns) and the
    shortest slice that its quota of processor time allows (s), and the `samples` that it wants in all (0: as many as
    fit).
    `slice`: what it measured: `n` samples, `late` of them, the time of an operation in `seconds` (None: all were late)
    and in each half. A program has a time for each of its `measures` instead.
    `asleep`: processor seconds of all other threads of all ranks during the sleep before, which lasted `slept` seconds.
    In the first report `holds` names what the ranks share with other processes, and `cores` says on which processors of
    which machines they are.
    """

    at: Literal["stands", "ready", "slice"]
    case: Case | None = None
    align: Alignment = "none"
    slack: Count = 0
    shortest: Amount = 0.0
    samples: Count = 0
    n: Count = 0
    late: Count = 0
    seconds: Duration | None = None
    halves: tuple[Time, Time] | None = None
    measures: dict[str, Duration] = {}
    asleep: Amount = 0.0
    slept: Amount = 0.0
    holds: tuple[str, ...] = ()
    cores: tuple[str, ...] = ()
