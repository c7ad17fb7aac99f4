"""Every outcome of the check peers, with a pynvml that is made up."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.doctor.gpus.cards import Install
from tests.unit.doctor.machines import only
from tests.unit.made_nvml import TWO, MadeGpu, MadeNvml, linked

from collbench.doctor import gpus
from collbench.doctor.frame import Finding, Machine
from collbench.machine import nvml


@pytest.mark.parametrize("there", [TWO[:1], (TWO[0], replace(TWO[1], mig=(1, 1)))])
def test_fewer_than_two_gpus(machine: Machine, install: Install, there: tuple[MadeGpu, ...]) -> None:
    install(MadeNvml(there))
    assert gpus.peers(machine) == Finding("fewer than two GPUs")


def test_no_gpus_have_no_peers(machine: Machine, without_driver: MadeNvml) -> None:
    assert gpus.peers(machine) == Finding("fewer than two GPUs")


def test_gpus_that_reach_each_other(machine: Machine, install: Install) -> None:
    install(MadeNvml(linked(4)))
    assert gpus.peers(machine) == Finding("2 GPUs, each pair NV4; peer access between all")


def test_a_row_for_each_gpu(machine: Machine, install: Install) -> None:
    install(MadeNvml((*linked(4), MadeGpu("GPU-c", "00000000:D1:00.0"))))
    seen = "GPU 0: - NV4 SYS; GPU 1: NV4 - SYS; GPU 2: SYS SYS -; peer access between all"
    assert gpus.peers(machine) == Finding(seen)


def test_no_peer_access(machine: Machine, install: Install) -> None:
    install(MadeNvml(status={0: 0, 1: 5}))
    finding = gpus.peers(machine)
    assert finding.seen == "2 GPUs, each pair SYS; peer access between none"
    problem = only(finding, "warn")
    assert problem.cause == "no peer access between GPUs 0-1"
    assert "host memory" in problem.effect
    assert problem.fix.startswith("nvidia-smi topo -p2p r")


def test_some_peer_access() -> None:
    there = tuple(nvml.GpuFacts(place, f"GPU-{place}", "", "") for place in range(4))
    pairs = [(i, j) for i in range(4) for j in range(i + 1, 4)]
    finding = gpus.judge_peers(there, dict.fromkeys(pairs, "PIX"), {pair: pair == (2, 3) for pair in pairs})
    assert finding.seen.endswith("peer access between 1 of 6 pairs")
    problem = only(finding, "warn")
    assert problem.cause == "no peer access between GPUs 0-1, 0-2, 0-3, 1-2 and 1 more"
    assert problem.fix.startswith("export CUDA_VISIBLE_DEVICES=GPU-2,GPU-3 ")


def test_peer_access_that_is_not_told(machine: Machine, install: Install) -> None:
    install(MadeNvml(status={}))
    assert "does not report" in only(gpus.peers(machine), "unknown").cause


def test_peer_access_one_way_is_none(machine: Machine, monkeypatch: pytest.MonkeyPatch, install: Install) -> None:
    install(MadeNvml())
    monkeypatch.setattr(nvml, "peer_access", lambda first, second: first < second)
    only(gpus.peers(machine), "warn")
