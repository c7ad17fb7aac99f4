"""`collbench doctor --on k8s`, with a kubectl that is played."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.test_k8s import SITE, cluster, says

from collbench.cli import cli
from collbench.doctor.clusters import k8s_cluster, rights
from collbench.doctor.frame import Finding
from collbench.launch.engines.k8s.site import read

__all__ = ["cluster"]

PAGE = (Path(__file__).parents[3] / "docs/cluster.md").read_text(encoding="utf-8")

TAINTED = {"cpu": "8", "rdma/hca": "1",
           "taints": [{"key": "nvidia.com/gpu", "value": "yes", "effect": "NoSchedule"}]}  # fmt: skip
NODES = [{"cpu": "7910m"}, {"cpu": "4", "nvidia.com/gpu": "2"}]


def examined(folder: Path, more: str = "", **what: Any) -> Iterator[tuple[str, Finding]]:
    (folder / "site.toml").write_text(f'[k8s]\nobjects = "mpijob"\n{more}{SITE}')
    says(folder / "played", **({"nodes": NODES} | what))
    return k8s_cluster(str(folder / "site.toml"))


def found(check: str, folder: Path, more: str = "", **what: Any) -> Finding:
    """Of one check; those after it are not made."""
    return next(finding for name, finding in examined(folder, more, **what) if name == check)


def test_a_cluster_without_faults(cluster: Path, tmp_path: Path) -> None:
    findings = dict(examined(tmp_path, "gpus = 2\n"))
    assert {name: finding.status for name, finding in findings.items()} == dict.fromkeys(
        ("cluster", "namespace", "operator", "nodes", "pod", "rights"), "ok"
    )
    assert findings["cluster"].seen == "kubernetes v1.34.1"
    assert findings["nodes"].seen == "2 nodes, the largest with 7.91 cores for pods"
    assert not (cluster / "applied").exists()
    assert "create --dry-run=server" in (cluster / "asked").read_text()  # the only one that could make something


@pytest.mark.parametrize(
    ("what", "more", "check", "status", "says"),
    [
        ({"absent": ["default"]}, "", "namespace", "fail", 'namespace "default" not found'),
        ({"forbidden": ["create jobs", "create pods/exec"]}, "", "rights", "fail",
         "the account may not create jobs, create pods/exec"),
        ({"forbidden": ["list services", "watch mpijobs.kubeflow.org"]}, "", "rights", "fail",
         "the account may not list services, watch mpijobs.kubeflow.org"),
        ({"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}, "", "namespace", "warn", "restricted"),
        ({"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}, "", "namespace", "warn", "baseline"),
        ({"nodes": [TAINTED]}, "", "nodes", "fail", "nvidia.com/gpu:NoSchedule"),
        ({"nodes": [TAINTED]}, "pod.spec.tolerations = [{ key = 'nvidia.com/gpu', value = 'no' }]\n", "nodes", "fail",
         "nvidia.com/gpu:NoSchedule"),
        ({}, "resources = { 'rdma/hca' = 1 }\n", "nodes", "fail", "no node has rdma/hca"),
        ({"create": 'Error from server (Forbidden): pods "x" is forbidden: violates PodSecurity'}, "", "pod", "fail",
         "violates PodSecurity"),
        ({"forbidden": ["create mpijobs.kubeflow.org"]}, "", "rights", "fail", "create mpijobs"),
        ({"absent": ["mpijobs.kubeflow.org"]}, "", "operator", "fail", "does not know mpijobs"),
        ({"nodes": [{"cpu": "500m"}]}, "", "nodes", "fail", "cores = 1, and no node has more than 0.5"),
        ({"nodes": [{"cpu": "1"}]}, "threads_per_core = 2\n", "nodes", "fail", "no node has more than 0.5"),
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
    finding = found(check, tmp_path, more, **what)
    assert finding.status == status
    assert says in finding.problems[0].cause


@pytest.mark.parametrize(
    "toleration",
    ["{ operator = 'Exists' }", "{ key = 'nvidia.com/gpu', operator = 'Exists', effect = 'NoSchedule' }",
     "{ key = 'nvidia.com/gpu', value = 'yes' }"],
)  # fmt: skip
def test_a_node_whose_taints_are_tolerated_counts(cluster: Path, tmp_path: Path, toleration: str) -> None:
    more = f"pod.spec.tolerations = [{toleration}]\nresources = {{ 'rdma/hca' = 1 }}\n"
    assert found("nodes", tmp_path, more, nodes=[TAINTED]).status == "ok"
    avoided = {"key": "busy", "effect": "PreferNoSchedule"}
    assert found("nodes", tmp_path, nodes=[{"cpu": "8", "taints": [avoided]}]).status == "ok"


def test_an_account_that_makes_no_pods_itself_is_not_refused(cluster: Path, tmp_path: Path) -> None:
    refusal = 'Error from server (Forbidden): pods is forbidden: User "u" cannot create resource "pods" in API group ""'
    assert found("pod", tmp_path, create=refusal).status == "ok"


def test_the_role_of_the_page_allows_what_doctor_asks_for(cluster: Path, tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml", reason="pip install pyyaml")
    examined(tmp_path)
    (block,) = re.findall(r"```yaml\n(kind: Role\n.*?)```", PAGE, re.DOTALL)
    rules = yaml.safe_load(block)["rules"]
    allowed = {f"{verb} {kind}" for rule in rules for kind in rule["resources"] for verb in rule["verbs"]}
    asked = {what.removesuffix(".kubeflow.org") for what in rights(read(str(tmp_path / "site.toml")))}
    assert asked == allowed


def test_it_is_the_cluster_that_is_examined(cluster: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    examined(tmp_path, absent=["default"])
    with pytest.raises(SystemExit) as ended:
        cli.main(["doctor", "--json", "--on", "k8s", "--site", str(tmp_path / "site.toml")])
    assert ended.value.code == 1
    status = {row["check"]: row["status"] for row in json.loads(capsys.readouterr().out)["findings"]}
    assert status["namespace"] == "fail"


def test_a_site_file_without_its_engine_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    from collbench.errors import RequestError

    with pytest.raises(RequestError, match="--site describes a cluster; add --on slurm or --on k8s"):
        cli.main(["doctor", "--site", "site.toml"], standalone_mode=False)
