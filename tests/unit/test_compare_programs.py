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
from collbench.analysis.pairs import Pair, within
from collbench.analysis.runs import observe
from collbench.errors import RequestError
from collbench.schema.case import Case
from collbench.schema.manifest import Library

HOST, INSIDE = program_case(), program_case("multi", "strict")
DISK, OTHER_DISK = "ext4 (vda)", "overlay on ext4 (vdb)"


def written(path: Path, seconds: dict[Case, float], transports: dict[Case, str] | None = None, **fields: Any) -> Path:
    known = transports or {}
    records = {case: launches_of(case, spread(time), transport=known.get(case)) for case, time in seconds.items()}
    return write_run(path, records, **fields)


def with_programs(path: Path, of_host: Sequence[Library], inside: Sequence[Library], *cases: Case) -> Path:
    made = experiment((), images=(image("tools", libraries=tuple(inside)),),
                      environments=(image("tools", libraries=tuple(of_host)),))  # fmt: skip
    return written(path, dict.fromkeys(cases or (HOST, INSIDE), 1.0), experiment=made)


def pairs(run: Path, by: str, *ignored: str) -> list[Pair]:
    return within(observe(run), find_factor(by), frozenset(ignored))


def sides(found: list[Pair]) -> list[tuple[str, str]]:
    return sorted((pair.base_name, pair.other_name) for pair in found)


OLDER = program("1.0.18", sha256="b" * 64)


def test_other_software_and_other_devices_are_refused_with_the_ways_out(
    tmp_path: Path, golden: Callable[[str, str], None]
) -> None:
    """For programs an image with those of the host, or the question by library; for ranks the question alone."""
    of_ranks = [made_case(image="openmpi"), made_case("multi", "strict", image="openmpi")]
    made = experiment(["openmpi"], images=(image(libraries=(library(version="4.1.6"),)),))
    ranks = write_run(tmp_path / "ranks", {case: spread(1e-6) for case in of_ranks}, experiment=made)
    programs = with_programs(tmp_path / "programs", [program()], [OLDER])
    devices = written(tmp_path / "devices", {HOST: 1.0, INSIDE: 1.0}, {HOST: DISK, INSIDE: OTHER_DISK})
    sentences = []
    asked = [(programs, "policy"), (ranks, "policy"), (devices, "policy"), (devices, "library"), (devices, "engine")]
    for run, by in asked:
        with pytest.raises(RequestError) as refused:
            pairs(run, by)
        sentences.append(f"{str(refused.value).replace(str(tmp_path), 'TMP')}\n")
    golden("programs-refusals.txt", "\n".join(sentences))
    assert len(pairs(ranks, "library")) == 1


def test_another_kernel_of_a_blas_is_another_program(tmp_path: Path) -> None:
    kernels = [program(name="scipy-openblas32", kernel=kernel) for kernel in ("SkylakeX", "Haswell")]
    with pytest.raises(RequestError, match=r"library: .* \(SkylakeX\) against .* \(Haswell\)\n"):
        pairs(with_programs(tmp_path, kernels[:1], kernels[1:]), "policy")


def test_the_programs_may_be_the_question_within_one_run(tmp_path: Path, compare: Collbench) -> None:
    run = with_programs(tmp_path, [program()], [OLDER])
    [pair] = pairs(run, "library")
    assert (pair.base_name, pair.other_name, pair.remarks) == ("host", "multi strict", ())
    text = compare(run, "--by", "library").out
    assert "host against multi strict: library: sysbench 1.0.20 against sysbench 1.0.18" in text


def test_what_is_not_software_is_no_part_of_that_question(tmp_path: Path) -> None:
    cases = (HOST, INSIDE, program_case("single", "net"), program_case("multi", "strict", seccomp="unconfined"))
    found = sides(pairs(with_programs(tmp_path, [program()], [OLDER], *cases), "library"))
    assert found == [("host", "multi strict"), ("host", "multi strict seccomp unconfined"), ("host", "single net")]


def test_programs_of_other_benchmarks_do_not_count(tmp_path: Path) -> None:
    others = [program("3.33", name="fio", used_by=("fio",)), library()]
    run = with_programs(tmp_path, [program(), *others], [program()])
    assert len(pairs(run, "policy")) == 1


def test_each_benchmark_is_checked_for_its_own_programs(tmp_path: Path) -> None:
    """The first benchmark has the same programs on both sides; the second has not."""
    second = [case.having(workload="fio") for case in (HOST, INSIDE)]
    fio = [program(version, name="fio", used_by=("fio",)) for version in ("3.33", "3.36")]
    run = with_programs(tmp_path, [program(), fio[0]], [program(), fio[1]], HOST, INSIDE, *second)
    with pytest.raises(RequestError, match=r"library: fio 3.33 against fio 3.36"):
        pairs(run, "policy")


def test_between_two_runs_a_library_is_still_a_fact(tmp_path: Path, compare: Collbench) -> None:
    alone = HOST.having(image=None)
    runs = [write_run(tmp_path / one.version, {alone: launches_of(alone, spread(1.0))}, libraries=(one,))
            for one in (program(), OLDER)]  # fmt: skip
    assert compare(*runs, "--by", "library").code == 0
    assert "--by library" in compare(*runs).err


def test_a_misspelt_library_is_suggested(tmp_path: Path, compare: Collbench) -> None:
    assert "library" in compare(with_programs(tmp_path, [program()], [OLDER]), "--by", "libary").err


def test_two_devices_may_be_ignored_and_are_remarked(tmp_path: Path, compare: Collbench) -> None:
    run = written(tmp_path / "run", {HOST: 1.0, INSIDE: 1.0}, {HOST: DISK, INSIDE: OTHER_DISK})
    assert compare(run, "--by", "policy").code == 2
    found = compare(run, "--by", "policy", "--ignore", "transport")
    assert found.code == 0 and "transport: tools host ext4 (vda); tools multi strict overlay on ext4 (vdb)" in found.out


@pytest.mark.parametrize("inside", ["overlay on ext4 (vda)", "ext4 (vda); the engine keeps it on ext4 (vda1)", "tmpfs",
                                    "overlay"])  # fmt: skip
def test_one_device_or_none_that_is_known_is_compared(tmp_path: Path, inside: str) -> None:
    run = written(tmp_path / "run", {HOST: 1.0, INSIDE: 1.0}, {HOST: DISK, INSIDE: inside})
    assert len(pairs(run, "policy")) == 1


def test_transports_of_ranks_name_no_devices(tmp_path: Path) -> None:
    cases = [made_case(image="openmpi"), made_case("multi", "strict", image="openmpi")]
    records = {case: launches_of(case, spread(1.0), transport=f"ob1 (sm{number})") for number, case in enumerate(cases)}
    assert len(pairs(write_run(tmp_path / "run", records), "policy")) == 1


STORAGES = {name: (program_case(storage=name), program_case("multi", "strict", storage=name))
            for name in ("overlay", "volume")}  # fmt: skip
ON_STORAGES = {STORAGES["overlay"][0]: 1.0, STORAGES["overlay"][1]: 1.5, STORAGES["volume"][0]: 1.0,
               STORAGES["volume"][1]: 1.2}  # fmt: skip


def test_storages_are_compared_place_by_place(tmp_path: Path, compare: Collbench) -> None:
    run = written(tmp_path / "run", ON_STORAGES)
    assert sides(pairs(run, "storage")) == [("overlay", "volume")] * 2
    given = compare(run, "--by", "storage", "--given", "policy=multi", "--all")
    assert "volume vs overlay (multi strict)" in given.out and "1 faster" in given.out
    heading = "sysbench_cpu total, threads 1, tools, volume vs overlay (multi strict)\n"
    assert heading in given.out, "the heading has nothing of what differs but the names of the sides"
    assert "verdicts: 1 faster" in given.out and "1 same" not in given.out


def test_what_is_given_leaves_something(tmp_path: Path, compare: Collbench) -> None:
    run = written(tmp_path / "run", ON_STORAGES)
    nothing = compare(run, "--by", "storage", "--given", "policy=single")
    assert nothing.code == 2 and "--given" in nothing.err and "policy is host, multi" in nothing.err
    assert "unknown factor" in compare(run, "--by", "storage", "--given", "polcy=multi").err
    assert "leave out --given" in compare(run, "--save-baseline", tmp_path / "b", "--given", "policy=host").err
    two = compare(run, written(tmp_path / "other", {STORAGES["overlay"][0]: 1.0}), "--given", "policy=host", "--given",
                  "storage=overlay")  # fmt: skip
    assert two.code == 0 and "left out" not in two.err


def test_policies_are_compared_storage_by_storage(tmp_path: Path, compare: Collbench) -> None:
    _, text = compare(written(tmp_path / "run", ON_STORAGES), "--by", "policy", "--all").out.split("\n\n")
    assert text.splitlines()[0] == "sysbench_cpu total, threads 1, tools, multi strict vs host (docker)"
    for name, percent in (("overlay", "+50.0"), ("volume", "+20.0")):
        (row,) = (line for line in text.splitlines() if line.startswith(name))
        assert percent in row


def test_filters_are_compared_at_one_place(tmp_path: Path, compare: Collbench) -> None:
    free = [program_case(policy, "strict", seccomp="unconfined") for policy in ("multi", "single")]
    cases = {HOST: 1.0, INSIDE: 1.3, program_case("single", "strict"): 1.3, **dict.fromkeys(free, 1.0)}
    run = written(tmp_path / "run", cases)
    assert sides(pairs(run, "seccomp")) == [("default", "unconfined")] * 2
    text = compare(run, "--by", "seccomp").out
    assert "multi strict" in text and "single strict" in text
    found = sides(pairs(run, "policy"))
    assert ("host", "multi strict seccomp unconfined") in found and ("host", "multi strict") in found


def test_advice_names_storages_and_filters(tmp_path: Path) -> None:
    free = program_case("multi", "strict", storage="volume", seccomp="unconfined")
    run = written(tmp_path / "run", {STORAGES["overlay"][1]: 1.5, STORAGES["volume"][1]: 1.2, free: 1.0})
    [advice] = advice_on(run)
    assert advice.question.varying == ("storage", "seccomp")
    names = sorted(map(advice.question.name, advice.question.options))
    assert names == ["storage overlay", "storage volume", "storage volume, seccomp unconfined"]
    assert advice.question.name(advice.ranges[0].option) == "storage volume, seccomp unconfined"
    [given] = advice_on(run, storage="volume", seccomp="default")
    assert len(given.question.options) == 1


def test_rows_of_a_launch_are_beside_the_host_on_the_same_storage(tmp_path: Path, here: Collbench) -> None:
    free = program_case("multi", "strict", storage="volume", seccomp="unconfined")
    text = here("show", written(tmp_path / "run", {**ON_STORAGES, free: 1.0})).out
    overlay, volume = ([line for line in text.splitlines() if line.startswith(name)] for name in STORAGES)
    assert len(overlay) == 2 and "1.500" in overlay[1]
    assert len(volume) == 3 and "1.200" in volume[1] and "strict seccomp unconfined" in volume[2]


def test_csv_and_json_have_storage_and_filter(tmp_path: Path, here: Collbench) -> None:
    case = program_case("multi", "strict", storage="volume", seccomp="unconfined")
    run = written(tmp_path / "run", {case: 1.0})
    [first, *_] = csv.DictReader(io.StringIO(here("show", run, "--style", "csv").out))
    assert (first["storage"], first["seccomp"]) == ("volume", "unconfined")
    record = json.loads(here("show", run, "--style", "json").out)["records"][0]
    assert record["case"]["where"]["storage"] == "volume"
