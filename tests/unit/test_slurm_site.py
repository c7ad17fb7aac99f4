"""The table [slurm] of a site file: what is read, and what is refused with what would work."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from tests.unit.test_slurm import site_file

from collbench.errors import PlanError
from collbench.launch.engines.slurm.script import Resources, job_script
from collbench.launch.engines.slurm.site import placing_options, read, uses_threads


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"runtime": "docker"}, "runtime 'docker': unknown"),
        ({"folder": "work"}, "must be an absolute path"),
        ({"cores": 0}, "cores = 0: must be 1 or more"),
        ({"cores": 2147483648}, "cores = 2147483648: must be 1 or more, and at most"),
        ({"cores": 10**30}, "cores = that: must be 1 or more, and at most"),
        ({"gpus": 2147483648}, "gpus = 2147483648: must be 0 or more, and at most"),
        ({"folder": "/shared/a\n#SBATCH --wrap=true"}, "must be one line"),
        ({"folder": "/shared/a\r"}, "must be one line"),
        ({"options": ["partition=gpu"]}, "is no flag of sbatch"),
        ({"partition": "gpu"}, "[slurm]: unknown key 'partition'. Did you mean options?"),
        ({"enviroments": {}}, "[slurm]: unknown key 'enviroments'. Did you mean environments?"),
        ({"cores": "many"}, '[slurm]: cores: expected a whole number, not the string "many".'),
        ({"options": "--exclusive"}, '[slurm]: options: expected a list such as ["--exclusive"], not the string'),
        ({"images": {"openmpi": 1}}, "[slurm]: images.openmpi: expected a string, not the number 1."),
        ({"servers": {"option": []}}, "[slurm] servers: unknown key 'option'. Did you mean options?"),
        ({"environments": {"openmpi": "~/env"}}, "environments: openmpi '~/env': must be an absolute path"),
        ({"mpi": {"mvapich": "pmi2"}}, "mpi: library 'mvapich': unknown. Did you mean mpich?"),
        ({"libraries": {"mine": "opnmpi"}}, "libraries: library 'opnmpi': unknown. Did you mean openmpi?"),
        ({"variables": {"UCX-TLS": "rc"}}, "variables: 'UCX-TLS' is no name of a variable"),
        ({"variables": {"COLLBENCH_SHAPE": "x"}}, "COLLBENCH_SHAPE is set by collbench itself"),
        ({"options": ["--array=1-3"]}, "option '--array=1-3': collbench sets it itself. Use launches in the plan."),
        ({"options": ["-N2"]}, "Use hosts in the plan."),
        ({"options": ["--nodes=2"]}, "Use hosts in the plan."),
        ({"options": ["--ntasks-per-core=1"]}, "Use ranks in the plan."),
        ({"options": ["--cpus-per-task=4"]}, "Use cores_per_rank in the plan"),
        ({"options": ["--gpus-per-node=4"]}, "Use gpus in the site file."),
        ({"options": ["--output=log"]}, "Use folder in the site file"),
        ({"options": ["--requeue"]}, "Use collbench launch --resume."),
        ({"options": ["--job-name=mine"]}, "Use title in the plan"),
        ({"servers": {"options": ["--time=10"]}}, "Use time in the site file."),
        ({"time": "soon"}, "time 'soon': is none that Slurm reads. Write minutes"),
        ({"time": "1-"}, "is none that Slurm reads"),
        ({"time": "1:2:3:4"}, "is none that Slurm reads"),
    ],
)
def test_a_site_file_that_makes_no_sense(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(PlanError, match=r"^site .*site\.toml") as refused:
        read(site_file(tmp_path, **changes))
    assert says in str(refused.value)


@pytest.mark.parametrize("option", ["--nodelist=n1", "--time-min=1", "--exclusive", "--mem=0", "--gres=gpu:4", "-pgpu"])
def test_options_that_belong_to_a_site(tmp_path: Path, option: str) -> None:
    assert read(site_file(tmp_path, options=[option])).options == (option,)


@pytest.mark.parametrize(
    ("options", "added", "threads"),
    [
        (("--exclusive",), ["--hint=nomultithread", "--distribution=block"], False),
        (("--hint=multithread",), ["--distribution=block"], True),
        (("--hint compute_bound", "-m cyclic"), [], False),
        (("--threads-per-core=1", "--distribution=cyclic"), [], False),
        (("--threads-per-core=2", "-mcyclic"), [], True),
        (("-B 2", "--hinted"), ["--distribution=block"], False),
    ],
)
def test_ranks_get_whole_cores_in_order_unless_the_site_says_otherwise(
    options: tuple[str, ...], added: list[str], threads: bool
) -> None:
    assert (placing_options(options), uses_threads(options)) == (added, threads)


def test_options_that_may_change_what_is_measured_are_kept(tmp_path: Path) -> None:
    asked = ["--partition=gpu", "-A x", "--qos=high", "--mail-type=END", "--exclusive", "--cpu-freq=high", "-C skylake",
             "--distribution=cyclic", "--switches=1", "--network=x", "-w n0"]  # fmt: skip
    site = read(site_file(tmp_path, options=asked, servers={"options": ["--constraint=big", "-p cpu"]}))
    assert site.measured == ("--exclusive", "--cpu-freq=high", "-C skylake", "--distribution=cyclic", "--switches=1",
                             "--network=x", "servers --constraint=big")  # fmt: skip


@pytest.mark.parametrize(
    ("time", "seconds"),
    [("90", 5400), ("1:30", 90), ("2:00:00", 7200), ("1-2", 93600), ("1-2:30", 95400), ("1-2:30:5", 95405),
     ("0", None), ("unlimited", None)],
)  # fmt: skip
def test_times_as_slurm_reads_them(tmp_path: Path, time: str, seconds: float | None) -> None:
    assert read(site_file(tmp_path, time=time)).seconds == seconds


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[slrum]\ncores = 1", "unknown table [slrum]. Did you mean slurm?"),
        ("cores = 1\n[slurm]", "cores: stands in no table. Write it below [slurm]."),
        ("[slurm]\ngpus = 1", "[slurm]: lacks cores, folder. docs/cluster.md says what they are."),
    ],
)
def test_a_site_file_whose_tables_make_no_sense(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "site.toml").write_text(text)
    with pytest.raises(PlanError) as refused:
        read(str(tmp_path / "site.toml"))
    assert str(refused.value) == f"site {tmp_path}/site.toml: {says}"


def test_a_site_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="needs a site file"):
        read("")
    with pytest.raises(PlanError, match="No such file"):
        read(str(tmp_path / "none.toml"))
    (tmp_path / "bad.toml").write_text("[slurm")
    with pytest.raises(PlanError, match="not TOML"):
        read(str(tmp_path / "bad.toml"))
    (tmp_path / "bad.toml").write_text("[k8s]")
    with pytest.raises(PlanError, match=r"has no table \[slurm\]"):
        read(str(tmp_path / "bad.toml"))


@pytest.mark.parametrize(
    ("options", "partitions"),
    [([], ()), (["--exclusive"], ()), (["--exclusive", "-p a,b"], ("--partition=a,b",)), (["-p"], ()),
     (["--partition=a", "-pb"], ("--partition=b",)), (["--partition-x=a"], ())],
)  # fmt: skip
def test_the_partitions_that_options_name(tmp_path: Path, options: list[str], partitions: tuple[str, ...]) -> None:
    assert read(site_file(tmp_path, options=options)).partitions == partitions


def test_a_folder_with_spaces_stays_one_word_of_the_job(tmp_path: Path) -> None:
    folder = tmp_path / "a b"
    text = job_script("name", folder, read(site_file(tmp_path, folder=str(folder))), Resources(1, 1, 1, 0))
    (option,) = [line for line in text.splitlines() if "--output" in line]
    assert shlex.split(option, comments=False)[1:] == [f"--output={folder}/job.log"]
