"""Steps of data-parallel training beside all-reduces: made-up runs with known latency, bandwidth and messages."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.conftest import Collbench
from tests.unit.made_program_runs import program_record
from tests.unit.made_runs import Entry, made_case, made_failure, spread, write_run

from collbench.analysis.predictions import TrainingStep, training_steps
from collbench.analysis.runs import observe
from collbench.schema.axes import Value
from collbench.schema.case import Case, Where
from collbench.schema.record import Record, Work

LATENCY, BANDWIDTH = 200e-6, 2e9
MESSAGES = (1_300_000, 27_000_000, 5_000_000)
COMPUTE = 0.080

Place = tuple[str, str | None]
Cells = Mapping[Case, list[Entry]]

HOST, SINGLE = ("host", None), ("single", "strict")

#: Places, and how many times as long as on the host an all-reduce takes there.
PLACES: dict[Place, float] = {HOST: 1.0, ("multi", "strict"): 1.1, SINGLE: 3.0}


def taken(messages: tuple[int, ...] = MESSAGES, times: float = 1.0) -> float:
    """Seconds of these all-reduces, one after the other."""
    return times * sum(LATENCY + size / BANDWIDTH for size in messages)


def all_reduces(place: Place = HOST, times: float = 1.0, **values: Any) -> Cells:
    named = {"backend": "torch-gloo", "driver": "python", "image": "torch", **values}
    sizes = [1 << power for power in range(14, 27, 2)]
    return {made_case(*place, size=size, **named): [*spread(taken((size,), times))] for size in sizes}


def training(measure: str, place: Place = HOST, network: str = "fcn5", ranks: int = 2, **values: Any) -> Case:
    policy, isolation = place
    where = Where(engine="host" if policy == "host" else "docker", policy=policy, isolation=isolation, image="torch",
                  ranks=ranks)  # fmt: skip
    what: dict[str, Value] = {"network": network, "batch": 64, "measure": measure}
    return Case(workload="ddp", what=what, how={"bucket": 25, "threads": 0, "device": "cpu", **values}, where=where)


def steps(
    place: Place = HOST, times: float = 1.0, hidden: float = 0.2, messages: tuple[int, ...] = MESSAGES, **values: Any
) -> dict[Case, list[Record]]:
    """The three measures of a training that hides this share of its communication."""
    communication, computing = taken(MESSAGES, times), spread(COMPUTE)
    measured = {"step": [compute + (1 - hidden) * communication for compute in computing], "compute": computing,
                "communication": spread(communication)}  # fmt: skip
    records: dict[Case, list[Record]] = {}
    for name, seconds in measured.items():
        case, work = training(name, place, **values), Work(amount=1, unit="steps", shown="time")
        records[case] = [program_record(case, n, time, work=work, messages=messages) for n, time in enumerate(seconds)]
    return records


def everywhere() -> Cells:
    cells: dict[Case, list[Entry]] = {}
    for place, times in PLACES.items():
        cells |= {**all_reduces(place, times), **{case: [*records] for case, records in steps(place, times).items()}}
    return cells


def predicted(path: Path, *cells: Mapping[Case, Any]) -> list[TrainingStep]:
    together = {case: entries for each in cells for case, entries in each.items()}
    return [*training_steps(observe(write_run(path / f"run-{len([*path.iterdir()])}", together)))]


def test_the_prediction_is_the_sum_of_the_messages(tmp_path: Path) -> None:
    by_policy = {step.case.where.policy: step for step in predicted(tmp_path, everywhere())}
    assert set(by_policy) == {"host", "multi", "single"}
    for (policy, _), times in PLACES.items():
        step, expected = by_policy[policy], taken(MESSAGES, times)
        assert step.communication == pytest.approx(expected, rel=0.01) and step.messages == MESSAGES
        assert step.interval is not None and step.interval[0] < expected < step.interval[1]
        assert step.times is not None and step.times.exposed.value == pytest.approx(0.8 * expected)
        assert step.times.hidden == pytest.approx(0.2, abs=0.001) and step.error == pytest.approx(0.25, abs=0.01)


@pytest.mark.parametrize("messages", [(1_300_000, 27_000_000), (33_300_000,), (650_000,) * 6, (1 << 31,)])
def test_other_messages_change_the_prediction(tmp_path: Path, messages: tuple[int, ...]) -> None:
    """Those out of reach have no interval."""
    (step,) = predicted(tmp_path, all_reduces(), steps(messages=messages))
    far = messages == (1 << 31,)
    assert step.communication == pytest.approx(taken(messages), rel=0.05 if far else 0.01)
    assert step.communication != pytest.approx(taken(), rel=0.01) and (step.interval is None) is far


def test_what_takes_longer_than_alone_was_not_hidden_and_what_took_no_time_has_no_error(tmp_path: Path) -> None:
    """And a place of all-reduces alone is predicted."""
    for hidden, error in ((-0.5, 1 / 1.5 - 1), (1.1, None)):
        (step,) = predicted(tmp_path, all_reduces(), steps(hidden=hidden))
        assert step.times is not None and step.times.hidden == pytest.approx(hidden, abs=0.001)
        assert (step.times.exposed.value < 0) == (error is None)
        assert step.error == (None if error is None else pytest.approx(error, abs=0.01))
    host, single = predicted(tmp_path, all_reduces(), steps(), all_reduces(SINGLE, 3.0))
    assert single.case.where.policy == "single" and single.times is None
    assert single.communication == pytest.approx(3 * taken(), rel=0.01) and single.messages == host.messages


def test_only_what_the_training_does_predicts_it(tmp_path: Path) -> None:
    """Other libraries, types, operations and images reduce in other ways; a GPU is predicted by NCCL."""
    others = [all_reduces(times=7.0, **values) for values in
              ({"backend": "mpi"}, {"dtype": "float64"}, {"op": "max"}, {"workload": "bcast", "op": None})]  # fmt: skip
    (step,) = predicted(tmp_path, *others, steps())
    assert (step.communication, step.why) == (None, "no all-reduces")
    (step,) = predicted(tmp_path, *others, all_reduces(), steps())
    assert step.communication == pytest.approx(taken(), rel=0.01)
    assert len(predicted(tmp_path, all_reduces(("multi", "strict"), image="other"), steps())) == 1
    nccl = all_reduces(backend="torch-nccl", times=0.1)
    (step,) = predicted(tmp_path, all_reduces(), nccl, steps(device="cuda"))
    assert step.communication == pytest.approx(taken(times=0.1), rel=0.01)


def test_one_rank_and_other_runs_have_no_steps(tmp_path: Path, here: Collbench) -> None:
    assert predicted(tmp_path, all_reduces(), steps(ranks=1)) == predicted(tmp_path, all_reduces()) == []
    failed = {training("step"): [made_failure(training("step"), 0, "killed")]}
    assert predicted(tmp_path, all_reduces(), failed) == []
    alone = write_run(tmp_path / "alone", {training("step", ranks=1): steps(ranks=1)[training("step", ranks=1)]})
    assert re.search(r"\bddp .*\(allreduce, ", here("model", alone).err), "what is modelled"


def test_launches_that_are_not_used(tmp_path: Path) -> None:
    """Those with other messages; and those in which others computed, which are not compared."""
    cells, first = steps(), training("step")
    cells[first][0] = msgspec.structs.replace(cells[first][0], messages=(8,))
    (step,) = predicted(tmp_path, all_reduces(), cells)
    assert (step.communication, step.why) == (None, "messages differ")
    cells, busy = steps(), training("compute")
    cells[busy] = [msgspec.structs.replace(record, contended=True) for record in cells[busy]]
    (step,) = predicted(tmp_path, all_reduces(), cells)
    assert step.times is None and step.communication == pytest.approx(taken(), rel=0.01) and step.lost == "waited"


def test_predicted_stands_beside_measured_everywhere(tmp_path: Path, here: Collbench) -> None:
    """Each network has its table; advice takes a place for the step."""
    run = write_run(tmp_path / "run", {**everywhere(), **steps(network="lstm", messages=(1_000_000,))})
    text = here("model", run, "--all").out
    assert "network fcn5" in text and "network lstm" in text and "1 all-reduce " in text
    assert re.search(r"^.*\b3 all-reduces .*1\.24 MiB, 25\.75 MiB, 4\.77 MiB; 31\.76 MiB", text, re.MULTILINE)
    (document,) = json.loads(here("model", run, "--style", "json").out)["runs"]
    (entry,) = (step for step in document["steps"] if step["case"]["what"]["network"] == "fcn5"
                and "policy" not in step["case"]["where"])  # fmt: skip
    assert entry["predicted"] == pytest.approx(taken(), rel=0.01) and entry["messages"] == list(MESSAGES)
    assert entry["hidden"] == pytest.approx(0.2, abs=0.001) and entry["step"] == pytest.approx(COMPUTE + 0.8 * taken())
    header, *_ = here("model", run, "--collective", "allreduce", "--style", "csv").out.splitlines()
    assert "communication" not in header
    advices = json.loads(here("advise", run, "--style", "json").out)["advice"]
    assert [advice["ranges"][0]["take"] for advice in advices
            if advice["operation"].startswith("ddp step") and "fcn5" in advice["operation"]] == ["host"]  # fmt: skip
    assert here("report", run, "-o", tmp_path / "report.md").code == 0
    assert "ddp, network fcn5" in (tmp_path / "report.md").read_text(encoding="utf-8")
