"""The part of a record about its ranks: each of them, or of a large world its machines and the slowest ranks."""

from __future__ import annotations

import msgspec

from collbench.schema.bounds import Count, Rank, RankCount
from collbench.schema.summary import Time


class MachineRanks(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The ranks of one machine: how many, and of their medians (s) the smallest, the quartiles and the largest.

    `name` is the hostname of the first of them, `gpus` how many GPUs they use.
    """

    name: str
    ranks: RankCount
    p50: tuple[Time, Time, Time, Time, Time]
    gpus: Count = 0


class SlowRank(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of the ranks with the largest medians (s), and its hostname."""

    rank: Rank
    p50: Time
    host: str


class Ranks(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Per rank: the median in seconds, the cores it may use (`0-3,8`), the container it sits in (None: none).

    `gpu` is the UUID of each rank's GPU (None: it has none); empty where no rank has one. `host` is the hostname of
    each. `siblings` are the hardware threads of each rank's cores; empty where every core has one. Above 64 ranks these
    are empty, and `machines` and the `slowest` ranks, the slowest first, stand for them.
    """

    p50: tuple[Time, ...]
    binding: tuple[str, ...]
    container: tuple[str | None, ...]
    gpu: tuple[str | None, ...] = ()
    host: tuple[str, ...] = ()
    siblings: tuple[str, ...] = ()
    machines: tuple[MachineRanks, ...] = ()
    slowest: tuple[SlowRank, ...] = ()

    @property
    def on_gpus(self) -> bool:
        """Whether a rank uses a GPU."""
        return any(self.gpu) or any(machine.gpus for machine in self.machines)
