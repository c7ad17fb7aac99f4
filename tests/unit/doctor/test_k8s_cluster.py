"""`collbench doctor --on k8s`, with a kubectl that is played."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.test_k8s_session import SITE, cluster, says

from collbench.cli import cli
from collbench.doctor.cluster.k8s import examine
from collbench.doctor.parts.finding import Finding

__all__ = ["cluster"]

NODES = [{"cpu": "7910m"}, {"cpu": "4", "nvidia.com/gpu": "2"}]


def found(folder: Path, more: str = "", **what: Any) -> dict[str, Finding]:
    (folder / "site.toml").write_text(f'[k8s]\nobjects = "mpijob"\n{more}{SITE}')
    says(folder / "played", **({"nodes": NODES} | what))
    return dict(examine(str(folder / "site.toml")))


def test_a_cluster_without_faults(cluster: Path, tmp_path: Path) -> None:
    findings = found(tmp_path, "gpus = 2\n")
    assert {name: finding.status for name, finding in findings.items()} == dict.fromkeys(
        ("cluster", "namespace", "rights", "operator", "nodes"), "ok"
    )
    assert findings["cluster"].seen == "kubernetes v1.34.1"
    assert findings["nodes"].seen == "2 nodes, the largest with 7.91 cores for pods"
    assert not (cluster / "applied").exists()


@pytest.mark.parametrize(
    ("what", "more", "check", "status", "says"),
    [
        ({"absent": ["default"]}, "", "namespace", "fail", 'namespace "default" not found'),
        ({"forbidden": ["create jobs", "create pods/exec"]}, "", "rights", "fail",
         "the account may not create jobs, create pods/exec"),
        ({"forbidden": ["create mpijobs.kubeflow.org"]}, "", "rights", "fail", "create mpijobs"),
        ({"absent": ["mpijobs.kubeflow.org"]}, "", "operator", "fail", "does not know mpijobs"),
        ({"nodes": [{"cpu": "500m"}]}, "", "nodes", "fail", "cores = 1, and no node has more than 0.5"),
        ({"nodes": []}, "", "nodes", "fail", "no node has more than 0"),
        ({}, "gpus = 4\n", "nodes", "fail", "gpus = 4, and no node has more than 2"),
        ({"get": "Error from server (Forbidden): User cannot list nodes"}, "", "nodes", "unknown", "cannot list nodes"),
        ({"auth": "Unable to connect to the server"}, "", "rights", "unknown", "Unable to connect"),
        ({"version": "Unable to connect to the server"}, "", "cluster", "fail", "Unable to connect"),
    ],
)  # fmt: skip
def test_faults_of_a_cluster(
    cluster: Path, tmp_path: Path, what: dict[str, Any], more: str, check: str, status: str, says: str
) -> None:
    finding = found(tmp_path, more, **what)[check]
    assert finding.status == status
    assert says in finding.problems[0].cause


def test_it_is_the_cluster_that_is_examined(cluster: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found(tmp_path, absent=["default"])
    with pytest.raises(SystemExit) as ended:
        cli.main(["doctor", "--on", "k8s", "--site", str(tmp_path / "site.toml")])
    assert ended.value.code == 1
    assert "Not ready: namespace failed" in capsys.readouterr().out


def test_a_site_file_without_its_engine_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    from collbench.errors import RequestError

    with pytest.raises(RequestError, match="--site describes a cluster; add --on slurm or --on k8s"):
        cli.main(["doctor", "--site", "site.toml"], standalone_mode=False)
