"""Slurm: jobs that do not begin or end, launches that fail, allocations, and what manifests say of them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest
from tests.unit.fake_engine import contents
from tests.unit.test_slurm import PLAN, play, play_states, programs, site_file

from collbench.errors import EngineError, LaunchFailed, LaunchLost
from collbench.launch import campaign, launchers
from collbench.launch.engines.slurm import SlurmSession, look_at
from collbench.launch.engines.slurm import job as jobs
from collbench.launch.engines.slurm import script as texts
from collbench.launch.engines.slurm.job import SlurmJob, SlurmStep, allocated, in_allocation
from collbench.launch.engines.slurm.script import NodeOutput, read
from collbench.launch.engines.spec import Looks, cleaned
from collbench.launch.waiting import Log
from collbench.machine import facts
from collbench.schema.manifest import Allocation
from collbench.schema.plan import Plan

__all__ = ["programs"]  # fixtures


#: What Slurm's programs do where the controller is away.
NO_CONTROLLER = "Unable to contact slurm controller"
AWAY = f"echo '{NO_CONTROLLER}' >&2; exit 1"


@dataclass(frozen=True)
class Slurm:
    """Slurm's programs, which are played, a folder for jobs, and constants of collbench that tests change."""

    programs: Path
    folder: Path
    monkeypatch: pytest.MonkeyPatch

    def play(self, name: str, text: str) -> None:
        play(self.programs, name, text)

    def states(self, *states: str) -> None:
        play_states(self.programs, *states)

    def set(self, **values: object) -> None:
        for name, value in values.items():
            self.monkeypatch.setattr(jobs, name, value)

    def interrupt_waits(self) -> None:
        """As a second Ctrl-C."""

        def interrupt(seconds: float) -> None:
            raise KeyboardInterrupt

        self.set(time=SimpleNamespace(monotonic=time.monotonic, sleep=interrupt))

    def session(self, job: Path | None = None, **site: Any) -> SlurmSession:
        """One that has a job."""
        job = job or self.folder
        return SlurmSession(read(site_file(self.folder, **site)), lambda: None, job=SlurmJob("7", job))


@pytest.fixture
def slurm(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    return Slurm(programs, tmp_path, monkeypatch)


def world_in(folder: Path) -> Any:
    """What is asked of a world that starts nothing: where it writes, and of which library it is."""
    launcher = launchers.get("openmpi", "openmpi")
    return SimpleNamespace(folders=SimpleNamespace(out=folder), stack=SimpleNamespace(launcher=launcher))


# Jobs -----------------------------------------------------------------------------------------------------------------


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
def test_a_failing_line_of_setup_ends_the_job(slurm: Slurm, tmp_path: Path, setup: list[str], line: str | None) -> None:
    """With the line. Inside of functions and of files that are sourced, only the exit code of the whole counts."""
    slurm.play("scontrol", "echo n0")
    (tmp_path / "profile.sh").write_text("false\ntrue\n")
    job = tmp_path / "job"
    job.mkdir()
    lines = [text.replace("{folder}", str(tmp_path)) for text in setup]
    site = read(site_file(tmp_path, folder=str(tmp_path), setup=lines))
    (job / "job.sh").write_text(texts.job_script("name", job, site, texts.Resources(2, 1, 1, 0)))
    (job / "driver").write_text("0\n")
    (job / "end").touch()
    done = subprocess.run(("bash", str(job / "job.sh")), capture_output=True, text=True, timeout=30, check=False)
    if line is None:
        assert (done.returncode, (job / "nodes").read_text()) == (0, "n0\n"), done.stderr
    else:
        assert done.returncode == 73 and not (job / "nodes").exists()
        assert done.stderr.splitlines()[-1].endswith(": " + line.replace("{folder}", str(tmp_path))), done.stderr


SBATCH: dict[str, str] = {
    "sbatch: unrecognized option '--acount=x'\nTry \"sbatch --help\" for more information":
        "unrecognized option '--acount=x'",
    "sbatch: warning: x\nsbatch: error: invalid partition: gpu\nsbatch: error: Batch job submission failed":
        "invalid partition: gpu; Batch job submission failed",
    "": "exit code 1",
}  # fmt: skip


@pytest.mark.parametrize(("printed", "cause"), SBATCH.items())
def test_of_what_sbatch_says_the_cause_is_quoted(slurm: Slurm, tmp_path: Path, printed: str, cause: str) -> None:
    (tmp_path / "printed").write_text(printed)
    slurm.play("sbatch", f"cat {tmp_path}/printed >&2; exit 1")
    with pytest.raises(EngineError) as refused:
        jobs.submitted("", tmp_path / "job")
    assert str(refused.value) == f"engine slurm: sbatch says: {cause}"
    assert not (tmp_path / "job").exists()


def test_without_slurm_nothing_is_submitted(slurm: Slurm, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="no sbatch"):
        jobs.submitted("#!/bin/bash\n", tmp_path / "job")


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


#: States of jobs that do not begin, and what they have printed.
NOT_BEGUN: list[tuple[tuple[str, ...], str]] = [
    *(((f"PENDING Reason={reason}",), "") for reason in (
        "PartitionNodeLimit", "PartitionTimeLimit", "JobHeldUser", "JobHeldAdmin", "AssocMaxNodePerJobLimit",
        "QOSMaxWallDurationPerJobLimit",
    )),
    (("PENDING Reason=PartitionConfig", "PENDING Reason=PartitionTimeLimit"), ""),  # the first reason is provisional
    (("FAILED Reason=JobLaunchFailure",), ""), (("FAILED Reason=NonZeroExitCode",), ""),
    (("FAILED Reason=NonZeroExitCode",), "module: command not found\n"), (("CANCELLED Reason=None",), ""),
    (("RUNNING Reason=None",), ""),  # in a folder that nodes do not see
]  # fmt: skip


def test_jobs_that_do_not_begin(golden: Callable[[str, str], None], slurm: Slurm, tmp_path: Path) -> None:
    slurm.set(ASK=0.0, GONE=0.2)
    text = ""
    for states, printed in NOT_BEGUN:
        slurm.states(*states)
        (tmp_path / "job.log").unlink(missing_ok=True)
        if printed:
            (tmp_path / "job.log").write_text(printed)
        with pytest.raises(EngineError) as refused:
            jobs.wait_for_nodes(SlurmJob("7", tmp_path), lambda: None)
        text += f"{', '.join(states)}\n  {refused.value}\n".replace(str(tmp_path), "FOLDER")
    golden("slurm-not-begun.txt", text)


@pytest.mark.parametrize("reason", ["Resources", "Priority", "AssocMaxJobsLimit", "ReqNodeNotAvail", "QOSGrpNodeLimit"])
def test_a_job_that_waits_is_shown_again(slurm: Slurm, capsys: pytest.CaptureFixture[str], reason: str) -> None:
    slurm.states(f"PENDING Reason={reason}")
    slurm.set(REMIND=0.25)
    passes = iter(range(5))

    def check() -> None:
        if next(passes, None) is None:
            (slurm.folder / "nodes").touch()

    jobs.wait_for_nodes(SlurmJob("7", slurm.folder), check)
    first, *others = capsys.readouterr().err.splitlines()
    assert first == f"# Slurm job 7: PENDING ({reason})"
    assert set(others) == {f"{first}, after 0 min"}


def test_a_controller_that_is_away_spoils_nothing(slurm: Slurm, capsys: pytest.CaptureFixture[str]) -> None:
    """It is named once, and so is its return."""
    job = SlurmJob("7", slurm.folder)
    for away in (False, True, False, True):
        slurm.states("RUNNING")
        if away:
            slurm.play("scontrol", AWAY)
        assert [job.look(at_once=True).state for _ in range(3)] == ["RUNNING"] * 3
    lines = capsys.readouterr().err.splitlines()
    assert [NO_CONTROLLER in line for line in lines] == [True, False, True]
    assert "5 min" in lines[0] and lines[1].startswith("# Slurm answers")
    slurm.set(SILENT=-1.0)
    with pytest.raises(EngineError, match=NO_CONTROLLER):
        job.look(at_once=True)


@pytest.mark.parametrize("states", ["JobState=RUNNING", "JobState=NODE_FAIL\nJobId=7 JobState=RUNNING"])
@pytest.mark.parametrize("interrupted", [False, True])
def test_a_job_that_goes_on_is_cancelled(slurm: Slurm, tmp_path: Path, states: str, interrupted: bool) -> None:
    """So is what is left of one that has lost a component; at a second Ctrl-C at once."""
    slurm.set(BY_ITSELF=0.3)
    cancelled, folder = tmp_path / "cancelled", tmp_path / "job"
    slurm.play("scontrol", f"[ -e {cancelled} ] && echo JobState=CANCELLED || echo '{states}'")
    slurm.play("scancel", f"touch {cancelled}")
    folder.mkdir()
    if interrupted:
        slurm.interrupt_waits()
        with pytest.raises(KeyboardInterrupt) as ended:
            SlurmJob("7", folder).end()
        assert "was cancelled" in ended.value.__notes__[0] and str(folder) in ended.value.__notes__[0]
    else:
        SlurmJob("7", folder).end()
        assert not folder.exists()
    assert cancelled.exists()


def test_a_second_interrupt_while_the_controller_is_away_says_what_is_left(slurm: Slurm, tmp_path: Path) -> None:
    """And waits for nothing: scancel goes on alone."""
    slurm.play("scontrol", AWAY)
    slurm.play("scancel", "sleep 3; exit 1")
    session = slurm.session(tmp_path / "job")
    slurm.set(cancel=lambda job: False)
    slurm.interrupt_waits()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt) as interrupted, cleaned(session.close):
        raise EngineError("interrupted")
    (note,) = interrupted.value.__notes__
    assert time.monotonic() - began < 2.0
    assert "scancel 7" in note and str(tmp_path / "job") in note
    with cleaned(session.close):
        """Ended once: nothing is left to do."""


def test_a_job_that_cannot_be_ended_is_named_with_what_is_left(slurm: Slurm, tmp_path: Path) -> None:
    slurm.play("scontrol", AWAY)
    slurm.play("scancel", "exit 1")
    slurm.set(GONE=0.1, BY_ITSELF=0.1)
    with pytest.raises(EngineError, match=r"job 7 is still PENDING\..* scancel 7") as left:
        SlurmJob("7", tmp_path).end()
    assert str(tmp_path) in str(left.value)


@pytest.mark.parametrize("fails", [True, False])
def test_a_step_that_runs_is_cancelled_when_its_launch_is_over(slurm: Slurm, tmp_path: Path, fails: bool) -> None:
    """Else it would run beside the next one. It may end by SIGTERM, and is then killed."""
    slurm.set(GENTLY=0.3)
    slurm.states("RUNNING")
    slurm.play("squeue", "echo 7.4 another; echo 7.5 name")
    killed = f"[ $# = 1 ] && echo 143 > {tmp_path}/code-0"
    slurm.play("scancel", f"echo $* >> {tmp_path}/cancelled; {killed}; true")
    with contextlib.suppress(LaunchFailed), slurm.session().open(world_in(tmp_path)) as opened:
        opened.started.append(SlurmStep(opened.job, 0, "name", Log()))
        if fails:
            raise LaunchFailed("a rank is lost")
    *gently, last = (tmp_path / "cancelled").read_text().splitlines()
    assert set(gently) == {"--signal=TERM 7.5"} and last == "7.5"
    assert opened.started[0].code == 143


def test_what_drivers_that_died_have_left_is_swept_and_nothing_else(slurm: Slurm, tmp_path: Path) -> None:
    slurm.play("scancel", f"echo $1 >> {tmp_path}/cancelled")
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


# Launches -------------------------------------------------------------------------------------------------------------


def failed_launch(session: SlurmSession, out: Path, *printed: str) -> LaunchFailed:
    """How a launch ends whose srun printed this."""
    log = Log()
    for line in printed:
        log.add(True, line)
    try:
        with session.open(world_in(out)) as opened:
            opened.started.append(SlurmStep(opened.job, 0, "name", log, _code=1))
            opened.died()
            raise LaunchFailed(opened.started[-1].how, log.tail())
    except LaunchFailed as failed:
        return failed
    raise AssertionError("the launch has not failed")


#: What srun prints where the time of a job is over, though Slurm has not ended it yet.
TOO_LATE = "srun: error: Unable to create step for job 7: Job/step already completing or completed"

#: What is printed where srun and a library do not have the same PMI; the words after the program are quoted.
WRONG_PMI = (
    ("srun: ", "error: Invalid MPI type 'nonsense', --mpi=list for acceptable types"),
    ("collbench: ", "backend mpi: srun started 2 processes, but MPI_COMM_WORLD of Open MPI 5.0.11 has 1"),
    ("", "PMIx: unsupported PMI version PMIx"),
)

#: What the shell of a task prints where a program is not there, or may not be executed, and with which exit code.
NOT_STARTED = (("task: 1: exec: ", "/opt/env/bin/python: not found", 127),
               ("task: line 1: ", "/opt/env/bin/python: Permission denied", 126))  # fmt: skip


@pytest.mark.parametrize(
    ("printed", "states"),
    [(TOO_LATE, ("RUNNING", "RUNNING", "COMPLETING", "TIMEOUT")), ("killed", ("COMPLETING", "TIMEOUT"))],
)
def test_a_launch_that_its_job_takes_along_is_lost(slurm: Slurm, printed: str, states: tuple[str, ...]) -> None:
    """A job is RUNNING for some time beyond its limit, then COMPLETING, and then says how it ended."""
    slurm.states(*(f"{state} Reason=TimeLimit" for state in states))
    session = slurm.session()
    lost = failed_launch(session, slurm.folder, printed)
    assert isinstance(lost, LaunchLost) and str(lost).endswith("job 7 ended: TIMEOUT (TimeLimit)")
    assert lost.log == (printed,)
    with pytest.raises(EngineError, match=r"job 7 .*: TIMEOUT .*time in the site file \(2:00:00\)"):
        session.ready()


@pytest.mark.parametrize(
    ("printed", "met"),
    [
        (("killed",), False),
        (("".join(WRONG_PMI[0]),), True),
        (("task: 1: exec: python: not found", "srun: error: c02: task 1: Exited with exit code 127"), True),
    ],
)
def test_a_launch_that_fails_by_itself(slurm: Slurm, tmp_path: Path, printed: tuple[str, ...], met: bool) -> None:
    slurm.states("RUNNING")
    if met:
        (tmp_path / "manifest.json").touch()
    session = slurm.session()
    failed = failed_launch(session, tmp_path, *printed)
    assert type(failed) is LaunchFailed and "exit code 1" in str(failed) and failed.log == printed
    session.ready()


@pytest.mark.parametrize(
    ("mpi", "printed", "quoted", "advised"),
    [
        *(({"openmpi": "pmi2"}, (program + why,), (why,), True) for program, why in WRONG_PMI),
        *(({"openmpi": "pmix_v4"}, (program + why,), (why,), "MPI type" in why) for program, why in WRONG_PMI),
        *(({}, (STEP_SIGNAL, shell + why, f"srun: error: c02: task 1: Exited with exit code {code}",
                "srun: error: c01: task 0: Terminated"), (why, f"c02: task 1: Exited with exit code {code}"), False)
          for shell, why, code in NOT_STARTED),
    ],
)  # fmt: skip
def test_what_no_launch_can_do_without_ends_the_experiment_with_its_first(
    slurm: Slurm, mpi: dict[str, str], printed: tuple[str, ...], quoted: tuple[str, ...], advised: bool
) -> None:
    """The PMI of the library, and the program on every node; that launch is measured again.

    Another PMI is advised where that would help.
    """
    slurm.states("RUNNING")
    session = slurm.session(mpi=mpi)
    assert isinstance(failed_launch(session, slurm.folder, *printed), LaunchLost)
    with pytest.raises(EngineError) as refused:
        session.ready()
    assert all(words in str(refused.value) for words in quoted), "in the library's own words"
    assert ("set mpi" in str(refused.value)) == advised


def test_a_launch_that_slurm_or_its_folder_fails_is_lost(slurm: Slurm, tmp_path: Path) -> None:
    slurm.states("RUNNING")
    session = slurm.session(tmp_path / "gone")
    with pytest.raises(LaunchLost, match="gone/step-0: "), session.open(world_in(tmp_path)) as opened:
        opened.job.start("srun true", "name", Log())

    silent: Any = Mock(end=Mock(side_effect=EngineError("squeue does not answer")))
    with pytest.raises(LaunchLost, match="does not answer"), slurm.session().open(world_in(tmp_path)) as opened:
        opened.started.append(silent)


# Within an allocation -------------------------------------------------------------------------------------------------

INSIDE = {"SLURM_JOB_ID": "7", "SLURM_JOB_CPUS_PER_NODE": "4(x2),2"}
NEEDS = texts.Resources(2, 2, 2, 0)


def test_an_allocation_is_used_and_left(slurm: Slurm, tmp_path: Path) -> None:
    """The script of the job runs in it; nothing is submitted, and nothing of the allocation is cancelled."""
    show = "[ $2 = hostnames ] && echo n0 || echo 'JobId=7 JobState=RUNNING Partition=all NodeList=n[0-1]'"
    slurm.play("scontrol", f'[ "$1" = show ] || shift; {show}')
    slurm.play("sbatch", f"touch {tmp_path}/submitted")
    slurm.play("scancel", f"touch {tmp_path}/cancelled")
    slurm.monkeypatch.setenv("SLURM_JOB_NODELIST", "n[0-1]")
    allocation = allocated(INSIDE)
    assert allocation is not None and (allocation.job, allocation.cpus, allocation.gpus) == ("7", (4, 4, 2), 0)
    jobs.refuse_small(NEEDS, allocation)
    folder = tmp_path / "shared/collbench-x"
    job = in_allocation(texts.job_script("name", folder, read(site_file(tmp_path)), NEEDS), folder, allocation.job)
    jobs.wait_for_nodes(job, lambda: None)
    step = job.start("echo on $FIRST_NODE; exit 3\n", "name", Log())
    while step.code is None:
        time.sleep(0.05)
    assert (step.code, step.log.lines, (folder / "number").exists()) == (3, ("on n0",), False)
    job.end()
    assert job.process is not None and job.process.poll() is not None and job.process.returncode >= 0
    assert not folder.exists() and job.state.state == "ENDED"
    assert not (tmp_path / "submitted").exists() and not (tmp_path / "cancelled").exists()


def test_a_script_that_ends_early_in_an_allocation_ends_the_wait(slurm: Slurm, tmp_path: Path) -> None:
    slurm.states("RUNNING")
    job = in_allocation("echo module: not found; exit 73", tmp_path / "job", "7")
    with pytest.raises(EngineError, match=r"exit code 73.*module: not found"):
        jobs.wait_for_nodes(job, lambda: None)
    job.end()


def test_a_script_that_hangs_in_an_allocation_is_ended_with_its_steps(slurm: Slurm, tmp_path: Path) -> None:
    slurm.set(BY_ITSELF=0.3)
    slurm.states("RUNNING")
    slurm.play("scancel", f"touch {tmp_path}/cancelled")
    job = in_allocation("sleep 1000", tmp_path / "job", "7")
    job.end()
    assert job.process is not None and job.process.returncode == -signal.SIGTERM
    assert not (tmp_path / "cancelled").exists()


@pytest.mark.parametrize(
    ("needs", "changes", "word"),
    [
        (texts.Resources(4, 1, 1, 0), {}, "4 nodes"),
        (texts.Resources(3, 2, 2, 0), {}, "4 cores"),
        (texts.Resources(2, 1, 1, 2), {}, "4 GPUs"),
        (texts.Resources(1, 1, 1, 0, servers=NEEDS), {}, "heterogeneous"),
        (NEEDS, {"SLURM_STEP_ID": "0"}, "srun"),
    ],
)
def test_a_small_allocation_is_refused(
    slurm: Slurm, needs: texts.Resources, changes: dict[str, str], word: str
) -> None:
    slurm.states("RUNNING TRES=cpu=10,node=3,gres/gpu=3,gres/gpu:a100=3")
    with pytest.raises(EngineError, match=word):
        jobs.refuse_small(needs, allocated(INSIDE | changes) or pytest.fail("it is there"))


def test_what_is_no_allocation_and_what_is_one_no_more(slurm: Slurm) -> None:
    slurm.states("RUNNING", "TIMEOUT")
    assert allocated({}) is None
    assert allocated(INSIDE | {"SLURM_STEP_ID": "4294967290"}) is not None, "the shell of salloc"
    with pytest.raises(EngineError, match="SLURM_JOB_ID"):
        allocated(INSIDE)


# What the manifest of a launch on Slurm says of its software, its variables and its allocation ------------------------


def answer(job: Any, step: Any, site: Any, argv: tuple[str, ...], *_: Any) -> tuple[NodeOutput, ...]:
    """Of a node; `setup` of the site, or the image, has set variables where the probe runs."""
    if argv[-1] == "collbench.machine.facts":
        return (NodeOutput("n0", (msgspec.json.encode(facts.host()).decode(),)),)
    python, variables = "3.12" if step.cell.isolation is None else "3.11", {"UCX_NET_DEVICES": "eth0"}
    held = msgspec.structs.replace(contents("openmpi"), python=python, environment=variables | {"OMP_NUM_THREADS": "8"})
    return (NodeOutput("n0", (msgspec.json.encode(held).decode(),)),)


class Session(SlurmSession):
    """A cluster whose job is there already."""

    def look(self, plan: Plan, placements: Any, vendors: Any) -> Looks:
        self.job = SlurmJob("7", Path("/nowhere"))
        return look_at(self.job, self.site, plan, placements, self.check)

    def close(self, at_once: bool) -> None:
        """Nothing was submitted."""


def prepared(folder: Path, *policies: str, **variables: str) -> campaign.PreparedCampaign:
    path = site_file(folder, runtime="charliecloud", variables=variables)
    plan = msgspec.structs.replace(PLAN, policies=policies, site=path)
    return campaign.prepare(plan, lambda: None, {"slurm": Session(read(path), lambda: None)})


def test_software_variables_and_the_allocation_are_recorded(slurm: Slurm) -> None:
    """What runs on bare nodes is an environment; variables are those of the site and of its setup."""
    slurm.states("RUNNING Partition=all Reason=None NodeList=n[0-1]")
    slurm.play("srun", "echo slurm 22.05.8")
    slurm.monkeypatch.setattr("collbench.launch.engines.slurm.answers_of", answer)
    variables = {"UCX_TLS": "rc,sm", "OMPI_MCA_coll_tuned_use_dynamic_rules": "1", "HOME": "/x", "UCX_TOKEN": "secret"}
    both = prepared(slurm.folder, "host", "multi", **variables)
    stacks, manifest = both.stacks, campaign.campaign_manifest(both, ("collbench",))
    assert [[side.python for side in sides] for sides in (stacks.environments, stacks.images)] == [["3.12"], ["3.11"]]
    (difference,) = stacks.differences
    assert difference.startswith("openmpi: ") and difference.index("3.12") < difference.index("3.11")
    reached = {"OMPI_MCA_coll_tuned_use_dynamic_rules": "1", "UCX_NET_DEVICES": "eth0", "UCX_TLS": "rc,sm"}
    assert [side.environment for side in (*stacks.environments, *stacks.images)] == [reached] * 2
    recorded = Allocation(job="7", partition="all", nodes="n[0-1]", options=("--exclusive",))
    assert manifest.environment == reached
    assert manifest.experiment is not None and manifest.experiment.allocation == recorded
    host = prepared(slurm.folder, "host", OMP_NUM_THREADS="2").stacks
    assert ([side.python for side in host.environments], host.images, host.differences) == (["3.12"], (), ())
    assert host.environment["OMP_NUM_THREADS"] == "2", "else ranks have one, whatever the setup says"
