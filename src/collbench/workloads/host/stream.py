"""stream: the memory bandwidth of one core or of several, by copy, scale, add and triad.

After J. D. McCalpin, "Memory Bandwidth and Machine Balance in Current High Performance Computers", IEEE TCCA
Newsletter, December 1995: the kernels, and bytes as the program reads and writes them, not those that a cache reads.

`python -m collbench.workloads.host.stream --size BYTES --times N` prints JSON: `ns`, the N times of each kernel;
`wrong`, the number of wrong elements; `notes`, on the compiler of the kernels, on huge pages and on arrays that are too
small. Several threads, or those of one memory `--node`, are bound to a processor each.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Sequence

from collbench.machine.facts import last_level_cache, memory_size
from collbench.schema.case import Case
from collbench.units import format_bytes, parse_size
from collbench.workloads.host.memory import ALL_NODES, huge_page_notes, private, processors
from collbench.workloads.program import Measure, Program, parameter
from collbench.workloads.protocol import SKIPPED, Unusable, end, notes, started, times, wrong

ITEM = 8

#: An array of this many times the last-level cache finds nothing there of the round before (McCalpin's rule).
TIMES_CACHE = 4

#: Each round multiplies the values by 15: arrays are checked and refilled before a double overflows.
MOST_ROUNDS = 100

#: Largest relative error of an element.
TOLERANCE = 1e-13

#: The kernels, and how many arrays each reads and writes.
KERNELS = {"copy": 2, "scale": 2, "add": 3, "triad": 3}


def usual_size(cache: int | None, memory: int) -> str:
    """As McCalpin's rule asks for, or 256 MiB where the kernel does not tell the cache, if the memory is that large."""
    mib = -(-TIMES_CACHE * cache // 2**20) if cache is not None else 256
    return f"{max(1, min(mib, memory // 16 // 2**20))}M"  # less than a fifth of the memory for three arrays


def in_cache(size: int, cache: int | None) -> tuple[str, ...]:
    """What a reader must know of arrays that are smaller than McCalpin's rule asks for."""
    if cache is None or size >= TIMES_CACHE * cache:
        return ()
    if 3 * size <= cache:
        return (f"three arrays of {format_bytes(size)} fit into the last-level cache of {format_bytes(cache)}: "
                "this is its bandwidth, not that of the memory",)  # fmt: skip
    return (f"arrays of {format_bytes(size)} are smaller than {TIMES_CACHE} x the last-level cache of "
            f"{format_bytes(cache)}: this is in part its bandwidth",)  # fmt: skip


USUAL = usual_size(last_level_cache(), memory_size())

UNBUILT = "stream's kernels were not built: no C compiler or no Python.h at installation; reinstall with them"


def refuses(case: Case) -> str | None:
    if case["size"] < ITEM or case["size"] % ITEM:
        return f"the size must be a multiple of {ITEM} bytes, and at least {ITEM}"
    allowed = case["arrays"] == "any" or case["size"] >= parse_size(USUAL)  # no more fits beside a cache of this size
    small = () if allowed else in_cache(case["size"], last_level_cache())
    return f"{small[0]}. Use size={USUAL} or more, or arrays=any" if small else None


def argv(case: Case, times: int) -> Sequence[str]:
    """A case on all memory nodes has no `node`."""
    node = {} if case["node"] is None else {"node": case["node"]}
    return started("host.stream", size=case["size"], times=times, threads=case["threads"], **node)


WORKLOAD = Program(
    name="stream", suite="cpu", title="STREAM",
    summary="memory bandwidth by copy, scale, add and triad; the size is that of one array",
    measures=tuple(Measure(name, lambda case, arrays=arrays: arrays * case["size"])  # type: ignore[misc]
                   for name, arrays in KERNELS.items()),
    argv=argv,
    needs=lambda: None if importlib.util.find_spec("collbench.workloads._stream") else UNBUILT,
    parse=times, verify=wrong, notes=notes, memory=lambda case: 3 * int(case["size"]), refuses=refuses, sizes=(USUAL,),
    unused=lambda case: ("node",) if case["node"] == ALL_NODES else (),
    axes=(
        parameter("arrays", "memory", "larger than the cache, or of any size", among=("memory", "any"), kind="how"),
        parameter("threads", 1, "threads, each bound to a processor; 0: as many as processors", least=0, most=4096,
                  kind="how"),
        parameter("node", ALL_NODES, "memory node of the processors, with its memory; -1: any", least=-1, most=1023,
                  kind="how"),
    ),
)  # fmt: skip


def run(size: int, times: int, bound: tuple[int, ...] = ()) -> tuple[dict[str, list[int]], int, tuple[str, ...]]:
    """Nanoseconds of each kernel, [times], the number of wrong elements, and notes, for three arrays of `size` bytes.

    Threads are `bound` to these processors, or there is only this one, which is not.
    """
    from collbench.workloads import _stream

    a, b, c = (private(size) for _ in range(3))
    rounds: list[tuple[int, int, int, int]] = []
    wrong = 0
    while len(rounds) < times:
        n = min(MOST_ROUNDS, times - len(rounds))
        if bound:
            rounds += _stream.bound(a, b, c, bound, n)
        else:
            _stream.fill(a, b, c)
            rounds += [_stream.kernels(a, b, c) for _ in range(n)]
        wrong += _stream.wrong(a, b, c, n, TOLERANCE)
    ns = dict(zip(KERNELS, map(list, zip(*rounds, strict=True)), strict=True))
    return ns, wrong, huge_page_notes(3 * size)


def main() -> None:
    """Run the kernels as the flags say, and print the result; exit code 77 where there are no such processors."""
    from collbench.workloads._stream import COMPILER

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, required=True, help="bytes of one array")
    parser.add_argument("--times", type=int, required=True, help="how often each kernel runs")
    parser.add_argument("--threads", type=int, default=1, help="0: as many as processors")
    parser.add_argument("--node", type=int, default=ALL_NODES, help="memory node of the processors; -1: any")
    flags = parser.parse_args()
    if flags.size < ITEM or flags.times < 1:
        parser.error(f"--size {flags.size} --times {flags.times}: needs at least {ITEM} bytes and 1 time")
    if flags.size % ITEM:
        parser.error(f"--size {flags.size}: an element has {ITEM} bytes; use a multiple of {ITEM}")
    try:
        bound = () if (flags.threads, flags.node) == (1, ALL_NODES) else processors(flags.threads, flags.node)
        ns, wrong, pages = run(flags.size, flags.times, bound)
    except Unusable as error:
        end(SKIPPED, str(error))
    except (OSError, OverflowError) as error:
        parser.error(f"three arrays of {flags.size} bytes: {error}")
    notes = (f"kernels compiled by {COMPILER}", *pages, *in_cache(flags.size, last_level_cache()))
    sys.stdout.write(json.dumps({"ns": ns, "wrong": wrong, "notes": notes}) + "\n")


if __name__ == "__main__":
    main()
