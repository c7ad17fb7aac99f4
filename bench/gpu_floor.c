/* The floor under collbench on GPUs: what a call of NCCL costs the host in plain C, and what the wait for it costs.
 *
 *     cc -O2 -o gpu_floor gpu_floor.c libnccl.so.2 libcudart.so.13 && ./gpu_floor allreduce 8 1000 5 20
 *     mpicc -DUSE_MPI -O2 ...                                        && mpirun -n 2 ./gpu_floor allreduce 8 1000 5 20
 *
 * Arguments: operation (allreduce: float32, sum, out of place; sendrecv: to the next rank, from the one before), bytes,
 * samples, warm-ups, calls of a burst. One GPU per rank (by rank modulo GPUs: one machine), a non-blocking stream.
 * Rank 0 prints one line of JSON with medians in seconds over the slowest rank of each sample:
 *
 *     isolated           barrier, call, cudaStreamSynchronize: as collbench's cadence isolated behind align barrier
 *     isolated polling   the same, but the wait asks cudaStreamQuery and ncclCommGetAsyncError until the stream is idle
 *     issue              a burst of calls without waiting, over their number: what the call alone costs
 *     streaming          the same with the wait for the stream at its end
 *     streaming polling  the same with the other wait
 *
 * Samples of both waits take turns, so that a difference between them is theirs. It shares no code with collbench.
 */
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

static void all_reduce(void) {
    NCCL(ncclAllReduce(sent, received, (size_t)count, ncclFloat32, ncclSum, comm, stream));
}

static void send_receive(void) {
    NCCL(ncclGroupStart());
    NCCL(ncclSend(sent, (size_t)count, ncclFloat32, (rank + 1) % ranks, comm, stream));
    NCCL(ncclRecv(received, (size_t)count, ncclFloat32, (rank + ranks - 1) % ranks, comm, stream));
    NCCL(ncclGroupEnd());
}

static void (*issue)(void);

static void synchronize(void) { CUDA(cudaStreamSynchronize(stream)); }

static void poll(void) {
    cudaError_t state;
    while ((state = cudaStreamQuery(stream)) == cudaErrorNotReady) {
        ncclResult_t error;
        NCCL(ncclCommGetAsyncError(comm, &error));
        NCCL(error);
        sched_yield();
    }
    CUDA(state);
}

enum { SYNCHRONIZE, POLL, WAITS };
static void (*const await[WAITS])(void) = {synchronize, poll};

/* Readings of the clock in ns, [samples]. */
typedef struct {
    int64_t *entered, *issued, *left;
} Stamps;

/* So many samples of `calls` calls each with either wait. */
static void take(int n, int calls, Stamps stamps[WAITS]) {
    for (int i = 0; i < n; i++) {
        for (int wait = 0; wait < WAITS; wait++) {
            meet();
            stamps[wait].entered[i] = now();
            for (int c = 0; c < calls; c++) issue();
            stamps[wait].issued[i] = now();
            await[wait]();
            stamps[wait].left[i] = now();
        }
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

/* Every rank gives rank + 1 in every element; the sum, and what the rank before gave, are known. */
static void check(void) {
    size_t size = (size_t)count * sizeof(float);
    float expected = issue == all_reduce ? (float)ranks * (float)(ranks + 1) / 2 : (float)((rank + ranks - 1) % ranks + 1);
    float *values = allocate(size);
    for (int i = 0; i < count; i++) values[i] = (float)(rank + 1);
    CUDA(cudaMemcpyAsync(sent, values, size, cudaMemcpyHostToDevice, stream));
    CUDA(cudaMemsetAsync(received, 0xFF, size, stream));
    issue();
    CUDA(cudaMemcpyAsync(values, received, size, cudaMemcpyDeviceToHost, stream));
    synchronize();
    for (int i = 0; i < count; i++)
        if (values[i] != expected) fail("check", "a wrong result");
    free(values);
}

static void measure(const char *operation, int n, int warmups, int burst) {
    size_t size = (size_t)(n > warmups ? n : warmups) * sizeof(int64_t);
    Stamps stamps[WAITS];
    double isolated[WAITS], streaming[WAITS];
    for (int wait = 0; wait < WAITS; wait++)
        stamps[wait] = (Stamps){allocate(size), allocate(size), allocate(size)};
    take(warmups, 1, stamps);
    take(n, 1, stamps);
    for (int wait = 0; wait < WAITS; wait++)
        isolated[wait] = seconds(stamps[wait].entered, stamps[wait].left, n, 1, 0);
    take(warmups, burst, stamps);
    take(n, burst, stamps);
    for (int wait = 0; wait < WAITS; wait++)
        streaming[wait] = seconds(stamps[wait].entered, stamps[wait].left, n, burst, 0);
    double alone = seconds(stamps[SYNCHRONIZE].entered, stamps[SYNCHRONIZE].issued, n, burst, 1);
    int version = 0;
    NCCL(ncclGetVersion(&version));
    if (rank == 0)
        printf("{\"operation\": \"%s\", \"ranks\": %d, \"bytes\": %d, \"nccl\": %d, \"isolated\": %.5e, "
               "\"isolated polling\": %.5e, \"issue\": %.5e, \"streaming\": %.5e, \"streaming polling\": %.5e}\n",
               operation, ranks, count * (int)sizeof(float), version, isolated[SYNCHRONIZE], isolated[POLL], alone,
               streaming[SYNCHRONIZE], streaming[POLL]);
    for (int wait = 0; wait < WAITS; wait++)
        free(stamps[wait].entered), free(stamps[wait].issued), free(stamps[wait].left);
}

static int usage(void) {
    fprintf(stderr, "usage: gpu_floor allreduce|sendrecv BYTES SAMPLES WARMUPS BURST\n");
    return 2;
}

int main(int argc, char **argv) {
    if (argc != 6 || atoi(argv[2]) < 4 || atoi(argv[3]) < 1 || atoi(argv[5]) < 1) return usage();
    if (strcmp(argv[1], "allreduce") != 0 && strcmp(argv[1], "sendrecv") != 0) return usage();
    issue = strcmp(argv[1], "allreduce") == 0 ? all_reduce : send_receive;
#ifdef USE_MPI
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
#endif
    count = atoi(argv[2]) / (int)sizeof(float);
    open_device();
    check();
    measure(argv[1], atoi(argv[3]), atoi(argv[4]), atoi(argv[5]));
    check();
    NCCL(ncclCommDestroy(comm));
#ifdef USE_MPI
    MPI_Finalize();
#endif
    return 0;
}
