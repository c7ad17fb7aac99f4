"""The SDK's client with a limit for whole answers. It alone needs the SDK to be imported, which may not be installed.

A socket's time-out holds for each piece of an answer: one that comes byte by byte is never late. So requests are sent
from threads of their own, and abandoned from outside. The threads are daemons: one that waits for ever does not keep
the program from ending.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as StillWaiting
from typing import Any

import docker
import requests

#: How often `patience` is asked while an answer is waited for (s).
SLICE = 0.25


class Api(docker.APIClient):
    """Requests with a limit. `silent`: one was not answered, so no other is sent until `ping_within` succeeds."""

    def __init__(self, patience: Callable[[], None], **settings: Any) -> None:
        self.silent = False
        self._patience = patience
        super().__init__(**settings)  # asks the engine for its version
        self._patience = _for_ever

    def send(self, request: requests.PreparedRequest, **settings: Any) -> requests.Response:
        """As the SDK's, within its time-out for the answer as a whole (of a stream: for its beginning).

        Raises:
            requests.Timeout: there was no answer in time, now or before.
        """
        if self.silent:
            raise requests.ReadTimeout("it no longer answers.")
        limit = float(settings.get("timeout") or self.timeout)
        answer: Future[requests.Response] = Future()
        threading.Thread(target=self._fetch, args=(answer, request, settings), daemon=True).start()
        until = time.monotonic() + limit
        while True:
            try:
                return answer.result(max(0.0, min(SLICE, until - time.monotonic())))
            except requests.ReadTimeout as error:  # the socket's own limit
                self.silent = True
                raise requests.ReadTimeout(f"no answer within {limit:g} s.") from error
            except StillWaiting as error:
                if answer.done() and not isinstance(answer.exception(), StillWaiting):  # meanwhile
                    continue
                if answer.done():
                    return answer.result()
                if time.monotonic() >= until:
                    self.silent = True
                    raise requests.ReadTimeout(f"no answer within {limit:g} s.") from error
            self._patience()

    def _fetch(self, answer: Future[requests.Response], request: requests.PreparedRequest, settings: Any) -> None:
        try:
            answer.set_result(super().send(request, **settings))
        except BaseException as error:
            answer.set_exception(error)

    def ping_within(self, limit: int, patience: Callable[[], None]) -> None:
        """Ask whether it answers (again). `patience` raises when we are to stop: nothing is being made meanwhile.

        Raises:
            requests.RequestException, docker.errors.APIError: it does not.
        """
        timeout = self.timeout
        self.silent, self._patience, self.timeout = False, patience, limit
        try:
            self.ping()
        finally:
            self._patience, self.timeout = _for_ever, timeout


class Client(docker.DockerClient):
    """The SDK's outer client on such an `Api`."""

    def __init__(self, patience: Callable[[], None], **settings: Any) -> None:
        self.api = Api(patience, **settings)


def _for_ever() -> None:
    """Between a request and its answer there is no safe point: the engine is making something."""
