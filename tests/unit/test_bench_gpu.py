"""The GPU programs of bench/ without a GPU: what is started, what is read, what is compared, what is kept."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.gpu.jobs import Gpus
from tests.unit.bench_modules import bench, installation, results_in

from collbench import workloads

NCCL_TESTS = """\
# nccl-tests version 2.19.6 nccl-headers=22809 nccl-library=22809
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
           8             2     float     sum      -1     4.00    0.00    0.00       0     2.00    0.00    0.00       0
           8             2     float     sum      -1     5.00    0.00    0.00       0     3.00    0.00    0.00       0
           8             2     float     sum      -1     9.00    0.00    0.00       0     7.00    0.00    0.00       0
"""


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    results_in(tmp_path, monkeypatch)
    return tmp_path


@pytest.mark.parametrize(("name", "flags"), [("openmpi", ["--bind-to", "none"]), ("mpich", ["-bind-to", "none"])])
def test_ranks_are_not_bound(tmp_path: Path, name: str, flags: list[str]) -> None:
    argv = list(installation(tmp_path, name, 2).start("run", "plan"))
    assert argv[argv.index("-n") - 2 : argv.index("-n")] == flags
    argv = Gpus(1, Path("mpirun"), name == "openmpi").command(2, "allreduce")
    assert argv[argv.index("-n") - 2 : argv.index("-n")] == flags


DOCUMENT = json.dumps({"manifest": {"libraries": []}, "records": [{"status": "ok"}, {"status": "failed"}]})


def test_records_come_from_a_file_whatever_is_printed(out: Path) -> None:
    """Also when a case failed, which is exit code 1: the others count."""
    here = installation(out, mpirun=f"echo a stray line\necho '{DOCUMENT}' >$last\nexit 1")
    assert [record["status"] for record in here.document(30.0, "run")["records"]] == ["ok", "failed"]


@pytest.mark.parametrize(("mpirun", "reason"), [
    ("exit 0", "left no whole document"),
    ("echo '{\"manifest\": {' >$last", "left no whole document"),
    (f"echo '{DOCUMENT}' >$last; echo 'collbench: no progress' >&2; exit 3", "exit code 3: collbench: no progress"),
    ("echo 'collbench: it broke' >&2; exit 1", "exit code 1: collbench: it broke"),
])  # fmt: skip
def test_a_launch_without_records_is_a_failed_one(out: Path, mpirun: str, reason: str) -> None:
    (out / "gpu-launch.json").write_text(DOCUMENT)  # of a launch before
    with pytest.raises(bench("installation").LaunchFailed, match=reason):
        installation(out, mpirun=mpirun).document(30.0, "run")


def test_a_failure_of_any_kind_takes_no_other_launch_along(out: Path) -> None:
    """What there is is kept after every launch, and a program that never works is given up."""
    rounds = bench("gpu_rounds")
    good = rounds.Median("good", "x", 8, 1e-6)
    partly = [rounds.Median("partly", "x", 8, 2e-6), rounds.Failed("partly 64 B", "out of memory")]
    launches = {"good": lambda: [good], "partly": lambda: partly, "bad": lambda: json.loads("{")}
    kept: list[tuple[int, int]] = []
    outcome = rounds.interleaved(
        [rounds.Group(launches)], 4, 1, 60.0, lambda so_far: kept.append((len(so_far.found), len(so_far.failures)))
    )
    assert len(kept) == 4 + 4 + 2
    assert kept[0] in ((1, 0), (1, 1), (0, 1))
    assert kept[-1] == (8, 6)
    assert sum("JSONDecodeError" in text for text in outcome.failures) == 2
    assert sum("partly 64 B: out of memory" in text for text in outcome.failures) == 4
    assert outcome.ratio(("partly", "x"), ("good", "x"), 8).value == 2


def test_pages_are_whole_or_as_they_were(out: Path) -> None:
    """A page that cannot be made does not take the numbers along."""
    write = bench("results").write
    write("x", {"n": 1}, lambda: "first")
    with pytest.raises(ZeroDivisionError):
        write("x", {"n": 2}, lambda: str(1 // 0))
    assert json.loads((out / "results-x.json").read_text()) == {"n": 2}
    assert (out / "results-x.md").read_text() == "first"


def test_rows_of_nccl_tests() -> None:
    peer = bench("gpu_peer")
    found = {one.what: one.seconds for one in peer.rows_of(NCCL_TESTS, "allreduce", 8)}
    assert found == pytest.approx({"allreduce": 5e-6, "allreduce in place": 3e-6})
    for text, reason in (
        (NCCL_TESTS.replace("       0     2", "       1     2"), "wrong results"),
        ("", "no whole rows"),
    ):
        with pytest.raises(bench("installation").LaunchFailed, match=reason):
            peer.rows_of(text, "allreduce", 8)
    for no_place in (NCCL_TESTS.replace("2.00", "N/A"), NCCL_TESTS.replace("    2.00    0.00    0.00       0", "")):
        assert [one.what for one in peer.rows_of(no_place, "sendrecv", 8)] == ["sendrecv"]


def test_another_nccl_is_no_peer() -> None:
    failed = bench("installation").LaunchFailed
    same = bench("gpu_peer").same_nccl
    same(NCCL_TESTS, "2.28.9")
    same(NCCL_TESTS, "unknown")
    with pytest.raises(failed, match=r"nccl-tests runs NCCL 2\.28\.9, collbench 2\.29\.7"):
        same(NCCL_TESTS, "2.29.7")
    libraries = bench("gpu_libraries").Libraries(Path("a"), "2.28.9", Path("b"), (), None)
    libraries.check({"libraries": [{"name": "NCCL", "version": "2.28.9"}, {"name": "Open MPI", "version": "5"}]})
    with pytest.raises(failed, match=r"NCCL 2\.29\.7 \(/x\), and not 2\.28\.9"):
        libraries.check({"libraries": [{"name": "NCCL", "version": "2.29.7", "path": "/x"}]})


def outcome(rounds: int = 5) -> Any:
    """Launches in which native is a little slower than nccl-tests, and torch in place much faster than out of place."""
    made = bench("gpu_rounds")
    seconds = {
        ("nccl-tests", "allreduce"): 5.0,
        ("nccl-tests", "allreduce in place"): 1.0,
        ("native", "allreduce"): 5.05,
        ("torch-nccl", "allreduce in place"): 2.0,
        ("C", "allreduce"): 5.2,
        ("C polling", "allreduce"): 5.0,
    }
    found = [made.Median(*key, 8, value * 1e-6, one) for key, value in seconds.items() for one in range(rounds)]
    return made.Rounds(found, [])


@pytest.mark.parametrize(("ranks", "alike", "rounds", "verdict", "torch"), [
    (1, True, 5, "met", "-"),  # one rank in place has nothing to do, which is no speed
    (2, True, 5, "met", "2.000"),  # over nccl-tests in place, not out of place
    (2, False, 5, "two programs", "2.000"),
    (1, True, 4, "too few launches", "-"),
])  # fmt: skip
def test_like_is_compared_with_like(ranks: int, alike: bool, rounds: int, verdict: str, torch: str) -> None:
    page = bench("gpu_peer_page")
    row = page.row(page.Measured(ranks, alike, "2.28.9", 1), outcome(rounds), "allreduce", 8)
    assert (row[4], row[7], row[9]) == ("1.010", verdict, torch)


def test_a_page_says_what_the_wait_is() -> None:
    page = bench("gpu_peer_page")
    assert [cell.split()[0] for cell in page.waits_row(outcome(), "allreduce")] == [
        "allreduce", "5.200", "5.000", "1.040", "0.971", "1.000"
    ]  # fmt: skip
    text = page.report(page.Measured(2, False, "2.28.9", 1), outcome())
    assert "no verdict" in text and "allreduce 8 B" in text
    assert "no verdict" not in page.report(page.Measured(1, True, "2.28.9", 1), outcome())


def test_of_one_rank_torch_has_no_ratio_in_the_floor_either(tmp_path: Path) -> None:
    floor, made = bench("gpu_floor"), bench("gpu_rounds")
    found = [made.Median(kind, "allreduce", 8, 1e-6, one) for kind in ("C", "torch-nccl") for one in range(5)]
    for ranks, ratio in ((1, "-"), (2, "1.000")):
        here = installation(tmp_path, ranks=ranks)
        assert floor.row(here, made.Rounds(found, []), "allreduce", "torch-nccl")[3] == ratio


@pytest.mark.parametrize("ranks", [1, 8])
def test_the_steps_fit_into_the_time_and_numbers_come_before_tests(tmp_path: Path, ranks: int) -> None:
    session = bench("gpu_session")
    steps = list(session.Plan(tmp_path / "work", "collbench", ranks, "any").steps())
    assert sum(step.limit for step in steps) <= session.SECONDS < 600
    names = [step.name for step in steps]
    assert len(set(names)) == len(names)
    assert steps[0].needed and not any(step.needed for step in steps[1:])
    tests = [step for step in steps if step.name.startswith("tests-")]
    assert steps[-len(tests) :] == tests and names.index("peer") < names.index("tests-records")
    assert all("-v" in step.argv and step.stretches for step in tests)
    folder = Path(__file__).parents[1] / "gpu"
    assert {step.argv[-1] for step in tests} == set(map(str, folder.glob("test_*.py")))
    assert [step.name for step in session.chosen(steps, ["tests", "peer"])] == [
        "environment", "peer", *(step.name for step in tests)
    ]  # fmt: skip
    with pytest.raises(SystemExit, match="no step is called flor; there are environment, "):
        session.chosen(steps, ["flor"])


@pytest.mark.parametrize(("listed", "said"), [
    ("  yes train            a network", ["-m", "made", "suite", "train", "-n", "1"]),
    ("  no  train            a network", ["-m", "made", "suite", "train", "-n", "1"]),
    ("  yes sysbench         train", "this collbench has no benchmark train"),
])  # fmt: skip
def test_a_training_is_measured_where_there_is_one(tmp_path: Path, listed: str, said: list[str] | str) -> None:
    """A made-up Python prints what is listed, and else what it is asked for."""
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nif [ $# = 3 ]; then echo '{listed}'; else echo \"$@\"; fi\n")
    python.chmod(0o755)
    words = (bench("gpu_session").TRAIN_IF_LISTED, str(python), "made", "train", "-n", "1")
    done = subprocess.run(("sh", "-c", *words), capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == (said if isinstance(said, str) else " ".join(said))


def test_suites_come_after_the_numbers_of_nccl_and_are_kept(tmp_path: Path) -> None:
    steps = {one.name: one for one in bench("gpu_session").Plan(tmp_path, "collbench", 1, "any").steps()}
    names = list(steps)
    assert names.index("copies") < names.index("gpu-suite") < names.index("train") < names.index("tests-records")
    for name in ("gpu-suite", "train"):
        assert steps[name].stretches and str(tmp_path / "results" / name) in steps[name].argv
    asked = [word for word in steps["gpu-suite"].argv if word.startswith("gpu_")]
    assert sorted(asked) == list(workloads.suites()["gpu"])


def test_every_gpu_is_held_open_until_the_session_ends(tmp_path: Path) -> None:
    """And by no process that it starts."""
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    held = bench("gpu_session").hold_open(tmp_path)
    try:
        assert [Path(f"/proc/self/fd/{one}").resolve().name for one in held] == ["nvidia0", "nvidia1"]
        assert not any(map(os.get_inheritable, held))
    finally:
        for one in held:
            os.close(one)
