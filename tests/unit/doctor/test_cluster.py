"""`collbench doctor --on slurm`, with what plays Slurm's programs."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.test_slurm import play, programs, site_file

from collbench.cli import cli
from collbench.doctor.cluster.slurm import examine
from collbench.doctor.parts.finding import Finding

__all__ = ["programs"]

TASKS = 'echo "task 0 0 writable 4 there"; echo "task 1 1 writable 4 there"'


def cluster(folder: Path, tasks: str = TASKS, types: str = "none pmi2 pmix", nodes: str = "2 8 idle") -> None:
    for name in ("sbatch", "scontrol", "squeue", "scancel"):
        play(folder, name, "echo slurm 23.11")
    play(folder, "sinfo", f"echo '{nodes}'")
    play(folder, "srun", f"case $1 in --version) echo slurm 23.11;; --mpi=list) echo MPI: {types};; *) {tasks};; esac")


def found(tmp_path: Path) -> dict[str, Finding]:
    return dict(examine(site_file(tmp_path, folder=str(tmp_path))))


def test_a_cluster_without_faults(programs: Path, tmp_path: Path) -> None:
    cluster(programs)
    findings = found(tmp_path)
    assert {name: finding.status for name, finding in findings.items()} == dict.fromkeys(
        ("clients", "mpi", "nodes", "folder", "node"), "ok"
    )
    assert findings["clients"].seen == "slurm 23.11" and findings["nodes"].seen == "2 nodes of 8 cores"


@pytest.mark.parametrize(
    ("fault", "check", "status", "says"),
    [
        ({"types": "none pmi2"}, "mpi", "warn", "does not name pmix"),
        ({"nodes": "2 4 idle"}, "nodes", "fail", "the largest node has 4"),
        ({"tasks": 'echo "task 0 0 writable 4 there"; echo "task 0 1 writable 4 there"'}, "node", "fail",
         "PMI_RANK is 0 and SLURM_PROCID is 1"),
        ({"tasks": TASKS.replace("writable", "missing")}, "node", "fail", "a node cannot write"),
        ({"tasks": TASKS.replace("there", "absent")}, "node", "fail", "a node does not have"),
        ({"tasks": "echo 'srun: error: Unable to allocate resources: busy' >&2; exit 1"}, "node", "unknown", "busy"),
    ],
)  # fmt: skip
def test_faults_of_a_cluster(
    programs: Path, tmp_path: Path, fault: dict[str, str], check: str, status: str, says: str
) -> None:
    cluster(programs, **fault)
    finding = found(tmp_path)[check]
    assert finding.status == status
    assert says in finding.problems[0].cause


def test_where_there_is_no_slurm(
    programs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    site = site_file(tmp_path)
    with pytest.raises(SystemExit) as ended:
        cli.main(["doctor", "--on", "slurm", "--site", site])
    assert ended.value.code == 1
    assert "there is no srun here" in capsys.readouterr().out.replace("\n                 ", " ")
