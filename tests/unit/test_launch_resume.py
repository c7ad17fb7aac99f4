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
from tests.runs import read_run
from tests.unit.fake_engine import FakeCommand, FakeEngineSession, Play, contents
from tests.unit.test_launch_campaign import first, held, leave

from collbench.analysis.runs import observe, shortage
from collbench.cli import run_command
from collbench.errors import LaunchLost
from collbench.launch import campaign, expansion
from collbench.launch.engines import fake, host
from collbench.machine import facts
from collbench.schema import manifest as manifests
from collbench.schema.store import RecordStream, RunWriter

Golden = Callable[[str, str], None]
TOML = """
collectives = ["bcast"]
images = ["openmpi"]
policies = ["single"]
sizes = ["8", "16"]
launches = 2
timeout = "5s"
align = "barrier"
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


def recorded(run: Path) -> list[tuple[int, int, str]]:
    """(launch, bytes, status) of every record, in order."""
    return [(record.launch, record.case["size"], record.status) for record in read_run(run).records]


@pytest.fixture
def begun(launch: Launch, tmp_path: Path) -> Path:
    """A run of which half is there: a case, and its launch's failure."""
    assert launch(half)[0] == 130
    assert recorded(tmp_path / "run") == [(0, 8, "ok"), (0, 16, "failed")]
    return tmp_path / "run"


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How often a plan is spelt out, a cell is placed, and the records of a run are read."""
    calls = {"expand": 0, "place": 0, "read": 0}

    def counting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            calls[name] += 1
            return function(*arguments)

        return call

    for module, name in ((campaign, "expand"), (expansion, "place")):
        monkeypatch.setattr(module, name, counting(name, getattr(module, name)))
    monkeypatch.setattr(RecordStream, "__iter__", counting("read", RecordStream.__iter__))
    return calls


def test_a_run_is_gone_on_with_and_no_record_comes_twice(launch: Launch, begun: Path, counted: dict[str, int]) -> None:
    """Its plan is placed once, and what is there read before and after."""
    code, err = launch(leave, "--resume", str(begun))
    assert (code, counted) == (1, {"expand": 1, "place": 1, "read": 2}), err
    assert recorded(begun) == [(0, 8, "ok"), (0, 16, "failed"), (1, 8, "ok"), (1, 16, "ok")]


def losing(cases: int) -> Play:
    """The first launch is lost after so many cases."""

    def play(command: FakeCommand) -> int:
        if not first(command):
            return leave(command)
        if cases:
            leave(command, cases=cases)
        raise LaunchLost("Slurm job 7 ended: TIMEOUT (TimeLimit)")

    return play


def test_a_launch_that_was_lost_is_measured_again(launch: Launch, tmp_path: Path) -> None:
    """It is a failed record, the run lacks it, and --resume adds it; a launch that failed by itself stays failed."""
    where = tmp_path / "run"
    code, err = launch(losing(1))
    assert (code, "lost: Slurm job 7 ended: TIMEOUT" in err) == (1, True), err
    assert recorded(where) == [(0, 8, "ok"), (0, 16, "failed"), (1, 8, "ok"), (1, 16, "ok")]
    assert [lacking.cells for lacking in observe(where).shortages] == [1]
    code, err = launch(leave, "--resume", str(where))
    assert (code, len(recorded(where))) == (0, 5), err
    cells = observe(where).cells.values()
    assert shortage(where, read_run(where).manifest, cells).cells == 0
    assert {(cell.failed, len(cell.medians), *cell.reasons) for cell in cells} == {(0, 2)}


def test_a_lost_launch_that_fails_by_itself_when_it_is_repeated_has_failed_once(launch: Launch, tmp_path: Path) -> None:
    where = tmp_path / "run"
    launch(losing(0))
    assert shortage(where, read_run(where).manifest, observe(where).cells.values()).cells == 2
    code, err = launch(lambda command: 7 if first(command) else leave(command), "--resume", str(where))
    assert (code, [number for number, *_ in recorded(where)]) == (1, [0, 1, 1, 0]), err
    assert [(cell.failed, cell.lost) for cell in observe(where).cells.values()] == [(1, 0)] * 2


def changed(run: Path, **fields: Any) -> None:
    """The run's manifest with other fields."""
    manifest = manifests.decode((run / "manifest.json").read_bytes())
    (run / "manifest.json").write_bytes(manifests.encode(msgspec.structs.replace(manifest, **fields)))


def test_what_no_run_goes_on_with(launch: Launch, begun: Path, tmp_path: Path, golden: Golden) -> None:
    """Another image, another plan, or what no launch has written; then it is gone on with all the same."""
    before, errors = (begun / "records.jsonl").read_bytes(), list[str]()

    def refused(toml: str = TOML, **session: Any) -> None:
        (tmp_path / "plan.toml").write_text(toml)
        code, err = launch(leave, "--resume", str(begun), **session)
        assert code == 2, err
        errors.append(err.replace(str(tmp_path), "DIR"))

    refused(ids={"openmpi": "sha256:another"})
    refused(held=held("another build"))
    refused(held={"openmpi": msgspec.structs.replace(contents(), sources="other code")})
    refused(TOML.replace('"5s"', '"6s"'))
    refused(TOML.replace('"16"', '"32"').replace("5s", "6s"))
    manifest = read_run(begun).manifest
    for fields in ({"plan": {"never": "seen"}}, {"experiment": None, "plan": None}):
        changed(begun, **fields)
        refused()
    assert (begun / "records.jsonl").read_bytes() == before
    assert manifest.plan is not None
    older = {key: value for key, value in manifest.plan.items() if key != "cores_per_rank"}
    changed(begun, plan=older, experiment=manifest.experiment)
    assert launch(leave, "--resume", str(begun))[0] == 1, "it is from before a key was there"
    assert len(recorded(begun)) == 4
    golden("not-resumed.txt", "".join(errors))


def test_what_is_refused_of_a_run_is_refused_before_an_engine_is_asked(
    launch: Launch, begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    """An engine may have a queue."""
    monkeypatch.setattr(campaign, "connect", None)
    errors = []

    def refused(expected: int, *flags: str) -> None:
        code, err = launch(leave, *flags)
        assert code == expected, err
        errors.append(err.replace(str(tmp_path), "DIR"))

    (tmp_path / "file").touch()
    refused(1, "--out", "/proc/run")
    assert "--out /proc/run: " in errors.pop()  # the reason is the system's
    refused(2)
    refused(1, "--out", str(tmp_path / "file" / "run"))
    with RunWriter.resume(begun):
        refused(1, "--resume", str(begun))
    (tmp_path / "plan.toml").write_text(TOML.replace("5s", "6s"))
    refused(2, "--resume", str(begun))
    golden("not-begun.txt", "".join(errors))


def test_of_a_complete_run_nothing_is_started(launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launch(leave)
    monkeypatch.setattr(campaign, "connect", None)
    kept = recorded(tmp_path / "run")
    code, err = launch(leave, "--resume", str(tmp_path / "run"))
    assert (code, err.startswith(f"# {tmp_path / 'run'}: "), err.count("\n")) == (0, True, 1)
    assert recorded(tmp_path / "run") == kept


def test_a_run_that_goes_on_elsewhere_names_hosts(launch: Launch, begun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here,) = read_run(begun).manifest.hosts
    elsewhere = msgspec.structs.replace(here, name="elsewhere")
    monkeypatch.setattr(facts, "host", lambda ranks: elsewhere)
    code, err = launch(leave, "--resume", str(begun))
    assert (code, " elsewhere" in err) == (1, True), err
    assert read_run(begun).manifest.hosts == (here, elsewhere)
    assert {path.name for path in begun.iterdir()} == {"manifest.json", "records.jsonl", "samples", "yardsticks.jsonl"}


def test_another_engine_is_named_by_a_flag(launch: Launch) -> None:
    code, err = launch(leave, "--engine", "dokcer")
    assert (code, "'dokcer'" in err, "docker?" in err) == (2, True, True)


def test_a_run_with_cells_of_two_engines_is_compared_by_engine(
    launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    on_host = FakeEngineSession(leave, title="")
    monkeypatch.setattr(host, "ENGINE", replace(host.ENGINE, connect=lambda *_: on_host))
    plan = TOML.replace('["single"]', '["host", "single", "multi"]').replace("launches = 2", "launches = 8")
    (tmp_path / "plan.toml").write_text(plan)
    code, err = launch(leave)
    assert code == 0, err
    monkeypatch.setattr(sys, "argv", ["collbench", "compare", str(tmp_path / "run"), "--by", "engine", "--all"])
    assert run_command(speaks=True) == 0, capsys.readouterr().err
    rows = [line.split("  ")[1].strip() for line in capsys.readouterr().out.splitlines() if " vs " in line]
    assert sorted(rows) == ["fake multi strict vs host"] * 2 + ["fake single strict vs host"] * 2
