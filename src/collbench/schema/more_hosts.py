"""The machines of a run that is resumed: a scheduler may give it others than before."""

from __future__ import annotations

from pathlib import Path

import msgspec

from collbench.errors import RunWriteError
from collbench.schema import manifest as manifests
from collbench.schema.manifest import Host
from collbench.schema.store import read_manifest, write_synced


def add_hosts(directory: Path, hosts: tuple[Host, ...]) -> tuple[Host, ...]:
    """Add to the manifest of a run the hosts whose names it does not have; returns these.

    Raises:
        RunReadError, RunWriteError: it cannot be read, or not be written; then it stays as it was.
    """
    before = read_manifest(directory)
    names = {host.name for host in before.hosts}
    added = tuple(host for host in hosts if host.name not in names)
    path, part = directory / "manifest.json", directory / "manifest.json.part"
    try:
        if added:
            part.unlink(missing_ok=True)
            write_synced(part, manifests.encode(msgspec.structs.replace(before, hosts=(*before.hosts, *added))))
            part.replace(path)
    except OSError as error:
        raise RunWriteError(f"{path}: {error.strerror or error}.") from error
    return added
