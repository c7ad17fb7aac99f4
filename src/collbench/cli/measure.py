"""What measures in the world that this process is part of: a collective, `run`, `suite` and `demo`.

From a plan to an exit code, and where records go on rank 0: a run on disk, a style, a progress bar.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import click
import msgspec
from click.core import ParameterSource
from numpy.typing import NDArray

from collbench import backends, collectives, workloads
from collbench.bindings.spec import WorldSettings
from collbench.cli.command import COMMAND, MetricOptions, WithCommand, command_benchmark
from collbench.cli.options import PATH, PLAN, Options, argument, command, option, switch
from collbench.errors import Interrupted, RequestError, RunWriteError, suggestion
from collbench.machine import launcher
from collbench.registry import find_plan
from collbench.report import STYLES, Style, new_style
from collbench.run.cases import parameters_of, unused_parameters
from collbench.run.experiment import default_backend, perform, plan_experiment
from collbench.run.facts_of_ranks import bind, completed
from collbench.schema.axes import AXES, BackendSupport, Sizes, plan_keys_of
from collbench.schema.case import ALIGNMENTS, CADENCES
from collbench.schema.command import NAME as COMMAND_NAME
from collbench.schema.manifest import Manifest
from collbench.schema.plan import USUAL_CAP, Benchmark, Plan, check_plan, load_plan, named_in_errors
from collbench.schema.record import Record
from collbench.schema.store import RunWriter, end_progress, note_progress
from collbench.schema.world import Place, read_places
from collbench.units import counted, parse_size
from collbench.workloads.program import Program

LONGEST_WAIT = 0.2  #: A rescue waits this long for a record that is being written (s).

# Flags. Letters are those of nccl-tests. -----------------------------------------------------------------------------


class OutputOptions(Options):
    """Where the records go. What only some commands let users say of the world is None for the others."""

    ranks: int | None = None
    fault: str | None = None
    turns: Path | None = None
    style: str = option("--style", "How results are printed.", type=click.Choice(list(STYLES)), default="table")
    out: Path | None = option(
        "--out", "Write the run to DIR, which must be new or empty: manifest, records, every sample.", "DIR", type=PATH
    )
    output_file: Path | None = option(
        "-J --output_file", "Also write the json document to FILE, which must lie outside --out.", "FILE", type=PATH
    )


class WorldOptions(OutputOptions):
    """The same, and the ranks."""

    timeout: str = option("-T --timeout", "Longest time without progress, the start of the world included; then every rank exits with code 3.", "TIME", default="300s")  # fmt: skip
    ranks: int | None = option("--ranks", "Ranks of the fake backend.  [default: 4]", "N", type=int)
    fault: str | None = option("--fault", "Fake backend only: corrupt, raise or hang from a rank's N-th operation on, or in P % of them.", "KIND:RANK[@N|%P]")  # fmt: skip


class _Sizes(Options):
    minbytes: str = option("-b --minbytes", "Smallest size (8, 64K, 1M, 1G: powers of 1024).", "SIZE", default="8")
    maxbytes: str | None = option("-e --maxbytes", "Largest size.  [default: 4M, or -b if larger]", "SIZE")
    stepfactor: int | None = option(
        "-f --stepfactor", "Multiply the size by N at each step.  [default: 2]", "N", type=int
    )
    stepbytes: str | None = option("-i --stepbytes", "Add SIZE at each step instead.", "SIZE")


class _Samples(Options):
    device: str | None = option("--device", "Where the data lies; a backend whose data lies elsewhere is refused.  [default: that of the backend; without one cpu]", type=click.Choice(["cpu", "gpu"]))  # fmt: skip
    share_gpu: bool = switch("--share-gpu", "Let several ranks use one GPU, for functional tests; the record says so.")
    iters: int | None = option("-n --iters", "Exactly N samples per size, instead of a time budget.", "N", type=int)
    warmup: int = option("-w --warmup_iters", "Samples before the first one that counts.", "N", type=int, default=5)  # fmt: skip
    check: int = option("-c --check", "Compare the results of N operations with the expected ones: the first before, all others after timing. 1: one before and one after; 0: none.", "N", type=click.IntRange(0), default=1)  # fmt: skip
    blocking: int | None = option("-z --blocking", "1: cadence isolated; 0: streaming.", "0|1", type=click.IntRange(0, 1))  # fmt: skip
    align: str = option("--align", "How ranks line up before each sample.", type=click.Choice(["auto", *ALIGNMENTS]), default="auto")  # fmt: skip
    cadence: str | None = option("--cadence", "Each operation separately, or back to back.  [default: isolated]", type=click.Choice(CADENCES))  # fmt: skip
    burst: int = option(
        "--burst",
        "In cadence streaming: operations that a rank issues before it waits; a sample is their time divided by N.",
        "N",
        type=int,
        default=20,
    )
    budget: str = option("--budget", "Time for the samples of one size, lining up included.", "TIME", default="0.25s")
    floor: int = option(
        "--floor", "Smallest number of samples per size, however long they take.", "N", type=int, default=20
    )
    cap: int = option(
        "--cap", "Largest number of samples per size, however short they are.", "N", type=int, default=10_000
    )


class CollectiveOptions(_Sizes, _Samples, WorldOptions):
    """The flags of a collective; beside those above, one for each axis that has one, named as the axis."""

    @classmethod
    def parameters(cls) -> list[click.Parameter]:
        """Those of axes in the order of their table."""
        of_axes = []
        for axis, plan_key in plan_keys_of("what", "how").items():
            if (flag := plan_key.flag) is None:
                continue
            text = f"{flag.help}  [default: {flag.default}]" if flag.default else flag.help
            alone: dict[str, Any] = {} if flag.alone is None else {"is_flag": False, "flag_value": flag.alone}
            kind = click.Choice(list(flag.words)) if flag.words else plan_key.of or AXES[axis].of
            spelled = " ".join(flag.spelled)
            of_axes.append(option(spelled, text, flag.metavar, type=kind, default=plan_key.typed, **alone).made(axis))
        return [*_Sizes.parameters(), *of_axes, *_Samples.parameters(), *WorldOptions.parameters()]


class _Run(WorldOptions):
    plan: str = PLAN
    placement: Path | None = option("--placement", "The container, cores and GPU of each rank (JSON): it binds itself to these cores. A world that differs is refused.", "FILE", type=PATH)  # fmt: skip
    turns: Path | None = option("--turns", "Links the ranks to a launch that lets worlds on the same cores measure in turns.", "FOLDER", type=PATH)  # fmt: skip


class _Benchmarks(Options):
    words: tuple[str, ...] = argument(nargs=-1, metavar="[NAMES] [PARAMETER=VALUES]...")
    iters: int | None = option("-n --iters", "Exactly N samples, instead of a time budget.", "N", type=int)
    warmup: int = option("-w --warmup_iters", "Samples before the first one that counts.", "N", type=int, default=1)  # fmt: skip
    budget: str = option(
        "--budget", "Time for the samples of a benchmark that is executed once for each sample.", "TIME", default="5s"
    )
    floor: int = option("--floor", "Smallest number of samples, whatever the budget.", "N", type=int, default=3)
    timeout: str = option("-T --timeout", "Longest time of one execution.", "TIME", default="300s")
    folder: str = option("--folder", "Where benchmarks that work in files create them.", "DIR", default=".")


class _Suite(_Benchmarks, MetricOptions, OutputOptions):
    pass


# Commands ------------------------------------------------------------------------------------------------------------


def collective_command(name: str) -> click.Command:
    """The command of a collective."""
    row = collectives.get(name)

    @command(name, CollectiveOptions, help=f"{row.title}: {row.summary}.")
    def measure(options: CollectiveOptions) -> None:
        plan = plan_of(name, options)
        source = click.get_current_context().get_parameter_source
        (backend,) = plan["backends"] or (default_backend(),)
        support = BackendSupport(row, backends.get(backend), ranks=1)
        unused: dict[str, list[str]] = {row.name: [], f"backend {backend}": []}  # typed, and meaning nothing to it
        for axis, plan_key in plan_keys_of("what", "how").items():
            flags = {axis: plan_key.flag.spelled[0]} if plan_key.flag else {"minbytes": "-b", "maxbytes": "-e"}
            if not support.has(axis, plan_key):
                typed = (flag for name, flag in flags.items() if source(name) is ParameterSource.COMMANDLINE)
                unused[f"backend {backend}" if plan_key.row(row) else row.name].extend(typed)
        notices = [f"ignored: {name} does not use {', '.join(flags)}." for name, flags in unused.items() if flags]
        carry_out(plan, options, notices)

    return measure


def plan_of(name: str, options: CollectiveOptions) -> Plan:
    """The plan of the flags of a collective, or RequestError; those that are no axis have the names of its keys."""
    low, high, cadence, blocking = options.minbytes, options.maxbytes, options.cadence, options.blocking
    if options.stepbytes is not None and options.stepfactor is not None:
        raise RequestError("-i/--stepbytes and -f/--stepfactor: use one of them.")
    if high is None:
        high = "4M" if parse_size(low) <= parse_size("4M") else low
    if low == "8" and parse_size(high) < 8:
        raise RequestError(f"-e {high}: is below -b, which is 8 by default; give -b too.")
    factor = 2 if options.stepfactor is None else options.stepfactor
    sizes = Sizes(min=low, max=high, factor=factor, step=options.stepbytes)
    if cadence is not None and blocking is not None and (cadence == "isolated") != bool(blocking):
        raise RequestError(f"--cadence {cadence} and -z {blocking} contradict each other; use one of them.")
    keys = {name: value for name, value in vars(options).items() if name not in _NO_KEYS}
    keys["cadence"] = cadence or ("streaming" if blocking == 0 else "isolated")
    keys["backend"] = _backend_on(options.device, keys["backend"])
    if keys["in_place"] is None and options.style == "nccl-tests":
        keys["in_place"] = "both"
    for axis, plan_key in plan_keys_of("what", "how").items():
        if plan_key.flag is not None:
            keys[plan_key.key] = plan_key.read(keys.pop(axis))
    return Plan(title=f"{name} {sizes.min} to {sizes.max}", collectives=(name,), sizes=sizes, **keys)


#: Flags of a collective that are neither an axis nor a key of a plan.
_NO_KEYS = frozenset(("minbytes", "maxbytes", "stepfactor", "stepbytes", "blocking", "device", "style", "out",
                      "output_file", "ranks", "fault"))  # fmt: skip


def _backend_on(device: str | None, backend: str | None) -> str | None:
    """The backend that was asked for, or the usual one on that device; RequestError where its data is elsewhere."""
    if device is None:
        return backend
    if backend is None:
        return default_backend(device)
    if backends.get(backend).device != device:
        usable = ", ".join(other.name for other in backends.every() if other.device == device)
        on = "GPU (gpu)" if device == "cpu" else "host (cpu)"
        raise RequestError(f"--device {device}: {backend} has its data on the {on}. There are: {usable}.")
    return backend


@command("run", _Run)
def run_command(options: _Run) -> None:
    """Measure every case of PLAN in the world that mpirun or torchrun started.

    PLAN is a TOML file, or the name of a plan that comes with collbench (collbench plan lists them).
    The time-out is the plan's unless -T is given.
    """
    places = None if options.placement is None else read_places(options.placement)
    if places is not None:
        bind(places)  # before anything starts a thread
    path = find_plan(options.plan)
    plan = load_plan(path, options.plan)
    if options.output_file is not None and options.output_file.resolve() == path.resolve():
        raise RequestError(f"-J {options.output_file}: would overwrite the plan. Name another file.")
    if click.get_current_context().get_parameter_source("timeout") not in (None, ParameterSource.DEFAULT):
        plan = msgspec.structs.replace(plan, timeout=options.timeout)
    carry_out(plan, options, (), path, places)


@command("demo", OutputOptions)
def demo_command(options: OutputOptions) -> None:
    """Measure the demo plan: under mpirun or torchrun on this machine, else with simulated ranks and times."""
    from importlib.resources import as_file, files  # which every rank of other commands would load

    with as_file(files("collbench.cli") / "demo.toml") as path:
        plan = load_plan(path)
    if launcher.detect().kind == "none":
        click.echo("collbench: no mpirun started this, so ranks and times are simulated. "
                   "For real ones: mpirun -n 2 collbench demo", err=True)  # fmt: skip
        plan = msgspec.structs.replace(plan, backends=("fake",), drivers=("python",))
    carry_out(plan, options)


@command("suite", _Suite, cls=WithCommand)
def suite_command(options: _Suite) -> None:
    """Measure benchmarks of this machine, or a command of yours, without MPI and without an engine.

    NAMES are suites or benchmarks; without any, what there is is listed. PARAMETER=VALUES is a parameter of these
    benchmarks with values between commas: threads=1,2 measures both. linpack.n=500 is a parameter of one of them.

    After `--` stands a command with its flags, which is started as it is: collbench suite -- ./app --steps 100. It
    works in a folder of its own, with copies of the files that it names. Measured is the time from its start to its
    end, or the number that --metric finds in its standard output.
    """
    typed: tuple[str, ...] = click.get_current_context().meta.get(COMMAND, ())
    own = command_benchmark(typed, options)
    if own and options.words and all("=" in word for word in options.words):
        raise RequestError(f"{options.words[0]}: is a parameter of benchmarks, and a command has none of them.")
    if not options.words and own is None:
        _list_suites()
        return
    benchmarks = (*(_benchmarks_of(options.words) if options.words else ()), *((own,) if own else ()))
    keys = {name: getattr(options, name) for name in ("iters", "warmup", "budget", "floor", "timeout", "folder")}
    title = " ".join(("suite", *options.words, *typed))
    plan = Plan(title=title, benchmarks=benchmarks, cap=max(options.floor, USUAL_CAP), **keys)
    source = click.get_current_context().get_parameter_source
    flags = ", ".join(f"--{name}" for name in ("iters", "warmup", "budget", "floor")
                      if source(name) is ParameterSource.COMMANDLINE)  # fmt: skip
    once = [name for name in plan.workloads if workloads.get(name).once]
    carry_out(
        plan, options, (f"ignored: {name} takes one sample, so {flags} means nothing to it." for name in once if flags)
    )


def _benchmarks_of(words: Sequence[str]) -> list[Benchmark]:
    """The benchmarks that names and parameters stand for. RequestError: one of them is unknown."""
    programs = _programs([word for word in words if "=" not in word])
    settings = _parameters(programs, [word for word in words if "=" in word])
    for name in settings:  # it may mean different things to the benchmarks to which it is given
        users: dict[str, list[str]] = {}
        for program in programs:
            for axis in program.axes:
                if axis.name == name:
                    users.setdefault(axis.means, []).append(program.name)
        if len(users) > 1:
            listed = "; ".join(f"{', '.join(those)}: {means}" for means, those in users.items())
            alone = f"{next(iter(users.values()))[0]}.{name}= is that of one benchmark"
            click.echo(f"collbench: {name} means different things ({listed}); {alone}", err=True)
    benchmarks: list[Benchmark] = []
    for program in programs:  # what is given to it alone counts more than what is given to all
        keys = ((name, key) for name in parameters_of(program) for key in (name, f"{program.name}.{name}"))
        benchmarks.append({"name": program.name, **{name: settings[key] for name, key in keys if key in settings}})
    return benchmarks


def _list_suites() -> None:
    for suite, names in workloads.suites().items():
        click.echo(suite)
        for name in names:
            program = workloads.get(name)
            reason = program.missing()
            click.echo(f"  {'yes' if reason is None else 'no '} {name:<17} {program.summary}")
            lines = [] if reason is None else [reason]
            lines += [f"on several ranks: mpirun -n 2 collbench suite {name}, or torchrun"] * program.distributed
            lines += [f"{axis.name}={axis.neutral}: {axis.means}" for axis in program.axes]
            lines += [f"size={','.join(map(str, program.sizes))}"] if program.sizes else []
            for line in lines:
                click.echo(f"      {'':<17} {line}")


def _programs(names: Sequence[str]) -> list[Program]:
    """The benchmarks that these names of suites and benchmarks stand for, each once; RequestError of other names."""
    suites = workloads.suites()
    if not names:
        raise RequestError(f"no benchmark is named. There are the suites {', '.join(suites)}: see collbench suite.")
    chosen: dict[str, None] = {}
    for name in names:
        if name == COMMAND_NAME:
            raise RequestError("a command stands after --, as in: collbench suite -- ./app --steps 100")
        if name not in suites and name not in workloads.names():
            hint = suggestion(name, (*suites, *workloads.names()))
            if "/" in name or shutil.which(name):
                hint = f"A command stands after --: collbench suite -- {name}"
            raise RequestError(f"{name!r} is neither a suite nor a benchmark. {hint}")
        chosen |= dict.fromkeys(suites.get(name, (name,)))
    return [workloads.get(name) for name in chosen]


def _parameters(programs: Sequence[Program], words: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Values by parameter, as typed: `n` of all benchmarks, `linpack.n` of one; RequestError of others, or twice."""
    shared = dict.fromkeys(name for program in programs for name in parameters_of(program))
    known = (*shared, *(f"{program.name}.{name}" for program in programs for name in parameters_of(program)))
    values: dict[str, tuple[str, ...]] = {}
    for word in words:
        name, _, text = word.partition("=")
        if name not in known:
            named = ", ".join(program.name for program in programs)
            hint = suggestion(name, known if "." in name else tuple(shared))
            raise RequestError(f"{word}: {named} has no parameter {name!r}. {hint}")
        if name in values:
            both = ",".join((*values[name], text))
            raise RequestError(f"{word}: {name} is given twice. Write its values between commas: {name}={both}.")
        values[name] = tuple(text.split(","))
    return values


def opened(path: Path, mode: str) -> IO[str]:
    """A file to write to; of a pipe that nobody reads an OSError at once, where open(2) would wait for a reader."""

    def at_once(name: str, flags: int) -> int:
        descriptor = os.open(name, flags | os.O_NONBLOCK, 0o666)
        os.set_blocking(descriptor, True)
        return descriptor

    return open(path, mode, encoding="utf-8", opener=at_once)  # pathlib takes no opener


class TerminalSink:
    """Writes first to disk, then prints, and counts. Every rank has one; only that of rank 0 (`speaks`) writes."""

    def __init__(self, style: str, out: Path | None, output_file: Path | None = None, speaks: bool = True) -> None:
        self._speaks, self._style_name, self._out, self._output_file = speaks, style, out, output_file
        self._style: Style = new_style(style)
        self._document: Style | None = None if output_file is None else new_style("json")
        self._writer: RunWriter | None = None
        self._bar: Any = None
        self._listening = True
        self._lock = threading.RLock()
        self._counts, self._reasons = Counter[str](), dict[str, None]()

    def begin(self, manifest: Manifest, cases: int) -> None:
        """Create the run, print the heading."""
        if self._output_file is not None:  # it is tried before anything is measured
            try:
                opened(self._output_file, "a").close()
            except OSError as error:
                raise RunWriteError(f"-J {self._output_file}: {error.strerror}. Nothing was measured.") from error
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

    def doing(self, what: str) -> None:
        with self._alone():
            if self._writer is not None:
                note_progress(self._writer.directory, what)
            if self._bar is not None:
                self._bar.set_description(what)

    def add(self, record: Record, samples: NDArray[Any] | None) -> None:
        """Write a record, count it, and print what the style has to say of it."""
        with self._alone():
            if self._writer is not None:
                record = self._writer.append(record, samples)
            self._counts[record.status] += 1
            if record.reason is not None:
                self._reasons[record.reason] = None
            if self._document is not None:
                self._document.add(record)
            self._print(self._style.add(record))
            if self._bar is not None:
                self._bar.set_description(record.case.short, refresh=False)
                self._bar.update()

    def finish(self) -> None:
        """Print what is still held, write `-J`, close the run; RunWriteError, Interrupted. Safe to call twice."""
        if not self._speaks:
            return
        with self._alone():
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
        text = f" {counted(n, 'record is', 'records are')} in {where}: collbench show {where}"
        return text if n else " Nothing was recorded."

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
        except BrokenPipeError:  # nobody reads it any more; with a run on disk, or -J, measuring continues
            self._listening = False
            with open(os.devnull, "w") as nowhere:  # noqa: PTH123
                os.dup2(nowhere.fileno(), sys.stdout.fileno())
            if self._writer is None and self._output_file is None:
                text = "standard output was closed; stopping. With --out DIR measuring would continue to disk."
                raise Interrupted(text) from None
        except OSError as error:
            raise RunWriteError(f"standard output: {error.strerror}.") from error

    def verdict(self) -> int:
        """Exit code for what was measured; RequestError where every case was skipped."""
        if self._counts.keys() == {"skipped"}:
            raise RequestError(f"nothing was measured: {'; '.join(self._reasons)}.")
        return 1 if self._counts["failed"] else 0


def carry_out(
    plan: Plan, output: OutputOptions, notices: Iterable[str] = (),
    plan_file: Path | None = None, places: tuple[Place, ...] | None = None,
) -> None:  # fmt: skip
    """Measure a plan, print and keep its records, end with the exit code of what was found.

    `notices` are printed first, unless the plan is refused; errors name the `plan_file`; `places` are those planned.
    """
    check_plan(plan)
    out, output_file = output.out, output.output_file
    if out is not None and output_file is not None and output_file.resolve().is_relative_to(out.resolve()):
        raise RequestError(f"-J {output_file}: is inside --out {out}. Name a file elsewhere.")
    world = WorldSettings(plan["thread_level"], plan.timeout_seconds, output.ranks, output.fault, places=places,
                          turns=output.turns)  # fmt: skip
    with named_in_errors(plan_file):
        experiment = plan_experiment(plan, world, tuple(sys.argv))
    speaks = launcher.detect().rank == 0
    unused = unused_parameters(plan, experiment.identities)
    ignored = (f"ignored: {name} does not use {', '.join(names)} here." for name, names in unused.items())
    for notice in (*notices, *ignored) if speaks else ():
        click.echo(f"collbench: {notice}", err=True)
    sink = TerminalSink(output.style, out, output_file, speaks=speaks)
    try:
        perform(experiment, sink)
    except BaseException as error:
        where = sink.rescue()
        if where and not isinstance(error, RunWriteError):  # which says itself what is on disk
            error.add_note(where)
        raise
    sink.finish()
    raise click.exceptions.Exit(sink.verdict())
