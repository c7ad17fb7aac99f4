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

import click
import pytest
from tests.processes import LIMIT
from tests.unit.conftest import Collbench as Here

import collbench as package
from collbench import collectives
from collbench.cli import COMMANDS, LazyGroup, cli
from collbench.cli.measure import TerminalSink
from collbench.cli.prepare import COMPLETIONS

Collbench = Callable[..., CompletedProcess[str]]

ALL = [*(name for name, _, _ in COMMANDS), *collectives.names()]


def test_the_program_lists_its_commands_collectives_and_exit_codes(collbench: Collbench) -> None:
    done = collbench("--help")
    assert (done.returncode, done.stderr) == (0, "")
    for word in (*ALL, 0, 130):
        assert re.search(rf"\b{word}\b", done.stdout), word
    done = collbench("--version")
    assert (done.returncode, done.stdout) == (0, f"collbench, version {package.__version__}\n")


@pytest.mark.parametrize("name", ALL)
def test_every_flag_of_every_command_has_a_text(name: str) -> None:
    assert isinstance(cli, LazyGroup)
    context = click.Context(cli)
    command = cli.get_command(context, name)
    assert command is not None
    assert command.name == name
    assert (command.help or "").strip()
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert (parameter.help or "").rstrip().endswith((".", "]")), parameter.name
    assert f"Usage: {name} " in command.get_help(click.Context(command, info_name=name))


@pytest.mark.slow
def test_lists_say_what_is_here_in_columns_as_wide_as_their_longest_name(collbench: Collbench) -> None:
    done = collbench("list")
    assert (done.returncode, done.stderr) == (0, "")
    for line in ("  yes fake", "  yes python", *(f" +{name}" for name in collectives.names())):
        assert re.search(rf"^{line} ", done.stdout, re.MULTILINE), line
    (benchmarks,) = (part for part in re.split(r"^(?=\w)", done.stdout, flags=re.MULTILINE)
                     if part.startswith("benchmarks"))  # fmt: skip
    names = re.findall(r"^  (?:yes|no ) (\w+ +)\S", benchmarks, re.MULTILINE)
    plans = re.findall(r"^(collbench \w+ [-\w]+ +)\S", collbench("plan").stdout, re.MULTILINE)
    assert len(plans) > 10 and len(names) > 10
    assert len(set(map(len, plans))) == len(set(map(len, names))) == 1


@pytest.mark.slow
def test_demo_works_without_mpi_and_says_that_it_is_simulated(collbench: Collbench, tmp_path: Path) -> None:
    done = collbench("demo", "--style", "csv", "--out", tmp_path / "run")
    assert (done.returncode, "simulated" in done.stderr) == (0, True)
    assert all(line.startswith("ok,,allreduce,,sum,float32,") for line in done.stdout.splitlines()[1:])
    assert len(done.stdout.splitlines()) == 1 + len((tmp_path / "run" / "records.jsonl").read_bytes().splitlines())


def test_help_comes_before_slow_imports(bare_environment: dict[str, str]) -> None:
    """Before a command is chosen, no library is loaded but click."""
    program = "import sys, collbench.cli; print(*{'msgspec', 'numpy', 'scipy', 'tqdm'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", program], env=bare_environment, capture_output=True, text=True,
                          timeout=LIMIT, check=True)  # fmt: skip
    assert done.stdout.split() == []


def test_a_rank_imports_nothing_of_the_analysis(bare_environment: dict[str, str]) -> None:
    """From the first argument to the table: it would take 30 ms of every start."""
    world = ("allreduce", "--backend", "fake", "--ranks", "2", "-b", "8", "-e", "8", "-n", "2")
    done = subprocess.run([sys.executable, "-X", "importtime", "-m", "collbench", *world], env=bare_environment,
                          capture_output=True, text=True, timeout=LIMIT, check=True)  # fmt: skip
    assert {name for name in done.stderr.split() if name.startswith(("collbench.analysis", "scipy"))} == set()
    assert "collbench.report.remarks" in done.stderr.split()


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


def interrupted(
    environment: dict[str, str], module: str, number: signal.Signals, *words: str
) -> CompletedProcess[str]:  # fmt: skip
    return subprocess.run([sys.executable, "-c", INTERRUPTED, module, str(int(number)), *words], env=environment,
                          capture_output=True, text=True, timeout=LIMIT, check=False)  # fmt: skip


@pytest.mark.parametrize("module", ["click", "collbench.machine"])
def test_ctrl_c_during_imports_says_nothing(module: str, bare_environment: dict[str, str]) -> None:
    done = interrupted(bare_environment, module, signal.SIGINT, "list")
    assert (done.returncode, "Traceback" in done.stderr) == (130, False)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize(
    ("command", "module"),
    [("gate nothing", "click"), ("gate nothing", "collbench.cli.launch"),
     ("launch nothing", "collbench.cli.plan"), ("selftest", "collbench.analysis.planning")],
)  # fmt: skip
def test_an_experiment_ends_with_a_line_before_it_asks_an_engine(
    command: str, module: str, number: signal.Signals, bare_environment: dict[str, str]
) -> None:
    done = interrupted(bare_environment, module, number, *command.split())
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "collbench: interrupted.\n")


PLAN = 'collectives = ["bcast"]\nsizes = ["8"]\nimages = ["a"]\nengine = "fake"\npolicies = ["single"]\n'


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "first"),
    [
        ("compare RUN --by policy", "RUN"), ("advise RUN", "RUN"), ("model RUN", "RUN"),
        ("report RUN -o TMP/report.md", "RUN"), ("history TMP", "TMP"),
        ("launch TMP/plan.toml --out TMP/run", "environments: a "),
        ("launch TMP/plan.toml --dry-run", "environments: a "),
    ],
)  # fmt: skip
def test_a_terminal_shows_at_once_what_is_waited_for(
    here: Here, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: str, first: str
) -> None:
    (tmp_path / "plan.toml").write_text(PLAN, encoding="utf-8")
    run = str(Path(__file__).parents[2] / "results/xu2017/xu2017-io")
    words, first = (text.replace("RUN", run).replace("TMP", str(tmp_path)) for text in (words, first))
    quiet = here(*words.replace("/run", "/run-before").split())
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    shown = here(*words.split())
    assert quiet.code == shown.code
    cleared = "\r\x1b[K"
    assert first[:40] in shown.err.partition(cleared)[0]
    assert cleared not in quiet.err


# A request that cannot be carried out ---------------------------------------------------------------------------------

FAKE = "allreduce --backend fake"

#: Command lines.
REQUESTS = (
    "allreduse", "xyzzy", "completion", "completion tcsh", "run none.toml", "bcast --backend fake -r 4",
    "bcast --backend fake -r -1", "allreduce --backend fakee", "allreduce --backend zzz",
    "allreduce --backend nccl --device cpu", "ps_bcast --backend fake --ranks 1", "run plan.toml -J plan.toml",
    *(f"{FAKE} {flags}" for flags in (
        "-b 8Q", "-e -1", "-b 1.3", "--cap 5", "--budget inf", "-T nan", "-b 64 -e 8", "-f 1", "-i 0",
        "-b 0 -e 1T -i 1", "-i 8 -f 2", "-n 0", "-w -1", "-d float33", "-o xor", "--driver rust", "--style tabel",
        "--align door", "--budget soon", "--budget 0s", "-T x", "--floor 0", "--device gpu", "-G 1", "-G -1", "-G 2",
        "-R 3", "--burst 0", "--burst 1001", "--staging mapped", "-z 0", "-z 1 --cadence streaming", "--ranks 0",
        "--fault explode", "--fault corrupt:4 -n 3 -e 8", "--floor 20000", "-e 4", f"-b {'9' * 24}",
        f"-b {'9' * 39}.{'0' * 9}",
    )),
)  # fmt: skip

#: Plans for `run`, and then for `launch`.
PLANS = (
    'backends = ["fake"]\ncollectives = ["allreduse"]',
    *(f'backends = ["fake"]\ncollectives = ["allreduce"]\n{line}' for line in (
        "check = -1", "budget = -1", "budget = 0", "floor = 20000", 'timeout = "3000000h"', 'ops = ["xor"]',
        "cudagraph = 1", 'cadence = "streaming"',
    )),
    'collectives = ["allreduce"]\nbackends = ["mpi", "fake"]', 'collectives = ["bcast"]\nbackends = ["fakee"]',
    'collectives = ["bcast"]\nbackend = "fake"', 'backends = ["fake"]\ncollectives = ["bcast"]\nroots = [9]',
    'backends = ["fake"]\n[[benchmarks]]\nname = "stream"\nblock = [1]', 'backends = ["fake"]\nbenchmarks = ["streem"]',
)  # fmt: skip
OF_WORLDS = 'images = ["openmpi"]\ncollectives = ["bcast"]\npolicies = ["host"]\nroots = [9]\nranks = [2]\n'


def test_exit_code_2_and_one_message(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Callable[[str, str], None]
) -> None:
    monkeypatch.chdir(tmp_path)
    said = []

    def refuse(words: str, text: str) -> None:
        Path("plan.toml").write_text(text, encoding="utf-8")
        refused = here(*words.split())
        assert refused.code == 2, (words, text, refused)
        assert not re.search(r"^ *[0-9]", refused.out, re.MULTILINE), "numbers were printed"
        (line,) = refused.err.splitlines()
        said.append(f"{words}: {line.removeprefix('collbench: ')}\n")
        assert Path("plan.toml").read_text(encoding="utf-8") == text

    for words in REQUESTS:
        refuse(words, 'collectives = ["allreduce"]\nbackends = ["fake"]\n')
    for text in PLANS:
        refuse("run plan.toml", text)
    for words in ("plan plan.toml", "launch plan.toml"):
        refuse(words, OF_WORLDS)
    golden("requests-refused.txt", "".join(said))


@pytest.mark.parametrize("words", ["--bakend mpi", "extra", "-n many"])
def test_what_click_refuses_is_named(here: Here, words: str) -> None:
    refused = here(*FAKE.split(), *words.split())
    assert (refused.code, len(refused.err.splitlines())) == (2, 1)
    assert words.removesuffix(" mpi").removeprefix("-n ") in refused.err


@pytest.mark.parametrize(
    ("flags", "tebibytes"),
    [("-b 64T -e 64T", 512), ("-b 4096T -e 4096T", 32768), ("-b 64T -e 64T --in-place", 256),
     ("-b 64T -e 64T --driver python", 512)],
)  # fmt: skip
def test_more_memory_than_there_is(here: Here, flags: str, tebibytes: int) -> None:
    """4 ranks, each with a buffer to send and one to receive; in place they have one."""
    refused = here(*FAKE.split(), *flags.split())
    assert refused.code == 2
    assert re.search(rf"4 ranks .* {tebibytes}\.00 TiB", refused.err)


def test_where_the_records_are(tmp_path: Path) -> None:
    sink = TerminalSink("table", tmp_path / "run")
    for number, command in ((0, False), (1, True)):
        sink._writer = cast("Any", SimpleNamespace(count=number, directory=tmp_path / "run"))
        assert (f"1 record is in {tmp_path}/run: collbench show" in sink.saved()) == command


def test_where_nothing_can_be_written(here: Here, stored_run: Path, tmp_path: Path) -> None:
    """In a run, which is not touched, and in a folder that is a file."""
    before = (stored_run / "records.jsonl").read_bytes()
    (tmp_path / "file").write_text("")
    inside = tmp_path / "file" / "inside"
    for flag, path, code in (("--out", stored_run, 2), ("--out", inside, 1), ("-J", inside, 1)):
        refused = here(*FAKE.split(), "-n", 3, "-e", 8, flag, path)
        assert (refused.code, f"{flag} {path}: " in refused.err, refused.err.count("\n")) == (code, True, 1), refused
    assert (stored_run / "records.jsonl").read_bytes() == before


def test_a_missing_folder_and_a_missing_file_of_a_run_have_messages_of_their_own(here: Here, tmp_path: Path) -> None:
    """And a long word of a message is cut."""
    absent, empty = here("compare", tmp_path / "absent", "--by", "policy"), here("compare", tmp_path, "--by", "policy")
    assert (absent.code, empty.code) == (2, 2)
    assert "manifest.json" not in absent.err and "manifest.json" in empty.err
    long = here("show", "x" * 3000)
    assert (long.code, len(long.err) < 700) == (2, True)


# Shell completion -----------------------------------------------------------------------------------------------------


def completed(*arguments: str, **variables: str) -> str:
    command = [sys.executable, "-m", "collbench", *arguments]
    return subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, timeout=LIMIT,
                          check=True).stdout  # fmt: skip


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_calls_back_collbench(shell: str) -> None:
    assert f"_COLLBENCH_COMPLETE={shell}_complete" in completed("completion", shell)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_installed_where_the_shell_looks(shell: str, tmp_path: Path) -> None:
    for _ in range(2):  # an older one is replaced
        assert str(tmp_path / COMPLETIONS[shell]) in completed("completion", shell, "--install", HOME=str(tmp_path))
    assert (tmp_path / COMPLETIONS[shell]).read_text(encoding="utf-8") == completed("completion", shell)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("collbench all", {"allgather", "allreduce", "alltoall"}), ("collbench do", {"doctor"}),
        ("collbench bcast --thr", {"--thread-level"}), ("collbench show --style n", {"nccl-tests"}),
        ("collbench launch la", {"ladder"}), ("collbench plan mine", {"mine"}),
    ],
)  # fmt: skip
def test_tab_completes_commands_flags_and_choices(words: str, expected: set[str]) -> None:
    last = str(len(words.split()) - 1)
    answer = completed(_COLLBENCH_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=last)
    assert {line.partition(",")[2] for line in answer.splitlines()} == expected
