"""What a user sees, byte by byte: commands, doctor, launches, programs, styles, worlds, sensitivity."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import get_args

import click
import numpy as np
import pytest
from tests.runs import read_run
from tests.unit.made_runs import made_case, made_manifest, made_record, spread
from tests.unit.made_suite import CPU, IO, of_one_launch, write_suite

from collbench import yardsticks
from collbench.analysis.compare import by_suite, compare
from collbench.analysis.estimate import Estimate
from collbench.analysis.factors import find_factor
from collbench.analysis.pairs import Pair, within
from collbench.analysis.planning import Cost, Movement, power
from collbench.analysis.results import cells_of
from collbench.analysis.runs import Observed, observe
from collbench.cli import cli
from collbench.cli.prepare import DoctorReport
from collbench.cli.prepare import tables as doctor_tables
from collbench.doctor import BackendHere, Finding, Problem
from collbench.doctor.processors import judge_yardsticks as judge
from collbench.launch import engines, launchers
from collbench.launch.cells import LaunchCell
from collbench.launch.engines.docker.spec import MEMLOCK, SEALED
from collbench.launch.engines.spec import Stack, WorldSpec
from collbench.launch.folders import folders_in
from collbench.launch.placement import place
from collbench.machine import facts
from collbench.machine.facts import Core, Topology
from collbench.report import STYLES, new_style
from collbench.report.cells import SelfTest, launch_tables, power_table, restlessness, selftest_tables
from collbench.report.cells import tables as program_tables
from collbench.report.page.contents import sentences
from collbench.report.tables import LONGEST_LINE, terminal
from collbench.schema.case import case_of
from collbench.schema.plan import Plan
from collbench.schema.record import Record, ResultCheck, Work, summarise
from collbench.schema.store import NoReading
from collbench.yardsticks import Readings

Golden = Callable[[str, str], None]
Collbench = Callable[..., CompletedProcess[str]]


def commands(group: click.Group, above: click.Context) -> Iterator[tuple[str, click.Command, click.Context]]:
    """Each command and those within it, by the words that call it."""
    for name in group.list_commands(above):
        command = group.get_command(above, name)
        assert command is not None
        context = click.Context(command, parent=above, info_name=name)
        yield context.command_path.strip(), command, context
        if isinstance(command, click.Group):
            yield from commands(command, context)


def described(command: click.Command, context: click.Context) -> str:
    """The usage, what the command does, and a line for each flag in the order of --help."""
    lines = [f"  usage: {' '.join(command.collect_usage_pieces(context))}"]
    for option in command.params:
        if not isinstance(option, click.Option):
            continue
        takes = "" if option.is_flag else f" {option.make_metavar(context)}"
        kind = repr(option.type) if isinstance(option.type, click.IntRange | click.FloatRange) else option.type.name
        kind = f"one of {', '.join(option.type.choices)}" if isinstance(option.type, click.Choice) else kind
        alone = () if option.is_flag or not option._flag_needs_value else (f"alone {option.flag_value!r}",)
        several = ("can be repeated",) if option.multiple else ()
        words = (kind, f"default {option.get_default(context)!r}", *alone, *several)
        _, text = option.get_help_record(context) or ("", "not listed")
        lines += [f"  {', '.join(option.opts)}{takes}: {text}", f"      {', '.join(words)}"]
    return "\n".join((*lines, ""))


def test_all_commands_and_flags(golden: Golden) -> None:
    alike: dict[str, list[str]] = {}
    text = ""
    for path, command, context in commands(cli, click.Context(cli)):
        text += f"{path}: {(command.help or '').strip()}\n" + (f"    {command.epilog}\n" if command.epilog else "")
        alike.setdefault(described(command, context), []).append(path)
    text += "".join(f"\n{', '.join(names)}\n{flags}" for flags, names in alike.items())
    golden("commands.txt", text)


# What a user sees of one command with the fake backend, whose times are made up and therefore always the same


def masked(text: str) -> str:
    """Without this machine's name and processor, and without the version."""
    return re.sub(r"# collbench \S+: (.*) ranks on .*", r"# collbench VERSION: \1 ranks on HOST", text)


def test_the_table_of_a_short_sweep(collbench: Collbench, golden: Golden) -> None:
    done = collbench("allreduce", "--backend", "fake", "-b", 8, "-e", 64, "-n", 20)
    assert (done.returncode, done.stderr) == (0, "")
    golden("command-allreduce.txt", masked(done.stdout))


# What doctor prints ---------------------------------------------------------------------------------------------------

CALM: dict[str, float | None] = {"copy": 50.0, "core_distance": 100.0, "core_speed": 950.0}
MPI, TORCH = BackendHere("mpi", ("Open MPI 5.0.11",)), BackendHere("torch-gloo", ("torch (gloo) 2.13.0+cpu",))
OF_GPUS = tuple(BackendHere(name, (), "no NVIDIA driver is loaded", True) for name in ("mpi-cuda", "nccl"))
WITH_GPU = (BackendHere("mpi-cuda", MPI.libraries, None, True), BackendHere("nccl", ("NCCL 2.29.3",), None, True))

GOVERNOR = Finding("powersave on 2 cores", (Problem(
    "warn", "2 cores with governor powersave, not performance", "the clock of a core follows its load",
    "echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
),))  # fmt: skip
SHM = Finding("64.00 MiB, 64.00 MiB free", (Problem(
    "fail", "64.00 MiB free for 8 ranks, which may take 128.00 MiB", "MPICH dies of a bus error; NCCL fails to start",
    "docker run --shm-size=1g ... (in a shared IPC namespace: of the container that owns it)",
),))  # fmt: skip
PRESSURE = Finding("CPU pressure unknown", (Problem(
    "unknown", "/proc/pressure/cpu cannot be read: the kernel does not record CPU pressure",
    "records cannot say whether ranks waited for a CPU while they were timed", "boot with psi=1",
),))  # fmt: skip
FINE = {"cores": Finding("2 of 2 usable (0-1), no quota"), "memory": Finding("22.66 GiB available")}
QUIET = {"yardsticks": Finding("12 readings: core distance 93 to 96 ns", cost=Cost(0.012, 0.05, 6))}
NOISY = {"yardsticks": judge([Readings(CALM | {"core_distance": 100.0 + 9 * number**2}) for number in range(8)])}

SCREENS = {
    "ready": DoctorReport(FINE | QUIET, (MPI, *WITH_GPU, TORCH), 2, alone=True),
    "noisy": DoctorReport(
        {"contention": PRESSURE, "governor": GOVERNOR} | FINE | NOISY, (MPI, *OF_GPUS, TORCH), alone=True
    ),
    "not-ready": DoctorReport({"governor": GOVERNOR, "shm": SHM} | FINE, (*OF_GPUS, TORCH)),
    "many": DoctorReport({f"check{number}": GOVERNOR for number in range(12)} | {"shm": SHM}, (MPI,)),
    "cluster": DoctorReport({"clients": Finding("slurm 23.11.4"), "nodes": PRESSURE}, cluster=("slurm", "site.toml")),
}


@pytest.mark.parametrize("name", SCREENS)
def test_screens(golden: Golden, name: str) -> None:
    text = terminal(doctor_tables(SCREENS[name]))
    assert len(text.splitlines()) <= 25
    assert max(map(len, text.splitlines())) <= LONGEST_LINE
    golden(f"doctor-{name}.txt", text)


def test_everything(golden: Golden) -> None:
    text = terminal(doctor_tables(SCREENS["noisy"], every=True))
    assert max(map(len, text.splitlines())) <= LONGEST_LINE
    golden("doctor-all.txt", text)


def test_yardsticks(golden: Golden) -> None:
    none = dict.fromkeys(yardsticks.YARDSTICKS)
    findings = {
        "calm": judge([Readings({**CALM}), Readings({**CALM})]),
        "restless": judge([Readings({**CALM}), Readings(CALM | {"core_distance": 310.0, "core_speed": 700.0})]),
        **{reason: judge([Readings({**none}, reason)]) for reason in get_args(NoReading)},
    }
    golden("doctor-yardsticks.txt", terminal(doctor_tables(DoctorReport(findings), every=True)))


# The table of a run of many launches, byte by byte, on records that are made up ---------------------------------------

CASE = case_of("allreduce", {"backend": "mpi", "size": 1024,
        "dtype": "float32", "op": "sum", "ranks": 2, "driver": "native", "thread_level": "single",
        "image": "mpich"})  # fmt: skip
REFUSED = "process_vm_readv refused at this step: mpich copies twice"


def record(policy: str, isolation: str | None, launch: int, us: float, *notes: str) -> Record:
    case = CASE.having(policy=policy, isolation=isolation, engine="host" if policy == "host" else "docker")
    work = Work(amount=1024, count=256, bus_factor=1.0)
    seconds = summarise(np.array([round(us * 1000)]))
    return Record(case=case, launch=launch, status="ok", work=work, seconds=seconds, driver="native",
                  check=ResultCheck(wrong=0), transport="ch4 shm", contended=launch == 3, notes=notes)  # fmt: skip


def test_times_transports_remarks_and_reasons(golden: Golden) -> None:
    rows = [record("host", None, n, 10 + n / 10) for n in range(7)]
    rows += [record("multi", "strict", n, 20 + n / 5, REFUSED) for n in range(7)]
    rows += [record("single", "strict", n, 100 + 30 * n) for n in range(5)]
    case = CASE.having(policy="single", isolation="strict", engine="docker")
    rows.append(Record(case=case, launch=5, status="failed", reason="container c1 died"))
    golden("launches.txt", terminal(launch_tables(cells_of(rows))))


def test_of_one_launch_each(golden: Golden) -> None:
    rows = [record("host", None, 0, 10), record("multi", "strict", 0, 20)]
    golden("launches-few.txt", terminal(launch_tables(cells_of(rows))))


# What is printed of programs, byte by byte ----------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path) -> Observed:
    slower = {"dd": 1.06, "fio": 1.09, "dgemm": 0.96}
    share = {"ioping": 0.03, "dd": 0.01, "fio": 0.004}
    return observe(write_suite(tmp_path / "run", slower=slower, share=share))


@pytest.mark.parametrize(("style", "name"), [("table", "programs.txt"), ("csv", "programs.csv")])
def test_records(golden: Golden, style: str, name: str) -> None:
    printer = new_style(style)
    text = printer.begin(made_manifest(ranks=1, libraries=()))
    golden(name, text + "".join(map(printer.add, of_one_launch())) + printer.end())


@pytest.mark.parametrize("style", ["nccl-tests", "osu"])
def test_styles_of_collective_benchmarks_leave_programs_out(style: str) -> None:
    printer = new_style(style)
    text = printer.begin(made_manifest(ranks=1, libraries=()))
    text += "".join(map(printer.add, of_one_launch())) + printer.end()
    assert text.count("not a collective") == len(of_one_launch())


def test_launches(golden: Golden, run: Observed) -> None:
    golden("programs-launches.txt", terminal(launch_tables(run.cells)))


@pytest.mark.parametrize("factor", ["policy", "storage"])
def test_comparisons(golden: Golden, run: Observed, factor: str) -> None:
    compared = compare(within(run, find_factor(factor), frozenset()))
    golden(f"programs-by-{factor}.txt", terminal(program_tables(compared)))


def test_sentences_of_suites(golden: Golden, run: Observed) -> None:
    suites = {made.case.workload: "cpu" for made in CPU} | {made.case.workload: "io" for made in IO}
    lines = [*sentences(by_suite(run, "policy", suites), 0.02), *sentences(by_suite(run, "storage", suites), 0.02)]
    golden("programs-suites.txt", "".join(f"{line}\n" for line in lines))


# What every style prints for the run in `tests/data/run`, byte by byte ------------------------------------------------

NAMES = {
    "table": "table.txt",
    "nccl-tests": "nccl-tests.txt",
    "osu": "osu.txt",
    "csv": "rows.csv",
    "json": "document.json",
    "bencher": "bencher.json",
}


@pytest.mark.parametrize("style", STYLES)
def test_a_style_prints_what_it_printed_before(style: str, printed: Callable[..., str], golden: Golden) -> None:
    golden(NAMES[style], printed(style))


@pytest.mark.parametrize("style", STYLES)
def test_ending_twice_prints_no_table_twice(style: str, stored_run: Path) -> None:
    """The end is also asked for when a run is cut short."""
    run = read_run(stored_run)
    printer = new_style(style)
    printer.begin(run.manifest)
    printer.add(run.records[0])
    printer.end()
    again = printer.end()
    assert again == "" or style in ("json", "bencher")


@pytest.mark.parametrize("style", STYLES)
def test_a_run_without_records_can_be_printed(style: str, stored_run: Path) -> None:
    run = read_run(stored_run)
    printer = new_style(style)
    assert isinstance(printer.begin(run.manifest) + printer.end(), str)
    assert isinstance(new_style(style).end(), str)


# A world as its engine would be told by hand (`launch --dry-run`), byte by byte, on a machine that is made up

MACHINE = Topology(tuple(Core(number) for number in range(4)))
PLAN = Plan(collectives=("allreduce",), images=("openmpi",))


def commands_of(engine: str, world: WorldSpec) -> tuple[str, ...]:
    commands = engines.get(engine).commands
    assert commands is not None
    return commands(world)


@pytest.mark.parametrize(
    ("engine", "policy", "step", "vendor"),
    [
        ("host", "host", None, "openmpi"),
        ("docker", "multi", "strict", "openmpi"),
        ("docker", "single", "net", "openmpi"),
        ("podman", "single", "strict", "mpich"),
        ("docker", "single", "limits", "torch"),
        ("docker", "single", "files", "torch"),
        ("docker", "multi", "files", "openmpi"),
        ("podman", "single", "files", "openmpi"),
        ("fake", "single", "visible", "openmpi"),
    ],
)
def test_a_world_in_commands(
    golden: Golden, monkeypatch: pytest.MonkeyPatch, engine: str, policy: str, step: str | None,
    vendor: str,
) -> None:  # fmt: skip
    engines.get(engine)  # imported by this user: Podman's address is that of the user who imports it
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    monkeypatch.setattr(facts, "container", lambda: None)
    cell = LaunchCell(vendor, policy, step, 2, engine=engine)
    stack = Stack(launchers.get(vendor, vendor), "REFERENCE", grants=frozenset({MEMLOCK, SEALED}))
    world = WorldSpec(
        "cb1", "cb1-0", "boot/1/2", cell, place(MACHINE, cell, PLAN), stack, folders_in(Path("/folder")), (1000, 1000)
    )
    golden(f"world-{engine}-{policy}-{step}.txt", "\n".join(commands_of(engine, world)) + "\n")


def test_root_is_told_to_open_mpi_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the host, where ranks are root's where the driver is; containers have a user of their own."""
    cell = LaunchCell("openmpi", "host", None, 2, engine="host")
    stack = Stack(launchers.get("openmpi", "openmpi"), "/venv")
    placement = place(MACHINE, cell, PLAN)
    for user, told in ((0, True), (1000, False)):
        monkeypatch.setattr(os, "getuid", lambda user=user: user)
        world = WorldSpec("cb1", "cb1-0", "boot/1/2", cell, placement, stack, folders_in(Path("/folder")), (user, user))
        (line,) = commands_of("host", world)
        assert ("OMPI_ALLOW_RUN_AS_ROOT=1" in line) is told
        assert ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1" in line) is told
        assert " HOME=" not in line
        assert "TMPDIR=/folder " in line


# What launches can show, byte by byte ---------------------------------------------------------------------------------


def pair(size: int, width: float) -> Pair:
    """Equal sides of eight launches."""
    cases = [made_case(policy).having(size=size) for policy in ("host", "multi")]
    medians = enumerate(spread(1e-6, 8, width))
    cells = cells_of(made_record(case, launch, median) for launch, median in medians for case in cases)
    return Pair(cells[cases[0]], cells[cases[1]], "base", "other")


@pytest.mark.parametrize("least", [(0.07, 0.15), (0.07, None), (None, None), (0.1, 0.1)], ids=str)
def test_a_self_test(golden: Golden, least: tuple[float | None, float | None]) -> None:
    comparisons = compare([pair(8, 0.01), pair(1024, 0.05)])
    found = SelfTest(tuple(comparisons), 0.047, least, 8, (), Cost(0.05, 0.1, 12))
    golden(
        f"selftest-{'-'.join('none' if one is None else f'{one * 100:.0f}' for one in least)}.txt",
        terminal(selftest_tables(found)),
    )


@pytest.mark.parametrize("in_turns", [True, False])
def test_what_launches_decide(golden: Golden, in_turns: bool) -> None:
    ratios = [Estimate(1.0, (1 / (1 + width), 1 + width), 8) for width in (0.02, 0.1, 0.8)]
    told = [(power(ratios, number, 0.05), number * 12.0) for number in (7, 25, 100)]
    golden(
        f"power-{'duet' if in_turns else 'blocks'}.txt", terminal([power_table(told, "results/mine", 0.05, in_turns)])
    )


def test_a_self_test_says_whether_the_machine_moved(golden: Golden) -> None:
    moved = (Movement("core_distance", 50.0, 67.0, 14), Movement("core_speed", 950.0, 980.0, 14))
    lines = [
        restlessness(moved, Cost(0.021, 0.02, 9)),
        restlessness((), Cost(0.3, 0.05, 297)),
        restlessness(moved, None),
    ]
    golden("yardsticks-selftest.txt", "".join(f"{line}\n" for line in lines))
