"""What the evidence does not tell, said once, with what would tell it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from collbench.analysis.advise import Advice
from collbench.analysis.compare import Comparison
from collbench.analysis.options import Option, Question
from collbench.report.advice.chosen import Chosen
from collbench.report.advice.phrases import p_adjusted, some
from collbench.report.advice.sizes import at
from collbench.report.more_launches import tells_in_brief, what_tells
from collbench.units import counted, format_size

#: At more undecided sizes than this, options are not named or counted for each.
_MOST_SIZES = 3

#: A bound above this ratio is not said: it says little more than that nothing is known.
MOST_SLOWER = 2.0

#: More options that may be as fast are counted.
_MOST_NAMED = 2


def undecided(question: Question, still: Sequence[Chosen]) -> str:
    """`undecided at 1M: openmpi, host was the fastest measured; mpich, host may be as fast`.

    Where it is not the same everywhere, the fastest of each size; or that nothing was compared.
    """
    where = at(question, *(one.at.size for one in still))
    fastest = _fastest(question, [one for one in still if one.sure != "alone"])
    alone = [one for one in still if one.sure == "alone"]
    names = list(dict.fromkeys(question.name(one.option) for one in alone))
    lone = f"nothing could be compared with {some(names, 2)}{_at(question, still, [one.at.size for one in alone])}"
    if len(fastest) == 1:
        parts = [f"{next(iter(fastest))} was the fastest measured"]
    else:
        parts = []
        where += f" (fastest measured: {_by_size(question, fastest)})" if fastest else ""
    said = "; ".join([*parts, *_possible(question, still), *([lone] if alone else [])])
    return f"undecided{where}{f': {said}' if said else ''}"


def _fastest(question: Question, compared: Sequence[Chosen]) -> dict[str, list[int]]:
    """The sizes at which each option was the fastest measured."""
    listed: dict[str, list[int]] = {}
    for one in compared:
        listed.setdefault(question.name(one.option), []).append(one.at.size)
    return listed


def _by_size(question: Question, fastest: Mapping[str, Sequence[int]]) -> str:
    if sum(map(len, fastest.values())) > _MOST_SIZES:
        return "not the same at every size"
    return "; ".join(f"{name}{at(question, *sizes)}" for name, sizes in fastest.items())


def _possible(question: Question, still: Sequence[Chosen]) -> list[str]:
    """Launches in which the fastest failed, and options that may be as fast."""
    failed = [one.at.size for one in still if one.option in one.at.failing]
    parts = [f"it failed in some launches{_at(question, still, failed)}"] if failed else []
    rivals = [(one, [option for option in one.at.undecided if option not in one.at.slower_alone]) for one in still]
    rivals = [(one, several) for one, several in rivals if several]
    if rivals:
        where = _at(question, still, [one.at.size for one, _ in rivals])
        named = _named(question, rivals, where) if len({one.option for one in still}) == 1 else ""
        bound = at_most([one.at.undecided[option] for one, several in rivals for option in several])
        parts.append(f"{named or _counted(question, rivals, where)}{bound}")
    return parts


def at_most(possible: Sequence[Comparison]) -> str:
    """`, at most 10.1 % slower`: what the intervals of all leave possible; empty where that is unknown or very much."""
    intervals = [one.ratio.interval if one.ratio else None for one in possible]
    largest = max((high for _, high in filter(None, intervals)), default=0.0)
    if None in intervals or not 1 < largest <= MOST_SLOWER:
        return ""
    return f", at most {(largest - 1) * 100:.1f} % slower"


def unestablished(question: Question, still: Sequence[Chosen]) -> list[str]:
    """Options that are slower by their own intervals, but not by the test of all comparisons together."""
    found = [(option, comparison, one.at.size) for one in still for option, comparison in one.at.slower_alone.items()]
    if not found:
        return []
    names = list(dict.fromkeys(question.name(option) for option, *_ in found))
    where = _at(question, still, [size for *_, size in found])
    who = " and ".join(names) if len(names) <= _MOST_NAMED else f"{len(names)} options"
    own = "its own interval" if len(names) == 1 else "their own intervals"
    return [f"slower by {own}, but not established: {who}{where}{at_most([one for _, one, _ in found])}"]


def what_decides(question: Question, still: Sequence[Chosen]) -> list[str]:
    comparisons = [comparison for one in still for comparison in one.at.undecided.values()]
    return [tells_in_brief(comparisons)] if comparisons else []


def in_numbers(advice: Advice) -> list[str]:
    """How many comparisons are undecided, how close those are that are slower by themselves, and what would tell.

    Nothing where the answer has said it all.
    """
    found = [comparison for one in advice.sizes for comparison in one.undecided.values()]
    alone = [comparison for one in advice.sizes for comparison in one.slower_alone.values()]
    if not found or (not alone and what_tells(found) == tells_in_brief(found)):
        return []
    number = counted(len(found), "comparison with the fastest is", "comparisons with the fastest are")
    which = "slower by its own interval" if len(alone) == 1 else "slower by their own intervals"
    own = f"; {which}: {len(alone)}, {p_adjusted(alone)}" if alone else ""
    tells = what_tells(found)
    return [f"{number} undecided{own}. {tells[:1].upper()}{tells[1:]}."]


def gaps(question: Question, still: Sequence[Chosen]) -> list[str]:
    """Options that nothing says are worse, and that were not compared."""
    listed: dict[str, list[int]] = {}
    for one in still:
        for other, gap in one.at.unknown.items():
            if gap.open and other not in one.at.undecided and one.sure != "alone":
                listed.setdefault(question.name(other), []).append(one.at.size)
    names = [f"{name}{at(question, *sizes)}" for name, sizes in listed.items()]
    return [f"not compared: {some(names, 2)}"] if names else []


def _named(question: Question, rivals: Sequence[tuple[Chosen, list[Option]]], where: str) -> str:
    """`host and mpich may be as fast at 8`, where these are few; empty where they are many."""
    names = sorted({question.name(option) for _, several in rivals for option in several})
    if len(names) > _MOST_NAMED:
        return ""
    return f"{' and '.join(names)} may be as fast{where}"


def _counted(question: Question, rivals: Sequence[tuple[Chosen, list[Option]]], where: str) -> str:
    """`7 of 17 others at 8, 9 at 64K may be as fast`; of many sizes the most."""
    counts = {one.at.size: len(several) for one, several in rivals}
    of = max(len(one.at.others) for one, _ in rivals)
    most = max(counts.values())
    if len(rivals) > _MOST_SIZES or len(set(counts.values())) == 1:
        upto = "up to " if len(set(counts.values())) > 1 else ""
        return f"{upto}{most} of {counted(of, 'other')} may be as fast{where}"
    listed = [f"{count} of {counted(of, 'other')}{at(question, size)}" if not number else
              f"{count} at {format_size(size)}" for number, (size, count) in enumerate(counts.items())]  # fmt: skip
    return f"{', '.join(listed)} may be as fast"


def _at(question: Question, still: Sequence[Chosen], sizes: Sequence[int]) -> str:
    """The sizes, or nothing where they are all that is undecided, which is said before."""
    return at(question, *sizes) if {one.at.size for one in still} - set(sizes) else ""
