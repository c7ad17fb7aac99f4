"""What a paper published, as data: figures with units, ratios, conclusions, and how its gaps are read."""

from __future__ import annotations

from typing import Any

import msgspec

from collbench.errors import RunReadError


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


class Paper(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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


class Published(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A published result on the host and in Docker; None where it is not given. `bound_percent`: |Diff%| is below."""

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


class SingleNodePaper(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A paper on single machines: host against one container."""

    reference: str
    title: str
    authors: tuple[str, ...]
    source: str
    setup: dict[str, str]
    reading: tuple[str, ...]
    unit: str
    experiments: tuple[Published, ...]


def decode(text: bytes, kind: type[Any] = Paper) -> Any:
    """A paper from its file; `kind` is `Paper` or `SingleNodePaper`.

    Raises:
        RunReadError: not such a file.
    """
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError as error:
        raise RunReadError(f"the paper's figures cannot be read: {error}") from error
