"""What the commands say of the measured runs in results/, byte by byte.

A number or a verdict that differs is damage on the way from the file to the table.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from collbench.cli import run_command

ROOT = Path(__file__).parents[2]

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
    "show-choi2021-cpu.txt": "show results/choi2021-cpu",
    "compare-choi2021-cpu.txt": "compare results/choi2021-cpu --by policy --style csv",
    "compare-choi2021-cpu-image.txt": "compare results/choi2021-cpu --by image --style csv",
    "advise-choi2021-cpu.txt": "advise results/choi2021-cpu --style csv",
    "show-duet.txt": "show results/duet",
    "compare-duet.txt": "compare results/duet --by policy",
    "advise-duet.txt": "advise results/duet",
    "show-one-container.txt": "show results/one-container",
    "compare-one-container.txt": "compare results/one-container --by policy --style csv",
    "advise-one-container.txt": "advise results/one-container --style csv",
    "show-ladder.txt": "show results/ladder",
    "compare-ladder.txt": "compare results/ladder --by policy --style csv",
    "compare-ladder-containers.txt":
        "compare results/ladder --by policy --between multi_strict,single_strict --style csv",
    "advise-ladder.txt": "advise results/ladder --style csv",
    "advise-ladder-in-one-container.txt": "advise results/ladder --given policy=single --style csv",
    "show-xu2017-cpu-io.txt": "show results/xu2017-cpu-io",
    "compare-xu2017-cpu-io.txt": "compare results/xu2017-cpu-io --by policy --style csv",
    "show-zhao2018-sysbench.txt": "show results/zhao2018-sysbench",
    "compare-zhao2018-sysbench.txt": "compare results/zhao2018-sysbench --by policy --style csv",
    "show-storage.txt": "show results/storage",
    "compare-storage-policy.txt": "compare results/storage --by policy --style csv",
    "show-train-cpu.txt": "show results/train-cpu",
    "compare-train-cpu.txt": "compare results/train-cpu --by policy --style csv",
    "show-zhao2018-ps.txt": "show results/zhao2018-ps",
    "compare-zhao2018-ps.txt": "compare results/zhao2018-ps --by policy --style csv",
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


@pytest.mark.parametrize("stored", COMMANDS)
def test_a_measured_run_says_what_it_said(
    stored: str, golden: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    words = [word.replace("_", " ") for word in COMMANDS[stored].split()]
    monkeypatch.setattr(sys, "argv", ["collbench", *words])
    code = run_command(speaks=True)
    found = capsys.readouterr()
    assert code == (0 if found.out else 2)
    golden(f"runs/{stored}", found.out + found.err)


#: Measured runs beside their papers: the first screen, and what is behind it.
PAPERS = {
    "paper-choi2021.txt": "compare results/choi2021-cpu --against choi2021",
    "paper-choi2021.md": "compare results/choi2021-cpu --against choi2021 --style markdown",
    "paper-xu2017.txt": "compare results/xu2017-cpu-io results/train-cpu --against xu2017 --all",
    "paper-zhao2018.txt": "compare results/zhao2018-sysbench results/zhao2018-ps --against zhao2018 --all",
}


@pytest.mark.parametrize("stored", PAPERS)
def test_measured_runs_stand_beside_their_paper(
    stored: str, golden: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "argv", ["collbench", *PAPERS[stored].split()])
    assert run_command(speaks=True) == 0
    golden(f"papers/{stored}", capsys.readouterr().out)


def test_every_measured_run_is_looked_at() -> None:
    runs = {path.parent.name for path in ROOT.glob("results/*/manifest.json")}
    runs |= {"clocks/common", "clocks/synced"}  # folders of runs
    assert runs == {word.removeprefix("results/") for text in COMMANDS.values() for word in text.split() if "/" in word}
    assert {path.name for path in (ROOT / "tests/golden/runs").iterdir()} == set(COMMANDS)
