"""Checks of a cluster, from where jobs are submitted: what would spoil a launch, before a job waits in its queue.

Kubernetes is asked by kubectl, and nothing is made. Slurm is asked by its clients, then by a job.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from collbench.analysis.results import grouped
from collbench.doctor import Finding, Problem, Severity
from collbench.errors import CollbenchError, EngineError
from collbench.launch import launchers
from collbench.launch.cells import LaunchCell
from collbench.launch.engines.k8s import Client
from collbench.launch.engines.k8s.objects import Object, look_job
from collbench.launch.engines.k8s.site import K8sSite
from collbench.launch.engines.k8s.site import read as read_k8s_site
from collbench.launch.engines.slurm import answers_of, contents_of, nodes_in, one_on_each, run_step, script, title_of
from collbench.launch.engines.slurm import job as slurm
from collbench.launch.engines.slurm.job import SlurmJob, submitted, wait_for_nodes
from collbench.launch.engines.slurm.script import Resources, SlurmSite, StepOf, seconds_of
from collbench.launch.expansion import expand, launcher_of
from collbench.launch.launchers import PROCESS, RankLauncher
from collbench.launch.placement import Placement
from collbench.launch.stacks import nodes_of
from collbench.launch.waiting import Log
from collbench.machine.launcher import PMI
from collbench.schema.plan import Plan
from collbench.units import counted

Findings = Iterator[tuple[str, Finding]]


def _fails(observed: str, cause: str, effect: str, fix: str) -> Finding:
    return Finding(observed, (Problem("fail", cause, effect, fix),))


def _or_unknown(check: Callable[[Any], Finding], of: Client | SlurmSite, fix: str) -> Finding:
    """What a check found; a right to ask may be lacking where everything else is there."""
    try:
        return check(of)
    except EngineError as error:
        return Finding("not known", (Problem("unknown", _text(error), "a launch may fail", fix),))


def _text(error: CollbenchError) -> str:
    """Without the name of the engine."""
    return re.sub(r"^engine (k8s|slurm): ", "", str(error))


# Kubernetes ----------------------------------------------------------------------------------------------------------

_OPERATOR = "mpijobs.kubeflow.org"

#: What kubectl does with the objects of a launch, which it waits for when it deletes them, and what it asks besides.
_VERBS = ("create", "get", "list", "watch", "delete")
_ASKED = ("get pods", "list pods", "get pods/log", "create pods/exec", "list events")


def rights(site: K8sSite) -> tuple[str, ...]:
    """What an account must be allowed to do: `create jobs`."""
    kinds = [_OPERATOR if kind == "mpijobs" else kind for kind in site.kinds]
    return (*(f"{verb} {kind}" for kind in kinds for verb in _VERBS), *_ASKED)


def k8s_cluster(address: str) -> Findings:
    """Every check of a site by its name, one after the other; without an answer of the cluster only the first."""
    client = Client(read_k8s_site(address))
    try:
        yield "cluster", Finding(client.version())
    except EngineError as error:
        context = "kubectl config get-contexts; context in the site file"
        yield "cluster", _fails("no answer", _text(error), "nothing can be launched from here", context)
        return
    for name, applies, check in (
        ("namespace", True, _namespace), ("operator", client.site.objects == "mpijob", _operator),
        ("nodes", True, _k8s_nodes), ("pod", bool(client.site.images), _pod), ("rights", True, _rights),
    ):  # fmt: skip
        if applies:
            yield name, _or_unknown(check, client, "ask who runs the site")


def _namespace(client: Client) -> Finding:
    """Whether it is there, and which steps of the ladder its level of PodSecurity refuses."""
    name = client.site.namespace
    try:
        namespace = json.loads(client.ask("get", "namespace", name, "--output=json"))
    except EngineError as error:
        if "not found" not in str(error).lower():
            raise
        fix = f"kubectl create namespace {name}; or namespace in the site file"
        return _fails(name, _text(error), "every launch is refused", fix)
    labels = namespace.get("metadata", {}).get("labels") or {}
    level = str(labels.get("pod-security.kubernetes.io/enforce", "privileged"))
    problem = Problem("warn", f"PodSecurity enforces {level}", "step files and seccomp unconfined are refused",
                      'isolation = ["strict", "limits", "net"] in the plan; or another namespace')  # fmt: skip
    # These levels refuse the namespaces of a node.
    return Finding(f"{name}, PodSecurity {level}", (problem,) if level in ("baseline", "restricted") else ())


def _operator(client: Client) -> Finding:
    try:
        client.ask("get", "customresourcedefinition", _OPERATOR, "--output=name")
    except EngineError as error:
        if "not found" not in str(error).lower():
            raise
        fix = 'objects = "job" in the site file, for torch; or install the MPI Operator'
        effect = "MPI libraries cannot be started in several pods"
        return _fails("not installed", f"the cluster does not know {_OPERATOR}", effect, fix)
    return Finding(_OPERATOR)


def _k8s_nodes(client: Client) -> Finding:
    """Of the nodes that the site chooses and whose taints it tolerates, what pods can have."""
    site = client.site
    chosen = ",".join(f"{key}={value}" for key, value in site.node_selector.items())
    selector = [f"--selector={chosen}"] if chosen else []
    nodes = json.loads(client.ask("get", "nodes", *selector, "--output=json"))["items"]
    tolerations = site.pod.get("spec", {}).get("tolerations", [])
    closed = [_closed(node.get("spec", {}), tolerations) for node in nodes]
    room = [node.get("status", {}).get("allocatable", {}) for node, why in zip(nodes, closed, strict=True) if not why]
    refused = ", ".join(sorted({why for why in closed if why}))
    cores = max((_cores(str(node.get("cpu", "0"))) for node in room), default=0.0) / site.threads_per_core
    gpus = max((int(node.get(site.gpu_resource, 0)) for node in room), default=0)
    seen = f"{counted(len(room), 'node')}, the largest with {cores:g} cores for pods"
    if refused:
        seen += f"; {counted(len(nodes) - len(room), 'more node')} not open to pods: {refused}"
    effect = "pods stay Pending"
    if refused and not room:
        fix = "spec.tolerations in [k8s.pod] of the site file; or another node_selector"
        return _fails(seen, f"no node takes pods: {refused}", effect, fix)
    problems = [
        Problem("fail", f"the site file says {key} = {needed}, and no node has more than {most:g} for pods", effect,
                f"{key} = {int(most)} in the site file, or another node_selector" if most >= 1 or key == "gpus"
                else "another node_selector in the site file")
        for key, needed, most in (("cores", site.cores, cores), ("gpus", 0 if site.device_class else site.gpus, gpus))
        if needed > most
    ]  # fmt: skip
    problems += [
        Problem("fail", f"no node has {name}", effect, "resources in the site file, or a device plugin")
        for name in site.resources if all(str(node.get(name, "0")) == "0" for node in room)
    ]  # fmt: skip
    return Finding(seen, tuple(problems))


def _closed(node: Object, tolerations: list[Object]) -> str:
    """Why a node takes no pod of the site: a taint that it does not tolerate; empty where it does."""
    for taint in node.get("taints") or ():
        hard = taint.get("effect") in ("NoSchedule", "NoExecute")
        if hard and not any(_tolerates(toleration, taint) for toleration in tolerations):
            return f"{taint.get('key')}:{taint['effect']}"
    return ""


def _tolerates(toleration: Object, taint: Object) -> bool:
    """By Kubernetes' rules: no effect is every effect, and no key with Exists is every key."""
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", taint.get("key"))
    return toleration.get("key") == taint.get("key") and toleration.get("value", "") == taint.get("value", "")


def _cores(quantity: str) -> float:
    """`8`, or `7910m`."""
    return int(quantity[:-1]) / 1000 if quantity.endswith("m") else float(quantity)


def _pod(client: Client) -> Finding:
    """What admission says of a pod that looks at an image: it knows PodSecurity, quotas, classes and every field."""
    site, name = client.site, "collbench-doctor"
    job = look_job(site, name, name, "", next(iter(site.images)), ("true",))
    pod = {"apiVersion": "v1", "kind": "Pod", **job["spec"]["template"]}
    pod["metadata"] = {"name": name, "namespace": site.namespace, **pod["metadata"]}
    try:
        client.ask("create", "--dry-run=server", "--filename=-", "--output=name", text=json.dumps(pod))
    except EngineError as error:
        # What the API server says of an account that may make Jobs, and no pods itself.
        if 'cannot create resource "pods"' in str(error):
            return Finding("not known: the account may not create pods itself")
        fix = "[k8s.pod] and [k8s.container] in the site file; or ask who runs the site"
        return _fails("refused", _text(error), "no launch can begin", fix)
    return Finding("would be taken")


def _rights(client: Client) -> Finding:
    needed = rights(client.site)
    with ThreadPoolExecutor(max_workers=8) as several:
        allowed = list(several.map(lambda what: _may(client, what), needed))
    refused = [what for what, may in zip(needed, allowed, strict=True) if not may]
    seen = f"{len(needed) - len(refused)} of {len(needed)} are there"
    if not refused:
        return Finding(seen)
    fix = f"kubectl auth can-i {refused[0]} --namespace={client.site.namespace}; docs/cluster.md has a Role"
    return _fails(seen, f"the account may not {', '.join(refused)}", "launches are refused", fix)


def _may(client: Client, what: str) -> bool:
    """`kubectl auth can-i` says no by its exit code too."""
    try:
        return client.ask("auth", "can-i", *what.split()).strip().startswith("yes")
    except EngineError as error:
        if str(error).rstrip(".").endswith((" no", "nothing")) or " says: no" in str(error):
            return False
        raise


# Slurm ---------------------------------------------------------------------------------------------------------------

#: The types of PMI that each library can use, by how their names begin: pmix_v4 is one of pmix.
_FITTING = {"openmpi": ("pmix",), "mpich": ("pmi2", "pmi1", "pmix", "cray"), "intelmpi": ("pmi2", "pmi1", "pmix")}

_NO_RECORDS = "no launch can leave its records"


def slurm_cluster(address: str) -> Findings:
    """Every check of a site by its name, one after the other; the last ones need nodes.

    Without Slurm the others are not made, and without a folder or a job that it takes not those of nodes.
    """
    site = script.read(address)
    try:
        version = slurm.version()
        for program in ("sbatch", "srun", "scontrol", "squeue", "scancel", "sinfo"):
            slurm.ask(program, "--version")
    except EngineError as error:
        effect = "nothing can be submitted from here"
        yield "clients", _fails("none here", str(error), effect, "run this on a login node")
        return
    yield "clients", Finding(version)
    fix = "ask again, or ask who runs the site"
    for name, check in (("mpi", _pmi), ("nodes", _slurm_nodes), ("time", _time)):
        yield name, _or_unknown(check, site, fix)
    job = _or_unknown(_job, site, fix)
    yield "job", job
    with _folder_in(site) as (folder, of_folder):
        yield "folder", of_folder
        if folder is not None and not job.problems:
            yield from on_nodes(site, address, folder)


def _pmi(site: SlurmSite) -> Finding:
    """Whether srun joins the ranks of each library; a failure for those that the site holds."""
    if not (listed := slurm.ask("srun", "--mpi=list").split()):
        raise EngineError("engine slurm: srun --mpi=list prints nothing")
    used = {site.libraries.get(image) or next((name for name in launchers.names() if name in image), "")
            for image in (*site.images, *site.environments)} | set(site.mpi)  # fmt: skip
    plugins = {library: site.mpi.get(library, kind) for library, kind in PMI.items()}
    problems = []
    for kind, libraries in sorted(grouped((kind, library) for library, kind in plugins.items()).items()):
        severity: Severity = "fail" if used.intersection(libraries) else "warn"
        effect = f"ranks of {' and '.join(libraries)} become worlds of one rank, or abort"
        if kind not in listed:
            values = ", ".join(f"{library} = ..." for library in libraries)
            fix = f"mpi = {{ {values} }} in the site file, or ask for Slurm's plug-in {kind}"
            problems.append(Problem(severity, f"srun --mpi=list does not name {kind}", effect, fix))
            continue
        for library in libraries:
            if not kind.startswith(_FITTING[library]):
                fix = f'mpi = {{ {library} = "{PMI[library]}" }} in the site file'
                problems.append(Problem(severity, f"{library} does not join a world by {kind}", effect, fix))
    return Finding(", ".join(f"{library} by {kind}" for library, kind in plugins.items()), tuple(problems))


def _sinfo(site: SlurmSite, form: str, *flags: str) -> list[list[str]]:
    """The rows of sinfo with a word for each field of the form, of the partitions that the site names.

    Where it names none, and the form begins with the partition, those of the usual one, which has a `*`.
    """
    lines = slurm.ask("sinfo", "--noheader", *flags, *site.partitions, f"--format={form}").splitlines()
    rows = [words for line in lines if len(words := line.split()) == len(form.split())]
    if site.partitions or not form.startswith("%P"):
        return rows
    return [words for words in rows if words[0].endswith("*")] or rows


def _slurm_nodes(site: SlurmSite) -> Finding:
    cores = {name: int(number) for name, number in _sinfo(site, "%N %c", "--Node")}
    sizes = sorted(set(cores.values()))
    seen = (f"{counted(len(cores), 'node')} with {' or '.join(map(str, sizes)) or 'no'} "
            f"{'core' if sizes == [1] else 'cores'}")  # fmt: skip
    if not sizes or sizes[-1] >= site.cores:
        return Finding(seen)
    cause = f"the site file says cores = {site.cores}, and the largest node has {sizes[-1]}"
    return _fails(seen, cause, "the job is rejected", f"cores = {sizes[-1]}" if sizes[-1] else "other partitions")


def _time(site: SlurmSite) -> Finding:
    """Slurm may take a job that is longer than its partition allows, and never begin it."""
    limits = dict(_sinfo(site, "%P %l"))
    longest = max(limits.values(), key=_seconds, default="infinite")
    seen = f"time {site.time}, and the partition allows {longest}"
    if _seconds(site.time) <= _seconds(longest):
        return Finding(seen)
    names = ", ".join(name.rstrip("*") for name in limits)
    cause = f"partition {names} allows {longest}, and the site file says time = {site.time}"
    return _fails(seen, cause, "the job never begins", f'time = "{longest}"')


def _seconds(time: str) -> float:
    """A limit (s); infinite where there is none, or Slurm does not say it."""
    try:
        return seconds_of(time) or math.inf
    except ValueError:
        return math.inf


def _job(site: SlurmSite) -> Finding:
    """What sbatch would say of jobs that ask for ever more, so that a rejection names what it is about."""
    jobs = [("options, time", site, Resources(1, 1, 1, 0))]
    if site.servers.options is not None:  # the nodes of servers have options of their own
        jobs.append(("servers", msgspec.structs.replace(site, options=site.of_servers), Resources(1, 1, 1, 0)))
    jobs.append((f"cores = {site.cores}", site, Resources(1, 1, site.cores, 0)))
    if site.gpus:
        jobs.append((f"gpus = {site.gpus}", site, Resources(1, 1, 1, site.gpus)))
    for what, of, needs in jobs:
        text = script.job_script("collbench-doctor", Path(site.folder), of, needs)
        try:
            slurm.ask("sbatch", "--test-only", text=text)
        except EngineError as error:
            fix = f"{what} in the site file"
            return _fails("sbatch --test-only rejects it", _text(error), "the job is rejected", fix)
    return Finding("sbatch --test-only takes it")


@contextlib.contextmanager
def _folder_in(site: SlurmSite) -> Iterator[tuple[Path | None, Finding]]:
    """A folder in that of the site for as long as this lasts; None where none can be made."""
    parent = Path(site.folder)
    try:
        parent = next(folder for folder in (parent, *parent.parents) if folder.is_dir())
        made = tempfile.TemporaryDirectory(prefix="collbench-doctor-", dir=parent, ignore_cleanup_errors=True)
    except OSError as error:
        yield None, _fails(site.folder, f"{parent} cannot be written to: {error.strerror}", _NO_RECORDS,
                           "folder in the site file: one that you can write to")  # fmt: skip
        return
    with made as folder:
        yield Path(folder), Finding(f"{site.folder} can be written to here")


#: Longest waits (s): for nodes, because a queue may be full, and then nothing is known; for what a node says of itself
#: and of an image, which may be unpacked first; and for the ranks of an MPI to meet.
QUEUE, LOOK, HELLO = 60.0, 120.0, 60.0

#: Longest time of the job, as Slurm spells it.
TIME = "10"

#: What a node prints in a task: what becomes of files in the folder `$0`, and how many cores the task may use.
_TASK = """\
if ! test -d "$0"; then seen=unshared
elif touch "$0/$(uname -n)" 2>/dev/null; then seen=writable
else seen=missing; fi
echo $seen $(nproc)"""

#: The name of steps that start an MPI.
_STEP = "collbench-ranks"


class _Busy(EngineError):
    """The queue is full: nothing is known of the nodes."""


@dataclass(frozen=True)
class NodeSoftware:
    """An image or an environment as a launch would start it: a plan with one world over all nodes of the job."""

    plan: Plan
    cell: LaunchCell
    placement: Placement
    launcher: RankLauncher

    def on_each(self, nodes: int) -> tuple[LaunchCell, Placement]:
        """With one rank on each of so many nodes."""
        return one_on_each({self.cell: self.placement}, nodes)


def on_nodes(site: SlurmSite, address: str, folder: Path) -> Findings:
    """What as many nodes see as are idle, in one job: themselves, what they hold, and whether their ranks meet."""
    job: SlurmJob | None = None
    end = time.monotonic() + QUEUE

    def check() -> None:
        if job is not None and time.monotonic() > end and not nodes_in(job.folder):
            raise _Busy(f"no node within {QUEUE:g} s: job {job.number}: {job.state.text}")

    try:
        job = _submitted(site, folder / "job")
        wait_for_nodes(job, check)
        nodes = _Nodes(site, address, job, nodes_in(job.folder), check)
        yield "node", nodes.seen()
        software, sound = nodes.software()
        yield "software", software
        if sound:
            yield "ranks", nodes.ranks_meet(sound)
    except EngineError as error:
        busy = isinstance(error, _Busy)
        problem = Problem("unknown" if busy else "fail", _text(error), "a launch may wait as long" if busy else
                          "a launch fails in the same way", "ask again, or ask who runs the site")  # fmt: skip
        yield "node", Finding("not known", (problem,))
    finally:
        if job is not None:
            job.end()


def _submitted(site: SlurmSite, folder: Path) -> SlurmJob:
    """A job for all nodes of the partition that are idle now; for fewer where options do not allow so many."""
    rows = _sinfo(site, "%P %D %s", "--states=idle")
    sizes = [(int(idle), most.rpartition("-")[2]) for _, idle, most in rows]  # most: that one job may have
    number = max(1, *(min(idle, int(most)) if most.isdecimal() else idle for idle, most in sizes), 1)
    short = msgspec.structs.replace(site, time=min(TIME, site.time, key=_seconds))
    while True:
        text = script.job_script("collbench-doctor", folder, short, Resources(number, min(2, site.cores), 1, site.gpus))
        try:
            slurm.ask("sbatch", "--test-only", text=text)
            return submitted(text, folder)
        except EngineError:
            if number == 1:
                raise
            number //= 2


@dataclass(frozen=True)
class _Nodes:
    """The nodes of a job; `check` is called while they are waited for."""

    site: SlurmSite
    address: str
    job: SlurmJob
    names: tuple[str, ...]
    check: Callable[[], None]

    def _planned(self, name: str, contained: bool) -> NodeSoftware:
        """An image or environment in one world with a rank on each node; of one node with two, where it has the cores.

        PlanError: neither its name nor the site says which library it holds.
        """
        several = len(self.names) > 1
        ranks = 1 if several else min(2, self.site.cores)
        policy = script.RUNTIMES[self.site.runtime].policies[0] if contained else "host"
        plan = Plan(images=(name,), policies=(policy,), collectives=("allreduce",), sizes=("8",), ranks=(ranks,),
                          launches=1, engine="slurm", site=self.address)  # fmt: skip
        launcher = launcher_of(name, self.site.libraries, plan)
        if launcher.vendor == "torch":
            plan = msgspec.structs.replace(plan, backends=("torch-gloo",))
        ((cell, placement),) = expand(plan).placements.items()
        if several:
            cell, placement = one_on_each({cell: placement}, len(self.names))
        return NodeSoftware(plan, cell, placement, launcher)

    def seen(self) -> Finding:
        """The folder and the cores, as a task on each node sees them."""
        number = len(self.names)
        step = StepOf("nodes", *self._planned("openmpi", False).on_each(number), PROCESS, {}, run=script.ANSWERED)
        command = ("sh", "-c", _TASK, str(self.job.folder))
        answers = answers_of(self.job, step, self.site, command, self.check, "the nodes", LOOK)
        words = {answer.node: (*" ".join(answer.lines).split(), "", "")[:2] for answer in answers}
        cores = sorted({cores for _, cores in words.values()}, key=lambda count: (len(count), count))
        problems = []
        for word, what in (("unshared", "does not see what is written to"), ("missing", "cannot write to")):
            if bad := [node for node, (use, _) in words.items() if use == word]:
                cause = f"{nodes_of(bad, number)} {what} {self.site.folder}"
                fix = "folder in the site file: one that every node sees under this path"
                problems.append(Problem("fail", cause, _NO_RECORDS, fix))
        return Finding(f"{counted(number, 'node')}, with {' or '.join(cores)} {'core' if cores == ['1'] else 'cores'} "
                       "for a task", tuple(problems))  # fmt: skip

    def software(self) -> tuple[Finding, list[NodeSoftware]]:
        """What images and environments hold on every node; those that are the same on all of them."""
        site, number = self.site, len(self.names)
        names = [(name, False) for name in site.environments]
        names += [(name, True) for name in site.images if site.runtime != "none"]
        problems, sound, held = [], [], []
        for name, contained in names:
            try:
                planned = self._planned(name, contained)
                contents = contents_of(self.job, site, planned.plan, *planned.on_each(number), self.check, LOOK)
            except CollbenchError as error:
                fix = f"{'images' if contained else 'environments'} in the site file: where every node has the same"
                problems.append(Problem("fail", _text(error), f"launches of {name} are refused", fix))
            else:
                sound.append(planned)
                library = next(iter(contents.libraries), None)
                words = f"{library.name} {library.version}" if library else "no library"
                held.append(f"{title_of(planned.cell, site)}: {words}")
        where = nodes_of(self.names, number)
        seen = f"{len(sound)} of {len(names)} the same on {where}" if names else "none named"
        return Finding("; ".join((seen, *held)), tuple(problems)), sound

    def ranks_meet(self, software: list[NodeSoftware]) -> Finding:
        """Whether the ranks of each library meet: one all-reduce over all nodes; where that fails on each alone."""
        problems = []
        for of_node in software:
            title = title_of(of_node.cell, self.site)
            text = self._allreduce(of_node, of_node.cell, of_node.placement)
            code, log = run_step(self.job, text, _STEP, self.check, title, HELLO)
            if code == 0:
                continue
            cause = _cause(log, of_node.launcher) or f"exit code {code}"
            if code is None:
                cause = f"the ranks did not meet within {HELLO:g} s"
            where = self._alone(of_node) if len(self.names) > 1 else ""
            effect = f"launches of {of_node.cell.image} fail"
            fix = f"srun --mpi={of_node.launcher.pmi} there; mpi and setup in the site file"
            problems.append(Problem("fail", f"{title}: {where or cause}", effect, fix))
        ranks = counted(software[0].cell.ranks, "rank")
        return Finding(f"{len(software) - len(problems)} of {len(software)} meet: {ranks} on "
                       f"{counted(len(self.names), 'node')}", tuple(problems))  # fmt: skip

    def _allreduce(self, software: NodeSoftware, cell: LaunchCell, placement: Placement) -> str:
        """The step, as a launch would start it: one all-reduce of 8 bytes."""
        backend = ("--backend", "torch-gloo") if software.launcher.vendor == "torch" else ()
        words = ("-m", "collbench", "allreduce", "-b", "8", "-e", "8", "-n", "1", "-w", "0", *backend)
        variables = script.variables_of(cell, placement, software.launcher, self.site)
        step = StepOf(_STEP, cell, placement, software.launcher, variables)
        return script.step_script(step, self.site, (script.python_of(cell, self.site), *words))

    def _alone(self, software: NodeSoftware) -> str:
        """The nodes on which not even one rank starts, with the cause; all at once. Empty: there are none."""
        text = self._allreduce(software, *software.on_each(1))
        on_node = {node: text.replace("exec srun ", f"exec srun --nodelist={node} ", 1) for node in self.names}
        steps = [f"{{ (\n{step}) 2>&1; printf '\\nexit %d\\n' $?; }} | {script.LABEL.format(node=node)} &\n"
                 for node, step in on_node.items()]  # fmt: skip
        title = title_of(software.cell, self.site)
        code, log = run_step(self.job, f"{''.join(steps)}wait\n", _STEP, self.check, title, HELLO)
        late = f"no answer within {HELLO:g} s"
        causes: dict[str, tuple[str, ...]] = dict.fromkeys(self.names, (late,))
        for answer in script.answers_in(log.lines)[0]:
            if answer.code is not None:
                silent = late if code is None else f"exit code {answer.code}"
                causes[answer.node] = (answer.lines or (silent,)) if answer.code else ()
        groups: dict[str, list[str]] = {}
        for node, lines in causes.items():
            if lines:
                log = Log()
                log.add(True, *lines)
                groups.setdefault(_cause(log, software.launcher) or lines[-1], []).append(node)
        shown = list(groups.items())[:3]
        return "; ".join(f"{nodes_of(bad, len(self.names))}: {cause}" for cause, bad in shown)


def _cause(log: Log, launcher: RankLauncher) -> str:
    """What collbench says, or srun, or the library."""
    return (log.message.removeprefix(": ") or script.of_srun(log.lines)
            or log.library_message(launcher.quiet).removeprefix(": "))  # fmt: skip


#: By engine, the checks of its cluster.
CLUSTERS: dict[str, Callable[[str], Findings]] = {"slurm": slurm_cluster, "k8s": k8s_cluster}
