"""Programs of bench/ that read what collbench prints as JSON."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from tests.unit.bench_modules import bench

from collbench.cli import cli


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    """A record as `--style json` prints it."""
    arguments = [
        "allreduce",
        "--backend",
        "fake",
        "--driver",
        "python",
        "-b",
        "8",
        "-e",
        "8",
        "-n",
        "6",
        "--style",
        "json",
    ]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.output
    (record,) = json.loads(done.stdout)["records"]
    return dict(record)


def test_a_median_for_native_floor(record: dict[str, Any]) -> None:
    native_floor = bench("native_floor")
    found = native_floor.from_record(record | {"gate": "roundtime"}, SimpleNamespace(name="Open MPI"), "python", 3)
    assert (found.library, found.kind, found.round, found.collective) == ("Open MPI", "python", 3, "allreduce")
    assert (found.bytes, found.p50, found.samples) == (8, record["seconds"]["p50"], 6)
    with pytest.raises(native_floor.LaunchFailed):
        native_floor.from_record(record | {"status": "failed"}, SimpleNamespace(name=""), "python", 3)


def test_what_is_not_ok_is_a_failure_with_its_case(record: dict[str, Any]) -> None:
    rounds = bench("gpu_rounds")
    here = SimpleNamespace(
        document=lambda *_: {"manifest": {}, "records": [record | {"status": "failed", "reason": "no"}]}
    )
    (failed,) = rounds.launch(here, None, "plan", 1.0, lambda _: pytest.fail("was taken"))
    assert (failed.what, failed.reason) == ("fake allreduce 8 B", "no")
