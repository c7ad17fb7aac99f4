"""`collbench doctor --on slurm` and `--on k8s`, with what plays Slurm's programs and kubectl."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.doctor.machines import outcome
from tests.unit.played_slurm import environment, play_cluster
from tests.unit.test_k8s import PLAYED_SITE, cluster, says
from tests.unit.test_slurm import play, programs, site_file

from collbench.cli import cli
from collbench.doctor import Finding, clusters
from collbench.doctor.clusters import k8s_cluster, rights
from collbench.errors import RequestError
from collbench.launch.engines.k8s.site import read

__all__ = ["cluster", "programs"]

Golden = Callable[[str, str], None]


def causes(finding: Finding) -> str:
    return " ".join(problem.cause for problem in finding.problems)


def statuses(findings: dict[str, Finding]) -> dict[str, str]:
    return {name: finding.status for name, finding in findings.items()}


# Kubernetes ----------------------------------------------------------------------------------------------------------

PAGE = (Path(__file__).parents[3] / "docs/cluster.md").read_text(encoding="utf-8")

TAINTED = {"cpu": "8", "rdma/hca": "1",
           "taints": [{"key": "nvidia.com/gpu", "value": "yes", "effect": "NoSchedule"}]}  # fmt: skip
NODES = [{"cpu": "7910m"}, {"cpu": "4", "nvidia.com/gpu": "2"}]


def examined(folder: Path, more: str = "", **what: Any) -> Iterator[tuple[str, Finding]]:
    (folder / "site.toml").write_text(f'[k8s]\nobjects = "mpijob"\n{more}{PLAYED_SITE}')
    says(folder / "played", **({"nodes": NODES} | what))
    return k8s_cluster(str(folder / "site.toml"))


def of_check(check: str, folder: Path, more: str = "", **what: Any) -> Finding:
    """Of one check; those after it are not made."""
    return next(finding for name, finding in examined(folder, more, **what) if name == check)


def test_a_kubernetes_without_faults(cluster: Path, tmp_path: Path) -> None:
    findings = dict(examined(tmp_path, "gpus = 2\n"))
    checks = ("cluster", "namespace", "operator", "nodes", "pod", "rights")
    assert statuses(findings) == dict.fromkeys(checks, "ok")
    assert "v1.34.1" in findings["cluster"].observed
    assert re.findall(r"[\d.]+", findings["nodes"].observed) == ["2", "7.91"]
    assert not (cluster / "applied").exists()
    assert "create --dry-run=server" in (cluster / "asked").read_text()  # the only one that could make something


OTHER_TOLERATION = "pod.spec.tolerations = [{ key = 'nvidia.com/gpu', value = 'no' }]\n"
UNCONNECTED = "Unable to connect to the server"

#: Of a cluster and more lines of the site file, the check that has the problem, and its severity.
K8S_FAULTS: list[tuple[dict[str, Any], str, str, str]] = [
    ({"absent": ["default"]}, "", "namespace", "fail"),
    ({"forbidden": ["create jobs", "create pods/exec"]}, "", "rights", "fail"),
    ({"forbidden": ["list services", "watch mpijobs.kubeflow.org"]}, "", "rights", "fail"),
    ({"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}, "", "namespace", "warn"),
    ({"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}, "", "namespace", "warn"),
    ({"nodes": [TAINTED]}, "", "nodes", "fail"),
    ({"nodes": [TAINTED]}, OTHER_TOLERATION, "nodes", "fail"),
    ({}, "resources = { 'rdma/hca' = 1 }\n", "nodes", "fail"),
    ({"create": 'Error from server (Forbidden): pods "x" is forbidden: violates PodSecurity'}, "", "pod", "fail"),
    ({"forbidden": ["create mpijobs.kubeflow.org"]}, "", "rights", "fail"),
    ({"absent": ["mpijobs.kubeflow.org"]}, "", "operator", "fail"),
    ({"nodes": [{"cpu": "500m"}]}, "", "nodes", "fail"),
    ({"nodes": [{"cpu": "1"}]}, "threads_per_core = 2\n", "nodes", "fail"),
    ({"nodes": []}, "", "nodes", "fail"),
    ({}, "gpus = 4\n", "nodes", "fail"),
    ({"get": "Error from server (Forbidden): User cannot list nodes"}, "", "nodes", "unknown"),
    ({"auth": UNCONNECTED}, "", "rights", "unknown"),
    ({"version": UNCONNECTED}, "", "cluster", "fail"),
]


def test_faults_of_a_kubernetes(cluster: Path, tmp_path: Path, golden: Golden) -> None:
    text = ""
    for what, more, check, severity in K8S_FAULTS:
        title = f"{check}, {json.dumps(what)} {more}".strip()
        text += outcome(title, severity, of_check(check, tmp_path, more, **what))
    golden("doctor-k8s.txt", text.replace(str(tmp_path), ""))


@pytest.mark.parametrize(
    "toleration",
    ["{ operator = 'Exists' }", "{ key = 'nvidia.com/gpu', operator = 'Exists', effect = 'NoSchedule' }",
     "{ key = 'nvidia.com/gpu', value = 'yes' }"],
)  # fmt: skip
def test_a_node_whose_taints_are_tolerated_counts(cluster: Path, tmp_path: Path, toleration: str) -> None:
    more = f"pod.spec.tolerations = [{toleration}]\nresources = {{ 'rdma/hca' = 1 }}\n"
    assert of_check("nodes", tmp_path, more, nodes=[TAINTED]).status == "ok"
    avoided = {"key": "busy", "effect": "PreferNoSchedule"}
    assert of_check("nodes", tmp_path, nodes=[{"cpu": "8", "taints": [avoided]}]).status == "ok"


def test_an_account_that_makes_no_pods_itself_is_not_refused(cluster: Path, tmp_path: Path) -> None:
    refusal = 'Error from server (Forbidden): pods is forbidden: User "u" cannot create resource "pods" in API group ""'
    assert of_check("pod", tmp_path, create=refusal).status == "ok"


def test_the_role_of_the_page_allows_what_doctor_asks_for(cluster: Path, tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml", reason="pip install pyyaml")
    examined(tmp_path)
    (block,) = re.findall(r"```yaml\n(kind: Role\n.*?)```", PAGE, re.DOTALL)
    rules = yaml.safe_load(block)["rules"]
    allowed = {f"{verb} {kind}" for rule in rules for kind in rule["resources"] for verb in rule["verbs"]}
    site = msgspec.structs.replace(
        read(str(tmp_path / "site.toml")), device_class="gpu.nvidia.com", compute_domain=True
    )
    assert {what.removesuffix(".kubeflow.org") for what in rights(site)} == allowed


def test_it_is_the_cluster_that_is_examined(cluster: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    examined(tmp_path, absent=["default"])
    with pytest.raises(SystemExit) as ended:
        cli.main(["doctor", "--json", "--on", "k8s", "--site", str(tmp_path / "site.toml")])
    assert ended.value.code == 1
    status = {row["check"]: row["status"] for row in json.loads(capsys.readouterr().out)["findings"]}
    assert status["namespace"] == "fail"


def test_a_site_file_without_its_engine_is_refused() -> None:
    with pytest.raises(RequestError, match=r"--site .*--on slurm .*--on k8s"):
        cli.main(["doctor", "--site", "site.toml"], standalone_mode=False)


# Slurm ---------------------------------------------------------------------------------------------------------------


def of_slurm(tmp_path: Path, **site: Any) -> dict[str, Finding]:
    shared = tmp_path / "shared"
    shared.mkdir(exist_ok=True)
    if "environments" not in site:
        site["environments"] = {"openmpi": environment(tmp_path / "env")}
    findings = dict(clusters.slurm_cluster(site_file(tmp_path, **({"folder": str(shared)} | site))))
    assert not list(shared.iterdir()), "nothing is left"
    return findings


@pytest.fixture
def no_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """No job asks them."""
    monkeypatch.setattr(clusters, "on_nodes", lambda *_: ())


def test_a_slurm_without_faults(programs: Path, tmp_path: Path) -> None:
    play_cluster(programs)
    findings = of_slurm(tmp_path)
    checks = ("clients", "mpi", "nodes", "time", "job", "folder", "node", "software", "ranks")
    assert statuses(findings) == dict.fromkeys(checks, "ok"), causes(findings["node"])
    assert "23.11" in findings["clients"].observed and re.findall(r"\d+", findings["nodes"].observed) == ["2", "8"]
    assert "2 nodes" in findings["node"].observed and "2 ranks on 2 nodes" in findings["ranks"].observed


REJECTS = "text=$(cat); case $text in *{0}*) echo 'sbatch: error: {0}' >&2; exit 1;; esac"

#: Of a cluster and a site file, the check that is looked at, and its severity.
SLURM_FAULTS: list[tuple[dict[str, Any], dict[str, Any], str, str]] = [
    ({"types": "none pmi2"}, {}, "mpi", "fail"),
    ({"types": "none pmix"}, {"images": {}}, "mpi", "warn"),
    ({}, {"mpi": {"openmpi": "pmi2"}}, "mpi", "fail"),
    ({"types": "none pmi2 pmix_v4"}, {"mpi": {"openmpi": "pmix_v4"}}, "mpi", "ok"),
    ({"nodes": "n0 4"}, {}, "nodes", "fail"),
    ({"nodes": "n0 1\nn1 2\nn1 2"}, {"cores": 2}, "nodes", "ok"),
    ({"limits": "all* 1:00:00"}, {}, "time", "fail"),
    ({"limits": "all* 2-00:00:00\nshort 10:00"}, {}, "time", "ok"),
    ({"limits": "short 10:00"}, {"options": ["-p short"]}, "time", "fail"),
    ({"limits": "all* infinite"}, {"time": "UNLIMITED"}, "time", "ok"),
    ({"limits": "all* 1:00:00"}, {"time": "UNLIMITED"}, "time", "fail"),
    ({"test": REJECTS.format("partitoin")}, {"options": ["--partitoin=x"]}, "job", "fail"),
    ({"test": REJECTS.format("cpus-per-task=8")}, {}, "job", "fail"),
    ({"test": REJECTS.format("gpus")}, {"gpus": 2}, "job", "fail"),
    ({"test": REJECTS.format("=cpu")}, {"servers": {"options": ["--partition=cpu"]}}, "job", "fail"),
]


def test_faults_that_slurm_says_without_a_node(programs: Path, tmp_path: Path, no_nodes: None, golden: Golden) -> None:
    text = ""
    for number, (fault, site, check, severity) in enumerate(SLURM_FAULTS):
        play_cluster(programs, **fault)
        (folder := tmp_path / str(number)).mkdir()
        title = f"{check}, {json.dumps(fault)} {json.dumps(site)}"
        text += outcome(title, severity, of_slurm(folder, **site)[check])
    golden("doctor-slurm.txt", text.replace(str(tmp_path), ""))


@pytest.mark.parametrize("option", ["--partition=batch", "--partition batch", "-p batch", "-pbatch"])
def test_sinfo_is_asked_for_the_partition_of_the_options(
    programs: Path, tmp_path: Path, no_nodes: None, option: str
) -> None:
    play_cluster(programs)
    play(programs, "sinfo", f'echo "$*" >> {programs}/asked; case "$*" in *%c*) echo n0 8;; esac')
    of_slurm(tmp_path, options=["--exclusive", option])
    lines = [line for line in (programs / "asked").read_text().splitlines() if "%" in line]
    assert len(lines) == 2 and all("--partition=batch" in line for line in lines)


#: What an environment does on node n1, and the check that fails, with what its cause names.
ON_N1 = [
    ("echo 'exec: /env/bin/python: not found' >&2; exit 127", "software", ("127", "/env/bin/python")),
    ("probe | sed s/0.1.0/0.0.9/; exit", "software", ("0.0.9",)),
    ("case $* in *allreduce*) echo 'Runtime environment uses unsupported PMI version PMIx'; exit 1;; esac", "ranks",
     ("PMIx",)),
    ("case $* in *allreduce*) echo 'collbench: backend mpi: no network'; exit 2;; esac", "ranks", ("no network",)),
    ("case $* in *allreduce*) exec sleep 60;; esac", "ranks", ("1.5 s",)),
]  # fmt: skip


@pytest.mark.parametrize(("does", "check", "names"), ON_N1)
def test_what_is_wrong_on_one_node_fails_and_the_node_is_named(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str, check: str, names: tuple[str, ...]
) -> None:
    monkeypatch.setattr(clusters, "HELLO", 1.5)
    play_cluster(programs, number=3)
    findings = of_slurm(tmp_path, environments={"openmpi": environment(tmp_path / "env", n1=does)})
    assert {name for name, finding in findings.items() if finding.status == "fail"} == {check}
    for word in ("node n1", *names):
        assert word in causes(findings[check])
    assert "n2" not in causes(findings[check])


def test_ranks_that_meet_on_no_two_nodes(programs: Path, tmp_path: Path) -> None:
    """Each node alone is sound; the cause is the library's."""
    play_cluster(programs)
    apart = environment(tmp_path / "env", n1="case $SLURM_PROCID$* in 1*allreduce*) echo 'unreachable'; exit 1;; esac")
    finding = of_slurm(tmp_path, environments={"openmpi": apart})["ranks"]
    assert finding.status == "fail" and "unreachable" in causes(finding) and "node n1" not in causes(finding)


def test_an_image_whose_runtime_is_not_there(programs: Path, tmp_path: Path) -> None:
    play_cluster(programs)
    finding = of_slurm(tmp_path, runtime="charliecloud", images={"openmpi": "/img/x"})["software"]
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
    finding = of_slurm(tmp_path)["node"]
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
    of_slurm(tmp_path)
    assert f"#SBATCH --nodes={nodes}\n" in (programs / "job.sh").read_text()


def test_a_job_that_is_rejected_asks_no_node(programs: Path, tmp_path: Path) -> None:
    play_cluster(programs, test="exit 1")
    assert list(of_slurm(tmp_path)) == ["clients", "mpi", "nodes", "time", "job", "folder"]


def test_a_folder_that_cannot_be_written_to_is_a_failed_check(programs: Path, tmp_path: Path) -> None:
    play_cluster(programs)
    findings = of_slurm(tmp_path, folder="/proc/collbench")
    assert findings["folder"].status == "fail" and causes(findings["folder"]).startswith("/proc ")
    assert "node" not in findings, "a job leaves its output there"


def test_where_there_is_no_slurm(programs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["doctor", "--json", "--on", "slurm", "--site", site_file(tmp_path)])
    assert ended.value.code == 1
    (clients,) = json.loads(capsys.readouterr().out)["findings"]
    assert (clients["check"], clients["status"]) == ("clients", "fail") and "srun" in clients["problems"][0]["cause"]
