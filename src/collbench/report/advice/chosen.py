"""Which option an answer is about at each size: the one to take, or, where nothing is established, the fastest."""

from __future__ import annotations

from dataclasses import dataclass

from collbench.analysis.advise import ESTABLISHED, Advice, AtSize, Sure
from collbench.analysis.options import Option


@dataclass(frozen=True)
class Chosen:
    """At one size the option that is told of, and what is known of it. `ranged`: the option of the range around."""

    at: AtSize
    option: Option
    sure: Sure
    ranged: Option

    @property
    def established(self) -> bool:
        """Whether it may be recommended: no other is known, or may be, faster."""
        return self.sure in ESTABLISHED


def chosen(advice: Advice) -> list[Chosen]:
    """By size."""
    found = []
    for of in advice.ranges:
        for one in of.sizes:
            sure = one.sure(of.option)
            found.append(Chosen(one, of.option if sure in ESTABLISHED else one.best, sure, of.option))
    return found
