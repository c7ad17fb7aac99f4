"""A machine on which nothing is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.doctor.machines import idle

from collbench.doctor import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return idle(tmp_path)
