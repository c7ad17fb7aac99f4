"""`python -m collbench.workloads.programs.deepbench_rnn --problem NAME --times N`: a recurrent layer and its gradients.

Prints JSON: `ns`, the times of each pass; `wrong`, how many results differ from float64 by more than rounding;
`figures`, the largest relative error, and how many kernels a pass forward starts on a GPU, or operators of torch that
it executes on a processor; `notes`. All sequences of the batch are the same, and so are the gradients of their results,
so that one of each is enough for the comparison.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable
from typing import Any

from collbench.workloads.deepbench import GATES, Rnn, problem
from collbench.workloads.programs import deepbench
from collbench.workloads.programs.deepbench import Machine, Pass

CELLS = {"vanilla": "RNN", "lstm": "LSTM", "gru": "GRU"}

#: What a reader of the numbers must know beside torch's version.
NOTE = "the weights' gradients run through time too, as autograd computes them"


def layer_of(machine: Machine, row: Rnn) -> Any:
    """Its weights are random, small enough that states and gradients die away in time."""
    layer = getattr(machine.torch.nn, CELLS[row.cell])(row.h, row.h)
    return layer.to(machine.device, machine.dtype)


def passes(machine: Machine, row: Rnn, layer: Any) -> dict[str, Pass]:
    """Forward, and the two gradients, each by autograd from a pass forward of its own, which is not timed."""
    x, g = (machine.uniform(row.t, 1, row.h) for _ in range(2))
    y, dx, dw = _all(machine, copy.deepcopy(layer).double(), x.double(), g.double())
    all_x, all_g = (values.repeat(1, row.n, 1) for values in (x, g))
    all_x.requires_grad_()
    weights = tuple(layer.parameters())

    def forward() -> Any:
        return layer(all_x)[0]

    def gradients(of: tuple[Any, ...]) -> Callable[[Any], Any]:
        return lambda result: machine.torch.autograd.grad(result, of, all_g)

    expected = tuple(gradient * row.n for gradient in dw)
    return {
        "forward": Pass(lambda _: (forward().detach(),), (y[:, 0],), 2 * row.h, 1),
        "backward_data": Pass(gradients((all_x,)), (dx[:, 0],), 2 * GATES[row.cell] * row.h, 1, forward),
        "backward_weights": Pass(gradients(weights), expected, row.n * row.t, None, forward),
    }


def _all(machine: Machine, layer: Any, x: Any, g: Any) -> tuple[Any, Any, Any]:
    """Result, and the gradients of input and weights, of one sequence in float64."""
    x.requires_grad_()
    y = layer(x)[0]
    dx, *dw = machine.torch.autograd.grad(y, (x, *layer.parameters()), g)
    return y.detach(), dx, dw


def counted(machine: Machine, call: Callable[[], Any]) -> dict[str, int]:
    """`kernels` that a call starts on a GPU, copies among them; or torch's `operators` that call no other ones."""
    profiler = machine.torch.profiler
    activity = profiler.ProfilerActivity
    on_gpu = machine.device == "cuda"
    with profiler.profile(activities=[activity.CUDA if on_gpu else activity.CPU]) as seen:
        call()
        machine.wait()
    if on_gpu:
        gpu = machine.torch.autograd.DeviceType.CUDA
        return {"kernels": sum(event.device_type == gpu for event in seen.events())}
    return {"operators": sum(not event.cpu_children for event in seen.events())}


def run(flags: argparse.Namespace) -> dict[str, Any]:
    machine, row = deepbench.opened(flags), problem(Rnn, flags.problem)
    layer = layer_of(machine, row)
    all_passes = passes(machine, row, layer)
    result = machine.sampled(all_passes, flags.times)
    result["figures"] |= counted(machine, lambda: all_passes["forward"].call(None))
    return result | {"notes": [machine.described(), NOTE]}


if __name__ == "__main__":
    deepbench.main(deepbench.parser(__doc__).parse_args(), run)
