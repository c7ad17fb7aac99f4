"""Memory that programs measure: the processors near it, and how much of it is in huge pages."""

from __future__ import annotations

import pytest

from collbench.machine.facts import Core
from collbench.workloads.host import memory
from collbench.workloads.protocol import Unusable

#: Two memory nodes of two cores with two processors each; of the last core the process may use one.
CORES = tuple(Core(number, node=number % 4 // 2, first_sibling=number % 4) for number in range(7))


@pytest.mark.parametrize(
    ("threads", "node", "expected"),
    [(1, -1, (0,)), (4, -1, (0, 1, 2, 3)), (0, -1, (0, 4, 1, 5, 2, 6, 3)), (2, 1, (2, 3)), (0, 1, (2, 6, 3))],
)
def test_threads_have_cores_of_their_own_first(
    monkeypatch: pytest.MonkeyPatch, threads: int, node: int, expected: tuple[int, ...]
) -> None:
    monkeypatch.setattr(memory, "processors_here", lambda: CORES)
    assert memory.processors(threads, node) == expected


@pytest.mark.parametrize(("threads", "node", "numbers"), [(8, -1, "7"), (4, 1, "3"), (1, 2, "0, 1")])
def test_too_few_processors(monkeypatch: pytest.MonkeyPatch, threads: int, node: int, numbers: str) -> None:
    monkeypatch.setattr(memory, "processors_here", lambda: CORES)
    with pytest.raises(Unusable, match=rf"\b{numbers}\b"):
        memory.processors(threads, node)


@pytest.mark.parametrize(
    ("rollup", "setting", "expected"),
    [
        ("Rss: 9 kB\nAnonHugePages:    2048 kB\n", "madvise", ("madvise: 25 %",)),
        ("AnonHugePages:   10240 kB\n", None, ("unknown: 100 %",)), (None, "always", ()),
    ],
)  # fmt: skip
def test_the_note_on_huge_pages(
    monkeypatch: pytest.MonkeyPatch, rollup: str | None, setting: str | None, expected: tuple[str, ...]
) -> None:
    monkeypatch.setattr(memory, "text_of", lambda path: rollup)
    monkeypatch.setattr(memory, "huge_pages", lambda: setting)
    notes = memory.huge_page_notes(8 << 20)
    assert len(notes) == len(expected) and all(part in note for part, note in zip(expected, notes, strict=True))
