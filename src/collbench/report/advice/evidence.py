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

#: More options that may be as fast are counted.
_MOST_NAMED = 2


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
        parts.append(f"{_named(question, undecided) or _counted(question, rivals)} ({what_tells(comparisons)})")
    return parts + _gaps(question, undecided)


def _named(question: Question, undecided: Sequence[tuple[Option, AtSize]]) -> str:
    """`host, mpich may be as fast at 8`, where these are few; empty where they are many."""
    found = [({one.best, *one.undecided} - {option}, one.size) for option, one in undecided if one.undecided]
    names = sorted({question.name(option) for rivals, _ in found for option in rivals})
    if len(names) > _MOST_NAMED:
        return ""
    return f"{'; '.join(names)} may be as fast{at_some(question, *(size for _, size in found))}"


def _counted(question: Question, rivals: Sequence[tuple[AtSize, list[Comparison]]]) -> str:
    """`7 of 17 others at 8, 9 at 64K may be as fast`; of many sizes the most."""
    counts = {one.size: len(several) for one, several in rivals}
    of = max(len(one.others) for one, _ in rivals)
    most = max(counts.values())
    if len(rivals) > _MOST_SIZES or len(set(counts.values())) == 1:
        upto = "up to " if len(set(counts.values())) > 1 else ""
        return f"{upto}{most} of {counted(of, 'other')} may be as fast{at_some(question, *counts)}"
    listed = [f"{count} of {counted(of, 'other')}{at(question, size)}" if not number else
              f"{count} at {format_size(size)}" for number, (size, count) in enumerate(counts.items())]  # fmt: skip
    return f"{', '.join(listed)} may be as fast"


def _gaps(question: Question, undecided: Sequence[tuple[Option, AtSize]]) -> list[str]:
    """Options that nothing says are worse, and that were not compared."""
    listed: dict[str, list[int]] = {}
    for option, one in undecided:
        for other, gap in one.unknown.items():
            if gap.open and other != option and other not in one.undecided:
                listed.setdefault(question.name(other), []).append(one.size)
    names = [f"{name}{at(question, *sizes)}" for name, sizes in listed.items()]
    return [f"not compared: {some(names, 2)}"] if names else []
