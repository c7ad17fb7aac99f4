"""The answer of a gate in a sentence."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from collbench.analysis.compare import needs
from collbench.analysis.gate import Answer, Judgement, ratio_of
from collbench.analysis.observations import Cell
from collbench.analysis.pairs import BARRIER
from collbench.characters import in_one_line
from collbench.report.cells import LATE
from collbench.report.comparison import difference
from collbench.report.headings import heading
from collbench.schema.case import Case, names_in
from collbench.schema.gate_plan import Margins
from collbench.schema.launch_plan import Side
from collbench.units import counted, format_size


class Names(NamedTuple):
    """By answer, in their order: what is measured, without what is `shared`, and the size; equal names get numbers."""

    cells: dict[int, str]
    sizes: dict[int, str]
    shared: str

    def of(self, answer: Answer) -> str:
        """`allreduce 64K`, in one piece."""
        return f"{self.cells[id(answer)]} {self.sizes[id(answer)]}".strip()


def margins_text(margins: Margins) -> str:
    """`20 % up to 1M, 10 % up to 64M, 5 % above`; of one alone `2 %`."""
    *limited, last = margins
    parts = [f"{one.share * 100:g} % up to {format_size(one.largest or 0)}" for one in limited]
    return ", ".join((*parts, f"{last.share * 100:g} %{' above' if limited else ''}"))


def names_of(answers: Sequence[Answer]) -> Names:
    """The names of all planned cells."""
    parts = [_parts(one) for one in answers]
    shared = [part for part in parts[0] if all(part in own for own in parts)] if parts else []
    labels = [", ".join(part for part in own if part not in shared) or own[0].split()[0] for own in parts]
    sizes = [_size(one.base) for one in answers]
    times, seen = Counter(zip(labels, sizes, strict=True)), Counter[tuple[str, str]]()
    for number, key in enumerate(zip(labels, sizes, strict=True)):
        seen[key] += 1
        if times[key] > 1:
            labels[number] += f" ({seen[key]})"
    keys = [id(one) for one in answers]
    return Names(dict(zip(keys, labels, strict=True)), dict(zip(keys, sizes, strict=True)), ", ".join(shared))


def _parts(answer: Answer) -> list[str]:
    case = common(answer)
    place = () if case.where.on_host else (case.where.text,)
    return [part for part in (*heading(case).split(", "), case.where.image or "", *place) if part]


def common(answer: Answer) -> Case:
    """What is measured on both sides, without what they differ in."""
    apart = [name for name in names_in((answer.base, answer.other)) if answer.base[name] != answer.other[name]]
    return answer.base.without(apart) if apart else answer.base


def _size(case: Case) -> str:
    return format_size(case["size"]) if "size" in case.what else ""


def side_title(side: Side) -> str:
    """`image=openmpi=new, env=A=1, lib=/build/libmpi.so`: as it is typed."""
    words = [f"image={name}={image}" for name, image in side.images.items()]
    words += [f"env={name}={value}" for name, value in side.variables.items()]
    words += [f"lib={path}" for path in side.libraries] + [f"preload={path}" for path in side.preload]
    return ", ".join(words) or "the plan as it stands"


#: Words and numbers with plain punctuation, in which GitHub and GitLab see no reference to anything.
_PLAIN = re.compile(r"(?:[A-Za-z]++(?![0-9])|(?<![\w-])[+-]?[0-9]++(?:\.[0-9]++)?(?!\w)|[ ,;()]|%(?!\w)|: |\.\. )*:?")


def shortened(text: str, longest: int) -> str:
    """The text, cut where it is longer than so many characters."""
    return text if len(text) <= longest else f"{text[: longest - 4].rstrip()} ..."


def quoted(text: str) -> str:
    """In one line; in a code span unless it is plain words and numbers."""
    text = " ".join(text.split())
    if _PLAIN.fullmatch(text):
        return text
    fence = "`" * (1 + _longest_run(text))
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{space}{text}{space}{fence}"


def quoted_in_table(text: str) -> str:
    """The same in a cell of a table: cells are told apart before code spans are, by bars without a backslash."""
    return quoted(text.replace("\\|", "\\ |")).replace("|", "\\|")


def block(text: str) -> str:
    """Lines of their own, as they are."""
    fence = "`" * max(3, 1 + _longest_run(text))
    return f"{fence}text\n{text}\n{fence}\n"


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)


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
    pairs = [one.comparison.pair for one in answers if one.comparison is not None]
    numbers = {name: sum(holds(pair.base) or holds(pair.other) for pair in pairs) for name, holds in _LIMITS.items()}
    return [
        name if number == len(answers) else f"{name} in {number} of them" for name, number in numbers.items() if number
    ]


#: Characters of the sentence, where what must be in it leaves room.
LONGEST_SENTENCE = 200

#: With these reasons a cell was measured, and it is of use to know what was.
_OPEN = ("not comparable", "too few launches", "undecided")


class _Form(NamedTuple):
    """How much is said: so many losses, so many characters of a text, the largest difference that is not answered.

    `quote` makes of a text of programs and users what is printed of it.
    """

    losses: int
    longest: int
    largest: bool
    quote: Callable[[str], str] = str

    def text(self, text: str) -> str:
        return self.quote(shortened(text, self.longest))


_FORMS = (_Form(3, 160, True), *(_Form(3, longest, False) for longest in (160, 130, 100, 80)),
          _Form(2, 60, False), _Form(1, 40, False))  # fmt: skip


def sentence(judgement: Judgement, names: Names, quote: Callable[[str], str] = str) -> str:
    """`gate: 2 losses beyond 2 % in 28 cells: allreduce 64K +12.3 % (+10.1 .. +14.9), ...; 26 without a loss`.

    As much as about `LONGEST_SENTENCE` characters hold. Texts of programs and users are passed through `quote`.
    """
    form = next((form for form in _FORMS if len(_said(judgement, names, form)) <= LONGEST_SENTENCE), _FORMS[-1])
    return _said(judgement, names, form._replace(quote=quote))


def _said(judgement: Judgement, names: Names, form: _Form) -> str:
    losses, passed, open_, broken = (judgement.of(state) for state in ("loss", "no loss", "no answer", "broken"))
    cells, several = counted(len(judgement.answers), "cell"), len(judgement.margins) > 1
    margin = "their margins" if several else margins_text(judgement.margins)
    without = [f"{len(passed)} without a loss"] if passed else []
    fails = [f"{len(broken)} of {cells} broken ({_what_fails(broken, form)})"] if broken else []
    unanswered = f"not answered ({reasons(open_, form)})"
    largest = _largest(open_, names, form) if form.largest else []
    if judgement.unfinished is not None:
        lost = [f"{counted(len(losses), 'loss', 'losses')} so far: {_listed(losses, names, form)}"] if losses else []
        open_now = [f"{len(open_)} of {cells} {unanswered}"] if open_ else []
        parts = [_interrupted(judgement, form), *fails, *lost, *without, *open_now]
    elif losses or broken:
        number = counted(len(losses), "loss", "losses")
        lost = [f"{number} beyond {margin} in {cells}: {_listed(losses, names, form)}"] if losses else []
        parts = [*fails, *lost, *without, *([f"{len(open_)} {unanswered}"] if open_ else [])]
    elif open_:
        parts = [f"no answer: {len(open_)} of {cells} {unanswered}", *largest, *without]
    else:
        limited = "".join(f", {limit}" for limit in limits(passed))
        parts = [f"no loss beyond {margin} in {cells}{limited} ({_launches(passed)}; {_nearest(passed, names, form)})"]
    return f"gate: {'; '.join(parts)}"


def _interrupted(judgement: Judgement, form: _Form) -> str:
    """`incomplete: interrupted after 8 of at most 30 blocks; --resume DIR goes on`."""
    early = judgement.unfinished
    if early is None:
        return ""
    most = f"{'at most ' * early.until_decided}{counted(early.most, 'block')}"
    goes_on = form.quote(f"--resume {shlex.quote(in_one_line(judgement.folder))}")
    return f"incomplete: interrupted after {early.blocks} of {most}; {goes_on} goes on"


def reasons(answers: Sequence[Answer], form: _Form) -> str:
    """`2 contended, 1 broken; about 16 more launches would decide`; in words where all have the same reason."""
    counts = Counter(one.doubt.name for one in answers if one.doubt is not None)
    if len(counts) == 1 and (doubt := answers[0].doubt) is not None:
        same = all(one.doubt == doubt for one in answers)
        return (
            f"{doubt.name}: {form.text(doubt.why.removesuffix(BARRIER))}" if same else f"{doubt.name}{_more(answers)}"
        )
    return f"{', '.join(f'{number} {name}' for name, number in counts.items())}{_more(answers)}"


def _what_fails(broken: Sequence[Answer], form: _Form) -> str:
    """`other alone: failed in 8 of 8 launches: no memory`: of the first cell."""
    doubt = broken[0].doubt
    return form.text(doubt.why) if doubt is not None else ""


def _more(answers: Sequence[Answer]) -> str:
    """How many launches would decide those that lack nothing else."""
    few = [one.comparison for one in answers if one.doubt is not None and one.doubt.name == "too few launches"]
    most = max((one.launches_more or 0 for one in few if one is not None), default=0)
    return f"; {needs(most).removeprefix('needs ')} would decide" if most else ""


def _largest(open_: Sequence[Answer], names: Names, form: _Form) -> list[str]:
    """`largest measured +3.1 % (-1.2 .. +7.0), allreduce 64K`: of cells that lack nothing but a verdict."""
    timed = [one for one in open_ if one.doubt and one.doubt.name in _OPEN and shown_difference(one)]
    if not timed:
        return []
    most = max(timed, key=lambda one: ratio_of(one) if one.comparison and one.comparison.ratio else _of_medians(one))
    if len(open_) == 1:
        return [f"measured {shown_difference(most)}"]
    return [f"{'largest ' * (len(timed) > 1)}measured {shown_difference(most)}, {form.text(names.of(most))}"]


def shown_difference(answer: Answer) -> str:
    """`+12.3 % (+10.1 .. +14.9)`; `+12.3 % by medians` of what is not comparable; empty without both times."""
    if answer.comparison is None:
        return ""
    percent, ends = difference(answer.comparison)
    if not percent:
        of_medians = _of_medians(answer)
        return f"{(of_medians - 1) * 100:+.1f} % by medians" if of_medians else ""
    return f"{percent} %{f' ({ends})' if ends else ''}"


def _of_medians(answer: Answer) -> float:
    """The other side's median over the base's; 0 where there is none."""
    base, other = (answer.comparison.base, answer.comparison.other) if answer.comparison else (None, None)
    return 0.0 if base is None or other is None or base.value <= 0 else other.value / base.value


def _listed(losses: Sequence[Answer], names: Names, form: _Form) -> str:
    named = [f"{form.text(names.of(one))} {shown_difference(one)}" for one in losses[: form.losses]]
    more = len(losses) - form.losses
    return f"{', '.join(named)}{f' and {more} more' if more > 0 else ''}"


def _launches(passed: Sequence[Answer]) -> str:
    """`14 launches a side`, or `6 to 14`."""
    used = sorted(min(one.comparison.launches) for one in passed if one.comparison is not None)
    least, most = used[0], used[-1]
    return f"{least if least == most else f'{least} to {most}'} launches a side"


def _nearest(passed: Sequence[Answer], names: Names, form: _Form) -> str:
    """What came nearest to a loss; where every cell gains, the largest gain."""
    worst = max(passed, key=upper)
    gains = upper(worst) < 1
    named = min(passed, key=ratio_of) if gains else worst
    which = "" if len(passed) == 1 else "largest gain " if gains else "worst "
    return f"{which}{form.text(names.of(named))} {shown_difference(named)}"


def upper(answer: Answer) -> float:
    """The upper end of the interval of the other side's time over the base's; 0 where there is none."""
    ratio = answer.comparison.ratio if answer.comparison else None
    return 0.0 if ratio is None or ratio.interval is None else ratio.interval[1]
