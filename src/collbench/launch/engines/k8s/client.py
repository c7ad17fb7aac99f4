"""kubectl, each call with a limit on its time; and what Kubernetes says of the pods of a launch."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from collbench.errors import EngineError
from collbench.launch.engines.k8s.objects import PART, Object
from collbench.launch.engines.k8s.site import K8sSite

#: Longest wait for an answer, and for pods that are deleted (s).
ANSWER, GONE = 60.0, 90.0

#: What kubectl puts before its messages, and a warning that is none of them.
_PREFIX = re.compile(r"^(?:error|Error from server(?: \(\w+\))?): ")

#: What is said of an MPIJob where there is no MPI Operator.
_NO_KIND = ("no matches for kind", "doesn't have a resource type")


@dataclass(frozen=True)
class Client:
    """kubectl with the context and the namespace of a site."""

    site: K8sSite

    def command(self, *argv: str) -> tuple[str, ...]:
        """A call of kubectl.

        Raises:
            EngineError: there is none.
        """
        if shutil.which("kubectl") is None:
            raise EngineError("engine k8s: there is no kubectl here. Install it, and check it: kubectl get pods.")
        context = (f"--context={self.site.context}",) if self.site.context else ()
        return ("kubectl", *context, f"--namespace={self.site.namespace}", *argv)

    def ask(self, *argv: str, text: str = "", limit: float = ANSWER) -> str:
        """What kubectl prints.

        Raises:
            EngineError: it fails, or does not answer; the message is Kubernetes'.
        """
        command = self.command(*argv)
        try:
            done = subprocess.run(command, input=text, capture_output=True, text=True, errors="replace",
                                  timeout=limit, check=False)  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise EngineError(f"engine k8s: kubectl {argv[0]} does not answer ({error}).") from error
        if done.returncode != 0:
            raise EngineError(f"engine k8s: kubectl {argv[0]} says: {_said(done.stderr or done.stdout)}")
        return done.stdout

    def get(self, kinds: str, labels: Mapping[str, str]) -> list[Object]:
        """All objects of these kinds with these labels.

        Raises:
            EngineError: as `ask`.
        """
        found: dict[str, Any] = json.loads(self.ask("get", kinds, f"--selector={_selector(labels)}", "--output=json"))
        return list(found.get("items") or ())

    def version(self) -> str:
        """`kubernetes v1.34.1`.

        Raises:
            EngineError: as `ask`.
        """
        said = json.loads(self.ask("version", "--output=json"))
        return f"kubernetes {said.get('serverVersion', {}).get('gitVersion', 'of an unknown version')}"

    def apply(self, objects: Sequence[Object]) -> None:
        """Give objects to Kubernetes.

        Raises:
            EngineError: as `ask`.
        """
        self.ask("apply", "--filename=-", text="\n---\n".join(json.dumps(one) for one in objects))

    def delete(self, kinds: str, labels: Mapping[str, str]) -> None:
        """Delete all objects of these kinds with these labels, and wait until their pods are gone.

        Raises:
            EngineError: as `ask`; or they are still there.
        """
        self.ask("delete", kinds, f"--selector={_selector(labels)}", "--ignore-not-found", "--cascade=foreground",
                 f"--timeout={GONE:g}s", limit=GONE + ANSWER)  # fmt: skip

    def warnings(self, launch: str) -> list[tuple[str, str]]:
        """Reason and message of every warning about the objects and pods of a launch.

        Raises:
            EngineError: as `ask`.
        """
        found = json.loads(self.ask("get", "events", "--field-selector=type=Warning", "--output=json"))
        return [
            (str(event.get("reason")), str(event.get("message"))) for event in found.get("items") or ()
            if f"{event.get('involvedObject', {}).get('name', '')}-".startswith(f"{launch}-")
        ]  # fmt: skip


def _selector(labels: Mapping[str, str]) -> str:
    return ",".join(f"{name}={value}" if value else name for name, value in labels.items())


def _said(text: str) -> str:
    """The first line that is not a warning, and what helps."""
    lines = [line for line in text.strip().splitlines() if line.strip() and not line.startswith("Warning:")]
    said = _PREFIX.sub("", lines[-1]) if lines else "nothing"
    for line in lines:
        if any(words in line for words in _NO_KIND):
            return f"{_PREFIX.sub('', line)} The cluster has no MPI Operator: install it, or measure with torch."
    return said


#: Reasons for which a container waits in vain.
HOPELESS = frozenset({
    "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError", "CreateContainerError",
    "RunContainerError", "CrashLoopBackOff",
})  # fmt: skip

#: What the API server says where PodSecurity, a quota or another admission refuses a pod.
_REFUSALS = ("forbidden", "exceeded quota")


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
        states = _states(pod)
        if not states or not all("running" in state for state in states):
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


def end_of(pods: Sequence[Object]) -> str | None:
    """How a pod ended, with Kubernetes' reason; None: none has."""
    for pod in pods:
        status = pod.get("status", {})
        if status.get("phase") in ("Failed", "Succeeded") and (status.get("reason") or status.get("message")):
            return f"pod {_name(pod)} ended: {_text(status)}"
        for state in _states(pod):
            if (end := state.get("terminated")) is not None:
                return f"pod {_name(pod)} ended: {_text(end)} (exit code {end.get('exitCode')})"
    return None


def head_of(pods: Sequence[Object]) -> str | None:
    """The pod whose command ends with the launch: the launcher, else that of rank 0."""
    return next((_name(pod) for part in ("launcher", "ranks") for pod in _of_part(pods, part)), None)


def writer_of(pods: Sequence[Object]) -> str | None:
    """The pod of rank 0, which writes the run."""
    return next(map(_name, _of_part(pods, "ranks")), None)


def nodes_of(pods: Sequence[Object]) -> tuple[str, ...]:
    """Nodes of the pods with ranks, each once, in order."""
    named = (pod.get("spec", {}).get("nodeName") for pod in _of_part(pods, "ranks"))
    return tuple(dict.fromkeys(str(name) for name in named if name))


def _of_part(pods: Sequence[Object], part: str) -> list[Object]:
    """Those that are the launcher, or have ranks, by their index."""
    return sorted((pod for pod in pods if _part(pod) == part), key=_index)


def _index(pod: Object) -> int:
    """Of a Job's pod as its annotation says, of the operator's as its name ends."""
    annotations = pod.get("metadata", {}).get("annotations") or {}
    text = annotations.get("batch.kubernetes.io/job-completion-index", _name(pod).rpartition("-")[2])
    return int(text) if text.isdecimal() else 0


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
