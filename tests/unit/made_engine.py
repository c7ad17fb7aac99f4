"""An engine made up for tests: a socket on which HTTP is answered as each test says."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from collbench.launch.engines.docker.client import Docker

VERSION = {"Version": "20.10.24", "ApiVersion": "1.41", "Components": [{"Name": "Engine"}]}

#: A status and JSON, or its bytes; None: status 200 with `VERSION` or `OK`.
Reply = tuple[int, Any] | None

#: Replies by (method, path without the API's version); or by the beginning of a path or of both ("DELETE /networks").
Answers = Callable[[str, str], Reply] | Mapping[str, Reply | Callable[[], Reply]]

#: No container and no network is there.
EMPTY: dict[str, Reply] = {"GET /containers/json": (200, []), "GET /networks": (200, [])}


@dataclass
class MadeEngine:
    """Where it listens, what it was asked (method and path without the API's version), and the JSON that came along."""

    host: str
    asked: list[tuple[str, str]] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # the test hung up


@contextmanager
def serving(made: MadeEngine, handler: Any) -> Iterator[MadeEngine]:
    socket = made.host.removeprefix("unix://")
    with Server(socket, handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield made
        finally:
            server.shutdown()
            Path(socket).unlink()


def reply_to(method: str, path: str, answers: Answers) -> Reply:
    if not isinstance(answers, Mapping):
        return answers(method, path)
    whole = f"{method} {path}"
    reply = next((answers[begin] for begin in answers if whole.startswith(begin) or path.startswith(begin)), None)
    return reply() if callable(reply) else reply


@contextmanager
def made_engine(folder: Path, answers: Answers) -> Iterator[MadeEngine]:
    """An engine that answers while this lasts."""
    made = MadeEngine(f"unix://{folder}/docker.sock")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *words: Any) -> None:
            pass

        def address_string(self) -> str:
            return "test"

        def _reply(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.headers.get("Content-Type") == "application/json":
                made.bodies.append(json.loads(body))
            path = self.path.removeprefix("/v1.41")
            made.asked.append((self.command, path))
            status, answer = reply_to(self.command, path, answers) or (200, VERSION if path == "/version" else "OK")
            body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            body = b"" if answer is None and status == 204 else body
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_DELETE = do_HEAD = _reply  # noqa: N815 - the names that the base class calls

    with serving(made, Handler):
        yield made


@contextmanager
def connected(folder: Path, answers: Answers) -> Iterator[tuple[Docker, MadeEngine]]:
    """A client of an engine that answers while this lasts."""
    with made_engine(folder, answers) as made, closing(Docker(made.host)) as docker:
        yield docker, made


@contextmanager
def raw_engine(folder: Path, talk: Callable[[Any], None]) -> Iterator[MadeEngine]:
    """An engine that does with each connection what it likes; `asked` counts the connections."""
    made = MadeEngine(f"unix://{folder}/docker.sock")

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            made.asked.append(("connection", ""))
            talk(self.request)

    with serving(made, Handler):
        yield made
