"""The native call is what is checked: a wrong C form beside a right Python form fails every case it is timed in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from collbench import collectives
from tests.mpi.jobs import Command, finish

WRONG = Path(__file__).with_name("wrong_c.py")

#: What a kind of `wrong_c.py` can spoil.
SPOILT = {
    "function": {"allreduce", "barrier"},
    "op": {name for name in collectives.names() if collectives.get(name).reduces},
    "count": set(collectives.names()) - {"barrier"},
}


def plan(where: Path, names: set[str], driver: str) -> str:
    path = where / "plan.toml"
    path.write_text(
        f'collectives = {sorted(names)}\ndrivers = ["{driver}"]\nsizes = ["64"]\niters = 1\nwarmup = 0\n'
        'dtypes = ["int32"]\ngate = "barrier"\n'
    )
    return str(path)


def spoilt(mpirun: Command, folder: Path, kind: str, driver: str) -> tuple[int, list[Any]]:
    """Exit code and records of collectives whose C form is wrong."""
    path = plan(folder, SPOILT[kind], driver)
    ended = finish(mpirun(2, "run", path, "--style", "json", program=(str(WRONG), kind)))
    assert {record["case"]["workload"] for record in ended.records} == SPOILT[kind]
    return ended.code, ended.records


@pytest.mark.mpi
@pytest.mark.parametrize("kind", sorted(SPOILT))
def test_a_wrong_c_form_is_not_that_of_python(mpirun: Command, tmp_path: Path, kind: str) -> None:
    _, records = spoilt(mpirun, tmp_path, kind, "python")
    assert {record["status"] for record in records} == {"ok"}


@pytest.mark.mpi
@pytest.mark.parametrize("kind", sorted(SPOILT))
def test_a_wrong_c_form(mpirun: Command, tmp_path: Path, kind: str) -> None:
    code, records = spoilt(mpirun, tmp_path, kind, "native")
    assert code == 1
    for record in records:
        assert record["status"] == "failed"
        assert record["reason"].startswith("wrong result before timing")


@pytest.mark.mpi
def test_a_call_that_the_library_refuses(mpirun: Command, tmp_path: Path) -> None:
    path = plan(tmp_path, {"bcast"}, "native")
    ended = finish(mpirun(2, "run", path, program=(str(WRONG), "refused")))
    assert ended.code == 1
    (message,) = ended.messages
    assert "bcast 64 B on mpi: the library returned an error" in message
    assert "count" in message.lower()  # the library's own words
