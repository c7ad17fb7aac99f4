"""What engines say of images, put together: what is started, what the manifest says, what differs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from collbench.errors import ImageMissing, PlanError
from collbench.launch.cells import LaunchCell
from collbench.launch.engines.fake import contents
from collbench.launch.engines.spec import Look, Looks
from collbench.launch.expansion import expand
from collbench.launch.probe import Contents
from collbench.launch.stacks import Stacks, contents_in, look_at, refuse_missing, stack_of
from collbench.machine.topology import Core, Topology
from collbench.schema.manifest import Library
from collbench.schema.plan import Plan

PLAN = Plan(
    collectives=("bcast",), images=("openmpi", "mpich"), policies=("host", "single"), sizes=("8",), engine="fake"
)
MPI = Library(name="MPI", version="5", sha256="aa")


@dataclass
class Says:
    """An engine that says this of images; it remembers what it was asked."""

    looks: dict[str, Look]
    remarks: tuple[str, ...] = ()
    asked: list[tuple[set[str], dict[str, str]]] = field(default_factory=list)

    def look(self, plan: Plan, placements: Mapping[LaunchCell, Any], vendors: Mapping[str, str]) -> Looks:
        self.asked.append(({cell.policy for cell in placements}, dict(vendors)))
        return Looks(self.looks, self.remarks)


def held(vendor: str, **fields: Any) -> Contents:
    return msgspec.structs.replace(contents(vendor), **({"libraries": (MPI,)} | fields))


def image(name: str, **fields: Any) -> Look:
    return Look(
        held(name, **fields), f"ref:{name}", f"image {name}", f"sha256:{name}", (f"{name}@1",), {"collbench.x": "1"},
        frozenset({"kcmp"}), frozenset({"memlock"}),
    )  # fmt: skip


def beside(name: str, **fields: Any) -> Look:
    return Look(held(name, **fields), f"/venv/{name}", f"the environment beside {name}")


def looked(fake: Says, host: Says, plan: Plan = PLAN) -> Stacks:
    expanded = expand(plan, lambda engine: Topology(tuple(map(Core, range(2)))))
    sessions: Any = {"host": host, "fake": fake}
    return look_at(expanded, sessions)


def look_at_containers(fake: Says) -> Stacks:
    """Of a plan without the host."""
    plan = msgspec.structs.replace(PLAN, policies=("single",))
    expanded = expand(plan, lambda engine: Topology(tuple(map(Core, range(2)))))
    sessions: Any = {"fake": fake}
    return look_at(expanded, sessions)


def both() -> tuple[Says, Says]:
    inside = Says({"openmpi": image("openmpi", python="3.12"), "mpich": image("mpich")}, ("no memlock",))
    return inside, Says({name: beside(name) for name in ("openmpi", "mpich")}, ("a remark",))


def test_the_host_is_asked_last_for_what_the_images_hold() -> None:
    fake, host = both()
    looked(fake, host)
    assert fake.asked == [({"single"}, {})]
    assert host.asked == [({"host"}, {"openmpi": "openmpi", "mpich": "mpich"})]


@pytest.mark.parametrize("fields", [{"sources": "0" * 64}, {"sources": ""}, {"collbench": "0.0.1"}])
def test_clusters_too_refuse_an_image_with_other_code(fields: dict[str, Any]) -> None:
    """Kubernetes and Slurm, before the first launch: it might not be able to read the plan."""
    printed = msgspec.json.encode(held("openmpi", **fields)).decode()
    with pytest.raises(ImageMissing, match=r"0\.0\.1|sources"):
        contents_in(["a line", printed], "image openmpi", "openmpi", {}, PLAN)
    same = msgspec.json.encode(held("openmpi")).decode()
    assert contents_in([same], "image openmpi", "openmpi", {}, PLAN) == held("openmpi")


def test_what_the_first_engine_found_in_an_image_counts() -> None:
    fake, host = both()
    host.looks["openmpi"] = beside("mpich")
    looked(fake, host)
    assert host.asked[0][1]["openmpi"] == "openmpi"


def test_images_and_environments_are_described_apart() -> None:
    found = looked(*both())
    openmpi, mpich = found.images
    assert (openmpi.name, openmpi.id, openmpi.digests, openmpi.labels) == (
        "openmpi", "sha256:openmpi", ("openmpi@1",), {"collbench.x": "1"}
    )  # fmt: skip
    assert (openmpi.python, openmpi.libraries, mpich.name) == ("3.12", (MPI,), "mpich")
    assert [(one.name, one.id, one.python) for one in found.environments] == [
        ("openmpi", None, "3.11"), ("mpich", None, "3.11")
    ]  # fmt: skip


def test_differences_come_before_what_engines_cannot_give() -> None:
    assert looked(*both()).differences == (
        "openmpi: apart from the container, host and image differ: Python 3.11 on the host, 3.12 in the image",
        "no memlock", "a remark",
    )  # fmt: skip


def test_ranks_with_another_priority_on_the_host_are_refused_before_the_first_launch() -> None:
    """They inherit that of the launcher, which containers do not have."""
    fake, host = both()
    for looks, found in ((fake.looks, "nice 0, other"), (host.looks, "nice 19, other")):
        for look in looks.values():
            object.__setattr__(look, "contents", msgspec.structs.replace(look.contents, priority=found))
    with pytest.raises(PlanError, match="nice 19"):
        looked(fake, host)
    assert look_at_containers(fake).differences == ("no memlock",)


def test_without_the_host_nothing_differs() -> None:
    fake, _ = both()
    found = look_at_containers(fake)
    assert (found.environments, found.differences) == ((), ("no memlock",))
    assert len(found.images) == 2


def test_an_image_that_only_containers_have_is_beside_nothing() -> None:
    fake, host = both()
    del host.looks["openmpi"]
    found = looked(fake, host)
    assert found.differences == ("no memlock", "a remark")


def test_every_cell_runs_the_stack_of_its_engine_and_image() -> None:
    found = looked(*both())
    inside = found.of(LaunchCell("mpich", "single", "strict", 2, engine="fake"))
    assert (inside.launcher.vendor, inside.reference, inside.refused, inside.grants, inside.nccl) == (
        "mpich", "ref:mpich", frozenset({"kcmp"}), frozenset({"memlock"}), False
    )  # fmt: skip
    outside = found.of(LaunchCell("openmpi", "host", None, 2, engine="host"))
    assert (outside.launcher.vendor, outside.reference, outside.refused) == ("openmpi", "/venv/openmpi", frozenset())


@pytest.mark.parametrize(
    ("backends", "nccl"),
    [(("mpi",), False), (("mpi", "nccl"), True), (("torch-nccl",), True), (("torch-gloo",), False)],
)
def test_a_stack_knows_whether_something_goes_over_nccl(backends: tuple[str, ...], nccl: bool) -> None:
    plan = msgspec.structs.replace(PLAN, backends=backends)
    assert stack_of(plan, "mpich", image("mpich")).nccl is nccl


def test_what_holds_no_library_cannot_be_started() -> None:
    with pytest.raises(ImageMissing, match="image mpich: holds no MPI; the launcher starts mpich, openmpi, torch"):
        stack_of(PLAN, "mpich", Look(held(""), "r", "image mpich"))


# Backends that are not there -----------------------------------------------------------------------------------------


def refused(look: Look, *backends: str, **plan: Any) -> str:
    with pytest.raises(PlanError) as caught:
        refuse_missing(msgspec.structs.replace(PLAN, backends=backends, **plan), "mpich", look)
    return str(caught.value)


def lacking(*names: str, **fields: Any) -> Look:
    return image("mpich", missing={name: f"no {name}" for name in names}, **fields)


EVERYTHING = ("mpi", "mpi-cuda", "mpi-staged", "nccl", "torch-gloo", "torch-nccl")


def test_a_missing_backend_is_said_with_those_that_are_there() -> None:
    others = tuple(name for name in EVERYTHING if name not in ("mpi", "torch-gloo"))
    assert refused(lacking(*others), "mpi", "torch-nccl", "nccl") == (
        "image mpich: backend torch-nccl: no torch-nccl. Build it for GPUs: collbench image build mpich --cuda 12 "
        "(or 13). It has mpi, torch-gloo: set image_backends = { mpich = [...] }, or backends."
    )
    assert refused(lacking(*EVERYTHING), "mpi") == (
        "image mpich: backend mpi: no mpi. It has none: set image_backends = { mpich = [...] }, or backends."
    )


@pytest.mark.parametrize(
    ("look", "built"),
    [
        (lacking("nccl"), True),
        (lacking("nccl", cuda="12"), False),
        (Look(held("mpich", missing={"nccl": "no nccl"}), "/venv", "the environment beside mpich"), False),
    ],
)
def test_only_an_image_without_cuda_is_to_be_built_again(look: Look, built: bool) -> None:
    assert ("collbench image build mpich" in refused(look, "nccl")) is built


def test_a_backend_of_the_cpu_needs_no_other_build() -> None:
    assert "Build it for GPUs" not in refused(lacking("mpi"), "mpi")


def test_a_plan_that_may_skip_needs_one_of_its_backends() -> None:
    plan = msgspec.structs.replace(PLAN, backends=("mpi", "nccl"), unusable="skip")
    refuse_missing(plan, "mpich", lacking("nccl"))
    refuse_missing(plan, "mpich", lacking("mpi"))
    assert refused(lacking("mpi", "nccl"), "mpi", "nccl", unusable="skip").startswith(
        "image mpich: backend mpi: no mpi."
    )
