"""The answer of a gate for programs."""

from __future__ import annotations

from typing import Any

from collbench.analysis.gate.answers import Answer, Judgement
from collbench.report.comparison import entry
from collbench.report.gate.names import Names
from collbench.report.gate.sentence import sentence
from collbench.report.gate.tables import notes


def document(judgement: Judgement, names: Names) -> dict[str, Any]:
    """`cells` has every planned cell, in the plan's order; the counts of the three answers add up to `planned`."""
    from msgspec import to_builtins

    plan = judgement.plan
    return {
        "answer": sentence(judgement, names),
        "exit_code": judgement.code,
        "unfinished": to_builtins(judgement.unfinished),
        "margin": judgement.margin,
        "plan": plan.plan,
        **{side.name: {**to_builtins(side.overrides), "files": dict(side.files)} for side in judgement.sides},
        "planned": len(judgement.answers),
        "lost": len(judgement.of("loss")),
        "no_loss": len(judgement.of("no loss")),
        "not_answered": len(judgement.of("no answer")),
        "accepted": list(judgement.accepted),
        "differences": list(judgement.differences),
        "refused": list(judgement.refused),
        "notes": notes(judgement),
        "cells": [_cell(one, names) for one in judgement.answers],
    }


def _cell(answer: Answer, names: Names) -> dict[str, Any]:
    from msgspec import to_builtins

    doubt = answer.doubt
    return {
        "name": names.of(answer),
        "answer": answer.state,
        "reason": None if doubt is None else doubt.name,
        "why": None if doubt is None else doubt.why,
        "base": to_builtins(answer.base),
        "other": to_builtins(answer.other),
        "comparison": None if answer.comparison is None else entry(answer.comparison),
    }
