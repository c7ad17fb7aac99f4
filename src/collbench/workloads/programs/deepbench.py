"""What DeepBench's programs have in common: flags, the device, passes that are timed and compared with float64."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from collbench.workloads.programs.ending import Unusable, printed, refuse_without_gpu

#: Sums of K products differ from the exact ones by about sqrt(K) u with high probability, where u is the unit roundoff
#: (N. J. Higham, T. Mary, "A New Approach to Probabilistic Rounding Error Analysis", SIAM J. Sci. Comput. 41(5), 2019).
#: This times as much is allowed, for the steps of a recurrent network and for fast algorithms of convolution.
SLACK = 32.0

#: Of float32, in which all three precisions are summed.
ROUNDOFF = 2.0**-24

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
        pairs = zip(results, self.expected, strict=True)
        found = [_apart(part, expected) for result, expected in pairs for part in self._parts(result)]
        return max(found) if all(map(math.isfinite, found)) else math.inf

    def _parts(self, result: Any) -> Iterable[Any]:
        return (result,) if self.batch is None else result.unbind(self.batch)


def _apart(value: Any, expected: Any) -> float:
    """Relative to the largest value; where all are 0, as what depends on a state of 0 may be, by itself."""
    largest = float(expected.abs().max())
    return float((value.double() - expected).abs().max()) / (largest or 1.0)


@dataclass(frozen=True)
class Machine:
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
        return SLACK * math.sqrt(terms) * ROUNDOFF + ROUNDINGS * rounding

    def sampled(self, passes: Mapping[str, Pass], times: int) -> dict[str, Any]:
        """Nanoseconds of `times` samples of each pass, how many results are wrong, and the largest relative error."""
        ns: dict[str, list[int]] = {name: [] for name in passes}
        wrong, largest = 0, 0.0
        for _ in range(times):
            for name, one in passes.items():
                given = one.before()
                taken, results = self.timed(lambda: one.call(given))  # noqa: B023 - called at once
                ns[name].append(taken)
                error = one.error(results)
                wrong += not error <= self.tolerance(one.terms)
                largest = max(largest, error)
        return {"ns": ns, "wrong": wrong, "figures": {"relative error": largest}}

    def described(self) -> str:
        """`torch 2.13.0, 2 threads`, or with cuDNN and the GPU."""
        torch = self.torch
        if self.device == "cuda":
            return f"torch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, {torch.cuda.get_device_name()}"
        threads = torch.get_num_threads()
        return f"torch {torch.__version__}, {threads} thread{'s' * (threads != 1)}"


def opened(flags: argparse.Namespace) -> Machine:
    """The device that the flags name, in float32 without TF32.

    Raises:
        Unusable: there is no such device, or it lacks the precision.
    """
    import torch

    refuse_without_gpu(torch, flags.device)
    if flags.device == "cuda" and flags.precision == "bfloat16" and not torch.cuda.is_bf16_supported():
        raise Unusable(f"{torch.cuda.get_device_name()} has no bfloat16; use precision=float16")
    torch.set_num_threads(flags.threads)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(1)
    return Machine(torch, flags.device, flags.precision)


def parser(doc: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--problem", required=True, help="its name, in DeepBench's table or not")
    parser.add_argument("--precision", default="float32", help="float32, float16 or bfloat16")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--threads", type=int, default=1, help="threads of the processor")
    parser.add_argument("--times", type=int, required=True, help="how many samples of each pass")
    return parser


def main(flags: argparse.Namespace, run: Callable[[argparse.Namespace], dict[str, Any]]) -> None:
    """Print the result of `run` as JSON; exit code 77 where it cannot be had here, 1 where memory is too small."""
    printed(lambda: _with_kernels(flags, run), flags.problem, "a smaller problem")


def _with_kernels(flags: argparse.Namespace, run: Callable[[argparse.Namespace], dict[str, Any]]) -> dict[str, Any]:
    """The result of `run`.

    Raises:
        Unusable: torch has no kernel for that type.
    """
    try:
        return run(flags)
    except RuntimeError as error:
        said = str(error).strip().partition("\n")[0]
        if isinstance(error, NotImplementedError) or "not implemented for" in said:
            raise Unusable(f"{flags.precision} on {flags.device}: {said}") from error
        raise
