"""Jobs on the double (tests/double)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.mpi.jobs import Command, Ended, finish

DOUBLE = ("-m", "tests.double.main")


def one(ended: Ended) -> dict[str, Any]:
    (record,) = ended.records
    return record


def measure(mpirun: Command, ranks: int, *arguments: str, **variables: str) -> Ended:
    command = mpirun(ranks, *arguments, "--align", "barrier", "--style", "json", program=DOUBLE)
    return finish(command, env=variables)


def run(command: list[str], tmp_path: Path, **variables: str) -> list[dict[str, Any]]:
    """The records of a job that must end well, by way of a file: mpirun may lose the end of a long output."""
    kept = tmp_path / "records.json"
    ended = finish([*command, "-J", str(kept)], env=variables)
    assert ended.code == 0, ended.err
    records: list[dict[str, Any]] = json.loads(kept.read_text())["records"]
    return records
