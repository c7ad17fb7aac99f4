"""`python -m collbench.workloads.programs.hpl --program xhpl --n N --nb NB --p P --q Q`: HPL in the current folder.

Writes the input of xhpl (HPL.dat) or of hpcc (hpccinf.txt), and starts it, by mpirun where P x Q is above 1. Prints a
line of JSON with the `blas` that it is linked with (null: not known), and all that the program printed and wrote.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec

from collbench.workloads.blas import Blas, linked
from collbench.workloads.programs.ending import SKIPPED, end

#: hpcc has HPL in it, reads another file, and writes its report into one.
HPCC = "hpcc"

#: The settings beside N, NB, P and Q are those of the HPL.dat that comes with HPL, with one algorithm instead of many.
INPUT = """HPLinpack benchmark input file
Innovative Computing Laboratory, University of Tennessee
HPL.out      output file name (if any)
6            device out (6=stdout,7=stderr,file)
1            # of problems sizes (N)
{n}          Ns
1            # of NBs
{nb}         NBs
0            PMAP process mapping (0=Row-,1=Column-major)
1            # of process grids (P x Q)
{p}          Ps
{q}          Qs
16.0         threshold
1            # of panel fact
2            PFACTs (0=left, 1=Crout, 2=Right)
1            # of recursive stopping criterium
4            NBMINs (>= 1)
1            # of panels in recursion
2            NDIVs
1            # of recursive panel fact.
1            RFACTs (0=left, 1=Crout, 2=Right)
1            # of broadcast
1            BCASTs (0=1rg,1=1rM,2=2rg,3=2rM,4=Lng,5=LnM)
1            # of lookahead depth
1            DEPTHs (>=0)
2            SWAP (0=bin-exch,1=long,2=mix)
64           swapping threshold
0            L1 in (0=transposed,1=no-transposed) form
0            U  in (0=transposed,1=no-transposed) form
1            Equilibration (0=no,1=yes)
8            memory alignment in double (> 0)
"""

#: What hpcc reads after line 32: no sizes and no block sizes of PTRANS beside those of HPL.
MORE_OF_HPCC = """##### This line (no. 32) is ignored (it serves as a separator). ######
0            Number of additional problem sizes for PTRANS
1200         values of N
0            number of additional blocking sizes for PTRANS
40           values of NB
"""

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
    hpcc = Path(program).name == HPCC
    text = INPUT.format(n=n, nb=nb, p=p, q=q) + (MORE_OF_HPCC if hpcc else "")
    Path("hpccinf.txt" if hpcc else "HPL.dat").write_text(text, encoding="ascii")
    report = Path("hpccoutf.txt")
    report.unlink(missing_ok=True)  # hpcc would append
    more = OPEN_MPI | ONE_THREAD if p * q > 1 else {}
    done = subprocess.run(
        command(program, p * q), stdout=subprocess.PIPE, text=True, errors="replace", env=os.environ | more, check=False
    )
    if done.returncode:
        sys.stderr.write(f"{(done.stdout.strip().splitlines() or [''])[-1]}\n" if not hpcc else "")
        sys.exit(done.returncode if done.returncode > 0 else 128 - done.returncode)
    return done.stdout + (report.read_text(encoding="utf-8", errors="replace") if report.exists() else "")


def main() -> None:
    """Run HPL as the flags say, and print what it said."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True, help="xhpl or hpcc, or the path of one")
    for flag, means in (("--n", "order of the matrix"), ("--nb", "size of a block"), ("--p", "rows of the grid"),
                        ("--q", "columns of the grid")):  # fmt: skip
        parser.add_argument(flag, type=int, required=True, help=means)
    flags = parser.parse_args()
    program = shutil.which(flags.program)
    if program is None:
        end(SKIPPED, f"{flags.program} was not found")
    said = run(program, flags.n, flags.nb, flags.p, flags.q)
    path = linked(program)
    library = None if path is None else Blas(path).library()
    sys.stdout.write(json.dumps({"program": program, "blas": msgspec.to_builtins(library)}) + "\n" + said)


if __name__ == "__main__":
    main()
