"""Results that must come out equal on both sides of a comparison, and do not."""

from __future__ import annotations

from dataclasses import dataclass

from collbench.analysis.pair import Pair

#: What a pair says where its sides have other software.
_SOFTWARE = ("library: ", "library-file: ")


@dataclass(frozen=True)
class Unequal:
    """A figure with more than one value, such as the loss after so many steps: the values of each side, sorted."""

    name: str
    base: tuple[float, ...]
    other: tuple[float, ...]


def unequal(pair: Pair) -> tuple[Unequal, ...]:
    """Figures that the same software gives wherever it runs the case: between the sides, and from launch to launch.

    Sides that ask for something else, such as more threads, or that have other software, may differ from each other.
    """
    base, other = pair.base.repeatable, pair.other.repeatable
    values = {name: (base.get(name, set()), other.get(name, set())) for name in sorted(base.keys() | other.keys())}
    together = _same_computation(pair)
    return tuple(
        Unequal(name, tuple(sorted(of_base)), tuple(sorted(of_other)))
        for name, (of_base, of_other) in values.items()
        if (len(of_base | of_other) if together else max(len(of_base), len(of_other))) > 1
    )


def _same_computation(pair: Pair) -> bool:
    base, other = pair.base.case, pair.other.case
    software = any(text.startswith(_SOFTWARE) for text in (*pair.asked, *pair.remarks))
    return (base.workload, base.what, base.how) == (other.workload, other.what, other.how) and not software
