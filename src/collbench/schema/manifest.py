"""A manifest: what was requested and on which machine, once per run. docs/record.md describes every field."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

import msgspec

from collbench.errors import RunReadError
from collbench.schema.files import Amount, Burst, ByteCount, Count, Rank, RankCount, ShortText, read_whole
from collbench.schema.record import SCHEMA, Time, decode_versioned
from collbench.schema.world import SliceRule

#: When an experiment ends: after so many launches of each cell, or earlier, when its comparisons are decided.
Until = Literal["launches", "decided"]


class Library(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A library that moved data, or a program, and its file. `used_by` are the workloads that start it.

    `settings` are its own, as it sees them: `NAME=VALUE`.
    """

    name: str
    version: str
    path: str | None = None
    sha256: str | None = None
    used_by: tuple[str, ...] = ()
    kernel: str | None = None
    settings: tuple[str, ...] = ()


class Gpu(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A GPU that ranks used. `memory` in bytes; `bus` is its PCI address, `node` the nearest memory node."""

    uuid: str
    name: str
    memory: ByteCount
    bus: str
    node: Count | None = None
    driver: str | None = None


class Disk(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A block device. `scheduler` is the one in use; None where the kernel does not say."""

    name: str
    model: str | None = None
    rotational: bool | None = None
    scheduler: str | None = None


class Host(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One machine, and the ranks that ran on it. Sizes in bytes; None where the kernel has no answer.

    `clock_step` is the spacing (s) of the values that its clock can show, `cache` the size of the last-level cache.
    """

    name: str
    ranks: tuple[Rank, ...]
    kernel: str
    cpu: str
    cores: Count
    memory: ByteCount | None = None
    cgroup_cpus: Amount | None = None
    cgroup_memory: ByteCount | None = None
    governor: str | None = None
    boot_id: str | None = None
    clock_step: Time | None = None
    gpus: tuple[Gpu, ...] = ()
    cache: ByteCount | None = None
    priority: str | None = None
    disks: tuple[Disk, ...] = ()
    huge_pages: str | None = None


class Protocol(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How every case of a run was measured. `iters` is None under a time budget (in seconds)."""

    align: str
    cadence: str
    burst: Burst = 1
    warmup: Count
    check: Count
    iters: Count | None
    budget: Amount
    floor: Count
    cap: Count
    timeout: Amount


class Image(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The software on one side of a comparison: an image, or the host's environment that is compared with it.

    `files` are the library files that its ranks find before others: SHA-256 by path; `sources` is that of the code of
    collbench that measures there. None: not recorded.
    """

    name: str
    id: str | None = None
    digests: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    python: str | None = None
    libraries: tuple[Library, ...] = ()
    packages: dict[str, str] = {}
    environment: dict[str, str] | None = None
    sources: str | None = None
    side: str | None = None
    files: dict[str, str] = {}


class Allocation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a resource manager gave an experiment; `options` are those that may change what is measured."""

    job: str
    partition: str
    nodes: str
    options: tuple[str, ...] = ()


class Chosen(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a `choice` of a plan came to for so many ranks: `members` are places of GPUs, or processors.

    They are `of` so many GPUs or cores that may be used. `pairs` of them by what connects two. `limit` (B/s) is the
    least that one of the GPUs can send to the others, all its ways together: over so many `nvlinks`, and over PCI where
    the others are not all at these. None: not known.
    """

    axis: Literal["gpus", "cores"]
    choice: ShortText
    ranks: RankCount
    members: tuple[Count, ...]
    of: Count
    pairs: dict[ShortText, Count] = {}
    limit: Amount | None = None
    nvlinks: Count = 0
    pcie: bool = False


class Experiment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of a run with many launches: the engine, both sides of each comparison, and how else they differ.

    `left_out` says what of the plan the engine cannot do, or what is the same twice, and has no records. `yardsticks`:
    by which share each must change to have changed. `chosen`: what the choices of GPUs or cores came to.
    """

    engine: str
    seed: int
    launches: Count
    images: tuple[Image, ...]
    environments: tuple[Image, ...]
    differences: tuple[str, ...]
    allocation: Allocation | None = None
    left_out: tuple[str, ...] = ()
    until: Until = "launches"
    slices: SliceRule | None = None
    yardsticks: dict[ShortText, Amount] = {}
    chosen: tuple[Chosen, ...] = ()


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first file of a run. `environment` holds an allow-list of variables, because others may be secret.

    `rank_gpus` is the UUID of each rank's GPU (None: it has none); empty where no rank has one.
    """

    created: str
    collbench: str
    python: str
    command: tuple[str, ...]
    title: str
    ranks: RankCount
    protocol: Protocol
    thread_level: dict[str, str]
    launcher: str
    libraries: tuple[Library, ...]
    hosts: tuple[Host, ...]
    environment: dict[str, str]
    plan: dict[str, Any] | None = None
    simulated: bool = False
    packages: dict[str, str] = {}
    experiment: Experiment | None = None
    rank_gpus: tuple[str | None, ...] = ()
    schema: int = SCHEMA


def encode(manifest: Manifest) -> bytes:
    """Indented JSON, for people too."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"


def decode(text: bytes, what: str = "manifest.json") -> Manifest:
    """The manifest of a run. Raises RunReadError: not JSON, another schema, an unknown or a missing field."""
    try:
        return decode_versioned(text, Manifest, what)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RunReadError(f"{what}: {error}") from error


LARGEST_MANIFEST = 64 << 20  # as long a manifest is one of many ranks (bytes)


def read_manifest(directory: Path) -> Manifest:
    """The manifest of a run. Raises RunReadError: no folder, not a run, or a newer schema."""
    path = directory / "manifest.json"
    if not os.path.lexists(directory):
        raise RunReadError(f"{directory}: not a run (there is no such folder).")
    try:
        return decode(read_whole(path, LARGEST_MANIFEST), str(path))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        runs = sorted(path.parent for path in directory.glob("*/manifest.json"))
        meant = f" It holds {len(runs)}; name one of them, such as {runs[0]}." if runs else ""
        raise RunReadError(f"{directory}: not a run ({reason}: manifest.json).{meant}") from error
