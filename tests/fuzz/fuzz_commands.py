"""Fuzzes command lines, plans and site files: `python tests/fuzz/fuzz_commands.py [--inputs 20000] [--seed 1]`.

Each input is made of its number and the seed, and tried alone in a process forked from one that has everything loaded:
a command with flags and values that are good, odd or torn; a shipped plan with values replaced; a site file of
docs/cluster.md likewise. There is no MPI, no torch, no engine and no other program, so nothing is measured but by the
fake backend, and nothing outside of a temporary folder is touched. What is allowed is a documented exit code and no
traceback, within a limit of processor time. `--only NUMBER` tries one input again and prints what it prints.
"""

# ruff: noqa: T201 - a program

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import math
import os
import random
import re
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import click
import scipy.optimize
import scipy.stats  # noqa: F401 - before time counts

from collbench import cli, collectives
from collbench.analysis.factors import FACTORS
from collbench.analysis.runs import observe, save_baseline
from collbench.cli import COMMANDS
from collbench.launch import folders
from collbench.registry import plans
from collbench.schema.plan import WORLD_KEYS

ROOT = Path(__file__).parents[2]
RUNS = {"run": ROOT / "tests" / "data" / "run", "demo": ROOT / "results" / "demo-openmpi",
        "launched": ROOT / "results" / "zhao2018" / "zhao2018-sysbench"}  # fmt: skip

#: Exit codes that may come where nobody interrupts; 4 is the gate's.
CODES = {0, 1, 2, 3}

#: Processor time of an input, its wall-clock time (s), and its memory beyond that of the process it is forked from.
CPU, WALL, MEMORY = 20, 240, 2 << 30

#: How often each command is tried: those that analyse take a second each.
WEIGHTS = {"plan": 8, "launch": 6, "run": 6, "gate": 6, "image": 4, "show": 6, "pack": 2, "compare": 3, "advise": 2,
           "history": 2, "model": 2, "report": 1, "doctor": 1, "demo": 1, "selftest": 2, "suite": 2, "list": 1,
           "completion": 1}  # fmt: skip

NUMBERS = ("0", "1", "2", "3", "7", "8", "-1", "1000", "65536", "2147483648", "9223372036854775808", "1" + "0" * 30,
           "9" * 5000, "0.5", "-0.0", "1e-300", "1e400", "nan", "inf", "0x10", "1_000", "\u00b2", " 4 ")  # fmt: skip
TEXTS = ("", " ", "-", "--", "a", "=", "a=", "=1", ",", ",,", "a,b", "host", "multi", "single", "packed:2", "packed:0",
         "packed:\u00b2", "strict", "net", "openmpi", "mpich", "fake", "mpi", "sum", "float64", "policy", "env:UCX_TLS",
         "policy=multi", "size=8", "ranks=64,bytes=1G", "2%", "1e400%", "10s", "1h", "-5s", "8", "4M", "1e3K",
         "\x1b[31m", "\n", "a\nb", "\u202eb", "\udcff", "\u00e9" * 300, "x" * 5000, "%s%n", "{}", "$(true)", "[b]",
         "../x", "2026-11-24", "image=openmpi", "env=A=1", "lib=x.so", "base", "quick", "ladder")  # fmt: skip
PATHS = ("run", "demo", "launched", "folder", "baseline.json", "plan.toml", "site.toml", "run/records.jsonl", "empty",
         "new", "new/deeper", "page.html", "page.md", "page.csv", "page.tex", "page.xyz", "none.toml", ".", "", "../x",
         "/proc/none/x", "loop", "pipe", "x" * 300, "a\nb", "\udcff", "~", "-")  # fmt: skip

#: Values of flags that nothing in their type tells, and of those that would take long, or be waited for.
VALUES = {
    "--by": (*FACTORS, "library", "kernel", "env:UCX_TLS"),
    "--ignore": (*FACTORS, "env:UCX_TLS", "cpu,kernel", "align"),
    "--fail-on": ("slower", "outside", "slower,outside", "slower,,", "unclear"),
    "--given": ("policy=multi", "policy=single", "size=8", "backend=mpi"), "--between": ("host,multi", "a,b"),
    "--margin": ("2%", "0", "0.5", "99%", "100%"), "--predict": ("ranks=64,bytes=1G", "ranks=2", "bytes=8"),
    "--on": ("docker", "podman", "slurm", "k8s", "host"), "--docker-host": ("unix:///proc/none", "tcp://[::1", "ssh://"),
    "--base": ("image=openmpi", "env=A=1", "lib=x", "a"), "--other": ("image=mpich", "env=A=2", "preload=x", "a"),
    "--iters": ("1", "3", "0", "-1", "x"), "--warmup_iters": ("0", "2", "-1"), "--budget": ("0.01s", "0", "-1s", "x"),
    "--floor": ("1", "2", "0", "-1"), "--timeout": ("2s", "0", "-1s", "x", "1e400"), "--ranks": ("1", "2", "3", "0"),
    "--fault": ("corrupt:0", "raise:1", "raise:0@1", "raise:99"), "--minbytes": ("8", "64", "0", "-1", "1e400"),
    "--maxbytes": ("8", "1K", "64K", "0", "-1", "1" + "0" * 30), "--stepfactor": ("2", "1", "0", "1e400"),
    "--stepbytes": ("8", "1K", "0"), "--burst": ("1", "2", "0", "1001"), "--launches": ("1", "2", "0", "9" * 5000),
}  # fmt: skip

#: What would look beyond the temporary folder, or never end.
NEVER = {"--help", "--sweep"}


class Input(NamedTuple):
    """`files` are text by name, written into the folder in which the command is called."""

    kind: str
    argv: tuple[str, ...]
    files: dict[str, bytes]


class Outcome(NamedTuple):
    """`wrong` is empty where all is as documented; `where` groups inputs of one cause."""

    kind: str
    code: int | None
    wrong: str = ""
    where: str = ""


# Command lines --------------------------------------------------------------------------------------------------------


def command_of(name: str) -> click.Command:
    found = cli.cli.get_command(click.Context(cli.cli), name)
    assert found is not None
    return found


def path_of(draw: random.Random) -> str:
    return draw.choice((*PATHS, *list(plans())[:6]))


def value_of(option: click.Parameter, flag: str, draw: random.Random) -> str:
    """Of its type, of what it is known to take, or nonsense."""
    known = next((VALUES[name] for name in (flag, *option.opts) if name in VALUES), ())
    if draw.random() < (0.85 if known else 0.15):
        return draw.choice(known or TEXTS)
    if isinstance(option.type, click.Choice) and draw.random() < 0.9:
        return str(draw.choice(list(option.type.choices)))
    if "PATH" in type(option.type).__name__.upper() or (option.metavar or "") in ("DIR", "FILE"):
        return path_of(draw)
    if known:
        return draw.choice(TEXTS)
    return draw.choice((NUMBERS, TEXTS)[draw.random() < 0.5])


def flags_of(command: click.Command, draw: random.Random, most: int) -> Iterator[str]:
    options = [one for one in command.params if isinstance(one, click.Option) and not NEVER & {*one.opts}]
    for _ in range(draw.randint(0, most) if options else 0):
        option = draw.choice(options)
        flag = draw.choice(option.opts + option.secondary_opts)
        if option.is_flag:
            yield flag
        elif flag.startswith("--") and draw.random() < 0.2:
            yield f"{flag}={value_of(option, flag, draw)}"
        else:
            yield from (flag, value_of(option, flag, draw))


def arguments_of(name: str, command: click.Command, draw: random.Random) -> list[str]:
    if isinstance(command, click.Group):
        inner = draw.choice([*command.list_commands(click.Context(command)), "x"])
        found = command.get_command(click.Context(command), inner)
        return [inner, *([] if found is None else [*arguments_of(name, found, draw), *flags_of(found, draw, 3)])]
    if not any(isinstance(one, click.Argument) for one in command.params):
        return []
    good = {"launch": ["plan.toml", "quick", "ladder"], "plan": [*plans(), "plan.toml"], "gate": ["quick", "plan.toml"],
            "run": ["plan.toml", "deepbench-allreduce"], "image": ["openmpi", "x.Dockerfile"],
            "suite": ["stream", "dgemm", "fio", "size=1K", "count=1", "cpu", "x=1"],
            "completion": ["bash", "zsh", "fish"]}.get(name, ["run", "demo", "launched", "folder"])  # fmt: skip
    number = draw.choices((0, 1, 2, 3), (1, 8, 4, 1))[0]
    return [draw.choice(good) if draw.random() < 0.8 else path_of(draw) for _ in range(number)]


def torn(argv: list[str], draw: random.Random) -> list[str]:
    """Words left out, doubled, exchanged, put in, or changed."""
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(len(argv) + 1)
        action = draw.randrange(5)
        if action == 0 or at == len(argv):
            argv.insert(at, draw.choice((*TEXTS, *NUMBERS)))
        elif action == 1:
            del argv[at]
        elif action == 2:
            argv.insert(at, argv[at])
        elif action == 3:
            other = draw.randrange(len(argv))
            argv[at], argv[other] = argv[other], argv[at]
        else:
            place = draw.randrange(len(argv[at]) + 1)
            argv[at] = argv[at][:place] + draw.choice(TEXTS) + argv[at][place + draw.randint(0, 2) :]
    return [word for word in argv if not any(word.startswith(never[:5]) for never in NEVER)]


#: What makes a measurement short; flags that come later win.
SHORT = ("-n", "2", "-w", "0", "-T", "2s")


def command_line(draw: random.Random) -> Input:
    names = [name for name, *_ in COMMANDS]
    if draw.random() < 0.2:
        name = draw.choice(list(collectives.names()))
        short = [*SHORT, "-e", "1K", "--backend", "fake"]
    else:
        name = draw.choices(names, [WEIGHTS.get(one, 1) for one in names])[0]
        short = [*SHORT] if name == "suite" else ["-T", "2s"] if name == "run" else []
    command = command_of(name)
    rest = [*arguments_of(name, command, draw), *flags_of(command, draw, 4)]
    if draw.random() < 0.25:
        rest = torn(rest, draw)
    more = ["--dry-run"] if name == "launch" else []
    argv = [name, *short, *rest, *more] if draw.random() < 0.98 else torn([name, *rest], draw)
    files = {"plan.toml": spoilt_plan(draw), "site.toml": spoilt_site(draw, "k8s")} if draw.random() < 0.5 else {}
    return Input(f"command {name}", tuple(word.replace("\0", "") for word in argv), files)


# Files ----------------------------------------------------------------------------------------------------------------

#: Values of each kind that are odd, and of any kind.
ODD: dict[type, tuple[Any, ...]] = {
    bool: (True, False),
    int: (0, 1, -1, 2, 3, 7, 64, 1000, 2**31, 2**63, 10**30, int("9" * 4299)),
    float: (0.0, -0.0, 0.5, 1e-300, 1e300, math.inf, math.nan),
    str: ("", "a", "host", "multi", "packed:2", "packed:9999999999", "strict", "net", "openmpi", "torch", "\x1b[31m\n",
          "x" * 3000, "8", "1G", "1e400", "10s", "1e9h", "-1", "../x", "/proc/none", "far", "decided", "unconfined"),
    list: ([], [[]], [1, "a"], ["host", "host"], ["8", "8"], [0, -1, 10**9], list(range(2000)), [2, 3, 4]),
    dict: ({}, {"a": {"b": 1}}, {"": 0}, {"min": "8", "max": "1G"}, {"openmpi": "torch"}),
}  # fmt: skip


def places_in(tree: Any) -> Iterator[tuple[Any, Any]]:
    keys = tree.keys() if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ()
    for key in list(keys):
        yield tree, key
        yield from places_in(tree[key])


def known_values(documents: Sequence[Any]) -> dict[str, list[Any]]:
    """Of each key, the values that it has anywhere."""
    found: dict[str, list[Any]] = {}
    for document in documents:
        for owner, key in places_in(document):
            found.setdefault(str(key) if isinstance(owner, dict) else "", []).append(owner[key])
    return found


def edited(document: dict[str, Any], known: dict[str, list[Any]], draw: random.Random) -> dict[str, Any]:
    """Values replaced, mostly by others of their kind; now and then a key is left out, put in or renamed."""
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        document = json.loads(json.dumps(document))  # no part is in two places
        action, (owner, key) = draw.randrange(20), draw.choice([*places_in(document)] or [({"": 0}, "")])
        if action == 0:
            del owner[key]
        elif action < 3:
            new = draw.choice(sorted(known))
            document[new] = draw.choice(known[new])
        elif action == 3 and isinstance(owner, dict):
            owner[draw.choice(("a", "sizes", "", f"{key}s", "\n"))] = owner.pop(key)
        elif action < 6 and isinstance(owner, list):
            owner.extend([owner[key]] * draw.choice((1, 2, 300)))
        elif action < 11:
            owner[key] = draw.choice(known.get(str(key) if isinstance(owner, dict) else "", [owner[key]]))
        elif action < 18:
            owner[key] = draw.choice(ODD[type(owner[key])])
        else:
            owner[key] = draw.choice(ODD[draw.choice([*ODD])])
    return document


def toml(value: Any) -> str:
    """As TOML has it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)} = {toml(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return json.dumps(value).replace("\x7f", "\\u007f")


def written(document: dict[str, Any], text: bytes, draw: random.Random) -> bytes:
    """The document, or now and then the text that it came from with bytes overwritten."""
    if draw.random() < 0.15:
        changed = bytearray(text)
        for _ in range(draw.randint(1, 4)):
            at = draw.randrange(len(changed) + 1)
            changed[at : at + draw.randint(0, 8)] = draw.choice(
                (b"", b"\xff", b"[", b"\n", b"=", b"a." * 600, b'"', b"9" * 5000)
            )
        return bytes(changed)
    return "".join(f"{json.dumps(name)} = {toml(one)}\n" for name, one in document.items()).encode()


def small(document: dict[str, Any]) -> dict[str, Any]:
    """For `run`: what the fake backend measures in no time."""
    return document | {"iters": 2, "warmup": 0, "timeout": "2s"}


PLANS = tuple(path.read_bytes() for path in plans().values())
SITES = {
    engine: re.sub(r"^ +", "", block, flags=re.MULTILINE).encode()
    for block in re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8"), re.DOTALL)
    for engine in re.findall(r"^ *\[(slurm|k8s)\]", block, re.MULTILINE)
}  # the last of each engine, which has all keys
OF_PLANS = known_values([tomllib.loads(text.decode()) for text in PLANS])
OF_SITES = known_values([tomllib.loads(text.decode()) for text in SITES.values()])


def spoilt_plan(draw: random.Random) -> bytes:
    text = draw.choice(PLANS)
    return written(edited(tomllib.loads(text.decode()), OF_PLANS, draw), text, draw)


def spoilt_site(draw: random.Random, engine: str) -> bytes:
    document = tomllib.loads(SITES[engine].decode())
    document[engine] = edited(document[engine], OF_SITES, draw)
    return written(document, SITES[engine], draw)


#: What every site can run.
NODES = b"""images = ["openmpi"]
policies = ["multi", "packed:2"]
collectives = ["allreduce"]
ranks = [2, 4]
hosts = [1, 2]
"""

#: Of one world, for `run` and `selftest`.
WORLD = b'collectives = ["allreduce", "bcast"]\nbackends = ["fake"]\nops = ["sum"]\nsizes = { min = "8", max = "64" }\n'


def plan_file(draw: random.Random) -> Input:
    if draw.random() < 0.2:
        known = {key: values for key, values in OF_PLANS.items() if key in WORLD_KEYS}
        made = small(edited(tomllib.loads(WORLD.decode()), known, draw))
        world = draw.choice(
            (("run", "plan.toml"), ("run", "plan.toml", "--out", "new"), ("selftest", "--plan", "plan.toml"))
        )
        return Input("plan of a world", world, {"plan.toml": written(made, WORLD, draw)})
    argv = draw.choice((("plan", "plan.toml"), ("plan", "plan.toml"), ("launch", "plan.toml", "--dry-run"),
                        ("plan", "plan.toml", "--launches", "3"), ("gate", "plan.toml", "--other", "env=A=1"),
                        ("plan", "plan.toml", "--on", "slurm", "--site", "site.toml")))  # fmt: skip
    return Input("plan", argv, {"plan.toml": spoilt_plan(draw), "site.toml": SITES["slurm"]})


def site_file(draw: random.Random) -> Input:
    engine = draw.choice(("slurm", "k8s"))
    plan = draw.choice(("quick", "hosts", "plan.toml")) if engine == "slurm" else "plan.toml"
    argv = draw.choice((("plan", plan), ("launch", plan, "--dry-run"), ("launch", plan, "--dry-run"), ("doctor",)))
    files = {"site.toml": spoilt_site(draw, engine), "plan.toml": NODES}
    return Input("site", (*argv, "--on", engine, "--site", "site.toml"), files)


def make(seed: int, number: int) -> Input:
    """The input of this number: the same whenever it is made."""
    draw = random.Random(f"{seed}/{number}")  # noqa: S311 - no secret
    return draw.choices((command_line, plan_file, site_file), (7, 2, 1))[0](draw)


# Trying ---------------------------------------------------------------------------------------------------------------


class Without(MetaPathFinder):
    """What it finds, but for packages that would start ranks or take long to load."""

    def __init__(self, finder: Any) -> None:
        self.finder = finder

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        absent = name.partition(".")[0] in ("mpi4py", "torch", "cupy")
        return None if absent else self.finder.find_spec(name, path, target)


class NoProgram(subprocess.Popen):  # type: ignore[type-arg]
    """On a machine without any other program."""

    def __init__(self, argv: Any, *how: Any, **more: Any) -> None:
        first = argv if isinstance(argv, str) else next(iter(argv))
        self.returncode = None
        raise FileNotFoundError(2, "No such file or directory", os.fspath(first))

    def __del__(self, *_: Any) -> None:
        """Nothing was started."""


def prepare(folder: Path) -> None:
    """Runs and files, from which every input gets its own copy; and everything loaded."""
    for name, run in RUNS.items():
        shutil.copytree(run, folder / name)
        lines = (folder / name / "records.jsonl").read_bytes().splitlines(keepends=True)
        (folder / name / "records.jsonl").write_bytes(b"".join(lines[:40]))
    for name in ("1", "2"):
        shutil.copytree(RUNS["run"], folder / "folder" / name)
    save_baseline(observe(folder / "run"), folder / "baseline.json")
    (folder / "plan.toml").write_bytes(PLANS[0])
    (folder / "site.toml").write_bytes(SITES["slurm"])
    (folder / "empty").mkdir()
    (folder / "loop").symlink_to("loop")
    (folder / "x.Dockerfile").write_text("FROM scratch\n")
    sys.meta_path[:] = map(Without, sys.meta_path)
    for _, module, _ in COMMANDS:
        import_module(f"collbench.cli.{module}")
    for name in (*(name for name, *_ in COMMANDS), "allreduce"):
        command_of(name)
    subprocess.Popen = NoProgram  # type: ignore[assignment, misc]
    folders._MORE_PLACES = ()  # type: ignore[assignment]
    for name in [*os.environ]:
        if name.startswith(("OMPI_", "PMI", "SLURM_", "COLLBENCH", "KUBE", "DOCKER_")):
            del os.environ[name]
    os.environ |= {"DOCKER_HOST": "unix:///proc/none", "PATH": "/proc/none", "OMP_NUM_THREADS": "1", "COLUMNS": "80"}
    gc.collect()
    gc.freeze()


def tried(one: Input, good: Path, show: bool = False) -> Outcome:
    """In a process and a folder of its own."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as top:
        folder = Path(top) / "a" / "b"
        shutil.copytree(good, folder, symlinks=True)
        os.mkfifo(folder / "pipe")
        for name, content in one.files.items():
            (folder / name).write_bytes(content)
        child = os.fork()
        if child == 0:
            call(one.argv, folder, show)
        status, seconds = waited(child)
        if seconds is not None:
            return Outcome(one.kind, None, "without end", f"{one.argv[0]}: without end")
        said = (folder.parent / "err").read_text(encoding="utf-8", errors="replace")
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return Outcome(one.kind, None, f"signal {number}\n{said[-2000:]}", f"{one.argv[0]}: signal {number}")
    code = os.WEXITSTATUS(status)
    if "Traceback (most recent call last)" in said:
        places = re.findall(r'File "[^"]*?(?:src|site-packages)/([^"]+)", line (\d+)', said)
        own = [f"{file}:{line}" for file, line in places if file.startswith("collbench")]
        last = said.strip().splitlines()[-1][:160]
        return Outcome(one.kind, code, said[-3000:], f"{(own or ['?'])[-1]} {last.partition(':')[0]}")
    if code not in (CODES | {4} if "gate" in one.argv else CODES):
        return Outcome(one.kind, code, f"exit code {code}\n{said[-2000:]}", f"{one.argv[0]}: exit code {code}")
    return Outcome(one.kind, code)


def waited(child: int) -> tuple[int, float | None]:
    """Its status; and where it did not end, the limit, after it was killed."""
    with contextlib.closing(os.fdopen(os.pidfd_open(child), "rb")) as handle:
        ended, *_ = select.select([handle], [], [], WALL)
    if not ended:
        os.killpg(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    slow = not ended or (os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL))
    return status, WALL if slow else None


def call(argv: Sequence[str], folder: Path, show: bool) -> NoReturn:
    """The command, in this process, which ends with it."""
    code = 99
    try:
        os.setsid()
        os.chdir(folder)
        os.environ |= {"HOME": str(folder), "TMPDIR": str(folder)}
        tempfile.tempdir = str(folder)
        resource.setrlimit(resource.RLIMIT_CPU, (CPU, CPU + 5))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 28, 1 << 28))
        size = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(folder.parent / name, os.O_CREAT | os.O_WRONLY | os.O_TRUNC), number)
        os.close(0)
        os.open(os.devnull, os.O_RDONLY)
        sys.argv = ["collbench", *argv]
        cli.main()
    except SystemExit as asked:
        code = asked.code if isinstance(asked.code, int) else 1
    except BaseException:  # it is what is looked for
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        if show:
            for name in ("out", "err"):
                os.write(3, (folder.parent / name).read_bytes())
        os._exit(code)


def work(seed: int, numbers: range, good: Path, pipe: int) -> NoReturn:
    """Every input of these numbers; outcomes go to the pipe, a line each."""
    for number in numbers:
        outcome = tried(make(seed, number), good)
        os.write(pipe, (json.dumps([number, *outcome])[:4000] + "\n").encode())
    os._exit(0)


def outcomes(seed: int, numbers: range, processes: int, good: Path) -> Iterator[tuple[int, Outcome]]:
    """As they come, from so many processes."""
    reading, writing = os.pipe()
    workers = []
    for first in range(processes):
        if (worker := os.fork()) == 0:
            os.close(reading)
            work(seed, numbers[first::processes], good, writing)
        workers.append(worker)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as lines:
        for line in lines:
            with contextlib.suppress(ValueError):
                number, *fields = json.loads(line)
                yield number, Outcome(*fields)
    for worker in workers:
        os.waitpid(worker, 0)


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    asked.add_argument("--inputs", type=int, default=20_000)
    asked.add_argument("--first", type=int, default=0, help="number of the first input")
    asked.add_argument("--seed", type=int, default=1)
    asked.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    asked.add_argument("--only", type=int, help="try this input alone, and print it")
    flags = asked.parse_args()
    warnings.simplefilter("error")
    with tempfile.TemporaryDirectory() as folder:
        good = Path(folder) / "good"
        good.mkdir()
        prepare(good)
        if flags.only is not None:
            one = make(flags.seed, flags.only)
            print(
                one.argv, *(f"{name}:\n{text.decode(errors='replace')}" for name, text in one.files.items()), sep="\n"
            )
            os.dup2(1, 3)
            outcome = tried(one, good, show=True)
            print(outcome.kind, outcome.code, outcome.wrong)
            return bool(outcome.wrong)
        done, wrong = Counter[tuple[str, int | None]](), dict[str, list[tuple[int, Outcome]]]()
        numbers = range(flags.first, flags.first + flags.inputs)
        for number, outcome in outcomes(flags.seed, numbers, flags.processes, good):
            done[outcome.kind, outcome.code] += 1
            if sum(done.values()) % 1000 == 0:
                print(f"{sum(done.values())} tried", flush=True)
            if outcome.wrong:
                wrong.setdefault(outcome.where, []).append((number, outcome))
                print(f"{number}: {outcome.where}", flush=True)
        for kind, code in sorted(done, key=str):
            print(f"{done[kind, code]:6d}  {kind}: {code}")
        for where, found in wrong.items():
            print(f"\n{len(found)} x {where}, such as --only {found[0][0]}\n{found[0][1].wrong}")
        total = sum(done.values())
        print(f"{total} inputs, {sum(map(len, wrong.values()))} wrong, of {len(wrong)} causes")
        return int(bool(wrong) or total != len(numbers))


if __name__ == "__main__":
    sys.exit(main())
