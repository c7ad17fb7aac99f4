"""Why attempts are refused, as a golden text shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from collbench.errors import RequestError


def refusals(attempts: Iterable[Callable[[], object]], folder: Path | str = "/no/folder") -> str:
    """The error of each attempt in a line, without the name of the folder that its files are in."""
    lines = []
    for attempt in attempts:
        with pytest.raises(RequestError) as refused:
            attempt()
        lines.append(f"{type(refused.value).__name__}: {refused.value}\n".replace(str(folder), ""))
    return "".join(lines)
