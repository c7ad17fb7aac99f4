"""The command line as a user meets it: help, completion, and requests that cannot be carried out."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner
from tests.processes import LIMIT
from tests.unit.conftest import Answer
from tests.unit.conftest import Collbench as Here

import collbench as package
from collbench import collectives
from collbench.cli import COMMANDS, LazyGroup, cli
from collbench.cli.measure import TerminalSink

Collbench = Callable[..., CompletedProcess[str]]

ALL = [*(name for name, _, _ in COMMANDS), *collectives.names()]


def test_the_program_lists_its_commands_and_collectives(collbench: Collbench) -> None:
    done = collbench("--help")
    assert (done.returncode, done.stderr) == (0, "")
    for name in ALL:
        assert re.search(rf"\b{name}\b", done.stdout), name
    for code in ("0 all good", "130 interrupted"):
        assert code in " ".join(done.stdout.split())


@pytest.mark.parametrize("name", ["run", "show", "list", "doctor", "demo", "completion", "allreduce", "ps_gather"])
def test_a_command_explains_itself(collbench: Collbench, name: str) -> None:
    done = collbench(name, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"Usage: collbench {name} " in done.stdout


@pytest.mark.parametrize("name", ALL)
def test_every_flag_of_every_command_has_a_text(name: str) -> None:
    import click

    assert isinstance(cli, LazyGroup)
    context = click.Context(cli)
    command = cli.get_command(context, name)
    assert command is not None
    assert command.name == name
    assert (command.help or "").strip()
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert (parameter.help or "").rstrip().endswith((".", "]")), parameter.name
    assert command.get_help(click.Context(command, info_name=name, parent=context))


def test_collectives_take_the_flags_of_nccl_tests(collbench: Collbench) -> None:
    shown = collbench("allreduce", "--help").stdout
    flags = (
        "-b, --minbytes", "-e, --maxbytes", "-f, --stepfactor", "-i, --stepbytes", "-n, --iters", "-w, --warmup_iters",
        "-c, --check", "-o, --op", "-d, --datatype", "-r, --root", "-z, --blocking", "-G, --cudagraph",
        "-J, --output_file", "-T, --timeout", "--backend", "--driver", "--thread-level", "--device", "--gate",
        "--in-place", "--cadence", "--budget", "--style", "--out",
    )  # fmt: skip
    for flag in flags:
        assert re.search(rf"^  (-\w, )?{flag}\b", shown, re.MULTILINE), flag


def test_the_version(collbench: Collbench) -> None:
    done = collbench("--version")
    assert (done.returncode, done.stdout) == (0, f"collbench, version {package.__version__}\n")


@pytest.mark.slow
def test_list_says_what_is_here(collbench: Collbench) -> None:
    done = collbench("list")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"^  yes fake ", done.stdout, re.MULTILINE)
    assert re.search(r"^  yes python ", done.stdout, re.MULTILINE)
    for name in collectives.names():
        assert re.search(rf"^ +{name} ", done.stdout, re.MULTILINE), name


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(collbench: Collbench, shell: str) -> None:
    done = collbench("completion", shell)
    assert done.returncode == 0
    assert "_COLLBENCH_COMPLETE" in done.stdout


@pytest.mark.slow
def test_demo_works_without_mpi_and_says_that_it_is_simulated(collbench: Collbench, tmp_path: Path) -> None:
    done = collbench("demo", "--style", "csv", "--out", tmp_path / "run")
    assert done.returncode == 0
    assert "simulated" in done.stderr
    assert all(line.startswith("ok,,allreduce,,sum,float32,") for line in done.stdout.splitlines()[1:])
    assert len(done.stdout.splitlines()) == 1 + len((tmp_path / "run" / "records.jsonl").read_bytes().splitlines())


@pytest.mark.slow
def test_columns_of_lists_are_as_wide_as_their_longest_name(collbench: Collbench) -> None:
    plans = re.findall(r"^(collbench \w+ [-\w]+ +)\S", collbench("plan").stdout, re.MULTILINE)
    listed = re.split(r"^(?=\w)", collbench("list").stdout, flags=re.MULTILINE)
    (benchmarks,) = (part for part in listed if part.startswith("benchmarks"))
    names = re.findall(r"^  (?:yes|no ) (\w+ +)\S", benchmarks, re.MULTILINE)
    assert len(plans) > 10 and len(names) > 10
    assert len(set(map(len, plans))) == len(set(map(len, names))) == 1


def test_help_comes_before_slow_imports(bare_environment: dict[str, str]) -> None:
    """Before a command is chosen, no library is loaded but click."""
    asks = "import sys, collbench.cli; print(*{'msgspec', 'numpy', 'scipy', 'tqdm'} & sys.modules.keys())"
    done = subprocess.run(
        [sys.executable, "-c", asks], env=bare_environment, capture_output=True, text=True, timeout=LIMIT, check=True
    )
    assert done.stdout.split() == []


def test_help_is_a_command_too(collbench: Collbench) -> None:
    for words in ([], ["compare"], ["image", "build"]):
        assert collbench("help", *words).stdout == collbench(*words, "--help").stdout
    assert collbench("help", "nothing").returncode == 2


#: collbench, and a signal when a module is first imported.
INTERRUPTED = """\
import builtins, os, runpy, sys

module, number = sys.argv.pop(1), int(sys.argv.pop(1))

def watched(name, *arguments, whole=builtins.__import__, **more):
    if name == module:
        builtins.__import__ = whole
        os.kill(os.getpid(), number)
    return whole(name, *arguments, **more)

builtins.__import__ = watched
runpy.run_module("collbench", run_name="__main__")
"""


@pytest.mark.parametrize("module", ["click", "collbench.machine"])
def test_ctrl_c_during_imports_says_nothing(module: str, bare_environment: dict[str, str]) -> None:
    done = interrupted(bare_environment, module, signal.SIGINT, "list")
    assert done.returncode == 130
    assert "Traceback" not in done.stderr


def interrupted(
    environment: dict[str, str], module: str, number: signal.Signals, *words: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", INTERRUPTED, module, str(int(number)), *words],
        env=environment, capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize(
    ("command", "module"),
    [("gate", "click"), ("gate", "collbench.cli.launch"),
     ("launch", "collbench.cli.plan"), ("selftest", "collbench.analysis.planning")],
)  # fmt: skip
def test_an_experiment_ends_with_a_line_before_it_asks_an_engine(
    command: str, module: str, number: signal.Signals, bare_environment: dict[str, str]
) -> None:
    done = interrupted(bare_environment, module, number, command, *(["nothing"] if command != "selftest" else []))
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "collbench: interrupted.\n")


PLAN = 'collectives = ["bcast"]\nsizes = ["8"]\nimages = ["a"]\nengine = "fake"\npolicies = ["single"]\n'


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "first"),
    [
        ("compare RUN --by policy", "reading RUN"),
        ("advise RUN", "reading RUN"),
        ("model RUN", "reading RUN"),
        ("report RUN -o TMP/report.md", "reading RUN"),
        ("history TMP", "reading the runs in TMP"),
        ("launch TMP/plan.toml --out TMP/run", "environments: a "),
        ("launch TMP/plan.toml --dry-run", "environments: a "),
    ],
)
def test_a_terminal_shows_at_once_what_is_waited_for(
    here: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: str, first: str
) -> None:
    (tmp_path / "plan.toml").write_text(PLAN, encoding="utf-8")
    run = str(Path(__file__).parents[2] / "results/xu2017-cpu-io")
    words, first = (text.replace("RUN", run).replace("TMP", str(tmp_path)) for text in (words, first))
    quiet = here(*words.replace("/run", "/run-before").split())
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    shown = here(*words.split())
    assert quiet.code == shown.code
    assert first[:60] in shown.err.partition("\r\x1b[K")[0]
    assert first[:60] not in quiet.err


# A request that cannot be carried out ---------------------------------------------------------------------------------

FAKE = ("allreduce", "--backend", "fake")


def message_of(done: CompletedProcess[str]) -> str:
    """The one line that says what is wrong; click puts a line of usage before its own."""
    said = [line for line in done.stderr.splitlines() if line.startswith(("collbench: ", "Error: "))]
    rest = [line for line in done.stderr.splitlines() if line not in said]
    assert len(said) == 1, done.stderr
    assert all(line.startswith(("Usage:", "Try ")) or not line for line in rest), done.stderr
    return said[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["allreduse"], r"'allreduse' is neither a collective nor a command. Did you mean allreduce\?"),
        (["xyzzy"], "There are: run, .*, allgather, allreduce, .*, sendrecv"),
        ([*FAKE, "--bakend", "mpi"], r"No such option '?--bakend'?.*Did you mean '?--backend"),
        ([*FAKE, "extra"], "unexpected extra argument"),
        ([*FAKE, "-b", "8Q"], "size '8Q': not a number of bytes. Write 8, 64K, 1M or 1G"),
        ([*FAKE, "-e", "-1"], "size '-1'"),
        ([*FAKE, "-b", "1.3"], "size '1.3': not a whole number of bytes"),
        ([*FAKE, "--cap", "5"], "cap 5: is below floor 20; lower the floor too"),
        ([*FAKE, "--budget", "inf"], "budget 'inf': not a duration"),
        ([*FAKE, "-T", "nan"], "timeout 'nan': not a duration"),
        ([*FAKE, "-b", "64", "-e", "8"], "min 64 is above max 8. Swap them"),
        ([*FAKE, "-f", "1"], "factor 1 never reaches max. Use 2 or more"),
        ([*FAKE, "-i", "0"], "step must be at least 1 byte"),
        ([*FAKE, "-b", "0", "-e", "1T", "-i", "1"], "more than 10000 sizes"),
        ([*FAKE, "-i", "8", "-f", "2"], "-i/--stepbytes and -f/--stepfactor: use one of them"),
        ([*FAKE, "-n", "0"], "iters 0: must be at least 1"),
        ([*FAKE, "-n", "many"], "'many' is not a valid integer"),
        ([*FAKE, "-w", "-1"], "warmup -1: must be at least 0"),
        ([*FAKE, "-d", "float33"], r"dtype 'float33': unknown. Did you mean float32\?"),
        ([*FAKE, "-o", "xor"], "op 'xor': unknown. There are: sum, prod, min, max, avg, all"),
        (["bcast", "--backend", "fake", "-r", "4"], "root 4: there are 4 ranks, 0 to 3"),
        (["bcast", "--backend", "fake", "-r", "-1"], "root -1: there are 4 ranks, 0 to 3"),
        (["allreduce", "--backend", "fakee"], r"backend 'fakee': unknown. Did you mean fake\?"),
        (["allreduce", "--backend", "zzz"], "backend 'zzz': unknown. There are: fake, mpi, .*torch-gloo"),
        ([*FAKE, "--driver", "rust"], "'rust' is not one of 'native', 'python'"),
        ([*FAKE, "--style", "tabel"], "'tabel' is not one of 'table', 'nccl-tests', 'osu', 'csv', 'json'"),
        ([*FAKE, "--gate", "door"], "'door' is not one of 'auto', 'roundtime', 'barrier', 'none'"),
        ([*FAKE, "--budget", "soon"], "'soon': not a duration. Write 0.5s, 200ms or 2m"),
        ([*FAKE, "--budget", "0s"], "longer than 0 s"),
        ([*FAKE, "-T", "x"], "'x': not a duration"),
        ([*FAKE, "--floor", "0"], "floor 0: must be at least 1"),
        ([*FAKE, "--device", "gpu"], "--device gpu: fake has its data on the host .* There are: .*mpi-staged, nccl"),
        (
            ["allreduce", "--backend", "nccl", "--device", "cpu"],
            r"nccl has its data on the GPU .* There are: fake, mpi,",
        ),
        ([*FAKE, "-G", "1"], r"cudagraph 1: fake has no CUDA graphs; use nccl"),
        ([*FAKE, "-G", "-1"], "cudagraph -1: must be at least 0"),
        ([*FAKE, "-G", "2"], "cudagraph 2: .* not isolated; use 1, or cadence streaming"),
        ([*FAKE, "-R", "2"], "'2' is not one of '0', '1'"),
        ([*FAKE, "--burst", "0"], "burst 0: must be at least 1"),
        ([*FAKE, "--burst", "1001"], "burst 1001: at most 1000"),
        ([*FAKE, "--staging", "mapped"], "'mapped' is not one of 'pageable', 'pinned', 'both'"),
        ([*FAKE, "-z", "0"], "cadence streaming: fake completes .* use cadence isolated, or nccl"),
        ([*FAKE, "-z", "1", "--cadence", "streaming"], "contradict each other"),
        ([*FAKE, "--ranks", "0"], "--ranks 0: the fake backend runs 1 to 256 ranks"),
        ([*FAKE, "--fault", "explode"], "write corrupt:RANK, raise:RANK or hang:RANK"),
        ([*FAKE, "--fault", "corrupt:4", "-n", "3", "-e", "8"], "there are 4 ranks, 0 to 3"),
        (["run", "none.toml"], "plan none.toml: no such file, and no plan of this name"),
        (["completion"], r"^collbench: completion: choose one of bash, zsh, fish\.$"),
        ([*FAKE, "--floor", "20000"], r"floor 20000: is above the usual cap of 10000; raise cap too\.$"),
        ([*FAKE, "-e", "4"], r"-e 4: is below -b, which is 8 by default; give -b too\.$"),
        ([*FAKE, "-b", "9" * 24], f"size '{'9' * 24}': larger than any memory"),
        ([*FAKE, "-b", f"{'9' * 39}.{'0' * 9}"], f"size '{'9' * 39}\\.\\.\\.\\.': larger than any memory"),
        (["completion", "tcsh"], "'tcsh' is not one of 'bash', 'zsh', 'fish'"),
    ],
)
def test_exit_code_2_and_one_message(collbench: Collbench, arguments: list[str], message: str) -> None:
    done = collbench(*arguments)
    assert done.returncode == 2
    assert re.search(message, message_of(done)), done.stderr
    assert not re.search(r"^[^#]", done.stdout, re.MULTILINE), "numbers were printed"


def test_nothing_measured_because_everything_was_skipped(collbench: Collbench) -> None:
    done = collbench("ps_bcast", "--backend", "fake", "--ranks", 1)
    assert done.returncode == 2
    assert message_of(done) == "collbench: nothing was measured: ps_bcast needs 2 ranks or more."


@pytest.mark.parametrize("size", ["64T", "4096T"])
def test_more_memory_than_there_is(collbench: Collbench, size: str) -> None:
    """4 ranks, each with a buffer to send and one to receive."""
    done = collbench(*FAKE, "-b", size, "-e", size)
    assert done.returncode == 2
    need = int(size[:-1]) * 8
    assert re.search(rf"4 ranks on \S+ need {need}\.00 TiB, and .* are free. Lower the sizes", message_of(done))


@pytest.mark.parametrize(("arguments", "buffers"), [(("--in-place",), 4), (("--driver", "python"), 8)])
def test_memory_is_what_the_buffers_take(collbench: Collbench, arguments: tuple[str, ...], buffers: int) -> None:
    """In place, every rank has one buffer."""
    assert f"need {buffers * 64}.00 TiB" in message_of(collbench(*FAKE, "-b", "64T", "-e", "64T", *arguments))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('backends = ["mpi", "fake"]', "the times of fake are simulated"),
        ("check = 2", "check 2: 0 or 1"),
        ("budget = -1", "budget '-1': not a duration"),
        ("budget = 0", "budget 0: must be longer than 0 s"),
        ("floor = 20000", "floor 20000: is above the usual cap of 10000; raise cap too"),
        ('timeout = "3000000h"', "timeout 3000000h: must be longer than 0 s, and at most 1e\\+06 s"),
    ],
)
def test_plans_that_are_refused(collbench: Collbench, tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "plan.toml"
    backend = "" if "backends" in line else 'backends = ["fake"]\n'
    path.write_text(f'collectives = ["allreduce"]\n{backend}{line}\n')
    done = collbench("run", path)
    assert done.returncode == 2
    assert re.search(message, message_of(done))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('collectives = ["allreduse"]', "collective 'allreduse': unknown. Did you mean allreduce?"),
        ('collectives = ["bcast"]\nroots = [9]', "root 9: there are 4 ranks, 0 to 3."),
        ('collectives = ["bcast"]\nbackends = ["fakee"]', "backend 'fakee': unknown. Did you mean fake?"),
        ('collectives = ["allreduce"]\nops = ["xor"]', "op 'xor': unknown. There are: sum, prod, min, max, avg, all."),
        ('collectives = ["allreduce"]\ncudagraph = 1', "cudagraph 1: fake has no CUDA graphs; use nccl."),
        ('collectives = ["allreduce"]\ncadence = "streaming"',
         "cadence streaming: fake completes every call before it returns; use cadence isolated, "
         "or nccl or torch-nccl."),
        ('[[benchmarks]]\nname = "stream"\nblock = [1]',
         "benchmark stream: has no parameter 'block'. There are: arrays, size."),
        ('benchmarks = ["streem"]', "benchmark 'streem': unknown. Did you mean stream?"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_plan_is_said_with_its_file_and_without_flags(
    tmp_path: Path, line: str, message: str
) -> None:
    path = tmp_path / "plan.toml"
    backend = "" if line.startswith("workloads") or "backends" in line else 'backends = ["fake"]\n'
    path.write_text(backend + line, encoding="utf-8")
    refused = CliRunner().invoke(cli, ["run", str(path)])
    assert str(refused.exception) == f"plan {path}: {message}"


@pytest.mark.parametrize("command", ["plan", "launch"])
def test_what_is_wrong_in_a_launch_plan_is_said_with_its_file(tmp_path: Path, command: str) -> None:
    path = tmp_path / "plan.toml"
    path.write_text('images = ["openmpi"]\ncollectives = ["bcast"]\npolicies = ["host"]\nroots = [9]\nranks = [2]\n')
    refused = CliRunner().invoke(cli, [command, str(path)])
    assert str(refused.exception).startswith(f"plan {path}: root 9: there are 2 ranks")


def test_nothing_was_recorded(tmp_path: Path) -> None:
    sink = TerminalSink("table", tmp_path / "run")
    sink._writer = cast("Any", SimpleNamespace(count=0, directory=tmp_path / "run"))
    assert sink.saved() == " Nothing was recorded."
    sink._writer = cast("Any", SimpleNamespace(count=1, directory=tmp_path / "run"))
    assert sink.saved().startswith(" 1 record is in ")


def test_the_plan_is_not_overwritten(collbench: Collbench, tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text('collectives = ["allreduce"]\nbackends = ["fake"]\n')
    done = collbench("run", path, "-J", path)
    assert done.returncode == 2
    assert "would overwrite the plan" in message_of(done)
    assert path.read_text().startswith("collectives")


def test_a_plan_with_an_unknown_key(collbench: Collbench, tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text("collectives = ['bcast']\nbackend = 'fake'\n")
    done = collbench("run", plan)
    assert done.returncode == 2
    assert "unknown key 'backend'. Did you mean backends?" in message_of(done)


def test_an_existing_run_is_not_touched(collbench: Collbench, stored_run: Path, tmp_path: Path) -> None:
    before = (stored_run / "records.jsonl").read_bytes()
    done = collbench(*FAKE, "-n", 3, "-e", 8, "--out", stored_run)
    assert done.returncode == 2
    assert "already holds a run. Name a directory that does not exist yet" in message_of(done)
    assert (stored_run / "records.jsonl").read_bytes() == before


@pytest.mark.parametrize("flag", ["--out", "-J"])
def test_a_place_that_cannot_be_written(collbench: Collbench, tmp_path: Path, flag: str) -> None:
    (tmp_path / "file").write_text("")
    done = collbench(*FAKE, "-n", 3, "-e", 8, flag, tmp_path / "file" / "inside")
    assert done.returncode == 1
    assert f"{flag} {tmp_path}/file/inside: Not a directory" in message_of(done)


def test_a_missing_folder_and_a_missing_file_of_a_run_have_messages_of_their_own(here: Here, tmp_path: Path) -> None:
    absent, empty = here("compare", tmp_path / "absent", "--by", "policy"), here("compare", tmp_path, "--by", "policy")
    assert (absent.code, empty.code) == (2, 2)
    assert "manifest.json" not in absent.err and "manifest.json" in empty.err


def test_a_long_word_of_a_message_is_cut(here: Here) -> None:
    answer = here("show", "x" * 3000)
    assert answer.code == 2
    assert len(answer.err) < 700


# Shell completion -----------------------------------------------------------------------------------------------------


def asked(*arguments: str, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "collbench", *arguments],
        env=os.environ | env, capture_output=True, text=True, timeout=LIMIT, check=True,
    )  # fmt: skip
    return done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_calls_back_collbench(shell: str) -> None:
    script = asked("completion", shell)
    assert f"_COLLBENCH_COMPLETE={shell}_complete" in script


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("collbench all", {"allgather", "allreduce", "alltoall"}),
        ("collbench do", {"doctor"}),
        ("collbench bcast --thr", {"--thread-level"}),
        ("collbench show --style n", {"nccl-tests"}),
        ("collbench launch la", {"ladder"}),
        ("collbench plan mine", {"mine"}),
    ],
)
def test_tab_completes_commands_flags_and_choices(words: str, expected: set[str]) -> None:
    position = str(len(words.split()) - 1)
    answer = asked(_COLLBENCH_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=position)
    assert {line.partition(",")[2] for line in answer.splitlines()} == expected
