"""Commands of the user's own: what a plan says of them, what is read of their output, and how they fail."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from collbench import workloads
from collbench.cli import measure
from collbench.cli.launch import launch_command
from collbench.errors import PlanError, RequestError
from collbench.launch.expansion import with_threads
from collbench.launch.overrides import check_overrides, overrides_of
from collbench.machine.launcher import OWN
from collbench.report.numbers import Units, printed_value, rate_unit
from collbench.run.cases import program_cases
from collbench.schema.case import Case
from collbench.schema.command import benchmark_of, files_of
from collbench.schema.plan import Plan, load_launch_plan, load_plan
from collbench.workloads.host.command import WORKLOAD, seconds
from collbench.workloads.program import Unreadable

PYTHON = sys.executable


def case_of(**settings: str) -> Case:
    return Case(workload="command", what={"command": "app", **settings})


# What a plan says -----------------------------------------------------------------------------------------------------


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a program, a script and data, in which one is."""
    for name in ("app", "script.py", "build/tool", "data/in.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("command", "words", "files"),
    [
        (["./app", "--steps", "100"], "./app --steps 100", ["app"]),
        (["build/tool", "a b", "data"], "build/tool 'a b' data", ["build/tool"]),
        (["python3", "script.py", "data/in.csv"], "python3 script.py data/in.csv", ["script.py", "data/in.csv"]),
        (["cat", "../none", "-f", ".."], "cat ../none -f ..", []),
        (["/bin/ls", "."], "/bin/ls .", []),
        (["openssl", "speed"], "openssl speed", []),
        ("./app | sort", "sh -c './app | sort'", ["app"]),
        ("seq 1 9 | sort", "sh -c 'seq 1 9 | sort'", []),
    ],
)
def test_words_of_a_command_and_the_files_that_they_name(
    here: Path, command: Any, words: str, files: list[str]
) -> None:
    made = benchmark_of({"command": command}, here)
    assert (made["name"], made["command"]) == ("command", words)
    assert files_of([made]) == tuple(str(here / name) for name in files)
    places = [path.partition("/./")[2] for path in made["files"].split()]
    assert places == files
    more = benchmark_of({"command": command, "files": ["data", *files]}, here)
    assert set(files_of([more])) == {str(here / name) for name in ("data", *files)}
    assert files_of(["stream", {"name": "stream", "files": "a"}, more]) == files_of([more])


def test_a_plan_of_commands_is_one_case_each_and_a_written_plan_is_read_as_it_is(here: Path) -> None:
    text = 'iters = 3\n[[benchmarks]]\ncommand = ["./app", "1"]\n[[benchmarks]]\ncommand = "true"\n'
    (here / "plan.toml").write_text(text)
    plan = load_plan(here / "plan.toml")
    cases = program_cases(plan, 1)
    assert [case.case["command"] for case in cases] == ["./app 1", "sh -c true"]
    (here / "plan.json").write_text(json.dumps({"iters": 3, "benchmarks": list(plan.benchmarks)}))
    assert program_cases(load_plan(here / "plan.json"), 1) == cases


def refused(*tables: Any, here: Path) -> list[str]:
    lines = []
    for table in tables:
        with pytest.raises(PlanError) as error:
            program_cases(Plan(benchmarks=(benchmark_of(table, here),)), 1)
        lines.append(str(error.value).replace(str(here), "HERE"))
    return lines


def test_commands_that_are_none_in_words(here: Path, golden: Callable[[str, str], None]) -> None:
    (here / "data" / "app").write_text("")
    printing = {"command": "true", "metric": "(x)", "unit": "s"}
    lines = refused(
        {"command": []}, {"command": ""}, {"command": 3}, {"command": "echo 'a"}, {"command": ["bin/tool"]},
        {"command": ["./app"], "files": [str(here / "data" / "app")]}, {"command": "true", "files": "none"},
        {"command": "x" * 600}, {"command": "true", "unit": "s"}, printing | {"metric": "("},
        printing | {"metric": "x"}, printing | {"unit": ""}, printing | {"better": "higher"},
        printing | {"better": "more"}, {"command": "true", "times": 3}, printing | {"unit": "sec"},
        {"command": "true", "check": "x" * 600}, {"command": ["./app", "caf\udce9"]}, {"name": "command"}, here=here,
    )  # fmt: skip
    golden("commands-refused.txt", "".join(f"{line}\n" for line in lines))


# What is read of their output -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("output", "metric", "unit", "value"),
    [
        ("took 2.5 ms", r"took ([\d.]+)", "ms", 2.5e-3), ("1 s\n3 s", r"(\d+) s", "s", 3.0),
        ("12.5 MB/s", r"([\d.]+) MB/s", "MB/s", 12.5), ("4,000.5 images/sec", r"([\d.,]+) im", "images/s", 4000.5),
        ("1_000 GB/s", r"^([\d_]+)", "GB/s", 1000.0), ("2e3 FLOP/s", r"(\S+) F", "FLOP/s", 2e3),
        ("3 MiB/s", r"(\d)", "MiB/s", 3.0),
        ("10,20 points", r"(\d+),", "points", 10.0), ("score: 7\nof 9", r"score: (\d)", "points", 7.0),
    ],
)  # fmt: skip
def test_numbers_that_are_printed(output: str, metric: str, unit: str, value: float) -> None:
    case = case_of(metric=metric, unit=unit)
    (measure_,) = WORKLOAD.measures
    work, read = measure_.work(case), seconds(case, output)
    assert (read if work.shown == "time" else printed_value(work, read)) == pytest.approx(value)
    if work.shown == "time":
        return
    assert (rate_unit([work]), work.shown) == (unit, "score")
    lower = case_of(metric=metric, unit=unit, better="lower")
    work, read = measure_.work(lower), seconds(lower, output)
    assert work.shown == "number"
    assert printed_value(work, read) == pytest.approx(value)


@pytest.mark.parametrize(
    ("output", "metric", "unit"),
    [
        ("", r"(\d)", "s"), ("none", r"(\d)", "s"), ("fast", r"(\w+)", "s"), ("3 ms", r"(\d)", "s"),
        ("3 GB/s", r"(\d)", "MB/s"), ("3 kimages/s", r"(\d)", "images/s"), ("3 min", r"(\d)", "MB/s"),
        ("0 s", r"(\d)", "s"), ("1,5 s", r"(\S+)", "s"), ("x . s", r"x (\S)", "s"),
        ("3 GB", r"(\d)", "MB"), ("1.2 Gops/s", r"([\d.]+)", "Mops/s"), ("12 µs", r"(\d+)", "ms"),
        ("big 1,234.5 ms", r"big ([\d.]+)", "ms"),
        ("1,234.5 ms", r"([\d.]+) ms", "ms"), ("1e-3 s", r"([\d.]+)", "s"), ("12.5 s", r"(\d) s", "s"),
        ("1.4 ns", r"([\d.]+)", "ns"), ("1e15 points", r"(\S+)", "points"),
        ("-1 s", r"(-\d)", "s"), ("1.2.3", r"([\d.]+)", "s"), ("a", r"a(b)?", "s"),
    ],
)  # fmt: skip
def test_output_that_is_no_number_of_its_unit(output: str, metric: str, unit: str) -> None:
    with pytest.raises(Unreadable):
        seconds(case_of(metric=metric, unit=unit), output)


def test_columns_of_what_is_printed_have_its_unit_and_a_score_is_its_own_rate() -> None:
    """The interval of a score goes from its lowest value up, though that is the longest time."""
    (measure_,) = WORKLOAD.measures
    case = case_of(metric="x", unit="images/s")
    rows = [(measure_.work(case), seconds(case_of(metric="(.+)", unit="images/s"), text)) for text in ("50", "40")]
    units = Units(rows)
    assert (units.rates("rate", rows), units.times("median", rows)) == ({}, {"median (images/s)": ["50.00", "40.00"]})
    assert units.spans([(rows[0][0], (rows[0][1], rows[1][1]))]) == ["40.00 .. 50.00"]
    plain = (measure_.work(case_of()), 0.002)
    assert Units([*rows, plain]).times("median", [*rows, plain], "m") == {
        "m": ["50.00 images/s", "40.00 images/s", "2 ms"]
    }


def test_a_search_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collbench.workloads.host.command.SEARCH", 0.2)
    with pytest.raises(Unreadable):
        seconds(case_of(metric=r"^(?:a+)+(\d)$", unit="s"), "a" * 60 + "b")
    assert seconds(case_of(metric=r"(\d)", unit="s"), "3") == 3.0


# Measured for real ----------------------------------------------------------------------------------------------------


def suite(*words: str) -> tuple[int, list[dict[str, Any]]]:
    done = CliRunner().invoke(measure.suite_command, ["-n", "2", "-w", "0", "--style", "json", *words])
    return done.exit_code, json.loads(done.stdout)["records"] if done.stdout else []


def test_the_time_of_a_process_and_a_number_that_it_prints(here: Path) -> None:
    (here / "script.py").write_text("import sys, time\ntime.sleep(0.2)\nprint('rate', sys.argv[1], 'MB/s')\n")
    code, (record,) = suite("--", PYTHON, "script.py", "8")
    assert (code, record["status"], record["samples"]["n"]) == (0, "ok", 2)
    assert 0.2 < record["seconds"]["min"] < 20
    code, (record,) = suite("--metric", r"rate (\d+)", "--unit", "MB/s", "--", PYTHON, "script.py", "8")
    assert record["work"]["amount"] / record["seconds"]["p50"] == pytest.approx(8)
    assert list(here.iterdir()) and not list(here.glob("collbench-*"))


def test_a_pipeline_and_a_check_in_the_folder_of_a_command(here: Path) -> None:
    plan = here / "plan.toml"
    plan.write_text(
        'iters = 1\n[[benchmarks]]\ncommand = "cat script.py | wc -c > out"\ncheck = "test $(cat out) = 0"\n'
    )
    (record,) = measured(load_plan(plan))
    assert record["status"] == "ok"


def measured(plan: Plan) -> Sequence[dict[str, Any]]:
    import msgspec
    from tests.unit.made_programs import run_row

    with pytest.MonkeyPatch.context() as patch:
        return [msgspec.to_builtins(record) for record, _ in run_row(patch, WORKLOAD, plan)]


def test_originals_stay_what_they_are_and_executions_do_not_see_each_other(here: Path) -> None:
    (here / "link.txt").symlink_to(here / "data" / "in.csv")
    (here / "data" / "in.csv").write_text("1\n")
    words = "test ! -e out && echo 2 >> link.txt && echo 2 >> data/in.csv && cp link.txt out && test $(wc -l < out) = 2"
    code, (record,) = suite("--files", "link.txt", "--", "sh", "-c", words, "data/in.csv")
    assert (code, record["status"], record["samples"]["n"]) == (0, "ok", 2), record
    assert (here / "data" / "in.csv").read_text() == "1\n"


def test_what_a_command_says_though_it_succeeds_is_a_note(here: Path) -> None:
    _, (record,) = suite("--", "sh", "-c", "sort none.txt | wc -l")
    assert any("none.txt" in note for note in record["notes"])
    _, (record,) = suite("--", "true")
    assert not any("standard error" in note for note in record["notes"])
    _, (record,) = suite("-n", "3", "--", "sh", "-c", "echo $$ >&2")
    assert sum("standard error" in note for note in record["notes"]) == 1


def test_a_file_in_a_folder_is_copied_once_and_what_is_above_by_its_name(here: Path) -> None:
    (here / "data" / "in.csv").chmod(0o444)
    words = ("sh", "-c", "chmod 555 data; test $(find . -type f | wc -l) = 1", "data/in.csv")
    code, (record,) = suite("--files", "data/in.csv", "--files", "data", "--", *words)
    assert (code, record["status"]) == (0, "ok"), record
    made = benchmark_of({"command": "true", "files": ["..", "../script.py"]}, here / "data")
    assert files_of([made]) == (str(here), str(here / "script.py"))
    assert [path.partition("/./")[2] for path in made["files"].split()] == [here.name, "script.py"]


def test_an_own_number_of_threads_holds(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the user; what `launch` sets for ranks is none."""
    monkeypatch.delenv(OWN, raising=False)
    printing = ("--metric", r"(\d+)", "--unit", "threads", "--", "sh", "-c", "echo $OMP_NUM_THREADS")
    for variables, threads in (({"OMP_NUM_THREADS": "77"}, 77), (with_threads({}), len(os.sched_getaffinity(0)))):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        _, (record,) = suite(*printing)
        assert record["work"]["amount"] / record["seconds"]["p50"] == pytest.approx(threads)
    assert with_threads({"OMP_NUM_THREADS": "2"}) == {"OMP_NUM_THREADS": "2"}


def test_how_commands_fail_in_words(here: Path, golden: Callable[[str, str], None]) -> None:
    text = "".join(f"{line}\n" for line in _failures())
    golden("commands-failed.txt", text.replace(str(here), "HERE"))


def _failures() -> list[str]:
    printing = ("--metric", r"(\d+)", "--unit", "MB/s", "--")
    failures = []
    for words in (
        ("--", "no-such-program"), ("--", "sh", "-c", "echo why >&2; exit 3"), ("-T", "0.3s", "--", "sleep", "9"),
        ("--", "sh", "-c", "kill -SEGV $$"), (*printing, "echo", "none"), (*printing, "echo", "5 GB/s"),
        ("--check", "test -e out", "--", "true"), ("--files", "data", "--", "sh", "-c", "cat data/none"),
    ):  # fmt: skip
        code, (record,) = suite(*words)
        assert (code, record["status"]) == (1, "failed"), record
        failures.append(record["reason"])
    return failures


# On the host and in containers ----------------------------------------------------------------------------------------


def test_what_is_verified_of_a_command(here: Path) -> None:
    made = benchmark_of({"command": ["./app", "script.py"]}, here)
    (use,) = WORKLOAD.uses(made)
    (case,) = program_cases(Plan(benchmarks=(made,)), 1)
    assert use == workloads.use_of(case.case)
    assert {library.name: library.path for library in workloads.libraries([use])} == {
        "app": str(here / "app"), "script.py": str(here / "script.py"),
    }  # fmt: skip
    assert workloads.missing(use) is None
    (shell,) = WORKLOAD.uses(benchmark_of({"command": "true | false"}, here))
    assert [library.name for library in workloads.libraries([shell])] == ["sh"]
    (unknown,) = WORKLOAD.uses(benchmark_of({"command": ["no-such-program"]}, here))
    assert "no-such-program" in str(workloads.missing(unknown))


def test_files_are_at_the_same_place_in_containers(here: Path) -> None:
    plan = Plan(benchmarks=(benchmark_of({"command": ["./app"]}, here),))
    assert overrides_of(plan, "").mounts() == {str(here / "app"): str(here / "app")}
    check_overrides(plan, ())
    with pytest.raises(PlanError, match="app"):
        check_overrides(plan, ("k8s",))


def launched(monkeypatch: pytest.MonkeyPatch, *words: str) -> Plan:
    """The plan of `launch`."""
    plans: list[Plan] = []

    def perform(plan: Plan, *_: Any, **__: Any) -> list[Any]:
        plans.append(plan)
        return []

    monkeypatch.setattr("collbench.cli.launch.perform", perform)
    monkeypatch.setattr("collbench.cli.launch._answer", lambda *_: 0)
    done = CliRunner().invoke(launch_command, words)
    assert done.exit_code == 0, done
    return plans[0]


def test_launch_takes_a_command_in_the_place_of_a_plan(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = launched(monkeypatch, "--command", "./app --steps 100", "--policies", "host,single", "--images", "mine")
    assert (plan.policies, plan.images, plan.ranks) == (("host", "single"), ("mine",), (1,))
    assert plan.benchmarks == (benchmark_of({"command": "./app --steps 100"}, here),)
    plan = launched(monkeypatch, "--unit", "s", "--metric", "(x)", "--launches", "7", "--", "./app", "--steps")
    assert (plan.policies, plan.images, plan.launches) == (("host", "multi"), ("tools",), 7)
    expected = benchmark_of({"command": ["./app", "--steps"], "metric": "(x)", "unit": "s"}, here)
    assert plan.benchmarks == (expected,)
    usual, long = plan, launched(monkeypatch, "-n", "1", "-w", "0", "-T", "2h", "--", "./app")
    assert (usual.iters, usual.warmup, usual.floor, usual.timeout_seconds) == (None, 1, 3, 300.0)
    assert (long.iters, long.warmup, long.timeout_seconds) == (1, 0, 7200.0)


@pytest.mark.parametrize(
    "words",
    [("threads=1", "--", "true"), ("sh",), ("command", "command=true"), ("./app",), ("--metric", "(x)"), ("--",)],
)
def test_suite_refuses_a_command_that_is_none(here: Path, words: Sequence[str]) -> None:
    assert isinstance(CliRunner().invoke(measure.suite_command, words).exception, RequestError)


@pytest.mark.parametrize(
    "words",
    [
        ("--command", "a", "--", "b"), ("quick", "--command", "a"), ("--policies", "host"), ("--metric", "(x)"),
        ("quick", "--images", "tools"), ("quick", "-n", "3"), ("quick", "-w", "0"), ("--",),
    ],
)  # fmt: skip
def test_launch_refuses_a_command_that_is_none(words: Sequence[str]) -> None:
    assert isinstance(CliRunner().invoke(launch_command, words).exception, RequestError)


def test_a_launch_plan_has_commands(here: Path) -> None:
    (here / "plan.toml").write_text(
        'images = ["tools"]\npolicies = ["host", "multi"]\nranks = [1]\n[[benchmarks]]\ncommand = ["./app"]\n'
    )
    assert files_of(load_launch_plan(here / "plan.toml").benchmarks) == (str(here / "app"),)
