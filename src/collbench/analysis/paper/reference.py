"""What a paper published, as data: figures with units, ratios, conclusions, and how its gaps are read."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Literal

import msgspec

from collbench.errors import RunReadError
from collbench.schema.axes import Value
from collbench.schema.case import Case

#: The least and the largest Diff% (%); None: no bound.
Bounds = tuple[float | None, float | None]


class PublishedFigure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A published time: `gpus` are workers, a server is not among them."""

    operation: str
    policy: str
    library: str
    gpus: int
    seconds: float
    note: str = ""


class PublishedPlace(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A side of a published ratio. `NCCL (MPICH)` is NCCL with the host's legs over MPICH."""

    policy: str
    library: str
    gpus: int


class Ratio(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A published ratio of times: `of` over `over`."""

    operation: str
    text: str
    ratio: float
    of: PublishedPlace
    over: PublishedPlace
    reading: str = ""


class Conclusion(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sentence of the paper that a reproduction confirms or refutes."""

    number: int
    text: str


class CollectivesPaper(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="about", tag="collectives"
):
    """A paper on collectives. Times in seconds for `bytes` bytes; `reading` are assumptions on what it does not say."""

    reference: str
    title: str
    authors: tuple[str, ...]
    source: str
    setup: dict[str, str]
    reading: tuple[str, ...]
    unit: str
    bytes: int
    figures: tuple[PublishedFigure, ...]
    ratios: tuple[Ratio, ...]
    conclusions: tuple[Conclusion, ...]


class Selector(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Cells of a run that stand for one experiment of a paper: those of a program with these values.

    Of several values a cell has one; a text may be a pattern, as of files: `gru_*`. `shown` is the quantity that the
    paper prints, and so that of its Diff%. `needs`: all of these cells must show what is said of them, or most. What is
    compared `by` policy is host and container, by affinity containers near and far from their memory or GPU.
    `diff_percent` are bounds of its own. `figures` of the check are shown beside.
    """

    workload: str
    shown: Literal["time", "rate"]
    values: dict[str, int | str | tuple[int | str, ...]] = {}
    needs: Literal["all", "most"] = "all"
    by: Literal["policy", "affinity"] = "policy"
    diff_percent: Bounds | None = None
    figures: tuple[str, ...] = ()

    def takes(self, case: Case) -> bool:
        return case.workload == self.workload and all(
            any(_is(case[name], one) for one in (value if isinstance(value, tuple) else (value,)))
            for name, value in self.values.items()
        )

    @property
    def text(self) -> str:
        """`dd bs 65536 count 16`; without what may have several values."""
        single = (f"{name} {value}" for name, value in self.values.items() if not isinstance(value, tuple))
        far = ("near and far",) if self.by == "affinity" else ()
        return " ".join((self.workload, *single, *far))


def _is(value: Value, wanted: int | str) -> bool:
    texts = isinstance(value, str) and isinstance(wanted, str)
    return fnmatchcase(str(value), str(wanted)) if texts else value == wanted


class Published(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A published result on the host and in Docker; None where it is not given. `bound_percent`: |Diff%| is below.

    `cell` says what of a run stands beside it; None where no benchmark measures it.
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


class Claim(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A way to place a training, `faster` than another, in `cells`: in some of those that were measured, all, or none.

    Each cell is compared with those of the other way that are equal in the axes `at`, of which `workers` are ranks
    without servers.
    """

    text: str
    faster: Selector
    than: Selector
    cells: Literal["some", "all", "none"]
    at: tuple[Literal["policy", "servers", "shard", "workers"], ...] = ()


class PublishedTraining(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A published time of a training with parameter servers (s); `cell` says where it was placed."""

    machine: str
    workers: int
    seconds: float
    cell: Selector


class ProgramConclusion(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sentence of a paper on host and container, and what a run must show for it.

    The Diff% of every one of `cells` lies between the two bounds of `diff_percent`, of which None is none; or it is
    further from 0 than that of each of `more_than`. `needs`: all cells must show it, or most of them; of a `chain` all,
    and without one of its links it cannot be told. Cells `beside` are shown and decide nothing. A conclusion on
    trainings with parameter servers consists of `claims`. Without any `lacking` says why no run can show it.
    """

    number: int
    text: str
    cells: tuple[Selector, ...] = ()
    diff_percent: Bounds | None = None
    more_than: tuple[Selector, ...] = ()
    needs: Literal["all", "most", "chain"] = "all"
    beside: tuple[Selector, ...] = ()
    claims: tuple[Claim, ...] = ()
    lacking: str = ""

    def __post_init__(self) -> None:
        if sum((self.diff_percent is not None, bool(self.more_than), bool(self.claims), bool(self.lacking))) != 1:
            raise ValueError(f"conclusion {self.number}: one of diff_percent, more_than, claims, lacking")
        if bool(self.cells) == bool(self.claims or self.lacking):
            raise ValueError(f"conclusion {self.number}: either cells, or claims, or why it has none")

    @property
    def selectors(self) -> tuple[Selector, ...]:
        return (*self.cells, *self.more_than, *self.beside)


class ProgramsPaper(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="about", tag="programs"
):
    """A paper on single machines: host against containers. `reading` are assumptions on what it does not say."""

    reference: str
    title: str
    authors: tuple[str, ...]
    source: str
    setup: dict[str, str]
    reading: tuple[str, ...]
    unit: str
    experiments: tuple[Published, ...]
    conclusions: tuple[ProgramConclusion, ...]
    training: tuple[PublishedTraining, ...] = ()

    @property
    def workloads(self) -> tuple[str, ...]:
        """The programs that its conclusions and figures are about, of those that collbench measures."""
        selectors = [one for conclusion in self.conclusions for one in conclusion.selectors]
        selectors += [figure.cell for figure in self.experiments if figure.cell is not None]
        return tuple(dict.fromkeys(selector.workload for selector in selectors))


Paper = CollectivesPaper | ProgramsPaper


def decode(text: bytes) -> Paper:
    """A paper from its file.

    Raises:
        RunReadError: not such a file.
    """
    try:
        paper: Paper = msgspec.json.decode(text, type=Paper)
    except msgspec.DecodeError as error:
        raise RunReadError(f"the paper's figures cannot be read: {error}") from error
    return paper
