"""The manual says what the program does: commands, flags, defaults, command lines, links, exit codes."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from tests.unit.manual import PAGES, ROOT, rows, section

from collbench import collectives, errors
from collbench.backends import names as backend_names
from collbench.cli import COMMANDS, LazyGroup, cli
from collbench.report import new_style, tables
from collbench.schema.axes import OPS
from collbench.schema.store import read_run

#: Flags in the manual that belong to other programs: mpirun, torchrun, Slurm, docker, pytest, mypy, bench/; and of the
#: axis that extending.md adds.
FOREIGN = {
    "--map-by", "--bind-to", "--standalone", "--nproc-per-node", "--hypothesis-profile", "--strict", "--env", "--chunk",
    "--partition", "--account", "--exclusive", "--mpi", "--container-image", "--container-unshare", "--no-requeue",
    "--join", "--wait", "--runtime", "--cpus", "--test-only", "--user", "--nodes", "--ntasks", "--cpus-per-task",
    "--gpus", "--time", "--output", "--job-name", "--array", "--requeue", "--hostfile", "--distribution", "--cpu-freq",
    "--constraint", "--hint", "--threads-per-core", "--export", "--only", "--overlap",
}  # fmt: skip
PARENT = click.Context(cli, **cli.context_settings)


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
    return [found.split() for found in re.findall(r"(?<![-\w/])collbench(?![-\w/])([^|)\n]*)", "".join(blocks))]


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
    "collectives/scan.py", "backends/chunked.py", "scan.py", "site_policies.py", "site_threads.py",
    "workloads/host/zeros.py",
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


def test_the_table_of_the_readme_is_what_its_run_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first table: a run that is measured again, or a changed table, must be pasted again."""
    monkeypatch.setattr(tables, "LONGEST_LINE", tables.WIDTH)
    (name,) = re.findall(r"`collbench show (results/[-\w]+)` prints\s+it\s+again", PAGES["README.md"])
    run = read_run(ROOT / name)
    printer = new_style("table")
    text = "".join([printer.begin(run.manifest), *map(printer.add, run.records), printer.end()])
    (quoted,) = re.findall(r"^```\n(# collbench .*?)^```", PAGES["README.md"], re.MULTILINE | re.DOTALL)
    assert text.startswith(f"{quoted}\nallreduce sum float32, backend mpi, driver python")


def test_the_comparison_of_the_readme_is_what_compare_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(tables, "LONGEST_LINE", tables.WIDTH)
    (block,) = re.findall(r"^```\n\$ (collbench compare .*?)^```", PAGES["README.md"], re.MULTILINE | re.DOTALL)
    command, printed = block.split("\n", 1)
    assert CliRunner().invoke(cli, command.split()[1:], catch_exceptions=False).stdout == printed
