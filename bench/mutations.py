"""Which small changes of the code the fast tests notice: the share of random mutations that they kill, by package.

    python bench/mutations.py schema timing            all of the sample
    python bench/mutations.py run --minutes 20         as much of it as fits
    python bench/mutations.py run --survivors          those that survived last time, after more tests were written
    python bench/mutations.py                          the page anew, from what was found before

Needs cosmic-ray (8.7) and coverage beside what the tests need. `[tool.mutations]` in pyproject.toml holds seed, sample
and the tests of each package. Works in a copy of the tracked files. The tests of the package run once under coverage;
then each mutation is tried with the tests that reached its line and those named after its file, or, where there are
none, with those that start processes of their own; a line that runs on import also with those that read the source. A
line that no test reaches counts as survived. Annotations are not mutated. The order is random, so what was tried within
the time is a random sample of all.
"""

from __future__ import annotations

import argparse
import ast
import datetime
import difflib
import importlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from cosmic_ray.commands import init
from cosmic_ray.mutating import use_mutation
from cosmic_ray.plugins import get_operator
from cosmic_ray.work_db import WorkDB
from cosmic_ray.work_item import MutationSpec
from results import HERE, keep, table

ROOT = HERE.parent
PYTEST = [
    "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", "-p", "pytest_timeout",
    "-m", "not slow and not mpi and not docker",
]  # fmt: skip
RESULTS = HERE / "results-mutations.json"
EQUIVALENT = HERE / "equivalent-mutations.toml"

#: Imported once, before a process is forked for each mutation; nothing of collbench.
PRELOADED = ("click", "docker", "hypothesis.strategies", "ml_dtypes", "msgspec", "numpy", "scipy.stats", "tabulate")

NOTES = """\
`share` is of those that were tried: the first mutations of a random order by the seed, as many as the time was for,
with the tests that there were then: a second sample of a package was tried after tests had been added for the first.
Of n that were tried, the share is good to some 100 / sqrt(n) points. `equivalent` are those that change nothing that
could be seen: named one by one, with the reason, in equivalent-mutations.toml and below; `of the others` leaves them
out.
`killed later` counts those too that new tests kill, written because of the survivors: with them the share says no more
how many of the untried ones are killed. The fast tests of a package are listed in pyproject.toml and in the JSON file
beside this one, with every mutation tried.
"""

#: Modules of tests that come last, because they take longest.
SLOW = ("tests.contract", "tests.property", "tests.golden")

#: Names of tests by line of a file.
Lines = dict[int, list[str]]


def copy_to(folder: Path) -> None:
    """The tracked files as they are now, and what is compiled. Compiled files are valid by content, not by time."""
    folder.chmod(0o755)  # some tests start processes of another user
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    libraries = [str(path.relative_to(ROOT)) for path in ROOT.glob("src/collbench/*/*.so")]
    for name in [name for name in names.split("\0") if name and (ROOT / name).exists()] + libraries:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name, follow_symlinks=(ROOT / name).is_file())
    compiled = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "checked-hash", "src", "tests"]
    subprocess.run(compiled, cwd=folder, check=True)


def reached(folder: Path, tests: list[str]) -> dict[str, Lines]:
    """By file and line the tests that ran it, from one run of all, which must pass. Named "" where on import."""
    settings, found = folder / "coverage.ini", folder / "coverage.json"
    settings.write_text("[run]\ndynamic_context = test_function\nsource = src/collbench\n", encoding="utf-8")
    program = [sys.executable, "-m", "coverage"]
    subprocess.run([*program, "run", f"--rcfile={settings}", *PYTEST, *tests], cwd=folder, check=True)
    subprocess.run([*program, "json", "-q", "--show-contexts", "-o", str(found)], cwd=folder, check=True)
    files = json.loads(found.read_text(encoding="utf-8"))["files"]
    return {name: {int(line): names for line, names in one["contexts"].items()} for name, one in files.items()}


def annotated(path: Path) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Where a file's annotations begin and end: line from 1 and column."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    notes = [getattr(node, "annotation", None) or getattr(node, "returns", None) for node in nodes]
    return [((n.lineno, n.col_offset), (n.end_lineno or 0, n.end_col_offset or 0)) for n in notes if n is not None]


def mutations(folder: Path, package: str) -> Iterator[MutationSpec]:
    """All of a package, in an order that does not change."""
    paths = sorted((folder / "src" / "collbench" / package).rglob("*.py"))
    work = WorkDB(folder / f"{package}.sqlite", WorkDB.Mode.create)
    init(paths, work, {})
    found = [mutation for item in work.work_items for mutation in item.mutations]
    work.close()
    notes = {path: annotated(path) for path in paths}
    for one in sorted(found, key=lambda one: (str(one.module_path), one.operator_name, one.occurrence)):
        if not any(first <= one.start_pos < last for first, last in notes[one.module_path]):
            yield one


def tests_of(mutation: MutationSpec, by_line: Lines, chosen: dict[str, list[str]]) -> list[str]:
    """The tests that ran its line; where it ran on import, or holds no code of its own, those that ran any of the file.

    And the tests named after the file, some of which may start a process. Where there are none, those of `processes`.
    Where it ran on import those too that read the source.
    """
    here = {name for line in range(mutation.start_pos[0], mutation.end_pos[0] + 1) for name in by_line.get(line, ())}
    on_import = here <= {""}
    if on_import:
        here = {name for names in by_line.values() for name in names}
    found = sorted((name.rpartition(".") for name in here if name), key=lambda name: (name[0].startswith(SLOW), name))
    own = f"tests/unit/test_{mutation.module_path.stem}.py"
    named = [f"{module.replace('.', '/')}.py::{function}" for module, _, function in found]
    reading = chosen["source"] if on_import else []
    return [*reading, *([*named, *([own] if own in chosen["tests"] else [])] or chosen["processes"])]


def noticed(tests: list[str], limit: float) -> Literal["failed", "hung", ""]:
    """Whether a fork of this process, which has imported what takes long, fails these tests or takes too long.

    On a busy machine good tests may take too long: what hung is marked in the JSON file.
    """
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setsid()
            silence = os.open(os.devnull, os.O_RDWR)
            for number in range(3):
                os.dup2(silence, number)
            code = int(pytest.main([*PYTEST[2:], *tests]))
        finally:
            os._exit(code)
    until = time.monotonic() + limit
    while time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return "failed" if status != 0 else ""
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "hung"


def try_one(folder: Path, mutation: MutationSpec, tests: list[str], limit: float) -> dict[str, Any]:
    """What a mutation changed, and whether the tests noticed. Without any they did not."""
    operator = get_operator(mutation.operator_name)(**mutation.operator_args)
    with use_mutation(mutation.module_path, operator, mutation.occurrence) as (before, after):
        how = noticed(tests, limit) if tests else ""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")
    changed = [line for line in lines if line[:1] in "-+" and line[:3] not in ("---", "+++")]
    told = {"file": str(mutation.module_path.relative_to(folder)), "line": mutation.start_pos[0]}
    which = {"operator": mutation.operator_name, "occurrence": mutation.occurrence, "change": changed}
    return {**told, **which, "killed": how != "", "hung": how == "hung", "tests": len(tests)}


def key(one: dict[str, Any]) -> tuple[Any, ...]:
    """Which mutation it is."""
    return one["file"], one["operator"], one["occurrence"]


def same(mutation: MutationSpec, folder: Path, told: dict[str, Any]) -> bool:
    """Whether it is one that was tried before."""
    return key(told) == (str(mutation.module_path.relative_to(folder)), mutation.operator_name, mutation.occurrence)


def work_in(folder: Path) -> None:
    """From now on this process and those that it starts take collbench from there."""
    os.chdir(folder)
    sys.path.insert(0, str(folder / "src"))
    os.environ |= {"PYTHONPATH": str(folder / "src"), "PYTHONDONTWRITEBYTECODE": "1",
                   "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "OPENBLAS_NUM_THREADS": "1"}  # fmt: skip
    for module in PRELOADED:
        importlib.import_module(module)
    del os.environ["OPENBLAS_NUM_THREADS"]  # numpy has read it, and some tests assert which variables there are


def try_package(package: str, settings: dict[str, Any], asked: argparse.Namespace, before: dict[str, Any]) -> Any:
    """The sample of a package, until it or the time ends; or the survivors of `before`, again."""
    chosen = settings["packages"][package]
    chosen = chosen | {"source": [name.format(package=package) for name in settings["source"]]}
    with tempfile.TemporaryDirectory(prefix="collbench-mutations-") as name:
        folder = Path(name)
        copy_to(folder)
        work_in(folder)
        everything = list(mutations(folder, package))
        lines = reached(folder, chosen["tests"])
        if asked.survivors:
            known = [one for one in before["tried"] if not one["killed"]]
            sample = [one for one in everything if any(same(one, folder, other) for other in known)]
        else:
            sample = random.Random(asked.seed).sample(everything, min(asked.sample, len(everything)))  # noqa: S311
        tried, until = [], time.monotonic() + 60 * asked.minutes
        for mutation in sample:
            if time.monotonic() > until:
                break
            by_line = lines.get(str(mutation.module_path.relative_to(folder)), {})
            try:
                tried.append(try_one(folder, mutation, tests_of(mutation, by_line, chosen), settings["limit"]))
            except AttributeError:  # cosmic-ray cannot replace an exception with a dot in its name
                continue
            print(package, len(tried), "of", len(sample), tried[-1], file=sys.stderr, flush=True)
        os.chdir(ROOT)
        sys.path.remove(str(folder / "src"))
    at = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M}"
    if asked.survivors:
        again = {key(one): one["killed"] for one in tried}
        seen = [one | {"killed_later": again.get(key(one), one.get("killed_later", False))} for one in before["tried"]]
        return before | {"tried": seen, "again": at}
    return {"package": package, "mutations": len(everything), "seed": asked.seed, "at": at, "tests": chosen["tests"],
            "tried": tried}  # fmt: skip


def equivalent() -> dict[tuple[str, str, str], str]:
    """By file and both lines, why a mutation changes nothing that could be seen."""
    known = tomllib.loads(EQUIVALENT.read_text(encoding="utf-8"))["mutation"]
    return {(one["file"], one["was"], one["is"]): one["why"] for one in known}


def lines_of(one: dict[str, Any]) -> tuple[str, str, str]:
    """File, and what stood there before and after, of a mutation."""
    was, now = (" ".join(line[1:].strip() for line in one["change"] if line[0] == sign) for sign in "-+")
    return one["file"], was.strip(), now.strip()


def page(data: dict[str, Any]) -> str:
    """The table, every survivor that is left, and those that are equivalent."""
    rows, left, known = [], [], equivalent()
    same: dict[tuple[str, str, str], str] = {}
    for found in sorted(data["samples"].values(), key=lambda found: (found["package"], found["at"])):
        killed, n = sum(one["killed"] for one in found["tried"]), len(found["tried"])
        alive = [one for one in found["tried"] if not one["killed"] and not one.get("killed_later")]
        never = [one for one in alive if lines_of(one) in known]
        later = str(n - len(alive)) if "again" in found else "-"
        shares = (share(killed, n), str(len(never)), share(killed, n - len(never)))
        rows.append([found["package"], str(found["mutations"]), str(n), str(killed), *shares, later,
                     str(found["seed"]), found["at"]])  # fmt: skip
        left += [f"- `{one['file']}:{one['line']}` ({one['tests']} tests):\n\n" + indented(one)
                 for one in alive if one not in never]  # fmt: skip
        same |= {lines_of(one): f"- `{one['file']}`: {known[lines_of(one)]}:\n\n" + indented(one) for one in never}
    head = ["package", "mutations", "tried", "killed", "share", "equivalent", "of the others", "killed later", "seed",
            "at (UTC)"]  # fmt: skip
    return (
        f"# Mutations that the fast tests kill\n\n{table(head, rows)}\n{NOTES}\n## Survivors\n\n{''.join(left)}"
        f"## Equivalent\n\n{''.join(same.values())}"
    )


def share(killed: int, n: int) -> str:
    """As a percentage."""
    return f"{100 * killed / n:.0f} %" if n else "-"


def indented(one: dict[str, Any]) -> str:
    """A change as Markdown's code."""
    return "".join(f"      {line}\n" for line in one["change"]) + "\n"


def main() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mutations"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="*", help="without any, the page is made anew")
    parser.add_argument("--seed", type=int, default=settings["seed"])
    parser.add_argument("--sample", type=int, default=settings["sample"])
    parser.add_argument("--minutes", type=float, default=600.0, help="for the mutations of each package")
    parser.add_argument("--survivors", action="store_true", help="only those that survived last time")
    asked = parser.parse_args()
    if unknown := set(asked.packages) - set(settings["packages"]):
        parser.error(f"no package {', '.join(sorted(unknown))}; there are {', '.join(sorted(settings['packages']))}")
    if not asked.packages:
        keep("mutations", page(stored()), stored())
    for package in asked.packages:
        name = f"{package} {asked.seed}"
        found = try_package(package, settings, asked, stored()["samples"].get(name, {}))
        data = stored()
        data["samples"][name] = found
        keep("mutations", page(data), data)


def stored() -> dict[str, Any]:
    """What was found so far."""
    found: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {"samples": {}}
    return found


if __name__ == "__main__":
    main()
