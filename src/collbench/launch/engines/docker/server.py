"""The program of the workload `qperf_host`: qperf's server in a container or on the host, and its client on the host.

It prints what the client prints, and a line with the engine. The server has the cores of the client. Words after `--`
are options of the client.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from collbench.errors import CollbenchError, EngineError
from collbench.launch.engines.docker.client import translated
from collbench.launch.engines.docker.start import engine_for, in_own_session
from collbench.launch.waiting import StopCheck
from collbench.machine.facts import own_cores
from collbench.units import format_spans
from collbench.workloads.host.container_start import BARE, NETWORK
from collbench.workloads.host.qperf import client, listening
from collbench.workloads.host.qperf_host import ENGINE, WORKLOAD
from collbench.workloads.protocol import SKIPPED, Unusable, arguments, end

LOOPBACK = "127.0.0.1"


def free_port() -> int:
    """One that nobody has now; in a container with a network of its own any is free."""
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        return int(listener.getsockname()[1])


def address_of(container: dict[str, Any]) -> str:
    """Where the host reaches it. EngineError: it has no address."""
    networks = container["NetworkSettings"]["Networks"]
    if "host" in networks:
        return LOOPBACK
    address = next((str(network["IPAddress"]) for network in networks.values() if network["IPAddress"]), "")
    if not address:
        raise EngineError("the container has no address on the host's networks")
    return address


@contextlib.contextmanager
def server(kind: str, image: str, port: int, check: StopCheck) -> Iterator[tuple[str, str]]:
    """The address of a server that is starting, and the engine; it is gone afterwards. EngineError, Unusable."""
    argv = listening(port)
    if kind == BARE:
        with subprocess.Popen(argv) as process:
            try:
                yield LOOPBACK, "none"
            finally:
                process.kill()
        return
    with engine_for(image, check) as engine:
        with translated(f"container of {image}"):
            host = engine.api.create_host_config(network_mode=NETWORK[kind], cpuset_cpus=format_spans(own_cores()))
            number = engine.api.create_container(image, entrypoint=argv, host_config=host, labels=engine.labels)["Id"]
            engine.api.start(number)
            container = engine.api.inspect_container(number)
        yield address_of(container), f"{engine.title}, image {container['Image']}"


def run(kind: str, image: str, options: list[str], check: StopCheck) -> int:
    """The exit code of the client, which prints what it measured. `check` may end it."""
    port = free_port()
    with (
        server(kind, image, port, check) as (address, engine),
        subprocess.Popen(client(address, port, options)) as process,
    ):
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    code = process.wait(0.25)
                    break
                check()
        finally:
            process.kill()
    sys.stdout.write(f"{ENGINE}{engine}\n")
    return code


def main() -> None:
    """Run as the flags say."""
    place = sys.argv.index("--")
    options, sys.argv[place:] = sys.argv[place + 1 :], []
    flags, check = arguments(__doc__, WORKLOAD, "process", "container_image"), in_own_session()
    try:
        code = run(flags.process, flags.container_image, options, check)
    except Unusable as error:
        end(SKIPPED, str(error))
    except (CollbenchError, OSError) as error:
        end(1, str(error))
    sys.exit(code)


if __name__ == "__main__":
    main()
