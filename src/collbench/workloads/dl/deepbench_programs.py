"""Benchmarks of DeepBench and their programs: passes of convolutions and recurrent layers, and matrix products.

`python -m collbench.workloads.dl.deepbench_programs conv|gemm|rnn --problem NAME --times N` prints JSON: `ns`, the
times of each pass; `wrong`, `figures` and `notes`.

conv and rnn: `wrong` are results that differ from float64 by more than rounding, and among the figures is the largest
relative error; of rnn also how many kernels a pass forward starts on a GPU, or operators of torch that it executes on a
processor. All images or sequences of the batch are the same, and so are the gradients of their results, so that one of
each is enough for the comparison.

gemm: C = A B + C; `wrong` are rows of all products. Matrices are column-major, and hold integers so small that every
sum is exact in the precision: for a random vector r, C r must be A (B r) plus what was in C before (R. Freivalds,
"Probabilistic machines can use less running time", IFIP 1977). NumPy computes that, with integers, and without a BLAS.
"""

from __future__ import annotations

import argparse
import copy
import math
import re
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from collbench.schema.axes import Axis
from collbench.schema.case import Case
from collbench.units import counted
from collbench.workloads import protocol
from collbench.workloads.dl.suite import START
from collbench.workloads.gpu.suite import CUPY
from collbench.workloads.host.dense import times_vector
from collbench.workloads.program import ALL_CORES, CORE_FLOPS, Measure, Program, parameter, threads_of
from collbench.workloads.protocol import Unusable
from collbench.workloads.software import Alternatives, Required, Torch

TABLE = Path(__file__).with_name("deepbench.toml")

#: Products of a time step with the hidden units: of an LSTM one for each of three gates and the new state.
GATES = {"vanilla": 1, "lstm": 4, "gru": 3}


class DeepBenchProblem:
    """A row of a table.

    It has the `flop` of one operation, of which every pass over a convolution or a network has as many; the `elements`
    of all operands and results that are in memory at once, and those in float64 that are `checked` beside them; and
    `checked_on_host`, whether the check of a GPU's result copies everything to the host.
    """

    #: Its name as its fields make it, and as it is read: a group for each field, in their order.
    form: ClassVar[str]
    pattern: ClassVar[re.Pattern[str]]
    checked_on_host: ClassVar = False

    @property
    def name(self) -> str:
        return self.form.format(**vars(self))


@dataclass(frozen=True)
class Gemm(DeepBenchProblem):
    """C = A B + C, column-major: C is m x n and the sum over k; `forms` has T for a transposed A or B, else N."""

    m: int
    n: int
    k: int
    forms: str

    form: ClassVar = "{m}x{n}x{k}_{forms}"
    pattern: ClassVar = re.compile(r"(\d+)x(\d+)x(\d+)_([NT]{2})")
    checked_on_host: ClassVar = True

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
class Conv(DeepBenchProblem):
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

    form: ClassVar = "{w}x{h}x{c}_n{n}_k{k}_{s}x{r}_s{stride}_p{pad}"
    pattern: ClassVar = re.compile(r"(\d+)x(\d+)x(\d+)_n(\d+)_k(\d+)_(\d+)x(\d+)_s(\d+)_p(\d+)")

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
class Rnn(DeepBenchProblem):
    """One layer of `cell`, as wide as its input: `h` hidden units, `n` sequences, `t` time steps."""

    cell: str
    h: int
    n: int
    t: int

    form: ClassVar = "{cell}_h{h}_n{n}_t{t}"
    pattern: ClassVar = re.compile(r"(vanilla|lstm|gru)_h(\d+)_n(\d+)_t(\d+)")

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
        return protocol.started("dl.deepbench_programs", name, **settings, threads=threads, times=times, **more)

    def memory(case: Case) -> int:
        row = problem(kind, case["problem"])
        needed = row.elements * PRECISIONS[case["precision"]] + 8 * row.checked
        return needed if case["device"] == "cpu" or row.checked_on_host else 0

    def computes(case: Case, times: int) -> float:
        passes = (times + 1) * len(measures) * problem(kind, case["problem"]).flop / CORE_FLOPS
        return START + passes if case["device"] == "cpu" else 0.0

    return Program(
        name=f"deepbench_{name}", suite="deepbench", title=title, summary=summary,
        measures=tuple(Measure(measure, lambda case: problem(kind, case["problem"]).flop, "flop")
                       for measure in measures),
        argv=argv, memory=memory, computes=computes,
        parse=protocol.times, verify=protocol.wrong, figures=protocol.figures, notes=protocol.notes,
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

# Programs ------------------------------------------------------------------------------------------------------------

#: Sums of K products differ from the exact ones by about sqrt(K) u with high probability, where u is the unit roundoff
#: (N. J. Higham, T. Mary, "A New Approach to Probabilistic Rounding Error Analysis", SIAM J. Sci. Comput. 41(5), 2019).
#: This times as much is allowed, for the steps of a recurrent network and for fast algorithms of convolution.
SLACK = 32.0

#: A result that is kept in a shorter type is rounded to it, and so are the states between steps: this times at most.
ROUNDINGS = 32.0


@dataclass(frozen=True)
class Pass:
    """One operation that is timed: `call` gets what `before`, which is not timed, returned, and returns its results.

    `expected` has for each result the value in float64, of one image or sequence, of which all of the batch are the
    same; `batch` is the axis of the results that counts these, None where they are summed. `terms` are the products
    that a value is the sum of.
    """

    call: Callable[[Any], Sequence[Any]]
    expected: Sequence[Any]
    terms: int
    batch: int | None
    before: Callable[[], Any] = lambda: None

    def error(self, results: Sequence[Any]) -> float:
        """The largest difference of any value, relative to the largest one expected; infinite where it is no number."""
        errors: list[float] = []
        for result, expected in zip(results, self.expected, strict=True):
            largest = float(expected.abs().max()) or 1.0  # where all are 0, as what depends on a state of 0 may be
            parts = (result,) if self.batch is None else result.unbind(self.batch)
            errors += [float((part.double() - expected).abs().max()) / largest for part in parts]
        return max(errors) if all(map(math.isfinite, errors)) else math.inf


@dataclass(frozen=True)
class TorchMachine:
    """What computes: torch on a device, in one precision."""

    torch: Any
    device: str = "cpu"
    precision: str = "float32"

    @property
    def dtype(self) -> Any:
        return getattr(self.torch, self.precision)

    def uniform(self, *shape: int) -> Any:
        """Values in [-1, 1), the next ones of torch's generator, rounded to the precision."""
        values = self.torch.rand(shape, device=self.device) * 2 - 1
        return values.to(self.dtype)

    def wait(self) -> None:
        """Until everything that was issued is complete."""
        if self.device == "cuda":
            self.torch.cuda.synchronize()

    def timed(self, call: Callable[[], Any]) -> tuple[int, Any]:
        """Nanoseconds from the call until all that it issued is complete; and what it returned."""
        self.wait()
        began = time.perf_counter_ns()
        result = call()
        self.wait()
        return time.perf_counter_ns() - began, result

    def tolerance(self, terms: int) -> float:
        """The largest relative error of a right result whose values are sums of so many products."""
        rounding: float = self.torch.finfo(self.dtype).eps / 2
        return SLACK * math.sqrt(terms) * 2.0**-24 + ROUNDINGS * rounding  # all are summed in float32

    def sampled(self, passes: Mapping[str, Pass], times: int) -> dict[str, Any]:
        """Nanoseconds of `times` samples of each pass, how many results are wrong, and the largest relative error."""
        ns: dict[str, list[int]] = {name: [] for name in passes}
        wrong, largest = 0, 0.0
        for _ in range(times):
            for name, operation in passes.items():
                inputs = operation.before()
                taken, results = self.timed(lambda: operation.call(inputs))  # noqa: B023 - called at once
                ns[name].append(taken)
                error = operation.error(results)
                wrong += not error <= self.tolerance(operation.terms)
                largest = max(largest, error)
        return {"ns": ns, "wrong": wrong, "figures": {"relative error": largest}}

    def described(self) -> str:
        """`torch 2.13.0, 2 threads`, or with cuDNN and the GPU."""
        torch = self.torch
        if self.device == "cuda":
            return f"torch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, {torch.cuda.get_device_name()}"
        return f"torch {torch.__version__}, {counted(torch.get_num_threads(), 'thread')}"


def opened(flags: argparse.Namespace) -> TorchMachine:
    """The device that the flags name, in float32 without TF32. Unusable: there is none, or it lacks the precision."""
    import torch

    protocol.refuse_without_gpu(torch, flags.device)
    if flags.device == "cuda" and flags.precision == "bfloat16" and not torch.cuda.is_bf16_supported():
        raise Unusable(f"{torch.cuda.get_device_name()} has no bfloat16; use precision=float16")
    torch.set_num_threads(flags.threads)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(1)
    return TorchMachine(torch, flags.device, flags.precision)


# conv ----------------------------------------------------------------------------------------------------------------


def conv_passes(machine: TorchMachine, row: Conv) -> dict[str, Pass]:
    """Forward, and the two gradients by themselves: torch's operator is told which of them to compute."""

    def forward(x: Any, w: Any) -> Any:
        return machine.torch.nn.functional.conv2d(x, w, None, row.stride, row.pad)

    height, width = row.out
    x, g = machine.uniform(1, row.c, row.h, row.w), machine.uniform(1, row.k, height, width)
    w = machine.uniform(row.k, row.c, row.r, row.s)
    batch = x.repeat(row.n, 1, 1, 1), w, g.repeat(row.n, 1, 1, 1)
    exact = x.double(), w.double(), g.double()
    y = forward(*exact[:2])
    dx, dw = backward(machine, row, *exact, data=True)[0], backward(machine, row, *exact, data=False)[1]
    return {
        "forward": Pass(lambda _: (forward(*batch[:2]),), (y[0],), row.c * row.r * row.s, 0),
        "backward_data": Pass(
            lambda _: (backward(machine, row, *batch, data=True)[0],), (dx[0],), row.k * row.r * row.s, 0),
        "backward_weights": Pass(
            lambda _: (backward(machine, row, *batch, data=False)[1],), (dw * row.n,), row.n * height * width, None),
    }  # fmt: skip


def backward(machine: TorchMachine, row: Conv, x: Any, w: Any, g: Any, *, data: bool) -> Any:
    """Gradients of the images and of the filters, of which only one is computed."""
    sides = [row.stride] * 2, [row.pad] * 2, [1, 1]
    mask = [data, not data, False]
    return machine.torch.ops.aten.convolution_backward(g, x, w, None, *sides, False, [0, 0], 1, mask)


# rnn -----------------------------------------------------------------------------------------------------------------


def layer_of(machine: TorchMachine, row: Rnn) -> Any:
    """Its weights are random, small enough that states and gradients die away in time."""
    cell = {"vanilla": "RNN", "lstm": "LSTM", "gru": "GRU"}[row.cell]
    return getattr(machine.torch.nn, cell)(row.h, row.h).to(machine.device, machine.dtype)


def rnn_passes(machine: TorchMachine, row: Rnn, layer: Any) -> dict[str, Pass]:
    """Forward, and the two gradients, each by autograd from a pass forward of its own, which is not timed."""
    x, g = (machine.uniform(row.t, 1, row.h) for _ in range(2))
    exact, exact_x = copy.deepcopy(layer).double(), x.double().requires_grad_()  # one sequence in float64
    exact_y = exact(exact_x)[0]
    dx, *dw = machine.torch.autograd.grad(exact_y, (exact_x, *exact.parameters()), g.double())
    all_x, all_g = (values.repeat(1, row.n, 1) for values in (x, g))
    all_x.requires_grad_()
    weights = tuple(layer.parameters())

    def forward() -> Any:
        return layer(all_x)[0]

    def gradients(of: tuple[Any, ...]) -> Callable[[Any], Any]:
        return lambda result: machine.torch.autograd.grad(result, of, all_g)

    expected = tuple(gradient * row.n for gradient in dw)
    return {
        "forward": Pass(lambda _: (forward().detach(),), (exact_y.detach()[:, 0],), 2 * row.h, 1),
        "backward_data": Pass(gradients((all_x,)), (dx[:, 0],), 2 * GATES[row.cell] * row.h, 1, forward),
        "backward_weights": Pass(gradients(weights), expected, row.n * row.t, None, forward),
    }


def operations(machine: TorchMachine, call: Callable[[], Any]) -> dict[str, int]:
    """`kernels` that a call starts on a GPU, copies among them; or torch's `operators` that call no other ones."""
    profiler, on_gpu = machine.torch.profiler, machine.device == "cuda"
    activity = profiler.ProfilerActivity.CUDA if on_gpu else profiler.ProfilerActivity.CPU
    with profiler.profile(activities=[activity]) as profile:
        call()
        machine.wait()
    if on_gpu:
        gpu = machine.torch.autograd.DeviceType.CUDA
        return {"kernels": sum(event.device_type == gpu for event in profile.events())}
    return {"operators": sum(not event.cpu_children for event in profile.events())}


# gemm ----------------------------------------------------------------------------------------------------------------

Whole = npt.NDArray[np.integer[Any]]

#: Up to this every integer is exact.
EXACT = {"float32": 2**24, "float16": 2**11, "bfloat16": 2**8}

#: What is in C before.
BEFORE = 1


class OfTorch:
    """torch on any device."""

    def __init__(self, machine: TorchMachine) -> None:
        self._machine, self.described = machine, machine.described

    def matrix(self, values: Whole) -> Any:
        """A column-major matrix on the device."""
        host = self._machine.torch.from_numpy(np.asfortranarray(values, np.float32))
        return host.to(self._machine.device, self._machine.dtype)

    def multiply(self, a: Any, b: Any, c: Any, forms: str) -> int:
        """Add the product of a and b, transposed where `forms` has a T, to c. Returns nanoseconds."""
        a, b = (matrix.T if form == "T" else matrix for matrix, form in zip((a, b), forms, strict=True))
        return self._machine.timed(lambda: c.addmm_(a, b))[0]

    def values(self, matrix: Any) -> npt.NDArray[np.float32]:
        values: npt.NDArray[np.float32] = matrix.float().cpu().numpy()
        return values


class OfCupy:
    """cuBLAS as CuPy calls it, with the methods of `OfTorch`."""

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy

    def matrix(self, values: Whole) -> Any:
        return self._cupy.asarray(np.asfortranarray(values, np.float32), order="F")

    def multiply(self, a: Any, b: Any, c: Any, forms: str) -> int:
        from cupy.cublas import gemm

        wait = self._cupy.cuda.get_current_stream().synchronize
        wait()
        began = time.perf_counter_ns()
        gemm(*forms, a, b, out=c, alpha=1.0, beta=1.0)
        wait()
        return time.perf_counter_ns() - began

    def values(self, matrix: Any) -> npt.NDArray[np.float32]:
        values: npt.NDArray[np.float32] = self._cupy.asnumpy(matrix)
        return values

    def described(self) -> str:
        name = self._cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
        return f"CuPy {self._cupy.__version__}, {name}"


def signs(random: np.random.Generator, shape: tuple[int, int], share: float) -> Whole:
    """1 and -1, of which only this share is left; the others are 0."""
    values = 2 * random.integers(0, 2, shape, np.int8) - np.int8(1)
    if share < 1:
        values *= random.random(shape, np.float32) < share
    return values


def products(library: OfTorch | OfCupy, row: Gemm, precision: str, times: int) -> dict[str, Any]:
    """Nanoseconds of `times` products, and the wrong rows of all. Before each, C is as it was at the beginning."""
    random = np.random.default_rng(1)
    share = min(1.0, EXACT[precision] / 16 / math.sqrt(row.k))  # a sum of signs stays within 16 standard deviations
    a, b = signs(random, (row.m, row.k), share), signs(random, (row.k, row.n), share)
    r = random.integers(1, 1024, row.n)
    expected = times_vector(a, times_vector(b, r)) + BEFORE * r.sum()  # type: ignore[arg-type]
    first, second = (library.matrix(values.T if form == "T" else values)
                     for values, form in zip((a, b), row.forms, strict=True))  # fmt: skip
    ns, wrong = [], 0
    c = library.matrix(np.full((row.m, row.n), BEFORE, np.int8))
    for _ in range(times):
        c[:] = BEFORE
        ns.append(library.multiply(first, second, c, row.forms))
        product = times_vector(library.values(c), r.astype(np.float64))  # type: ignore[arg-type]
        wrong += int((product != expected).sum())
    return {"ns": {"multiply": ns}, "wrong": wrong, "figures": {}}


def library_of(flags: argparse.Namespace) -> OfTorch | OfCupy:
    """What the flags name. Unusable: it cannot be used here."""
    if flags.blas == "torch":
        return OfTorch(opened(flags))
    import cupy

    try:
        cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise Unusable(f"CuPy {cupy.__version__} finds no GPU that it can use: {error}") from error
    return OfCupy(cupy)


def conv(flags: argparse.Namespace) -> dict[str, Any]:
    machine = opened(flags)
    result = machine.sampled(conv_passes(machine, problem(Conv, flags.problem)), flags.times)
    return result | {"notes": [machine.described()]}


def gemm(flags: argparse.Namespace) -> dict[str, Any]:
    library = library_of(flags)
    result = products(library, problem(Gemm, flags.problem), flags.precision, flags.times)
    return result | {"notes": [library.described()]}


def rnn(flags: argparse.Namespace) -> dict[str, Any]:
    machine, row = opened(flags), problem(Rnn, flags.problem)
    passes = rnn_passes(machine, row, layer_of(machine, row))
    result = machine.sampled(passes, flags.times)
    result["figures"] |= operations(machine, lambda: passes["forward"].call(None))
    note = "the weights' gradients run through time too, as autograd computes them"
    return result | {"notes": [machine.described(), note]}


RUNS = {"conv": conv, "gemm": gemm, "rnn": rnn}


def print_result(flags: argparse.Namespace, run: Callable[[argparse.Namespace], dict[str, Any]]) -> None:
    """Print the result of `run` as JSON; exit code 77 where it cannot be had here, 1 where memory is too small."""

    def result() -> dict[str, Any]:
        try:
            return run(flags)
        except RuntimeError as error:
            message = str(error).strip().partition("\n")[0]
            if isinstance(error, NotImplementedError) or "not implemented for" in message:  # no kernel for that type
                raise Unusable(f"{flags.precision} on {flags.device}: {message}") from error
            raise

    protocol.printed(result, flags.problem, "a smaller problem")


def main() -> None:
    flags = protocol.arguments(__doc__, {name: WORKLOADS[f"deepbench_{name}"] for name in RUNS})
    print_result(flags, RUNS[flags.name])


if __name__ == "__main__":
    main()
