"""What of a plan differs from the one that a run was begun with, by key."""

from __future__ import annotations

from typing import Any

import pytest

from collbench.cli.until import changed_keys
from collbench.schema.plan import Plan, Side

BEFORE: dict[str, Any] = {"images": ("openmpi",), "sides": {"base": Side(), "other": Side(variables={"A": "1"})}}

#: Keys of the plan now, and what differs from before.
CHANGES: dict[str, tuple[dict[str, Any], dict[str, tuple[object, object]]]] = {
    "nothing": ({}, {}),
    "a key": ({"launches": 9}, {"launches": (8, 9)}),
    "a variable of a side": (
        {"sides": {"base": Side(), "other": Side(variables={"B": "2"})}},
        {"sides.other.variables.A": ("1", None), "sides.other.variables.B": (None, "2")},
    ),
    "an empty variable": (
        {"sides": {"base": Side(variables={"C": ""}), "other": Side(variables={"A": "1"})}},
        {"sides.base.variables.C": (None, "")},
    ),
    "another side": (
        {"sides": {"base": Side(libraries=("/x.so",)), "new": Side()}},
        {"sides": (["base", "other"], ["base", "new"])},
    ),
    "a parameter of a program": (
        {"benchmarks": ("stream", {"name": "hpl", "n": 5})},
        {"benchmarks": ((), None), "benchmarks[1]": (None, "stream"), "benchmarks[2].name": (None, "hpl"),
         "benchmarks[2].n": (None, 5)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", CHANGES)
def test_keys_that_differ_are_named_to_the_last_value(what: str) -> None:
    keys, expected = CHANGES[what]
    before = Plan(**BEFORE)
    now = Plan(**{**BEFORE, **keys})
    assert changed_keys(before, now) == expected
    assert bool(expected) == (before != now)
