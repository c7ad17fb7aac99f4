"""Axes and cases: what a plan and a command make of the table, and which cases a plan has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from collbench import backends, collectives
from collbench.bindings.spec import Roles
from collbench.cli.measure import CollectiveOptions, collective_command, plan_of
from collbench.collectives.row import CollectiveCase, collective_case
from collbench.errors import BackendUnavailable, PlanError, RequestError
from collbench.run.cases import cases_of, program_cases, refuse_cadence, unused_parameters
from collbench.run.experiment import roles_of
from collbench.schema.axes import AXES, DTYPES, OPS, STAGINGS, Axis, BackendSupport, Op, PlanKey, Sizes, plan_keys_of
from collbench.schema.plan import Plan, Subject, check_plan, with_axes


def asked(*arguments: str) -> Plan:
    """The plan of `collbench allreduce` with these arguments."""
    with collective_command("allreduce").make_context("allreduce", list(arguments)) as context:
        return plan_of("allreduce", CollectiveOptions(**context.params))


def test_without_flags_every_axis_has_the_default_of_a_plan() -> None:
    assert asked() == Plan(title="allreduce 8 to 4M", collectives=("allreduce",), sizes=asked()["sizes"])
    for axis, plan_key in plan_keys_of("what", "how").items():
        assert plan_key.read(plan_key.typed) == plan_key.default, axis


@pytest.mark.parametrize(
    ("arguments", "key", "values"),
    [
        (("-o", "max,sum"), "ops", ("max", "sum")),
        (("--datatype", "all"), "dtypes", ("all",)),
        (("-r", "3"), "roots", (3,)),
        (("--backend", "fake"), "backends", ("fake",)),
        (("--driver", "python"), "drivers", ("python",)),
        (("--thread-level", "multiple"), "thread_level", "multiple"),
        (("--staging", "pageable"), "staging", ("pageable",)),
        (("--staging", "both"), "staging", STAGINGS),
        (("--algorithm", "allreduce:Tree,Ring"), "algorithms", ("allreduce:Tree,Ring",)),
        (("--protocol", "^LL"), "protocols", ("^LL",)),
        (("--cta-policy", "zero"), "cta_policies", ("zero",)),
        (("-R", "1"), "registration", ("local",)),
        (("--registration", "2"), "registration", ("symmetric",)),
        (("-G", "2"), "cudagraph", 2),
        (("--in-place",), "in_place", (True,)),
        (("--in-place", "both"), "in_place", (False, True)),
        (("--style", "nccl-tests"), "in_place", (False, True)),
        (("--style", "nccl-tests", "--in-place", "no"), "in_place", (False,)),
    ],
)
def test_what_a_flag_puts_into_the_plan(arguments: tuple[str, ...], key: str, values: Any) -> None:
    assert asked(*arguments)[key] == values
    assert msgspec.structs.replace(asked(*arguments), **{key: asked()[key]}) == asked()


def test_a_plan_has_the_keys_of_the_table() -> None:
    keys = [plan_key.key for plan_key in plan_keys_of("what", "how").values()]
    assert [key for key in Plan.__struct_fields__ if key in keys] == keys
    assert {plan_key.key for plan_key in plan_keys_of("where").values()} <= set(Plan.__struct_fields__)


def test_one_more_entry_is_one_more_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(AXES, "lanes", Axis("lanes", "how", "", 1, of=int, plan_key=PlanKey("lanes", (1,))))
    monkeypatch.setitem(AXES, "room", Axis("room", "where", "", plan_key=PlanKey("rooms")))
    made = with_axes(Subject)
    assert made.__struct_fields__ == (
        *Subject.__struct_fields__,
        *(c.key for c in plan_keys_of("what", "how").values()),
    )
    assert msgspec.convert({"lanes": [1, 2]}, made) != made()
    with pytest.raises(msgspec.ValidationError, match="Expected `int`, got `str`"):
        msgspec.convert({"lanes": ["x"]}, made)
    with pytest.raises(msgspec.ValidationError, match="unknown field `rooms`"):
        msgspec.convert({"rooms": []}, made)


def test_an_axis_without_a_field_is_in_the_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(AXES, "lanes", Axis("lanes", "how", "", 1, of=int))
    values = {"backend": "fake", "driver": "python", "thread_level": "single", "op": "sum", "ranks": 2}
    case = collective_case("allreduce", values | {"lanes": 4})
    assert (case["lanes"], case["op"], case.op, case["root"]) == (4, "sum", "sum", None)
    assert case.identity.how["lanes"] == 4
    assert collective_case("allreduce", values | {"lanes": 1}).identity == collective_case("allreduce", values).identity


@pytest.mark.parametrize(
    ("name", "arguments", "unused"),
    [
        ("bcast", ("-o", "max"), {"bcast": ["-o"], "backend fake": []}),
        ("barrier", ("-b", "8", "-d", "int8", "-e", "8"), {"barrier": ["-d", "-b", "-e"], "backend fake": []}),
        ("allreduce", ("--algorithm", "Ring", "-R", "1"), {"allreduce": [], "backend fake": ["--algorithm", "-R"]}),
        ("ps_bcast", ("-G", "1", "--in-place"), {"ps_bcast": ["-G"], "backend fake": []}),
    ],
)
def test_flags_that_mean_nothing_are_named(
    monkeypatch: pytest.MonkeyPatch, name: str, arguments: tuple[str, ...], unused: dict[str, list[str]]
) -> None:
    notices: list[str] = []
    monkeypatch.setattr("collbench.cli.measure.carry_out", lambda plan, output, lines, **_: notices.extend(lines))
    command = collective_command(name)
    with command.make_context(name, ["--backend", "fake", *arguments]) as context:
        command.invoke(context)
    assert notices == [f"ignored: {owner} does not use {', '.join(flags)}." for owner, flags in unused.items() if flags]


def plan(**fields: Any) -> Plan:
    return Plan(**({"collectives": ("allreduce",), "sizes": (8,)} | fields))


def values_of(axis: str, plan: Plan, backend: str) -> tuple[Any, ...]:
    choice = plan_keys_of("what")[axis]
    return choice.values(plan[choice.key], BackendSupport(collectives.get("allreduce"), backends.get(backend), 2))


def test_every_combination_once_in_the_plans_order() -> None:
    cases = cases_of(
        plan(
            drivers=("python", "native"), dtypes=("int8", "float32"), sizes=Sizes(min=8, max=16), in_place=(False, True)
        ),
        "fake",
        3,
    )
    expected = [
        (driver, dtype, size, in_place)
        for driver in ("python", "native")
        for dtype in ("int8", "float32")
        for size in (8, 16)
        for in_place in (False, True)
    ]
    assert [(c.driver, c.dtype, c.size, c.in_place) for c in cases] == expected
    assert {(c.collective, c.backend, c.ranks, c.root, c.op) for c in cases} == {("allreduce", "fake", 3, None, "sum")}


def test_what_is_asked_for_twice_is_measured_once() -> None:
    twice = plan(collectives=("allreduce", "all-reduce"), dtypes=("float", "float32", "all"), sizes=("1K", 1024))
    cases = cases_of(twice, "fake", 2)
    assert len(cases) == len(set(cases)) == len(DTYPES)
    assert cases[0].dtype == "float32"


def test_fields_that_mean_nothing_do_not_multiply() -> None:
    everything = plan(
        collectives=collectives.names(), ops=("all",), roots=(0, 1), dtypes=("int8", "float64"), in_place=(False, True)
    )
    count = dict.fromkeys(collectives.names(), 0)
    for case in cases_of(everything, "fake", 2):
        count[case.collective] += 1
        row = collectives.get(case.collective)
        assert (case.op is None) != row.reduces
        assert (case.root is None) != row.rooted
    assert count == {
        "allreduce": 20, "reduce": 40, "reduce_scatter": 20, "bcast": 8, "gather": 8, "scatter": 8, "allgather": 4,
        "alltoall": 4, "sendrecv": 4, "ps_bcast": 4, "ps_gather": 4, "barrier": 1,
    }  # fmt: skip


def test_a_barrier_is_one_case() -> None:
    (case,) = cases_of(plan(collectives=("barrier",), sizes=(8, 16), dtypes=("all",)), "fake", 2)
    assert case == CollectiveCase(
        collective="barrier", backend="fake", driver="native", thread_level="single", size=0, dtype="int8", op=None,
        root=None, ranks=2,
    )  # fmt: skip


@pytest.mark.parametrize(("asked", "place"), [((False,), False), ((True,), True), ((False, True), False)])
def test_where_there_is_no_in_place_form(asked: tuple[bool, ...], place: bool) -> None:
    """One case; in place only where nothing else was asked for, so that the reason of the skip is shown."""
    (case,) = cases_of(plan(collectives=("ps_gather",), in_place=asked), "fake", 2)
    assert case.in_place is place


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (("float32",), ("float32",)),
        (("half", "float", "double", "char"), ("float16", "float32", "float64", "int8")),
        (("FLOAT64", "Double"), ("float64",)),
        (("all",), tuple(DTYPES)),
        (("int8", "all"), ("int8", *(d for d in DTYPES if d != "int8"))),
    ],
)
def test_dtypes_by_their_proper_names(asked: tuple[str, ...], found: tuple[str, ...]) -> None:
    assert values_of("dtype", plan(dtypes=asked), "fake") == found


@pytest.mark.parametrize(
    ("asked", "found"),
    [(("sum",), ("sum",)), (("MAX", "sum"), ("max", "sum")), (("all",), OPS), (("min", "all"), None)],
)
def test_operations(asked: tuple[str, ...], found: tuple[str, ...] | None) -> None:
    assert values_of("op", plan(ops=asked), "fake") == (found or ("min", "sum", "prod", "max", "avg"))


@pytest.mark.parametrize("backend", ["mpi", "mpi-staged", "mpi-cuda"])
def test_all_operations_are_those_of_the_backend(backend: str) -> None:
    """MPI has no average. Who asks for one by name gets a case, and the reason why it is skipped."""
    assert values_of("op", plan(ops=("all",)), backend) == ("sum", "prod", "min", "max")
    assert values_of("op", plan(ops=("avg", "all")), backend) == ("avg", "sum", "prod", "min", "max")
    assert set(values_of("op", plan(ops=("all",)), "nccl")) == set(OPS)


@pytest.mark.parametrize(
    ("fields", "kind", "message"),
    [
        ({"dtypes": ("float33",)}, PlanError, r"dtype 'float33': unknown. Did you mean float32\?"),
        ({"dtypes": ("",)}, PlanError, "dtype '': unknown. There are: int8"),
        ({"ops": ("add",)}, PlanError, "op 'add': unknown. There are: sum, prod, min, max, avg, all"),
        ({"ops": ("summ",)}, PlanError, r"Did you mean sum\?"),
        ({"ops": ("summ",), "collectives": ("bcast",)}, PlanError, r"Did you mean sum\?"),
        ({"dtypes": ("int3",), "collectives": ("barrier",)}, PlanError, "dtype 'int3': unknown"),
        ({"roots": (2,), "collectives": ("bcast",)}, PlanError, "root 2: there are 2 ranks, 0 to 1"),
        ({"roots": (0, -1), "collectives": ("bcast",)}, PlanError, "root -1: there are 2 ranks, 0 to 1"),
        ({"collectives": ("allreduse",)}, RequestError, r"Did you mean allreduce\?"),
        ({"dtypes": ("all",), "collectives": ("barrier", "nothing")}, RequestError, "'nothing': unknown"),
    ],
)
def test_unknown_names_are_refused(fields: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        cases_of(check_plan(plan(**fields)), "fake", 2)


def test_an_unknown_backend_is_refused_with_the_nearest() -> None:
    with pytest.raises(BackendUnavailable, match=r"backend 'fakee': unknown. Did you mean fake\?"):
        cases_of(plan(dtypes=("all",)), "fakee", 2)


# Axes that only some backends have, cadences that only some have, and who must be a parameter server ------------------

NEW = ("staging", "algorithm", "protocol", "registration", "graph")


@dataclass(frozen=True)
class Made:
    """As much of a backend as expanding asks for."""

    name: str
    axes: frozenset[str] = frozenset()
    streams: bool = False
    ops: tuple[Op, ...] = OPS

    def dtypes(self) -> tuple[str, ...]:
        return ("float32",)


MADE = {
    made.name: made
    for made in (
        Made("plain"),
        Made("staged", frozenset({"staging"})),
        Made("library", frozenset({"algorithm", "protocol", "registration", "graph", "server staging"}), streams=True),
        Made("stream", streams=True),
    )
}


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "get", MADE.__getitem__)


def plan_axes(**fields: Any) -> Plan:
    everything: dict[str, Any] = {
        "collectives": ("allreduce",), "sizes": (8,), "staging": ("pageable", "pinned"), "algorithms": ("", "RING"),
        "protocols": ("LL", ""), "registration": ("none", "symmetric"), "cudagraph": 1,
    }  # fmt: skip
    return Plan(**(everything | fields))


def of(found: tuple[CollectiveCase, ...], *fields: str) -> list[tuple[Any, ...]]:
    return [tuple(getattr(case, field) for field in fields) for case in found]


@pytest.mark.usefixtures("made_up")
def test_a_backend_without_axes_has_one_case() -> None:
    assert of(cases_of(plan_axes(), "plain", 2), *NEW) == [(None, None, None, "none", 0)]


@pytest.mark.usefixtures("made_up")
def test_a_backend_varies_what_it_has() -> None:
    assert of(cases_of(plan_axes(), "staged", 2), *NEW) == [
        ("pageable", None, None, "none", 0), ("pinned", None, None, "none", 0),
    ]  # fmt: skip
    assert of(cases_of(plan_axes(), "library", 2), *NEW) == [
        (None, algorithm, protocol, registration, 1)
        for algorithm in (None, "RING")
        for protocol in ("LL", None)
        for registration in ("none", "symmetric")
    ]


@pytest.mark.usefixtures("made_up")
def test_a_barrier_has_nothing_to_stage() -> None:
    (case,) = cases_of(plan_axes(collectives=("barrier",)), "staged", 2)
    assert case.staging is None


@pytest.mark.usefixtures("made_up")
def test_the_servers_leg_is_staged_and_is_in_no_graph() -> None:
    """Its part over MPI cannot be captured; its host memory is a choice on a backend that stages nothing else."""
    found = cases_of(
        plan_axes(collectives=("ps_bcast",), algorithms=("",), protocols=("",), registration=("none",)), "library", 2
    )
    assert of(found, *NEW) == [(staging, None, None, "none", 0) for staging in ("pageable", "pinned")]


@pytest.mark.usefixtures("made_up")
@pytest.mark.parametrize(
    ("cadence", "cudagraph", "graph"),
    [("isolated", 0, 0), ("isolated", 1, 1), ("streaming", 0, 0), ("streaming", 3, 7)],
)
def test_a_graph_holds_one_operation_or_a_burst(cadence: str, cudagraph: int, graph: int) -> None:
    asked = check_plan(plan_axes(cadence=cadence, cudagraph=cudagraph, burst=7))
    assert {case.graph for case in cases_of(asked, "library", 2)} == {graph}


@pytest.mark.usefixtures("made_up")
def test_several_launches_a_sample_are_not_isolated() -> None:
    with pytest.raises(PlanError, match=r"cudagraph 2: .* 1, or cadence streaming"):
        check_plan(plan_axes(cudagraph=2))


@pytest.mark.usefixtures("made_up")
def test_streaming_needs_a_backend_that_streams() -> None:
    streaming = plan_axes(cadence="streaming", cudagraph=0)
    with pytest.raises(RequestError, match=r"cadence streaming: plain, staged "):
        refuse_cadence(streaming, ["plain", "staged"])
    refuse_cadence(streaming, ["plain", "stream"])
    refuse_cadence(plan_axes(cudagraph=0), ["plain"])


@pytest.mark.usefixtures("made_up")
def test_a_graph_needs_a_backend_that_has_them() -> None:
    with pytest.raises(RequestError, match=r"cudagraph 1: plain, stream .* nccl\."):
        refuse_cadence(plan_axes(), ["plain", "stream"])
    refuse_cadence(plan_axes(), ["plain", "library"])


def roles(*collectives: str, roots: tuple[int, ...] = (0,)) -> Roles:
    return roles_of((cases_of(plan_axes(collectives=collectives, roots=roots), "plain", 3),))


@pytest.mark.usefixtures("made_up")
def test_who_serves() -> None:
    """The root of a broadcast is no server."""
    assert roles("allreduce", "bcast", roots=(0, 1)) == Roles(True, frozenset())
    assert roles("ps_bcast", "ps_gather", roots=(2,)) == Roles(False, frozenset({2}))
    assert roles("ps_bcast", roots=(0, 2)) == Roles(False, frozenset({0, 2}))
    assert roles("ps_gather", "barrier", roots=(1,)) == Roles(True, frozenset({1}))


@pytest.mark.usefixtures("made_up")
def test_roles_are_those_of_all_backends_together() -> None:
    served = cases_of(plan_axes(collectives=("ps_bcast",)), "plain", 3)
    plain = cases_of(plan_axes(), "staged", 3)
    assert roles_of((served, plain)) == Roles(True, frozenset({0}))


@pytest.mark.parametrize(
    ("benchmarks", "unused"),
    [
        (({"name": "fio", "rw": "randread", "read_percent": 70, "fsync": 1},), {"fio": ["fsync", "read_percent"]}),
        (({"name": "fio", "rw": ("randread", "randrw"), "read_percent": 70},), {}),
        (({"name": "fio", "rw": "read", "fsync": 1}, {"name": "fio", "rw": "write"}), {"fio": ["fsync"]}),
        (("fio",), {}),
        (({"name": "stream", "node": ("-1",)}, {"name": "parameter_server", "servers": 0}), {}),
    ],
)
def test_parameters_without_effect_are_known(benchmarks: tuple[Any, ...], unused: dict[str, list[str]]) -> None:
    plan = Plan(benchmarks=benchmarks)
    cases = [identity for case in program_cases(plan, 1) for identity in case.identities]
    assert unused_parameters(plan, cases) == unused
