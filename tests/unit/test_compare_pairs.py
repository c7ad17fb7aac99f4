"""Which cell is held against which, and when two sides differ in more than what is asked about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.made_program_runs import program_record
from tests.unit.made_runs import Entry, made_case, made_record, spread, write_run

from collbench.analysis.factors import find_factor
from collbench.analysis.pairs import Differences, Pair, across, alike, within, without_partner
from collbench.analysis.runs import observe
from collbench.errors import RequestError
from collbench.schema.case import Case, case_of

TIMES = [1e-6, 2e-6]
NOTHING = frozenset[str]()


def sides(pairs: list[Pair]) -> list[tuple[str, str]]:
    return [(pair.base_name, pair.other_name) for pair in pairs]


def pairs_of(folder: Path, by: str, *cases: Case, between: tuple[str, ...] = (), ignored: frozenset[str] = NOTHING,
             **fields: Any) -> list[Pair]:  # fmt: skip
    run = write_run(folder / "run", dict.fromkeys(cases, TIMES), **fields)
    return within(observe(run), find_factor(by), ignored, between)


def placed(policy: str, step: str | None = None, **fields: Any) -> Case:
    return made_case(policy, step, **{"image": "openmpi"} | fields)


def test_the_host_is_what_every_place_is_held_against(tmp_path: Path) -> None:
    cases = [placed("single", "strict"), placed("multi", "net"), placed("multi", "strict"), placed("host"),
             placed("packed:2", "strict")]  # fmt: skip
    found = sides(pairs_of(tmp_path, "policy", *cases))
    assert {base for base, _ in found} == {"host"}
    assert sorted(other for _, other in found) == ["multi net", "multi strict", "packed:2 strict", "single strict"]


def test_without_a_host_policies_meet_at_one_step(tmp_path: Path) -> None:
    cases = [placed(policy, step) for policy in ("single", "multi") for step in ("net", "strict")]
    found = sides(pairs_of(tmp_path, "policy", *cases, placed("single", "ipc")))
    assert sorted(found) == [("multi net", "single net"), ("multi strict", "single strict")]


def test_near_and_far_memory_are_never_mixed(tmp_path: Path) -> None:
    cases = [placed(policy, None if policy == "host" else "strict", affinity=memory)
             for policy in ("host", "multi") for memory in ("near", "far")]  # fmt: skip
    found = sides(pairs_of(tmp_path, "policy", *cases))
    assert sorted(found) == [("host", "multi strict"), ("host far", "multi strict far")]


def test_policies_of_two_engines_are_never_mixed(tmp_path: Path) -> None:
    cases = [placed("multi", "strict"), placed("single", "strict", engine="podman")]
    with pytest.raises(RequestError, match="nothing to compare by policy"):
        pairs_of(tmp_path / "1", "policy", *cases)
    assert sides(pairs_of(tmp_path / "2", "policy", *cases, placed("single", "strict"))) == [
        ("multi strict", "single strict")
    ]
    assert len(pairs_of(tmp_path / "3", "policy", *cases, placed("host"))) == 2


def test_a_size_that_differs_too_is_named(tmp_path: Path) -> None:
    cases = [made_case(dtype="float32", size=8), made_case(dtype="float64", size=16, thread_level="multiple")]
    with pytest.raises(RequestError, match=r"To let other factors differ too: --ignore size, --ignore thread-level\.$"):
        pairs_of(tmp_path / "1", "dtype", *cases)
    assert len(pairs_of(tmp_path / "2", "dtype", *cases, ignored=frozenset({"size", "thread-level"}))) == 1


def test_engines_meet_at_one_policy_and_step(tmp_path: Path) -> None:
    cases = [placed(policy, step, engine=engine) for engine in ("docker", "podman")
             for policy, step in (("multi", "net"), ("single", "strict"), ("multi", "strict"))]  # fmt: skip
    found = pairs_of(tmp_path / "1", "engine", *cases)
    assert set(sides(found)) == {
        (f"docker {place}", f"podman {place}") for place in ("multi net", "single strict", "multi strict")
    }
    assert sides(pairs_of(tmp_path / "2", "engine", *cases, between=("podman", "docker"))) == [
        (other, base) for base, other in sides(found)
    ]
    beside_host = sides(pairs_of(tmp_path / "3", "engine", *cases, placed("host")))
    assert sorted(beside_host) == sorted(("host", side) for pair in sides(found) for side in pair)


def test_between_two_sides_the_first_is_the_base(tmp_path: Path) -> None:
    cases = [placed("host"), placed("multi", "strict"), placed("single", "strict")]
    assert sides(pairs_of(tmp_path / "1", "policy", *cases, between=("single", "multi"))) == [
        ("single strict", "multi strict")
    ]
    assert sides(pairs_of(tmp_path / "2", "policy", *cases, between=("multi strict", "host"))) == [
        ("multi strict", "host")
    ]


def test_a_policy_without_a_step_means_each_of_its_steps(tmp_path: Path) -> None:
    cases = [placed("host"), *(placed("multi", step) for step in ("net", "strict")), placed("single", "net")]
    for number, between in enumerate((("host", "multi"), ("multi", "host"))):
        found = sides(pairs_of(tmp_path / str(number), "policy", *cases, between=between))
        assert sorted(map(sorted, found)) == [["host", "multi net"], ["host", "multi strict"]]
        assert {pair[number] for pair in found} == {"host"}


def test_steps_of_one_policy_are_held_against_the_least_isolated(tmp_path: Path) -> None:
    cases = [placed("multi", step) for step in ("strict", "visible", "net")]
    assert sides(pairs_of(tmp_path, "isolation", *cases)) == [("visible", "net"), ("visible", "strict")]


def test_everything_shared_but_files_is_the_least_isolated(tmp_path: Path) -> None:
    cases = [placed("multi", step) for step in ("strict", "visible", "files")]
    assert sides(pairs_of(tmp_path, "isolation", *cases)) == [("files", "visible"), ("files", "strict")]


def test_images_meet_place_by_place_and_size_by_size(tmp_path: Path) -> None:
    cases = [placed(policy, step, image=name, size=size) for name in ("mpich", "openmpi") for size in (8, 64)
             for policy, step in (("host", None), ("multi", "strict"))]  # fmt: skip
    found = pairs_of(tmp_path, "image", *cases)
    assert sides(found) == [("mpich", "openmpi")] * 4
    for pair in found:
        assert pair.base.case.having(image="openmpi") == pair.other.case


@pytest.mark.parametrize(
    ("by", "one", "other"),
    [("backend", "mpi", "torch-gloo"), ("driver", "native", "python"), ("dtype", "float32", "float64"),
     ("op", "max", "sum"), ("staging", "pageable", "pinned"), ("algorithm", "Ring", "Tree"), ("in-place", False, True),
     ("thread-level", "multiple", "single"), ("root", 0, 1), ("registered", False, True), ("graph", 0, 8)],
)  # fmt: skip
def test_every_field_that_may_differ_is_a_question(tmp_path: Path, by: str, one: Any, other: Any) -> None:
    cases = [made_case(**{by.replace("-", "_"): value}) for value in (other, one)]
    [pair] = pairs_of(tmp_path, by, *cases)
    names = [("no", "yes")[value] if isinstance(value, bool) else str(value) for value in (one, other)]
    assert [pair.base_name, pair.other_name] == names
    assert not alike(pair, True).refused


def test_cells_that_differ_in_another_field_too_are_no_pair(tmp_path: Path) -> None:
    cases = [made_case(dtype="float32", size=8), made_case(dtype="float64", size=16)]
    with pytest.raises(RequestError, match=r"nothing to compare by dtype. It has float32, float64"):
        pairs_of(tmp_path / "1", "dtype", *cases)
    with pytest.raises(RequestError, match=r"nothing to compare by backend. It has mpi. Its cells differ in: dtype"):
        pairs_of(tmp_path / "2", "backend", *cases)
    with pytest.raises(RequestError, match=r"between multi and host. It has host"):
        pairs_of(tmp_path / "3", "policy", *cases, between=("multi", "host"))
    assert len(pairs_of(tmp_path / "4", "dtype", *cases, ignored=frozenset({"size"}))) == 1


def test_what_alone_is_in_the_way_of_an_own_axis_is_named(tmp_path: Path) -> None:
    """Servers are ranks: a world with more of them has more ranks, and without that there is something to compare."""
    alone = case_of("parameter_server", {"steps": 10, "servers": 0, "shard": "even", "ranks": 1, "measure": "steps"})
    other = alone.having(servers=1, ranks=3)

    def refused(name: str, *cases: Case) -> str:
        cells: dict[Case, list[Entry]] = {case: [program_record(case, 0, 1.0)] for case in cases}
        observed = observe(write_run(tmp_path / name, cells))
        with pytest.raises(RequestError) as found:
            within(observed, find_factor("servers", own=["servers"]), NOTHING)
        return str(found.value).rpartition("To let other factors differ too: ")[2]

    assert refused("one", alone, alone.having(shard="variable"), other) == "--ignore ranks."
    assert refused("two", alone, other.having(shard="variable")) in (
        "--ignore shard, --ignore ranks.",
        "--ignore ranks, --ignore shard.",
    )


def test_another_dtype_has_no_case_in_common_and_says_what_insists(tmp_path: Path) -> None:
    base = observe(write_run(tmp_path / "a", {made_case(): TIMES}))
    other = observe(write_run(tmp_path / "b", {made_case(dtype="float64"): TIMES}))
    with pytest.raises(RequestError, match=r"dtype float32 against float64. To compare anyway: --ignore dtype"):
        across(base, other, None, NOTHING)
    assert len(across(base, other, None, frozenset({"dtype"}))) == 1
    assert len(across(base, other, find_factor("dtype"), NOTHING)) == 1


def test_two_runs_are_compared_where_both_measured(tmp_path: Path) -> None:
    base = observe(write_run(tmp_path / "a", dict.fromkeys([made_case(size=size) for size in (8, 16, 32)], TIMES)))
    other = observe(write_run(tmp_path / "b", dict.fromkeys([made_case(size=size) for size in (16, 64)], TIMES)))
    assert [pair.base.case["size"] for pair in across(base, other, None, NOTHING)] == [16]


def test_cells_of_a_side_that_have_no_partner_are_counted(tmp_path: Path) -> None:
    """The host has three sizes, the container one of them; the step ipc is no side of this question."""
    host = [made_case("host", image="openmpi", size=size) for size in (8, 16, 32)]
    boxes = [made_case("multi", step, image="openmpi", size=16) for step in ("strict", "ipc")]
    observed = observe(write_run(tmp_path / "run", dict.fromkeys([*host, *boxes], TIMES)))
    factor = find_factor("policy")
    pairs = within(observed, factor, NOTHING, ("host", "multi strict"))
    assert (len(pairs), without_partner(observed, factor, pairs)) == (1, 2)


def test_a_driver_that_fell_back_on_one_side_is_not_comparable(tmp_path: Path) -> None:
    case = made_case()
    base = observe(write_run(tmp_path / "a", {case: TIMES}))
    fell = [made_record(case, launch, 1e-6, driver="python") for launch in range(2)]
    other = observe(write_run(tmp_path / "b", {case: fell}))
    assert refused(across(base, other, None, NOTHING)) == (("driver", "native", "python"),)
    assert not refused(across(base, other, None, frozenset({"driver"})))
    mixed = observe(write_run(tmp_path / "c", {case: [TIMES[0], fell[1]]}))
    assert refused(across(base, mixed, None, NOTHING)) == (("driver", "native", "native and python"),)


def refused(pairs: list[Pair]) -> Differences:
    """Why the first pair is not comparable."""
    return alike(pairs[0], in_blocks=False).refused


@pytest.mark.parametrize(("name", "value"), [("gate", "barrier"), ("cadence", "streaming"), ("clock", "local"),
                                             ("burst", 20)])  # fmt: skip
def test_another_way_of_measuring_is_not_comparable_until_ignored(tmp_path: Path, name: str, value: Any) -> None:
    base = observe(write_run(tmp_path / "a", {made_case(): TIMES}))
    record = made_record(made_case(), 0, 1e-6, **{name: value})
    other = observe(write_run(tmp_path / "b", {made_case(): [record]}))
    [pair] = across(base, other, None, NOTHING)
    ((differs, _, of_other),) = refused([pair])
    assert (differs, of_other) == (name, str(value))
    assert not refused(across(base, other, None, frozenset({name})))


def test_unknown_factors_name_the_nearest() -> None:
    with pytest.raises(RequestError, match=r"--by 'polcy': unknown. Did you mean policy?"):
        find_factor("polcy")
    with pytest.raises(RequestError, match=r"Did you mean library?"):
        find_factor("libary", {"library"})
    assert find_factor("Thread_Level").name == "thread-level"


def test_a_share_of_ranks_that_is_no_plain_number_is_just_another_policy(tmp_path: Path) -> None:
    """Python takes a superscript for a digit, and for no number."""
    cases = [placed("packed:²", "net"), placed("multi", "net"), placed("packed:2", "net")]
    assert sides(pairs_of(tmp_path, "policy", *cases)) == [("multi net", "packed:2 net"), ("multi net", "packed:² net")]


def test_what_never_differs_alone_is_compared_when_the_rest_is_ignored(tmp_path: Path) -> None:
    cells = {made_case(image=image, backend=backend): spread(10e-6)
             for image, backend in (("openmpi", "mpi"), ("mpich", "mpi"), ("torch", "torch-gloo"))}  # fmt: skip
    observed = observe(write_run(tmp_path / "run", cells))
    with pytest.raises(RequestError, match=r"No two of its cells differ in that alone.*--ignore image"):
        within(observed, find_factor("backend"), frozenset())
    found = within(observed, find_factor("backend"), frozenset({"image"}))
    assert [(pair.base_name, pair.other_name) for pair in found] == [("mpi", "torch-gloo")]
