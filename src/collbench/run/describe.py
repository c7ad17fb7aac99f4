"""The manifest of a run, from the plan, the world and the machine; and how its cases are measured."""

from __future__ import annotations

import contextlib
import datetime
import sys
from dataclasses import replace
from typing import Any

import msgspec

import collbench
from collbench import backends
from collbench.bindings.spec import Backend, Session, World
from collbench.errors import BackendUnavailable
from collbench.machine import facts, launcher
from collbench.machine.facts import RankFacts, have_common_clock, is_oversubscribed, sha256_of
from collbench.run.host_clocks import HostClocks
from collbench.run.sampling import Method
from collbench.schema.case import GATES, Gate
from collbench.schema.manifest import Host, Library, Manifest, Protocol
from collbench.schema.plan import Plan
from collbench.schema.samples import ALL_RANKS_LIMIT
from collbench.timing.gates import Budget, Fixed, StopRule

#: Distributions that matter whatever the backend.
_PACKAGES = ("numpy",)


def manifest(
    plan: Plan,
    command: tuple[str, ...],
    measured: tuple[Backend, ...],
    session: Session,
    ranks: tuple[RankFacts, ...],
    method: Method,
) -> Manifest:
    """Collective: one rank of each machine describes it. What takes long is added by `completed`.

    Whole on rank 0, which has the facts of all `ranks`; without hosts and GPUs elsewhere.
    """
    gpus = tuple(rank.gpu for rank in ranks)
    libraries: dict[Library, None] = {}
    for backend in measured:
        with contextlib.suppress(BackendUnavailable):  # known only when it is started; then it has none
            libraries |= dict.fromkeys(backend.libraries())
    return manifest_of(
        plan,
        command,
        ranks=session.world.size,
        protocol=protocol(plan, method.gate, method.cadence),
        rank_gpus=gpus if any(gpus) else (),
        thread_level={"requested": plan["thread_level"], "granted": session.thread_level},
        launcher=launcher.detect().title,
        libraries=tuple(libraries),
        hosts=_hosts(session, ranks),
        environment={},
        simulated=any(backend.simulated for backend in measured),
    )


def manifest_of(plan: Plan, command: tuple[str, ...], **fields: Any) -> Manifest:
    """The manifest of a run that begins now, of one world or of many; `fields` are those in which these differ."""
    return Manifest(
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        collbench=collbench.__version__,
        python=sys.version.split()[0],
        command=tuple(facts.printable(word) for word in command),
        title=plan.title,
        plan=msgspec.to_builtins(plan),
        **fields,
    )


def completed(manifest: Manifest) -> Manifest:
    """With the environment, package versions and the SHA-256 of every library file: looked up when a run is kept.

    All backends are asked what matters to them, used or not: comparisons must see what differs between two runs.
    """
    libraries = tuple(hashed(library) for library in manifest.libraries)
    environment = facts.environment(backends.variables())
    return msgspec.structs.replace(manifest, libraries=libraries, packages=packages(), environment=environment)


def hashed(library: Library) -> Library:
    """The library with the SHA-256 of its file."""
    if library.path is None:
        return library
    try:
        return msgspec.structs.replace(library, sha256=sha256_of(library.path))
    except OSError:
        return library


def protocol(plan: Plan, gate: str, cadence: str) -> Protocol:
    """How a plan measures. Gate and cadence are those at the start: a gate may change."""
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
    """By name, the versions of the packages that matter to any backend, where they are installed."""
    from importlib.metadata import PackageNotFoundError, version

    versions = {}
    for name in sorted({*_PACKAGES, *backends.packages()}):
        with contextlib.suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


def _hosts(session: Session, ranks: tuple[RankFacts, ...]) -> tuple[Host, ...]:
    """One entry per machine and hostname; containers on one machine have entries of their own. Empty but on rank 0.

    Of a large world one entry per machine, by the hostname of its first rank.
    """
    world, each = session.world, len(ranks) <= ALL_RANKS_LIMIT
    members: dict[tuple[str, str], list[int]] = {}
    for number, rank in enumerate(ranks):
        members.setdefault((rank.host if each else "", rank.kernel_id), []).append(number)
    readers: frozenset[int] = world.bcast(frozenset(numbers[0] for numbers in members.values()))
    hosts = world.gather(facts.host() if world.rank in readers else None)
    gpus = world.gather(session.gpu)
    if hosts is None or gpus is None:
        return ()
    return tuple(
        msgspec.structs.replace(
            hosts[numbers[0]],
            ranks=tuple(numbers),
            gpus=tuple({gpu.uuid: gpu for number in numbers if (gpu := gpus[number]) is not None}.values()),
        )
        for numbers in members.values()
    )


#: Most samples within a time budget of a simulation, whose samples take real time that its clock does not show.
SIMULATED_CAP = 30


def agreed_method(
    world: World, plan: Plan, ranks: tuple[RankFacts, ...], simulated: bool, clocks: HostClocks | None = None
) -> Method:
    """The choice of rank 0, on all ranks; without the facts of all ranks on the others. Collective."""
    if world.rank != 0:
        method: Method = world.bcast(None)
        return replace(method, clocks=clocks)
    chosen = choose_method(plan, ranks, simulated, clocks)
    world.bcast(replace(chosen, ranks=(), clocks=None))
    return chosen


def choose_method(
    plan: Plan, ranks: tuple[RankFacts, ...], simulated: bool, clocks: HostClocks | None = None
) -> Method:
    """The gate that fits the machines, and the plan's stop rule. `clocks` are those of hosts that share none."""
    common = have_common_clock(ranks)
    oversubscribed = not simulated and is_oversubscribed(ranks)
    automatic: Gate = "roundtime" if (common or clocks) and not oversubscribed else "barrier"
    cap = max(plan.floor, min(plan.cap, SIMULATED_CAP)) if simulated else plan.cap
    stop: StopRule = Budget(plan.budget_seconds, plan.floor, cap) if plan.iters is None else Fixed(plan.iters)
    return Method(
        gate=next((gate for gate in GATES if gate == plan.gate), automatic),
        gate_may_change=plan.gate == "auto",
        clock="common" if common else "synced" if clocks else "local",
        stop=stop,
        warmup=plan.warmup,
        check=plan.check,
        cadence="streaming" if plan.cadence == "streaming" else "isolated",
        ranks=ranks,
        oversubscribed=oversubscribed,
        burst=plan.burst,
        launches=plan["cudagraph"],
        most=cap if plan.iters is None else plan.iters,
        clocks=clocks,
    )
