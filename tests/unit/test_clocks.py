"""Clocks of several hosts: intervals, the tree, the model between two synchronisations, and what is seen of errors."""

from __future__ import annotations

import random

import numpy as np
import pytest
from tests.unit.simulated_hosts import Hosts, drifting

from collbench.backends.fake import SimulatedClock
from collbench.timing.clocks import (
    BASELINE,
    LARGEST_RATE,
    Line,
    Offset,
    Synchronisation,
    bound_between,
    direct_pairs,
    interval,
    line_of,
    on_rank_0s_clock,
    partners,
    recent,
    surprise,
    synchronisation,
)

SECOND = 10**9


def exchanges(*rows: tuple[int, int, int]) -> Offset:
    return interval(*np.array(rows, np.int64).T)


def test_an_exchange_bounds_the_offset_on_both_sides() -> None:
    """Asked at 1000 and answered by 1400, when the other showed 200: this clock is 800 to 1200 ahead."""
    assert exchanges((1_000, 200, 1_400)) == Offset(at=1_400, offset=1_000, half=201)


def test_of_all_exchanges_the_largest_lower_and_the_smallest_upper_bound_count() -> None:
    """One has a slow way there, the other a slow way back: together they say more than the shorter of them."""
    slow_there, slow_back = (1_000, 490, 1_520), (2_000, 1_010, 2_600)
    found = exchanges(slow_there, slow_back)
    assert found.at == 2_600
    assert found.offset in (1_009, 1_010)
    assert found.half <= 22, "0.5 ns for every 1000 ns that an exchange is old"
    assert exchanges(slow_there).half > 250 and exchanges(slow_back).half > 290


def test_a_bound_is_looser_the_older_it_is() -> None:
    """Over 10 ms clocks whose rates differ by 500 ppm run 5 us apart."""
    found = exchanges((0, 0, 100), (10**7, 10**7 - 9_000, 10**7 + 20_000))
    age = 10**7 + 20_000
    assert found.offset - found.half <= 100 + LARGEST_RATE * age
    assert found.offset + found.half >= 100 + LARGEST_RATE * age


@pytest.mark.parametrize("hosts", [1, 2, 3, 4, 5, 6, 8, 11, 64, 1000])
def test_every_host_has_a_way_to_rank_0_of_log2_steps(hosts: int) -> None:
    parent = {}
    for host in range(hosts):
        asked = [other for other, asks in partners(host, hosts) if asks]
        assert len(asked) == (host > 0)
        parent.update(dict.fromkeys([host] if asked else [], asked[0] if asked else 0))
        answered = [other for other, asks in partners(host, hosts) if not asks]
        assert all((host, True) in partners(child, hosts) for child in answered)
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
    """3 hangs on 2, and 2 on 0."""
    found = synchronisation([Offset(0, 0, 0), Offset(110, 10, 1), Offset(1_100, 1_000, 2), Offset(1_300, 200, 4)])
    assert found.offset.tolist() == [0, 10, 1_000, 1_200]
    assert found.half.tolist() == [0, 1, 2, 6]
    assert found.when.tolist() == [0, 100, 100, 100]
    assert found.crossed == 0


def test_a_parent_that_was_measured_at_another_moment_is_known_less_well() -> None:
    """2 ms later host 2's clock may be 1 us farther from rank 0's; rank 0's own is always where it is."""
    to_parent = [Offset(10**9, 0, 0), Offset(110, 10, 1), Offset(2_001_000, 1_000, 2), Offset(1_200, 200, 4)]
    assert synchronisation(to_parent).half.tolist() == [0, 1, 2, 4 + 2 + 1_000]


def test_a_direct_measurement_that_the_tree_does_not_explain_is_seen() -> None:
    to_parent = [Offset(0, 0, 0), Offset(110, 10, 1), Offset(1_100, 1_000, 2)]
    assert synchronisation(to_parent, [(1, 2, Offset(1_200, 987, 5))]).crossed == 3


def at(when: int, *offsets: int, half: int = 1) -> Synchronisation:
    """All hosts at the same moment of rank 0's clock."""
    ahead = np.array([0, *offsets], np.int64)
    return Synchronisation(ahead + when, ahead, np.full(len(ahead), half, np.int64))


def test_a_clock_goes_on_as_since_the_synchronisation_that_lies_far_enough_back() -> None:
    past = [at(0, 0), at(BASELINE // 2, 7_000), at(2 * BASELINE, 800), at(2 * BASELINE + 10, 900)]
    line = line_of(1, past)
    assert (line.offset, line.origin) == (900, 2 * BASELINE + 10)
    assert line.slope == pytest.approx((900 - 7_000) / (1.5 * BASELINE), rel=1e-6)
    assert line.local(line.origin + SECOND) == line.origin + SECOND + 900 - int(6_100 * SECOND / (1.5 * BASELINE))
    assert line_of(0, past) == Line(0, 0.0, 2 * BASELINE + 10)


def test_without_one_no_rate_is_made_of_errors() -> None:
    assert line_of(1, [at(0, 0), at(BASELINE - 1, 5_000)]).slope == 0.0


def test_an_offset_that_is_known_badly_makes_little_of_a_rate() -> None:
    """A first synchronisation that was disturbed: 221 us off, and it says so."""
    assert abs(line_of(1, [at(0, 221_000, half=300_000), at(BASELINE, 0)]).slope) < LARGEST_RATE / 3
    well_known = line_of(1, [at(0, 0, half=500), at(BASELINE, 20_000, half=500)]).slope
    assert well_known == pytest.approx(1e-4, rel=2e-4)


def test_only_what_a_line_may_need_is_kept() -> None:
    past = [at(0, 0), at(10, 0), at(BASELINE, 0), at(BASELINE + 20, 0), at(BASELINE + 30, 0)]
    assert recent(past) == past[1:]
    assert recent(past[:2]) == past[:2]


def test_how_far_a_clock_is_from_where_it_was_expected() -> None:
    past = [at(0, 0, 0), at(BASELINE, 1_000, 0)]
    assert surprise(at(2 * BASELINE, 2_000, 0), past) <= 1
    assert surprise(at(2 * BASELINE, 2_000, -70), past) == 70


def test_times_between_two_synchronisations_are_interpolated() -> None:
    before, after = at(0, 5_000), at(1_000_000, 5_100)
    own = np.array([[5_000, 5_000 + 500_050], [5_000 + 1_000_100, 5_000 - 1_000_100]], np.int64)
    assert on_rank_0s_clock(own, 1, before, after).tolist() == [[0, 500_000], [1_000_000, -1_000_000]]
    assert on_rank_0s_clock(own, 0, before, after).tolist() == own.tolist()


def test_an_offset_of_days_is_exact() -> None:
    days = 10**15 + 1
    found = on_rank_0s_clock(np.array([days + 17], np.int64), 1, at(0, days), at(1_000, days))
    assert found.tolist() == [17]


# Against the truth --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slew", [0.0, 2e-5, -4e-4])
@pytest.mark.parametrize("seed", range(4))
def test_the_truth_is_inside_the_interval_always(seed: int, slew: float) -> None:
    """However slow some messages are, whatever the clocks' rates, and however much longer one of the ways takes."""
    hosts = drifting(17, seed, slew)
    true = 0.0
    for _ in range(10):
        asks, asked = hosts.chance.sample(range(17), 2)
        found, end = hosts.exchanged(asks, asked, true)
        truth = hosts.clocks[asks].read(end) - hosts.clocks[asked].read(end)
        assert abs(found.offset - truth) <= found.half + 1, "and 1 ns of rounding when a clock is read"
        true = end + 10**9 * hosts.chance.random()


def worst(hosts: Hosts, true: float, before: Synchronisation, after: Synchronisation) -> float:
    """Of all hosts the largest error of a time stamp that is put on the first one's clock."""
    first = hosts.clocks[0].read(true)
    errors = []
    for host, clock in enumerate(hosts.clocks):
        stamp = np.array([clock.read(true)], np.int64)
        errors.append(abs(int(on_rank_0s_clock(stamp, host, before, after)[0]) - first))
    return max(errors)


@pytest.mark.parametrize(("slew", "typical", "most"), [(0.0, 100, 150), (2e-5, 2_000, 4_000)])
def test_errors_of_stamps_between_two_synchronisations(slew: float, typical: float, most: float) -> None:
    """64 hosts, 1 us a way with 5 % asymmetry, half a second apart: the worst host, in the middle. A rate that NTP
    changes by 20 ppm meanwhile bends a clock by 20e-6 x 0.5 s / 4; two such bends may add up."""
    hosts = drifting(64, 3, slew)
    syncs, true, moments = [], 0.0, [0.0]
    for _ in range(21):
        found, end = hosts.synchronised(true)
        syncs.append(found)
        moments.append(true)
        true = max(end, true + SECOND / 2)
    errors = [worst(hosts, (moments[n + 1] + moments[n + 2]) / 2, syncs[n], syncs[n + 1]) for n in range(20)]
    assert np.median(errors) < typical
    assert max(errors) < most
    expected = [surprise(syncs[n], syncs[:n]) for n in range(2, 21)]
    assert max(expected) < (3_000 if slew == 0.0 else 40_000)
    if slew:
        assert max(expected) > 5_000, "a changed rate is seen at the next synchronisation"
    for found, begun in zip(syncs, moments[1:], strict=True):
        truth = [hosts.true_offset(host, begun) for host in range(64)]
        assert (np.abs(found.offset - truth) <= found.half).all()
        assert found.half.max() < 15_000


def test_a_clock_whose_rate_changes_in_between_is_off_by_more_than_at_either_end_and_within_the_bound() -> None:
    clocks = (SimulatedClock(), SimulatedClock(offset=10**12, slews=((SECOND // 4, 4e-4),)))
    hosts = Hosts(clocks, random.Random(7))  # noqa: S311 - noise, not secrecy
    before, _ = hosts.synchronised(0.0)
    after, _ = hosts.synchronised(SECOND / 2)
    off = worst(hosts, SECOND / 4, before, after)
    assert max(before.half.max(), after.half.max()) < off < bound_between(before, after)


def test_an_asymmetry_that_is_a_property_of_a_host_is_only_inside_the_bound() -> None:
    """The way into host 2 takes 1.6 us longer than that out of it: all others agree that it is 0.8 us ahead."""
    clocks = [SimulatedClock() for _ in range(7)]
    clocks[2] = SimulatedClock(offset=10**6, slow_in=1_600)
    hosts = Hosts(tuple(clocks), random.Random(5))  # noqa: S311 - noise, not secrecy
    found, end = hosts.synchronised(0.0)
    off = found.offset[2] - hosts.true_offset(2, end)
    assert 700 < off < 900
    assert found.crossed < 150
    assert off <= found.half[2]
