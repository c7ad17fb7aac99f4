"""Every outcome of the checks shm and tmpdir."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from tests.unit.doctor.machines import only

from collbench.doctor import mpi
from collbench.doctor.frame import Machine
from collbench.machine.launcher import Launcher
from collbench.units import format_bytes

MIB = 1 << 20


def test_shm_large_enough(machine: Machine) -> None:
    assert mpi.judge_shm(machine, 1024 * MIB, 1000 * MIB).status == "ok"


def test_shm_of_dockers_default(machine: Machine) -> None:
    problem = only(mpi.judge_shm(replace(machine, container="c"), 64 * MIB, 64 * MIB), "warn")
    assert "4 ranks" in problem.cause
    assert problem.fix.startswith("docker run --shm-size=1g")


def test_shm_too_small_for_the_ranks(machine: Machine) -> None:
    many = replace(machine, container="c", launcher=Launcher("openmpi", 0, 64))
    problem = only(mpi.judge_shm(many, 64 * MIB, 64 * MIB), "fail")
    assert "64 ranks" in problem.cause
    assert "bus error" in problem.effect
    assert problem.fix.startswith("docker run --shm-size=2g")


def test_shm_full_of_what_others_left(machine: Machine) -> None:
    problem = only(mpi.judge_shm(machine, 1024 * MIB, 10 * MIB), "fail")
    assert "4 ranks" in problem.cause
    assert "mount -o remount" in problem.fix
    assert "ls -l /dev/shm" in problem.fix


def in_tmpdir(machine: Machine, name: str) -> Machine:
    return replace(machine, environ={**machine.environ, "TMPDIR": name})


def test_tmpdir(machine: Machine) -> None:
    machine.path("scratch").mkdir()
    assert mpi.tmpdir(in_tmpdir(machine, "/scratch")).status == "ok"
    assert "is not a folder" in only(mpi.tmpdir(in_tmpdir(machine, "/nowhere")), "warn").cause


def test_tmpdir_unset_is_tmp(machine: Machine) -> None:
    machine.path("tmp").mkdir()
    assert mpi.tmpdir(replace(machine, environ={})).seen.split(",")[0] == "/tmp"  # noqa: S108


def test_tmpdir_not_writable(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.path("scratch").mkdir()
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "may not write to /scratch" in only(mpi.tmpdir(in_tmpdir(machine, "/scratch")), "fail").cause


def test_tmpdir_full() -> None:
    assert "only 16.00 KiB free in /scratch" in only(mpi.judge_tmpdir("/scratch", 16 << 10), "fail").cause
    assert mpi.judge_tmpdir("/scratch", 256 << 10).status == "ok"


def test_shm_missing(machine: Machine) -> None:
    assert "mkdir -p /dev/shm" in only(mpi.shm(machine), "fail").fix


def test_shm_not_writable(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.path("dev/shm").mkdir(parents=True)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert "may not write" in only(mpi.shm(machine), "fail").cause


def test_shm_is_measured(machine: Machine) -> None:
    machine.path("dev/shm").mkdir(parents=True)
    space = os.statvfs(machine.path("dev/shm"))
    assert mpi.shm(machine).seen.startswith(format_bytes(space.f_blocks * space.f_frsize))
