"""time_to_train: the target that a case may have, what it holds out, and trainings that reach it or not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.made_files import case_of, measured
from tests.unit.test_train import with_torch

from collbench import workloads
from collbench.errors import PlanError
from collbench.schema.record import Record
from collbench.workloads.program import threads_of

TARGET = workloads.get("time_to_train")


def test_a_case_holds_out_four_batches() -> None:
    case = case_of("time_to_train")
    assert TARGET.argv(case, 1)[2:] == (
        "collbench.workloads.dl.time_to_train", "--threads", str(threads_of(0)), "--network", "gpt-tiny", "--device",
        "cpu", "--batch", "0", "--target", "7.0", "--steps", "200", "--every", "10",
    )  # fmt: skip
    (made,) = TARGET.prepare(case_of("time_to_train", network="alexnet", batch=2, epoch=3))
    assert made.argv[-4:] == ("--examples", "6", "--held", "8")
    assert TARGET.memory(case_of("time_to_train", network="alexnet", batch=1, epoch=1_000_000)) == 2 * 1_000_004 * 3073
    every = {every: TARGET.computes(case_of("time_to_train", every=every), 1) for every in (1, 200)}
    assert every[1] > 2 * every[200] > 0
    assert TARGET.computes(case_of("time_to_train", device="cuda"), 1) == 0


def test_what_it_prints_is_a_time_with_steps_and_loss_that_must_come_out_equal() -> None:
    output = json.dumps({"ns": {"train": [2_500_000_000]}, "steps": 30, "loss": 6.8061834, "nonfinite": 1, "notes": []})
    case = case_of("time_to_train")
    assert TARGET.parse(output) == {"train": [2.5]} and TARGET.verify(case, output) == 1
    assert TARGET.repeatable(case, output) == {"loss": 6.80618, "steps": 30}


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"target": 6.6}, "entropy, 6.61; .*target"),
        ({"target": 7.5, "network": "gpt2"}, "entropy, 7.57"),
        ({"target": 0}, "target 0.0: must be at least"),
        ({"target": "low"}, "target 'low': not a number"),
        ({"network": "fcn5", "data": "ptb"}, "shape"),
    ],
)
def test_a_target_that_no_training_reaches_is_refused(values: dict[str, Any], named: str) -> None:
    with pytest.raises(PlanError, match=named):
        case_of("time_to_train", **values)
    assert case_of("time_to_train", target=6.6, data="ptb")["target"] == 6.6
    assert case_of("time_to_train", target=0.5, network="resnet56")["target"] == 0.5


SMALL: dict[str, Any] = {
    "name": "time_to_train",
    "network": "alexnet",
    "batch": 2,
    "epoch": 3,
    "threads": 1,
    "every": 2,
}


def trained(folder: Path, **values: Any) -> Record:
    """The only record; nothing is left in the folder."""
    (record,) = measured({**SMALL, **values}, folder, iters=3, warmup=1)
    assert list(folder.iterdir()) == []
    return record


@with_torch
def test_a_training_ends_with_the_first_evaluation_below_its_target(tmp_path: Path) -> None:
    record = trained(tmp_path, target=3.0, steps=9)
    assert (record.status, record.reason) == ("ok", None)
    assert record.check is not None and record.check.repeatable["steps"] == 2
    assert record.check.repeatable["loss"] == pytest.approx(2.3, abs=0.1)
    assert record.samples is not None and (record.samples.n, record.samples.warmup) == (1, 0)
    assert record.notes[-1] == "8 examples held out" and any("made-up 14 x 3072" in note for note in record.notes)


@with_torch
@pytest.mark.parametrize(("steps", "evaluations"), [(5, 3), (4, 2)])
def test_one_that_does_not_get_there_says_how_near_it_came(
    tmp_path: Path, steps: int, evaluations: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It evaluates after every second step, and after the last."""
    from collbench.workloads.dl import datasets, time_to_train, train

    record = trained(tmp_path, target=0.5, steps=steps)
    assert record.status == "failed" and record.seconds is None
    assert "exit code 1: target 0.5 was not reached within" in str(record.reason)

    monkeypatch.chdir(tmp_path)
    datasets.write(datasets.SOURCES["made-up"].read(datasets.NETWORKS["alexnet"], 14), 6, held=8)
    losses = iter([2.25, 2.125, 2.5])
    monkeypatch.setattr(train.Training, "held_out", lambda training, held: next(losses))
    command = TARGET.argv(case_of(**{**SMALL, "target": 0.5, "steps": steps}), 1)
    monkeypatch.setattr("sys.argv", [*command[2:]])
    with pytest.raises(SystemExit) as ended:
        time_to_train.main()
    assert ended.value.code == 1 and len(list(losses)) == 3 - evaluations
    assert f"within {steps} steps" in (err := capsys.readouterr().err) and "2.125;" in err


@with_torch
def test_what_is_held_out_is_not_trained_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does an evaluation change the training."""
    import torch

    from collbench.workloads.dl import datasets, train

    monkeypatch.chdir(tmp_path)
    network = datasets.NETWORKS["resnet56"]
    about = datasets.write(datasets.SOURCES["made-up"].read(network, 8), 4, held=4)
    batches, losses = train.Batches(network, about, 2), []
    for evaluated in (False, True):
        training = train.Training(network, "cpu")
        for number in (2, 3):
            if evaluated:
                assert training.held_out([batches[0], batches[1]]) > 0
            training.step(batches[number])
        losses.append(training.losses)
        assert training._module.training and torch.is_grad_enabled()
    assert losses[0] == losses[1]
