"""fathom without torch: its cases, its command, what its output becomes, and what is refused or skipped."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.made_programs import PLAN, printing, replace_benchmark, run_row

from collbench import workloads
from collbench.errors import PlanError
from collbench.run.expand import program_cases
from collbench.schema.case import Case
from collbench.schema.plan import Plan
from collbench.schema.record import Record
from collbench.workloads import software
from collbench.workloads.dl.fathom import NETWORKS

FATHOM = workloads.get("fathom")

#: Of four steps.
OUTPUT = {
    "ns": [9_000, 1_000, 2_000, 3_000],
    "losses": [4.0, 3.0, 2.5, 2.0],
    "loss": {"loss of step 3": 2.5},
    "repeatable": True,
    "notes": ["made-up data"],
}


def cases_of(**values: Any) -> tuple[Case, ...]:
    return tuple(one.case for one in program_cases(Plan(benchmarks=({"name": "fathom", **values},)), 1))


def recorded(monkeypatch: pytest.MonkeyPatch, **changed: Any) -> Record:
    """The record of a program that prints this."""
    monkeypatch.setattr(software.Torch, "missing", lambda self: None)
    row = replace(FATHOM, argv=printing(json.dumps(OUTPUT | changed)))
    ((record, _),) = run_row(monkeypatch, row, replace_benchmark(PLAN, {"name": "fathom"}))
    return record


def test_steps_become_a_record_with_the_loss_to_compare(monkeypatch: pytest.MonkeyPatch) -> None:
    record = recorded(monkeypatch)
    assert record.status == "ok" and record.seconds is not None and record.work is not None
    assert record.seconds.p50 == pytest.approx(2e-6)
    assert (record.work.amount, record.work.unit, record.work.shown) == (1, "steps", "time")
    assert record.check is not None
    assert record.check.figures == record.check.repeatable == {"loss of step 3": 2.5}
    assert record.notes[-1] == "made-up data"


def test_a_loss_that_differs_each_time_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    check = recorded(monkeypatch, repeatable=False).check
    assert check is not None and (check.figures, check.repeatable) == ({"loss of step 3": 2.5}, {})


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_each_loss_that_is_no_number_is_a_wrong_result(monkeypatch: pytest.MonkeyPatch, loss: float) -> None:
    record = recorded(monkeypatch, losses=[4.0, 3.0, loss, loss])
    assert (record.status, record.reason) == ("failed", "wrong result: fathom counted 2 wrong values")
    assert record.check is not None and record.check.wrong == 2


def test_the_command_names_everything_that_was_asked_for() -> None:
    (case,) = cases_of(network="speech-recurrent", batch=4, device="cuda", threads=3)
    assert tuple(FATHOM.argv(case, 7)) == (
        sys.executable, "-m", "collbench.workloads.dl.fathom", "--network", "speech-recurrent", "--batch", "4",
        "--device", "cuda", "--threads", "3", "--times", "7",
    )  # fmt: skip
    assert (case.what, case.how) == ({"network": "speech-recurrent", "batch": 4}, {"device": "cuda", "threads": 3})


def test_all_networks_have_one_name() -> None:
    assert [case["network"] for case in cases_of(network="all")] == list(NETWORKS)
    assert len(NETWORKS) == 9


def test_an_unknown_network_is_answered_with_those_that_there_are() -> None:
    with pytest.raises(PlanError) as caught:
        cases_of(network="residul")
    assert str(caught.value).startswith("benchmark fathom: network 'residul': Did you mean residual? There are: all, ")
    for name in NETWORKS:
        assert name in str(caught.value)


def test_what_takes_minutes_on_a_processor_has_a_smaller_batch_there() -> None:
    usual = {name: (size.usual("cpu"), size.usual("cuda")) for name, size in NETWORKS.items()}
    assert usual["residual"] == (1, 16) and usual["vgg"] == (1, 8) and usual["alexnet"] == (64, 64)
    assert all(on_gpu == NETWORKS[name].batch for name, (_, on_gpu) in usual.items())


def test_memory_grows_with_the_batch_and_stays_on_the_gpu() -> None:
    asked: tuple[dict[str, Any], ...] = ({}, {"batch": 64}, {"device": "cuda"})
    usual, large, on_gpu = (FATHOM.memory(*cases_of(network="vgg", **values)) for values in asked)
    assert on_gpu == 4 * NETWORKS["vgg"].parameters
    assert usual > 4 * on_gpu
    assert large - usual == 63 * NETWORKS["vgg"].activations


def test_without_torch_it_is_skipped_with_what_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda wanted: None)
    assert FATHOM.missing() == "torch is not installed; pip install torch"
    assert FATHOM.libraries() == ()
    ((record, _),) = run_row(monkeypatch, FATHOM, replace_benchmark(PLAN, {"name": "fathom"}))
    assert (record.status, record.reason) == ("skipped", FATHOM.missing())


def test_the_version_of_torch_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(software.Torch, "missing", lambda self: None)
    monkeypatch.setattr(software, "version", lambda package: f"1.2.3 of {package}")
    assert [(library.name, library.version) for library in FATHOM.libraries()] == [("torch", "1.2.3 of torch")]


def test_plans_are_read_without_torch() -> None:
    script = "import sys; from collbench import workloads; workloads.get('fathom'); assert 'torch' not in sys.modules"
    subprocess.run((sys.executable, "-c", script), check=True, timeout=300)


def test_every_network_is_defined() -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    from collbench.workloads.dl import fathom_networks, fathom_sequences

    assert fathom_networks.NETWORKS.keys() | fathom_sequences.NETWORKS.keys() == NETWORKS.keys()
