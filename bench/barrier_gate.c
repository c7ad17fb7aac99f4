/* What ranks that leave a barrier and start read, over the number of messages that went one way before.
 *
 *     mpicc -O2 -o barrier_gate barrier_gate.c && mpirun -n 2 barrier_gate 1000 128
 *
 * Arguments: samples for each offset, offsets. A sample is barrier, clock, 8-byte all-reduce, clock. After the samples of
 * an offset rank 0 sends rank 1 one empty message: nothing else differs. Two ranks, MPI_THREAD_SINGLE; nothing is sent
 * before the first offset. Rank 0 prints a line of JSON for each: medians in ns, all from the same stamps.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PAGE = 4096, WARM_UP = 300000000 }; /* bytes; ns in which the cores come to speed */

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void *allocate(size_t size) {
    size_t whole = (size + PAGE - 1) / PAGE * PAGE;
    void *found = aligned_alloc(PAGE, whole);
    if (found == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
    return memset(found, 0, whole);
}

static void take(int n, const float *send, float *receive, int64_t *entered, int64_t *left) {
    for (int i = 0; i < n; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        int64_t in = now();
        MPI_Allreduce(send, receive, 2, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        left[i] = now();
        entered[i] = in;
    }
}

static int ascending(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int64_t median(int64_t *values, int n) {
    qsort(values, (size_t)n, sizeof *values, ascending);
    return values[n / 2];
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* in and out [2, n]: of rank 0, then of rank 1, `apart` values later. */
static void report(int offset, int n, size_t apart, const int64_t *in, const int64_t *out) {
    int64_t *span = allocate((size_t)n * 8), *largest = allocate((size_t)n * 8), *mean = allocate((size_t)n * 8),
            *skew = allocate((size_t)n * 8);
    for (int i = 0; i < n; i++) {
        int64_t a = in[i], b = in[apart + (size_t)i], c = out[i], d = out[apart + (size_t)i];
        span[i] = larger(c, d) + larger(-a, -b);
        largest[i] = larger(c - a, d - b);
        mean[i] = (c - a + d - b) / 2;
        skew[i] = larger(a - b, b - a);
    }
    printf("{\"offset\": %d, \"span\": %ld, \"largest\": %ld, \"mean\": %ld, \"apart\": %ld}\n", offset,
           (long)median(span, n), (long)median(largest, n), (long)median(mean, n), (long)median(skew, n));
    free(span), free(largest), free(mean), free(skew);
}

int main(int argc, char **argv) {
    int granted, rank, ranks, n = argc == 3 ? atoi(argv[1]) : 0, offsets = argc == 3 ? atoi(argv[2]) : 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SINGLE, &granted);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (n < 1 || offsets < 1 || ranks != 2) {
        fprintf(stderr, "usage: mpirun -n 2 barrier_gate SAMPLES OFFSETS\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    size_t all = (size_t)n * (size_t)offsets;
    float *send = allocate(8), *receive = allocate(8);
    int64_t *entered = allocate(all * 8), *left = allocate(all * 8), *in = allocate(all * 16), *out = allocate(all * 16);
    for (int64_t until = now() + WARM_UP; now() < until;) {
    }
    take(n, send, receive, entered, left);
    for (int offset = 0; offset < offsets; offset++) {
        take(n, send, receive, entered + (size_t)offset * (size_t)n, left + (size_t)offset * (size_t)n);
        if (rank == 0)
            MPI_Send(NULL, 0, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
        else
            MPI_Recv(NULL, 0, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Gather(entered, (int)all, MPI_INT64_T, in, (int)all, MPI_INT64_T, 0, MPI_COMM_WORLD);
    MPI_Gather(left, (int)all, MPI_INT64_T, out, (int)all, MPI_INT64_T, 0, MPI_COMM_WORLD);
    for (int offset = 0; rank == 0 && offset < offsets; offset++)
        report(offset, n, all, in + (size_t)offset * (size_t)n, out + (size_t)offset * (size_t)n);
    free(send), free(receive), free(entered), free(left), free(in), free(out);
    MPI_Finalize();
    return 0;
}
