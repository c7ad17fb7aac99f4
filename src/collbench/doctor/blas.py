"""Check `blas`: the kernels that OpenBLAS chose for this processor.

An OpenBLAS that does not know a processor takes it for an old one, and uses none of its vector instructions.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass

from collbench.doctor.parts.finding import Finding, Problem, found
from collbench.doctor.parts.processors import Machine, cpu_flags

#: Kernels that use no vectors wider than those of SSE, or of the first AVX (OpenBLAS, TargetList.txt).
SLOW = frozenset(
    {"Atom", "Athlon", "Banias", "Barcelona", "Bobcat", "Bulldozer", "Coppermine", "Core2", "Dunnington", "Generic",
     "Katmai", "Nano", "Nehalem", "Northwood", "Opteron", "Opteron_SSE3", "P5", "Penryn", "Piledriver", "Prescott",
     "Sandybridge", "Steamroller", "Unknown"}
)  # fmt: skip

#: Describes the library that it is given.
_ASK = (sys.executable, "-m", "collbench.workloads.host.blas")

#: What to load, and what brings it.
LIBRARIES = {
    "libopenblas.so.0": "the distribution's OpenBLAS",
    "libopenblas64.so.0": "the distribution's OpenBLAS (64)",
    "openblas": "scipy-openblas32",
    "openblas64": "scipy-openblas64",
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
        output = machine.execute((*_ASK, name))
        said = json.loads(output.text.strip().rpartition("\n")[2]) if output.code == 0 else {}
        return OpenBlas(title, said["version"], said["kernel"]) if said.get("kernel") else None
    except (OSError, ValueError):
        return None


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
