"""What a GPU says of itself at one moment."""

from __future__ import annotations

import msgspec

from collbench.schema.bounds import Amount, Count


class Reading(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Clocks in MHz, power in watts, temperature in degrees Celsius; None is what the GPU does not tell.

    `throttled` names what slows the GPU down at that moment: `power cap`, `thermal (software)`, `thermal (hardware)`,
    `hardware slowdown`, `power brake`, `sync boost`; empty where nothing does. Idleness and clocks that somebody set
    are no slowdown. Of a MIG device everything is that of the GPU it is part of.
    """

    uuid: str
    sm_clock: Count | None = None
    memory_clock: Count | None = None
    power: Amount | None = None
    temperature: int | None = None
    throttled: tuple[str, ...] | None = None
