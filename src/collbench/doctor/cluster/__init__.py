"""Checks of a cluster, from where jobs are submitted: not of this machine."""

from __future__ import annotations

import re
from collections.abc import Callable

from collbench.doctor.parts.finding import Finding, Problem, found
from collbench.errors import CollbenchError, EngineError


def examined(check: Callable[[], Finding], fix: str) -> Finding:
    """What a check found; a right to ask may be lacking where everything else is there."""
    try:
        return check()
    except EngineError as error:
        return found("not known", Problem("unknown", said(error), "a launch may fail", fix))


def said(error: CollbenchError) -> str:
    """Without the name of the engine."""
    return re.sub(r"^engine (k8s|slurm): ", "", str(error))
