"""What the benchmarks of DeepBench have in common: their parameters, how they are started, and what they print."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

from collbench.schema.axes import Axis
from collbench.schema.case import Case
from collbench.workloads._deepbench_problems import Row, problem, problems, up_to
from collbench.workloads.parameters import ALL_CORES, parameter, threads_of
from collbench.workloads.program import Measure, Program

PROGRAMS = "collbench.workloads.programs"

#: Bytes of an element.
PRECISIONS = {"float32": 4, "float16": 2, "bfloat16": 2}

_COMMON = (
    parameter(
        "precision", "float32", "the type of elements: float32 (TF32 off), float16 or bfloat16", among=tuple(PRECISIONS)
    ),
    parameter("device", "cpu", "what computes: cpu, or cuda for a GPU", among=("cpu", "cuda"), kind="how"),
    parameter(
        "threads", ALL_CORES, "threads of the processor; 0: as many as cores", least=0, most=4096, kind="how"
    ),
)  # fmt: skip


def benchmark(
    kind: type[Row], title: str, summary: str, measures: Sequence[str], *axes: Axis, usual: str, most: float,
    flags: Callable[[Case], Sequence[str]] = lambda case: (), **fields: Any,
) -> Program:  # fmt: skip
    """A benchmark of the problems of one kind: the `usual` one by default, `cpu` those of at most `most` flop."""
    name = f"deepbench_{kind.__name__.lower()}"
    names = tuple(problems(kind))
    groups = {"all": names, "cpu": up_to(kind, most)}
    which = parameter("problem", usual, "a row of DeepBench's table, all, or cpu for small ones", among=names,
                      groups=groups)  # fmt: skip

    def argv(case: Case, times: int) -> Sequence[str]:
        settings = {"problem": case["problem"], "precision": case["precision"], "device": case["device"],
                    "threads": threads_of(case["threads"]), "times": times}  # fmt: skip
        words: list[str] = [word for flag, value in settings.items() for word in (f"--{flag}", str(value))]
        return (sys.executable, "-m", f"{PROGRAMS}.{name}", *words, *flags(case))

    def memory(case: Case) -> int:
        row = problem(kind, case["problem"])
        needed = row.elements * PRECISIONS[case["precision"]] + 8 * row.checked
        return needed if case["device"] == "cpu" or row.checked_on_host else 0

    def parse(output: str) -> dict[str, list[float]]:
        return {measure: [ns * 1e-9 for ns in taken] for measure, taken in json.loads(output)["ns"].items()}

    return Program(
        name=name,
        suite="deepbench",
        title=title,
        summary=summary,
        measures=tuple(
            Measure(measure, lambda case: problem(kind, case["problem"]).flop, "flop") for measure in measures
        ),
        argv=argv,
        parse=parse,
        verify=lambda case, output: int(json.loads(output)["wrong"]),
        figures=lambda case, output: json.loads(output)["figures"],
        notes=lambda output: tuple(json.loads(output)["notes"]),
        memory=memory,
        axes=(which, *_COMMON, *axes),
        **fields,
    )
