"""Advice in one breath: at most three lines for an operation: what to take, what else costs, how sure that is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from collbench.analysis.advise import Advice
from collbench.analysis.options import Option, Question
from collbench.report.advice.chosen import Chosen, chosen
from collbench.report.advice.evidence import gaps, undecided, unestablished, what_decides
from collbench.report.advice.phrases import some
from collbench.report.advice.price import Choice, price
from collbench.report.advice.sentences import Advised, without_answer
from collbench.report.advice.sizes import at, at_some

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
    """The condition of what is sure, where options were not measured in turns."""
    apart = any(not other.blocks for one in advice.sizes for other in one.others.values())
    return "unless the machine changed meanwhile (not measured in turns), " if apart else ""


def _more(question: Question, still: Sequence[Chosen]) -> list[str]:
    return [*unestablished(question, still), *gaps(question, still), *what_decides(question, still)]


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _rivals(question: Question, sets: Iterable[set[Option]]) -> str:
    """`mpich, host is`, for what is said of them."""
    names: Sequence[str] = sorted({question.name(option) for of in sets for option in of})
    return f"{some(names, 2)} {'is' if len(names) == 1 else 'are'}"
