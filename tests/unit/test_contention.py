"""Whether ranks waited for processors, from what the kernel told before and after."""

from __future__ import annotations

from typing import Any

import pytest

from collbench.run import contention
from collbench.run.contention import Waited, since


class Pair:
    """The own rank as rank 1 of two; rank 0 was held up for `other` of the time."""

    rank, size = 1, 2

    def __init__(self, other: float | None) -> None:
        self.other = other

    def gather(self, value: Any) -> list[Any] | None:
        return [self.other, value]

    def bcast(self, value: Any) -> Any:
        return value


@pytest.mark.parametrize(
    ("stalled", "throttled", "other", "contended", "said"),
    [
        (0.01, 0.0, 0.0, False, ()),
        (0.5, 0.0, 0.0, True, ()),
        (None, None, None, None, ()),
        (0.01, 0.4, 0.1, True, ("rank 1 was stopped for 20% of the time: its group's CPU quota was used up",)),
        (None, 0.0, 0.3, True, ("rank 0 was stopped for 30% of the time: its group's CPU quota was used up",)),
    ],
)
def test_held_up(
    monkeypatch: pytest.MonkeyPatch, stalled: float | None, throttled: float | None, other: float | None,
    contended: bool | None, said: tuple[str, ...],
) -> None:  # fmt: skip
    before = Waited(None if stalled is None else 7.0, None if throttled is None else 3.0)
    after = Waited(None if stalled is None else 7.0 + stalled, None if throttled is None else 3.0 + throttled)
    monkeypatch.setattr(contention, "now", lambda: after)
    assert since(before, 2.0, Pair(other)) == (contended, said)
