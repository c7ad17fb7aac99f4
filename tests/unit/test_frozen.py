"""Data is frozen: what a dataclass holds changes in no file but those that are named here, with what changes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import collbench

SOURCE = Path(collbench.__file__).parent

#: What grows while something is measured or read, or goes on while it is followed.
CHANGES = {
    "launch/campaign.py": {"_Campaign"},
    "launch/engines/docker/client.py": {"Execution"},
    "launch/engines/fake.py": {"FakeCommand", "FakeEngineSession", "FakeEngineWorld"},
    "launch/engines/k8s/__init__.py": {"K8sSession", "K8sWorld"},
    "launch/engines/slurm/job.py": {"SlurmJob", "SlurmStep"},
    "launch/engines/slurm/__init__.py": {"SlurmSession"},
    "launch/live_world.py": {"LiveWorld"},
    "launch/job.py": {"HostProcess"},
    "run/child.py": {"_Pipes"},
    "run/program.py": {"RankOutcome"},
    "run/sampling.py": {"Sampling"},
}


def dataclasses(path: Path) -> Iterator[tuple[str, bool]]:
    """Name, and whether it is frozen, of every dataclass of a file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef):
            for text in map(ast.unparse, node.decorator_list):
                if text.startswith("dataclass"):
                    yield node.name, "frozen=True" in text


@pytest.mark.parametrize("package", sorted(path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()))
def test_dataclasses_are_frozen(package: str) -> None:
    thawed: dict[str, set[str]] = {}
    for path in sorted((SOURCE / package).rglob("*.py")):
        for name, frozen in dataclasses(path):
            if not frozen:
                thawed.setdefault(path.relative_to(SOURCE).as_posix(), set()).add(name)
    assert thawed == {file: names for file, names in CHANGES.items() if file.startswith(f"{package}/")}
