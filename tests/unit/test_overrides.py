"""Libraries and variables that a plan gives to ranks."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.fake_engine import contents
from tests.unit.made_worlds import PLAN, made
from tests.unit.refusals import refusals

from collbench.errors import PlanError
from collbench.launch.cells import Launch
from collbench.launch.engines import host
from collbench.launch.engines.docker import images
from collbench.launch.engines.docker.images import ImageRef
from collbench.launch.engines.docker.spec import layout_of
from collbench.launch.engines.host import environment_of
from collbench.launch.engines.spec import Stack
from collbench.launch.expansion import ExpandedPlan, expand, world_of
from collbench.launch.folders import folders_in
from collbench.launch.launchers import PROCESS
from collbench.launch.overrides import Overrides, library_names, overrides_of
from collbench.machine.facts import Core, Topology
from collbench.run.facts_of_ranks import loaded, notes_on_loaded
from collbench.schema.plan import Plan, Side, check_launch_plan
from collbench.schema.record import WATCHED, Loaded, loaded_note, read, stem_of
from collbench.timing import _loop

LIBRARY = Path(_loop.__file__).read_bytes()


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A library with its version, and a link to it, as it is installed."""
    (tmp_path / "build").mkdir()
    real = tmp_path / "build" / "libours.so.1.2.3"
    real.write_bytes(LIBRARY)
    (tmp_path / "build" / "libours.so").symlink_to(real)
    (tmp_path / "build" / "libtheirs.so.1").write_bytes(b"beside it")
    return real.with_name("libours.so")


def test_a_library_is_found_by_every_name_that_a_loader_asks_for(library: Path) -> None:
    assert set(library_names(str(library))) == {"libours.so", "libours.so.1", "libours.so.1.2", "libours.so.1.2.3"}
    assert stem_of(str(library.resolve())) == "libours.so"


def test_on_the_host_links_name_this_file_alone(library: Path, tmp_path: Path) -> None:
    overrides, folder = Overrides(libraries=(str(library),), before="/usr/before"), tmp_path / "lib"
    overrides.link(folder)
    links = {path.name: path.resolve() for path in folder.iterdir()}
    assert links == dict.fromkeys(library_names(str(library)), library.resolve())
    assert overrides.on_host(folder) == {"LD_LIBRARY_PATH": f"{folder}:/usr/before"}
    typed = overrides.links(folder)
    assert typed[0] == f"install -d {folder}"
    assert f"ln -s {library.resolve()} {folder}/libours.so.1" in typed


def test_a_plans_own_search_path_comes_behind(library: Path) -> None:
    variables = {"LD_LIBRARY_PATH": "/mine", "LD_PRELOAD": "/first.so"}
    overrides = Overrides(variables, (str(library),), (str(library),), "/before")
    preload = "/collbench/preload/libours.so:/first.so"
    assert overrides.inside() == {"LD_LIBRARY_PATH": "/collbench/lib:/mine", "LD_PRELOAD": preload}
    assert overrides.on_host(Path("/x"))["LD_PRELOAD"] == f"{library.resolve()}:/first.so"
    assert Overrides().on_host(Path("/x")) == Overrides().inside() == {}


def plan_with(library: Path, **more: Any) -> Plan:
    return Plan(collectives=("bcast",), images=("openmpi",), sizes=("8",), variables={"NCCL_ALGO": "Ring"},
                libraries=(str(library),), **more)  # fmt: skip


def expanded(plan: Plan) -> ExpandedPlan:
    return expand(plan, lambda engine: Topology((Core(0), Core(1))))


def test_every_container_has_the_file_mounted_and_may_not_write_to_it(library: Path, tmp_path: Path) -> None:
    plan = plan_with(library, policies=("single",), isolation=("files",), preload=(str(library),))
    ((cell, placement),) = expanded(plan).placements.items()
    stack = Stack(PROCESS, "sha256:1", overrides=overrides_of(plan, "/image/lib"))
    members = layout_of(world_of(Launch(cell, 0, 0), stack, placement, "run", folders_in(tmp_path))).members
    assert len(members) == 2
    for container in members:
        mounts = [mount for mount in container.mounts if mount.source == str(library.resolve())]
        targets = {"/collbench/lib/libours.so.1", "/collbench/preload/libours.so"}
        assert targets <= {mount.target for mount in mounts} and not any(mount.writable for mount in mounts)
        assert dict(container.environment).items() >= {
            "LD_LIBRARY_PATH": "/collbench/lib:/image/lib", "LD_PRELOAD": "/collbench/preload/libours.so",
            "NCCL_ALGO": "Ring", WATCHED: "libours.so",
        }.items()  # fmt: skip


def test_ranks_on_the_host_get_variables_and_links(library: Path, tmp_path: Path) -> None:
    prepared = made(tmp_path, "good", PLAN)
    ((cell, placement),) = prepared.expanded.placements.items()
    stack = Stack(PROCESS, str(tmp_path), overrides=Overrides({"NCCL_ALGO": "Ring"}, (str(library),)))
    (tmp_path / "launch").mkdir()
    world = world_of(Launch(cell, 0, 0), stack, placement, "run", folders_in(tmp_path / "launch"))
    variables = environment_of(world)
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
    host.look_beside(plan_with(library, environments={"openmpi": sys.prefix}), "openmpi", "openmpi")
    assert (seen["NCCL_ALGO"], seen[WATCHED], seen["PATH"]) == ("Ring", "libours.so", os.environ["PATH"])
    assert not Path(seen["LD_LIBRARY_PATH"].partition(":")[0]).exists()


def test_an_image_is_asked_with_what_its_ranks_will_have(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def ask(engine: object, image: object, argv: object, **settings: Any) -> tuple[int, str]:
        seen.update(settings)
        return 0, msgspec.json.encode(contents()).decode()

    monkeypatch.setattr(images, "ask", ask)
    engine: Any = object()
    overrides = Overrides({"NCCL_ALGO": "Ring"}, (str(library),), before="/image/lib")
    images.contents_of(engine, ImageRef("openmpi", "sha256:1"), overrides=overrides)
    assert seen["variables"] == {"NCCL_ALGO": "Ring", "LD_LIBRARY_PATH": "/collbench/lib:/image/lib"}
    mounts = {mount["Target"]: mount["ReadOnly"] for mount in seen["mounts"]}
    assert mounts == {f"/collbench/lib/{name}": True for name in library_names(str(library))}


# Which files ranks have loaded ----------------------------------------------------------------------------------------

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
    sha256 = hashlib.sha256(LIBRARY).hexdigest()
    assert found == (Loaded("libours.so", str(library.resolve()), sha256), Loaded("libnone.so"))


def test_a_file_that_was_removed_meanwhile_has_no_hash(tmp_path: Path) -> None:
    (tmp_path / "maps").write_text(MAPS.format(path="/gone/libours.so.1 (deleted)"))
    assert loaded(("libours.so",), tmp_path / "maps")[0].sha256 == "0" * 64


class World:
    """Two ranks, of which this is the first; the other one loaded something else."""

    size = 2

    def __init__(self, *other: Loaded) -> None:
        self.other = other

    def gather(self, value: object) -> list[object]:
        """Both."""
        return [value, self.other]


def test_notes_name_the_ranks_that_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WATCHED, "libnone.so")
    other = Loaded("libnone.so", "/x/libnone.so.1", "1" * 64)
    notes = notes_on_loaded(World(other))  # type: ignore[arg-type]
    assert [note.rpartition(" ")[2] for note in notes] == ["0", "1"]
    assert [read(note) for note in notes] == [Loaded("libnone.so"), other]
    monkeypatch.delenv(WATCHED)
    assert notes_on_loaded(World()) == ()  # type: ignore[arg-type]


def test_a_note_says_what_it_is_read_as() -> None:
    file = Loaded("libmpi.so", "/a (b)/libmpi.so.40", "a" * 64)
    assert read(loaded_note(file)) == file
    assert read("loaded with care") is None


# What is refused before anything is measured --------------------------------------------------------------------------

WITH_LIBRARY = Plan(collectives=("bcast",), images=("openmpi",), policies=("host",))


def altered(place: int, value: int) -> bytes:
    """The library with another byte in its header."""
    return LIBRARY[:place] + bytes([value]) + LIBRARY[place + 1 :]


#: Not ELF, no library, of another machine, and of another word size.
NO_LIBRARIES = (b"hello", b"", LIBRARY[:10], altered(16, 1), altered(18, LIBRARY[18] ^ 1), altered(4, 3 - LIBRARY[4]))

#: What no plan may give, and what not to a cluster, whose site file has it.
NO_OVERRIDES: list[dict[str, Any]] = [
    {"variables": {"A B": "1"}}, {"variables": {"A": "\0"}}, {"libraries": ("libours.so",)},
    {"preload": ("/a:b/libours.so",)}, {"preload": ("/etc/passwd",)},
]  # fmt: skip
NOT_ON_CLUSTERS: list[dict[str, Any]] = [
    {"variables": {"A": "1"}}, {"libraries": ("/x/liba.so",)}, {"preload": ("/x/liba.so",)}
]  # fmt: skip


def test_what_is_refused(tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    (tmp_path / "site.toml").write_text("[slurm]\n")
    on_slurm = msgspec.structs.replace(WITH_LIBRARY, engine="slurm", site=str(tmp_path / "site.toml"))

    def plan_giving(key: str, content: bytes) -> object:
        (tmp_path / "libx.so.1").write_bytes(content)
        side = msgspec.convert({key: [f"{tmp_path}/libx.so.1"]}, Side)
        return expanded(msgspec.structs.replace(WITH_LIBRARY, sides={"other": side}))

    attempts: list[Callable[[], object]] = [
        *(partial(check_launch_plan, msgspec.structs.replace(WITH_LIBRARY, **keys)) for keys in NO_OVERRIDES),
        *(partial(expanded, msgspec.structs.replace(on_slurm, **keys)) for keys in NOT_ON_CLUSTERS),
        partial(expanded, plan_with(tmp_path / "libnone.so")),
        *(partial(plan_giving, "libraries", content) for content in NO_LIBRARIES),
        partial(plan_giving, "preload", b"hello"),
    ]
    golden("overrides-refused.txt", refusals(attempts, tmp_path))


ORIGIN, ALWAYS = "a library finds it beside itself", "nobody finds it"


@pytest.mark.parametrize(
    ("missing", "given", "policy", "refused"),
    [
        ({"libdep.so.3": ALWAYS, "libgone.so": ALWAYS}, {"libraries": "libx.so.1"}, "host", "libdep.so.3, libgone.so"),
        ({"libdep.so.3": ALWAYS}, {"preload": "libx.so.1"}, "host", "libdep.so.3"),
        ({"libdep.so.3": ALWAYS}, {"preload": "libx.so.1"}, "single", ""),  # its container may have them
        ({"libdep.so.3": ALWAYS}, {"preload": "libx.so.1", "libraries": "libdep.so.3.1"}, "host", ""),
        ({"libdep.so.3": ORIGIN}, {"libraries": "libx.so.1"}, "host", "libdep.so.3"),
        ({"libdep.so.3": ORIGIN}, {"preload": "libx.so.1"}, "host", ""),
        ({"libdep.so.3: version `V_2'": ALWAYS}, {"preload": "libx.so.1"}, "host", "libdep.so.3: version `V_2'"),
    ],
)
def test_a_library_that_needs_what_is_not_found_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: dict[str, str], given: dict[str, str], policy: str,
    refused: str,
) -> None:  # fmt: skip
    for name in given.values():
        (tmp_path / name).write_bytes(LIBRARY)

    def ldd(argv: tuple[str, Path], **_: Any) -> subprocess.CompletedProcess[str]:
        lost = [name for name, when in missing.items() if when == ALWAYS or argv[1].parent != tmp_path]
        lines = "".join(f"\t{name} => not found\n" for name in lost if " " not in name)
        versions = "".join(f"/x/libx.so.1: /lib/{name} not found (required by x)\n" for name in lost if " " in name)
        return subprocess.CompletedProcess((), 0, f"{lines}\tlibc.so.6 => /lib/libc.so.6 (0x7f)\n", versions)

    monkeypatch.setattr("subprocess.run", ldd)
    side = msgspec.convert({key: [f"{tmp_path}/{name}"] for key, name in given.items()}, Side)
    plan = msgspec.structs.replace(WITH_LIBRARY, policies=(policy,), sides={"other": side})
    if not refused:
        assert expanded(plan).cells
        return
    with pytest.raises(PlanError, match=rf"other: .*: {tmp_path}/libx.so.1 .*{refused},") as error:
        expanded(plan)
    assert ("$ORIGIN" in str(error.value)) is (ORIGIN in missing.values())


def test_without_ldd_nothing_is_refused(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert expanded(plan_with(library)).cells
