"""kubectl, each call with a limit on its time."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from collbench.errors import EngineError
from collbench.launch.engines.k8s.pods import LAUNCH, Object
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
        own = [event for event in found.get("items") or () if _is_about(event, launch)]
        return [(str(event.get("reason")), str(event.get("message"))) for event in own]


def _is_about(event: Object, launch: str) -> bool:
    name = str(event.get("involvedObject", {}).get("name", ""))
    return name == launch or name.startswith(f"{launch}-")


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


def of_launch(name: str) -> dict[str, str]:
    """The labels by which what belongs to a launch is found."""
    return {LAUNCH: name}
