"""Tables of the manual say what the program has: fields of records, axes, keys of plans, workloads, styles."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import msgspec
import pytest
from tests.unit.made_runs import made_manifest
from tests.unit.made_suite import of_one_launch
from tests.unit.manual import PAGES, rows, section

from collbench import doctor, errors, workloads
from collbench.analysis.baseline import Baseline, BaselineCell
from collbench.analysis.factors import FACTORS as COMPARED
from collbench.analysis.options import FACTORS as ADVISED
from collbench.launch import placement
from collbench.launch.engines.docker.spec import STEPS
from collbench.report import STYLES, new_style
from collbench.report.styles import COLUMNS
from collbench.report.tables import FORMATS
from collbench.schema.axes import AXES, Axis, PlanKey, Sizes, Value
from collbench.schema.case import Case, Where, refuse_odd
from collbench.schema.manifest import Allocation, Disk, Experiment, Gpu, Host, Image, Library, Manifest, Protocol
from collbench.schema.plan import LAUNCH_KEYS, WORLD_KEYS, Plan, load_launch_plan, load_plan
from collbench.schema.record import (
    ClockError,
    Confinement,
    CpuTime,
    Duet,
    GpuState,
    MachineRanks,
    Ranks,
    Reading,
    Record,
    ResultCheck,
    Samples,
    Seconds,
    Slice,
    SlowRank,
    Work,
)
from collbench.schema.store import YardstickReading, read_run
from collbench.workloads.program import Program

FIELDS: dict[str, type[msgspec.Struct]] = {
    "Record": Record, "case": Case, "where": Where, "work": Work, "check": ResultCheck,
    "samples (of a record)": Samples, "seconds": Seconds, "duet": Duet, "slice": Slice, "ranks": Ranks,
    "ranks of a machine": MachineRanks, "slow rank": SlowRank,
    "Manifest": Manifest, "protocol": Protocol, "library": Library, "host": Host, "disk": Disk, "CPU time": CpuTime,
    "confinement": Confinement, "experiment": Experiment, "allocation": Allocation, "image": Image,
    "GPU state": GpuState, "reading": Reading, "Yardsticks": YardstickReading, "clock error": ClockError, "GPU": Gpu,
    "Baseline files": Baseline, "cell": BaselineCell,
}  # fmt: skip


@pytest.mark.parametrize("title", FIELDS)
def test_record_fields(title: str) -> None:
    text = section("record.md", title).split("\n#")[0]
    assert [name.strip("`") for name in rows(text, "field", "type", "meaning")] == list(FIELDS[title].__struct_fields__)


def test_fields_that_must_be_there() -> None:
    """Those without a default, and the schema, which tells a run from another file; and defaults that say something."""
    text = section("record.md", "Required fields")
    documented = rows(text, "object", "required")
    found = {re.findall(r"\[(.*)\]", name)[0]: re.findall(r"`(\w+)`", cells[0]) for name, cells in documented.items()}
    of_runs = {title.partition(" (")[0]: kind for title, kind in FIELDS.items() if kind not in (Baseline, BaselineCell)}
    assert found.keys() == of_runs.keys()
    said = set()
    for title, kind in of_runs.items():
        fields = msgspec.structs.fields(kind)
        assert found[title] == [field.name for field in fields if field.required or field.name == "schema"], title
        for field in fields:
            value = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
            if not field.required and field.name not in ("schema", "where") and value:
                said.add((field.name, str(value)))
    assert set(re.findall(r"`(\w+)`\s+is\s+`(\w+)`", text.partition("If a field occurs twice")[0])) == said


#: A value of each type that the table of axes names.
KINDS: dict[str, Value] = {"string": "word", "int": 1, "bool": True}


def accepts(name: str, value: Value) -> bool:
    """Whether a reader takes this value on an axis."""
    where = {"ranks": 2, name: value} if AXES[name].kind == "where" else {"ranks": 2}
    rest = {} if AXES[name].kind == "where" else {AXES[name].kind: {name: value}}
    try:
        case = msgspec.convert({"workload": "any", "where": where} | rest, Case)
        refuse_odd(case, "here")
    except (msgspec.ValidationError, errors.RunReadError):
        return False
    return True


def test_the_table_of_axes() -> None:
    documented = rows(section("record.md", "axes"), "axis", "kind", "type", "neutral", "meaning")
    assert [name.strip("`") for name in documented] == list(AXES)
    for name, (kind, of_type, neutral, meaning) in zip(AXES, documented.values(), strict=True):
        axis = AXES[name]
        assert kind == axis.kind
        assert neutral == ("null" if axis.neutral is None else f"`{json.dumps(axis.neutral)}`"), name
        assert meaning.lower().startswith(axis.means.lower()), name
        assert [accepts(name, value) for value in KINDS.values()] == [one == of_type for one in KINDS], name


def test_fields_of_an_axis() -> None:
    for kind in (Axis, PlanKey):
        documented = rows(
            section("extending.md", "An axis"), f"field of `{kind.__name__}`", "in the example", "meaning"
        )
        named = [name for key in documented for name in re.findall(r"`(\w+)`", key)]
        assert sorted(named) == sorted(field.name for field in dataclasses.fields(kind))


def test_factors_are_those_of_the_table_of_axes() -> None:
    """In `--by` and `--given`, in the order in which a hint names them."""
    of_compare, of_advise = (rows(section("commands.md", f"`collbench {name} RUNS`"), "flag", "default", "meaning")
                             for name in ("compare", "advise"))  # fmt: skip
    by, given = of_compare["`--by FACTOR`"][1], of_advise["`--given FACTOR=VALUE`"][1]
    assert re.findall(r"`([-\w]+)`", by.partition(", or a parameter")[0]) == list(COMPARED)
    assert re.findall(r"`([-\w]+)`", given.partition("; and")[0]) == list(ADVISED)


def test_keys_of_launch_plans() -> None:
    documented = rows(section("plans.md", "Launch plans"), "key", "default", "meaning")
    fields = [field for field in msgspec.structs.fields(Plan) if field.name in LAUNCH_KEYS]
    assert [name.strip("`") for name in documented] == [field.name for field in fields]
    for field in fields:
        if field.default is not msgspec.NODEFAULT and field.name != "images":
            default = "" if field.default is None else f"`{json.dumps(field.default)}`"
            assert default == documented[f"`{field.name}`"][0], field.name
    steps = rows(section("containers.md", "The ladder"), "step", "adds")
    assert [step.strip("`") for step in steps] == list(STEPS)


def test_policies_are_those_of_the_package_and_their_fields() -> None:
    documented = rows(section("containers.md", "Policies"), "policy", "ranks in containers", "parameter server")
    own = [placement.named_policy(name) for name in placement.policy_names() if hasattr(placement, name.upper())]
    assert {name: cells[0] for name, cells in documented.items()} == {f"`{one.spelling}`": one.summary for one in own}
    assert list(documented) == [f"`{one.spelling}`" for one in own]
    for one in own:
        assert ("of its own" in documented[f"`{one.spelling}`"][1]) == one.server_apart
    fields = rows(section("extending.md", "A policy"), "field of `Policy`", "in the example", "meaning")
    assert [name.strip("`") for name in fields] == [field.name for field in dataclasses.fields(placement.Policy)]


def test_plan_keys_and_defaults() -> None:
    text = section("plans.md", "Plan files")
    documented = rows(text, "key", "default", "meaning")
    keys = [field for field in msgspec.structs.fields(Plan) if field.name in WORLD_KEYS]
    fields = (*keys, *msgspec.structs.fields(Sizes))
    assert [name.strip("`") for name in documented] == [field.name for field in fields]
    for field in fields:
        if field.default not in (None, (), msgspec.NODEFAULT) and not isinstance(field.default, Sizes):
            assert f"`{json.dumps(field.default)}`" == documented[f"`{field.name}`"][0], field.name


def test_the_plan_can_be_read(tmp_path: Path) -> None:
    plans = []
    for text in re.findall(r"^```toml\n(.*?)^```", PAGES["plans.md"], re.MULTILINE | re.DOTALL):
        (tmp_path / "plan.toml").write_text(text, encoding="utf-8")
        read = load_launch_plan if text.startswith("images") else load_plan
        plans.append(read(tmp_path / "plan.toml"))
    found = [(plan.collectives, plan.workloads) for plan in plans]
    assert found == [
        (("allreduce", "bcast"), ()),
        ((), ("stream", "sysbench_threads")),
        (("allreduce",), ()),
    ]


def test_workloads_are_listed_with_their_measures_and_sizes() -> None:
    documented = rows(section("plans.md", "Benchmarks"), "name", "measures", "size", "what it is")
    assert [name.strip("`") for name in documented] == list(workloads.names())
    for name in workloads.names():
        row = workloads.get(name)
        measures, size, *_ = documented[f"`{name}`"]
        assert measures.startswith(", ".join(f"`{measure.name}`" for measure in row.measures))
        depends = "4 times the last-level cache" in size  # on the machine
        assert depends or all(f"`{usual}`" in size for usual in row.sizes)
    fields = rows(section("extending.md", "A workload"), "field", "in the example", "meaning")
    named = {name for key in fields for name in re.findall(r"`(\w+)`", key)}
    assert named == {field.name for field in dataclasses.fields(Program)}


def test_columns_of_the_table(stored_run: Path) -> None:
    """Two rows that differ in all that adds a column."""
    run = read_run(stored_run)
    first, second = run.records[:2]
    assert first.case["in_place"] != second.case["in_place"]
    printer = new_style("table")
    other_gate = msgspec.structs.replace(second, gate="barrier")
    text = "".join([printer.begin(run.manifest), printer.add(first), printer.add(other_gate), printer.end()])
    heads = re.split(r" {2,}", text.splitlines()[3].strip())
    assert ", ".join(rows(section("styles.md", "table"), "column", "meaning")).split(", ") == heads


def test_columns_of_the_table_of_a_program() -> None:
    """One that is known by its rate; its figures, and what it has for parameters, are its own."""
    printer = new_style("table")
    text = printer.begin(made_manifest()) + "".join(map(printer.add, of_one_launch()[:2])) + printer.end()
    heads = re.split(r" {2,}", text.splitlines()[3].strip())
    named = ", ".join(rows(section("styles.md", "table, of a program"), "column", "meaning")).split(", ")
    assert [name.replace("CPU s/s", "CPU") for name in named] == heads[2:]


def test_styles_and_columns() -> None:
    text = section("styles.md", "Styles for records")
    assert [name.strip("`") for name in rows(text, "style", "what it is", "when a row appears")] == list(STYLES)
    listed = text.partition("`csv` has these columns")[2].partition("\n\n")[0]
    assert re.findall(r"`(\w+)`", listed) == list(COLUMNS)
    of_tables = section("styles.md", "Styles for tables").partition(". ")[0]
    assert re.findall(r"`(\w+)`", of_tables) == [*FORMATS, "json"]


def test_checks_of_doctor() -> None:
    listed = rows(section("commands.md", "`collbench doctor`"), "check", "what it looks at")
    assert tuple(name.strip("`") for name in listed) == tuple(doctor.checks())
