"""Clocks: resolution, exchange between hosts, and what is known of their offsets."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from tests.contract.test_fake import measured
from tests.unit.c_functions import Library
from tests.unit.made_measurements import method, on_ranks
from tests.unit.made_runs import made_case, made_record
from tests.unit.simulated_hosts import Hosts, SessionOnHosts, SimulatedClock, drifting

from collbench import backends
from collbench.analysis.results import how
from collbench.bindings.spec import Operation
from collbench.errors import LibraryError
from collbench.machine import facts
from collbench.machine.facts import ContentionMeter, RankFacts, rank_facts
from collbench.report.styles import TableStyle
from collbench.run import sampling
from collbench.run.failures import Unwatched
from collbench.run.host_clocks import (
    BASELINE,
    LARGEST_RATE,
    HostClocks,
    Offset,
    Synchronisation,
    answer,
    ask,
    bound_between,
    direct_pairs,
    host_clocks,
    interval,
    line_of,
    on_rank_0s_clock,
    partners,
    readers_of,
    recent,
    surprise,
    synchronisation,
)
from collbench.run.program import AloneWorld
from collbench.run.sampling import DIFFER, Sampling, StopRule, TimedCall, doubts, trusted
from collbench.run.turns import _slice, sampled_in_turns
from collbench.schema.plan import Plan
from collbench.schema.record import ClockError, Record
from collbench.schema.world import Order, SliceRule
from collbench.timing.loop import (
    AlignmentSetting,
    Call,
    Line,
    Messages,
    Stage,
    Stamps,
    clock_step,
    lattice,
    native_loop,
)

SECOND = 10**9


def exchanges(*rows: tuple[int, int, int]) -> Offset:
    return interval(*np.array(rows, np.int64).T)


def test_exchanges_bound_the_offset_on_both_sides() -> None:
    """Asked at 1000 and answered by 1400, when the other showed 200: this clock is 800 to 1200 ahead.

    Of several, one slow there and one slow back, the largest lower and the smallest upper bound count, looser the older
    they are, as clocks whose rates differ by 500 ppm run apart.
    """
    assert exchanges((1_000, 200, 1_400)) == Offset(at=1_400, offset=1_000, half=201)
    slow_there, slow_back = (1_000, 490, 1_520), (2_000, 1_010, 2_600)
    offset = exchanges(slow_there, slow_back)
    assert offset.at == 2_600 and offset.offset in (1_009, 1_010)
    assert offset.half <= 22, "0.5 ns for every 1000 ns that an exchange is old"
    assert exchanges(slow_there).half > 250 and exchanges(slow_back).half > 290
    age = 10**7 + 20_000
    offset = exchanges((0, 0, 100), (10**7, 10**7 - 9_000, age))
    assert offset.offset - offset.half <= 100 + LARGEST_RATE * age <= offset.offset + offset.half


@pytest.mark.parametrize("hosts", [1, 2, 3, 4, 5, 6, 8, 11, 64, 1000])
def test_every_host_has_a_way_to_rank_0_of_log2_steps(hosts: int) -> None:
    parent = dict[int, int]()
    for host in range(hosts):
        parents = [other for other, asks in partners(host, hosts) if asks]
        assert len(parents) == (host > 0)
        parent |= dict.fromkeys([host] * len(parents), *parents)
        assert all((host, True) in partners(child, hosts) for child, asks in partners(host, hosts) if not asks)
    for host in range(1, hosts):
        steps = 0
        while host:
            host, steps = parent[host], steps + 1
        assert steps <= (hosts - 1).bit_length()


@pytest.mark.parametrize("hosts", range(1, 20))
def test_exchanges_in_that_order_never_wait_for_each_other(hosts: int) -> None:
    """Both sides of a pair come to it at last, whoever is first."""
    waiting = {host: list(partners(host, hosts)) for host in range(hosts)}
    while any(waiting.values()):
        met = [(host, order[0][0]) for host, order in waiting.items()
               if order and order[0][1] and waiting[order[0][0]][:1] == [(host, False)]]  # fmt: skip
        assert met, waiting
        for pair in met:
            for host in pair:
                waiting[host].pop(0)


@pytest.mark.parametrize("hosts", range(1, 40))
def test_direct_pairs_are_not_parent_and_child(hosts: int) -> None:
    pairs = direct_pairs(hosts)
    assert len(pairs) == min(max((hosts - 1) // 2, 0), 3)
    taken = [host for pair in pairs for host in pair]
    assert len(set(taken)) == len(taken), "they exchange at the same time"
    for asked, asks in pairs:
        assert 0 < asked < asks < hosts
        assert (asked, True) not in partners(asks, hosts) and (asks, True) not in partners(asked, hosts)


def test_offsets_and_bounds_add_up_along_the_tree() -> None:
    """3 hangs on 2, and 2 on 0. 2 ms later host 2's clock may be 1 us farther from rank 0's, which stays."""
    measured_at_once = [Offset(0, 0, 0), Offset(110, 10, 1), Offset(1_100, 1_000, 2), Offset(1_300, 200, 4)]
    sync = synchronisation(measured_at_once)
    assert sync.offset.tolist() == [0, 10, 1_000, 1_200]
    assert sync.half.tolist() == [0, 1, 2, 6]
    assert sync.when.tolist() == [0, 100, 100, 100]
    assert sync.crossed == 0
    assert synchronisation(measured_at_once[:3], [(1, 2, Offset(1_200, 987, 5))]).crossed == 3, "directly, beside it"
    apart = [Offset(10**9, 0, 0), Offset(110, 10, 1), Offset(2_001_000, 1_000, 2), Offset(1_200, 200, 4)]
    assert synchronisation(apart).half.tolist() == [0, 1, 2, 4 + 2 + 1_000]


def at(when: int, *offsets: int, half: int = 1) -> Synchronisation:
    """All hosts at the same moment of rank 0's clock."""
    ahead = np.array([0, *offsets], np.int64)
    return Synchronisation(ahead + when, ahead, np.full(len(ahead), half, np.int64))


def test_the_line_of_a_clock_goes_on_as_since_a_synchronisation_that_lies_far_enough_back() -> None:
    """An offset that is known badly makes little of a rate: a disturbed synchronisation, 221 us off, says so."""
    past = [at(0, 0), at(BASELINE // 2, 7_000), at(2 * BASELINE, 800), at(2 * BASELINE + 10, 900)]
    line = line_of(1, past)
    assert (line.offset, line.origin) == (900, 2 * BASELINE + 10)
    assert line.slope == pytest.approx((900 - 7_000) / (1.5 * BASELINE), rel=1e-6)
    assert line.local(line.origin + SECOND) == line.origin + SECOND + 900 - int(6_100 * SECOND / (1.5 * BASELINE))
    assert line_of(0, past) == Line(0, 0.0, 2 * BASELINE + 10)
    assert line_of(1, [at(0, 0), at(BASELINE - 1, 5_000)]).slope == 0.0, "none is made of errors"
    assert abs(line_of(1, [at(0, 221_000, half=300_000), at(BASELINE, 0)]).slope) < LARGEST_RATE / 3
    well_known = line_of(1, [at(0, 0, half=500), at(BASELINE, 20_000, half=500)]).slope
    assert well_known == pytest.approx(1e-4, rel=2e-4)
    past = [at(0, 0), at(10, 0), at(BASELINE, 0), at(BASELINE + 20, 0), at(BASELINE + 30, 0)]
    assert recent(past) == past[1:]
    assert recent(past[:2]) == past[:2]
    past = [at(0, 0, 0), at(BASELINE, 1_000, 0)]
    assert surprise(at(2 * BASELINE, 2_000, 0), past) <= 1
    assert surprise(at(2 * BASELINE, 2_000, -70), past) == 70


def test_times_between_two_synchronisations_are_interpolated() -> None:
    before, after = at(0, 5_000), at(1_000_000, 5_100)
    own = np.array([[5_000, 5_000 + 500_050], [5_000 + 1_000_100, 5_000 - 1_000_100]], np.int64)
    assert on_rank_0s_clock(own, 1, before, after).tolist() == [[0, 500_000], [1_000_000, -1_000_000]]
    assert on_rank_0s_clock(own, 0, before, after).tolist() == own.tolist()
    days = 10**15 + 1
    assert on_rank_0s_clock(np.array([days + 17], np.int64), 1, at(0, days), at(1_000, days)).tolist() == [17]


# Against the truth --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slew", [0.0, 2e-5, -4e-4])
@pytest.mark.parametrize("seed", range(4))
def test_the_truth_is_inside_the_interval_always(seed: int, slew: float) -> None:
    """However slow some messages are, whatever the clocks' rates, and however much longer one of the ways takes."""
    hosts = drifting(17, seed, slew)
    true = 0.0
    for _ in range(10):
        asks, asked = hosts.chance.sample(range(17), 2)
        offset, end = hosts.exchanged(asks, asked, true)
        truth = hosts.clocks[asks].read(end) - hosts.clocks[asked].read(end)
        assert abs(offset.offset - truth) <= offset.half + 1, "and 1 ns of rounding when a clock is read"
        true = end + 10**9 * hosts.chance.random()


def worst(hosts: Hosts, true: float, before: Synchronisation, after: Synchronisation) -> float:
    """Of all hosts the largest error of a time stamp that is put on the first one's clock."""
    stamps = [np.array([clock.read(true)], np.int64) for clock in hosts.clocks]
    return max(abs(int(on_rank_0s_clock(stamp, host, before, after)[0]) - int(stamps[0][0])) for host,
               stamp in enumerate(stamps))  # fmt: skip


@pytest.mark.parametrize(("slew", "typical", "most"), [(0.0, 100, 150), (2e-5, 2_000, 4_000)])
def test_errors_of_stamps_between_two_synchronisations(slew: float, typical: float, most: float) -> None:
    """64 hosts, 1 us a way with 5 % asymmetry, half a second apart: the worst host, in the middle. A rate that NTP
    changes by 20 ppm meanwhile bends a clock by 20e-6 x 0.5 s / 4; two such bends may add up."""
    hosts = drifting(64, 3, slew)
    syncs, true, moments = [], 0.0, [0.0]
    for _ in range(21):
        sync, end = hosts.synchronised(true)
        syncs.append(sync)
        moments.append(true)
        true = max(end, true + SECOND / 2)
    errors = [worst(hosts, (moments[n + 1] + moments[n + 2]) / 2, syncs[n], syncs[n + 1]) for n in range(20)]
    assert np.median(errors) < typical
    assert max(errors) < most
    expected = [surprise(syncs[n], syncs[:n]) for n in range(2, 21)]
    assert max(expected) < (3_000 if slew == 0.0 else 40_000)
    if slew:
        assert max(expected) > 5_000, "a changed rate is seen at the next synchronisation"
    for sync, begun in zip(syncs, moments[1:], strict=True):
        truth = [hosts.true_offset(host, begun) for host in range(64)]
        assert (np.abs(sync.offset - truth) <= sync.half).all()
        assert sync.half.max() < 15_000


def hosts_of(seed: int, *clocks: SimulatedClock) -> Hosts:
    return Hosts(clocks, random.Random(seed))  # noqa: S311 - noise, not secrecy


def test_a_clock_whose_rate_changes_in_between_is_off_by_more_than_at_either_end_and_within_the_bound() -> None:
    hosts = hosts_of(7, SimulatedClock(), SimulatedClock(offset=10**12, slews=((SECOND // 4, 4e-4),)))
    before, _ = hosts.synchronised(0.0)
    after, _ = hosts.synchronised(SECOND / 2)
    off = worst(hosts, SECOND / 4, before, after)
    assert max(before.half.max(), after.half.max()) < off < bound_between(before, after)


def test_an_asymmetry_that_is_a_property_of_a_host_is_only_inside_the_bound() -> None:
    """The way into host 2 takes 1.6 us longer than that out of it: all others agree that it is 0.8 us ahead."""
    clocks = [SimulatedClock()] * 7
    clocks[2] = SimulatedClock(offset=10**6, slow_in=1_600)
    hosts = hosts_of(5, *clocks)
    sync, end = hosts.synchronised(0.0)
    off = sync.offset[2] - hosts.true_offset(2, end)
    assert 700 < off < 900 and off <= sync.half[2]
    assert sync.crossed < 150


# Messages by which two ranks compare their clocks: in C and in Python, asked and answered ----------------------------


HOUR = 3_600 * 10**9
loop: Any = native_loop()
in_c = pytest.mark.skipif(loop is None, reason="no native loop was built here (no C compiler at installation)")
both_forms = pytest.mark.parametrize("native", [False, pytest.param(True, marks=in_c)])


class Peer:
    """The other rank, an hour ahead: it takes every question, and answers with its clock."""

    def __init__(self) -> None:
        self.cell, self.events = np.zeros(1, np.int64), list[tuple[str, int]]()
        self.sent: list[int] = []

    def send(self, rank: int) -> int:
        self.events.append(("send", rank))
        self.sent.append(int(self.cell[0]))
        return 0

    def receive(self, rank: int) -> int:
        self.events.append(("receive", rank))
        self.cell[0] = time.monotonic_ns() + HOUR
        return 0

    def messages(self, native: bool) -> Messages:
        plain = Messages(self.cell, self.send, self.receive)
        if not native:
            return plain
        library = Library()
        send, receive = library.function(self.send, 1), library.function(self.receive, 1)
        return replace(plain, send=lambda rank: pytest.fail("called from Python"),
                       receive=lambda rank: pytest.fail("called from Python"), native_send=lambda rank: (send, rank),
                       native_receive=lambda rank: (receive, rank), keep=library)  # fmt: skip


@both_forms
def test_who_asks_sends_first_and_who_answers_waits_first(native: bool) -> None:
    peer = Peer()
    offset = ask(peer.messages(native), 7, time.monotonic_ns, 4)
    assert peer.events == [("send", 7), ("receive", 7)] * 4
    assert abs(offset.offset + HOUR) <= offset.half < HOUR
    assert 0 <= time.monotonic_ns() - offset.at < HOUR
    peer, before = Peer(), time.monotonic_ns()
    answer(peer.messages(native), 7, time.monotonic_ns, 4)
    assert peer.events == [("receive", 7), ("send", 7)] * 4
    stamps = [before, *peer.sent, time.monotonic_ns()]
    assert stamps == sorted(stamps)


@in_c
def test_another_clock_than_the_machines_is_read_in_python() -> None:
    reads, library = iter(range(0, 800, 100)), Library()
    word = library.named("C")
    messages = replace(Peer().messages(native=False), native_send=lambda rank: word, native_receive=lambda rank: word)
    assert ask(messages, 1, lambda: next(reads), 4).at == 700
    assert library.order == []


@in_c
def test_an_error_of_the_library_says_at_which_message() -> None:
    library = Library()
    send, receive = library.named("send"), library.named("receive", fails_at=2, code=17)
    messages = Messages(np.zeros(1, np.int64), int, int, lambda rank: send, lambda rank: receive,
                        explain=lambda code: f"E{code}")  # fmt: skip
    with pytest.raises(LibraryError, match=r"\(E17\).* 3 of 9 .*rank 4"):
        ask(messages, 4, time.monotonic_ns, 9)
    assert library.order == ["send", "receive"] * 3
    library.order.clear()
    messages = replace(messages, native_receive=lambda rank: library.named("bad", 0), explain=None)
    with pytest.raises(LibraryError, match=r"error 17 .* 1 of 9 .*rank 4"):
        answer(messages, 4, time.monotonic_ns, 9)


@in_c
@pytest.mark.parametrize("missing", ["send", "receive", "cell", "before", "after", "long"])
def test_what_is_no_exchange_is_refused(missing: str) -> None:
    call, three = Library().named("C"), np.zeros(3, np.int64)
    given: dict[str, Any] = {"send": call, "receive": call, "cell": np.zeros(1, np.int64), "n": 3,
                             "before": three, "theirs": three.copy(), "after": three.copy()}  # fmt: skip
    given |= {"after": np.zeros(4, np.int64)} if missing == "long" else {missing: None}
    with pytest.raises((ValueError, TypeError)):
        loop.exchange(*given.values())


# Ranks on hosts whose clocks disagree: what they find out, which align and clock they take, what is recorded ----------


AHEAD = SimulatedClock(offset=10**13, drift=5e-6)
BEHIND = SimulatedClock(offset=-5 * 10**9, drift=-3e-6)
THREE = (SimulatedClock(), AHEAD, BEHIND)


OnHosts = Callable[..., None]


@pytest.fixture
def on_hosts(monkeypatch: pytest.MonkeyPatch) -> OnHosts:
    """`on_hosts(*clocks)`: the fake backend's ranks are on these hosts in turn."""
    return lambda *clocks: monkeypatch.setattr(backends.get("fake"), "session", partial(SessionOnHosts, clocks))


def record_of(name: str = "allreduce", ranks: int = 6, fault: str | None = None, **fields: Any) -> Record:
    usual: dict[str, Any] = {"backends": ("fake",), "drivers": ("python",), "sizes": ("8",), "iters": 30}
    (record,) = measured(Plan(collectives=(name,), **(usual | fields)), ranks, fault).records
    return record


def clocks_of(session: Any, hosts: int) -> HostClocks:
    """The clocks of ranks that are on so many hosts in turn, compared once."""
    ids = [str(rank % hosts) for rank in range(session.world.size)]
    clocks = HostClocks(session, readers_of(ids), ids[session.world.rank])
    clocks.begin()
    return clocks


def test_all_ranks_hear_of_the_same_offsets_and_put_their_stamps_on_rank_0s_clock(on_hosts: OnHosts) -> None:
    """From the reader of their host. All leave a barrier at the same true time, whatever their clocks show."""
    on_hosts(*THREE)

    def body(session: Any) -> tuple[int, list[list[int]], Stamps]:
        clocks = clocks_of(session, 3)
        session.signals.barrier()
        now = np.array([session.clock()], np.int64)
        clocks.synchronise()
        assert clocks.readers == [0, 1, 2]
        assert clocks.bound >= clocks.past[-1].half.max()
        assert clocks.seen < 300 < clocks.bound < 3_000
        stamps = clocks.common(Stamps(now, now + 100, np.zeros(1, bool), now[:, None] + 50))
        assert stamps.left - stamps.entered == 100 and stamps.marks[0] - stamps.entered == 50
        return clocks.host, [past.offset.tolist() for past in clocks.past], stamps

    hosts, offsets, stamps = zip(*on_ranks(6, body), strict=True)
    assert hosts == (0, 1, 2) * 2
    assert all(of_rank == offsets[0] for of_rank in offsets) and len(offsets[0]) == 3
    for of_rank_0, ahead, behind in offsets[0]:
        assert of_rank_0 == 0
        assert abs(ahead - AHEAD.offset) < 3_000 and abs(behind - BEHIND.offset) < 3_000
    assert np.ptp([of_rank.entered[0] for of_rank in stamps]) < 300


def test_what_was_seen_of_a_case_before_does_not_count(on_hosts: OnHosts) -> None:
    on_hosts(SimulatedClock(), SimulatedClock(slews=((500_000, 0.5), (600_000, -0.5))))

    def body(session: Any) -> list[int]:
        clocks, seen = clocks_of(session, 2), list[int]()
        for _ in range(2):
            session.signals.barrier()
            while session.world.rank == 0 and session.moment() < 800_000:
                pass
            session.signals.barrier()
            clocks.synchronise()
            seen.append(clocks.seen)
            clocks.begin()
        return seen

    of_rank_0, of_rank_1 = on_ranks(2, body)
    assert of_rank_0 == of_rank_1
    assert of_rank_0[0] > 40_000 > 400 > of_rank_0[1]


def test_the_gate_keeps_up_with_the_clocks_and_a_sleep_between_slices_is_no_doubt(on_hosts: OnHosts) -> None:
    """After every batch the start is announced for where the clocks are now. An hour at 5 ppm is 18 ms, which no slice
    is to be blamed for."""
    on_hosts(*THREE)
    rule = SliceRule(seconds=2e-3, operations=10, discard=5, discard_seconds=1e-4)
    order = Order(act="slice", align="barrier", seconds=2e-3, rule=rule)

    def body(session: Any) -> None:
        barrier = Operation(None, (), Call((Stage(session.signals.barrier),)), False, 0)
        timed, clocks = TimedCall(barrier, session, "python", None), clocks_of(session, 3)
        align = AlignmentSetting("roundtime", session.signals, 5_000, clocks.line)
        sampling = Sampling(timed, method(3), align, [], clocks=clocks)
        sampling.take(3)
        assert len(clocks.past) == 3 and len(sampling.stamps.late) == 3
        assert align.line != sampling.align.line == clocks.line and sampling.align.slack == 5_000
        clocks = clocks_of(session, 3)
        align = AlignmentSetting("barrier", session.signals)
        sampling = Sampling(timed, method(3, clock="synced"), align, [], clocks=clocks)
        for _ in range(2):
            session.turn_back(session.moment() + 3600 * 10**9)
            report = _slice(sampling, order, Unwatched(), "barrier")
        assert report.seconds is not None and report.seconds < 1e-4
        assert clocks.seen < 400

    on_ranks(3, body)


def test_slices_last_twenty_times_as_long_as_their_synchronisation() -> None:
    pair = Mock(wait=Mock(return_value=Order(act="end")))
    sampling: Any = SimpleNamespace(
        clocks=SimpleNamespace(lasted=4_000_000), align=SimpleNamespace(kind="barrier", slack=0),
        method=SimpleNamespace(stop=StopRule.fixed(1)),
        timed_call=SimpleNamespace(session=SimpleNamespace(world=AloneWorld())),
    )  # fmt: skip
    for quota in (False, True):
        assert sampled_in_turns(sampling, pair, Unwatched(), "", quota, ContentionMeter())
    assert [call.args[0].shortest for call in pair.wait.call_args_list] == [pytest.approx(0.08), 1.0]


def test_there_is_nothing_to_synchronise_on_one_clock_or_without_messages(on_hosts: OnHosts) -> None:
    on_hosts(SimulatedClock())

    def body(session: Any) -> list[bool]:
        here = replace(rank_facts(), clock_id="here")
        there = replace(here, clock_id="there")

        def synchronised(*ranks: RankFacts) -> bool:
            return host_clocks(session, ranks, ranks[session.world.rank].clock_id) is not None

        with_messages = [synchronised(here, here), synchronised(here, there)]
        session.signals = replace(session.signals, messages=None)
        return [*with_messages, synchronised(here, there)]

    assert on_ranks(2, body) == [[False, True, False]] * 2


@pytest.mark.parametrize(("plan", "align"), [("auto", "roundtime"), ("roundtime", "roundtime"), ("barrier", "barrier")])
@pytest.mark.parametrize("name", ["allreduce", "barrier"])
def test_a_sample_on_good_clocks_is_as_on_one(on_hosts: OnHosts, name: str, plan: str, align: str) -> None:
    common = record_of(name, align=plan)
    assert (common.clock, common.clock_error) == ("common", None)
    on_hosts(*THREE)
    record = record_of(name, align=plan)
    assert (record.status, record.align, record.clock, record.notes) == ("ok", align, "synced", ())
    assert record.check is not None and record.check.wrong == 0
    assert record.clock_error is not None and record.clock_error.hosts == 3
    assert record.clock_error.seen < 2e-7 < record.clock_error.bound < 3e-6 + LARGEST_RATE * 0.5
    assert record.seconds is not None and common.seconds is not None
    assert record.seconds.p50 == pytest.approx(common.seconds.p50, abs=3e-7)
    assert record.samples is not None and record.samples.invalid <= 3


Scripted = Callable[..., HostClocks]


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Scripted:
    """Rank 0 of two hosts, whose synchronisations give these one after the other."""

    def clocks(*synchronisations: Synchronisation) -> HostClocks:
        left = iter(synchronisations)
        monkeypatch.setattr(HostClocks, "_exchanged", lambda self: [])
        monkeypatch.setattr("collbench.run.host_clocks._assembled", lambda table: next(left))
        session: Any = SimpleNamespace(world=AloneWorld(), clock=lambda: 0)
        return HostClocks(session, {"a": 0, "b": 1}, "a")

    return clocks


def found_at(when: int, offset: int = 0, half: int = 10, crossed: int = 0) -> Synchronisation:
    at, ahead, wide = (np.array(pair, np.int64) for pair in ((when, when + offset), (0, offset), (0, half)))
    return Synchronisation(at, ahead, wide, crossed)


def test_the_bound_of_a_case_is_that_of_its_worst_synchronisation_and_of_what_clocks_may_run_apart(
    scripted: Scripted,
) -> None:
    """The first one is what the rate of the first case is made of."""
    clocks = scripted(*(found_at(number * BASELINE, half=half) for number, half in enumerate((10, 20, 50, 15))))
    clocks.begin()
    assert clocks.bound == 20
    clocks.synchronise()
    clocks.synchronise()
    assert clocks.bound == 50
    clocks = scripted(*(found_at(number * BASELINE, half=half) for number, half in enumerate((10, 20, 15))))
    clocks.begin()
    clocks.synchronise()
    assert clocks.bound == 20, "nothing was stamped in between"
    none = np.zeros(0, np.int64)
    clocks.common(Stamps(none, none, np.zeros(0, bool), np.zeros((0, 0), np.int64)))
    assert clocks.bound == 20 + BASELINE * 250 // 10**6, "500 ppm of half the time between"
    clocks = scripted(found_at(0), found_at(BASELINE), found_at(2 * BASELINE, crossed=700))
    clocks.begin()
    clocks.synchronise()
    assert clocks.seen == 700
    clocks = scripted(found_at(0, 221_000, 300_000), found_at(BASELINE), found_at(4 * BASELINE))
    clocks.begin()
    clocks.synchronise()
    assert 0 < clocks.seen < clocks.bound == 300_000


@pytest.mark.parametrize(("operation", "seen", "good"), [
    (100_000, 5_000, True), (100_000, 5_001, False), (1_000, 200, True), (1_000, 201, False)
])  # fmt: skip
def test_clocks_are_trusted_up_to_200_ns_or_5_percent_of_the_operation(operation: int, seen: int, good: bool) -> None:
    clocks: Any = SimpleNamespace(seen=seen, begin=lambda: None, synchronise=lambda: None)
    entered = np.arange(3)
    pilot = Stamps(entered, entered + operation, np.zeros(3, bool), np.zeros((3, 0), np.int64))
    session = SimpleNamespace(world=AloneWorld(), signals=None)
    timed_call: Any = SimpleNamespace(session=session, run=lambda align, number: pilot)
    assert (trusted(clocks, timed_call, "barrier", may_change=True) is None) == good


#: Its rate changes while the first case is measured: what was expected of it is soon wrong by much.
WILD = SimulatedClock(offset=10**13, slews=tuple((n * 50_000, (-1) ** n * 2e-2) for n in range(60)))


@pytest.mark.parametrize(("align", "changed"), [("auto", True), ("barrier", False)])
def test_on_bad_clocks_a_sample_is_the_largest_local_time(on_hosts: OnHosts, align: str, changed: bool) -> None:
    on_hosts(SimulatedClock(), WILD)
    record = record_of(align=align)
    assert (record.status, record.align, record.clock, record.clock_error) == ("ok", "barrier", "local", None)
    assert record.seconds is not None and record.seconds.max < 1e-4, "clocks that are hours apart are not compared"
    (note,) = record.notes
    assert note.startswith("align barrier, ") == changed
    assert "5%" in note and "200 ns" in note


def test_the_gate_of_the_plan_is_taken_whatever_the_clocks_are_like(
    on_hosts: OnHosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After one short pilot: several would outlast the wild time."""
    monkeypatch.setattr(sampling, "LONGEST_PILOT", 0)
    on_hosts(SimulatedClock(), WILD)
    record = record_of(align="roundtime", iters=10)
    assert (record.align, record.clock, record.notes) == ("roundtime", "synced", (DIFFER,))
    assert record.clock_error is not None and record.clock_error.seen > 1e-6


def test_clocks_that_turned_out_worse_than_they_may_be_are_a_note() -> None:
    """200 ns or 5 % of a sample, whichever is more."""
    assert doubts(None, 1e-6) == ()
    for seen, sample, note in ((2.1e-7, 1e-6, True), (1.9e-7, 1e-6, False), (4e-6, 1e-4, False), (6e-6, 1e-4, True)):
        assert doubts(ClockError(bound=1e-5, seen=seen, hosts=2), sample) == ((DIFFER,) if note else ())


@pytest.mark.parametrize("rank", [0, 2])
def test_a_rank_that_leaves_a_barrier_early_is_found_on_synchronised_clocks(on_hosts: OnHosts, rank: int) -> None:
    on_hosts(*THREE)
    record = record_of("barrier", 3, f"corrupt:{rank}@0")
    assert record.status == "failed" and record.check is not None and record.check.wrong == 1
    assert "before timing: 1 " in str(record.reason)


def test_how_well_the_clocks_agree_is_in_the_table_and_apart_from_local_times() -> None:
    common, synced, local = (made_record(made_case(), 0, 1e-6, clock=clock) for clock in ("common", "synced", "local"))
    assert how(common) == how(synced) != how(local)
    style = TableStyle()
    for size, seen, bound in ((8, 4.04e-7, 2e-6), (16, 1e-8, 6.2e-6)):
        error = ClockError(bound=bound, seen=seen, hosts=4)
        style.add(made_record(made_case(size=size), 0, 1e-6, clock="synced", clock_error=error))
    text = style.end()
    assert "align roundtime" in text
    assert all(number in text.splitlines()[-1] for number in ("4 hosts", "0.4 us", "6.2 us"))


# The step of a clock --------------------------------------------------------------------------------------------------


def clock(step: float, seed: int) -> Callable[[], int]:
    """A clock that shows whole nanoseconds of multiples of `step`; a read takes some 70 ns, never equally long."""
    times = itertools.accumulate(np.random.default_rng(seed).gamma(4.0, 12.0, 5000) + 20.0)
    return lambda: int(np.floor(next(times) / step) * step)


@pytest.mark.parametrize("step", [1.0, 2.0, 4.0, 10.0, 10.0167, 41.67, 100.0, 280.0, 1000.0])
def test_the_step_is_found_whatever_it_is(step: float) -> None:
    """That of the best fit, not the first good one: frequencies that are looked at lie 0.0005 per ns apart, which are
    0.2 % at 4 ns and 0.5 % at 10 ns. A clock of single nanoseconds has no longer step."""
    tolerance = 0.002 if step in (4.0, 10.0) else 0.02
    assert [clock_step(clock(step, seed)) for seed in range(8)] == pytest.approx([step] * 8, rel=tolerance)
    assert step > 1 or {clock_step(clock(1.0, seed)) for seed in range(30)} == {1.0}


def test_reads_that_take_about_as_long_as_a_multiple_have_no_longer_step() -> None:
    """Reads of 97 to 105 ns, now and then of twice and three times as long: all near multiples of 100 ns. And reads so
    far apart that all others are left out: the step is seen between neighbours alone."""
    for seed in range(30):
        draw = np.random.default_rng(seed)
        times = itertools.accumulate(draw.uniform(97.0, 105.0, 5000) * draw.choice([1, 2, 3], 5000, p=[0.6, 0.3, 0.1]))
        shown = map(lambda time: int(time / 10) * 10, times)  # noqa: C417 - read one by one
        assert clock_step(shown.__next__) == pytest.approx(10.0, rel=0.01)
    times = itertools.accumulate(itertools.cycle((210, 250, 230, 240, 220)))
    assert clock_step(lambda: next(times)) == pytest.approx(10.0, rel=0.01)


@pytest.mark.parametrize("values", [[], [220], [220, 220, 220], [220] * 9 + [430] * 9])
def test_heaps_of_values_are_no_steps(values: list[int]) -> None:
    assert lattice(np.array(values, dtype=np.int64)) == 0.0


def test_a_manifest_tells_the_step_of_the_host_in_seconds() -> None:
    step = facts.host().clock_step
    assert step is not None and 1e-9 <= step < 1e-2
