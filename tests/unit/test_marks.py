"""What records say beside their times: kept once for all that say the same, and by launch."""

from __future__ import annotations

from tests.unit.made_runs import made_case, made_failure, made_record

from collbench.analysis.results import cells_of, joined

US = 1e-6


def test_records_that_say_the_same_share_it() -> None:
    cases = [made_case(size=size) for size in (8, 16)]
    records = [made_record(case, launch, US, notes=("a", "b")) for launch in range(3) for case in cases]
    one, other = cells_of(records).values()
    assert len(one.results.facts) == len(cases) and one.results is other.results
    assert (one.notes, one.transports, other.notes) == ({"a", "b"}, {"shared memory"}, {"a", "b"})


def test_what_one_cell_notes_no_other_has_noted() -> None:
    cases = [made_case(size=size) for size in (8, 16)]
    records = [made_record(case, 0, US, notes=("a",), contended=True) for case in cases]
    records += [made_record(cases[0], launch, US, notes=(note,), contended=True, gate="barrier")
                for launch, note in ((1, "b"), (2, "c"))]  # fmt: skip
    one, other = cells_of(records).values()
    assert (one.notes, one.contended, len(one.how)) == ({"a", "b", "c"}, {0, 1, 2}, 2)
    assert (other.notes, other.contended, len(other.how)) == ({"a"}, {0}, 1)


def test_cells_of_several_runs_keep_what_each_noted() -> None:
    case = made_case()
    one, other = (cells_of(made_record(case, launch, launch + US, notes=(note,)) for launch, note in enumerate(notes))
                  for notes in ("ab", "c"))  # fmt: skip
    cell = joined([(one, 0), (other, 2)])[case]
    assert (cell.launches, cell.medians, cell.notes) == ([0, 1, 2], [US, 1 + US, US], {"a", "b", "c"})
    assert one[case].notes == {"a", "b"}


def test_a_launch_counts_once_and_one_that_was_lost_and_measured_later_has_not_failed() -> None:
    """In the order of launches, whatever the order of records."""
    case = made_case()
    records = [
        made_failure(case, 0, "lost: node n1"), made_record(case, 2, 3 * US), made_record(case, 0, US),
        made_record(case, 2, 9 * US), made_failure(case, 1, "lost: node n2"), made_failure(case, 1, "lost: node n3"),
    ]  # fmt: skip
    cell = cells_of(records)[case]
    assert (cell.launches, cell.medians, cell.repeated) == ([0, 2], [US, 3 * US], 1)
    assert (cell.failed, cell.lost, cell.reasons) == (1, 1, {"lost: node n3"})
