"""An environment that is missing, or another one, on some node: found before the first launch, with node and cause."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.played_slurm import environment, play_cluster
from tests.unit.test_slurm import PLAN, programs, site_file

from collbench.errors import EngineError, ImageMissing
from collbench.launch.engines.fake import contents
from collbench.launch.engines.slurm import SlurmSession, hosts_of, one_on_each
from collbench.launch.engines.slurm.job import SlurmJob
from collbench.launch.engines.slurm.script import NodeOutput, answers_in
from collbench.launch.engines.slurm.site import read
from collbench.launch.engines.spec import Looks, cleaned
from collbench.launch.expansion import expand
from collbench.launch.stacks import contents_on, nodes_of
from collbench.schema.manifest import Library

__all__ = ["programs"]

MISSING = "/env/bin/python: not found"


def looked(where: Path, **site: Any) -> Looks:
    """What a session sees, whose job is ended."""
    path = site_file(where, **({"folder": str(where / "shared"), "time": "10"} | site))
    done = expand(msgspec.structs.replace(PLAN, site=path))
    session = SlurmSession(read(done.plan.site), lambda: None)
    with cleaned(session.close):
        return session.look(done.plan, done.placements, {})


def test_every_node_is_asked(programs: Path, tmp_path: Path) -> None:
    play_cluster(programs)
    seen = looked(tmp_path, environments={"openmpi": environment(tmp_path / "env")})
    assert seen.environments["openmpi"].contents == contents()
    assert len(seen.hosts) == 2
    assert not list((tmp_path / "shared").iterdir()), "the folder of the job is removed"


def test_an_environment_that_is_missing_on_another_node_than_the_first(programs: Path, tmp_path: Path) -> None:
    """With the node, the exit code, and the words of the shell there; the job is ended."""
    play_cluster(programs)
    own = environment(tmp_path / "env", n1=f"echo 'exec: {MISSING}' >&2; exit 127")
    with pytest.raises(ImageMissing) as refused:
        looked(tmp_path, environments={"openmpi": own})
    assert refused.value.exit_code == 2
    for word in ("node n1", "127", MISSING):
        assert word in str(refused.value)
    assert "n0" not in str(refused.value)
    assert not list((tmp_path / "shared").iterdir())


def test_an_environment_of_another_library_on_one_node(programs: Path, tmp_path: Path) -> None:
    play_cluster(programs)
    other = environment(tmp_path / "other", "mpich")
    own = environment(tmp_path / "env", n1=f'exec {other}/bin/python "$@"')
    with pytest.raises(ImageMissing, match=r"node n1: .*mpich") as refused:
        looked(tmp_path, environments={"openmpi": own})
    assert "n0" not in str(refused.value)


def test_a_node_that_does_not_see_the_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command that nodes are given, run here, where n1 has no such folder."""
    done = expand(msgspec.structs.replace(PLAN, site=site_file(tmp_path)))

    def answers(job: SlurmJob, asked: Any, site: Any, argv: tuple[str, ...], *_: Any) -> tuple[NodeOutput, ...]:
        return tuple(
            NodeOutput(node, (subprocess.check_output((*argv[:3], str(folder), "true"), text=True).strip(),))
            for node, folder in (("n0", job.folder), ("n1", job.folder / "nosuch"))
        )

    monkeypatch.setattr("collbench.launch.engines.slurm.answers_of", answers)
    where = one_on_each(done.placements)
    with pytest.raises(EngineError, match=r"node n1 does not see /\S+\."):
        hosts_of(SlurmJob("7", tmp_path), read(done.plan.site), *where, lambda: None)


def test_a_node_that_dies_while_images_are_looked_at_is_not_the_images_fault(programs: Path, tmp_path: Path) -> None:
    play_cluster(programs)
    text = (programs / "scontrol").read_text()
    own = environment(tmp_path / "env", n1=f"touch {tmp_path}/dead; sleep 30")
    dead = f"""if [ -e {tmp_path}/dead ]; then
  kill -9 -$(cat {programs}/job.pid) 2>/dev/null; echo JobState=NODE_FAIL Reason=NodeDown; exit
fi"""
    (programs / "scontrol").write_text(text.replace("#!/bin/sh\n", f"#!/bin/sh\n{dead}\n"))
    with pytest.raises(EngineError, match="NODE_FAIL") as refused:
        looked(tmp_path, environments={"openmpi": own})
    assert not isinstance(refused.value, ImageMissing)


def test_long_lines_of_several_nodes_are_put_together() -> None:
    """As srun forwards them: in parts, those of other nodes between them."""
    answers, rest = answers_in(["@n0+one ", "@n1=two", "srun: error: n2: x", "@n0=line", "@n1=exit 0", "@n0=exit 127"])
    assert answers == (NodeOutput("n1", ("two",), 0), NodeOutput("n0", ("one line",), 127))
    assert answers[1].summary == ("exit code 127: one line",)
    assert rest == ("srun: error: n2: x",)


def on_nodes(number: int, **others: Any) -> dict[str, tuple[str, ...]]:
    """What so many nodes answer; `others` have something else, each as a change of what the rest hold."""
    held = msgspec.structs.replace(contents(), libraries=(Library(name="Open MPI", version="5.0.11", sha256="a" * 64),))
    return {f"n{i:03}": (msgspec.json.encode(msgspec.structs.replace(held, **others.get(f"n{i:03}", {}))).decode(),)
            for i in range(number)}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"libraries": (Library(name="Open MPI", version="5.0.10", sha256="a" * 64),)}, "5.0.10"),
        ({"libraries": (Library(name="Open MPI", version="5.0.11", sha256="b" * 64),)}, "bbbbbbbbbbbb"),
        ({"python": "3.13"}, "3.13"),
        ({"packages": {"numpy": "1.0"}}, "numpy"),
        ({"native": False}, "native loop"),
    ],
)
def test_of_many_nodes_those_are_named_that_differ_from_most(change: dict[str, Any], word: str) -> None:
    with pytest.raises(ImageMissing) as refused:
        contents_on(on_nodes(512, n007=change), "environment /env for openmpi", "openmpi", {}, PLAN)
    said = str(refused.value)
    assert "node n007: " in said and word in said and "511 nodes" in said
    assert len(said) < 400


def test_equal_answers_are_said_once() -> None:
    answers = on_nodes(512) | {f"n{i:03}": (f"exit code 127: {MISSING}",) for i in range(100, 200)}
    with pytest.raises(ImageMissing) as refused:
        contents_on(answers, "environment /env for openmpi", "openmpi", {}, PLAN)
    assert str(refused.value).count(MISSING) == 1 and "100 nodes (n100, n101, n102, ...)" in str(refused.value)


def test_how_nodes_are_named() -> None:
    assert nodes_of(["n1", "n2"], 2) == "every node"
    assert nodes_of(["n1"], 1) == nodes_of(["n1"], 3) == "node n1"
