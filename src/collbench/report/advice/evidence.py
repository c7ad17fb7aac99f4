"""What the evidence does not tell, said once, with what would tell it."""

from __future__ import annotations

from collections.abc import Sequence

from collbench.analysis.advise import Advice, AtSize
from collbench.analysis.compare import Comparison
from collbench.analysis.options import Option, Question
from collbench.analysis.planning import MOST
from collbench.report.advice.sentences import some
from collbench.report.advice.sizes import at, at_some
from collbench.units import counted, format_size

#: At more open sizes than this, options are not counted for each.
_MOST_SIZES = 3


def open_at(advice: Advice, undecided: Sequence[tuple[Option, AtSize]]) -> list[str]:
    """Of the option taken at these sizes: launches in which it failed, options that may be as fast, and gaps."""
    question = advice.question
    failed = [one.size for option, one in undecided if option in one.failing]
    parts = [f"it failed in some launches{at(question, *failed)}"] if failed else []
    missed = [one.size for option, one in undecided if option in one.unknown]
    parts += [f"not measured{at(question, *missed)}"] if missed else []
    rivals = [(one, list(one.undecided.values())) for _, one in undecided if one.undecided]
    if rivals:
        comparisons = [comparison for _, several in rivals for comparison in several]
        parts.append(f"{_counted(question, rivals)} may be as fast ({what_tells(comparisons)})")
    return parts + _gaps(question, undecided)


def _counted(question: Question, rivals: Sequence[tuple[AtSize, list[Comparison]]]) -> str:
    """`7 of 17 others at 8, 9 at 64K`; of many sizes the most."""
    counts = {one.size: len(several) for one, several in rivals}
    of = max(len(one.others) for one, _ in rivals)
    most = max(counts.values())
    if len(rivals) > _MOST_SIZES or len(set(counts.values())) == 1:
        upto = "up to " if len(set(counts.values())) > 1 else ""
        return f"{upto}{most} of {counted(of, 'other')}{at_some(question, *counts)}"
    listed = [f"{count} of {counted(of, 'other')}{at(question, size)}" if not number else
              f"{count} at {format_size(size)}" for number, (size, count) in enumerate(counts.items())]  # fmt: skip
    return ", ".join(listed)


def what_tells(comparisons: Sequence[Comparison]) -> str:
    """How many launches would decide how many of these, or why launches would not."""
    few = [one.launches_more for one in comparisons if one.launches_more and _few(one)]
    if few:
        return f"at least {counted(max(few), 'more launch', 'more launches')} needed"
    counts = sorted(one.launches_more for one in comparisons if one.launches_more is not None)
    why = sorted({_reason(one) for one in comparisons if one.launches_more is None} - {_OVER})
    said = []
    if counts:
        of = "" if len(counts) == len(comparisons) else f" for {len(counts)} of {len(comparisons)} cells"
        number = counted(counts[-1], "more launch", "more launches")
        said.append(f"about {number} would tell{of}: collbench launch --until decided")
    elif any(_reason(one) == _OVER for one in comparisons):
        said.append(f"not even {MOST} more launches would tell")
    return "; ".join((*said, *some(why, 2).split("; "))) if why else "; ".join(said)


_OVER = f"needs more than {MOST} more launches"


def _few(comparison: Comparison) -> bool:
    return comparison.ratio is None or comparison.ratio.interval is None


def _reason(comparison: Comparison) -> str:
    """Why it is undecided, without slow launches: they have a sentence of their own, which names the options."""
    about_slow = "" if comparison.slow is None else f"; {comparison.slow.text}"
    return comparison.why.removesuffix(about_slow)


def _gaps(question: Question, undecided: Sequence[tuple[Option, AtSize]]) -> list[str]:
    """Options that nothing says are worse, and that were not compared."""
    listed: dict[str, list[int]] = {}
    for option, one in undecided:
        for other, gap in one.unknown.items():
            if gap.open and other != option and other not in one.undecided:
                listed.setdefault(question.name(other), []).append(one.size)
    names = [f"{name}{at(question, *sizes)}" for name, sizes in listed.items()]
    return [f"not compared: {some(names, 2)}"] if names else []
