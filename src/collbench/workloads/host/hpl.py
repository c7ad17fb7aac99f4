"""hpl: High-Performance Linpack, by an xhpl, or else the one in Debian's hpcc, and its report.

`python -m collbench.workloads.host.hpl --program xhpl --n N --nb NB --p P --q Q`, in the current folder, writes the
input of xhpl (HPL.dat) or of hpcc (hpccinf.txt), and starts it, by mpirun where P x Q is above 1. Prints a line of JSON
with the `blas` that it is linked with (null: not known), and all that the program printed and wrote.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from collbench.schema.case import Case
from collbench.workloads.host.blas import REFERENCE, BlasOf, library_of, linked
from collbench.workloads.host.dense import RESIDUAL, flop
from collbench.workloads.program import ALL_CORES, Measure, Program, parameter, threads_of
from collbench.workloads.protocol import SKIPPED, add_flags, end, started
from collbench.workloads.software import FirstOf, Software

_VERSION = r"HPLinpack (\d+\.\d+)"
_CHECKED = re.compile(r"^\|\|Ax-b\|\|_oo/\(eps\*.*\*N\)= +(\S+) \.+ (\w+) *$", re.MULTILINE)
_ROW = re.compile(r"^W[RC]\S+ +(\d+) +(\d+) +(\d+) +(\d+) +(\S+) +(\S+) *$", re.MULTILINE)
_TIME = re.compile(r"^HPL_time=(\S+)$", re.MULTILINE)
_REPORT_VERSION = re.compile(r"^HPLinpack (\S+)", re.MULTILINE)


def _only(output: str, pattern: re.Pattern[str]) -> tuple[str, ...]:
    """What the only line of a system has. ValueError: another number of them; a report of HPL 1 has other residuals."""
    lines = pattern.findall(output)
    if len(lines) != 1:
        raise ValueError(f"{len(lines)} {'lines of results' if pattern is _ROW else 'scaled residuals of HPL 2'}")
    return tuple(lines[0])


def seconds(output: str) -> float:
    """hpcc's summary has the time; HPL prints hundredths of seconds, so it is taken from the rate."""
    n, *_, gflops = _only(output, _ROW)
    time = _TIME.search(output)
    return float(time[1]) if time is not None else flop(int(n)) / (float(gflops) * 1e9)


def wrong(case: Case, output: str) -> int:
    """Whether HPL found it wrong, or solved another system than that of the case."""
    residual, word = _only(output, _CHECKED)
    parameters = tuple(str(case[name]) for name in ("n", "nb", "p", "q"))
    return int(word != "PASSED" or not float(residual) <= RESIDUAL) + int(_only(output, _ROW)[:4] != parameters)


def notes(output: str) -> Sequence[str]:
    """Which HPL with which BLAS."""
    result = json.loads(output.partition("\n")[0])
    version, blas = _REPORT_VERSION.search(output), result["blas"]
    hpl = f"HPL {version[1] if version is not None else 'of unknown version'} of {result['program']}"
    if blas is None:
        return (f"{hpl}, whose BLAS is in the same file or not known",)
    if blas["name"] == REFERENCE:
        return (f"{hpl} with the reference BLAS {blas['path']}, which is several times slower than OpenBLAS "
                "(on Debian and Ubuntu: apt-get install libopenblas0-pthread)",)  # fmt: skip
    kernel = f", kernel {blas['kernel']}" if blas["kernel"] else ""
    return (f"{hpl} with {' '.join(filter(None, (blas['name'], blas['version'])))}{kernel}",)


#: Neither has an option that prints its version.
HPL = FirstOf("HPL", (Software("xhpl", version=(), pattern=_VERSION),
                      Software("hpcc", "hpcc", version=(), pattern=_VERSION)))  # fmt: skip


def argv(case: Case, times: int) -> Sequence[str]:
    installed = HPL.installed()
    program = installed.name if installed is not None else "xhpl"
    return started("host.hpl", program=program, **{name: case[name] for name in ("n", "nb", "p", "q")})


def lacks(case: Case, folder: Path) -> str | None:
    processes, cores = case["p"] * case["q"], threads_of(ALL_CORES)
    return f"{processes} processes need as many cores, and there are {cores}" if processes > cores else None


WORKLOAD = Program(
    name="hpl", suite="cpu", title="HPL", summary="solve a dense system of equations by High-Performance Linpack",
    measures=(Measure("solve", lambda case: flop(case["n"]), "flop"),),
    argv=argv, parse=lambda output: {"solve": [seconds(output)]}, verify=wrong,
    figures=lambda case, output: {"residual": float(_only(output, _CHECKED)[0])}, notes=notes,
    memory=lambda case: 8 * case["n"] ** 2, lacks=lacks, scratch=True, repeated=True, software=(HPL, BlasOf(HPL)),
    axes=(
        parameter("n", 2000, "order of the matrix", least=1, most=1_000_000),
        parameter("nb", 192, "size of a block", least=1, most=10_000, kind="how"),
        parameter("p", 1, "rows of the grid of processes", least=1, most=1000, kind="how"),
        parameter("q", 1, "columns of the grid; p x q processes have one thread each", least=1, most=1000, kind="how"),
    ),
)  # fmt: skip

#: Lines of the input. Settings beside N, NB, P and Q are those of the HPL.dat that comes with HPL, with one algorithm
#: instead of many.
INPUT = (
    "HPLinpack benchmark input file", "Innovative Computing Laboratory, University of Tennessee",
    "HPL.out output file name (if any)", "6 device out (6=stdout,7=stderr,file)",
    "1 # of problems sizes (N)", "{n} Ns", "1 # of NBs", "{nb} NBs",
    "0 PMAP process mapping (0=Row-,1=Column-major)", "1 # of process grids (P x Q)", "{p} Ps", "{q} Qs",
    "16.0 threshold", "1 # of panel fact", "2 PFACTs (0=left, 1=Crout, 2=Right)",
    "1 # of recursive stopping criterium", "4 NBMINs (>= 1)", "1 # of panels in recursion", "2 NDIVs",
    "1 # of recursive panel fact.", "1 RFACTs (0=left, 1=Crout, 2=Right)",
    "1 # of broadcast", "1 BCASTs (0=1rg,1=1rM,2=2rg,3=2rM,4=Lng,5=LnM)",
    "1 # of lookahead depth", "1 DEPTHs (>=0)", "2 SWAP (0=bin-exch,1=long,2=mix)", "64 swapping threshold",
    "0 L1 in (0=transposed,1=no-transposed) form", "0 U  in (0=transposed,1=no-transposed) form",
    "1 Equilibration (0=no,1=yes)", "8 memory alignment in double (> 0)",
)  # fmt: skip

#: What hpcc reads after them: no sizes and no block sizes of PTRANS beside those of HPL.
MORE_OF_HPCC = (
    "##### This line (no. 32) is ignored (it serves as a separator). ######",
    "0 Number of additional problem sizes for PTRANS", "1200 values of N",
    "0 number of additional blocking sizes for PTRANS", "40 values of NB",
)  # fmt: skip

#: Processes have a thread each, and the cores that this one may use, which Open MPI would divide in its own way.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
OPEN_MPI = {
    "OMPI_MCA_hwloc_base_binding_policy": "none", "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_hwloc_default_binding_policy": "none", "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}  # fmt: skip


def command(program: str, processes: int) -> tuple[str, ...]:
    """The mpirun beside a program is of the MPI that it is made for, more likely than the first in PATH."""
    if processes == 1:
        return (program,)
    mpirun = shutil.which("mpirun", path=str(Path(program).parent)) or shutil.which("mpirun")
    if mpirun is None:
        end(SKIPPED, f"{processes} processes: there is no mpirun, neither beside {program} nor in PATH")
    return (mpirun, "-n", str(processes), program)


def run(program: str, n: int, nb: int, p: int, q: int) -> str:
    """All that the program printed and wrote. It ends this process where it fails."""
    hpcc = Path(program).name == "hpcc"  # which has HPL in it, reads another file, and writes its report into one
    lines = (f"{line}\n" for line in (INPUT + MORE_OF_HPCC if hpcc else INPUT))
    text = "".join(lines).format(n=n, nb=nb, p=p, q=q)
    Path("hpccinf.txt" if hpcc else "HPL.dat").write_text(text, encoding="ascii")
    report = Path("hpccoutf.txt")
    report.unlink(missing_ok=True)  # hpcc would append
    environment = os.environ | (OPEN_MPI | ONE_THREAD if p * q > 1 else {})
    argv = command(program, p * q)
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, errors="replace", env=environment, check=False)
    if done.returncode:
        sys.stderr.write("" if hpcc else f"{(done.stdout.strip().splitlines() or [''])[-1]}\n")
        sys.exit(done.returncode if done.returncode > 0 else 128 - done.returncode)
    return done.stdout + (report.read_text(encoding="utf-8", errors="replace") if report.exists() else "")


def main() -> None:
    """Run HPL as the flags say, and print what it said."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True, help="xhpl or hpcc, or the path of one")
    add_flags(parser, WORKLOAD)
    flags = parser.parse_args()
    program = shutil.which(flags.program)
    if program is None:
        end(SKIPPED, f"{flags.program} was not found")
    result = run(program, flags.n, flags.nb, flags.p, flags.q)
    library = library_of(path).library() if (path := linked(program)) is not None else None
    sys.stdout.write(json.dumps({"program": program, "blas": msgspec.to_builtins(library)}) + "\n" + result)


if __name__ == "__main__":
    main()
