"""What a place costs a training step: the step at each place against the one at the fastest, with its interval."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from collbench.analysis.compare import MARGIN, Comparison, compare
from collbench.analysis.known import Known
from collbench.analysis.models.steps import STEP, TrainingStep
from collbench.analysis.observations import Observed
from collbench.analysis.pair import Pair
from collbench.schema.case import Case


def step_costs(
    observed: Observed, steps: Sequence[TrainingStep], margin: float = MARGIN, known: Iterable[Comparison] = ()
) -> Mapping[Case, Comparison]:
    """By case without measure; not of the fastest place of a training.

    Pairs that are in `known` have its verdict; p is adjusted over all others.

    Raises:
        RequestError: SciPy is not installed.
    """
    measured: dict[Case, list[tuple[float, TrainingStep]]] = {}
    for step in steps:
        if step.times is not None:
            measured.setdefault(training_of(step.case), []).append((step.times.step.value, step))
    pairs: dict[Case, Pair] = {}
    for group in measured.values():
        fastest = min(group, key=lambda one: one[0])[1].case
        others = (step.case for _, step in group if step.case != fastest)
        pairs |= {case: _pair(observed, fastest, case) for case in others}
    told = Known(known)
    left = [pair for pair in pairs.values() if told.of(pair) is None]
    compared = iter(compare(left, margin, observed.interleaved) if left else ())
    return {case: told.of(pair) or next(compared) for case, pair in pairs.items()}


def training_of(case: Case) -> Case:
    """The case without its place, as far as steps at several places are one training: with its ranks."""
    return case.without(("engine", "image", "policy", "isolation", "affinity", "seccomp"))


def _pair(observed: Observed, fastest: Case, case: Case) -> Pair:
    base, other = (observed.cells[one.having(measure=STEP)] for one in (fastest, case))
    return Pair(base, other, fastest.where.text, case.where.text)
