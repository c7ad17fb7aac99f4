"""Whether all ranks run one program: a world in which builds are mixed measures none of them."""

from __future__ import annotations

import collbench
from collbench.bindings.spec import Backend
from collbench.errors import BackendUnavailable


def software(backend: Backend) -> tuple[tuple[str, str], ...]:
    """(name, version) of this program and of the libraries that move the data; plain, so that any version reads it.

    A library that cannot be used here, as NCCL where a server has no GPU, has no version.
    """
    try:
        libraries = backend.libraries()
    except BackendUnavailable:
        libraries = ()
    return (("collbench", collbench.__version__), *((one.name, one.version) for one in libraries))


def difference(ranks: list[tuple[tuple[str, str], ...]]) -> str | None:
    """The first rank that has another version of something than a rank before it. `ranks` are `software` by rank."""
    first: dict[str, tuple[int, str]] = {}
    for rank, found in enumerate(ranks):
        for name, version in found:
            earlier, known = first.setdefault(name, (rank, version))
            if version != known:
                return f"rank {earlier} has {name} {known}, rank {rank} has {version}"
    return None
