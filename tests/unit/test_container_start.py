"""container_start: its cases, phases of a process and of a container on a made-up engine, and what is left of them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.processes import wait_for
from tests.unit.made_engine import EMPTY, Reply, connected, made_engine

from collbench.errors import EngineError
from collbench.launch.engines.docker import start
from collbench.run.cases import program_cases
from collbench.schema.plan import Plan
from collbench.workloads.host.container_start import BARE, CLOCK, NETWORK, WORKLOAD
from collbench.workloads.protocol import Unusable

sdk = pytest.importorskip("docker", reason="the Docker SDK for Python is not installed")
needs_clock = pytest.mark.skipif(not CLOCK.exists(), reason="the program was not built")

PHASES = ("create", "start", "exit", "removal", "total")


def never() -> None:
    """No reason to stop."""


def test_a_bare_process_has_no_phases_of_a_container() -> None:
    plan = Plan(benchmarks=({"name": "container_start", "process": (BARE, *NETWORK)},))
    bare, *containers = program_cases(plan, 1)
    assert bare.measures == ("start", "exit", "total")
    assert [case.measures for case in containers] == [PHASES] * len(NETWORK)
    assert [name for name in WORKLOAD.argv(bare.case, 3) if name.startswith("--")] == [
        "--times=3", "--process=bare", "--container_image=collbench/tools", "--cache=warm"
    ]  # fmt: skip


def test_the_first_instruction_lies_between_the_call_and_the_end() -> None:
    assert start.phases(100, 400, b"250\n", create=7, removal=9) == {
        "start": 150, "exit": 150, "create": 7, "removal": 9, "total": 316
    }  # fmt: skip
    for output in (b"", b"99\n", b"401\n", b"-250\n", b"exec format error\n"):
        with pytest.raises(EngineError, match="no time between"):
            start.phases(100, 400, output)


@needs_clock
def test_a_process_says_the_clock_of_this_machine() -> None:
    before = time.monotonic_ns()
    found, code = start.process()
    assert code == 0
    assert found.keys() == {"start", "exit", "total"}
    assert all(ns > 0 for ns in found.values())
    assert found["total"] < time.monotonic_ns() - before


# A container ---------------------------------------------------------------------------------------------------------


def answers(**changed: Reply) -> dict[str, Any]:
    """An engine on which the program runs at once."""
    created: dict[str, Reply] = {"POST /containers/create": (201, {"Id": "c1"})}
    of_one = {
        "POST /containers/c1/start": (204, None), "POST /containers/c1/wait": (200, {"StatusCode": 0}),
        "GET /containers/c1/json": (200, {"Id": "c1", "Config": {"Tty": True}, "HostConfig": {"LogConfig": {}}}),
        "GET /containers/c1/logs": lambda: (200, b"%d\r\n" % time.monotonic_ns()),
        "DELETE /containers/c1": (204, None),
        "GET /images/json": (200, [{"Id": "sha256:1"}]),
        "GET /info": (200, {"DefaultRuntime": "runc", "Driver": "overlay2"}),
    }  # fmt: skip
    return {**changed, **created, **of_one, **EMPTY}


def test_a_container_is_created_started_waited_for_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moment: list[int] = []

    def waited() -> Reply:
        moment.append(time.monotonic_ns())
        return 200, {"StatusCode": 3}

    replies = answers() | {"POST /containers/c1/wait": waited,
                           "GET /containers/c1/logs": lambda: (200, b"%d\n" % moment[0])}  # fmt: skip
    with connected(tmp_path, replies) as (docker, made):
        found, code = start.container(docker, "some/image", "none")
    assert code == 3
    assert found.keys() == {*PHASES}
    assert found["total"] == sum(found[name] for name in PHASES[:-1])
    asked = [method for method, path in made.asked if "/containers/c1" in path or "create" in path]
    assert (asked[0], asked[-1]) == ("POST", "DELETE")
    body = next(body for body in made.bodies if body and "Image" in body)
    assert (body["Image"], body["Entrypoint"], body["Labels"]) == ("some/image", ["/_clock"], docker.labels)
    assert body["HostConfig"]["NetworkMode"] == "none"
    (mount,) = body["HostConfig"]["Mounts"]
    assert (mount["Source"], mount["Target"], mount["ReadOnly"]) == (str(CLOCK), "/_clock", True)


def test_a_container_that_does_not_start_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = [{"Id": "c1"}]

    def removed() -> Reply:
        left.clear()
        return 204, None

    replies: dict[str, Any] = {"POST /containers/c1/start": (500, {"message": "exec format error"}),
               "DELETE /containers/c1": removed,
               "GET /containers/json": lambda: (200, list(left))}  # fmt: skip
    with made_engine(tmp_path, replies | {k: v for k, v in answers().items() if k not in replies}) as made:
        monkeypatch.setenv("DOCKER_HOST", made.host)
        with pytest.raises(EngineError, match="exec format error"):
            start.run("container:none", "some/image", False, 1, never)
    assert not left


def test_where_there_is_no_engine_or_no_image_it_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise ConnectionRefusedError(111, "Connection refused")

    with monkeypatch.context() as patch:
        patch.setattr(sdk, "APIClient", refuse)
        with pytest.raises(Unusable, match=r"not running.*DOCKER_HOST$"):
            start.run("container:none", "some/image", False, 1, never)
    with made_engine(tmp_path, answers() | {"GET /images/json": (200, [])}) as made:
        monkeypatch.setenv("DOCKER_HOST", made.host)
        with pytest.raises(Unusable, match="no such image"):
            start.run("container:none", "some/image", False, 1, never)
        assert ("POST", "/containers/create") not in made.asked


# A cold cache --------------------------------------------------------------------------------------------------------


def test_what_stays_in_memory_is_not_called_cold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "DROP_CACHES", tmp_path / "drop")
    monkeypatch.setattr(os, "sync", never)
    shares = iter((0.5, 0.02, 0.0))  # it leaves memory after a while
    monkeypatch.setattr(start, "resident_share", lambda path: next(shares))
    start.make_cold(("program",))
    assert (tmp_path / "drop").read_text() == "3"
    assert next(shares, None) is None

    monkeypatch.setattr(start, "resident_share", lambda path: 0.5)
    passed = iter(range(0, 10**11, 10**9))
    monkeypatch.setattr(start, "monotonic_ns", lambda: next(passed))
    with pytest.raises(Unusable, match=r"\bprogram\b"):
        start.make_cold(("program",))

    monkeypatch.setattr(start, "DROP_CACHES", tmp_path / "nowhere" / "drop")
    with pytest.raises(Unusable, match="as root"):
        start.make_cold(())


def test_the_share_of_a_file_in_memory_needs_no_right_to_write(tmp_path: Path) -> None:
    file = tmp_path / "program"
    file.write_bytes(bytes(1 << 16))
    file.chmod(0o500)
    assert start.resident_share(str(file)) == 1.0


# Ended from outside --------------------------------------------------------------------------------------------------

#: What a child in a session of its own does once its check raises.
SHELTERED = """
import sys, time
from pathlib import Path
from collbench.errors import Interrupted
from collbench.launch.engines.docker.start import in_own_session
check = in_own_session()
try:
    Path(sys.argv[1]).touch()
    while True:
        check()
        time.sleep(0.01)
except Interrupted:
    Path(sys.argv[2]).touch()
"""


def test_a_kill_of_the_process_group_leaves_time_to_clean_up(tmp_path: Path) -> None:
    begun, cleaned = tmp_path / "begun", tmp_path / "cleaned"
    process = subprocess.Popen([sys.executable, "-c", SHELTERED, str(begun), str(cleaned)], process_group=0)
    try:
        wait_for(begun.exists)
        assert not cleaned.exists()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    wait_for(cleaned.exists, 60.0)
