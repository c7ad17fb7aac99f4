"""What is read from NCCL's log, on lines as NCCL writes them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from collbench.bindings.gpu.nccl import NcclLog, chosen, transports
from collbench.bindings.spec import Seen

CONNECTIONS = """\
host:1:2 [0] NCCL INFO Using network Socket
host:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM
host:1:2 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/IPC
host:1:2 [0] NCCL INFO Channel 00/0 : 1[1] -> 0[0] [receive] via NET/Socket/0
host:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] [send] via NET/IB/3/GDRDMA
host:1:2 [0] NCCL INFO Channel 00 : 0[1a000] -> 1[3d000] via SHM/direct/direct
host:1:2 [0] NCCL INFO Channel 02 : 0[1a000] -> 1[3d000] via P2P/direct pointer, comm 0x5
host:1:2 [0] NCCL INFO Connected all rings
host:1:2 [0] NCCL INFO Trees [0] 1/-1/-1->0->-1 via nothing
"""

NEW = "host:1:2 [0] NCCL INFO AllReduce: 8 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}\n"
OLD = "host:1:2 [0] NCCL INFO AllReduce: 1048576 Bytes -> Algo 1 proto 2 time 12.3\n"


def test_ways_of_connections() -> None:
    assert transports(CONNECTIONS) == [
        "P2P/CUMEM", "P2P/IPC", "NET/Socket/0", "NET/IB/3/GDRDMA", "SHM/direct/direct", "P2P/direct",
    ]  # fmt: skip
    assert transports("") == []


@pytest.mark.parametrize(
    ("text", "algorithm", "protocol"),
    [
        (NEW, "RING", "LL"),
        (OLD, "RING", "SIMPLE"),
        (OLD.replace("Algo 1 proto 2", "Algo 0 proto 1"), "TREE", "LL128"),
        (OLD.replace("Algo 1 proto 2", "Algo 4 proto 0"), "NVLS", "LL"),
        (OLD.replace("Algo 1 proto 2", "Algo 9 proto 7"), "9", "7"),
        (NEW.replace("RING", "NVLS_TREE").replace("LL ", "SIMPLE "), "NVLS_TREE", "SIMPLE"),
        (OLD + NEW, "RING", "LL"),
        (NEW + OLD, "RING", "SIMPLE"),
    ],
)
def test_what_was_chosen_last(text: str, algorithm: str, protocol: str) -> None:
    assert chosen(text) == Seen(algorithm, protocol)
    assert chosen(CONNECTIONS + text, "P2P/IPC") == Seen(algorithm, protocol, "P2P/IPC")


@pytest.mark.parametrize("text", ["", CONNECTIONS])
def test_nothing_was_chosen(text: str) -> None:
    """Sends and receives have no algorithm."""
    assert chosen(text, "SHM") == Seen(transport="SHM")


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


def test_the_choice_is_logged_for_one_operation_and_connections_for_all() -> None:
    log = NcclLog()
    log.begin()
    library = Library()
    assert "P2P" in library.subsystems.split(",")
    library.write("host:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via SHM/direct\n")
    assert log.transport() == "SHM/direct"
    assert log.observe(library.reread, library.perform) == Seen("RING", "LL", "SHM/direct")
    assert library.subsystems != "TUNING", "samples would be logged"
    assert log.observe(library.reread, lambda: None) == Seen(transport="SHM/direct"), "the choice before is no choice"
    library.write("host:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\n")
    assert log.transport() == "P2P/IPC, SHM/direct"


def test_the_log_goes_on_when_the_operation_fails() -> None:
    log = NcclLog()
    log.begin()
    library = Library()

    def fail() -> None:
        raise RuntimeError("from the library")

    with pytest.raises(RuntimeError, match="from the library"):
        log.observe(library.reread, fail)
    assert library.subsystems != "TUNING"


def test_a_version_that_cannot_be_told_again_tells_connections_alone() -> None:
    log = NcclLog()
    log.begin()
    library = Library(rereads=False)
    library.write(CONNECTIONS)
    performed: list[int] = []
    found = log.observe(library.reread, lambda: performed.append(1))
    assert (found.algorithm, found.protocol) == (None, None)
    assert "P2P/CUMEM" in (found.transport or "")
    assert performed == [1]


def test_a_log_that_the_user_asked_for_is_left_alone() -> None:
    os.environ |= {"NCCL_DEBUG": "WARN", "NCCL_DEBUG_FILE": "/home/me/nccl.log"}
    before = dict(os.environ)
    log = NcclLog()
    log.begin()
    library = Library()
    performed: list[int] = []
    assert log.observe(library.reread, lambda: performed.append(1)) == Seen()
    assert performed == [1], "every rank performs it, whoever has a log"
    assert log.transport() is None
    assert dict(os.environ) == before


def test_the_environment_does_not_move_while_the_library_may_read_it() -> None:
    """A name that is added or taken away would move it under the library's own threads."""
    log = NcclLog()
    log.begin()
    names, library = list(os.environ), Library()
    seen: list[list[str]] = []
    log.observe(library.reread, lambda: seen.append(list(os.environ)))
    assert [*seen, list(os.environ)] == [names, names]


def test_nothing_of_the_log_is_left_behind() -> None:
    """However the process ends: the file has no name in any folder."""
    log = NcclLog()
    log.begin()
    target = Path(os.environ["NCCL_DEBUG_FILE"]).readlink()
    assert not Path(str(target).removesuffix(" (deleted)")).exists()
