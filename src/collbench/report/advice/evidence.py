"""What the evidence does not tell, said once, with what would tell it."""

from __future__ import annotations

from collections.abc import Sequence

from collbench.analysis.advise import Advice, AtSize
from collbench.analysis.compare import Comparison
from collbench.analysis.options import Option, Question
from collbench.report.advice.sentences import some
from collbench.report.advice.sizes import at, at_some
from collbench.report.more_launches import what_tells
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


def _gaps(question: Question, undecided: Sequence[tuple[Option, AtSize]]) -> list[str]:
    """Options that nothing says are worse, and that were not compared."""
    listed: dict[str, list[int]] = {}
    for option, one in undecided:
        for other, gap in one.unknown.items():
            if gap.open and other != option and other not in one.undecided:
                listed.setdefault(question.name(other), []).append(one.size)
    names = [f"{name}{at(question, *sizes)}" for name, sizes in listed.items()]
    return [f"not compared: {some(names, 2)}"] if names else []
