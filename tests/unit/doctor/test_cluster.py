"""`collbench doctor --on slurm`, with what plays Slurm's programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.test_slurm import play, programs, site_file

from collbench.cli import cli
from collbench.doctor.cluster.slurm import examine
from collbench.doctor.parts.finding import Finding

__all__ = ["programs"]

TASKS = 'echo "task 0 0 writable 4"; echo "task 1 1 writable 4"'


def cluster(
    folder: Path, tasks: str = TASKS, types: str = "none pmi2 pmix", nodes: str = "2 8 idle", test: str = "",
    flags: str = "",
) -> None:  # fmt: skip
    for name in ("scontrol", "squeue", "scancel"):
        play(folder, name, "echo slurm 23.11")
    play(
        folder, "sbatch", f"case $1 in --version) echo slurm 23.11;; --test-only) text=$(cat); {test or 'true'};; esac"
    )
    play(folder, "sinfo", f"echo '{nodes}'")
    play(
        folder,
        "srun",
        f"""echo "$@" >> {folder}/asked
case $1 in --version) echo slurm 23.11;; --mpi=list) echo MPI: {types};; --help) echo {flags};; *) {tasks};; esac""",
    )


def found(tmp_path: Path, **site: Any) -> dict[str, Finding]:
    return dict(examine(site_file(tmp_path, **({"folder": str(tmp_path)} | site))))


def test_a_cluster_without_faults(programs: Path, tmp_path: Path) -> None:
    cluster(programs)
    findings = found(tmp_path)
    assert {name: finding.status for name, finding in findings.items()} == dict.fromkeys(
        ("clients", "mpi", "nodes", "job", "folder", "node"), "ok"
    )
    assert findings["clients"].seen == "slurm 23.11" and findings["nodes"].seen == "2 nodes with 8 cores"
    assert findings["node"].seen == "2 tasks on a node, each with 4 cores"
    assert not list(tmp_path.glob("collbench-doctor-*")), "nothing is left"


REJECTS = "case $text in *{}*) echo 'sbatch: error: {}' >&2; exit 1;; esac"


@pytest.mark.parametrize(
    ("fault", "site", "check", "status", "says"),
    [
        ({"types": "none pmi2"}, {}, "mpi", "fail", "does not name pmix"),
        ({"types": "none pmix"}, {"images": {}}, "mpi", "warn", "does not name pmi2"),
        ({}, {"mpi": {"openmpi": "pmi2"}}, "mpi", "fail", "openmpi does not join a world by pmi2"),
        ({"types": "none pmi2 pmix_v4"}, {"mpi": {"openmpi": "pmix_v4"}}, "mpi", "ok", ""),
        ({"nodes": "2 4 idle"}, {}, "nodes", "fail", "the largest node has 4"),
        ({"test": REJECTS.format("partitoin", "unknown option")}, {"options": ["--partitoin=x"]}, "job", "fail",
         "unknown option"),
        ({"test": REJECTS.format("cpus-per-task=8", "no such node")}, {}, "job", "fail", "no such node"),
        ({"test": REJECTS.format("gpus", "no such gres")}, {"gpus": 2}, "job", "fail", "no such gres"),
        ({"test": REJECTS.format("=cpu", "no such partition")}, {"servers": {"options": ["--partition=cpu"]}}, "job",
         "fail", "no such partition"),
        ({"tasks": 'echo "task 0 0 writable 4"; echo "task 0 1 writable 4"'}, {}, "node", "fail",
         "PMI_RANK is 0 and SLURM_PROCID is 1"),
        ({"tasks": TASKS.replace("writable", "missing")}, {}, "node", "fail", "a node cannot write"),
        ({"tasks": TASKS.replace("writable", "unshared")}, {}, "node", "fail", "does not see what is written to"),
        ({"tasks": f"echo absent program ch-run; {TASKS}"}, {"runtime": "charliecloud"}, "node", "fail",
         "a node does not have ch-run"),
        ({"tasks": f"echo absent images openmpi /img/x; {TASKS}"}, {"runtime": "apptainer"}, "node", "fail",
         "a node does not have /img/x"),
        ({"tasks": f"echo absent environments openmpi /env/bin/python; {TASKS}"}, {}, "node", "fail",
         "a node does not have /env/bin/python"),
        ({"flags": "--container"}, {"runtime": "pyxis"}, "node", "fail", "srun has no --container-image"),
        ({"flags": "--container-image"}, {"runtime": "pyxis"}, "node", "ok", ""),
        ({"tasks": "echo 'srun: error: Unable to allocate: busy' >&2; exit 1"}, {}, "node", "unknown", "busy"),
    ],
)  # fmt: skip
def test_faults_of_a_cluster(
    programs: Path, tmp_path: Path, fault: dict[str, str], site: dict[str, Any], check: str, status: str, says: str
) -> None:
    cluster(programs, **fault)
    finding = found(tmp_path, **site)[check]
    assert finding.status == status
    assert not says or says in " ".join(problem.cause for problem in finding.problems)


def test_what_a_task_of_the_node_prints(programs: Path, tmp_path: Path) -> None:
    """The text that tasks are given, run here."""
    cluster(programs, tasks='for last; do true; done; SLURM_PROCID=0 PMI_RANK=0 bash -c "$last"; '
                            'SLURM_PROCID=1 PMI_RANK=1 bash -c "$last"')  # fmt: skip
    finding = found(tmp_path, runtime="charliecloud", images={"openmpi": str(tmp_path), "mpich": "/none/mpich"},
                    environments={"openmpi": "/none/openmpi"}, setup=["export PATH=$PATH"])["node"]  # fmt: skip
    said = [problem.cause for problem in finding.problems]
    assert [cause for cause in said if "ch-run" not in cause] == [
        "a node does not have /none/openmpi/bin/python", "a node does not have /none/mpich"
    ]  # fmt: skip


def test_a_job_that_is_rejected_asks_no_node(programs: Path, tmp_path: Path) -> None:
    cluster(programs, test="exit 1")
    assert list(found(tmp_path)) == ["clients", "mpi", "nodes", "job", "folder"]


def test_another_node_than_this_one_is_asked(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "login.site.org")
    for nodes, excluded in (("1 8 login n1", True), ("1 8 n0 n1", False)):
        cluster(programs, nodes=nodes)
        (programs / "asked").write_text("")
        found(tmp_path)
        assert ("--exclude=login" in (programs / "asked").read_text()) == excluded


def test_a_folder_that_cannot_be_written_to_is_a_failed_check(programs: Path, tmp_path: Path) -> None:
    cluster(programs)
    findings = found(tmp_path, folder="/proc/collbench")
    assert findings["folder"].status == "fail" and "/proc cannot be written to" in findings["folder"].problems[0].cause
    assert findings["node"].status == "ok", "the other checks are made"


def test_where_there_is_no_slurm(
    programs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    site = site_file(tmp_path)
    with pytest.raises(SystemExit) as ended:
        cli.main(["doctor", "--on", "slurm", "--site", site])
    assert ended.value.code == 1
    assert "there is no srun here" in capsys.readouterr().out.replace("\n                 ", " ")
