"""NCCL's log: what is read of its lines, and when they are written; and its settings."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from tests.double.nccl import DoubleNccl
from tests.unit.nccl_log import CHOICES, FIRST, LAST, PLUGINS, VERSIONS, WAYS, Line, log_of

from collbench.backends.torch_nccl import TorchNccl
from collbench.bindings.gpu import nccl as nccl_binding
from collbench.bindings.gpu.nccl import UNKNOWN_CHOICE, NcclLog, call_in, chosen, reread_settings, transports
from collbench.bindings.spec import Observation


class Library:
    """A library that writes connections or choices to the file that the environment names, as it is told to."""

    def __init__(self, rereads: bool = True) -> None:
        self.rereads = rereads
        self.subsystems = ""
        self.file = Path("/nowhere")
        self.listen()

    def listen(self) -> None:
        """Read the environment: when it starts, and when it is told to."""
        self.subsystems = os.environ.get("NCCL_DEBUG_SUBSYS", "")
        self.file = Path(os.environ.get("NCCL_DEBUG_FILE", "/nowhere"))

    def reread(self) -> bool:
        if self.rereads:
            self.listen()
        return self.rereads

    def write(self, text: str) -> None:
        with self.file.open("a", encoding="utf-8") as file:
            file.write(text)

    def perform(self) -> None:
        if self.subsystems == "TUNING":
            self.write(NEW)


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without NCCL's variables."""
    before = {name: value for name, value in os.environ.items() if not name.startswith("NCCL_DEBUG")}
    monkeypatch.setattr(os, "environ", before)


@pytest.fixture
def log() -> NcclLog:
    return NcclLog()


# What is read of lines --------------------------------------------------------------------------------------------


NEW = log_of(Line("AllReduce: 8 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}", FIRST, LAST))
CONNECTED = log_of(Line("Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM", FIRST, LAST))


def said(line: Line) -> str:
    return f"{line.first} to {line.last}: {line.text}"


@pytest.mark.parametrize("line", WAYS, ids=said)
def test_the_way_of_a_connection(line: Line) -> None:
    assert transports(log_of(line)) == ([] if WAYS[line] is None else [WAYS[line]])


def test_the_ways_of_all_connections() -> None:
    assert sorted(transports(log_of(*WAYS))) == sorted(
        ["NVLS", *(way for way in WAYS.values() if way not in (None, "NVLS"))]
    )
    assert transports("host:1:2 [0] NCCL INFO Channel 02 : 0[1a] -> 1[3d] via P2P/IPC, comm 0x5 nRanks 2") == [
        "P2P/IPC"
    ]
    assert transports("") == []


@pytest.mark.parametrize("line", CHOICES, ids=said)
def test_the_choice_of_a_call_and_the_last_of_several(line: Line) -> None:
    """Sends and receives have none."""
    choice = CHOICES[line]
    algorithm, protocol = choice or (None, None)
    assert chosen(log_of(*WAYS, line), "P2P/IPC") == Observation(algorithm, protocol, "P2P/IPC")
    for other, before in CHOICES.items():
        assert chosen(log_of(other, line)) == Observation(*(choice or before or (None, None)))


def test_a_number_that_has_no_name_yet_is_told() -> None:
    assert chosen(NEW.replace("RING proto LL", "9 proto 7")) == Observation("9", "7")


@pytest.mark.parametrize("line", PLUGINS, ids=said)
def test_the_plugin_of_a_network(log: NcclLog, line: Line) -> None:
    """With the network that it brings; others do without it."""
    library, plugin = Library(), PLUGINS[line]
    library.write(log_of(line, *WAYS))
    ways = {way for way in WAYS.values() if way is not None}
    mine = "NET/Made Up/2/GDRDMA"
    named = ways if plugin is None else ways - {mine} | {f"{mine} (plugin {plugin})"}
    assert log.transport() == ", ".join(sorted(named))


def test_lines_are_of_versions_that_were_read() -> None:
    for line in (*WAYS, *CHOICES, *PLUGINS):
        assert VERSIONS.index(line.first) <= VERSIONS.index(line.last), line


# When they are written, and where ---------------------------------------------------------------------------------


def test_the_choice_is_logged_for_one_operation_and_connections_for_all(log: NcclLog) -> None:
    library = Library()
    assert "P2P" in library.subsystems.split(",")
    library.write("host:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via SHM/direct\n")
    assert log.transport() == "SHM/direct"
    assert log.observe(library.reread, library.perform) == Observation("RING", "LL", "SHM/direct")
    assert library.subsystems != "TUNING", "samples would be logged"
    assert log.observe(library.reread, lambda: None) == Observation(transport="SHM/direct"), (
        "the choice before is no choice"
    )
    library.write("host:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\n")
    assert log.transport() == "P2P/IPC, SHM/direct"


def test_the_log_goes_on_when_the_operation_fails_and_the_environment_does_not_move(log: NcclLog) -> None:
    """A name that is added or taken away would move it under the library's own threads."""
    library = Library()
    with pytest.raises(RuntimeError, match="from the library"):
        log.observe(library.reread, Mock(side_effect=RuntimeError("from the library")))
    assert library.subsystems != "TUNING"
    before, during = list(os.environ), list[list[str]]()
    log.observe(Library().reread, lambda: during.append(list(os.environ)))
    assert [*during, list(os.environ)] == [before, before]
    target = Path(os.environ["NCCL_DEBUG_FILE"]).readlink()
    assert not Path(str(target).removesuffix(" (deleted)")).exists()


def test_a_version_that_cannot_be_told_again_tells_connections_alone(log: NcclLog) -> None:
    library, performed = Library(rereads=False), list[None]()
    library.write(CONNECTED)
    seen = log.observe(library.reread, lambda: performed.append(None))
    assert (seen.algorithm, seen.protocol, seen.notes, len(performed)) == (None, None, (UNKNOWN_CHOICE,), 1)
    assert "P2P/CUMEM" in (seen.transport or "")


PUBLIC, INTERNAL = "ncclResetDebugInit", "ncclResetDebugInitInternal"


@pytest.mark.parametrize(("has", "called"), [
    ((PUBLIC,), [PUBLIC]), ((PUBLIC, INTERNAL), [INTERNAL]), ((INTERNAL,), [INTERNAL]), ((), [])
])  # fmt: skip
def test_the_log_is_switched_by_one_function_and_not_by_one_that_nccl_will_remove(
    has: tuple[str, ...], called: list[str]
) -> None:
    calls: list[str] = []
    handle: Any = SimpleNamespace(**{name: partial(calls.append, name) for name in has})
    assert reread_settings(partial(call_in, handle)) is reread_settings(TorchNccl("2", "", handle).call) is bool(has)
    assert calls == called * 2
    assert not reread_settings(TorchNccl("2", "compiled into torch", None).call)


def test_a_log_that_the_user_asked_for_is_left_alone() -> None:
    os.environ |= {"NCCL_DEBUG": "WARN", "NCCL_DEBUG_FILE": "/home/me/nccl.log"}
    before, log, performed = dict(os.environ), NcclLog(), list[None]()
    assert log.observe(Library().reread, lambda: performed.append(None)) == Observation()
    assert len(performed) == 1, "every rank performs it, whoever has a log"
    assert log.transport() is None
    assert dict(os.environ) == before


# Settings, as the library has them ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "settings"), [
    ("2.30.4", ()), ("2.30.7", ("NCCL_OF_A_FILE=3", "NCCL_SET_THREAD_NAME=FALSE"))
])  # fmt: skip
def test_settings_are_those_that_nccl_publishes_or_has_from_its_files(
    monkeypatch: pytest.MonkeyPatch, version: str, settings: tuple[str, ...]
) -> None:
    """Without those of its log, which collbench sets, and without secrets."""
    os.environ |= {"DOUBLE_NCCL_VERSION": version, "NCCL_ALGO": "Ring"}
    names = {"NCCL_ALGO": "Ring", "NCCL_OF_A_FILE": "3", "NCCL_TOKEN": "x", "NCCL_DEBUG": "INFO", "HOME": "/"}
    monkeypatch.setattr(nccl_binding, "_c_environment", lambda: names)
    assert nccl_binding.library_settings(DoubleNccl(lambda: None).call) == settings
