"""A program's case as it is executed: once, for a record of each measure."""

from __future__ import annotations

import msgspec

from collbench.schema.case import Case
from collbench.units import format_size


class ProgramCase(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is asked for. `case` is without a measure.

    `memory` and `disk` are the bytes that the program allocates, and those of the files that it makes.
    """

    case: Case
    measures: tuple[str, ...]
    memory: int = 0
    disk: int = 0

    @property
    def identities(self) -> tuple[Case, ...]:
        """The cases as they are recorded, one for each measure."""
        return tuple(self.case.having(measure=measure) for measure in self.measures)

    @property
    def title(self) -> str:
        """`stream size=64M`."""
        settings = {**self.case.what, **self.case.how}
        if "size" in settings:
            settings["size"] = format_size(self.case["size"])
        return " ".join((self.case.workload, *(f"{name}={value}" for name, value in settings.items())))
