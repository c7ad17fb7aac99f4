"""The programs that start ranks: their commands, what they ask for and how, their logs, and how a rank knows them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.processes import LIMIT

from collbench.launch import launchers
from collbench.machine.launcher import Launcher, detect

MPICH, OPENMPI, INTELMPI, TORCH = (launchers.get(vendor, "x") for vendor in ("mpich", "openmpi", "intelmpi", "torch"))

# Those that a launch starts ------------------------------------------------------------------------------------------


def test_mpich_asks_by_lines_and_only_for_hosts_that_there_are() -> None:
    line = "HYDRA_LAUNCH: /opt/collbench/bin/hydra_pmi_proxy --control-port a:1 --pgid 0 --proxy-id 1 "
    request = MPICH.asks(line, ("a", "b"))
    assert request is not None
    assert (request.host, request.shell.split()[0]) == ("b", "/opt/collbench/bin/hydra_pmi_proxy")
    assert MPICH.asks(line, ("a",)) is None
    assert MPICH.asks("HYDRA_LAUNCH_END", ("a", "b")) is None


def test_commands_of_the_launchers() -> None:
    hosts = (("a", 2), ("b", 1))
    assert MPICH.across(hosts, ("p",)) == (
        "mpiexec", "-launcher", "manual", "-genvnone", "-bind-to", "none", "-hosts", "a:2,b:1", "-n", "3", "p"
    )  # fmt: skip
    assert OPENMPI.across(hosts, ("p",)) == (
        "mpirun", "--host", "a:2,b:1", "--map-by", "slot", "--bind-to", "none", "-n", "3", "p"
    )  # fmt: skip
    assert INTELMPI.across(hosts, ("p",)) == (
        "mpiexec", "-launcher", "ssh", "-launcher-exec", "collbench-relay", "-genvnone", "-host", "a", "-n", "2", "p",
        ":", "-host", "b", "-n", "1", "p",
    )  # fmt: skip
    assert INTELMPI.local(2, True, ("p",)) == ("mpiexec", "-launcher", "fork", "-n", "2", "p")
    older = launchers.get("openmpi", "x", "4.1.8")
    assert (older.across, older.shm_folder) == (OPENMPI.across, "OMPI_MCA_btl_vader_backing_directory")
    assert ("OMPI_MCA_plm_rsh_agent" in older.environment, "PRTE_MCA_plm_ssh_agent" in older.environment) == (
        True,
        False,
    )
    assert "--map-by" not in OPENMPI.local(2, False, ("p",))
    assert ":OVERSUBSCRIBE" in OPENMPI.local(2, True, ("p",))


def test_torch_is_started_rank_by_rank() -> None:
    assert TORCH.local(2, False, ("p", "run"))[:3] == ("torchrun", "--standalone", "--nproc-per-node")
    assert TORCH.direct is not None
    started = TORCH.direct((("a", 2), ("b", 1)))
    assert [name for name, _ in started] == ["a", "a", "b"]
    assert [(more["RANK"], more["LOCAL_RANK"], more["WORLD_SIZE"], more["MASTER_ADDR"]) for _, more in started] == [
        ("0", "0", "3", "a"), ("1", "1", "3", "a"), ("2", "0", "3", "a")
    ]  # fmt: skip


def test_launches_in_one_network_listen_on_ports_of_their_own() -> None:
    """As those in the network of the host, where other programs have most ports from 32768 on."""
    assert TORCH.direct is not None
    ports = set()
    for number in range(50):
        started = TORCH.direct((("localhost", 1), (f"cb{number}-0-c1", 1)))
        (port,) = {int(variables["MASTER_PORT"]) for _, variables in started}
        ports.add(port)
    assert len(ports) > 45 and min(ports) >= 29400 and max(ports) < 32768


@pytest.mark.parametrize(
    ("vendor", "line", "quiet"),
    [
        ("mpich", "[1] [c1:14 :0] ucp_worker.c:1912 UCX  INFO  ucp_context_0", True),
        ("mpich", "HYDRA_LAUNCH: proxy", True),
        ("mpich", "said HYDRA_LAUNCH: proxy", False),
        ("mpich", "Abort(1) on node 0", False),
        ("openmpi", "[c0:00063] mca: bml: Using sm btl", True),
        ("openmpi", "[c0:00063] select: component ob1 selected", True),
        ("openmpi", "[c0:00008] WARNING: local probe returned unhandled shell:unknown assuming bash", True),
        ("openmpi", "[c0:00063] *** An error occurred in MPI_Send", False),
        ("intelmpi", "[0] MPI startup(): libfabric provider: tcp", True),
        ("intelmpi", "[0] Abort(1) on node 0", False),
        ("torch", "Setting OMP_NUM_THREADS environment variable", True),
        ("torch", " *****", True),
        ("torch", "RuntimeError: *", False),
    ],
)
def test_what_a_library_says_at_our_request_is_no_reason_of_a_failure(vendor: str, line: str, quiet: bool) -> None:
    assert launchers.get(vendor, "x").quiet(line) is quiet


def test_transports_are_read_from_the_log() -> None:
    ucx = "[17.3] [c1:14   :0]      ucp_worker.c:1912 UCX  INFO    ucp_context_0 {} cfg#1 tag({})  rma_am(x)"
    links = (("self", "self/memory"), ("intra-node", "sysv"), ("inter-node", "tcp"))
    alone, near, far = (ucx.format(*link) for link in links)
    assert MPICH.transport([alone, near], (2,)) == "ch4 shm"
    assert MPICH.transport([alone, far, far], (1, 1)) == "ucx inter-node tcp"
    assert MPICH.transport([alone, near], (1, 1)) == "ucx intra-node sysv"
    assert MPICH.transport([alone, near, far], (2, 2)) == "ch4 shm; ucx inter-node tcp"
    assert MPICH.transport([alone], (1,)) is None
    assert MPICH.transport(["nothing"], (2,)) is None
    btl = "[c0:00063] mca: bml: Using {} btl for send to [[953,1],0] on node c0"
    assert OPENMPI.transport([btl.format("self"), btl.format("tcp")], (1, 1)) == "ob1: tcp"
    assert OPENMPI.transport(["select: component cm selected"], (1, 1)) == "cm"
    begun, provider = (f"[0] MPI startup(): {text}" for text in ("library kind: release", "libfabric provider: tcp"))
    assert INTELMPI.transport([begun], (2,)) == "shm"
    assert INTELMPI.transport([begun, provider], (1, 1)) == "ofi tcp"
    assert INTELMPI.transport([begun, provider], (2, 1)) == "shm; ofi tcp"
    assert INTELMPI.transport(["nothing"], (2,)) is None


# What stands in for ssh: it leaves a request, and waits until the driver has taken it away ----------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COLLBENCH_RELAY", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["collbench-relay", "-q", "c1", "prted", "--daemonize"])
    return tmp_path


def clock(monkeypatch: pytest.MonkeyPatch, naps: list[float], folder: Path, taken_after: int | None) -> None:
    """Time that passes in naps, of which the driver takes the request away after so many."""
    now = [1000.0]

    def sleep(seconds: float) -> None:
        naps.append(seconds)
        now[0] += 25.0
        if len(naps) == taken_after:
            (request,) = folder.iterdir()
            assert request.name == f"{os.getpid()}.request", "the draft has become the request as a whole"
            assert json.loads(request.read_text()) == ["c1", "prted", "--daemonize"]
            request.unlink()

    monkeypatch.setattr(launchers, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))


def test_a_request_is_left_and_waited_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    naps: list[float] = []
    clock(monkeypatch, naps, folder, 2)
    launchers.relay()
    assert (len(naps), list(folder.iterdir())) == (2, [])
    assert all(0 < seconds < 0.1 for seconds in naps)


def test_a_request_that_nobody_takes_ends_with_who_was_asked_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    naps: list[float] = []
    clock(monkeypatch, naps, folder, None)
    with pytest.raises(SystemExit) as left:
        launchers.relay()
    assert all(word in str(left.value.code) for word in ("collbench-relay: ", " c1 ", "60 s"))
    assert len(naps) == 3, "after 75 s"


def test_without_a_variable_the_folder_is_where_containers_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLLBENCH_RELAY", raising=False)
    written: list[str] = []

    def refuse(path: Path, text: str, encoding: str) -> None:
        written.append(str(path))
        raise OSError(2, "No such file")

    monkeypatch.setattr(Path, "write_text", refuse)
    with pytest.raises(OSError, match=r"\[Errno 2\]"):
        launchers.relay()
    assert written == [f"/collbench/relay/{os.getpid()}.draft"]


# The one that started this process ------------------------------------------------------------------------------------


BY_OPENMPI = {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}
BY_MPICH = {"PMI_RANK": "2", "PMI_SIZE": "4", "MPI_LOCALRANKID": "2"}
BY_INTELMPI = BY_MPICH | {"HYDRA_BSTRAP_PROXY_ID": "0"}
BY_TORCHRUN = {"RANK": "5", "WORLD_SIZE": "6", "LOCAL_RANK": "1", "MASTER_ADDR": "a", "MASTER_PORT": "1"}
BY_SLURM = {"SLURM_PROCID": "7", "SLURM_STEP_NUM_TASKS": "16", "SLURM_LOCALID": "3"}


@pytest.mark.parametrize(
    ("environ", "expected", "title"),
    [
        ({}, Launcher("none", 0, 1, 0), "no launcher"),
        ({"PATH": "/bin"}, Launcher("none", 0, 1, 0), "no launcher"),
        (BY_OPENMPI, Launcher("openmpi", 3, 8, 1), "Open MPI's mpirun"),
        (BY_MPICH, Launcher("mpich", 2, 4, 2), "MPICH's mpiexec"),
        (BY_INTELMPI, Launcher("intelmpi", 2, 4, 2), "Intel MPI's mpiexec"),
        (BY_TORCHRUN, Launcher("torchrun", 5, 6, 1), "torchrun"),
        (BY_SLURM, Launcher("slurm", 7, 16, 3), "srun"),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, Launcher("mpich", 1, 2, 0), "MPICH's mpiexec"),
        # half a launcher is none
        ({"RANK": "0"}, Launcher("none"), "no launcher"),
        ({"OMPI_COMM_WORLD_RANK": "0"}, Launcher("none"), "no launcher"),
        ({"PMI_RANK": "x", "PMI_SIZE": "2"}, Launcher("none"), "no launcher"),
        ({"SLURM_PROCID": "0", "SLURM_JOB_ID": "12"}, Launcher("none"), "no launcher"),
    ],
)
def test_each_launcher_by_its_variables(environ: dict[str, str], expected: Launcher, title: str) -> None:
    assert detect(environ) == expected
    assert detect(environ).title == title


@pytest.mark.parametrize(
    ("environ", "kind"),
    [
        (BY_SLURM | BY_OPENMPI, "openmpi"),
        (BY_SLURM | BY_MPICH, "mpich"),
        (BY_SLURM | BY_TORCHRUN, "torchrun"),
        (BY_MPICH | BY_TORCHRUN, "torchrun"),
    ],
)
def test_the_innermost_launcher_counts(environ: dict[str, str], kind: str) -> None:
    assert detect(environ).kind == kind


@pytest.mark.parametrize(
    ("variables", "lives"), [({}, False), ({"PMI_RANK": "0", "PMI_SIZE": "2"}, True), (BY_OPENMPI, False)]
)
def test_rank_0_is_a_process_of_the_same_launcher(variables: dict[str, str], lives: bool) -> None:
    """Other children of our parent, a service for one, were started by no launcher at all."""
    asks = "from collbench.machine.launcher import *; print(rank_0_lives(detect()))"
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("PMI_", "OMPI_", "PMIX_"))}
    with subprocess.Popen((sys.executable, "-c", "input()"), stdin=subprocess.PIPE, env=bare | variables) as sibling:
        done = subprocess.run(
            (sys.executable, "-c", asks), env=bare | {"PMI_RANK": "1", "PMI_SIZE": "2"}, capture_output=True, text=True,
            check=True, timeout=LIMIT,
        )  # fmt: skip
        sibling.communicate(b"\n")
    assert done.stdout == f"{lives}\n"
