"""The command line: its commands, imported when they are called, so that `--help` is instant; errors and exit codes."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import time
from importlib import import_module
from typing import NoReturn

import click

from collbench import __version__, collectives
from collbench.errors import CollbenchError, PackageMissing, RequestError, in_lines, suggestion, with_notes
from collbench.machine import launcher

#: What --help lists under each title: command, module in this package that has `NAME_command`, line of help.
GROUPS = {
    "Measure (on Linux)": (
        ("run", "measure", "Measure every case of a plan file in one world."),
        ("suite", "measure", "Benchmarks of this machine: its processors and memory."),
        ("launch", "launch", "Start ranks on the host and in containers, as a plan says: one run."),
        ("gate", "gate", "Whether a change loses time: both sides alternately, and an exit code."),
        ("selftest", "gate", "The same under two names: false positives, smallest difference seen."),
        ("demo", "measure", "A first table: on this machine under mpirun, simulated without."),
    ),
    "Prepare": (
        ("plan", "plan", "What a launch plan amounts to: cells, order, places, time."),
        ("list", "prepare", "What can be measured here, and why the rest cannot."),
        ("doctor", "prepare", "Look for what would spoil a measurement on this machine."),
        ("image", "prepare", "Build the images that plans name; list what is inside them."),
        ("completion", "prepare", "Print the shell completion script for bash, zsh or fish."),
    ),
    "Read runs": (
        ("show", "analyse", "Print a run again, in any style, without MPI."),
        ("compare", "compare", "Two runs, or two sides of one: difference, interval, verdict."),
        ("advise", "analyse", "What to take for each operation, and what other options cost."),
        ("model", "analyse", "Latency and bandwidth models of a run, and what they predict."),
        ("report", "analyse", "A report on runs: one HTML page, Markdown, CSV or LaTeX."),
        ("history", "compare", "Runs in time: what changed, when, by how much, and together with what."),
        ("pack", "prepare", "Pack the samples files of runs: an archive for each run."),
    ),
}
COMMANDS = tuple(command for group in GROUPS.values() for command in group)

#: What neither measures, nor starts a program, nor locks a file works on any system.
ANYWHERE = frozenset({"plan", "list", "completion", "show", "compare", "advise", "model", "report", "history"})
LONGEST_WORD = 500  #: Longer words in messages, such as an address, are cut.
DEFERENCE = 1.0  #: A launcher ends all ranks with the first that fails: silent ones wait so long (s) for rank 0.
ALONE = 3.0  #: If rank 0 still lives so long (s) after another rank's error, that rank was the only one to meet it.
_EPILOG = """\
Collectives take the flags of nccl-tests: mpirun -n 4 collbench allreduce -b 8 -e 64M -f 2. \
Exit codes: 0 all good; 1 a result was wrong or a case failed; 2 the request was wrong; \
3 a time-out or a lost rank; 4 a gate has no answer; 130 interrupted."""


class LazyGroup(click.Group):
    """Knows its commands by name, and imports the one that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name, _, _ in COMMANDS] + list(collectives.names())

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """The command, or the collective under any of its spellings."""
        module = next((module for command, module, _ in COMMANDS if command == name), None)
        if module is not None:
            command: click.Command = getattr(import_module(f"{__name__}.{module}"), f"{name}_command")
            return command
        if (collective := collectives.find(name)) is None:
            return None
        from collbench.cli.measure import collective_command

        return collective_command(collective)

    def invoke(self, ctx: click.Context) -> object:
        """As click does; where a package is missing, the error names the command that needs it."""
        try:
            return super().invoke(ctx)
        except PackageMissing as error:
            raise PackageMissing(f"{ctx.invoked_subcommand}: {error}") from error

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, but suggests the nearest known name; RequestError of a command that needs another system."""
        if not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            hint = suggestion(args[0], self.list_commands(ctx))
            ctx.fail(f"{args[0]!r} is neither a collective nor a command. {hint}")
        if args[0] not in ANYWHERE and not hasattr(os, "sched_getaffinity") and not {"-h", "--help"}.intersection(args):
            raise RequestError(f"{args[0]}: needs Linux. On this system: {', '.join(sorted(ANYWHERE))}.")
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """`collbench help NAME` is `collbench NAME --help`."""
        return super().parse_args(ctx, [*args[1:], "--help"] if args[:1] == ["help"] else args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Commands with a line each, in groups; collectives as names."""
        for title, group in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name, text) for name, _, text in group])
        with formatter.section("Collectives (collbench NAME --help)"):
            formatter.write_text(", ".join(collectives.names()))


@click.command(cls=LazyGroup, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="collbench")
def cli() -> None:
    """Measure how deep-learning and HPC jobs communicate: MPI, NCCL, torch.distributed; host and containers."""


def main() -> NoReturn:
    """The `collbench` script. Rank 0 prints; every rank exits with the documented code."""
    # NumPy's BLAS is never used here; its thread pool would only slow every rank's start.
    if "OPENBLAS_NUM_THREADS" not in os.environ:
        launcher.set_own({"OPENBLAS_NUM_THREADS": "1"})
    if sys.stderr is None:  # closed when the process was started
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123 - for the rest of the process
    if sys.stdout is None:
        # A pipe without a reader: output closed from the start is treated like output that is closed early.
        reading, writing = os.pipe()
        os.close(reading)
        sys.stdout = os.fdopen(writing, "w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a letter that the terminal lacks is not an error
    speaks = launcher.detect().rank == 0
    if not speaks:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123 - for the rest of the process
    code = run_command(speaks)
    if code and not speaks:
        time.sleep(DEFERENCE)
    leave(code)


def run_command(speaks: bool) -> int:
    """The exit code of the command line. Errors are printed here: by rank 0, or by the one rank that met them."""
    output = sys.stdout
    try:
        if os.environ.get("COLLBENCH_SHAPE"):
            from collbench.run.facts_of_ranks import bind

            bind()
        code = cli.main(prog_name="collbench", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.ClickException as error:
        _explain(speaks, error)
        return error.exit_code
    except click.exceptions.Exit as ending:
        return ending.exit_code
    except CollbenchError as error:
        _say(speaks, with_notes(error), error.everywhere)
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        _say(speaks, "interrupted.", everywhere=True)
        return 130
    except BrokenPipeError:
        return 130
    except OSError as error:
        _say(speaks, f"{error.filename or 'standard output'}: {error.strerror}.")
        return 1
    except SystemExit as ending:
        if sys.stdout is not output:  # click exits like this when it finds the output closed, and wraps it
            return 130
        return ending.code if isinstance(ending.code, int) else 1


def _explain(speaks: bool, error: click.ClickException) -> None:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        if speaks:
            click.echo(error.format_message())
        return
    context = error.ctx if isinstance(error, click.UsageError) else None
    hint = f" See: {context.command_path} --help" if context else ""
    _say(speaks, error.format_message() + hint)


def _say(speaks: bool, text: str, everywhere: bool = False) -> None:
    """Prints one line. A rank other than 0 prints what it alone met, once it is clear that rank 0 did not."""
    us = launcher.detect()
    if not speaks and not everywhere and us.rank != 0:
        time.sleep(ALONE)
    alone = not speaks and not everywhere and launcher.rank_0_lives(us)
    if speaks or alone:
        who = f"rank {us.rank}: " if alone else ""
        with contextlib.suppress(OSError):  # the terminal is gone; the exit code still tells
            text = re.sub(rf"(\S{{{LONGEST_WORD}}})\S+", r"\1...", text)
            print(f"collbench: {who}{in_lines(text)}", file=sys.stderr)  # noqa: T201


def leave(code: int) -> NoReturn:
    """Exit with `code`, also when output cannot be written any more."""
    try:
        sys.stdout.flush()
    except OSError as error:  # its reader is gone, or its disk is full
        with open(os.devnull, "w") as nowhere:  # noqa: PTH123
            os.dup2(nowhere.fileno(), sys.stdout.fileno())  # else the interpreter complains when it flushes at exit
        code = code or (130 if isinstance(error, BrokenPipeError) else 1)
    sys.exit(code)
