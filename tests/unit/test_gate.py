"""The judgement of a gate: what is a loss, what is none, and everything that has no answer, with the reason's name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.made_gates import LARGE, SMALL, Medians, fine, made_gate, noisy, told
from tests.unit.made_runs import Entry, made_case, made_failure, made_record, spread

from collbench.analysis.compare import Reason
from collbench.analysis.gate import ACCEPTABLE, Doubt, Judgement, Unfinished, judge
from collbench.analysis.runs import observe
from collbench.errors import RunReadError
from collbench.schema.record import LOST, ResultCheck, Samples
from collbench.schema.store import Margin, read_gate_plan

GOOD = fine()


def judged(folder: Path, margin: float = 0.02, accepted: tuple[str, ...] = ()) -> Judgement:
    """As the command judges the folder."""
    return judge(read_gate_plan(folder), observe(folder), (Margin(margin),), accepted)


def states(found: Judgement) -> list[str]:
    """By cell: the answer, with the name of the reason where there is none."""
    return [f"{one.state} ({one.doubt.name})" if one.doubt else one.state for one in found.answers]


def test_what_is_no_slower_passes(tmp_path: Path) -> None:
    found = judged(made_gate(tmp_path, GOOD, fine(1.001)))
    assert (states(found), found.code) == (["no loss", "no loss"], 0)


def test_a_loss_is_a_loss_whatever_else_was_not_answered(tmp_path: Path) -> None:
    other: Medians = {SMALL: spread(1.3e-6), LARGE: noisy(1e-4)}
    found = judged(made_gate(tmp_path, GOOD, other))
    assert (states(found), found.code) == (["loss", "no answer (too few launches)"], 1)
    assert found.of("loss")[0].base == SMALL.having(side="base")


def test_a_gain_is_no_loss(tmp_path: Path) -> None:
    found = judged(made_gate(tmp_path, GOOD, fine(0.7)))
    assert (states(found), found.code) == (["no loss", "no loss"], 0)


def test_what_may_be_faster_and_cannot_be_slower_passes(tmp_path: Path) -> None:
    """The upper end of its interval is within the margin: for compare that is unclear."""
    factors = (0.9, 1.03, 0.92, 1.02, 0.94, 1.03, 0.95, 1.02, 0.96, 1.0)
    other = [time * factor for time, factor in zip(spread(1e-6), factors, strict=True)]
    found = judged(made_gate(tmp_path, GOOD, {SMALL: other, LARGE: spread(1e-4)}))
    assert found.answers[0].comparison is not None
    assert found.answers[0].comparison.verdict == "unclear"
    assert (states(found), found.code) == (["no loss", "no loss"], 0)


def test_within_a_wider_margin_a_loss_is_none(tmp_path: Path) -> None:
    folder = made_gate(tmp_path, GOOD, fine(1.1))
    assert (judged(folder).code, judged(folder, 0.25).code) == (1, 0)


def test_margins_depend_on_the_size(tmp_path: Path) -> None:
    folder, by_size = made_gate(tmp_path, GOOD, fine(1.1)), (Margin(0.25, SMALL["size"]), Margin(0.02))
    assert states(judge(read_gate_plan(folder), observe(folder), by_size)) == ["no loss", "loss"]
    assert states(judge(read_gate_plan(folder), observe(folder), (Margin(0.02, 8), Margin(0.25)))) == ["no loss"] * 2


def test_noise_is_not_answered_with_the_launches_that_it_lacks(tmp_path: Path) -> None:
    found = judged(made_gate(tmp_path, GOOD, {SMALL: noisy(1e-6), LARGE: spread(1e-4)}))
    assert (states(found), found.code) == (["no answer (too few launches)", "no loss"], 4)
    assert found.answers[0].doubt is not None
    (why,) = found.answers[0].doubt.values
    assert isinstance(why, Reason) and why.kind == "launches"


def replaced(entries: Sequence[Entry], launch: int, entry: Entry) -> list[Entry]:
    """The launches, with another one."""
    return [*entries[:launch], entry, *entries[launch + 1 :]]


def failing(case: Any, launch: int = 3, status: str = "failed") -> list[Entry]:
    """One launch of ten that failed, or was skipped."""
    return replaced(spread(1e-6), launch, made_failure(case, launch, "no memory", status))


WRONG = replaced(spread(1e-6), 3, made_record(SMALL, 3, 1e-6, check=ResultCheck(wrong=7)))
LATE = Samples(n=100, invalid=60, warmup=5)

#: What the base and the other side have of a cell, and the reason's name.
UNANSWERED: dict[str, tuple[Any, Any, str, tuple[Any, ...]]] = {
    "failed on the base": (failing(SMALL), spread(1e-6), "failed", ("base", 1, 10)),
    "failed on both": (failing(SMALL), failing(SMALL, 5), "failed", ("base", 1, 10)),
    "skipped": (failing(SMALL, 3, "skipped"), spread(1e-6), "skipped", ("base", "no memory")),
    "missing": (spread(1e-6), (), "missing", ("other",)),
    "fewer launches": (spread(1e-6), spread(1e-6)[:9], "incomplete", ("other", 9, 10)),
    "another gate": (spread(1e-6), told(SMALL, spread(1e-6), gate="barrier"), "not comparable", ()),
    "contended": (spread(1e-6), told(SMALL, spread(1e-6), contended=True), "contended", ("other", 10, 10)),
    "contended in half of them": (
        spread(1e-6), [*told(SMALL, spread(1e-6)[:5], contended=True), *spread(1e-6)[5:]],
        "contended", ("other", 5, 10),
    ),
    "oversubscribed": (told(SMALL, spread(1e-6), oversubscribed=True), spread(1e-6), "oversubscribed", ("base",)),
    "late": (spread(1e-6), told(SMALL, spread(1e-6), samples=LATE), "late", ("other", 600, 1000)),
    "unchecked": (spread(1e-6), told(SMALL, spread(1e-6), check=ResultCheck(wrong=None)), "unchecked", ()),
    "without a check": (spread(1e-6), told(SMALL, spread(1e-6), check=None), "unchecked", ()),
    "lost with a node": (
        spread(1e-6), replaced(spread(1e-6), 3, made_failure(SMALL, 3, f"{LOST}node")), "failed", ("other", 1, 10),
    ),
    "a shared GPU": (spread(1e-6), told(SMALL, spread(1e-6), shared_gpu=True), "shared GPU", ("other",)),
}  # fmt: skip


@pytest.mark.parametrize("what", UNANSWERED)
def test_what_was_not_measured_well_is_not_answered(tmp_path: Path, what: str) -> None:
    base, other, name, values = UNANSWERED[what]
    sides: tuple[Medians, Medians] = ({SMALL: base, LARGE: spread(1e-4)}, {SMALL: other, LARGE: spread(1e-4)})
    found = judged(made_gate(tmp_path, *sides))
    assert states(found)[0] == f"no answer ({name})"
    assert found.answers[0].doubt is not None
    assert found.answers[0].doubt.values[: len(values)] == values
    assert found.code == 4


@pytest.mark.parametrize(("other", "why"), [(failing(SMALL), "no memory"), (WRONG, "wrong result")])
def test_what_fails_or_is_wrong_on_the_other_side_alone_is_broken(tmp_path: Path, other: list[Entry], why: str) -> None:
    found = judged(made_gate(tmp_path, {SMALL: spread(1e-6)}, {SMALL: other}))
    assert (states(found), found.code) == (["broken (broken)"], 1)
    assert found.answers[0].doubt is not None
    assert found.answers[0].doubt.values[:3] == ("other", 1, 10) and why in found.answers[0].doubt.values[3]


@pytest.mark.parametrize("what", ["contended", "oversubscribed", "late", "unchecked", "a shared GPU"])
def test_what_makes_an_answer_doubtful_can_be_accepted(tmp_path: Path, what: str) -> None:
    base, other, name, _ = UNANSWERED[what]
    sides: tuple[Medians, Medians] = ({SMALL: base, LARGE: spread(1e-4)}, {SMALL: other, LARGE: spread(1e-4)})
    assert judged(made_gate(tmp_path, *sides), accepted=(name,)).code == 0


def test_a_difference_of_a_side_that_failed_is_no_loss(tmp_path: Path) -> None:
    slower = replaced(spread(2e-6), 3, "no memory")
    found = judged(made_gate(tmp_path, {SMALL: spread(1e-6)}, {SMALL: slower}))
    assert found.answers[0].comparison is not None
    assert found.answers[0].comparison.verdict == "slower"
    assert (states(found), found.code) == (["broken (broken)"], 1)


def test_fewer_than_six_blocks_say_how_many_are_missing(tmp_path: Path) -> None:
    few = {SMALL: spread(1e-6, 4)}
    found = judged(made_gate(tmp_path, few, few, launches=20, until="decided"))
    assert found.answers[0].doubt is not None
    assert found.answers[0].doubt.values == (4, 2, 0, 0)
    assert found.code == 4


def test_every_launch_may_fail_on_both_sides(tmp_path: Path) -> None:
    broken: Medians = {SMALL: ["it hangs"] * 10, LARGE: ["it hangs"] * 10}
    found = judged(made_gate(tmp_path, broken, broken))
    assert (states(found), found.code) == (["no answer (failed)"] * 2, 4)


def test_a_launch_that_fails_before_its_end_has_failed_in_cells_without_a_record_too(tmp_path: Path) -> None:
    """It has one record, of the first of its cases; those in other places have nothing to do with it."""
    elsewhere = made_case(image="mpich", size=8)
    base: Medians = {SMALL: spread(1e-6), LARGE: spread(1e-4), elsewhere: spread(1e-6)}
    found = judged(made_gate(tmp_path, base, {SMALL: failing(SMALL)[3:4], LARGE: (), elsewhere: ()}))
    first, second, third = (one.doubt for one in found.answers)
    assert first == second == Doubt("broken", ("other", 1, 1, "no memory"))
    assert third == Doubt("missing", ("other",))


def test_slow_launches_of_the_other_side_alone_are_no_pass(tmp_path: Path) -> None:
    times = spread(1e-6, 30)
    often = [time * (2 if number % 4 == 0 else 1) for number, time in enumerate(times)]
    folder = made_gate(tmp_path, {SMALL: times}, {SMALL: often}, launches=30)
    found = judged(folder)
    assert (states(found), found.code) == (["no answer (slow at times)"], 4)
    accepted = judged(folder, accepted=("slow at times",))
    assert states(accepted) == ["no answer (undecided)"], "so many move the bound as well"
    turned = judged(made_gate(tmp_path / "turned", {SMALL: often}, {SMALL: times}, launches=30))
    assert turned.code == 0


def test_dependent_launches_are_no_pass(tmp_path: Path) -> None:
    waves = [1 + 0.01 * ((number // 5) % 2) for number in range(20)]
    other = {SMALL: [1e-6 * wave for wave in waves]}
    found = judged(made_gate(tmp_path, {SMALL: [1e-6] * 20}, other, launches=20))
    assert (states(found), found.code) == (["no answer (drift)"], 4)


def test_until_decided_cells_have_the_launches_that_they_took(tmp_path: Path) -> None:
    base, other = ({SMALL: spread(1e-6, 6), LARGE: spread(1e-4, 12)} for _ in range(2))
    found = judged(made_gate(tmp_path, base, other, launches=20, until="decided"))
    assert (states(found), found.code) == (["no loss", "no loss"], 0)


def test_cells_that_nobody_planned_change_nothing(tmp_path: Path) -> None:
    slow = {SMALL: spread(1e-6), LARGE: spread(2e-4)}
    found = judged(made_gate(tmp_path, GOOD, slow, planned=[SMALL]))
    assert (states(found), found.code) == (["no loss"], 0)


def test_a_plan_without_cells_passes_nothing(tmp_path: Path) -> None:
    with pytest.raises(RunReadError, match="damaged, or not written by collbench gate: it has no cells"):
        judged(made_gate(tmp_path, GOOD, GOOD, planned=[]))
    nothing = msgspec.structs.replace(read_gate_plan(made_gate(tmp_path / "x", GOOD, GOOD)), cells=())
    assert judge(nothing, observe(tmp_path / "x"), (Margin(0.02),)).code == 4


def test_broken_cells_are_none_of_those_without_an_answer(tmp_path: Path) -> None:
    third = made_case(image="openmpi", size=8)
    base: Medians = {SMALL: spread(1e-6), LARGE: failing(LARGE), third: spread(1e-6)}
    other: Medians = {SMALL: told(SMALL, spread(1e-6), contended=True), LARGE: spread(1e-6), third: failing(third)}
    found = judged(made_gate(tmp_path, base, other))
    assert [one.base.having(side=None) for one in found.of("broken")] == [third]
    assert [one.base.having(side=None) for one in found.of("no answer")] == [LARGE, SMALL]
    assert found.code == 1


def test_what_was_read_in_part_answers_nothing(tmp_path: Path) -> None:
    folder = made_gate(tmp_path, GOOD, GOOD)
    records = folder / "records.jsonl"
    records.write_bytes(records.read_bytes() + b'{"case"')
    found = judged(folder)
    assert (states(found), found.code) == (["no answer (not verified)"] * 2, 4)
    (flaw,) = found.refused[0].values
    assert flaw.kind == "cut off"


def test_what_can_be_accepted_makes_no_difference_a_loss() -> None:
    assert "not verified" not in ACCEPTABLE
    assert "failed" not in ACCEPTABLE


@pytest.mark.parametrize(
    ("base", "other", "until", "blocks"),
    [((8, 8), (8, 8), "launches", 8), ((9, 8), (8, 8), "launches", 8), ((9, 9), (9, 8), "decided", 8),
     ((6, 12), (6, 11), "decided", 11), ((6, 0), (6, 0), "launches", 6), ((0, 0), (0, 0), "decided", 0)],
)  # fmt: skip
def test_an_interrupted_gate_came_as_far_as_the_cells_that_were_still_launched(
    tmp_path: Path, base: tuple[int, int], other: tuple[int, int], until: str, blocks: int
) -> None:
    """A cell that was decided after six blocks is not what the others wait for."""
    sides = [{SMALL: spread(1e-6)[:1] * of[0], LARGE: spread(1e-4)[:1] * of[1]} for of in (base, other)]
    folder = made_gate(tmp_path, sides[0], sides[1], launches=30, until=until)
    found = judge(read_gate_plan(folder), observe(folder), (Margin(0.02),), (), True)
    assert found.unfinished == Unfinished(blocks, 30, until == "decided")
    assert found.code == 4
