"""The state of a GPU at one moment."""

from __future__ import annotations

import msgspec

from collbench.schema.bounds import Amount, Count


class Reading(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Clocks in MHz, power in watts, temperature in degrees Celsius; None where the GPU does not report it.

    `throttled` names what slows the GPU down: `power cap`, `thermal (software)`, `thermal (hardware)`, `hardware
    slowdown`, `power brake`, `sync boost`; empty where nothing does. Idling and clocks set by a user do not count. A
    MIG device has the values of the GPU it is part of.
    """

    uuid: str
    sm_clock: Count | None = None
    memory_clock: Count | None = None
    power: Amount | None = None
    temperature: int | None = None
    throttled: tuple[str, ...] | None = None
