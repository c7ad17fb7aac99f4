"""Duets on a real engine: the host beside containers, isolation steps beside each other, and a container that dies."""

from __future__ import annotations

import itertools
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from collbench.launch.engines.host import probe
from collbench.schema.record import Record
from collbench.schema.world import SliceRule
from tests.containers.conftest import Launch, Started, ended
from tests.processes import wait_for
from tests.runs import read_run
from tests.turns import assert_slept

pytestmark = [pytest.mark.docker]

PLAN = """
collectives = ["allreduce"]
sizes = ["8", "64K"]
images = ["openmpi"]
policies = [{policies}]
isolation = [{steps}]
launches = {launches}
align = "barrier"
timeout = "60s"
{more}
"""

SIZES = (8, 64 << 10)


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The launches' temporary files lie here, where nothing may be left."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    folder.chmod(0o755)
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def plan(*policies: str, steps: tuple[str, ...] = ("strict",), launches: int = 1) -> str:
    """With the environment of these tests as the host's side, where it has one."""
    more = ""
    if "host" in policies:
        if (held := probe(Path(sys.prefix)).vendor) != "openmpi":
            pytest.skip(f"the host side is the environment of these tests, which holds {held or 'no MPI'}")
        more = f'environments = {{ openmpi = "{sys.prefix}" }}'
    quoted = [", ".join(f'"{name}"' for name in names) for names in (policies, steps)]
    return PLAN.format(policies=quoted[0], steps=quoted[1], launches=launches, more=more)


def found_in(folder: Path) -> dict[tuple[str, int], Record]:
    """The records of the first launch by place and size; each is there once."""
    records = [record for record in read_run(folder / "run").records if record.launch == 0]
    found = {(one.case.where.text, int(str(one.case["size"]))): one for one in records}
    assert len(found) == len(records)
    return found


def hows(found: dict[tuple[str, int], Record]) -> dict[tuple[str, int], str | None]:
    return {
        key: one.how if one.how == "duet" else one.alone if one.status == "ok" else one.status
        for key, one in found.items()
    }


def nothing_is_left(clean: Started, temporary: Path) -> None:
    """No container, network or folder; `clean` looks again."""
    assert clean.containers() == []
    assert clean.networks() == []
    assert [path.name for path in temporary.iterdir() if path.name.startswith("collbench-")] == []


def assert_turns(found: dict[tuple[str, int], Record], worlds: int) -> None:
    """They were complete, and one after the other."""
    for size in SIZES:
        of_case = [record for (_, one), record in found.items() if one == size]
        duets = [record.duet for record in of_case if record.duet is not None]
        assert len(duets) == worlds
        assert {duet.worlds for duet in duets} == {worlds}
        assert {duet.started for duet in duets} == set(range(worlds))
        assert_slept(duets, ranks=2)
        for round_ in zip(*(duet.slices for duet in duets), strict=True):
            turns = sorted(round_, key=lambda one: one.place)
            assert [one.place for one in turns] == list(range(worlds))
            starts = [one.start for one in turns]
            assert all(later - sooner > 0.9 * SliceRule().seconds for sooner, later in itertools.pairwise(starts))
            assert all(one.n >= 10 for one in turns)


def test_the_host_beside_a_container(clean: Started, launch: Launch, tmp_path: Path, temporary: Path) -> None:
    code, out, err = ended(launch(plan("host", "multi")))
    assert code == 0, (out, err)
    found = found_in(tmp_path)
    assert set(hows(found).items()) == {((place, size), "duet") for place in ("host", "multi strict") for size in SIZES}
    assert_turns(found, 2)
    nothing_is_left(clean, temporary)


def test_every_step_lives_beside_the_others(clean: Started, launch: Launch, tmp_path: Path, temporary: Path) -> None:
    """Six at once: each world has namespaces of its own, but for the last one, which has those of the host."""
    code, out, err = ended(launch(plan("host", "single", steps=("strict", "ipc", "net", "visible", "files"))))
    assert code == 0, (out, err)
    found = found_in(tmp_path)
    places = ("host", "single strict", "single ipc", "single net", "single visible", "single files")
    assert set(hows(found).items()) == {((place, size), "duet") for place in places for size in SIZES}
    assert_turns(found, 6)
    nothing_is_left(clean, temporary)


def of_multi(started: Started) -> dict[str, Any]:
    """The container of both ranks: there is no second one in its world."""
    names = {found["Names"][0].lstrip("/"): found for found in started.containers()}
    (only,) = [name for name in names if name.endswith("-c0") and f"{name[:-1]}1" not in names]
    return names[only]


def in_turns(temporary: Path) -> list[Path]:
    """Folders of worlds whose ranks have met."""
    return [path for path in temporary.glob("collbench-*/turns") if (path.parent / "out" / "manifest.json").exists()]


@pytest.mark.parametrize("policies", [("host", "multi"), ("single", "multi")])
def test_a_container_that_is_killed_leaves_the_other_world_whole(
    clean: Started, launch: Launch, tmp_path: Path, temporary: Path, policies: tuple[str, str]
) -> None:
    process = launch(plan(*policies))
    wait_for(lambda: len(in_turns(temporary)) == 2)
    time.sleep(0.5)  # into the slices of the first case, which last longer than a second
    clean.engine.api.kill(of_multi(clean)["Id"])
    code, out, err = ended(process)
    assert code == 1, (out, err)
    found, survivor = hows(found_in(tmp_path)), "host" if policies[0] == "host" else "single strict"
    assert {found[survivor, size] for size in SIZES} <= {"duet", "partner"}
    assert "partner" in {found[survivor, size] for size in SIZES}
    assert [how for (place, _), how in found.items() if place == "multi strict"].count("failed") == 1
    nothing_is_left(clean, temporary)
