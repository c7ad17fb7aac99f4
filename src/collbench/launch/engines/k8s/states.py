"""What Kubernetes says of the pods of a launch. Pure: from `kubectl get pods -o json`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from collbench.launch.engines.k8s.pods import PART, Object

#: Reasons for which a container waits in vain.
HOPELESS = frozenset({
    "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError", "CreateContainerError",
    "RunContainerError", "CrashLoopBackOff",
})  # fmt: skip

#: What the API server says where PodSecurity, a quota or another admission refuses a pod.
_REFUSALS = ("forbidden", "exceeded quota")

#: Where the command that says how the launch ends is: the launcher, or the pod of rank 0.
_HEADS = ("launcher", "ranks")


@dataclass(frozen=True)
class Standing:
    """Whether all pods run; else what they wait for, and whether in vain."""

    running: bool
    waits: str = ""
    in_vain: bool = False


def standing(pods: Sequence[Object], expected: int) -> Standing:
    """Of the pods that there are, of so many."""
    for pod in pods:
        for state in _states(pod):
            waiting = state.get("waiting") or {}
            if waiting.get("reason") in HOPELESS:
                return Standing(False, f"{_name(pod)}: {_text(waiting)}", in_vain=True)
    for pod in pods:
        if not _runs(pod):
            return Standing(False, f"{_name(pod)}: {_why_not(pod)}")
    if len(pods) < expected:
        return Standing(False, f"{len(pods)} of {expected} pods are there")
    return Standing(True)


def missing(warnings: Sequence[tuple[str, str]]) -> Standing:
    """Of pods that are not there, by reasons and messages of warnings: a refusal before all others, else the last."""
    refused = [warning for warning in warnings if _refuses(*warning)]
    return Standing(False, ": ".join((refused or warnings)[-1]), in_vain=bool(refused))


def _refuses(reason: str, message: str) -> bool:
    """Whether no pod will be made: by a Job's controller, or by the MPI Operator, which has one reason for all ends."""
    return reason == "FailedCreate" or (reason == "MPIJobFailed" and any(word in message for word in _REFUSALS))


def ended(pods: Sequence[Object]) -> str | None:
    """How a pod ended, with Kubernetes' reason; None: none has."""
    for pod in pods:
        status = pod.get("status", {})
        if status.get("phase") in ("Failed", "Succeeded") and (status.get("reason") or status.get("message")):
            return f"pod {_name(pod)} ended: {_text(status)}"
        for state in _states(pod):
            if (end := state.get("terminated")) is not None:
                return f"pod {_name(pod)} ended: {_text(end)} (exit code {end.get('exitCode')})"
    return None


def head(pods: Sequence[Object]) -> str | None:
    """The pod whose command ends with the launch: the launcher, else that of rank 0."""
    return next((_name(pod) for part in _HEADS for pod in _in_order(pods) if _part(pod) == part), None)


def writer(pods: Sequence[Object]) -> str | None:
    """The pod of rank 0, which writes the run."""
    return next((_name(pod) for pod in _in_order(pods) if _part(pod) == "ranks"), None)


def nodes(pods: Sequence[Object]) -> tuple[str, ...]:
    """Nodes of the pods with ranks, each once, in order."""
    named = (pod.get("spec", {}).get("nodeName") for pod in _in_order(pods) if _part(pod) == "ranks")
    return tuple(dict.fromkeys(str(name) for name in named if name))


def _in_order(pods: Sequence[Object]) -> list[Object]:
    """By index: of a Job's pod as its annotation says, of the operator's as its name ends."""
    return sorted(pods, key=_index)


def _index(pod: Object) -> int:
    annotations = pod.get("metadata", {}).get("annotations") or {}
    text = annotations.get("batch.kubernetes.io/job-completion-index", _name(pod).rpartition("-")[2])
    return int(text) if text.isdecimal() else 0


def _runs(pod: Object) -> bool:
    states = _states(pod)
    return bool(states) and all("running" in state for state in states)


def _why_not(pod: Object) -> str:
    for condition in pod.get("status", {}).get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return _text(condition)
    for state in _states(pod):
        if (waiting := state.get("waiting")) is not None:
            return _text(waiting)
    return str(pod.get("status", {}).get("phase", "unknown"))


def _states(pod: Object) -> list[Object]:
    status = pod.get("status", {})
    return [one.get("state") or {} for one in (status.get("containerStatuses") or ())]


def _name(pod: Object) -> str:
    return str(pod.get("metadata", {}).get("name", "?"))


def _part(pod: Object) -> str:
    return str((pod.get("metadata", {}).get("labels") or {}).get(PART, ""))


def _text(said: Object) -> str:
    """`Unschedulable: 0/3 nodes are available: ...`."""
    return ": ".join(str(said[key]).strip() for key in ("reason", "message") if said.get(key)) or "without a reason"
