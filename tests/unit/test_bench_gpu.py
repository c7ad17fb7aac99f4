"""Programs of bench/ on GPUs: environments, floors, peers, programs to compare with."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.gpu.jobs import Gpus
from tests.mpi.jobs import skip_or_fail
from tests.unit.bench_modules import BENCH, bench, installation, results_in

from collbench import workloads
from collbench.schema.plan import load_launch_plan

NCCL_TESTS = """\
# nccl-tests version 2.19.6 nccl-headers=22809 nccl-library=22809
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
           8             2     float     sum      -1     4.00    0.00    0.00       0     2.00    0.00    0.00       0
           8             2     float     sum      -1     5.00    0.00    0.00       0     3.00    0.00    0.00       0
           8             2     float     sum      -1     9.00    0.00    0.00       0     7.00    0.00    0.00       0
"""


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    results_in(tmp_path, monkeypatch)
    return tmp_path


@pytest.mark.parametrize(("name", "flags"), [("openmpi", ["--bind-to", "none"]), ("mpich", ["-bind-to", "none"])])
def test_ranks_are_not_bound(tmp_path: Path, name: str, flags: list[str]) -> None:
    argv = list(installation(tmp_path, name, 2).start("run", "plan"))
    assert argv[argv.index("-n") - 2 : argv.index("-n")] == flags
    argv = Gpus(1, Path("mpirun"), name == "openmpi").command(2, "allreduce")
    assert argv[argv.index("-n") - 2 : argv.index("-n")] == flags


DOCUMENT = json.dumps({"manifest": {"libraries": []}, "records": [{"status": "ok"}, {"status": "failed"}]})


def test_records_come_from_a_file_whatever_is_printed(out: Path) -> None:
    """Also when a case failed, which is exit code 1: the others count."""
    here = installation(out, mpirun=f"echo a stray line\necho '{DOCUMENT}' >$last\nexit 1")
    assert [record["status"] for record in here.document(30.0, "run")["records"]] == ["ok", "failed"]


@pytest.mark.parametrize(("mpirun", "reason"), [
    ("exit 0", "left no whole document"),
    ("echo '{\"manifest\": {' >$last", "left no whole document"),
    (f"echo '{DOCUMENT}' >$last; echo 'collbench: no progress' >&2; exit 3", "exit code 3: collbench: no progress"),
    ("echo 'collbench: it broke' >&2; exit 1", "exit code 1: collbench: it broke"),
])  # fmt: skip
def test_a_launch_without_records_is_a_failed_one(out: Path, mpirun: str, reason: str) -> None:
    (out / "gpu-launch.json").write_text(DOCUMENT)  # of a launch before
    with pytest.raises(bench("installation").LaunchFailed, match=reason):
        installation(out, mpirun=mpirun).document(30.0, "run")


def test_a_failure_of_any_kind_takes_no_other_launch_along(out: Path) -> None:
    """What there is is kept after every launch, and a program that never works is given up."""
    rounds = bench("gpu_rounds")
    good = rounds.Median("good", "x", 8, 1e-6)
    partly = [rounds.Median("partly", "x", 8, 2e-6), rounds.Failed("partly 64 B", "out of memory")]
    launches = {"good": lambda: [good], "partly": lambda: partly, "bad": lambda: json.loads("{")}
    kept: list[tuple[int, int]] = []
    outcome = rounds.interleaved(
        [rounds.Group(launches)], 4, 1, 60.0, lambda so_far: kept.append((len(so_far.found), len(so_far.failures)))
    )
    assert len(kept) == 4 + 4 + 2
    assert kept[0] in ((1, 0), (1, 1), (0, 1))
    assert kept[-1] == (8, 6)
    assert sum("JSONDecodeError" in text for text in outcome.failures) == 2
    assert sum("partly 64 B: out of memory" in text for text in outcome.failures) == 4
    assert outcome.ratio(("partly", "x"), ("good", "x"), 8).value == 2


def test_pages_are_whole_or_as_they_were(out: Path) -> None:
    """A page that cannot be made does not take the numbers along."""
    write = bench("results").write
    write("x", {"n": 1}, lambda: "first")
    with pytest.raises(ZeroDivisionError):
        write("x", {"n": 2}, lambda: str(1 // 0))
    assert json.loads((out / "results-x.json").read_text()) == {"n": 2}
    assert (out / "results-x.md").read_text() == "first"


def test_rows_of_nccl_tests() -> None:
    peer = bench("gpu_peer")
    found = {one.what: one.seconds for one in peer.rows_of(NCCL_TESTS, "allreduce", 8)}
    assert found == pytest.approx({"allreduce": 5e-6, "allreduce in place": 3e-6})
    for text, reason in (
        (NCCL_TESTS.replace("       0     2", "       1     2"), "wrong results"),
        ("", "no whole rows"),
    ):
        with pytest.raises(bench("installation").LaunchFailed, match=reason):
            peer.rows_of(text, "allreduce", 8)
    for no_place in (NCCL_TESTS.replace("2.00", "N/A"), NCCL_TESTS.replace("    2.00    0.00    0.00       0", "")):
        assert [one.what for one in peer.rows_of(no_place, "sendrecv", 8)] == ["sendrecv"]


def test_another_nccl_is_no_peer() -> None:
    failed = bench("installation").LaunchFailed
    same = bench("gpu_peer").same_nccl
    same(NCCL_TESTS, "2.28.9")
    same(NCCL_TESTS, "unknown")
    with pytest.raises(failed, match=r"nccl-tests runs NCCL 2\.28\.9, collbench 2\.29\.7"):
        same(NCCL_TESTS, "2.29.7")
    libraries = bench("gpu_libraries").Libraries(Path("a"), "2.28.9", Path("b"), (), None)
    libraries.check({"libraries": [{"name": "NCCL", "version": "2.28.9"}, {"name": "Open MPI", "version": "5"}]})
    with pytest.raises(failed, match=r"NCCL 2\.29\.7 \(/x\), and not 2\.28\.9"):
        libraries.check({"libraries": [{"name": "NCCL", "version": "2.29.7", "path": "/x"}]})


def outcome(rounds: int = 5) -> Any:
    """Launches in which native is a little slower than nccl-tests, and torch in place much faster than out of place."""
    made = bench("gpu_rounds")
    seconds = {
        ("nccl-tests", "allreduce"): 5.0,
        ("nccl-tests", "allreduce in place"): 1.0,
        ("native", "allreduce"): 5.05,
        ("torch-nccl", "allreduce in place"): 2.0,
        ("C", "allreduce"): 5.2,
        ("C polling", "allreduce"): 5.0,
    }
    found = [made.Median(*key, 8, value * 1e-6, one) for key, value in seconds.items() for one in range(rounds)]
    return made.Rounds(found, [])


@pytest.mark.parametrize(("ranks", "alike", "rounds", "verdict", "torch"), [
    (1, True, 5, "met", "-"),  # one rank in place has nothing to do, which is no speed
    (2, True, 5, "met", "2.000"),  # over nccl-tests in place, not out of place
    (2, False, 5, "two programs", "2.000"),
    (1, True, 4, "too few launches", "-"),
])  # fmt: skip
def test_like_is_compared_with_like(ranks: int, alike: bool, rounds: int, verdict: str, torch: str) -> None:
    page = bench("gpu_peer_page")
    row = page.row(page.Measured(ranks, alike, "2.28.9", 1), outcome(rounds), "allreduce", 8)
    assert (row[4], row[7], row[9]) == ("1.010", verdict, torch)


def test_a_page_says_what_the_wait_is() -> None:
    page = bench("gpu_peer_page")
    assert [cell.split()[0] for cell in page.waits_row(outcome(), "allreduce")] == [
        "allreduce", "5.200", "5.000", "1.040", "0.971", "1.000"
    ]  # fmt: skip
    text = page.report(page.Measured(2, False, "2.28.9", 1), outcome())
    assert "no verdict" in text and "allreduce 8 B" in text
    assert "no verdict" not in page.report(page.Measured(1, True, "2.28.9", 1), outcome())


def test_of_one_rank_torch_has_no_ratio_in_the_floor_either(tmp_path: Path) -> None:
    floor, made = bench("gpu_floor"), bench("gpu_rounds")
    found = [made.Median(kind, "allreduce", 8, 1e-6, one) for kind in ("C", "torch-nccl") for one in range(5)]
    for ranks, ratio in ((1, "-"), (2, "1.000")):
        here = installation(tmp_path, ranks=ranks)
        assert floor.row(here, made.Rounds(found, []), "allreduce", "torch-nccl")[3] == ratio


@pytest.mark.parametrize("ranks", [1, 8])
def test_the_steps_fit_into_the_time_and_numbers_come_before_tests(tmp_path: Path, ranks: int) -> None:
    session = bench("gpu_session")
    steps = list(session.Plan(tmp_path / "work", "collbench", ranks, "any", ranks, 2).steps())
    assert sum(step.limit for step in steps if not (step.on_request or step.lacking)) <= session.SECONDS < 600
    names = [step.name for step in steps]
    assert len(set(names)) == len(names)
    assert steps[0].needed and not any(step.needed for step in steps[1:])
    tests = [step for step in steps if step.name.startswith("tests-")]
    assert steps[-len(tests) :] == tests and names.index("peer") < names.index("tests-records")
    assert all("-v" in step.argv and step.stretches for step in tests)
    folder = Path(__file__).parents[1] / "gpu"
    assert {step.argv[-1] for step in tests} == set(map(str, folder.glob("test_*.py")))
    assert [step.name for step in session.chosen(steps, ["tests", "peer"])] == [
        "environment", "peer", *(step.name for step in tests)
    ]  # fmt: skip
    with pytest.raises(SystemExit, match="no step is called flor; there are environment, "):
        session.chosen(steps, ["flor"])


def test_suites_come_after_the_numbers_of_nccl_and_are_kept(tmp_path: Path) -> None:
    steps = {one.name: one for one in bench("gpu_session").Plan(tmp_path, "collbench", 1, "any", 1, 1).steps()}
    names = list(steps)
    assert names.index("copies") < names.index("gpu-suite") < names.index("train") < names.index("tests-records")
    for name in ("gpu-suite", "train"):
        assert steps[name].stretches and str(tmp_path / "results" / name) in steps[name].argv
    asked = [word for word in steps["gpu-suite"].argv if word.startswith("gpu_")]
    assert sorted(asked) == list(workloads.suites()["gpu"])


@pytest.mark.parametrize(
    ("gpus", "nodes", "skipped"),
    [(1, 1, {"which-gpus", "gpu-affinity"}), (8, 1, {"gpu-affinity"}), (1, 2, {"which-gpus"}), (8, 2, set())],
)
def test_choices_of_gpus_and_of_memory_are_measured_where_the_machine_has_several(
    tmp_path: Path, gpus: int, nodes: int, skipped: set[str]
) -> None:
    session = bench("gpu_session")
    steps = session.chosen([*session.Plan(tmp_path / "work", "collbench", gpus, "any", gpus, nodes).steps()], [])
    assert {step.name for step in steps if step.lacking} == skipped
    argv = {step.name: step.argv for step in steps}
    for name, choices in (("which-gpus", {"gpus": ("first", "close", "spread")}),
                          ("gpu-affinity", {"affinity": ("near", "far")})):  # fmt: skip
        path, out = argv[name][argv[name].index("launch") + 1], str(tmp_path / "work" / "results" / name)
        plan = load_launch_plan(Path(path))
        assert out in argv[name] and {axis: getattr(plan, axis) for axis in choices} == choices
        assert plan.policies == ("host",), "there is no container engine"
    assert plan.iters == 5


def test_memory_nodes_are_those_of_the_cores_that_may_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for core in range(4):
        (tmp_path / f"cpu{core}" / f"node{core // 2}").mkdir(parents=True)
    for usable, nodes in (({0, 1}, 1), ({1, 2}, 2)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, usable=usable: usable)
        assert bench("gpu_session").memory_nodes(tmp_path) == nodes


def test_every_gpu_is_held_open_until_the_session_ends(tmp_path: Path) -> None:
    """And by no process that it starts."""
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    held = bench("gpu_session").hold_open(tmp_path)
    try:
        assert [Path(f"/proc/self/fd/{one}").resolve().name for one in held] == ["nvidia0", "nvidia1"]
        assert not any(map(os.get_inheritable, held))
    finally:
        for one in held:
            os.close(one)


# The environment that bench/gpu.sh makes on top of another one, which is a virtual environment itself

MAKE = """
import sys
from pathlib import Path
from gpu_environment import Environment
Environment(Path(sys.argv[1]), Path("/nowhere")).make()
"""
FOLDERS = "import site, click; print(*site.getsitepackages(), click.__file__, sep='\\n')"
FIND = """
from cuda.pathfinder import load_nvidia_dynamic_lib
print(load_nvidia_dynamic_lib("nccl").abs_path)
"""


def nested(where: Path) -> Path:
    """The Python of a new environment on top of the one that runs the tests."""
    if sys.prefix == sys.base_prefix:
        pytest.skip("the tests do not run in a virtual environment")
    subprocess.run((sys.executable, "-c", MAKE, str(where / "venv")), cwd=BENCH, check=True, timeout=120)
    return where / "venv" / "bin" / "python"


def ask(python: Path, program: str) -> str:
    done = subprocess.run((python, "-c", program), cwd="/", capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_it_sees_the_packages_of_its_parent_and_counts_them_as_its_own(tmp_path: Path) -> None:
    """What looks along sys.path finds them, and what asks `site`, as NVIDIA's path finder does."""
    *folders, click = ask(nested(tmp_path), FOLDERS).splitlines()
    parent = [folder for folder in folders if folder.startswith(f"{sys.prefix}/")]
    assert folders[0].startswith(str(tmp_path))
    assert [folder for folder in parent if click.startswith(folder)]


@pytest.mark.cuda
def test_nvidias_path_finder_finds_the_parents_nccl(tmp_path: Path) -> None:
    try:
        import cuda.pathfinder  # noqa: F401
        import nvidia.nccl as nccl
    except ImportError:
        skip_or_fail("cuda", "NCCL and cuda-pathfinder are not installed in this environment (extra cuda12)")
    assert Path(ask(nested(tmp_path), FIND)).parent.resolve() == (Path(nccl.__path__[0]) / "lib").resolve()


def test_an_mpirun_whose_ranks_do_not_meet_is_not_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    environment = bench("gpu_environment").Environment(tmp_path, tmp_path)
    environment.python = sys.executable
    assert not environment._meets("/bin/false")
    assert not environment._meets("/no/such/mpirun")
    assert "cannot be started" in capsys.readouterr().out


def test_what_is_not_carried_is_said_with_what_would_help(tmp_path: Path) -> None:
    environment = bench("gpu_environment").Environment(tmp_path, tmp_path / "carried")
    environment.python = sys.executable
    with pytest.raises(
        subprocess.SubprocessError, match=r"cannot install no-such: .* lacks must be in .*bench/carry.sh"
    ):
        environment.install("no-such")


# gpu_floor.c against libraries that are made up -----------------------------------------------------------------------

CUDA = """
#include <stdlib.h>
#include <string.h>
typedef enum { cudaSuccess = 0, cudaErrorNotReady = 600 } cudaError_t;
typedef struct made *cudaStream_t;
enum { cudaStreamNonBlocking = 1, cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2 };
static int looks; /* the stream is idle at every third look */
static inline const char *cudaGetErrorString(cudaError_t e) { return e == cudaSuccess ? "no error" : "made up"; }
static inline cudaError_t cudaGetDeviceCount(int *n) { *n = 1; return cudaSuccess; }
static inline cudaError_t cudaSetDevice(int n) { return n == 0 ? cudaSuccess : cudaErrorNotReady; }
static inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned f) {
    *s = NULL; return f == cudaStreamNonBlocking ? cudaSuccess : cudaErrorNotReady; }
static inline cudaError_t cudaMalloc(void **p, size_t n) { *p = malloc(n); return cudaSuccess; }
static inline cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, int kind, cudaStream_t s) {
    (void)kind, (void)s; memcpy(to, from, n); return cudaSuccess; }
static inline cudaError_t cudaMemsetAsync(void *to, int v, size_t n, cudaStream_t s) {
    (void)s; memset(to, v, n); return cudaSuccess; }
static inline cudaError_t cudaStreamSynchronize(cudaStream_t s) { (void)s; return cudaSuccess; }
static inline cudaError_t cudaStreamQuery(cudaStream_t s) {
    (void)s; return ++looks % 3 ? cudaErrorNotReady : cudaSuccess; }
"""
NCCL = """
typedef struct made *ncclComm_t;
typedef struct { char name[128]; } ncclUniqueId;
typedef enum { ncclSuccess = 0, ncclInternalError = 3 } ncclResult_t;
enum { ncclFloat32 = 7, ncclSum = 0 };
static const void *given;
static int grouped;
static inline const char *ncclGetErrorString(ncclResult_t e) { return e == ncclSuccess ? "no error" : "made-up error"; }
static inline ncclResult_t ncclGetUniqueId(ncclUniqueId *id) { id->name[0] = 0; return ncclSuccess; }
static inline ncclResult_t ncclCommInitRank(ncclComm_t *c, int n, ncclUniqueId id, int r) {
    *c = NULL; return n == 1 && r == 0 && !id.name[0] ? ncclSuccess : ncclInternalError; }
static inline ncclResult_t ncclCommDestroy(ncclComm_t c) { (void)c; return ncclSuccess; }
static inline ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *e) {
    (void)c; *e = ASYNC; return ncclSuccess; }
static inline ncclResult_t ncclGetVersion(int *v) { *v = 22809; return ncclSuccess; }
static inline ncclResult_t ncclAllReduce(const void *s, void *r, size_t n, int t, int o, ncclComm_t c, cudaStream_t q) {
    (void)t, (void)o, (void)c, (void)q; memcpy(r, s, (n - LOSES) * 4); return ncclSuccess; }
static inline ncclResult_t ncclGroupStart(void) { grouped = 1; return ncclSuccess; }
static inline ncclResult_t ncclGroupEnd(void) { grouped = 0; return ncclSuccess; }
static inline ncclResult_t ncclSend(const void *s, size_t n, int t, int to, ncclComm_t c, cudaStream_t q) {
    (void)n, (void)t, (void)c, (void)q; given = s; return grouped && to == 0 ? ncclSuccess : ncclInternalError; }
static inline ncclResult_t ncclRecv(void *r, size_t n, int t, int from, ncclComm_t c, cudaStream_t q) {
    (void)t, (void)c, (void)q; memcpy(r, given, (n - LOSES) * 4);
    return grouped && from == 0 ? ncclSuccess : ncclInternalError; }
"""


def compiled(where: Path, loses: int = 0, error: str = "ncclSuccess") -> Path:
    """`loses`: elements that no operation brings; `error`: what NCCL's background work says."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    (where / "cuda_runtime_api.h").write_text(CUDA)
    (where / "nccl.h").write_text(NCCL)
    made = (f"-DLOSES={loses}", f"-DASYNC={error}", f"-I{where}")
    flags = ("-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function")
    argv = (compiler, *flags, *made, "-o", str(where / "gpu_floor"), str(BENCH / "gpu_floor.c"))
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return where / "gpu_floor"


def run(program: Path, operation: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        (program, operation, "8", "20", "2", "5"), capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("operation", ["allreduce", "sendrecv"])
def test_one_line_with_both_waits(tmp_path: Path, operation: str) -> None:
    done = run(compiled(tmp_path), operation)
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    times = ("isolated", "isolated polling", "issue", "streaming", "streaming polling")
    assert set(told) == {"operation", "ranks", "bytes", "nccl", *times}
    assert (told["operation"], told["ranks"], told["bytes"], told["nccl"]) == (operation, 1, 8, 22809)
    assert all(0 <= told[name] < 1 for name in times)


@pytest.mark.parametrize(("loses", "error", "message"), [
    (1, "ncclSuccess", "check: a wrong result"), (0, "ncclInternalError", "made-up error"),
])  # fmt: skip
@pytest.mark.parametrize("operation", ["allreduce", "sendrecv"])
def test_what_goes_wrong_is_no_time(tmp_path: Path, operation: str, loses: int, error: str, message: str) -> None:
    """An element that does not arrive, or an error that NCCL tells only when it is asked."""
    done = run(compiled(tmp_path, loses, error), operation)
    assert done.returncode == 1
    assert done.stdout == ""
    assert message in done.stderr


def test_another_operation_is_refused(tmp_path: Path) -> None:
    done = run(compiled(tmp_path), "bcast")
    assert done.returncode == 2
    assert done.stderr.startswith("usage: gpu_floor allreduce|sendrecv ")


# Programs and libraries that collbench is held against on GPUs --------------------------------------------------------


def test_libraries_are_asked_for_one_by_one() -> None:
    """collbench's answer first; what it does not find is looked for by file; one that is not there hides no other."""

    def fails() -> dict[str, str]:
        raise RuntimeError("libnccl was not found")

    find = bench("gpu_search").find
    searches = ((fails, lambda: {"nccl": "/by/file"}), (lambda: {"cudart": "/first"}, lambda: {"cudart": "/second"}))
    assert find(searches) == {"nccl": "/by/file", "cudart": "/first", "problems": ["fails: libnccl was not found"]}
    assert find(((fails,), searches[1])) == {"cudart": "/first", "problems": ["fails: libnccl was not found"]}


def asked(**given: Any) -> argparse.Namespace:
    return argparse.Namespace(**({"nccl": None, "cudart": None} | given))


def test_what_is_not_found_is_a_reason_and_no_end(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    libraries = bench("gpu_libraries")
    here = installation(out)
    monkeypatch.setattr(bench("installation"), "run", lambda *_: '{"cudart": "/c", "problems": ["no libnccl"]}\n')
    assert libraries.libraries_or_reason(here, asked()) == "NVIDIA's libraries are not known: no libnccl"
    found = libraries.libraries_or_reason(here, asked(nccl=Path("/n/lib/libnccl.so.2")))
    assert (found.nccl, found.cudart, found.version) == (Path("/n/lib/libnccl.so.2"), Path("/c"), "unknown")


def made_libraries(where: Path) -> Any:
    """Two wheels and a toolkit whose header is included by one of them."""
    for name in ("nccl", "cudart", "toolkit"):
        (where / name / "include").mkdir(parents=True)
        (where / name / "lib").mkdir()
    (where / "nccl" / "include" / "nccl.h").touch()
    (where / "cudart" / "include" / "cuda_runtime_api.h").touch()
    (where / "toolkit" / "include" / "host_defines.h").touch()
    folders = tuple(where / name / "include" for name in ("nccl", "cudart", "toolkit"))
    nccl, cudart = where / "nccl/lib/libnccl.so.2", where / "cudart/lib/libcudart.so.13"
    return bench("gpu_libraries").Libraries(nccl, "2.28.9", cudart, folders, where / "toolkit/bin/nvcc")


def test_the_compiler_gets_every_folder_of_headers(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NVIDIA's wheels split headers that include each other."""
    programs, found = bench("gpu_programs"), made_libraries(out)
    lines: list[tuple[str, ...]] = []
    monkeypatch.setattr(programs, "run", lambda argv, *_: lines.append(argv))
    programs.build_floor(found, None, out)
    assert [word for word in lines[0] if word.startswith("-I")] == [f"-I{folder}" for folder in found.includes]
    assert "-DUSE_MPI" not in lines[0]


class Builder:
    """In the place of `run` in gpu_programs: compilers leave what they are to make, trials end as told."""

    def __init__(self, works: bool) -> None:
        self.works, self.lines = works, list[tuple[str, ...]]()

    def __call__(self, argv: tuple[str, ...], *_: object) -> str:
        self.lines.append(argv)
        if "-o" in argv:
            Path(argv[argv.index("-o") + 1]).touch()
        elif argv[0] == "make":
            for word in argv:
                if word.startswith("/") and word.endswith("_perf"):
                    Path(word).touch()
        elif not self.works:
            raise bench("installation").LaunchFailed("no CUDA driver")
        return ""


@pytest.mark.parametrize(("ranks", "works", "built"), [(1, True, 0), (1, False, 2), (2, True, 2)])
def test_carried_programs_are_taken_where_one_gpu_is_and_they_start(
    out: Path, monkeypatch: pytest.MonkeyPatch, ranks: int, works: bool, built: int
) -> None:
    programs, builder = bench("gpu_programs"), Builder(works)
    monkeypatch.setattr(programs, "run", builder)
    for folder in ("carried", "programs", "source/src"):
        (out / folder).mkdir(parents=True)
    for name in programs.TRIALS:
        (out / "carried" / name).touch()
    there = programs.Programs(out / "programs")
    here = installation(out, ranks=ranks)
    assert programs.provide(here, made_libraries(out / "w"), out / "source", out / "carried", there) == []
    assert sum("-o" in line or line[0] == "make" for line in builder.lines) == built
    assert all(there.path(name).exists() for name in programs.TRIALS)
    assert not any(map(there.with_mpi, programs.TRIALS))  # no mpicc is beside this mpirun
    assert there.start("gpu_floor", here, "allreduce") == (str(out / "programs" / "gpu_floor"), "allreduce")
    there.add("gpu_floor", out / "carried" / "gpu_floor", mpi=True)
    assert there.start("gpu_floor", here, "allreduce")[0] == str(out / "bin" / "mpirun")


def test_one_program_that_cannot_be_had_hides_no_other(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = bench("gpu_programs")
    monkeypatch.setattr(programs, "run", Builder(works=True))
    (out / "programs").mkdir()
    there = programs.Programs(out / "programs")
    (missing,) = programs.provide(installation(out), made_libraries(out / "w"), out / "nowhere", out / "carried", there)
    assert missing.startswith("all_reduce_perf, sendrecv_perf: there is no nccl-tests in ")
    assert there.path("gpu_floor").exists()
    with pytest.raises(bench("installation").LaunchFailed, match="there is no sendrecv_perf in "):
        there.path("sendrecv_perf")
