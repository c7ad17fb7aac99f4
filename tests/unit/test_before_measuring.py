"""What `plan` and `launch` say of a plan that can be measured, and may not answer what its author asks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.test_slurm import PLAN, site_file

from collbench.cli.plan import before_measuring
from collbench.launch.expansion import expand


def lines(folder: Path, options: tuple[str, ...] = ("--exclusive",), **plan: Any) -> tuple[str, ...]:
    path = site_file(folder, options=list(options))
    return before_measuring(expand(msgspec.structs.replace(PLAN, site=path, **plan)))


def test_gates_may_differ_between_one_host_and_several(tmp_path: Path) -> None:
    (line,) = lines(tmp_path, hosts=(1, 2), how="blocks")
    assert line.startswith('gate: "auto" may be another on one host') and 'gate = "barrier"' in line
    assert lines(tmp_path, hosts=(1, 2), gate="barrier", how="blocks") == () == lines(tmp_path, hosts=(2,))


@pytest.mark.parametrize("options", [(), ("--partition=gpu",)])
def test_nodes_that_may_be_shared_are_named(tmp_path: Path, options: tuple[str, ...]) -> None:
    (line,) = lines(tmp_path, options)
    assert "no --exclusive among options" in line and "other jobs may run beside the ranks" in line


def test_nodes_of_ones_own_are_not(tmp_path: Path) -> None:
    assert lines(tmp_path, ("--partition=gpu", "--exclusive")) == ()
