"""`collbench compare --fail-on`: which code a check ends with, and that code 0 means that everything was measured."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.unit.conftest import Collbench
from tests.unit.made_runs import (
    Entry,
    made_case,
    made_failure,
    made_manifest,
    made_record,
    spread,
    twin,
    write_launches,
    write_run,
)

from collbench.schema.case import Case
from collbench.schema.record import ResultCheck, Samples, Work
from collbench.schema.store import RunWriter

NOTHING = Work(amount=0, count=0, bus_factor=1.0)
LATE = Samples(n=200, invalid=150, warmup=5)
HOST, MULTI = (made_case(policy, step, image="a") for policy, step in (("host", None), ("multi", "strict")))


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    """Two runs of one case, the second 20 % slower."""
    one, two = (write_run(tmp_path / name, {made_case(): spread(time)}) for name, time in (("a", 1e-5), ("b", 1.2e-5)))
    return one, two


@pytest.mark.parametrize(("asked", "code"), [("slower", 1), ("faster", 0), ("different", 1), ("unclear", 1)])
def test_fail_on_decides_the_exit_code(compare: Collbench, runs: tuple[Path, Path], asked: str, code: int) -> None:
    found = compare(*runs, "--fail-on", asked)
    assert found.code == code
    assert bool(code) == (f"--fail-on {asked}: 1 slower; 1 cell compared" in found.err)
    swapped = compare(*runs[::-1], "--fail-on", asked)
    assert swapped.code == {"slower": 0, "faster": 1, "different": 1, "unclear": 0}[asked]
    assert compare(*runs, "--fail-on", asked, "--margin", "50%").code == 0


MODES = ("slower", "faster", "different", "unclear")


@pytest.mark.parametrize("asked", MODES)
def test_what_was_not_measured_fails_every_check(compare: Collbench, tmp_path: Path, asked: str) -> None:
    """The other side failed, lacks a cell, was measured in another way, or has a wrong result in one launch of many."""
    small, large = made_case(size=8), made_case(size=64)
    base = write_run(tmp_path / "base", {small: spread(10e-6), large: spread(20e-6)})
    twice = [made_record(large, n, time) for n, time in enumerate(spread(20e-6))]
    wrong = msgspec.structs.replace(twice[3], check=ResultCheck(wrong=5))
    others: dict[str, Sequence[Entry]] = {
        "failed": ["12 elements are wrong"] * 10, "missing": [], "failed in one": [*twice[:3], wrong, *twice[4:]],
        "not comparable": [msgspec.structs.replace(one, gate="barrier") for one in twice],
    }  # fmt: skip
    others |= {
        "1 failed in base": twice, "1 skipped": [*twice[:3], made_failure(large, 3, "no such", "skipped"), *twice[4:]],
        "1 with launches measured differently": [msgspec.structs.replace(twice[0], gate="barrier"), *twice[1:]],
        "1 with unchecked results": [msgspec.structs.replace(one, check=ResultCheck(wrong=None)) for one in twice],
        "1 on a shared GPU": [msgspec.structs.replace(one, shared_gpu=True) for one in twice],
        "1 with most samples late": [msgspec.structs.replace(one, samples=LATE) for one in twice],
        "1 not comparable": [msgspec.structs.replace(one, work=NOTHING) for one in twice],
    }  # fmt: skip
    broken = write_run(tmp_path / "broken", {small: spread(10e-6), large: [*twice[:3], "died", *twice[4:]]})
    for name, entries in others.items():
        measured: dict[Case, Sequence[Entry]] = {small: spread(10e-6)}
        if entries:
            measured[large] = entries
        other = write_run(tmp_path / name, measured)
        said = f"1 {name.removeprefix('1 ').partition(' in ')[0]}" if "another" not in name else name
        found = compare(broken if "base" in name else base, other, "--fail-on", asked)
        assert (found.code, said in found.err) == (1, True), (name, found.err)
    assert compare(base, twin(base), "--fail-on", asked, "--margin", "10%").code == 0


@pytest.mark.parametrize("asked", MODES)
def test_a_summary_that_its_samples_do_not_bear_out_fails_every_check(
    compare: Collbench, tmp_path: Path, asked: str
) -> None:
    case, samples = made_case(), np.full((2, 20), 10_000)
    with RunWriter(tmp_path / "run", made_manifest()) as writer:
        for launch, time in enumerate(spread(20e-6)):
            record = made_record(case, launch, time)
            writer.append(msgspec.structs.replace(record, samples=Samples(n=20, invalid=0, warmup=5)), samples)
    found = compare(tmp_path / "run", twin(tmp_path / "run"), "--fail-on", asked, "--margin", "10%")
    assert (found.code, "10 of 10 samples files do not agree with their records" in found.err) == (1, True)


@pytest.mark.parametrize("asked", MODES)
def test_launches_too_few_for_any_verdict_fail_every_check(compare: Collbench, tmp_path: Path, asked: str) -> None:
    few = write_run(tmp_path / "few", {HOST: spread(1e-6, 5), MULTI: spread(1e-6, 5)})
    found = compare(few, "--by", "policy", "--fail-on", asked)
    assert (found.code, "1 with fewer than 6 launches a side" in found.err) == (1, True)


def test_a_check_of_six_launches_finds_one_cell_of_thirty(compare: Collbench, tmp_path: Path) -> None:
    """One cell of 30 is twice as slow."""
    medians: dict[Case, Sequence[Entry]] = {}
    for size in range(30):
        host, multi = (made_case(*at, image="a", size=8 * size + 8) for at in (("host",), ("multi", "strict")))
        medians |= {host: spread(10e-6, 6, 0.001), multi: spread(10e-6 if size else 20e-6, 6, 0.001)[::-1]}
    found = compare(write_run(tmp_path / "run", medians), "--by", "policy", "--fail-on", "slower")
    assert (found.code, "--fail-on slower: 1 slower; 30 cells compared" in found.err) == (1, True), found.err


def test_a_side_without_partner_fails_a_check_within_one_run(compare: Collbench, tmp_path: Path) -> None:
    large = made_case("host", image="a", size=65536)
    run = write_run(tmp_path / "run", {HOST: spread(10e-6), MULTI: spread(10e-6), large: spread(1e-5)})
    found = compare(run, "--by", "policy", "--fail-on", "slower")
    assert (found.code, "--fail-on slower: 1 missing" in found.err) == (1, True)


@pytest.mark.parametrize("asked", MODES)
def test_what_both_sides_skipped_fails_no_check(compare: Collbench, tmp_path: Path, asked: str) -> None:
    small, large = made_case(size=8), made_case(size=64)
    skipped = [made_failure(large, n, "no such algorithm", "skipped") for n in range(10)]
    run = write_run(tmp_path / "run", {small: spread(10e-6), large: skipped})
    assert compare(run, twin(run), "--fail-on", asked, "--margin", "10%").code == 0


def test_a_run_of_fewer_launches_than_it_was_to_have_fails_a_check(compare: Collbench, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {HOST: spread(1e-5, 8), MULTI: [*spread(1e-5, 8), None, None]})
    found = compare(run, "--by", "policy", "--fail-on", "slower", "--margin", "10%")
    assert (found.code, f"{run} was stopped before its 10 launches: 2 cells have fewer" in found.err) == (1, True)


def test_a_launch_that_only_one_side_has_fails_a_check(compare: Collbench, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {HOST: spread(1e-5, 8), MULTI: spread(1e-5, 8)[:-1]})
    found = compare(run, "--by", "policy", "--fail-on", "slower", "--margin", "10%")
    assert (found.code, "1 with launches that one side lacks" in found.err) == (1, True)


def test_folders_without_records_are_said_and_fail_a_check(compare: Collbench, tmp_path: Path) -> None:
    one, two = (write_launches(tmp_path / name, {made_case(): spread(1e-5)}) for name in ("a", "b"))
    (two / "003" / "records.jsonl").write_text("")
    (two / "005" / "manifest.json").unlink()
    found = compare(one, two, "--fail-on", "slower", "--margin", "10%")
    assert found.code == 1 and "003: no records in it" in found.err
    assert "005: no manifest.json; it is left out" in compare(one, two).err


def test_launches_that_do_not_belong_together_are_not_paired(compare: Collbench, tmp_path: Path) -> None:
    one, two, three = (write_launches(tmp_path / name, {made_case(): spread(1e-5)}, created=f"2026-01-0{day}T00:00:00")
                       for name, day in (("a", 1), ("b", 1), ("c", 2)))  # fmt: skip
    assert compare(one, two, "--in-blocks").code == 0
    late = compare(one, three, "--in-blocks")
    assert (late.code, "were not measured alternately: according to their manifests" in late.err) == (2, True)
    (two / "003").rename(two / "x03")
    found = compare(one, two, "--in-blocks")
    assert (found.code, "hold different launches: 003, x03 in only one of them" in found.err) == (2, True)


def test_no_baseline_is_made_of_what_failed(compare: Collbench, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {made_case(): [*spread(1e-5), "died"]})
    found = compare(run, "--save-baseline", tmp_path / "b.json")
    assert (found.code, "1 cell failed in some launches. Measure it again" in found.err) == (2, True)
    assert not (tmp_path / "b.json").exists()


def test_a_baseline_whose_burst_is_no_number_is_refused(compare: Collbench, tmp_path: Path) -> None:
    run, kept = write_run(tmp_path / "run", {made_case(): spread(1e-5)}), tmp_path / "b.json"
    assert compare(run, "--save-baseline", kept).code == 0
    kept.write_text(re.sub(r'("burst",\s*)"1"', r'\1"many"', kept.read_text()))
    found = compare(run, "--baseline", kept)
    assert (found.code, "a burst that is not a number of operations" in found.err) == (2, True)


def test_a_baseline_with_a_way_that_is_not_listed_is_refused(compare: Collbench, tmp_path: Path) -> None:
    run, kept = write_run(tmp_path / "run", {made_case(): spread(1e-5)}), tmp_path / "b.json"
    assert compare(run, "--save-baseline", kept).code == 0
    document = json.loads(kept.read_text())
    for how, way in (([], 0), (document["cells"][0]["how"], 1)):
        document["cells"][0] |= {"how": how, "ways": [way] * 10}
        kept.write_text(json.dumps(document))
        found = compare(run, "--baseline", kept)
        assert (found.code, f"a launch was measured in way {way}" in found.err) == (2, True)


@pytest.mark.parametrize("asked", MODES)
def test_times_that_drift_fail_every_check(compare: Collbench, tmp_path: Path, asked: str) -> None:
    """Two runs, one after the other: the machine slows down by 30 % meanwhile, which hides any difference."""
    times = [1e-5 * (1 + 0.015 * n) for n in range(20)]
    one, two = (
        write_run(tmp_path / name, {made_case(): part}) for name, part in (("a", times[:10]), ("b", times[10:]))
    )
    found = compare(one, two, "--fail-on", asked)
    assert (found.code, "1 unclear because times drift" in found.err) == (1, True), found.err


def test_launches_that_are_far_slower_fail_a_check_though_the_median_is_the_same(
    compare: Collbench, tmp_path: Path
) -> None:
    steady = spread(1e-5, 60, 0.002)
    jumping = [time * (2 if n % 3 == 0 else 1) for n, time in enumerate(steady)]
    run = write_run(tmp_path / "run", {HOST: steady, MULTI: jumping})
    found = compare(run, "--by", "policy", "--fail-on", "slower")
    assert found.code == 1 and "1 with more launches" in found.err, found.err
    quieter = write_run(tmp_path / "quieter", {HOST: jumping, MULTI: steady})
    assert compare(quieter, "--by", "policy", "--fail-on", "slower").code == 0
