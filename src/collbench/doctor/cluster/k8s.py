"""`collbench doctor --on k8s`: what would spoil a launch in pods, asked by kubectl; nothing is made."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from collbench.doctor.parts.finding import Finding, Problem
from collbench.errors import EngineError
from collbench.launch.engines.k8s.client import Client
from collbench.launch.engines.k8s.site import K8sSite, read
from collbench.units import counted

#: What an account must be allowed to do.
_ALLOWED = (
    "create jobs", "delete jobs", "create services", "create configmaps", "list pods", "list events", "get pods/log",
    "create pods/exec",
)  # fmt: skip
_OPERATOR = "mpijobs.kubeflow.org"


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
    yield "namespace", _examined(lambda: _namespace(client, site))
    yield "rights", _examined(lambda: _rights(client, site))
    if site.objects == "mpijob":
        yield "operator", _examined(lambda: _operator(client))
    yield "nodes", _examined(lambda: _nodes(client, site))


def _examined(check: Callable[[], Finding]) -> Finding:
    """A right to ask may be lacking where everything else is there."""
    try:
        return check()
    except EngineError as error:
        return Finding("not known", (Problem("unknown", _said(error), "a launch may fail", "ask who runs the site"),))


def _said(error: EngineError) -> str:
    return str(error).removeprefix("engine k8s: ")


def _cluster(client: Client) -> Finding:
    try:
        return Finding(client.version())
    except EngineError as error:
        fix = "kubectl config get-contexts; context in the site file"
        return Finding("no answer", (Problem("fail", _said(error), "nothing can be launched from here", fix),))


def _namespace(client: Client, site: K8sSite) -> Finding:
    try:
        client.ask("get", "namespace", site.namespace, "--output=name")
    except EngineError as error:
        if "not found" not in str(error).lower():
            raise
        fix = f"kubectl create namespace {site.namespace}; or namespace in the site file"
        return Finding(site.namespace, (Problem("fail", _said(error), "every launch is refused", fix),))
    return Finding(site.namespace)


def _rights(client: Client, site: K8sSite) -> Finding:
    asked = (*_ALLOWED, *((f"create {_OPERATOR}",) if site.objects == "mpijob" else ()))
    refused = [what for what in asked if not _may(client, what)]
    problems = [Problem("fail", f"the account may not {', '.join(refused)}", "launches are refused",
                        f"kubectl auth can-i {refused[0]} --namespace={site.namespace}; ask who runs the site")
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
    """Of the nodes that the site chooses, what pods can have."""
    chosen = ",".join(f"{key}={value}" for key, value in site.node_selector.items())
    found = json.loads(client.ask("get", "nodes", *([f"--selector={chosen}"] if chosen else []), "--output=json"))
    room = [one.get("status", {}).get("allocatable", {}) for one in found.get("items") or ()]
    cores = [_cores(str(node.get("cpu", "0"))) for node in room]
    gpus = [int(node.get("nvidia.com/gpu", 0)) for node in room]
    seen = f"{counted(len(room), 'node')}, the largest with {max(cores, default=0):g} cores for pods"
    problems = []
    for key, wanted, most in (
        ("cores", site.cores, max(cores, default=0.0)),
        ("gpus", site.gpus, max(gpus, default=0)),
    ):
        if wanted > most:
            problems.append(
                Problem("fail", f"the site file says {key} = {wanted}, and no node has more than {most:g} for pods",
                        "pods stay Pending", f"{key} = {int(most)} in the site file, or another node_selector")
            )  # fmt: skip
    return Finding(seen, tuple(problems))


def _cores(quantity: str) -> float:
    """`8`, or `7910m`."""
    return int(quantity[:-1]) / 1000 if quantity.endswith("m") else float(quantity)
