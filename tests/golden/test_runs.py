"""What commands say of runs, byte by byte: measured ones, gates, histories."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.made_gates import LARGE, SMALL, Medians, fine, made_gate, noisy, told
from tests.unit.made_history import steps, write_history
from tests.unit.made_runs import library, made_case, spread
from tests.unit.test_gate import judged

from collbench.analysis.gate import Cause, Doubt, Judgement, Unfinished
from collbench.analysis.history import history
from collbench.analysis.runs import Flaw
from collbench.cli import run_command
from collbench.report.gate import cause_text, doubt_text, markdown, names_of
from collbench.report.gate import tables as gate_tables
from collbench.report.history import MOST_ROWS, WORDS, SeriesNames, sentence
from collbench.report.history import tables as history_tables
from collbench.report.paper import papers
from collbench.report.tables import terminal
from collbench.schema.case import Case
from collbench.schema.plan import Side
from collbench.schema.record import UNREAD, ResultCheck, Samples

ROOT = Path(__file__).parents[2]

Golden = Callable[[str, str], None]

#: What is stored, and the command that prints it: its table, then what stands below it, or the error.
COMMANDS = {
    "show-demo-mpich.txt": "show results/demo-mpich --style nccl-tests",
    "show-demo-openmpi.txt": "show results/demo-openmpi --style nccl-tests",
    "model-demo-mpich.txt": "model results/demo-mpich --predict ranks=2,bytes=16K --predict ranks=2,bytes=16M",
    "model-demo-openmpi.txt": "model results/demo-openmpi --style csv",
    "advise-demo-mpich.txt": "advise results/demo-mpich --style csv",
    "advise-demo-openmpi.txt": "advise results/demo-openmpi --style csv",
    "compare-demo-mpich.txt": "compare results/demo-mpich --by policy --style csv",
    "compare-demo-openmpi.txt": "compare results/demo-openmpi --by policy --style csv",
    "compare-demos.txt": "compare results/demo-openmpi results/demo-mpich --by library --style csv",
    "show-choi2021-cpu.txt": "show results/choi2021/choi2021-cpu",
    "compare-choi2021-cpu.txt": "compare results/choi2021/choi2021-cpu --by policy --style csv",
    "compare-choi2021-cpu-image.txt": "compare results/choi2021/choi2021-cpu --by image --style csv",
    "advise-choi2021-cpu.txt": "advise results/choi2021/choi2021-cpu --style csv",
    "show-one-container.txt": "show results/one-container",
    "compare-one-container.txt": "compare results/one-container --by policy",
    "advise-one-container.txt": "advise results/one-container",
    "show-one-container-in-blocks.txt": "show tests/data/runs/one-container-in-blocks",
    "compare-one-container-in-blocks.txt":
        "compare tests/data/runs/one-container-in-blocks --by policy --style csv",
    "advise-one-container-in-blocks.txt": "advise tests/data/runs/one-container-in-blocks --style csv",
    "show-ladder-in-blocks.txt": "show tests/data/runs/ladder-in-blocks",
    "compare-ladder-in-blocks.txt": "compare tests/data/runs/ladder-in-blocks --by policy --style csv",
    "advise-ladder-in-blocks.txt": "advise tests/data/runs/ladder-in-blocks --style csv",
    "show-mpi-builds.txt": "show results/mpi-builds",
    "compare-mpi-builds.txt": "compare results/mpi-builds --by side --given policy=host --style csv",
    "show-ladder.txt": "show results/ladder",
    "compare-ladder.txt": "compare results/ladder --by policy --style csv",
    "compare-ladder-containers.txt":
        "compare results/ladder --by policy --between multi_strict,single_strict --style csv",
    "advise-ladder.txt": "advise results/ladder --style csv",
    "advise-ladder-in-one-container.txt": "advise results/ladder --given policy=single --style csv",
    "show-xu2017-io.txt": "show results/xu2017/xu2017-io",
    "compare-xu2017-io.txt": "compare results/xu2017/xu2017-io --by policy --style csv",
    "show-xu2017-linpack.txt": "show results/xu2017/xu2017-linpack",
    "compare-xu2017-linpack.txt": "compare results/xu2017/xu2017-linpack --by policy --style csv",
    "show-xu2017-train.txt": "show results/xu2017/xu2017-train",
    "compare-xu2017-train.txt": "compare results/xu2017/xu2017-train --by policy --style csv",
    "show-siddaramanna2018-fathom.txt": "show results/siddaramanna2018/siddaramanna2018-fathom",
    "compare-siddaramanna2018-fathom.txt":
        "compare results/siddaramanna2018/siddaramanna2018-fathom --by policy --style csv",
    "compare-siddaramanna2018-cpu.txt": "compare results/siddaramanna2018/siddaramanna2018-cpu --by policy --style csv",
    "show-siddaramanna2018-allreduce.txt": "show results/siddaramanna2018/deepbench-allreduce",
    "compare-siddaramanna2018-allreduce.txt":
        "compare results/siddaramanna2018/deepbench-allreduce --by policy --style csv",
    "show-container-start.txt": "show results/container-start",
    "compare-container-start.txt": "compare results/container-start --by process --style csv",
    "show-zhao2018-sysbench.txt": "show results/zhao2018/zhao2018-sysbench",
    "compare-zhao2018-sysbench.txt": "compare results/zhao2018/zhao2018-sysbench --by policy --style csv",
    "show-qperf-host.txt": "show results/qperf-host",
    "compare-qperf-host.txt": "compare results/qperf-host --by process",
    "show-storage.txt": "show results/storage",
    "compare-storage-workloads.txt": "compare results/storage-workloads --by policy",
    "compare-storage-policy.txt": "compare results/storage --by policy --style csv",
    "show-h100-nccl.txt": "show results/h100-nccl",
    "compare-h100-nccl.txt": "compare results/h100-nccl --by backend",
    "show-h100-suite.txt": "show results/h100-suite",
    "show-zhao2018-ps.txt": "show results/zhao2018/zhao2018-ps",
    "compare-zhao2018-ps.txt": "compare results/zhao2018/zhao2018-ps --by policy --style csv",
    "show-ddp-cpu.txt": "show results/ddp-cpu",
    "model-ddp-cpu.txt": "model results/ddp-cpu",
    "show-slurm-toy.txt": "show results/slurm-toy",
    "compare-slurm-toy.txt": "compare results/slurm-toy --by policy --style csv",
    "show-leelee2024.txt": "show results/leelee2024",
    "compare-leelee2024.txt": "compare results/leelee2024 --by policy --style csv",
    "show-leelee2024-slurm.txt": "show results/leelee2024-slurm",
    "compare-leelee2024-slurm.txt": "compare results/leelee2024-slurm --by policy --style csv",
    "compare-clocks.txt": "compare results/clocks/common results/clocks/synced --in-blocks --style csv",
    "compare-ddp-cpu.txt": "compare results/ddp-cpu --by policy --style csv",
    "compare-storage.txt": "compare results/storage --by storage --given policy=multi --style csv",
}  # fmt: skip


#: Measured runs beside their papers: the first screen, and what is behind it.
PAPERS = {
    "paper-choi2021.txt": "compare results/choi2021 --against choi2021",
    "paper-choi2021.md": "compare results/choi2021 --against choi2021 --style markdown",
    "paper-xu2017.txt": "compare results/xu2017 --against xu2017 --all",
    "paper-siddaramanna2018.txt": "compare results/siddaramanna2018 --against siddaramanna2018 --all",
    "paper-zhao2018.txt": "compare results/zhao2018 --against zhao2018 --all",
}


@pytest.mark.parametrize("stored", [*(f"runs/{name}" for name in COMMANDS), *(f"papers/{name}" for name in PAPERS)])
def test_a_measured_run_says_what_it_said(
    stored: str, golden: Golden, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, name = stored.split("/")
    words = (COMMANDS if folder == "runs" else PAPERS)[name].split()
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "argv", ["collbench", *(word.replace("_", " ") for word in words)])
    code = run_command(speaks=True)
    found = capsys.readouterr()
    assert code == (0 if found.out else 2)
    golden(stored, found.out + (found.err if folder == "runs" else ""))


def test_every_measured_run_is_looked_at() -> None:
    runs = {ROOT / "results/clocks/common", ROOT / "results/clocks/synced"}  # folders of runs
    for folder in ("results", "tests/data/runs"):
        runs |= {path.parent for path in ROOT.glob(f"{folder}/*/manifest.json")}
    runs |= {path.parent for paper in papers() for path in ROOT.glob(f"results/{paper}/*/manifest.json")}
    assert runs == {ROOT / word for text in COMMANDS.values() for word in text.split() if "/" in word}
    assert {path.name for path in (ROOT / "tests/golden/runs").iterdir()} == set(COMMANDS)


# What a gate says, byte by byte, on runs that are made up -------------------------------------------------------------

THIRD = made_case(image="openmpi", size=8)


def said(found: Judgement) -> str:
    names = names_of(found.answers)
    return f"{terminal(gate_tables(found, names))}\n--- gate.md\n{markdown(found, names)}"


def unlike(**fields: Any) -> Medians:
    """Two cells, of which the larger has records with these fields."""
    return {SMALL: spread(1e-6), LARGE: told(LARGE, spread(1e-4), **fields)}


LATE = Samples(n=100, invalid=20, warmup=5)

SIDES: dict[str, tuple[Medians, Medians]] = {
    "loss-and-broken": (
        {**fine(), THIRD: spread(1e-6)},
        {SMALL: spread(1.0001e-6), LARGE: spread(1.2e-4), THIRD: ["it hangs"] * 10},
    ),
    "pass": (fine(), {**fine(), LARGE: spread(1.004e-4)}),
    "gains": (fine(), {SMALL: spread(0.9e-6), LARGE: spread(0.7e-4)}),
    "twice": (fine(), {SMALL: spread(2.5e-6), LARGE: spread(1e-4)}),
    "unchecked": (unlike(check=ResultCheck(wrong=None)), unlike(check=ResultCheck(wrong=None))),
    "late": (
        unlike(samples=Samples(n=100, invalid=20, warmup=5)),
        unlike(samples=Samples(n=100, invalid=20, warmup=5)),
    ),
    "not-comparable": (fine(), {SMALL: told(SMALL, spread(1.5e-6), align="barrier"), LARGE: spread(1e-4)}),
    "two-reasons": (fine(), {SMALL: noisy(1e-6), LARGE: told(LARGE, spread(1e-4), contended=True)}),
    "long-reason": (fine(), {SMALL: ["error: " + " ".join(map(str, range(600)))] * 10, LARGE: spread(1e-4)}),
}


OTHER_VARIABLES = (Side(), Side(variables={"OMPI_MCA_btl": "self,sm"}))


@pytest.mark.parametrize("name", SIDES)
def test_an_answer(golden: Golden, tmp_path: Path, name: str) -> None:
    golden(f"gate-{name}.txt", said(judged(made_gate(tmp_path, *SIDES[name], sides=OTHER_VARIABLES))))


def test_accepted_doubts_are_said(golden: Golden, tmp_path: Path) -> None:
    contended: Medians = {case: told(case, spread(1e-6), contended=True) for case in (SMALL, LARGE)}
    golden("gate-accepted.txt", said(judged(made_gate(tmp_path, contended, contended), accepted=("contended",))))


def test_an_interrupted_gate(golden: Golden, tmp_path: Path) -> None:
    found = judged(made_gate(tmp_path, fine(), {SMALL: spread(1e-6), LARGE: spread(1.2e-4)}))
    golden("gate-interrupted.txt", said(replace(found, unfinished=Unfinished(6, 40, True), folder="kept")))


def test_words_of_doubts(golden: Golden) -> None:
    """Those that no run above has."""
    path, ours, theirs = "/build/libmpi.so.40", "1" * 64, "a" * 64
    causes = [
        Cause("differs", ("kernel", "Linux 6.1 against 6.6")), Cause("flaw", (Flaw("cut off", Path("runs/a")),)),
        Cause("file differs", ("NCCL", "/a/libnccl.so", ours, "/b/libnccl.so", None)),
        Cause("not told", ("other", "libmpi.so")), Cause("none loaded", ("other", "libmpi.so", path)),
        *(Cause("other loaded", ("other", "/opt/libmpi.so", found, path, ours, preloaded))
          for found, preloaded in ((theirs, False), (theirs, True), (UNREAD, False))),
        Cause("plan"), Cause("same image", ("sha256:9",)), Cause("asked"), Cause("same file", ("libmpi.so", ours[:12])),
        Cause("no file", ("libmpi.so",)), Cause("unread file", ("libmpi.so",)),
    ]  # fmt: skip
    doubts = [
        Doubt("broken", ("other", 1, 1, "it hangs", "no memory")), Doubt("failed", ("base", 2, 10)), Doubt("missing"),
        Doubt("missing", ("other",)), Doubt("skipped", ("base", "no torch")), Doubt("results differ", ("loss",)),
        Doubt("unchecked"), Doubt("incomplete", ("other", 9, 10)), Doubt("too few launches", (4, 2, 1, 3)),
        Doubt("contended", ("base", 5, 10)), Doubt("oversubscribed", ("base",)), Doubt("shared GPU", ("other",)),
        Doubt("late", ("other", 600, 1000)), Doubt("drift"),
    ]  # fmt: skip
    golden("gate-words.txt", "".join(f"{line}\n" for line in (*map(cause_text, causes), *map(doubt_text, doubts))))


# What `collbench history` says on its first screen, of made-up nights -------------------------------------------------

SIZES = [made_case(size=1024 << number) for number in range(6)]
PLACES = [made_case("host", None, image=image, size=1024 << number) for image in ("mpich", "openmpi")
          for number in range(12)]  # fmt: skip
QUIET = steps((1e-5, 33))
SLOWER = steps((1e-5, 20), (1.12e-5, 13))

Times = Sequence[float | str | None]

#: By what it shows: the nights of each cell.
HISTORIES: dict[str, dict[Case, Times]] = {
    "one change": {SIZES[0]: QUIET, SIZES[1]: SLOWER, SIZES[2]: SLOWER, SIZES[3]: QUIET},
    "two changes, the latest run, and a cell that failed": {
        SIZES[0]: QUIET, SIZES[1]: SLOWER, SIZES[2]: SLOWER, SIZES[3]: steps((1e-5, 28), (8e-6, 5)),
        SIZES[4]: steps((1e-5, 32), (3e-5, 1)), SIZES[5]: [*QUIET[:32], "died"],
    },
    "six times as long in all sizes of one image": {
        case: steps((1e-5, 25), (6e-5, 8)) if case.where.image == "mpich" else QUIET for case in PLACES
    },
    "more rows than a screen has": {
        case: steps((1e-5, 10 + number // 2), (1.5e-5, 23 - number // 2)) if number % 2 else QUIET
        for number, case in enumerate(made_case("single", "strict", image=f"image-{one}") for one in range(36))
    },
    "the latest run alone": {SIZES[0]: QUIET, SIZES[1]: steps((1e-5, 31), (2.1e-5, 2)), SIZES[2]: [*QUIET[:32], 7e-6]},
    "no change": {SIZES[0]: QUIET, SIZES[1]: QUIET},
    "waves": {size: [1e-5 * (1 + 0.03 * math.sin(number / 1.5)) for number in range(40)] for size in SIZES},
    "too few runs to know whether there are waves": {SIZES[0]: [1.0e-5, 1.01e-5, 1.02e-5, 0.99e-5, 0.98e-5, 0.99e-5,
                                                                1.01e-5, 1.0e-5, 1.01e-5]},
    "too few runs": {SIZES[0]: QUIET[:5]},
}  # fmt: skip


def newer(number: int) -> dict[str, Any]:
    """From night 20 on a newer library."""
    return {"libraries": (library(version="5.0.8" if number < 20 else "5.0.9"),)}


def test_first_screen(golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = []
    for name, cells in HISTORIES.items():
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        write_history(Path("nightly"), cells, newer)
        found = history(Path("nightly"), (), 0.02)
        names = SeriesNames([one.series for one in found.cells])
        (table,) = history_tables(found, names)
        text = terminal([table])
        assert len(sentence(found, names).split()) <= WORDS and len(table.rows) <= MOST_ROWS
        assert max(map(len, text.splitlines()[: 3 + len(table.rows)])) <= 100
        shown.append(f"## {name}\n\n{text}")
    golden("history.txt", "\n".join(shown))


def test_refused_histories_and_failed_checks(
    golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What stands on stderr; the folder is named as it was given."""
    monkeypatch.chdir(tmp_path)
    nights_of: dict[str, Times] = {
        "quiet": QUIET[:8], "slower": steps((1e-5, 8), (1.2e-5, 6)), "failed": [*QUIET[:8], "died"], "young": QUIET[:5],
    }  # fmt: skip
    for name, nights in nights_of.items():
        write_history(Path(name), {SIZES[0]: nights, SIZES[1]: QUIET[: len(nights)]})
    write_history(Path("nights"), {SIZES[0]: QUIET[:6]})
    write_history(Path("nights/months"), {SIZES[0]: QUIET[:3]})
    (Path("nights") / "logs").mkdir()
    Path("nothing").mkdir()
    Path("is.html").mkdir()
    shown = []
    for words in (
        "nothing", "none", "quiet/2026-10-01", "quiet --since 2026-10-xx", "quiet -o page.pdf", "quiet -o none/x.html",
        "quiet -o is.html", "quiet --given polcy=x", "quiet --given policy=multi", "quiet --fail-on outside,wrong",
        "slower --fail-on slower,outside", "failed --fail-on slower", "young --fail-on slower",
        "slower --fail-on slower --since 2027-01-01", "nights --all --fail-on slower",
    ):  # fmt: skip
        monkeypatch.setattr(sys, "argv", ["collbench", "history", *words.split()])
        code = run_command(speaks=True)
        said = capsys.readouterr()
        assert bool(said.out) is (code != 2)
        left_out = "".join(f"{line}\n" for line in said.out.splitlines() if "left out" in line or "months" in line)
        shown.append(f"$ collbench history {words}\n{said.err}{left_out}exit code {code}\n")
    golden("history-refused.txt", "\n".join(shown))
