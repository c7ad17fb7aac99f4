"""Benchmarks of suite `gpu` on one GPU: each gives the right result, in every form that it has."""

from __future__ import annotations

import pytest

from collbench import workloads
from tests.gpu.jobs import DOUBLE, Gpus, measured

pytestmark = pytest.mark.gpu

#: Sizes with which the whole result is checked, and some that are no multiple of a block.
SMALL = {
    "gpu_copy": ("size=1,65537", "memory=pinned,pageable"),
    "gpu_convolution": ("side=1,65,128",),
    "gpu_gemm": ("m=33", "n=65", "k=129"),
    "gpu_histogram": ("size=4,65540", "bins=64,256"),
    "gpu_transpose": ("side=16,64", "variant=all"),
    "gpu_launch": ("burst=100",),
}


@pytest.mark.parametrize("name", workloads.suites()["gpu"])
def test_right_results(gpus: Gpus, name: str) -> None:
    records = measured(gpus.run(1, "suite", name, *SMALL[name], "-n", "2", "--style", "json"))
    assert {(record["status"], record["reason"]) for record in records} == {("ok", None)}
    native = not any("driver python" in note for record in records for note in record["notes"])
    assert native == (name != "gpu_gemm")


def test_events_agree_with_the_clock(gpus: Gpus) -> None:
    if DOUBLE:
        pytest.skip("the double's times mean nothing")
    records = measured(gpus.run(1, "suite", "gpu_copy", "size=256M", "-n", "10", "--style", "json"))
    for record in records:
        device = record["check"]["figures"][f"{record['case']['what']['measure']} device_ns"] * 1e-9
        assert 0.3 <= device / record["seconds"]["p50"] <= 1.2
