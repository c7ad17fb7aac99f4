"""What a choice costs over the fastest option: at each size the least that is known against any option of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from collbench.analysis.advise import Advice, AtSize, slower_alone
from collbench.analysis.compare import Comparison
from collbench.analysis.options import Option, Question
from collbench.report.advice.chosen import Chosen, chosen
from collbench.report.advice.sizes import at, at_some
from collbench.report.cells import digits, times

#: Verdicts by which two options are equally fast.
EQUAL = ("same", "negligible")

Choice = Callable[[Option], bool]

State = Literal["taken", "fastest", "as fast", "undecided", "not compared", "slower"]

_WORDS = {"fastest": "the fastest measured"}


@dataclass(frozen=True)
class Price:
    """In words, and whether a number, or that it is as fast, is among them."""

    text: str
    decided: bool
    number: bool


def price(advice: Advice, name: str, choice: Choice) -> Price:
    """`single strict: 4.98x at 64K to 37.4x the time at 8, undecided at 1M`."""
    question = advice.question
    found = [(*_state(known, choice), known.at.size) for known in chosen(advice)]
    slower = [(comparison, size) for state, comparison, size in found if state == "slower" and comparison]
    parts = [_slower(question, slower)] if slower else []
    for state in ("taken", "fastest", "as fast", "undecided", "not compared"):
        sizes = [size for known, _, size in found if known == state]
        if sizes:
            parts.append(f"{_WORDS.get(state, state)}{at_some(question, *sizes)}")
    states = {state for state, *_ in found}
    return Price(f"{name}: {', '.join(parts)}", bool(states & {"slower", "as fast"}), "slower" in states)


def cheapest(one: AtSize, options: Iterable[Option]) -> tuple[State, Comparison | None]:
    """What is known of a choice with these options, none of them the best, and the comparison that says it.

    It is undecided where any of them may be as fast as the best, or where the cheapest is; without a comparison where
    one was not compared of which nothing says that it is worse, because that one may be the cheapest.
    """
    options = list(options)
    compared = [other for option in options if (other := one.others.get(option)) and other.ratio is not None]
    if not compared:
        return "not compared", None
    equal = [other for other in compared if other.verdict in (*EQUAL, "faster")]
    if equal:
        return "as fast", min(equal, key=_ratio)
    if any(gap.open for option in options if (gap := one.unknown.get(option))):
        return "undecided", None
    possible = [other for other in compared if other.verdict == "inconclusive" and not slower_alone(other)]
    least = min(possible or compared, key=_ratio)
    return ("undecided" if least.verdict == "inconclusive" else "slower"), least


def _state(known: Chosen, choice: Choice) -> tuple[State, Comparison | None]:
    if choice(known.option):
        return ("taken" if known.established else "fastest"), None
    if choice(known.at.best):  # and another one that is as fast is taken
        return "as fast", None
    return cheapest(known.at, filter(choice, (*known.at.others, *known.at.unknown)))


def _ratio(comparison: Comparison) -> float:
    return comparison.ratio.value if comparison.ratio is not None else 1.0


def _slower(question: Question, slower: Sequence[tuple[Comparison, int]]) -> str:
    """The cost at the only size, or from the least to the most, each with its size and without interval."""
    worst, size = max(slower, key=lambda pair: _ratio(pair[0]))
    assert worst.ratio is not None
    if len(slower) == 1:
        return f"{times(worst.ratio)} the time{at_some(question, size)}"
    least, where = min(slower, key=lambda pair: _ratio(pair[0]))
    return f"{digits(_ratio(least))}x{at(question, where)} to {digits(_ratio(worst))}x the time{at(question, size)}"
