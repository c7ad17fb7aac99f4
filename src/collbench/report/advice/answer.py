"""Advice in one breath: at most three lines for an operation: what to take, what else costs, how sure that is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from collbench.analysis.advise import Advice, AtSize, slower_alone
from collbench.analysis.compare import Comparison
from collbench.analysis.options import Option, Question
from collbench.report.advice.sentences import Advised, gaps, undecided, unestablished, what_decides, without_answer
from collbench.report.advice.sizes import Chosen, at, at_some, chosen, some
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


#: More ranges, or other libraries, than these are counted.
MOST_RANGES, MOST_LIBRARIES = 4, 2

#: Of so few options, those that may be as fast are named where it is said how sure the choice is, and not before.
FEW = 3


def answer(advised: Advised) -> list[str]:
    """One line where there is nothing to choose, else three; two where the second would say what the third says."""
    advice = advised.advice
    nothing = without_answer(advice)
    if nothing:
        return [nothing]
    return list(filter(None, (_take(advice), _costs(advice), _how_sure(advice))))


def headline(advised: Advised) -> str:
    """The answer in one line, behind the operation."""
    return f"{advised.title}: {' '.join(answer(advised))}"


def _take(advice: Advice) -> str:
    """`Take openmpi, multi ipc at 8 to 64K; undecided at 1M.`: an option for each range in which one is established."""
    question, known = advice.question, chosen(advice)
    parts = []
    for of in advice.ranges:
        sizes = [one.at.size for one in known if one.established and one.at in of.sizes]
        parts += [f"{question.name(of.option)}{at(question, *sizes)}"] if sizes else []
    still = [one for one in known if not one.established]
    if not parts:
        return _sentence(undecided(question, still))
    where = at(question, *(one.at.size for one in still))
    return f"Take {some(parts, MOST_RANGES)}{f'; undecided{where}' if still else ''}."


def _costs(advice: Advice) -> str:
    """What the most isolated option costs, and the fastest of each other library; else the next best."""
    question = advice.question
    told = {one.option for one in chosen(advice)}
    said = []
    isolated = _most_isolated(advice, told)
    if isolated:
        said.append(price(advice, *isolated))
    used = {option["library"] for option in told}
    libraries = dict.fromkeys(option["library"] for option in question.options if option["library"] not in used)
    said += [price(advice, name, _of_library(name)) for name in list(filter(None, libraries))[:MOST_LIBRARIES]]
    if not said:
        said += [price(advice, question.name(option), option.__eq__) for option in _next_best(advice, told)]
    taken = any(one.established for one in chosen(advice))
    known = [one.number if len(question.options) <= FEW else one.decided or taken for one in said]
    return f"{'Instead' if taken else 'Over the fastest,'} {'; '.join(one.text for one in said)}." if any(known) else ""


def _of_library(name: str) -> Choice:
    return lambda option: option["library"] == name


def _most_isolated(advice: Advice, told: set[Option]) -> tuple[str, Choice] | None:
    """Options of the highest isolation of all, whatever the library; None where one of them is told of everywhere."""
    orders = {option.isolation_order for option in advice.question.options}
    highest = max(orders)
    if len(orders) < 2 or all(option.isolation_order == highest for option in told):
        return None
    compared = {option for one in advice.sizes for option in (one.best, *one.others) if one.cost(option) is not None}
    found = [option for option in sorted(compared) if option.isolation_order == highest]
    if not found:
        return None
    return advice.question.place(found[-1]), lambda option: option.isolation_order == highest


def _next_best(advice: Advice, told: set[Option]) -> list[Option]:
    """The option with the lowest cost where it costs most, of those that were compared and are not taken."""
    worst: dict[Option, float] = {}
    for one in advice.sizes:
        for option, comparison in one.others.items():
            if comparison.ratio is not None:
                worst[option] = max(worst.get(option, 0.0), comparison.ratio.value)
    left = [option for option in worst if len(told) > 1 or option not in told]
    return [min(left, key=lambda option: (worst[option], option))] if left else []


def _how_sure(advice: Advice) -> str:
    """At which sizes it is decided, at which something is as fast, what is undecided, and what would decide it."""
    question, known = advice.question, chosen(advice)
    still = [one for one in known if not one.established]
    established = [one for one in known if one.established]
    if not established:
        return _sentence("; ".join(_more(question, still)))
    sure, tied = ([one for one in established if one.sure == state] for state in ("sure", "tied"))
    parts = []
    if sure:
        parts.append(f"every other option is slower{at_some(question, *(one.at.size for one in sure))}")
    if tied:
        rivals = _rivals(question, (one.at.equal - {one.option} for one in tied))
        parts.append(f"{rivals} as fast{at_some(question, *(one.at.size for one in tied))}")
    if still:
        parts += [undecided(question, still), *_more(question, still)]
    return f"{'How sure' if still else 'Sure'}: {_unless(advice)}{'; '.join(parts)}."


def _unless(advice: Advice) -> str:
    """The condition of what is sure, where options were not measured alternately."""
    apart = any(not other.blocks for one in advice.sizes for other in one.others.values())
    return "unless the machine changed meanwhile (not measured alternately), " if apart else ""


def _more(question: Question, still: Sequence[Chosen]) -> list[str]:
    return [*unestablished(question, still), *gaps(question, still), *what_decides(question, still)]


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _rivals(question: Question, sets: Iterable[set[Option]]) -> str:
    """`mpich, host is`, for what is said of them."""
    names: Sequence[str] = sorted({question.name(option) for of in sets for option in of})
    return f"{some(names, 2)} {'is' if len(names) == 1 else 'are'}"
