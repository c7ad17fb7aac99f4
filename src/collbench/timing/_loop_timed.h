/* The timed part of the native loop: line up, clock, calls, completion, clock, n times, into arrays. Nothing here knows
 * Python; `_loop.c` includes it, so that both are one translation unit.
 *
 * An operation is a sequence of stages, a stage a sequence of calls; between stages the clock is read. A sample is one
 * operation, or a burst of operations with one completion at its end.
 * A function of any C library is called through its address with its arguments as machine words. On the two ABIs that
 * this file accepts (System V x86-64 and AAPCS64 on Linux) integer and pointer arguments travel in 64-bit registers and
 * stack slots, so that a function of integers and pointers can be called as a function of words. No MPI header, no
 * libffi: one binary serves every library.
 */
#include <stdint.h>
#include <time.h>

#if !defined(__linux__) || !(defined(__x86_64__) || defined(__aarch64__))
#error "the native loop knows the calling conventions of Linux on x86-64 and AArch64 only"
#endif

enum { MOST_WORDS = 12, MOST_CALLS = 4096, MOST_STAGES = 8 };
enum { ALIGN_NONE = 0, ALIGN_BARRIER = 1, ALIGN_ROUNDTIME = 2 };

typedef uintptr_t word;

typedef struct {
    int words; /* -1: no call */
    word address;
    word argument[MOST_WORDS];
} invocation;

static inline int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline int invoke(const invocation *c) {
    const word *a = c->argument;
    switch (c->words) {
    case 0: return ((int (*)(void))c->address)();
    case 1: return ((int (*)(word))c->address)(a[0]);
    case 2: return ((int (*)(word, word))c->address)(a[0], a[1]);
    case 3: return ((int (*)(word, word, word))c->address)(a[0], a[1], a[2]);
    case 4: return ((int (*)(word, word, word, word))c->address)(a[0], a[1], a[2], a[3]);
    case 5: return ((int (*)(word, word, word, word, word))c->address)(a[0], a[1], a[2], a[3], a[4]);
    case 6:
        return ((int (*)(word, word, word, word, word, word))c->address)(a[0], a[1], a[2], a[3], a[4], a[5]);
    case 7:
        return ((int (*)(word, word, word, word, word, word, word))c->address)(a[0], a[1], a[2], a[3], a[4], a[5],
                                                                               a[6]);
    case 8:
        return ((int (*)(word, word, word, word, word, word, word, word))c->address)(a[0], a[1], a[2], a[3], a[4],
                                                                                     a[5], a[6], a[7]);
    case 9:
        return ((int (*)(word, word, word, word, word, word, word, word, word))c->address)(
            a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8]);
    case 10:
        return ((int (*)(word, word, word, word, word, word, word, word, word, word))c->address)(
            a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9]);
    case 11:
        return ((int (*)(word, word, word, word, word, word, word, word, word, word, word))c->address)(
            a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10]);
    case 12:
        return ((int (*)(word, word, word, word, word, word, word, word, word, word, word, word))c->address)(
            a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11]);
    default: return 0;
    }
}

typedef struct {
    int kind;
    int announces;
    int64_t slack;
    int64_t tolerance;
    volatile int64_t *start; /* what the announcement carries, on the root's clock */
    int64_t offset, origin;  /* this rank's clock is ahead by offset when the root's shows origin, by slope more per ns */
    double slope;
    invocation barrier;
    invocation announce;
} alignment;

/* Returns the library's error code. With round time *target is the announced start on this clock, else 0. */
static inline int line_up(const alignment *g, int64_t *target) {
    int code;
    *target = 0;
    if (g->kind == ALIGN_NONE) return 0;
    if ((code = invoke(&g->barrier)) || g->kind == ALIGN_BARRIER) return code;
    if (g->announces) *g->start = now() + g->slack;
    if ((code = invoke(&g->announce))) return code;
    *target = *g->start + g->offset + (int64_t)(g->slope * (double)(*g->start - g->origin));
    while (now() < *target) {
    }
    return 0;
}

typedef struct {
    invocation *call; /* of all stages, one after the other */
    int calls;
    int stages;
    int end[MOST_STAGES]; /* where each stage's calls end */
} operation;

/* What one call of `measure` writes; `marks` [n, stages - 1] and `device` [n] may be absent. */
typedef struct {
    int64_t *entered, *left, *marks;
    uint8_t *late;
    float *device;
    int64_t done;
    int code, failed; /* the error, and the number of its call; -1: lining up, -2: reading the device */
} outcome;

/* Another thread sets `halt` before it frees what the calls use (`Halt`). From then on this thread makes no call:
   it blocks here, and writes 2 to say so, because the other thread waits until no call can be about to begin. */
static inline void block_if_halted(int32_t *halt) {
    const struct timespec nap = {0, 20000000};
    if (!__atomic_load_n(halt, __ATOMIC_ACQUIRE)) return;
    __atomic_store_n(halt, 2, __ATOMIC_RELEASE);
    while (__atomic_load_n(halt, __ATOMIC_ACQUIRE)) nanosleep(&nap, NULL);
}

static inline int perform(const operation *o, int32_t *halt, int64_t *marks, int *failed) {
    int code, i = 0;
    for (int stage = 0; stage < o->stages; stage++) {
        for (; i < o->end[stage]; i++) {
            block_if_halted(halt);
            if ((code = invoke(&o->call[i]))) {
                *failed = i;
                return code;
            }
        }
        if (marks && stage + 1 < o->stages) marks[stage] = now();
    }
    return 0;
}

static void measure_samples(const alignment *g, const operation *o, const invocation *completion, int64_t burst,
                            const invocation *reading, const volatile float *elapsed, int32_t *halt, int64_t n,
                            outcome *r) {
    for (r->done = 0; r->done < n; r->done++) {
        int64_t target, in, out, i = r->done;
        int64_t *marks = r->marks ? r->marks + i * (o->stages - 1) : NULL;
        r->failed = -1;
        if ((r->code = line_up(g, &target))) return;
        in = now();
        for (int64_t b = 0; b < burst; b++)
            if ((r->code = perform(o, halt, marks, &r->failed))) return;
        if (completion->words >= 0 && (r->code = invoke(completion))) {
            r->failed = o->calls;
            return;
        }
        out = now();
        r->entered[i] = in;
        r->left[i] = out;
        r->late[i] = target != 0 && in > target + g->tolerance;
        if (r->device == NULL) continue;
        r->failed = -2;
        if ((r->code = invoke(reading))) return;
        r->device[i] = *elapsed;
    }
}

/* n messages of 8 bytes there and back between two ranks; returns how many went well, and the error of the next. With
 * `before` this rank asks, and keeps its clock before and after and the other's in between; without it, it answers. */
static int64_t exchange_clocks(const invocation *send, const invocation *receive, volatile int64_t *cell, int64_t n,
                               int64_t *before, int64_t *theirs, int64_t *after, int *code) {
    for (int64_t i = 0; i < n; i++) {
        if (before) {
            before[i] = now();
            if ((*code = invoke(send)) || (*code = invoke(receive))) return i;
            after[i] = now();
            theirs[i] = *cell;
        } else {
            if ((*code = invoke(receive))) return i;
            *cell = now();
            if ((*code = invoke(send))) return i;
        }
    }
    return n;
}
