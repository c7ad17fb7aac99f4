"""A cluster as the table [slurm] of a site file describes it, the texts that Slurm is given, and what it prints.

One job holds the nodes for all launches, so that every cell meets the same ones. It performs the files `step-N` of its
folder as they appear: output goes to `log-N`, and `code-N`, which appears last and whole, holds the exit code. The file
`end` ends it, and so does a driver that has not written to `driver` for some minutes.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from collbench.errors import PlanError, suggestion
from collbench.launch.cells import LaunchCell
from collbench.launch.engines.spec import Cluster, WorldSpec, read_site, refuse_libraries
from collbench.launch.expansion import cores_of, each_of, parts_of, shapes_of, with_threads
from collbench.launch.launchers import Argv, RankLauncher
from collbench.launch.placement import Placement
from collbench.schema.plan import Plan
from collbench.schema.world import SHAPE, text_of

# The site ------------------------------------------------------------------------------------------------------------

#: What collbench asks for itself, by the beginning of the option, and what says it.
_PLAN, _SITE = "in the plan", "in the site file"
_OWN = {
    ("--array", "-a"): f"launches {_PLAN}",
    ("--nodes", "-N"): f"hosts {_PLAN}",
    ("--ntasks", "-n"): f"ranks {_PLAN}",
    ("--cpus-per-task", "-c"): f"cores_per_rank {_PLAN}, and cores {_SITE}",
    ("--gpus", "-G"): f"gpus {_SITE}",
    ("--time", "-t"): f"time {_SITE}",
    ("--output", "-o", "--error", "-e"): f"folder {_SITE}: the output of the job is read there",
    ("--job-name", "-J"): f"title {_PLAN}; the job's name says which run it is",
    ("--requeue",): "collbench launch --resume",
    ("--no-requeue", "--parsable"): "nothing: it is asked for",
    ("--wait", "-W"): "nothing: the job is watched",
    ("--wrap",): f"setup {_SITE}",
    ("--test-only",): "collbench doctor --on slurm",
}

#: Options that begin like one of them, and are others.
_OTHERS = ("--time-min", "--wait-all-nodes")


def _instead_of(option: str) -> str:
    """What says an option that collbench sets itself, or empty. `--ntasks-per-node` is one of these, as `-N2` is."""
    if option.startswith(_OTHERS):
        return ""
    for beginnings, instead in _OWN.items():
        for beginning in beginnings:
            rest = option.removeprefix(beginning)
            if rest != option and (not beginning.startswith("--") or rest[:1] in ("", "=", " ", "-")):
                return instead
    return ""


#: Where ranks are placed, unless the site says it: one hardware thread of each core; the ranks of a node in order.
_PLACING = {
    "--hint=nomultithread": ("--hint", "--threads-per-core", "--extra-node-info", "-B"),
    "--distribution=block": ("--distribution", "-m"),
}

#: Options that decide who asks, when, and for which nodes, but not what ranks of these nodes find.
_NOT_MEASURED = (
    "--account", "-A", "--qos", "-q", "--partition", "-p", "--reservation", "--comment", "--mail-type", "--mail-user",
    "--wckey", "--begin", "-b", "--deadline", "--dependency", "-d", "--priority", "--nice", "--signal", "--nodelist",
    "-w", "--exclude", "-x", "--export", "--chdir", "-D", "--licenses", "-L", "--clusters", "-M", "--verbose", "-v",
    "--quiet", "-Q", "--get-user-env", "--kill-on-invalid-dep", "--time-min",
)  # fmt: skip

_THREADS = re.compile(r"--hint[= ]multithread|--threads-per-core[= ]([2-9]|\d\d)")


def placing_options(options: Sequence[str]) -> list[str]:
    """What the job and every step are given beside the options of a site."""
    return [option for option, same in _PLACING.items() if not any(_begins(name, same) for name in options)]


def uses_threads(options: Iterable[str]) -> bool:
    """Whether a site asks for several hardware threads of a core."""
    return any(_THREADS.match(option) for option in options)


def _begins(option: str, names: Iterable[str]) -> bool:
    """Whether an option is one of these: `--hint=x`, `--hint x`, `-Bx`."""
    word = re.split("[= ]", option, maxsplit=1)[0]
    return any(word == name or (not name.startswith("--") and word[:2] == name) for name in names)


#: Minutes; minutes:seconds; hours:minutes:seconds; days-hours; days-hours:minutes; days-hours:minutes:seconds.
_TIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<numbers>\d+(?::\d+){0,2})")


def seconds_of(time: str) -> float | None:
    """A time limit as Slurm reads it (s); None: no limit; ValueError: it is none."""
    if time.upper() in ("UNLIMITED", "INFINITE"):
        return None
    if (match := _TIME.fullmatch(time)) is None:
        raise ValueError(time)
    numbers = [int(number) for number in match["numbers"].split(":")]
    if match["days"] is None and len(numbers) < 3:
        numbers.insert(0, 0)
    hours, minutes, seconds = (*numbers, 0, 0)[:3]
    return float(3600 * (24 * int(match["days"] or 0) + hours) + 60 * minutes + seconds) or None


@dataclass(frozen=True)
class Runtime:
    """How a runtime starts a task in a container.

    `flags(image, folder, name)` are given to srun, `prefix(image, folder, ranks)` stands before the command of every
    task; `ranks` are those of a node that share the container, 1: none do. `policies` are those that it can do, and
    `instead` says what can do the others.
    """

    name: str
    policies: tuple[str, ...]
    instead: str
    flags: Callable[[str, str, str], Argv] = lambda image, folder, name: ()
    prefix: Callable[[str, str, int], Argv] = lambda image, folder, ranks: ()


RUNTIMES = {runtime.name: runtime for runtime in (
    Runtime("none", (), "set runtime in the site file: pyxis, charliecloud or apptainer"),
    Runtime("pyxis", ("multi",),  # one container for each node and step; its name keeps the unpacked image for others
            "pyxis gives all tasks of a node one container; charliecloud and apptainer give each its own",
            flags=lambda image, folder, name: (
                f"--container-image={image}", f"--container-mounts={folder}:{folder}", f"--container-name={name}",
                "--no-container-mount-home")),
    Runtime("charliecloud", ("multi", "single"), "it makes one container for each rank, or one for all of a node",
            prefix=lambda image, folder, ranks: (
                "ch-run", *(() if ranks == 1 else ("--join", f"--join-ct={ranks}")), f"--bind={folder}", "--set-env",
                image, "--")),
    Runtime("apptainer", ("single",),
            "apptainer exec makes a container for each rank; pyxis and charliecloud share one on a node",
            prefix=lambda image, folder, ranks: ("apptainer", "exec", "--bind", folder, image)),
)}  # fmt: skip

#: Without it UCX opens the shared memory of another rank through /proc, which containers with user namespaces of their
#: own refuse: MPICH 5.0.2 prints errors, and aborts with two ranks on each of two nodes.
WITHOUT_PROC_LINKS = {"UCX_POSIX_USE_PROC_LINK": "n"}

#: `--partition=gpu`, `-pgpu`, or without the name, which is the next word.
_PARTITION = re.compile(r"(?:--partition(?:=|$)|-p)(?P<name>.*)")


class ServerNodes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nodes that parameter servers have to themselves. `options` are given to sbatch for them; None: as for all."""

    options: tuple[str, ...] | None = None


class SlurmSite(Cluster, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What Slurm needs to know of a cluster.

    `folder` is one that every node and the driver see under one path. `runtime` starts containers, of `images` as the
    runtime spells them: files or references. `environments` are Python environments by the same names, for policy
    `host`. `mpi` is the type of PMI by library. `options` are given to sbatch, `setup` are lines of shell before
    everything else. `time` limits the job (as Slurm spells it). `servers` are the nodes of parameter servers, where
    these have a host to themselves.
    """

    folder: str
    runtime: str = "none"
    environments: dict[str, str] = msgspec.field(default_factory=dict)
    mpi: dict[str, str] = msgspec.field(default_factory=dict)
    options: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    time: str = "2:00:00"
    servers: ServerNodes = ServerNodes()

    @property
    def of_servers(self) -> tuple[str, ...]:
        return self.options if self.servers.options is None else self.servers.options

    @property
    def measured(self) -> tuple[str, ...]:
        """The options that may change what is measured; those of servers after their name."""

        def kept(options: Iterable[str]) -> list[str]:
            return [option for option in options if not _begins(option, _NOT_MEASURED)]

        return (*kept(self.options), *(f"servers {option}" for option in kept(self.servers.options or ())))

    @property
    def partitions(self) -> tuple[str, ...]:
        """Those that the options name, as sinfo takes them: `--partition=a,b`; empty: the cluster's usual one."""
        words, named = [word for option in self.options for word in shlex.split(option)], ""
        for word, following in zip(words, [*words[1:], ""], strict=False):
            if match := _PARTITION.fullmatch(word):
                named = match["name"] or following
        return (f"--partition={named}",) if named else ()


def read(path: str) -> SlurmSite:
    """The site in a file, checked as far as that takes no cluster; PlanError: a value makes no sense."""
    site = read_site(path, "slurm", SlurmSite)
    if site.runtime not in RUNTIMES:
        raise PlanError(f"site {path}: runtime {site.runtime!r}: unknown. {suggestion(site.runtime, tuple(RUNTIMES))}")
    if not Path(site.folder).is_absolute():
        raise PlanError(f"site {path}: folder {site.folder!r}: must be an absolute path that every node sees.")
    if not site.folder.isprintable():
        raise PlanError(f"site {path}: folder {site.folder!r}: must be one line without control characters.")
    for name, environment in site.environments.items():
        if not Path(environment).is_absolute():
            raise PlanError(f"site {path}: environments: {name} {environment!r}: must be an absolute path.")
    refuse_libraries(f"site {path}: mpi", site.mpi)
    for option in (*site.options, *site.of_servers):
        if not option.startswith("-") or "\n" in option:
            raise PlanError(f"site {path}: option {option!r}: is no flag of sbatch. Write --partition=gpu, say.")
        if instead := _instead_of(option):
            raise PlanError(f"site {path}: option {option!r}: collbench sets it itself. Use {instead}.")
    try:
        seconds_of(site.time)
    except ValueError as error:
        raise PlanError(f"site {path}: time {site.time!r}: is none that Slurm reads. Write minutes, minutes:seconds, "
                        "hours:minutes:seconds, days-hours or days-hours:minutes:seconds, such as "
                        "2:00:00.") from error  # fmt: skip
    return site


def refuse(plan: Plan, cells: Iterable[LaunchCell], site: SlurmSite) -> None:
    """PlanError for the first thing of a plan that a site cannot do, with what would."""
    runtime = RUNTIMES[site.runtime]
    for cell in cells:
        contained = cell.isolation is not None
        if contained and cell.policy not in runtime.policies:
            able = f"with runtime {runtime.name} there is {', '.join(runtime.policies) or 'none'}"
            raise PlanError(f"policy {cell.policy}: {able}; {runtime.instead}.")
        if contained and cell.image not in site.images:
            raise PlanError(f"image {cell.image}: the site file does not say where it is. Add it to [slurm.images].")
        if cell.storage is not None:
            raise PlanError(f"{cell.title}: benchmarks of storage are for one machine; leave them out of a plan for "
                            "Slurm.")  # fmt: skip
        if plan.spare != "idle":
            raise PlanError(f'spare "{plan.spare}": all ranks of a node get as many cores from Slurm. Leave it out.')
        if plan.device == "gpu" and not site.gpus:
            raise PlanError('device "gpu": the nodes of the site have none. Say how many in the site file: gpus = 4.')


# The job -------------------------------------------------------------------------------------------------------------

#: A job without a sign of its driver ends after so long (s): folders over a network show changes late. Intervals at
#: which it looks for its next step (s), also once a step has run for a moment.
ABANDONED, LOOK, SELDOM = 300, 0.1, 1

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
    worlds = [parts_of(cell, placement) for cell, placement in placements]
    servers = [parts[0] for parts in worlds if len(parts) > 1]
    return replace(_most(parts[-1] for parts in worlds), servers=_most(servers) if servers else None)


def _most(parts: Iterable[tuple[LaunchCell, Placement]]) -> Resources:
    """Nodes and GPUs for every part, and the tasks and cores of the one that needs most processors of a node."""
    needs = []
    for cell, placement in parts:
        # those of a node that have cores of their own
        tasks = min(each_of(cell), len(placement.cores) // cores_of(placement))
        needs.append(Resources(cell.hosts, tasks, cores_of(placement), len(placement.gpus) // cell.hosts))
    largest = max(needs, key=lambda need: (need.tasks * need.cores, need.tasks))
    return replace(largest, nodes=max(need.nodes for need in needs), gpus=max(need.gpus for need in needs))


#: Nodes of a job, in Slurm's notation, of which one with nodes for servers has two lists.
_NODES = "$SLURM_JOB_NODELIST"


def job_script(name: str, folder: Path, site: SlurmSite, needs: Resources) -> str:
    """The script for sbatch: of a heterogeneous job where servers have a node, which is its first component."""
    at = shlex.quote(str(folder))
    head, nodes = _asked(name, folder, site.time, needs, site.options), _NODES
    lines = "".join(f"{line}\n" for line in site.setup)
    setup = _SETUP.format(folder=at, lines=lines) if lines else ""
    if needs.servers is not None:
        of_servers = _asked(name, folder, site.time, needs.servers, site.of_servers)
        head, nodes = f"{of_servers}#SBATCH hetjob\n{head}", f"{_NODES}_HET_GROUP_0,{_NODES}_HET_GROUP_1"
        setup += f'export WORKER_NODE=$(scontrol show hostnames "{_NODES}_HET_GROUP_1" | head -n 1)\n'
    body = _JOB.format(folder=at, setup=setup, nodes=nodes, abandoned=ABANDONED, look=LOOK, seldom=SELDOM)
    return f"#!/bin/bash\n{head}{body}"


def _asked(name: str, folder: Path, time: str, needs: Resources, options: Sequence[str]) -> str:
    lines = [
        f"--job-name={name}", f"--nodes={needs.nodes}", f"--ntasks-per-node={needs.tasks}",
        f"--cpus-per-task={needs.cores}", f"--time={time}", "--no-requeue",
        f"--output={shlex.quote(f'{folder}/job.log')}",
        *([f"--gpus-per-node={needs.gpus}"] if needs.gpus else []), *placing_options(options), *options,
    ]  # fmt: skip
    return "".join(f"#SBATCH {line}\n" for line in lines)


# Steps ---------------------------------------------------------------------------------------------------------------

#: What the shell of a task does beside other worlds: each has a folder of its own for temporary files.
_APART = ("""made=; trap 'rm -rf "$made"' EXIT; trap "exit 143" TERM; """
          'made=$(mktemp -d "${TMPDIR:-/tmp}/collbench-XXXXXX") || exit; export TMPDIR="$made"; "$@"')  # fmt: skip


@dataclass(frozen=True)
class StepOf:
    """A launch (or a look at an image) as Slurm is to start it. `name` is the step's, `variables` are set before it.

    `with_servers`: the job has nodes for servers, which only a world whose servers have a host to themselves uses.
    `run` is what the shell of each task does with its program; `_APART`: beside other worlds.
    """

    name: str
    cell: LaunchCell
    placement: Placement
    launcher: RankLauncher
    variables: dict[str, str]
    with_servers: bool = False
    run: str = 'exec "$@"'


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
        *(["--overlap"] if step.run == _APART else []), *(["--overcommit"] if placement.crowded else []),
        *(["--gpu-bind=none"] if placement.gpus else []),
        *(runtime.flags(image, site.folder, f"collbench-{cell.image}") if contained else ()),
    ]  # fmt: skip
    inside = runtime.prefix(image, site.folder, sharing) if contained else ()
    # What a task's shell sets, because it differs from rank to rank.
    shell = [f"export {name}={value}" for name, value in launcher.task.items()]
    if verbose := " ".join(name for name in launcher.verbose if name not in site.variables):
        shell.append(f'[ "$SLURM_LOCALID" = 0 ] || unset {verbose}')
    if contained:
        shell.append(f"export COLLBENCH_CONTAINER=c{'$SLURM_NODEID' if cell.policy == 'multi' else '$SLURM_PROCID'}")
    if site.runtime == "pyxis" and launcher.pmi == "pmi2":
        shell.append("export PMI_RANK=$SLURM_PROCID")  # its hook gives all tasks of a node that of the first
    task = shlex.join(("sh", "-c", "; ".join((*shell, step.run)), "task", *inside, *program))
    return f"{shlex.join(options)} \\\n  {task}"


def launch_script(
    world: WorldSpec, site: SlurmSite, program: Argv, environment: dict[str, str], with_servers: bool
) -> str:
    """The step of a launch: `program` on every rank, with an environment beside what ranks have anyway."""
    launcher, run = world.stack.launcher, StepOf.run if world.folders.turns is None else _APART
    variables = variables_of(world.cell, world.placement, launcher, site) | environment
    step = StepOf(world.name, world.cell, world.placement, launcher, variables, with_servers, run)
    return step_script(step, site, program)


def variables_of(cell: LaunchCell, placement: Placement, launcher: RankLauncher, site: SlurmSite) -> dict[str, str]:
    shapes = shapes_of(cell, replace(placement, crowded=placement.crowded or uses_threads(site.options)))
    apart = any(shape.boxes == "rank" and shape.each > 1 for shape in shapes)
    without_cma = {**WITHOUT_PROC_LINKS, **launcher.without_cma} if apart else {}
    return with_threads({SHAPE: text_of(shapes), **launcher.environment, **without_cma, **site.variables})


def python_of(cell: LaunchCell, site: SlurmSite) -> str:
    environment = site.environments.get(cell.image)
    return "python" if cell.isolation is not None or environment is None else f"{environment}/bin/python"


def program_of(world: WorldSpec, site: SlurmSite) -> Argv:
    folders = world.folders
    turns = () if folders.turns is None else ("--turns", str(folders.turns))
    return (python_of(world.cell, site), "-m", "collbench", "run", str(folders.plan), "--out", str(folders.out),
            "--style", "csv", *turns)  # fmt: skip


# What Slurm prints ---------------------------------------------------------------------------------------------------

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

_ERROR, _PROGRAM = re.compile(r"^\w+: (?:error|fatal): "), re.compile(r"^\w+: (?:(?:error|fatal): )?")

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


def of_srun(lines: Sequence[str]) -> str:
    """What srun says of a step, in a log that the ranks print to as well: its first error, or its first words."""
    if cause := not_started(lines):
        return cause
    messages = telling(line for line in lines if line.startswith("srun: "))
    first = next((line for line in messages if _ERROR.match(line)), next(iter(messages), ""))
    return first.removeprefix("srun: ")


def not_started(lines: Sequence[str]) -> str:
    """Node and cause where a program is not there, or cannot be executed; empty: every task has started its own."""
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
    for node, of_node in printed.items():
        ended = re.fullmatch(r"exit (\d+)", of_node[-1])
        answers.append(NodeOutput(node, telling(of_node[:-1] if ended else of_node), int(ended[1]) if ended else None))
    return tuple(answers), tuple(rest)
