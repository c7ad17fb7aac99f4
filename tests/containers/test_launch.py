"""Launches on a real engine: isolation steps, images, files, names, networks, some of the cases."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import docker.errors
import pytest

from collbench.errors import ImageMissing
from collbench.launch.cells import LaunchCell
from collbench.launch.engines.docker import images
from collbench.launch.engines.docker.client import Docker
from collbench.launch.engines.docker.images import ask, find
from collbench.launch.engines.docker.spec import NETWORK_OPTIONS
from collbench.launch.engines.host import probe
from collbench.launch.expansion import expand
from collbench.launch.folders import user_inside
from collbench.launch.placement import Placement
from collbench.schema.plan import load_launch_plan
from collbench.schema.record import Record
from tests.containers.conftest import ROOT, Launch, Started, ended, skip_or_fail
from tests.containers.worlds import LADDER, LONG, disturbed, kill_container, ranks_of
from tests.processes import LIMIT, wait_for
from tests.runs import Run, read_run
from tests.unit import test_docs_examples as docs_shell


def by_step(run: Run) -> dict[tuple[str, str | None], list[Record]]:
    found: dict[tuple[str, str | None], list[Record]] = {}
    for record in run.records:
        found.setdefault((record.case.where.policy, record.case.where.isolation), []).append(record)
    return found


def need(started: Started, image: str) -> None:
    """Skip (or fail, where containers must be tested) without an image that `make images` does not always build."""
    try:
        images.inspect(started.engine, f"collbench/{image}")
    except ImageMissing as error:
        skip_or_fail(f"{error} (make images IMAGES='openmpi mpich intelmpi openmpi-cuda' BUILDS=yes WHEELHOUSE=DIR)")


@pytest.mark.docker
@pytest.mark.parametrize("image", ["openmpi", "mpich", "openmpi-4.1", "intelmpi"])
def test_every_step_measures_and_shares_what_it_says(
    clean: Started, launch: Launch, tmp_path: Path, image: str
) -> None:
    need(clean, image)
    code, out, err = ended(launch(LADDER.format(image=image, policies='"multi", "single"')))
    assert code == 0, (out, err)
    found = by_step(read_run(tmp_path / "run"))
    assert len(found) == 3 + 5
    for (policy, step), records in found.items():
        assert [record.status for record in records] == ["ok", "ok"]
        for record in records:
            assert record.ranks is not None and record.check is not None
            assert record.check.wrong == 0
            assert record.ranks.binding == ("0", "1")
            assert record.ranks.container == (("c0", "c0") if policy == "multi" else ("c0", "c1"))
            assert record.transport is not None
            _assert_confined(record, policy, step)
    assert "multi strict" in out and "single ipc" in out


def _assert_confined(record: Record, policy: str, step: str | None) -> None:
    """Seen from inside."""
    assert step is not None
    steps = ("strict", "limits", "ipc", "net", "visible")
    height = steps.index(step)
    spaces = [one.namespaces for one in record.confinement]
    shared = {name for name in spaces[0] if len({space[name] for space in spaces}) == 1}
    if policy == "single":
        expected = {"ipc": height >= 2, "pid": height >= 2, "net": height >= 3, "mnt": False}
        assert {name: name in shared for name in expected} == expected
    for one in record.confinement:
        assert one.shm == (64 << 20 if height == 0 else 1 << 30)
        assert ("SYS_PTRACE" in one.capabilities) == (height >= 2)
        assert set(one.capabilities) <= {"SYS_NICE", "SYS_PTRACE"}
        assert one.seccomp and one.no_new_privileges


@pytest.mark.docker
def test_host_and_container_in_one_run(clean: Started, launch: Launch, tmp_path: Path) -> None:
    if (held := probe(Path(sys.prefix)).vendor) != "openmpi":
        pytest.skip(f"the host side is the environment of these tests, which holds {held or 'no MPI'}, not Open MPI")
    plan = f'environments = {{ openmpi = "{sys.prefix}" }}\n' + LADDER.format(
        image="openmpi", policies='"host", "multi"'
    ).replace('"limits", "ipc", "net", "visible"', "")
    code, out, err = ended(launch(plan))
    assert code == 0, (out, err)
    run = read_run(tmp_path / "run")
    assert set(by_step(run)) == {("host", None), ("multi", "strict")}
    experiment = run.manifest.experiment
    assert experiment is not None
    sides = [experiment.images[0].libraries[0], experiment.environments[0].libraries[0]]
    assert all(side.sha256 for side in sides)
    assert experiment.images[0].id is not None


@pytest.mark.docker
def test_torch_beside_mpi_in_one_run(clean: Started, launch: Launch, tmp_path: Path) -> None:
    need(clean, "torch")
    if importlib.util.find_spec("torch") is None:
        pytest.skip("the host side is the environment of these tests, which has no torch")
    plan = LADDER.format(image='mpich", "torch', policies='"host", "multi", "single"').replace(
        '"limits", "ipc", "net", "visible"', '"net"'
    )
    more = (
        f'image_backends = {{ torch = ["torch-gloo"] }}\nenvironments = {{ torch = "{sys.prefix}", mpich = "MPICH" }}\n'
    )
    mpich = Path(os.environ.get("COLLBENCH_OTHER_MPIRUN", "/nowhere/bin/mpirun")).parents[1]
    if not (mpich / "bin" / "python").exists():
        plan = plan.replace('"mpich", ', "")
        more = more.replace(', mpich = "MPICH"', "")
    code, out, err = ended(launch(more.replace("MPICH", str(mpich)) + plan))
    assert code == 0, (out, err)
    records = [record for record in read_run(tmp_path / "run").records if record.case.where.image == "torch"]
    places = {("host", None), ("multi", "strict"), ("multi", "ipc"), ("single", "strict"), ("single", "net")}
    assert {(record.case.where.policy, record.case.where.isolation) for record in records} == places
    assert {(record.case["backend"], record.transport) for record in records} == {("torch-gloo", "tcp")}


@pytest.mark.docker
def test_open_mpi_built_with_cuda_runs_without_a_gpu(clean: Started, launch: Launch, tmp_path: Path) -> None:
    need(clean, "openmpi-cuda")
    labels = images.inspect(clean.engine, "collbench/openmpi-cuda")["Config"]["Labels"]
    assert labels["collbench.mpi"].startswith("Open MPI 5")
    assert "--with-cuda=" in labels["collbench.mpi.configure"]
    assert labels["collbench.mpi.cuda"].startswith("built yes, ")
    plan = LADDER.format(image="openmpi-cuda", policies='"multi", "single"').replace(
        '"limits", "ipc", "net", "visible"', '"net"'
    )
    code, out, err = ended(launch(plan))
    assert code == 0, (out, err)
    assert len(read_run(tmp_path / "run").records) == 8


@pytest.mark.docker
@pytest.mark.parametrize("image", ["openmpi", "mpich", "intelmpi", "openmpi-cuda", "torch"])
def test_no_image_holds_a_compiler_or_an_sshd_or_runs_as_root(clean: Started, image: str) -> None:
    need(clean, image)
    script = "id -u collbench; for p in cc gcc c99 clang make sshd ssh sudo; do command -v $p; done; true"
    code, said = images.ask(clean.engine, images.find(clean.engine, f"collbench/{image}"), ("sh", "-c", script))
    assert (code, said.split()) == (0, ["1000"])
    assert images.inspect(clean.engine, f"collbench/{image}")["Config"]["User"] == "collbench"


@pytest.mark.docker
def test_a_parameter_server_has_a_container_of_its_own(clean: Started, launch: Launch, tmp_path: Path) -> None:
    plan = LADDER.format(image="mpich", policies='"multi", "single", "packed:2"').replace(
        "allreduce", 'ps_gather", "bcast'
    )
    plan = plan.replace('"limits", "ipc", "net", "visible"', "") + "workers = [2]\noversubscribe = true\n"
    code, out, err = ended(launch(plan))
    assert code == 0, (out, err)
    found = {(one.case.workload, one.case.where.policy): one.ranks for one in read_run(tmp_path / "run").records}
    assert {place: ranks.container for place, ranks in found.items() if ranks is not None} == {
        ("ps_gather", "multi"): ("c0", "c0", "c0"),
        ("ps_gather", "single"): ("c0", "c1", "c2"),
        ("ps_gather", "packed:2"): ("c0", "c1", "c1"),
        ("bcast", "multi"): ("c0", "c0"),
        ("bcast", "single"): ("c0", "c1"),
        ("bcast", "packed:2"): ("c0", "c0"),
    }


@pytest.mark.docker
@pytest.mark.parametrize("image", ["openmpi", "mpich", "openmpi-4.1", "intelmpi"])
@pytest.mark.parametrize("step", ["net", "files"])
def test_no_rank_shares_memory_with_one_of_another_container_by_accident(
    clean: Started, launch: Launch, tmp_path: Path, image: str, step: str
) -> None:
    """Every container has the segments of its own two ranks alone, though all have one hostname and one /dev/shm."""
    plan = LONG.format(image=image, step=step, launches=1).replace('"single"', '"packed:2"').replace("10s", "5s")
    plan = plan.replace('"16", "32", "64", "128", "256"', '"128K"')
    need(clean, image)
    process = launch(plan + "ranks = [4]\noversubscribe = true\n")
    segments = wait_for(lambda: mapped_segments(clean)) if image.startswith("openmpi") else []
    code, out, err = ended(process)
    assert code == 0, (out, err)
    records = read_run(tmp_path / "run").records
    assert [(one.status, one.check.wrong if one.check else None) for one in records] == [("ok", 0)] * 2
    if image.startswith("openmpi"):
        assert [len(one) for one in segments] == [2, 2]
        assert not segments[0] & segments[1]


def mapped_segments(started: Started) -> list[set[tuple[str, ...]]]:
    """By container, (device, number) of the segments of Open MPI that its ranks have mapped, once both have two."""
    found: list[set[tuple[str, ...]]] = []
    api = started.engine.api
    for container in sorted(started.containers(), key=lambda one: str(one["Names"])):
        if container["Names"][0].endswith(("c0", "c1")):
            segments: set[tuple[str, ...]] = set()
            with contextlib.suppress(OSError, docker.errors.APIError):  # what ends meanwhile
                for row in api.top(container["Id"], ps_args="-eo pid,args")["Processes"]:
                    maps = Path(f"/proc/{row[0]}/maps").read_text(encoding="utf-8", errors="replace")
                    segments |= {
                        tuple(line.split()[3:5]) for line in maps.splitlines() if re.search("(sm|vader)_segment", line)
                    }
            found.append(segments)
    return found if len(found) == 2 and all(len(one) >= 2 for one in found) else []


@pytest.mark.docker
def test_numa_has_a_container_for_each_memory_node_and_says_where_that_is_one(
    clean: Started, launch: Launch, tmp_path: Path
) -> None:
    plan = LADDER.format(image="openmpi", policies='"numa"').replace('"limits", "ipc", "net", "visible"', "")
    (planned,) = place_all(plan, tmp_path).values()
    code, out, err = ended(launch(plan))
    assert code == 0, (out, err)
    records = read_run(tmp_path / "run").records
    assert [(one.case.where.policy, one.status) for one in records] == [("numa", "ok")] * len(records)
    wanted = tuple(box.name for box in planned.boxes for _ in box.ranks)
    assert {one.ranks.container for one in records if one.ranks is not None} == {wanted}
    assert all((planned.note in one.notes) == bool(planned.note) for one in records)
    assert planned.note in err


def place_all(plan: str, folder: Path) -> dict[LaunchCell, Placement]:
    path = folder / "planned.toml"
    path.write_text(plan, encoding="utf-8")
    return expand(load_launch_plan(path)).placements


@pytest.mark.docker
@pytest.mark.parametrize("page", [page for page in docs_shell.PAGES if docs_shell.with_an_engine(page)])
def test_lines_of_the_pages_that_need_an_engine_run_as_they_stand(started: Started, page: str, tmp_path: Path) -> None:
    if not (ROOT / ".venvs/mpich").exists():
        pytest.skip("there is no .venvs/mpich, which the page makes")
    assert docs_shell.run(docs_shell.with_an_engine(page), tmp_path) == []


# The step `files` on a real engine ------------------------------------------------------------------------------------

PLAN = LADDER.replace('"strict", "limits", "ipc", "net", "visible"', '"files"')

#: Namespaces that are the host's, and that are not.
SHARED, OWN = ("ipc", "net", "pid", "uts"), ("mnt",)

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - looked at


def in_shared_memory() -> set[str]:
    """Files there of the user that ranks have."""
    found = set()
    for path in SHARED_MEMORY.iterdir():
        with contextlib.suppress(FileNotFoundError):  # removed meanwhile
            if path.stat().st_uid == user_inside()[0]:
                found.add(path.name)
    return found


@pytest.fixture
def nothing_in_shared_memory() -> Iterator[None]:
    """Of this test's ranks."""
    before = in_shared_memory()
    yield
    assert in_shared_memory() <= before


def host(space: str) -> int:
    return Path(f"/proc/self/ns/{space}").stat().st_ino


@pytest.mark.docker
@pytest.mark.parametrize("image", ["openmpi", "mpich"])
def test_ranks_are_in_the_namespaces_of_the_host(
    clean: Started, nothing_in_shared_memory: None, launch: Launch, tmp_path: Path, image: str
) -> None:
    code, out, err = ended(launch(PLAN.format(image=image, policies='"multi", "single"')))
    assert code == 0, (out, err)
    found = by_step(read_run(tmp_path / "run"))
    assert set(found) == {("multi", "files"), ("single", "files")}
    for (policy, _), records in found.items():
        assert [record.status for record in records] == ["ok", "ok"]
        for record in records:
            assert record.check is not None and record.check.wrong == 0
            assert record.ranks is not None
            assert record.ranks.binding == ("0", "1")
            assert record.ranks.container == (("c0", "c0") if policy == "multi" else ("c0", "c1"))
            assert_of_host(record, policy)
            told = [note for note in record.notes if "hang otherwise" in note]
            assert len(told) == (2 if (image, policy) == ("openmpi", "single") else 0), record.notes
    transports = {policy: record.transport or "" for (policy, _), (record, *_) in found.items()}
    between = {"openmpi": "ob1: tcp", "mpich": "ucx intra-node sysv/memory"}[image]
    assert transports["single"].startswith(between)
    assert transports["multi"] == {"openmpi": "ob1: sm", "mpich": "ch4 shm"}[image]


def assert_of_host(record: Record, policy: str) -> None:
    """As the ranks see it."""
    spaces = [one.namespaces for one in record.confinement]
    assert len(spaces) == (1 if policy == "multi" else 2)
    for one in record.confinement:
        assert {name: one.namespaces[name] for name in SHARED} == {name: host(name) for name in SHARED}
        assert not any(one.namespaces[name] == host(name) for name in OWN)
        space = os.statvfs(SHARED_MEMORY)
        assert one.shm == space.f_blocks * space.f_frsize
        assert set(one.capabilities) == {"SYS_NICE", "SYS_PTRACE"}
        assert one.seccomp and one.no_new_privileges
    assert len({space["mnt"] for space in spaces}) == len(spaces)


def kill_one_rank(started: Started) -> None:
    """By its number on the host: from inside the container, ranks of other launches would be seen too."""
    api = started.engine.api
    ranks = wait_for(lambda: ranks_of(started))
    rows = api.top(ranks[-1]["Id"], ps_args="-eo pid,args")["Processes"]
    numbers = [int(pid) for pid, words in rows if "bin/collbench run" in words and "mpirun" not in words]
    os.kill(numbers[-1], signal.SIGKILL)


@pytest.mark.docker
@pytest.mark.parametrize("disturb", [kill_container, kill_one_rank])
@pytest.mark.parametrize("image", ["openmpi", "mpich"])
def test_what_ends_in_the_middle_leaves_nothing(
    clean: Started, nothing_in_shared_memory: None, launch: Launch, tmp_path: Path, image: str,
    disturb: Callable[[Started], None],
) -> None:  # fmt: skip
    disturbed(clean, launch, tmp_path, image, disturb, step="files")


@pytest.mark.docker
@pytest.mark.parametrize("image", ["openmpi", "mpich"])
def test_one_container_that_is_killed_leaves_nothing_in_shared_memory(
    clean: Started, nothing_in_shared_memory: None, launch: Launch, image: str
) -> None:
    """The library's own launcher dies with the ranks, and cannot remove what they have there."""
    plan = LONG.format(image=image, step="files", launches=1).replace('"single"', '"multi"')
    before = in_shared_memory()
    process = launch(plan)
    wait_for(lambda: in_shared_memory() - before)
    (container,) = (one for one in clean.containers() if one["Names"][0].endswith("-c0"))
    clean.engine.api.kill(container["Id"])
    code, _, err = ended(process)
    assert code == 1, err
    assert "died" in err


@pytest.mark.docker
def test_interrupted(clean: Started, nothing_in_shared_memory: None, launch: Launch) -> None:
    process = launch(LONG.format(image="mpich", step="files", launches=1))
    wait_for(lambda: ranks_of(clean))
    process.send_signal(signal.SIGINT)
    code, _, err = ended(process)
    assert code == 130, err


@pytest.mark.docker
@pytest.mark.parametrize("image", ["openmpi", "mpich"])
def test_a_killed_driver_is_swept_with_what_its_ranks_left_in_shared_memory(
    started: Started, nothing_in_shared_memory: None, launch: Launch, image: str
) -> None:
    before = in_shared_memory()
    process = launch(LONG.format(image=image, step="files", launches=1).replace('"single"', '"multi"'))
    wait_for(lambda: in_shared_memory() - before)
    process.kill()
    process.communicate()
    left = in_shared_memory() - before  # its ranks may have removed some
    sweep = [sys.executable, "-m", "collbench", "launch", "--sweep"]
    swept = subprocess.run(sweep, capture_output=True, text=True, timeout=LIMIT, check=True).stdout
    assert started.containers() == []
    assert all(name in swept for name in left)
    assert in_shared_memory() <= before


@pytest.mark.docker
def test_doctor_in_such_a_container() -> None:
    command = [sys.executable, "-m", "collbench", "doctor", "--image", "mpich", "--isolation", "files"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "mpich, single, files: " in done.stdout


# A run measures the images that it found at its start, whatever their names come to mean meanwhile --------------------


@pytest.fixture
def moving(engine: Docker) -> Iterator[str]:
    """A name that means MPICH's image, until a test gives it to another."""
    name = f"collbench-test/moving:{engine.run}"
    engine.api.tag("collbench/mpich", name)
    yield name
    images.untag(engine, name)


@pytest.mark.docker
def test_a_name_that_moves_to_another_image_in_the_middle_of_a_run(
    clean: Started, launch: Launch, moving: str, tmp_path: Path
) -> None:
    first = images.inspect(clean.engine, moving)["Id"]
    process = launch(LONG.format(image=moving, step="strict", launches=2).replace('"10s"', '"0.3s"'))
    wait_for(lambda: ranks_of(clean))
    clean.engine.api.tag("collbench/openmpi", moving)
    assert images.inspect(clean.engine, moving)["Id"] != first
    code, out, err = ended(process)
    assert code == 0, (out, err)
    run = read_run(tmp_path / "run")
    assert run.manifest.experiment is not None
    assert [image.id for image in run.manifest.experiment.images] == [first]
    assert [(record.launch, record.status) for record in run.records] == [(0, "ok")] * 6 + [(1, "ok")] * 6
    assert all((record.transport or "").startswith("ucx") for record in run.records)  # of MPICH, not of Open MPI


# A launch's network ---------------------------------------------------------------------------------------------------

#: Tries addresses from inside a container; prints, for each, what was read there or the error's name.
TRY = """
import json, socket, sys
port, *addresses = sys.argv[1:]
def said(address):
    try:
        with socket.create_connection((address, int(port)), 3) as connection:
            return connection.recv(100).decode()
    except OSError as error:
        return type(error).__name__
print(json.dumps({address: said(address) for address in addresses}))
"""

WORDS = "from the host"


@contextmanager
def server() -> Iterator[int]:
    """A service of the host on every address; yields its port."""
    with socket.create_server(("0.0.0.0", 0)) as listening:  # noqa: S104 - what people do is what is tried

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(WORDS.encode())

        threading.Thread(target=serve, daemon=True).start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def network(engine: Docker) -> Iterator[Any]:
    """`network(sealed)` makes one as a launch does: its name, and the host's addresses in it and in Docker's own."""
    made: list[str] = []

    def make(sealed: bool) -> tuple[str, tuple[str, ...]]:
        name = f"{engine.run}-{len(made)}-net"
        made.append(name)
        engine.create_network(name, engine.labels, sealed)
        subnets = [engine.api.inspect_network(one)["IPAM"]["Config"][0]["Subnet"] for one in (name, "bridge")]
        return name, tuple(str(next(ip_network(subnet).hosts())) for subnet in subnets)  # the bridge's own

    yield make
    for name in made:
        engine.api.remove_network(name)


def tried(engine: Docker, name: str, port: int, addresses: tuple[str, ...]) -> dict[str, str]:
    argv = ("python", "-c", TRY, str(port), *addresses)
    code, said = ask(engine, find(engine, "collbench/mpich"), argv, network_mode=name)
    assert code == 0, said
    found: dict[str, str] = json.loads(said)
    return found


@pytest.mark.docker
def test_what_listens_on_the_host_is_out_of_reach(engine: Docker, network: Any) -> None:
    with server() as port:
        name, addresses = network(True)
        found = tried(engine, name, port, addresses)
        assert len(found) == 2
        assert WORDS not in found.values(), found
        name, addresses = network(False)  # so that the test is known to see it where it is not
        assert tried(engine, name, port, addresses)[addresses[0]] == WORDS


@pytest.mark.docker
def test_the_option_is_in_force(engine: Docker, network: Any) -> None:
    name, _ = network(True)
    found = engine.api.inspect_network(name)
    assert found["Internal"] is True
    assert found["Options"].items() >= NETWORK_OPTIONS.items()


# Launches of some of their cases, on the host and in containers -------------------------------------------------------


@pytest.mark.docker
def test_a_launch_measures_what_is_asked_in_the_plan_s_order(clean: Started) -> None:
    command = [sys.executable, "-m", "tests.containers.launch_of_some", "openmpi"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    clean.processes.append(process.pid)
    out, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 0
    assert sorted(json.loads(out)) == [
        [0, "host", 16, "ok"], [0, "host", 64, "ok"], [0, "single", 16, "ok"], [0, "single", 32, "ok"],
        [1, "single", 8, "ok"],
    ]  # fmt: skip
