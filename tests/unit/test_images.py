"""Images: their builds, asked of an engine that is made up, and what their labels say."""

from __future__ import annotations

import json
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest
from tests.unit.made_engine import MadeEngine, made_engine

from collbench.cli import cli
from collbench.errors import EngineError, ImageMissing, RequestError
from collbench.launch.engines.docker import images, look
from collbench.launch.engines.docker.client import Docker
from collbench.launch.engines.docker.images import Recipe, pack
from collbench.launch.engines.docker.look import ImageRef, ask, find, inspect
from collbench.launch.engines.fake import contents
from collbench.launch.folders import user_inside
from collbench.launch.probe import Build, Contents, sources
from collbench.launch.shipped import dockerfiles
from collbench.launch.waiting import Stopping
from collbench.schema.manifest import Library

pytest.importorskip("docker", reason="the Docker SDK for Python is not installed")

HELD = msgspec.structs.replace(
    contents("mpich"), libraries=(Library(name="MPICH", version="5", sha256="ab"),), packages={"numpy": "2"}
)
IMAGE = ImageRef("some/image", "sha256:1")


def query(path: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(path).query).items()}


def asked(made: MadeEngine, method: str, begin: str) -> list[str]:
    return [path for how, path in made.asked if how == method and path.startswith(begin)]


# Recipes -------------------------------------------------------------------------------------------------------------


def test_the_command_of_a_build_says_it_all() -> None:
    recipe = Recipe(base="debian:13", no_cache=True, no_index=True, cuda="12")
    assert images.command_of(images.prepare("mpich", recipe)) == (
        "docker", "build", "--file", "containers/mpich.Dockerfile", "--tag", "collbench/mpich", "--build-arg",
        "BASE=debian:13", "--build-arg", "NO_INDEX=1", "--build-arg", "CUDA=12", "--no-cache", "-",
    )  # fmt: skip
    assert images.command_of(images.prepare("mpich", Recipe())) == (
        "docker", "build", "--file", "containers/mpich.Dockerfile", "--tag", "collbench/mpich", "-"
    )  # fmt: skip


def test_a_dockerfile_without_cuda_refuses_one(tmp_path: Path) -> None:
    file = tmp_path / "own.Dockerfile"
    file.write_text("ARG BASE=x\nARG CUDAX\nFROM x\n")
    with pytest.raises(
        RequestError, match=r"--cuda 12: own\.Dockerfile has no argument CUDA\. Remove --cuda for this image"
    ):
        images.prepare(str(file), Recipe(cuda="12"))
    assert images.prepare(str(file), Recipe()).arguments == {}


@pytest.mark.parametrize(
    "content",
    [b"FROM collbench/openmpi\nRUN true\n", b"# ARG BASE=debian\nFROM x\n", b"ARG BASE=\xff\n", b"ARG BASE=\n"],
)
def test_a_dockerfile_that_names_no_base_is_refused_before_it_is_built(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "own.Dockerfile"
    file.write_bytes(content)
    with pytest.raises(RequestError, match=r"own\.Dockerfile"):
        images.prepare(str(file), Recipe())


def test_a_layer_is_put_on_the_image_that_is_there() -> None:
    made = images.prepare_with("sshd", "openmpi-cuda", Recipe(no_cache=True))
    assert images.command_of(made) == (
        "docker", "build", "--file", "containers/sshd.Dockerfile", "--tag", "collbench/openmpi-cuda-sshd",
        "--build-arg", "BASE=collbench/openmpi-cuda", "--no-cache", "-",
    )  # fmt: skip
    assert (list(made.files), made.on) == (["containers/sshd.Dockerfile"], "openmpi-cuda")
    assert images.prepare("openmpi-cuda", Recipe()).on is None


@pytest.mark.parametrize("name", ["torch", "tools"])
def test_an_image_without_an_mpi_needs_no_sshd(name: str) -> None:
    with pytest.raises(RequestError) as caught:
        images.prepare_with("sshd", name, Recipe())
    said, _, able = str(caught.value).rstrip(".").partition(": has no MPI, and sshd is for those that have one: ")
    assert said == f"image {name}"
    assert {"mpich", "openmpi", "openmpi-cuda"} <= set(able.split(", ")) <= set(dockerfiles()) - {"tools", "torch"}


@pytest.mark.parametrize("recipe", [Recipe(base="debian:13"), Recipe(cuda="12"), Recipe(arguments=("A=b",))])
def test_a_layer_does_not_build_what_it_is_put_on(recipe: Recipe) -> None:
    with pytest.raises(RequestError, match=r"is put on the image mpich as it is.*image build mpich --with sshd"):
        images.prepare_with("sshd", "mpich", recipe)


def test_a_layer_on_an_image_that_is_not_there_is_not_looked_for_in_a_registry(tmp_path: Path) -> None:
    def nothing(method: str, path: str) -> tuple[int, Any] | None:
        return (404, {"message": "No such image"}) if path.startswith("/images/") else building(method, path)

    with made_engine(tmp_path, nothing) as made:
        wanted = images.prepare_with("sshd", "mpich", Recipe())
        with pytest.raises(ImageMissing, match=r"collbench/mpich: not on .*Build it: collbench image build mpich$"):
            images.build(Docker(made.host), wanted, lambda line: None, Stopping())
        assert asked(made, "POST", "/build") == []


def test_what_only_this_site_has_is_in_the_context(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").touch()
    (tmp_path / "b.whl").touch()
    (tmp_path / "a.whl").touch()
    (tmp_path / "notes.txt").touch()
    files = images.prepare("mpich", Recipe(ca_bundle=tmp_path / "ca.pem", wheelhouse=tmp_path)).files
    site = {name: path for name, path in files.items() if name.startswith("containers/site/")}
    assert site == {
        "containers/site/README.md": images.prepare("mpich", Recipe()).files["containers/site/README.md"],
        "containers/site/ca.crt": tmp_path / "ca.pem",
        "containers/site/wheels/a.whl": tmp_path / "a.whl", "containers/site/wheels/b.whl": tmp_path / "b.whl",
    }  # fmt: skip
    for recipe, said in (
        (Recipe(ca_bundle=tmp_path / "none"), "--ca-bundle .*none: no such file"),
        (Recipe(wheelhouse=tmp_path / "none"), r"--wheelhouse .*none: no \*\.whl in it"),
    ):
        with pytest.raises(RequestError, match=said):
            images.prepare("mpich", recipe)


def test_a_context_holds_what_installs_collbench_its_code_and_the_dockerfile() -> None:
    files = images.prepare("mpich", Recipe()).files
    assert {"LICENSE", "README.md", "constraints.txt", "pyproject.toml", "setup.py"} <= set(files)
    assert {"containers/mpich.Dockerfile", "src/collbench/__init__.py", "src/collbench/launch/engines/docker/images.py",
            "src/collbench/timing/_loop.c", "src/collbench/cli/demo.toml"} <= set(files)  # fmt: skip
    assert not [name for name in files if name.endswith((".so", ".pyc")) or "__pycache__" in name]
    assert all(path.is_file() for path in files.values())


def members(context: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=BytesIO(context)) as tar:
        return {member.name: member for member in tar.getmembers()}


def test_the_same_contents_are_the_same_context_whoever_packs_them_when(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).write_text("text")
    (tmp_path / "other").chmod(0o700)
    packed = pack({"a/file": tmp_path / "one"})
    assert packed == pack({"a/file": tmp_path / "other"})
    (member,) = members(packed).values()
    assert (member.uid, member.gid, member.mtime, member.uname, member.gname, member.mode) == (
        0, 0, 0, "root", "root", 0o644
    )  # fmt: skip


def test_a_context_of_a_dockerfile_alone() -> None:
    with tarfile.open(fileobj=BytesIO(pack({"Dockerfile": b"FROM x\n"}))) as tar:
        (member,) = tar.getmembers()
        file = tar.extractfile(member)
        assert file is not None
        assert (member.name, file.read()) == ("Dockerfile", b"FROM x\n")


# Labels --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("held", "more"),
    [
        (HELD, {"collbench.mpi": "MPICH 5", "collbench.mpi.sha256": "ab", "collbench.package.numpy": "2"}),
        (msgspec.structs.replace(HELD, native=False, packages={}, libraries=()), {"collbench.native": "no"}),
        (msgspec.structs.replace(HELD, vendor="torch", packages={}), {}),
        (
            msgspec.structs.replace(HELD, packages={}, libraries=(Library(name="M", version="1"),),
                                    build=Build(configure=None, cuda_built=True, cuda_claimed=None)),
            {"collbench.mpi": "M 1", "collbench.mpi.sha256": "", "collbench.mpi.configure": "",
             "collbench.mpi.cuda": "built yes, claimed unknown"},
        ),
        (
            msgspec.structs.replace(HELD, vendor="torch", packages={}, libraries=(Library(name="NCCL", version="2"),),
                                    build=Build(configure="--x", cuda_built=False, cuda_claimed=True)),
            {"collbench.mpi.configure": "--x", "collbench.mpi.cuda": "built no, claimed yes", "collbench.nccl": "2",
             "collbench.nccl.sha256": ""},
        ),
    ],
)  # fmt: skip
def test_labels_say_what_an_image_holds(held: Contents, more: dict[str, str]) -> None:
    own = {"collbench.version": held.collbench, "collbench.python": "3.11", "collbench.native": "yes"}
    own["collbench.sources"] = held.sources
    assert images.labels_of(held) == own | more


# Builds --------------------------------------------------------------------------------------------------------------


def building(method: str, path: str) -> tuple[int, Any] | None:
    if path.startswith(("/containers/json", "/networks")):
        return 200, []
    if path.startswith("/build"):
        return 200, {"stream": "done"}
    return (200, {"Id": "sha256:1", "RepoDigests": ["debian@sha256:ab"]}) if path.startswith("/images/") else None


def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recipe: Recipe, answer: Any = building) -> MadeEngine:
    def contents_of(engine: Docker, draft: ImageRef, build: bool) -> Contents:
        assert build
        assert draft == ImageRef(f"collbench/mpich:unlabelled-{engine.run}", "sha256:1")
        return HELD

    monkeypatch.setattr(images, "contents_of", contents_of)
    with made_engine(tmp_path, answer) as made:
        heard: list[str] = []
        wanted = images.prepare("mpich", recipe)
        assert images.build(Docker(made.host), wanted, heard.append, Stopping()) == HELD
        assert heard == ["done"], "of the labels nothing is said"
    return made


def test_an_image_is_built_asked_what_it_holds_and_labelled_with_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = built(tmp_path, monkeypatch, Recipe(no_index=True, no_cache=True))
    draft, final = (query(path) for path in asked(made, "POST", "/build"))
    assert draft["t"].startswith("collbench/mpich:unlabelled-cb")
    assert (draft["dockerfile"], json.loads(draft["buildargs"])) == ("containers/mpich.Dockerfile", {"NO_INDEX": "1"})
    assert (draft["nocache"], draft["rm"], draft["forcerm"]) == ("True", "True", "True")
    assert (final["t"], final["dockerfile"], final["nocache"]) == ("collbench/mpich", "Dockerfile", "False")
    base = next(line.partition("=")[2] for line in images.prepare("mpich", Recipe()).dockerfile.read_text().splitlines()
                if line.startswith("ARG BASE="))  # fmt: skip
    assert json.loads(final["labels"]) == images.labels_of(HELD) | {"collbench.base": f"{base} debian@sha256:ab"}
    (removed,) = asked(made, "DELETE", "/images/")
    assert removed.startswith(f"/images/{draft['t']}?") and "noprune=True" in removed


def test_a_base_of_no_registry_is_named_by_its_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def local(method: str, path: str) -> tuple[int, Any] | None:
        return (200, {"Id": "sha256:1"}) if path.startswith("/images/") else building(method, path)

    made = built(tmp_path, monkeypatch, Recipe(base="mine"), local)
    _, final = (query(path) for path in asked(made, "POST", "/build"))
    assert json.loads(final["labels"])["collbench.base"] == "mine sha256:1"


def test_a_build_that_fails_says_its_last_lines(tmp_path: Path) -> None:
    lines = "".join(f"step {number}\n\n" for number in range(12))

    class Api:
        """As much of the SDK's client as a build takes."""

        def build(self, **how: Any) -> Any:
            assert (how.pop("fileobj").read(), how.pop("timeout")) == (b"a tar", images.BUILD_SILENCE)
            assert how == {
                "custom_context": True, "dockerfile": "Dockerfile", "tag": "x/y", "buildargs": {"A": "b"},
                "nocache": False, "labels": {"c": "d"}, "rm": True, "forcerm": True, "decode": True,
            }  # fmt: skip
            yield {"stream": lines}
            yield {"status": "pulling"}
            yield {"error": " no such package\n"}

    heard: list[str] = []
    with made_engine(tmp_path, building) as made:
        engine = Docker(made.host)
        engine.api = Api()
        with pytest.raises(EngineError) as caught:
            images.build_context(engine, b"a tar", "Dockerfile", "x/y", {"A": "b"}, False, {"c": "d"}, heard.append)
    last = " | ".join(f"step {number}" for number in range(4, 12))
    assert str(caught.value) == f"image x/y: the build failed: no such package Last lines: {last}"
    assert heard == [f"step {number}" for number in range(12)]


# What is on an engine ------------------------------------------------------------------------------------------------


def test_images_are_listed_by_their_tags(tmp_path: Path) -> None:
    there = [
        {"Id": "sha256:0123456789abcdef", "RepoTags": ["z/late", "b/two"], "Labels": {"collbench.image": "x"}},
        {"Id": "sha256:ffffffffffffffff", "RepoTags": ["<none>:<none>", "a/one"], "Labels": None},
        {"Id": "sha256:eeeeeeeeeeeeeeee", "RepoTags": None},
    ]
    with made_engine(tmp_path, lambda method, path: (200, there) if path.startswith("/images/json") else None) as made:
        assert images.listed(Docker(made.host)) == [
            {"tag": "a/one", "id": "ffffffffffff"},
            {"collbench.image": "x", "tag": "b/two", "id": "0123456789ab"},
            {"collbench.image": "x", "tag": "z/late", "id": "0123456789ab"},
        ]
        assert json.loads(query(made.asked[-1][1])["filters"]) == {"label": ["collbench.image"]}


def test_the_list_says_which_images_have_other_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels = {"new": {"collbench.sources": sources()}, "old": {"collbench.sources": "0" * 64}, "older": {}}
    there = [{"Id": f"sha256:{name}", "RepoTags": [name], "Labels": label} for name, label in labels.items()]
    with made_engine(tmp_path, lambda method, path: (200, there) if path.startswith("/images/json") else None) as made:
        cli(["image", "list", "--docker-host", made.host], standalone_mode=False)
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[2:]]
    assert [(row[0], row[2]) for row in rows] == [("new", "as"), ("old", "other:"), ("older", "other:")]


def test_an_image_is_known_by_its_id_or_missing(tmp_path: Path) -> None:
    def answer(method: str, path: str) -> tuple[int, Any] | None:
        if path.startswith("/images/site/there"):
            return 200, {"Id": "sha256:7", "Size": 1}
        return (404, {"message": "No such image: site/gone"}) if path.startswith("/images/") else None

    with made_engine(tmp_path, answer) as made:
        engine = Docker(made.host)
        assert find(engine, "site/there") == ImageRef("site/there", "sha256:7")
        assert inspect(engine, "site/there") == {"Id": "sha256:7", "Size": 1}
        with pytest.raises(ImageMissing) as caught:
            find(engine, "site/gone")
        assert str(caught.value) == f"image site/gone: not on this engine ({made.host}). Pull it, or build it."


def test_an_image_is_asked_as_a_ranks_user_and_confined_and_its_container_removed(tmp_path: Path) -> None:
    states = iter(("created", "running", "exited"))

    def answer(method: str, path: str) -> tuple[int, Any] | None:
        if path.startswith("/containers/create"):
            return 201, {"Id": "1"}
        if path.startswith("/containers/1/json"):
            state = {"Status": next(states, "exited"), "ExitCode": 7}
            return 200, {"Id": "1", "State": state, "Config": {"Tty": True}}
        return (204, None) if method in ("POST", "DELETE") else None

    with made_engine(tmp_path, answer) as made:
        engine = Docker(made.host)
        code, _ = ask(engine, IMAGE, ("cat", "file"), {"A": "b"}, ipc_mode="host")
        assert code == 7
        (body,) = (body for body in made.bodies if "Image" in body)
        assert (body["Image"], body["Cmd"], body["User"], body["Labels"]) == (
            "sha256:1", ["cat", "file"], ":".join(map(str, user_inside())), engine.labels
        )  # fmt: skip
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
    def answer(method: str, path: str) -> tuple[int, Any] | None:
        if path.startswith("/containers/create"):
            return 201, {"Id": "1"}
        if path.startswith("/containers/1/json"):
            return 200, {"Id": "1", "State": {"Status": "running"}}
        return (204, None) if method in ("POST", "DELETE") else None

    with made_engine(tmp_path, answer) as made:
        engine = Docker(made.host)
        monkeypatch.setattr(look, "ANSWER", 0)
        with pytest.raises(EngineError) as caught:
            ask(engine, IMAGE, ("sleep", "1000"))
        assert str(caught.value) == "image some/image: cannot run sleep: it did not end within 0 s."
        assert made.asked[-1][0] == "DELETE"
