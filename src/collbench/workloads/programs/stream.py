"""`python -m collbench.workloads.programs.stream --size BYTES --times N`: copy, scale, add and triad, N times.

Prints JSON: `ns`, the N times of each kernel; `wrong`, how many elements are not what they should be; `compiler`, which
made the kernels.
"""

from __future__ import annotations

import argparse
import json
import mmap

ITEM = 8

#: The kernels multiply the values by 15 each time: arrays are checked and filled anew before a double overflows.
MOST_ROUNDS = 100

#: Elements of the result may differ from it by so much, relative to it.
TOLERANCE = 1e-13


def run(size: int, times: int) -> tuple[dict[str, list[int]], int]:
    """Nanoseconds of each kernel, [times] each, and the wrong elements of all arrays, of `size` bytes each."""
    from collbench.workloads import _stream

    a, b, c = (mmap.mmap(-1, size) for _ in range(3))
    taken: list[tuple[int, int, int, int]] = []
    wrong = 0
    while len(taken) < times:
        rounds = min(MOST_ROUNDS, times - len(taken))
        _stream.fill(a, b, c)
        taken += [_stream.kernels(a, b, c) for _ in range(rounds)]
        wrong += _stream.wrong(a, b, c, rounds, TOLERANCE)
    return dict(zip(("copy", "scale", "add", "triad"), map(list, zip(*taken, strict=True)), strict=True)), wrong


def main() -> None:
    """Read the flags, run, print."""
    from collbench.workloads._stream import COMPILER

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, required=True, help="bytes of one array")
    parser.add_argument("--times", type=int, required=True, help="how often each kernel runs")
    flags = parser.parse_args()
    if flags.size < ITEM or flags.times < 1:
        parser.error(f"--size {flags.size} --times {flags.times}: at least {ITEM} bytes, once")
    if flags.size % ITEM:
        parser.error(f"--size {flags.size}: an element has {ITEM} bytes; use a multiple of {ITEM}")
    try:
        ns, wrong = run(flags.size, flags.times)
    except (OSError, OverflowError) as error:
        parser.error(f"three arrays of {flags.size} bytes: {error}")
    print(json.dumps({"ns": ns, "wrong": wrong, "compiler": COMPILER}))  # noqa: T201 - what it prints is its result


if __name__ == "__main__":
    main()
