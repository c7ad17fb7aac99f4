"""The answer of a gate in a sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from collbench.analysis.compare import needs
from collbench.analysis.gate.answers import Answer, Judgement
from collbench.report.comparison import difference
from collbench.report.gate.names import Names
from collbench.units import counted

#: Losses, and reasons, that are named.
_NAMED = 3


def sentence(judgement: Judgement, names: Names) -> str:
    """`gate: 2 losses beyond 2 % in 28 cells: allreduce 64K +12.3 % (+10.1 .. +14.9), ...; 26 no loss`."""
    losses, passed, open_ = (judgement.of(state) for state in ("loss", "no loss", "no answer"))
    cells, margin = counted(len(judgement.answers), "cell"), f"{judgement.margin * 100:g} %"
    without = [f"{len(passed)} without a loss"] if passed else []
    unanswered = [f"{len(open_)} not answered ({reasons(open_)})"] if open_ else []
    if losses:
        number = counted(len(losses), "loss", "losses")
        parts = [f"{number} beyond {margin} in {cells}: {_listed(losses, names)}", *without, *unanswered]
    elif open_:
        parts = [f"no answer: {len(open_)} of {cells} not answered ({reasons(open_)})", *without]
    else:
        parts = [f"no loss beyond {margin} in {cells} ({_launches(passed)}; {_worst(passed, names)})"]
    return f"gate: {'; '.join(parts)}"


def reasons(answers: Sequence[Answer]) -> str:
    """`2 contended, 1 broken: other alone: failed in 8 of 8 launches: ...`: the gravest in words where it is one."""
    counts = Counter(one.doubt.name for one in answers if one.doubt is not None)
    if len(counts) == 1 and (doubt := answers[0].doubt) is not None:
        same = all(one.doubt == doubt for one in answers)
        return f"{doubt.name}: {doubt.why}" if same else f"{doubt.name}{_more(answers)}"
    return f"{', '.join(f'{number} {name}' for name, number in counts.items())}{_more(answers)}"


def _more(answers: Sequence[Answer]) -> str:
    """How many launches would decide those that lack nothing else."""
    few = [one.comparison for one in answers if one.doubt is not None and one.doubt.name == "too few launches"]
    most = max((one.launches_more or 0 for one in few if one is not None), default=0)
    return f"; {needs(most).removeprefix('needs ')} would tell" if most else ""


def shown_difference(answer: Answer) -> str:
    """`+12.3 % (+10.1 .. +14.9)`; empty where there is none."""
    percent, ends = difference(answer.comparison) if answer.comparison else ("", "")
    return f"{percent} %{f' ({ends})' if ends else ''}" if percent else ""


def _listed(losses: Sequence[Answer], names: Names) -> str:
    named = [f"{names.of(one)} {shown_difference(one)}" for one in losses[:_NAMED]]
    more = len(losses) - _NAMED
    return f"{', '.join(named)}{f' and {more} more' if more > 0 else ''}"


def _launches(passed: Sequence[Answer]) -> str:
    """`14 launches a side`, or `6 to 14`."""
    used = sorted(min(one.comparison.launches) for one in passed if one.comparison is not None)
    least, most = used[0], used[-1]
    return f"{least if least == most else f'{least} to {most}'} launches a side"


def _worst(passed: Sequence[Answer], names: Names) -> str:
    worst = max(passed, key=upper)
    return f"{'worst ' if len(passed) > 1 else ''}{names.of(worst)} {shown_difference(worst)}"


def upper(answer: Answer) -> float:
    """The upper end of the interval of the other side's time over the base's; 0 where there is none."""
    ratio = answer.comparison.ratio if answer.comparison else None
    return 0.0 if ratio is None or ratio.interval is None else ratio.interval[1]
