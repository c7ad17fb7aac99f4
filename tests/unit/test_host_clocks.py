"""Ranks on hosts whose clocks disagree: what they find out, which gate and clock they take, what is recorded."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.contract.test_fake import measured
from tests.unit.made_measurements import method, on_ranks
from tests.unit.made_runs import made_case, made_record

from collbench import backends
from collbench.analysis.results import how
from collbench.backends.fake import SimulatedClock
from collbench.bindings.spec import Operation
from collbench.machine.facts import ContentionMeter, RankFacts, rank_facts
from collbench.report.styles import TableStyle
from collbench.run.failures import Unwatched
from collbench.run.host_clocks import HostClocks, host_clocks, readers_of
from collbench.run.sampling import DIFFER, Sampling, TimedCall, doubts, trusted
from collbench.run.turns import _slice, sampled_in_turns
from collbench.run.worlds_of_programs import AloneWorld
from collbench.schema.plan import Plan
from collbench.schema.record import ClockError, Record
from collbench.schema.world import Order, Report, SliceRule
from collbench.timing.call import Call, Stage
from collbench.timing.clocks import BASELINE, LARGEST_RATE, Synchronisation
from collbench.timing.loop import GateSetting, Stamps

AHEAD = SimulatedClock(offset=10**13, drift=5e-6)
BEHIND = SimulatedClock(offset=-5 * 10**9, drift=-3e-6)
THREE = (SimulatedClock(), AHEAD, BEHIND)


def on_hosts(monkeypatch: pytest.MonkeyPatch, *clocks: SimulatedClock) -> None:
    """The fake backend's ranks are on these hosts in turn."""
    monkeypatch.setattr(backends.get("fake"), "clocks", clocks)


def record_of(name: str = "allreduce", ranks: int = 6, fault: str | None = None, **fields: Any) -> Record:
    usual: dict[str, Any] = {"backends": ("fake",), "drivers": ("python",), "sizes": ("8",), "iters": 30}
    (record,) = measured(Plan(collectives=(name,), **(usual | fields)), ranks, fault).records
    return record


def clocks_of(session: Any, clock_ids: list[str]) -> HostClocks:
    return HostClocks(session, readers_of(clock_ids), clock_ids[session.world.rank])


def test_ranks_of_one_host_have_its_reader_and_know_their_host(monkeypatch: pytest.MonkeyPatch) -> None:
    on_hosts(monkeypatch, *THREE)
    ids = ["a", "b", "c", "a", "b", "c"]
    found = on_ranks(6, lambda session: clocks_of(session, ids))
    assert [clocks.host for clocks in found] == [0, 1, 2, 0, 1, 2]
    assert all(clocks.readers == [0, 1, 2] for clocks in found)


def test_all_ranks_hear_of_the_same_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    on_hosts(monkeypatch, *THREE)

    def body(session: Any) -> list[list[int]]:
        clocks = clocks_of(session, [f"{rank % 3}" for rank in range(6)])
        clocks.begin()
        clocks.synchronise()
        assert clocks.bound >= clocks.past[-1].half.max()
        assert clocks.seen < 300 < clocks.bound < 3_000
        return [found.offset.tolist() for found in clocks.past]

    first, *others = on_ranks(6, body)
    assert len(first) == 3
    assert all(offsets == first for offsets in others)
    for none, ahead, behind in first:
        assert none == 0
        assert abs(ahead - AHEAD.offset) < 3_000 and abs(behind - BEHIND.offset) < 3_000


def test_what_was_seen_of_a_case_before_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    jump = SimulatedClock(slews=((500_000, 0.5), (600_000, -0.5)))
    on_hosts(monkeypatch, SimulatedClock(), jump)

    def body(session: Any) -> list[int]:
        clocks, seen = clocks_of(session, ["0", "1"]), []
        for _ in range(2):
            clocks.begin()
            session.signals.barrier()
            while session.world.rank == 0 and session.moment() < 800_000:
                pass
            session.signals.barrier()
            clocks.synchronise()
            seen.append(clocks.seen)
        return seen

    (first, second), other = on_ranks(2, body)
    assert (first, second) == tuple(other)
    assert first > 40_000 > 400 > second


def test_the_gate_keeps_up_with_the_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """After every batch the start is announced for where the clocks are now."""
    on_hosts(monkeypatch, *THREE)

    def body(session: Any) -> bool:
        clocks = clocks_of(session, ["0", "1", "2"])
        clocks.begin()
        call = Call((Stage(session.signals.barrier),))
        timed = TimedCall(Operation(None, (), call, False, 0), session, "python", None)
        gate = GateSetting("roundtime", session.signals, 5_000, clocks.line)
        sampling = Sampling(timed, method(3), gate, [], clocks=clocks)
        sampling.take(3)
        assert len(clocks.past) == 3 and len(sampling.stamps.late) == 3
        return gate.line != sampling.gate.line == clocks.line and sampling.gate.slack == 5_000

    assert on_ranks(3, body) == [True] * 3


def test_a_slice_after_a_sleep_is_on_one_clock_and_the_sleep_is_no_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour at 5 ppm is 18 ms, which no slice is to be blamed for."""
    on_hosts(monkeypatch, *THREE)
    rule = SliceRule(seconds=2e-3, operations=10, discard=5, discard_seconds=1e-4)

    def body(session: Any) -> tuple[Report, int]:
        clocks = clocks_of(session, ["0", "1", "2"])
        clocks.begin()
        call = Call((Stage(session.signals.barrier),))
        timed = TimedCall(Operation(None, (), call, False, 0), session, "python", None)
        stop = method(3, clock="synced")
        sampling = Sampling(timed, stop, GateSetting("barrier", session.signals), [], clocks=clocks)
        for _ in range(2):
            session.turn_back(session.moment() + 3600 * 10**9)
            order = Order(act="slice", gate="barrier", seconds=2e-3, rule=rule)
            report = _slice(sampling, order, Unwatched(), "barrier")
        return report, clocks.seen

    found = on_ranks(3, body)
    for report, seen in found:
        assert report.seconds is not None and report.seconds < 1e-4
        assert seen < 400


def test_slices_last_twenty_times_as_long_as_their_synchronisation(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = []

    class Asked:
        def wait(self, report: Report, *told: Any) -> Order:
            heard.append(report)
            return Order(act="end")

    clocks: Any = SimpleNamespace(lasted=4_000_000)
    sampling: Any = SimpleNamespace(
        clocks=clocks, gate=SimpleNamespace(kind="barrier", slack=0), method=SimpleNamespace(stop=None),
        timed_call=SimpleNamespace(session=SimpleNamespace(world=AloneWorld())),
    )  # fmt: skip
    for quota in (False, True):
        assert sampled_in_turns(sampling, Asked(), Unwatched(), "", quota, ContentionMeter())  # type: ignore[arg-type]
    assert [report.shortest for report in heard] == [pytest.approx(0.08), 1.0]


def test_stamps_are_put_on_rank_0s_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """All ranks leave a barrier at the same true time, whatever their clocks show."""
    on_hosts(monkeypatch, *THREE)

    def body(session: Any) -> Stamps:
        clocks = clocks_of(session, ["0", "1", "2"])
        clocks.begin()
        session.signals.barrier()
        now = np.array([session.clock()], np.int64)
        clocks.synchronise()
        return clocks.common(Stamps(now, now + 100, np.zeros(1, bool), now[:, None] + 50))

    found = on_ranks(3, body)
    assert np.ptp([stamps.entered[0] for stamps in found]) < 300
    assert all(stamps.left - stamps.entered == 100 and stamps.marks[0] - stamps.entered == 50 for stamps in found)


def test_there_is_nothing_to_synchronise_on_one_clock_or_without_messages() -> None:
    def body(session: Any) -> list[bool]:
        here = replace(rank_facts(), clock_id="here")
        there = replace(here, clock_id="there")

        def none(ranks: list[RankFacts]) -> bool:
            return host_clocks(session, ranks, ranks[session.world.rank].clock_id) is None

        found = [none([here, here]), none([here, there])]
        session.signals = replace(session.signals, messages=None)
        return [*found, none([here, there])]

    assert on_ranks(2, body) == [[True, False, True]] * 2


@pytest.mark.parametrize(("asked", "gate"), [("auto", "roundtime"), ("roundtime", "roundtime"), ("barrier", "barrier")])
@pytest.mark.parametrize("name", ["allreduce", "barrier"])
def test_a_sample_on_good_clocks_is_as_on_one(
    monkeypatch: pytest.MonkeyPatch, name: str, asked: str, gate: str
) -> None:
    one = record_of(name, gate=asked)
    assert (one.clock, one.clock_error) == ("common", None)
    on_hosts(monkeypatch, *THREE)
    found = record_of(name, gate=asked)
    assert (found.status, found.gate, found.clock, found.notes) == ("ok", gate, "synced", ())
    assert found.check is not None and found.check.wrong == 0
    assert found.clock_error is not None and found.clock_error.hosts == 3
    assert found.clock_error.seen < 2e-7 < found.clock_error.bound < 3e-6 + LARGEST_RATE * 0.5
    assert found.seconds is not None and one.seconds is not None
    assert found.seconds.p50 == pytest.approx(one.seconds.p50, abs=3e-7)
    assert found.samples is not None and found.samples.invalid <= 3


def scripted(monkeypatch: pytest.MonkeyPatch, *found: Synchronisation) -> HostClocks:
    """Rank 0 of two hosts, whose synchronisations find this one after the other."""
    left = iter(found)
    monkeypatch.setattr(HostClocks, "_exchanged", lambda self: [])
    monkeypatch.setattr("collbench.run.host_clocks._assembled", lambda table: next(left))
    session: Any = SimpleNamespace(world=AloneWorld(), clock=lambda: 0)
    return HostClocks(session, {"a": 0, "b": 1}, "a")


def found_at(when: int, offset: int = 0, half: int = 10, crossed: int = 0) -> Synchronisation:
    at, ahead, wide = (np.array(pair, np.int64) for pair in ((when, when + offset), (0, offset), (0, half)))
    return Synchronisation(at, ahead, wide, crossed)


def test_the_bound_of_a_case_is_that_of_its_worst_synchronisation(monkeypatch: pytest.MonkeyPatch) -> None:
    halves = {0: 10, BASELINE: 20, 2 * BASELINE: 50, 3 * BASELINE: 15}
    clocks = scripted(monkeypatch, *(found_at(when, half=half) for when, half in halves.items()))
    clocks.begin()
    assert clocks.bound == 20
    clocks.synchronise()
    clocks.synchronise()
    assert clocks.bound == 50


def test_stamps_between_two_synchronisations_widen_the_bound_by_what_clocks_may_run_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clocks = scripted(monkeypatch, *(found_at(n * BASELINE, half=half) for n, half in enumerate((10, 20, 15))))
    clocks.begin()
    clocks.synchronise()
    assert clocks.bound == 20, "nothing was stamped in between"
    none = np.zeros(0, np.int64)
    clocks.common(Stamps(none, none, np.zeros(0, bool), np.zeros((0, 0), np.int64)))
    assert clocks.bound == 20 + BASELINE * 250 // 10**6, "500 ppm of half the time between"


def test_direct_pairs_that_disagree_during_a_case_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = scripted(monkeypatch, found_at(0), found_at(BASELINE), found_at(2 * BASELINE, crossed=700))
    clocks.begin()
    clocks.synchronise()
    assert clocks.seen == 700


def test_a_bad_first_synchronisation_is_within_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is what the rate of the first case is made of."""
    clocks = scripted(monkeypatch, found_at(0, 221_000, 300_000), found_at(BASELINE), found_at(4 * BASELINE))
    clocks.begin()
    clocks.synchronise()
    assert 0 < clocks.seen < clocks.bound == 300_000


@pytest.mark.parametrize(
    ("operation", "seen", "good"),
    [(100_000, 5_000, True), (100_000, 5_001, False), (1_000, 200, True), (1_000, 201, False)],
)
def test_clocks_are_trusted_up_to_200_ns_or_5_percent_of_the_operation(operation: int, seen: int, good: bool) -> None:
    clocks: Any = SimpleNamespace(seen=seen, begin=lambda: None, synchronise=lambda: None)
    entered = np.arange(3)
    pilot = Stamps(entered, entered + operation, np.zeros(3, bool), np.zeros((3, 0), np.int64))
    session = SimpleNamespace(world=AloneWorld(), signals=None)
    timed_call: Any = SimpleNamespace(session=session, run=lambda gate, number: pilot)
    assert (trusted(clocks, timed_call, "barrier", may_change=True) is None) == good


#: Its rate changes while the first case is measured: what was expected of it is soon wrong by much.
WILD = SimulatedClock(offset=10**13, slews=tuple((n * 50_000, (-1) ** n * 2e-2) for n in range(60)))


@pytest.mark.parametrize(("asked", "note"), [("auto", "gate barrier, largest"), ("barrier", "largest")])
def test_on_bad_clocks_a_sample_is_the_largest_local_time(
    monkeypatch: pytest.MonkeyPatch, asked: str, note: str
) -> None:
    on_hosts(monkeypatch, SimulatedClock(), WILD)
    found = record_of(gate=asked)
    assert (found.status, found.gate, found.clock, found.clock_error) == ("ok", "barrier", "local", None)
    assert found.seconds is not None and found.seconds.max < 1e-4, "clocks that are hours apart are not compared"
    (said,) = found.notes
    assert (
        said == f"{note} local time: as seen, the hosts' clocks differ by more than 5% of the operation and than 200 ns"
    )


def test_the_gate_that_was_asked_for_is_taken_whatever_the_clocks_are_like(monkeypatch: pytest.MonkeyPatch) -> None:
    on_hosts(monkeypatch, SimulatedClock(), WILD)
    found = record_of(gate="roundtime", iters=10)
    assert (found.gate, found.clock, found.notes) == ("roundtime", "synced", (DIFFER,))
    assert found.clock_error is not None and found.clock_error.seen > 1e-6


def test_clocks_that_turned_out_worse_than_they_may_be_are_a_note() -> None:
    """200 ns or 5 % of a sample, whichever is more."""
    assert doubts(None, 1e-6) == ()
    for seen, sample, note in ((2.1e-7, 1e-6, True), (1.9e-7, 1e-6, False), (4e-6, 1e-4, False), (6e-6, 1e-4, True)):
        assert doubts(ClockError(bound=1e-5, seen=seen, hosts=2), sample) == ((DIFFER,) if note else ())


@pytest.mark.parametrize("rank", [0, 2])
def test_a_rank_that_leaves_a_barrier_early_is_found_on_synchronised_clocks(
    monkeypatch: pytest.MonkeyPatch, rank: int
) -> None:
    on_hosts(monkeypatch, *THREE)
    assert record_of("barrier", 3, f"corrupt:{rank}@0").reason == (
        "wrong result before timing: 1 ranks left before the last one entered"
    )


def test_synchronised_clocks_measure_as_a_common_one_and_local_times_do_not() -> None:
    common, synced, local = (made_record(made_case(), 0, 1e-6, clock=clock) for clock in ("common", "synced", "local"))
    assert how(common) == how(synced) != how(local)


def test_the_table_says_how_well_the_clocks_agree() -> None:
    style = TableStyle()
    for size, seen, bound in ((8, 4.04e-7, 2e-6), (16, 1e-8, 6.2e-6)):
        error = ClockError(bound=bound, seen=seen, hosts=4)
        style.add(made_record(made_case(size=size), 0, 1e-6, clock="synced", clock_error=error))
    text = style.end()
    assert "gate roundtime (last out - first in)" in text
    assert text.splitlines()[-1] == "* clocks of 4 hosts agree within 0.4 us as seen, 6.2 us guaranteed"
