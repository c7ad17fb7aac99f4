"""The answer of a gate as files in its folder, for a comment, for a report of tests and for programs."""

from __future__ import annotations

from pathlib import Path

import msgspec

from collbench.analysis.gate.answers import Judgement
from collbench.errors import RunWriteError
from collbench.report.gate.document import document
from collbench.report.gate.junit import junit
from collbench.report.gate.markdown import markdown
from collbench.report.gate.names import Names

#: What is written.
MARKDOWN, JUNIT, DOCUMENT = FILES = ("gate.md", "gate.xml", "gate.json")


def write_answer(folder: Path, judgement: Judgement, names: Names) -> None:
    """Write all three; what an earlier judgement wrote is replaced.

    Raises:
        RunWriteError: one cannot be written.
    """
    content = {
        MARKDOWN: markdown(judgement, names).encode("utf-8", "backslashreplace"),
        JUNIT: junit(judgement, names),
        DOCUMENT: msgspec.json.format(msgspec.json.encode(document(judgement, names)), indent=1) + b"\n",
    }
    try:
        for name, text in content.items():
            (folder / name).write_bytes(text)
    except OSError as error:
        raise RunWriteError(f"{folder}: {error.strerror or error}.") from error


def remove_answer(folder: Path) -> None:
    """Remove what an earlier judgement wrote: nobody shall take it for that of a run that goes on."""
    for name in FILES:
        (folder / name).unlink(missing_ok=True)
