"""Every outcome of the checks for programs: governor, cache, blas, storage and speculation."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.doctor.machines import only, write

from collbench.doctor import mpi, processors
from collbench.doctor.frame import Finding, Machine, ProgramOutput, execute

CPUS = "sys/devices/system/cpu"


def with_governors(machine: Machine, *names: str) -> Machine:
    for core, name in enumerate(names):
        write(machine, f"{CPUS}/cpu{core}/cpufreq/scaling_governor", f"{name}\n")
    return machine


def test_cores_that_keep_their_clock(machine: Machine) -> None:
    finding = processors.governor(with_governors(machine, *["performance"] * 4))
    assert (finding.status, finding.seen) == ("ok", "performance on 4 cores")


def test_a_governor_that_saves_power(machine: Machine) -> None:
    finding = processors.governor(
        with_governors(machine, "performance", "powersave", "powersave", "performance", "ondemand")
    )
    assert finding.seen == "performance on 2 cores, powersave on 2 cores", "core 4 is not online"
    problem = only(finding, "warn")
    assert "2 cores with governor powersave" in problem.cause
    assert problem.fix.startswith("echo performance | sudo tee /sys/")


@pytest.mark.parametrize(("flags", "who"), [("fpu avx2 hypervisor", "hypervisor"), ("fpu avx2", "firmware")])
def test_without_a_governor_somebody_else_decides(machine: Machine, flags: str, who: str) -> None:
    write(machine, "proc/cpuinfo", f"processor\t: 0\nflags\t\t: {flags}\n\nprocessor\t: 1\nflags\t\t: none\n")
    finding = processors.governor(machine)
    assert (finding.status, finding.seen) == ("ok", f"none visible: the {who} decides on clocks")


def with_cache(machine: Machine, **sizes: str) -> Machine:
    for index, (level, size) in enumerate(sizes.items()):
        write(machine, f"{CPUS}/cpu0/cache/index{index}/level", level.removeprefix("l"))
        write(machine, f"{CPUS}/cpu0/cache/index{index}/size", size)
    return machine


def test_arrays_that_no_cache_holds(machine: Machine) -> None:
    finding = processors.judge_cache(with_cache(machine, l1="32K", l3="32768K", l2="1024K"), 384 << 20)
    assert finding.status == "ok"
    assert finding.seen == ("last level 32.00 MiB: arrays from 128.00 MiB on measure memory; "
                            "3 arrays of 4 x 32.00 MiB take 384.00 MiB")  # fmt: skip


def test_memory_does_not_hold_them(machine: Machine) -> None:
    problem = only(processors.judge_cache(with_cache(machine, l3="266240K"), 3 << 30), "warn")
    assert problem.cause == "3 arrays of 4 x 260.00 MiB take 3.05 GiB, and 3.00 GiB are available"
    assert processors.judge_cache(machine, None).status == "ok", "what is available is the matter of another check"


def test_a_cache_of_unknown_size(machine: Machine) -> None:
    assert "lscpu" in only(processors.judge_cache(machine, 1 << 40), "unknown").fix
    assert "itself failed" not in processors.cache(machine).seen


def with_blas(machine: Machine, kernels: Mapping[str, str], flags: str, **environ: str) -> Machine:
    """A processor with these flags, and libraries that choose these kernels."""
    write(machine, "proc/cpuinfo", f"flags\t\t: fpu {flags}\n")

    def answer(argv: tuple[str, ...]) -> ProgramOutput:
        assert argv[:-1] == (sys.executable, "-m", "collbench.workloads.host.blas"), "in a process of its own"
        if argv[-1] not in kernels:
            return ProgramOutput(1, "OSError: not there")
        said = json.dumps({"name": "OpenBLAS", "version": "0.3.21", "kernel": kernels[argv[-1]], "path": "/x"})
        return ProgramOutput(0, f"Core: {kernels[argv[-1]]}\n{said}\n")

    return replace(machine, execute=answer, environ={**machine.environ, **environ})


DEBIAN, WHEEL = "libopenblas.so.0", "openblas"


@pytest.mark.parametrize(
    ("flags", "kernel", "better"),
    [("avx2 avx512f", "Prescott", "SkylakeX"), ("avx2", "Nehalem", "Haswell"), ("avx avx2", "Sandybridge", "Haswell")],
)
def test_kernels_for_an_old_processor(machine: Machine, flags: str, kernel: str, better: str) -> None:
    finding = processors.blas(with_blas(machine, {DEBIAN: kernel, WHEEL: better}, flags))
    assert finding.seen == f"the distribution's OpenBLAS 0.3.21: {kernel}; scipy-openblas32 0.3.21: {better}"
    problem = only(finding, "warn")
    assert f"kernels for {kernel}" in problem.cause and "distribution" in problem.cause
    assert "3 to 6 times slower" in problem.effect
    assert problem.fix.startswith(f"export OPENBLAS_CORETYPE={better};") and "scipy-openblas32" in problem.fix


@pytest.mark.parametrize(
    ("flags", "kernel"), [("sse3", "Prescott"), ("avx", "Sandybridge"), ("avx2", "Zen"), ("avx2 avx512f", "Cooperlake"),
                          ("avx2 avx512f", "Haswell"), ("asimd", "ARMV8")],
)  # fmt: skip
def test_kernels_for_this_processor(machine: Machine, flags: str, kernel: str) -> None:
    assert processors.blas(with_blas(machine, {DEBIAN: kernel}, flags)).status == "ok"


def test_kernels_that_somebody_asked_for(machine: Machine) -> None:
    finding = processors.blas(with_blas(machine, {WHEEL: "Prescott"}, "avx2", OPENBLAS_CORETYPE="Prescott"))
    assert finding.seen.endswith("(OPENBLAS_CORETYPE=Prescott)")
    assert only(finding, "warn").fix.startswith("unset OPENBLAS_CORETYPE")


def test_without_an_openblas(machine: Machine) -> None:
    assert processors.blas(with_blas(machine, {DEBIAN: ""}, "avx2")).seen.startswith("no OpenBLAS"), "another library"
    finding = processors.blas(with_blas(machine, {}, "avx2"))
    assert finding.status == "ok" and "pip install scipy-openblas32" in finding.seen
    assert processors.blas(machine).seen == finding.seen, "nor where no process can be started"


def test_a_library_that_is_here_is_asked(machine: Machine) -> None:
    pytest.importorskip("scipy_openblas32")
    finding = processors.blas(replace(machine, execute=execute))
    assert "scipy-openblas32 0." in finding.seen


DISKS = {"vda": "254:0", "vdb": "254:16"}


def with_mounts(machine: Machine, **devices: str) -> Machine:
    """Mounts below `/`, by path with `_` for `/`: the device of each, or a kind without one."""
    lines = []
    for name, device in devices.items():
        numbers, kind = (DISKS[device], "ext4") if device in DISKS else ("0:25", device)
        lines.append(f"27 1 {numbers} / /{name.strip('_').replace('_', '/')} rw,relatime shared:1 - {kind} none rw")
    write(machine, "proc/self/mountinfo", "\n".join(lines) + "\n")
    for device, numbers in DISKS.items():
        block = machine.path(f"sys/block/{device}")
        write(machine, f"sys/block/{device}/queue/rotational", "0")
        write(machine, f"sys/block/{device}/queue/scheduler", "[none] mq-deadline")
        (block / "device").mkdir()
        link = machine.path(f"sys/dev/block/{numbers}")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(block)
    return machine


def stored(machine: Machine) -> Finding:
    machine.path("var/lib/docker").mkdir(parents=True)
    return mpi.judge_storage(machine, Path("/work"))


def test_files_on_one_device(machine: Machine) -> None:
    finding = stored(with_mounts(machine, _="vda", dev_shm="tmpfs", work="vdb"))
    assert finding.status == "ok"
    assert finding.seen == (
        "/work ext4 (vdb), /var/tmp ext4 (vda), /var/lib/docker ext4 (vda), /dev/shm tmpfs; "
        "disks: vda (not rotating, scheduler none), vdb (not rotating, scheduler none)"
    )


def test_an_engine_on_a_device_of_its_own(machine: Machine) -> None:
    problem = only(stored(with_mounts(machine, _="vda", var_lib_docker="vdb")), "warn")
    assert problem.cause == ("the engine's files (/var/lib/docker) are on ext4 (vdb), "
                             "those of the host (/var/tmp) on ext4 (vda)")  # fmt: skip
    assert 'folder = "/var/lib/docker/collbench"' in problem.fix


def test_a_machine_without_an_engine_or_with_devices_unknown(machine: Machine) -> None:
    without = mpi.judge_storage(with_mounts(machine, _="vda"), Path("/work"))
    assert without.status == "ok" and "docker" not in without.seen
    assert (
        stored(with_mounts(replace(machine, root=machine.path("2")), _="overlay", var_lib_docker="vdb")).status == "ok"
    )
    bare = mpi.storage(replace(machine, root=machine.path("3")))
    assert (bare.status, "unknown" in bare.seen) == ("ok", True)


STATUS = "Name:\tx\nSpeculation_Store_Bypass:\t{}\nSpeculationIndirectBranch:\talways enabled\nSeccomp:\t0\n"
OLD = "Mitigation: Speculative Store Bypass disabled via prctl and seccomp"


def speculating(machine: Machine, state: str, bypass: str, kernel: str = "6.1.0") -> Finding:
    write(machine, "proc/self/status", STATUS.format(state))
    write(machine, "proc/sys/kernel/osrelease", kernel)
    write(machine, f"{CPUS}/vulnerabilities/spec_store_bypass", f"{bypass}\n")
    return processors.speculation(machine)


def test_no_mitigation_by_filters(machine: Machine) -> None:
    finding = speculating(machine, "thread vulnerable", "Mitigation: Speculative Store Bypass disabled via prctl")
    assert finding.status == "ok"
    assert finding.seen == ("Speculation_Store_Bypass thread vulnerable; SpeculationIndirectBranch always enabled; "
                            "spec_store_bypass: Mitigation: Speculative Store Bypass disabled via prctl")  # fmt: skip


def test_a_kernel_that_mitigates_behind_filters(machine: Machine) -> None:
    problem = only(speculating(machine, "thread vulnerable", OLD, "5.15.0"), "warn")
    assert "kernel 5.15.0" in problem.cause and "Docker's containers" in problem.cause
    assert "--by seccomp" in problem.fix and "containers only" in problem.effect
    inside = only(speculating(machine, "thread force mitigated", OLD, "5.15.0"), "warn")
    assert "this process has one" in inside.cause


def test_a_process_that_is_mitigated_by_itself(machine: Machine) -> None:
    finding = speculating(machine, "thread mitigated", "Mitigation: Speculative Store Bypass disabled via prctl")
    assert "/proc/1/status" in only(finding, "warn").fix


def test_a_kernel_that_says_nothing_of_speculation(machine: Machine) -> None:
    finding = processors.speculation(machine)
    assert (finding.status, finding.seen) == ("ok", "the kernel does not say")
