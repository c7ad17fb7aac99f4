"""The places of ranks are told by a file, which holds as many as there are: no environment variable grows with them."""

from __future__ import annotations

import json
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import msgspec
import pytest

from collbench.backends.fake import FakeWorld, Hub, run_ranks
from collbench.bindings.gpu.assignment import assign_gpus
from collbench.bindings.spec import World, WorldSettings
from collbench.errors import RequestError
from collbench.launch import launchers
from collbench.launch.cells import LaunchCell
from collbench.launch.engines.docker.spec import layout_of
from collbench.launch.engines.host import HostSession, environment_of
from collbench.launch.engines.spec import Stack, WorldSpec
from collbench.launch.folders import Folders, folders
from collbench.launch.placement import place
from collbench.launch.rank_environment import places
from collbench.machine.facts import container
from collbench.machine.topology import Core, Topology
from collbench.run.binding import bind
from collbench.schema.plan import Plan
from collbench.schema.world import GPU, Place, read_places

Collbench = Callable[..., CompletedProcess[str]]

RANKS = 20_000
MACHINE = Topology(tuple(Core(number) for number in range(RANKS)))
PLAN = Plan(collectives=("allreduce",), images=("openmpi",))

#: The longest string of an environment (execve(2): MAX_ARG_STRLEN), and a small part of it.
LONGEST, SHORT = 128 << 10, 4 << 10


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder for temporary files, of a driver whose files nobody else may read unless it says so."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = os.umask(0o077)
    yield
    os.umask(before)


def world(at: Folders, engine: str, policy: str, step: str | None) -> WorldSpec:
    """One of `RANKS` ranks."""
    cell = LaunchCell("openmpi", policy, step, RANKS, engine=engine)
    stack = Stack(launchers.get("openmpi", "openmpi"), "REFERENCE")
    return WorldSpec("cb1", "cb1-0", "boot/1/2", cell, place(MACHINE, cell, PLAN), stack, at, (1000, 1000))


def told_by(engine: str, policy: str, step: str | None, at: Folders) -> list[str]:
    """What a rank of such a world is told besides the file: every variable and every word of its command."""
    made = world(at, engine, policy, step)
    if engine == "host":
        with HostSession(lambda: None).open(made) as opened:
            return [*map("=".join, environment_of(made).items()), *opened.program]
    (spec,) = layout_of(made).specs
    return [*map("=".join, spec.environment), *(f"{mount.source}{mount.target}" for mount in spec.mounts)]


@pytest.mark.parametrize(("engine", "policy", "step"), [("host", "host", None), ("docker", "multi", "strict")])
def test_a_placement_of_many_ranks_gets_through(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, engine: str, policy: str, step: str | None
) -> None:
    bound: list[Any] = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda process, cores: bound.append(cores))
    cell = LaunchCell("openmpi", policy, step, RANKS, engine=engine)
    planned = places(cell, place(MACHINE, cell, PLAN))
    with folders(Plan(), (os.getuid(), os.getgid()), places=planned) as at:
        assert at.placement.stat().st_size > LONGEST
        assert stat.S_IMODE(at.placement.stat().st_mode) == 0o644, "a user of the containers reads it"
        told = told_by(engine, policy, step, at)
        assert str(at.placement) in " ".join(told)
        assert max(map(len, told)) < SHORT
        found = read_places(at.placement)
    assert found == planned
    for rank in (0, RANKS - 1):
        bind(found, {"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": str(RANKS)})
    assert bound == [{0}, {RANKS - 1}]


def test_where_nobody_planned_places_there_is_no_file() -> None:
    with folders(Plan(), (os.getuid(), os.getgid())) as at:
        assert not at.placement.exists()


# collbench run --------------------------------------------------------------------------------------------------------


def written(folder: Path, planned: tuple[Place, ...]) -> tuple[Path, Path]:
    """A plan for the fake backend, and a placement."""
    plan, placement = folder / "plan.toml", folder / "placement.json"
    plan.write_text("collectives = ['bcast']\nbackends = ['fake']\nsizes = [8]\niters = 2\nwarmup = 1\n")
    placement.write_bytes(msgspec.json.encode(planned))
    return plan, placement


def test_ranks_take_the_cores_of_the_file_that_they_are_given_and_of_no_other(
    collbench: Collbench, tmp_path: Path
) -> None:
    core = str(max(os.sched_getaffinity(0)))
    plan, placement = written(tmp_path, (Place(container=container(), cores=core),) * 2)
    run = ("run", plan, "--ranks", 2, "--style", "csv")
    done = collbench(*run, "--placement", placement, "--out", tmp_path / "bound")
    assert (done.returncode, done.stderr) == (0, "")
    assert cores_in(tmp_path / "bound") == {core}
    assert collbench(*run, "--out", tmp_path / "free").returncode == 0, "a file beside the plan is not looked for"
    if len(os.sched_getaffinity(0)) > 1:
        assert cores_in(tmp_path / "free") != {core}


def cores_in(run: Path) -> set[str]:
    """Those of all ranks, as its record says."""
    (line,) = (run / "records.jsonl").read_text().splitlines()
    return set(json.loads(line)["ranks"]["binding"])


def test_another_world_than_the_file_has_is_refused(collbench: Collbench, tmp_path: Path) -> None:
    core = str(max(os.sched_getaffinity(0)))
    plan, placement = written(tmp_path, (Place(container=None, cores=core),) * RANKS)
    done = collbench("run", plan, "--ranks", 2, "--placement", placement)
    assert (done.returncode, done.stderr) == (2, f"collbench: {RANKS} ranks were planned and 2 met.\n")


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "No such file or directory"), (b"[{}]", "Object missing required field `container` - at `$[0]`"),
     (b"", "Input data was truncated")],
)  # fmt: skip
def test_a_file_that_no_launcher_wrote(tmp_path: Path, content: bytes | None, said: str) -> None:
    file = tmp_path / "placement.json"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(RequestError) as caught:
        read_places(file)
    assert str(caught.value) == f"placement {file}: {said}. collbench launch writes such files."


# GPUs -----------------------------------------------------------------------------------------------------------------


def test_backends_give_every_rank_the_gpu_of_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(GPU, "GPU-of-programs-alone")
    planned = tuple(Place(container=None, cores="0", gpu=f"GPU-{letter}") for letter in "ba")
    taken: dict[int, str | None] = {}

    def take(world: World) -> None:
        found = assign_gpus("mpi-cuda", world, WorldSettings(places=planned), None, lambda: ("GPU-a", "GPU-b"))
        taken[world.rank] = found.gpu

    hub = Hub(2, 60.0)
    run_ranks(hub, lambda rank: take(FakeWorld(hub, rank)), 60.0)
    assert taken == {0: "GPU-b", 1: "GPU-a"}
