"""From a plan to an exit code, and where records go on rank 0: a run on disk, a style, a progress bar."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click
from numpy.typing import NDArray

from collbench.bindings.spec import Options
from collbench.cli.terminal import opened
from collbench.errors import Interrupted, RequestError, RunWriteError
from collbench.machine import launcher
from collbench.report import Style, new_style
from collbench.run.experiment import perform, plan_experiment
from collbench.run.facts_of_ranks import completed
from collbench.schema.manifest import Manifest
from collbench.schema.plan import Plan, check_plan, named_in_errors
from collbench.schema.record import Record
from collbench.schema.store import RunWriter, end_progress, note_progress
from collbench.schema.world import Place
from collbench.units import counted

#: A rescue waits this long for a record that is being written (s).
LONGEST_WAIT = 0.2


class TerminalSink:
    """Writes first to disk, then prints. Counts what was measured, failed and skipped.

    Every rank has one; only that of rank 0 (`speaks`) writes.
    """

    def __init__(self, style: str, out: Path | None, output_file: Path | None = None, speaks: bool = True) -> None:
        self._speaks, self._style_name = speaks, style
        self._style: Style = new_style(style)
        self._document: Style | None = None if output_file is None else new_style("json")
        self._out, self._output_file = out, output_file
        self._writer: RunWriter | None = None
        self._bar: Any = None
        self._listening = True
        self._lock = threading.RLock()
        self.measured = self.failed = self.skipped = 0
        self.reasons: dict[str, None] = {}

    def begin(self, manifest: Manifest, cases: int) -> None:
        """Create the run, print the heading."""
        self._try_output_file()
        if self._out is not None or self._document is not None or self._style_name == "json":
            manifest = completed(manifest)
        if self._out is not None:
            self._writer = RunWriter(self._out, manifest)
        if self._document is not None:
            self._document.begin(manifest)
        self._print(self._style.begin(manifest))
        if sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(total=cases, unit="case", file=sys.stderr, leave=False, dynamic_ncols=True)

    def _try_output_file(self) -> None:
        """Check before measuring that -J can be written."""
        if self._output_file is not None:
            try:
                opened(self._output_file, "a").close()
            except OSError as error:
                raise RunWriteError(f"-J {self._output_file}: {error.strerror}. Nothing was measured.") from error

    def add(self, record: Record, samples: NDArray[Any] | None) -> None:
        with self._alone():
            self._add(record, samples)

    def doing(self, what: str) -> None:
        with self._alone():
            if self._writer is not None:
                note_progress(self._writer.directory, what)
            if self._bar is not None:
                self._bar.set_description(what)

    def _add(self, record: Record, samples: NDArray[Any] | None) -> None:
        if self._writer is not None:
            record = self._writer.append(record, samples)
        self.measured += record.status == "ok"
        self.failed += record.status == "failed"
        self.skipped += record.status == "skipped"
        if record.reason is not None:
            self.reasons[record.reason] = None
        if self._document is not None:
            self._document.add(record)
        self._print(self._style.add(record))
        if self._bar is not None:
            self._bar.set_description(record.case.short, refresh=False)
            self._bar.update()

    def finish(self) -> None:
        """Print what the style still holds, write `-J`, close the run. Safe to call twice.

        Raises:
            RunWriteError: the output file cannot be written, or the run does not exist any more.
            Interrupted: nobody reads standard output.
        """
        if self._speaks:
            with self._alone():
                self._finish()

    def _finish(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
        if self._writer is not None:
            self._writer.close()
            end_progress(self._writer.directory)
        self._print(self._style.end())
        if self._writer is not None:
            self._writer.verify()
        if self._document is not None and self._output_file is not None:
            document, self._document = self._document, None
            try:
                with opened(self._output_file, "w") as file:
                    file.write(document.end())
            except OSError as error:
                raise RunWriteError(f"-J {self._output_file}: {error.strerror}.") from error

    def rescue(self) -> str:
        """Print what is still held; returns where the records are. Called when the process is about to end."""
        try:
            self.finish()
            sys.stdout.flush()
        except Exception as error:
            return f" ({error})"
        return self.saved()

    def saved(self) -> str:
        """Where the records are, in a sentence."""
        if self._writer is None:
            return "" if self._speaks or self._out is None else f" What was measured before is in {self._out}."
        n, where = self._writer.count, self._writer.directory
        if n == 0:
            return " Nothing was recorded."
        return f" {counted(n, 'record is', 'records are')} in {where}: collbench show {where}"

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """The watchdog's thread may call `rescue` while a record is added; it does not wait for a stuck disk."""
        held = self._lock.acquire(timeout=LONGEST_WAIT)
        try:
            yield
        finally:
            if held:
                self._lock.release()

    def _print(self, text: str) -> None:
        if not text or not self._listening:
            return
        if self._bar is not None:
            self._bar.clear()
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except BrokenPipeError:
            self._stop_listening()
        except OSError as error:
            raise RunWriteError(f"standard output: {error.strerror}.") from error

    def _stop_listening(self) -> None:
        """Nobody reads standard output any more. With a run on disk, or -J, measuring continues."""
        self._listening = False
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        if self._writer is None and self._output_file is None:
            raise Interrupted("standard output was closed; stopping. With --out DIR measuring would continue to disk.")

    def verdict(self) -> int:
        """Exit code for what was measured.

        Raises:
            RequestError: every case was skipped.
        """
        if self.failed:
            return 1
        if self.measured == 0 and self.skipped:
            raise RequestError(f"nothing was measured: {'; '.join(self.reasons)}.")
        return 0


def carry_out(
    plan: Plan,
    style: str,
    out: Path | None = None,
    output_file: Path | None = None,
    ranks: int | None = None,
    fault: str | None = None,
    notices: Iterable[str] = (),
    plan_file: Path | None = None,
    places: tuple[Place, ...] | None = None,
    turns: Path | None = None,
) -> None:
    """Measure a plan, print and keep its records, end with the exit code of what was found.

    `notices` are printed first, unless the plan is refused. Errors name the `plan_file`. `places` are those planned for
    the ranks, `turns` is the folder of pipes by which they take turns with other worlds.

    Raises:
        CollbenchError: see `collbench.run.experiment`; what was measured before is printed and kept.
    """
    check_plan(plan)
    if out is not None and output_file is not None and output_file.resolve().is_relative_to(out.resolve()):
        raise RequestError(f"-J {output_file}: is inside --out {out}. Name a file elsewhere.")
    options = Options(plan["thread_level"], plan.timeout_seconds, ranks, fault, places=places, turns=turns)
    with named_in_errors(plan_file):
        experiment = plan_experiment(plan, options, tuple(sys.argv))
    speaks = launcher.detect().rank == 0
    for notice in notices if speaks else ():
        click.echo(f"collbench: {notice}", err=True)
    sink = TerminalSink(style, out, output_file, speaks=speaks)
    try:
        perform(experiment, sink)
    except BaseException as error:
        where = sink.rescue()
        if where and not isinstance(error, RunWriteError):  # which says itself what is on disk
            error.add_note(where)
        raise
    sink.finish()
    raise click.exceptions.Exit(sink.verdict())
