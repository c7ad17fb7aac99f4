"""qperf: what is read of its output, what is wrong in it, and the rank whose output all read."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.made_engine import EMPTY, Reply, made_engine
from tests.unit.made_files import stored
from tests.unit.made_measurements import in_world
from tests.unit.made_programs import PLAN, script

from collbench import workloads
from collbench.errors import EngineError, PlanError
from collbench.launch.engines.docker import server
from collbench.machine.facts import own_cores
from collbench.run.cases import program_cases
from collbench.run.child import Finished
from collbench.run.failures import Unwatched
from collbench.run.program import Peers, ProgramRun
from collbench.schema.plan import Plan
from collbench.units import parse_spans
from collbench.workloads.host import qperf, qperf_host

OUTPUT = stored("qperf-0.4.11.txt")
ONE_SECOND = Plan(benchmarks=({"name": "qperf", "seconds": 1},))


def case(**parameters: Any) -> Any:
    (found,) = program_cases(Plan(benchmarks=({"name": "qperf", "seconds": 1, **parameters},)), 2)
    return found.case


def test_a_stored_output_is_read_and_is_right() -> None:
    found = dict(qperf.parse(OUTPUT))
    assert found["transfer"] == pytest.approx([1e9 / 853540864])
    assert found["message"] == pytest.approx([9755.9072e-9])
    assert qperf.verify(case(), OUTPUT) == 0
    assert qperf.elapsed(case(), OUTPUT) == pytest.approx(1.0 + (51252 + 51251) * 9755.9072e-9 - 0.02)


def test_bytes_and_messages_that_one_end_lacks_are_wrong() -> None:
    held = sum(int(Path(path).read_text(encoding="ascii").split()[2]) for path in qperf.BUFFERS)
    sent, received = 858456064, 853540864

    def changed(name: str, value: int) -> int:
        text, number = re.subn(rf"({name} +=) +\d+", rf"\1 {value}", OUTPUT, count=1)
        assert number == 1
        return qperf.verify(case(), text)

    assert changed("send_bytes", received + held) == 0
    assert changed("send_bytes", received + held + 1) == 1
    assert changed("send_bytes", received - 65536) == 0
    assert changed("send_bytes", received - 65537) == 1
    assert changed("rem_recv_msgs", 51252 - 5) == 4
    assert changed("loc_recv_msgs", 51251 + 3) == 2
    assert changed("recv_bytes", sent) == 0
    assert qperf.verify(case(seconds=2), OUTPUT) == 1, "it ended early"


def test_rank_0_serves_and_rank_1_says_what_was_measured(tmp_path: Path) -> None:
    script(tmp_path, "qperf", 'echo "$@"')
    world = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "MASTER_ADDR": "c0", "MASTER_PORT": "7"}
    argv = qperf.WORKLOAD.argv(case(message=512), 1)
    server, client = (subprocess.check_output(argv, env=world | {"RANK": rank}, text=True).split() for rank in "01")
    assert server == ["--listen_port", "7"]
    assert client[:3] == ["c0", "--listen_port", "7"]
    assert client[-9:] == ["-t", "1", "-m", "512", "tcp_bw", "--msg_size", "1", "tcp_lat", "quit"]
    assert qperf.WORKLOAD.reporter == 1


# qperf_host ----------------------------------------------------------------------------------------------------------


def run_on_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, process: str) -> None:
    """The client prints its words, and the server waits."""
    script(tmp_path, "qperf", 'case "$1" in --listen_port) exec sleep 100;; esac; echo "$@"')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert server.run(process, "some/image", ["-t", "1", "-m", "512"], lambda: None) == 0


def test_the_server_on_the_host_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    run_on_host(tmp_path, monkeypatch, "bare")
    client, engine = capfd.readouterr().out.splitlines()
    assert client.split()[0] == server.LOOPBACK
    assert client.split()[-9:] == ["-t", "1", "-m", "512", "tcp_bw", "--msg_size", "1", "tcp_lat", "quit"]
    assert qperf_host.WORKLOAD.notes(engine) == []


@pytest.mark.parametrize(("network", "address"), [("bridge", "172.17.0.2"), ("host", server.LOOPBACK)])
def test_the_server_in_a_container_is_reached_and_removed(
    network: str, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    networks = {network: {"IPAddress": address if network == "bridge" else ""}}
    left = [{"Id": "c1"}]

    def removed() -> Reply:
        left.clear()
        return 204, None

    replies: dict[str, Any] = {
        "POST /containers/create": (201, {"Id": "c1"}), "POST /containers/c1/start": (204, None),
        "GET /containers/c1/json": (200, {"Image": "sha256:1", "NetworkSettings": {"Networks": networks}}),
        "GET /images/json": (200, [{"Id": "sha256:1"}]), "DELETE /containers/c1": removed,
        "GET /containers/json": lambda: (200, list(left)),
    }  # fmt: skip
    with made_engine(tmp_path, {**EMPTY, **replies}) as made:
        monkeypatch.setenv("DOCKER_HOST", made.host)
        run_on_host(tmp_path, monkeypatch, f"container:{network}")
    client, engine = capfd.readouterr().out.splitlines()
    body = next(body for body in made.bodies if body and "Image" in body)
    assert (client.split()[0], body["HostConfig"]["NetworkMode"], left) == (address, network, [])
    assert body["Entrypoint"] == list(qperf.listening(client.split()[2]))
    assert parse_spans(body["HostConfig"]["CpusetCpus"]) == own_cores()
    assert qperf_host.WORKLOAD.notes(engine) == ["Docker Engine 20.10.24, image sha256:1"]


def test_a_container_without_an_address_is_an_error() -> None:
    with pytest.raises(EngineError):
        server.address_of({"NetworkSettings": {"Networks": {"none": {"IPAddress": ""}}}})


def test_it_takes_two_ranks() -> None:
    for ranks in (1, 3):
        with pytest.raises(PlanError, match="two ranks"):
            program_cases(ONE_SECOND, ranks)


@pytest.mark.parametrize("rank", [None, 0, 1])
def test_all_ranks_read_the_output_of_the_reporter(rank: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    read: dict[int, str] = {}

    def body(world: Any) -> None:
        def take(self: ProgramRun, finished: Finished, times: int) -> None:
            read[self.peers.world.rank] = finished.output

        def execute(self: ProgramRun, times: int, variables: Any) -> Finished:
            return Finished(f"of {self.peers.world.rank}", 0.0, 0.0, 0.0)

        monkeypatch.setattr(ProgramRun, "_take", take)
        monkeypatch.setattr(ProgramRun, "_execute_here", execute)
        program = replace(workloads.get("qperf"), reporter=rank, distributed=False)
        (found,) = program_cases(ONE_SECOND, 2)
        ProgramRun(program, found, PLAN, None, lambda what: None, Peers(world, Unwatched()))._execute(1)

    in_world(2, body)
    assert read == {number: f"of {number if rank is None else rank}" for number in range(2)}
