"""Benchmarks of DeepBench: their problems, parameters, and how they are started."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

from collbench.schema.axes import Axis
from collbench.schema.case import Case
from collbench.workloads.gpu.suite import CUPY
from collbench.workloads.program import ALL_CORES, Measure, Program, parameter, threads_of
from collbench.workloads.protocol import figures, notes, started, times, wrong
from collbench.workloads.software import Alternatives, Required, Torch

TABLE = Path(__file__).with_suffix(".toml")

#: Products of a time step with the hidden units: of an LSTM one for each of three gates and the new state.
GATES = {"vanilla": 1, "lstm": 4, "gru": 3}


# A row of a table has a `name`; the `flop` of one operation, of which every pass over a convolution or a network has as
# many; the `elements` of all operands and results that are in memory at once, and those in float64 that are `checked`
# beside them; and `checked_on_host`, whether the check of a GPU's result copies everything to the host.


@dataclass(frozen=True)
class Gemm:
    """C = A B + C, column-major: C is m x n and the sum over k; `forms` has T for a transposed A or B, else N."""

    m: int
    n: int
    k: int
    forms: str

    pattern: ClassVar = re.compile(r"(\d+)x(\d+)x(\d+)_([NT]{2})")
    checked_on_host: ClassVar = True

    @property
    def name(self) -> str:
        """`1760x16x1760_NN`."""
        return f"{self.m}x{self.n}x{self.k}_{self.forms}"

    @property
    def flop(self) -> float:
        return 2.0 * self.m * self.n * self.k

    @property
    def elements(self) -> int:
        return self.m * self.k + self.k * self.n + self.m * self.n

    @property
    def checked(self) -> int:
        """Both factors as bytes, and vectors."""
        return (self.m + self.n) * self.k // 8 + self.m + self.n + self.k


@dataclass(frozen=True)
class Conv:
    """`n` images of `w` x `h` x `c`, and `k` filters of `s` x `r` x `c`; stride and padding are those of both axes."""

    w: int
    h: int
    c: int
    n: int
    k: int
    s: int
    r: int
    stride: int
    pad: int

    pattern: ClassVar = re.compile(r"(\d+)x(\d+)x(\d+)_n(\d+)_k(\d+)_(\d+)x(\d+)_s(\d+)_p(\d+)")
    checked_on_host: ClassVar = False

    @property
    def name(self) -> str:
        """`7x7x512_n8_k512_3x3_s1_p1`."""
        image, filters = f"{self.w}x{self.h}x{self.c}", f"{self.s}x{self.r}"
        return f"{image}_n{self.n}_k{self.k}_{filters}_s{self.stride}_p{self.pad}"

    @property
    def out(self) -> tuple[int, int]:
        """Height and width of a result."""
        height, width = ((size + 2 * self.pad - of_filter) // self.stride + 1
                         for size, of_filter in ((self.h, self.r), (self.w, self.s)))  # fmt: skip
        return height, width

    @property
    def flop(self) -> float:
        """Products with the padding count."""
        height, width = self.out
        return 2.0 * self.n * self.k * height * width * self.c * self.r * self.s

    @property
    def elements(self) -> int:
        """Images, filters and results, each with its gradient."""
        height, width = self.out
        images, results = self.n * self.w * self.h * self.c, self.n * self.k * height * width
        return 2 * (images + self.k * self.c * self.r * self.s + results)

    @property
    def checked(self) -> int:
        """With one image."""
        return replace(self, n=1).elements


@dataclass(frozen=True)
class Rnn:
    """One layer of `cell`, as wide as its input: `h` hidden units, `n` sequences, `t` time steps."""

    cell: str
    h: int
    n: int
    t: int

    pattern: ClassVar = re.compile(r"(vanilla|lstm|gru)_h(\d+)_n(\d+)_t(\d+)")
    checked_on_host: ClassVar = False

    @property
    def name(self) -> str:
        """`gru_h1536_n32_t187`."""
        return f"{self.cell}_h{self.h}_n{self.n}_t{self.t}"

    @property
    def flop(self) -> float:
        """The products with the input and those with the state before; DeepBench has only the latter, half as many."""
        return 4.0 * GATES[self.cell] * self.h**2 * self.n * self.t

    @property
    def elements(self) -> int:
        """Weights and sequences with their gradients, and what a pass forward keeps of every step."""
        weights = 2 * GATES[self.cell] * self.h**2
        return 2 * weights + (4 + 4 * GATES[self.cell]) * self.t * self.n * self.h

    @property
    def checked(self) -> int:
        """With one sequence."""
        return replace(self, n=1).elements


ProblemT = TypeVar("ProblemT", Gemm, Conv, Rnn)


def problem(kind: type[ProblemT], name: str) -> ProblemT:
    """The problem of that name, in the table or not. ValueError: it is none."""
    if (match := kind.pattern.fullmatch(name)) is None:
        raise ValueError(f"{name!r} is no problem such as {next(iter(problems(kind)))}")
    return kind(*(int(word) if word.isdecimal() else word for word in match.groups()))  # type: ignore[arg-type]


def problems(kind: type[ProblemT]) -> Mapping[str, ProblemT]:
    """The table by name, in its order; rows that occur twice once."""
    rows: list[ProblemT] = [kind(*row) for row in table()[kind.__name__.lower()]]
    return MappingProxyType({row.name: row for row in rows})


@cache
def table() -> Mapping[str, list[Any]]:
    """The rows of `gemm`, `conv` and `rnn`, and the elements of `all_reduce`, as they are in the file."""
    return MappingProxyType(tomllib.loads(TABLE.read_text(encoding="utf-8")))


#: Bytes of an element.
PRECISIONS = {"float32": 4, "float16": 2, "bfloat16": 2}


def benchmark(
    kind: type[ProblemT], title: str, summary: str, measures: Sequence[str], *axes: Axis, usual: str, most: float,
    **fields: Any,
) -> Program:  # fmt: skip
    """A benchmark of the problems of one kind: the `usual` one by default, `cpu` those of at most `most` flop."""
    name = kind.__name__.lower()
    names = tuple(problems(kind))
    groups = {"all": names, "cpu": tuple(name for name, row in problems(kind).items() if row.flop <= most)}

    def argv(case: Case, times: int) -> Sequence[str]:
        settings = {axis: case[axis] for axis in ("problem", "precision", "device")}
        more = {axis.name: case[axis.name] for axis in axes}
        threads = threads_of(case["threads"])
        return started("dl.deepbench_programs", name, **settings, threads=threads, times=times, **more)

    def memory(case: Case) -> int:
        row = problem(kind, case["problem"])
        needed = row.elements * PRECISIONS[case["precision"]] + 8 * row.checked
        return needed if case["device"] == "cpu" or row.checked_on_host else 0

    return Program(
        name=f"deepbench_{name}", suite="deepbench", title=title, summary=summary,
        measures=tuple(Measure(measure, lambda case: problem(kind, case["problem"]).flop, "flop")
                       for measure in measures),
        argv=argv, parse=times, verify=wrong, figures=figures, notes=notes, memory=memory,
        axes=(
            parameter("problem", usual, "a row of DeepBench's table, all, or cpu for small ones", among=names,
                      groups=groups),
            parameter("precision", "float32", "the type of elements: float32 (TF32 off), float16 or bfloat16",
                      among=tuple(PRECISIONS)),
            parameter("device", "cpu", "what computes: cpu, or cuda for a GPU", among=("cpu", "cuda"), kind="how"),
            parameter("threads", ALL_CORES, "threads of the processor; 0: as many as cores", least=0, most=4096,
                      kind="how"),
            *axes,
        ),
        **fields,
    )  # fmt: skip


LIBRARIES: dict[str, Required] = {"torch": Torch(), "cupy": CUPY}


def refuses(case: Case) -> str | None:
    if case["blas"] != "cupy":
        return None
    if case["device"] != "cuda":
        return "CuPy computes on GPUs; use device=cuda, or blas=torch"
    return None if case["precision"] == "float32" else "CuPy's gemm has float32; use precision=float32, or blas=torch"


#: Passes that are timed.
_PASSES = ("forward", "backward_data", "backward_weights")

#: By name.
WORKLOADS = {program.name: program for program in (
    benchmark(
        Conv, "DeepBench conv", "convolutions of networks for speech and images, forward and backward", _PASSES,
        usual="7x7x512_n8_k512_3x3_s1_p1", most=2e9, software=(Torch(),),
    ),
    benchmark(
        Gemm, "DeepBench gemm", "products of dense matrices, as training of neural networks has them", ("multiply",),
        parameter("blas", "torch", "what calls the BLAS: torch, or on GPUs cupy", among=tuple(LIBRARIES), kind="how"),
        usual="1760x16x1760_NN", most=2e9, refuses=refuses, alternatives=Alternatives("blas", LIBRARIES),
    ),
    benchmark(
        Rnn, "DeepBench rnn", "recurrent layers (vanilla, LSTM, GRU), forward and backward through time", _PASSES,
        usual="lstm_h512_n16_t25", most=2e10, software=(Torch(),),
    ),
)}  # fmt: skip
