"""Both ends of the link between a driver and the ranks of a world that takes turns: pipes, and TCP connections."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from collbench.errors import CollbenchError
from collbench.launch import live_world
from collbench.launch.live_world import WorldLink, linked
from collbench.machine import driver_link
from collbench.machine.driver_link import DriverLink
from collbench.schema.world import ADDRESS, LONGEST_REPORT, UNREACHABLE, Address, Order, Report

RANKS = 3
STANDS, BEGIN, END = Report(at="stands"), Order(act="begin"), Order(act="end")


@pytest.fixture(params=["pipes", "connections"])
def link(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[WorldLink]:
    with linked(tmp_path, RANKS, (os.getuid(), os.getgid()), local=request.param == "pipes") as made:
        yield made


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[WorldLink]:
    with linked(tmp_path, RANKS, (os.getuid(), os.getgid()), local=False) as made:
        yield made


@pytest.fixture
def ranks(link: WorldLink, tmp_path: Path) -> Iterator[list[DriverLink]]:
    made = [DriverLink(tmp_path, rank) for rank in range(RANKS)]
    yield made
    for one in made:
        one.close()


def meanwhile(*calls: Callable[[], object]) -> list[object]:
    """What calls return that run at the same time."""
    results: list[object] = [None] * len(calls)

    def call(number: int) -> None:
        results[number] = calls[number]()

    threads = [threading.Thread(target=call, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    return results


def test_rank_0_reports_and_all_get_the_order(link: WorldLink, ranks: list[DriverLink]) -> None:
    for order in (BEGIN, END):
        for rank in ranks:
            rank.report(STANDS)
        assert link.report(5) == STANDS
        assert link.report(0.05) is None
        link.order(order)
        assert meanwhile(*(rank.sleep for rank in ranks)) == [order] * RANKS


def test_two_reports_at_once_are_two(link: WorldLink, ranks: list[DriverLink]) -> None:
    ranks[0].report(STANDS)
    ranks[0].report(Report(at="slice", n=7))
    assert (link.report(5), link.report(5)) == (STANDS, Report(at="slice", n=7))


def test_a_long_report_comes_whole(link: WorldLink, ranks: list[DriverLink]) -> None:
    long = Report(at="stands", holds=tuple(f"memory {number} {number}" for number in range(20_000)))
    assert LONGEST_REPORT > len(msgspec.json.encode(long)) > 1 << 18
    reported, heard = meanwhile(lambda: ranks[0].report(long), lambda: link.report(10))
    assert (reported, heard) == (None, long)


@pytest.mark.parametrize("sent", [b"{}\n", b"nothing\n", b"x" * (LONGEST_REPORT + 1)], ids=["empty", "text", "long"])
def test_what_is_no_report_is_refused(link: WorldLink, ranks: list[DriverLink], sent: bytes) -> None:
    descriptor = max(ranks[0].descriptors)  # the pipe of reports is opened last

    def send() -> None:
        rest = sent
        while rest:
            rest = rest[os.write(descriptor, rest) :]

    thread = threading.Thread(target=send)
    thread.start()
    with pytest.raises(CollbenchError):
        link.report(10)
    thread.join(20)
    assert not thread.is_alive()


def test_a_rank_wakes_up_for_its_nap_and_for_the_end_of_its_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_link, "NAP", 0.02)
    naps: list[float] = []
    for local in (True, False):
        folder = tmp_path / str(local)
        folder.mkdir()
        with linked(folder, 1, (os.getuid(), os.getgid()), local) as link:
            rank = DriverLink(folder, 0)
            rank.report(STANDS)
            assert link.report(5) == STANDS
            threading.Timer(0.2, link.close).start()
            with pytest.raises(EOFError):
                rank.sleep(lambda: naps.append(time.monotonic()))
        rank.close()
        assert len(naps) > 3
        naps.clear()


def test_everything_is_given_back(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for local in (True, False):
        folder = tmp_path / str(local)
        folder.mkdir()
        with linked(folder, 2, (os.getuid(), os.getgid()), local) as link:
            ranks = [DriverLink(folder, rank) for rank in range(2)]
            ranks[0].report(STANDS)
            assert link.report(5) == STANDS
            link.order(BEGIN)
            for rank in ranks:
                rank.close()
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_pipes_that_cannot_all_be_made_are_given_back(tmp_path: Path) -> None:
    (tmp_path / "orders-1").touch()
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    with pytest.raises(FileExistsError), linked(tmp_path, 2, (os.getuid(), os.getgid()), local=True):
        pass
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


# Connections ---------------------------------------------------------------------------------------------------------


def port_of(folder: Path) -> int:
    return msgspec.json.decode((folder / ADDRESS).read_bytes(), type=Address).port


def test_an_order_waits_for_ranks_that_are_about_to_connect(remote: WorldLink, tmp_path: Path) -> None:
    first = DriverLink(tmp_path, 0)
    first.report(STANDS)
    assert remote.report(5) == STANDS

    def later() -> Order:
        time.sleep(0.2)
        with_rank = [DriverLink(tmp_path, rank) for rank in (1, 2)]
        order = with_rank[0].sleep()
        for one in with_rank:
            one.close()
        return order

    assert meanwhile(later, lambda: remote.order(BEGIN), first.sleep) == [BEGIN, None, BEGIN]
    first.close()


def test_a_rank_that_is_gone_does_not_hold_up_the_others(
    remote: WorldLink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_world, "MEETING", 0.2)
    ranks = [DriverLink(tmp_path, rank) for rank in range(RANKS)]
    ranks[0].report(STANDS)
    assert remote.report(5) == STANDS
    ranks[1].close()
    began = time.monotonic()
    for order in (BEGIN, END):
        remote.order(order)
        assert meanwhile(ranks[0].sleep, ranks[2].sleep) == [order, order]
    assert time.monotonic() - began < 5
    ranks[0].close()
    began, used = time.monotonic(), time.process_time()
    assert remote.report(0.3) is None
    assert time.process_time() - used < 0.2 and time.monotonic() - began >= 0.3
    ranks[2].close()


def test_the_program_of_a_rank_takes_its_turns_until_it_ends(remote: WorldLink, tmp_path: Path) -> None:
    ranks = [DriverLink(tmp_path, rank) for rank in range(RANKS)]
    ranks[0].report(STANDS)
    assert remote.report(5) == STANDS
    remote.order(BEGIN)
    assert meanwhile(*(rank.sleep for rank in ranks)) == [BEGIN] * RANKS
    programs = [DriverLink(tmp_path, rank) for rank in range(RANKS)]
    programs[0].report(Report(at="ready"))
    assert remote.report(5) == Report(at="ready")
    remote.order(END)
    assert meanwhile(*(program.sleep for program in programs)) == [END] * RANKS
    for program in programs:
        program.close()
    ranks[0].report(STANDS)
    assert remote.report(5) == STANDS
    remote.order(BEGIN)
    assert meanwhile(*(rank.sleep for rank in ranks)) == [BEGIN] * RANKS
    for rank in ranks:
        rank.close()


def _closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


@pytest.mark.parametrize(
    "said", [b"", b"no token 0\n", b"wrong 0\n", b"x" * 300, b"{token} 3\n", b"{token} -1\n", b"{token}\n"]
)
def test_strangers_are_not_served(remote: WorldLink, tmp_path: Path, said: bytes) -> None:
    token = msgspec.json.decode((tmp_path / ADDRESS).read_bytes(), type=Address).token
    with socket.create_connection(("127.0.0.1", port_of(tmp_path))) as stranger:
        stranger.sendall(said.replace(b"{token}", token.encode()))
        rank = DriverLink(tmp_path, 0)
        rank.report(STANDS)
        assert remote.report(5) == STANDS
        until = time.monotonic() + 5
        while said and not _closed(stranger) and time.monotonic() < until:
            assert remote.report(0.02) is None
        assert _closed(stranger) == bool(said)
        rank.close()


def test_silent_strangers_are_closed_where_there_are_many(
    remote: WorldLink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_world, "_STRANGERS", 2)
    strangers = [socket.create_connection(("127.0.0.1", port_of(tmp_path))) for _ in range(20)]
    rank = DriverLink(tmp_path, 0)
    rank.report(STANDS)
    assert remote.report(5) == STANDS
    open_ones = [one for one in strangers if not _closed(one)]
    assert len(open_ones) <= RANKS + 2
    for one in strangers:
        one.close()
    rank.close()


def test_a_rank_that_does_not_reach_the_driver_says_so(remote: WorldLink, tmp_path: Path) -> None:
    assert not remote.unreachable
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    address = Address(hosts=("127.0.0.1", "name.invalid"), port=port, token="")
    (tmp_path / ADDRESS).write_bytes(msgspec.json.encode(address))
    with pytest.raises(OSError, match=str(port)):
        DriverLink(tmp_path, 1)
    assert (tmp_path / UNREACHABLE).exists() and remote.unreachable


def test_only_its_owner_reads_the_token(remote: WorldLink, tmp_path: Path) -> None:
    address = msgspec.json.decode((tmp_path / ADDRESS).read_bytes(), type=Address)
    assert len(address.token) >= 32 and socket.gethostname() in address.hosts
    assert not any(host.startswith("127.") for host in address.hosts)
