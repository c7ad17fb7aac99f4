"""Check `nccl`: which libnccl a process here would load, whether there are several, and whether the driver is too old.

Libraries are loaded in child processes only, because two in one process would disturb each other.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from collbench.bindings.gpu.nccl import SONAME
from collbench.bindings.gpu.shared_library import package_folders
from collbench.doctor.parts.finding import Finding, Problem, found
from collbench.doctor.parts.processors import Machine
from collbench.machine import nvml

_BY_LINKER = "dynamic linker"

_TRY = """
import ctypes, json, re, sys
library, version = ctypes.CDLL(sys.argv[1]), ctypes.c_int()
error = library.ncclGetVersion(ctypes.byref(version))
path = re.search(r"(/.*/libnccl\\.so.*)$", open("/proc/self/maps").read(), re.MULTILINE)
print(json.dumps([path and path[1], None if error else version.value]))
"""

#: Distributions that are built for one CUDA, by the number in their name.
_BUILT_FOR = re.compile(r"(?:cupy-cuda|nvidia-nccl-cu)(\d+)x?")


@dataclass(frozen=True)
class NcclInstallation:
    """A libnccl: where it comes from (`nvidia-nccl wheel`, `torch`, `dynamic linker`), its file, its version.

    The version is None where the library cannot be loaded or does not say it.
    """

    origin: str
    path: str
    version: str | None


def installed() -> frozenset[str]:
    """The installed distributions that are built for one CUDA: `cupy-cuda12x`, `nvidia-nccl-cu12`."""
    distributions = importlib.metadata.distributions()
    names = (str(distribution.metadata["Name"]).lower().replace("_", "-") for distribution in distributions)
    return frozenset(name for name in names if _BUILT_FOR.fullmatch(name))


def libraries(machine: Machine) -> tuple[NcclInstallation, ...]:
    """Those of Python packages, then what the dynamic linker finds; each file once."""
    by_path: dict[str, NcclInstallation] = {}
    for origin, name in _candidates():
        path, version = _ask(machine, name)
        if path is not None:
            by_path.setdefault(path, NcclInstallation(origin, path, version))
    return tuple(by_path.values())


def _candidates() -> Iterator[tuple[str, str]]:
    for origin, package, inside in (("torch", "torch", "lib"), ("nvidia-nccl wheel", "nvidia.nccl", "lib")):
        for folder in package_folders(package):
            file = folder / inside / SONAME
            if file.exists():
                yield origin, str(file)
    yield _BY_LINKER, SONAME


def _ask(machine: Machine, name: str) -> tuple[str | None, str | None]:
    """The file that is loaded under that name, and its version. A path that cannot be loaded is kept."""
    try:
        output = machine.execute((sys.executable, "-I", "-S", "-c", _TRY, name))
        path, code = json.loads(output.text.strip().splitlines()[-1])
    except (OSError, TimeoutError, ValueError, IndexError, TypeError):
        return (None if name == SONAME else str(Path(name).resolve())), None
    return str(Path(path or name).resolve()), None if code is None else spell(code)


def spell(code: int) -> str:
    """`2.27.5` for 22705. Before NCCL 2.9 the minor version had one digit less: 2804."""
    unit = 10000 if code >= 10000 else 1000
    return f"{code // unit}.{code % unit // 100}.{code % 100}"


def judge(installations: tuple[NcclInstallation, ...], wheels: frozenset[str], cuda: str | None, gpu: bool) -> Finding:
    """`cuda` is the highest version that the driver supports, None without a driver; `gpu`: there is one."""
    major = int(cuda.partition(".")[0]) if cuda else None
    seen = "; ".join(f"{nccl.version or 'version unknown'} ({nccl.origin}: {nccl.path})" for nccl in installations)
    return found(
        "; ".join(filter(None, (seen or "not installed", ", ".join(sorted(wheels))))),
        _missing(major) if gpu and not installations else None,
        _several_wheels(wheels, major),
        _several_files(installations),
        *(_unloadable(nccl) for nccl in installations if nccl.version is None),
        *(_too_old(name, cuda, major) for name in sorted(wheels)),
    )


def _missing(major: int | None) -> Problem:
    cause = f"there is a GPU, but no {SONAME} that can be loaded"
    effect = "backends nccl and torch-nccl are not usable (unless NCCL is built into torch, which is not checked)"
    fix = f"pip install nvidia-nccl-cu{major or 12}"
    return Problem("warn", cause, effect, fix)


def _several_wheels(wheels: frozenset[str], major: int | None) -> Problem | None:
    names = sorted(name for name in wheels if name.startswith("nvidia-nccl-"))
    if len(names) < 2:
        return None
    kept = next((name for name in reversed(names) if major and int(name[-2:]) <= major), names[0])
    cause = f"{' and '.join(names)} are installed in the same folder"
    effect = "the one that was installed last has overwritten the other: which NCCL is measured depends on the order"
    fix = f"pip uninstall -y {' '.join(names)} && pip install {kept}"
    return Problem("warn", cause, effect, fix)


def _several_files(installations: tuple[NcclInstallation, ...]) -> Problem | None:
    if len(installations) < 2:
        return None
    cause = f"{len(installations)} different libraries: {', '.join(nccl.path for nccl in installations)}"
    effect = "two backends could measure different libraries; collbench refuses two in one process"
    fix = f"export LD_LIBRARY_PATH={Path(installations[0].path).parent}:$LD_LIBRARY_PATH"
    return Problem("warn", cause, effect, fix)


def _unloadable(library: NcclInstallation) -> Problem:
    cause = f"{library.path} ({library.origin}) cannot be loaded, or does not say its version"
    effect = "a backend that uses it does not start"
    fix = f"{sys.executable} -c 'import ctypes; ctypes.CDLL(\"{library.path}\").ncclGetVersion'"
    return Problem("warn", cause, effect, fix)


def _too_old(name: str, cuda: str | None, major: int | None) -> Problem | None:
    match = _BUILT_FOR.fullmatch(name)
    if match is None or major is None or int(match[1]) <= major:
        return None
    fitting = name.replace(f"cu{match[1]}", f"cu{major}").replace(f"cuda{match[1]}", f"cuda{major}")
    cause = f"{name} is built for CUDA {match[1]}, and the driver supports CUDA up to {cuda}: the driver is too old"
    effect = "it cannot use a GPU (cudaErrorInsufficientDriver)"
    fix = f"pip uninstall -y {name} && pip install {fitting}, or update the driver"
    return Problem("fail", cause, effect, fix)


def run(machine: Machine) -> Finding:
    gpu = bool(nvml.gpus(machine.root)[0])
    return judge(libraries(machine), installed(), nvml.driver()[1], gpu)
