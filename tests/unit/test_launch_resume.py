"""`collbench launch` on the fake engine, as a user starts it: what it reads, what it goes on with, what it refuses."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.test_launch_campaign import first, held, leave

from collbench.cli import run_command
from collbench.launch import campaign, expansion
from collbench.launch.engines.fake import FakeCommand, FakeEngine, FakeSession, Play
from collbench.launch.engines.host import HostEngine
from collbench.schema import manifest as manifests
from collbench.schema.store import RecordStream, read_run

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
        monkeypatch.setattr(FakeEngine, "connect", lambda engine, address, check: FakeSession(play, **session))
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


def test_a_run_is_not_gone_on_with_on_another_image(launch: Launch, begun: Path) -> None:
    before = (begun / "records.jsonl").read_bytes()
    code, err = launch(leave, "--resume", str(begun), ids={"openmpi": "sha256:another"})
    assert (code, "image openmpi has changed since the run began" in err) == (2, True), err
    code, err = launch(leave, "--resume", str(begun), held=held("another build"))
    assert (code, "image openmpi has changed since the run began" in err) == (2, True), err
    assert (begun / "records.jsonl").read_bytes() == before


def changed(run: Path, **fields: Any) -> None:
    """The run's manifest with other fields."""
    manifest = manifests.decode((run / "manifest.json").read_bytes())
    (run / "manifest.json").write_bytes(manifests.encode(msgspec.structs.replace(manifest, **fields)))


def test_a_run_is_not_gone_on_with_by_another_plan(launch: Launch, begun: Path, tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(TOML.replace("launches = 2", "launches = 3"))
    assert launch(leave, "--resume", str(begun)) == (
        2, f"collbench: --resume {begun}: was made with another plan. Use that plan, or begin a run with --out.\n"
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


def test_a_plan_is_placed_once_and_a_run_that_is_gone_on_with_is_read_once(
    launch: Launch, begun: Path, counted: dict[str, int]
) -> None:
    code, err = launch(leave, "--resume", str(begun))
    assert (code, counted) == (1, {"expand": 1, "place": 1, "read": 1}), err


def test_another_engine_is_named_by_a_flag(launch: Launch) -> None:
    code, err = launch(leave, "--engine", "dokcer")
    assert (code, err) == (2, "collbench: engine 'dokcer': unknown. Did you mean docker?\n")


def test_a_run_with_cells_of_two_engines_is_compared_by_engine(
    launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(HostEngine, "connect", lambda engine, address, check: FakeSession(leave, title=""))
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
    rows = [line.split("  ")[1].strip() for line in capsys.readouterr().out.splitlines() if " > " in line]
    assert sorted(rows) == ["host > fake multi strict"] * 2 + ["host > fake single strict"] * 2
