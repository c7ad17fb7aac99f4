"""A Slurm cluster of containers on this machine, for tests and to try `collbench launch --on slurm`.

    python tools/toy_slurm.py up collbench/openmpi --nodes 2     a cluster of containers of that image, with Slurm in it
    docker exec toy-slurm-n0 sinfo                               n0 is login node, controller and first node
    python tools/toy_slurm.py down

Every node has cores of its own (the last ones share, where there are fewer than nodes) and sees one folder, /shared,
which is --share on this machine; a site file for collbench is in it, site.toml. Of further images the environments are
there too, and with --runtime charliecloud every image as a tree of files. Nothing in it is timed for real: all nodes
are one machine. docs/cluster.md goes through it, from nothing to a verdict.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

#: Outside of what engines keep, which may not be a context of a build.
OUTSIDE = Path("/var/tmp")  # noqa: S108 - folders of our own in it

#: Longest wait for a command of Docker, for the image, and for an idle cluster (s).
LIMIT, BUILD, IDLE = 120, 600, 60

#: Slurm in an image of ours: one layer. srun's PMIx plug-in opens a file that only Debian's libpmix-dev has.
DOCKERFILE = """\
ARG IMAGE
FROM ${IMAGE}
USER root
RUN apt-get update \\
 && apt-get install -y --no-install-recommends slurmd slurmctld slurm-client munge slurm-wlm-basic-plugins libpmix2 \\
    charliecloud-runtime \\
 && rm -rf /var/lib/apt/lists/* && ln -sf libpmix.so.2 /usr/lib/$(uname -m)-linux-gnu/pmix2/lib/libpmix.so
"""

#: A node too many in it costs two minutes of looking up its name. Heterogeneous jobs wait for the next backfill.
CONFIGURATION = """\
ClusterName=toy
SlurmctldHost=n0
SlurmUser=root
AuthType=auth/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SchedulerParameters=bf_interval=1
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
SwitchType=switch/none
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
SlurmdTimeout={patience}
KillWait=5
NodeName=n[0-{last}] Sockets=1 CoresPerSocket={cores} ThreadsPerCore={threads} RealMemory=1000 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""

#: What Charliecloud needs of containers that are nodes: namespaces of users, and mounts in them.
CONTAINERS_IN_NODES = ("--security-opt", "seccomp=unconfined", "--cap-add", "SYS_ADMIN")

#: Where nodes find launches and images, and where an image has its environment.
LAUNCHES, IMAGES, ENVIRONMENT = "/shared/collbench", "/shared/images", "/opt/collbench"

#: Where collbench finds what it needs on the nodes.
SITE = """\
[slurm]
folder = "{folder}"
cores = {cpus}
time = "30"
runtime = "{runtime}"
environments = {{ {environments} }}
images = {{ {images} }}
"""

#: What a node does before Slurm's own programs run in it.
PREPARE = """\
install -o munge -g munge -m 400 /shared/munge.key /etc/munge/munge.key
mkdir -p /run/munge /var/spool/slurmd /var/spool/slurmctld /etc/slurm && chown munge:munge /run/munge
cp /shared/slurm.conf /etc/slurm/ && setpriv --reuid munge --regid munge --clear-groups /usr/sbin/munged
"""


@dataclass(frozen=True)
class ToySlurm:
    """A cluster. `name` is that of its network and begins those of its containers; `share` is /shared in all of them.

    `cpus` are those of a node, `threads` of them make a core for Slurm, whatever they are here.
    A node that is silent for `patience` seconds is down. `options` are for `docker run`.
    """

    name: str
    image: str
    share: Path
    nodes: int = 2
    cpus: int = 1
    threads: int = 1
    patience: int = 30
    options: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=lambda: {"USER": "collbench"})

    def node(self, number: int) -> str:
        return f"{self.name}-n{number}"

    def up(self) -> None:
        """Start it, and wait until every node is idle.

        Raises:
            RuntimeError: a command failed, or the nodes do not become idle.
        """
        image = with_slurm(self.image)
        self.share.mkdir(parents=True, exist_ok=True)
        self.share.chmod(0o777)
        (self.share / "munge.key").write_bytes(secrets.token_bytes(1024))
        text = CONFIGURATION.format(
            last=self.nodes - 1,
            cores=self.cpus // self.threads,
            threads=self.threads,
            patience=self.patience,
        )
        (self.share / "slurm.conf").write_text(text)
        docker("network", "create", "--internal", self.name)
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda number: self._start(image, number), range(self.nodes)))
            list(pool.map(lambda number: self.root(number, "sh", "-ec", PREPARE), range(self.nodes)))
            self.root(0, "slurmctld")
            list(pool.map(lambda number: self.root(number, "slurmd"), range(self.nodes)))
        end = time.monotonic() + IDLE
        while self.root(0, "sinfo", "-h", "-t", "idle", "-o", "%D").strip() != str(self.nodes):
            if time.monotonic() > end:
                raise RuntimeError(f"not every node is idle: {self.root(0, 'sinfo')}")
            time.sleep(0.1)

    def _start(self, image: str, number: int) -> None:
        cores = os.cpu_count() or 1
        own = ",".join(str((number * self.cpus + i) % cores) for i in range(self.cpus))
        variables = [word for name, value in self.environment.items() for word in ("--env", f"{name}={value}")]
        docker(
            "run", "-d", "--init", "--name", self.node(number), "--hostname", f"n{number}", "--network", self.name,
            "--network-alias", f"n{number}", f"--cpuset-cpus={own}", "--volume", f"{self.share}:/shared", *variables,
            *self.options, image, "sleep", "1000000",
        )  # fmt: skip

    def down(self) -> None:
        """Remove its containers and its network, if there are any."""
        if names := docker("ps", "-aq", "--filter", f"network={self.name}").split():
            docker("rm", "-f", "-v", *names)
        if networks := docker("network", "ls", "-q", "--filter", f"name=^{self.name}$").split():
            docker("network", "rm", *networks)

    def root(self, number: int, *argv: str) -> str:
        """What a command of root prints on a node."""
        return docker("exec", "--user", "root", self.node(number), *argv)

    def user(self, *argv: str, limit: float = LIMIT) -> subprocess.CompletedProcess[str]:
        """A command of the image's own user on the login node, to its end."""
        whole = ("docker", "exec", "--user", "1000", "--workdir", "/shared", self.node(0), *argv)
        return subprocess.run(whole, capture_output=True, text=True, timeout=limit, check=False)


def docker(*argv: str, limit: float = LIMIT, text: str | None = None) -> str:
    """What a command of Docker prints.

    Raises:
        RuntimeError: it fails.
    """
    done = subprocess.run(("docker", *argv), capture_output=True, text=True, timeout=limit, check=False, input=text)
    if done.returncode != 0:
        raise RuntimeError(f"docker {' '.join(argv[:3])}: {done.stderr.strip()}")
    return done.stdout


def with_slurm(image: str) -> str:
    """The image with a layer of Slurm, which is made where it is not there, or older than the image."""
    made = f"toy-slurm/{image.rpartition('/')[2]}"
    base = docker("image", "inspect", "--format", "{{.Id}}", image).strip()
    try:
        if docker("image", "inspect", "--format", '{{index .Config.Labels "toy.base"}}', made).strip() == base:
            return made
    except RuntimeError:
        pass
    with tempfile.TemporaryDirectory(dir=OUTSIDE) as folder:
        (Path(folder) / "Dockerfile").write_text(DOCKERFILE)
        flags = ("--build-arg", f"IMAGE={image}", "--label", f"toy.base={base}", "-t", made)
        docker("build", "-q", *flags, folder, limit=BUILD)
    return made


def unpacked(image: str, folder: Path, mounted: str) -> None:
    """An image as Charliecloud takes it: a tree of files, with its environment, and a folder to mount `mounted` on."""
    folder.mkdir(parents=True)
    box = docker("create", image, "true").strip()
    try:
        with subprocess.Popen(("docker", "export", box), stdout=subprocess.PIPE) as export:
            subprocess.run(("tar", "-x", "-C", str(folder)), stdin=export.stdout, check=True, timeout=BUILD)
    finally:
        docker("rm", box)
    (folder / mounted.strip("/")).mkdir(parents=True)
    (folder / "ch").mkdir(exist_ok=True)
    variables = docker("image", "inspect", "--format", "{{range .Config.Env}}{{println .}}{{end}}", image)
    (folder / "ch/environment").write_text(variables)


def furnish(share: Path, images: Sequence[str], runtime: str, cpus: int) -> None:
    """Write the site file, and unpack what it names: the nodes are containers of the first image."""
    names = {image: image.rpartition("/")[2].partition(":")[0] for image in images}
    (share / LAUNCHES.removeprefix("/shared/")).mkdir(mode=0o777, parents=True, exist_ok=True)
    (share / LAUNCHES.removeprefix("/shared/")).chmod(0o777)
    shutil.rmtree(share / "images", ignore_errors=True)
    trees = images if runtime == "charliecloud" else images[1:]
    for image in trees:
        unpacked(image, share / "images" / names[image], LAUNCHES)
    own = {
        names[image]: ENVIRONMENT if image == images[0] else f"{IMAGES}/{names[image]}{ENVIRONMENT}" for image in images
    }
    text = SITE.format(
        folder=LAUNCHES, cpus=cpus, runtime=runtime,
        environments=", ".join(f'{name} = "{path}"' for name, path in own.items()),
        images=", ".join(f'{names[image]} = "{IMAGES}/{names[image]}"' for image in trees if runtime != "none"),
    )  # fmt: skip
    (share / "site.toml").write_text(text)


def main() -> None:
    """`up` or `down`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("do", choices=("up", "down"))
    parser.add_argument("images", nargs="*", default=["collbench/openmpi"], metavar="IMAGE")
    parser.add_argument("--runtime", choices=("none", "charliecloud"), default="none")
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--cpus", type=int, default=1, help="of a node")
    parser.add_argument("--share", type=Path, default=OUTSIDE / "toy-slurm")
    asked = parser.parse_args()
    options = CONTAINERS_IN_NODES if asked.runtime == "charliecloud" else ()
    cluster = ToySlurm("toy-slurm", asked.images[0], asked.share.absolute(), asked.nodes, asked.cpus, options=options)
    if asked.do == "up":
        cluster.up()
        furnish(cluster.share, asked.images, asked.runtime, cluster.cpus)
    else:
        cluster.down()


if __name__ == "__main__":
    main()
