"""NVIDIA's shared libraries: the one of a name that is in this process, or that a program here would load."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from collbench.collectives.row import C
from collbench.errors import BackendUnavailable, to_install
from collbench.timing.loop import Native


def how_to_install() -> str:
    """CuPy and NVIDIA's libraries."""
    return f"{to_install('cuda12')}, or for a driver that supports CUDA 13 {to_install('cuda13')}"


@dataclass(frozen=True)
class SharedLibrary:
    """A library in this process. `path` is what the memory map says."""

    path: str
    handle: ctypes.CDLL

    def address(self, function: str) -> int | None:
        """Where a function begins; None where the library does not have it."""
        symbol = getattr(self.handle, function, None)
        return None if symbol is None else ctypes.cast(symbol, ctypes.c_void_p).value

    def native(self, call: C, explain: Callable[[int], str]) -> Native | None:
        """A call whose arguments are integers and things with an `address` or a NumPy pointer, as words."""
        address = self.address(call.function)
        return None if address is None else Native((address, *map(to_word, call.arguments)), explain)


def to_word(argument: object) -> int:
    """One C argument as a machine word."""
    if isinstance(argument, int):
        return argument
    if argument is None:
        return 0
    address = getattr(argument, "address", None)
    return int(address if address is not None else argument.ctypes.data)  # type: ignore[attr-defined]


def loaded(name: str, maps: str | None = None) -> tuple[str, ...]:
    """Paths of all libraries `lib{name}.so*` in this process. `maps`: the memory map, if not the process's own."""
    if maps is None:
        try:
            maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ()
    paths = re.findall(rf"(/\S*/lib{re.escape(name)}(?:-[0-9a-f]+)?\.so[.\d]*)$", maps, re.MULTILINE)
    return tuple(dict.fromkeys(paths))


def load(name: str, soname: str, only: bool = True) -> SharedLibrary:
    """The library of that name, loaded if none is yet: from a wheel, a toolkit, or the linker's path.

    `only`: a second one in this process is refused; else the first of this soname is taken, whatever else is there.

    Raises:
        BackendUnavailable: there is none, or there are two in this process.
    """
    for load_from in (lambda *_: None, _from_wheels, _by_path_finder, _by_linker):
        load_from(name, soname)
        if paths := _loaded_paths(name, soname, only):
            break
    else:
        others = f" (in this process: {', '.join(loaded(name))})" if loaded(name) else ""
        raise BackendUnavailable(
            f"{soname} was not found{others}; {how_to_install()}, or a CUDA toolkit on LD_LIBRARY_PATH"
        )
    if only and len(paths) > 1:
        raise BackendUnavailable(
            f"{len(paths)} different lib{name} are in this process ({', '.join(paths)}), and which of them is measured "
            "is not known. Keep one of their packages installed, or measure their backends in separate runs"
        )
    return _opened(paths[0])


def package_folders(package: str) -> tuple[Path, ...]:
    """The folders of a package, without importing it."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return ()
    return tuple(Path(folder) for folder in (spec.submodule_search_locations or ())) if spec else ()


def _loaded_paths(name: str, soname: str, only: bool) -> tuple[str, ...]:
    """Paths of those in this process; with `only` of any version, because a second one is refused."""
    major = re.escape(soname.partition(".so.")[2])
    return tuple(path for path in loaded(name) if only or re.search(rf"\.so\.{major}(\.|$)", path))


@cache
def _opened(path: str) -> SharedLibrary:
    return SharedLibrary(path, ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL))


def _from_wheels(_: str, soname: str) -> None:
    """Where NVIDIA's wheels put it, in whichever folder of sys.path they are."""
    for folder in package_folders("nvidia"):
        for path in sorted(folder.glob(f"*/lib/{soname}")):
            _by_linker("", str(path))
            return


def _by_path_finder(name: str, _: str) -> None:
    """Where NVIDIA's cuda.pathfinder looks: wheels, Conda's environments, toolkits. Of any version."""
    try:
        from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib
    except ImportError:
        return
    with contextlib.suppress(DynamicLibNotFoundError, RuntimeError):
        load_nvidia_dynamic_lib(name)


def _by_linker(_: str, soname: str) -> None:
    with contextlib.suppress(OSError):
        ctypes.CDLL(soname, mode=ctypes.RTLD_GLOBAL)
