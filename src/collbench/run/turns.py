"""The turns of a rank in a world beside others: it sleeps until its world is to measure.

Numbers of devices, inodes and namespaces are the kernel's own, so names agree across containers.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from collbench.bindings.spec import World
from collbench.errors import Interrupted, RequestError
from collbench.machine.cgroup import text_of
from collbench.machine.driver_link import DriverLink
from collbench.machine.facts import ContentionMeter, machine_id, own_cores
from collbench.run.failures import Watch
from collbench.run.sampling import Sampling
from collbench.schema.case import Case
from collbench.schema.world import TRIMMED, Order, Report
from collbench.timing.loop import Stamps
from collbench.units import format_spans

#: A line of /proc/self/maps (proc(5)) for memory that is writable and shared. A segment of System V has its number as
#: inode.
_SHARED = re.compile(r"\S+ \Sw\Ss \S+ (?P<device>\S+) (?P<inode>\d+)\s*(?P<path>.*)")
_SEGMENT = "/SYSV"
_GPU = "/dev/nvidia"  # a GPU that several worlds use in turns, and its driver

#: Access modes under which a file is written.
_WRITES = (os.O_WRONLY, os.O_RDWR)

#: Descriptors of standard input, output and error: what starts a process gives it those.
_STANDARD = frozenset((0, 1, 2))


def shareable(descriptors: frozenset[int] = frozenset()) -> frozenset[str]:
    """Names of writable shared memory, of open files that can be written, of TCP connections, of the temporary folder.

    `descriptors` are left out, and what the kernel does not tell.
    """
    names = {*_mapped(), *_opened(descriptors), *_connected()}
    with contextlib.suppress(OSError):
        status = Path(tempfile.gettempdir()).stat()
        names.add(f"temporary folder {status.st_dev} {status.st_ino}")
    return frozenset(names)


def _mapped() -> Iterator[str]:
    for line in (text_of("/proc/self/maps") or "").splitlines():
        match = _SHARED.match(line)
        if match is not None and (inode := match["inode"]) != "0" and not match["path"].startswith(_GPU):
            segment = match["path"].startswith(_SEGMENT)
            yield f"segment {inode} of {_namespace('ipc')}" if segment else f"memory {match['device']} {inode}"


def _opened(descriptors: frozenset[int]) -> Iterator[str]:
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - of strings
        with contextlib.suppress(OSError):
            if int(name) in descriptors | _STANDARD:
                continue
            status = os.fstat(int(name))
            # How it was opened (proc_pid_fdinfo(5)); where the kernel does not tell, any way.
            flags = re.search(r"^flags:\s*([0-7]+)", text_of(f"/proc/self/fdinfo/{name}") or "", re.MULTILINE)
            mode = os.O_RDWR if flags is None else int(flags[1], 8) & os.O_ACCMODE
            if stat.S_ISREG(status.st_mode) and mode in _WRITES:
                yield f"file {status.st_dev} {status.st_ino}"
            elif stat.S_ISFIFO(status.st_mode):
                yield f"pipe {status.st_dev} {status.st_ino}"


def _connected() -> Iterator[str]:
    """Both ends of a connection by the same name: its two addresses; a listening socket is one end to nowhere."""
    sockets = set[str]()
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        with contextlib.suppress(OSError):
            link = os.readlink(f"/proc/self/fd/{name}")  # noqa: PTH115
            if link.startswith("socket:["):
                sockets.add(link[8:-1])
    for table in ("tcp", "tcp6"):
        for line in (text_of(f"/proc/self/net/{table}") or "").splitlines()[1:]:
            fields = line.split()
            if len(fields) > 9 and fields[9] in sockets:
                yield f"connection {' '.join(sorted(fields[1:3]))} in {_namespace('net')}"


def _namespace(kind: str) -> str:
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/self/ns/{kind}")  # noqa: PTH115
    return kind


#: A slice without a quota lasts as the rule says; with one so many of its periods (s, of 100 ms as is usual).
QUOTA_SLICE = 1.0

#: A slice lasts at least so many times as long as the clocks of hosts take to be synchronised before and after it.
SYNCHRONISATIONS = 20

#: Most samples that are taken between two looks at the clock.
BATCH = 5_000


class Turns:
    """The turns of a rank. `wait` is collective. `folder` has its link to the driver."""

    def __init__(self, folder: Path, rank: int) -> None:
        self.folder, self._met = folder, False
        try:
            self._link = DriverLink(folder, rank)
        except OSError as error:
            raise RequestError(f"--turns {folder}: {error.strerror}. Only collbench launch sets --turns.") from error

    def wait(self, report: Report, world: World, watch: Watch, doing: str) -> Order:
        """Say where the world stands, and sleep until it goes on. Interrupted: told to stop, or the driver is gone."""
        link = self._link
        asleep = int(world.total([round(link.asleep * 1e9)])[0]) * 1e-9
        if not self._met:
            self._met = True
            # What the ranks hold that others may hold too, on which machine, and the processors that they are on.
            held, cores = set[str](), dict[str, set[int]]()
            here = shareable(link.descriptors), machine_id(), own_cores()
            for names, machine, processors in world.gather(here) or ():
                held |= {f"{name} on {machine}" for name in names}
                cores.setdefault(machine, set()).update(processors)
            on_machines = tuple(f"{machine} {format_spans(cores[machine])}" for machine in sorted(cores))
            report = msgspec.structs.replace(report, holds=tuple(sorted(held)), cores=on_machines)
        link.report(msgspec.structs.replace(report, asleep=asleep, slept=link.slept))

        def nap() -> None:
            watch.beat(f"{doing}: waiting for its turn")
            if watch.stopped is not None:
                raise Interrupted("interrupted.")

        try:
            nap()
            order = link.sleep(nap)
        except EOFError as error:
            raise Interrupted("collbench launch, which started this world, is gone.") from error
        watch.beat(doing)
        return order

    def stands(self, case: Case | None, world: World, watch: Watch) -> Order:
        """Before a case that is measured; None: after the last one."""
        doing = "ending" if case is None else f"before {case.workload}"
        return self.wait(Report(at="stands", case=case), world, watch, doing)

    def close(self) -> None:
        """Give the link back."""
        self._link.close()


def sampled_in_turns(
    sampling: Sampling, turns: Turns, watch: Watch, doing: str, quota: bool, meter: ContentionMeter
) -> bool:
    """Measure slices of a case as ordered, until it ends; whether it did: else it is to be measured alone. Collective.

    `quota`: a quota of processor time confines the ranks. `meter` runs in their own slices, as others use the cores
    between them, and after these if the case is to be measured alone.
    """
    world, stop = sampling.timed_call.session.world, sampling.method.stop
    synchronising = 0.0 if sampling.clocks is None else SYNCHRONISATIONS * sampling.clocks.lasted * 1e-9
    report = Report(at="ready", align=sampling.align.kind, slack=sampling.align.slack,
                    samples=stop.samples,
                    shortest=max(QUOTA_SLICE if quota else 0.0, synchronising))  # fmt: skip
    while (order := turns.wait(report, world, watch, doing)).act == "slice":
        if order.anew:
            meter.reset()
        meter.start(order.sleepers_share)
        report = _slice(sampling, order, watch, doing)
        meter.stop()
    if order.act != "end":
        meter.reset()
        meter.start()
    return order.act == "end"


def _slice(sampling: Sampling, order: Order, watch: Watch, doing: str) -> Report:
    if order.anew:
        sampling.anew(order.align)
    sampling.align = sampling.align.with_slack(order.slack)
    sampling.resume()
    sampling.displace()
    rule, beat = order.rule, partial(watch.beat, f"{doing}: timing")
    _taken(sampling, beat, rule.discard, rule.discard_seconds, longest=max(rule.seconds, rule.discard_seconds))
    stamps = _taken(sampling, beat, order.operations or rule.operations, 0.0 if order.operations else order.seconds,
                    longest=0.0 if order.operations else rule.longest)  # fmt: skip
    stamps = sampling.on_one_clock(stamps)
    sampling.keep(stamps, 1 if order.operations else rule.rounds)  # a plan that fixes samples keeps all of them
    times = sampling.times(stamps)
    halves = [_trimmed(half) for half in np.array_split(times.samples, 2)]
    both = None if halves[0] is None or halves[1] is None else (halves[0], halves[1])
    return Report(at="slice", align=sampling.align.kind, n=len(times.samples),
                  late=int(np.count_nonzero(~times.in_time)), seconds=_trimmed(times.samples), halves=both)  # fmt: skip


def _taken(sampling: Sampling, beat: Callable[[], None], least: int, seconds: float, longest: float) -> Stamps:
    """At least so many samples, and for so many seconds; with a `longest` time (s), fewer if they take longer.

    Rank 0 looks at the clock. Collective.
    """
    session, done = sampling.timed_call.session, list[Stamps]()
    began, samples = session.clock(), 0
    while True:
        n: int = session.world.bcast(_next(samples, (session.clock() - began) * 1e-9, least, seconds, longest))
        if n == 0:
            return Stamps.concatenate(done)
        beat()
        done.append(sampling.timed_call.run(sampling.align, n))
        samples += n


def _next(samples: int, passed: float, least: int, seconds: float, longest: float) -> int:
    """Samples of the next batch, after so many in so many seconds; 0: it is enough."""
    if samples == 0:
        return 1 if longest else min(least, BATCH)
    if longest and passed >= longest:
        return 0
    pace = max(passed / samples, 1e-9)
    remaining = max(least - samples, math.ceil((seconds - passed) / pace), 0)
    affordable = max(int((longest - passed) / pace), 1) if longest else remaining
    return min(remaining, affordable, BATCH)


def _trimmed(samples: NDArray[np.int64]) -> float | None:
    """Mean (s) of the middle 80 % of the samples in time; None where there are none."""
    valid = np.sort(samples[samples > 0])
    cut = int(len(valid) * TRIMMED)
    middle = valid[cut : len(valid) - cut]
    return float(middle.mean()) * 1e-9 if len(middle) else None
