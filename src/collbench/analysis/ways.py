"""How a number was really taken, where that may differ from what was asked for."""

from __future__ import annotations

from functools import lru_cache

from collbench.schema.record import Record

#: By name: driver, gate, cadence, clock, burst, in place.
How = tuple[tuple[str, str], ...]


def how(record: Record) -> How:
    """The facts of a record that make two numbers incomparable, by name. Synchronised clocks are as a common one."""
    clock = "common" if record.clock == "synced" else record.clock
    return _named(record.driver, record.gate, record.cadence, clock, record.burst, record.in_place)


@lru_cache  # few ways, a million records
def _named(
    driver: str | None, gate: str | None, cadence: str | None, clock: str | None, burst: int, in_place: bool | None
) -> How:
    facts = {"driver": driver, "gate": gate, "cadence": cadence, "clock": clock, "burst": burst}
    if in_place is not None:
        facts["place"] = "in" if in_place else "out"
    return tuple((name, str(value)) for name, value in facts.items() if value is not None)


@lru_cache
def shortest_burst(ways: frozenset[How]) -> float:
    """The fewest operations of a sample, at least 1."""
    bursts = [float(value) for way in ways for name, value in way if name == "burst"]
    return max(min(bursts, default=1.0), 1.0)
