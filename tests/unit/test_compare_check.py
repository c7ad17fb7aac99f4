"""`collbench compare --fail-on`: which code a check ends with, and that code 0 means that everything was measured."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.unit.conftest import Collbench
from tests.unit.made_runs import Entry, made_case, made_manifest, made_record, spread, write_run

from collbench.schema.case import Case
from collbench.schema.record import Check, Samples
from collbench.schema.store import RunWriter

HOST, MULTI = (made_case(policy, step, image="a") for policy, step in (("host", None), ("multi", "strict")))


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    """Two runs of one case, the second 20 % slower."""
    one, two = (write_run(tmp_path / name, {made_case(): spread(time)}) for name, time in (("a", 1e-5), ("b", 1.2e-5)))
    return one, two


@pytest.mark.parametrize(("asked", "code"), [("slower", 1), ("faster", 0), ("different", 1), ("inconclusive", 1)])
def test_fail_on_decides_the_exit_code(compare: Collbench, runs: tuple[Path, Path], asked: str, code: int) -> None:
    found = compare(*runs, "--fail-on", asked)
    assert found.code == code
    assert bool(code) == (f"--fail-on {asked}: 1 slower; 1 cells compared" in found.err)
    swapped = compare(*runs[::-1], "--fail-on", asked)
    assert swapped.code == {"slower": 0, "faster": 1, "different": 1, "inconclusive": 0}[asked]
    assert compare(*runs, "--fail-on", asked, "--margin", "50%").code == 0


MODES = ("slower", "faster", "different", "inconclusive")


@pytest.mark.parametrize("asked", MODES)
def test_what_was_not_measured_fails_every_check(compare: Collbench, tmp_path: Path, asked: str) -> None:
    """The other side failed, lacks a cell, was measured in another way, or has a wrong result in one launch of many."""
    small, large = made_case(bytes=8), made_case(bytes=64)
    base = write_run(tmp_path / "base", {small: spread(10e-6), large: spread(20e-6)})
    twice = [made_record(large, n, time) for n, time in enumerate(spread(20e-6))]
    wrong = msgspec.structs.replace(twice[3], check=Check(wrong=5))
    others: dict[str, Sequence[Entry]] = {
        "failed": ["12 elements are wrong"] * 10, "missing": [], "failed in one": [*twice[:3], wrong, *twice[4:]],
        "not comparable": [msgspec.structs.replace(one, gate="barrier") for one in twice],
    }  # fmt: skip
    for name, entries in others.items():
        measured: dict[Case, Sequence[Entry]] = {small: spread(10e-6)}
        if entries:
            measured[large] = entries
        other = write_run(tmp_path / name, measured)
        found = compare(base, other, "--fail-on", asked)
        assert (found.code, f"1 {name.partition(' in')[0]}" in found.err) == (1, True), (name, found.err)
    assert compare(base, base, "--fail-on", asked, "--margin", "10%").code == 0


@pytest.mark.parametrize("asked", MODES)
def test_a_summary_that_its_samples_do_not_bear_out_fails_every_check(
    compare: Collbench, tmp_path: Path, asked: str
) -> None:
    case, samples = made_case(), np.full((2, 20), 10_000)
    with RunWriter(tmp_path / "run", made_manifest()) as writer:
        for launch, time in enumerate(spread(20e-6)):
            record = made_record(case, launch, time)
            writer.append(msgspec.structs.replace(record, samples=Samples(n=20, invalid=0, warmup=5)), samples)
    found = compare(tmp_path / "run", tmp_path / "run", "--fail-on", asked, "--margin", "10%")
    assert (found.code, "records that their samples files do not bear out" in found.err) == (1, True)


@pytest.mark.parametrize("asked", MODES)
def test_launches_too_few_for_any_verdict_fail_every_check(compare: Collbench, tmp_path: Path, asked: str) -> None:
    few = write_run(tmp_path / "few", {HOST: spread(1e-6, 5), MULTI: spread(1e-6, 5)})
    found = compare(few, "--by", "policy", "--fail-on", asked)
    assert (found.code, "1 with fewer than 6 launches a side" in found.err) == (1, True)


def test_launches_too_few_for_so_many_cells_fail_the_check_and_say_how_many_it_takes(
    compare: Collbench, tmp_path: Path
) -> None:
    """One cell of 30 is twice as slow: 6 blocks cannot tell, 8 can."""
    for launches, said in ((6, "30 with 6 launches where one cell of 30 takes 8 to be told"), (8, "1 slower")):
        medians: dict[Case, Sequence[Entry]] = {}
        for size in range(30):
            host, multi = (made_case(*at, image="a", bytes=8 * size + 8) for at in (("host",), ("multi", "strict")))
            medians |= {host: spread(10e-6, launches, 0.001),
                        multi: spread(10e-6 if size else 20e-6, launches, 0.001)[::-1]}  # fmt: skip
        run = write_run(tmp_path / str(launches), medians)
        found = compare(run, "--by", "policy", "--fail-on", "slower")
        assert (found.code, f"--fail-on slower: {said}; 30 cells compared" in found.err) == (1, True), found.err


def test_a_side_without_partner_fails_a_check_within_one_run(compare: Collbench, tmp_path: Path) -> None:
    large = made_case("host", image="a", bytes=65536)
    run = write_run(tmp_path / "run", {HOST: spread(10e-6), MULTI: spread(10e-6), large: spread(1e-5)})
    found = compare(run, "--by", "policy", "--fail-on", "slower")
    assert (found.code, "--fail-on slower: 1 missing" in found.err) == (1, True)
