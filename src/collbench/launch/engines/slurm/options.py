"""Options of sbatch: those that a site file may not give, those that change what is measured; and times."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from collbench.launch.launchers import Argv

_PLAN, _SITE = "in the plan", "in the site file"

#: What collbench asks for itself, by the beginning of the option, and what says it.
_OWN = {
    ("--array", "-a"): f"launches {_PLAN}",
    ("--nodes", "-N"): f"hosts {_PLAN}",
    ("--ntasks", "-n"): f"ranks {_PLAN}",
    ("--cpus-per-task", "-c"): f"cores_per_rank {_PLAN}, and cores {_SITE}",
    ("--gpus", "-G"): f"gpus {_SITE}",
    ("--time", "-t"): f"time {_SITE}",
    ("--output", "-o"): f"folder {_SITE}: the output of the job is read there",
    ("--error", "-e"): f"folder {_SITE}: the output of the job is read there",
    ("--job-name", "-J"): f"title {_PLAN}; the job's name says which run it is",
    ("--requeue",): "collbench launch --resume",
    ("--no-requeue",): "nothing: it is asked for",
    ("--wait", "-W"): "nothing: the job is watched",
    ("--wrap",): f"setup {_SITE}",
    ("--test-only",): "collbench doctor --on slurm",
    ("--parsable",): "nothing: it is asked for",
}

#: Options that begin like one of them, and are others.
_OTHERS = ("--time-min", "--wait-all-nodes")

#: Minutes; minutes:seconds; hours:minutes:seconds; days-hours; days-hours:minutes; days-hours:minutes:seconds.
_TIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<numbers>\d+(?::\d+){0,2})")
UNLIMITED = ("UNLIMITED", "INFINITE")


def own_options(options: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Of options of sbatch those that collbench sets itself, each with what to use."""
    for option in options:
        for beginnings, instead in _OWN.items():
            if any(_is(option, beginning) for beginning in beginnings):
                yield option, instead


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


def placing_options(options: Iterable[str]) -> list[str]:
    """What the job and every step are given beside the options of a site."""
    given = tuple(options)
    return [option for option, same in _PLACING.items() if not any(_begins(one, same) for one in given)]


def uses_threads(options: Iterable[str]) -> bool:
    """Whether a site asks for several hardware threads of a core."""
    return any(_THREADS.match(option) for option in options)


def measured_options(options: Iterable[str]) -> tuple[str, ...]:
    """Those that may change what is measured."""
    return tuple(option for option in options if not _begins(option, _NOT_MEASURED))


def _begins(option: str, names: Iterable[str]) -> bool:
    """Whether an option is one of these: `--hint=x`, `--hint x`, `-Bx`."""
    word = re.split("[= ]", option, maxsplit=1)[0]
    return any(word == name or (not name.startswith("--") and word[:2] == name) for name in names)


def _is(option: str, beginning: str) -> bool:
    """`--ntasks` is that of `--ntasks-per-node` too, and `-N` that of `-N2`."""
    if not option.startswith(beginning) or option.startswith(_OTHERS):
        return False
    rest = option[len(beginning) :]
    return not beginning.startswith("--") or rest[:1] in ("", "=", " ", "-")


def seconds_of(time: str) -> float | None:
    """A time limit as Slurm reads it (s); None: no limit.

    Raises:
        ValueError: it is none.
    """
    if time.upper() in UNLIMITED:
        return None
    match = _TIME.fullmatch(time)
    if match is None:
        raise ValueError(time)
    numbers = [int(number) for number in match["numbers"].split(":")]
    if match["days"] is not None:
        hours, minutes, seconds = (*numbers, 0, 0)[:3]
        hours += 24 * int(match["days"])
    elif len(numbers) == 3:
        hours, minutes, seconds = numbers
    else:
        hours, (minutes, seconds) = 0, (*numbers, 0)[:2]
    return float(3600 * hours + 60 * minutes + seconds) or None


@dataclass(frozen=True)
class Runtime:
    """How a runtime starts a task in a container.

    `flags(image, folder, name)` are given to srun, `prefix(image, folder, ranks)` stands before the command of every
    task; `ranks` are those of a node that share the container, 1: none do. `policies` are those that it can do, and
    `instead` says what can do the others. `lacks` are variables without which ranks in several containers of a node
    fail, by library.
    """

    name: str
    policies: tuple[str, ...]
    flags: Callable[[str, str, str], Argv] = lambda image, folder, name: ()
    prefix: Callable[[str, str, int], Argv] = lambda image, folder, ranks: ()
    instead: str = ""


def _pyxis(image: str, folder: str, name: str) -> Argv:
    """One container for each node and step; its name keeps the unpacked image for the other steps of the job."""
    return (f"--container-image={image}", f"--container-mounts={folder}:{folder}", f"--container-name={name}",
            "--no-container-mount-home")  # fmt: skip


def _charliecloud(image: str, folder: str, ranks: int) -> Argv:
    join = () if ranks == 1 else ("--join", f"--join-ct={ranks}")
    return ("ch-run", *join, f"--bind={folder}", "--set-env", image, "--")


def _apptainer(image: str, folder: str, ranks: int) -> Argv:
    return ("apptainer", "exec", "--bind", folder, image)


RUNTIMES = {
    runtime.name: runtime
    for runtime in (
        Runtime("none", (), instead="set runtime in the site file: pyxis, charliecloud or apptainer"),
        Runtime(
            "pyxis", ("multi",), flags=_pyxis,
            instead="pyxis gives all tasks of a node one container; charliecloud and apptainer give each its own",
        ),
        Runtime(
            "charliecloud", ("multi", "single"), prefix=_charliecloud,
            instead="it makes one container for each rank, or one for all of a node",
        ),
        Runtime(
            "apptainer", ("single",), prefix=_apptainer,
            instead="apptainer exec makes a container for each rank; pyxis and charliecloud share one on a node",
        ),
    )
}  # fmt: skip

#: Without it UCX opens the shared memory of another rank through /proc, which containers with user namespaces of their
#: own refuse: MPICH 5.0.2 prints errors, and aborts with two ranks on each of two nodes.
WITHOUT_PROC_LINKS = {"UCX_POSIX_USE_PROC_LINK": "n"}
