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
from collbench.launch.engines.k8s.objects import LAUNCH, PART, Object
from collbench.launch.engines.k8s.site import K8sSite

#: Longest wait for an answer, and for pods that are deleted (s).
ANSWER, GONE = 60.0, 90.0

#: What kubectl puts before its messages, and a warning that is none of them.
_PREFIX = re.compile(r"^(?:error|Error from server(?: \(\w+\))?): ")

#: What is said of an MPIJob where there is no MPI Operator.
_NO_KIND = ("no matches for kind", "doesn't have a resource type")


@dataclass(frozen=True)
class Client:
    """kubectl with the context and the namespace of a site.

    Every call raises EngineError where there is none, it fails, or does not answer; the message is Kubernetes'.
    """

    site: K8sSite

    def command(self, *argv: str) -> tuple[str, ...]:
        """A call of kubectl."""
        if shutil.which("kubectl") is None:
            raise EngineError("engine k8s: there is no kubectl here. Install it, and check it: kubectl get pods.")
        context = (f"--context={self.site.context}",) if self.site.context else ()
        return ("kubectl", *context, f"--namespace={self.site.namespace}", *argv)

    def ask(self, *argv: str, text: str = "", limit: float = ANSWER) -> str:
        """What kubectl prints."""
        command = self.command(*argv)
        try:
            done = subprocess.run(command, input=text, capture_output=True, text=True, errors="replace",
                                  timeout=limit, check=False)  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise EngineError(f"engine k8s: kubectl {argv[0]} does not answer ({error}).") from error
        if done.returncode != 0:
            lines = (done.stderr or done.stdout).strip().splitlines()
            lines = [line for line in lines if line.strip() and not line.startswith("Warning:")]
            no_kind = next((line for line in lines if any(words in line for words in _NO_KIND)), None)
            said = _PREFIX.sub("", no_kind or (lines[-1] if lines else "nothing"))
            install = " The cluster has no MPI Operator: install it, or measure with torch." if no_kind else ""
            raise EngineError(f"engine k8s: kubectl {argv[0]} says: {said.rstrip('.')}.{install}")
        return done.stdout

    def get(self, kinds: str, labels: Mapping[str, str]) -> list[Object]:
        """All objects of these kinds with these labels."""
        found: dict[str, Any] = json.loads(self.ask("get", kinds, f"--selector={_selector(labels)}", "--output=json"))
        return list(found.get("items") or ())

    def pods(self, launch: str) -> list[Pod]:
        """Those of a launch."""
        return [Pod.of(pod) for pod in self.get("pods", {LAUNCH: launch})]

    def version(self) -> str:
        """`kubernetes v1.34.1`."""
        said = json.loads(self.ask("version", "--output=json"))
        return f"kubernetes {said.get('serverVersion', {}).get('gitVersion', 'of an unknown version')}"

    def apply(self, objects: Sequence[Object]) -> None:
        """Give objects to Kubernetes."""
        self.ask("apply", "--filename=-", text="\n---\n".join(json.dumps(manifest) for manifest in objects))

    def delete(self, kinds: str, labels: Mapping[str, str]) -> None:
        """Delete all objects of these kinds with these labels, and wait until their pods are gone."""
        self.ask("delete", kinds, f"--selector={_selector(labels)}", "--ignore-not-found", "--cascade=foreground",
                 f"--timeout={GONE:g}s", limit=GONE + ANSWER)  # fmt: skip

    def warnings(self, launch: str) -> list[tuple[str, str]]:
        """Reason and message of every warning about the objects and pods of a launch."""
        found = json.loads(self.ask("get", "events", "--field-selector=type=Warning", "--output=json"))
        return [
            (str(event.get("reason")), str(event.get("message"))) for event in found.get("items") or ()
            if f"{event.get('involvedObject', {}).get('name', '')}-".startswith(f"{launch}-")
        ]  # fmt: skip


def _selector(labels: Mapping[str, str]) -> str:
    return ",".join(f"{name}={value}" if value else name for name, value in labels.items())


#: Reasons for which a container waits in vain.
HOPELESS = frozenset({
    "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError", "CreateContainerError",
    "RunContainerError", "CrashLoopBackOff",
})  # fmt: skip

#: What the API server says where PodSecurity, a quota or another admission refuses a pod.
_REFUSALS = ("forbidden", "exceeded quota")


@dataclass(frozen=True)
class Pod:
    """A pod as Kubernetes shows it. `part` is what it is of its launch, `index` its number among those.

    `waits` is why it does not run, empty: it does; `in_vain`: it never will. `ended` is how it ended, None: it has not.
    """

    name: str
    part: str
    index: int
    node: str
    waits: str = ""
    in_vain: bool = False
    ended: str | None = None

    @staticmethod
    def of(pod: Object) -> Pod:
        """As kubectl prints it: any field may be missing."""
        metadata, status = pod.get("metadata", {}), pod.get("status", {})
        name = str(metadata.get("name", "?"))
        # Of a Job's pod as its annotation says, of the operator's as its name ends.
        annotations = metadata.get("annotations") or {}
        index = annotations.get("batch.kubernetes.io/job-completion-index", name.rpartition("-")[2])
        states = [container.get("state") or {} for container in (status.get("containerStatuses") or ())]
        waiting = [state["waiting"] for state in states if state.get("waiting") is not None]
        hopeless = [said for said in waiting if said.get("reason") in HOPELESS]
        unscheduled = [said for said in status.get("conditions") or ()
                       if said.get("type") == "PodScheduled" and said.get("status") == "False"]  # fmt: skip
        waits = ""
        if hopeless or not states or not all("running" in state for state in states):
            why = next(iter((*hopeless, *unscheduled, *waiting)), None)
            waits = str(status.get("phase", "unknown")) if why is None else _text(why)
        ended = None
        if status.get("phase") in ("Failed", "Succeeded") and (status.get("reason") or status.get("message")):
            ended = _text(status)
        elif end := next((state["terminated"] for state in states if state.get("terminated") is not None), None):
            ended = f"{_text(end)} (exit code {end.get('exitCode')})"
        return Pod(
            name, str((metadata.get("labels") or {}).get(PART, "")), int(index) if index.isdecimal() else 0,
            str(pod.get("spec", {}).get("nodeName") or ""), waits, bool(hopeless), ended,
        )  # fmt: skip


def _text(said: Object) -> str:
    """`Unschedulable: 0/3 nodes are available: ...`."""
    return ": ".join(str(said[key]).strip() for key in ("reason", "message") if said.get(key)) or "without a reason"


@dataclass(frozen=True)
class Standing:
    """What pods wait for, and whether in vain; they wait for nothing: all run."""

    waits: str = ""
    in_vain: bool = False


def standing(pods: Sequence[Pod], expected: int) -> Standing:
    """Of the pods that there are, of so many."""
    for pod in (*(pod for pod in pods if pod.in_vain), *(pod for pod in pods if pod.waits)):
        return Standing(f"{pod.name}: {pod.waits}", pod.in_vain)
    return Standing() if len(pods) >= expected else Standing(f"{len(pods)} of {expected} pods are there")


def missing(warnings: Sequence[tuple[str, str]]) -> Standing:
    """Of pods that are not there, by reasons and messages of warnings: a refusal before all others, else the last.

    Pods are refused to a Job's controller, or to the MPI Operator, which has one reason for all ends.
    """
    refused = [
        (reason, message) for reason, message in warnings
        if reason == "FailedCreate" or (reason == "MPIJobFailed" and any(word in message for word in _REFUSALS))
    ]  # fmt: skip
    return Standing(": ".join((refused or warnings)[-1]), in_vain=bool(refused))


def end_of(pods: Sequence[Pod]) -> str | None:
    """How a pod ended, with Kubernetes' reason; None: none has."""
    return next((f"pod {pod.name} ended: {pod.ended}" for pod in pods if pod.ended is not None), None)


def of_part(pods: Sequence[Pod], *parts: str) -> list[Pod]:
    """Those that are the launcher, or have ranks, by their index: part for part."""
    return sorted((pod for pod in pods if pod.part in parts), key=lambda pod: (parts.index(pod.part), pod.index))
