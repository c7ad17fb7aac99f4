"""A launch's network: no way out, none to the host, and a way from container to container."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_network
from typing import Any

import pytest

from collbench.launch.engines.docker.client import Docker
from collbench.launch.engines.docker.look import ask, find
from collbench.launch.engines.docker.spec import NETWORK_OPTIONS

#: Tries addresses from inside a container; prints, for each, what was read there or the error's name.
TRY = """
import json, socket, sys
port, *addresses = sys.argv[1:]
def said(address):
    try:
        with socket.create_connection((address, int(port)), 3) as connection:
            return connection.recv(100).decode()
    except OSError as error:
        return type(error).__name__
print(json.dumps({address: said(address) for address in addresses}))
"""

WORDS = "from the host"


@contextmanager
def server() -> Iterator[int]:
    """A service of the host on every address; yields its port."""
    with socket.create_server(("0.0.0.0", 0)) as listening:  # noqa: S104 - what people do is what is tried

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(WORDS.encode())

        threading.Thread(target=serve, daemon=True).start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def network(engine: Docker) -> Iterator[Any]:
    """`network(sealed)` makes one as a launch does: its name, and the host's addresses in it and in Docker's own."""
    made: list[str] = []

    def make(sealed: bool) -> tuple[str, tuple[str, ...]]:
        name = f"{engine.run}-{len(made)}-net"
        made.append(name)
        engine.create_network(name, engine.labels, sealed)
        subnets = [engine.api.inspect_network(one)["IPAM"]["Config"][0]["Subnet"] for one in (name, "bridge")]
        return name, tuple(str(next(ip_network(subnet).hosts())) for subnet in subnets)  # the bridge's own

    yield make
    for name in made:
        engine.api.remove_network(name)


def tried(engine: Docker, name: str, port: int, addresses: tuple[str, ...]) -> dict[str, str]:
    argv = ("python", "-c", TRY, str(port), *addresses)
    code, said = ask(engine, find(engine, "collbench/mpich"), argv, network_mode=name)
    assert code == 0, said
    found: dict[str, str] = json.loads(said)
    return found


@pytest.mark.docker
def test_what_listens_on_the_host_is_out_of_reach(engine: Docker, network: Any) -> None:
    with server() as port:
        name, addresses = network(True)
        found = tried(engine, name, port, addresses)
        assert len(found) == 2
        assert WORDS not in found.values(), found
        name, addresses = network(False)  # so that the test is known to see it where it is not
        assert tried(engine, name, port, addresses)[addresses[0]] == WORDS


@pytest.mark.docker
def test_the_option_is_in_force(engine: Docker, network: Any) -> None:
    name, _ = network(True)
    found = engine.api.inspect_network(name)
    assert found["Internal"] is True
    assert found["Options"].items() >= NETWORK_OPTIONS.items()
