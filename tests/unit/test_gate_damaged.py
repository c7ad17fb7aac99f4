"""A gate-plan.json that is damaged is refused with one message that names it, whatever is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.conftest import Collbench
from tests.unit.made_gates import fine, made_gate

Damage = Callable[[dict[str, Any]], Any]


def odd_size(plan: dict[str, Any]) -> None:
    plan["cells"][0]["what"]["size"] = "many"


DAMAGES: dict[str, Damage] = {
    "no cells": lambda plan: plan.update(cells=[]),
    "cells are missing": lambda plan: plan.pop("cells"),
    "cells of another version": lambda plan: plan.update(cells=[[plan["cells"][0]] * 2]),
    "cells are text": lambda plan: plan.update(cells="x"),
    "no plan": lambda plan: plan.pop("plan"),
    "an odd case": odd_size,
    "another key": lambda plan: plan.update(more=1),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_what_is_damaged_is_said_in_one_message(here: Collbench, tmp_path: Path, what: str) -> None:
    folder = made_gate(tmp_path / "gate", fine(), fine())
    path = folder / "gate-plan.json"
    plan = json.loads(path.read_text())
    DAMAGES[what](plan)
    path.write_text(json.dumps(plan))
    found = here("gate", folder)
    assert (found.code, found.out) == (2, "")
    assert found.err.startswith(f"collbench: {path}: ") and found.err.count("\n") == 1
    assert "Error:" not in found.err


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "\x00"])
def test_what_is_no_plan_is_said(here: Collbench, tmp_path: Path, text: str) -> None:
    path = made_gate(tmp_path / "gate", fine(), fine()) / "gate-plan.json"
    path.write_text(text)
    found = here("gate", path.parent)
    assert (found.code, "damaged, or not written by collbench gate" in found.err) == (2, True), found
