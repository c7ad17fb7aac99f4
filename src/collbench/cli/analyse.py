"""What the commands that read runs have in common, and `show`, `advise`, `model`, `report` and `pack`.

What a command alone needs is imported when it runs: `show` needs little of it.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from collbench.analysis.factors import normalised
from collbench.analysis.options import FACTORS
from collbench.analysis.runs import Flaw, Observed, refuse_same, runs_in, shortage, sources
from collbench.analysis.sides import read_run
from collbench.cli import options as flags
from collbench.errors import RequestError, RunWriteError, in_lines
from collbench.report import STYLES, new_style
from collbench.report.caveats import flaw_text
from collbench.report.tables import FORMATS, Table, csv_text, in_columns, latex, markdown, terminal
from collbench.schema.files import escaped
from collbench.schema.manifest import Manifest, read_manifest
from collbench.schema.record import Record
from collbench.schema.store import RecordStream
from collbench.units import parse_size

if TYPE_CHECKING:
    from collbench.analysis.predictions import PredictionQuestion, TrainingStep
    from collbench.report.models import Answers
    from collbench.report.page.render import Chapter, Figure

COMPLETE = ("csv", "latex")  #: Styles with every table; those for people begin with the answer.
STYLE = flags.option("--style", "How to print it.", type=click.Choice([*FORMATS, "json"]), default="table")

#: What is not among the options that are compared.
_FIXED = flags.option("--given", f"What cannot be chosen, such as policy=single. Can be repeated. Factors: {', '.join(FACTORS)}; or an axis, such as size=1M.", "FACTOR=VALUE", multiple=True)  # fmt: skip


def read(path: Path) -> Observed:
    """A run, or a folder of runs of which each is one launch of the same, else RequestError; flaws go to stderr."""
    with flags.waiting_for(f"reading {path}"):
        observed = read_run(path)
    for flaw in observed.flaws:
        flags.note(f"collbench: {flaw_text(flaw)}.")
    return observed


def read_each(paths: Sequence[Path], of_plans: bool = False) -> list[Observed]:
    """As `read`, of several; RequestError also where two of them hold the same launches.

    `of_plans`: of a folder with runs of several plans each is one of them.
    """
    observed = [read(run) for path in paths for run in (_with_records(path) if of_plans else (path,))]
    refuse_same(sources(*observed))
    return observed


def _with_records(path: Path) -> list[Path]:
    """The runs of several plans in a folder, or the path; those that have no records are named and left out."""
    runs = runs_in(path)
    empty = [run for run in runs if len(runs) > 1 and next(iter(RecordStream(run)), None) is None]
    for run in empty:
        flags.note(f"collbench: {flaw_text(Flaw('no records', run))}.")
    return [run for run in runs if run not in empty]


def names(texts: Sequence[str]) -> frozenset[str]:
    """Names of factors as typed: in several options, or with commas between them."""
    return frozenset(normalised(name.strip()) for text in texts for name in text.split(","))


def print_tables(tables: Sequence[Table], document: Any, style: str) -> None:
    """Print tables in a style, or the document as JSON. CSV has no room for notes: they go to stderr."""
    text = FORMATS[style](tables) if style != "json" else _json(document)
    sys.stdout.write(in_lines(text if text.endswith("\n") else text + "\n"))
    if style == "csv":
        for line in dict.fromkeys(line for table in tables for line in table.notes):
            flags.note(f"* {line}")


def _json(document: Any) -> str:
    try:
        encoded = msgspec.json.encode(document)
    except UnicodeEncodeError:  # names of files whose bytes are no text
        encoded = msgspec.json.encode(escaped(msgspec.to_builtins(document, str_keys=True)))
    return msgspec.json.format(encoded).decode()


def refuse_folder(output: Path) -> None:
    """RequestError where the file could not be written: before anything is computed, which may take a minute."""
    folder = output.parent
    if not folder.is_dir():
        raise RequestError(f"-o {output}: there is no folder {folder}.")
    if not os.access(folder, os.W_OK):
        raise RequestError(f"-o {output}: the folder {folder} cannot be written to. Name another.")
    if output.is_dir():
        raise RequestError(f"-o {output}: is a folder. Name a file.")


def write(path: Path, text: str | bytes) -> str:
    """Completely or not at all, else RunWriteError: what is there stays until the new file is complete. Its size."""
    data = text if isinstance(text, bytes) else in_lines(text).encode("utf-8", errors="backslashreplace")
    half = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        half.write_bytes(data)
        half.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            half.unlink(missing_ok=True)
        raise RunWriteError(f"-o {path}: {error.strerror}.") from error
    return amount(len(data))


def amount(size: int) -> str:
    """`0.4 MB`, of less than a tenth of that `27 kB`."""
    return f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{math.ceil(size / 1e3)} kB"


# show ----------------------------------------------------------------------------------------------------------------


class _ShowOptions(flags.Options):
    directory: Path = flags.RUN
    style: str = flags.option("--style", "How to print it.", type=click.Choice(list(STYLES)), default="table")


@flags.command("show", _ShowOptions)
def show_command(options: _ShowOptions) -> None:
    """Print the run in DIRECTORY; of one of several launches what they took, cell by cell."""
    directory = options.directory
    manifest, stream = read_manifest(directory), RecordStream(directory)
    records = iter(stream)
    first = next(records, None)
    if first is not None:
        _print_run(directory, manifest, chain((first,), records), options.style)
    if stream.truncated:
        flags.note(f"collbench: {flaw_text(Flaw('cut off', directory))}.")
    if first is None:
        raise RequestError(f"{directory}: no records in it.")


def _print_run(directory: Path, manifest: Manifest, records: Iterable[Record], style: str) -> None:
    from collbench.analysis.results import cells_of
    from collbench.report.caveats import shortage_text
    from collbench.report.cells import launch_tables
    from collbench.report.remarks import slowest_hosts, slowest_of

    if manifest.experiment is not None and style == "table":
        slowest: list[tuple[str, float, str]] = []

        def noted(record: Record) -> Record:
            slowest.extend(filter(None, (slowest_of(record),)))
            return record

        cells = cells_of(map(noted, records), manifest)
        hosts = "".join(in_columns(line, "* ", "  ") + "\n" for line in slowest_hosts(slowest))
        sys.stdout.write(in_lines(terminal(launch_tables(cells)) + hosts))
        lacking = shortage(directory, manifest, cells.values())
        if lacking.cells:
            flags.note(f"collbench: {shortage_text(lacking)}.")
        return
    printer = new_style(style)
    sys.stdout.write(in_lines(printer.begin(manifest)))
    for record in records:
        sys.stdout.write(in_lines(printer.add(record)))
    sys.stdout.write(in_lines(printer.end()))


# advise --------------------------------------------------------------------------------------------------------------


class _AdviseOptions(flags.Options):
    runs: tuple[Path, ...] = flags.RUNS
    fixed: tuple[str, ...] = _FIXED
    margin: float = flags.MARGIN
    ignored: tuple[str, ...] = flags.several(
        "--ignore", "Combine several runs although this fact of the environment differs.", "FACTOR"
    )
    in_blocks: bool = flags.IN_BLOCKS
    why: bool = flags.switch("--why", "Also the evidence: what every option costs at every size.")
    style: str = STYLE


@flags.command("advise", _AdviseOptions)
def advise_command(options: _AdviseOptions) -> None:
    """For each operation, range of sizes and number of ranks: what to take, and what other choices cost.

    Several runs of one machine are taken together: the libraries in which they differ are choices.
    """
    from collbench.analysis.advise import advise, check_guidelines
    from collbench.analysis.compare import compare, planned
    from collbench.analysis.options import differing, fixed_cells, merged, parse_fixed, questions
    from collbench.analysis.pairs import refuse_not_alternated
    from collbench.report.advice import brief, cautions, chosen, complete, document, evidence, rivals, with_answers

    each, margin, style = read_each(options.runs), options.margin, options.style
    for other in each[1:] if options.in_blocks else ():
        refuse_not_alternated(each[0], other)
    with flags.waiting_for("comparing options"):
        observed = merged(each, names(options.ignored), options.in_blocks)
        fixed = parse_fixed(options.fixed, observed.cells)
        remaining = fixed_cells(observed, fixed)
        sides = planned(remaining, margin)
        advices = complete(advise(questions(observed, fixed), observed.interleaved, margin), observed.interleaved)
        guidelines = check_guidelines(observed, margin)
        misleading = cautions(advices, observed, sides, differing(each))
        against = compare(rivals(advices), margin, observed.interleaved)
    choices = chosen(each, remaining.cells.values())
    answers = brief(advices, misleading, against, options.why or style in COMPLETE, choices)
    tables = evidence(advices, guidelines)
    shown = with_answers(tables, answers) if style in COMPLETE else [*answers, *(tables if options.why else ())]
    print_tables(shown, document(advices, guidelines, misleading), style)


# model ---------------------------------------------------------------------------------------------------------------

MOST_RANKS = 1 << 24  #: The most ranks in a prediction.
_POINT = re.compile(r"ranks\s*=\s*(?P<ranks>[0-9]{1,10})(?:\s*,\s*bytes\s*=\s*(?P<bytes>[^,=\s]+))?")


class _ModelOptions(flags.Options):
    runs: tuple[Path, ...] = flags.RUNS
    points: tuple[str, ...] = flags.several(
        "--predict", "Predict the time of a number of ranks and a size, such as ranks=64,bytes=1G.", "POINT"
    )
    collectives: tuple[str, ...] = flags.several("--collective", "Only this collective.", "NAME")
    every: bool = flags.switch("--all", "Every table and every remark.")
    style: str = STYLE


@flags.command("model", _ModelOptions)
def model_command(options: _ModelOptions) -> None:
    """Fit latency, bandwidth and algorithm to a run, judge the fit, and predict: collbench model RUN.

    A run is a folder that --out or launch wrote, or a folder of such folders, each of them one launch. Several runs are
    modelled one after the other.
    """
    from collbench import collectives
    from collbench.report.models import brief, document, sentence, step_cautions, step_grid, step_tables, tables

    questions = [parse_point(text) for text in options.points]
    selected = frozenset(collectives.get(name).name for name in options.collectives)
    shown: list[Table] = []
    documents = []
    for observed in read_each(options.runs):
        answers, steps = _modelled(observed, selected, questions)
        if options.style in COMPLETE:
            part = [*tables(answers), *step_tables(steps)]
        elif options.every:
            part = [Table(sentence(answers), (), ()), *tables(answers, narrow=True), *step_tables(steps)]
        else:
            part = brief(answers, step_grid(steps), step_cautions(steps))
        several_runs = len(options.runs) > 1
        shown += [replace(table, title=f"{answers.name}: {table.title}") for table in part] if several_runs else part
        documents.append(document(answers, steps))
    print_tables(shown, {"runs": documents}, options.style)


def _modelled(
    observed: Observed, selected: frozenset[str], questions: Sequence[PredictionQuestion]
) -> tuple[Answers, Sequence[TrainingStep]]:
    from collbench.analysis.models import Model, Unfit, model, series
    from collbench.analysis.predictions import COLLECTIVE, Prediction, Refusal, answers, training_steps
    from collbench.report.models import Answers, reason, why_unfit

    def listed(reasons: Iterable[str]) -> str:
        return "".join(f"\n  {reason}" for reason in dict.fromkeys(reasons))

    measured = {case.workload for case in observed.cells}
    for name in sorted(selected - measured):
        raise RequestError(f"--collective {name}: not in {observed.name}, which has {', '.join(sorted(measured))}.")
    # of a run without collectives those of its programs, which say why they have no model
    of_ranks = {case: cell for case, cell in observed.cells.items() if case["backend"]} or observed.cells
    fits = tuple(map(model, series(replace(observed, cells=of_ranks), selected)))
    if not any(isinstance(fit, Model) for fit in fits):
        reasons = listed(why_unfit(fit) for fit in fits if isinstance(fit, Unfit))
        raise RequestError(f"{observed.name}: nothing can be modelled.{reasons}")
    answered = [answer for question in questions for answer in answers(observed, fits, question)]
    predictions = tuple(answer for answer in answered if isinstance(answer, Prediction))
    refusals = tuple(answer for answer in answered if isinstance(answer, Refusal))
    if questions and not predictions:
        missing = " --predict needs bytes=SIZE for collectives that move data."
        raise RequestError(f"{observed.name}: nothing can be predicted.{listed(map(reason, refusals)) or missing}")
    simulated = any(manifest.simulated for manifest in observed.manifests)
    steps = training_steps(observed, fits) if not selected or COLLECTIVE in selected else ()
    return Answers(observed.name, fits, predictions, refusals, simulated), steps


def parse_point(text: str) -> PredictionQuestion:
    """The question of `ranks=64,bytes=1G` (else RequestError); without bytes of collectives that move no data."""
    from collbench.analysis.predictions import PredictionQuestion

    match = _POINT.fullmatch(text.strip())
    if match is None or not 2 <= int(match["ranks"]) <= MOST_RANKS:
        raise RequestError(f"--predict {text!r}: write ranks=64,bytes=1G, with 2 to {MOST_RANKS} ranks.")
    return PredictionQuestion(int(match["ranks"]), parse_size(match["bytes"]) if match["bytes"] else None)


# report --------------------------------------------------------------------------------------------------------------

FIGURES = (".svg", ".pdf")  #: What a single figure is written as.

#: What tables are written as, by the suffix of the file's name.
_TABLES: dict[str, Callable[[list[Table]], str]] = {".md": markdown, ".csv": csv_text, ".tex": latex, ".txt": terminal}


class _ReportOptions(flags.Options):
    runs: tuple[Path, ...] = flags.RUNS
    output: Path = flags.option("-o --output", "The file to write; its suffix chooses the format: .html, .md, .csv, .tex, .txt.", "FILE", type=flags.PATH, default="report.html")  # fmt: skip
    against: str | None = flags.option("--against", "Put the runs beside this paper (choi2021, xu2017, ...), with a verdict on each of its conclusions.", "PAPER")  # fmt: skip
    figure: str | None = flags.option("--figure", "Write this figure alone, as .svg or .pdf: its number or part of its title.", "NAME")  # fmt: skip
    fixed: tuple[str, ...] = _FIXED
    margin: float = flags.MARGIN


@flags.command("report", _ReportOptions)
def report_command(options: _ReportOptions) -> None:
    """Write a report on RUNS as one HTML file that needs no network; or its tables as Markdown, CSV or LaTeX.

    Several runs have a chapter each and are not compared with each other: that does `collbench compare A B`. Beside a
    paper they are judged together, in a chapter of its own.
    """
    from collbench import workloads
    from collbench.analysis.options import parse_fixed
    from collbench.report.page.contents import chapter, paper_chapter
    from collbench.report.page.render import as_file, html
    from collbench.report.paper import beside, paper

    output, figure, margin = options.output, options.figure, options.margin
    kind = output.suffix.lower()
    if figure is not None and kind not in FIGURES:
        raise RequestError(f"-o {output}: --figure writes one figure. The name must end in {' or '.join(FIGURES)}.")
    if figure is None and kind in FIGURES:
        raise RequestError(f"-o {output}: name the figure by --figure: its number, or part of its title.")
    if kind not in (".html", ".htm", *_TABLES, *FIGURES):
        raise RequestError(f"-o {output}: unknown format. The name must end in .html, {', '.join(_TABLES)}.")
    refuse_folder(output)
    published = paper(options.against) if options.against else None
    observed = read_each(options.runs, of_plans=published is not None)
    fixed = parse_fixed(options.fixed, [case for run in observed for case in run.cells])
    suites = {name: suite for suite, members in workloads.suites().items() for name in members}
    with flags.waiting_for(f"writing {output}"):
        chapters = [paper_chapter(published.reference, beside(observed, published, margin))] if published else []
        pages = kind not in _TABLES
        chapters += [chapter(run, fixed, margin, number, pages, suites) for number, run in enumerate(observed)]
        if figure is not None:
            size = write(output, as_file(_figure(chapters, figure), kind[1:]))
        elif pages:
            size = write(output, html(chapters))
        else:
            size = write(output, _TABLES[kind](_tables(chapters)))
    flags.say(f"{output}: {size}")


def _figure(chapters: Sequence[Chapter], name: str) -> Figure:
    """The figure of this number, or the only one with these words in its title; RequestError where there is none."""
    figures: list[Figure] = []
    for run in chapters:
        figures += run.picture
        figures += (figure for section in run.sections for figure in (*section.figures, *section.folded))
    if name.isdecimal() and 0 < int(name) <= len(figures):
        return figures[int(name) - 1]
    chosen = [figure for figure in figures if name.lower() in figure.title.lower()]
    if len(chosen) == 1:
        return chosen[0]
    wrong = f"{len(chosen)} figures have these words in their titles"
    wrong = wrong if chosen else "no figure has this number or title"
    listed = "".join(f"\n  {number}  {figure.title}" for number, figure in enumerate(figures, 1))
    raise RequestError(f"--figure {name!r}: {wrong}. {'There are:' + listed if listed else 'There is none.'}")


def _tables(chapters: Iterable[Chapter]) -> list[Table]:
    listed: list[Table] = []
    for run in chapters:
        lines = (*(("answer", line) for line in run.answer), *(("what could mislead", line) for line in run.misleading))
        of_sections = (table for section in run.sections for table in (*section.tables, *section.folded_tables))
        listed += (Table(run.question, ("what", "line"), lines), *of_sections, *run.environment)
    return listed
