"""The engine slurm: site files and scripts."""

from __future__ import annotations

import json
import shlex
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.unit.slurm_texts import without_its_loop

from collbench.cli.plan import show_cells
from collbench.errors import EngineError, PlanError
from collbench.launch.engines.slurm import all_launches
from collbench.launch.engines.slurm import job as jobs
from collbench.launch.engines.slurm import script as texts
from collbench.launch.engines.slurm.job import SlurmJob, submitted, wait_for_nodes
from collbench.launch.engines.slurm.script import Resources, job_script
from collbench.launch.engines.slurm.site import placing_options, read, uses_threads
from collbench.launch.expansion import ExpandedPlan, expand, shape_of
from collbench.launch.preview import ignored_keys
from collbench.launch.shipped import find_plan
from collbench.launch.waiting import LONGEST_ANSWER, LONGEST_LINE, Log
from collbench.schema.plan import Plan, load_launch_plan

SITE: dict[str, Any] = {
    "folder": "/lustre/collbench", "cores": 8, "environments": {"openmpi": "/lustre/openmpi", "torch": "/lustre/torch"},
    "images": {"openmpi": "/img/openmpi", "mpich": "/img/mpich", "torch": "/img/torch"}, "options": ["--exclusive"],
}  # fmt: skip

Golden = Callable[[str, str], None]

PLAN = Plan(images=("openmpi",), policies=("host",), collectives=("allreduce",), sizes=("8",), ranks=(4,),
                  hosts=(2,), launches=1, engine="slurm")  # fmt: skip


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{name} = {toml(inner)}' for name, inner in value.items())} }}"
    return json.dumps(value)


def site_file(where: Path, **changes: Any) -> str:
    path = where / "site.toml"
    path.write_text("[slurm]\n" + "".join(f"{name} = {toml(value)}\n" for name, value in (SITE | changes).items()))
    return str(path)


def expanded(folder: Path, plan: dict[str, Any] | None = None, **site: Any) -> ExpandedPlan:
    return expand(msgspec.structs.replace(PLAN, site=site_file(folder, **site), **(plan or {})))


def script(folder: Path, plan: dict[str, Any] | None = None, **site: Any) -> str:
    done = expanded(folder, plan, **site)
    return all_launches(done.plan, done.order, done.placements)


def test_a_job_performs_its_steps(golden: Golden, tmp_path: Path) -> None:
    more: dict[str, Any] = {"setup": ["module load openmpi"], "variables": {"UCX_TLS": "rc,sm"}}
    golden("slurm-bare.sh", script(tmp_path, {"hosts": (1, 2)}, **more))


@pytest.mark.parametrize(
    ("name", "plan", "site"),
    [
        ("pyxis", {"policies": ("multi",), "images": ("mpich",)}, {"runtime": "pyxis"}),
        ("charliecloud", {"policies": ("host", "multi", "single")}, {"runtime": "charliecloud"}),
        ("apptainer", {"policies": ("single",), "images": ("mpich",)}, {"runtime": "apptainer"}),
        ("torch", {"images": ("torch",), "backends": ("torch-gloo",)}, {}),
        ("gpus", {"device": "gpu", "backends": ("nccl",), "policies": ("multi",)}, {"runtime": "pyxis", "gpus": 2}),
    ],
)
def test_what_is_given_to_slurm(
    golden: Golden, tmp_path: Path, name: str, plan: dict[str, Any], site: dict[str, Any]
) -> None:
    golden(f"slurm-{name}.sh", without_its_loop(script(tmp_path, plan, **site)))


@pytest.mark.parametrize(
    ("plan", "site", "says"),
    [
        ({"policies": ("multi",)}, {}, "policy multi: with runtime none there is none; set runtime"),
        ({"policies": ("single",)}, {"runtime": "pyxis"}, "with runtime pyxis there is multi"),
        ({"policies": ("multi",), "images": ("openmpi-mine",)}, {"runtime": "pyxis"}, "does not say where it is"),
        (
            {"isolation": ("strict",), "policies": ("multi",)},
            {"runtime": "pyxis"},
            "isolation strict: left out; engine slurm has files, and no cell is left",
        ),
        ({"ranks": (3,)}, {}, "cannot be spread evenly over 2 hosts"),
        ({"ranks": (32,)}, {}, "need 16 cores, and a node of the site offers 8"),
        ({"images": ("mine",)}, {}, "does not say which library"),
        ({"device": "gpu", "backends": ("nccl",)}, {}, "and a node of the site offers none (gpus in the site file)"),
    ],
)
def test_what_a_site_cannot_do(tmp_path: Path, plan: dict[str, Any], site: dict[str, Any], says: str) -> None:
    with pytest.raises(PlanError) as refused:
        script(tmp_path, plan, **site)
    assert says in str(refused.value)


def test_steps_that_slurm_lacks_are_left_out_and_named(tmp_path: Path) -> None:
    """So that one plan runs on every engine; a misspelt step is none of any."""
    steps: dict[str, Any] = {"policies": ("host", "multi"), "isolation": ("strict", "net", "files")}
    done = expanded(tmp_path, steps, runtime="charliecloud")
    assert [(cell.policy, cell.isolation) for cell in done.cells] == [("host", None), ("multi", "files")]
    assert done.left_out == ("isolation strict, net: left out; engine slurm has files",)
    assert done.left_out[0] in ignored_keys(done)
    with pytest.raises(PlanError, match=r"isolation 'flies': unknown. Did you mean files"):
        expanded(tmp_path, {"policies": ("multi",), "isolation": ("strict", "flies")})


@pytest.mark.parametrize("name", ["hosts", "leelee2024", "ladder", "one-container", "quick", "ddp-cpu"])
def test_shipped_plans_run_on_slurm(tmp_path: Path, name: str) -> None:
    plan = msgspec.structs.replace(load_launch_plan(find_plan(name), name), engine="slurm")
    at = site_file(tmp_path, runtime="charliecloud")
    done = expand(msgspec.structs.replace(plan, site=at))
    assert "#SBATCH" in all_launches(done.plan, done.order, done.placements)
    assert {cell.isolation for cell in done.cells} <= {None, "files"}
    assert bool(done.left_out) == (name != "hosts")


def test_what_is_left_out_is_said_by_plan_and_launch(
    collbench: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    done = collbench("plan", "leelee2024", "--on", "slurm", "--site", site_file(tmp_path, runtime="charliecloud"))
    assert "isolation strict: left out; engine slurm has files" in done.stdout.splitlines(), done.stderr
    printed = collbench("launch", "quick", "--dry-run", "--on", "slurm", "--site", site_file(tmp_path))
    assert "# isolation strict, net: left out; engine slurm has files" in printed.stderr.splitlines()


@pytest.mark.parametrize(("time", "warned"), [("1", True), ("2:00:00", False), ("0", False)])
def test_a_job_that_is_too_short_is_said_by_plan_and_launch(
    collbench: Callable[..., subprocess.CompletedProcess[str]], capsys: pytest.CaptureFixture[str], tmp_path: Path,
    time: str, warned: bool,
) -> None:  # fmt: skip
    at = site_file(tmp_path, time=time, environments={"openmpi": "/env/openmpi", "mpich": "/env/mpich"})
    planned = collbench("plan", "hosts", "--on", "slurm", "--site", at)
    says = "time 60 s in the site file: all launches take about 2 min. Raise it"
    assert (says in planned.stdout) == warned, planned.stderr
    assert "slurm, host 0: rank 0 on cores 0; slurm, host 1: rank 1 on cores 0" in planned.stdout
    show_cells(expand(msgspec.structs.replace(load_launch_plan(find_plan("hosts")), engine="slurm", site=at)))
    assert (says in capsys.readouterr().err) == warned


def test_hosts_need_an_engine_that_has_several() -> None:
    with pytest.raises(PlanError, match="engine docker has one machine"):
        expand(Plan(images=("openmpi",), policies=("multi",), hosts=(2,), ranks=(2,), collectives=("bcast",)))


def test_ranks_in_containers_of_their_own_do_not_read_the_memory_of_another(tmp_path: Path) -> None:
    """Namespaces of users refuse it, and MPICH aborts from 64 KiB on."""
    own: dict[str, Any] = {"policies": ("single",), "images": ("mpich",)}
    assert "export MPIR_CVAR_CH4_CMA_ENABLE=0" in script(tmp_path, own, runtime="charliecloud")
    assert "CMA" not in script(tmp_path, own | {"policies": ("multi",)}, runtime="charliecloud")


def test_ranks_of_a_host_follow_each_other(tmp_path: Path) -> None:
    done = expanded(tmp_path, {"policies": ("single",)}, runtime="charliecloud")
    (placement,) = done.placements.values()
    assert [(box.host, box.name, box.ranks) for box in placement.boxes] == [
        (0, "h0c0", (0,)), (0, "h0c1", (1,)), (1, "h1c0", (2,)), (1, "h1c1", (3,))
    ]  # fmt: skip
    shape = shape_of(done.cells[0], placement)
    assert (shape.hosts, shape.each, shape.cores, shape.boxes) == (2, 2, 1, "rank")


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


def test_no_slurm_here(programs: Path) -> None:
    with pytest.raises(EngineError, match="there is no sbatch here"):
        jobs.submit("#!/bin/bash\n")


def test_what_slurm_rejects_is_said_in_its_words(programs: Path, tmp_path: Path) -> None:
    play(programs, "sbatch", "echo 'sbatch: error: Batch job submission failed: Invalid account' >&2; exit 1")
    with pytest.raises(EngineError, match="sbatch says: Batch job submission failed: Invalid account"):
        submitted("", tmp_path / "job")
    assert not (tmp_path / "job").exists()


@pytest.mark.parametrize(
    ("said", "state", "alive"),
    [
        ("JobId=1 JobState=PENDING Reason=Resources NodeList=", "PENDING (Resources)", True),
        ("JobId=1 JobState=RUNNING Reason=None NodeList=n[0-1]", "RUNNING", True),
        ("JobId=1 JobState=TIMEOUT Reason=TimeLimit NodeList=n0", "TIMEOUT (TimeLimit)", False),
        ("JobId=1 JobState=NODE_FAIL Reason=NodeDown NodeList=n0", "NODE_FAIL (NodeDown)", False),
    ],
)
def test_states_of_a_job(programs: Path, said: str, state: str, alive: bool) -> None:
    play(programs, "scontrol", f"echo '{said}'")
    found = jobs.state_of("1")
    assert (found.text, found.alive) == (state, alive)


def test_a_job_that_slurm_has_forgotten_has_ended(programs: Path) -> None:
    play(programs, "scontrol", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    assert not jobs.state_of("1").alive


def test_a_job_that_ends_before_it_begins(programs: Path, tmp_path: Path) -> None:
    play(programs, "sbatch", "echo 7")
    play(programs, "scontrol", "echo 'JobId=7 JobState=FAILED Reason=NonZeroExitCode NodeList=n0'")
    job = submitted("", tmp_path / "job")
    (tmp_path / "job/job.log").write_text("module: command not found\n")
    with pytest.raises(EngineError, match=r"job 7 ended before it began: FAILED .*: module: command not found"):
        wait_for_nodes(job, lambda: None)


def test_a_folder_that_the_nodes_do_not_see(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play(programs, "sbatch", "echo 7")
    play(programs, "scontrol", "echo 'JobId=7 JobState=RUNNING Reason=None NodeList=n0'")
    monkeypatch.setattr("collbench.launch.engines.slurm.job.GONE", 0.2)
    job = submitted("", tmp_path / "job")
    with pytest.raises(EngineError, match="Is folder in the site file one that every node sees"):
        wait_for_nodes(job, lambda: None)


def test_output_of_a_step_is_followed_to_its_end(programs: Path, tmp_path: Path) -> None:
    play(programs, "scontrol", "echo 'JobId=7 JobState=RUNNING Reason=None NodeList=n0'")
    log = Log()
    step = SlurmJob("7", tmp_path).start("srun true\n", "name", log)
    assert (tmp_path / "step-0").read_text() == "srun true\n"
    (tmp_path / "log-0").write_text("one\ntw")
    assert [step.code, *log.lines] == [None, "one"]
    errors = "srun: error: task 0: no such file\nsrun: error: n0: task 0: Exited with exit code 2"
    (tmp_path / "log-0").write_text(f"one\ntwo\n{errors}")
    (tmp_path / "code-0").write_text("2\n")
    assert [step.code, *log.lines[1:2], len(log.lines)] == [2, "two", 4]
    assert step.how == "srun ended with exit code 2: error: task 0: no such file"


def test_a_line_without_an_end_is_cut_where_the_log_cuts_it(programs: Path, tmp_path: Path) -> None:
    """Else a rank that prints for ever fills the launcher's memory. An answer may be longer than what ranks print."""
    play(programs, "scontrol", "echo 'JobId=7 JobState=RUNNING Reason=None NodeList=n0'")
    for number, (log, kept) in enumerate(((Log(), LONGEST_LINE), (Log(LONGEST_ANSWER), 5000))):
        step = SlurmJob("7", tmp_path, steps=number).start("srun true\n", "name", log)
        (tmp_path / f"log-{number}").write_text("x" * 3000)
        assert step.code is None
        (tmp_path / f"log-{number}").write_text("x" * 5000 + "\ny")
        (tmp_path / f"code-{number}").write_text("0\n")
        assert [step.code, *map(len, log.lines)] == [0, kept, 1]


def test_a_job_that_does_not_end_is_cancelled(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By itself it ends when it sees the file; one that does not is cancelled, and so is one at a second Ctrl-C."""
    monkeypatch.setattr("collbench.launch.engines.slurm.job.BY_ITSELF", 0.3)
    state = "[ -e cancelled ] && s=CANCELLED || s=RUNNING; echo JobId=7 JobState=$s Reason=None"
    monkeypatch.chdir(tmp_path)
    play(programs, "scontrol", state)
    play(programs, "scancel", "touch cancelled")
    folder = tmp_path / "job"
    folder.mkdir()
    SlurmJob("7", folder).end()
    assert (tmp_path / "cancelled").exists() and not folder.exists()
    (tmp_path / "cancelled").unlink()
    folder.mkdir()

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    clock = SimpleNamespace(monotonic=time.monotonic, sleep=interrupt)
    monkeypatch.setattr("collbench.launch.engines.slurm.job.time", clock)
    with pytest.raises(KeyboardInterrupt) as interrupted:
        SlurmJob("7", folder).end()
    assert (tmp_path / "cancelled").exists() and "was cancelled" in interrupted.value.__notes__[0]


def test_a_controller_that_restarts_spoils_nothing(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(programs, "scontrol", "echo JobId=7 JobState=RUNNING Reason=None")
    job = SlurmJob("7", tmp_path)
    assert job.look(at_once=True).state == "RUNNING"
    play(programs, "scontrol", "echo 'Unable to contact slurm controller' >&2; exit 1")
    assert job.look(at_once=True).state == "RUNNING"
    monkeypatch.setattr("collbench.launch.engines.slurm.job.SILENT", -1.0)
    with pytest.raises(EngineError, match="Unable to contact slurm controller"):
        job.look(at_once=True)


def test_the_job_performs_steps_and_ends_without_its_driver(tmp_path: Path, programs: Path) -> None:
    """The script itself, under bash."""
    play(programs, "scontrol", "echo n0; echo n1")
    site = read(site_file(tmp_path, folder=str(tmp_path)))
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "driver").write_text("0\n")
    text = texts.job_script("name", folder, site, texts.Resources(2, 1, 1, 0)).replace("-lt 300", "-lt 2")
    (folder / "step-0").write_text('echo "on $FIRST_NODE"; exit 3\n')
    done = subprocess.run(("bash", "-c", text), capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (75, "")
    assert (folder / "log-0").read_text() == "on n0\n" and (folder / "code-0").read_text() == "3\n"
    assert (folder / "nodes").read_text() == "n0\nn1\n"
    (folder / "end").touch()
    assert subprocess.run(("bash", "-c", text), timeout=30, check=False).returncode == 0


# The table [slurm] of a site file -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"runtime": "docker"}, "runtime 'docker': unknown"),
        ({"folder": "work"}, "must be an absolute path"),
        ({"cores": 0}, "cores = 0: must be 1 or more"),
        ({"cores": 2147483648}, "cores = 2147483648: must be 1 or more, and at most"),
        ({"cores": 10**30}, "cores = that: must be 1 or more, and at most"),
        ({"gpus": 2147483648}, "gpus = 2147483648: must be 0 or more, and at most"),
        ({"folder": "/shared/a\n#SBATCH --wrap=true"}, "must be one line"),
        ({"folder": "/shared/a\r"}, "must be one line"),
        ({"options": ["partition=gpu"]}, "is no flag of sbatch"),
        ({"partition": "gpu"}, "[slurm]: unknown key 'partition'. Did you mean options?"),
        ({"enviroments": {}}, "[slurm]: unknown key 'enviroments'. Did you mean environments?"),
        ({"cores": "many"}, '[slurm]: cores: expected a whole number, not the string "many".'),
        ({"options": "--exclusive"}, '[slurm]: options: expected a list such as ["--exclusive"], not the string'),
        ({"images": {"openmpi": 1}}, "[slurm]: images.openmpi: expected a string, not the number 1."),
        ({"servers": {"option": []}}, "[slurm] servers: unknown key 'option'. Did you mean options?"),
        ({"environments": {"openmpi": "~/env"}}, "environments: openmpi '~/env': must be an absolute path"),
        ({"mpi": {"mvapich": "pmi2"}}, "mpi: library 'mvapich': unknown. Did you mean mpich?"),
        ({"libraries": {"mine": "opnmpi"}}, "libraries: library 'opnmpi': unknown. Did you mean openmpi?"),
        ({"variables": {"UCX-TLS": "rc"}}, "variables: 'UCX-TLS' is no name of a variable"),
        ({"variables": {"COLLBENCH_SHAPE": "x"}}, "COLLBENCH_SHAPE is set by collbench itself"),
        ({"options": ["--array=1-3"]}, "option '--array=1-3': collbench sets it itself. Use launches in the plan."),
        ({"options": ["-N2"]}, "Use hosts in the plan."),
        ({"options": ["--nodes=2"]}, "Use hosts in the plan."),
        ({"options": ["--ntasks-per-core=1"]}, "Use ranks in the plan."),
        ({"options": ["--cpus-per-task=4"]}, "Use cores_per_rank in the plan"),
        ({"options": ["--gpus-per-node=4"]}, "Use gpus in the site file."),
        ({"options": ["--output=log"]}, "Use folder in the site file"),
        ({"options": ["--requeue"]}, "Use collbench launch --resume."),
        ({"options": ["--job-name=mine"]}, "Use title in the plan"),
        ({"servers": {"options": ["--time=10"]}}, "Use time in the site file."),
        ({"time": "soon"}, "time 'soon': is none that Slurm reads. Write minutes"),
        ({"time": "1-"}, "is none that Slurm reads"),
        ({"time": "1:2:3:4"}, "is none that Slurm reads"),
    ],
)
def test_a_site_file_that_makes_no_sense(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(PlanError, match=r"^site .*site\.toml") as refused:
        read(site_file(tmp_path, **changes))
    assert says in str(refused.value)


@pytest.mark.parametrize("option", ["--nodelist=n1", "--time-min=1", "--exclusive", "--mem=0", "--gres=gpu:4", "-pgpu"])
def test_options_that_belong_to_a_site(tmp_path: Path, option: str) -> None:
    assert read(site_file(tmp_path, options=[option])).options == (option,)


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
    asked = ["--partition=gpu", "-A x", "--qos=high", "--mail-type=END", "--exclusive", "--cpu-freq=high", "-C skylake",
             "--distribution=cyclic", "--switches=1", "--network=x", "-w n0"]  # fmt: skip
    site = read(site_file(tmp_path, options=asked, servers={"options": ["--constraint=big", "-p cpu"]}))
    assert site.measured == ("--exclusive", "--cpu-freq=high", "-C skylake", "--distribution=cyclic", "--switches=1",
                             "--network=x", "servers --constraint=big")  # fmt: skip


@pytest.mark.parametrize(
    ("time", "seconds"),
    [("90", 5400), ("1:30", 90), ("2:00:00", 7200), ("1-2", 93600), ("1-2:30", 95400), ("1-2:30:5", 95405),
     ("0", None), ("unlimited", None)],
)  # fmt: skip
def test_times_as_slurm_reads_them(tmp_path: Path, time: str, seconds: float | None) -> None:
    assert read(site_file(tmp_path, time=time)).seconds == seconds


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[slrum]\ncores = 1", "unknown table [slrum]. Did you mean slurm?"),
        ("cores = 1\n[slurm]", "cores: stands in no table. Write it below [slurm]."),
        ("[slurm]\ngpus = 1", "[slurm]: lacks cores, folder. docs/cluster.md says what they are."),
    ],
)
def test_a_site_file_whose_tables_make_no_sense(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "site.toml").write_text(text)
    with pytest.raises(PlanError) as refused:
        read(str(tmp_path / "site.toml"))
    assert str(refused.value) == f"site {tmp_path}/site.toml: {says}"


def test_a_site_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="needs a site file"):
        read("")
    with pytest.raises(PlanError, match="No such file"):
        read(str(tmp_path / "none.toml"))
    (tmp_path / "bad.toml").write_text("[slurm")
    with pytest.raises(PlanError, match="not TOML"):
        read(str(tmp_path / "bad.toml"))
    (tmp_path / "bad.toml").write_text("[k8s]")
    with pytest.raises(PlanError, match=r"has no table \[slurm\]"):
        read(str(tmp_path / "bad.toml"))


@pytest.mark.parametrize(
    ("options", "partitions"),
    [([], ()), (["--exclusive"], ()), (["--exclusive", "-p a,b"], ("--partition=a,b",)), (["-p"], ()),
     (["--partition=a", "-pb"], ("--partition=b",)), (["--partition-x=a"], ())],
)  # fmt: skip
def test_the_partitions_that_options_name(tmp_path: Path, options: list[str], partitions: tuple[str, ...]) -> None:
    assert read(site_file(tmp_path, options=options)).partitions == partitions


def test_a_folder_with_spaces_stays_one_word_of_the_job(tmp_path: Path) -> None:
    folder = tmp_path / "a b"
    text = job_script("name", folder, read(site_file(tmp_path, folder=str(folder))), Resources(1, 1, 1, 0))
    (option,) = [line for line in text.splitlines() if "--output" in line]
    assert shlex.split(option, comments=False)[1:] == [f"--output={folder}/job.log"]
