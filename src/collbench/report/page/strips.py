"""Plots of every sample behind the numbers of a question, from the files of the run."""

from __future__ import annotations

from dataclasses import replace

from collbench.analysis.options import Question
from collbench.report.page.drawing import Figure
from collbench.report.page.figures.strips import strip
from collbench.report.page.samples import StoredSamples

#: The most sizes whose samples are drawn: more make a page too large for browsers.
MOST_STRIPS = 6


def strips(stored: StoredSamples, question: Question, name: str, title: str) -> list[Figure]:
    """One for each size, or for `MOST_STRIPS` of them."""
    sizes = question.sizes
    step = -(-len(sizes) // MOST_STRIPS)
    figures = []
    for number, size in enumerate(sizes[::step]):
        ordered = sorted(question.cells[size], key=lambda option: (option["library"], option.isolation_order, option))
        cells = {question.name(option): question.cells[size][option].case for option in ordered}
        kept = stored.of(cells)
        if kept.samples:
            drawn = strip(kept.samples, size, f"{name}-{number}", title)
            thinned = f" One in {kept.step} of the samples is drawn." if kept.step > 1 else ""
            lacking = f" {kept.unread} samples files cannot be read and are left out." if kept.unread else ""
            figures.append(replace(drawn, caption=drawn.caption + thinned + lacking))
    return figures
