"""`launch --until decided` on the fake engine: who is launched again, what is said, and what such a run is worth."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.unit.decided_worlds import TOML, Launch, Takes, clear, launches_of, noisy, taking

from collbench.analysis.compare import Comparison, compare
from collbench.analysis.factors import FACTORS
from collbench.analysis.pairs import within
from collbench.analysis.results import Cell
from collbench.analysis.runs import observe
from collbench.cli import run_command
from collbench.cli.plan import launch_cells
from collbench.cli.until import Decider
from collbench.errors import PackageMissing
from collbench.launch.engines import host
from collbench.launch.engines.fake import FakeEngineSession
from collbench.launch.expansion import expand
from collbench.report.tables import Table
from collbench.schema.case import Case
from collbench.schema.plan import load_launch_plan
from collbench.schema.store import read_run

#: So many blocks that agree decide both sizes, of at most 12.
AGREED = 8


@pytest.fixture
def launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Launch:
    return Launch(tmp_path, monkeypatch, capsys)


def test_what_is_decided_is_not_launched_again(launch: Launch, tmp_path: Path) -> None:
    code, err = launch(clear)
    assert code == 0, err
    assert "at most 48 starts" in err
    found = launches_of(tmp_path / "run")
    assert set(found.values()) == {AGREED}, (found, err)
    assert "Nothing is left to decide" in err
    experiment = read_run(tmp_path / "run").manifest.experiment
    assert experiment is not None and experiment.until == "decided"


def test_the_other_sides_of_one_base_are_not_compared_with_each_other(launch: Launch) -> None:
    assert "decides 8 comparisons (4 by policy, 4 by isolation)" in launch(clear)[1]


def test_open_comparisons_go_on_with_both_sides_up_to_the_limit(launch: Launch, tmp_path: Path) -> None:
    code, err = launch(noisy, toml=TOML.replace("launches = 12", "launches = 14"))
    assert code == 0, err
    found = launches_of(tmp_path / "run")
    assert found["multi strict"] == found["single strict"] > found["single files"], found
    assert max(found.values()) <= 14


def hopeless(place: str, case: Case, noise: float) -> float:
    """Nothing differs, and launches of multi strict differ by half."""
    return float(1000.0 * np.exp(noise * (0.5 if place == "multi strict" else 0.001)))


def test_what_is_too_noisy_for_the_limit_is_given_up(launch: Launch, tmp_path: Path) -> None:
    code, err = launch(hopeless, toml=TOML.replace("launches = 12", "launches = 20"))
    assert code == 0, err
    assert "given up as too noisy for 20 launches" in err
    assert max(launches_of(tmp_path / "run").values()) < 20


def test_a_run_stopped_by_hand_is_valid_and_goes_on_as_if_it_had_not_been(launch: Launch, tmp_path: Path) -> None:
    code, err = launch(clear, stop_at=25)
    assert code == 130
    assert "continue: collbench launch " in err
    assert sum(launches_of(tmp_path / "run").values()) == 25
    code, err = launch(clear, "--resume", str(tmp_path / "run"))
    assert code == 0, err
    found = launches_of(tmp_path / "run")
    assert set(found.values()) == {AGREED}
    records = read_run(tmp_path / "run").records
    assert len({(one.case, one.launch) for one in records}) == len(records)


def test_fewer_launches_than_decide_anything_are_refused(launch: Launch) -> None:
    code, err = launch(clear, "--until", "decided", toml=TOML.replace("12", "5").replace('until = "decided"', ""))
    assert (code, 'launches 5: with until = "decided" it is the most, and fewer than 6 decide nothing' in err) == (
        2,
        True,
    )


def test_the_flag_goes_before_the_plan(launch: Launch, tmp_path: Path) -> None:
    code, err = launch(clear, "--until", "launches", toml=TOML.replace("12", "7"))
    assert code == 0, err
    assert set(launches_of(tmp_path / "run").values()) == {7}
    assert "decided" not in err
    experiment = read_run(tmp_path / "run").manifest.experiment
    assert experiment is not None and experiment.until == "launches"


def test_where_nothing_is_compared_every_cell_has_all_launches(launch: Launch, tmp_path: Path) -> None:
    alone = TOML.replace('"single", "multi"', '"single"').replace('"strict", "files"', '"strict"').replace("12", "7")
    code, err = launch(clear, toml=alone)
    assert code == 0, err
    assert "decides nothing: no two of its cells are compared" in err
    assert launches_of(tmp_path / "run") == {"single strict": 7}


def test_at_the_limit_it_is_said_what_is_open(launch: Launch) -> None:
    code, err = launch(noisy, toml=TOML.replace("12", "8"))
    assert code == 0, err
    (in_the_end,) = re.findall(r"in the end: (\d) of 8 comparisons decided .*, (\d) not decided", err)
    assert sum(map(int, in_the_end)) == 8 and "0" not in in_the_end


@pytest.mark.parametrize(
    ("takes", "launches", "suggested"), [(noisy, 7, True), (hopeless, 12, False), (clear, 12, False)]
)
def test_more_launches_are_suggested_where_they_would_start_some(
    launch: Launch, tmp_path: Path, takes: Takes, launches: int, suggested: bool
) -> None:
    code, err = launch(takes, toml=TOML.replace("12", str(launches)))
    assert (code, "more launches: collbench launch " in err) == (0, suggested), err
    before = sum(launches_of(tmp_path / "run").values())
    again = ("--resume", str(tmp_path / "run"), "--until", "decided", "--launches", str(2 * launches))
    code, err = launch(takes, *again, toml=TOML.replace("12", str(launches)))
    assert (code, sum(launches_of(tmp_path / "run").values()) > before) == (0, suggested), err


def test_a_run_is_not_gone_on_with_to_another_end(launch: Launch, tmp_path: Path) -> None:
    assert launch(clear, stop_at=9)[0] == 130
    code, err = launch(clear, "--resume", str(tmp_path / "run"), "--until", "launches")
    assert (code, "was made with another plan" in err) == (2, True)


def test_plan_says_what_would_be_decided(
    launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    launch(clear)
    monkeypatch.setattr(sys, "argv", ["collbench", "plan", str(tmp_path / "plan.toml")])
    assert run_command(speaks=True) == 0
    said = capsys.readouterr().out
    assert "4 cells, at most 12 launches each" in said
    assert "decides 8 comparisons (4 by policy, 4 by isolation), each side with the first one" in said
    assert re.search(r"\nabout .*, if all launches are needed \(estimated for an idle machine\)\n", said)


def test_plan_has_the_flag_of_launch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(TOML.replace('until = "decided"\n', ""))
    said = {}
    for words in ((), ("--until", "decided"), ("--until", "launches")):
        monkeypatch.setattr(sys, "argv", ["collbench", "plan", str(path), *words])
        assert run_command(speaks=True) == 0
        said[words] = capsys.readouterr().out
    assert said[()] == said["--until", "launches"]
    assert "at most" not in said[()] and "decides" not in said[()]
    assert "at most 12 launches each" in said["--until", "decided"]
    path.write_text(TOML.replace('until = "decided"\n', "").replace("12", "5"))
    monkeypatch.setattr(sys, "argv", ["collbench", "plan", str(path), "--until", "decided"])
    assert run_command(speaks=True) == 2
    assert "fewer than 6 decide nothing" in capsys.readouterr().err


def test_without_scipy_nothing_is_started(launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.stats", None)
    code, err = launch(clear)
    assert (code, "launch: SciPy is not installed" in err) == (2, True), err
    assert not (tmp_path / "run").exists()


def fails(place: str, case: Case, noise: float) -> float:
    """multi strict is never measured."""
    if place == "multi strict":
        raise OSError("no such place")
    return clear(place, case, noise)


def test_a_place_that_always_fails_is_given_up_and_the_others_are_decided(launch: Launch, tmp_path: Path) -> None:
    code, err = launch(fails)
    assert code == 1
    assert "4 not comparable (bcast 8, single strict vs multi strict: multi strict: failed: OSError" in err
    assert "; and 3 more)" in err
    found = launches_of(tmp_path / "run")
    assert found["multi strict"] == 3 < found["single strict"] == AGREED


def test_each_block_had_the_cells_that_the_blocks_before_it_left_open(launch: Launch, tmp_path: Path) -> None:
    """Whoever goes on with a run decides about every block as was decided when it began."""
    assert launch(noisy, toml=TOML.replace("launches = 12", "launches = 14"))[0] == 0
    run = read_run(tmp_path / "run")
    expanded = expand(load_launch_plan(tmp_path / "plan.toml"))
    decider = Decider(expanded, run.manifest, run.records, lambda line, left: None)
    cells = launch_cells(expanded)
    for block in range(14):
        launched = {cells[record.case] for record in run.records if record.launch == block}
        wanted = decider(block)
        assert launched == (set(expanded.cells) if wanted is None else set(wanted)), block


def test_a_run_that_is_resumed_has_its_own_plan(launch: Launch, tmp_path: Path) -> None:
    """So the command that goes on with it can be typed as it is printed."""
    assert launch(noisy, stop_at=12)[0] == 130
    before = launches_of(tmp_path / "run")
    code, err = launch(noisy, "--resume", str(tmp_path / "run"), without_plan=True)
    after = launches_of(tmp_path / "run")
    assert (code, max(after.values())) == (0, 12), err
    assert max(before.values()) < 12
    assert launch(noisy, without_plan=True)[0] == 2, "without a run there is no plan"


def test_the_answer_at_the_end_has_intervals_that_hold_at_any_time(
    launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    toml = TOML.replace('"single", "multi"', '"host", "single"').replace('"strict", "files"', '"strict"')
    (tmp_path / "plan.toml").write_text(toml)
    plan = load_launch_plan(tmp_path / "plan.toml")
    on_host = FakeEngineSession(taking(wide, plan, []), title="")
    monkeypatch.setattr(host, "ENGINE", replace(host.ENGINE, connect=lambda *_: on_host))
    answers: list[list[Comparison]] = []

    def heard(comparisons: list[Comparison], margin: float) -> list[Table]:
        answers.append(comparisons)
        return []

    monkeypatch.setattr("collbench.cli.launch.verdict_tables", heard)
    assert launch(wide, toml=toml)[0] == 0
    observed = observe(tmp_path / "run")
    assert max(len(cell.medians) for cell in observed.cells.values()) > 7
    (said,) = answers
    expected = compare(within(observed, FACTORS["policy"], frozenset()))
    assert [(one.verdict, one.ratio) for one in said] == [(one.verdict, one.ratio) for one in expected] != []
    assert all(one.pair.base.until_decided for one in said)


def test_where_what_judges_is_not_installed_a_launch_ends_with_its_times(
    launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object) -> list[Comparison]:
        raise PackageMissing("SciPy is not installed.")

    printed: list[int] = []

    def heard(cells: dict[Case, Cell]) -> list[Table]:
        printed.append(len(cells))
        return []

    monkeypatch.setattr("collbench.cli.launch.compare", missing)
    monkeypatch.setattr("collbench.cli.launch.launch_tables", heard)
    toml = TOML.replace("launches = 12", "launches = 2").replace('until = "decided"', 'until = "launches"')
    code, err = launch(clear, toml=toml)
    assert (code, printed) == (0, [len(observe(tmp_path / "run").cells)]), err


def wide(place: str, case: Case, noise: float) -> float:
    """A tenth more in the container, where launches differ by 7 %."""
    return float(1000.0 * np.exp(noise * 0.07 + 0.1 if place == "single strict" else noise * 0.001))
