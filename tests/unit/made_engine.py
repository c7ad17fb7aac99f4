"""An engine made up for tests: a socket on which HTTP is answered as each test says."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

VERSION = {"Version": "20.10.24", "ApiVersion": "1.41", "Components": [{"Name": "Engine"}]}

#: Answers a request: (method, path without the API's version) -> status and JSON (or its bytes); None: `VERSION`, `OK`.
Answer = Callable[[str, str], tuple[int, Any] | None]


@dataclass
class MadeEngine:
    """Where it listens, what it was asked (method and path without the API's version), and the JSON that came along."""

    host: str
    asked: list[tuple[str, str]] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)


@contextmanager
def made_engine(folder: Path, answer: Answer) -> Iterator[MadeEngine]:
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
            path = self.path[len("/v1.41") :] if self.path.startswith("/v1.41") else self.path
            made.asked.append((self.command, path))
            status, found = answer(self.command, path) or (200, VERSION if path == "/version" else "OK")
            body = found if isinstance(found, bytes) else json.dumps(found).encode()
            body = b"" if found is None and status == 204 else body
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_DELETE = do_HEAD = _reply  # noqa: N815 - the names that the base class calls

    class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            pass  # the test hung up

    with Server(f"{folder}/docker.sock", Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield made
        finally:
            server.shutdown()


@contextmanager
def raw_engine(folder: Path, talk: Callable[[Any], None]) -> Iterator[MadeEngine]:
    """An engine that does with each connection what it likes; `asked` counts the connections."""
    made = MadeEngine(f"unix://{folder}/docker.sock")

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            made.asked.append(("connection", ""))
            talk(self.request)

    class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            pass

    with Server(f"{folder}/docker.sock", Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield made
        finally:
            server.shutdown()
