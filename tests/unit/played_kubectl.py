"""Plays kubectl and a cluster of one node, node-7: a Job's only pod is a process of this machine. For tests.

What it was asked is in `asked` of the folder PLAYED, and what tests want it to say
instead in `says`: by the first word of the command a message that it fails with; `pods`: what it says of pods;
`workers`: why the MPI Operator gets no workers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(os.environ["PLAYED"])

#: Kinds of what is made, besides pods.
OBJECTS = ("Job", "ConfigMap", "Service", "MPIJob")


def apply(text: str) -> None:
    with (HERE / "applied").open("a") as applied:
        applied.write(f"{text}\n---\n")
    for document in text.split("\n---\n"):
        made = json.loads(document)
        name, kind = made["metadata"]["name"], made["kind"]
        (HERE / f"{kind}-{name}").write_text(document)
        if kind == "ConfigMap":
            (HERE / "plan.json").write_text(made["data"]["plan.json"])
        if kind == "Job":
            start(name, made["spec"]["template"])


def start(name: str, template: dict[str, Any]) -> None:
    """The command of a pod, with folders of this machine for those of the container."""
    (container,) = template["spec"]["containers"]
    results = HERE / "results"
    results.mkdir(exist_ok=True)
    words = [word.replace("/results", str(results)).replace("/collbench/plan.json", str(HERE / "plan.json"))
             for word in container["command"]]  # fmt: skip
    variables = {entry["name"]: entry["value"] for entry in container.get("env", ()) if "value" in entry}
    with (HERE / f"log-{name}").open("w") as log:
        process = subprocess.Popen(words, env=os.environ | variables, stdout=log, stderr=log, start_new_session=True)
    pod = {"metadata": {"name": f"{name}-0-x", "labels": template["metadata"]["labels"]},
           "spec": {"nodeName": "node-7"}, "status": {"containerStatuses": [{"state": {"running": {}}}]}}  # fmt: skip
    (HERE / f"pod-{name}").write_text(json.dumps(pod | {"pid": process.pid}))


def get(kinds: str, labels: dict[str, str], says: dict[str, Any]) -> str:
    if kinds == "pods" and "pods" in says and labels.get("collbench/launch"):
        return json.dumps({"items": says["pods"]})
    if kinds == "events":
        refused = [{"involvedObject": {"name": path.name.removeprefix("MPIJob-")}, "message": says["workers"],
                    "reason": "MPIJobFailed"} for path in HERE.glob("MPIJob-*") if "workers" in says]  # fmt: skip
        return json.dumps({"items": [*says.get("events", []), *refused]})
    return json.dumps({"items": list(with_labels(labels, ("pod",) if kinds == "pods" else OBJECTS).values())})


def with_labels(labels: dict[str, str], kinds: tuple[str, ...]) -> dict[Path, dict[str, Any]]:
    """By its file, what there is with these labels; a label without a value may have any."""
    there = {path: json.loads(path.read_text()) for path in HERE.glob("*-*") if path.name.partition("-")[0] in kinds}
    return {path: made for path, made in there.items()
            if all(made["metadata"]["labels"].get(key, "") == value or not value
                   for key, value in labels.items())}  # fmt: skip


def delete(labels: dict[str, str]) -> None:
    for path, made in with_labels(labels, ("pod", *OBJECTS)).items():
        if "pid" in made:
            subprocess.run(("kill", "-9", "--", f"-{made['pid']}"), check=False)
        path.unlink()


def selected(words: list[str]) -> dict[str, str]:
    text = next((word.partition("=")[2] for word in words if word.startswith("--selector=")), "")
    return {key: value for key, _, value in (pair.partition("=") for pair in text.split(",") if pair)}


def become(*argv: str) -> None:
    os.execvp(argv[0], argv)  # noqa: S606 - kubectl is ended by a signal, and so this is


#: What `doctor` gets, besides what launches make.
EXAMINED = ("namespace", "customresourcedefinition", "nodes")


def examined(words: list[str], says: dict[str, Any]) -> None:
    """What the cluster lets the account do, has, and what its nodes have."""
    if words[0] == "auth":
        answer = "no" if " ".join(words[2:]) in says.get("forbidden", ()) else "yes"
        sys.stdout.write(f"{answer}\n")
        sys.exit(int(answer == "no"))
    if words[1] == "nodes":
        nodes = [{"spec": {"taints": has.pop("taints", [])}, "status": {"allocatable": has}} for has in says["nodes"]]
        sys.stdout.write(json.dumps({"items": nodes}))
    elif words[2] in says.get("absent", ()):
        sys.exit(f'Error from server (NotFound): {words[1]} "{words[2]}" not found')
    elif words[1] == "namespace":
        sys.stdout.write(json.dumps({"metadata": {"labels": says.get("labels", {})}}))


def main(words: list[str]) -> None:
    says = json.loads((HERE / "says").read_text()) if (HERE / "says").exists() else {}
    with (HERE / "asked").open("a") as asked:
        asked.write(" ".join(words) + "\n")
    words = [word for word in words if not word.startswith(("--namespace", "--context"))]
    if words[0] in says:
        sys.exit(says[words[0]])
    if words[0] == "version":
        sys.stdout.write('{"serverVersion": {"gitVersion": "v1.34.1"}}')
    elif words[0] == "apply":
        apply(sys.stdin.read())
    elif words[0] == "create":
        (HERE / "tried").write_text(sys.stdin.read())
    elif words[0] == "auth" or words[1] in EXAMINED:
        examined(words, says)
    elif words[0] == "get":
        sys.stdout.write(get(words[1], selected(words), says))
    elif words[0] == "delete":
        delete(selected(words))
    elif words[0] == "logs":
        name = selected(words).get("collbench/launch") or words[1].removesuffix("-0-x")
        follow = ("-f",) if "--follow" in words else ()
        become("tail", *follow, "-n", "+1", str(HERE / f"log-{name}"))
    elif words[0] == "exec":
        script = words[-1].replace("/results", str(HERE / "results"))
        become("sh", "-c", script)


if __name__ == "__main__":
    main(sys.argv[1:])
