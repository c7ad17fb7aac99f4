/* The floor under collbench: the same MPI call timed by plain C, with the same gate and the same statistic.
 *
 *     mpicc -O2 -o native_floor native_floor.c && mpirun -n 2 native_floor allreduce 2000 5 8 65536
 *
 * Arguments: allreduce or bcast, samples, warm-ups, sizes in bytes. float32, sum, root 0, MPI_THREAD_SINGLE. Rank 0
 * prints one line of JSON per size. It shares no code with collbench, and follows its rules, number for number:
 * timing/_loop.c, timing/gates.py, timing/stops.py, run/measure.py.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PILOT = 30, FIRST_BATCH = 10, LARGEST_BATCH = 2000, PAGE = 4096, TOLERANCE = 200 }; /* the last in ns */
static const int64_t SMALLEST_SLACK = 1000, LARGEST_SLACK = 20000000;                      /* ns */
static const double LATE_SHARE = 0.05, LONGEST_BATCH = 0.5;                                /* of a batch; s */

typedef struct {
    int broadcasts;
    int count;
    float *send, *receive;
} operation;

typedef struct {
    int64_t *entered, *left;
    uint8_t *late;
} stamps;

static MPI_Comm control; /* what is not timed travels here, so that it does not meet what is timed */
static int rank, ranks;
static int64_t start; /* what the announcement carries */

static inline int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline void perform(const operation *o) {
    if (o->broadcasts)
        MPI_Bcast(o->receive, o->count, MPI_FLOAT, 0, MPI_COMM_WORLD);
    else
        MPI_Allreduce(o->send, o->receive, o->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

/* The round-time gate; returns the announced start. */
static inline int64_t pass(int64_t slack) {
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) start = now() + slack;
    MPI_Bcast(&start, 1, MPI_INT64_T, 0, MPI_COMM_WORLD);
    while (now() < start) {
    }
    return start;
}

static void take(const operation *o, int64_t slack, int n, stamps s) {
    for (int i = 0; i < n; i++) {
        int64_t target = pass(slack), in = now();
        perform(o);
        s.left[i] = now();
        s.entered[i] = in;
        s.late[i] = in > target + TOLERANCE;
    }
}

static int ascending(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Sorts the values; interpolates linearly between neighbours, as NumPy's quantile does. */
static double quantile(int64_t *values, int n, double q) {
    qsort(values, (size_t)n, sizeof *values, ascending);
    double place = q * (n - 1);
    int below = (int)place;
    return values[below] + (below + 1 < n ? (place - below) * (double)(values[below + 1] - values[below]) : 0.0);
}

/* Twice the ninth decile of the announcement's delay on the slowest rank, without the first ten. */
static int64_t pilot_slack(void) {
    int64_t delays[PILOT], slowest;
    for (int i = 0; i < PILOT; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0) start = now();
        MPI_Bcast(&start, 1, MPI_INT64_T, 0, MPI_COMM_WORLD);
        delays[i] = now() - start;
    }
    slowest = (int64_t)quantile(delays + PILOT / 3, PILOT - PILOT / 3, 0.9);
    MPI_Allreduce(MPI_IN_PLACE, &slowest, 1, MPI_INT64_T, MPI_MAX, control);
    int64_t slack = 2 * slowest > SMALLEST_SLACK ? 2 * slowest : SMALLEST_SLACK;
    return slack < LARGEST_SLACK ? slack : LARGEST_SLACK;
}

static int next_batch(int left, int done, double seconds) {
    if (done == 0) return left < FIRST_BATCH ? left : FIRST_BATCH;
    int batch = seconds > 0 && LONGEST_BATCH * done / seconds < LARGEST_BATCH ? (int)(LONGEST_BATCH * done / seconds)
                                                                              : LARGEST_BATCH;
    if (batch > left) batch = left;
    return batch > 1 || left == 0 ? batch : 1;
}

/* Rank 0 hears of late samples and decides size and slack of the next batch. Returns the slack in force at the end. */
static int64_t take_all(const operation *o, int64_t slack, int n, stamps s) {
    int64_t began = now(), decision[2] = {0, slack};
    int batch = 0;
    for (int done = 0;;) {
        int late = 0, most_late;
        for (int i = done - batch; i < done; i++) late += s.late[i];
        MPI_Reduce(&late, &most_late, 1, MPI_INT, MPI_MAX, 0, control);
        if (rank == 0) {
            if (most_late > LATE_SHARE * batch) decision[1] *= 2;
            if (decision[1] > LARGEST_SLACK) decision[1] = LARGEST_SLACK;
            decision[0] = next_batch(n - done, done, (double)(now() - began) * 1e-9);
        }
        MPI_Bcast(decision, 2, MPI_INT64_T, 0, control);
        if ((batch = (int)decision[0]) == 0) return decision[1];
        take(o, decision[1], batch, (stamps){s.entered + done, s.left + done, s.late + done});
        done += batch;
    }
}

static void *allocate(size_t size) {
    void *found = aligned_alloc(PAGE, (size + PAGE - 1) / PAGE * PAGE);
    if (found == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
    return found;
}

/* Small whole numbers, whose sums are exact. */
static float value(int of_rank, int i) { return (float)((i * 31 + of_rank * 17) % 127); }

/* Writes every page, performs the operation once, returns how many elements are wrong here. */
static int wrong_elements(const operation *o) {
    memset(o->receive, 0xFF, (size_t)o->count * sizeof(float));
    float *input = o->broadcasts ? o->receive : o->send;
    if (!o->broadcasts || rank == 0)
        for (int i = 0; i < o->count; i++) input[i] = value(rank, i);
    perform(o);
    int wrong = 0;
    for (int i = 0; i < o->count; i++) {
        float expected = value(0, i);
        for (int r = 1; r < ranks && !o->broadcasts; r++) expected += value(r, i);
        wrong += o->receive[i] != expected;
    }
    return wrong;
}

/* Rank 0 prints the size's line: a sample is last rank out minus first rank in, and counts if no rank was late. */
static void report(const char *name, const operation *o, int64_t slack, int n, stamps s) {
    size_t all = (size_t)n * (size_t)ranks;
    int64_t *entered = allocate(all * 8), *left = allocate(all * 8), *valid = allocate((size_t)n * 8);
    uint8_t *late = allocate(all);
    MPI_Gather(s.entered, n, MPI_INT64_T, entered, n, MPI_INT64_T, 0, control);
    MPI_Gather(s.left, n, MPI_INT64_T, left, n, MPI_INT64_T, 0, control);
    MPI_Gather(s.late, n, MPI_UINT8_T, late, n, MPI_UINT8_T, 0, control);
    int kept = 0;
    for (int i = 0; rank == 0 && i < n; i++) {
        int64_t in = entered[i], out = left[i];
        int is_late = 0;
        for (int r = 0; r < ranks; r++) {
            int64_t *e = entered + (size_t)r * (size_t)n + i, *l = left + (size_t)r * (size_t)n + i;
            in = *e < in ? *e : in;
            out = *l > out ? *l : out;
            is_late |= late[(size_t)r * (size_t)n + (size_t)i];
        }
        if (!is_late) valid[kept++] = out - in;
    }
    if (rank == 0 && kept == 0) printf("{\"error\": \"every sample was late at the gate\"}\n");
    double median = kept > 0 ? quantile(valid, kept, 0.5) * 1e-9 : 0.0; /* also sorts */
    if (rank == 0 && kept > 0)
        printf("{\"collective\": \"%s\", \"bytes\": %d, \"p50\": %.4e, \"min\": %.4e, \"samples\": %d, \"invalid\": %d, "
               "\"slack_ns\": %lld}\n",
               name, o->count * (int)sizeof(float), median, (double)valid[0] * 1e-9, n, n - kept, (long long)slack);
    free(entered), free(left), free(valid), free(late);
}

static void measure(const char *name, int broadcasts, int size, int n, int warmups) {
    int count = size / (int)sizeof(float);
    operation o = {broadcasts, count, broadcasts ? NULL : allocate((size_t)size), allocate((size_t)size)};
    stamps s = {allocate((size_t)n * 8), allocate((size_t)n * 8), allocate((size_t)n)}, dry = s;
    memset(s.entered, 0, (size_t)n * 8), memset(s.left, 0, (size_t)n * 8), memset(s.late, 0, (size_t)n);
    int wrong = wrong_elements(&o);
    int64_t slack = pilot_slack();
    take(&o, slack, warmups < n ? warmups : n, dry);
    slack = take_all(&o, slack, n, s);
    wrong += wrong_elements(&o);
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_SUM, control);
    if (wrong && rank == 0) fprintf(stderr, "native_floor: %d elements are wrong\n", wrong);
    if (wrong) MPI_Abort(MPI_COMM_WORLD, 1);
    report(name, &o, slack, n, s);
    free(o.send), free(o.receive), free(s.entered), free(s.left), free(s.late);
}

int main(int argc, char **argv) {
    int granted;
    if (argc < 5 || (strcmp(argv[1], "allreduce") && strcmp(argv[1], "bcast")) || atoi(argv[2]) < 1) {
        fprintf(stderr, "usage: native_floor allreduce|bcast SAMPLES WARMUPS BYTES...\n");
        return 2;
    }
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SINGLE, &granted);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_dup(MPI_COMM_WORLD, &control);
    for (int i = 4; i < argc; i++)
        measure(argv[1], !strcmp(argv[1], "bcast"), atoi(argv[i]), atoi(argv[2]), atoi(argv[3]));
    MPI_Comm_free(&control);
    MPI_Finalize();
    return 0;
}
