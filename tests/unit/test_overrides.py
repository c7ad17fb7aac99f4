"""Libraries and variables that a plan gives to ranks."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.made_worlds import PLAN, made

from collbench.cli.sides import side_of
from collbench.errors import PlanError, RequestError
from collbench.launch.cells import Launch
from collbench.launch.engines import host
from collbench.launch.engines.docker import look
from collbench.launch.engines.docker.look import ImageRef
from collbench.launch.engines.docker.spec import layout_of
from collbench.launch.engines.fake import contents
from collbench.launch.engines.host import environment_of
from collbench.launch.engines.spec import Stack
from collbench.launch.expansion import expand
from collbench.launch.folders import folders_in
from collbench.launch.launchers import PROCESS
from collbench.launch.live_world import world_of
from collbench.launch.overrides import Overrides, names_of, overrides_of
from collbench.machine.topology import Core, Topology
from collbench.run.facts_of_ranks import loaded, notes_on_loaded
from collbench.schema.plan import Plan, check_launch_plan
from collbench.schema.record import WATCHED, Loaded, read, said, stem_of
from collbench.timing import _loop


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A library with its version, and a link to it, as it is installed."""
    (tmp_path / "build").mkdir()
    real = tmp_path / "build" / "libours.so.1.2.3"
    real.write_bytes(b"not ELF")
    (tmp_path / "build" / "libours.so").symlink_to(real)
    (tmp_path / "build" / "libtheirs.so.1").write_bytes(b"beside it")
    return real.with_name("libours.so")


def test_a_library_is_found_by_every_name_that_a_loader_asks_for(library: Path) -> None:
    assert set(names_of(str(library))) == {"libours.so", "libours.so.1", "libours.so.1.2", "libours.so.1.2.3"}
    assert stem_of(str(library.resolve())) == "libours.so"


def test_on_the_host_links_name_this_file_alone(library: Path, tmp_path: Path) -> None:
    given, folder = Overrides(libraries=(str(library),), before="/usr/before"), tmp_path / "lib"
    given.link(folder)
    assert {path.name for path in folder.iterdir()} == set(names_of(str(library)))
    assert {path.resolve() for path in folder.iterdir()} == {library.resolve()}
    assert given.on_host(folder) == {"LD_LIBRARY_PATH": f"{folder}:/usr/before"}
    typed = given.links(folder)
    assert typed[0] == f"install -d {folder}"
    assert f"ln -s {library.resolve()} {folder}/libours.so.1" in typed


def test_a_plans_own_search_path_comes_behind(library: Path) -> None:
    given = Overrides(
        {"LD_LIBRARY_PATH": "/mine", "LD_PRELOAD": "/first.so"}, (str(library),), (str(library),), "/before"
    )
    assert given.inside() == {
        "LD_LIBRARY_PATH": "/collbench/lib:/mine", "LD_PRELOAD": "/collbench/preload/libours.so:/first.so"
    }  # fmt: skip
    assert given.on_host(Path("/x"))["LD_PRELOAD"] == f"{library.resolve()}:/first.so"
    assert Overrides().on_host(Path("/x")) == Overrides().inside() == {}


def plan_in_containers(library: Path) -> Plan:
    return Plan(
        collectives=("bcast",), images=("openmpi",), policies=("single",), isolation=("files",), sizes=("8",),
        variables={"NCCL_ALGO": "Ring"}, libraries=(str(library),), preload=(str(library),),
    )  # fmt: skip


def test_every_container_has_the_file_mounted_and_may_not_write_to_it(library: Path, tmp_path: Path) -> None:
    plan = plan_in_containers(library)
    expanded = expand(plan, lambda engine: Topology(tuple(Core(number) for number in range(4))))
    (cell,) = expanded.cells
    stack = Stack(PROCESS, "sha256:1", overrides=overrides_of(plan, "/image/lib"))
    world = world_of(Launch(cell, 0, 0), stack, expanded.placements[cell], "run", folders_in(tmp_path))
    members = layout_of(world).members
    assert len(members) == 2
    for spec in members:
        mounted = {mount.target: mount for mount in spec.mounts if mount.source == str(library.resolve())}
        assert {"/collbench/lib/libours.so.1", "/collbench/preload/libours.so"} <= set(mounted)
        assert not any(mount.writable for mount in mounted.values())
        variables = dict(spec.environment)
        assert variables["LD_LIBRARY_PATH"] == "/collbench/lib:/image/lib"
        assert variables["LD_PRELOAD"] == "/collbench/preload/libours.so"
        assert (variables["NCCL_ALGO"], variables[WATCHED]) == ("Ring", "libours.so")


def test_ranks_on_the_host_get_variables_and_links(library: Path, tmp_path: Path) -> None:
    plan = PLAN.of_world()
    given = Overrides({"NCCL_ALGO": "Ring"}, (str(library),))
    prepared = made(tmp_path, "good", PLAN)
    (cell,) = prepared.expanded.cells
    stack = Stack(PROCESS, str(tmp_path), overrides=given)
    (tmp_path / "launch").mkdir()
    at = folders_in(tmp_path / "launch")
    world = world_of(Launch(cell, 0, 0), stack, prepared.expanded.placements[cell], "run", at)
    variables = environment_of(world)
    assert plan.collectives == ("bcast",)
    assert variables["NCCL_ALGO"] == "Ring"
    with prepared.sessions["host"].open(world):
        assert Path(variables["LD_LIBRARY_PATH"].partition(":")[0], "libours.so.1").resolve() == library.resolve()


def test_an_environment_is_asked_with_what_its_ranks_will_have(
    library: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: dict[str, str] = {}

    def run(argv: object, **settings: Any) -> subprocess.CompletedProcess[bytes]:
        seen.update(settings["env"])
        link = Path(seen["LD_LIBRARY_PATH"].partition(":")[0], "libours.so.1")
        assert link.resolve() == library.resolve()
        return subprocess.CompletedProcess((), 0, msgspec.json.encode(contents()), b"")

    monkeypatch.setattr("subprocess.run", run)
    plan = Plan(collectives=("bcast",), images=("openmpi",), environments={"openmpi": sys.prefix},
                      variables={"NCCL_ALGO": "Ring"}, libraries=(str(library),))  # fmt: skip
    host.look_beside(plan, "openmpi", "openmpi")
    assert (seen["NCCL_ALGO"], seen[WATCHED], seen["PATH"]) == ("Ring", "libours.so", os.environ["PATH"])
    assert not Path(seen["LD_LIBRARY_PATH"].partition(":")[0]).exists()


def test_an_image_is_asked_with_what_its_ranks_will_have(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def ask(engine: object, image: object, argv: object, **settings: Any) -> tuple[int, str]:
        seen.update(settings)
        return 0, msgspec.json.encode(contents()).decode()

    monkeypatch.setattr(look, "ask", ask)
    engine: Any = object()
    given = Overrides({"NCCL_ALGO": "Ring"}, (str(library),), before="/image/lib")
    look.contents_of(engine, ImageRef("openmpi", "sha256:1"), overrides=given)
    assert seen["variables"] == {"NCCL_ALGO": "Ring", "LD_LIBRARY_PATH": "/collbench/lib:/image/lib"}
    assert {mount["Target"] for mount in seen["mounts"]} == {
        f"/collbench/lib/{name}" for name in names_of(str(library))
    }
    assert all(mount["ReadOnly"] for mount in seen["mounts"])


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"variables": {"A B": "1"}}, "'A B'"),
        ({"variables": {"A": "\0"}}, "no NUL"),
        ({"libraries": ("libours.so",)}, "whole path"),
        ({"preload": ("/a:b/libours.so",)}, "whole path"),
        ({"preload": ("/etc/passwd",)}, "whole path"),
    ],
)
def test_what_cannot_be_given_is_refused(keys: dict[str, object], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        check_launch_plan(Plan(collectives=("bcast",), images=("openmpi",), **keys))


def test_a_library_that_is_not_there_is_refused_before_anything_starts(tmp_path: Path) -> None:
    plan = plan_in_containers(tmp_path / "libnone.so")
    with pytest.raises(PlanError, match="libnone"):
        expand(plan, lambda engine: Topology((Core(0), Core(1))))


@pytest.mark.parametrize("key", ["variables", "libraries", "preload"])
def test_clusters_refuse_what_their_site_files_have(key: str, tmp_path: Path) -> None:
    site = tmp_path / "site.toml"
    site.write_text("[slurm]\n")
    value = {"A": "1"} if key == "variables" else ("/x/liba.so",)
    plan = Plan(collectives=("bcast",), images=("openmpi",), policies=("host",), engine="slurm", site=str(site),
                      **{key: value})  # fmt: skip
    with pytest.raises(PlanError, match=f"{key}: engine slurm starts the ranks itself"):
        expand(plan, lambda engine: Topology((Core(0), Core(1))))


MAPS = """\
7f00-7f01 r-xp 00000000 08:01 1 {path}
7f01-7f02 r--p 00000000 08:01 1 {path}
7f02-7f03 rw-p 00000000 00:00 0 [heap]
7f03-7f04 r-xp 00000000 08:01 2 /usr/lib/libourselves.so.1
7f04-7f05 rw-p 00000000 00:00 0
"""


def test_a_process_tells_which_files_it_has_mapped(library: Path, tmp_path: Path) -> None:
    (tmp_path / "maps").write_text(MAPS.format(path=library.resolve()))
    found = loaded(("libours.so", "libnone.so"), tmp_path / "maps")
    sha256 = hashlib.sha256(b"not ELF").hexdigest()
    assert found == (Loaded("libours.so", str(library.resolve()), sha256), Loaded("libnone.so"))


def test_a_file_that_was_removed_meanwhile_has_no_hash(tmp_path: Path) -> None:
    (tmp_path / "maps").write_text(MAPS.format(path="/gone/libours.so.1 (deleted)"))
    assert loaded(("libours.so",), tmp_path / "maps")[0].sha256 == "0" * 64


class World:
    """Two ranks, of which this is the first; the other one loaded something else."""

    size = 2

    def __init__(self, other: tuple[Loaded, ...]) -> None:
        self.other = other

    def gather(self, value: object) -> list[object]:
        """Both."""
        return [value, self.other]


def test_notes_name_the_ranks_that_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WATCHED, "libnone.so")
    other = Loaded("libnone.so", "/x/libnone.so.1", "1" * 64)
    notes = notes_on_loaded(World((other,)))  # type: ignore[arg-type]
    assert notes == (
        "loaded libnone.so: no file on ranks 0",
        f"loaded libnone.so: /x/libnone.so.1 (sha256 {'1' * 64}) on ranks 1",
    )
    assert [read(note) for note in notes] == [Loaded("libnone.so"), other]
    monkeypatch.delenv(WATCHED)
    assert notes_on_loaded(World(())) == ()  # type: ignore[arg-type]
    assert os.environ.get(WATCHED) is None


def test_a_note_says_what_it_is_read_as() -> None:
    one = Loaded("libmpi.so", "/a (b)/libmpi.so.40", "a" * 64)
    assert read(said(one)) == one
    assert read("loaded with care") is None


# A file that no rank could load as a library is refused before anything is measured, with what it is ------------------

LIBRARY = Path(_loop.__file__).read_bytes()
WITH_LIBRARY = Plan(collectives=("bcast",), images=("openmpi",), policies=("host",))


def altered(place: int, value: int) -> bytes:
    """The library with another byte in its header."""
    return LIBRARY[:place] + bytes([value]) + LIBRARY[place + 1 :]


@pytest.mark.parametrize(
    ("content", "what"),
    [(b"hello", "not an ELF file"), (b"", "not an ELF file"), (LIBRARY[:10], "not an ELF file"),
     (altered(16, 1), "an ELF file, but no shared library"), (altered(18, LIBRARY[18] ^ 1), "for another processor"),
     (altered(4, 3 - LIBRARY[4]), "for another processor")],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["lib", "preload"])
def test_what_is_no_library_is_refused_by_what_it_is(tmp_path: Path, kind: str, content: bytes, what: str) -> None:
    path = tmp_path / "libx.so.1"
    path.write_bytes(content)
    with pytest.raises(RequestError, match=f"--other: {path}: is .*{what}"):
        side_of("--other", [f"{kind}={path}"], WITH_LIBRARY)


def needing(path: Path, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """The library, of which ldd says that it misses these."""
    path.write_bytes(LIBRARY)
    lines = "".join(f"\t{name} => not found\n" for name in names) + "\tlibc.so.6 => /lib/libc.so.6 (0x7f)\n"

    def ldd(*_: object, **__: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess((), 0, lines, "")

    monkeypatch.setattr("subprocess.run", ldd)


def test_a_library_that_needs_what_is_not_found_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "libx.so.1"
    needing(path, monkeypatch, "libdep.so.3", "libgone.so")
    with pytest.raises(
        RequestError, match=r"libx.so.1: needs libdep.so.3, libgone.so, which is not found on this host"
    ):
        side_of("--other", [f"preload={path}"], WITH_LIBRARY)
    inside = msgspec.structs.replace(WITH_LIBRARY, policies=("single",))
    assert str(path) in side_of("--other", [f"preload={path}"], inside).preload  # its container may have them


def test_a_library_may_need_another_that_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, beside = tmp_path / "libx.so.1", tmp_path / "libdep.so.3.1"
    needing(path, monkeypatch, "libdep.so.3")
    beside.write_bytes(LIBRARY)
    assert len(side_of("--other", [f"lib={path}", f"lib={beside}"], WITH_LIBRARY).libraries) == 2


def test_without_ldd_nothing_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "libx.so.1"
    path.write_bytes(LIBRARY)
    monkeypatch.setenv("PATH", "")
    assert str(path) in side_of("--other", [f"lib={path}"], WITH_LIBRARY).libraries
