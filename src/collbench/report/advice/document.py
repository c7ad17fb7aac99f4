"""Advice as JSON, for programs."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from msgspec import to_builtins

from collbench.analysis.advise import ESTABLISHED, AtSize
from collbench.analysis.guidelines import GuidelineResult
from collbench.analysis.options import Option, Question
from collbench.report.advice.answer import answer
from collbench.report.advice.sentences import Advised, sentences


def document(
    advices: Sequence[Advised], results: Sequence[GuidelineResult], cautions: Sequence[str] = ()
) -> dict[str, Any]:
    entries, guidelines = map(_entry, advices), map(_guideline, results)
    return {"advice": list(entries), "guidelines": list(guidelines), "cautions": list(cautions)}


def _entry(advised: Advised) -> dict[str, Any]:
    advice, question = advised.advice, advised.advice.question
    return {
        "operation": advised.title,
        "answer": answer(advised),
        "why": sentences(advised),
        "ranges": [
            {"from": of.sizes[0].size, "to": of.sizes[-1].size, "take": _taken(question, of.option, *of.sizes),
             "sure": of.sure, "not_sure_at": [at.size for at in of.open],
             "as_good": sorted(map(question.name, of.rivals))}
            for of in advice.ranges
        ],
        "sizes": [_size(question, at, of.option) for of in advice.ranges for at in of.sizes],
        "crossovers": [
            {"size": crossing.size, "interval": crossing.interval, "below": question.name(crossing.below),
             "above": question.name(crossing.above)} for crossing in advised.crossovers
        ],
        "recovered": [
            {"size": recovery.size, "isolated": question.name(recovery.isolated), "free": question.name(recovery.free),
             "step": recovery.step["isolation"], "cost": recovery.cost, "cost_interval": recovery.cost_interval,
             "share": recovery.share, "share_interval": recovery.share_interval} for recovery in advised.recoveries
        ],
    }  # fmt: skip


def _size(question: Question, at: AtSize, taken: Option) -> dict[str, Any]:
    others = {
        question.name(option): {
            "times": None if other.ratio is None else other.ratio.value,
            "interval": None if other.ratio is None else other.ratio.interval,
            "verdict": other.verdict, "why": other.why, "launches_more": other.launches_more,
        }
        for option, other in at.others.items()
    }  # fmt: skip
    return {
        "size": at.size,
        "take": _taken(question, taken, at),
        "sure": at.sure(taken),
        "best": question.name(at.best),
        "seconds": median(question.cells[at.size][at.best].medians),
        "others": others,
        "failed": {question.name(option): count for option, (count, _) in at.failing.items()},
        "not_compared": {question.name(option): gap.why for option, gap in at.unknown.items()},
    }


def _taken(question: Question, option: Option, *sizes: AtSize) -> str | None:
    """The option to take; None where it is established at none of the sizes."""
    return question.name(option) if any(one.sure(option) in ESTABLISHED for one in sizes) else None


def _guideline(result: GuidelineResult) -> dict[str, Any]:
    return {"rule": result.rule, "case": to_builtins(result.case), "against": result.against, "state": result.state,
            "times": result.ratio.value, "interval": result.ratio.interval}  # fmt: skip
