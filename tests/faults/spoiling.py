"""Between a driver and its engine: every so many answers one is spoiled, the engine itself is as it was."""

from __future__ import annotations

import random
import socket
import threading
from pathlib import Path

#: What becomes of an answer: refused before the engine hears of it, lost after it did, or of another shape.
KINDS = ("refused", "closed", "lost", "empty", "null")

_ANSWERS = {
    "refused": (b"500 Internal Server Error", b'{"message": "spoiled"}'),
    "empty": (b"200 OK", b"{}"),
    "null": (b"200 OK", b"null"),
}


class Spoiling:
    """Listens at `at`; one in `every` answers is spoiled, chosen by `seed`. `spoiled` says which, in order.

    From `stalled` on nothing that is asked is answered.
    """

    def __init__(self, at: Path, engine: str, every: int, seed: int) -> None:
        self.host, self.spoiled, self.stalled = f"unix://{at}", list[str](), threading.Event()
        self._engine, self._every, self._random = engine.removeprefix("unix://"), every, random.Random(seed)  # noqa: S311
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(at))
        self._listening.listen(64)
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """No further connection is taken."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(client,), daemon=True).start()

    def _talk(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as engine:
            head = b""
            while b"\r\n\r\n" not in head:
                if not (piece := client.recv(65536)):
                    return
                head += piece
            if self.stalled.is_set():
                while client.recv(65536):
                    pass
                return
            kind = self._random.choice(KINDS) if self._random.randrange(self._every) == 0 else None
            if kind is not None:
                self.spoiled.append(f"{kind}: {head.split(b' HTTP', 1)[0].decode()}")
            if kind in _ANSWERS:
                status, body = _ANSWERS[kind]
                client.sendall(b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
                               b"Connection: close\r\n\r\n%s" % (status, len(body), body))  # fmt: skip
            if kind in _ANSWERS or kind == "closed":
                return
            line, _, rest = head.partition(b"\r\n")
            if b"Upgrade:" not in rest:
                rest = b"Connection: close\r\n" + rest.replace(b"Connection: keep-alive\r\n", b"")  # one request each
            engine.connect(self._engine)
            engine.sendall(line + b"\r\n" + rest)
            onwards = threading.Thread(target=_splice, args=(client, engine), daemon=True)
            onwards.start()
            if kind == "lost":
                engine.recv(1)  # the engine has done it, and the answer goes nowhere
                return
            _splice(engine, client)


def _splice(source: socket.socket, target: socket.socket) -> None:
    try:
        while piece := source.recv(65536):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        return
