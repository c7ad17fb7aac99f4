#!/usr/bin/env python3
"""A remote shell without keys, for containers that are made and removed by a program of this folder.

    remote_shell.py serve            runs commands that arrive at its port, one after the other or together
    remote_shell.py HOST COMMAND     runs a command on a host that serves, and passes on what it prints

An MPI launcher calls the second form in the place of ssh. Whoever reaches the port may run anything: never outside of a
network that has only these containers.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading

PORT = 7022


def serve() -> None:
    """Until it is killed."""
    with socket.create_server(("", PORT)) as server:
        while True:
            threading.Thread(target=_run, args=(server.accept()[0],), daemon=True).start()


def _run(connection: socket.socket) -> None:
    with connection, connection.makefile("rb") as lines:
        command = lines.readline().decode()
        subprocess.run(
            ["sh", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=connection.fileno(),
            stderr=subprocess.STDOUT,
            check=False,
        )


def call(host: str, command: str) -> None:
    """Print what the command prints there, until it ends."""
    with socket.create_connection((host, PORT)) as connection:
        connection.sendall(command.encode() + b"\n")
        while data := connection.recv(65536):
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    words = [word for number, word in enumerate(sys.argv[1:]) if number or not word.startswith("-")]
    if words == ["serve"]:
        serve()
    else:
        call(words[0], " ".join(words[1:]))
