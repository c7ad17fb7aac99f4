"""Whether all ranks run the same software: mixed builds would measure none of them."""

from __future__ import annotations

import collbench
from collbench.bindings.spec import Backend
from collbench.errors import BackendUnavailable


def software(backend: Backend) -> tuple[tuple[str, str], ...]:
    """(name, version) of this program and of the libraries that move the data, in a form that any version reads.

    A library that cannot be used here is left out, as NCCL where a server has no GPU; and so is one of programs, which
    may use several of one name.
    """
    try:
        libraries = backend.libraries()
    except BackendUnavailable:
        libraries = ()
    return (("collbench", collbench.__version__), *((one.name, one.version) for one in libraries if not one.used_by))


def difference(ranks: list[tuple[tuple[str, str], ...]]) -> str | None:
    """The first rank with another version of something than an earlier rank. `ranks` are `software` by rank."""
    first: dict[str, tuple[int, str]] = {}
    for rank, versions in enumerate(ranks):
        for name, version in versions:
            first_rank, first_version = first.setdefault(name, (rank, version))
            if version != first_version:
                return f"rank {first_rank} has {name} {first_version}, rank {rank} has {version}"
    return None
