"""Images: their builds, asked of an engine that is made up, and what their labels say."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest
from tests.unit.fake_engine import contents
from tests.unit.made_engine import EMPTY, Answers, MadeEngine, Reply, connected

from collbench.cli import cli
from collbench.errors import EngineError, ImageMissing, RequestError
from collbench.launch.engines.docker import environment, images
from collbench.launch.engines.docker.client import Docker
from collbench.launch.engines.docker.images import (
    ImageRef,
    Recipe,
    ask,
    command_of,
    find,
    inspect,
    pack,
    prepare,
    prepare_with,
)
from collbench.launch.folders import user_inside
from collbench.launch.probe import Build, Contents, sources
from collbench.launch.waiting import Stopping
from collbench.schema.manifest import Library

Golden = Callable[[str, str], None]
pytest.importorskip("docker", reason="the Docker SDK for Python is not installed")

IMAGE = ImageRef("some/image", "sha256:1")


def query(path: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(path).query).items()}


def asked(made: MadeEngine, method: str, begin: str) -> list[str]:
    return [path for how, path in made.asked if how == method and path.startswith(begin)]


# Recipes -------------------------------------------------------------------------------------------------------------


def test_the_command_of_a_build_says_it_all() -> None:
    build = ("docker", "build", "--file", "containers/mpich.Dockerfile", "--tag", "collbench/mpich")
    assert command_of(prepare("mpich", Recipe())) == (*build, "-")
    arguments = ("--build-arg", "BASE=debian:13", "--build-arg", "NO_INDEX=1", "--build-arg", "CUDA=12")
    recipe = Recipe(base="debian:13", no_cache=True, no_index=True, cuda="12")
    assert command_of(prepare("mpich", recipe)) == (*build, *arguments, "--no-cache", "-")
    layer = prepare_with("sshd", "openmpi-cuda", Recipe(no_cache=True))
    assert command_of(layer) == (
        "docker", "build", "--file", "containers/sshd.Dockerfile", "--tag", "collbench/openmpi-cuda-sshd",
        "--build-arg", "BASE=collbench/openmpi-cuda", "--no-cache", "-",
    )  # fmt: skip
    assert (list(layer.files), layer.on) == (["containers/sshd.Dockerfile"], "openmpi-cuda")
    assert prepare("openmpi-cuda", Recipe()).on is None


def test_a_second_build_of_a_recipe_is_another_image_that_knows_its_command() -> None:
    recipe = Recipe(base="debian:13", no_index=True, cuda="13", arguments=("OPENMPI_VERSION=4.1.8",))
    build = prepare("openmpi", recipe, "openmpi-4.1")
    assert (build.name, build.file) == ("openmpi-4.1", "containers/openmpi.Dockerfile")
    assert "collbench/openmpi-4.1" in command_of(build)
    again = ("openmpi", "--as", "openmpi-4.1", "--cuda", "13", "--build-arg", "OPENMPI_VERSION=4.1.8")
    assert build.command[3:] == again, "without what only one machine needs"
    assert prepare("openmpi", Recipe(), "openmpi").name == "openmpi"
    assert prepare("openmpi", Recipe(arguments=("BASE=debian:12",))).base == "debian:12"
    assert prepare_with("sshd", "mpich", Recipe()).command[3:] == ("mpich", "--with", "sshd")


def test_only_an_mpi_of_a_wheel_has_an_environment_like_it() -> None:
    assert prepare("mpich", Recipe()).origin == "wheel mpich==${MPICH_VERSION}"
    for name in ("mpich", "openmpi", "intelmpi", "tools", "torch"):
        environment.refuse_unmatched(prepare(name, Recipe()))
    with pytest.raises(RequestError):
        environment.refuse_unmatched(prepare("openmpi-cuda", Recipe()))


def test_builds_that_cannot_be_made_are_refused(tmp_path: Path, golden: Golden) -> None:
    lines: list[str] = []

    def refused(make: Callable[..., Any], *arguments: Any) -> None:
        with pytest.raises(RequestError) as caught:
            make(*arguments)
        lines.append(f"{caught.value}\n".replace(str(tmp_path), "DIR"))

    file = tmp_path / "own.Dockerfile"
    for content in (b"FROM collbench/openmpi\n", b"# ARG BASE=debian\nFROM x\n", b"ARG BASE=\xff\n", b"ARG BASE=\n"):
        file.write_bytes(content)
        refused(prepare, str(file), Recipe())
    file.write_text("ARG BASE=x\nARG CUDAX\nFROM x\n")
    assert prepare(str(file), Recipe(arguments=("CUDAX=00=",))).arguments == {"CUDAX": "00="}
    for recipe in (
        Recipe(cuda="12"), Recipe(arguments=("CUDA=0",)), Recipe(arguments=("CUDAX",)),
        Recipe(ca_bundle=tmp_path / "none"), Recipe(wheelhouse=tmp_path / "none"),
    ):  # fmt: skip
        refused(prepare, str(file), recipe)
    for recipe in (Recipe(base="debian:13"), Recipe(cuda="12"), Recipe(arguments=("A=b",))):
        refused(prepare_with, "sshd", "mpich", recipe)
    for other in ("mpich", "Mine", "a/b"):
        refused(prepare, "openmpi", Recipe(), other)
    refused(environment.refuse_unmatched, prepare("openmpi-cuda", Recipe()))
    for name in ("torch", "tools"):
        refused(prepare_with, "sshd", name, Recipe())
    golden("image-builds-refused.txt", "".join(lines))


def test_what_only_this_site_has_is_in_the_context(tmp_path: Path) -> None:
    for name in ("ca.pem", "b.whl", "a.whl", "notes.txt"):
        (tmp_path / name).touch()
    plain = prepare("mpich", Recipe()).files
    files = prepare("mpich", Recipe(ca_bundle=tmp_path / "ca.pem", wheelhouse=tmp_path)).files
    assert {name: path for name, path in files.items() if name not in plain} == {
        "containers/site/ca.crt": tmp_path / "ca.pem",
        "containers/site/wheels/a.whl": tmp_path / "a.whl", "containers/site/wheels/b.whl": tmp_path / "b.whl",
    }  # fmt: skip


def test_a_context_holds_what_installs_collbench_its_code_and_the_dockerfile() -> None:
    files = prepare("mpich", Recipe()).files
    assert {"LICENSE", "README.md", "constraints.txt", "pyproject.toml", "setup.py", "containers/mpich.Dockerfile",
            "containers/site/README.md", "src/collbench/__init__.py", "src/collbench/launch/engines/docker/images.py",
            "src/collbench/timing/_loop.c", "src/collbench/cli/demo.toml"} <= set(files)  # fmt: skip
    assert not [name for name in files if name.endswith((".so", ".pyc")) or "__pycache__" in name]
    assert all(path.is_file() for path in files.values())


def test_the_same_contents_are_the_same_context_whoever_packs_them_when(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).write_text("text")
    (tmp_path / "other").chmod(0o700)
    packed = pack({"a/file": tmp_path / "one"})
    assert packed == pack({"a/file": tmp_path / "other"}) == pack({"a/file": b"text"})
    with tarfile.open(fileobj=BytesIO(packed)) as tar:
        (member,) = tar.getmembers()
        file = tar.extractfile(member)
        assert file is not None and (member.name, file.read()) == ("a/file", b"text")
    assert (member.uid, member.gid, member.mtime, member.uname, member.gname, member.mode) == (
        0, 0, 0, "root", "root", 0o644
    )  # fmt: skip


def holding(*libraries: Library, vendor: str = "mpich", **more: Any) -> Contents:
    return msgspec.structs.replace(contents("mpich"), vendor=vendor, libraries=libraries, **({"packages": {}} | more))


MPICH = Library(name="MPICH", version="5", sha256="ab")
HELD = holding(MPICH, packages={"numpy": "2"})


@pytest.mark.parametrize(("held", "more"), [
    (HELD, {"mpi": "MPICH 5", "mpi.sha256": "ab", "package.numpy": "2"}), (holding(native=False), {"native": "no"}),
    (holding(MPICH, vendor="torch"), {}),
    (
        holding(Library(name="M", version="1"), build=Build(configure=None, cuda_built=True, cuda_claimed=None)),
        {"mpi": "M 1", "mpi.sha256": "", "mpi.configure": "", "mpi.cuda": "built yes, claimed unknown"},
    ),
    (
        holding(Library(name="NCCL", version="2"), vendor="torch",
                build=Build(configure="--x", cuda_built=False, cuda_claimed=True)),
        {"mpi.configure": "--x", "mpi.cuda": "built no, claimed yes", "nccl": "2", "nccl.sha256": ""},
    ),
    (
        holding(MPICH, Library(name="NCCL", version="2", sha256="cd"), packages={"cupy-cuda12x": "14"}, cuda="12"),
        {"mpi": "MPICH 5", "mpi.sha256": "ab", "nccl": "2", "nccl.sha256": "cd", "cupy": "14", "cuda": "12",
         "package.cupy-cuda12x": "14"},
    ),
])  # fmt: skip
def test_labels_say_what_an_image_holds(held: Contents, more: dict[str, str]) -> None:
    always = {"version": held.collbench, "python": "3.11", "native": "yes", "sources": held.sources}
    assert images.labels_of(held) == {f"collbench.{name}": value for name, value in (always | more).items()}


# Builds --------------------------------------------------------------------------------------------------------------

BUILDING: dict[str, Reply] = EMPTY | {
    "/build": (200, {"stream": "done"}), "/images/": (200, {"Id": "sha256:1", "RepoDigests": ["debian@sha256:ab"]})
}  # fmt: skip


def built(
    folder: Path, monkeypatch: pytest.MonkeyPatch, recipe: Recipe, answers: Answers = BUILDING
) -> tuple[MadeEngine, list[dict[str, str]]]:
    """What an engine was asked while an image was built, and what the two builds were asked with."""

    def contents_of(engine: Docker, draft: ImageRef, build: bool) -> Contents:
        assert build
        assert draft == ImageRef(f"collbench/mpich:unlabelled-{engine.run}", "sha256:1")
        return HELD

    monkeypatch.setattr(images, "contents_of", contents_of)
    with connected(folder, answers) as (docker, made):
        heard: list[str] = []
        assert images.build(docker, prepare("mpich", recipe), heard.append, Stopping()) == HELD
        assert heard == ["done"], "of the labels nothing is said"
    return made, [query(path) for path in asked(made, "POST", "/build")]


def test_an_image_is_built_asked_and_labelled_with_the_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, (draft, final) = built(tmp_path, monkeypatch, Recipe(no_index=True, no_cache=True))
    assert draft["t"].startswith("collbench/mpich:unlabelled-cb")
    assert (draft["dockerfile"], json.loads(draft["buildargs"])) == ("containers/mpich.Dockerfile", {"NO_INDEX": "1"})
    assert (draft["nocache"], draft["rm"], draft["forcerm"]) == ("True", "True", "True")
    assert (final["t"], final["dockerfile"], final["nocache"]) == ("collbench/mpich", "Dockerfile", "False")
    base = prepare("mpich", Recipe()).dockerfile.read_text().partition("ARG BASE=")[2].split()[0]
    assert json.loads(final["labels"]) == images.labels_of(HELD) | {
        "org.opencontainers.image.source": images.HOMEPAGE, "org.opencontainers.image.licenses": "Apache-2.0",
        "org.opencontainers.image.version": HELD.collbench,
        "collbench.base": f"{base} debian@sha256:ab", "collbench.command": "collbench image build mpich"
    }  # fmt: skip
    (removed,) = asked(made, "DELETE", "/images/")
    assert removed.startswith(f"/images/{draft['t']}?") and "noprune=True" in removed


def test_a_base_of_no_registry_is_named_by_its_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = BUILDING | {"/images/": (200, {"Id": "sha256:1"})}
    _, (_, final) = built(tmp_path, monkeypatch, Recipe(base="mine"), answers)
    assert json.loads(final["labels"])["collbench.base"] == "mine sha256:1"


def test_two_builds_of_one_image_have_two_drafts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second would take the tag from the first one's draft, which is just being asked what it holds."""
    drafts = []

    def contents_of(engine: Docker, draft: ImageRef, build: bool) -> None:
        drafts.append(draft.name)
        raise EngineError("enough")

    monkeypatch.setattr(images, "contents_of", contents_of)
    for number in (1, 2):
        (folder := tmp_path / str(number)).mkdir()
        with connected(folder, BUILDING) as (docker, made), pytest.raises(EngineError, match="enough"):
            images.build(docker, prepare("mpich", Recipe()), lambda line: None, Stopping())
        assert any(drafts[-1] in path for path in asked(made, "DELETE", "/images/"))
    assert len(set(drafts)) == 2


def test_a_layer_on_an_image_that_is_not_there_is_not_looked_for_in_a_registry(tmp_path: Path) -> None:
    answers = BUILDING | {"/images/": (404, {"message": "No such image"})}
    with connected(tmp_path, answers) as (docker, made), pytest.raises(ImageMissing, match="collbench/mpich"):
        images.build(docker, prepare_with("sshd", "mpich", Recipe()), lambda line: None, Stopping())
    assert asked(made, "POST", "/build") == []


def test_a_build_that_fails_says_its_last_lines(tmp_path: Path) -> None:
    class Api:
        """As much of the SDK's client as a build takes."""

        def build(self, **how: Any) -> Any:
            assert (how.pop("fileobj").read(), how.pop("timeout")) == (b"a tar", images.BUILD_SILENCE)
            assert how == {
                "custom_context": True, "dockerfile": "Dockerfile", "tag": "x/y", "buildargs": {"A": "b"},
                "nocache": False, "labels": {"c": "d"}, "rm": True, "forcerm": True, "decode": True,
            }  # fmt: skip
            yield {"stream": "".join(f"step {number}\n\n" for number in range(12))}
            yield {"status": "pulling"}
            yield {"error": " ENOENT\n"}

    docker, heard = Docker.__new__(Docker), list[str]()
    docker.api = Api()
    with pytest.raises(EngineError, match=r"^image x/y: .*: ENOENT ") as caught:
        images.build_context(docker, b"a tar", "Dockerfile", "x/y", {"A": "b"}, False, {"c": "d"}, heard.append)
    assert heard == [f"step {number}" for number in range(12)]
    assert str(caught.value).endswith(": " + " | ".join(heard[4:]))


# What is on an engine ------------------------------------------------------------------------------------------------


def test_images_are_listed_by_their_tags(tmp_path: Path) -> None:
    there = [
        {"Id": "sha256:0123456789abcdef", "RepoTags": ["z/late", "b/two"], "Labels": {"collbench.image": "x"}},
        {"Id": "sha256:ffffffffffffffff", "RepoTags": ["<none>:<none>", "a/one"], "Labels": None},
        {"Id": "sha256:eeeeeeeeeeeeeeee", "RepoTags": None},
    ]
    with connected(tmp_path, {"/images/json": (200, there)}) as (docker, made):
        assert images.listed(docker) == [
            {"tag": "a/one", "id": "ffffffffffff"},
            {"collbench.image": "x", "tag": "b/two", "id": "0123456789ab"},
            {"collbench.image": "x", "tag": "z/late", "id": "0123456789ab"},
        ]
        assert json.loads(query(made.asked[-1][1])["filters"]) == {"label": ["collbench.image"]}


def test_the_list_says_which_images_have_other_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels = {"new": {"collbench.sources": sources()}, "old": {"collbench.sources": "0" * 64}, "older": {}}
    there = [{"Id": f"sha256:{name}", "RepoTags": [name], "Labels": label} for name, label in labels.items()]
    with connected(tmp_path, {"/images/json": (200, there)}) as (docker, _):
        cli(["image", "list", "--docker-host", docker.host], standalone_mode=False)
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[2:]]
    assert [(row[0], row[2]) for row in rows] == [("new", "as"), ("old", "other:"), ("older", "other:")]


def test_an_image_is_known_by_its_id(tmp_path: Path) -> None:
    with connected(tmp_path, {"/images/site/there": (200, {"Id": "sha256:7", "Size": 1})}) as (docker, _):
        assert find(docker, "site/there") == ImageRef("site/there", "sha256:7")
        assert inspect(docker, "site/there") == {"Id": "sha256:7", "Size": 1}


def running(*states: str) -> Answers:
    """An engine whose container is in these states, one after the other, and stays in the last."""
    left = iter(states)

    def state() -> Reply:
        status = {"Status": next(left, states[-1]), "ExitCode": 7}
        return 200, {"Id": "1", "State": status, "Config": {"Tty": True}}

    return {"/containers/create": (201, {"Id": "1"}), "/containers/1/json": state,
            "POST": (204, None), "DELETE": (204, None)}  # fmt: skip


def test_an_image_is_asked_as_a_ranks_user_and_confined_and_its_container_removed(tmp_path: Path) -> None:
    with connected(tmp_path, running("created", "running", "exited")) as (docker, made):
        code, _ = ask(docker, IMAGE, ("cat", "file"), {"A": "b"}, ipc_mode="host")
    assert code == 7
    (body,) = (body for body in made.bodies if "Image" in body)
    assert (body["Image"], body["Cmd"], body["Labels"]) == ("sha256:1", ["cat", "file"], docker.labels)
    assert body["User"] == ":".join(map(str, user_inside()))
    assert body["Env"] == ["HOME=/tmp", "USER=collbench", "A=b"]
    host = body["HostConfig"]
    assert (host["Init"], host["PidsLimit"], host["NetworkMode"], host["IpcMode"]) == (True, 4096, "none", "host")
    assert (host["CapDrop"], host["SecurityOpt"]) == (["ALL"], ["no-new-privileges"])
    assert host["LogConfig"] == {"Type": "json-file", "Config": {"max-size": "1m", "max-file": "1"}}
    assert len(asked(made, "GET", "/containers/1/json")) >= 3
    (removed,) = asked(made, "DELETE", "/containers/1")
    assert query(removed)["force"] == query(removed)["v"] == "True"
    assert query(asked(made, "GET", "/containers/1/logs")[0])["tail"] == "200"


def test_a_command_that_does_not_end_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "ANSWER", 0)
    raises = pytest.raises(EngineError, match=r"some/image: .* sleep: .* 0 s")
    with connected(tmp_path, running("running")) as (docker, made), raises:
        ask(docker, IMAGE, ("sleep", "1000"))
    assert made.asked[-1][0] == "DELETE"
