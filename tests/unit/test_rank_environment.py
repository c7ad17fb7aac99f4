"""What a rank finds around it: what a step makes a library do, and shared memory that is too small."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from collbench.launch import launchers
from collbench.launch.cells import LaunchCell
from collbench.launch.engines.docker.spec import layout_of
from collbench.launch.engines.spec import Stack, WorldSpec
from collbench.launch.folders import folders_in
from collbench.launch.overrides import Overrides
from collbench.launch.placement import Placement, place
from collbench.launch.rank_environment import SHM_FOLDER, notes, refuses_cma, shares_hostname, shm_shortage, variables
from collbench.machine.topology import Core, Topology
from collbench.schema.plan import Plan

MACHINE = Topology(tuple(Core(n) for n in range(4)))
PLAN = Plan(collectives=("allreduce",), images=("mpich",), oversubscribe=True)
MPICH, OPENMPI = launchers.get("mpich", "x"), launchers.get("openmpi", "x")


def placed(cell: LaunchCell) -> Placement:
    return place(MACHINE, cell, PLAN)


def test_open_mpi_takes_an_eighth_of_a_mebibyte_a_rank() -> None:
    side = Stack(launchers.get("openmpi", "x"), "x")
    for ranks, short in ((512, False), (513, True)):
        cell = LaunchCell("openmpi", "multi", "strict", ranks)
        assert (shm_shortage(cell, placed(cell), side) is not None) == short


def test_what_a_step_makes_a_library_do_is_said_beside_the_number() -> None:
    side = Stack(MPICH, "collbench/mpich", refused=frozenset({"process_vm_readv"}))
    strict = LaunchCell("mpich", "multi", "strict", 2)
    assert refuses_cma(strict, placed(strict), side)
    assert any("MPIR_CVAR_CH4_CMA_ENABLE=0" in note for note in notes(strict, placed(strict), side))
    for other in (
        replace(strict, isolation="ipc"),
        replace(strict, policy="single"),
        replace(strict, policy="host", isolation=None),
    ):
        assert not refuses_cma(other, placed(other), side)
    assert not refuses_cma(strict, placed(strict), replace(side, refused=frozenset()))
    kcmp = Stack(OPENMPI, "collbench/openmpi", refused=frozenset({"kcmp"}))
    multi = LaunchCell("openmpi", "multi", "strict", 2)
    assert notes(multi, placed(multi), kcmp) == ("kcmp refused at this step: openmpi copies twice",)
    both = Stack(OPENMPI, "collbench/openmpi", refused=frozenset({"kcmp", "process_vm_readv"}))
    assert notes(multi, placed(multi), both)[0].startswith("process_vm_readv and kcmp refused")
    net = LaunchCell("openmpi", "single", "net", 2)
    assert shares_hostname(net, placed(net))
    assert any("OMPI_MCA_coll=^han" in note for note in notes(net, placed(net), Stack(OPENMPI, "x")))


@pytest.mark.parametrize(
    ("policy", "step", "told"),
    [("single", "files", True), ("single", "visible", False), ("multi", "files", False), ("host", None, False)],
)
def test_open_mpi_in_the_hosts_network_keeps_to_one_interface(policy: str, step: str | None, told: bool) -> None:
    """Containers with all interfaces of the host refuse each other's connections: the ranks never meet."""
    cell = LaunchCell("openmpi", policy, step, 2)
    found = notes(cell, placed(cell), Stack(OPENMPI, "x"))
    assert any("OMPI_MCA_btl_tcp_if_include=lo" in note for note in found) is told
    assert ("OMPI_MCA_btl_tcp_if_include" in variables(cell, placed(cell), Stack(OPENMPI, "x"))) is told
    other = replace(cell, image="mpich")
    assert not any("if_include" in note for note in notes(other, placed(other), Stack(MPICH, "x")))


@pytest.mark.parametrize(
    ("policy", "step", "apart"),
    [
        ("packed:2", "files", True), ("packed:2", "visible", True), ("packed:3", "net", True),
        ("packed:2", "ipc", False), ("single", "files", False), ("multi", "files", False), ("host", None, False),
    ],
)  # fmt: skip
def test_open_mpi_has_shared_memory_in_each_container_where_names_would_collide(
    policy: str, step: str | None, apart: bool
) -> None:
    cell = LaunchCell("openmpi", policy, step, 4)
    found = variables(cell, placed(cell), Stack(OPENMPI, "x"))
    assert (found.get("OMPI_MCA_btl_sm_backing_directory") == SHM_FOLDER) is apart
    if step is not None:
        world = made_world(cell, placed(cell), Stack(OPENMPI, "x"))
        folders = [[mount.target for mount in spec.mounts if mount.kind == "tmpfs"] for spec in layout_of(world).specs]
        boxes = [targets for spec, targets in zip(layout_of(world).specs, folders, strict=True) if not spec.donates]
        assert boxes == [[SHM_FOLDER] if apart else []] * len(boxes)
    other = variables(replace(cell, image="mpich"), placed(cell), Stack(MPICH, "x"))
    assert SHM_FOLDER not in other.values()


def made_world(cell: LaunchCell, placement: Placement, stack: Stack) -> WorldSpec:
    return WorldSpec("cb1", "cb1-0", "boot/1/2", cell, placement, stack, folders_in(Path("/folder")), (1000, 1000))


@pytest.mark.parametrize(
    "name", ["OMPI_MCA_coll", "OMPI_MCA_btl_sm_backing_directory", "OMPI_MCA_btl_base_verbose", "OMP_NUM_THREADS"]
)
def test_the_variables_of_a_plan_win_against_those_of_library_and_launcher(name: str) -> None:
    cell = LaunchCell("openmpi", "packed:2", "net", 4)
    plain = Stack(OPENMPI, "x")
    assert variables(cell, placed(cell), plain)[name] != "chosen"
    of_plan = replace(plain, overrides=Overrides({name: "chosen"}))
    assert variables(cell, placed(cell), of_plan)[name] == "chosen"
    assert not any(note.startswith(f"{name}=") for note in notes(cell, placed(cell), of_plan))


@pytest.mark.parametrize(
    ("policy", "step", "ranks", "short"),
    [
        ("multi", "strict", 12, False), ("multi", "strict", 13, True), ("multi", "limits", 13, False),
        ("single", "strict", 64, False), ("packed:13", "strict", 26, True), ("single", "ipc", 250, True),
        ("single", "files", 250, False), ("multi", "files", 250, False),
    ],
)  # fmt: skip
def test_a_shared_memory_that_is_too_small_is_known(policy: str, step: str, ranks: int, short: bool) -> None:
    """64 MiB of Docker's own hold 12 ranks of MPICH; with one ipc namespace all ranks share one /dev/shm."""
    side = Stack(MPICH, "collbench/mpich")
    cell, host = LaunchCell("mpich", policy, step, ranks), LaunchCell("mpich", "host", None, 250)
    assert (shm_shortage(cell, placed(cell), side) is not None) == short
    assert shm_shortage(host, placed(host), side) is None


def test_the_hosts_shared_memory_is_no_advice_where_there_is_too_little() -> None:
    side = Stack(MPICH, "collbench/mpich")
    for step, advice in (("strict", "Use the step limits, or fewer ranks"), ("ipc", "Use fewer ranks")):
        cell = LaunchCell("mpich", "multi", step, 250)
        assert advice in (shm_shortage(cell, placed(cell), side) or "")
