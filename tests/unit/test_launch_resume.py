"""`collbench launch` on the fake engine, as a user starts it: what it reads, what it goes on with, what it refuses."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.test_launch_campaign import first, held, leave

from collbench.analysis.runs import observe, shortage
from collbench.cli import run_command
from collbench.errors import LaunchLost
from collbench.launch import campaign, expansion
from collbench.launch.engines import fake, host
from collbench.launch.engines.fake import FakeCommand, FakeEngineSession, Play, contents
from collbench.machine import facts
from collbench.schema import manifest as manifests
from collbench.schema.store import RecordStream, RunWriter, read_run

TOML = """
collectives = ["bcast"]
images = ["openmpi"]
policies = ["single"]
sizes = ["8", "16"]
launches = 2
timeout = "5s"
gate = "barrier"
engine = "fake"
"""

Launch = Callable[..., tuple[int, str]]


@pytest.fixture
def launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Launch:
    """`launch(play, *flags, **session)`: exit code and standard error of a launch in this process."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "plan.toml").write_text(TOML)

    def call(play: Play, *flags: str, **session: Any) -> tuple[int, str]:
        monkeypatch.setattr(fake, "ENGINE", replace(fake.ENGINE, connect=lambda *_: FakeEngineSession(play, **session)))
        where = () if "--resume" in flags else ("--out", str(tmp_path / "run"))
        monkeypatch.setattr(sys, "argv", ["collbench", "launch", str(tmp_path / "plan.toml"), *where, *flags])
        return run_command(speaks=True), capsys.readouterr().err

    return call


def half(command: FakeCommand) -> int:
    """The first launch measures one case of two, and the engine goes away in the second."""
    if not first(command):
        raise KeyboardInterrupt
    return leave(command, cases=1)


@pytest.fixture
def begun(launch: Launch, tmp_path: Path) -> Path:
    """A run of which half is there: a case, and its launch's failure."""
    code, _ = launch(half)
    assert code == 130
    assert [record.status for record in read_run(tmp_path / "run").records] == ["ok", "failed"]
    return tmp_path / "run"


def test_a_run_is_gone_on_with_and_no_record_comes_twice(launch: Launch, begun: Path) -> None:
    code, err = launch(leave, "--resume", str(begun))
    records = read_run(begun).records
    assert (code, [(record.launch, record.case["size"], record.status) for record in records]) == (
        1, [(0, 8, "ok"), (0, 16, "failed"), (1, 8, "ok"), (1, 16, "ok")]
    ), err  # fmt: skip


def test_a_launch_that_was_lost_is_measured_again(launch: Launch, tmp_path: Path) -> None:
    """It is a failed record, the run lacks it, and --resume adds it; a launch that failed by itself stays failed."""

    def lose(command: FakeCommand) -> int:
        leave(command, cases=1)
        raise LaunchLost("Slurm job 7 ended: TIMEOUT (TimeLimit)")

    where = tmp_path / "run"
    code, err = launch(lambda command: lose(command) if first(command) else leave(command))
    assert (code, "failed: lost: Slurm job 7 ended: TIMEOUT" in err) == (1, True), err
    assert [(one.launch, one.status) for one in read_run(where).records] == [
        (0, "ok"), (0, "failed"), (1, "ok"), (1, "ok")
    ]  # fmt: skip
    assert [lacking.cells for lacking in observe(where).shortages] == [1]
    code, err = launch(leave, "--resume", str(where))
    assert (code, len(read_run(where).records)) == (0, 5), err
    cells, manifest = observe(where).cells, read_run(where).manifest
    assert shortage(where, manifest, cells.values()).cells == 0
    assert {(cell.failed, len(cell.medians), *cell.reasons) for cell in cells.values()} == {(0, 2)}


def test_a_lost_launch_that_fails_by_itself_when_it_is_repeated_has_failed_once(launch: Launch, tmp_path: Path) -> None:
    def lose(command: FakeCommand) -> int:
        raise LaunchLost("Slurm job 7 ended: CANCELLED")

    where = tmp_path / "run"
    launch(lambda command: lose(command) if first(command) else leave(command))
    run = read_run(where)
    assert shortage(where, run.manifest, observe(where).cells.values()).cells == 2
    code, err = launch(lambda command: 7 if first(command) else leave(command), "--resume", str(where))
    assert (code, [one.launch for one in read_run(where).records]) == (1, [0, 1, 1, 0]), err
    cells = observe(where).cells.values()
    assert [(cell.failed, cell.lost) for cell in cells] == [(1, 0)] * 2


def test_a_run_is_not_gone_on_with_on_another_image(launch: Launch, begun: Path) -> None:
    before = (begun / "records.jsonl").read_bytes()
    code, err = launch(leave, "--resume", str(begun), ids={"openmpi": "sha256:another"})
    assert (code, "image openmpi has changed since the run began (id)." in err) == (2, True), err
    code, err = launch(leave, "--resume", str(begun), held=held("another build"))
    assert (code, "image openmpi has changed since the run began (libraries)." in err) == (2, True), err
    other = msgspec.structs.replace(contents(), sources="other code")
    assert launch(leave, "--resume", str(begun), held={"openmpi": other})[0] == 2
    assert (begun / "records.jsonl").read_bytes() == before
    assert launch(leave, "--resume", str(begun))[0] == 1


def changed(run: Path, **fields: Any) -> None:
    """The run's manifest with other fields."""
    manifest = manifests.decode((run / "manifest.json").read_bytes())
    (run / "manifest.json").write_bytes(manifests.encode(msgspec.structs.replace(manifest, **fields)))


def test_a_run_is_not_gone_on_with_by_another_plan(launch: Launch, begun: Path, tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(TOML.replace('"5s"', '"6s"'))
    assert launch(leave, "--resume", str(begun)) == (
        2, f'collbench: --resume {begun}: was made with another plan (timeout: "5s" then, "6s" now). Use that plan, or '
        "begin a run with --out.\n"
    )  # fmt: skip
    changed(begun, plan={"never": "seen"})
    assert "was made with another plan" in launch(leave, "--resume", str(begun))[1]
    changed(begun, experiment=None, plan=None)
    assert "was not written by collbench launch" in launch(leave, "--resume", str(begun))[1]


def test_a_run_from_before_a_key_was_there_is_gone_on_with(launch: Launch, begun: Path) -> None:
    plan = read_run(begun).manifest.plan
    assert plan is not None
    changed(begun, plan={key: value for key, value in plan.items() if key != "cores_per_rank"})
    assert launch(leave, "--resume", str(begun))[0] == 1
    assert len(read_run(begun).records) == 4


def test_what_is_refused_of_a_run_is_refused_before_an_engine_is_asked(
    launch: Launch, begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine may have a queue."""
    monkeypatch.setattr(campaign, "connect", None)
    code, err = launch(leave)
    assert (code, "already holds a run" in err) == (2, True), err
    code, err = launch(leave, "--out", "/proc/run")
    said = "Nothing was measured. Name another folder: --out DIR."
    assert (code, "--out /proc/run: " in err, said in err) == (1, True, True), err
    (tmp_path / "file").touch()
    code, err = launch(leave, "--out", str(tmp_path / "file" / "run"))
    assert (code, f"Not a directory. {said}" in err) == (1, True), err
    with RunWriter.resume(begun):
        code, err = launch(leave, "--resume", str(begun))
    assert (code, "another program is writing this run" in err) == (1, True), err
    (tmp_path / "plan.toml").write_text(TOML.replace('"16"', '"32"').replace("5s", "6s"))
    code, err = launch(leave, "--resume", str(begun))
    assert (code, 'sizes: ["8","16"] then, ["8","32"] now; ' in err, 'timeout: "5s" then' in err) == (2, True, True), (
        err
    )


def test_of_a_run_that_is_complete_nothing_is_started(
    launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch(leave)
    monkeypatch.setattr(campaign, "connect", None)
    code, err = launch(leave, "--resume", str(tmp_path / "run"))
    assert (code, err) == (0, f"# {tmp_path / 'run'}: every launch of this plan is recorded, so nothing is started\n")


def test_a_run_that_goes_on_elsewhere_names_the_hosts_of_both(
    launch: Launch, begun: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here,) = read_run(begun).manifest.hosts
    elsewhere = msgspec.structs.replace(here, name="elsewhere")
    monkeypatch.setattr(facts, "host", lambda ranks: elsewhere)
    code, err = launch(leave, "--resume", str(begun))
    assert (code, "hosts that had no part in the run before: elsewhere" in err) == (1, True), err
    assert read_run(begun).manifest.hosts == (here, elsewhere)
    assert sorted(path.name for path in begun.iterdir()) == [
        "manifest.json", "records.jsonl", "samples", "yardsticks.jsonl",
    ]  # fmt: skip


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How often a plan is spelt out, a cell is placed, and the records of a run are read."""
    found = {"expand": 0, "place": 0, "read": 0}

    def counting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            found[name] += 1
            return function(*arguments)

        return call

    for module, name in ((campaign, "expand"), (expansion, "place")):
        monkeypatch.setattr(module, name, counting(name, getattr(module, name)))
    monkeypatch.setattr(RecordStream, "__iter__", counting("read", RecordStream.__iter__))
    return found


def test_a_plan_is_placed_once_and_a_run_that_is_gone_on_with_is_read_before_and_after(
    launch: Launch, begun: Path, counted: dict[str, int]
) -> None:
    code, err = launch(leave, "--resume", str(begun))
    assert (code, counted) == (1, {"expand": 1, "place": 1, "read": 2}), err


def test_another_engine_is_named_by_a_flag(launch: Launch) -> None:
    code, err = launch(leave, "--engine", "dokcer")
    assert (code, err) == (2, "collbench: engine 'dokcer': unknown. Did you mean docker?\n")


def test_a_run_with_cells_of_two_engines_is_compared_by_engine(
    launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    on_host = FakeEngineSession(leave, title="")
    monkeypatch.setattr(host, "ENGINE", replace(host.ENGINE, connect=lambda *_: on_host))
    plan = TOML.replace('["single"]', '["host", "single", "multi"]').replace("launches = 2", "launches = 8")
    (tmp_path / "plan.toml").write_text(plan)
    code, err = launch(leave)
    assert code == 0, err
    records = read_run(tmp_path / "run").records
    assert {(one.case.where.engine, one.case.where.policy) for one in records} == {
        ("host", "host"), ("fake", "single"), ("fake", "multi")
    }  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["collbench", "compare", str(tmp_path / "run"), "--by", "engine", "--all"])
    assert run_command(speaks=True) == 0, capsys.readouterr().err
    rows = [line.split("  ")[1].strip() for line in capsys.readouterr().out.splitlines() if " vs " in line]
    assert sorted(rows) == ["fake multi strict vs host"] * 2 + ["fake single strict vs host"] * 2
