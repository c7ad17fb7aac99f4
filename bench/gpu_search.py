"""Which libnccl and libcudart backend nccl takes in this environment, as one line of JSON: asked without a launch.

    python bench/gpu_search.py

collbench's own search is asked first. Where it finds nothing, the files of NVIDIA's wheels, of torch and of the linker
are looked through, so that other programs can be measured; `problems` says what collbench said. It needs no GPU.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
from collections.abc import Callable, Iterator
from pathlib import Path


def nccl_of_collbench() -> dict[str, str]:
    """The file that backend nccl loads, and its version."""
    from collbench.bindings.gpu.nccl import cupy_nccl

    found = cupy_nccl()
    return {"nccl": found.path, "version": ".".join(map(str, found.version))}


def cudart_of_collbench() -> dict[str, str]:
    """The CUDA runtime whose functions its native driver calls, of CuPy's major version."""
    import cupy

    from collbench.bindings.gpu.device import load

    major = cupy.cuda.runtime.runtimeGetVersion() // 1000
    return {"cudart": load("cudart", f"libcudart.so.{major}", only=False).path}


def nccl_by_file() -> dict[str, str]:
    """The first libnccl that can be loaded."""
    path, library = _first("nccl", ("nccl/lib/libnccl.so.2", "lib/libnccl.so.2"), ("libnccl.so.2",))
    version = ctypes.c_int()
    library.ncclGetVersion(ctypes.byref(version))
    return {"nccl": path, "version": f"{version.value // 10000}.{version.value // 100 % 100}.{version.value % 100}"}


def cudart_by_file() -> dict[str, str]:
    """The newest libcudart that can be loaded."""
    names = [f"libcudart.so.{major}" for major in (13, 12)]
    return {"cudart": _first("cudart", ("*/lib/libcudart.so.*", "lib/libcudart.so.*"), tuple(names))[0]}


def _first(name: str, patterns: tuple[str, ...], sonames: tuple[str, ...]) -> tuple[str, ctypes.CDLL]:
    """Of files in packages, then of the linker's.

    Raises:
        OSError: none can be loaded.
    """
    for candidate in (*_files(patterns), *sonames):
        try:
            library = ctypes.CDLL(candidate)
        except OSError:
            continue
        lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
        return next((line.split()[-1] for line in lines if f"/lib{name}.so" in line), candidate), library
    raise OSError(f"there is no lib{name} in a package or on the linker's path")


def _files(patterns: tuple[str, ...]) -> Iterator[str]:
    for package in ("nvidia", "torch"):
        spec = importlib.util.find_spec(package)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            for pattern in patterns:
                yield from map(str, sorted(Path(folder).glob(pattern), reverse=True))


SEARCHES = ((nccl_of_collbench, nccl_by_file), (cudart_of_collbench, cudart_by_file))


def find(searches: tuple[tuple[Callable[[], dict[str, str]], ...], ...] = SEARCHES) -> dict[str, object]:
    """Of each row the first that answers. What went wrong before is in `problems`; what nobody found is not there."""
    found: dict[str, object] = {}
    problems: list[str] = []
    for ways in searches:
        for way in ways:
            try:
                found |= way()
                break
            except Exception as error:  # whatever a library does while it is loaded, the next way is tried
                problems.append(f"{way.__name__}: {error or type(error).__name__}")
    return found | {"problems": problems}


if __name__ == "__main__":
    print(json.dumps(find()))
