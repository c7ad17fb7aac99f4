"""Every command says what it does, and what it says of itself is so."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from tests.processes import LIMIT
from tests.unit.conftest import Answer

import collbench as package
from collbench import collectives
from collbench.cli import COMMANDS, LazyGroup, cli

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
