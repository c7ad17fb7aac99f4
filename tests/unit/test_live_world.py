"""A live world, and both ends of its link with the driver.

A world that leaves odd things, or ends oddly, is one failed record: the experiment goes on, nothing is left.
"""

from __future__ import annotations

import errno
import os
import resource
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import msgspec
import pytest
from tests.processes import LIMIT
from tests.unit.made_worlds import carried_out, made

from collbench.errors import CollbenchError
from collbench.launch import live_world
from collbench.launch.live_world import WorldLink, linked
from collbench.machine import driver_link
from collbench.machine.driver_link import DriverLink
from collbench.schema.world import ADDRESS, LONGEST_REPORT, UNREACHABLE, Address, Order, Report

GOOD = [(1, 8, "ok"), (1, 16, "ok")]


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary folder in which nothing may be left."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return tmp_path / "tmp"


# What it leaves ------------------------------------------------------------------------------------------------------


def reason_of(tmp_path: Path, oddity: str) -> str:
    """Why the first launch failed, in which this happened; the second one went well, and nothing is left."""
    heard = carried_out(made(tmp_path, f"if first; then {oddity}\nelse good; fi"))
    (failed,) = [record for record in heard.records if record.status == "failed"]
    assert (failed.launch, heard.found[-2:]) == (0, GOOD)
    assert list((tmp_path / "tmp").iterdir()) == []
    assert heard.said == [f"failed: {failed.reason}", None]
    return failed.reason or ""


PY = f"{sys.executable} -c"
NO_FILE = os.strerror(errno.ENOENT)


def saves(array: str) -> str:
    """A good world, but for these samples."""
    return f"""good; {PY} "import numpy as np; np.save('$out/samples/a.npy', {array})" """


@pytest.mark.slow
@pytest.mark.parametrize(("oddity", "reason"), [
    ("mkdir $out/records.jsonl", "records.jsonl: .*plain file"),
    ("good; rm $out/samples/a.npy; mkdir $out/samples/a.npy", "a.npy: .*plain file"),
    (r"""good; sed -i 's/a\.npy/a\\u0000b/' $out/records.jsonl""", "is missing"),
    ("truncate -s 900M $out/records.jsonl", "line 1: .* 1048576 bytes"),
    ("yes '' | head -c 300M > $out/records.jsonl", "records.jsonl line 1: "),
    ("ln -s /etc/passwd $out/records.jsonl", "plain files"),
    ("rmdir $out; ln -s /etc $out", f"out/: {os.strerror(errno.ENOTDIR)}|out/: {os.strerror(errno.ELOOP)}"),
    ("rmdir $out", f"out/: {NO_FILE}"), ("rm -rf ${out%/*}", NO_FILE),
    ("printf '[%060000d' 0 | tr 0 '[' > $out/records.jsonl; echo >> $out/records.jsonl", "records.jsonl line 1"),
    ("kill -9 $$", "mpirun .* 9 (Killed)"), (saves("np.full((7, 3), 5, 'i4')"), "[2, 2].* int32 [7, 3]"),
    (saves("np.full((2, 2), 5.0)"), "[2, 2].* float64 [2, 2]"),
    (saves("np.full((2, 2), 5, 'u8')"), "[2, 2].* uint64 [2, 2]"),
])  # fmt: skip
def test_what_a_world_leaves(tmp_path: Path, oddity: str, reason: str) -> None:
    """In its reason stand the parts, in one of the versions."""
    why = reason_of(tmp_path, oddity)
    assert any(all(part in why for part in version.split(".*")) for version in reason.split("|")), why


def test_samples_that_would_not_fit_into_memory_are_not_read(tmp_path: Path) -> None:
    """A GiB of one-byte samples takes eight when it is widened."""
    make = f"""{PY} "import numpy as np; f = open('$out/samples/a.npy', 'wb');
np.lib.format.write_array_header_1_0(f, dict(descr='|i1', fortran_order=False, shape=(2, 536870000)))
f.truncate(1 << 30)" """
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    reason = reason_of(tmp_path, f"good; {make}")
    assert "[2, 2]" in reason and "int8 [2, 536870000]" in reason
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 256 << 10


def test_no_room_for_a_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = made(tmp_path, "good")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    heard = carried_out(prepared)
    assert heard.found == [(0, 8, "failed"), (1, 8, "failed")]
    assert "temporary folder" in (heard.records[0].reason or "")


@pytest.mark.parametrize("end", ["exit 9", "kill -9 $$", "echo more >> $out/records.jsonl"])
def test_a_launch_that_measured_everything_and_ends_oddly_is_a_note(tmp_path: Path, end: str) -> None:
    heard = carried_out(made(tmp_path, f"good; {end}"))
    assert heard.found == [(0, 8, "ok"), (0, 16, "ok"), *GOOD]
    assert len({(record.case, record.launch) for record in heard.records}) == 4
    for record, said in zip(heard.records[1::2], heard.said, strict=True):
        (note,) = record.notes
        how = note.rpartition("then: ")[2]
        assert how and (said or "").endswith(f"then: {how}")
    assert heard.records[0].notes == ()


def test_what_a_library_keeps_while_it_runs_goes_with_the_launch(tmp_path: Path) -> None:
    """Open MPI's session folder stays where its daemon is killed."""
    seen = tmp_path / "seen"
    heard = carried_out(made(tmp_path, f"mkdir $TMPDIR/session; good; echo $TMPDIR ${{out%/*}} >> {seen}; kill -9 $$"))
    assert [status for _, _, status in heard.found] == ["ok"] * 4
    assert all(len(set(line.split())) == 1 for line in seen.read_text().splitlines())
    assert list((tmp_path / "tmp").iterdir()) == []


# Its link with the driver: pipes, or TCP connections -----------------------------------------------------------------

RANKS = 3
OWNER = (os.getuid(), os.getgid())
STANDS, BEGIN, END = Report(at="stands"), Order(act="begin"), Order(act="end")


@pytest.fixture(params=["pipes", "connections"])
def local(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "pipes")


@pytest.fixture
def link(local: bool, tmp_path: Path) -> Iterator[WorldLink]:
    with linked(tmp_path, RANKS, OWNER, local) as made:
        yield made


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[WorldLink]:
    with linked(tmp_path, RANKS, OWNER, local=False) as made:
        yield made


Join = Callable[..., list[DriverLink]]


@pytest.fixture
def join(tmp_path: Path) -> Iterator[Join]:
    """Ranks that connect, of those of the world; all of them where none is named."""
    with ExitStack() as stack:

        def joined(*numbers: int) -> list[DriverLink]:
            links = [DriverLink(tmp_path, rank) for rank in numbers or range(RANKS)]
            return [stack.enter_context(closing(link)) for link in links]

        yield joined


@pytest.fixture
def ranks(link: WorldLink, join: Join) -> list[DriverLink]:
    return join()


def reports(rank: DriverLink, driver: WorldLink, report: Report = STANDS) -> None:
    """The driver gets the report of a rank."""
    rank.report(report)
    assert driver.report(LIMIT) == report


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names, not paths


def meanwhile(*calls: Callable[[], object]) -> list[object]:
    """What calls return that run at the same time."""
    results: list[object] = [None] * len(calls)

    def call(number: int) -> None:
        results[number] = calls[number]()

    threads = [threading.Thread(target=call, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
        assert not thread.is_alive()
    return results


def test_rank_0_reports_and_all_get_the_order(link: WorldLink, ranks: list[DriverLink]) -> None:
    for order in (BEGIN, END):
        for rank in ranks:
            rank.report(STANDS)
        assert link.report(LIMIT) == STANDS
        assert link.report(0.05) is None
        link.order(order)
        assert meanwhile(*(rank.sleep for rank in ranks)) == [order] * RANKS


def test_two_reports_at_once_are_two(link: WorldLink, ranks: list[DriverLink]) -> None:
    ranks[0].report(STANDS)
    ranks[0].report(Report(at="slice", n=7))
    assert (link.report(LIMIT), link.report(LIMIT)) == (STANDS, Report(at="slice", n=7))


def test_a_long_report_comes_whole(link: WorldLink, ranks: list[DriverLink]) -> None:
    long = Report(at="stands", holds=tuple(f"memory {number} {number}" for number in range(20_000)))
    assert LONGEST_REPORT > len(msgspec.json.encode(long)) > 1 << 18
    reported, heard = meanwhile(lambda: ranks[0].report(long), lambda: link.report(LIMIT))
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
        link.report(LIMIT)
    thread.join(LIMIT)
    assert not thread.is_alive()


def test_a_rank_wakes_for_naps_and_its_drivers_end(
    local: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_link, "NAP", 0.02)
    naps: list[float] = []
    with linked(tmp_path, 1, OWNER, local) as link, closing(DriverLink(tmp_path, 0)) as rank:
        reports(rank, link)
        threading.Timer(0.2, link.close).start()
        with pytest.raises(EOFError):
            rank.sleep(lambda: naps.append(time.monotonic()))
    assert len(naps) > 3


def test_everything_is_given_back(local: bool, tmp_path: Path) -> None:
    before = descriptors()
    with linked(tmp_path, 2, OWNER, local) as link:
        ranks = [DriverLink(tmp_path, rank) for rank in range(2)]
        reports(ranks[0], link)
        link.order(BEGIN)
        for rank in ranks:
            rank.close()
    assert descriptors() == before


def test_pipes_that_cannot_all_be_made_are_given_back(tmp_path: Path) -> None:
    (tmp_path / "orders-1").touch()
    before = descriptors()
    with pytest.raises(FileExistsError), linked(tmp_path, 2, OWNER, local=True):
        pass
    assert descriptors() == before


# Connections ---------------------------------------------------------------------------------------------------------


def address_in(folder: Path) -> Address:
    return msgspec.json.decode((folder / ADDRESS).read_bytes(), type=Address)


def stranger_to(folder: Path) -> socket.socket:
    return socket.create_connection(("127.0.0.1", address_in(folder).port))


def test_an_order_waits_for_ranks_that_are_about_to_connect(remote: WorldLink, join: Join) -> None:
    (first,) = join(0)
    reports(first, remote)

    def later() -> Order:
        time.sleep(0.2)
        return join(1, 2)[0].sleep()

    assert meanwhile(later, lambda: remote.order(BEGIN), first.sleep) == [BEGIN, None, BEGIN]


def test_a_rank_that_is_gone_holds_up_none(remote: WorldLink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_world, "MEETING", 0.2)
    ranks = [DriverLink(tmp_path, rank) for rank in range(RANKS)]
    reports(ranks[0], remote)
    ranks[1].close()
    began = time.monotonic()
    for order in (BEGIN, END):
        remote.order(order)
        assert meanwhile(ranks[0].sleep, ranks[2].sleep) == [order, order]
    assert time.monotonic() - began < 60
    ranks[0].close()
    began, used = time.monotonic(), time.process_time()
    assert remote.report(0.3) is None
    assert time.process_time() - used < 0.2 and time.monotonic() - began >= 0.3
    ranks[2].close()


def test_the_program_of_a_rank_takes_its_turns_until_it_ends(remote: WorldLink, tmp_path: Path, join: Join) -> None:
    def turn(ranks: list[DriverLink], report: Report, order: Order) -> None:
        reports(ranks[0], remote, report)
        remote.order(order)
        assert meanwhile(*(rank.sleep for rank in ranks)) == [order] * RANKS

    turn(ranks := join(), STANDS, BEGIN)
    programs = [DriverLink(tmp_path, rank) for rank in range(RANKS)]
    turn(programs, Report(at="ready"), END)
    for program in programs:
        program.close()
    turn(ranks, STANDS, BEGIN)


def closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


@pytest.mark.parametrize(
    "sent", [b"", b"no token 0\n", b"wrong 0\n", b"x" * 300, b"{token} 3\n", b"{token} -1\n", b"{token}\n"]
)
def test_strangers_are_not_served(remote: WorldLink, tmp_path: Path, join: Join, sent: bytes) -> None:
    with stranger_to(tmp_path) as stranger:
        stranger.sendall(sent.replace(b"{token}", address_in(tmp_path).token.encode()))
        reports(join(0)[0], remote)
        until = time.monotonic() + LIMIT
        while sent and not closed(stranger) and time.monotonic() < until:
            assert remote.report(0.02) is None
        assert closed(stranger) is bool(sent)


def test_silent_strangers_are_closed(
    remote: WorldLink, tmp_path: Path, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_world, "_STRANGERS", 2)
    with ExitStack() as stack:
        strangers = [stack.enter_context(stranger_to(tmp_path)) for _ in range(20)]
        reports(join(0)[0], remote)
        assert [closed(stranger) for stranger in strangers].count(False) <= RANKS + 2


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
    address = address_in(tmp_path)
    assert len(address.token) >= 32 and socket.gethostname() in address.hosts
    assert not any(host.startswith("127.") for host in address.hosts)
