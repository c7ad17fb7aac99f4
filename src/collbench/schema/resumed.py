"""What the manifest of a run learns when the run is resumed: other machines, and another end."""

from __future__ import annotations

from pathlib import Path

import msgspec

from collbench.errors import RunWriteError
from collbench.schema import manifest as manifests
from collbench.schema.manifest import Host, Manifest
from collbench.schema.store import read_manifest, write_synced


def add_hosts(directory: Path, hosts: tuple[Host, ...]) -> tuple[Host, ...]:
    """Add to the manifest of a run the hosts whose names it does not have; returns these.

    A scheduler may give a run that is resumed other machines than before.

    Raises:
        RunReadError, RunWriteError: it cannot be read, or not be written; then it stays as it was.
    """
    before = read_manifest(directory)
    names = {host.name for host in before.hosts}
    added = tuple(host for host in hosts if host.name not in names)
    if added:
        _replace(directory, msgspec.structs.replace(before, hosts=(*before.hosts, *added)))
    return added


def extend(directory: Path, launches: int) -> None:
    """From now on the run ends when it is decided, after at most so many launches; its `plan` stays as it was.

    Raises:
        RunReadError, RunWriteError: as `add_hosts`.
    """
    before = read_manifest(directory)
    if before.experiment is not None:
        experiment = msgspec.structs.replace(before.experiment, launches=launches, until="decided")
        _replace(directory, msgspec.structs.replace(before, experiment=experiment))


def _replace(directory: Path, manifest: Manifest) -> None:
    path, part = directory / "manifest.json", directory / "manifest.json.part"
    try:
        part.unlink(missing_ok=True)
        write_synced(part, manifests.encode(manifest))
        part.replace(path)
    except OSError as error:
        raise RunWriteError(f"{path}: {error.strerror or error}.") from error
