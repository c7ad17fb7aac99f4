"""Host and container with other programs, other storages, other filters: what `compare` refuses, and what it takes."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.unit.advised_runs import advice_on
from tests.unit.conftest import Collbench
from tests.unit.made_program_runs import launches_of, program, program_case
from tests.unit.made_runs import experiment, image, library, made_case, spread, write_run

from collbench.analysis.factors import find_factor
from collbench.analysis.pairs import Pair, own_sides, within
from collbench.analysis.runs import observe
from collbench.errors import RequestError
from collbench.schema.case import Case
from collbench.schema.manifest import Library

Golden = Callable[[str, str], None]

HOST, INSIDE = program_case(), program_case("multi", "strict")
DISK, OTHER_DISK = "ext4 (vda)", "overlay on ext4 (vdb)"
OLDER = program("1.0.18", sha256="b" * 64)


def written(path: Path, seconds: dict[Case, float], transports: dict[Case, str] | None = None, **fields: Any) -> Path:
    known = transports or {}
    records = {case: launches_of(case, spread(time), transport=known.get(case)) for case, time in seconds.items()}
    return write_run(path, records, **fields)


def with_programs(path: Path, of_host: Sequence[Library], inside: Sequence[Library], *cases: Case) -> Path:
    images, environments = ((image("tools", libraries=tuple(held)),) for held in (inside, of_host))
    made = experiment((), images=images, environments=environments)
    return written(path, dict.fromkeys(cases or (HOST, INSIDE), 1.0), experiment=made)


def on_devices(path: Path, of_host: str, inside: str) -> Path:
    return written(path, {HOST: 1.0, INSIDE: 1.0}, {HOST: of_host, INSIDE: inside})


def pairs(run: Path, by: str) -> list[Pair]:
    return within(observe(run), find_factor(by), frozenset())


def sides(run: Path, by: str) -> list[tuple[str, str]]:
    return sorted((pair.base_name, pair.other_name) for pair in pairs(run, by))


def test_other_software_and_other_devices_are_refused(tmp_path: Path, compare: Collbench, golden: Golden) -> None:
    """For programs an image with those of the host, or the question by library; for ranks the question alone."""
    of_ranks = [made_case(image="openmpi"), made_case("multi", "strict", image="openmpi")]
    made = experiment(["openmpi"], images=(image(libraries=(library(version="4.1.6"),)),))
    ranks = write_run(tmp_path / "ranks", {case: spread(1e-6) for case in of_ranks}, experiment=made)
    programs = with_programs(tmp_path / "programs", [program()], [OLDER])
    devices = on_devices(tmp_path / "devices", DISK, OTHER_DISK)
    kernels = [program(name="scipy-openblas32", kernel=kernel) for kernel in ("SkylakeX", "Haswell")]
    blas = with_programs(tmp_path / "blas", kernels[:1], kernels[1:])
    # the first benchmark has the same programs on both sides; the second has not
    fio = [program(version, name="fio", used_by=("fio",)) for version in ("3.33", "3.36")]
    second = with_programs(tmp_path / "second", [program(), fio[0]], [program(), fio[1]], HOST, INSIDE,
                           *(case.having(workload="fio") for case in (HOST, INSIDE)))  # fmt: skip
    sentences = []
    for run, by in ((programs, "policy"), (ranks, "policy"), (devices, "policy"), (devices, "library"),
                    (devices, "engine"), (blas, "policy"), (second, "policy")):  # fmt: skip
        with pytest.raises(RequestError) as refused:
            pairs(run, by)
        sentences.append(f"{refused.value}\n".replace(str(tmp_path), "TMP"))
    golden("programs-refusals.txt", "\n".join(sentences))
    assert len(pairs(ranks, "library")) == 1
    ignoring = compare(devices, "--by", "policy", "--ignore", "transport")
    assert ignoring.code == 0
    assert "transport: tools host ext4 (vda); tools multi strict overlay on ext4 (vdb)" in ignoring.out


def test_the_programs_may_be_the_question_within_one_run(tmp_path: Path, compare: Collbench) -> None:
    """What is not software is no part of it; between two runs a library is still a fact."""
    run = with_programs(tmp_path / "run", [program()], [OLDER])
    [pair] = pairs(run, "library")
    assert (pair.base_name, pair.other_name, pair.remarks) == ("host", "multi strict", ())
    assert "library: sysbench 1.0.20 against sysbench 1.0.18" in compare(run, "--by", "library").out
    cases = (HOST, INSIDE, program_case("single", "net"), program_case("multi", "strict", seccomp="unconfined"))
    assert sides(with_programs(tmp_path / "places", [program()], [OLDER], *cases), "library") == [
        ("host", "multi strict"), ("host", "multi strict seccomp unconfined"), ("host", "single net")]  # fmt: skip
    alone = HOST.having(image=None)
    runs = [write_run(tmp_path / one.version, {alone: launches_of(alone, spread(1.0))}, libraries=(one,))
            for one in (program(), OLDER)]  # fmt: skip
    assert compare(*runs, "--by", "library").code == 0 and "--by library" in compare(*runs).err


def test_one_device_and_programs_of_other_benchmarks_are_compared(tmp_path: Path) -> None:
    for inside in ("overlay on ext4 (vda)", "ext4 (vda); the engine keeps it on ext4 (vda1)", "tmpfs", "overlay"):
        assert len(pairs(on_devices(tmp_path / inside.replace("/", " "), DISK, inside), "policy")) == 1
    cases = [made_case(image="openmpi"), made_case("multi", "strict", image="openmpi")]
    of_ranks = {case: launches_of(case, spread(1.0), transport=f"ob1 (sm{n})") for n, case in enumerate(cases)}
    assert len(pairs(write_run(tmp_path / "ranks", of_ranks), "policy")) == 1
    others = [program("3.33", name="fio", used_by=("fio",)), library()]
    assert len(pairs(with_programs(tmp_path / "others", [program(), *others], [program()]), "policy")) == 1


OVERLAY, VOLUME = ((program_case(storage=name), program_case("multi", "strict", storage=name))
                   for name in ("overlay", "volume"))  # fmt: skip
ON_STORAGES = dict(zip((*OVERLAY, *VOLUME), (1.0, 1.5, 1.0, 1.2), strict=True))
FREE = program_case("multi", "strict", storage="volume", seccomp="unconfined")


def test_the_sides_of_a_run_are_its_ways_and_not_its_measures(tmp_path: Path) -> None:
    ways = {
        Case(workload="container_start", what={"measure": measure}, how={"process": process, "cache": cache}): seconds
        for measure in ("start", "total")
        for process, seconds in (("bare", 1e-3), ("container:none", 0.4))
        for cache in ("cold", "warm")
    }
    found = own_sides(observe(written(tmp_path / "run", ways)))
    assert {(pair.base_name, pair.other_name) for pair in found} == {("bare", "container:none")}
    assert len(found) == 4
    alone = {case: seconds for case, seconds in ways.items() if (case["process"], case["cache"]) == ("bare", "warm")}
    assert own_sides(observe(written(tmp_path / "alone", alone))) == []


def test_storages_are_compared_place_by_place_and_the_reverse(tmp_path: Path, compare: Collbench) -> None:
    run = written(tmp_path / "run", ON_STORAGES)
    assert sides(run, "storage") == [("overlay", "volume")] * 2
    given = compare(run, "--by", "storage", "--given", "policy=multi", "--all")
    heading = "sysbench_cpu total, threads 1, tools, volume vs overlay (multi strict)\n"
    assert heading in given.out, "the heading has nothing of what differs but the names of the sides"
    assert "verdicts: 1 faster" in given.out and "1 same" not in given.out
    _, text = compare(run, "--by", "policy", "--all").out.split("\n\n")
    assert text.splitlines()[0] == "sysbench_cpu total, threads 1, tools, multi strict vs host (docker)"
    for name, percent in (("overlay", "+50.0"), ("volume", "+20.0")):
        assert [percent in line for line in text.splitlines() if line.startswith(name)] == [True]


def test_what_is_given_leaves_something(tmp_path: Path, compare: Collbench) -> None:
    run = written(tmp_path / "run", ON_STORAGES)
    for words, named in ((("--by", "storage", "--given", "policy=single"), "policy is host or multi"),
                         (("--by", "storage", "--given", "polcy=multi"), "policy?"),
                         (("--save-baseline", tmp_path / "b", "--given", "policy=host"), "--given")):  # fmt: skip
        refused = compare(run, *words)
        assert refused.code == 2 and "--given" in refused.err and named in refused.err
    other = written(tmp_path / "other", {OVERLAY[0]: 1.0})
    two = compare(run, other, "--given", "policy=host", "--given", "storage=overlay")
    assert (two.code, two.err) == (0, "")


def test_filters_are_compared_at_one_place(tmp_path: Path, compare: Collbench) -> None:
    free = [program_case(policy, "strict", seccomp="unconfined") for policy in ("multi", "single")]
    cases = {HOST: 1.0, INSIDE: 1.3, program_case("single", "strict"): 1.3, **dict.fromkeys(free, 1.0)}
    run = written(tmp_path / "run", cases)
    assert sides(run, "seccomp") == [("default", "unconfined")] * 2
    text = compare(run, "--by", "seccomp").out
    assert "multi strict" in text and "single strict" in text
    assert {("host", "multi strict seccomp unconfined"), ("host", "multi strict")} <= set(sides(run, "policy"))


def test_advice_names_storages_and_filters(tmp_path: Path) -> None:
    run = written(tmp_path / "run", {OVERLAY[1]: 1.5, VOLUME[1]: 1.2, FREE: 1.0})
    [advice] = advice_on(run)
    assert advice.question.varying == ("storage", "seccomp")
    names = sorted(map(advice.question.name, advice.question.options))
    assert names == ["storage overlay", "storage volume", "storage volume, seccomp unconfined"]
    assert advice.question.name(advice.ranges[0].option) == "storage volume, seccomp unconfined"
    assert [len(given.question.options) for given in advice_on(run, storage="volume", seccomp="default")] == [1]


def test_a_launch_is_shown_beside_the_host_on_the_same_storage(tmp_path: Path, here: Collbench) -> None:
    run = written(tmp_path / "run", {**ON_STORAGES, FREE: 1.0})
    text = here("show", run).out
    overlay, volume = ([line for line in text.splitlines() if line.startswith(name)] for name in ("overlay", "volume"))
    assert len(overlay) == 2 and "1.500" in overlay[1]
    assert len(volume) == 3 and "1.200" in volume[1] and "strict seccomp unconfined" in volume[2]
    rows = csv.DictReader(io.StringIO(here("show", run, "--style", "csv").out))
    assert ("volume", "unconfined") in [(row["storage"], row["seccomp"]) for row in rows]
    records = json.loads(here("show", run, "--style", "json").out)["records"]
    assert {record["case"]["where"].get("storage") for record in records} == {"overlay", "volume"}
