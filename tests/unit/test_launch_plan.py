"""Launch plans: what is refused, and with which words."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from collbench.cli.plan import undecidable
from collbench.errors import PlanError
from collbench.launch.expansion import expand
from collbench.machine.topology import Core, Topology
from collbench.schema.plan import load_launch_plan

#: Those that are not for `collbench run`.
READY = [
    path for path in sorted(Path(__file__).parents[2].joinpath("launch").glob("*.toml")) if "smoke" not in path.stem
]


def written(folder: Path, more: str) -> Path:
    path = folder / "plan.toml"
    path.write_text(f'collectives = ["bcast"]\n{more}\n', encoding="utf-8")
    return path


@pytest.mark.parametrize("path", READY, ids=lambda path: path.stem)
def test_the_ready_plans_can_be_read(path: Path) -> None:
    assert load_launch_plan(path).images


MACHINE = Topology(tuple(Core(number) for number in range(4)))

#: Under the three default policies.
MANY = [f"site/i{number}" for number in range(400)]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("", "is a plan for one world (a launch plan has images). Use: collbench run"),
        ('images = ["openmpi"]\npolicy = ["single"]', "unknown key 'policy'. Did you mean policies"),
        ('images = ["openmpi"]\npolicies = ["packed:0"]', "policy 'packed:0': not a name of a policy. Write single"),
        ('images = ["openmpi"]\npolicies = ["single; x"]', "policy 'single; x': not a name of a policy"),
        ('images = ["openmpi"]\npolicies = ["multi/far"]', "policy 'multi/far': not a name of a policy"),
        ('images = ["a; rm -rf /"]', "not a name of an image"),
        ('images = ["$(touch x)"]', "not a name of an image"),
        ('images = ["-v/:/host"]', "not a name of an image"),
        ('images = ["localhost:x/openmpi"]', "not a name of an image"),
        ('images = []', "images: the list is empty"),
        ('images = ["openmpi"]\nranks = [0]', "ranks 0: must be from 1 to 256"),
        ('images = ["openmpi"]\nworkers = [2]\nranks = [2]', "ranks and workers: both say how large"),
        ('images = ["openmpi"]\nservers = [2]', "servers: counts the servers of worlds with workers"),
        ('images = ["openmpi"]\nworkers = [2]\nservers = [256]', "servers 256: must be from 1 to 255"),
        ('images = ["openmpi"]\nspare = "all"', "spare"),
        ('images = ["openmpi"]\nworkers = [2]\nroots = [1]', "with workers the server is rank 0"),
        ('images = ["openmpi"]\nworkers = [256]', "workers 256: must be from 1 to 255"),
        ('images = ["openmpi"]\ncores_per_rank = 0', "cores_per_rank 0: must be from 1 to 256"),
        ('images = ["openmpi"]\nimage_backends = { torch = ["torch-gloo"] }', "'torch' is none of the images openmpi"),
        ('images = ["openmpi"]\nlaunches = 0', "launches 0: must be from 1"),
        (f"images = {MANY}\nranks = {[*range(1, 251)]}", "make up to 300,000 cells, and a plan has at most 5,000"),
        (f"images = {MANY}\nlaunches = 1000", "make up to 1,200,000 starts, and a plan has at most 100,000"),
        ('images = ["openmpi"]\nenvironments = { mpich = "x" }', "'mpich' is none of the images openmpi"),
    ],
)  # fmt: skip
def test_what_is_refused(tmp_path: Path, more: str, message: str) -> None:
    path = written(tmp_path, more)
    with pytest.raises(PlanError, match=f"plan {path}") as caught:
        load_launch_plan(path)
    assert message in str(caught.value)


def test_the_inner_plan_is_what_one_world_measures(tmp_path: Path) -> None:
    plan = load_launch_plan(written(tmp_path, 'images = ["openmpi"]\nbudget = "2s"\nlaunches = 3'))
    assert plan.of_world().budget_seconds == 2
    assert not plan.of_world().images and "launches" not in plan.of_world().document


def test_images_are_named_as_docker_does(tmp_path: Path) -> None:
    names = ["openmpi", "site/mpi:5.0", "localhost:5000/a/b", "ghcr.io/x/y@sha256:" + "0" * 64]
    assert load_launch_plan(written(tmp_path, f"images = {names}")).images == tuple(names)


def test_a_plan_says_when_its_launches_give_no_verdicts(tmp_path: Path) -> None:
    """A host against two policies at so many sizes: six launches are enough for any number of cells."""
    for sizes, launches, said in (
        (12, 5, "5 launches give no verdicts: launches = 6 can"), (12, 6, None), (13, 6, None),
        (13, 1, "one launch gives no verdicts: 26 comparisons take launches = 6"),
    ):  # fmt: skip
        path = tmp_path / "plan.toml"
        listed = ", ".join(f'"{8 * size + 8}"' for size in range(sizes))
        path.write_text(
            f'collectives = ["allreduce"]\nimages = ["openmpi"]\nsizes = [{listed}]\nlaunches = {launches}\n'
        )
        found = undecidable(expand(load_launch_plan(path), lambda engine: MACHINE))
        assert found is None if said is None else said in (found or "")


def test_a_title_steers_no_terminal(tmp_path: Path, collbench: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    path = written(tmp_path, 'images = ["openmpi"]\npolicies = ["host"]\ntitle = "a\\u001b[2J\\nb\\u202ec"')
    shown = collbench("plan", path)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("a\\x1b[2J\\x0ab\\u202ec: 1 cell, ")
