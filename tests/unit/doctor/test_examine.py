"""All checks together, and what they ask of a machine."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.processes import wait_for
from tests.unit.doctor.machines import FAILED, FOUR_RANKS, UNKNOWN, WARNED, only

from collbench import backends, doctor
from collbench.doctor.frame import CHECKS, Finding, Machine, execute, here
from collbench.errors import RequestError
from collbench.machine import nvml


def test_every_check_is_found() -> None:
    assert list(doctor.checks()) == sorted(CHECKS)
    assert len(CHECKS) >= 18


def test_every_check_ends_with_a_finding_here() -> None:
    found = dict(doctor.examine(here()))
    assert tuple(found) == tuple(doctor.checks())
    broken = {name: finding.problems for name, finding in found.items() if "itself failed" in finding.seen}
    assert broken == {}
    for finding in found.values():
        assert all(problem.cause and problem.effect and problem.fix for problem in finding.problems)


def test_a_check_that_raises_is_unknown_and_the_others_go_on(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def fall(machine: Machine) -> Finding:
        raise PermissionError("not for you")

    monkeypatch.setitem(CHECKS, "contention", fall)
    found = dict(doctor.examine(machine))
    assert tuple(found) == tuple(doctor.checks())
    assert only(found["contention"], "unknown").cause == "PermissionError: not for you"
    assert found["cores"].status == "ok"


def test_the_worst_problem_is_the_status() -> None:
    unknown, warn, fail = (row.problems[0] for row in (UNKNOWN, WARNED, FAILED))
    assert Finding("").status == "ok"
    assert Finding("", (warn, unknown)).status == "warn"
    assert Finding("", (warn, unknown, fail)).status == "fail"


def test_a_program_answers_with_code_and_both_streams() -> None:
    output = execute((sys.executable, "-c", "import sys; print('out'); sys.stderr.write('err'); sys.exit(3)"))
    assert output.code == 3
    assert "out" in output.text
    assert "err" in output.text


def test_a_program_that_hangs_ends_with_its_children(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    limits = iter((1, 10, 100))  # until it has come to start its child
    while not note.exists() or not note.read_text():
        with pytest.raises(TimeoutError, match="did not end within"):
            execute(("sh", "-c", f"sleep 3600 & echo $! > {note}; wait"), limit=next(limits))
    child = Path("/proc", note.read_text().strip(), "cmdline")
    wait_for(lambda: not child.exists() or b"sleep" not in child.read_bytes())


@pytest.mark.parametrize(
    ("environ", "expected"),
    [({}, 4), ({"OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, 2), ({"LOCAL_WORLD_SIZE": "3"}, 3), ({"MPI_LOCALNRANKS": "x"}, 4)],
)
def test_ranks_are_those_of_this_machine(machine: Machine, environ: dict[str, str], expected: int) -> None:
    assert replace(machine, launcher=FOUR_RANKS, environ=environ).ranks == expected


def test_without_a_launcher_there_are_no_ranks(machine: Machine) -> None:
    assert replace(machine, environ={"LOCAL_WORLD_SIZE": "3"}).ranks is None


def test_backends_have_libraries_or_a_reason() -> None:
    """As `usable` says; those that simulate are left out."""
    found = doctor.backends_here()
    assert {one.name for one in found} == {one.name for one in backends.every() if not one.simulated}
    assert all((backends.missing(one.name) is None) == bool(one.libraries) == (not one.missing) for one in found)


def test_without_a_gpu_nothing_on_gpus_is_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several ranks a backend refuses none before they have met: others may have a GPU."""
    monkeypatch.setattr(backends, "missing", lambda name: None)
    monkeypatch.setattr(nvml, "gpus", lambda root=None: ((), "no driver"))
    assert all(one.missing for one in doctor.backends_here() if one.needs_gpu)


def test_a_backend_whose_library_cannot_be_loaded_has_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def fall() -> None:
        raise RequestError("no libx.so")

    backend = backends.get("torch-gloo")
    monkeypatch.setattr(type(backend), "libraries", lambda self: fall())
    monkeypatch.setattr(backends, "missing", lambda name: None)
    assert {one.name: one.missing for one in doctor.backends_here()}["torch-gloo"] == "RequestError: no libx.so"
