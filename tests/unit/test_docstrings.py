"""Every module and class says what it is, and every public function that is not seen at a glance."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import collbench

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
