/* The floor under collbench: the same MPI call timed by plain C, with the same align and the same statistic.
 *
 *     mpicc -O2 -o native_floor native_floor.c && mpirun -n 2 native_floor allreduce,bcast 1000 5 8 65536
 *
 * Arguments: allreduce, bcast or both, samples, warm-ups, sizes in bytes. float32, sum, root 0, MPI_THREAD_SINGLE. Rank 0
 * prints one line of JSON per size. It shares no code with collbench, and follows its rules, number for number:
 * timing/_loop_timed.h, timing/alignments.py, timing/stops.py, run/measure.py.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PILOT = 500, UNSTEADY = 10, JUDGED = 100, FIRST_BATCH = 10, LARGEST_BATCH = 2000, PAGE = 4096, TOLERANCE = 200 }; /* the last in ns */
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

/* The round-time align; returns the announced start. */
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
    slowest = (int64_t)quantile(delays + UNSTEADY, PILOT - UNSTEADY, 0.9);
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

/* Slack of the next batch after `late` of n: doubled while that lowers the share of late samples, as in collbench. */
static int64_t next_slack(int64_t slack, int late, int n) {
    static int64_t before = 0;
    static double share_before;
    static int late_sum = 0, sum = 0, helps = 1;
    late_sum += late, sum += n;
    if (sum < JUDGED) return slack;
    double share = (double)late_sum / sum;
    late_sum = sum = 0;
    if (before > 0 && share > 0.8 * share_before) {
        slack = before, before = 0, helps = 0;
    } else {
        before = helps && share > LATE_SHARE ? slack : 0, share_before = share;
        if (before > 0) slack *= 2;
    }
    return slack < LARGEST_SLACK ? slack : LARGEST_SLACK;
}

/* Batches; between them rank 0 hears of late samples and decides size and slack of the next. */
static void take_all(const operation *o, int64_t slack, int n, stamps s) {
    int64_t began = now(), decision[2] = {0, slack};
    int batch = 0;
    for (int done = 0;;) {
        int late = 0, most_late;
        for (int i = done - batch; i < done; i++) late += s.late[i];
        MPI_Reduce(&late, &most_late, 1, MPI_INT, MPI_MAX, 0, control);
        if (rank == 0) {
            decision[1] = next_slack(decision[1], most_late, batch);
            decision[0] = next_batch(n - done, done, (double)(now() - began) * 1e-9);
        }
        MPI_Bcast(decision, 2, MPI_INT64_T, 0, control);
        if ((batch = (int)decision[0]) == 0) return;
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
static float value(int of_rank, int i) { return (float)(((unsigned)i * 31u + (unsigned)of_rank * 17u) % 127u); }

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

/* All ranks' stamps on rank 0, [ranks, n]. */
static void gather(stamps mine, stamps all, int n) {
    MPI_Gather(mine.entered, n, MPI_INT64_T, all.entered, n, MPI_INT64_T, 0, control);
    MPI_Gather(mine.left, n, MPI_INT64_T, all.left, n, MPI_INT64_T, 0, control);
    MPI_Gather(mine.late, n, MPI_UINT8_T, all.late, n, MPI_UINT8_T, 0, control);
}

/* A sample is last rank out minus first rank in, and counts if no rank was late. Returns how many count. */
static int valid_samples(stamps all, int n, int64_t *valid) {
    int kept = 0;
    for (int i = 0; i < n; i++) {
        int64_t in = all.entered[i], out = all.left[i];
        int is_late = 0;
        for (int place = i; place < n * ranks; place += n) {
            in = all.entered[place] < in ? all.entered[place] : in;
            out = all.left[place] > out ? all.left[place] : out;
            is_late |= all.late[place];
        }
        if (!is_late) valid[kept++] = out - in;
    }
    return kept;
}

static stamps allocate_stamps(int n) {
    stamps s = {allocate((size_t)n * 8), allocate((size_t)n * 8), allocate((size_t)n)};
    memset(s.entered, 0, (size_t)n * 8), memset(s.left, 0, (size_t)n * 8), memset(s.late, 0, (size_t)n);
    return s;
}

static void free_stamps(stamps s) { free(s.entered), free(s.left), free(s.late); }

/* Rank 0 prints the line of one size; p50 is 0 where every sample was late. */
static void report(const char *name, int size, stamps mine, int n) {
    stamps all = allocate_stamps(n * ranks);
    int64_t *valid = allocate((size_t)n * 8);
    gather(mine, all, n);
    if (rank == 0) {
        int kept = valid_samples(all, n, valid);
        double median = kept ? quantile(valid, kept, 0.5) * 1e-9 : 0.0;
        printf("{\"collective\": \"%s\", \"bytes\": %d, \"p50\": %.5e, \"samples\": %d, \"invalid\": %d}\n", name, size,
               median, n, n - kept);
    }
    free(valid);
    free_stamps(all);
}

static void measure(const char *name, int broadcasts, int size, int n, int warmups) {
    int count = size / (int)sizeof(float);
    operation o = {broadcasts, count, broadcasts ? NULL : allocate((size_t)size), allocate((size_t)size)};
    stamps s = allocate_stamps(n), dry = allocate_stamps(warmups);
    int wrong = wrong_elements(&o);
    int64_t slack = pilot_slack();
    take(&o, slack, warmups, dry);
    take_all(&o, slack, n, s);
    wrong += wrong_elements(&o);
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_SUM, control);
    if (wrong && rank == 0) fprintf(stderr, "native_floor: %d elements are wrong\n", wrong);
    if (wrong) MPI_Abort(MPI_COMM_WORLD, 1);
    report(name, size, s, n);
    free(o.send), free(o.receive), free_stamps(s), free_stamps(dry);
}

int main(int argc, char **argv) {
    static const char *const names[] = {"allreduce", "bcast"};
    int granted;
    if (argc < 5 || atoi(argv[2]) < 1) {
        fprintf(stderr, "usage: native_floor allreduce,bcast SAMPLES WARMUPS BYTES...\n");
        return 2;
    }
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SINGLE, &granted);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_dup(MPI_COMM_WORLD, &control);
    for (int broadcasts = 0; broadcasts < 2; broadcasts++)
        for (int i = 4; i < argc && strstr(argv[1], names[broadcasts]); i++)
            measure(names[broadcasts], broadcasts, atoi(argv[i]), atoi(argv[2]), atoi(argv[3]));
    MPI_Comm_free(&control);
    MPI_Finalize();
    return 0;
}
