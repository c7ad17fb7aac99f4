"""`python -m collbench.workloads.programs.stream --size BYTES --times N`: copy, scale, add and triad, N times.

Prints JSON: `ns`, the N times of each kernel; `wrong`, the number of wrong elements; `compiler`, the compiler of the
kernels.
"""

from __future__ import annotations

import argparse
import json
import mmap

ITEM = 8

#: Each round multiplies the values by 15: arrays are checked and refilled before a double overflows.
MOST_ROUNDS = 100

#: Largest relative error of an element.
TOLERANCE = 1e-13


def run(size: int, times: int) -> tuple[dict[str, list[int]], int]:
    """Nanoseconds of each kernel, [times], and the number of wrong elements, for three arrays of `size` bytes."""
    from collbench.workloads import _stream

    a, b, c = (mmap.mmap(-1, size) for _ in range(3))
    rounds: list[tuple[int, int, int, int]] = []
    wrong = 0
    while len(rounds) < times:
        n = min(MOST_ROUNDS, times - len(rounds))
        _stream.fill(a, b, c)
        rounds += [_stream.kernels(a, b, c) for _ in range(n)]
        wrong += _stream.wrong(a, b, c, n, TOLERANCE)
    by_kernel = map(list, zip(*rounds, strict=True))
    return dict(zip(("copy", "scale", "add", "triad"), by_kernel, strict=True)), wrong


def main() -> None:
    """Run the kernels as the flags say, and print the result."""
    from collbench.workloads._stream import COMPILER

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, required=True, help="bytes of one array")
    parser.add_argument("--times", type=int, required=True, help="how often each kernel runs")
    flags = parser.parse_args()
    if flags.size < ITEM or flags.times < 1:
        parser.error(f"--size {flags.size} --times {flags.times}: needs at least {ITEM} bytes and 1 time")
    if flags.size % ITEM:
        parser.error(f"--size {flags.size}: an element has {ITEM} bytes; use a multiple of {ITEM}")
    try:
        ns, wrong = run(flags.size, flags.times)
    except (OSError, OverflowError) as error:
        parser.error(f"three arrays of {flags.size} bytes: {error}")
    print(json.dumps({"ns": ns, "wrong": wrong, "compiler": COMPILER}))  # noqa: T201 - what it prints is its result


if __name__ == "__main__":
    main()
