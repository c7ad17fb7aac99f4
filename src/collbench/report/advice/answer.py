"""Advice in one breath: at most three lines for an operation: what to take, what else costs, how sure that is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from collbench.analysis.advise import Advice, AtSize
from collbench.analysis.compare import Comparison
from collbench.analysis.options import Option, Question
from collbench.report.advice.evidence import open_at
from collbench.report.advice.sentences import Advised, most_isolated, some, without_answer
from collbench.report.advice.sizes import at, at_some
from collbench.report.cells import digits, times

#: More ranges, or other libraries, than these are counted.
MOST_RANGES, MOST_LIBRARIES = 4, 2

#: Of so few options, those that may be as fast are named where it is said how sure the choice is, and not before.
FEW = 3

#: Verdicts by which two options are equally fast.
EQUAL = ("same", "negligible")

Choice = Callable[[Option], bool]


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
    """`Take openmpi, multi ipc at 8 to 4K; mpich, host at 8K to 1M`: an option for each range."""
    question = advice.question
    parts = [f"{question.name(of.option)}{at(question, *(one.size for one in of.sizes))}" for of in advice.ranges]
    return f"Take {some(parts, MOST_RANGES)}."


def _costs(advice: Advice) -> str:
    """What the most isolated option costs, and the fastest of each other library; else the next best."""
    question = advice.question
    said = []
    isolated = _most_isolated(advice)
    if isolated:
        said.append(_price(advice, *isolated))
    taken = {of.option["library"] for of in advice.ranges}
    libraries = dict.fromkeys(option["library"] for option in question.options if option["library"] not in taken)
    said += [_price(advice, name, _of_library(name)) for name in list(filter(None, libraries))[:MOST_LIBRARIES]]
    if not said:
        said += [_price(advice, question.name(option), option.__eq__) for option in _next_best(advice)]
    bare = len(question.options) <= FEW and all(price.endswith((": open", ": as fast")) for price in said)
    return "" if bare or not said else f"Instead {'; '.join(said)}."


def _of_library(name: str) -> Choice:
    return lambda option: option["library"] == name


def _most_isolated(advice: Advice) -> tuple[str, Choice] | None:
    """Options of the highest isolation of all, whatever the library; None where one of them is taken everywhere."""
    orders = {option.isolation_order for option in advice.question.options}
    highest = max(orders)
    if len(orders) < 2 or all(of.option.isolation_order == highest for of in advice.ranges):
        return None
    found = [option for of in advice.ranges if (option := most_isolated(of)) and option.isolation_order == highest]
    if not found:
        return None
    return advice.question.place(found[-1]), lambda option: option.isolation_order == highest


def _next_best(advice: Advice) -> list[Option]:
    """The option with the lowest cost where it costs most, of those that were compared and are not taken."""
    worst: dict[Option, float] = {}
    for one in advice.sizes:
        for option, comparison in one.others.items():
            if comparison.ratio is not None:
                worst[option] = max(worst.get(option, 0.0), comparison.ratio.value)
    taken = {of.option for of in advice.ranges} if len(advice.ranges) == 1 else set()
    left = [option for option in worst if option not in taken]
    return [min(left, key=lambda option: (worst[option], option))] if left else []


def _price(advice: Advice, name: str, choice: Choice) -> str:
    """`single strict: 1.87x to 41.9x (34.9 .. 59.7) the time at 8, 64K, most at 8, open at 1M`."""
    question = advice.question
    found = [(_state(one, of.option, choice), one) for of in advice.ranges for one in of.sizes]
    slower = [(comparison, one.size) for (state, comparison), one in found if state == "slower" and comparison]
    parts = [_slower(question, slower, len(slower) == len(found))] if slower else []
    for state in ("taken", "as fast", "open", "not compared"):
        sizes = [one.size for (known, _), one in found if known == state]
        if sizes:
            parts.append(f"{state}{at_some(question, *sizes)}")
    return f"{name}: {', '.join(parts)}"


def _state(one: AtSize, taken: Option, choice: Choice) -> tuple[str, Comparison | None]:
    """Of the options of a choice the least that is known against any, with the comparison of the cheapest."""
    if choice(taken):
        return "taken", None
    if choice(one.best):  # and yet another one is taken: what is known of both decides
        known = one.others.get(taken)
        return ("as fast" if known is not None and known.verdict in EQUAL else "open"), None
    options = [other for option, other in one.others.items() if choice(option) and other.ratio is not None]
    if not options:
        return "not compared", None
    verdicts = {other.verdict for other in options}
    if verdicts & {*EQUAL, "faster"}:
        return "as fast", None
    if "inconclusive" in verdicts:
        return "open", None
    return "slower", min(options, key=_ratio)


def _ratio(comparison: Comparison) -> float:
    return comparison.ratio.value if comparison.ratio is not None else 1.0


def _slower(question: Question, slower: Sequence[tuple[Comparison, int]], everywhere: bool) -> str:
    """The cost at the only size, or from the least to the most."""
    worst, size = max(slower, key=lambda pair: _ratio(pair[0]))
    assert worst.ratio is not None
    if len(slower) == 1:
        return f"{times(worst.ratio)} the time{at_some(question, size)}"
    least = min(map(_ratio, (comparison for comparison, _ in slower)))
    where = "" if everywhere else at(question, *(size for _, size in slower))
    return f"{digits(least)}x to {times(worst.ratio)} the time{where}, most{at(question, size)}"


def _how_sure(advice: Advice) -> str:
    """At which sizes it is decided, at which something is as fast, what is open, and what would decide it."""
    question = advice.question
    known = [(one.sure(of.option), of.option, one) for of in advice.ranges for one in of.sizes]
    sizes = {state: [one.size for found, _, one in known if found == state] for state in ("sure", "tied", "alone")}
    parts = []
    if sizes["sure"]:
        parts.append(f"every other option is slower{at_some(question, *sizes['sure'])}")
    if sizes["tied"]:
        rivals = _rivals(question, ((one.equal - {option}) for state, option, one in known if state == "tied"))
        parts.append(f"{rivals} as fast{at_some(question, *sizes['tied'])}")
    if sizes["alone"]:
        parts.append(f"nothing was compared with it{at_some(question, *sizes['alone'])}")
    parts += open_at(advice, [(option, one) for state, option, one in known if state == "undecided"])
    some_sure = bool(sizes["sure"] or sizes["tied"])
    all_sure = len(sizes["sure"]) + len(sizes["tied"]) == len(known)
    return f"{'Sure' if all_sure else 'How sure' if some_sure else 'Not sure'}: {'; '.join(parts)}."


def _rivals(question: Question, sets: Iterable[set[Option]]) -> str:
    """`mpich, host is`, for what is said of them."""
    names = sorted({question.name(option) for of in sets for option in of})
    return f"{some(names, 2)} {'is' if len(names) == 1 else 'are'}"
