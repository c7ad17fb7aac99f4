"""What a paper published, as data: figures with units, conclusions as tests of cells, and how its gaps are read."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any, Literal

import msgspec

from collbench.errors import RunReadError

#: The least and the largest Diff% (%); None: no bound.
Bounds = tuple[float | None, float | None]
Scalar = int | str | None
Needs = Literal["all", "most", "some"]

#: A name in `Part.grid` that begins so is an axis of the side that `than` selects.
THAN = "than."


class _Data(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What stands in a paper's file."""


class Selector(_Data, frozen=True, kw_only=True):
    """Cells of a run: those of a workload with these values on their axes.

    Of several values a cell has one; a text may be a pattern, such as `gru_*`. `shown` is the quantity that the paper
    prints, and so that of its Diff%. `figures` of the check are shown beside a cell.
    """

    workload: str
    values: dict[str, Scalar | tuple[Scalar, ...]] = {}
    shown: Literal["time", "rate"] = "time"
    figures: tuple[str, ...] = ()

    def takes(self, cell: Any) -> bool:
        """Of a case, or of what has the axes of one and more."""
        return matches(cell["workload"], self.workload) and all(
            any(matches(cell[name], one) for one in (value if isinstance(value, tuple) else (value,)))
            for name, value in self.values.items()
        )


def matches(value: Any, wanted: Scalar) -> bool:
    """Whether a value is the one that is wanted; of texts, fits its pattern."""
    texts = isinstance(value, str) and isinstance(wanted, str)
    return fnmatchcase(str(value), str(wanted)) if texts else bool(value == wanted)


class Part(_Data, frozen=True, kw_only=True):
    """A statement on some cells of a paper: exactly one of `diff_percent`, `more_than` and `than` is the test.

    `grid` spans the paper's cells: by axis the values, or how many there are where any will do. What a run has beside
    the grid is no evidence. `needs`: all of these cells must pass, most of them, or some.

    Host and container are compared `by` policy, or containers near and far from their memory by affinity: their Diff%
    lies between the bounds of `diff_percent`, or further from 0 than that of each of `more_than`.

    Cells `of` are faster than those of `than` that are equal on the axes `at`, or are not if not `faster`. With
    `growth` the time of the first grows less than that of the others between these two numbers of workers. Cells with
    more ranks than cores are no evidence if not `crowded`. `lacking` says why no run can show this part.
    """

    of: Selector
    text: str = ""
    grid: dict[str, tuple[Scalar, ...] | int] = {}
    needs: Needs = "all"
    by: Literal["policy", "affinity"] = "policy"
    diff_percent: Bounds | None = None
    more_than: tuple[Selector, ...] = ()
    than: Selector | None = None
    at: tuple[str, ...] = ()
    faster: bool = True
    growth: tuple[int, int] | None = None
    crowded: bool = True
    lacking: str = ""

    def __post_init__(self) -> None:
        if sum((self.diff_percent is not None, bool(self.more_than), self.than is not None)) != 1:
            raise ValueError(f"{self.of.workload}: exactly one of diff_percent, more_than, than")
        if self.growth is not None and not (self.faster and self.than is not None and "workers" in self.at):
            raise ValueError(f"{self.of.workload}: growth needs than, and workers among the axes at")

    @property
    def total(self) -> int:
        """How many cells the paper has."""
        return math.prod(size if isinstance(size, int) else len(size) for size in self.grid.values())

    def cell(self, of: Any, than: Any = None) -> tuple[Scalar, ...] | None:
        """The values on the axes of the grid: which cell of the paper this is. None: none of them."""
        found: list[Scalar] = []
        for name, values in self.grid.items():
            value = than[name.removeprefix(THAN)] if than is not None and name.startswith(THAN) else of[name]
            if isinstance(values, int):
                found.append(value)
                continue
            fitting = [one for one in values if matches(value, one)]
            if not fitting:
                return None
            found.append(fitting[0])
        return tuple(found)

    @property
    def selectors(self) -> tuple[Selector, ...]:
        return (self.of, *self.more_than, *((self.than,) if self.than else ()))


class Conclusion(_Data, frozen=True, kw_only=True):
    """A sentence of a paper, in its words, which holds if all its parts do.

    Of a `chain`, such as "slower, because launches are", no verdict is possible without one of its parts. Cells
    `beside` are shown and decide nothing. Without parts `lacking` says why no run can show it. `plans` are the launch
    plans that measure it.
    """

    number: int
    text: str
    plans: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()
    chain: bool = False
    beside: tuple[Selector, ...] = ()
    lacking: str = ""

    def __post_init__(self) -> None:
        if bool(self.parts) == bool(self.lacking):
            raise ValueError(f"conclusion {self.number}: either parts, or why it has none")


class Published(_Data, frozen=True, kw_only=True):
    """A published result on the host and in Docker; None where it is not given.

    `bound_percent` is the most that |Diff%| may be. `cell` says what of a run stands beside it; None where no benchmark
    measures it.
    """

    experiment: str
    machine: str
    quantity: str
    unit: str | None
    docker: float | None
    host: float | None
    diff_percent: float | None
    bound_percent: float | None = None
    best: float | None = None
    deviation: float | None = None
    note: str = ""
    cell: Selector | None = None

    @property
    def diff(self) -> float | None:
        """Diff% as it is published, else of the published results; None where there is neither."""
        if self.diff_percent is not None or self.host is None or self.docker is None:
            return self.diff_percent
        return (self.host - self.docker) / self.host * 100


class PublishedTime(_Data, frozen=True, kw_only=True):
    """A published time (s) of a collective or a training; `cell` says of which library, place and number of workers."""

    seconds: float
    cell: Selector
    machine: str = ""
    note: str = ""


class Ratio(_Data, frozen=True, kw_only=True):
    """A published ratio of times, or of two published times of one machine: `of` over `over`."""

    text: str
    ratio: float
    of: Selector
    over: Selector
    reading: str = ""


class Paper(_Data, frozen=True, kw_only=True):
    """A paper. `reading` are assumptions on what it does not say."""

    reference: str
    title: str
    authors: tuple[str, ...]
    source: str
    setup: dict[str, str]
    reading: tuple[str, ...]
    conclusions: tuple[Conclusion, ...]
    figures: tuple[PublishedTime, ...] = ()
    ratios: tuple[Ratio, ...] = ()
    experiments: tuple[Published, ...] = ()

    @property
    def parts(self) -> Iterator[Part]:
        return (part for one in self.conclusions for part in one.parts)

    @property
    def programs(self) -> tuple[str, ...]:
        """The workloads that are compared between host and container."""
        selectors = [one for part in self.parts if part.than is None for one in part.selectors]
        selectors += [one for conclusion in self.conclusions for one in conclusion.beside]
        selectors += [figure.cell for figure in self.experiments if figure.cell is not None]
        return tuple(dict.fromkeys(selector.workload for selector in selectors))


def decode(text: bytes) -> Paper:
    """A paper from its file.

    Raises:
        RunReadError: not such a file.
    """
    try:
        return msgspec.json.decode(text, type=Paper)
    except msgspec.DecodeError as error:
        raise RunReadError(f"the paper's figures cannot be read: {error}") from error
