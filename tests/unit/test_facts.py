"""Facts of machines: processors, clocks' resolution, hashes of files."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.processes import LIMIT

from collbench import backends
from collbench.machine import facts, launcher
from collbench.machine.cgroup import confinement, cpu_quota, memory_left, memory_limit, throttled_seconds
from collbench.machine.facts import RankFacts, sha256_of
from collbench.units import format_spans, parse_spans


@pytest.mark.parametrize(
    ("cores", "text"),
    [
        ([], ""),
        ([5], "5"),
        ([0, 1], "0-1"),
        ([8, 3, 2, 1, 0], "0-3,8"),
        ([0, 2, 4], "0,2,4"),
        ([0, 1, 3, 4, 5, 127], "0-1,3-5,127"),
    ],
)
def test_cores_print_as_the_kernel_prints_them(cores: list[int], text: str) -> None:
    assert format_spans(cores) == text


@given(st.sets(st.integers(0, 300)))
def test_printed_cores_can_be_read_back(cores: set[int]) -> None:
    assert parse_spans(format_spans(cores)) == cores


def tree(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n", encoding="utf-8")
    return root


# The environment -----------------------------------------------------------------------------------------------------


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """What a manifest says of them."""
    return facts.environment(backends.variables(), variables)


def test_of_the_environment_only_what_changes_a_measurement_is_kept() -> None:
    kept = {
        "OMPI_MCA_btl": "self,sm", "PMIX_MCA_gds": "hash", "MPIR_CVAR_CH4_CMA_ENABLE": "0", "UCX_TLS": "all",
        "FI_PROVIDER": "tcp", "NCCL_DEBUG": "INFO", "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "PRTE_MCA_hwloc_default_binding_policy": "core", "TORCH_NCCL_BLOCKING_WAIT": "1", "MKL_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1", "OPENBLAS_CORETYPE": "Prescott",
        "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0", "LD_PRELOAD": "/usr/lib/libjemalloc.so.2",
        "MALLOC_ARENA_MAX": "1", "KMP_AFFINITY": "compact", "ONEDNN_MAX_CPU_ISA": "SSE41",
        "DNNL_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "default", "I_MPI_ADJUST_ALLREDUCE": "2",
        "MPICH_ALLREDUCE_NO_SMP": "1", "MV2_USE_SHMEM_COLL": "0", "HCOLL_ENABLE_MCAST": "0", "UCC_TLS": "shm",
        "PSM3_NIC": "0", "OMPI_MCA_mapping": "x://y", "UCX_SPINNING": "1",
    }  # fmt: skip
    left_out = {
        "HOME": "/root", "PATH": "/bin", "AWS_SECRET_ACCESS_KEY": "s3cr3t", "GITHUB_TOKEN": "s3cr3t",
        "OMPI_COMM_WORLD_RANK": "0", "PMIX_SERVER_URI": "tcp://1.2.3.4", "NCCL_SECRET": "s3cr3t",
        "UCX_TOKEN": "s3cr3t", "OMPI_MCA_some_password": "s3cr3t", "OMPI_MCA_orte_hnp_uri": "tcp://1.2.3.4",
        "FI_API_KEY": "s3cr3t", "FI_AUTH": "s3cr3t", "UCX_PASSWD": "s3cr3t", "UCX_NET_PASSPHRASE": "s3cr3t",
        "NCCL_FOO_CREDENTIAL": "s3cr3t", "MY_UCX_TLS": "x", "UCC_DIR": "/opt/hpcx/ucc",
        "OMPI_MCA_orte_precondition_transports": "adfa-6177", "OMPI_MCA_ess_base_vpid": "0", "OMPI_MCA_pmix": "^s1",
        "OMPI_MCA_shmem_RUNTIME_QUERY_hint": "mmap",
        "I_MPI_ROOT": "/opt/intel/mpi",
    }  # fmt: skip
    assert environment(kept | left_out) == kept
    assert list(environment(kept)) == sorted(kept)


SECRET = (
    "PASSPHRASE", "TOKEN", "API_KEY", "MY_PWD", "pwd", "BEARER", "cookie", "SESSION", "PIN", "LICENSE", "authority",
)  # fmt: skip
WORDS = st.lists(st.sampled_from(("x", "mca", "RNDV", "spinning", "opinion", "sessions2")), max_size=3)


@given(st.sampled_from(("OMP_", "OMPI_MCA_", "UCX_", "FI_", "GLOO_", "NCCL_", "ONEDNN_")), WORDS, WORDS,
       st.sampled_from(SECRET), st.text("abc:/ @", max_size=4))  # fmt: skip
def test_no_secret_is_kept(prefix: str, before: list[str], after: list[str], secret: str, text: str) -> None:
    """Whatever stands around the word of a name, or the credentials in a value."""
    plain, named = prefix + "_".join((*before, "z", *after)), prefix + "_".join((*before, secret, *after))
    assert environment({plain: "1", named: "1"}) == {plain: "1"}
    assert environment({plain: f"{text}http://user:s3cr3t@host{text}"}) == {}


def test_a_variable_that_is_no_text_can_be_written_as_json() -> None:
    odd = os.fsdecode(b"caf\xe9 \xc3\xa9")
    assert environment({"UCX_TLS": odd}) == {"UCX_TLS": "caf\ufffd \u00e9"}


def rank(
    kernel: str = "k", clock: str = "k 0", cores: tuple[int, ...] = (0,), siblings: tuple[tuple[int, ...], ...] = ()
) -> RankFacts:
    return RankFacts("host", kernel, clock, frozenset(cores), None, confinement(), siblings=siblings)


@pytest.mark.parametrize(
    ("ranks", "common"),
    [
        ([rank()], True),
        ([rank(), rank()], True),
        ([rank(clock="k monotonic 0 0"), rank(clock="k monotonic 100 0")], False),
        ([rank("k", "k"), rank("other", "other")], False),
    ],
)
def test_a_clock_is_common_to_one_kernel_without_time_namespaces(ranks: list[RankFacts], common: bool) -> None:
    assert facts.have_common_clock(ranks) is common


@pytest.mark.parametrize(
    ("ranks", "oversubscribed"),
    [
        ([rank(cores=(0,))], False),
        ([rank(cores=(0,)), rank(cores=(1,))], False),
        ([rank(cores=(0, 1)), rank(cores=(0, 1))], False),
        ([rank(cores=(0,)), rank(cores=(0,))], True),
        ([rank(cores=(0, 1))] * 3, True),
        ([rank("a", cores=(0,)), rank("b", cores=(0,))], False),
        ([rank("a", cores=(0, 1)), rank("b", cores=(0,)), rank("b", cores=(0,))], True),
        ([rank(cores=(0,), siblings=((0, 1),)), rank(cores=(1,), siblings=((0, 1),))], True),
        ([rank(cores=(0,), siblings=((0, 2),)), rank(cores=(1,), siblings=((1, 3),))], False),
    ],
)
def test_more_ranks_than_cores_on_any_machine(ranks: list[RankFacts], oversubscribed: bool) -> None:
    assert facts.is_oversubscribed(ranks) is oversubscribed


def test_hardware_threads_are_those_that_the_kernel_lists(tmp_path: Path) -> None:
    tree(tmp_path, {"sys/devices/system/cpu/cpu9/topology/thread_siblings_list": "1,9"})
    assert facts.thread_siblings(9, tmp_path) == (1, 9)
    assert facts.thread_siblings(3, tmp_path) == (3,)
    of_three = rank(cores=(9, 3), siblings=((1, 9),))
    assert of_three.physical == {1, 3} and of_three.threads_of(1) == (1, 9)


def test_the_facts_of_this_process() -> None:
    mine = facts.rank_facts()
    assert mine.cores == os.sched_getaffinity(0)
    assert mine.binding == format_spans(mine.cores)
    assert mine.host == os.uname().nodename
    assert facts.have_common_clock([mine, facts.rank_facts()])
    machine = facts.host([0, 2])
    assert (machine.ranks, machine.cores, machine.kernel) == ((0, 2), os.cpu_count(), os.uname().release)
    assert machine.cpu
    assert machine.huge_pages == facts.huge_pages()


@pytest.mark.parametrize(
    ("text", "setting"), [("always [madvise] never", "madvise"), ("[always] madvise never", "always"), (None, None)]
)
def test_who_gets_huge_pages(tmp_path: Path, text: str | None, setting: str | None) -> None:
    if text is not None:
        tree(tmp_path, {"sys/kernel/mm/transparent_hugepage/enabled": text})
    assert facts.huge_pages(tmp_path) == setting


def test_a_container_is_named_by_its_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLLBENCH_CONTAINER", "worker-3")
    assert facts.container() == "worker-3"
    monkeypatch.delenv("COLLBENCH_CONTAINER")
    inside = Path("/.dockerenv").exists() or Path("/run/.containerenv").exists()
    assert facts.container() == (os.uname().nodename if inside else None)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("some avg10=0.00 avg60=0.00 avg300=0.00 total=2500000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=9", 2.5),
        ("", None),
        (None, None),
    ],
)
def test_waiting_for_a_cpu(monkeypatch: pytest.MonkeyPatch, text: str | None, seconds: float | None) -> None:
    monkeypatch.setattr(facts, "text_of", lambda path: text if path == "/proc/pressure/cpu" else None)
    assert facts.cpu_stall_seconds() == seconds


def test_what_a_backend_set_for_its_own_ends_is_not_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"NCCL_ALGO": "Ring"})
    launcher.set_own({})
    assert os.environ == {"NCCL_ALGO": "Ring"}
    launcher.set_own({"NCCL_HOSTID": "collbench-0"})
    launcher.set_own({"NCCL_DEBUG": "INFO"})
    assert os.environ["NCCL_HOSTID"] == "collbench-0"
    assert environment(os.environ) == {"NCCL_ALGO": "Ring"}


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("nice", "-n", "7"), "nice 7, other"),
        (("chrt", "--batch", "0"), "nice 0, batch"),
        (("chrt", "--idle", "0"), "nice 0, idle"),
        (("ionice", "-c", "3"), "nice 0, other, io idle"),
        (("ionice", "-c", "2", "-n", "1"), "nice 0, other, io best-effort 1"),
        ((), "nice 0, other"),
    ],
)
def test_the_priority_of_a_process_is_what_it_was_started_with(command: tuple[str, ...], told: str) -> None:
    if os.getpriority(os.PRIO_PROCESS, 0) or os.sched_getscheduler(0):
        pytest.skip("these tests have a priority of their own")
    if command and shutil.which(command[0]) is None:
        pytest.skip(f"there is no {command[0]} here")
    program = "from collbench.machine.cgroup import priority; print(priority())"
    argv = (*command, sys.executable, "-c", program)
    assert subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT, check=True).stdout.strip() == told


# Control groups ------------------------------------------------------------------------------------------------------


def test_no_groups_no_limits(tmp_path: Path) -> None:
    assert (cpu_quota(tmp_path), memory_limit(tmp_path), memory_left(tmp_path)) == (None, None, None)
    assert throttled_seconds(tmp_path) == {}


def of_job(above: str, own: str) -> dict[str, str]:
    """Quotas of a group and of one in it."""
    return {"proc/self/cgroup": "0::/user.slice/job", "sys/fs/cgroup/user.slice/cpu.max": above,
            "sys/fs/cgroup/user.slice/job/cpu.max": own}  # fmt: skip


def test_the_tightest_group_above_us_counts(tmp_path: Path) -> None:
    root = tree(tmp_path, of_job("max 100000", "250000 100000") | {
        "sys/fs/cgroup/user.slice/memory.max": "1000",
        "sys/fs/cgroup/user.slice/memory.current": "900",
        "sys/fs/cgroup/user.slice/job/memory.max": "5000",
        "sys/fs/cgroup/user.slice/job/memory.current": "10",
    })  # fmt: skip
    assert (memory_limit(root), memory_left(root), cpu_quota(root)) == (1000, 100, 2.5)
    assert cpu_quota(tree(tmp_path, of_job("100000 100000", "300000 100000"))) == 1.0


def test_how_long_a_quota_stopped_us(tmp_path: Path) -> None:
    second = {"proc/self/cgroup": "0::/job", "sys/fs/cgroup/job/cpu.stat": "usage_usec 5\nthrottled_usec 1500000"}
    assert list(throttled_seconds(tree(tmp_path / "2", second)).values()) == pytest.approx([1.5])
    stat = "sys/fs/cgroup/cpu,cpuacct/job/cpu.stat"
    first = {"proc/self/cgroup": "4:cpu,cpuacct:/job", stat: "throttled_time 25000000"}
    assert list(throttled_seconds(tree(tmp_path / "1", first)).values()) == pytest.approx([0.025])


def test_more_used_than_allowed_leaves_nothing(tmp_path: Path) -> None:
    files = {"proc/self/cgroup": "0::/", "sys/fs/cgroup/memory.max": "10", "sys/fs/cgroup/memory.current": "20"}
    assert memory_left(tree(tmp_path, files)) == 0


@pytest.mark.parametrize(("limit", "expected"), [("4096", 4096), ("9223372036854771712", None)])
def test_memory_in_the_first_hierarchy(tmp_path: Path, limit: str, expected: int | None) -> None:
    root = tree(tmp_path, {
        "proc/self/cgroup": "4:memory:/docker/x\n2:cpu,cpuacct:/docker/x\n0::/",
        "sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes": limit,
        "sys/fs/cgroup/memory/docker/x/memory.usage_in_bytes": "96",
    })  # fmt: skip
    assert memory_limit(root) == expected
    assert memory_left(root) == (None if expected is None else expected - 96)


@pytest.mark.parametrize(("quota", "cores"), [("50000", 0.5), ("-1", None)])
@pytest.mark.parametrize("folder", ["cpu,cpuacct/docker/x", "cpu/docker/x", "cpu"])
def test_a_quota_in_the_first_hierarchy(tmp_path: Path, folder: str, quota: str, cores: float | None) -> None:
    """The last: inside a container, where the group's own path is not to be seen."""
    root = tree(tmp_path, {
        "proc/self/cgroup": "9:memory:/docker/x\n4:cpu,cpuacct:/docker/x\n0::/",
        f"sys/fs/cgroup/{folder}/cpu.cfs_quota_us": quota,
        f"sys/fs/cgroup/{folder}/cpu.cfs_period_us": "100000",
    })  # fmt: skip
    assert cpu_quota(root) == cores


# A file is hashed once by a process, and again when it has changed ----------------------------------------------------


def test_a_file_is_read_once_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digest, read = hashlib.file_digest, list[str]()

    def counting(file: object, name: str) -> object:
        read.append(name)
        return digest(file, name)  # type: ignore[arg-type]

    monkeypatch.setattr(hashlib, "file_digest", counting)
    file = tmp_path / "libx.so"
    file.write_bytes(b"one")
    assert [sha256_of(str(file)) for _ in range(3)] == [hashlib.sha256(b"one").hexdigest()] * 3
    assert len(read) == 1
    file.write_bytes(b"two")
    os.utime(file, ns=(1, 1))
    assert (sha256_of(str(file)), len(read)) == (hashlib.sha256(b"two").hexdigest(), 2)
    file.unlink()
    with pytest.raises(FileNotFoundError):
        sha256_of(str(file))
