"""Runs of two engines, or over other numbers of hosts: which cells meet, and which facts are the engine's own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.unit.made_runs import experiment, host, image, write_run
from tests.unit.test_compare_pairs import NOTHING, TIMES, placed

from collbench.analysis.compare import compare
from collbench.analysis.factors import find_factor
from collbench.analysis.pairs import Pair, across
from collbench.analysis.runs import observe
from collbench.errors import RequestError
from collbench.report.cells import tables


def of_engines(folder: Path, steps: tuple[str, ...] = ("strict",), policies: Sequence[str] = ("multi", "single"),
               by: str = "engine") -> list[Pair]:  # fmt: skip
    """A plan in Docker, and on Slurm, where there is another step, and of images no ID."""
    inside = [placed(policy, step) for policy in policies for step in steps]
    slurm = [placed(policy, "files", engine="slurm") for policy in policies]
    runs = {"docker": [placed("host"), *inside], "slurm": [placed("host", engine="slurm"), *slurm]}
    base, other = (
        observe(write_run(folder / name, dict.fromkeys(cases, TIMES), experiment=experiment(
            ["openmpi"], engine=name, images=(image(id=f"sha256:{'d' * 12}" if name == "docker" else None),))))
        for name, cases in runs.items()
    )  # fmt: skip
    return across(base, other, find_factor(by) if by else None, NOTHING)


def test_engines_of_two_runs_meet_at_one_policy_where_each_has_a_step_of_its_own(tmp_path: Path) -> None:
    found = of_engines(tmp_path)
    assert [(pair.base.case.where.text, pair.other.case.where.text) for pair in found] == [
        ("host", "host"), ("multi strict", "multi files"), ("single strict", "single files")
    ]  # fmt: skip
    shown = [row[1].replace(f"{tmp_path}/", "") for row in tables(compare(found, 0.02, in_blocks=False))[0].rows]
    assert shown == ["slurm vs docker", *(f"slurm vs docker (slurm {policy} files and docker {policy} strict)"
                                         for policy in ("multi", "single"))]  # fmt: skip
    assert {pair.asked for pair in found} == {("engine: docker against slurm",)}
    assert {pair.remarks for pair in found} == {()}, "an image's ID is the engine's own"


def test_several_cells_of_an_engine_name_what_would_choose_one(tmp_path: Path) -> None:
    hosts = of_engines(tmp_path / "1", steps=("strict", "ipc"))
    assert [pair.base.case.where.text for pair in hosts] == ["host"], "what both have, where a run has several steps"
    with pytest.raises(
        RequestError, match=r"which differ in policy .*Choose one of them: --given policy=single\. --by"
    ):
        of_engines(tmp_path / "2", by="policy")
    with pytest.raises(RequestError, match=r"which differ in policy .*Choose one of them: --given policy=host\. --by"):
        of_engines(tmp_path / "3", steps=("strict", "ipc"), by="policy")


def test_an_id_that_one_engine_does_not_know_is_mentioned(tmp_path: Path) -> None:
    ids = ("sha256:aaa", None, "sha256:bbb")
    runs = [observe(write_run(tmp_path / str(number), {placed("multi", "strict"): TIMES}, experiment=experiment(
        ["openmpi"], images=(image(id=name),)))) for number, name in enumerate(ids)]  # fmt: skip
    [pair] = across(runs[0], runs[1], None, NOTHING)
    assert pair.remarks == ("image-id: aaa against none",)
    with pytest.raises(RequestError, match="image-id: aaa against bbb"):
        across(runs[0], runs[2], None, NOTHING)


def test_numbers_of_hosts_may_be_the_question_between_two_runs(tmp_path: Path) -> None:
    machines = [(host(name="n0"),), (host(name="n0"), host(name="n1"))]
    runs = [observe(write_run(tmp_path / str(len(of_run)), {placed("host", engine="slurm", hosts=len(of_run)): TIMES},
                              hosts=of_run)) for of_run in machines]  # fmt: skip
    [pair] = across(runs[0], runs[1], find_factor("hosts"), NOTHING)
    assert pair.remarks == ()
    with pytest.raises(RequestError, match="no case in common: hosts 1 against 2"):
        across(runs[0], runs[1], None, NOTHING)
