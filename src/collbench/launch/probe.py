"""`python -m collbench.launch.probe`: what an environment holds, asked from inside it. Prints one JSON object."""

from __future__ import annotations

import importlib.util
import sys

import msgspec

import collbench
from collbench import backends
from collbench.backends.parts.mpi_loading import library_path, load_mpi, vendor, version_line
from collbench.errors import CollbenchError
from collbench.run.describe import hashed, packages
from collbench.schema.manifest import Library
from collbench.timing.loop import native_loop


class Contents(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`vendor` is `torch` where there is torch and no MPI, and empty where there is neither.

    `native` says whether the C loop was built.
    """

    collbench: str
    python: str
    vendor: str
    libraries: tuple[Library, ...]
    packages: dict[str, str]
    native: bool


def contents() -> Contents:
    """Of this process."""
    libraries: tuple[Library, ...] = ()
    kind = ""
    try:
        mpi = load_mpi()
        kind = vendor(mpi)
        name, _, version = version_line(mpi).rpartition(" ")
        libraries = (hashed(Library(name=name, version=version, path=library_path())),)
    except CollbenchError:
        if importlib.util.find_spec("torch") is not None:
            kind, libraries = "torch", backends.get("torch-gloo").libraries()
    return Contents(
        collbench=collbench.__version__,
        python=sys.version.split()[0],
        vendor=kind,
        libraries=libraries,
        packages=packages(),
        native=native_loop() is not None,
    )


if __name__ == "__main__":
    sys.stdout.write(msgspec.json.encode(contents()).decode() + "\n")
