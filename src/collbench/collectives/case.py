"""The case of a collective for the code that performs it: every field with its type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from collbench.schema.axes import Driver, Op, Staging, ThreadLevel, Value
from collbench.schema.case import Case, case_of
from collbench.schema.files import Count, Rank, RankCount, ShortText


class CollectiveCase(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is asked for on `ranks` ranks.

    `size` in bytes is as asked for. `op` is None where nothing is reduced, `root` where no rank is special, and `dtype`
    is int8 where no data moves. Only where a backend has the choice: `staging` is the host memory that device data
    passes through; `algorithm` and `protocol` are the values of NCCL_ALGO and NCCL_PROTO (None: the library chooses);
    `registered` buffers are registered with the communicator; `graph` is how many operations the CUDA graph holds that
    is launched instead of calls (0: none). `others` are values on axes without a field: `case["chunk"]`.
    """

    collective: ShortText
    backend: ShortText
    driver: Driver
    thread_level: ThreadLevel
    size: Count = 0
    dtype: ShortText = "int8"
    op: Op | None = None
    root: Rank | None = None
    ranks: RankCount
    in_place: bool = False
    staging: Staging | None = None
    algorithm: ShortText | None = None
    protocol: ShortText | None = None
    registered: bool = False
    graph: Annotated[int, msgspec.Meta(ge=0, le=1 << 31)] = 0
    others: tuple[tuple[ShortText, Value], ...] = ()

    def __getitem__(self, axis: str) -> Any:
        """The value on an axis."""
        return self.identity[axis]

    @property
    def identities(self) -> tuple[Case, ...]:
        """The cases as they are recorded: one."""
        return (self.identity,)

    @property
    def identity(self) -> Case:
        """The case as it is recorded; without size and dtype where no data moves."""
        from collbench import collectives

        values: dict[str, Value] = msgspec.structs.asdict(self)
        del values["collective"], values["others"]
        values |= dict(self.others)
        if not collectives.get(self.collective).moves_data:
            del values["size"], values["dtype"]
        return case_of(self.collective, values)


def collective_case(collective: str, values: Mapping[str, Any]) -> CollectiveCase:
    """The case with these values on its axes."""
    others = tuple((axis, value) for axis, value in values.items() if axis not in CollectiveCase.__struct_fields__)
    fields = {axis: value for axis, value in values.items() if axis in CollectiveCase.__struct_fields__}
    return CollectiveCase(collective=collective, others=others, **fields)
