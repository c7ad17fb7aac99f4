"""The engine slurm: site files, the scripts that Slurm is given, and jobs under programs that are played."""

from __future__ import annotations

import json
import shlex
import stat
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.refusals import refusals

from collbench.cli.plan import show_cells
from collbench.launch.engines.slurm import all_launches
from collbench.launch.engines.slurm import job as jobs
from collbench.launch.engines.slurm.job import SlurmJob
from collbench.launch.engines.slurm.script import Resources, job_script, placing_options, read, seconds_of, uses_threads
from collbench.launch.expansion import ExpandedPlan, expand, shape_of
from collbench.launch.stacks import ignored_keys
from collbench.launch.waiting import LONGEST_ANSWER, LONGEST_LINE, Log
from collbench.registry import find_plan
from collbench.schema.plan import Plan, load_launch_plan

Golden = Callable[[str, str], None]
Collbench = Callable[..., subprocess.CompletedProcess[str]]

SITE: dict[str, Any] = {
    "folder": "/lustre/collbench", "cores": 8, "environments": {"openmpi": "/lustre/openmpi", "torch": "/lustre/torch"},
    "images": {"openmpi": "/img/openmpi", "mpich": "/img/mpich", "torch": "/img/torch"}, "options": ["--exclusive"],
}  # fmt: skip

PLAN = Plan(images=("openmpi",), policies=("host",), collectives=("allreduce",), sizes=("8",), ranks=(4,),
            hosts=(2,), launches=1, engine="slurm")  # fmt: skip


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{json.dumps(name)} = {toml(inner)}' for name, inner in value.items())} }}"
    return f"[{', '.join(map(toml, value))}]" if isinstance(value, list) else json.dumps(value)


def write_site(where: Path, engine: str, table: dict[str, Any], lines: str = "") -> str:
    path = where / "site.toml"
    keys = "".join(f"{name} = {toml(value)}\n" for name, value in table.items())
    path.write_text(f"[{engine}]\n{keys}{lines}\n")
    return str(path)


def site_file(where: Path, **changes: Any) -> str:
    return write_site(where, "slurm", SITE | changes)


def expanded(folder: Path, plan: dict[str, Any] | None = None, **site: Any) -> ExpandedPlan:
    return expand(msgspec.structs.replace(PLAN, site=site_file(folder, **site), **(plan or {})))


def script(folder: Path, plan: dict[str, Any] | None = None, **site: Any) -> str:
    done = expanded(folder, plan, **site)
    return all_launches(done.plan, done.order, done.placements)


def shipped(name: str, site: str) -> ExpandedPlan:
    """A plan that collbench brings with it, on Slurm."""
    return expand(msgspec.structs.replace(load_launch_plan(find_plan(name), name), engine="slurm", site=site))


def without_its_loop(text: str) -> str:
    """A job and its steps, without what every job does: it performs them. `slurm-bare.sh` has it."""
    head, _, rest = text.partition("exec {never}")
    return head + rest[rest.index("\ndone\n") + len("\ndone\n") :]


# The table [slurm] of a site file -------------------------------------------------------------------------------------

NO_SITES: list[dict[str, Any]] = [
    {"runtime": "docker"}, {"folder": "work"}, {"cores": 0}, {"cores": 2147483648}, {"cores": 10**30},
    {"gpus": 2147483648}, {"folder": "/shared/a\n#SBATCH --wrap=true"}, {"folder": "/shared/a\r"},
    {"options": ["partition=gpu"]}, {"partition": "gpu"}, {"enviroments": {}}, {"cores": "many"},
    {"options": "--exclusive"}, {"images": {"openmpi": 1}}, {"servers": {"option": []}},
    {"environments": {"openmpi": "~/env"}}, {"mpi": {"mvapich": "pmi2"}}, {"libraries": {"mine": "opnmpi"}},
    {"variables": {"UCX-TLS": "rc"}}, {"variables": {"COLLBENCH_SHAPE": "x"}}, {"options": ["--array=1-3"]},
    {"options": ["-N2"]}, {"options": ["--nodes=2"]}, {"options": ["--ntasks-per-core=1"]},
    {"options": ["--cpus-per-task=4"]}, {"options": ["--gpus-per-node=4"]}, {"options": ["--output=log"]},
    {"options": ["--requeue"]}, {"options": ["--job-name=mine"]}, {"servers": {"options": ["--time=10"]}},
    {"time": "soon"}, {"time": "1-"}, {"time": "1:2:3:4"},
]  # fmt: skip

NO_TABLES = ("[slrum]\ncores = 1", "cores = 1\n[slurm]", "[slurm]\ngpus = 1", "[k8s]")

#: Plans, and changes of the site file.
NOT_ON_SLURM: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"policies": ("multi",)}, {}),
    ({"policies": ("single",)}, {"runtime": "pyxis"}),
    ({"policies": ("multi",), "images": ("openmpi-mine",)}, {"runtime": "pyxis"}),
    ({"policies": ("multi",), "isolation": ("strict",)}, {"runtime": "pyxis"}),
    ({"policies": ("multi",), "isolation": ("strict", "flies")}, {}),
    ({"ranks": (3,)}, {}), ({"ranks": (32,)}, {}), ({"images": ("mine",)}, {}),
    ({"device": "gpu", "backends": ("nccl",)}, {}), ({"policies": ("multi",), "engine": "docker"}, {}),
]  # fmt: skip


def test_what_is_refused(golden: Golden, tmp_path: Path) -> None:
    """What no site file may say, and what a site cannot do of a plan."""

    def read_with(text: str | None = None, **changes: Any) -> object:
        path = site_file(tmp_path, **changes)
        if text is not None:
            Path(path).write_text(text)
        return read(path)

    attempts: list[Callable[[], object]] = [
        *(partial(read, name) for name in ("", f"{tmp_path}/none.toml")),
        *(partial(read_with, text) for text in NO_TABLES), *(partial(read_with, **site) for site in NO_SITES),
        *(partial(script, tmp_path, plan, **site) for plan, site in NOT_ON_SLURM),
    ]  # fmt: skip
    golden("slurm-refusals.txt", refusals(attempts, tmp_path))


@pytest.mark.parametrize(
    ("options", "added", "threads"),
    [
        (("--exclusive",), ["--hint=nomultithread", "--distribution=block"], False),
        (("--hint=multithread",), ["--distribution=block"], True),
        (("--hint compute_bound", "-m cyclic"), [], False),
        (("--threads-per-core=1", "--distribution=cyclic"), [], False),
        (("--threads-per-core=2", "-mcyclic"), [], True),
        (("-B 2", "--hinted"), ["--distribution=block"], False),
    ],
)
def test_ranks_get_whole_cores_in_order_unless_the_site_says_otherwise(
    options: tuple[str, ...], added: list[str], threads: bool
) -> None:
    assert (placing_options(options), uses_threads(options)) == (added, threads)


def test_options_that_may_change_what_is_measured_are_kept(tmp_path: Path) -> None:
    options = ["--partition=gpu", "-A x", "--qos=high", "--mail-type=END", "--exclusive", "--cpu-freq=high",
               "-C skylake", "--distribution=cyclic", "--switches=1", "--network=x", "-w n0", "--nodelist=n1",
               "--time-min=1", "--mem=0", "--gres=gpu:4", "-pgpu"]  # fmt: skip
    site = read(site_file(tmp_path, options=options, servers={"options": ["--constraint=big", "-p cpu"]}))
    assert site.options == tuple(options)
    assert site.measured == ("--exclusive", "--cpu-freq=high", "-C skylake", "--distribution=cyclic", "--switches=1",
                             "--network=x", "--mem=0", "--gres=gpu:4", "servers --constraint=big")  # fmt: skip


@pytest.mark.parametrize(
    ("time", "seconds"),
    [("90", 5400), ("1:30", 90), ("2:00:00", 7200), ("1-2", 93600), ("1-2:30", 95400), ("1-2:30:5", 95405),
     ("0", None), ("unlimited", None)],
)  # fmt: skip
def test_times_as_slurm_reads_them(tmp_path: Path, time: str, seconds: float | None) -> None:
    assert seconds_of(read(site_file(tmp_path, time=time)).time) == seconds


@pytest.mark.parametrize(
    ("options", "partitions"),
    [([], ()), (["--exclusive"], ()), (["--exclusive", "-p a,b"], ("--partition=a,b",)), (["-p"], ()),
     (["--partition=a", "-pb"], ("--partition=b",)), (["--partition-x=a"], ())],
)  # fmt: skip
def test_the_partitions_that_options_name(tmp_path: Path, options: list[str], partitions: tuple[str, ...]) -> None:
    assert read(site_file(tmp_path, options=options)).partitions == partitions


# Scripts --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "plan", "site"),
    [
        ("bare", {"hosts": (1, 2)}, {"setup": ["module load openmpi"], "variables": {"UCX_TLS": "rc,sm"}}),
        ("pyxis", {"policies": ("multi",), "images": ("mpich",)}, {"runtime": "pyxis"}),
        ("charliecloud", {"policies": ("host", "multi", "single")}, {"runtime": "charliecloud"}),
        # Namespaces of users refuse to read the memory of a rank in another container, and MPICH aborts from 64 KiB on.
        ("apptainer", {"policies": ("single",), "images": ("mpich",)}, {"runtime": "apptainer"}),
        ("torch", {"images": ("torch",), "backends": ("torch-gloo",)}, {}),
        ("gpus", {"device": "gpu", "backends": ("nccl",), "policies": ("multi",)}, {"runtime": "pyxis", "gpus": 2}),
    ],
)
def test_what_is_given_to_slurm(
    golden: Golden, tmp_path: Path, name: str, plan: dict[str, Any], site: dict[str, Any]
) -> None:
    text = script(tmp_path, plan, **site)
    golden(f"slurm-{name}.sh", text if name == "bare" else without_its_loop(text))


def test_steps_that_slurm_lacks_are_left_out_and_named(tmp_path: Path) -> None:
    """So that one plan runs on every engine."""
    steps: dict[str, Any] = {"policies": ("host", "multi"), "isolation": ("strict", "net", "files")}
    done = expanded(tmp_path, steps, runtime="charliecloud")
    assert [(cell.policy, cell.isolation) for cell in done.cells] == [("host", None), ("multi", "files")]
    (left_out,) = done.left_out
    assert "isolation strict, net:" in left_out and left_out in ignored_keys(done)


@pytest.mark.parametrize("name", ["hosts", "leelee2024", "ladder", "one-container", "quick", "ddp-cpu"])
def test_shipped_plans_run_on_slurm(tmp_path: Path, name: str) -> None:
    done = shipped(name, site_file(tmp_path, runtime="charliecloud"))
    assert "#SBATCH" in all_launches(done.plan, done.order, done.placements)
    assert {cell.isolation for cell in done.cells} <= {None, "files"}
    assert bool(done.left_out) == (name != "hosts")


def test_what_is_left_out_is_said_by_plan_and_launch(collbench: Collbench, tmp_path: Path) -> None:
    site = site_file(tmp_path, runtime="charliecloud")
    planned = collbench("plan", "leelee2024", "--on", "slurm", "--site", site)
    assert {*shipped("leelee2024", site).left_out} <= {*planned.stdout.splitlines()}, planned.stderr
    site = site_file(tmp_path)
    printed = collbench("launch", "quick", "--dry-run", "--on", "slurm", "--site", site)
    assert {f"# {line}" for line in shipped("quick", site).left_out} <= {*printed.stderr.splitlines()}


@pytest.mark.parametrize(("time", "warned"), [("1", True), ("2:00:00", False), ("0", False)])
def test_a_job_that_is_too_short_is_said_by_plan_and_launch(
    collbench: Collbench, capsys: pytest.CaptureFixture[str], tmp_path: Path, time: str, warned: bool
) -> None:
    site = site_file(tmp_path, time=time, environments={"openmpi": "/env/openmpi", "mpich": "/env/mpich"})
    planned = collbench("plan", "hosts", "--on", "slurm", "--site", site)
    assert ("time 60 s" in planned.stdout) == warned, planned.stderr
    assert "slurm, host 0: rank 0 on cores 0; slurm, host 1: rank 1 on cores 0" in planned.stdout
    show_cells(shipped("hosts", site))
    assert ("time 60 s" in capsys.readouterr().err) == warned


def test_ranks_of_a_host_follow_each_other(tmp_path: Path) -> None:
    done = expanded(tmp_path, {"policies": ("single",)}, runtime="charliecloud")
    (placement,) = done.placements.values()
    boxes = [(box.host, box.name, box.ranks) for box in placement.boxes]
    assert boxes == [(0, "h0c0", (0,)), (0, "h0c1", (1,)), (1, "h1c0", (2,)), (1, "h1c1", (3,))]
    shape = shape_of(done.cells[0], placement)
    assert (shape.hosts, shape.each, shape.cores, shape.boxes) == (2, 2, 1, "rank")


def test_a_folder_with_spaces_stays_one_word_of_the_job(tmp_path: Path) -> None:
    folder = tmp_path / "a b"
    text = job_script("name", folder, read(site_file(tmp_path, folder=str(folder))), Resources(1, 1, 1, 0))
    (option,) = [line for line in text.splitlines() if "--output" in line]
    assert shlex.split(option, comments=False)[1:] == [f"--output={folder}/job.log"]


# Jobs -----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which tests put what plays Slurm's programs."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def play(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def play_states(programs: Path, *states: str) -> None:
    """What scontrol says of a job, one after the other and then the last: `PENDING Reason=Priority`."""
    (programs / "states").write_text("".join(f"JobId=7 JobState={state}\n" for state in states))
    play(programs, "scontrol", f"cd {programs}; head -n 1 states; [ $(wc -l < states) = 1 ] || sed -i 1d states")


@pytest.mark.parametrize(
    ("components", "text", "alive", "there"),
    [
        (("PENDING Reason=Resources NodeList=",), "PENDING (Resources)", True, True),
        (("RUNNING Reason=None NodeList=n[0-1]",), "RUNNING", True, True),
        (("TIMEOUT Reason=TimeLimit NodeList=n0",), "TIMEOUT (TimeLimit)", False, False),
        (("NODE_FAIL Reason=NodeDown NodeList=n0",), "NODE_FAIL (NodeDown)", False, False),
        (("RUNNING Reason=None", "RUNNING Reason=None"), "RUNNING", True, True),
        (("RUNNING Reason=None", "NODE_FAIL Reason=NodeDown"), "NODE_FAIL (NodeDown)", False, True),
    ],
)
def test_states_of_a_job(programs: Path, components: tuple[str, ...], text: str, alive: bool, there: bool) -> None:
    """One of several components has ended when one of them has."""
    play(programs, "scontrol", "\n".join(f"echo 'JobId=7 HetJobId=7 JobState={state}'" for state in components))
    state = jobs.state_of("7")
    assert (state.text, state.alive, state.there) == (text, alive, there)


def test_what_is_known_of_a_job(programs: Path) -> None:
    """Nodes and partitions are those of all components; a job that Slurm has forgotten has ended."""
    line = "echo 'JobState=RUNNING Partition={} NodeList={}'\n"
    play(programs, "scontrol", line.format("cpu", "n0") + line.format("gpu", "n[1-2]") + line.format("cpu", ""))
    assert (jobs.state_of("7").partition, jobs.state_of("7").nodes) == ("cpu,gpu", "n0,n[1-2]")
    play(programs, "scontrol", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    assert not jobs.state_of("7").alive


def test_output_of_a_step_is_followed_to_its_end(programs: Path, tmp_path: Path) -> None:
    play_states(programs, "RUNNING")
    log = Log()
    step = SlurmJob("7", tmp_path).start("srun true\n", "name", log)
    assert (tmp_path / "step-0").read_text() == "srun true\n"
    (tmp_path / "log-0").write_text("one\ntw")
    assert [step.code, *log.lines] == [None, "one"]
    errors = "srun: error: task 0: no such file\nsrun: error: n0: task 0: Exited with exit code 2"
    (tmp_path / "log-0").write_text(f"one\ntwo\n{errors}")
    (tmp_path / "code-0").write_text("2\n")
    assert [step.code, *log.lines[1:2], len(log.lines)] == [2, "two", 4]
    assert "exit code 2:" in step.how and step.how.endswith(" task 0: no such file")


def test_a_line_without_an_end_is_cut_where_the_log_cuts_it(programs: Path, tmp_path: Path) -> None:
    """Else a rank that prints for ever fills the launcher's memory. An answer may be longer than what ranks print."""
    play_states(programs, "RUNNING")
    for number, (log, kept) in enumerate(((Log(), LONGEST_LINE), (Log(LONGEST_ANSWER), 5000))):
        step = SlurmJob("7", tmp_path, steps=number).start("srun true\n", "name", log)
        (tmp_path / f"log-{number}").write_text("x" * 3000)
        assert step.code is None
        (tmp_path / f"log-{number}").write_text("x" * 5000 + "\ny")
        (tmp_path / f"code-{number}").write_text("0\n")
        assert [step.code, *map(len, log.lines)] == [0, kept, 1]


def test_the_job_performs_steps_and_ends_without_its_driver(tmp_path: Path, programs: Path) -> None:
    """The script itself, under bash."""
    play(programs, "scontrol", "echo n0; echo n1")
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "driver").write_text("0\n")
    site = read(site_file(tmp_path, folder=str(tmp_path)))
    text = job_script("name", folder, site, Resources(2, 1, 1, 0)).replace("-lt 300", "-lt 2")
    (folder / "step-0").write_text('echo "on $FIRST_NODE"; exit 3\n')
    done = subprocess.run(("bash", "-c", text), capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (75, "")
    written = {name: (folder / name).read_text() for name in ("log-0", "code-0", "nodes")}
    assert written == {"log-0": "on n0\n", "code-0": "3\n", "nodes": "n0\nn1\n"}
    (folder / "end").touch()
    assert subprocess.run(("bash", "-c", text), timeout=30, check=False).returncode == 0
