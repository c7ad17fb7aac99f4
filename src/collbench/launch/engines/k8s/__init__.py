"""Engine `k8s`: worlds in pods of a Kubernetes cluster, as Jobs, and as MPIJobs of the MPI Operator.

The pods of each launch are watched, followed, copied from, and deleted.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import shutil
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import IO

import msgspec

from collbench.errors import CollbenchError, EngineError, LaunchFailed, LaunchLost
from collbench.launch import job
from collbench.launch.cells import Launch, LaunchCell, inner_plan
from collbench.launch.collect import LARGEST
from collbench.launch.engines.k8s.client import Client, Pod, end_of, missing, of_part, standing
from collbench.launch.engines.k8s.objects import (
    DRIVER,
    END,
    LAUNCH,
    PART,
    PROGRAM,
    RESULTS,
    RUN,
    Launchable,
    Object,
    kinds,
    look_job,
    manifests,
)
from collbench.launch.engines.k8s.site import LADDER, K8sSite, read, refuse
from collbench.launch.engines.spec import Engine, Look, Looks, Site, Stack, WorldSpec
from collbench.launch.expansion import launcher_of
from collbench.launch.folders import YOUNG, driver_identity, folders_in, is_dead, locks
from collbench.launch.job import HostProcess
from collbench.launch.launchers import Argv
from collbench.launch.placement import Placement
from collbench.launch.stacks import contents_in, probe_of
from collbench.launch.waiting import Log, StopCheck
from collbench.schema.manifest import Allocation, Host
from collbench.schema.plan import Plan
from collbench.schema.store import PROGRESS

#: Begins the names of everything.
PREFIX = "collbench-"

#: Interval (s) at which Kubernetes is asked, and progress is copied.
ASK, COPIED = 1.0, 5.0

#: Wait for the last lines of a launch that has ended (s).
LAST_LINES = 0.5

#: Longest wait for an image that runs to say what it holds (s).
ANSWER = 120.0

#: What a run has besides samples; by these progress is seen.
TOP = ("manifest.json", "records.jsonl", PROGRESS)

#: Longest time of a copy (s), and most files of it.
COPY, MOST_FILES = 600.0, 20_000


def nodes(plan: Plan) -> Site:
    """The nodes of a site."""
    return Site(read(plan.site).node)


def all_launches(plan: Plan, order: Sequence[Launch], placements: Mapping[LaunchCell, Placement]) -> str:
    """The objects of every launch, in their order, as kubectl takes them."""
    site = read(plan.site)
    refuse(plan, placements, site)
    texts = []
    for launch in order:
        cell, name = launch.cell, f"{PREFIX}RUN-{launch.sequence}".lower()
        stack, at = Stack(launcher_of(cell.image, site.libraries, plan), ""), folders_in(Path(PREFIX))
        world = WorldSpec(f"{PREFIX}run", name, "driver", cell, placements[cell], stack, at, (0, 0))
        made = manifests(Launchable(world, site, msgspec.json.encode(inner_plan(plan, cell).document).decode()))
        texts += [f"# launch {launch.sequence}: {cell.title}\n"]
        texts += [f"---\n{json.dumps(manifest, indent=1)}\n" for manifest in made]
    return "".join(texts)


def wait_for_pods(client: Client, launch: str, expected: int, check: StopCheck) -> list[Pod]:
    """Until so many pods of a launch run; what they wait for is said meanwhile, on standard error.

    Raises:
        EngineError: they wait in vain, or for too long: those of other launches would, too.
        LaunchFailed: one has ended.
    """
    said, end = "", time.monotonic() + client.site.patience
    while True:
        check()
        pods = client.pods(launch)
        state = standing(pods, expected)
        if not state.waits:
            return pods
        if (died := end_of(pods)) is not None:
            raise LaunchFailed(died)
        if len(pods) < expected and not state.in_vain and (warnings := client.warnings(launch)):
            state = missing(warnings)
        if state.in_vain:
            raise EngineError(f"engine k8s: {state.waits}")
        if time.monotonic() > end:
            raise EngineError(
                f"engine k8s: the pods of {launch} do not run after {client.site.timeout}: {state.waits}. Raise "
                "timeout in the site file, or ask for less."
            )
        if state.waits != said:
            said = state.waits
            sys.stderr.write(f"# Kubernetes: {said}\n")
        time.sleep(ASK)


def look_at(
    client: Client, run: str, plan: Plan, placements: Mapping[LaunchCell, Placement], check: StopCheck
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
        for line in lines:  # the node, as it describes itself; the limits of that pod are not those of ranks
            with contextlib.suppress(msgspec.DecodeError):
                host = msgspec.json.decode(line, type=Host)
                name = node or host.name
                hosts.append(msgspec.structs.replace(host, name=name, cgroup_cpus=None, cgroup_memory=None))
        contents = contents_in(lines, title, image, client.site.libraries, plan)
        looks[image] = Look(contents, reference, title, id=reference)
    site = client.site
    selected = ", ".join(f"{name}={value}" for name, value in sorted(site.node_selector.items()))
    allocation = Allocation(job=run, partition=site.namespace, nodes=selected or "any node", options=site.options)
    remarks = ("the site file gives every pod the network of its node (hostNetwork)",) if site.host_network else ()
    return Looks(looks, remarks, hosts=tuple(hosts[:1]), variables=site.variables, allocation=allocation)


def _lines(client: Client, name: str, run: str, image: str, plan: Plan, check: StopCheck) -> tuple[str, list[str]]:
    """The node of a pod of an image, and what it prints of both, once it has said everything."""
    argv = probe_of("python", image, client.site.libraries, plan)
    client.apply((look_job(client.site, run, name, driver_identity(), image, argv),))
    try:
        (pod, *_) = wait_for_pods(client, name, 1, check)
        end = time.monotonic() + ANSWER
        while time.monotonic() < end:
            check()
            lines = [line for line in client.ask("logs", pod.name).splitlines() if line.strip()]
            if lines and lines[-1] == END:
                return pod.node, lines[:-1]
            time.sleep(ASK)
    except LaunchFailed as error:
        raise EngineError(f"engine k8s: image {image}: {error}") from error
    finally:
        client.delete("jobs", {LAUNCH: name})
    title = f"image {image} ({client.site.images[image]})"
    raise EngineError(f"engine k8s: {title}: its pod runs, and says nothing for {ANSWER:g} s.")


@dataclass
class K8sWorld:
    """All ranks of a launch, and the command of its pods that ends with it. `follower` follows what that prints.

    `pods` are as Kubernetes showed them last.
    """

    launch: Launchable
    client: Client
    check: StopCheck
    pods: list[Pod] = field(default_factory=list)
    follower: HostProcess | None = None
    pid: None = None  # on other machines
    _applied: bool = False
    _collected: bool = False
    _asked: float = 0.0
    _copied: float = 0.0
    _code: int | None = None

    @property
    def hosts(self) -> tuple[tuple[str, int], ...]:
        return (("the pods", self.launch.world.cell.ranks),)

    @property
    def program(self) -> Argv:
        return PROGRAM

    def execute(self, host: str, argv: Argv, environment: dict[str, str], log: Log) -> K8sWorld:
        """Make the pods, whose command starts every rank, and wait until they run.

        Raises:
            EngineError: Kubernetes refuses, or they do not run in time.
            LaunchFailed: one has ended.
        """
        self._applied = True
        name = self.launch.world.name
        self.client.apply(manifests(self.launch))
        expected = self.launch.pods + (1 if self.launch.by_ssh else 0)
        self.pods = wait_for_pods(self.client, name, expected, self.check)
        follow = ("logs", "--follow", f"--selector={PART}={self.launch.head},{LAUNCH}={name}", "--all-containers",
                  "--tail=-1", "--max-log-requests=1000")  # fmt: skip
        self.follower = job.execute(self.client.command(*follow), {}, log)
        return self

    def died(self) -> str | None:
        """How a pod ended: none does by itself."""
        return end_of(self.pods) if self._code is None else None

    @property
    def code(self) -> int | None:
        """The exit code of the command, once it has ended; Kubernetes is asked at most once a second."""
        now = time.monotonic()
        if self._code is None and now - self._asked > ASK:
            self._asked = now
            with contextlib.suppress(EngineError):  # an answer that does not come is no end
                self.pods = self.client.pods(self.launch.world.name)
            if pods := of_part(self.pods, "launcher", "ranks"):
                ask = ("exec", pods[0].name, f"--container={self.launch.head}", "--", "sh", "-c")
                with contextlib.suppress(EngineError, ValueError):
                    self._code = int(self.client.ask(*ask, f"cat {RESULTS}/code 2>/dev/null || true"))
            if self._code is not None:
                time.sleep(LAST_LINES)
        if self._code is None and now - self._copied > COPIED:
            self._copied = now
            with contextlib.suppress(CollbenchError):
                self._copy(everything=False)
        return self._code

    @property
    def how(self) -> str:
        what = "the launcher" if self.launch.by_ssh else "rank 0"
        return f"{what} ended with exit code {self._code}"

    def _copy(self, everything: bool) -> None:
        if writers := of_part(self.pods, "ranks"):  # rank 0 writes
            copy(self.client, writers[0].name, self.launch.world.folders.out, everything)

    def collect(self) -> None:
        """All that was written, once.

        Raises:
            LaunchFailed: it cannot be copied.
        """
        if not self._collected:
            self._collected = True
            self._copy(everything=True)

    def close(self) -> None:
        """Delete everything of this launch.

        Raises:
            EngineError: it is still there.
        """
        if self.follower is not None:
            self.follower.end()
        if self._applied:
            self.client.delete(kinds(self.launch), {LAUNCH: self.launch.world.name})


def copy(client: Client, pod: str, out: Path, everything: bool) -> None:
    """Copy the run of a pod to `out`: everything, or what shows progress. A run that is not there yet is none.

    Raises:
        EngineError: there is no kubectl.
        LaunchFailed: it is no archive, or takes too long.
    """
    names = "." if everything else " ".join(TOP)
    script = f"cd {RESULTS}/out 2>/dev/null && exec tar --ignore-failed-read -cf - {names} 2>/dev/null"
    command = client.command("exec", pod, "--container=ranks", "--", "sh", "-c", script)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        clock = threading.Timer(COPY, process.kill)
        clock.start()
        try:
            assert process.stdout is not None
            unpack(process.stdout, out)
        except (tarfile.TarError, EOFError, OSError) as error:
            if everything:
                raise LaunchFailed(f"what pod {pod} wrote cannot be copied: {error}") from error
        finally:
            clock.cancel()
            process.kill()


def unpack(archive: IO[bytes], out: Path) -> None:
    """The files of a run in an archive; anything else in it, links among them, is left out.

    Raises:
        tarfile.TarError, OSError: it is no archive, ends early, or cannot be written.
    """
    with tarfile.open(fileobj=archive, mode="r|") as members:
        for number, member in enumerate(members):
            name = member.name.removeprefix("./")
            folder, _, file = name.rpartition("/")
            belongs = name in TOP or (folder == "samples" and file not in ("", ".", ".."))
            if not member.isreg() or not belongs:
                continue
            if number > MOST_FILES or member.size > LARGEST:
                raise tarfile.TarError(f"{name} is too large, or one file too many")
            content = members.extractfile(member)
            assert content is not None
            (out / folder).mkdir(mode=0o700, exist_ok=True)
            with (out / name).open("wb") as target:
                shutil.copyfileobj(content, target)


_LONG_AGO = "1970-01-01T00:00:00Z"


@dataclass
class K8sSession:
    """A cluster, as its site file describes it. `check` raises when we are to stop.

    `nodes` are those that the first launch over so many hosts got. All others over as many must have them too.
    `refused`: why Kubernetes did not run the pods of a launch, which would meet any other.
    """

    site: K8sSite
    check: StopCheck
    run: str = field(default_factory=lambda: f"{PREFIX}{secrets.token_hex(4)}")
    folder: None = None
    nodes: dict[int, tuple[str, ...]] = field(default_factory=dict)
    refused: str = ""
    _made: bool = False

    @cached_property
    def client(self) -> Client:
        return Client(self.site)

    @cached_property
    def title(self) -> str:
        """`kubernetes v1.34.1`."""
        return self.client.version()

    @property
    def kinds(self) -> str:
        """Everything that this session may have made."""
        return "configmaps,services,jobs" + (",mpijobs" if self.site.objects == "mpijob" else "")

    def close(self, at_once: bool) -> None:
        """All is deleted that has the label of this run."""
        if not self._made:
            return
        try:
            self.client.delete(self.kinds, {RUN: self.run})
            self._made = False
        except EngineError as left:
            hint = f"Delete what is left: kubectl delete {self.kinds} -l {RUN}={self.run}"
            raise EngineError(f"{str(left).rstrip('.')}. {hint}") from left

    def look(self, plan: Plan, placements: Mapping[LaunchCell, Placement], vendors: Mapping[str, str]) -> Looks:
        """Ask every image what it holds, in a pod.

        Raises:
            EngineError: Kubernetes refuses, or the pods do not run in time.
            CollbenchError: an image is missing, or holds something else.
        """
        refuse(plan, placements, self.site)
        self._left()  # an account, a context or a kind of object that is missing is said before anything is made
        self._made = True
        try:
            return look_at(self.client, self.run, plan, placements, self.check)
        except EngineError:
            with contextlib.suppress(EngineError):
                self._made = self._left()
            raise

    def _left(self) -> bool:
        """Whether something of this run is there.

        Raises:
            EngineError: Kubernetes does not answer, or does not know such objects.
        """
        return bool(self.client.get(self.kinds, {RUN: self.run}))

    def ready(self) -> None:
        """Whether Kubernetes answers, and has run the pods of every launch so far.

        Raises:
            EngineError: it does not, or has not.
        """
        if self.refused:
            raise EngineError(self.refused)
        self.client.get("pods", {RUN: self.run})

    @contextlib.contextmanager
    def open(self, world: WorldSpec) -> Iterator[K8sWorld]:
        """The pods of a launch, which begin with its command; then they are copied from, and deleted.

        Raises:
            LaunchLost: Kubernetes refuses them, or they do not run in time.
        """
        self._made = True
        inner = world.folders.plan.read_text(encoding="utf-8")
        hosts = world.cell.hosts
        launch = Launchable(world, self.site, inner, self.nodes.get(hosts, ()))
        opened = K8sWorld(launch, self.client, self.check)
        try:
            yield opened
            opened.collect()
            nodes = (pod.node for pod in of_part(opened.pods, "ranks"))
            self.nodes.setdefault(hosts, tuple(dict.fromkeys(filter(None, nodes))))
        except BaseException as error:
            with contextlib.suppress(Exception):
                opened.collect()
            with contextlib.suppress(EngineError):  # what is left then, the end of the run deletes or names
                opened.close()
            if isinstance(error, EngineError):
                self.refused = str(error)
                raise LaunchLost(self.refused) from error
            raise
        opened.close()

    def sweep(self) -> tuple[list[str], list[str]]:
        """Delete what dead drivers left: names of what was deleted, and of what remains."""
        by_run: dict[str, list[Object]] = {}
        for one in self.client.get(self.kinds, {RUN: ""}):
            by_run.setdefault(one["metadata"]["labels"][RUN], []).append(one)
        held, removed, kept = locks(), list[str](), list[str]()
        for run, made in sorted(by_run.items()):
            driver = str((made[0]["metadata"].get("annotations") or {}).get(DRIVER, ""))
            names = [str(manifest["metadata"]["labels"].get(LAUNCH, manifest["metadata"]["name"])) for manifest in made]
            if is_dead(driver, held.get(driver), any(map(_may_run, made))):
                self.client.delete(self.kinds, {RUN: run})
                removed += dict.fromkeys(names)
            else:
                kept += dict.fromkeys(names)
        return removed, kept


def _may_run(one: Object) -> bool:
    """Whether its ranks may still run, or are just being started; by this machine's clock."""
    created = datetime.fromisoformat(str(one["metadata"].get("creationTimestamp", _LONG_AGO)))
    return one.get("kind") in ("Job", "MPIJob") or time.time() - created.timestamp() < YOUNG


#: `start_seconds` are an estimate: pods took 6 s with their ranks on one node. It is `bare` to refuse worlds without
#: containers in words of its own.
ENGINE = Engine("k8s", lambda plan, check: K8sSession(read(plan.site), check), (10.0, 0.5), LADDER,
                starts_ranks=True, bare=True, site=nodes, script=all_launches)  # fmt: skip
