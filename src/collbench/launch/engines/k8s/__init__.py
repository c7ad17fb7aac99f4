"""Engine `k8s`: worlds in pods of a Kubernetes cluster, as Jobs, and as MPIJobs of the MPI Operator.

The pods of each launch are watched, followed, copied from, and deleted, by kubectl: each call has a limit on its time.
"""

from __future__ import annotations

import contextlib
import json
import re
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
from collbench.launch.engines.k8s import objects
from collbench.launch.engines.k8s.objects import LAUNCH, PART, RESULTS, RUN, Launchable, Object
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

#: Longest waits (s): for an answer of kubectl, for pods that are deleted, for what an image holds, and for a copy.
ANSWER, GONE, HOLDS, COPY = 60.0, 90.0, 120.0, 600.0

#: Intervals (s) at which Kubernetes is asked, and progress is copied; and the wait for the last lines of a launch.
ASK, COPIED, LAST_LINES = 1.0, 5.0, 0.5

#: What a run has besides samples, by which progress is seen; and most files of a copy.
TOP, MOST_FILES = ("manifest.json", "records.jsonl", PROGRESS), 20_000


def all_launches(plan: Plan, order: Sequence[Launch], placements: Mapping[LaunchCell, Placement]) -> str:
    """The objects of every launch, in their order, as kubectl takes them."""
    site = read(plan.site)
    refuse(plan, placements, site)
    texts = []
    for launch in order:
        cell, name = launch.cell, f"{PREFIX}RUN-{launch.sequence}".lower()
        stack, at = Stack(launcher_of(cell.image, site.libraries, plan), ""), folders_in(Path(PREFIX))
        world = WorldSpec(f"{PREFIX}run", name, "driver", cell, placements[cell], stack, at, (0, 0))
        made = objects.manifests(Launchable(world, site, msgspec.json.encode(inner_plan(plan, cell).document).decode()))
        texts += [f"# launch {launch.sequence}: {cell.title}\n"]
        texts += [f"---\n{json.dumps(manifest, indent=1)}\n" for manifest in made]
    return "".join(texts)


# What Kubernetes says ------------------------------------------------------------------------------------------------

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
                                  timeout=limit, check=False, start_new_session=True)  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise EngineError(f"engine k8s: kubectl {argv[0]} does not answer ({error}).") from error
        if done.returncode != 0:
            lines = (done.stderr or done.stdout).strip().splitlines()
            lines = [line for line in lines if line.strip() and not line.startswith("Warning:")]
            no_kind = next((line for line in lines if any(words in line for words in _NO_KIND)), None)
            message = _PREFIX.sub("", no_kind or (lines[-1] if lines else "nothing")).rstrip(".")
            install = " The cluster has no MPI Operator: install it, or measure with torch." if no_kind else ""
            raise EngineError(f"engine k8s: kubectl {argv[0]} says: {message}.{install}")
        return done.stdout

    def get(self, kinds: str, labels: Mapping[str, str]) -> list[Object]:
        """All objects of these kinds with these labels."""
        return list(json.loads(self.ask("get", kinds, _selector(labels), "--output=json")).get("items") or ())

    def pods(self, launch: str) -> list[Pod]:
        return [Pod.of(pod) for pod in self.get("pods", {LAUNCH: launch})]

    def version(self) -> str:
        """`kubernetes v1.34.1`."""
        answer = json.loads(self.ask("version", "--output=json"))
        return f"kubernetes {answer.get('serverVersion', {}).get('gitVersion', 'of an unknown version')}"

    def apply(self, manifests: Sequence[Object]) -> None:
        self.ask("apply", "--filename=-", text="\n---\n".join(json.dumps(manifest) for manifest in manifests))

    def delete(self, kinds: str, labels: Mapping[str, str]) -> None:
        """Delete all objects of these kinds with these labels, and wait until their pods are gone."""
        self.ask("delete", kinds, _selector(labels), "--ignore-not-found", "--cascade=foreground",
                 f"--timeout={GONE:g}s", limit=GONE + ANSWER)  # fmt: skip

    def warnings(self, launch: str) -> list[tuple[str, str]]:
        """Reason and message of every warning about the objects and pods of a launch."""
        events = json.loads(self.ask("get", "events", "--field-selector=type=Warning", "--output=json"))
        return [
            (str(event.get("reason")), str(event.get("message"))) for event in events.get("items") or ()
            if f"{event.get('involvedObject', {}).get('name', '')}-".startswith(f"{launch}-")
        ]  # fmt: skip


def _selector(labels: Mapping[str, str]) -> str:
    return f"--selector={','.join(f'{name}={value}' if value else name for name, value in labels.items())}"


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
        hopeless = [reason for reason in waiting if reason.get("reason") in HOPELESS]
        unscheduled = [condition for condition in status.get("conditions") or ()
                       if condition.get("type") == "PodScheduled" and condition.get("status") == "False"]  # fmt: skip
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


def _text(of: Object) -> str:
    """`Unschedulable: 0/3 nodes are available: ...`."""
    return ": ".join(str(of[key]).strip() for key in ("reason", "message") if of.get(key)) or "without a reason"


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


def wait_for_pods(client: Client, launch: str, expected: int, check: StopCheck) -> list[Pod]:
    """Until so many pods of a launch run; what they wait for is said meanwhile, on standard error.

    LaunchFailed: one has ended. EngineError: they wait in vain, or for too long, as those of other launches would.
    """
    last, end = "", time.monotonic() + client.site.patience
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
            raise EngineError(f"engine k8s: the pods of {launch} do not run after {client.site.timeout}: "
                              f"{state.waits}. Raise timeout in the site file, or ask for less.")  # fmt: skip
        if state.waits != last:
            last = state.waits
            sys.stderr.write(f"# Kubernetes: {last}\n")
        time.sleep(ASK)


# Looks ---------------------------------------------------------------------------------------------------------------


def look_at(
    client: Client, run: str, plan: Plan, placements: Mapping[LaunchCell, Placement], check: StopCheck
) -> Looks:
    """What every image holds, and what the node of the first is: the machine of the launcher is no part of a run."""
    looks: dict[str, Look] = {}
    hosts: list[Host] = []
    site = client.site
    for number, image in enumerate(dict.fromkeys(cell.image for cell in placements)):
        reference, title = site.images[image], f"image {image} ({site.images[image]})"
        node, lines = _lines(client, f"{run}-look-{number}", run, image, plan, check)
        for line in lines:  # the node, as it describes itself; the limits of that pod are not those of ranks
            with contextlib.suppress(msgspec.DecodeError):
                host = msgspec.json.decode(line, type=Host)
                name = node or host.name
                hosts.append(msgspec.structs.replace(host, name=name, cgroup_cpus=None, cgroup_memory=None))
        contents = contents_in(lines, title, image, site.libraries, plan)
        looks[image] = Look(contents, reference, title, id=reference)
    selected = ", ".join(f"{name}={value}" for name, value in sorted(site.node_selector.items()))
    allocation = Allocation(job=run, partition=site.namespace, nodes=selected or "any node", options=site.options)
    remarks = ("the site file gives every pod the network of its node (hostNetwork)",) if site.host_network else ()
    return Looks(looks, remarks, hosts=tuple(hosts[:1]), variables=site.variables, allocation=allocation)


def _lines(client: Client, name: str, run: str, image: str, plan: Plan, check: StopCheck) -> tuple[str, list[str]]:
    """The node of a pod of an image, and what it prints of both, once it has said everything."""
    argv = probe_of("python", image, client.site.libraries, plan)
    client.apply((objects.look_job(client.site, run, name, driver_identity(), image, argv),))
    try:
        (pod, *_) = wait_for_pods(client, name, 1, check)
        end = time.monotonic() + HOLDS
        while time.monotonic() < end:
            check()
            lines = [line for line in client.ask("logs", pod.name).splitlines() if line.strip()]
            if lines and lines[-1] == objects.END:
                return pod.node, lines[:-1]
            time.sleep(ASK)
    except LaunchFailed as error:
        raise EngineError(f"engine k8s: image {image}: {error}") from error
    finally:
        client.delete("jobs", {LAUNCH: name})
    title = f"image {image} ({client.site.images[image]})"
    raise EngineError(f"engine k8s: {title}: its pod runs, and says nothing for {HOLDS:g} s.")


# Worlds --------------------------------------------------------------------------------------------------------------


@dataclass
class K8sWorld:
    """All ranks of a launch; `follower` follows what its command prints, `pods` are as Kubernetes showed them last."""

    launch: Launchable
    client: Client
    check: StopCheck
    hosts: tuple[tuple[str, int], ...]
    program: Argv = objects.PROGRAM
    pods: list[Pod] = field(default_factory=list)
    follower: HostProcess | None = None
    pid: None = None  # on other machines
    _applied: bool = False
    _asked: float = 0.0
    _copied: float = 0.0
    _code: int | None = None

    def execute(self, host: str, argv: Argv, environment: dict[str, str], log: Log) -> K8sWorld:
        """Make the pods, whose command starts every rank, and wait until they run."""
        self._applied = True
        name = self.launch.world.name
        self.client.apply(objects.manifests(self.launch))
        expected = self.launch.pods + (1 if self.launch.by_ssh else 0)
        self.pods = wait_for_pods(self.client, name, expected, self.check)
        follow = ("logs", "--follow", f"--selector={PART}={self.launch.head},{LAUNCH}={name}", "--all-containers",
                  "--tail=-1", "--max-log-requests=1000")  # fmt: skip
        self.follower = job.execute(self.client.command(*follow), {}, log)
        return self

    def died(self) -> str | None:
        return end_of(self.pods) if self._code is None else None  # no pod ends by itself

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
                self.collect(everything=False)
        return self._code

    @property
    def how(self) -> str:
        what = "the launcher" if self.launch.by_ssh else "rank 0"
        return f"{what} ended with exit code {self._code}"

    def collect(self, everything: bool = True) -> None:
        if writers := of_part(self.pods, "ranks"):  # rank 0 writes
            copy(self.client, writers[0].name, self.launch.world.folders.out, everything)

    def close(self) -> None:
        if self.follower is not None:
            self.follower.end()
        if self._applied:
            self.client.delete(self.launch.kinds, {LAUNCH: self.launch.world.name})


def copy(client: Client, pod: str, out: Path, everything: bool) -> None:
    """Copy the run of a pod to `out`, if there is one: everything, or what shows progress. LaunchFailed: it cannot."""
    names = "." if everything else " ".join(TOP)
    script = f"cd {RESULTS}/out 2>/dev/null && exec tar --ignore-failed-read -cf - {names} 2>/dev/null"
    command = client.command("exec", pod, "--container=ranks", "--", "sh", "-c", script)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:  # fmt: skip
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
    """The files of a run in an archive; all else in it, links too, is left out. TarError or OSError: it ends early."""
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


@dataclass
class K8sSession:
    """A cluster, as its site file describes it.

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
        return self.client.version()

    @property
    def kinds(self) -> str:
        """Everything that this session may have made."""
        return ",".join(self.site.kinds)

    def close(self, at_once: bool) -> None:
        if not self._made:
            return
        hint = f"Delete what is left: kubectl delete {self.kinds} -l {RUN}={self.run}"
        if at_once:
            raise EngineError(f"Pods may be left. {hint}")
        try:
            self.client.delete(self.kinds, {RUN: self.run})
            self._made = False
        except EngineError as left:
            raise EngineError(f"{str(left).rstrip('.')}. {hint}") from left

    def look(self, plan: Plan, placements: Mapping[LaunchCell, Placement], vendors: Mapping[str, str]) -> Looks:
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
        """Whether something of this run is there."""
        return bool(self.client.get(self.kinds, {RUN: self.run}))

    def ready(self) -> None:
        """Whether Kubernetes answers, and has run the pods of every launch so far."""
        if self.refused:
            raise EngineError(self.refused)
        if self.client.get("pods", {RUN: self.run}):  # of a launch that could not delete them
            self.client.delete(self.kinds, {RUN: self.run})

    @contextlib.contextmanager
    def open(self, world: WorldSpec) -> Iterator[K8sWorld]:
        """The pods of a launch, which begin with its command; then they are copied from, and deleted."""
        self._made = True
        inner, hosts = world.folders.plan.read_text(encoding="utf-8"), world.cell.hosts
        launch = Launchable(world, self.site, inner, self.nodes.get(hosts, ()))
        opened = K8sWorld(launch, self.client, self.check, (("the pods", world.cell.ranks),))
        try:
            try:
                yield opened
            except BaseException:
                with contextlib.suppress(Exception):
                    opened.collect()
                raise
            opened.collect()
            nodes = (pod.node for pod in of_part(opened.pods, "ranks"))
            self.nodes.setdefault(hosts, tuple(dict.fromkeys(filter(None, nodes))))
        except BaseException as error:
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
        for manifest in self.client.get(self.kinds, {RUN: ""}):
            by_run.setdefault(manifest["metadata"]["labels"][RUN], []).append(manifest)
        held, removed, kept = locks(), list[str](), list[str]()
        for run, made in sorted(by_run.items()):
            driver = str((made[0]["metadata"].get("annotations") or {}).get(objects.DRIVER, ""))
            names = [str(manifest["metadata"]["labels"].get(LAUNCH, manifest["metadata"]["name"])) for manifest in made]
            dead = is_dead(driver, held.get(driver), any(map(_may_run, made)))
            if dead:
                self.client.delete(self.kinds, {RUN: run})
            (removed if dead else kept).extend(dict.fromkeys(names))
        return removed, kept


def _may_run(manifest: Object) -> bool:
    """Whether its ranks may still run, or are just being started; by this machine's clock."""
    created = datetime.fromisoformat(str(manifest["metadata"].get("creationTimestamp", "1970-01-01T00:00:00Z")))
    return manifest.get("kind") in ("Job", "MPIJob") or time.time() - created.timestamp() < YOUNG


#: `start_seconds` are an estimate: pods took 6 s with their ranks on one node. It is `bare` to refuse worlds without
#: containers in words of its own.
ENGINE = Engine("k8s", lambda plan, check: K8sSession(read(plan.site), check), (10.0, 0.5), LADDER,
                starts_ranks=True, bare=True, script=all_launches,
                site=lambda plan: Site(read(plan.site).node))  # fmt: skip
