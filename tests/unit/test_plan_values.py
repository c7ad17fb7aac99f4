"""What a plan says wrongly is named by its key, with what was found and what would work."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from collbench.cli import cli
from collbench.errors import PlanError
from collbench.schema.plan import load_launch_plan, load_plan

BASE = 'collectives = ["allreduce"]\nbackends = ["fake"]\n'


def written(folder: Path, text: str) -> Path:
    path = folder / "w.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('ops = "sum"', 'ops: expected a list such as ["sum"], not the string "sum".'),
        ('iters = "20"', 'iters: expected a whole number, not the string "20".'),
        ("iters = 1.5", "iters: expected a whole number, not the number 1.5."),
        ("iters = [1]", "iters: expected a whole number, not a list."),
        ("iters = true", "iters: expected a whole number, not true."),
        ("iters = 2026-11-22", 'iters: expected a whole number, not "2026-11-22".'),
        ("budget = []", "budget: expected a string or a number, not a list."),
        ("share_gpu = 1", "share_gpu: expected true or false, not the number 1."),
        ("registered = 1", "registered: expected a list such as [false], not the number 1."),
        ("registered = [1]", "registered: expected true or false, not the number 1."),
        ('drivers = "rust"', 'drivers: expected a list such as ["native"], not the string "rust".'),
        ('staging = ["both"]', 'staging "both": choose one of pageable, pinned.'),
        ("staging = [1]", 'staging: expected "pageable" or "pinned", not the number 1.'),
        ('unusable = "maybe"', 'unusable "maybe": choose one of refuse, skip.'),
        ('thread_level = "some"', 'thread_level "some": choose one of single, funneled, serialized, multiple.'),
        ("benchmarks = 1", "benchmarks: expected a list, not the number 1."),
        ("benchmarks = [1]", "benchmarks: expected a string or a table, not the number 1."),
        ("[[benchmarks]]\nn = [[]]", "benchmarks.n: expected a string or a number or true or false, not a list."),
        ("sizes = 8", "sizes: expected a table or a list such as [8], not the number 8."),
        ("sizes = [1.5]", "sizes: expected a string or a whole number, not the number 1.5."),
        ("sizes = { min = 1.5 }", "sizes.min: expected a string or a whole number, not the number 1.5."),
        (f"iters = '{'9' * 80}'", f'iters: expected a whole number, not the string "{"9" * 39} ....'),
    ],
)  # fmt: skip
def test_values_of_another_type(tmp_path: Path, line: str, message: str) -> None:
    path = written(tmp_path, BASE + line)
    with pytest.raises(PlanError) as refused:
        load_plan(path)
    assert str(refused.value) == f"plan {path}: {message}"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('cores_per_rank = "all"', 'cores_per_rank: expected a whole number or "share", not the string "all".'),
        ('affinity = ["middle"]', 'affinity "middle": choose one of near, far.'),
        ("environments = { openmpi = 1 }", "environments.openmpi: expected a string, not the number 1."),
        ('image_backends = { openmpi = "mpi" }',
         'image_backends.openmpi: expected a list such as ["mpi"], not the string "mpi".'),
    ],
)  # fmt: skip
def test_values_of_launch_plans(tmp_path: Path, line: str, message: str) -> None:
    path = written(tmp_path, f'images = ["openmpi"]\ncollectives = ["bcast"]\n{line}')
    with pytest.raises(PlanError) as refused:
        load_launch_plan(path)
    assert str(refused.value) == f"plan {path}: {message}"


def refusal(*arguments: str) -> str:
    return str(CliRunner().invoke(cli, list(arguments)).exception)


def test_a_launch_plan_is_not_one_for_run() -> None:
    assert refusal("run", "quick").endswith("quick.toml: is a launch plan (it has images). Use: collbench launch quick")


@pytest.mark.parametrize("command", ["launch", "plan"])
def test_a_plan_for_run_is_not_one_for_launch(tmp_path: Path, command: str) -> None:
    path = written(tmp_path, BASE)
    assert refusal(command, str(path)) == (
        f"plan {path}: is a plan for one world (a launch plan has images). Use: collbench run {path}"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "lacks images; a launch plan names them"),
        ('policies = ["host"]', "lacks images; a launch plan names them"),
        ('imagse = ["openmpi"]', "unknown key 'imagse'. Did you mean images?"),
    ],
)
def test_a_launch_plan_without_images(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(PlanError) as refused:
        load_launch_plan(written(tmp_path, text))
    assert str(refused.value).startswith(f"plan {tmp_path / 'w.toml'}: {message}")
