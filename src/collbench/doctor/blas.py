"""Check `blas`: the kernels that OpenBLAS chose for this processor.

An OpenBLAS that does not know a processor takes it for an old one, and uses none of its vector instructions.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass

from collbench.doctor.parts.finding import Check, Finding, Problem, found
from collbench.doctor.parts.machine import Machine
from collbench.doctor.parts.processors import cpu_flags

#: Kernels that use no vectors wider than those of SSE, or of the first AVX (OpenBLAS, TargetList.txt).
SLOW = frozenset(
    {"Atom", "Athlon", "Banias", "Barcelona", "Bobcat", "Bulldozer", "Coppermine", "Core2", "Dunnington", "Generic",
     "Katmai", "Nano", "Nehalem", "Northwood", "Opteron", "Opteron_SSE3", "P5", "Penryn", "Piledriver", "Prescott",
     "Sandybridge", "Steamroller", "Unknown"}
)  # fmt: skip

#: Loads the library that the argument names and prints its version and kernel.
_ASK = """
import ctypes, importlib, json, sys
name = sys.argv[1]
if name.startswith("lib"):
    library, prefix = ctypes.CDLL(name), ""
else:
    package = importlib.import_module(name)
    library, prefix = ctypes.CDLL(package.get_lib_dir() + "/" + package.get_library(True)), "scipy_"
texts = []
for what in ("config", "corename"):
    names = [prefix + "openblas_get_" + what + end for end in ("", "64_", "_64")]
    function = next(getattr(library, name) for name in names if hasattr(library, name))
    function.restype = ctypes.c_char_p
    texts.append(function().decode())
print(json.dumps(texts))
"""

#: What to load, and what brings it.
LIBRARIES = {
    "libopenblas.so.0": "the distribution's OpenBLAS",
    "libopenblas64.so.0": "the distribution's OpenBLAS (64)",
    "scipy_openblas32": "scipy-openblas32",
    "scipy_openblas64": "scipy-openblas64",
}


@dataclass(frozen=True)
class OpenBlas:
    """`kernel` is what it calls the processor that its kernels are for."""

    title: str
    version: str
    kernel: str

    @property
    def text(self) -> str:
        return f"{self.title} {self.version}: {self.kernel}"


def run(machine: Machine) -> Finding:
    libraries = [one for name, title in LIBRARIES.items() if (one := _asked(machine, name, title)) is not None]
    if not libraries:
        return found("no OpenBLAS; linpack and dgemm need one: pip install scipy-openblas32")
    forced = machine.environ.get("OPENBLAS_CORETYPE")
    seen = "; ".join(one.text for one in libraries) + (f" (OPENBLAS_CORETYPE={forced})" if forced else "")
    flags = cpu_flags(machine)
    return found(seen, *(_too_old(one, flags, forced) for one in libraries))


def _asked(machine: Machine, name: str, title: str) -> OpenBlas | None:
    """What a library says, loaded in a process of its own; None where it is not there."""
    try:
        output = machine.execute((sys.executable, "-c", _ASK, name))
        config, kernel = json.loads(output.text.strip().rpartition("\n")[2]) if output.code == 0 else ("", "")
    except (OSError, ValueError):
        return None
    version = next((word for word in config.split() if word[:1].isdigit()), "")
    return OpenBlas(title, version, kernel) if kernel else None


def _too_old(library: OpenBlas, flags: frozenset[str], forced: str | None) -> Problem | None:
    wide = next((flag for flag in ("avx512f", "avx2") if flag in flags), None)
    if wide is None or library.kernel not in SLOW:
        return None
    cause = f"{library.title} {library.version} uses the kernels for {library.kernel}, and this processor has {wide}"
    kernel = "SkylakeX" if wide == "avx512f" else "Haswell"
    fix = f"export OPENBLAS_CORETYPE={kernel}; or, in containers too, a newer OpenBLAS: pip install scipy-openblas32"
    if forced:
        fix = f"unset OPENBLAS_CORETYPE, which is {forced}; where the kernels remain old, set it to {kernel}"
    effect = "matrix products and LINPACK are 3 to 6 times slower than this processor can compute them"
    return Problem("warn", cause, effect, fix)


CHECK = Check("blas", "OpenBLAS uses kernels for this processor", run)
