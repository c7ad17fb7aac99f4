"""Gates from Python, with clocks that say what the script says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from collbench.schema.case import Alignment
from collbench.timing.loop import LARGEST_SLACK, AlignmentSetting, Line, Signals, Slack, announcement_delays

ROOT_SAID = 5_000


class Script:
    """Signals and a clock that write down what happens. The clock moves by `step` each time it is read."""

    def __init__(self, announces: bool = True, step: int = 10) -> None:
        self.events: list[str] = []
        self.now = 1_000
        self._step = step
        self.start = np.zeros(1, np.int64)
        self.signals = Signals(lambda: self.events.append("barrier"), self.announce, self.start, announces)

    def announce(self) -> None:
        self.events.append(f"announce {self.start[0]}")
        if not self.signals.announces:
            self.start[0] = ROOT_SAID

    def clock(self) -> int:
        self.events.append("clock")
        self.now += self._step
        return self.now


@pytest.mark.parametrize(("kind", "events"), [("none", []), ("barrier", ["barrier"])])
def test_gates_without_a_time_read_no_clock(kind: Alignment, events: list[str]) -> None:
    script = Script()
    assert AlignmentSetting(kind, script.signals).wait(script.clock) == 0
    assert script.events == events


def test_the_root_announces_its_own_time_plus_slack_and_spins_to_it() -> None:
    script = Script()
    assert AlignmentSetting("roundtime", script.signals, slack=35).wait(script.clock) == 1_045
    assert script.events == ["barrier", "clock", "announce 1045", "clock", "clock", "clock", "clock"]
    assert script.now == 1_050


def test_the_others_spin_to_what_the_root_said() -> None:
    script = Script(announces=False, step=1_000)
    assert AlignmentSetting("roundtime", script.signals, slack=35).wait(script.clock) == ROOT_SAID
    assert script.events == ["barrier", "announce 0", *["clock"] * 4]
    assert script.now == ROOT_SAID


def test_who_comes_after_the_start_does_not_wait() -> None:
    script = Script(announces=False, step=ROOT_SAID)
    assert AlignmentSetting("roundtime", script.signals).wait(script.clock) == ROOT_SAID
    assert script.events[2:] == ["clock"]


def test_who_waits_may_let_others_run() -> None:
    script = Script(step=10)
    relaxing = replace(script.signals, relax=lambda: script.events.append("relax"))
    AlignmentSetting("roundtime", relaxing, slack=25).wait(script.clock)
    assert script.events == ["barrier", "clock", "announce 1035", "clock", "relax", "clock", "relax", "clock"]


def test_on_another_hosts_clock_a_rank_waits_for_its_own_start() -> None:
    """This clock is 700 ahead when the root's shows 1000, and gains 100 more until 5000."""
    script = Script(announces=False, step=10)
    line = Line(offset=700, slope=0.025, origin=1_000)
    setting = AlignmentSetting("roundtime", script.signals, line=line)
    assert setting.wait(script.clock) == script.now == ROOT_SAID + 700 + 100
    assert announcement_delays(setting, script.clock, 1).tolist() == [10]


#: Late of so many samples, batch by batch, and the slack after each in multiples of the first.
BATCHES = {
    "in time": ([(5, 100)] * 3, [1, 1, 1]),
    "announcements were slower": ([(20, 100), (4, 100), (4, 100)], [2, 2, 2]),
    "slower still": ([(30, 100), (15, 100), (6, 100), (0, 100)], [2, 4, 8, 8]),
    "something else keeps ranks": ([(20, 100), (17, 100), (30, 100), (40, 100)], [2, 1, 1, 1]),
    "a doubling is judged once": ([(6, 100), (3, 100), (4, 100), (5, 100)], [2, 2, 2, 2]),
    "too few to judge": ([(3, 10)] * 9, [1] * 9),
    "few at a time": ([(3, 10)] * 20, [1] * 9 + [2] * 10 + [1]),
    "most are late": ([(6, 10), (60, 100), (20, 100)], [4, 16, 32]),
    "most are late, after a doubling in vain": ([(20, 100), (20, 100), (51, 100), (20, 100)], [2, 1, 4, 8]),
}  # fmt: skip


@pytest.mark.parametrize("batches", BATCHES)
def test_slack_grows_while_that_makes_fewer_samples_late(batches: str) -> None:
    late, expected = BATCHES[batches]
    slack, values = Slack(1000), []
    for batch in late:
        assert slack.adapt(*batch) is (2 * batch[0] > batch[1])
        values.append(slack.value // 1000)
    assert values == expected


def test_slack_has_an_end() -> None:
    slack = Slack(10 * LARGEST_SLACK)
    slack.adapt(100, 100)
    assert slack.value == LARGEST_SLACK

    setting = AlignmentSetting("roundtime", Script().signals)
    assert setting.with_slack(700).slack == 700
    assert setting.with_slack(10 * LARGEST_SLACK).slack == LARGEST_SLACK
    assert setting.with_slack(700).kind == "roundtime"


@pytest.mark.parametrize(
    ("kind", "barrier", "announce", "native"),
    [("none", False, False, True), ("barrier", False, True, False), ("barrier", True, False, True),
     ("roundtime", True, False, False), ("roundtime", False, True, False), ("roundtime", True, True, True)],
)  # fmt: skip
def test_which_gates_the_native_loop_can_pass(kind: Alignment, barrier: bool, announce: bool, native: bool) -> None:
    nothing: Callable[[], object] = int
    signals = Signals(nothing, nothing, np.zeros(1, np.int64), announces=True,
                      native_barrier=(1,) if barrier else None, native_announce=(1,) if announce else None)  # fmt: skip
    assert AlignmentSetting(kind, signals).has_native is native


def test_announcement_delays_are_receipt_minus_stamp() -> None:
    root = Script(step=10)
    assert announcement_delays(AlignmentSetting("roundtime", root.signals), root.clock, 3).tolist() == [10, 10, 10]
    assert root.events[:4] == ["barrier", "clock", "announce 1010", "clock"]
    other = Script(announces=False, step=3_000)
    later = AlignmentSetting("roundtime", other.signals)
    assert announcement_delays(later, other.clock, 2).tolist() == [4_000 - ROOT_SAID, 7_000 - ROOT_SAID]
