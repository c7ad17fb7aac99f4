"""What each key of a plan means, for the manual and for the schema that editors read.

Links are relative to docs/. Where a text begins with "As `-d`", what that flag of a collective means is put there.
"""

from __future__ import annotations

WORLD: dict[str, str] = {
    "title": "Kept in the manifest.",
    "collectives": (
        "Names, in any spelling that the command line accepts. A plan names at least one collective or benchmark."
    ),
    "benchmarks": (
        "[Benchmarks](#benchmarks), measured after the collectives, most of them on one rank: names, or tables with a "
        "`name` and values of parameters."
    ),
    "ops": "As `-o`.",
    "dtypes": "As `-d`.",
    "roots": "As `-r`.",
    "sizes": "Sizes of collectives: a table with the keys below, or a list.",
    "backends": (
        "The same ranks measure them in turn. `fake` cannot be combined with others. A key or an op that a backend "
        "does not support is left out of its cases, or its cases are skipped with the reason."
    ),
    "drivers": "As `--driver`: `native`, `python`, or both.",
    "thread_level": "As `--thread-level`, for the whole plan.",
    "staging": "As `--staging`: `pageable`, `pinned`, or both, as separate cases.",
    "algorithms": "As `--algorithm`, each with its own communicator. The empty value leaves the choice to NCCL.",
    "protocols": "As `--protocol`.",
    "cta_policies": "As `--cta-policy`.",
    "registration": "As `-R`: `none`, `local` or `symmetric`.",
    "cudagraph": "As `-G`.",
    "in_place": "As `--in-place`: `true`, `false`, or both.",
    "align": "As `--align`.",
    "cadence": "As `--cadence`.",
    "warmup": "As `-w`.",
    "check": "As `-c`.",
    "iters": "As `-n`.",
    "budget": (
        "As `--budget`. In [duets](method.md#duets) a world measures each case of a collective for this time, in "
        "slices of 25 ms, at least 20 of them."
    ),
    "floor": "As `--floor`.",
    "cap": "As `--cap`; it must not be below the floor.",
    "timeout": "As `-T`.",
    "burst": "As `--burst`.",
    "share_gpu": "As `--share-gpu`.",
    "folder": (
        "The folder in which benchmarks create files; empty: the current folder. In a launch plan it is the host's "
        "folder for [`storage`](#launch-plans), by default `/var/tmp`."
    ),
    "unusable": (
        "What happens if a backend, or in a launch plan a benchmark, cannot be used here. `refuse` refuses the plan; "
        "`skip` records each of its cases as skipped, with the reason. A plan without any usable backend is always "
        "refused."
    ),
}

SIZES: dict[str, str] = {
    "min": "As `-b`.",
    "max": "As `-e`.",
    "factor": "As `-f`.",
    "step": "As `-i`; `factor` is then ignored.",
}

LAUNCH: dict[str, str] = {
    "images": (
        "Names of images that `collbench image build` makes, or references as Docker spells them. Two builds of an "
        "MPI are [two images](containers.md#several-builds-of-an-mpi)."
    ),
    "policies": "Which ranks share a container: [policies](containers.md#policies).",
    "isolation": (
        "Steps of the [ladder](containers.md#the-ladder). A single container has no steps `net` and `visible`. An "
        "empty list means the engine's first step: `strict`, with `slurm` `files`. Steps that the engine does not "
        "have are left out, which `plan`, `launch` and the report say."
    ),
    "ranks": (
        "Sizes of the world. Without `ranks` and `workers` the size is 2, or 1 in a plan with `benchmarks` that run "
        "on one rank."
    ),
    "workers": (
        "Numbers of workers, instead of `ranks`. Worlds of `ps_bcast` and `ps_gather` then have one rank more: rank "
        "0, the parameter server. The server never gets a GPU, and some [policies](containers.md#policies) give it "
        "its own container. If a plan has larger worlds, its collectives get no world of one rank, because that is "
        "the same under every policy."
    ),
    "servers": (
        "Numbers of parameter servers beside the workers, for trainings that have them: the first ranks of the world. "
        "0: one process alone, which trains without a server."
    ),
    "spare": "Cores that no rank gets stay `idle`, or go to the `chief`, the first worker.",
    "affinity": (
        "Which cores and memory each rank gets. `near`: cores of its own, with their memory. `far`: memory of other "
        "nodes than the cores; with GPUs, cores and memory of another node than the GPU. It needs two memory nodes. "
        "`unpinned`: all cores of the machine, as in a container without a cpuset; the kernel's scheduler moves the "
        "ranks."
    ),
    "gpus": (
        "Which GPUs of the machine ranks get: [`first`, `close`, `spread`, or their "
        'numbers](#which-gpus-which-cores), as `"0,3"`. With `device = "gpu"`.'
    ),
    "cores": 'The same for cores, with `device = "cpu"`.',
    "storage": (
        "The [storage](containers.md#storage) under the files of benchmarks that work in files. Other benchmarks are "
        "measured once, without storage."
    ),
    "seccomp": "The filter of system calls in containers: the engine's `default`, or `unconfined`.",
    "hosts": (
        "Numbers of machines over which the ranks of a world are spread evenly, on a [cluster](cluster.md). With "
        "several machines, [parameter servers](cluster.md#parameter-servers) have the first one to themselves."
    ),
    "launches": (
        "Launches of each cell. They form blocks. Each block starts every cell once, in its own random order. A plan "
        "has at most 5000 cells and 100 000 starts."
    ),
    "until": (
        "`decided`: a case is measured until [its comparisons are decided](#launches-until-decided), in at most "
        "`launches` launches (at least 6)."
    ),
    "how": (
        "`duet`: launches of a block with the same image, ranks and cores live at once and [measure in "
        "turns](method.md#duets), where possible. `blocks`: launches run one after the other, each by itself."
    ),
    "seed": "Seed of the random order of launches.",
    "device": "What a rank gets: `cpu` means cores, `gpu` means a GPU and cores of its memory node.",
    "cores_per_rank": (
        'Logical processors of each rank; by default 1, and with GPUs `"share"`. Whole cores are used first, node by '
        'node. `"share"` divides the available ones between all ranks, or between the GPUs of a node.'
    ),
    "oversubscribe": "Allow more ranks than cores. Every record then says so.",
    "engine": (
        "The [engine](containers.md#engines) that starts the ranks: `docker`, `podman`, `k8s` or [`slurm`](cluster.md)."
    ),
    "docker_host": (
        "Where the engine listens; if empty, DOCKER_HOST (with `podman` CONTAINER_HOST) or the engine's usual socket."
    ),
    "site": (
        "The file that describes a [cluster](cluster.md#the-site-file). It says where ranks run, never what is "
        "measured, so prefer `--site`."
    ),
    "environments": (
        "For an image, the Python environment that the host side uses. By default `.venvs/IMAGE`, else collbench's own."
    ),
    "image_backends": (
        'For an image, the backends to measure with it, instead of `backends`: `{ torch = ["torch-gloo"] }`.'
    ),
    "variables": (
        'Environment variables of every rank: `{ NCCL_ALGO = "Ring" }`. They are kept in the run. On a cluster, set '
        "them in the site file instead."
    ),
    "libraries": (
        "Library files, by their whole paths, that ranks find before others of the same name (LD_LIBRARY_PATH): "
        "[how](gate.md#sides). A note of each record says which file was loaded."
    ),
    "preload": "The same, loaded before everything else (LD_PRELOAD).",
    "paper": (
        "The [paper](papers.md) that the plan belongs to: `choi2021`, `xu2017`, `zhao2018`, `siddaramanna2018`. "
        "`plan` and `launch` then say which of the paper's conclusions the plan can decide, and what it lacks for the "
        "others."
    ),
    "sides": "[Sides](#sides) by name: every cell is launched on each of them.",
}
