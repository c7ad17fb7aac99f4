"""A run is read where there is neither Unix nor an MPI: every command that reads one, on a run that is made up."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.processes import LIMIT
from tests.unit.made_runs import experiment, made_case, made_manifest, made_record, sampled, twin

from collbench import collectives
from collbench.cli import ANYWHERE, COMMANDS
from collbench.schema.store import RunWriter

pytestmark = pytest.mark.slow  # every test starts programs

PROGRAM = Path(__file__).with_name("without_unix.py")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two policies, as many sizes as a model takes, with samples."""
    path, draw = tmp_path_factory.mktemp("elsewhere") / "run", np.random.default_rng(1)
    with RunWriter(path, made_manifest(experiment=experiment(("openmpi",), launches=6))) as writer:
        for launch in range(6):
            for policy, isolation, factor in (("host", None, 1.0), ("single", "strict", 2.0)):
                for size in (1 << power for power in range(3, 21, 2)):
                    samples = (draw.uniform(9e3, 11e3, (2, 30)) * factor + size).astype(np.int64)
                    case = made_case(policy, isolation, image="openmpi", size=size)
                    writer.append(sampled(made_record(case, launch, 1e-5), samples), samples)
    return path


def told(*arguments: str | Path) -> str:
    done = subprocess.run(
        [sys.executable, PROGRAM, *arguments], capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (("show",), "median (us)"),
        (("show", "--style", "json"), '"records"'),
        (("compare", "--by", "policy"), "slower"),
        (("advise",), "take host"),
        (("model",), "typical error"),
    ],
)
def test_a_run_is_read_without_unix(run: Path, arguments: tuple[str, ...], answer: str) -> None:
    command, *flags = arguments
    assert answer in told(command, run, *flags)


@pytest.mark.parametrize("ending", ["html", "md"])
def test_a_report_is_written_without_unix(run: Path, tmp_path: Path, ending: str) -> None:
    told("report", run, "--against", "choi2021", "-o", tmp_path / f"report.{ending}")
    assert "choi2021" in (tmp_path / f"report.{ending}").read_text(encoding="utf-8")


def test_a_baseline_is_kept_and_held_against_without_unix(run: Path, tmp_path: Path) -> None:
    assert "a baseline of 18 cells" in told("compare", run, "--save-baseline", tmp_path / "baseline.json")
    other = twin(Path(shutil.copytree(run, tmp_path / "other")))
    assert "same" in told("compare", other, "--baseline", tmp_path / "baseline.json")


@pytest.mark.parametrize("system", ["windows", "macos"])
def test_every_command_has_help_and_what_measures_says_what_it_needs(system: str) -> None:
    names = [*(name for name, _, _ in COMMANDS), *collectives.names()]
    words = [*(f"{name} --help" for name in names), "--help", "image build --help", "plan", "plan quick", "list",
             "completion bash", *(name for name in names if name not in ANYWHERE)]  # fmt: skip
    done = subprocess.run(
        [sys.executable, PROGRAM, *" THEN ".join(words).split()],
        env=os.environ | {"SYSTEM": system}, capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer[0] for answer in answers] == words
    for asked, code, out, err in answers:
        needs_linux = " " not in asked and asked.lstrip("-") not in {"help", *ANYWHERE}
        assert (code, bool(out), err.count("\n")) == ((2, False, 1) if needs_linux else (0, True, 0)), (asked, err)
        assert not needs_linux or f"{asked}: needs Linux" in err
