"""`collbench doctor --on k8s`: what would spoil a launch in pods, asked by kubectl; nothing is made."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from collbench.doctor.cluster import examined, said
from collbench.doctor.parts.finding import Finding, Problem
from collbench.errors import EngineError
from collbench.launch.engines.k8s.client import Client
from collbench.launch.engines.k8s.objects import Object, look_job
from collbench.launch.engines.k8s.site import K8sSite, read
from collbench.units import counted

_FIX = "ask who runs the site"

_OPERATOR = "mpijobs.kubeflow.org"

#: What kubectl does with the objects of a launch, which it waits for when it deletes them, and what it asks besides.
_MADE, _VERBS = ("configmaps", "services", "jobs"), ("create", "get", "list", "watch", "delete")
_ASKED = ("get pods", "list pods", "get pods/log", "create pods/exec", "list events")

#: Label of a namespace: the level of PodSecurity; and the levels that refuse the namespaces of a node.
_ENFORCED, _REFUSING = "pod-security.kubernetes.io/enforce", ("baseline", "restricted")

#: What the API server says of an account that may make Jobs, and no pods itself.
_NO_PODS = 'cannot create resource "pods"'


def rights(site: K8sSite) -> tuple[str, ...]:
    """What an account must be allowed to do: `create jobs`."""
    kinds = (*_MADE, *((_OPERATOR,) if site.objects == "mpijob" else ()))
    return (*(f"{verb} {kind}" for kind in kinds for verb in _VERBS), *_ASKED)


def examine(address: str) -> Iterator[tuple[str, Finding]]:
    """Every check by its name, one after the other; without an answer of the cluster only the first.

    Raises:
        PlanError: the site file cannot be read.
    """
    site = read(address)
    client = Client(site)
    cluster = _cluster(client)
    yield "cluster", cluster
    if cluster.problems:
        return
    yield "namespace", examined(lambda: _namespace(client, site), _FIX)
    if site.objects == "mpijob":
        yield "operator", examined(lambda: _operator(client), _FIX)
    yield "nodes", examined(lambda: _nodes(client, site), _FIX)
    if site.images:
        yield "pod", examined(lambda: _pod(client, site), _FIX)
    yield "rights", examined(lambda: _rights(client, site), _FIX)


def _cluster(client: Client) -> Finding:
    try:
        return Finding(client.version())
    except EngineError as error:
        fix = "kubectl config get-contexts; context in the site file"
        return Finding("no answer", (Problem("fail", said(error), "nothing can be launched from here", fix),))


def _namespace(client: Client, site: K8sSite) -> Finding:
    """Whether it is there, and which steps of the ladder its level of PodSecurity refuses."""
    try:
        found = json.loads(client.ask("get", "namespace", site.namespace, "--output=json"))
    except EngineError as error:
        if "not found" not in str(error).lower():
            raise
        fix = f"kubectl create namespace {site.namespace}; or namespace in the site file"
        return Finding(site.namespace, (Problem("fail", said(error), "every launch is refused", fix),))
    level = str((found.get("metadata", {}).get("labels") or {}).get(_ENFORCED, "privileged"))
    problem = Problem("warn", f"PodSecurity enforces {level}", "step files and seccomp unconfined are refused",
                      'isolation = ["strict", "limits", "net"] in the plan; or another namespace')  # fmt: skip
    return Finding(f"{site.namespace}, PodSecurity {level}", (problem,) if level in _REFUSING else ())


def _rights(client: Client, site: K8sSite) -> Finding:
    asked = rights(site)
    with ThreadPoolExecutor(max_workers=8) as several:
        allowed = list(several.map(lambda what: _may(client, what), asked))
    refused = [what for what, may in zip(asked, allowed, strict=True) if not may]
    problems = [Problem("fail", f"the account may not {', '.join(refused)}", "launches are refused",
                        f"kubectl auth can-i {refused[0]} --namespace={site.namespace}; docs/cluster.md has a Role")
                ] if refused else []  # fmt: skip
    return Finding(f"{len(asked) - len(refused)} of {len(asked)} are there", tuple(problems))


def _may(client: Client, what: str) -> bool:
    """`kubectl auth can-i` says no by its exit code too."""
    try:
        return client.ask("auth", "can-i", *what.split()).strip().startswith("yes")
    except EngineError as error:
        if str(error).rstrip(".").endswith((" no", "nothing")) or " says: no" in str(error):
            return False
        raise


def _operator(client: Client) -> Finding:
    try:
        client.ask("get", "customresourcedefinition", _OPERATOR, "--output=name")
    except EngineError as error:
        if "not found" not in str(error).lower():
            raise
        fix = 'objects = "job" in the site file, for torch; or install the MPI Operator'
        effect = "MPI libraries cannot be started in several pods"
        return Finding("not installed", (Problem("fail", f"the cluster does not know {_OPERATOR}", effect, fix),))
    return Finding(_OPERATOR)


def _nodes(client: Client, site: K8sSite) -> Finding:
    """Of the nodes that the site chooses and whose taints it tolerates, what pods can have."""
    chosen = ",".join(f"{key}={value}" for key, value in site.node_selector.items())
    found = json.loads(client.ask("get", "nodes", *([f"--selector={chosen}"] if chosen else []), "--output=json"))
    tolerations = site.pod.get("spec", {}).get("tolerations", [])
    closed = [_closed(node.get("spec", {}), tolerations) for node in found["items"]]
    room = [node.get("status", {}).get("allocatable", {})
            for node, why in zip(found["items"], closed, strict=True) if not why]  # fmt: skip
    refused = sorted({why for why in closed if why})
    cpus = max((_cores(str(node.get("cpu", "0"))) for node in room), default=0.0)
    cores = cpus / site.threads_per_core
    gpus = max((int(node.get(site.gpu_resource, 0)) for node in room), default=0)
    seen = f"{counted(len(room), 'node')}, the largest with {cores:g} cores for pods"
    if refused:
        seen += f"; {counted(len(found['items']) - len(room), 'more node')} not open to pods: {', '.join(refused)}"
    if refused and not room:
        fix = "spec.tolerations in [k8s.pod] of the site file; or another node_selector"
        return Finding(seen, (Problem("fail", f"no node takes pods: {', '.join(refused)}", "pods stay Pending", fix),))
    problems = [
        Problem("fail", f"the site file says {key} = {wanted}, and no node has more than {most:g} for pods",
                "pods stay Pending", f"{key} = {int(most)} in the site file, or another node_selector")
        for key, wanted, most in (("cores", site.cores, cores), ("gpus", site.gpus, gpus)) if wanted > most
    ]  # fmt: skip
    problems += [
        Problem("fail", f"no node has {name}", "pods stay Pending", "resources in the site file, or a device plugin")
        for name in site.resources if all(str(node.get(name, "0")) == "0" for node in room)
    ]  # fmt: skip
    return Finding(seen, tuple(problems))


def _closed(node: Object, tolerations: list[Object]) -> str:
    """Why a node takes no pod of the site: a taint that it does not tolerate; empty where it does."""
    for taint in node.get("taints") or ():
        hard = taint.get("effect") in ("NoSchedule", "NoExecute")
        if hard and not any(_tolerates(one, taint) for one in tolerations):
            return f"{taint.get('key')}:{taint['effect']}"
    return ""


def _tolerates(toleration: Object, taint: Object) -> bool:
    """By Kubernetes' rules: no effect is every effect, and no key with Exists is every key."""
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", taint.get("key"))
    return toleration.get("key") == taint.get("key") and toleration.get("value", "") == taint.get("value", "")


def _pod(client: Client, site: K8sSite) -> Finding:
    """What admission says of a pod that looks at an image: it knows PodSecurity, quotas, classes and every field."""
    job = look_job(site, "collbench-doctor", "collbench-doctor", "", next(iter(site.images)), ("true",))
    made = {"apiVersion": "v1", "kind": "Pod", **job["spec"]["template"]}
    made["metadata"] = {"name": "collbench-doctor", "namespace": site.namespace, **made["metadata"]}
    try:
        client.ask("create", "--dry-run=server", "--filename=-", "--output=name", text=json.dumps(made))
    except EngineError as error:
        if _NO_PODS in str(error):
            return Finding("not known: the account may not create pods itself")
        fix = "[k8s.pod] and [k8s.container] in the site file; or ask who runs the site"
        return Finding("refused", (Problem("fail", said(error), "no launch can begin", fix),))
    return Finding("would be taken")


def _cores(quantity: str) -> float:
    """`8`, or `7910m`."""
    return int(quantity[:-1]) / 1000 if quantity.endswith("m") else float(quantity)
