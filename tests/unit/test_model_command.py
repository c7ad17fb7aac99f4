"""The command model: made-up runs, questions that can be answered, and those that cannot."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from tests.unit.made_runs import Entry, host, made_case, made_record, write_run

from collbench.analysis.models import SHAPES
from collbench.analysis.predictions import PredictionQuestion
from collbench.cli import cli
from collbench.cli.analyse import parse_point
from collbench.errors import CollbenchError
from collbench.schema.case import Case
from collbench.schema.record import Record, Work

SIZES = tuple(8 * 4**power for power in range(9))
LINEAR = next(shape for shape in SHAPES["bcast"] if shape.name == "linear")

#: Of a run: by case what its launches took.
Grid = Mapping[Case, Sequence[Entry]]


def linear(ranks: int, size: int, launch: int) -> float:
    """A linear broadcast of 1 us a message and 10 GB/s, each launch 2 % slower than the one before."""
    messages, travel = LINEAR.terms(ranks, size)
    return (messages * 1e-6 + travel / 1e10) * (1 + launch / 50)


def bcast(ranks: int, size: int, **values: Any) -> Case:
    return made_case(**{"workload": "bcast", "op": None, "root": 0, "ranks": ranks, "size": size} | values)


def timed(case: Case, *seconds: float, transport: str = "tcp") -> list[Record]:
    return [made_record(case, launch, time, transport=transport, driver="native")
            for launch, time in enumerate(seconds)]  # fmt: skip


def grid(ranks: Sequence[int] = (2, 4, 8), sizes: Sequence[int] = SIZES, transport: str = "tcp", **values: Any) -> Grid:
    """Three launches of a linear broadcast."""
    cases = {(p, m): bcast(p, m, **values) for p in ranks for m in sizes}
    return {case: timed(case, *(linear(*of, launch) for launch in range(3)), transport=transport)
            for of, case in cases.items()}  # fmt: skip


def write(folder: Path, cells: Grid, name: str = "run", hosts: int = 1) -> Path:
    """A run on hosts of 64 cores."""
    return write_run(folder / name, cells, hosts=tuple(host(name=f"node{n}", cores=64) for n in range(hosts)))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Linear broadcasts on 2, 4 and 8 ranks."""
    return write(tmp_path, grid())


def say(*arguments: object) -> str:
    """What the command prints."""
    result = CliRunner().invoke(cli, ["model", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def refuse(*arguments: object) -> str:
    """The message that the command ends with, exit code 2."""
    with pytest.raises(CollbenchError) as caught:
        CliRunner().invoke(cli, ["model", *map(str, arguments)], catch_exceptions=False, standalone_mode=False)
    assert caught.value.exit_code == 2
    return str(caught.value)


def document(*arguments: object) -> dict[str, Any]:
    """The JSON of one run."""
    (of_run,) = json.loads(say(*arguments, "--style", "json"))["runs"]
    return dict(of_run)


def predicting(*points: str) -> list[str]:
    return [word for point in points for word in ("--predict", point)]


def test_a_model_says_what_was_put_in(run: Path) -> None:
    (model,) = document(run)["models"]
    (piece,) = model["pieces"]
    assert piece["algorithm"] == "linear" and piece["as_likely"] == []
    assert piece["alpha"] == pytest.approx(1.02e-6, rel=1e-3) and piece["beta"] == pytest.approx(1.02e-10, rel=1e-3)
    assert (piece["low"], piece["high"], model["ranks"]) == (8, SIZES[-1], [2, 4, 8])
    assert {miss["ranks"] for miss in model["ranks_held_out"]} == {2, 4, 8}


@pytest.mark.parametrize("style", ["table", "markdown", "csv", "latex", "json"])
def test_every_style_has_the_prediction(run: Path, style: str) -> None:
    assert "within reach" in say(run, *predicting("ranks=4,bytes=1K"), "--style", style)


def test_several_runs_have_tables_of_their_own(tmp_path: Path) -> None:
    runs = [write(tmp_path, grid(), name) for name in ("one", "two")]
    text = say(*runs)
    assert all(f"{run}: " in text for run in runs)
    assert len(json.loads(say(*runs, "--style", "json"))["runs"]) == 2


def test_predictions_are_extrapolated_where_errors_are_not_known(run: Path) -> None:
    points = ("ranks=8,bytes=2K", "ranks=16,bytes=2K", "ranks=17,bytes=2K", "ranks=8,bytes=8M", "ranks=4,bytes=1T")
    predictions = document(run, *predicting(*points))["predictions"]
    assert [one["standing"] for one in predictions] == ["within reach"] * 2 + ["extrapolated"] * 3
    assert predictions[0]["measured"] == pytest.approx(linear(8, 2048, 1)) and predictions[1]["measured"] is None
    for one in predictions[:2]:
        low, high = one["interval"]
        assert low <= one["seconds"] <= high
    assert [one["interval"] for one in predictions[2:]] == [None] * 3
    assert predictions[2]["seconds"] == pytest.approx(linear(17, 2048, 1), rel=1e-3)
    assert [len(one["remarks"]) for one in predictions] == [0, 0, 1, 1, 1]


def test_predictions_are_by_the_series_of_the_nearest_cell(tmp_path: Path) -> None:
    """Transports that change with the ranks or the sizes are models of their own; none is stretched over the other."""
    run = write(tmp_path, {**grid((2, 4), transport="sm"), **grid((8, 16))})
    answer = document(run, *predicting("ranks=5,bytes=2K", "ranks=4,bytes=1K", "ranks=20,bytes=1K"))
    assert [(one["transport"], one["standing"]) for one in answer["predictions"]] == [
        ("sm", "extrapolated"), ("sm", "within reach"), ("tcp", "extrapolated")
    ]  # fmt: skip
    assert {one["transport"]: one["ranks"] for one in answer["models"]} == {"sm": [2, 4], "tcp": [8, 16]}
    small, large = grid((2,), SIZES[:5], transport="eager"), grid((2,), SIZES[5:], transport="rendezvous")
    run = write(tmp_path, {**small, **large}, "sizes")
    predictions = document(run, *predicting("ranks=2,bytes=3K", "ranks=2,bytes=6K"))["predictions"]
    assert [(one["transport"], one["interval"]) for one in predictions] == [("eager", None), ("rendezvous", None)]


def test_more_ranks_than_cores_need_a_network(tmp_path: Path, run: Path) -> None:
    assert "64 ranks" in refuse(run, *predicting("ranks=65,bytes=1K"))
    several = write(tmp_path, grid(), "several", hosts=2)  # what lies between was measured
    (prediction,) = document(several, *predicting("ranks=200,bytes=1K"))["predictions"]
    assert prediction["standing"] == "extrapolated"


def test_collectives_are_chosen_by_any_spelling(tmp_path: Path) -> None:
    run = write(tmp_path, {**grid(), **grid(workload="allreduce", op="sum", root=None)})
    assert len(document(run)["models"]) == 2
    for spelling in ("allreduce", "all_reduce", "All-Reduce"):
        (one,) = document(run, "--collective", spelling)["models"]
        assert one["case"]["workload"] == "allreduce"
    assert "allreduce?" in refuse(run, "--collective", "allredcue")
    assert "alltoall" in refuse(run, "--collective", "alltoall")


def test_cells_that_say_nothing_are_left_out_and_named(tmp_path: Path) -> None:
    slow, quick, alone = bcast(2, 2 * SIZES[-1]), bcast(2, 4 * SIZES[-1]), bcast(1, 8)
    odd: dict[Case, Sequence[Entry]] = {slow: ["broken"], bcast(4, 12): ["broken"], quick: timed(quick, 0.0),
                                        alone: timed(alone, 1e-7)}  # fmt: skip
    (model,) = document(write(tmp_path, {**grid(), **odd}))["models"]
    assert model["pieces"][0]["alpha"] == pytest.approx(1.02e-6, rel=1e-3) and model["ranks"] == [2, 4, 8]
    left_out = [line.removeprefix("left out: ").partition(" cells: ") for line in model["left_out"]]
    assert sorted((number, why.split()[0]) for number, _, why in left_out) == [
        ("1 of 31", "median"), ("1 of 31", "one"), ("2 of 31", "failed")
    ]  # fmt: skip


def test_runs_that_cannot_be_modelled(tmp_path: Path) -> None:
    assert "no records" in refuse(write(tmp_path, {}, "empty"))
    assert re.search(r"\b1 size .*\(8\)", refuse(write(tmp_path, {bcast(2, 8): [1e-6]}, "one")))
    assert "9 of 9 cells: failed" in refuse(write(tmp_path, {bcast(2, size): ["broken"] for size in SIZES}, "failed"))
    assert "no cell" in refuse(write(tmp_path, {bcast(2, size): [0.0] for size in SIZES}, "zero"))
    assert "nowhere" in refuse(tmp_path / "nowhere")


def test_the_first_screen_is_short(tmp_path: Path) -> None:
    """A sentence of 25 words, grids of 16 rows, three caveats with the number of others, 100 columns."""
    cells: dict[Case, Sequence[Entry]] = {bcast(1, 8): timed(bcast(1, 8), 1e-7)}
    for name in ("bcast", "reduce", "gather", "scatter", "allgather", "alltoall"):
        for driver in "abc":
            cells |= grid(workload=name, driver=driver)
    run = write(tmp_path, cells)
    questions = predicting(*(f"ranks=4,bytes={size}" for size in ("1K", "2K", "1T")))
    for arguments in ([], questions):
        title, *lines = say(run, *arguments).splitlines()
        assert len(title.split()) <= 25
        assert [line for line in lines if len(line) > 100 and str(run) not in line] == []
        (rule,) = (index for index, line in enumerate(lines) if set(line) == {"-", " "})
        notes = [index for index, line in enumerate(lines) if line.startswith("* ")]
        assert notes[0] - rule == 17 and len(notes) <= 8
    assert len(say(run, *questions, "--all")) > 2 * len(say(run, *questions))


def test_a_barrier_needs_no_bytes_and_others_do(tmp_path: Path) -> None:
    barriers = {
        bcast(ranks, 8, workload="barrier", root=None).without(("size", "dtype")): 1e-6 * (ranks - 1).bit_length()
        for ranks in (2, 4, 8, 16)
    }
    records = {case: [msgspec.structs.replace(made_record(bcast(2, 8), 0, seconds), case=case, work=Work(amount=0))]
               for case, seconds in barriers.items()}  # fmt: skip
    run = write(tmp_path, {**grid(), **records})
    (one,) = document(run, *predicting("ranks=32"))["predictions"]
    assert one["seconds"] == pytest.approx(5e-6) and one["bytes"] is None and one["algorithm"] == "dissemination"
    assert "needs bytes" in refuse(run, "--collective", "bcast", *predicting("ranks=8"))


@pytest.mark.parametrize(
    "text",
    ["ranks", "ranks=", "", "bytes=1K", "ranks=1,bytes=1K", "ranks=two,bytes=1K", "ranks=-4", "ranks=\u0663",
     "ranks=99999999999", "rank=4", "ranks=4,ranks=8", "ranks=4,bytes=1X", "ranks=4,bytes=1K,", "ranks=4,bytes=-1"],
)  # fmt: skip
def test_bad_points(tmp_path: Path, text: str) -> None:
    assert refuse(tmp_path, *predicting(text))


def test_points_are_read() -> None:
    assert parse_point(" ranks = 64 , bytes = 1G ") == PredictionQuestion(64, 2**30)
    assert parse_point("ranks=3") == PredictionQuestion(3, None)
