"""Slurm: parameter servers, manifests, and launches that fail."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.unit.test_slurm import PLAN, play, programs, site_file

from collbench.errors import EngineError, LaunchFailed, LaunchLost
from collbench.launch import campaign, launchers
from collbench.launch.engines.fake import contents
from collbench.launch.engines.slurm import SlurmSession, SlurmWorld, look_at
from collbench.launch.engines.slurm import job as jobs
from collbench.launch.engines.slurm import script as texts
from collbench.launch.engines.slurm.job import (
    SlurmJob,
    SlurmStep,
    allocated,
    in_allocation,
    refuse_small,
    wait_for_nodes,
)
from collbench.launch.engines.slurm.script import NodeOutput
from collbench.launch.engines.slurm.site import read
from collbench.launch.engines.spec import Looks, cleaned
from collbench.launch.stacks import Stacks
from collbench.launch.waiting import Log
from collbench.machine import facts
from collbench.schema.manifest import Allocation
from collbench.schema.plan import Plan

__all__ = ["programs"]  # fixtures


#: What srun prints where the time of a job is over, though Slurm has not ended it yet.
TOO_LATE = "srun: error: Unable to create step for job 7: Job/step already completing or completed"


def play_states(programs: Path, *states: str) -> None:
    """A job that is in these states one after the other, and stays in the last."""
    play(
        programs,
        "scontrol",
        f"""cd {programs}; read -r n < asked || n=1; echo $((n + 1)) > asked
state=$(echo {" ".join(states)} | cut -d' ' -f$n); echo JobId=7 JobState=${{state:-{states[-1]}}} Reason=TimeLimit""",
    )


def world_in(folder: Path) -> Any:
    """What is asked of a world that starts nothing: where it writes, and of which library it is."""
    return SimpleNamespace(
        folders=SimpleNamespace(out=folder), stack=SimpleNamespace(launcher=launchers.get("openmpi", "openmpi"))
    )


def end_with(opened: SlurmWorld, *said: str) -> None:
    """As a launch ends whose srun printed this."""
    log = Log()
    for line in said:
        log.add(True, line)
    opened.started.append(SlurmStep(opened.job, 0, "name", log, _code=1))
    opened.died()
    raise LaunchFailed(opened.started[-1].how, log.tail())


@pytest.mark.parametrize(
    ("said", "states", "lost"),
    [
        (TOO_LATE, ("RUNNING", "RUNNING", "COMPLETING", "TIMEOUT"), True),
        ("killed", ("COMPLETING", "TIMEOUT"), True),
        ("killed", ("RUNNING",), False),
    ],
)
def test_a_launch_that_its_job_takes_along_is_lost(
    programs: Path, tmp_path: Path, said: str, states: tuple[str, ...], lost: bool
) -> None:
    """A job is RUNNING for some time beyond its limit, then COMPLETING, and then says how it ended."""
    play_states(programs, *states)
    session = SlurmSession(read(site_file(tmp_path)), lambda: None, job=SlurmJob("7", tmp_path))
    with pytest.raises(LaunchFailed) as failed, session.open(world_in(tmp_path)) as opened:
        end_with(opened, said)
    assert isinstance(failed.value, LaunchLost) == lost and failed.value.log == (said,)
    assert str(failed.value) == ("Slurm job 7 ended: TIMEOUT (TimeLimit)" if lost else "srun ended with exit code 1")
    if lost:
        with pytest.raises(EngineError, match=r"job 7 has ended: TIMEOUT .*Raise time in the site file"):
            session.ready()


def job_of(folder: Path, **changes: Any) -> subprocess.CompletedProcess[str]:
    """The script of a job, under bash, in a folder that is its own."""
    job = folder / "job"
    job.mkdir(exist_ok=True)
    text = texts.job_script(
        "name", job, read(site_file(folder, folder=str(folder), **changes)), texts.Resources(2, 1, 1, 0)
    )
    (job / "job.sh").write_text(text)
    (job / "driver").write_text("0\n")
    (job / "end").touch()
    return subprocess.run(("bash", str(job / "job.sh")), capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.parametrize(
    ("setup", "line"),
    [
        (["true", "module load nosuch", "true"], "module load nosuch"),
        (["if true; then", "  false", "fi"], "  false"),
        (["source {folder}/nosuch.sh"], "source {folder}/nosuch.sh"),
        (["[ -e /nosuch ] && source /nosuch", "nosuch || true", "source {folder}/profile.sh", "cd /"], None),
        (["module() { false; true; }", "module load x"], None),
        (["module() { true; false; }", "module load x"], "module load x"),
    ],
)
def test_a_line_of_setup_that_fails_ends_the_job(
    programs: Path, tmp_path: Path, setup: list[str], line: str | None
) -> None:
    """With the line. Inside of functions and of files that are sourced, only the exit code of the whole counts."""
    play(programs, "scontrol", "echo n0")
    (tmp_path / "profile.sh").write_text("false\ntrue\n")
    done = job_of(tmp_path, setup=[text.replace("{folder}", str(tmp_path)) for text in setup])
    if line is None:
        assert (done.returncode, (tmp_path / "job/nodes").read_text()) == (0, "n0\n"), done.stderr
    else:
        assert done.returncode == 73 and not (tmp_path / "job/nodes").exists()
        assert done.stderr.splitlines()[-1].endswith(" from: " + line.replace("{folder}", str(tmp_path))), done.stderr


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        (
            "sbatch: unrecognized option '--acount=x'\nTry \"sbatch --help\" for more information",
            "unrecognized option '--acount=x'",
        ),
        (
            "sbatch: warning: x\nsbatch: error: invalid partition: gpu\nsbatch: error: Batch job submission failed",
            "invalid partition: gpu; Batch job submission failed",
        ),
        ("", "exit code 1"),
    ],
)
def test_of_what_sbatch_says_the_cause_is_quoted(programs: Path, said: str, cause: str) -> None:
    (programs / "said").write_text(said)
    play(programs, "sbatch", f"cat {programs}/said >&2; exit 1")
    with pytest.raises(EngineError, match=r"^engine slurm: sbatch says: ") as failed:
        jobs.submit("")
    assert str(failed.value).removeprefix("engine slurm: sbatch says: ") == cause


STEP_SIGNAL = "srun: launch/slurm: _step_signal: Terminating StepId=4.1"


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        (["srun: unrecognized option '--container-image=x'", 'Try "srun --help" for more information'],
         "unrecognized option '--container-image=x'"),
        (["srun: error: n0: task 0: Exited with exit code 1", STEP_SIGNAL], ""),
        (["srun: error: n0: task 0: Exited with exit code 127"], "n0: task 0: Exited with exit code 127"),
        (["srun: error: n0: task 0: Killed"], "error: n0: task 0: Killed"),
        ([STEP_SIGNAL, "srun: error: n0: task 0: Terminated", "srun: error: Unable to create step"],
         "error: Unable to create step"),
    ],
)  # fmt: skip
def test_of_what_srun_says_the_cause_is_quoted(lines: list[str], cause: str) -> None:
    assert texts.of_srun(lines) == cause


def test_of_an_image_that_is_missing_the_runtimes_words_are_quoted() -> None:
    missing = "ch-run[99]: error: can't stat: /img/openmpi: No such file or directory"
    lines = [missing, "srun: error: n0: task 0: Exited with exit code 1", STEP_SIGNAL]
    assert texts.telling(lines) == (missing,)


@pytest.mark.parametrize(
    ("reason", "says"),
    [
        ("PartitionNodeLimit", "the partition does not have so many nodes"),
        ("PartitionTimeLimit", "time in the site file is more than the partition allows"),
        ("JobHeldUser", "the job is held"),
        ("JobHeldAdmin", "the job is held"),
        ("AssocMaxNodePerJobLimit", "a job of this account may not have so much"),
        ("QOSMaxWallDurationPerJobLimit", "a job of this account may not have so much"),
    ],
)
def test_a_job_that_will_never_begin_is_not_waited_for(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str, says: str
) -> None:
    monkeypatch.setattr("collbench.launch.engines.slurm.job.ASK", 0.0)
    play(programs, "scontrol", f"echo JobId=7 JobState=PENDING Reason={reason}")
    with pytest.raises(EngineError, match=f"job 7 will not begin: PENDING .{reason}.: {says}"):
        wait_for_nodes(SlurmJob("7", tmp_path), lambda: None)


def test_the_first_reason_of_a_job_that_waits_is_not_believed(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm gives a provisional one in the first moments."""
    monkeypatch.setattr("collbench.launch.engines.slurm.job.ASK", 0.0)
    play(
        programs,
        "scontrol",
        f"""cd {programs}; reason=PartitionTimeLimit
[ -e asked ] || reason=PartitionConfig; touch asked; echo JobId=7 JobState=PENDING Reason=$reason""",
    )
    with pytest.raises(EngineError, match="PartitionTimeLimit") as refused:
        wait_for_nodes(SlurmJob("7", tmp_path), lambda: None)
    assert "PartitionConfig" not in str(refused.value)


@pytest.mark.parametrize("reason", ["Resources", "Priority", "AssocMaxJobsLimit", "ReqNodeNotAvail", "QOSGrpNodeLimit"])
def test_what_slurm_says_of_a_job_that_waits_is_printed_and_again_after_minutes(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], reason: str
) -> None:
    play(programs, "scontrol", f"echo JobId=7 JobState=PENDING Reason={reason}")
    monkeypatch.setattr("collbench.launch.engines.slurm.job.REMIND", 0.25)
    passes = iter(range(5))

    def check() -> None:
        if next(passes, None) is None:
            (tmp_path / "nodes").touch()

    wait_for_nodes(SlurmJob("7", tmp_path), check)
    first, *others = capsys.readouterr().err.splitlines()
    assert first == f"# Slurm job 7: PENDING ({reason})"
    assert set(others) == {f"# Slurm job 7: PENDING ({reason}), after 0 min"}


@pytest.mark.parametrize("reason", ["JobLaunchFailure", "NonZeroExitCode"])
def test_a_job_without_a_log_did_not_find_its_folder(programs: Path, tmp_path: Path, reason: str) -> None:
    play(programs, "scontrol", f"echo JobId=7 JobState=FAILED Reason={reason}")
    with pytest.raises(
        EngineError, match=rf"FAILED \({reason}\) in /\S+\. Is folder in the site file one that every node"
    ):
        wait_for_nodes(SlurmJob("7", tmp_path), lambda: None)


def test_a_job_that_somebody_cancels_before_it_begins_says_nothing_of_folders(programs: Path, tmp_path: Path) -> None:
    play(programs, "scontrol", "echo JobId=7 JobState=CANCELLED Reason=None")
    with pytest.raises(EngineError, match=r"job 7 ended before it began: CANCELLED$"):
        wait_for_nodes(SlurmJob("7", tmp_path), lambda: None)


WRONG_PMI = [
    "srun: error: Invalid MPI type 'nonsense', --mpi=list for acceptable types",
    "collbench: backend mpi: srun started 2 processes, but MPI_COMM_WORLD of Open MPI 5.0.11 has 1.",
    "PMIx: unsupported PMI version PMIx",
]


@pytest.mark.parametrize(
    ("said", "mpi", "advised"),
    [*((said, {"openmpi": "pmi2"}, True) for said in WRONG_PMI), (WRONG_PMI[0], {}, True),
     *((said, {"openmpi": "pmix_v4"}, False) for said in WRONG_PMI[1:])],
)  # fmt: skip
def test_a_wrong_pmi_ends_the_experiment_with_its_first_launch(
    programs: Path, tmp_path: Path, said: str, mpi: dict[str, str], advised: bool
) -> None:
    """No launch can succeed; the one that showed it is measured again. Another PMI is advised where that would help."""
    play_states(programs, "RUNNING")
    session = SlurmSession(read(site_file(tmp_path, mpi=mpi)), lambda: None, job=SlurmJob("7", tmp_path))
    with pytest.raises(LaunchLost), session.open(world_in(tmp_path)) as opened:
        end_with(opened, said)
    with pytest.raises(EngineError, match="no launch can succeed") as refused:
        session.ready()
    assert said.removeprefix("collbench: ").removeprefix("srun: ").rstrip(".") in str(refused.value), (
        "in the library's own words"
    )
    assert ("set mpi in the site file" in str(refused.value)) == advised


#: What srun and the shell of a task print where a program is not there, or may not be executed, on one node.
NOT_STARTED = [
    ("task: 1: exec: /opt/env/bin/python: not found", "srun: error: c02: task 1: Exited with exit code 127"),
    ("task: line 1: /opt/env/bin/python: Permission denied", "srun: error: c02: task 1: Exited with exit code 126"),
]


@pytest.mark.parametrize("said", NOT_STARTED)
def test_a_program_that_a_node_cannot_start_ends_the_experiment_with_its_first_launch(
    programs: Path, tmp_path: Path, said: tuple[str, str]
) -> None:
    play_states(programs, "RUNNING")
    session = SlurmSession(read(site_file(tmp_path)), lambda: None, job=SlurmJob("7", tmp_path))
    with pytest.raises(LaunchLost), session.open(world_in(tmp_path)) as opened:
        end_with(opened, STEP_SIGNAL, *said, "srun: error: c01: task 0: Terminated")
    with pytest.raises(EngineError) as refused:
        session.ready()
    for words in (said[1].removeprefix("srun: error: "), said[0].rpartition("/opt")[2]):
        assert words in str(refused.value)


def test_a_rank_that_ends_so_once_the_ranks_have_met_is_a_failed_launch(programs: Path, tmp_path: Path) -> None:
    play_states(programs, "RUNNING")
    session = SlurmSession(read(site_file(tmp_path)), lambda: None, job=SlurmJob("7", tmp_path))
    (tmp_path / "manifest.json").touch()
    with pytest.raises(LaunchFailed) as failed, session.open(world_in(tmp_path)) as opened:
        end_with(opened, *NOT_STARTED[0])
    assert not isinstance(failed.value, LaunchLost)


def test_a_launch_that_slurm_or_its_folder_fails_is_lost(programs: Path, tmp_path: Path) -> None:
    play_states(programs, "RUNNING")
    session = SlurmSession(read(site_file(tmp_path)), lambda: None, job=SlurmJob("7", tmp_path / "gone"))
    with pytest.raises(LaunchLost, match="gone/step-0: No such file"), session.open(world_in(tmp_path)) as opened:
        opened.job.start("srun true", "name", Log())


def test_a_launch_whose_ranks_have_met_has_the_right_pmi(programs: Path, tmp_path: Path) -> None:
    play_states(programs, "RUNNING")
    session = SlurmSession(read(site_file(tmp_path)), lambda: None, job=SlurmJob("7", tmp_path))
    (tmp_path / "manifest.json").touch()
    with pytest.raises(LaunchFailed) as failed, session.open(world_in(tmp_path)) as opened:
        end_with(opened, WRONG_PMI[0])
    assert not isinstance(failed.value, LaunchLost)
    session.ready()


def test_a_controller_that_is_away_is_named_once_and_so_is_its_return(
    programs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = SlurmJob("7", tmp_path)
    play(programs, "scontrol", "echo 'Unable to contact slurm controller' >&2; exit 1")
    for _ in range(3):
        job.look(at_once=True)
    play_states(programs, "RUNNING")
    for _ in range(3):
        job.look(at_once=True)
    away, back = capsys.readouterr().err.splitlines()
    assert away.startswith("# Slurm does not answer, and is asked again for 5 min.") and "Unable to contact" in away
    assert back == "# Slurm answers again"


def test_a_second_interrupt_while_the_controller_is_away_says_what_is_left(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And waits for nothing: scancel goes on alone."""
    play(programs, "scontrol", "echo 'Unable to contact slurm controller' >&2; exit 1")
    play(programs, "scancel", "sleep 3; exit 1")
    session = SlurmSession(read(site_file(tmp_path)), lambda: None, job=SlurmJob("7", tmp_path / "job"))

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("collbench.launch.engines.slurm.job.cancel", lambda job: False)
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=interrupt)
    monkeypatch.setattr("collbench.launch.engines.slurm.job.time", clock)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt) as interrupted, cleaned(session.close):
        raise EngineError("interrupted")
    (note,) = interrupted.value.__notes__
    assert time.monotonic() - began < 2.0
    assert note.startswith(" Slurm does not answer. Job 7 may be left, and its folder ") and "scancel 7" in note
    with cleaned(session.close):
        """Ended once: nothing is left to do."""


def test_a_job_that_cannot_be_ended_is_named_with_what_is_left(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(programs, "scontrol", "echo 'Unable to contact slurm controller' >&2; exit 1")
    play(programs, "scancel", "exit 1")
    for name in ("GONE", "BY_ITSELF"):
        monkeypatch.setattr(f"collbench.launch.engines.slurm.job.{name}", 0.1)
    with pytest.raises(
        EngineError, match=r"job 7 is still PENDING\. Job 7 may be left, and its folder \S+\. End it: scancel 7"
    ):
        SlurmJob("7", tmp_path).end()


@pytest.mark.parametrize("fails", [True, False])
def test_a_step_that_runs_is_cancelled_when_its_launch_is_over(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """Else it would run beside the next one. It may end by SIGTERM, and is then killed."""
    monkeypatch.setattr(jobs, "GENTLY", 0.3)
    play(programs, "scontrol", "echo JobId=7 JobState=RUNNING Reason=None")
    play(programs, "squeue", "echo 7.4 another; echo 7.5 name")
    killed = f"[ $# = 1 ] && echo 143 > {tmp_path}/code-0"
    play(programs, "scancel", f"echo $* >> {tmp_path}/cancelled; {killed}; true")
    session = SlurmSession(read(site_file(tmp_path)), lambda: None, job=SlurmJob("7", tmp_path))
    with contextlib.suppress(LaunchFailed), session.open(world_in(tmp_path)) as opened:
        opened.started.append(SlurmStep(opened.job, 0, "name", Log()))
        if fails:
            raise LaunchFailed("a rank is lost")
    *gently, last = (tmp_path / "cancelled").read_text().splitlines()
    assert set(gently) == {"--signal=TERM 7.5"} and last == "7.5"
    assert opened.started[0].code == 143


def test_what_drivers_that_died_have_left_is_swept_and_nothing_else(programs: Path, tmp_path: Path) -> None:
    play(programs, "scancel", f"echo $1 >> {tmp_path}/cancelled")
    for name, number, silent in (("dead", "7", 2), ("living", "8", 0.5), ("allocated", "", 2)):
        folder = tmp_path / f"collbench-{name}"
        folder.mkdir()
        (folder / "driver").touch()
        seen = time.time() - silent * texts.ABANDONED
        os.utime(folder / "driver", (seen, seen))
        if number:
            (folder / "number").write_text(number)
    (tmp_path / "mine").mkdir()
    removed, kept = SlurmSession(read(site_file(tmp_path, folder=str(tmp_path))), lambda: None).sweep()
    assert removed == [str(tmp_path / "collbench-allocated"), str(tmp_path / "collbench-dead")]
    assert kept == [str(tmp_path / "collbench-living")]
    assert (tmp_path / "cancelled").read_text() == "7\n"
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["bin", "collbench-living", "mine"]


INSIDE = {"SLURM_JOB_ID": "7", "SLURM_JOB_CPUS_PER_NODE": "4(x2),2"}
NEEDS = texts.Resources(2, 2, 2, 0)


def test_an_allocation_is_used_and_left(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script of the job runs in it; nothing is submitted, and nothing of the allocation is cancelled."""
    show = "[ $2 = hostnames ] && echo n0 || echo 'JobId=7 JobState=RUNNING Partition=all NodeList=n[0-1]'"
    play(programs, "scontrol", f'[ "$1" = show ] || shift; {show}')
    play(programs, "sbatch", f"touch {tmp_path}/submitted")
    play(programs, "scancel", f"touch {tmp_path}/cancelled")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[0-1]")
    given = allocated(INSIDE)
    assert given is not None and (given.job, given.cpus, given.gpus) == ("7", (4, 4, 2), 0)
    refuse_small(NEEDS, given)
    folder = tmp_path / "shared/collbench-x"
    job = in_allocation(texts.job_script("name", folder, read(site_file(tmp_path)), NEEDS), folder, given.job)
    wait_for_nodes(job, lambda: None)
    step = job.start("echo on $FIRST_NODE; exit 3\n", "name", Log())
    while step.code is None:
        time.sleep(0.05)
    assert (step.code, step.log.lines, (folder / "number").exists()) == (3, ("on n0",), False)
    job.end()
    assert job.process is not None and job.process.poll() is not None and job.process.returncode >= 0
    assert not folder.exists() and job.state.state == "ENDED"
    assert not (tmp_path / "submitted").exists() and not (tmp_path / "cancelled").exists()


def test_a_script_that_ends_early_in_an_allocation_ends_the_wait(programs: Path, tmp_path: Path) -> None:
    play(programs, "scontrol", "echo JobId=7 JobState=RUNNING Reason=None")
    job = in_allocation("echo module: not found; exit 73", tmp_path / "job", "7")
    with pytest.raises(EngineError, match=r"exit code 73.*module: not found"):
        wait_for_nodes(job, lambda: None)
    job.end()


def test_a_script_that_hangs_in_an_allocation_is_ended_with_its_steps(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collbench.launch.engines.slurm.job.BY_ITSELF", 0.3)
    play(programs, "scontrol", "echo JobId=7 JobState=RUNNING Reason=None")
    play(programs, "scancel", f"touch {tmp_path}/cancelled")
    job = in_allocation("sleep 1000", tmp_path / "job", "7")
    job.end()
    assert job.process is not None and job.process.returncode == -signal.SIGTERM
    assert not (tmp_path / "cancelled").exists()


@pytest.mark.parametrize(
    ("needs", "changes", "says"),
    [
        (texts.Resources(4, 1, 1, 0), {}, "4 nodes"),
        (texts.Resources(3, 2, 2, 0), {}, "4 cores of each node"),
        (texts.Resources(2, 1, 1, 2), {}, "4 GPUs"),
        (texts.Resources(1, 1, 1, 0, servers=NEEDS), {}, "heterogeneous"),
        (NEEDS, {"SLURM_STEP_ID": "0"}, "task of srun"),
    ],
)
def test_an_allocation_that_is_too_small_is_refused_at_once(
    programs: Path, needs: texts.Resources, changes: dict[str, str], says: str
) -> None:
    play(programs, "scontrol", "echo JobState=RUNNING TRES=cpu=10,node=3,gres/gpu=3,gres/gpu:a100=3")
    with pytest.raises(EngineError, match=says):
        refuse_small(needs, allocated(INSIDE | changes) or pytest.fail("it is there"))
    assert allocated({}) is None
    assert allocated(INSIDE | {"SLURM_STEP_ID": "4294967290"}) is not None, "the shell of salloc"


def test_an_allocation_that_has_ended_is_refused(programs: Path) -> None:
    play(programs, "scontrol", "echo JobState=TIMEOUT")
    with pytest.raises(EngineError, match="SLURM_JOB_ID"):
        allocated(INSIDE)


# What the manifest of a launch on Slurm says of its software, its variables and its allocation ------------------------

#: What scontrol says of the job.
SAID = "JobId=7 Partition=all JobState=RUNNING Reason=None NodeList=n[0-1]"

#: What `setup` of the site, or the image, has set where the probe runs.
FOUND = {"UCX_NET_DEVICES": "eth0", "OMP_NUM_THREADS": "8"}


@pytest.fixture
def answers(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job whose steps answer."""
    play(programs, "scontrol", f"echo '{SAID}'")
    play(programs, "srun", "echo slurm 22.05.8")

    def answer(job: Any, asked: Any, site: Any, argv: tuple[str, ...], *_: Any) -> tuple[NodeOutput, ...]:
        if argv[-1] == "collbench.launch.node":
            return (NodeOutput("n0", (msgspec.json.encode(facts.host()).decode(),)),)
        held = contents("openmpi")
        python = "3.12" if asked.cell.isolation is None else "3.11"
        line = msgspec.json.encode(msgspec.structs.replace(held, python=python, environment=FOUND)).decode()
        return (NodeOutput("n0", (line,)),)

    monkeypatch.setattr("collbench.launch.engines.slurm.answers_of", answer)


class Session(SlurmSession):
    """A cluster whose job is there already."""

    def look(self, plan: Plan, placements: Any, vendors: Any) -> Looks:
        self.job = SlurmJob("7", Path("/nowhere"))
        return look_at(self.job, self.site, plan, placements, self.check)

    def close(self, at_once: bool) -> None:
        """Nothing was submitted."""


def prepared(folder: Path, policies: tuple[str, ...], **site: Any) -> campaign.PreparedCampaign:
    path = site_file(folder, runtime="charliecloud", **site)
    plan = msgspec.structs.replace(PLAN, policies=policies, site=path)
    return campaign.prepare(plan, lambda: None, {"slurm": Session(read(path), lambda: None)})


def looked(folder: Path, policies: tuple[str, ...], **site: Any) -> Stacks:
    return prepared(folder, policies, **site).stacks


@pytest.mark.usefixtures("answers")
def test_what_runs_on_bare_nodes_is_an_environment(tmp_path: Path) -> None:
    host = looked(tmp_path, ("host",))
    assert ([side.python for side in host.environments], host.images, host.differences) == (["3.12"], (), ())
    both = looked(tmp_path, ("host", "multi"))
    assert [[side.python for side in sides] for sides in (both.environments, both.images)] == [["3.12"], ["3.11"]]
    assert both.differences == (
        "openmpi: apart from the container, host and image differ: Python 3.12 on the host, 3.11 in the image",
    )  # fmt: skip


@pytest.mark.usefixtures("answers")
def test_variables_of_the_site_and_of_its_setup_are_recorded(tmp_path: Path) -> None:
    variables = {"UCX_TLS": "rc,sm", "OMPI_MCA_coll_tuned_use_dynamic_rules": "1", "HOME": "/x", "UCX_TOKEN": "secret"}
    reached = {"OMPI_MCA_coll_tuned_use_dynamic_rules": "1", "UCX_NET_DEVICES": "eth0", "UCX_TLS": "rc,sm"}
    both = prepared(tmp_path, ("host", "multi"), variables=variables)
    assert [side.environment for side in (*both.stacks.environments, *both.stacks.images)] == [reached] * 2
    manifest = campaign.campaign_manifest(both, ("collbench",))
    assert manifest.environment == reached
    threads = looked(tmp_path, ("host",), variables={"OMP_NUM_THREADS": "2"})
    assert threads.environment["OMP_NUM_THREADS"] == "2", "else ranks have one, whatever the setup says"


@pytest.mark.usefixtures("answers")
def test_the_allocation_is_recorded(tmp_path: Path) -> None:
    manifest = campaign.campaign_manifest(prepared(tmp_path, ("host",)), ("collbench",))
    assert manifest.experiment is not None
    made = Allocation(job="7", partition="all", nodes="n[0-1]", options=("--exclusive",))
    assert manifest.experiment.allocation == made
    assert json.loads(msgspec.json.encode(manifest))["experiment"]["allocation"]["nodes"] == "n[0-1]"


def test_partitions_of_all_components_are_read(programs: Path) -> None:
    play(
        programs, "scontrol", "echo 'JobState=RUNNING Partition=cpu NodeList=n0'; echo 'JobState=RUNNING Partition=gpu'"
    )
    assert jobs.state_of("1").partition == "cpu,gpu"
