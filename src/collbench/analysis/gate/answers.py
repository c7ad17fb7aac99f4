"""Every planned cell of a gate is one of three: a loss, no loss, or not answered."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from collbench.analysis.compare import Comparison, compare
from collbench.analysis.deciding import no_slower
from collbench.analysis.gate.doubts import Doubt, depends, doubt_on
from collbench.analysis.gate.planned import planned_cells
from collbench.analysis.gate.unfinished import Unfinished, unfinished
from collbench.analysis.gate.verified import Sides, alike, sides_of, unverified
from collbench.analysis.observations import Observed
from collbench.analysis.pair import Pair
from collbench.schema.case import Case
from collbench.schema.gate_plan import SIDES, GatePlan

State = Literal["loss", "no loss", "no answer"]

#: Exit codes: nothing is lost, and all was measured; a loss; no answer, or the gate was interrupted.
PASSED, LOST, UNANSWERED = 0, 1, 4


@dataclass(frozen=True)
class Answer:
    """To a planned cell: the case as each side has it; the comparison, where both sides have records.

    `doubt` is why there is no answer; None where there is one.
    """

    base: Case
    other: Case
    comparison: Comparison | None
    state: State
    doubt: Doubt | None = None


@dataclass(frozen=True)
class Judgement:
    """Of all planned cells, in the plan's order. `differences` are what the sides differ in, as was asked.

    `refused` is why no cell has an answer, where that holds for all alike; `accepted` are the doubts that the user has
    accepted beforehand, and `alike` says that both sides are the same, where they are. `unfinished` is how far a gate
    came that was interrupted, whose `folder` it goes on with; `began` is when the run did (ISO 8601).
    """

    plan: GatePlan
    sides: Sides
    margin: float
    answers: tuple[Answer, ...]
    differences: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    accepted: tuple[str, ...] = ()
    alike: tuple[str, ...] = ()
    unfinished: Unfinished | None = None
    folder: str = ""
    began: str = ""

    def of(self, state: State) -> list[Answer]:
        """Those in this state: losses by their size, unanswered ones by how grave their reason is."""
        found = [one for one in self.answers if one.state == state]
        if state == "no answer":
            return sorted(found, key=lambda one: one.doubt.rank if one.doubt else 0)
        return sorted(found, key=lambda one: -ratio_of(one))

    @property
    def code(self) -> int:
        """The exit code: 4 of an interrupted gate, 1 where anything is lost, else 4 where anything is not answered."""
        if self.unfinished is not None:
            return UNANSWERED
        states = {one.state for one in self.answers}
        if "loss" in states:
            return LOST
        return PASSED if states == {"no loss"} else UNANSWERED


def ratio_of(answer: Answer) -> float:
    """The other side's time over the base's; 1 where it is not known."""
    ratio = answer.comparison.ratio if answer.comparison else None
    return 1.0 if ratio is None else ratio.value


def judge(
    plan: GatePlan, run: Observed, margin: float, accepted: Collection[str] = (), interrupted: bool = False
) -> Judgement:  # fmt: skip
    """The answer to every planned cell, by what was measured on both sides in turns, before it was `interrupted`.

    Raises:
        RequestError: SciPy is not installed.
        RunReadError: the run has not the sides of a gate.
    """
    manifest = run.manifests[0]
    sides = sides_of(manifest, run.name)
    verified = unverified(sides, run, plan.cells)
    refused = (*verified.refused, *_doubtful(run))
    software = tuple(text for text in verified.asked if not text.startswith("env:"))  # variables are in the titles
    cases = [(case.having(side=SIDES[0]), case.having(side=SIDES[1])) for case in plan.cells]
    of_base, of_other = (planned_cells(run, [pair[number] for pair in cases]) for number in range(2))
    both = list(zip(of_base, of_other, strict=True))
    measured = {
        pair: Pair(one, two, *SIDES, asked=software)
        for pair, (one, two) in zip(cases, both, strict=True)
        if one is not None and two is not None
    }
    compared = dict(zip(measured, compare(list(measured.values()), margin, in_blocks=True), strict=True))
    drifting = depends(list(compared.values()))
    experiment = manifest.experiment
    planned = 0 if experiment is None or experiment.until == "decided" else experiment.launches
    answers = []
    for pair, cells in zip(cases, both, strict=True):
        comparison = compared.get(pair)
        doubts = [one for one in doubt_on(sides, cells, comparison, planned, drifting) if one.name not in accepted]
        answers.append(_answer(pair, comparison, margin, refused, doubts, experiment.launches if experiment else 0))
    same = tuple(filter(None, [alike(sides, run)]))
    early = unfinished(both, experiment) if interrupted else None
    return Judgement(plan, sides, margin, tuple(answers), verified.asked, refused, tuple(sorted(accepted)), same, early,
                     run.name, manifest.created)  # fmt: skip


def _answer(
    cases: tuple[Case, Case], comparison: Comparison | None, margin: float, refused: Sequence[str],
    doubts: Sequence[Doubt], most: int,
) -> Answer:  # fmt: skip
    answer = Answer(*cases, comparison, "no answer")
    if refused:
        return replace(answer, doubt=Doubt("not verified", refused[0]))
    grave = [one for one in doubts if one.voids]
    if grave:
        return replace(answer, doubt=grave[0])
    if comparison is not None and comparison.verdict == "slower":
        return replace(answer, state="loss")
    if doubts:
        return replace(answer, doubt=doubts[0])
    if comparison is not None and no_slower(comparison, margin):
        return replace(answer, state="no loss")
    return replace(answer, doubt=_undecided(comparison, most))


def _undecided(comparison: Comparison | None, most: int) -> Doubt:
    """Until decided, a side has at most so many launches."""
    if comparison is None:
        return Doubt("missing", "not measured")
    of = f" of at most {most}" if comparison.pair.base.until_decided else ""
    return Doubt("too few launches" if comparison.launches_more else "undecided", f"{comparison.why}{of}")


def _doubtful(run: Observed) -> tuple[str, ...]:
    """What was read and cannot be relied on."""
    return (*run.doubts, *(f"{folder}: the last record was cut off" for folder in run.truncated))
