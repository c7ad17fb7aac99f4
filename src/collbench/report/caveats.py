"""What a reader must know besides the numbers: of the cells of a table, of comparisons, of a whole run."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Sequence

from collbench.analysis.bounds import ALPHA
from collbench.analysis.compare import Comparison, differing_questions
from collbench.analysis.estimate import FEWEST
from collbench.analysis.launches import MENTIONED, SLOW, Unequal, duet_effects, only_waited, unequal
from collbench.analysis.launches import dependent as launches_dependent
from collbench.analysis.options import questions
from collbench.analysis.results import Cell, grouped
from collbench.analysis.runs import Flaw, Observed, Shortage
from collbench.report import headings
from collbench.report.headings import differing, image_and_place, row_words, size_text
from collbench.report.numbers import difference_text
from collbench.report.remarks import OVERSUBSCRIBED, SHARED_GPU
from collbench.report.tables import more
from collbench.schema.store import is_gate
from collbench.units import counted

NOT_INTERLEAVED = (
    "the sides were not measured alternately: drift between them counts as a difference, or hides one "
    "(collbench launch alternates; --in-blocks declares that launches of equal number did)"
)

#: Why a launch had no other beside it, in words; that the plan says so, or has nothing to compare, is no caution.
ALONE = {
    "engine": "its engine cannot", "gpus": "GPUs", "programs": "programs", "oversubscribed": "more ranks than cores",
    "memory": "too little memory", "shared": "the worlds shared memory, files or connections",
    "elsewhere": "the worlds were on different processors",
    "unreachable": "ranks could not connect to collbench launch",
    "awake": "a world computed while it should have slept", "partner": "the other world failed or skipped the case",
}  # fmt: skip

#: The share of late samples above which a caution mentions them.
LATE = 0.1

#: Values of a result on one side that are named.
MOST_VALUES = 3


def each_once(remarks: Iterable[tuple[str, str]], between: str = ", ") -> list[str]:
    """`a GPU was throttled (host, multi strict)`: of lines and places each line with all places that it is true of."""
    return [f"{line} ({between.join(dict.fromkeys(places))})" for line, places in grouped(remarks).items()]


# Cells of a table.


def cautions(cells: Sequence[Cell]) -> list[str]:
    """What a reader of the table must know, each with the places that it applies to; and why cells failed."""
    lines: list[tuple[str, str]] = []
    for cell in cells:
        lost = (f"{'failed' if cell.failed else 'skipped'}: {reason}" for reason in sorted(cell.reasons))
        lines += [(line, image_and_place(cell.case)) for line in (*sorted(cell.notes), *_disturbed(cell), *lost)]
    return each_once(lines) + often_late(cells) + waited(cells) + in_blocks(cells)


def disturbances(cells: Sequence[Cell]) -> list[str]:
    return list(dict.fromkeys(line for cell in cells for line in _disturbed(cell))) + often_late(cells)


def _disturbed(cell: Cell) -> list[str]:
    flags = {OVERSUBSCRIBED: cell.oversubscribed, "results were not checked": cell.unchecked,
            SHARED_GPU: cell.shared_gpu, f"a GPU was throttled: {', '.join(sorted(cell.slowed))}": cell.slowed,
            "a launch was recorded twice; the first record counts": cell.repeated}  # fmt: skip
    return [line for line, holds in flags.items() if holds]


def in_blocks(cells: Sequence[Cell]) -> list[str]:
    """A line for each reason why measurements were no duets, with how many had it."""
    reasons = sum((cell.alone for cell in cells), Counter[str]())
    measured = sum(len(cell.medians) for cell in cells)
    return [f"{number} of {counted(measured, 'measurement')} in blocks, not as duets: {ALONE[reason]}"
            for reason, number in reasons.items() if reason in ALONE]  # fmt: skip


def failed(cells: Sequence[Cell]) -> list[str]:
    """A line for each place in which launches failed: of its cell with most of them how many, and one reason."""
    lines = []
    for place, of_place in grouped((image_and_place(cell.case), cell) for cell in cells).items():
        if (cell := max(of_place, key=lambda cell: cell.failed)).failed:
            launches = counted(len(cell.medians) + cell.failed + cell.skipped, "launch", "launches")
            lines.append(f"{place}: {cell.failed} of {launches} failed: {min(cell.reasons, default='no reason')}")
    return lines


def waited(cells: Sequence[Cell]) -> list[str]:
    contended = sum(len(cell.contended) for cell in cells)
    launches = sum(len(cell.medians) for cell in cells)
    return [f"tasks waited for a CPU during {contended} of {launches} measurements"] if contended else []


def unlike(cells: Sequence[Sequence[Cell]]) -> list[str]:
    """The line that launches of a cell differ by more than half, if they do in any that has enough for a verdict.

    Each cell is given by its sides, one or both.
    """

    def wide(side: Cell) -> bool:
        """Of duets it does not matter: what both worlds have in common is no part of their ratio."""
        in_turns = len(side.turns) >= len(side.medians)
        return not in_turns and len(side.medians) >= FEWEST and max(side.medians) > 1.5 * min(side.medians)

    number, of = sum(any(map(wide, sides)) for sides in cells), counted(len(cells), "cell")
    return [f"in {number} of {of} launches differ by more than half: see the samples"] * bool(number)


def late_samples(cells: Sequence[Cell]) -> str:
    """`0.3 % of the samples began late and are excluded; of the worst cell 44 % (2M, a host)`, or none."""
    late, samples = sum(cell.late for cell in cells), sum(cell.samples for cell in cells)
    if not late:
        return ""
    worst = max(cells, key=_late)
    names = {id(cell): (headings.operation(cell.case), f"{cell.case['driver']} driver") for cell in cells}
    words = [word for word, every in zip(names[id(worst)], zip(*names.values(), strict=True), strict=True)
             if len(set(every)) > 1]  # fmt: skip
    where = ", ".join(filter(None, (*words, size_text(worst.case), image_and_place(worst.case))))
    most = f"; of the worst cell {_percent(_late(worst))} ({where})" if len(cells) > 1 else ""
    return f"{_percent(late / samples)} of the samples began late and are excluded{most}"


def often_late(cells: Sequence[Cell]) -> list[str]:
    """The line of `late_samples`, if in one of these cells many were."""
    return [late_samples(cells)] if any(_late(cell) > LATE for cell in cells) else []


def _late(cell: Cell) -> float:
    return cell.late / cell.samples if cell.samples else 0.0


def _percent(share: float) -> str:
    """`44 %`, `0.3 %`; one decimal below 10 %."""
    return f"{share * 100:.0f} %" if share >= 0.1 else f"{share * 100:.1f} %" if share >= 0.001 else "< 0.1 %"


# Comparisons.


def of_launches(rows: Sequence[Comparison], planned: bool = True) -> list[str]:
    """What limits the verdicts on these cells: too few launches, drift, dependence, and slow launches.

    `planned`: rows say how many launches they lack.
    """
    blocks, until_decided = rows[0].blocks, rows[0].pair.base.until_decided
    left_out, contended = (sum(getattr(row, name) for row in rows) for name in ("left_out", "contended"))
    lacking = planned and any(row.launches_more is not None and row.launches[0] >= FEWEST for row in rows)
    lines = {
        "needs about k more launches: with so many more, a verdict has a probability of 80 %": lacking,
        NOT_INTERLEAVED: not blocks,
        "launched until decided: intervals hold after any number of blocks": blocks and until_decided,
        **dict.fromkeys((*dependent(rows), *_in_turns(rows)), True),
        f"launches left out, because they were measured differently from their partners: {left_out}": left_out,
        f"launches left out, because tasks waited for a CPU{' on either side' * blocks}: {contended}": contended,
        f"over {SLOW} times the median: occasional slow launches or samples, which a median does not show":
            any(row.slow is not None for row in rows),
    }  # fmt: skip
    return [line for line, holds in lines.items() if holds]


def dependent(rows: Sequence[Comparison]) -> list[str]:
    """That neighbouring launches are alike, where this would be chance in one table of twenty."""
    if not launches_dependent([comparison.serial for comparison in rows], MENTIONED):
        return []
    return ["launches depend on those before them (lag-1 autocorrelation): intervals are too narrow"]


def _in_turns(rows: Sequence[Comparison]) -> list[str]:
    """How many launches were in turns, and what the turns themselves did to the differences."""
    effects = duet_effects([comparison.pair for comparison in rows])
    if effects is None:
        return []
    launches = counted(effects.launches, "launch", "launches")
    lines = [f"duets in {launches}: both worlds alive, measured alternately in slices"]
    if effects.start is not None:
        lines[0] += f"; effect of being started first: {difference_text(effects.start)}"
    for effect, when in ((effects.before, "after a slice of its own"), (effects.age, "in the second half of slices")):
        if effect is not None and effect.excludes(1.0):
            lines.append(f"effect on the other side {when}: {difference_text(effect)}")
    return lines


def differing_facts(rows: Sequence[Comparison]) -> list[str]:
    pairs = [comparison.pair for comparison in rows]
    lines = [f"{pair.base_name} against {pair.other_name}: {text}"
             for pair in pairs for text in pair.factor_differences]  # fmt: skip
    lines += [f"also differs: {text}" for pair in pairs for text in pair.remarks]
    return list(dict.fromkeys(lines))


def differing_transports(rows: Sequence[Comparison]) -> list[str]:
    """How the bytes travelled, where that is not the same on both sides."""

    def transport(cell: Cell, name: str) -> str:
        """`mpich single strict CMA`: image, name of the side and place, each once, and how the bytes travelled."""
        words = dict.fromkeys(filter(None, (cell.case.where.image, name, cell.case.where.text)))
        return f"{' '.join(words)} {', '.join(sorted(cell.transports)) or 'unknown'}"

    pairs = [row.pair for row in rows if row.pair.base.transports != row.pair.other.transports]
    return list(dict.fromkeys(
        f"transport: {transport(pair.base, pair.base_name)}; {transport(pair.other, pair.other_name)}" for pair in pairs
    ))  # fmt: skip


def differing_results(rows: Sequence[Comparison], named: bool = False) -> list[str]:
    """`results differ, network lstm: loss 9.21034 (host), 9.21041 (multi strict); ...`, once for all measures.

    `named`: the benchmark comes first, for rows of several.
    """
    by_name = grouped((row.pair.base.case.workload, row) for row in rows)
    lines = [f"{f'{name}: ' * named}{_unequal(row, figure, _parameters(same))}"
             for name, same in by_name.items() for row in same for figure in unequal(row.pair)]  # fmt: skip
    return list(dict.fromkeys(lines))


def _parameters(rows: Sequence[Comparison]) -> list[str]:
    return [name for name in differing([row.pair.base.case for row in rows]) if name != "measure"]


def by_chance(rows: Sequence[Comparison]) -> list[str]:
    """Where no more of many cells differ than intervals of 95 % make differ without a cause."""
    differ, of, chance = differing_questions(rows)
    about = f"by chance alone about {ALPHA * of:.0f} would"
    return [f"{differ} of {of} differ, and {about}: measure these again before you act"] * bool(differ and chance)


def _unequal(comparison: Comparison, unequal: Unequal, names: Sequence[str]) -> str:
    words = row_words(comparison.pair.base.case, names)
    sides = ((unequal.base, comparison.pair.base_name), (unequal.other, comparison.pair.other_name))
    listed = [(name, [*map("{:g}".format, values[:MOST_VALUES]), *more(len(values) - MOST_VALUES, "more")])
              for values, name in sides if values]  # fmt: skip
    values = ", ".join(f"{' and '.join(words)} ({name})" for name, words in listed)
    why = ("the same software should give the same, so the sides do not compute alike" if unequal.between_sides
           else "from launch to launch, which says nothing of the sides")  # fmt: skip
    return f"results differ{words and f', {words}'}: {unequal.name} {values}; {why}"


def cpu_waited(rows: Sequence[Comparison]) -> list[str]:
    """Where one side took longer for the same CPU seconds, with the parameters of the row."""
    names = _parameters(rows)
    lines = []
    for row in rows:
        base, other = row.cpu
        if base is None or other is None or row.verdict not in ("slower", "faster") or not only_waited(base, other):
            continue
        sides = ((base, row.pair.base_name), (other, row.pair.other_name))
        at = f"{row_words(row.pair.base.case, names)}: " if names else ""
        both = ", ".join(f"{name} {used.seconds:.3g} s" for used, name in sides)
        longer, shorter = sorted(((used.wall, name) for used, name in sides), reverse=True)
        lines.append(f"{at}same CPU seconds for each sample ({both}), in {longer[0]:.3g} s against {shorter[0]:.3g} s: "
                     f"{longer[1]} waited")  # fmt: skip
    return list(dict.fromkeys(lines))


# A whole run.

_OF_SAMPLES = {"unreadable": "cannot be read", "disagreeing": "do not agree with their records"}
_LEFT_OUT = {"no records": "no records in it", "no manifest": "no manifest.json; it is left out",
             "cut off": "the last record was cut off and is left out"}  # fmt: skip


def flaw_text(flaw: Flaw) -> str:
    """`run: 1 of 40 samples files cannot be read (samples/1.npy: no such file)`."""
    if flaw.kind in _LEFT_OUT:
        return f"{flaw.where}: {_LEFT_OUT[flaw.kind]}"
    number, opened, every, first = flaw.values
    of = f"of {opened} samples files{f' that were opened, of {every},' if opened < every else ''}"
    return f"{flaw.where}: {number} {of} {_OF_SAMPLES[flaw.kind]} ({first})"


def shortage_text(short: Shortage) -> str:
    """`run was stopped before its 8 launches: 3 cells have fewer (to finish it: collbench launch PLAN ...)`."""
    fewer = f"{counted(short.cells, 'cell')} {'has' if short.cells == 1 else 'have'} fewer"
    planned = counted(short.planned, "launch", "launches")
    if short.growing:
        return f"{short.run} is still being measured: {fewer} than its {planned}"
    command = f"collbench {'gate' if is_gate(short.run) else 'launch'} PLAN --resume {shlex.quote(str(short.run))}"
    return f"{short.run} was stopped before its {planned}: {fewer} (to finish it: {command})"


def misleading(observed: Observed, also: Sequence[str] = (), whole: bool = True) -> tuple[str, ...]:
    """What could mislead a reader, the worst first; what is `also` known stands behind the gravest.

    If not the `whole`, then without a few late samples, which change no verdict.
    """
    cells = sorted(observed.cells.values(), key=lambda cell: headings.place_order(cell.case.where))
    choices = any(len(question.options) > 1 for question in questions(observed, {}))
    few = sum(0 < len(cell.medians) < FEWEST for cell in cells)
    throttled = sorted({reason for cell in cells for reason in cell.slowed})
    first = observed.manifests[:1]
    governors = {host.governor for manifest in first for host in manifest.hosts if host.governor}
    plans = [manifest.experiment for manifest in first if manifest.experiment is not None]
    lines = [
        *map(shortage_text, observed.shortages),
        *["simulated: the times were generated by the backend, not measured; they say nothing about any machine"]
        * any(manifest.simulated for manifest in observed.manifests),
        *_counts(cells, "wrong", "failed", "skipped", "shared_gpu"),
        *map(flaw_text, observed.flaws),
        *also,
        *[NOT_INTERLEAVED] * (choices and not observed.interleaved),
        *_counts(cells, "oversubscribed"), *waited(cells), *often_late(cells),
        *[f"GPUs were throttled: {', '.join(throttled)}"] * bool(throttled),
        *[f"CPU frequency governor {', '.join(sorted(governors))}: the frequency may have changed meanwhile"]
        * bool(governors - {"performance"}),
        *[f"{few} of {len(cells)} cells have fewer than {FEWEST} launches: no interval, no verdict"] * bool(few),
        *unlike([(cell,) for cell in cells]),
        *_counts(cells, "unchecked", "repeated"),
        *each_once((note, image_and_place(cell.case)) for cell in cells for note in sorted(cell.notes)),
        *(text for plan in plans for text in (*plan.left_out, *plan.differences)),
        *filter(None, [late_samples(cells) if whole and not often_late(cells) else ""]),
    ]  # fmt: skip
    return tuple(lines)


#: By counter of a cell.
_COUNTED = {
    "wrong": "had wrong results", "failed": "failed", "skipped": "were skipped",
    "shared_gpu": "had several ranks on one GPU: a functional test, whose times mean nothing",
    "oversubscribed": f"had {OVERSUBSCRIBED}", "unchecked": "had results that were not checked",
    "repeated": "of a launch were recorded twice: the first record counts",
}  # fmt: skip


def _counts(cells: Sequence[Cell], *names: str) -> list[str]:
    """`3 of 40 measurements had wrong results`; with reasons of what failed."""
    reasons = "; ".join(sorted({reason for cell in cells for reason in cell.reasons})[:3])
    every = sum(len(cell.medians) + cell.failed + cell.skipped for cell in cells)
    numbers = {name: sum(getattr(cell, name) for cell in cells) for name in names}
    return [f"{number} of {counted(every, 'measurement')} {_COUNTED[name]}"
            f"{f': {reasons}' * (name in ('failed', 'skipped') and bool(reasons))}"
            for name, number in numbers.items() if number]  # fmt: skip
