"""The engine slurm: what environments hold on each node, and nodes that parameter servers have to themselves."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.fake_engine import contents
from tests.unit.played_slurm import environment, play_cluster
from tests.unit.refusals import refusals
from tests.unit.test_slurm import PLAN, play, programs, site_file, without_its_loop

from collbench.errors import EngineError, ImageMissing
from collbench.launch.engines.slurm import SlurmSession, all_launches, hosts_of, one_on_each
from collbench.launch.engines.slurm.job import SlurmJob
from collbench.launch.engines.slurm.script import (
    NodeOutput,
    Resources,
    SlurmSite,
    answers_in,
    job_script,
    read,
    resources_of,
)
from collbench.launch.engines.spec import Looks, cleaned
from collbench.launch.expansion import ExpandedPlan, expand, shapes_of
from collbench.launch.stacks import contents_on, nodes_of
from collbench.machine.facts import RankFacts, rank_facts
from collbench.run import facts_of_ranks
from collbench.run.facts_of_ranks import shape_difference
from collbench.schema.manifest import Library
from collbench.schema.plan import Plan
from collbench.schema.world import SHAPE, Shape, shapes, text_of

__all__ = ["programs"]  # fixtures

Golden = Callable[[str, str], None]

MISSING = "/env/bin/python: not found"


def look(where: Path, environment: str) -> Looks:
    """What a session sees, whose job is ended, and whose folder is removed."""
    path = site_file(where, folder=str(where / "shared"), time="10", environments={"openmpi": environment})
    done = expand(msgspec.structs.replace(PLAN, site=path))
    session = SlurmSession(read(done.plan.site), lambda: None)
    try:
        with cleaned(session.close):
            return session.look(done.plan, done.placements, {})
    finally:
        assert not list((where / "shared").iterdir())


def test_every_node_is_asked(programs: Path, tmp_path: Path) -> None:
    play_cluster(programs)
    looks = look(tmp_path, environment(tmp_path / "env"))
    assert looks.environments["openmpi"].contents == contents()
    assert len(looks.hosts) == 2


def test_an_environment_that_is_missing_or_another_on_one_node(programs: Path, tmp_path: Path) -> None:
    """With the node, the exit code, and the words of the shell there."""
    play_cluster(programs)
    mpich = environment(tmp_path / "mpich", "mpich")
    for name, does, words in (
        ("none", f"echo 'exec: {MISSING}' >&2; exit 127", ("127", MISSING)),
        ("other", f'exec {mpich}/bin/python "$@"', ("mpich",)),
    ):
        with pytest.raises(ImageMissing) as refused:
            look(tmp_path, environment(tmp_path / name, n1=does))
        assert refused.value.exit_code == 2
        assert all(word in str(refused.value) for word in ("node n1: ", *words)) and "n0" not in str(refused.value)


def test_a_node_that_does_not_see_the_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command that nodes are given, run here, where n1 has no such folder."""
    done = expand(msgspec.structs.replace(PLAN, site=site_file(tmp_path)))

    def answers(job: SlurmJob, step: Any, site: Any, argv: tuple[str, ...], *_: Any) -> tuple[NodeOutput, ...]:
        return tuple(
            NodeOutput(node, (subprocess.check_output((*argv[:3], str(folder), "true"), text=True).strip(),))
            for node, folder in (("n0", job.folder), ("n1", job.folder / "nosuch"))
        )

    monkeypatch.setattr("collbench.launch.engines.slurm.answers_of", answers)
    with pytest.raises(EngineError, match=rf"node n1 .*{tmp_path}") as refused:
        hosts_of(SlurmJob("7", tmp_path), read(done.plan.site), *one_on_each(done.placements), lambda: None)
    assert "n0" not in str(refused.value)


def test_a_node_that_dies_while_images_are_looked_at_is_not_the_images_fault(programs: Path, tmp_path: Path) -> None:
    play_cluster(programs)
    answers = (programs / "scontrol").read_text().removeprefix("#!/bin/sh\n")
    play(programs, "scontrol", f"""if [ -e {tmp_path}/dead ]; then
  kill -9 -$(cat {programs}/job.pid) 2>/dev/null; echo JobState=NODE_FAIL Reason=NodeDown; exit
fi
{answers}""")  # fmt: skip
    with pytest.raises(EngineError, match="NODE_FAIL") as refused:
        look(tmp_path, environment(tmp_path / "env", n1=f"touch {tmp_path}/dead; sleep 30"))
    assert not isinstance(refused.value, ImageMissing)


def test_long_lines_of_several_nodes_are_put_together() -> None:
    """As srun forwards them: in parts, those of other nodes between them."""
    answers, rest = answers_in(["@n0+one ", "@n1=two", "srun: error: n2: x", "@n0=line", "@n1=exit 0", "@n0=exit 127"])
    assert answers == (NodeOutput("n1", ("two",), 0), NodeOutput("n0", ("one line",), 127))
    assert answers[1].summary == ("exit code 127: one line",)
    assert rest == ("srun: error: n2: x",)


def library(version: str = "5.0.11", sha256: str = "a" * 64) -> tuple[Library]:
    return (Library(name="Open MPI", version=version, sha256=sha256),)


def refused_with(others: range, answer: str = "", **fields: Any) -> str:
    """Why 512 nodes are refused, of which these give another answer or hold something else."""
    held = msgspec.structs.replace(contents(), libraries=library())
    usual, other = (msgspec.json.encode(msgspec.structs.replace(held, **changes)).decode() for changes in ({}, fields))
    answers = {f"n{number:03}": (answer or other if number in others else usual,) for number in range(512)}
    with pytest.raises(ImageMissing) as refused:
        contents_on(answers, "environment /env for openmpi", "openmpi", {}, PLAN)
    return str(refused.value)


@pytest.mark.parametrize(
    ("change", "word"),
    [({"libraries": library("5.0.10")}, "5.0.10"), ({"libraries": library(sha256="b" * 64)}, "bbbbbbbbbbbb"),
     ({"python": "3.13"}, "3.13"), ({"packages": {"numpy": "1.0"}}, "numpy"), ({"native": False}, "native loop")],
)  # fmt: skip
def test_of_many_nodes_those_are_named_that_differ_from_most(change: dict[str, Any], word: str) -> None:
    refused = refused_with(range(7, 8), **change)
    assert "node n007: " in refused and word in refused and "511 nodes" in refused
    assert len(refused) < 400


def test_equal_answers_are_said_once() -> None:
    refused = refused_with(range(100, 200), f"exit code 127: {MISSING}")
    assert refused.count(MISSING) == 1 and "100 nodes (n100, n101, n102, ...)" in refused


def test_how_nodes_are_named() -> None:
    assert nodes_of(["n1", "n2"], 2) == "every node"
    assert nodes_of(["n1"], 1) == nodes_of(["n1"], 3) == "node n1"


# Nodes that parameter servers have to themselves ----------------------------------------------------------------------

#: The servers of trainings, which need no library but torch.
TRAINING = Plan(images=("torch",), policies=("host",), benchmarks=("parameter_server",), workers=(2,),
                servers=(1,), hosts=(2,), launches=1, engine="slurm")  # fmt: skip

#: A server without a GPU for workers with one.
WITH_GPUS = Plan(images=("openmpi",), policies=("multi",), collectives=("ps_bcast",), backends=("nccl",),
                 sizes=("8",), device="gpu", workers=(4,), hosts=(1, 3), launches=1, engine="slurm")  # fmt: skip


def expanded(folder: Path, plan: Plan = TRAINING, site: dict[str, Any] | None = None, **changes: Any) -> ExpandedPlan:
    usual: dict[str, Any] = {"gpus": 2, "runtime": "charliecloud", "options": ["--partition=gpu"]}
    return expand(msgspec.structs.replace(plan, site=site_file(folder, **usual | (site or {})), **changes))


def script(*given: Any, **changes: Any) -> str:
    done = expanded(*given, **changes)
    return all_launches(done.plan, done.order, done.placements)


def test_a_server_without_a_gpu_is_on_a_node_of_its_own_or_beside_its_workers(golden: Golden, tmp_path: Path) -> None:
    """A heterogeneous job; with hosts = 1 the server is on a node of its second component, which has the GPUs."""
    site = {"runtime": "pyxis", "servers": {"options": ["--partition=cpu"]}}
    golden("slurm-servers.sh", without_its_loop(script(tmp_path, WITH_GPUS, site, workers=(2,), cores_per_rank=2)))


def test_servers_have_the_first_of_several_hosts(tmp_path: Path) -> None:
    done = expanded(tmp_path, workers=(4,), servers=(2,), hosts=(3,), policies=("multi", "single"))
    places = {cell.policy: [(box.host, box.ranks) for box in at.boxes] for cell, at in done.placements.items()}
    assert places == {
        "multi": [(0, (0, 1)), (1, (2, 3)), (2, (4, 5))],
        "single": [(0, (0,)), (0, (1,)), (1, (2,)), (1, (3,)), (2, (4,)), (2, (5,))],
    }  # fmt: skip
    assert done.cells[0].title == "torch multi files, 2 servers and 4 workers on 3 hosts"
    kinds = {cell.policy: shapes_of(cell, at) for cell, at in done.placements.items()}
    assert kinds["multi"] == tuple(Shape(hosts=hosts, each=2, cores=1, boxes="host") for hosts in (1, 2))
    assert [shape.boxes for shape in kinds["single"]] == ["rank", "rank"]


def test_on_one_host_servers_are_ordinary_ranks(tmp_path: Path) -> None:
    text = script(tmp_path, hosts=(1,), servers=(0, 1, 2))
    assert "hetjob" not in text and "--het-group" not in text and "WORKER_NODE" not in text
    assert "--nodes=1 --ntasks=4 --ntasks-per-node=4" in text, "two servers and two workers"


def test_a_world_beside_those_with_a_node_for_servers_begins_on_a_node_of_workers(tmp_path: Path) -> None:
    steps = script(tmp_path, hosts=(1, 2)).split("\n# step ")[1:]
    together = next(step for step in steps if "on 2 hosts" not in step)
    (apart,) = (step for step in steps if step != together)
    assert "export FIRST_NODE=$WORKER_NODE\n" in together and together.count("--het-group=1 ") == 1
    assert "FIRST_NODE=$WORKER_NODE" not in apart and apart.count("--het-group=") == 2


#: Changes of a plan, or of the site file.
NOT_ON_SLURM: list[dict[str, Any]] = [
    {"workers": (3,), "hosts": (3,)}, {"hosts": (4,)}, {"servers": (0,)}, {"servers": (9,)}, {"spare": "chief"},
    {"benchmarks": ("dd",), "workers": (), "servers": (1,), "hosts": (1,)},
    {"site": {"servers": {"cores": 3}}}, {"site": {"servers": {"options": ["cpu"]}}},
]  # fmt: skip


def test_what_cannot_be_expressed(golden: Golden, tmp_path: Path) -> None:
    attempts = [partial(script, tmp_path, **changes) for changes in NOT_ON_SLURM]
    golden("slurm-servers-refused.txt", refusals(attempts, tmp_path))


def test_servers_have_the_options_of_all_nodes_where_the_site_has_no_others(tmp_path: Path) -> None:
    assert script(tmp_path).count("#SBATCH --partition=gpu\n") == 2
    assert script(tmp_path, site={"servers": {"options": []}}).count("#SBATCH --partition=gpu\n") == 1


def test_a_job_asks_for_the_cores_of_a_node_once(tmp_path: Path) -> None:
    """Not for as many tasks as one world has, with as many cores as a task of another has; shared cores count once."""
    of_gpus = resources_of(expanded(tmp_path, WITH_GPUS, hosts=(1, 3), workers=(2,)).placements.items())
    assert of_gpus == Resources(2, 1, 8, 2, Resources(1, 1, 8, 0))
    crowded = expanded(tmp_path, servers=(3,), cores_per_rank=4, oversubscribe=True)
    assert resources_of(crowded.placements.items()) == Resources(1, 2, 4, 0, Resources(1, 2, 4, 0))
    assert "--overcommit" in all_launches(crowded.plan, crowded.order, crowded.placements)


#: A server on n0, and two workers each on n1 and n2; of one core.
WORLD = (Shape(hosts=1, each=1, cores=1), Shape(hosts=2, each=2, cores=1))


def seats(*places: tuple[str, int]) -> tuple[RankFacts, ...]:
    """Ranks by host and core."""
    return tuple(replace(rank_facts(), host=host, kernel_id=host, cores=frozenset({core}), gpu=None)
                 for host, core in places)  # fmt: skip


PLACES = (("n0", 0), ("n1", 0), ("n1", 1), ("n2", 0), ("n2", 1))

#: Places of ranks that are not those of WORLD.
ELSEWHERE = {
    "a rank is missing": PLACES[:4],
    "the server is among the workers": (PLACES[1], PLACES[0], *PLACES[2:]),
    "the server is on a node of workers": (("n1", 2), *PLACES[1:]),
    "a worker is on another node": (*PLACES[:2], ("n2", 2), *PLACES[3:]),
    "two workers share a core": (*PLACES[:2], ("n1", 0), *PLACES[3:]),
}


def test_ranks_that_are_elsewhere_than_planned(golden: Golden) -> None:
    assert shape_difference(WORLD, seats(*PLACES)) is None
    assert facts_of_ranks.place_difference(seats(*PLACES), None, {SHAPE: text_of(WORLD)}) is None
    golden("slurm-seats.txt", "".join(f"{what}: {shape_difference(WORLD, seats(*places))}\n"
                                      for what, places in ELSEWHERE.items()))  # fmt: skip


def test_a_shape_is_read_as_it_was_written() -> None:
    for planned in (WORLD, WORLD[:1]):
        assert shapes({SHAPE: text_of(planned)}) == planned
    assert text_of(WORLD[:1]).startswith("{"), "one shape stands for itself"


@pytest.mark.parametrize(("rank", "local", "taken"), [(0, 0, {0}), (1, 0, {0, 1}), (2, 1, {2, 3}), (4, 1, {1})])
def test_a_rank_takes_the_cores_of_its_own_shape(
    monkeypatch: pytest.MonkeyPatch, rank: int, local: int, taken: set[int]
) -> None:
    """Of one mask for all ranks of a node."""
    asked: list[set[int]] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, wanted: asked.append(set(wanted)))
    srun = {"SLURM_PROCID": str(rank), "SLURM_STEP_NUM_TASKS": "5", "SLURM_LOCALID": str(local), "SLURM_STEP_ID": "0"}
    world = (WORLD[0], Shape(hosts=1, each=2, cores=2), Shape(hosts=1, each=2, cores=1))
    facts_of_ranks.bind(None, srun | {SHAPE: text_of(world)})
    assert asked == [taken]


def test_the_job_knows_the_first_node_of_its_ranks_and_that_of_workers_alone(programs: Path, tmp_path: Path) -> None:
    """The script itself, under bash."""
    play(programs, "scontrol", "echo \"$3\" | tr , '\\n'")
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "driver").write_text("0\n")
    (folder / "step-0").write_text('echo "$FIRST_NODE $WORKER_NODE"; touch end\n')
    needs = Resources(2, 1, 1, 0, servers=Resources(1, 1, 1, 0))
    text = job_script("name", folder, SlurmSite(folder=str(tmp_path), cores=1), needs)
    groups = {"SLURM_JOB_NODELIST_HET_GROUP_0": "s0", "SLURM_JOB_NODELIST_HET_GROUP_1": "w0,w1"}
    subprocess.run(("bash", "-c", text), env=os.environ | groups, timeout=30, check=True)
    assert (folder / "log-0").read_text() == "s0 w0\n" and (folder / "nodes").read_text() == "s0\nw0\nw1\n"
