"""Steps of data-parallel training beside all-reduces: made-up runs with known latency, bandwidth and messages."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from tests.unit.made_program_runs import program_record
from tests.unit.made_runs import Entry, made_case, made_failure, spread, write_run

from collbench.analysis.predictions import TrainingStep, training_steps
from collbench.analysis.runs import observe
from collbench.cli import cli
from collbench.schema.case import Case, Where
from collbench.schema.record import Work

LATENCY, BANDWIDTH = 200e-6, 2e9
MESSAGES = (1_300_000, 27_000_000, 5_000_000)
COMPUTE = 0.080
SIZES = [1 << power for power in range(14, 27, 2)]

#: Places, and how many times as long as on the host an all-reduce takes there.
PLACES = {("host", None): 1.0, ("multi", "strict"): 1.1, ("single", "strict"): 3.0}

Place = tuple[str, str | None]
Cells = dict[Case, list[Entry]]


def taken(messages: tuple[int, ...] = MESSAGES, times: float = 1.0) -> float:
    """Seconds of these all-reduces, one after the other."""
    return times * sum(LATENCY + size / BANDWIDTH for size in messages)


def all_reduces(place: Place = ("host", None), times: float = 1.0, **values: Any) -> Cells:
    named = {"backend": "torch-gloo", "driver": "python", "image": "torch", **values}
    return {made_case(*place, size=size, **named): list(spread(taken((size,), times))) for size in SIZES}


def training(measure: str, place: Place = ("host", None), **values: Any) -> Case:
    policy, isolation = place
    where = Where(engine="host" if policy == "host" else "docker", policy=policy, isolation=isolation, image="torch",
                  ranks=values.pop("ranks", 2))  # fmt: skip
    what = {"network": values.pop("network", "fcn5"), "batch": 64, "measure": measure}
    return Case(workload="ddp", what=what, how={"bucket": 25, "threads": 0, "device": "cpu", **values}, where=where)


def steps(
    place: Place = ("host", None), times: float = 1.0, hidden: float = 0.2, messages: tuple[int, ...] = MESSAGES,
    **values: Any,
) -> Cells:  # fmt: skip
    """The three measures of a training that hides this share of its communication."""
    communication = taken(MESSAGES, times)
    computing = spread(COMPUTE)
    measured = {"step": [compute + (1 - hidden) * communication for compute in computing], "compute": computing,
                "communication": spread(communication)}  # fmt: skip
    work = Work(amount=1, unit="steps", shown="time")
    cases = {name: training(name, place, **values) for name in measured}
    return {
        cases[name]: [program_record(cases[name], number, seconds, work=work, messages=messages)
                      for number, seconds in enumerate(of_launches)]
        for name, of_launches in measured.items()
    }  # fmt: skip


def everywhere() -> Cells:
    cells: Cells = {}
    for place, times in PLACES.items():
        cells |= all_reduces(place, times) | steps(place, times)
    return cells


def predicted(path: Path, cells: Cells) -> list[TrainingStep]:
    return list(training_steps(observe(write_run(path / str(len(list(path.iterdir()))), cells))))


def printed(*arguments: object) -> str:
    result = CliRunner().invoke(cli, list(map(str, arguments)), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_prediction_is_the_sum_of_the_messages(tmp_path: Path) -> None:
    by_policy = {step.case.where.policy: step for step in predicted(tmp_path, everywhere())}
    assert set(by_policy) == {"host", "multi", "single"}
    for (policy, _), times in PLACES.items():
        step, expected = by_policy[policy], taken(MESSAGES, times)
        assert step.communication == pytest.approx(expected, rel=0.01) and step.messages == MESSAGES
        assert step.interval is not None and step.interval[0] < expected < step.interval[1]
        assert step.times is not None and step.times.exposed.value == pytest.approx(0.8 * expected)
        assert step.times.hidden == pytest.approx(0.2, abs=0.001)
        assert step.error == pytest.approx(0.25, abs=0.01)


@pytest.mark.parametrize("messages", [(1_300_000, 27_000_000), (33_300_000,), (650_000,) * 6])
def test_other_messages_change_the_prediction(tmp_path: Path, messages: tuple[int, ...]) -> None:
    (step,) = predicted(tmp_path, all_reduces() | steps(messages=messages))
    assert step.communication == pytest.approx(taken(messages), rel=0.01)
    assert step.communication != pytest.approx(taken(), rel=0.01)


@pytest.mark.parametrize(("hidden", "error"), [(-0.5, 1 / 1.5 - 1), (1.1, None)])
def test_what_takes_longer_than_alone_was_not_hidden_and_what_took_no_time_has_no_error(
    tmp_path: Path, hidden: float, error: float | None
) -> None:
    (step,) = predicted(tmp_path, all_reduces() | steps(hidden=hidden))
    assert step.times is not None and step.times.hidden == pytest.approx(hidden, abs=0.001)
    assert (step.times.exposed.value < 0) == (error is None)
    assert step.error == (None if error is None else pytest.approx(error, abs=0.01))


def test_a_place_of_all_reduces_alone_is_predicted(tmp_path: Path) -> None:
    cells = all_reduces() | steps() | all_reduces(("single", "strict"), 3.0)
    host, single = predicted(tmp_path, cells)
    assert single.case.where.policy == "single" and single.times is None
    assert single.communication == pytest.approx(3 * taken(), rel=0.01) and single.messages == host.messages


def test_only_what_the_training_does_predicts_it(tmp_path: Path) -> None:
    """Other libraries, types, operations and images reduce in other ways; other ranks are another line."""
    others: Cells = {}
    for values in ({"backend": "mpi"}, {"dtype": "float64"}, {"op": "max"}, {"workload": "bcast", "op": None}):
        others |= all_reduces(times=7.0, **values)
    (step,) = predicted(tmp_path, others | steps())
    assert step.communication is None and step.why == "no all-reduces"
    (step,) = predicted(tmp_path, others | all_reduces() | steps())
    assert step.communication == pytest.approx(taken(), rel=0.01)
    assert len(predicted(tmp_path, all_reduces(("multi", "strict"), image="other") | steps())) == 1


def test_a_gpu_is_predicted_by_nccl(tmp_path: Path) -> None:
    (step,) = predicted(tmp_path, all_reduces() | all_reduces(backend="torch-nccl", times=0.1) | steps(device="cuda"))
    assert step.communication == pytest.approx(taken(times=0.1), rel=0.01)


def test_messages_out_of_reach_have_no_interval(tmp_path: Path) -> None:
    (step,) = predicted(tmp_path, all_reduces() | steps(messages=(1 << 31,)))
    assert step.communication == pytest.approx(taken((1 << 31,)), rel=0.05) and step.interval is None


def test_one_rank_and_other_runs_have_no_steps(tmp_path: Path) -> None:
    assert predicted(tmp_path, all_reduces() | steps(ranks=1)) == []
    run = write_run(tmp_path / "plain", all_reduces())
    assert training_steps(observe(run)) == () and "communication" not in printed("model", run)
    failed: Cells = {training("step"): [made_failure(training("step"), 0, "killed")]}
    assert predicted(tmp_path, all_reduces() | failed) == []


def test_launches_with_other_messages_are_told(tmp_path: Path) -> None:
    cells = all_reduces() | steps()
    step = training("step")
    cells[step][0] = msgspec.structs.replace(cells[step][0], messages=(8,))  # type: ignore[type-var]
    (prediction,) = predicted(tmp_path, cells)
    assert prediction.communication is None and prediction.why == "messages differ"


def test_launches_in_which_others_computed_are_not_compared(tmp_path: Path) -> None:
    cells = all_reduces() | steps()
    busy = training("compute")
    cells[busy] = [msgspec.structs.replace(record, contended=True) for record in cells[busy]]  # type: ignore[type-var]
    (step,) = predicted(tmp_path, cells)
    assert step.times is None and step.communication == pytest.approx(taken(), rel=0.01) and step.lost == "waited"


def test_model_prints_predicted_beside_measured(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", everywhere() | steps(network="lstm", messages=(1_000_000,)))
    text = printed("model", run, "--all")
    assert all(f"of ddp, network {network}" in text for network in ("fcn5", "lstm")), "each has its table"
    assert re.search(r"^.*\b3 all-reduces .*1\.24 MiB, 25\.75 MiB, 4\.77 MiB; 31\.76 MiB", text, re.MULTILINE)
    assert "1 all-reduce " in text and "algorithms of ddp" not in text
    (document,) = json.loads(printed("model", run, "--style", "json"))["runs"]
    entries = [step for step in document["steps"] if step["case"]["what"]["network"] == "fcn5"]
    entry = next(entry for entry in entries if "policy" not in entry["case"]["where"])
    assert entry["predicted"] == pytest.approx(taken(), rel=0.01) and entry["messages"] == list(MESSAGES)
    assert entry["hidden"] == pytest.approx(0.2, abs=0.001) and entry["step"] == pytest.approx(COMPUTE + 0.8 * taken())
    header, *_ = printed("model", run, "--collective", "allreduce", "--style", "csv").splitlines()
    assert "communication of" not in header


def test_a_run_without_collectives_says_what_is_modelled(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {training("step", ranks=1): next(iter(steps(ranks=1).values()))})
    result = CliRunner().invoke(cli, ["model", str(run)])
    assert re.search(r"\bddp .*\(allreduce, ", str(result.exception or result.output))


def test_advise_takes_a_place_for_the_step(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", everywhere())
    advices = json.loads(printed("advise", run, "--style", "json"))["advice"]
    (step,) = [advice for advice in advices if advice["operation"].startswith("ddp step")]
    assert step["ranges"][0]["take"] == "host"


def test_the_page_has_the_predictions(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", everywhere())
    printed("report", run, "-o", tmp_path / "report.md")
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "communication of ddp, network fcn5" in text
