"""NVIDIA's shared libraries: the one of a name that is in this process, or that a program here would load."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from collbench.collectives.row import C
from collbench.errors import BackendUnavailable
from collbench.timing.call import Native


@dataclass(frozen=True)
class SharedLibrary:
    """A library in this process. `path` is what the memory map says."""

    path: str
    handle: ctypes.CDLL

    def address(self, function: str) -> int | None:
        """Where a function begins; None where the library does not have it."""
        found = getattr(self.handle, function, None)
        return None if found is None else ctypes.cast(found, ctypes.c_void_p).value

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
    found = re.findall(rf"(/\S*/lib{re.escape(name)}(?:-[0-9a-f]+)?\.so[.\d]*)$", maps, re.MULTILINE)
    return tuple(dict.fromkeys(found))


def load(name: str, soname: str, only: bool = True) -> SharedLibrary:
    """The library of that name, loaded if none is yet: from a wheel, a toolkit, or the linker's path.

    `only`: a second one in this process is refused; else the first is taken.

    Raises:
        BackendUnavailable: there is none, or there are two in this process.
    """
    if not loaded(name):
        _bring(name, soname)
    paths = loaded(name) if only else loaded(name)[:1]
    if len(paths) != 1:
        raise BackendUnavailable(
            f"{len(paths)} different lib{name} are in this process ({', '.join(paths)}): it would not be known which "
            "one was measured. Leave one package of them installed, or measure their backends in runs of their own"
            if paths
            else f"lib{name} was not found; pip install 'collbench[cuda12]' brings it, or a CUDA toolkit on "
            "LD_LIBRARY_PATH"
        )
    return _opened(paths[0])


@cache
def _opened(path: str) -> SharedLibrary:
    return SharedLibrary(path, ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL))


def _bring(name: str, soname: str) -> None:
    """Load it where NVIDIA's wheels and toolkits put it, else where the dynamic linker finds it."""
    try:
        from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib
    except ImportError:
        _by_linker(soname)
        return
    try:
        load_nvidia_dynamic_lib(name)
    except (DynamicLibNotFoundError, RuntimeError):
        _by_linker(soname)


def _by_linker(soname: str) -> None:
    try:
        ctypes.CDLL(soname, mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return
