"""A Slurm cluster that is played: a job runs under bash here, and each task of a step is a process with a node's name.

What differs between nodes is what programs make of SLURMD_NODENAME.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
from tests.unit.fake_engine import contents
from tests.unit.test_slurm import play

#: sbatch starts the job that it reads, whose nodes are n0, n1, ...
PROGRAMS = {
    "sbatch": """\
case $1 in --version) echo slurm 23.11; exit;; --test-only) {test}; cat > /dev/null; exit;; esac
cat > {at}/job.sh; SLURM_JOB_NODELIST=all setsid bash {at}/job.sh > {at}/job.log 2>&1 < /dev/null &
echo $! > {at}/job.pid; echo 7""",
    "scontrol": """\
case "$*" in
  --version) echo slurm 23.11;;
  *hostnames*) i=0; while [ $i -lt {number} ]; do echo n$i; i=$((i + 1)); done;;
  *) kill -0 $(cat {at}/job.pid) 2>/dev/null && state=RUNNING || state=COMPLETED
     echo JobId=7 JobState=$state Reason=None Partition=all NodeList=all;;
esac""",
    "srun": """\
case $1 in --version) echo slurm 23.11; exit;; --mpi=list) echo MPI: {types}; exit;; esac
n=1; nodes=$(scontrol show hostnames)
while case $1 in --*) true;; *) false;; esac; do
  case $1 in --ntasks=*) n=${{1#*=}};; --nodelist=*) nodes=${{1#*=}};; esac; shift
done
i=0; tasks=; echo $$ > {at}/step.$$; trap 'kill $tasks; exit 143' TERM
for node in $nodes; do
  [ $i -lt $n ] || break
  SLURMD_NODENAME=$node SLURM_PROCID=$i SLURM_NODEID=$i "$@" & tasks="$tasks $!"; i=$((i + 1))
done
worst=0; for task in $tasks; do wait $task || worst=$?; done; exit $worst""",
    "sinfo": """\
case "$*" in
  --version) echo slurm 23.11;; *%c*) printf '{nodes}\\n';; *%D*) printf '{idle}\\n';; *) printf '{limits}\\n';;
esac""",
    "squeue": """\
case "$*" in *--version*) echo slurm 23.11;; esac
for step in {at}/step.*; do echo ${{step##*/}} collbench-ranks; done""",
    "scancel": """\
[ $1 = --signal=TERM ] && shift
case $1 in
  --version) echo slurm 23.11;; step.*) kill ${{1#step.}}; rm {at}/$1;; *) kill -9 -$(cat {at}/job.pid);;
esac""",
}


def play_cluster(
    programs: Path, number: int = 2, types: str = "none pmi2 pmix", nodes: str = "", limits: str = "all* infinite",
    test: str = "true", idle: str = "",
) -> None:  # fmt: skip
    """Slurm's programs, of a cluster with so many nodes n0, n1, ... that are all idle.

    srun knows `types` of PMI, sinfo prints `nodes` (name, cores) and the `limits` of partitions, `idle` are
    its partitions with those that are (and the most that a job may have), and `test` is done with the script that
    sbatch is to examine.
    """
    nodes = nodes or "\\n".join(f"n{i} 8" for i in range(number))
    idle = idle or f"all* {number} 1-infinite"
    for name, text in PROGRAMS.items():
        play(programs, name, text.format(at=programs, number=number, types=types, nodes=nodes, limits=limits,
                                         test=test, idle=idle))  # fmt: skip


def environment(folder: Path, library: str = "openmpi", held: Callable[[], object] = contents, **nodes: str) -> str:
    """An environment that says that it holds this library, and for which nodes do something else, as the shell says it.

    `$0` is its interpreter, `probe` prints what it holds.
    """
    (folder / "bin").mkdir(parents=True)
    (folder / "held").write_bytes(msgspec.json.encode(held() if held is not contents else contents(library)) + b"\n")
    cases = "\n".join(f"{node}) {text};;" for node, text in nodes.items())
    play(folder / "bin", "python", f"""\
probe() {{ cat {folder}/held; }}
case $SLURMD_NODENAME in
{cases}
esac
case "$*" in
  *launch.probe*) probe;; *machine.facts*) exec {sys.executable} "$@";; *) echo measured;;
esac""")  # fmt: skip
    return str(folder)
