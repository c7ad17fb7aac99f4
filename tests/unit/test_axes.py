"""The table of axes: what a plan and a command make of its entries."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from collbench.cli.measure import CollectiveOptions, collective_command, plan_of
from collbench.collectives.case import collective_case
from collbench.schema.axes import AXES, STAGINGS, Axis, PlanKey, plan_keys_of
from collbench.schema.plan import Plan, Subject, with_axes


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
        (("-R", "1"), "registered", (True,)),
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
