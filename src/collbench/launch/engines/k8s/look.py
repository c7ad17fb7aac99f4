"""What images hold: asked in a pod of each."""

from __future__ import annotations

import time
from collections.abc import Mapping

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
from collbench.schema.manifest import Allocation

#: Longest wait for an image that runs to say what it holds (s).
ANSWER = 120.0


def look_at(
    client: Client, run: str, plan: LaunchPlan, placements: Mapping[LaunchCell, Placement], check: StopCheck
) -> Looks:
    """What every image holds.

    Raises:
        EngineError: Kubernetes refuses its pod, or it does not run.
        ImageMissing: it does not hold this collbench, or another library than its name says.
    """
    looks: dict[str, Look] = {}
    for number, image in enumerate(dict.fromkeys(cell.image for cell in placements)):
        reference, title = client.site.images[image], f"image {image} ({client.site.images[image]})"
        lines = _lines(client, f"{run}-look-{number}", run, image, plan, check)
        contents = contents_in(lines, title, image, client.site.libraries, plan)
        looks[image] = Look(contents, reference, title, id=reference)
    site = client.site
    selected = ", ".join(f"{name}={value}" for name, value in sorted(site.node_selector.items()))
    allocation = Allocation(job=run, partition=site.namespace, nodes=selected or "any node", options=site.options)
    remarks = ("the site file gives every pod the network of its node (hostNetwork)",) if site.host_network else ()
    return Looks(looks, remarks, variables=site.variables, allocation=allocation)


def _lines(client: Client, name: str, run: str, image: str, plan: LaunchPlan, check: StopCheck) -> list[str]:
    """What a pod of an image prints of it."""
    argv = probe_of("python", image, client.site.libraries, plan)
    client.apply((look_job(client.site, run, name, driver_identity(), image, argv),))
    try:
        (pod, *_) = wait_for_pods(client, name, 1, check, on_standard_error)
        return _printed(client, pod["metadata"]["name"], image, check)
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
