"""Advice as JSON, for programs."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from msgspec import to_builtins

from collbench.analysis.advise import AtSize
from collbench.analysis.guidelines import GuidelineResult
from collbench.analysis.options import Question
from collbench.report.advice.sentences import Advised, sentences


def document(
    advised: Sequence[Advised], findings: Sequence[GuidelineResult], cautions: Sequence[str] = ()
) -> dict[str, Any]:
    """Everything for programs."""
    return {"advice": [_entry(one) for one in advised], "guidelines": [_finding(one) for one in findings],
            "cautions": list(cautions)}  # fmt: skip


def _entry(one: Advised) -> dict[str, Any]:
    advice, question = one.advice, one.advice.question
    return {
        "operation": one.title,
        "answer": sentences(one),
        "ranges": [
            {"from": found.sizes[0].bytes, "to": found.sizes[-1].bytes, "take": question.name(found.option),
             "sure": found.sure, "not_sure_at": [size.bytes for size in found.open],
             "as_good": sorted(map(question.name, found.rivals))}
            for found in advice.ranges
        ],
        "sizes": [_size(question, size) for size in advice.sizes],
        "crossovers": [
            {"size": flip.bytes, "interval": flip.interval, "below": question.name(flip.below),
             "above": question.name(flip.above)} for flip in one.crossovers
        ],
        "recovered": [
            {"size": back.bytes, "isolated": question.name(back.isolated), "free": question.name(back.free),
             "step": back.step["isolation"], "cost": back.cost, "cost_interval": back.cost_interval,
             "share": back.share, "share_interval": back.share_interval} for back in one.recoveries
        ],
    }  # fmt: skip


def _size(question: Question, size: AtSize) -> dict[str, Any]:
    others = {
        question.name(option): {
            "times": None if found.ratio is None else found.ratio.value,
            "interval": None if found.ratio is None else found.ratio.interval,
            "verdict": found.verdict, "why": found.why, "launches_more": found.launches_more,
        }
        for option, found in size.others.items()
    }  # fmt: skip
    best = question.cells[size.bytes][size.best]
    return {
        "size": size.bytes,
        "best": question.name(size.best),
        "seconds": median(best.medians),
        "others": others,
        "failed": {question.name(option): count for option, (count, _) in size.failing.items()},
        "not_compared": {question.name(option): why for option, why in size.unknown.items()},
    }


def _finding(one: GuidelineResult) -> dict[str, Any]:
    state = "violated" if one.violated else "held" if one.held else "undecided"
    return {"rule": one.rule, "case": to_builtins(one.case), "against": one.against, "state": state,
            "times": one.ratio.value, "interval": one.ratio.interval}  # fmt: skip
