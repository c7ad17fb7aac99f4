"""What passes between a workload and its program where both are ours: the command, its JSON, turns, and how it ends."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from collbench.machine.driver_link import DriverLink
from collbench.machine.facts import ContentionMeter, Stretch
from collbench.schema.case import Case
from collbench.schema.world import VARIABLE, Report
from collbench.workloads.program import Program

if TYPE_CHECKING:
    import argparse  # a rank imports this module, and needs no flags

#: With this exit code a program says that it cannot be used here, as test programs do (GNU Automake's manual).
SKIPPED = 77


class Unusable(Exception):
    """A device or a library is not there; the text says why, and what would work."""


def started(program: str, /, *words: str, **flags: object) -> tuple[str, ...]:
    """The command of a program, `host.stream`, with words and flags: `--name value`."""
    named = (word for name, value in flags.items() for word in (f"--{name}", str(value)))
    return (sys.executable, "-m", f"collbench.workloads.{program}", *words, *named)


def add_flags(parser: argparse.ArgumentParser, workload: Program, *names: str) -> None:
    """Flags of a program: the parameters of its workload, or those of these names; its size, and how many samples."""
    for axis in workload.axes:
        if axis.name in names or not names:
            parser.add_argument(f"--{axis.name}", type=axis.of, default=axis.neutral, help=axis.means)
    if workload.sizes:
        parser.add_argument("--size", type=int, required=True, help="bytes")
    parser.add_argument("--times", type=int, default=1, help="how many samples")


def arguments(doc: str | None, workloads: Program | Mapping[str, Program], *names: str) -> argparse.Namespace:
    """The command line of a program of a workload (see `add_flags`), or of several, of which `name` says which."""
    import argparse

    parser = argparse.ArgumentParser(description=doc)
    if isinstance(workloads, Program):
        add_flags(parser, workloads, *names)
    else:
        programs = parser.add_subparsers(dest="name", required=True)
        for name, workload in workloads.items():
            add_flags(programs.add_parser(name), workload)
    return parser.parse_args()


def times(output: str) -> dict[str, list[float]]:
    """Seconds of each measure, of which `ns` has nanoseconds."""
    return {measure: [ns * 1e-9 for ns in taken] for measure, taken in json.loads(output)["ns"].items()}


def slices(output: str) -> Stretch | None:
    """What was added on its cores while it measured in turns; None: it measured alone."""
    return msgspec.convert(json.loads(output)["slices"], Stretch | None)


def wrong(case: Case, output: str) -> int:
    return int(json.loads(output)["wrong"])


def figures(case: Case, output: str) -> Mapping[str, float]:
    return json.loads(output)["figures"]  # type: ignore[no-any-return]


def notes(output: str) -> tuple[str, ...]:
    return tuple(json.loads(output)["notes"])


def loss(case: Case, output: str) -> Mapping[str, float]:
    """That of a training, which must come out equal."""
    return {"loss": compared(json.loads(output)["loss"])}


def compared(loss: float) -> float:
    """A loss as sides compare it: six significant digits, because it is summed in float32, which has seven."""
    return float(f"{loss:.6g}")


def refuse_without_gpu(torch: Any, device: str) -> None:
    """Unusable: the device is a GPU, and torch finds none, or is built without CUDA."""
    if device == "cuda" and not torch.cuda.is_available():
        why = "finds no GPU that it can use" if torch.version.cuda else "is built without CUDA"
        raise Unusable(f"device=cuda: torch {torch.__version__} {why}; use device=cpu")


def printed(run: Callable[[], dict[str, Any]], request: str, less: str = "a smaller batch") -> None:
    """Print the result of `run` as JSON, or end with the reason; `request` may exceed memory, where `less` may not."""
    try:
        result = run()
    except Unusable as error:
        end(SKIPPED, str(error))
    except (MemoryError, RuntimeError) as error:
        if why := lacking_memory(error, request, less):
            end(1, why)
        raise
    sys.stdout.write(json.dumps(result) + "\n")


def lacking_memory(error: Exception, request: str, less: str = "a smaller batch") -> str | None:
    """What failed, and what would work, where memory was too small; None where the error says something else."""
    message = str(error)
    if "DataLoader worker" in message and "killed" in message:
        loader = message.partition("\n")[0].rstrip(". ")
        return f"{request}: {loader}, perhaps because memory ran out; use fewer loaders, or {less}"
    words = message.lower()
    if isinstance(error, MemoryError) or "out of memory" in words or "can't allocate memory" in words:
        where = "the memory of the GPU" if "CUDA" in message else "memory"
        tried = re.search(r"ried to (allocate [0-9.]+ [A-Za-z]+)", message)
        return f"{request} does not fit into {where}; use {less}{f' (it tried to {tried[1]})' if tried else ''}"
    return None


def end(code: int, text: str) -> NoReturn:
    """The last line on standard error is the reason."""
    sys.stderr.write(f"{text}\n")
    sys.exit(code)


# Turns ---------------------------------------------------------------------------------------------------------------


class RankGroup:
    """The ranks of a world that takes turns: this class is that of a single rank."""

    @property
    def rank(self) -> int:
        return 0

    def total(self, value: float) -> float:
        """Over all ranks."""
        return value

    def slowest(self, values: Sequence[int]) -> Sequence[float]:
        """The largest of all ranks, of each."""
        return values


#: Takes so many samples of each measure, in ns.
Take = Callable[[int], Mapping[str, list[int]]]


def sampled_in_turns(
    take: Take, times: int, ranks: RankGroup, first: Callable[[], Mapping[str, list[int]]] = dict
) -> tuple[dict[str, list[int]], Stretch] | None:
    """Nanoseconds of `times` samples of each measure, in slices as they are ordered, and what was added in these.

    None: take them alone. `first` takes what is taken once, at the start of the first slice; called again, it returns
    the same. Each slice begins with one sample that does not count. RuntimeError: the driver is gone.
    """
    if (folder := os.environ.get(VARIABLE)) is None:
        return None
    link = DriverLink(Path(folder), ranks.rank)
    taken, meter = dict[str, list[int]](), ContentionMeter()
    report = Report(at="ready", samples=times)
    try:
        while True:
            report = msgspec.structs.replace(report, asleep=ranks.total(link.asleep), slept=link.slept)
            time.sleep(0.03)  # OpenMP threads spin after parallel work; libgomp's were seen to do so for 8 ms
            link.report(report)
            order = link.sleep()
            if order.act != "slice":
                return (taken, meter.passed) if order.act == "end" else None
            new = dict[str, list[int]]()
            if order.anew:
                taken = {}
                meter.reset()
                meter.start(order.sleepers_share)
                new |= first()
                meter.stop()
            take(1)
            meter.start(order.sleepers_share)
            new |= take(order.operations)
            meter.stop()
            for name, samples in new.items():
                taken.setdefault(name, []).extend(samples)
            means = {name: fmean(ranks.slowest(samples)) * 1e-9 for name, samples in new.items()}
            report = Report(at="slice", n=order.operations, measures=means)
    except EOFError as error:
        raise RuntimeError("collbench launch, which started this world, is gone") from error
    finally:
        link.close()
