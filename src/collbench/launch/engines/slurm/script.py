"""The texts that Slurm is given, a job that performs steps as they come and the step of a launch; what it prints. Pure.

One job holds the nodes for all launches, so that every cell meets the same ones. It performs the files `step-N` of its
folder as they appear: output goes to `log-N`, and `code-N`, which appears last and whole, holds the exit code. The file
`end` ends it, and so does a driver that has not written to `driver` for some minutes.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from collbench.launch.cells import LaunchCell
from collbench.launch.engines.slurm.site import RUNTIMES, WITHOUT_PROC_LINKS, SlurmSite, placing_options, uses_threads
from collbench.launch.engines.spec import WorldSpec
from collbench.launch.expansion import OF_EVERY_RANK, cores_of, each_of, parts_of, shapes_of
from collbench.launch.launchers import Argv, RankLauncher
from collbench.launch.placement import Placement
from collbench.schema.world import SHAPE, text_of

#: A job without a sign of its driver ends after so long (s): folders over a network show changes late.
ABANDONED = 300

#: Intervals (s) at which a job looks for its next step, and at which it does once a step has run for a moment.
LOOK, SELDOM = 0.1, 1

_JOB = """\
export PATH HOME=${{HOME:-~}} USER=${{USER:-$(id -un)}}  # which --export=NONE leaves out
cd {folder} || exit 72
{setup}scontrol show hostnames "{nodes}" > nodes.part && mv nodes.part nodes
export FIRST_NODE=$(head -n 1 nodes)
exec {{never}}<> <(:)  # a pipe in which nothing comes: a pause without a process
n=0
while [ ! -e end ]; do
  if [ -e step-$n ]; then
    {{ bash step-$n > log-$n 2>&1; echo $? > code-$n.part; mv code-$n.part code-$n; }} &
    n=$((n + 1)) begun=$SECONDS alive=$SECONDS
  else
    look={look}
    [ $((SECONDS - begun)) -lt 3 ] || {{ kill -0 $! && look={seldom}; }} 2> /dev/null
    read -r sign < driver
    [ "$sign" = "$last" ] || {{ last=$sign; alive=$SECONDS; }}
    [ $((SECONDS - alive)) -lt {abandoned} ] || exit 75
    read -r -t $look -u $never || :
  fi
done
"""


#: Lines of setup end the job where one fails. What is inside a file that they source, or inside a function, decides by
#: its own exit code alone: much of it is none of ours, and ends with other codes than 0 by habit.
_SETUP = """\
fails() {{
  code=$?; [ ${{#BASH_SOURCE[@]}} -gt 2 ] && return
  echo "setup in the site file: exit code $code from: $(sed -n "$1p" {folder}/job.sh)" >&2; exit 73
}}
trap 'fails $LINENO' ERR
{lines}trap - ERR; cd {folder}
"""


@dataclass(frozen=True)
class Resources:
    """What the job asks for: the most that any launch needs. `cores` and `gpus` are of a task, and of a node.

    `servers` is the same for the node that parameter servers have to themselves, where they have one.
    """

    nodes: int
    tasks: int
    cores: int
    gpus: int
    servers: Resources | None = None


def resources_of(placements: Iterable[tuple[LaunchCell, Placement]]) -> Resources:
    """The most of everything."""
    worlds = [parts_of(cell, placement) for cell, placement in placements]
    servers = [parts[0] for parts in worlds if len(parts) > 1]
    return replace(_most(parts[-1] for parts in worlds), servers=_most(servers) if servers else None)


def _most(parts: Iterable[tuple[LaunchCell, Placement]]) -> Resources:
    """Nodes and GPUs for every part, and the tasks and cores of the one that needs most processors of a node."""
    needs = []
    for cell, placement in parts:
        cores = {core for slot in placement.slots for core in slot.cores}
        tasks = min(each_of(cell), len(cores) // cores_of(placement))  # those of a node that have cores of their own
        needs.append(Resources(cell.hosts, tasks, cores_of(placement), len(placement.gpus) // cell.hosts))
    largest = max(needs, key=lambda need: (need.tasks * need.cores, need.tasks))
    nodes, gpus = max(need.nodes for need in needs), max(need.gpus for need in needs)
    return replace(largest, nodes=nodes, gpus=gpus)


#: Nodes of a job, in Slurm's notation; and of one with nodes for servers.
_NODES = "$SLURM_JOB_NODELIST"
_ALL_NODES = "$SLURM_JOB_NODELIST_HET_GROUP_0,$SLURM_JOB_NODELIST_HET_GROUP_1"


def job_script(name: str, folder: Path, site: SlurmSite, needs: Resources) -> str:
    """The script for sbatch: of a heterogeneous job where servers have a node, which is its first component."""
    at = shlex.quote(str(folder))
    head, nodes = _asked(name, folder, site.time, needs, site.options), _NODES
    lines = "".join(f"{line}\n" for line in site.setup)
    setup = _SETUP.format(folder=at, lines=lines) if lines else ""
    if needs.servers is not None:
        of_servers = _asked(name, folder, site.time, needs.servers, site.of_servers)
        head, nodes = f"{of_servers}#SBATCH hetjob\n{head}", _ALL_NODES
        setup += f'export WORKER_NODE=$(scontrol show hostnames "{_NODES}_HET_GROUP_1" | head -n 1)\n'
    body = _JOB.format(folder=at, setup=setup, nodes=nodes, abandoned=ABANDONED, look=LOOK,
                       seldom=SELDOM)  # fmt: skip
    return f"#!/bin/bash\n{head}{body}"


def _asked(name: str, folder: Path, time: str, needs: Resources, options: Sequence[str]) -> str:
    """What a component of the job asks for."""
    asked = [
        f"--job-name={name}", f"--nodes={needs.nodes}", f"--ntasks-per-node={needs.tasks}",
        f"--cpus-per-task={needs.cores}", f"--time={time}", "--no-requeue",
        f"--output={shlex.quote(f'{folder}/job.log')}",
        *([f"--gpus-per-node={needs.gpus}"] if needs.gpus else []), *placing_options(options), *options,
    ]  # fmt: skip
    return "".join(f"#SBATCH {option}\n" for option in asked)


#: What the shell of a task does beside other worlds: each has a folder of its own for temporary files.
_APART = ("""made=; trap 'rm -rf "$made"' EXIT; trap "exit 143" TERM; """
          'made=$(mktemp -d "${TMPDIR:-/tmp}/collbench-XXXXXX") || exit; export TMPDIR="$made"; "$@"')  # fmt: skip


@dataclass(frozen=True)
class StepOf:
    """A launch (or a look at an image) as Slurm is to start it. `name` is the step's, `variables` are set before it.

    `with_servers`: the job has nodes for servers, which only a world whose servers have a host to themselves uses.
    `run` is what the shell of each task does with its program. `beside`: it shares its processors with other steps.
    """

    name: str
    cell: LaunchCell
    placement: Placement
    launcher: RankLauncher
    variables: dict[str, str]
    with_servers: bool = False
    run: str = 'exec "$@"'
    beside: bool = False


def step_script(step: StepOf, site: SlurmSite, program: Argv) -> str:
    """A file `step-N`: the command that starts all ranks of a world."""
    parts = parts_of(step.cell, step.placement)
    groups = range(2) if len(parts) > 1 else (1,) if step.with_servers else (None,)
    components = [_component(step, site, program, part, placement, group)
                  for (part, placement), group in zip(parts, groups, strict=True)]  # fmt: skip
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in step.variables.items())
    if step.with_servers and len(parts) == 1:
        exports += "export FIRST_NODE=$WORKER_NODE\n"
    return f"{exports}exec srun " + " \\\n  : ".join(components) + "\n"


def _component(
    step: StepOf, site: SlurmSite, program: Argv, cell: LaunchCell, placement: Placement, group: int | None
) -> str:
    """Options of srun, and the command of each task. `group` is the component of the job, where it has several."""
    launcher, runtime, image = step.launcher, RUNTIMES[site.runtime], site.images.get(cell.image, "")
    contained = cell.isolation is not None
    sharing = each_of(cell) if cell.policy == "multi" else 1
    options = [
        f"--job-name={step.name}", *([] if group is None else [f"--het-group={group}"]), "--kill-on-bad-exit=1",
        f"--nodes={cell.hosts}", f"--ntasks={cell.ranks}", f"--ntasks-per-node={each_of(cell)}",
        f"--cpus-per-task={cores_of(placement)}", f"--mpi={site.mpi.get(launcher.vendor, launcher.pmi)}",
        "--export=ALL", *placing_options(site.of_servers if group == 0 else site.options),
        *(["--overlap"] if step.beside else []), *(["--overcommit"] if placement.crowded else []),
        *(["--gpu-bind=none"] if placement.gpus else []),
        *(runtime.flags(image, site.folder, f"collbench-{cell.image}") if contained else ()),
    ]  # fmt: skip
    inside = runtime.prefix(image, site.folder, sharing) if contained else ()
    # What a task's shell sets, because it differs from rank to rank.
    shell = [f"export {name}={value}" for name, value in launcher.task.items()]
    if verbose := " ".join(name for name in launcher.verbose if name not in site.variables):
        shell.append(f'[ "$SLURM_LOCALID" = 0 ] || unset {verbose}')
    if contained:
        number = "$SLURM_NODEID" if cell.policy == "multi" else "$SLURM_PROCID"
        shell.append(f"export COLLBENCH_CONTAINER=c{number}")
    if site.runtime == "pyxis" and launcher.pmi == "pmi2":
        shell.append("export PMI_RANK=$SLURM_PROCID")  # its hook gives all tasks of a node that of the first
    shell.append(_APART if step.beside else step.run)
    return f"{shlex.join(options)} \\\n  {shlex.join(('sh', '-c', '; '.join(shell), 'task', *inside, *program))}"


def launch_script(
    world: WorldSpec, site: SlurmSite, program: Argv, environment: dict[str, str], with_servers: bool
) -> str:
    """The step of a launch: `program` on every rank, with an environment beside what ranks have anyway."""
    launcher, beside = world.stack.launcher, world.folders.turns is not None
    variables = variables_of(world.cell, world.placement, launcher, site) | environment
    step = StepOf(world.name, world.cell, world.placement, launcher, variables, with_servers, beside=beside)
    return step_script(step, site, program)


def variables_of(cell: LaunchCell, placement: Placement, launcher: RankLauncher, site: SlurmSite) -> dict[str, str]:
    """What every rank shares."""
    shapes = shapes_of(cell, replace(placement, crowded=placement.crowded or uses_threads(site.options)))
    apart = any(shape.boxes == "rank" and shape.each > 1 for shape in shapes)
    return {SHAPE: text_of(shapes), **OF_EVERY_RANK, **launcher.environment,
            **({**WITHOUT_PROC_LINKS, **launcher.without_cma} if apart else {}), **site.variables}  # fmt: skip


def python_of(cell: LaunchCell, site: SlurmSite) -> str:
    """The interpreter of a rank."""
    environment = site.environments.get(cell.image)
    return "python" if cell.isolation is not None or environment is None else f"{environment}/bin/python"


def program_of(world: WorldSpec, site: SlurmSite) -> Argv:
    """The command of a rank."""
    folders = world.folders
    turns = () if folders.turns is None else ("--turns", str(folders.turns))
    return (python_of(world.cell, site), "-m", "collbench", "run", str(folders.plan), "--out", str(folders.out),
            "--style", "csv", *turns)  # fmt: skip


#: Lines that only follow from others: advice to read the help, and how srun ends the tasks that are left. A hint on
#: hardware threads is kept without task/affinity, but for the binding of a task, which ranks do themselves.
_FOLLOWS = re.compile(
    r"^\s*$|^Try [\"'`]|_step_signal: Terminating|Force Terminated|Job step aborted|Exited with exit code"
    r"|\*\*\* (STEP|JOB) |: tasks? [\d,-]+: Terminated|lacks support for cpu binding"
)

#: Tasks that were killed: often because of another, sometimes all that is known.
_KILLED = re.compile(r": tasks? [\d,-]+: Killed")

#: A task whose program could not be started, as srun says it, and how the shell of a task (named so) says why.
_NOT_STARTED = re.compile(r"srun: error: (\S+: tasks? [\d,-]+: Exited with exit code 12[67])\b")
_OF_SHELL = re.compile(r"task: (?:(?:line )?\d+: )?(.+)")

_ERROR = re.compile(r"^\w+: (?:error|fatal): ")
_PROGRAM = re.compile(r"^\w+: (?:(?:error|fatal): )?")

#: Most lines that are quoted in a message.
MOST_LINES = 3


def telling(lines: Iterable[str]) -> tuple[str, ...]:
    """Lines that do not merely follow from others."""
    left = tuple(line for line in lines if not _FOLLOWS.search(line))
    return tuple(line for line in left if not _KILLED.search(line)) or left


def first_cause(text: str) -> str:
    """Why a program of Slurm failed: its first errors; without any, its first lines."""
    lines = telling(text.splitlines())
    errors = [line for line in lines if _ERROR.match(line)] or lines
    return "; ".join(_PROGRAM.sub("", line) for line in errors[:MOST_LINES])


def of_srun(lines: Iterable[str]) -> str:
    """What srun says of a step, in a log that the ranks print to as well: its first error, or its first words."""
    lines = tuple(lines)
    if cause := not_started(lines):
        return cause
    said = telling(line for line in lines if line.startswith("srun: "))
    first = next((line for line in said if _ERROR.match(line)), next(iter(said), ""))
    return first.removeprefix("srun: ")


def not_started(lines: Iterable[str]) -> str:
    """Node and cause where a program is not there, or cannot be executed; empty: every task has started its own."""
    lines = tuple(lines)
    where = next((match[1] for match in map(_NOT_STARTED.match, lines) if match), "")
    why = next((f" ({match[1]})" for match in map(_OF_SHELL.fullmatch, lines) if match), "")
    return f"{where}{why}" if where else ""


#: Prints its input with the name of a node before each line. Longer lines are cut (`+`: the next one goes on), because
#: srun forwards at most 1024 bytes at once, so that those of several nodes would mix.
LABEL = """awk -v node="{node}" '{{ while (length($0) > 700) {{ print "@" node "+" substr($0, 1, 700)
  $0 = substr($0, 701) }} print "@" node "=" $0 }}'"""

#: What the shell of a task does where every node is to answer: one that fails does not end the others.
ANSWERED = '{ "$@" 2>&1; printf "\nexit %d\n" $?; } | ' + LABEL.format(node="$SLURMD_NODENAME")
_PROCESS = re.compile(r"(?<=[\w-])\[\d+\](?=: )")
_PART = re.compile(r"@(?P<node>[^\s+=]+)(?P<end>[+=])(?P<text>.*)")


@dataclass(frozen=True)
class NodeOutput:
    """What a command printed on a node, without what only follows from its end, and its exit code; None: not ended."""

    node: str
    lines: tuple[str, ...]
    code: int | None = None

    @property
    def summary(self) -> tuple[str, ...]:
        """The lines; of a command that failed the last one with its exit code, and without numbers of processes."""
        if not self.code:
            return self.lines
        last = _PROCESS.sub("", self.lines[-1]) if self.lines else "nothing was printed"
        return (*self.lines[:-1], f"exit code {self.code}: {last}")


def answers_in(lines: Iterable[str]) -> tuple[tuple[NodeOutput, ...], tuple[str, ...]]:
    """What each node printed, of lines as `LABEL` makes them; and all other lines."""
    printed: dict[str, list[str]] = {}
    unfinished: dict[str, str] = {}
    rest: list[str] = []
    for line in lines:
        if (part := _PART.fullmatch(line)) is None:
            rest.append(line)
            continue
        node, text = part["node"], unfinished.pop(part["node"], "") + part["text"]
        if part["end"] == "+":
            unfinished[node] = text
        else:
            printed.setdefault(node, []).append(text)
    answers = []
    for node, said in printed.items():
        ended = re.fullmatch(r"exit (\d+)", said[-1])
        answers.append(NodeOutput(node, telling(said[:-1] if ended else said), int(ended[1]) if ended else None))
    return tuple(answers), tuple(rest)
