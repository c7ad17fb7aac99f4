"""Runs beside a paper: the papers that there are, the verdicts on the conclusions of one, and the cells that decide."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files

from collbench.analysis.compare import MARGIN
from collbench.analysis.observations import Observed
from collbench.analysis.paper.cells import Apart, Kind, judged_together, kinds_of
from collbench.analysis.paper.judge import FINDINGS, Evidence, Judgement, PartVerdict, judge
from collbench.analysis.paper.reference import Paper, Scalar, Selector, decode
from collbench.errors import RequestError
from collbench.report.cells import cautions, times
from collbench.report.comparison import of_launches
from collbench.report.headings import variant
from collbench.report.paper_figures import cell_text, figures, number_of, percent, published_diff
from collbench.report.tables import Table, without_empty
from collbench.spelling import nearest_and_all
from collbench.units import counted

_FOLDER = files("collbench.report") / "reference"

#: More values or programs without a measurement are counted and not named.
_MOST_NAMED = 6

_DIFF = (
    "Diff%: (host - container) / host x 100 in the quantity that the paper shows, here of medians, with the 95 % "
    "interval: of a rate positive where the container is slower, of a time negative"
)
_RATIO = "ratio: of what the conclusion calls faster over the other; of a growth, both are growths of times"


def papers() -> list[str]:
    """The references of the papers whose figures come with the program."""
    return sorted(entry.name.removesuffix(".json") for entry in _FOLDER.iterdir() if entry.name.endswith(".json"))


def paper(reference: str) -> Paper:
    """What a paper published.

    Raises:
        RequestError: no such paper.
    """
    known = papers()
    if reference not in known:
        raise RequestError(f"paper {reference}: no such paper. {nearest_and_all(reference, known)}")
    return decode((_FOLDER / f"{reference}.json").read_bytes())


@dataclass(frozen=True)
class Beside:
    """Runs that are judged together: a line for each kind of container, and tables, that of verdicts first."""

    runs: tuple[str, ...]
    answer: tuple[str, ...]
    tables: tuple[Table, ...]


def beside(runs: Sequence[Observed], published: Paper, margin: float = MARGIN) -> list[Beside]:
    """Runs beside a paper, judged together unless they measured one cell on different machines.

    The margin is for claims that one side is faster; conclusions on host and container have bounds of their own.

    Raises:
        RequestError: nothing of the paper's experiment is in a group of runs.
    """
    groups, apart = judged_together(runs, published)
    lines = tuple(map(_apart, apart))
    return [_beside(group, published, margin, lines) for group in groups]


def _beside(runs: Sequence[Observed], published: Paper, margin: float, apart: tuple[str, ...]) -> Beside:
    kinds = kinds_of(runs, published)
    judged = [judge(published, kind, margin) for kind in kinds]
    if not any(kind.beside_host or kind.items or kind.refused for kind in kinds):
        raise RequestError(_nothing(runs, published))
    answer: list[str] = []
    tables: list[Table] = []
    for number, (kind, verdicts) in enumerate(zip(kinds, judged, strict=True)):
        title = f" at {kind.title}" if kind.title else ""
        numbers = Counter(one.finding for one in verdicts)
        tally = ", ".join(f"{numbers[finding]} {finding}" for finding in FINDINGS if numbers[finding])
        answer.append(f"Of the {len(published.conclusions)} conclusions of {published.reference}{title}: {tally}.")
        tables.append(_conclusions(published, kind, [one for one in verdicts if not number or one.evidence]))
    tables += [_evidence(published, *of_kind, len(runs) > 1) for of_kind in zip(kinds, judged, strict=True)]
    tables = [table for table in tables if table.rows]
    tables += figures(published, kinds)
    tables.append(Table(f"assumptions about {published.reference}", (), (), published.reading))
    return Beside(tuple(run.name for run in runs), (*answer, *apart), tuple(tables))


def _nothing(runs: Sequence[Observed], published: Paper) -> str:
    needs = ", ".join(dict.fromkeys(one.workload for part in published.parts for one in part.selectors))
    places = "on the host and in a container" if published.programs else "under the policies single and multi"
    return (f"{', '.join(run.name for run in runs)}: nothing to compare with {published.reference}, which needs one of "
            f"{needs} {places}.")  # fmt: skip


def _apart(apart: Apart) -> str:
    first, second = apart.runs
    return (f"{first} and {second} are judged apart: both measured {cell_text(apart.case)}, on different machines "
            f"({apart.machines[0]}; {apart.machines[1]}).")  # fmt: skip


def decidable(published: Paper, judged: Sequence[Judgement], missing: Collection[str] = ()) -> list[str]:
    """What a plan can decide of a paper, in lines: `judged` are its conclusions as foreseen.

    The first line has all conclusions; the others say what is lacking of those that cannot be both confirmed and
    refuted. `missing` are workloads of the plan whose programs are not there.
    """
    words = {(True, True): "can decide", (True, False): "can confirm but not refute",
             (False, True): "can refute but not confirm", (False, False): "cannot decide"}  # fmt: skip
    able: dict[str, list[str]] = {word: [] for word in words.values()}
    for one in judged:
        able[words[one.can_confirm, one.can_refute]].append(str(one.conclusion.number))
    texts = [f"{word} {', '.join(numbers)}" for word, numbers in able.items() if numbers]
    lines = [f"  conclusion {one.conclusion.number}: {_why_open(one, missing)}"
             for one in judged if not (one.can_confirm and one.can_refute)]  # fmt: skip
    return [f"of the conclusions of {published.reference} this plan {'; '.join(texts)}", *lines]


def _why_open(judgement: Judgement, missing: Collection[str]) -> str:
    words = [judgement.conclusion.lacking] if judgement.conclusion.lacking else []
    for part in judgement.parts:
        if part.can_confirm and part.can_refute:
            continue
        enough = f"{part.open} of {counted(part.total, 'cell')}, {part.needed} needed to confirm it"
        gone = [one.workload for one in part.part.selectors if one.workload in missing]
        programs = f"not installed: {', '.join(dict.fromkeys(gone))}" if gone else _missing(part)
        needs = "; ".join(filter(None, (enough, programs))) if part.open or not programs else programs
        why = part.part.lacking or needs
        words.append(f"{_part_name(part)}: {why}" if len(judgement.parts) > 1 else why)
    return "; ".join(dict.fromkeys(words))


def _conclusions(published: Paper, kind: Kind, judged: Iterable[Judgement]) -> Table:
    """A row for each conclusion, and below it one for each of several parts."""
    rows: list[tuple[str, ...]] = []
    for one in judged:
        conclusion, parts = one.conclusion, one.parts
        first = parts[0] if len(parts) == 1 else None
        rest = (_counts(first), _remark(first)) if first else ("", conclusion.lacking)
        rows.append((str(conclusion.number), conclusion.text, one.finding, *rest))
        if not first:
            rows += [("", _part_name(part), part.finding, _counts(part), _remark(part)) for part in parts]
    columns = ("number", "conclusion", "verdict", "cells of the paper", "why")
    return without_empty(Table(_title("conclusions", published, kind), columns, tuple(rows)))


def _title(what: str, published: Paper, kind: Kind) -> str:
    return f"{what} of {published.reference}" + (f": {kind.title}" if kind.title else "")


def _part_name(part: PartVerdict) -> str:
    return part.part.text or part.part.of.workload


def _counts(part: PartVerdict) -> str:
    """`3 of 14 support it, 8 needed; 1 contradicts it, 2 undecided`."""
    words = [f"{part.support} of {part.total} {'supports' if part.support == 1 else 'support'} it"]
    if part.needed != part.total:
        words.append(f"{part.needed} needed")
    if part.against:
        words.append(f"{part.against} {'contradicts' if part.against == 1 else 'contradict'} it")
    if part.open:
        words.append(f"{part.open} undecided")
    return ", ".join(words)


def _remark(part: PartVerdict) -> str:
    """Why there is no verdict on all cells: what no run can show, what was not measured, or could not be compared."""
    found = [one for one in part.evidence if one.finding == "not measurable here" and not part.part.lacking]
    reasons = dict.fromkeys(map(_reason, found))
    return "; ".join(filter(None, (part.part.lacking, *reasons, _missing(part))))


def _missing(part: PartVerdict) -> str:
    refused = [f"{workload} in {run}: the sides differ in {why}" for (run, workload), why in part.refused.items()]
    known = {workload for _, workload in part.refused}
    absent = [_selected(one) for one in part.absent if one.workload not in known]
    words = [*refused, *([f"not measured: {'; '.join(absent)}"] if absent else [])]
    if part.missing:
        words.append(f"not measured: {'; '.join(_values(name, values) for name, values in part.missing.items())}")
    measured = part.support + part.against + part.open
    if not words and measured < part.total:
        words.append(f"not measured: {part.total - measured} of the cells" if measured or not part.evidence else "")
    return "; ".join(filter(None, words))


def _selected(selector: Selector) -> str:
    """`parameter_server with policy single, shard variable`."""
    several = {name: value if isinstance(value, tuple) else (value,) for name, value in selector.values.items()}
    values = ", ".join(_values(name, some) for name, some in several.items() if len(some) <= _MOST_NAMED)
    return f"{selector.workload} with {values}" if values else selector.workload


def _values(name: str, values: Sequence[Scalar]) -> str:
    """`n 15000, 18000`, `workers 3 to 24`, `problem: 9 values`."""
    name = name.removeprefix("than.")
    whole = [value for value in values if isinstance(value, int)]
    if len(whole) > 2 and len(whole) == len(values) and whole == list(range(whole[0], whole[0] + len(whole))):
        return f"{name} {whole[0]} to {whole[-1]}"
    if len(values) <= _MOST_NAMED:
        return f"{name} {', '.join(str(value) for value in values)}"
    return f"{name} {', '.join(str(value) for value in values[:3])} and {len(values) - 3} more"


def _evidence(published: Paper, kind: Kind, judged: Iterable[Judgement], several: bool) -> Table:
    """Every cell that bears on a conclusion; with its run where there are several."""
    rows = dict.fromkeys(
        _row(published, str(one.conclusion.number), evidence, several) for one in judged for evidence in one.evidence
    )
    columns = ("conclusion", "cell", "run", "finding", "Diff%", "ratio", "Diff% of the paper")
    table = without_empty(Table(_title("cells", published, kind), columns, tuple(rows)))
    notes = [note for note, column in ((_DIFF, "Diff%"), (_RATIO, "ratio")) if column in table.columns]
    return replace(table, notes=(*notes, *_notes(kind)))


def _row(published: Paper, number: str, one: Evidence, several: bool) -> tuple[str, ...]:
    slow = one.comparison.slow if one.comparison else None
    why = "; ".join(word for word in (_reason(one), slow.text if slow else "") if word)
    finding = ": ".join(word for word in (one.finding or "compared with", why) if word)
    ratio = diff = beside = ""
    if one.sides[0].case.workload in published.programs:
        diff, beside = percent(one.estimate), published_diff(published, one.sides[0].case)
    elif one.estimate is not None:
        ratio = times(one.estimate)
    return (number, _cell(one), one.run if several else "", finding, diff, ratio, beside)


def _cell(one: Evidence) -> str:
    """`dd write, bs 65536, count 16`; `ps_bcast, 4 workers: multi MPICH over single MPICH`."""
    base, other, *few = one.sides
    if few:
        case = base.case
        return (f"{case.workload}, {case.where.policy}, {few[0]['workers']} to {number_of(base)}: growth of "
                f"{other.library} over that of {base.library}")  # fmt: skip
    if base.case["backend"]:
        return f"{base.case.workload}, {number_of(base)}: {other.name} over {base.name}"
    if base.case.workload == "parameter_server":
        return f"{other.name} over {base.name}"
    figures_ = ", ".join(f"{value:,.10g} {name}" for name, value in one.figures.items())
    far = "far over near" if one.sides[1].case["affinity"] != base.case["affinity"] else ""
    return ", ".join(word for word in (cell_text(base.case), variant(base.case), figures_, far) if word)


def _reason(one: Evidence) -> str:
    """Why a cell has its finding, in words."""
    if one.reason == "interval" and one.bounds is not None:
        share = {"confirmed": "the whole", "refuted": "no part of the"}.get(str(one.finding), "a part of the")
        low, high = ("" if end is None else f"{end:g}" for end in one.bounds)
        bounds = f"within {low} .. {high}" if low and high else f"above {low}" if low else f"below {high}"
        return f"{share} interval lies {bounds} %"
    if one.reason == "references":
        affected = {"confirmed": "more affected than all of", "refuted": "less affected than some of"}
        return f"{affected.get(str(one.finding), 'its interval overlaps those of')} what it is compared with"
    if one.reason == "devices":
        return f"not known to be one device: {one.detail[0]} on the host, {one.detail[1]} in containers"
    if one.reason == "verdict" and one.comparison is not None:
        return one.comparison.verdict
    return _REASONS.get(one.reason, "; ".join(one.detail))


#: Reasons that need no more than their name; of the others the detail says it.
_REASONS = {
    "unknown references": "not all that it is compared with is known",
    "not in turns": "host and container were not measured in turns",
    "crowded": "more ranks than cores",
}


def _notes(kind: Kind) -> Iterator[str]:
    rows = [one.comparison for one in kind.beside_host]
    cells = {id(cell): cell for row in rows for cell in (row.pair.base, row.pair.other)}
    cells |= {id(item.cell): item.cell for item in kind.items if item.cell is not None and not item.case["backend"]}
    if rows:
        yield from of_launches([replace(row, launches_more=None) for row in rows])  # the advice is for compare's margin
    yield from cautions(list(cells.values()))
