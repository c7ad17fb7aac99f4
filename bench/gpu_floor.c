/* The floor under collbench on GPUs: what a call of ncclAllReduce costs the host in plain C.
 *
 *     cc -O2 -o gpu_floor gpu_floor.c libnccl.so.2 libcudart.so.13 && ./gpu_floor 8 1000 5 20
 *     mpicc -DUSE_MPI -O2 ...                                        && mpirun -n 2 ./gpu_floor 8 1000 5 20
 *
 * Arguments: bytes, samples, warm-ups, calls of a burst. float32, sum, out of place, one GPU per rank (by rank modulo
 * GPUs: one machine), a non-blocking stream. Rank 0 prints one line of JSON with medians in seconds over the slowest
 * rank of each sample:
 *
 *     isolated    barrier, call, cudaStreamSynchronize: as collbench's cadence isolated behind gate barrier
 *     issue       a burst of calls without waiting, over their number: what the call alone costs
 *     streaming   the same with the wait for the stream at its end
 *
 * It shares no code with collbench.
 */
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#ifdef USE_MPI
#include <mpi.h>
#endif

static int rank, ranks = 1;
static int count;
static float *sent, *received;
static cudaStream_t stream;
static ncclComm_t comm;

static void fail(const char *what, const char *why) {
    fprintf(stderr, "gpu_floor: rank %d: %s: %s\n", rank, what, why);
#ifdef USE_MPI
    MPI_Abort(MPI_COMM_WORLD, 1);
#endif
    exit(1);
}

#define CUDA(call)                                                    \
    do {                                                              \
        cudaError_t code = (call);                                    \
        if (code != cudaSuccess) fail(#call, cudaGetErrorString(code)); \
    } while (0)
#define NCCL(call)                                                    \
    do {                                                              \
        ncclResult_t code = (call);                                   \
        if (code != ncclSuccess) fail(#call, ncclGetErrorString(code)); \
    } while (0)

static inline int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline void meet(void) {
#ifdef USE_MPI
    MPI_Barrier(MPI_COMM_WORLD);
#endif
}

static inline void issue(void) {
    NCCL(ncclAllReduce(sent, received, (size_t)count, ncclFloat32, ncclSum, comm, stream));
}

static inline void await(void) { CUDA(cudaStreamSynchronize(stream)); }

/* Samples of `calls` calls each. `entered`, `issued` and `left` are readings of the clock in ns, [n]. */
static void take(int n, int calls, int64_t *entered, int64_t *issued, int64_t *left) {
    for (int i = 0; i < n; i++) {
        meet();
        entered[i] = now();
        for (int c = 0; c < calls; c++) issue();
        issued[i] = now();
        await();
        left[i] = now();
    }
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n) {
    qsort(values, (size_t)n, sizeof *values, ascending);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

static void *allocate(size_t size) {
    void *found = malloc(size);
    if (found == NULL) fail("malloc", "no memory");
    return found;
}

/* Median over the samples of last reading of `ends` minus first of `begins` over the ranks, in seconds per call. With
 * `local`, of the longest time of one rank instead: ranks issue on their own. */
static double seconds(const int64_t *begins, const int64_t *ends, int n, int calls, int local) {
    double *values = allocate((size_t)n * sizeof *values);
    for (int i = 0; i < n; i++) {
        int64_t first = begins[i], last = ends[i];
#ifdef USE_MPI
        int64_t mine[2] = {local ? 0 : -begins[i], local ? ends[i] - begins[i] : ends[i]}, most[2];
        MPI_Allreduce(mine, most, 2, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
        first = -most[0], last = most[1];
#else
        (void)local;
#endif
        values[i] = (double)(last - first) * 1e-9 / calls;
    }
    double found = median(values, n);
    free(values);
    return found;
}

static void open_device(void) {
    int devices = 0;
    ncclUniqueId id;
    CUDA(cudaGetDeviceCount(&devices));
    CUDA(cudaSetDevice(rank % devices));
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    if (rank == 0) NCCL(ncclGetUniqueId(&id));
#ifdef USE_MPI
    MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
#endif
    NCCL(ncclCommInitRank(&comm, ranks, id, rank));
    CUDA(cudaMalloc((void **)&sent, (size_t)count * sizeof(float)));
    CUDA(cudaMalloc((void **)&received, (size_t)count * sizeof(float)));
}

/* Every rank gives rank + 1 in every element; the sum is known. */
static void check(void) {
    size_t size = (size_t)count * sizeof(float);
    float *values = allocate(size);
    for (int i = 0; i < count; i++) values[i] = (float)(rank + 1);
    CUDA(cudaMemcpyAsync(sent, values, size, cudaMemcpyHostToDevice, stream));
    CUDA(cudaMemsetAsync(received, 0xFF, size, stream));
    issue();
    CUDA(cudaMemcpyAsync(values, received, size, cudaMemcpyDeviceToHost, stream));
    await();
    for (int i = 0; i < count; i++)
        if (values[i] != (float)ranks * (float)(ranks + 1) / 2) fail("check", "a wrong result");
    free(values);
}

static void measure(int n, int warmups, int burst) {
    int most = n > warmups ? n : warmups;
    size_t size = (size_t)most * sizeof(int64_t);
    int64_t *entered = allocate(size), *issued = allocate(size), *left = allocate(size);
    take(warmups, 1, entered, issued, left);
    take(n, 1, entered, issued, left);
    double isolated = seconds(entered, left, n, 1, 0);
    take(warmups, burst, entered, issued, left);
    take(n, burst, entered, issued, left);
    double streaming = seconds(entered, left, n, burst, 0), alone = seconds(entered, issued, n, burst, 1);
    int version = 0;
    NCCL(ncclGetVersion(&version));
    if (rank == 0)
        printf("{\"ranks\": %d, \"bytes\": %d, \"nccl\": %d, "
               "\"isolated\": %.5e, \"issue\": %.5e, \"streaming\": %.5e}\n",
               ranks, count * (int)sizeof(float), version, isolated, alone, streaming);
    free(entered), free(issued), free(left);
}

int main(int argc, char **argv) {
    if (argc != 5 || atoi(argv[1]) < 4 || atoi(argv[2]) < 1 || atoi(argv[4]) < 1) {
        fprintf(stderr, "usage: gpu_floor BYTES SAMPLES WARMUPS BURST\n");
        return 2;
    }
#ifdef USE_MPI
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
#endif
    count = atoi(argv[1]) / (int)sizeof(float);
    open_device();
    check();
    measure(atoi(argv[2]), atoi(argv[3]), atoi(argv[4]));
    check();
    NCCL(ncclCommDestroy(comm));
#ifdef USE_MPI
    MPI_Finalize();
#endif
    return 0;
}
