"""Signals: the first is heard at a safe point, the second ends every wait, and what was begun ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.made_engine import made_engine, raw_engine

from collbench.errors import Interrupted
from collbench.launch import waiting
from collbench.launch.waiting import Stopping
from collbench.machine.launcher import SIGNALS
from collbench.workloads.protocol import Unusable, lacking_memory, printed, refuse_without_gpu


@pytest.fixture
def as_before() -> Iterator[None]:
    """Handlers and timer are given back."""
    numbers = (*SIGNALS, signal.SIGALRM)
    before = [signal.getsignal(number) for number in numbers]
    yield
    assert [signal.getsignal(number) for number in numbers] == before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


@pytest.mark.usefixtures("as_before")
@pytest.mark.timeout(method="thread")
@pytest.mark.parametrize("number", SIGNALS)
def test_one_signal_is_heard_at_the_next_safe_point(number: signal.Signals) -> None:
    found = Stopping()
    with found.listening():
        found.check()
        os.kill(os.getpid(), number)
        assert found.requested
        with pytest.raises(Interrupted, match=r"^interrupted\.$"):
            found.check()
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0), "one alone ends no wait"


@pytest.mark.usefixtures("as_before")
@pytest.mark.timeout(method="thread")
def test_what_somebody_told_us_to_ignore_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        found = Stopping()
        with found.listening():
            os.kill(os.getpid(), signal.SIGHUP)
            assert (found.requested, signal.getsignal(signal.SIGHUP)) == (False, signal.SIG_IGN)
            os.kill(os.getpid(), signal.SIGINT)
            assert found.requested, "Ctrl-C is heard whoever ignored it"
    finally:
        signal.signal(signal.SIGHUP, before)
        signal.signal(signal.SIGINT, interrupt)


@pytest.mark.usefixtures("as_before")
@pytest.mark.timeout(method="thread")
def test_after_a_second_one_every_wait_ends_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is removed on the way out may wait too; what it says is kept."""
    monkeypatch.setattr(waiting, "MOMENT", 0.05)
    monkeypatch.setattr(waiting, "AGAIN", 0.05)
    found, ended = Stopping(), list[str]()

    def wait() -> None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGINT):
            os.kill(os.getpid(), number)
        try:
            time.sleep(60)
        finally:
            ended.append("the first wait")
            try:
                time.sleep(60)
            except KeyboardInterrupt as error:
                ended.append("the second wait")
                error.add_note(" Containers may be left.")
                raise

    with pytest.raises(Interrupted) as caught, found.listening():
        wait()
    assert ended == ["the first wait", "the second wait"]
    assert (str(caught.value), caught.value.__notes__) == ("interrupted.", [" Containers may be left."])
    assert isinstance(caught.value.__cause__, KeyboardInterrupt)


@pytest.mark.usefixtures("as_before")
@pytest.mark.timeout(method="thread")
def test_what_else_ends_it_is_raised_as_it_is() -> None:
    with pytest.raises(OSError, match="something else"), Stopping().listening():
        raise OSError("something else")


@pytest.mark.usefixtures("as_before")
@pytest.mark.timeout(method="thread")
def test_after_the_second_signal_there_is_a_moment() -> None:
    assert 0.1 < waiting.AGAIN < waiting.MOMENT <= 1.0


# Ctrl-C and SIGTERM ---------------------------------------------------------------------------------------------------

pytest.importorskip("docker", reason="the Docker SDK for Python is not installed")

PLAN = """
collectives = ["allreduce"]
sizes = ["8"]
images = ["mpich"]
policies = ["single"]
launches = 1
oversubscribe = true
"""

#: Far below the minute that an answer of an engine may take, far above what a busy machine needs (s).
LIMIT = 30.0


@pytest.fixture
def launched(tmp_path: Path) -> Callable[[str], subprocess.Popen[str]]:
    def start(host: str) -> subprocess.Popen[str]:
        plan = tmp_path / "plan.toml"
        plan.write_text(PLAN)
        argv = (sys.executable, "-m", "collbench", "launch", str(plan), "--out", str(tmp_path / "run"), "--docker-host")
        return subprocess.Popen([*argv, host], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    return start


def silence(asked: threading.Event) -> Callable[[Any], None]:
    def talk(connection: Any) -> None:
        while connection.recv(4096):
            asked.set()

    return talk


@pytest.mark.slow
def test_a_stop_ends_the_wait_for_an_engine_that_never_answers(
    tmp_path: Path, launched: Callable[[str], subprocess.Popen[str]]
) -> None:
    asked = threading.Event()
    with raw_engine(tmp_path, silence(asked)) as made, launched(made.host) as process:
        assert asked.wait(LIMIT)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=LIMIT)
    assert (process.returncode, err) == (130, "collbench: interrupted.\n")


@pytest.mark.slow
@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("stalls_at", ["/images/", "/containers/create", "/containers/1/start", "/containers/1/json"])
def test_a_second_signal_ends_a_wait_in_which_something_is_made(
    tmp_path: Path, launched: Callable[[str], subprocess.Popen[str]], second: signal.Signals, stalls_at: str
) -> None:
    """An engine that stalls, and does not answer what is asked to clean up either."""
    stalled, over = threading.Event(), threading.Event()

    def answer(method: str, path: str) -> tuple[int, Any] | None:
        if stalled.is_set() or path.startswith(stalls_at):
            stalled.set()
            over.wait(4 * LIMIT)
        if path.startswith("/images/"):
            return 200, {"Id": "sha256:1"}
        return (201, {"Id": "1"}) if path.startswith("/containers/create") else None

    with made_engine(tmp_path, answer) as made, launched(made.host) as process:
        assert stalled.wait(LIMIT)
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)  # or the system would make one of two that are alike
        process.send_signal(second)
        _, err = process.communicate(timeout=LIMIT)
        over.set()
    assert (process.returncode, err.splitlines()[1:]) == (130, [])
    assert err.startswith("collbench: interrupted. ") and "collbench launch --sweep" in err


# How programs end where a device or memory is lacking -----------------------------------------------------------------

#: As torch says it.
ALLOCATOR = (
    "[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate "
    "4000 bytes. Error code 12 (Cannot allocate memory)"
)
LOADER = "DataLoader worker (pid 4711) is killed by signal: Killed. "


def torch(cuda: str | None, available: bool = False) -> Any:
    return SimpleNamespace(
        __version__="2.13.0", version=SimpleNamespace(cuda=cuda), cuda=SimpleNamespace(is_available=lambda: available)
    )


@pytest.mark.parametrize(("cuda", "why"), [(None, "is built without CUDA"), ("12.8", "finds no GPU that it can use")])
def test_a_gpu_that_is_not_there_is_said_in_the_same_words_everywhere(cuda: str | None, why: str) -> None:
    with pytest.raises(Unusable) as refused:
        refuse_without_gpu(torch(cuda), "cuda")
    assert str(refused.value) == f"device=cuda: torch 2.13.0 {why}; use device=cpu"
    refuse_without_gpu(torch(cuda), "cpu")
    refuse_without_gpu(torch("12.8", available=True), "cuda")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RuntimeError(ALLOCATOR), " does not fit into memory; use a smaller batch (it tried to allocate 4000 bytes)"),
        (RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0"),
         " does not fit into the memory of the GPU; use a smaller batch (it tried to allocate 2.00 GiB)"),
        (MemoryError(), " does not fit into memory; use a smaller batch"),
        (RuntimeError(LOADER), ": DataLoader worker (pid 4711) is killed by signal: Killed, perhaps because memory "
                               "ran out; use fewer loaders, or a smaller batch"),
        (RuntimeError("Connection closed by peer"), None),
    ],
)  # fmt: skip
def test_errors_of_torch_that_mean_memory_say_what_would_fit(error: Exception, said: str | None) -> None:
    assert lacking_memory(error, "lstm") == (None if said is None else f"lstm{said}")


def test_a_program_ends_with_a_result_or_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def failing(error: Exception) -> Any:
        def run() -> dict[str, Any]:
            raise error

        return run

    printed(lambda: {"ns": [1]}, "x")
    assert capsys.readouterr().out == '{"ns": [1]}\n'
    for error, code in ((Unusable("no GPU"), 77), (MemoryError(), 1)):
        with pytest.raises(SystemExit) as ended:
            printed(failing(error), "x")
        assert ended.value.code == code and len(capsys.readouterr().err.splitlines()) == 1
    with pytest.raises(RuntimeError, match="closed"):
        printed(failing(RuntimeError("closed")), "x")
