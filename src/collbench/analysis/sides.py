"""What is compared: the runs that are read, and the pairs of cells of one run or of two."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from collbench.analysis.factors import FACTORS, facts_of, find_factor, unlike
from collbench.analysis.pairs import METHODS, Pair, across, axes_by_name, refuse_not_alternated, within, without_partner
from collbench.analysis.results import grouped
from collbench.analysis.runs import Observed, observe, refuse_same, sources
from collbench.errors import RequestError, suggestion
from collbench.schema.case import own_axes


def read_run(path: Path) -> Observed:
    """A run, or a folder of runs of which each is one launch of the same, else RequestError; its flaws are in it."""
    observed = observe(path)
    refuse_same(sources(observed))
    if apart := unlike(observed):
        listed = "".join(f"\n  {name}: {values}" for name, values in apart.items())
        raise RequestError(f"{path}: the runs in this folder are not launches of the same:{listed}\nPut each kind into "
                           "a folder of its own, or name the runs one by one.")  # fmt: skip
    if not observed.cells:
        raise RequestError(f"{path}: no records in it.")
    return observed


class Matched(NamedTuple):
    """Pairs; whether launches of equal number are paired; and how many cells of each side have no partner."""

    pairs: list[Pair]
    in_blocks: bool
    without: tuple[int, int]


def in_one_run(
    observed: Observed, by: str, ignored: Collection[str] = (), between: tuple[str, ...] = (), in_blocks: bool = False
) -> Matched:
    """The cells of a run, by a factor in which they differ. RequestError: nothing differs in it, or there is none."""
    factor = find_factor(by, workload_axes=own_axes(observed.cells))
    if factor.name == "library" and FACTORS["image"].varies(observed.cells):
        factor = FACTORS["image"]  # which has the library, in containers and on the host
    elif factor.name == "library" and len(_builds(observed)) > 1:
        raise RequestError(f"--by library: in {observed.name} libraries differ between its sides: --by side.")
    pairs = within(observed, factor, _known(ignored, observed), between)
    alone = without_partner(observed, factor, pairs)
    return Matched(pairs, observed.interleaved or in_blocks, (alone, 0))


def _builds(observed: Observed) -> set[str]:
    """The libraries of each side of a plan."""
    cases = grouped((case.where.side, case) for case in observed.cells if case.where.side)
    return {facts_of(observed, of_side)["library"] for of_side in cases.values()}


def in_two_runs(
    base: Observed, other: Observed, by: str | None = None, ignored: Collection[str] = (), in_blocks: bool = False
) -> Matched:
    """The cells that both have, which may differ in a factor. RequestError: they differ in more."""
    if in_blocks:
        refuse_not_alternated(base, other)
    of_both = sorted({*facts_of(base, base.cells), *facts_of(other, other.cells)})
    factor = find_factor(by, of_both, own_axes([*base.cells, *other.cells])) if by else None
    pairs = across(base, other, factor, _known(ignored, base, other))
    return Matched(pairs, in_blocks, (len(base.cells) - len(pairs), len(other.cells) - len(pairs)))


def _known(ignored: Collection[str], *runs: Observed) -> frozenset[str]:
    """The names of axes, facts and ways of measuring; RequestError of others."""
    of_runs = (name for run in runs for name in facts_of(run, run.cells))
    names_of_runs = {*axes_by_name(*runs), *METHODS, "transport", *of_runs}
    for name in sorted(set(ignored) - names_of_runs):
        raise RequestError(f"--ignore {name!r}: unknown. {suggestion(name, sorted(names_of_runs))}")
    return frozenset(ignored)
