"""The manual says what the program does: flags, defaults, fields, keys, command lines, links."""

from __future__ import annotations

import csv
import dataclasses
import json
import re
from pathlib import Path

import click
import msgspec
import pytest

from collbench import collectives, errors, workloads
from collbench.analysis.baseline import Baseline, BaselineCell
from collbench.analysis.factors import FACTORS as COMPARED
from collbench.analysis.options import FACTORS as ADVISED
from collbench.backends import names as backend_names
from collbench.cli import COMMANDS, LazyGroup, cli
from collbench.launch import placement
from collbench.launch.engines.docker.ladder import STEPS
from collbench.report import STYLES, new_style
from collbench.report.csv_rows import COLUMNS
from collbench.report.tables import FORMATS
from collbench.schema.axes import AXES, OPS, Axis, Value
from collbench.schema.case import Case, Where, refuse_odd
from collbench.schema.choices import Choice
from collbench.schema.gpu import Reading
from collbench.schema.launch_plan import LaunchPlan
from collbench.schema.manifest import Experiment, Gpu, Host, Image, Library, Manifest, Protocol
from collbench.schema.plan import Plan, load_plan
from collbench.schema.record import Confinement, GpuState, Ranks, Record, ResultCheck, Samples, Work
from collbench.schema.sizes import Sizes
from collbench.schema.store import read_run
from collbench.schema.summary import Seconds
from collbench.workloads.program import Program

ROOT = Path(__file__).parents[2]
PAGES = {
    path.name: path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(ROOT.glob("docs/*.md")))
}
#: Flags in the manual that belong to other programs: mpirun, torchrun, pytest, mypy, bench/; and that of the axis that
#: extending.md adds.
FOREIGN = {
    "--map-by", "--bind-to", "--standalone", "--nproc-per-node", "--hypothesis-profile", "--strict", "--env", "--chunk",
}  # fmt: skip
PARENT = click.Context(cli, **cli.context_settings)


def section(page: str, title: str) -> str:
    """The text under a heading, up to the next heading of its level or above; headings in code do not count."""
    text = re.sub(r"```.*?```", lambda code: re.sub("^#", " #", code[0], flags=re.MULTILINE), PAGES[page], flags=re.S)
    match = re.search(rf"^(#+) {re.escape(title)}\n(.*)", text, re.MULTILINE | re.DOTALL)
    assert match is not None, f"{page} has no section {title!r}"
    return re.split(rf"^#{{1,{len(match[1])}}} ", match[2], maxsplit=1, flags=re.MULTILINE)[0]


def rows(text: str, *head: str) -> dict[str, list[str]]:
    """First cell of every row, and the others, of all tables with this head."""
    found: dict[str, list[str]] = {}
    for table in re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE):
        lines = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table.splitlines()]
        if tuple(lines[0]) == head:
            found |= {line[0]: line[1:] for line in lines[2:]}
    assert found, head
    return found


def command_of(words: str) -> click.Command | None:
    """`image build` is the command `build` of the group `image`; no word is collbench itself."""
    found: click.Command | None = cli
    for word in words.split():
        assert isinstance(found, click.Group)
        found = found.get_command(PARENT, word)
    return found


def names_of_commands() -> set[str]:
    """Every command; of a group, its commands."""
    found = set()
    for name, _, _ in COMMANDS:
        command = command_of(name)
        below = command.commands if isinstance(command, click.Group) else {}
        found |= {f"{name} {inner}" for inner in below} or {name}
    return found


def commands(name: str) -> list[click.Command]:
    """The commands that a section of commands.md describes."""
    assert isinstance(cli, LazyGroup)
    known = collectives.names() if name == "COLLECTIVE" else (name,)
    found = [command_of(one) for one in known]
    assert all(found), name
    return [command for command in found if command is not None]


def options(command: click.Command) -> list[click.Option]:
    """Those of its flags, with --help."""
    context = click.Context(command, parent=PARENT)
    # not get_params: click keeps the help option of whoever asked first, perhaps without our parent's names for it
    helping = click.Option(sorted(command.get_help_option_names(context)), is_flag=True)
    return [*(option for option in command.params if isinstance(option, click.Option)), helping]


TITLES = {
    " ".join(word for word in match.split() if word == "COLLECTIVE" or word.islower()): f"`collbench{match}`"
    for match in re.findall(r"^## `collbench(.*)`$", PAGES["commands.md"], re.MULTILINE)
}


def test_every_command_and_name_has_its_place() -> None:
    assert set(TITLES) == {"", "COLLECTIVE", *names_of_commands()}
    listed = section("commands.md", TITLES["COLLECTIVE"]).partition(". ")[0]
    assert re.findall(r"`(\w+)`", listed) == list(collectives.names())
    for name in (*collectives.names(), *backend_names(), *OPS):
        assert f"`{name}`" in PAGES["commands.md"], name
        assert name not in collectives.names() or f"**{name}, " in section("method.md", "Bus factors"), name


@pytest.mark.parametrize("name", TITLES)
def test_flags_and_defaults_are_those_of_the_command(name: str) -> None:
    documented = rows(section("commands.md", TITLES[name]), "flag", "default", "meaning")
    cells = {flag: cells[0] for first, cells in documented.items() for flag in re.findall(r"`(-[-\w]+)", first)}
    for command in commands(name):
        assert set(cells) == {flag for option in options(command) for flag in option.opts}
        for option in options(command):
            default = option.get_default(PARENT)
            if default is not None and not option.is_flag:
                assert all(f"`{default}`" in cells[flag] for flag in option.opts), option.opts


def test_no_page_names_a_flag_that_does_not_exist() -> None:
    real = {flag for name in TITLES for one in commands(name) for option in options(one) for flag in option.opts}
    for page, text in PAGES.items():
        assert set(re.findall(r"(?<![-\w])--[a-z][-_a-z]+", text)) <= real | FOREIGN, page


def command_lines(page: str) -> list[list[str]]:
    """The arguments of every collbench in the shell blocks of a page."""
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGES[page], re.MULTILINE | re.DOTALL)
    return [found.split() for found in re.findall(r"(?<![-\w/])collbench(?![-\w])([^|)\n]*)", "".join(blocks))]


@pytest.mark.parametrize("page", sorted(PAGES.keys() - {"extending.md"}))
def test_command_lines_are_accepted(page: str) -> None:
    for name, *arguments in command_lines(page):
        (command,) = commands(name)
        with command.make_context(name, list(arguments)) as context:
            assert context.params is not None


#: Pages whose links are tested, and no more.
FURTHER = ("bench/README.md", "results/README.md")


@pytest.mark.parametrize("page", [*PAGES, *FURTHER])
def test_links_lead_somewhere(page: str) -> None:
    path = ROOT / ("docs" if (ROOT / "docs" / page).exists() else "") / page
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", path.read_text(encoding="utf-8")):
        name, _, anchor = target.partition("#")
        linked = path.parent / name if name else path
        assert linked.exists(), target
        headings = re.findall(r"^#+ (.*)", linked.read_text(encoding="utf-8"), re.MULTILINE) if anchor else []
        slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
        assert not anchor or anchor in slugs, target


def test_pages_that_other_files_name_exist() -> None:
    named: dict[str, Path] = {}
    for top in ("src", "bench", "launch", "containers", "tools"):
        for path in (ROOT / top).rglob("*.*"):
            if path.suffix in (".py", ".c", ".sh", ".toml", ".j2", ".Dockerfile"):
                text = path.read_text(encoding="utf-8")
                named |= dict.fromkeys(re.findall(r"\bdocs/\w+\.md(?:#[-\w]+)?", text), path)
    assert len(named) > 1
    for target, path in named.items():
        name, _, anchor = target.partition("#")
        assert Path(name).name in PAGES, path
        headings = re.findall(r"^#+ (.*)", PAGES[Path(name).name], re.MULTILINE)
        assert not anchor or anchor in {heading.lower().replace(" ", "-") for heading in headings}, path


#: The files that extending.md adds.
NOT_HERE = {
    "collectives/scan.py", "backends/loopback.py", "backends/chunked.py", "scan.py", "site_policies.py",
    "workloads/dd.py",
}  # fmt: skip


@pytest.mark.parametrize("page", sorted(PAGES.keys() - {"CHANGELOG.md"}))
def test_files_of_the_program_that_a_page_names_exist(page: str) -> None:
    """By their whole path, by its end, or by their name alone; NAME stands for any."""
    own = [*ROOT.glob("*.py"), *(path for top in ("src", "tests", "bench") for path in (ROOT / top).rglob("*.*"))]
    files = [f"/{path.relative_to(ROOT)}" for path in own]
    named = {name.removeprefix("src/collbench/") for name in re.findall(r"(?<![\w/])\w[\w/]*\.(?:py|c)\b", PAGES[page])}
    missing = {name for name in named if "NAME" not in name and not any(file.endswith(f"/{name}") for file in files)}
    assert missing <= NOT_HERE


FIELDS: dict[str, type[msgspec.Struct]] = {
    "Record": Record, "case": Case, "where": Where, "work": Work, "check": ResultCheck,
    "samples (of a record)": Samples, "seconds": Seconds, "ranks": Ranks,
    "Manifest": Manifest, "protocol": Protocol, "library": Library, "host": Host,
    "confinement": Confinement, "experiment": Experiment, "image": Image, "GPU state": GpuState,
    "reading": Reading, "GPU": Gpu, "Baseline files": Baseline, "cell": BaselineCell,
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
    for kind in (Axis, Choice):
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
    assert re.findall(r"`([-\w]+)`", by.partition(", or an axis")[0]) == list(COMPARED)
    assert re.findall(r"`([-\w]+)`", given.partition("; and")[0]) == list(ADVISED)


def test_keys_of_launch_plans() -> None:
    documented = rows(section("plans.md", "Launch plans"), "key", "default", "meaning")
    fields = [field for field in msgspec.structs.fields(LaunchPlan) if field.name not in Plan.__struct_fields__]
    assert [name.strip("`") for name in documented] == [field.name for field in fields]
    for field in fields:
        if field.default is not msgspec.NODEFAULT:
            default = "" if field.default is None else f"`{json.dumps(field.default)}`"
            assert default == documented[f"`{field.name}`"][0], field.name
    steps = rows(section("containers.md", "The ladder"), "step", "adds")
    assert [step.strip("`") for step in steps] == list(STEPS)


def test_policies_are_those_of_the_package_and_their_fields() -> None:
    documented = rows(section("containers.md", "Policies"), "policy", "ranks in containers", "parameter server")
    own = [
        placement.named(name)
        for name in placement.names()
        if (ROOT / "src" / "collbench" / "launch" / "placement" / f"{name}.py").exists()
    ]
    assert {name: cells[0] for name, cells in documented.items()} == {f"`{one.spelling}`": one.summary for one in own}
    assert list(documented) == [f"`{one.spelling}`" for one in own]
    for one in own:
        assert ("of its own" in documented[f"`{one.spelling}`"][1]) == one.server_apart
    fields = rows(section("extending.md", "A policy"), "field of `Policy`", "in the example", "meaning")
    assert [name.strip("`") for name in fields] == [field.name for field in dataclasses.fields(placement.Policy)]


def test_plan_keys_and_defaults() -> None:
    text = section("plans.md", "Plan files")
    documented = rows(text, "key", "default", "meaning")
    fields = (*msgspec.structs.fields(Plan), *msgspec.structs.fields(Sizes))
    assert [name.strip("`") for name in documented] == [field.name for field in fields]
    for field in fields:
        if field.default not in (None, (), msgspec.NODEFAULT) and not isinstance(field.default, Sizes):
            assert f"`{json.dumps(field.default)}`" == documented[f"`{field.name}`"][0], field.name


def test_the_plan_can_be_read(tmp_path: Path) -> None:
    plans = []
    for text in re.findall(r"^```toml\n(.*?)^```", PAGES["plans.md"], re.MULTILINE | re.DOTALL):
        (tmp_path / "plan.toml").write_text(text, encoding="utf-8")
        plans.append(load_plan(tmp_path / "plan.toml"))
    assert [(plan.collectives, plan.workloads) for plan in plans] == [(("allreduce", "bcast"), ()), ((), ("stream",))]


def test_workloads_are_listed_with_their_measures_and_sizes() -> None:
    documented = rows(section("plans.md", "Workloads"), "name", "measures", "size", "what it is")
    assert [name.strip("`") for name in documented] == list(workloads.names())
    for name in workloads.names():
        row = workloads.get(name)
        measures, size, *_ = documented[f"`{name}`"]
        assert measures.startswith(", ".join(f"`{measure.name}`" for measure in row.measures))
        assert all(f"`{usual}`" in size for usual in row.sizes)
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


def test_styles_and_columns() -> None:
    text = section("styles.md", "Styles for records")
    assert [name.strip("`") for name in rows(text, "style", "what it is", "when a row appears")] == list(STYLES)
    listed = text.partition("`csv` has these columns")[2].partition("\n\n")[0]
    assert re.findall(r"`(\w+)`", listed) == list(COLUMNS)
    of_tables = section("styles.md", "Styles for tables").partition(". ")[0]
    assert re.findall(r"`(\w+)`", of_tables) == [*FORMATS, "json"]


def test_exit_codes() -> None:
    used = {error.exit_code for error in vars(errors).values() if hasattr(error, "exit_code")} | {0}
    assert {int(code) for code in rows(section("commands.md", "Exit codes"), "code", "meaning")} == used


def test_no_page_has_a_gap_left_to_fill() -> None:
    for name, page in PAGES.items():
        assert not re.search(r"[A-Z]+_(TABLE|INTRO|SENTENCE)", page), name


def test_the_table_of_the_readme_is_what_its_run_prints() -> None:
    """Its first table: a run that is measured again, or a changed table, must be pasted again."""
    (name,) = re.findall(r"`collbench show (results/[-\w]+)` prints\s+it\s+again", PAGES["README.md"])
    run = read_run(ROOT / name)
    printer = new_style("table")
    text = "".join([printer.begin(run.manifest), *map(printer.add, run.records), printer.end()])
    (quoted,) = re.findall(r"^```\n(# collbench .*?)^```", PAGES["README.md"], re.MULTILINE | re.DOTALL)
    assert text.startswith(f"{quoted}\nallreduce sum float32, backend mpi, driver python")


def test_the_comparison_of_the_readme_is_what_compare_prints() -> None:
    """Its rows, with some of the columns of the golden file."""
    golden = ROOT / "tests" / "golden" / "runs" / "compare-one-container.txt"
    lines = golden.read_text(encoding="utf-8").splitlines()
    printed = list(csv.DictReader(line for line in lines if not line.startswith("*")))
    (block,) = re.findall(r"^```\n\$ (collbench compare .*?)^```", PAGES["README.md"], re.MULTILINE | re.DOTALL)
    command, heading, *table = block.splitlines()
    assert command == "collbench compare results/one-container --by policy"
    quoted = [re.split(r" {2,}", line.strip()) for line in table[3:]]
    assert len(quoted) == 2
    for image, sides, size, launches, difference, adjusted, verdict in quoted:
        (row,) = [row for row in printed if (row["table"], row["image"], row["sides"], row["size (B)"]) ==
                  (heading, image, sides, size)]  # fmt: skip
        low, high = row["difference low"], row["difference high"]
        assert difference == f"{row['difference (%)']} ({low} .. {high})"
        assert [launches, adjusted, verdict] == [row["launches"], row["p adjusted"], row["verdict"]]
