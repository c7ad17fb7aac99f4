"""What images hold: asked in a pod of each."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping

import msgspec

from collbench.errors import EngineError, LaunchFailed
from collbench.launch.cells import LaunchCell
from collbench.launch.engines.k8s.client import Client, of_launch
from collbench.launch.engines.k8s.objects import look_job
from collbench.launch.engines.k8s.pods import END
from collbench.launch.engines.k8s.world import ASK, on_standard_error, wait_for_pods
from collbench.launch.engines.spec import Look, Looks
from collbench.launch.folders.signature import driver_identity
from collbench.launch.placing import Placement
from collbench.launch.probed import contents_in, probe_of
from collbench.launch.stopping import StopCheck
from collbench.schema.launch_plan import LaunchPlan
from collbench.schema.manifest import Allocation, Host

#: Longest wait for an image that runs to say what it holds (s).
ANSWER = 120.0


def look_at(
    client: Client, run: str, plan: LaunchPlan, placements: Mapping[LaunchCell, Placement], check: StopCheck
) -> Looks:
    """What every image holds, and what the node of the first is: the machine of the launcher is no part of a run.

    Raises:
        EngineError: Kubernetes refuses its pod, or it does not run.
        ImageMissing: it does not hold this collbench, or another library than its name says.
    """
    looks: dict[str, Look] = {}
    hosts: list[Host] = []
    for number, image in enumerate(dict.fromkeys(cell.image for cell in placements)):
        reference, title = client.site.images[image], f"image {image} ({client.site.images[image]})"
        node, lines = _lines(client, f"{run}-look-{number}", run, image, plan, check)
        hosts += _described(node, lines)
        contents = contents_in(lines, title, image, client.site.libraries, plan)
        looks[image] = Look(contents, reference, title, id=reference)
    site = client.site
    selected = ", ".join(f"{name}={value}" for name, value in sorted(site.node_selector.items()))
    allocation = Allocation(job=run, partition=site.namespace, nodes=selected or "any node", options=site.options)
    remarks = ("the site file gives every pod the network of its node (hostNetwork)",) if site.host_network else ()
    return Looks(looks, remarks, hosts=tuple(hosts[:1]), variables=site.variables, allocation=allocation)


def _described(node: str, lines: list[str]) -> Iterator[Host]:
    """The node of a pod, as it describes itself; the limits of that pod are not those of ranks."""
    for line in lines:
        with contextlib.suppress(msgspec.DecodeError):
            found = msgspec.json.decode(line, type=Host)
            yield msgspec.structs.replace(found, name=node or found.name, cgroup_cpus=None, cgroup_memory=None)


def _lines(
    client: Client, name: str, run: str, image: str, plan: LaunchPlan, check: StopCheck
) -> tuple[str, list[str]]:
    """The node of a pod of an image, and what it prints of both."""
    argv = probe_of("python", image, client.site.libraries, plan)
    client.apply((look_job(client.site, run, name, driver_identity(), image, argv),))
    try:
        (pod, *_) = wait_for_pods(client, name, 1, check, on_standard_error)
        return pod["spec"].get("nodeName", ""), _printed(client, pod["metadata"]["name"], image, check)
    except LaunchFailed as error:
        raise EngineError(f"engine k8s: image {image}: {error}") from error
    finally:
        client.delete("jobs", of_launch(name))


def _printed(client: Client, pod: str, image: str, check: StopCheck) -> list[str]:
    """Once it has said everything."""
    title, end = f"image {image} ({client.site.images[image]})", time.monotonic() + ANSWER
    while time.monotonic() < end:
        check()
        lines = [line for line in client.ask("logs", pod).splitlines() if line.strip()]
        if lines and lines[-1] == END:
            return lines[:-1]
        time.sleep(ASK)
    raise EngineError(f"engine k8s: {title}: its pod runs, and says nothing for {ANSWER:g} s.")
