"""`collbench doctor --on slurm`, with what plays Slurm's programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.played_slurm import environment, play_cluster
from tests.unit.test_slurm import play, programs, site_file

from collbench.cli import cli
from collbench.doctor import clusters
from collbench.doctor.frame import Finding

__all__ = ["programs"]


def found(tmp_path: Path, **site: Any) -> dict[str, Finding]:
    where = tmp_path / "shared"
    where.mkdir(exist_ok=True)
    if "environments" not in site:
        site["environments"] = {"openmpi": environment(tmp_path / "env")}
    findings = dict(clusters.slurm_cluster(site_file(tmp_path, **({"folder": str(where)} | site))))
    assert not list(where.iterdir()), "nothing is left"
    return findings


def causes(finding: Finding) -> str:
    return " ".join(problem.cause for problem in finding.problems)


def test_a_cluster_without_faults(programs: Path, tmp_path: Path) -> None:
    play_cluster(programs)
    findings = found(tmp_path)
    assert {name: finding.status for name, finding in findings.items()} == dict.fromkeys(
        ("clients", "mpi", "nodes", "time", "job", "folder", "node", "software", "ranks"), "ok"
    ), causes(findings["node"])
    assert findings["clients"].seen == "slurm 23.11" and findings["nodes"].seen == "2 nodes with 8 cores"
    assert "2 nodes" in findings["node"].seen and "2 ranks on 2 nodes" in findings["ranks"].seen


REJECTS = "text=$(cat); case $text in *{0}*) echo 'sbatch: error: {0}' >&2; exit 1;; esac"


@pytest.mark.parametrize(
    ("fault", "site", "check", "status", "says"),
    [
        ({"types": "none pmi2"}, {}, "mpi", "fail", "does not name pmix"),
        ({"types": "none pmix"}, {"images": {}}, "mpi", "warn", "does not name pmi2"),
        ({}, {"mpi": {"openmpi": "pmi2"}}, "mpi", "fail", "openmpi does not join a world by pmi2"),
        ({"types": "none pmi2 pmix_v4"}, {"mpi": {"openmpi": "pmix_v4"}}, "mpi", "ok", ""),
        ({"nodes": "n0 4"}, {}, "nodes", "fail", "the largest node has 4"),
        ({"nodes": "n0 1\nn1 2\nn1 2"}, {"cores": 2}, "nodes", "ok", ""),
        ({"limits": "all* 1:00:00"}, {}, "time", "fail", "allows 1:00:00"),
        ({"limits": "all* 2-00:00:00\nshort 10:00"}, {}, "time", "ok", ""),
        ({"limits": "short 10:00"}, {"options": ["-p short"]}, "time", "fail", "partition short allows 10:00"),
        ({"limits": "all* infinite"}, {"time": "UNLIMITED"}, "time", "ok", ""),
        ({"limits": "all* 1:00:00"}, {"time": "UNLIMITED"}, "time", "fail", "allows 1:00:00"),
        ({"test": REJECTS.format("partitoin")}, {"options": ["--partitoin=x"]}, "job", "fail", "partitoin"),
        ({"test": REJECTS.format("cpus-per-task=8")}, {}, "job", "fail", "cpus-per-task=8"),
        ({"test": REJECTS.format("gpus")}, {"gpus": 2}, "job", "fail", "gpus"),
        ({"test": REJECTS.format("=cpu")}, {"servers": {"options": ["--partition=cpu"]}}, "job", "fail", "=cpu"),
    ],
)  # fmt: skip
def test_faults_that_slurm_says_without_a_node(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: dict[str, Any], site: dict[str, Any],
    check: str, status: str, says: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(clusters, "on_nodes", lambda *_: ())
    play_cluster(programs, **fault)
    finding = found(tmp_path, **site)[check]
    assert finding.status == status
    assert not says or says in causes(finding)


@pytest.mark.parametrize("option", ["--partition=batch", "--partition batch", "-p batch", "-pbatch"])
def test_sinfo_is_asked_for_the_partition_of_the_options(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    monkeypatch.setattr(clusters, "on_nodes", lambda *_: ())
    play_cluster(programs)
    play(programs, "sinfo", f'echo "$*" >> {programs}/asked; case "$*" in *%c*) echo n0 8;; esac')
    found(tmp_path, options=["--exclusive", option])
    asked = [line for line in (programs / "asked").read_text().splitlines() if "%" in line]
    assert len(asked) == 2 and all("--partition=batch" in line for line in asked)


#: What an environment does on node n1, and the check that fails, with words of the cause.
ON_N1 = [
    ("echo 'exec: /env/bin/python: not found' >&2; exit 127", "software", ("node n1", "127", "not found")),
    ("probe | sed s/0.1.0/0.0.9/; exit", "software", ("node n1", "collbench 0.0.9")),
    ("case $* in *allreduce*) echo 'Runtime environment uses unsupported PMI version PMIx'; exit 1;; esac", "ranks",
     ("node n1", "unsupported PMI version PMIx")),
    ("case $* in *allreduce*) echo 'collbench: backend mpi: no network'; exit 2;; esac", "ranks",
     ("node n1", "no network")),
    ("case $* in *allreduce*) exec sleep 60;; esac", "ranks", ("node n1", "no answer")),
]  # fmt: skip


@pytest.mark.parametrize(("does", "check", "says"), ON_N1)
def test_what_is_wrong_on_one_node_is_found_and_the_node_is_named(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str, check: str, says: tuple[str, ...]
) -> None:
    monkeypatch.setattr(clusters, "HELLO", 1.5)
    play_cluster(programs, number=3)
    findings = found(tmp_path, environments={"openmpi": environment(tmp_path / "env", n1=does)})
    assert {name for name, finding in findings.items() if finding.status == "fail"} == {check}
    for word in says:
        assert word in causes(findings[check])
    assert "n2" not in causes(findings[check])


def test_ranks_that_meet_on_no_two_nodes(programs: Path, tmp_path: Path) -> None:
    """Each node alone is sound; the cause is the library's."""
    play_cluster(programs)
    own = environment(tmp_path / "env", n1="case $SLURM_PROCID$* in 1*allreduce*) echo 'unreachable'; exit 1;; esac")
    finding = found(tmp_path, environments={"openmpi": own})["ranks"]
    assert finding.status == "fail" and "unreachable" in causes(finding) and "node n1" not in causes(finding)


def test_an_image_whose_runtime_is_not_there(programs: Path, tmp_path: Path) -> None:
    play_cluster(programs)
    finding = found(tmp_path, runtime="charliecloud", images={"openmpi": "/img/x"})["software"]
    assert finding.status == "fail" and "every node" in causes(finding) and "ch-run" in causes(finding)


@pytest.mark.parametrize(("state", "status"), [("PENDING", "unknown"), ("FAILED", "fail")])
def test_without_an_answer_of_a_node(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, status: str
) -> None:
    monkeypatch.setattr(clusters, "QUEUE", 0.3)
    play_cluster(programs)
    play(programs, "sbatch", "[ $1 = --parsable ] && echo 7 || echo slurm 23.11")
    play(programs, "scontrol", f"[ -e {programs}/gone ] && s=CANCELLED || s={state}; echo JobId=7 JobState=$s Reason=x")
    play(programs, "scancel", f"[ $1 = --version ] || touch {programs}/gone")
    finding = found(tmp_path)["node"]
    assert finding.status == status and state in causes(finding)


REJECTS_FOUR = "text=$(cat); case $text in *--nodes=4*) exit 1;; esac"


@pytest.mark.parametrize(
    ("fault", "nodes"),
    [({"idle": "all* 3 1-infinite\nother 9 1-infinite"}, 3), ({"idle": "all* 3 1-2"}, 2), ({"idle": " "}, 1),
     ({"idle": "all* 4 1-infinite", "test": REJECTS_FOUR}, 2)],
)  # fmt: skip
def test_as_many_nodes_are_asked_as_are_idle_and_may_be_had(
    programs: Path, tmp_path: Path, fault: dict[str, Any], nodes: int
) -> None:
    play_cluster(programs, number=1, **fault)
    found(tmp_path)
    assert f"#SBATCH --nodes={nodes}\n" in (programs / "job.sh").read_text()


def test_a_job_that_is_rejected_asks_no_node(programs: Path, tmp_path: Path) -> None:
    play_cluster(programs, test="exit 1")
    assert list(found(tmp_path)) == ["clients", "mpi", "nodes", "time", "job", "folder"]


def test_a_folder_that_cannot_be_written_to_is_a_failed_check(programs: Path, tmp_path: Path) -> None:
    play_cluster(programs)
    findings = found(tmp_path, folder="/proc/collbench")
    assert findings["folder"].status == "fail" and "/proc cannot be written to" in findings["folder"].problems[0].cause
    assert "node" not in findings, "a job leaves its output there"


def test_where_there_is_no_slurm(
    programs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    site = site_file(tmp_path)
    with pytest.raises(SystemExit) as ended:
        cli.main(["doctor", "--on", "slurm", "--site", site])
    assert ended.value.code == 1
    assert "there is no srun here" in capsys.readouterr().out.replace("\n                 ", " ")
