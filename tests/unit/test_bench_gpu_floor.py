"""gpu_floor.c against libraries that are made up: it compiles without a warning, checks results, tells both waits."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.unit.bench_modules import BENCH

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
