"""The worked examples of docs/statistics.md and docs/significance.md, computed: they say what the program says."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from collbench.analysis.compare import Comparison, compare, verdict_on
from collbench.analysis.estimate import ratio_in_blocks
from collbench.analysis.factors import find_factor
from collbench.analysis.observations import observe
from collbench.analysis.pairs import within
from collbench.analysis.significance import Launches, p_values

ROOT = Path(__file__).parents[2]
PAGE, DETAILS = ((ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("statistics.md", "significance.md"))
US = 1e-6


def cell(ratios: list[float]) -> Launches:
    return Launches([10 * US] * 7, [10 * US * ratio for ratio in ratios], range(7), range(7))


def test_the_example_of_seven_blocks_is_what_the_program_computes() -> None:
    """Beside each cell stand 13 that vary by 3 % and do not differ."""
    beside = [cell(row) for row in np.exp(np.random.default_rng(1).normal(0, 0.03, (13, 7))).tolist()]
    rows = re.findall(r"^\| (1\.\d\d(?: \d\.\d\d){6}) \| (.*) \| (.*) \| (.*) \| (.*) \|$", PAGE, re.MULTILINE)
    assert len(rows) == 2
    for text, *said in rows:
        own = cell(list(map(float, text.split())))
        (alone,), (together, *_) = p_values([own], True), p_values([own, *beside], True)
        assert alone is not None and together is not None
        ratio = ratio_in_blocks(own.other, own.base)
        assert ratio.interval is not None
        low, high = ratio.interval
        assert said == [
            f"{low:.2f} .. {high:.2f}", f"{alone.p * 128:.0f}/128 = {alone.p:.3f}", f"{together.p_adjusted:.3f}",
            verdict_on(ratio, together.p_adjusted, 0.02),
        ]  # fmt: skip
        assert verdict_on(ratio, alone.p_adjusted, 0.02) == "slower", "compared alone"
    assert "in 14 of 128 ways" in PAGE and round(float(rows[1][3]) * 128) == 14


def _policies() -> list[Comparison]:
    observed = observe(ROOT / "results" / "one-container")
    return compare(within(observed, find_factor("policy"), frozenset()), 0.02, True)


def _ratios(one: Comparison) -> list[float]:
    base, other = one.pair.base.by_launch, one.pair.other.by_launch
    return sorted(other[block] / base[block] for block in base if block in other)


def _is_explained(one: Comparison) -> bool:
    case = one.pair.base.case
    place = (case.where.image, case.workload, case["size"], one.pair.other_name)
    return place == ("openmpi", "allreduce", 1 << 20, "multi strict")


def test_the_cell_that_is_explained_is_as_the_page_says() -> None:
    found = _policies()
    (one,) = filter(_is_explained, found)
    assert one.verdict == "inconclusive" and one.ratio is not None and one.ratio.interval is not None
    percent = [round((value - 1) * 100) for value in (one.ratio.value, *one.ratio.interval)]
    words = " ".join(DETAILS.split())
    assert "**Why +{} % ({} .. {}) of 25 launches can be inconclusive**".format(*percent) in words
    ratios = _ratios(one)
    low, high = [ratio for ratio in ratios if ratio < 0.5], [ratio for ratio in ratios if ratio > 4]
    assert (len(ratios), len(low), len(high), one.cells) == (25, 5, 3, 16)
    assert (
        f"In 5 of the 25 blocks the ratio is {low[0]:.2f} to {low[-1]:.2f}, in 3 it is {high[0]:.1f} to {high[-1]:.1f}"
        in words
    )
    off = [other for other in found if other is not one and (_ratios(other)[0] < 0.5 or _ratios(other)[-1] > 2)]
    assert f"in {len(off)} of the other {one.cells - 1} cells" in words
    assert f"The p of the cell is {one.p}, p adjusted {one.p_adjusted:.2f}." in words
