"""Runs until decided are judged each by itself: their verdicts allow for looking, tests of several runs do not."""

from __future__ import annotations

from collections.abc import Iterable

from collbench.errors import RequestError
from collbench.schema.manifest import Manifest


def refuse_together(runs: Iterable[tuple[str, Manifest]]) -> None:
    """Refuse one of several runs, with their names, that ended when its own comparisons were decided.

    Raises:
        RequestError: its name, and what works.
    """
    for name, manifest in runs:
        if manifest.experiment is not None and manifest.experiment.until == "decided":
            raise RequestError(
                f"{name} was launched until decided: its own differences ended it, for which a test of several runs "
                "together does not allow. Analyse each run by itself, or compare two of them: collbench compare A B."
            )
