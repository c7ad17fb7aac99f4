"""The programs that start ranks: their commands, what they ask for, and what libraries say in their logs."""

from __future__ import annotations

import pytest

from collbench.launch import launchers

MPICH, OPENMPI = launchers.get("mpich", "x"), launchers.get("openmpi", "x")


def test_mpich_asks_by_lines_and_only_for_hosts_that_there_are() -> None:
    line = "HYDRA_LAUNCH: /opt/collbench/bin/hydra_pmi_proxy --control-port a:1 --pgid 0 --proxy-id 1 "
    found = MPICH.asks(line, ("a", "b"))
    assert found is not None
    assert (found.host, found.shell.split()[0]) == ("b", "/opt/collbench/bin/hydra_pmi_proxy")
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
    assert "--map-by" not in OPENMPI.local(2, False, ("p",))
    assert ":OVERSUBSCRIBE" in OPENMPI.local(2, True, ("p",))


def test_torch_is_started_rank_by_rank() -> None:
    torch = launchers.get("torch", "x")
    assert torch.local(2, False, ("p", "run"))[:3] == ("torchrun", "--standalone", "--nproc-per-node")
    assert torch.direct is not None
    started = torch.direct((("a", 2), ("b", 1)))
    assert [name for name, _ in started] == ["a", "a", "b"]
    assert [(more["RANK"], more["LOCAL_RANK"], more["WORLD_SIZE"], more["MASTER_ADDR"]) for _, more in started] == [
        ("0", "0", "3", "a"), ("1", "1", "3", "a"), ("2", "0", "3", "a")
    ]  # fmt: skip


def test_launches_in_one_network_listen_on_ports_of_their_own() -> None:
    """As those in the network of the host, where other programs have most ports from 32768 on."""
    direct = launchers.get("torch", "x").direct
    assert direct is not None
    started = [direct((("localhost", 1), (f"cb{number}-0-c1", 1))) for number in range(50)]
    ports = [{variables["MASTER_PORT"] for _, variables in ranks} for ranks in started]
    assert all(len(of_launch) == 1 for of_launch in ports)
    found = {int(port) for of_launch in ports for port in of_launch}
    assert len(found) > 45
    assert min(found) >= 29400
    assert max(found) < 32768


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
        ("torch", "Setting OMP_NUM_THREADS environment variable", True),
        ("torch", " *****", True),
        ("torch", "RuntimeError: *", False),
    ],
)
def test_what_a_library_says_at_our_request_is_no_reason_of_a_failure(vendor: str, line: str, quiet: bool) -> None:
    assert launchers.get(vendor, "x").quiet(line) is quiet


def test_transports_are_read_from_the_log() -> None:
    ucx = "[17.3] [c1:14   :0]      ucp_worker.c:1912 UCX  INFO    ucp_context_0 {} cfg#1 tag({})  rma_am(x)"
    alone, near, far = (
        ucx.format("self", "self/memory"),
        ucx.format("intra-node", "sysv"),
        ucx.format("inter-node", "tcp"),
    )
    assert MPICH.transport([alone, near], (2,)) == "ch4 shm"
    assert MPICH.transport([alone, far, far], (1, 1)) == "ucx inter-node tcp"
    assert MPICH.transport([alone, near], (1, 1)) == "ucx intra-node sysv"
    assert MPICH.transport([alone, near, far], (2, 2)) == "ch4 shm; ucx inter-node tcp"
    assert MPICH.transport([alone], (1,)) is None
    assert MPICH.transport(["nothing"], (2,)) is None
    btl = "[c0:00063] mca: bml: Using {} btl for send to [[953,1],0] on node c0"
    assert OPENMPI.transport([btl.format("self"), btl.format("tcp")], (1, 1)) == "ob1: tcp"
    assert OPENMPI.transport(["select: component cm selected"], (1, 1)) == "cm"
