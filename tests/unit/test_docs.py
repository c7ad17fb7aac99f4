"""The manual against the program: flags, defaults, record fields, plan keys, links, the page of the toy cluster."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from click.testing import CliRunner
from tests.runs import read_run
from tests.unit.k8s_objects import check
from tests.unit.made_runs import made_manifest
from tests.unit.made_suite import of_one_launch
from tests.unit.manual import PAGES, ROOT, rows, section
from tools import reference, toy_slurm
from tools.plan_keys import LAUNCH, SIZES, WORLD

from collbench import collectives, doctor, errors, workloads
from collbench.analysis.runs import Baseline, BaselineCell
from collbench.backends import names as backend_names
from collbench.cli import COMMANDS, cli, run_command
from collbench.errors import to_install
from collbench.launch import placement
from collbench.launch.engines.docker.spec import STEPS
from collbench.launch.engines.k8s.objects import look_job
from collbench.launch.engines.k8s.site import read as read_k8s
from collbench.launch.engines.slurm.script import SlurmSite, read
from collbench.launch.expansion import expand
from collbench.registry import plans
from collbench.report import STYLES, new_style, tables
from collbench.report.styles import COLUMNS
from collbench.report.tables import FORMATS
from collbench.schema.axes import AXES, OPS, Axis, PlanKey, Sizes, Value
from collbench.schema.case import Case, Where, refuse_odd
from collbench.schema.manifest import Allocation, Disk, Experiment, Gpu, Host, Image, Library, Manifest, Protocol
from collbench.schema.plan import LAUNCH_KEYS, WORLD_KEYS, load_launch_plan, load_plan
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
from collbench.schema.store import YardstickReading
from collbench.workloads.program import Program

#: Flags in the manual that belong to other programs: mpirun, torchrun, Slurm, docker, pytest, mypy, bench/; and of the
#: axis that extending.md adds.
FOREIGN = {
    "--map-by", "--bind-to", "--standalone", "--nproc-per-node", "--hypothesis-profile", "--strict", "--env", "--chunk",
    "--partition", "--account", "--exclusive", "--mpi", "--container-image", "--container-unshare", "--no-requeue",
    "--join", "--wait", "--runtime", "--cpus", "--test-only", "--user", "--nodes", "--ntasks", "--cpus-per-task",
    "--gpus", "--time", "--output", "--job-name", "--array", "--requeue", "--hostfile", "--distribution", "--cpu-freq",
    "--constraint", "--hint", "--threads-per-core", "--export", "--only", "--overlap", "--gpu-bind", "--gpus-per-task",
    "--no-cache-dir", "--cap-add", "--shm-size", "--ulimit",
}  # fmt: skip


def names_of_commands() -> set[str]:
    """Every command; of a group, its commands."""
    found = set()
    for name, _, _ in COMMANDS:
        command = reference.command_of(name)
        below = command.commands if isinstance(command, click.Group) else {}
        found |= {f"{name} {inner}" for inner in below} or {name}
    return found


def commands(name: str) -> list[click.Command]:
    """The commands that a section of commands.md describes."""
    known = collectives.names() if name == "COLLECTIVE" else (name,)
    return [reference.command_of(one) for one in known]


def options(command: click.Command) -> list[click.Option]:
    """Those of its flags, with --help."""
    context = click.Context(command, parent=reference.CONTEXT)
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
        assert re.search(rf"\b{name}\b", PAGES["commands.md"]), name
        assert name not in collectives.names() or f"**{name}, " in section("method.md", "Bus factors"), name


def test_tables_of_flags_and_keys_are_those_of_the_code() -> None:
    """`make reference` writes them."""
    for path, text in reference.pages().items():
        assert path.read_text(encoding="utf-8") == text, path.name
    assert (*WORLD, *LAUNCH) == (*WORLD_KEYS, *LAUNCH_KEYS)
    assert tuple(SIZES) == Sizes.__struct_fields__
    for name in TITLES:
        flags = [option.opts[0] for command in commands(name) for option in options(command)]
        documented = re.findall(r"^\| `(-[-\w]+)", section("commands.md", TITLES[name]), re.MULTILINE)
        assert {flag for flag in flags if flag not in ("-h", "--help")} == set(documented), name


def test_no_page_names_a_flag_that_does_not_exist() -> None:
    real = {flag for name in TITLES for one in commands(name) for option in options(one) for flag in option.opts}
    for page, text in PAGES.items():
        assert set(re.findall(r"(?<![-\w])--[a-z][-_a-z]+", text)) <= real | FOREIGN, page


def command_lines(page: str) -> list[list[str]]:
    """The arguments of every collbench in the shell blocks of a page."""
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGES[page], re.MULTILINE | re.DOTALL)
    return [found.split() for found in re.findall(r"(?<![-\w/])collbench(?![-\w/])([^|)>\n]*)", "".join(blocks))]


@pytest.mark.parametrize("page", sorted(PAGES.keys() - {"extending.md"}))
def test_command_lines_are_accepted(page: str) -> None:
    for name, *arguments in command_lines(page):
        (command,) = commands(name)
        with command.make_context(name, list(arguments)) as context:
            assert context.params is not None


#: Pages whose links are tested, and no more.
FURTHER = ("bench/README.md", "integrations/README.md", "results/README.md")


@pytest.mark.parametrize("page", [*PAGES, *FURTHER])
def test_links_lead_somewhere(page: str) -> None:
    path = ROOT / ("docs" if (ROOT / "docs" / page).exists() else "") / page
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", path.read_text(encoding="utf-8")):
        name, _, anchor = target.partition("#")
        if name.startswith("figures/"):  # `make site` draws it, by a command of the page
            assert f" -o {Path(name).name}\n" in PAGES[page]
            continue
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
    "collectives/scan.py", "backends/chunked.py", "scan.py", "site_policies.py", "site_threads.py",
    "workloads/host/zeros.py", "from_nccl_tests.py",
}  # fmt: skip


@pytest.mark.parametrize("page", sorted(PAGES.keys() - {"CHANGELOG.md"}))
def test_files_of_the_program_that_a_page_names_exist(page: str) -> None:
    """By their whole path, by its end, or by their name alone; NAME stands for any."""
    tops = ("src", "tests", "bench", "tools")
    own = [*ROOT.glob("*.py"), *(path for top in tops for path in (ROOT / top).rglob("*.*"))]
    files = [f"/{path.relative_to(ROOT)}" for path in own]
    named = {name.removeprefix("src/collbench/") for name in re.findall(r"(?<![\w/])\w[\w/]*\.(?:py|c)\b", PAGES[page])}
    missing = {name for name in named if "NAME" not in name and not any(file.endswith(f"/{name}") for file in files)}
    assert missing <= NOT_HERE


def test_exit_codes() -> None:
    used = {error.exit_code for error in vars(errors).values() if hasattr(error, "exit_code")} | {0}
    assert {int(code) for code in rows(section("commands.md", "Exit codes"), "code", "meaning")} == used


def test_no_page_has_a_gap_left_to_fill() -> None:
    for name, page in PAGES.items():
        assert not re.search(r"[A-Z]+_(TABLE|INTRO|SENTENCE)", page), name


PRINTED = [
    (page, command, printed)
    for page, text in PAGES.items()
    for block in re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    for command, printed in re.findall(r"^\$ collbench (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)
]


@pytest.mark.parametrize(("page", "command", "printed"), PRINTED, ids=[f"{page} {words}" for page, words, _ in PRINTED])
def test_what_a_page_shows_is_what_the_command_prints(
    page: str, command: str, printed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(tables, "LONGEST_LINE", tables.WIDTH)
    assert CliRunner().invoke(cli, shlex.split(command), catch_exceptions=False).stdout == printed


#: Builds in the first table of the README by their names in the run.
BUILDS = {"intelmpi": "Intel MPI 2021.18.1", "openmpi": "Open MPI 5.0.11", "openmpi-4": "Open MPI 4.1.8",
          "mpich": "MPICH 5.0.2", "mpich-4": "MPICH 4.3.2"}  # fmt: skip


def test_the_first_table_of_the_readme(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ratios of medians to the fastest; bold are those that may be the best."""
    (command,) = re.findall(r"`collbench (advise results[^`]*)`", " ".join(PAGES["README.md"].split()))
    monkeypatch.chdir(ROOT)
    done = CliRunner().invoke(cli, [*shlex.split(command), "--style", "json"], catch_exceptions=False)
    expected = {}
    for operation in json.loads(done.stdout)["advice"]:
        name = {"allreduce": "all-reduce", "bcast": "broadcast"}.get(of := operation["operation"].split()[0], of)
        for row in operation["sizes"]:
            size = {8: "8 B", 65536: "64 KiB", 1048576: "1 MiB"}[row["size"]]
            expected[f"{name} {size}"] = {build: as_ratio(row["options"][build]) for build in BUILDS}
    shown = rows(PAGES["README.md"], "", *BUILDS.values())
    assert {name: dict(zip(BUILDS, cells, strict=True)) for name, cells in shown.items()} == expected


def as_ratio(option: dict[str, Any]) -> str:
    ratio = option["ratio"]
    text = f"{ratio:.1f} times" if ratio >= 1.995 else f"+{(ratio - 1) * 100:.0f} %" if ratio > 1 else "fastest"
    return f"**{text}**" if option["may_be_best"] else text


# Tables of the manual say what the program has ------------------------------------------------------------------------

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


def test_steps_are_those_of_the_engine() -> None:
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


def test_the_plan_can_be_read(tmp_path: Path) -> None:
    plans = []
    for text in re.findall(r"^```toml\n(.*?)^```", PAGES["plans.md"], re.MULTILINE | re.DOTALL):
        (tmp_path / "plan.toml").write_text(text, encoding="utf-8")
        read = load_launch_plan if text.startswith("images") else load_plan
        plans.append(read(tmp_path / "plan.toml"))
    found = [(plan.collectives, plan.workloads) for plan in plans]
    assert found == [
        (("allreduce", "bcast"), ()), ((), ("stream", "sysbench_threads")), ((), ("command",)), (("allreduce",), ()),
    ]  # fmt: skip


def test_workloads_are_listed_with_their_measures_and_sizes() -> None:
    documented = rows(section("plans.md", "Benchmarks"), "name", "measures", "size", "what it is")
    assert [name.strip("`") for name in documented] == list(workloads.names())
    for name in workloads.names():
        row = workloads.get(name)
        measures, size, *_ = documented[f"`{name}`"]
        usually = Case(workload=name, what={axis.name: axis.neutral for axis in row.axes})
        assert measures.startswith(", ".join(f"`{measure.name}`" for measure in row.measures_of(usually)))
        assert all(f"`{measure.name}`" in PAGES["plans.md"] for measure in row.measures)
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
    other_gate = msgspec.structs.replace(second, align="barrier")
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


# Pages on clusters, word for word -------------------------------------------------------------------------------------

SLURM_STEPS = PAGES["tutorials/cluster.md"].split("\n## Without a cluster")[0]


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^ *```{language}\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)


def site_in(text: str, where: Path, name: str) -> str:
    (block,) = (block for block in blocks(text, "toml") if f"[{name}]" in block)
    (where / "site.toml").write_text(re.sub("^ +", "", block, flags=re.MULTILINE))
    return str(where / "site.toml")


def test_the_steps_are_commands_that_run(
    collbench: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    site = read(site_in(SLURM_STEPS, tmp_path, "slurm"))
    commands = [shlex.split(line) for block in blocks(SLURM_STEPS, "sh") for line in block.splitlines()]
    assert site.environments.keys() == {"openmpi", "mpich"}
    for name, path in site.environments.items():
        assert [f"{path}/bin/pip", "install"] in [words[:2] for words in commands], name
    assert f"{site.environments['openmpi']}/bin/pip install '.[openmpi,analysis]'" in SLURM_STEPS
    offline = [words for words in commands if words[:2] == ["collbench", "plan"] or "--dry-run" in words]
    assert len(offline) == 2
    for words in offline:
        at = [str(tmp_path / word) if word == "site.toml" else word for word in words[1:]]
        done = collbench(*at)
        assert done.returncode == 0, done.stderr
    assert all(words[2] in plans() for words in commands if words[1:2] in (["plan"], ["launch"]))


def test_the_site_files_of_the_page_can_be_read(tmp_path: Path) -> None:
    page = PAGES["cluster.md"]
    assert read(site_in(page, tmp_path, "slurm")).runtime == "pyxis"
    site = read_k8s(site_in(page, tmp_path, "k8s"))
    assert site.objects == "mpijob"
    check(look_job(site, "run", "run-look-0", "driver", "torch", ("python",)))


def test_a_package_that_is_missing_is_said_with_the_command_that_was_typed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Not with another one that needs it too."""
    from collbench.analysis import estimate
    from collbench.cli.analyse import advise_command

    def needs(*given: object, **options: object) -> None:
        estimate.needed("scipy.none", "SciPy")

    monkeypatch.setattr(advise_command, "callback", needs)
    monkeypatch.setattr(sys, "argv", ["collbench", "advise", str(tmp_path)])
    assert run_command(True) == 2
    said = capsys.readouterr().err
    assert said.startswith("collbench: advise: SciPy is not installed") and to_install("analysis") in said


@pytest.mark.parametrize(
    ("runtime", "trees"), [("none", ["collbench/mpich"]), ("charliecloud", ["collbench/openmpi", "collbench/mpich"])]
)
def test_the_toy_cluster_writes_a_site_file_for_the_plans_that_it_is_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtime: str, trees: list[str]
) -> None:
    made: list[str] = []
    monkeypatch.setattr(toy_slurm, "unpacked", lambda image, folder, mounted: made.append(image))
    toy_slurm.furnish(tmp_path, ("collbench/openmpi", "collbench/mpich"), runtime, 2)
    site: SlurmSite = read(str(tmp_path / "site.toml"))
    assert made == trees
    assert site.environments == {"openmpi": "/opt/collbench", "mpich": "/shared/images/mpich/opt/collbench"}
    assert list(site.images) == ([] if runtime == "none" else ["openmpi", "mpich"])
    assert site.runtime == runtime and (tmp_path / "collbench").stat().st_mode & 0o777 == 0o777
    plan = load_launch_plan(ROOT / "launch/hosts.toml")
    there = msgspec.structs.replace(plan, engine="slurm", site=str(tmp_path / "site.toml"))
    assert len(expand(there).cells) == 4
