"""Names of plans and images: what they stand for, what wins, and how an unknown one is answered."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from collbench.cli import cli
from collbench.errors import PlanError, RequestError
from collbench.launch import shipped
from collbench.launch.engines.docker import images
from collbench.launch.engines.docker.images import Recipe, pack
from collbench.launch.shipped import dockerfiles, find_dockerfile, find_layer, find_plan, plans
from collbench.schema.plan import load_launch_plan

Collbench = Callable[..., CompletedProcess[str]]

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_in_a_clone_names_are_those_of_its_folders() -> None:
    assert find_plan("quick") == ROOT / "launch" / "quick.toml"
    assert find_dockerfile("mpich") == ("mpich", ROOT / "containers" / "mpich.Dockerfile")
    assert list(plans()) == sorted(path.stem for path in (ROOT / "launch").iterdir())
    assert dockerfiles() == {
        path.name.removesuffix(".Dockerfile"): path for path in sorted((ROOT / "containers").glob("*.Dockerfile"))
    }
    assert {"mpich", "openmpi", "openmpi-cuda", "tools", "torch"} <= set(dockerfiles())
    assert find_layer("sshd") == ROOT / "containers" / "with" / "sshd.Dockerfile"
    with pytest.raises(RequestError, match=r"^--with ssh: unknown\. Did you mean sshd\? There are: sshd\.$"):
        find_layer("ssh")


def test_no_shipped_plan_measures_what_compare_refuses() -> None:
    """Of several numbers of hosts, `auto` chooses another timing gate for one host than for two."""
    several = [load_launch_plan(path) for path in plans().values() if "hosts = [" in path.read_text(encoding="utf-8")]
    assert several
    assert all(plan.gate != "auto" for plan in several)


def test_a_file_wins_over_a_name_and_a_folder_does_not(here: Path) -> None:
    (here / "ladder").mkdir()  # as results/ladder is a run
    (here / "quick").touch()
    assert find_plan("ladder") == ROOT / "launch" / "ladder.toml"
    assert find_plan("quick") == Path("quick")


@pytest.mark.parametrize("text", ["qick", "launch/quick.toml", "./quick"])
def test_an_unknown_plan_is_answered_with_the_nearest_and_the_list(text: str) -> None:
    with pytest.raises(PlanError) as refused:
        find_plan(text)
    assert str(refused.value) == (
        f"plan {text}: no such file, and no plan of this name. Did you mean quick? There are: {', '.join(plans())}."
    )


def test_an_unknown_image_is_answered_with_the_nearest_and_the_list() -> None:
    for text in ("openmp", "containers/openmp.Dockerfile"):
        with pytest.raises(RequestError) as refused:
            find_dockerfile(text)
        assert str(refused.value) == (
            f"image {text}: no such Dockerfile, and no image of this name. "
            f"Did you mean openmpi? There are: {', '.join(dockerfiles())}."
        )


def test_where_nothing_is_shipped_that_is_said(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in an image, which is given no plans."""
    monkeypatch.setattr(shipped, "PACKAGE", here / "lib" / "collbench")
    cli(["plan"], standalone_mode=False)
    assert capsys.readouterr().out == "This collbench was installed without plans, as in an image.\n"
    with pytest.raises(PlanError, match=r"plan quick: no such file, and no plan of this name\. There are: none\."):
        find_plan("quick")


def test_a_dockerfile_of_ones_own_is_named_by_its_path(here: Path) -> None:
    (here / "site.Dockerfile").touch()
    assert find_dockerfile("./site.Dockerfile") == ("site", Path("site.Dockerfile"))
    (here / "My Site.Dockerfile").touch()
    with pytest.raises(RequestError, match=r"image My Site\.Dockerfile: the image is named like the file"):
        find_dockerfile("My Site.Dockerfile")


def test_plans_are_listed_with_the_command_that_takes_them(collbench: Collbench) -> None:
    listed = collbench("plan").stdout.splitlines()
    assert " ".join(listed[0].split()) == "collbench launch choi2021 one container per worker, or one for all"
    (other,) = (line for line in listed if line.startswith("collbench run "))
    assert other.split()[2] == "choi2021-gpu-smoke"
    assert len(listed) == len(plans()) + 1
    assert listed[-1] == f"To change one, copy it from {ROOT / 'launch'}."


def test_a_dry_run_shows_what_only_this_site_has(collbench: Collbench, here: Path) -> None:
    (here / "ca.pem").touch()
    (here / "wheels").mkdir()
    (here / "wheels" / "torch-1-none-any.whl").touch()
    asked = ("--ca-bundle", "ca.pem", "--wheelhouse", "wheels", "--no-index", "--no-cache", "--cuda", "13")
    shown = collbench("image", "build", "torch", "--dry-run", *asked).stdout.splitlines()
    assert "ca.pem" in next(line for line in shown if line.startswith("containers/site/ca.crt "))
    assert "torch-1" in next(line for line in shown if line.startswith("containers/site/wheels/torch-1-none-any.whl "))
    assert shown[-1] == (
        "docker build --file containers/torch.Dockerfile --tag collbench/torch --build-arg NO_INDEX=1 "
        "--build-arg CUDA=13 --no-cache -"
    )


def test_a_link_to_certificates_is_given_as_what_it_leads_to(here: Path) -> None:
    """Where a distribution keeps one bundle, its usual paths are links to it."""
    (here / "bundle").write_text("certificates", encoding="utf-8")
    (here / "ca.pem").symlink_to(here / "bundle")
    files = images.prepare("mpich", Recipe(ca_bundle=Path("ca.pem"))).files
    with tarfile.open(fileobj=io.BytesIO(pack(files))) as tar:
        member = tar.extractfile("containers/site/ca.crt")
        assert member is not None
        assert member.read() == b"certificates"
        assert "containers/site/README.md" in tar.getnames()
