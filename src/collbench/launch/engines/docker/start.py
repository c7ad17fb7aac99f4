"""The program of the workload `container_start`: starts and removes containers, or starts a process, and times it.

It prints JSON: `ns` of each phase, and `wrong`, how many programs ended with another exit code than 0.

Phases of a container: `create`, the engine's call; `start`, from the call to the first instruction; `exit`, from there
until the engine says that it has ended; `removal`, the call; `total`, their sum. A process has `start`, from
posix_spawn(3), which copies no page tables, and `exit`, until waitpid(2) returns.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from time import monotonic_ns
from typing import Any

import msgspec

from collbench.errors import CollbenchError, EngineError, Interrupted
from collbench.launch.engines.docker.client import Docker, remove_all, translated
from collbench.launch.engines.docker.spec import ContainerMount
from collbench.launch.waiting import StopCheck
from collbench.machine.facts import Stretch, Waited
from collbench.workloads.host.container_start import BARE, CLOCK, NETWORK, WORKLOAD
from collbench.workloads.host.files import resident
from collbench.workloads.protocol import Unusable, arguments, end, printed

#: Writing 3 drops clean pages that no process maps, dentries and inodes (Linux, Documentation/admin-guide/sysctl/vm).
DROP_CACHES = Path("/proc/sys/vm/drop_caches")

Sample = tuple[dict[str, int], int]  #: Times of phases (ns), and the exit code.


def phases(called: int, ended: int, output: bytes, **beside: int) -> dict[str, int]:
    """From the call for the program's start until its end is known (ns). EngineError: it printed no time between."""
    if not output.strip().isdigit() or not called < int(output) < ended:
        where = "the engine must be on this machine, in this time namespace, and keep logs of containers"
        raise EngineError(f"{CLOCK.name} printed {output[:80]!r}, no time between its start and its end: {where}")
    taken = {"start": int(output) - called, "exit": ended - int(output), **beside}
    return taken | {"total": sum(taken.values())}


def process() -> Sample:
    reading, writing = os.pipe()
    called = monotonic_ns()
    number = os.posix_spawn(CLOCK, [str(CLOCK)], {}, file_actions=[(os.POSIX_SPAWN_DUP2, writing, 1)])
    _, status = os.waitpid(number, 0)
    ended = monotonic_ns()
    os.close(writing)
    with os.fdopen(reading, "rb") as output:
        return phases(called, ended, output.read()), os.waitstatus_to_exitcode(status)


def container(engine: Docker, image: str, network: str) -> Sample:
    """EngineError: the engine refuses, or does not answer in time."""
    api, inside = engine.api, f"/{CLOCK.name}"
    host = api.create_host_config(network_mode=network, mounts=[ContainerMount(str(CLOCK), inside).setting])
    with translated(f"container of {image}"):
        began = monotonic_ns()
        number = api.create_container(image, entrypoint=[inside], host_config=host, labels=engine.labels)["Id"]
        called = monotonic_ns()
        api.start(number)
        code = int(api.wait(number)["StatusCode"])
        ended = monotonic_ns()
        output = api.logs(number, stderr=False)
        removing = monotonic_ns()
        api.remove_container(number, v=True)
        removed = monotonic_ns()
    return phases(called, ended, output, create=called - began, removal=removed - removing), code


def make_cold(files: tuple[str, ...]) -> None:
    """Drop the machine's page cache, dentries and inodes. Unusable: not permitted, or one of these files is left."""
    until = monotonic_ns() + 5 * 10**9  # a monitor outlives its container
    while True:
        try:
            os.sync()
            DROP_CACHES.write_text("3", encoding="ascii")
        except OSError as error:
            raise Unusable(f"cache=cold: {DROP_CACHES}: {error.strerror}; run this as root on the host") from error
        if (held := next((path for path in files if resident_share(path) > 0.01), None)) is None:
            return
        if monotonic_ns() > until:
            raise Unusable(f"cache=cold: {held} stays in memory; perhaps another container runs")


def resident_share(path: str) -> float:
    with Path(path).open("rb") as file:
        return resident(file.fileno())


def sampled(take: Callable[[], Sample], cold: tuple[str, ...], times: int, check: StopCheck) -> dict[str, Any]:
    """What is printed of so many samples. With a `cold` cache these files are the evidence; `check` may end it."""
    ns, wrong = dict[str, list[int]](), 0
    for _ in range(times):
        check()
        if cold:
            make_cold(cold)
        sample, code = take()
        wrong += code != 0
        for name, taken in sample.items():
            ns.setdefault(name, []).append(taken)
    notes = (f"not in memory before a sample: {', '.join(cold)}",) if cold else ()
    return {"ns": ns, "wrong": wrong, "notes": notes, "slices": None}


@contextlib.contextmanager
def engine_for(image: str, check: StopCheck) -> Iterator[Docker]:
    """An engine that has the image; what was made is removed. Unusable: none answers, or it has no such image."""
    with contextlib.ExitStack() as stack:
        try:
            engine = stack.enter_context(contextlib.closing(Docker(check=check)))
            if not engine.api.images(image):
                raise Unusable(f"container_image={image}: {engine.title} has no such image; build or pull it")
        except EngineError as error:
            raise Unusable(str(error).rstrip(".")) from error
        stack.callback(remove_all, engine, at_once=False)
        yield engine


def run(kind: str, image: str, cold: bool, times: int, check: StopCheck) -> dict[str, Any]:
    """What is printed; no container is left. Contention is unknown where an engine works, which looks like others."""
    if kind == BARE:
        return sampled(process, (str(CLOCK),) if cold else (), times, check)
    with engine_for(image, check) as engine:
        facts = engine.describe()
        runtime = facts.get("DefaultRuntime", "")
        path = (facts.get("Runtimes") or {}).get(runtime, {}).get("path") or runtime
        programs = (str(CLOCK), path, "containerd-shim-runc-v2", "conmon")  # what engines start for a container
        files = tuple(filter(None, map(shutil.which, programs))) if cold else ()
        result = sampled(partial(container, engine, image, NETWORK[kind]), files, times, check)
    note = f"{engine.title} with {runtime} and storage driver {facts.get('Driver', 'unknown')}"
    return result | {"notes": (note, *result["notes"]), "slices": msgspec.to_builtins(Stretch(0.0, Waited()))}


def in_own_session() -> StopCheck:
    """Go on in a child that a kill of this process's group does not reach; its check raises where this is gone."""
    reading, writing = os.pipe()
    if child := os.fork():
        os.close(reading)
        sys.exit(abs(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))
    os.setsid()
    os.close(writing)

    def check() -> None:
        if select.select((reading,), (), (), 0)[0]:  # the other end is closed: nobody writes
            raise Interrupted("interrupted.")

    return check


def main() -> None:
    """Run as the flags say."""
    flags = arguments(__doc__, WORKLOAD)
    check, cold = in_own_session(), flags.cache == "cold"
    try:
        printed(lambda: run(flags.process, flags.container_image, cold, flags.times, check), "a sample")
    except (CollbenchError, OSError) as error:
        end(1, str(error))


if __name__ == "__main__":
    main()
