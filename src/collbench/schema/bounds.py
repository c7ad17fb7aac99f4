"""Bounds of the numbers and names of a run. What lies beyond them is damage, and is refused by readers."""

from __future__ import annotations

from typing import Annotated

import msgspec

#: Operations, bytes moved, elements.
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]

#: Bytes as a kernel reports them: up to the largest number that it has.
Size = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]

#: No run has more ranks or launches.
Rank = Annotated[int, msgspec.Meta(ge=0, lt=1 << 20)]
RankCount = Annotated[int, msgspec.Meta(ge=1, le=1 << 20)]
Launch = Annotated[int, msgspec.Meta(ge=0, lt=1 << 40)]

#: Operations in a sample.
Burst = Annotated[int, msgspec.Meta(ge=1, le=1 << 31)]

#: Cores, watts, seconds of a plan: never negative.
Amount = Annotated[float, msgspec.Meta(ge=0, le=1e18)]

#: What a check of a program measured: a residual, a share.
Figure = Annotated[float, msgspec.Meta(ge=-1e30, le=1e30)]

#: A value that identifies a case. An image may be named with its registry, its tag and its digest.
Name = Annotated[str, msgspec.Meta(max_length=512)]
