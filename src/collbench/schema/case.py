"""A case: one cell of an experiment, and nothing but its identity."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

import msgspec

from collbench.schema.bounds import Count, Name, Rank, RankCount

Driver = Literal["native", "python"]
ThreadLevel = Literal["single", "funneled", "serialized", "multiple"]
Gate = Literal["roundtime", "barrier", "none"]
Cadence = Literal["isolated", "streaming"]
Staging = Literal["pageable", "pinned"]
Op = Literal["sum", "prod", "min", "max", "avg"]

DRIVERS: tuple[Driver, ...] = get_args(Driver)
THREAD_LEVELS: tuple[ThreadLevel, ...] = get_args(ThreadLevel)
GATES: tuple[Gate, ...] = get_args(Gate)
CADENCES: tuple[Cadence, ...] = get_args(Cadence)
OPS: tuple[Op, ...] = get_args(Op)
STAGINGS: tuple[Staging, ...] = get_args(Staging)

#: Item size in bytes of every dtype that exists anywhere in collbench.
DTYPES: dict[str, int] = {
    "int8": 1, "int16": 2, "int32": 4, "int64": 8,
    "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8,
    "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8,
}  # fmt: skip

#: What users of nccl-tests and C type instead.
DTYPE_ALIASES: dict[str, str] = {"half": "float16", "float": "float32", "double": "float64", "char": "int8"}

_SINCE_SCHEMA_3 = frozenset({"staging", "algorithm", "protocol", "registered", "graph"})


class Case(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is asked for. What was really used (the driver after a fall-back, say) stands in the record.

    `bytes` is the size as asked for; the size after rounding to whole blocks is `Record.work.bytes`.
    `op` is None where nothing is reduced, `root` is None where no rank is special. `image`, `policy` and `isolation`
    say where a launcher placed the ranks: on the host, `image` is the one that the host stands beside; `policy` ends in
    `/far` where memory is on another node than the cores.
    Only where a backend has the choice: `staging` is the host memory that device data passes through; `algorithm` and
    `protocol` are what NCCL_ALGO and NCCL_PROTO are set to (None: left to the library); `registered` buffers are known
    to the communicator beforehand; `graph` is how many operations a CUDA graph holds that is launched in place of
    calls (0: none).
    """

    collective: Name
    backend: Name
    driver: Driver
    thread_level: ThreadLevel
    bytes: Count
    dtype: Name
    op: Op | None
    root: Rank | None
    ranks: RankCount
    in_place: bool = False
    image: Name | None = None
    policy: Name = "host"
    isolation: Name | None = None
    staging: Staging | None = None
    algorithm: Name | None = None
    protocol: Name | None = None
    registered: bool = False
    graph: Annotated[int, msgspec.Meta(ge=0, le=1 << 31)] = 0

    @property
    def key(self) -> str:
        """Twelve hex digits that name the case, stable across machines, versions of Python and schemas.

        A field that came with schema 3 is no part of it where it is null, false or 0: what it says of older cases.
        """
        import hashlib

        fields = msgspec.structs.asdict(self)
        canonical = msgspec.json.encode({name: v for name, v in fields.items() if v or name not in _SINCE_SCHEMA_3})
        return hashlib.blake2b(canonical, digest_size=6).hexdigest()
