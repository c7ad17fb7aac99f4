"""What single engines do of their own: environments beside images on the host, containers that cannot be made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.made_engine import made_engine

from collbench.errors import EngineError, PlanError
from collbench.launch import engines, launchers
from collbench.launch.cells import LaunchCell
from collbench.launch.engines import host
from collbench.launch.engines.docker.spec import SEALED
from collbench.launch.engines.fake import contents
from collbench.launch.engines.host import HostSession
from collbench.launch.engines.spec import Looks, Stack, WorldSpec
from collbench.launch.folders import folders_in
from collbench.launch.placement import place
from collbench.machine.topology import Core, Topology
from collbench.schema.plan import Plan

MACHINE = Topology(tuple(Core(number) for number in range(4)))
PLAN = Plan(collectives=("allreduce",), images=("mpich",), policies=("host",))

# The host ------------------------------------------------------------------------------------------------------------


def looked(plan: Plan, vendors: dict[str, str]) -> Looks:
    """What the host's side of a plan's images is, beside images that hold these libraries."""
    cells = [LaunchCell(image, "host", None, 2, engine="host") for image in plan.images]
    return HostSession(lambda: None).look(plan, {cell: place(MACHINE, cell, plan) for cell in cells}, vendors)


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment with MPICH."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch()
    monkeypatch.setattr(host, "probe", lambda environment, vendor="", benchmarks=(), overrides=None: contents("mpich"))
    return tmp_path


def test_the_environment_beside_an_image_holds_the_same_library(environment: Path) -> None:
    plan = msgspec.structs.replace(PLAN, images=("site/mpi:5",), environments={"site/mpi:5": str(environment)})
    look = looked(plan, {"site/mpi:5": "mpich"}).by_image["site/mpi:5"]
    assert (look.reference, look.id, look.contents.vendor) == (str(environment), None, "mpich")
    with pytest.raises(PlanError, match=r"image site/mpi:5 stands for openmpi, and the environment .* holds mpich"):
        looked(plan, {"site/mpi:5": "openmpi"})


def test_programs_take_an_environment_whatever_library_it_holds(environment: Path) -> None:
    plan = msgspec.structs.replace(PLAN, collectives=(), benchmarks=("stream",), images=("bare",),
                                   environments={"bare": str(environment)})  # fmt: skip
    assert looked(plan, {"bare": ""}).by_image["bare"].reference == str(environment)
    assert looked(plan, {}).by_image["bare"].reference == str(environment)


def test_without_containers_the_name_of_an_image_says_its_library(environment: Path) -> None:
    plan = msgspec.structs.replace(PLAN, environments={"mpich": str(environment)})
    assert looked(plan, {}).by_image["mpich"].contents.vendor == "mpich"
    with pytest.raises(PlanError, match="the image's name must say which library the host is to use: mpich, openmpi"):
        looked(msgspec.structs.replace(PLAN, images=("site/mpi:5",)), {})


def test_an_environment_that_is_none_is_refused(tmp_path: Path) -> None:
    plan = msgspec.structs.replace(PLAN, environments={"mpich": str(tmp_path / "nowhere")})
    with pytest.raises(PlanError, match="nowhere has no bin/python"):
        looked(plan, {})


# Docker --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("spoiled", ["/networks/create", "/containers/create", "/containers/1/start"])
def test_what_was_made_of_a_world_is_removed_where_the_rest_cannot_be_made(
    tmp_path: Path, spoiled: str, sealed: bool
) -> None:
    pytest.importorskip("docker", reason="the Docker SDK for Python is not installed")
    there = {"network": False, "container": False}

    def answer(method: str, path: str) -> tuple[int, Any] | None:
        if path.startswith(spoiled):
            return 500, {"message": "no space left"}
        if method == "POST" and path.startswith(("/networks/create", "/containers/create")):
            there["network" if "networks" in path else "container"] = True
            return 201, {"Id": "1"}
        if method == "DELETE":
            there["network" if "networks" in path else "container"] = False
            return 204, None
        if path.startswith("/containers/json"):
            return 200, [{"Id": "1"}] if there["container"] else []
        return (200, [{"Id": "1"}] if there["network"] else []) if path.startswith("/networks") else None

    cell = LaunchCell("mpich", "multi", "strict", 2)
    grants = frozenset({SEALED}) if sealed else frozenset()
    stack = Stack(launchers.get("mpich", "mpich"), "sha256:1", grants=grants)
    with made_engine(tmp_path, answer) as made:
        session = engines.get("docker").connect(msgspec.structs.replace(PLAN, docker_host=made.host), lambda: None)
        world = WorldSpec(session.run, "cb1-0", "boot/1/2", cell, place(MACHINE, cell, PLAN), stack,
                          folders_in(tmp_path), (1000, 1000))  # fmt: skip
        with pytest.raises(EngineError, match="no space left"), session.open(world):
            pytest.fail("it was opened")
        network = next(body for body in made.bodies if body.get("Name") == "cb1-0-net")
    assert bool(network.get("Options")) is sealed
    assert there == {"network": False, "container": False}
    assert ("DELETE", "/networks/1") in made.asked or spoiled == "/networks/create"
