"""What a gate answers: a sentence, a table, Markdown for a comment, JUnit XML, and JSON."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple
from xml.etree import ElementTree

from msgspec import to_builtins

from collbench.analysis.compare import Comparison, Reason
from collbench.analysis.estimate import Estimate
from collbench.analysis.gate import Answer, Cause, Doubt, Judgement
from collbench.analysis.results import Cell, grouped
from collbench.errors import in_one_line
from collbench.report.caveats import LATE, flaw_text
from collbench.report.cells import entry
from collbench.report.headings import apart, heading, size_text, used_drivers
from collbench.report.numbers import change, difference_text
from collbench.report.tables import INTERVAL, Table, in_columns_of, more
from collbench.report.verdict import reason, remarks, remedy, sha256_text, slow_text
from collbench.schema.case import names_in
from collbench.schema.plan import Side
from collbench.schema.record import UNREAD
from collbench.schema.store import Margins
from collbench.units import counted, format_duration, format_size

#: Rows without `--all`: of what is lost or not answered, and of the rest.
MOST_ROWS, NEAREST = 16, 5

#: Cells that the sentence names, and characters of a name, of a reason in the sentence or a row, and of one below them.
NAMED, LONGEST_NAME, LONGEST_REASON, LONGEST_LINE = 2, 60, 120, 600

#: Reasons below the table, each with how many cells have it.
MOST_REASONS = 5


class AnswerNames(NamedTuple):
    """By answer what is measured, without what is `shared`; of one size equal names get numbers."""

    cells: dict[int, str]
    shared: str

    def of(self, answer: Answer) -> str:
        """`allreduce 64K`, in one piece."""
        return f"{self.cells[id(answer)]} {size_text(answer.base)}".strip()


def margins_text(margins: Margins) -> str:
    """`20 % up to 1M, 10 % up to 64M, 5 % above`; of one alone `2 %`."""
    *limited, last = margins
    parts = [f"{margin.share * 100:g} % up to {format_size(margin.largest or 0)}" for margin in limited]
    return ", ".join((*parts, f"{last.share * 100:g} %{' above' if limited else ''}"))


def names_of(answers: Sequence[Answer]) -> AnswerNames:
    """The names of all planned cells."""
    named, shared = apart([_parts(answer) for answer in answers])
    cells = {id(answer): ", ".join(words) or answer.base.workload for words, answer in zip(named, answers, strict=True)}
    for same in grouped(((cells[id(answer)], size_text(answer.base)), id(answer)) for answer in answers).values():
        if len(same) > 1:
            cells |= {key: f"{cells[key]} ({number})" for number, key in enumerate(same, 1)}
    return AnswerNames(cells, ", ".join(shared))


def _parts(answer: Answer) -> list[str]:
    """What is measured on both sides, and where, without what they differ in."""
    case = answer.base.without([name for name in names_in((answer.base, answer.other))
                                if answer.base[name] != answer.other[name]])  # fmt: skip
    place = "" if case.where.on_host else case.where.text
    cells = (answer.comparison.pair.base, answer.comparison.pair.other) if answer.comparison else ()
    return [part for part in (*heading(case, used_drivers(cells)).split(", "), case.where.image or "", place) if part]


def side_title(side: Side) -> str:
    """`image=openmpi=new, env=A=1, lib=/build/libmpi.so`: as it is typed."""
    words = [f"image={name}={image}" for name, image in side.images.items()]
    words += [f"env={name}={value}" for name, value in side.variables.items()]
    words += [f"lib={path}" for path in side.libraries] + [f"preload={path}" for path in side.preload]
    return ", ".join(words) or "the plan as it stands"


# Why there is no answer.


def cause_text(cause: Cause) -> str:
    """`the sides differ in more than was asked: kernel: Linux 6.1 against 6.6`."""
    return _words(cause.kind, cause.values)


def doubt_text(doubt: Doubt) -> str:
    """`other: 9 of 10 launches`, with a remedy where there is one."""
    remedies = (remedy(value) for value in doubt.values if isinstance(value, Reason))
    return _words(doubt.name, doubt.values) + "".join(remedies)


def _words(kind: str, values: Sequence[Any]) -> str:
    words = WORDS[kind]
    return words.format(*values) if isinstance(words, str) else words(*values)


def _other_loaded(side: str, loaded: str, sha256: str, path: str, wanted: str, preloaded: bool) -> str:
    why = f"its place is fixed in the program, or it has another name there. preload={path} puts it before all others"
    if sha256 == UNREAD:
        why = "that file was removed or replaced since. Leave it in place until the gate has ended"
    elif preloaded:
        why = f"it was preloaded, but the dynamic linker did not take it. ldd {path} may say why"
    return f"{side}: its ranks loaded {loaded} ({sha256_text(sha256)}), not {path} ({sha256_text(wanted)}): {why}"


def _share(number: int, launches: int) -> str:
    return f"{number} of {counted(launches, 'launch', 'launches')}"


def _first(*reasons: str) -> str:
    others = f" (and {counted(len(reasons) - 1, 'other reason')})" if len(reasons) > 1 else ""
    return f"{reasons[0] if reasons else 'no reason'}{others}"


def _few(used: Reason | int, lacking: int = 0, contended: int = 0, left_out: int = 0) -> str:
    if isinstance(used, Reason):
        return reason(used)
    lost = {"contended": contended, "measured differently from their partners": left_out}
    why = "".join(f" ({number} {what})" for what, number in lost.items() if number)
    return f"{used} blocks have both sides{why}, and {counted(lacking, 'more', 'more')} are needed"


_MORE = "the sides differ in more than was asked"

#: By kind of a cause, and by name of a doubt, from their values.
WORDS: dict[str, str | Callable[..., str]] = {
    "differs": f"{_MORE}: {{}}: {{}}",
    "file differs": lambda name, path, sha256, other, of_other: (
        f"{_MORE}: {name}: file {path} ({sha256_text(sha256)}) against {other} ({sha256_text(of_other)})"
    ),
    "flaw": flaw_text,
    "not told": "{}: its ranks do not tell which {} they loaded; build the image again with this collbench",
    "none loaded": "{}: its ranks loaded no {}, so {} made no difference: name a library that they load",
    "other loaded": _other_loaded,
    "plan": "both sides are the plan as it stands: whatever differs is chance",
    "same image": "both sides have the same image, {}",
    "asked": "both sides are asked for the same",
    "same file": lambda name, *known: f"both sides loaded the same file: {name} with sha256 {', '.join(known)}",
    "no file": "no rank of either side loaded {}",
    "unread file": "whether both sides loaded the same {} is not known: a file was removed or replaced since",
    "not verified": cause_text,
    "broken": lambda side, number, launches, *reasons: (
        f"fails on the {side} side only, in {_share(number, launches)}: {_first(*reasons)}"
    ),
    "failed": lambda side, number, launches, *reasons: (
        f"{side}: failed in {_share(number, launches)}: {_first(*reasons)}"
    ),
    "missing": lambda side=None: f"{side}: no record of it" if side else "not measured",
    "skipped": lambda side, *reasons: f"{side}: {_first(*reasons)}",
    "not comparable": reason,
    "results differ": "{} comes out differently",
    "unchecked": "the results of the other side were not checked",
    "incomplete": "{}: {} of {} launches",
    "too few launches": _few,
    "undecided": reason,
    "slow at times": slow_text,
    "contended": "{}: tasks waited for a CPU in {} of {} launches",
    "oversubscribed": "{}: more ranks than processors",
    "shared GPU": "{}: ranks share a GPU",
    "late": "{}: {} of {} samples were late",
    "drift": "launches depend on those before them",
}


def sentence(judgement: Judgement, names: AnswerNames, quote: Callable[[str], str] = str) -> str:
    """`FAIL 2 of 28 cells slower by more than 5 %: allreduce 64K +12 % (+9 to +15 %), ...; 26 pass`.

    Texts of programs and users are shortened, and passed through `quote`.
    """
    losses, passed, open_, broken = (judgement.of(state) for state in ("loss", "no loss", "no answer", "broken"))
    total = len(judgement.answers)
    margin = "their margins" if len(judgement.margins) > 1 else margins_text(judgement.margins)

    def of(some: Sequence[Answer]) -> str:
        return f"{len(some)} of {counted(total, 'cell')}"

    fails = [f"{of(broken)} broken: {quote(shortened(_cause(broken[0]), LONGEST_REASON))}"] if broken else []
    if losses:
        named = (
            f"{quote(shortened(names.of(answer), LONGEST_NAME))} {shown_difference(answer)}"
            for answer in losses[:NAMED]
        )
        listed = " and ".join((", ".join(named), *more(len(losses) - NAMED, "more")))
        fails.append(f"{of(losses)} slower by more than {margin}: {listed}")
    rest = [f"{len(passed)} pass"] if passed else []
    if judgement.unfinished is not None:
        return f"NO ANSWER {'; '.join([_interrupted(judgement, quote), *fails, *rest])}"
    if fails:
        open_now = [f"{len(open_)} without an answer"] if open_ else []
        return f"FAIL {'; '.join([*fails, *rest, *open_now])}"
    if open_:
        return f"NO ANSWER {'; '.join([f'{of(open_)}: {_reasons(open_, quote)}', *rest])}"
    limited = "".join(f"; {limit}" for limit in limits(passed))
    same = "; both sides are equal, so this tests the gate alone" if judgement.alike else ""
    return f"PASS {of(passed)}: no slowdown above {margin} {_largest(passed, names, quote)}{limited}{same}"


def _interrupted(judgement: Judgement, quote: Callable[[str], str]) -> str:
    """`interrupted after 8 of at most 30 blocks; go on with --resume DIR`."""
    early = judgement.unfinished
    assert early is not None
    most = f"{'at most ' * early.until_decided}{counted(early.most, 'block')}"
    resumed = quote(f"--resume {shlex.quote(in_one_line(judgement.folder))}")
    return f"interrupted after {early.blocks} of {most}; go on with {resumed}"


def _reasons(answers: Sequence[Answer], quote: Callable[[str], str]) -> str:
    """`2 contended, 1 failed; about 16 more launches would decide`; in words where all have the same reason."""
    if len({why(answer) for answer in answers}) == 1:
        return quote(shortened(why(answers[0]), LONGEST_REASON))
    counts = Counter(answer.doubt.name for answer in answers if answer.doubt is not None)
    few = [answer.comparison for answer in answers if answer.doubt and answer.doubt.name == "too few launches"]
    most = max((comparison.launches_more or 0 for comparison in few if comparison is not None), default=0)
    which = "" if len(few) == len(answers) else f" {len(few)} of them"
    lacking = f"; about {counted(most, 'more launch', 'more launches')} would decide{which}" if most else ""
    return f"{', '.join(f'{number} {name}' for name, number in counts.items())}{lacking}"


def _largest(passed: Sequence[Answer], names: AnswerNames, quote: Callable[[str], str]) -> str:
    """`(at most +3.1 %, allreduce 64K)`: the largest loss that is possible; `(at least 3.1 % faster)` where none is."""
    worst = max(passed, key=upper)
    if upper(worst) < 1:
        return f"({'each ' * (len(passed) > 1)}at least {change(upper(worst)).removeprefix('-')} faster)"
    name = f", {quote(shortened(names.of(worst), LONGEST_NAME))}" if len(passed) > 1 else ""
    return f"(at most {change(upper(worst))}{name})"


def _cause(answer: Answer) -> str:
    """`fails on the other side only, in 10 of 10 launches: it hangs`."""
    return "" if answer.doubt is None else _words(answer.doubt.name, answer.doubt.values)


def why(answer: Answer) -> str:
    """`broken: fails on the other side only, in 10 of 10 launches: it hangs`; empty where there is an answer."""
    return "" if answer.doubt is None else f"{answer.doubt.name}: {_cause(answer)}"


def shown_difference(answer: Answer) -> str:
    """`+12 % (+10 to +15 %)`; `+12 % by medians` of what is not comparable; empty without both times."""
    if answer.ratio:
        return difference_text(answer.ratio)
    base, other = (answer.comparison.base, answer.comparison.other) if answer.comparison else (None, None)
    if base is None or other is None or base.value <= 0:
        return ""
    return f"{change(other.value / base.value)} by medians"


def upper(answer: Answer) -> float:
    """The upper end of the interval of the other side's time over the base's; 0 where there is none."""
    ratio = answer.ratio
    return 0.0 if ratio is None or ratio.interval is None else ratio.interval[1]


#: By what it is called, whether it holds for a side of a cell. A tenth of samples, or of launches, is worth a word.
_LIMITS: dict[str, Callable[[Cell], bool]] = {
    "results not checked": lambda cell: cell.unchecked > 0,
    "late samples": lambda cell: cell.late > LATE * cell.samples,
    "tasks waited for a CPU": lambda cell: len(cell.contended) > LATE * len(cell.medians),
    "more ranks than cores": lambda cell: cell.oversubscribed > 0,
    "a shared GPU": lambda cell: cell.shared_gpu > 0,
    "a throttled GPU": lambda cell: bool(cell.slowed),
}


def limits(answers: Sequence[Answer]) -> list[str]:
    """`results not checked`, `late samples in 3 of them`: each that holds for a side of any of these cells."""
    pairs = [answer.comparison.pair for answer in answers if answer.comparison is not None]
    numbers = {name: sum(holds(pair.base) or holds(pair.other) for pair in pairs) for name, holds in _LIMITS.items()}
    return [f"{name}{f' in {number} of them' * (number < len(answers))}" for name, number in numbers.items() if number]


def tables(judgement: Judgement, names: AnswerNames, every: bool = False, complete: bool = False) -> list[Table]:
    """The sentence, a table of cells, and below it what must be known; `complete` for programs, with each reason."""
    ordered = in_order(judgement)
    grave = [answer for answer in ordered if answer.state != "no loss"]
    shown = ordered if every else grave[:MOST_ROWS] if grave else ordered[:NEAREST]
    difference: dict[str, Callable[[Answer], str]] = {"difference": shown_difference}
    if complete:
        difference = {"difference (%)": lambda answer: "".join(_percents(answer)[:1]),
                      f"difference{INTERVAL}": lambda answer: " .. ".join(_percents(answer)[1:])}  # fmt: skip
    columns = in_columns_of(shown, {
        "answer": lambda answer: answer.state, "what": lambda answer: names.cells[id(answer)],
        "size (B)": lambda answer: size_text(answer.base), **difference,
        "base": lambda answer: _time(answer, "base"), "other": lambda answer: _time(answer, "other"),
        **({"why": why} if complete else {}),
    })  # fmt: skip
    left_out = [f"every cell: --all ({len(ordered) - len(shown)} more)"] * (len(ordered) > len(shown))
    lines = [*_reason_lines(judgement), *notes(judgement), *left_out]
    return [Table(sentence(judgement, names), (), ()), Table.of(names.shared, columns, lines)]


def _percents(answer: Answer) -> list[str]:
    ratio = answer.ratio
    return [f"{(value - 1) * 100:+.2f}" for value in (ratio.value, *(ratio.interval or ()))] if ratio else []


def _time(answer: Answer, side: str) -> str:
    time: Estimate | None = getattr(answer.comparison, side, None)
    return format_duration(time.value) if time else ""


def _reason_lines(judgement: Judgement) -> list[str]:
    """Each reason once, with the number of its cells; none that the sentence has in whole."""
    reasons = Counter(why(answer) for answer in in_order(judgement) if answer.doubt is not None)
    if len(reasons) == 1 and len(next(iter(reasons))) <= LONGEST_REASON:
        return []
    lines = [f"{shortened(reason, LONGEST_LINE)}{f' ({number} cells)' if number > 1 else ''}"
             for reason, number in reasons.items()]  # fmt: skip
    return lines[:MOST_REASONS] + more(len(lines) - MOST_REASONS, "more reasons: gate.json")


def in_order(judgement: Judgement) -> list[Answer]:
    """Every planned cell: what is broken, losses, what is not answered, and no losses, those nearest to one first."""
    passed = sorted(judgement.of("no loss"), key=lambda answer: -upper(answer))
    return [*judgement.of("broken"), *judgement.of("loss"), *judgement.of("no answer"), *passed]


def notes(judgement: Judgement) -> list[str]:
    """What the sides are, what was accepted, and what could mislead; each line once."""
    compared = [answer.comparison for answer in judgement.answers if answer.comparison is not None]
    lines = [
        "; ".join(f"{side.name}: {side_title(side.overrides)}" for side in judgement.sides),
        "; ".join(() if judgement.of("broken") else map(cause_text, judgement.alike)),
    ]
    lines += [_launches(compared)] if compared else []
    lines += [f"margins: {margins_text(judgement.margins)}"] if len(judgement.margins) > 1 else []
    lines += [f"accepted: {', '.join(judgement.accepted)}"] if judgement.accepted else []
    lines += map(cause_text, judgement.refused)
    return list(dict.fromkeys((*filter(None, lines), *(remarks(compared) if compared else ()))))


def _launches(compared: Sequence[Comparison]) -> str:
    """`14 launches a side`, or `6 to 14`; and what bounds are."""
    numbers = [min(comparison.launches) for comparison in compared]
    number = " to ".join(dict.fromkeys(map(str, (min(numbers), max(numbers)))))
    return f"{number} launches a side; at most 1 gate in 20 names a false loss, and 1 cell in 20 passes falsely"


def document(judgement: Judgement, names: AnswerNames) -> dict[str, Any]:
    """`cells` has every planned cell, in the plan's order; the counts of the four answers add up to `planned`."""
    counts = Counter(answer.state for answer in judgement.answers)
    return {
        "answer": sentence(judgement, names), "exit_code": judgement.code,
        "unfinished": to_builtins(judgement.unfinished), "margins": to_builtins(judgement.margins),
        "plan": judgement.plan.plan,
        **{side.name: {**to_builtins(side.overrides), "files": dict(side.files)} for side in judgement.sides},
        "planned": len(judgement.answers), "broken": counts["broken"], "lost": counts["loss"],
        "no_loss": counts["no loss"], "not_answered": counts["no answer"],
        "accepted": list(judgement.accepted), "differences": list(judgement.differences),
        "refused": list(map(cause_text, judgement.refused)), "notes": notes(judgement),
        "cells": [
            {"name": names.of(answer), "answer": answer.state, "reason": answer.doubt and answer.doubt.name,
             "why": answer.doubt and doubt_text(answer.doubt), "base": to_builtins(answer.base),
             "other": to_builtins(answer.other), "comparison": answer.comparison and entry(answer.comparison)}
            for answer in judgement.answers
        ],
    }  # fmt: skip


def junit(judgement: Judgement, names: AnswerNames) -> bytes:
    """The document: losses and broken cells are failures, others without an answer errors; times (s) of all samples."""
    seconds: dict[int, float] = {}  # for how long cells were measured on both sides: samples, times their mean
    for answer in judgement.answers:
        cells = [answer.comparison.pair.base, answer.comparison.pair.other] if answer.comparison else []
        seconds[id(answer)] = sum(cell.samples * sum(cell.means) / len(cell.means) for cell in cells if cell.means)
    numbers = {"tests": len(judgement.answers), "failures": len(judgement.of("loss")) + len(judgement.of("broken")),
               "errors": len(judgement.of("no answer")), "skipped": 0}  # fmt: skip
    attributes = {"name": "collbench gate", **{name: str(number) for name, number in numbers.items()},
                  "time": f"{sum(seconds.values()):.6f}"}  # fmt: skip
    root = ElementTree.Element("testsuites", attributes)
    suite = ElementTree.SubElement(root, "testsuite", {**attributes, **_timestamp(judgement.began)})
    for answer in judgement.answers:
        where = {"classname": _text(names.shared or "collbench"), "name": _text(names.of(answer))}
        taken = {"time": f"{seconds[id(answer)]:.6f}"}
        _outcome(ElementTree.SubElement(suite, "testcase", where | taken), answer)
    ElementTree.SubElement(suite, "system-out").text = _text(sentence(judgement, names))
    ElementTree.indent(root)
    written: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return written + b"\n"


def _timestamp(began: str) -> dict[str, str]:
    """In UTC without an offset, which the schema of JUnit's reports does not have; none where it is not a time."""
    try:
        moment = datetime.fromisoformat(began)
    except ValueError:
        return {}
    moment = moment.astimezone(UTC) if moment.tzinfo else moment
    return {"timestamp": moment.replace(tzinfo=None).isoformat(timespec="seconds")}


def _outcome(case: ElementTree.Element, answer: Answer) -> None:
    if answer.state == "loss":
        message = f"{shown_difference(answer)} slower, beyond the margin of {answer.margin * 100:g} %"
        ElementTree.SubElement(case, "failure", {"type": "loss", "message": _text(message)})
    elif answer.doubt is not None:
        words = doubt_text(answer.doubt)
        attributes = {"type": _text(answer.doubt.name), "message": _text(shortened(words, LONGEST_REASON))}
        error = ElementTree.SubElement(case, "failure" if answer.state == "broken" else "error", attributes)
        error.text = _text(words) if len(words) > LONGEST_REASON else None
    else:
        ElementTree.SubElement(case, "system-out").text = _text(shown_difference(answer))


#: What XML 1.0 cannot hold, after control characters are escaped.
_NO_XML = re.compile("[\ud800-\udfff\ufffe\uffff]")


def _text(text: str) -> str:
    return _NO_XML.sub(lambda match: f"\\u{ord(match[0]):04x}", in_one_line(text))


# Markdown, in which texts of programs and users are no markup.


#: Words and numbers with plain punctuation, in which GitHub and GitLab see no reference to anything.
_PLAIN = re.compile(r"(?:[A-Za-z]++(?![0-9])|(?<![\w-])[+-]?[0-9]++(?:\.[0-9]++)?(?!\w)|[ ,;()]|%(?!\w)|: |\.\. )*:?")


def shortened(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 4].rstrip()} ..."


def quoted(text: str) -> str:
    """In one line; in a code span unless it is plain words and numbers."""
    text = " ".join(text.split())
    if _PLAIN.fullmatch(text):
        return text
    fence = "`" * (1 + _longest_run(text))
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{space}{text}{space}{fence}"


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)


#: Characters of a reason in full, and most of these: GitHub takes 65,536 characters in all, and counts some of them
#: twice.
_LONGEST_WHY, _MOST_WHYS = 5_000, 3

_HEADINGS = {"broken": "Broken", "loss": "Losses", "no answer": "Not answered", "no loss": "No loss"}


def markdown(judgement: Judgement, names: AnswerNames) -> str:
    """The sentence, the first cells by their answers, notes, and how many cells were planned."""
    text = f"**{sentence(judgement, names, quoted)}**\n"
    text += f"\n{quoted(shortened(names.shared, 2 * LONGEST_NAME))}\n" if names.shared else ""
    ordered = in_order(judgement)
    for state, title in _HEADINGS.items():
        group = [answer for answer in ordered if answer.state == state]
        text += _section(title, group, names, state == "no loss") if group else ""
    long = list(dict.fromkeys(reason for answer in ordered if len(reason := why(answer)) > LONGEST_REASON))
    whys = []
    for reason in (shortened(reason, _LONGEST_WHY) for reason in long[:_MOST_WHYS]):
        fence = "`" * max(3, 1 + _longest_run(reason))
        whys.append(f"{fence}text\n{reason}\n{fence}\n")
    text += _folded("Reasons in full", "\n".join(whys)) if whys else ""
    lines = [quoted(shortened(line, LONGEST_LINE)) for line in notes(judgement)[:7]]
    counts = Counter(answer.state for answer in judgement.answers)
    broken = f"{counts['broken']} broken, " if counts["broken"] else ""
    lines.append(f"{len(judgement.answers)} cells planned: {broken}{counts['loss']} lost, {counts['no loss']} without "
                 f"a loss, {counts['no answer']} not answered; exit code {judgement.code}")  # fmt: skip
    return f"{text}\n" + "".join(f"- {line}\n" for line in lines)


def _section(title: str, group: Sequence[Answer], names: AnswerNames, folded: bool) -> str:
    shown = f", of which {MOST_ROWS} are shown" if len(group) > MOST_ROWS else ""
    lines = [("what", "size (B)", "difference", "base", "other", "why"), ("---", *["---:"] * 4, "---")]
    for answer in group[:MOST_ROWS]:
        # Cells are told apart before code spans are, by bars without a backslash.
        name, reason = (
            quoted(shortened(text, longest).replace("\\|", "\\ |")).replace("|", "\\|")
            for text, longest in ((names.cells[id(answer)], 2 * LONGEST_NAME), (why(answer), LONGEST_REASON))
        )
        times = (_time(answer, side) for side in ("base", "other"))
        lines.append((name, size_text(answer.base), shown_difference(answer), *times, reason))
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    summary = f"{title}: {len(group)}{shown}"
    return _folded(summary, table) if folded else f"\n### {summary}\n\n{table}"


def _folded(summary: str, text: str) -> str:
    return f"\n<details><summary>{summary}</summary>\n\n{text}\n</details>\n"
