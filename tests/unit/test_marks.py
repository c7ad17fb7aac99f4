"""Sets of facts that cells share: what one cell notes, no other one has noted."""

from __future__ import annotations

from collections.abc import Set

from tests.unit.made_runs import made_case, made_record

from collbench.analysis.observations import Cell, collect, joined
from collbench.schema.case import Case

US = 1e-6


def test_cells_share_what_all_of_them_have() -> None:
    cases = [made_case(size=size) for size in (8, 16)]
    cells: dict[Case, Cell] = {}
    collect([made_record(case, launch, US, notes=("a", "b")) for launch in range(3) for case in cases], cells)
    one, other = cells.values()
    for name in ("how", "transports", "notes", "reasons", "contended", "messages", "slowed"):
        assert getattr(one, name) is getattr(other, name), name
    assert (one.notes, one.transports) == ({"a", "b"}, {"shared memory"})


def test_what_one_cell_notes_no_other_has_noted() -> None:
    cases = [made_case(size=size) for size in (8, 16)]
    cells: dict[Case, Cell] = {}
    collect([made_record(case, 0, US, notes=("a",), contended=True) for case in cases], cells)
    one, other = cells.values()
    for launch, note in ((1, "b"), (2, "c")):
        one.add(made_record(cases[0], launch, US, notes=(note,), contended=True, gate="barrier"), launch)
    assert (one.notes, one.contended, len(one.how)) == ({"a", "b", "c"}, {0, 1, 2}, 2)
    assert (other.notes, other.contended, len(other.how)) == ({"a"}, {0}, 1)


def test_a_set_of_ones_own_grows_in_place() -> None:
    """A thousand launches with a note each are not copied a thousand times."""
    known: Set[str] = joined(joined(frozenset(), ("a",)), ("b",))
    assert joined(known, ("c",)) is known
    assert known == {"a", "b", "c"}


def test_what_is_absorbed_stays_as_it_was() -> None:
    one, other = (Cell(made_case()) for _ in range(2))
    for launch, note in enumerate("ab"):
        other.add(made_record(made_case(), launch, US, notes=(note,)), launch)
    one.absorb(other, 2)
    one.add(made_record(made_case(), 9, US, notes=("c",)), 9)
    assert (one.notes, other.notes) == ({"a", "b", "c"}, {"a", "b"})
