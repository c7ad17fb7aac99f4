"""Everything that wants a machine with NVIDIA GPUs, in under ten minutes, without a network or a container engine.

    bench/gpu.sh [OUT] [WORD...]        OUT: where results go [bench/out/gpu]

Makes the environment, and then runs the steps whose name contains one of the WORDs (`tests`, `peer`); without a word
all of them, the numbers before the tests. OUT gets steps.txt (a line per step), the pages, and gpu.tar.gz: logs, pages
with every number, and the runs. The limits of all steps add up to no more than --seconds, so that none is skipped for
another's sake; runs to keep and tests also get what earlier steps left. What the tests do not finish, a second call
with another OUT and the word `tests` does.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from gpu_installation import gpus
from installation import HERE, OUT, as_root, end_on_sigterm
from steps import Session, Step, archive, copy_new

ROOT = HERE.parent
SECONDS = 580.0
VARIABLES = {
    "OPENBLAS_NUM_THREADS": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_ROOT_USER_ACTION": "ignore",
    "PYTHONUNBUFFERED": "1",
}
STUCK = "30s"  # without progress, a run ends by itself
SMOKE = "launch/choi2021-gpu-smoke.toml"
WHICH, AFFINITY = "launch/which-gpus.toml", "launch/gpu-affinity.toml"
#: What is shorter here than in the plan of the paper: there are no containers, and little time.
SHORTER = {'policies = ["host", "multi"]': 'policies = ["host"]', "iters = 20": "iters = 5"}
SWEEP = """\
title = "all-reduce on GPUs"
collectives = ["allreduce"]
backends = ["nccl", "torch-nccl", "mpi-staged"]
sizes = { min = "8", max = "1G", factor = 8 }
budget = "0.2s"
floor = 5
unusable = "skip"
"""
GPU_SUITE = (
    "gpu_launch", "gpu_copy", "gpu_gemm", "gpu_histogram", "gpu_convolution", "gpu_transpose", "memory=pinned,pageable",
    "bins=64,256", "width=4096", "order=4096", "variant=all",
)  # fmt: skip
TRAIN = ("train", "network=fcn5,alexnet,resnet56,lstm", "device=cuda")
#: The suite on small problems, in which every kernel runs.
SMALL = (
    "gpu", "size=65540", "memory=pinned", "bins=64,256", "width=70", "order=64", "variant=all", "m=33", "n=65", "k=129",
    "burst=100", "-n", "2",
)  # fmt: skip
SELFTEST = """\
title = "NCCL on this machine"
collectives = ["allreduce", "sendrecv"]
backends = ["nccl"]
sizes = ["8", "1M", "256M"]
align = "barrier"
"""


class Plan:
    """The steps. `work` holds the environment and the runs; `module` is run as collbench.

    The machine has so many `gpus`, and memory `nodes` with cores that may be used.
    """

    def __init__(self, work: Path, module: str, ranks: int, mpi: str, gpus: int, nodes: int) -> None:
        self.work, self.module, self.ranks, self.mpi = work, module, ranks, mpi
        self.gpus, self.nodes = gpus, nodes
        self.python = str(work / "venv" / "bin" / "python")

    def steps(self) -> Iterator[Step]:
        """In the order of their worth: facts, numbers, runs to keep, tests."""
        make = (sys.executable, str(HERE / "gpu_environment.py"), str(self.work / "venv"), "--mpi", self.mpi)
        yield Step("environment", 40, make, stretches=True, needed=True)
        yield Step("facts", 15, self.program("gpu_facts.py"))
        yield Step("smoke", 40, self.collbench(self.ranks, "smoke", SMOKE))
        yield Step("programs", 30, self.program("gpu_programs.py", *self.here()), stretches=True)
        yield Step("peer", 160, self.program("gpu_peer.py", *self.here(), "--rounds", "6", "--limit", "150"))
        for number in (1, 2):  # with registered buffers, `gpu.sh OUT programs registration`
            flags = ("--registration", str(number), "--rounds", "6", "--limit", "150")
            argv = self.program("gpu_peer.py", *self.here(), *flags)
            yield Step(f"registration-{number}", 160, argv, on_request=True)
        yield Step("floor", 75, self.program("gpu_floor.py", *self.here(), "--limit", "60"))
        yield Step("copies", 55, self.program("gpu_copies.py", *self.here(), "--limit", "45"))
        yield from self.suites()
        yield Step("sweep", 15, self.collbench(self.ranks, "sweep", str(self.plan("sweep", SWEEP))), stretches=True)
        yield Step("server", 15, self.collbench(self.ranks + 1, "server", SMOKE), stretches=True)
        if self.ranks == 1:  # two ranks on one GPU: function, no measurement
            shared = "share_gpu = true\n" + (ROOT / SMOKE).read_text(encoding="utf-8")
            yield Step("shared", 15, self.collbench(2, "shared", str(self.plan("shared", shared))), stretches=True)
        yield Step("list", 10, (self.python, "-m", self.module, "list"), stretches=True)
        yield Step("doctor", 10, (self.python, "-m", self.module, "doctor"), stretches=True, codes=(0, 1))
        plan = str(self.plan("selftest", SELFTEST))
        selftest = (self.python, "-m", self.module, "selftest", "-n", str(self.ranks), "--plan", plan)
        yield Step("selftest", 10, selftest, stretches=True)
        yield from self.choices()
        for tool in ("memcheck", "racecheck"):
            checked = ("compute-sanitizer", "--tool", tool, "--target-processes", "all", "--error-exitcode", "9")
            suite = (self.python, "-m", self.module, "suite", *SMALL)
            yield Step(tool, 10, (*checked, *suite), stretches=True)
        for file in sorted((ROOT / "tests" / "gpu").glob("test_*.py"), reverse=True):
            yield Step(
                f"tests-{file.stem.removeprefix('test_')}", 5, self.pytest(file), self.for_tests(), stretches=True
            )

    def choices(self) -> Iterator[Step]:
        """All choices of GPUs, and of memory near and far from one: as many of six blocks as there is time for."""
        lacking = "" if self.gpus > 1 else f"needs several GPUs, here {self.gpus}"
        yield Step("which-gpus", 25, self.launch("which-gpus", ROOT / WHICH), stretches=True, lacking=lacking)
        lacking = "" if self.nodes > 1 else f"needs several memory nodes with cores, here {self.nodes}"
        text = (ROOT / AFFINITY).read_text(encoding="utf-8")
        for words, shorter in SHORTER.items():
            text = text.replace(words, shorter)
        argv = self.launch("gpu-affinity", self.plan("gpu-affinity", text))
        yield Step("gpu-affinity", 20, argv, stretches=True, lacking=lacking)

    def launch(self, name: str, plan: Path) -> tuple[str, ...]:
        """Six launches of each cell, on the host, in a run that is kept."""
        where = ("--out", str(self.work / "results" / name), "--launches", "6")
        return (self.python, "-m", self.module, "launch", str(plan), *where)

    def suites(self) -> Iterator[Step]:
        """Benchmarks of one GPU, in runs that are kept: what is worth most comes first, for a step that is cut off."""
        gpu = (self.python, "-m", self.module, "suite", *GPU_SUITE, *self.kept("gpu-suite"))
        yield Step("gpu-suite", 20, gpu, stretches=True)
        train = (self.python, "-m", self.module, "suite", *TRAIN, *self.kept("train"))
        yield Step("train", 10, train, stretches=True)

    def kept(self, name: str) -> tuple[str, ...]:
        """Flags of a run that is kept, in which no case takes long."""
        return ("-n", "10", "-w", "2", "-T", "60s", "--out", str(self.work / "results" / name))

    def program(self, name: str, *arguments: str) -> tuple[str, ...]:
        """One of this folder, in the environment."""
        return (self.python, str(HERE / name), *arguments)

    def here(self) -> tuple[str, ...]:
        """Flags of `gpu_installation.add_here`."""
        return ("--module", self.module, "--ranks", str(self.ranks))

    def collbench(self, ranks: int, name: str, plan: str) -> tuple[str, ...]:
        """A run that is kept."""
        flags = ("--module", self.module, "--ranks", str(ranks))
        where = ("--out", str(self.work / "results" / name), "-T", STUCK)
        return self.program("gpu_installation.py", *flags, "run", plan, *where)

    def plan(self, name: str, text: str) -> Path:
        """Written down, beside `work`, which is emptied before the first step."""
        path = self.work.with_name("gpu-plans") / f"{name}.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def pytest(self, file: Path) -> tuple[str, ...]:
        """One file, a line for each test as it ends: a file that is cut off says how far it came."""
        flags = ("-v", "-p", "pytest_timeout", "-p", "no:cacheprovider", "--durations=8")
        return (self.python, "-m", "pytest", *flags, str(file))

    def for_tests(self) -> dict[str, str]:
        """Their variables: what may not be skipped, and the mpirun of the environment first."""
        path = os.pathsep.join((str(self.work / "venv" / "bin"), os.environ.get("PATH", "")))
        module = {} if self.module == "collbench" else {"COLLBENCH_GPU_TEST_MODULE": self.module}
        needed = {"COLLBENCH_REQUIRE": "gpu,torch" if self.module == "collbench" else "gpu"}
        return {"PATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"} | needed | module


def chosen(steps: list[Step], words: list[str]) -> list[Step]:
    """Those with a word in their name, and what all need.

    Raises:
        SystemExit: a word is in no name.
    """
    for word in words:
        if not any(word in step.name for step in steps):
            raise SystemExit(f"no step is called {word}; there are {', '.join(step.name for step in steps)}")
    usual = [step for step in steps if step.needed or not (words or step.on_request)]
    return [step for step in steps if step in usual or any(word in step.name for word in words)]


def memory_nodes(root: Path = Path("/sys/devices/system/cpu")) -> int:
    """With cores that this process may use."""
    return len({node.name for core in os.sched_getaffinity(0) for node in root.glob(f"cpu{core}/node[0-9]*")})


def hold_open(devices: Path = Path("/dev")) -> list[int]:
    """Keep the GPUs' device files open, else the driver starts a GPU anew for every launch. Needs no context on it."""
    held = []
    for path in sorted(devices.glob("nvidia[0-9]*")):
        with contextlib.suppress(OSError):
            held.append(os.open(path, os.O_RDWR))
    return held


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="bench/gpu.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, nargs="?", default=OUT / "gpu", metavar="OUT")
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"for all steps [{SECONDS:g}]")
    parser.add_argument("--ranks", type=int, default=None, help="one for each GPU [as many as nvidia-smi lists]")
    parser.add_argument("--mpi", choices=("any", "carried"), default="any", help="take the carried one anyway [any]")
    parser.add_argument("--module", default="collbench", help="what is run as collbench [collbench]")
    asked = parser.parse_intermixed_args()
    end_on_sigterm()
    work, out = OUT / "gpu-work", asked.out.absolute()
    plan = Plan(work, asked.module, asked.ranks or max(len(gpus()), 1), asked.mpi, len(gpus()), memory_nodes())
    steps = chosen(list(plan.steps()), asked.words)
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    out.mkdir(parents=True, exist_ok=True)
    os.chdir(ROOT)
    os.environ.update(as_root() | VARIABLES)
    began = time.time()

    def pack() -> None:
        pages = sorted(HERE.glob("results-gpu_*"))
        copy_new([page for page in pages if page.suffix == ".md"], began, out)
        copy_new(pages, began, work / "pages")
        archive(out / "gpu.tar.gz", {name: work / name for name in ("log", "results", "pages")})

    session = Session(work, out, asked.seconds, pack)
    session.say(f"{len(gpus())} GPU(s), {len(hold_open())} held open, {os.cpu_count()} cores, {asked.seconds:g} s")
    try:
        session.run(steps)
    except SystemExit:
        session.say("told to end before all steps were done")
        raise
    finally:
        pack()
    sys.exit(session.failed > 0)


if __name__ == "__main__":
    main()
