"""A run beside a paper: the papers that there are, and a verdict on each conclusion of one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from importlib.resources import files

from collbench.analysis.compare import MARGIN
from collbench.analysis.observations import Observed
from collbench.analysis.paper.judgement import FINDINGS
from collbench.analysis.paper.reference import Paper, ProgramsPaper, decode
from collbench.errors import RequestError
from collbench.report import paper_collectives, paper_programs
from collbench.report.tables import Table
from collbench.spelling import nearest_and_all

_FOLDER = files("collbench.report") / "reference"


def papers() -> list[str]:
    """The references of the papers whose figures come with the program."""
    return sorted(entry.name.removesuffix(".json") for entry in _FOLDER.iterdir() if entry.name.endswith(".json"))


def paper(reference: str) -> Paper:
    """What a paper published.

    Raises:
        RequestError: no such paper.
    """
    known = papers()
    if reference not in known:
        raise RequestError(f"--against {reference}: no such paper. {nearest_and_all(reference, known)}")
    return decode((_FOLDER / f"{reference}.json").read_bytes())


def beside(observed: Observed, published: Paper, margin: float = MARGIN) -> tuple[list[str], list[Table]]:
    """The verdicts in lines, one for each conclusion, and the tables: conclusions, figures, assumptions.

    The margin is for papers on collectives; other papers bound each conclusion.

    Raises:
        RequestError: nothing of the paper's experiment is in the run.
    """
    if isinstance(published, ProgramsPaper):
        return paper_programs.beside(observed, published)
    return paper_collectives.beside(observed, published, margin)


def tallies(observed: Observed, published: Paper, lines: Sequence[str], margin: float = MARGIN) -> str:
    """How many conclusions have which verdict: of collectives at each step that was measured, else of the `lines`."""
    if isinstance(published, ProgramsPaper):
        return tally(lines)
    numbers = {step: Counter(one.finding for one in judged)
               for step, judged in paper_collectives.by_step(observed, margin).items()}  # fmt: skip
    return "; ".join(
        f"at step {step} {', '.join(f'{found[finding]} {finding}' for finding in FINDINGS if found[finding])}"
        for step, found in numbers.items()
    )


def tally(lines: Sequence[str]) -> str:
    """How many conclusions have which verdict, of the lines of `beside`."""
    numbers = {finding: sum(f" {finding.upper()}: " in line for line in lines) for finding in FINDINGS}
    return ", ".join(f"{number} {finding}" for finding, number in numbers.items() if number)
