"""A Kubernetes cluster that answers: objects for each launch, watched, copied from, and deleted."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from collbench.errors import EngineError, LaunchLost
from collbench.launch.cells import LaunchCell
from collbench.launch.engines.k8s.client import Client, nodes_of
from collbench.launch.engines.k8s.ladder import refuse
from collbench.launch.engines.k8s.objects import DRIVER, LAUNCH, RUN, Launchable, Object
from collbench.launch.engines.k8s.site import K8sSite
from collbench.launch.engines.k8s.world import K8sWorld, look_at
from collbench.launch.engines.spec import Looks, WorldSpec
from collbench.launch.folders.sweep import YOUNG, is_dead, locks
from collbench.launch.placing import Placement
from collbench.launch.stopping import StopCheck
from collbench.schema.launch_plan import LaunchPlan

#: Begins the names of everything.
PREFIX = "collbench-"

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

    @contextlib.contextmanager
    def cleaned(self) -> Iterator[None]:
        """At the end all is deleted that has the label of this run."""
        try:
            yield
        except BaseException as error:
            self._released(error)
            raise
        else:
            self._released(None)

    def _released(self, error: BaseException | None) -> None:
        if not self._made:
            return
        try:
            self.client.delete(self.kinds, {RUN: self.run})
            self._made = False
        except EngineError as left:
            hint = f"{str(left).rstrip('.')}. Delete what is left: kubectl delete {self.kinds} -l {RUN}={self.run}"
            if error is None:
                raise EngineError(hint) from left
            error.add_note(f"{'' if str(error).endswith('.') else '.'} {hint}")

    def look(self, plan: LaunchPlan, placements: Mapping[LaunchCell, Placement], vendors: Mapping[str, str]) -> Looks:
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
            self.nodes.setdefault(hosts, nodes_of(opened.pods))
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
            names = [str(one["metadata"]["labels"].get(LAUNCH, one["metadata"]["name"])) for one in made]
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
