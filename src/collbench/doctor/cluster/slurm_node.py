"""What a node of the cluster sees: the folder, the runtime, images, environments, and the ranks of two tasks."""

from __future__ import annotations

import contextlib
import re
import secrets
import shlex
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

from collbench.doctor.parts.finding import Finding, Problem
from collbench.errors import EngineError
from collbench.launch.engines.slurm import client
from collbench.launch.engines.slurm.runtimes import RUNTIMES
from collbench.launch.engines.slurm.site import SlurmSite
from collbench.machine.launcher import PMI
from collbench.units import counted

#: Longest wait for a node (s): a queue may be full, and then nothing is known.
NODE = 60

#: What is written here, and read on the node.
TOKEN = "token"  # noqa: S105 - a file's name

#: The program of each runtime; pyxis is a part of srun.
_PROGRAM = {"charliecloud": "ch-run", "apptainer": "apptainer"}

#: What two tasks of a node print, each on one line: rank by PMI and by Slurm, what becomes of files in the folder, and
#: how many cores they may use; then whatever is not there.
_TASK = """\
{setup}
if [ "$(cat {folder}/token 2>/dev/null)" != {token} ]; then files=unshared
elif touch {folder}/task-$SLURM_PROCID 2>/dev/null; then files=writable; else files=missing; fi
{looks}
echo "task ${{PMI_RANK:-none}} $SLURM_PROCID $files $(nproc)"
"""

_LINE = re.compile(r"task (?P<pmi>\S+) (?P<slurm>\d+) (?P<folder>\w+) (?P<cores>\d+)")
_ABSENT = re.compile(r"absent (.+)")


@contextlib.contextmanager
def folder_in(site: SlurmSite) -> Iterator[tuple[Path | None, Finding]]:
    """A folder in that of the site for as long as this lasts, with a file in it; None where none can be made."""
    parent = Path(site.folder)
    try:
        parent = next(folder for folder in (parent, *parent.parents) if folder.is_dir())
        made = Path(tempfile.mkdtemp(prefix="collbench-doctor-", dir=parent))
        (made / TOKEN).write_text(secrets.token_hex(8), encoding="ascii")
    except OSError as error:
        problem = Problem("fail", f"{parent} cannot be written to: {error.strerror}", "no launch can leave its records",
                          "folder in the site file: one that you can write to")  # fmt: skip
        yield None, Finding(site.folder, (problem,))
        return
    try:
        yield made, Finding(f"{site.folder} can be written to here")
    finally:
        shutil.rmtree(made, ignore_errors=True)


def examine(site: SlurmSite, folder: Path | None) -> Finding:
    """Two tasks on one node, which is not this one where there is another, as a launch would start them with MPICH.

    Raises:
        EngineError: no node answers.
    """
    pyxis = site.runtime != "pyxis" or "--container-image" in client.ask("srun", "--help")
    tasks = min(2, site.cores)
    pmi = site.mpi.get("mpich", PMI["mpich"])
    said = client.ask(
        "srun", f"--immediate={NODE}", "--nodes=1", f"--ntasks={tasks}", "--time=2", f"--mpi={pmi}", *_elsewhere(site),
        *site.words, "bash", "-c", _task(site, folder), limit=NODE + client.ANSWER,
    ).splitlines()  # fmt: skip
    lines = [match.groupdict() for match in map(_LINE.match, said) if match]
    absent = dict.fromkeys(match[1] for match in map(_ABSENT.match, said) if match)
    if len(lines) != tasks:
        raise EngineError(f"{counted(len(lines), 'task')} of {tasks} answered")
    problems = (*_of_tasks(site, folder, lines), *_of_absent(site, (*absent, *(() if pyxis else ("pyxis",)))))
    cores = dict.fromkeys(line["cores"] for line in lines)
    each = "each " if tasks > 1 and len(cores) == 1 else ""
    noun = "core" if list(cores) == ["1"] else "cores"
    return Finding(f"{counted(tasks, 'task')} on a node, {each}with {' and '.join(cores)} {noun}", problems)


def _elsewhere(site: SlurmSite) -> tuple[str, ...]:
    """Leaves this node out, if it is one: what it sees says nothing of others."""
    here = socket.gethostname().partition(".")[0]
    partition = [word for word in site.words if word.startswith("--partition=")]
    nodes = client.ask("sinfo", "--noheader", "--Node", *partition, "--format=%N").split()
    return (f"--exclude={here}",) if here in nodes and len(set(nodes)) > 1 else ()


def _task(site: SlurmSite, folder: Path | None) -> str:
    looks = [_look("command -v", program, f"program {program}")
             for name, program in _PROGRAM.items() if name == site.runtime]  # fmt: skip
    looks += [_look("test -x", f"{path}/bin/python", f"environments {name} {path}/bin/python")
              for name, path in site.environments.items()]  # fmt: skip
    if site.runtime != "none":
        looks += [_look("test -e", path, f"images {name} {path}")
                  for name, path in site.images.items() if path.startswith("/")]  # fmt: skip
    token = (folder / TOKEN).read_text(encoding="ascii") if folder else "none"
    return _TASK.format(
        setup="\n".join(site.setup), folder=shlex.quote(str(folder)), token=token, looks="\n".join(looks)
    )


def _look(test: str, what: str, title: str) -> str:
    return f"{test} {shlex.quote(what)} >/dev/null 2>&1 || echo {shlex.quote(f'absent {title}')}"


def _of_tasks(site: SlurmSite, folder: Path | None, lines: list[dict[str, str]]) -> Iterator[Problem]:
    for line in lines:
        if line["pmi"] not in ("none", line["slurm"]):
            yield Problem("fail", f"PMI_RANK is {line['pmi']} and SLURM_PROCID is {line['slurm']}",
                          "MPICH hangs in MPI_Init", "export PMI_RANK=$SLURM_PROCID in each task")  # fmt: skip
    effect, fix = "no launch can leave its records", "folder in the site file: one that every node sees under this path"
    words = {line["folder"] for line in lines} if folder else set()
    if "unshared" in words:
        yield Problem("fail", f"a node does not see what is written to {site.folder} here", effect, fix)
    elif "missing" in words:
        yield Problem("fail", f"a node cannot write to {site.folder}", effect, fix)


def _of_absent(site: SlurmSite, absent: tuple[str, ...]) -> Iterator[Problem]:
    for what in absent:
        kind, _, rest = what.partition(" ")
        if kind in ("program", "pyxis"):
            seen = "srun has no --container-image" if kind == "pyxis" else f"a node does not have {rest}"
            yield Problem("fail", seen, f"runtime {RUNTIMES[site.runtime].name} cannot start containers",
                          f'setup = ["module load {site.runtime}"] in the site file, or install it')  # fmt: skip
        else:
            name, _, path = rest.partition(" ")
            yield Problem("fail", f"a node does not have {path}", f"launches of {name} fail",
                          f"{kind} in the site file: where every node has it")  # fmt: skip
