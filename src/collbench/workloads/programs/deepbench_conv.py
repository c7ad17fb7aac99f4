"""`python -m collbench.workloads.programs.deepbench_conv --problem NAME --times N`: a convolution and its gradients.

Prints JSON: `ns`, the times of each pass; `wrong`, how many results differ from float64 by more than rounding;
`figures`, the largest relative error; `notes`. All images are the same, and so are the gradients of their results, so
that one of each is enough for the comparison.
"""

from __future__ import annotations

import argparse
from typing import Any

from collbench.workloads.deepbench import Conv, problem
from collbench.workloads.programs import deepbench
from collbench.workloads.programs.deepbench import Machine, Pass


def passes(machine: Machine, row: Conv) -> dict[str, Pass]:
    """Forward, and the two gradients by themselves: torch's operator is told which of them to compute."""
    height, width = row.out
    x, g = machine.uniform(1, row.c, row.h, row.w), machine.uniform(1, row.k, height, width)
    w = machine.uniform(row.k, row.c, row.r, row.s)
    batch = x.repeat(row.n, 1, 1, 1), w, g.repeat(row.n, 1, 1, 1)
    one = x.double(), w.double(), g.double()
    y = _forward(machine, row, *one[:2])
    dx, dw = backward(machine, row, *one, data=True)[0], backward(machine, row, *one, data=False)[1]
    return {
        "forward": Pass(lambda _: (_forward(machine, row, *batch[:2]),), (y[0],), row.c * row.r * row.s, 0),
        "backward_data": Pass(
            lambda _: (backward(machine, row, *batch, data=True)[0],), (dx[0],), row.k * row.r * row.s, 0),
        "backward_weights": Pass(
            lambda _: (backward(machine, row, *batch, data=False)[1],), (dw * row.n,), row.n * height * width, None),
    }  # fmt: skip


def _forward(machine: Machine, row: Conv, x: Any, w: Any) -> Any:
    return machine.torch.nn.functional.conv2d(x, w, None, row.stride, row.pad)


def backward(machine: Machine, row: Conv, x: Any, w: Any, g: Any, *, data: bool) -> Any:
    """Gradients of the images and of the filters, of which only one is computed."""
    sides = [row.stride] * 2, [row.pad] * 2, [1, 1]
    mask = [data, not data, False]
    return machine.torch.ops.aten.convolution_backward(g, x, w, None, *sides, False, [0, 0], 1, mask)


def run(flags: argparse.Namespace) -> dict[str, Any]:
    machine = deepbench.opened(flags)
    result = machine.sampled(passes(machine, problem(Conv, flags.problem)), flags.times)
    return result | {"notes": [machine.described()]}


if __name__ == "__main__":
    deepbench.main(deepbench.parser(__doc__).parse_args(), run)
