"""What launches show besides a median: trends, a memory, kinds, and ways of measuring."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from tests.unit.made_runs import Entry, library, made_case, made_record, spread, write_launches, write_run

from collbench.analysis.compare import Comparison, Reason, compare
from collbench.analysis.factors import find_factor
from collbench.analysis.launches import Slow, drift, serial, slow
from collbench.analysis.pairs import across, within
from collbench.analysis.runs import observe
from collbench.cli import run_command
from collbench.report.cells import tables
from collbench.report.verdict import slow_text
from collbench.schema.record import Samples

HOST, MULTI = made_case("host", image="a"), made_case("multi", "strict", image="a")


def rising(first: float, share: float, n: int = 10) -> list[float]:
    return [first * (1 + share * i / (n - 1)) for i in range(n)]


def test_a_drift_that_can_be_all_of_the_difference_is_named() -> None:
    assert drift(rising(1.0, 0.07), rising(1.07, 0.07)) == pytest.approx(0.07, rel=0.1)
    assert drift(spread(1.0), rising(1.07, 0.07)) is not None  # one side is enough
    assert drift(rising(1.07, -0.07), rising(1.0, -0.07)) is not None  # a machine that becomes faster


def test_a_difference_far_beyond_the_drift_is_a_difference() -> None:
    assert drift(rising(1.0, 0.07), rising(2.0, 0.07)) is None
    assert drift(spread(1.0), spread(1.1)) is None


def test_launches_without_a_trend_are_seldom_called_drifting() -> None:
    draw = np.random.default_rng(3)
    found = [drift(*np.exp(draw.normal(0, 0.05, (2, 10))).tolist()) is not None for _ in range(400)]
    assert np.mean(found) <= 0.07


def test_launches_of_two_kinds_are_counted_on_both_sides() -> None:
    steady = spread(1.0, 60, 0.004)
    jumping = [time * (2.0 if n % 3 == 0 else 1.0) for n, time in enumerate(steady)]
    found = slow(steady, jumping)
    assert found is not None and (found.base, found.other, found.launches) == (0, 20, (60, 60))
    assert slow(jumping, jumping) is None and slow(steady, steady) is None
    assert slow(steady, [*jumping[:1], *steady[1:]]) is None  # one of sixty is chance
    shifted = [1.3 * time for time in steady]
    assert slow(steady, shifted, one_median=False) is None  # all of a side, so none of it is slow for that side
    assert slow(steady, [1.3 * time for time in jumping], one_median=False) == found


def test_launches_with_a_memory_have_a_high_score_and_others_have_not() -> None:
    draw = np.random.default_rng(4)
    scores = {}
    for memory in (0.0, 0.6):
        found = []
        for _ in range(200):
            sides = draw.normal(size=(2, 25))
            for i in range(1, 25):
                sides[:, i] = memory * sides[:, i - 1] + (1 - memory**2) ** 0.5 * sides[:, i]
            one, other = np.exp(0.03 * sides).tolist()
            found.append(serial(one, other, True) or 0.0)
        scores[memory] = np.array(found)
    assert np.mean(scores[0.0] > 1.645) <= 0.07
    assert np.mean(scores[0.6] > 1.645) >= 0.8
    assert serial(spread(1.0, 9), spread(1.0, 9), True) is None


def test_the_drift_of_two_runs_is_that_of_their_launches_in_whatever_order_they_were_recorded(tmp_path: Path) -> None:
    """A launch that was lost is repeated, and recorded, after later ones."""
    found = {}
    for name, order in (("in order", range(10)), ("repeated", (0, 3, 6, 9, 1, 4, 7, 2, 5, 8))):
        base, other = (
            observe(write_run(tmp_path / name / side, {HOST: [made_record(HOST, n, times[n]) for n in order]}))
            for side, times in (("a", rising(1e-5, 0.07)), ("b", rising(1.07e-5, 0.07)))
        )
        [found[name]] = compare(across(base, other, None, frozenset()), in_blocks=False)
        assert list(base.cells[HOST].launches) == list(other.cells[HOST].launches) == [*range(10)]
    assert {one.verdict for one in found.values()} == {"unclear"}
    assert found["repeated"].why == found["in order"].why == Reason("drift", (pytest.approx(0.07, abs=0.005),))


def one_cell(path: Path, base: Sequence[Entry], other: Sequence[Entry]) -> Comparison:
    observed = observe(write_run(path, {HOST: base, MULTI: other}))
    [found] = compare(within(observed, find_factor("policy"), frozenset()))
    return found


def by_barrier(times: Sequence[float], *numbers: int) -> list[Entry]:
    """Launches on the host, of which these fell back to a barrier."""
    gates = ["barrier" if n in numbers else "roundtime" for n in range(len(times))]
    return [made_record(HOST, n, time, gate=gate) for n, (time, gate) in enumerate(zip(times, gates, strict=True))]


def test_one_launch_that_was_measured_in_another_way_leaves_the_others(tmp_path: Path) -> None:
    times = spread(10e-6, 25)
    found = one_cell(tmp_path / "run", by_barrier(times, 3), [2 * time for time in times])
    assert (found.verdict, found.launches, found.left_out) == ("slower", (24, 24), 1)
    assert found.ratio is not None and found.ratio.value == pytest.approx(2.0)
    [table] = tables([found])
    assert "launches left out, because they were measured differently from their partners: 1" in table.notes


def test_too_few_launches_that_were_measured_alike_are_no_comparison(tmp_path: Path) -> None:
    times = spread(10e-6, 10)
    found = one_cell(tmp_path / "run", by_barrier(times, *range(5)), times)
    differing = (("gate", "barrier and roundtime", "roundtime"),)
    assert (found.verdict, found.why) == ("not comparable", Reason("measured differently", differing))
    six = one_cell(tmp_path / "six", by_barrier(times, *range(4)), times)
    assert (six.verdict, six.launches) == ("same", (6, 6))


def test_a_median_that_hides_slow_launches_is_said_with_its_verdict(tmp_path: Path) -> None:
    steady = spread(10e-6, 60, 0.004)
    jumping = [time * (2.0 if n % 6 == 0 else 1.0) for n, time in enumerate(steady)]
    found = one_cell(tmp_path / "run", steady, jumping)
    assert (found.verdict, found.slow) == ("same", Slow(0, 10, (60, 60)))
    assert found.slow is not None and slow_text(found.slow) in tables([found])[0].rows[0][-1]


def test_samples_that_began_late_are_said_beside_a_verdict(tmp_path: Path) -> None:
    times = spread(10e-6)
    late = [made_record(MULTI, n, time, samples=Samples(n=200, invalid=190, warmup=5)) for n, time in enumerate(times)]
    [table] = tables([one_cell(tmp_path / "run", times, late)])
    said = "63 % of the samples began late at the gate and are excluded; of the worst cell 95 % (1K, a multi strict)"
    assert said in table.notes


def test_the_table_says_for_how_many_sizes_intervals_hold(tmp_path: Path) -> None:
    for number in (1, 3):
        cases = [case.having(size=8 << power) for power in range(number) for case in (HOST, MULTI)]
        observed = observe(write_run(tmp_path / str(number), dict.fromkeys(cases, spread(1e-5))))
        [table] = tables(compare(within(observed, find_factor("policy"), frozenset())))
        assert any(f" {number} sizes " in note for note in table.notes) is (number > 1)


def test_runs_one_after_the_other_advise_with_a_caution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, time, lib in (("a", 1e-5, library()), ("b", 2e-5, library("MPICH", "5.0.2"))):
        write_launches(tmp_path / name, {made_case(): spread(time)}, libraries=(lib,))
    for flags, cautions in (([], 1), (["--in-blocks"], 0)):
        argv = ["collbench", "advise", str(tmp_path / "a"), str(tmp_path / "b"), *flags]
        monkeypatch.setattr(sys, "argv", argv)
        assert run_command(speaks=True) == 0
        assert capsys.readouterr().out.count("he sides were not measured alternately") == cautions
        monkeypatch.setattr(sys, "argv", [*argv, "--style", "json"])
        run_command(speaks=True)
        assert len(json.loads(capsys.readouterr().out)["cautions"]) == cautions


def side_names(path: Path, factor: str, *engines: str) -> set[str]:
    """What a table of policies and images says of the sides of a run with the host and these engines."""
    cases = [made_case("host", image=image) for image in ("a", "b")]
    cases += [made_case("multi", "strict", image=image, engine=engine) for image in ("a", "b") for engine in engines]
    observed = observe(write_run(path, dict.fromkeys(cases, spread(1e-5))))
    pairs = within(observed, find_factor(factor), frozenset({"engine"} if factor == "policy" else ()))
    [table] = tables(compare(pairs))
    return {row[table.columns.index("sides")] for row in table.rows}


def test_sides_of_different_engines_name_the_engine(tmp_path: Path) -> None:
    assert side_names(tmp_path / "1", "policy", "docker") == {"multi strict vs host (docker)"}
    assert side_names(tmp_path / "2", "image", "docker") == {"b vs a", "b vs a (multi strict)"}
    assert side_names(tmp_path / "3", "image", "docker", "podman") == {
        "b vs a", "b vs a (docker multi strict)", "b vs a (podman multi strict)"
    }  # fmt: skip
    assert side_names(tmp_path / "4", "engine", "docker") == {"docker multi strict vs host"}
