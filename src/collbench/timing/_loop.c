/* The native timing loop: gate, clock, calls, completion, clock, n times, into arrays.
 *
 * An operation is a row of stages, a stage a row of calls; between stages the clock is read. A sample is one operation,
 * or a burst of them with one completion at its end.
 * A function of any C library is called through its address with its arguments as machine words. On the two ABIs that
 * this file accepts (System V x86-64 and AAPCS64 on Linux) integer and pointer arguments travel in 64-bit registers and
 * stack slots, so that a function of integers and pointers can be called as a function of words. No MPI header, no
 * libffi: one binary serves every library.
 */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#if !defined(__linux__) || !(defined(__x86_64__) || defined(__aarch64__))
#error "the native loop knows the calling conventions of Linux on x86-64 and AArch64 only"
#endif

enum { MOST_WORDS = 12, MOST_CALLS = 4096, MOST_STAGES = 8 };
enum { GATE_NONE = 0, GATE_BARRIER = 1, GATE_ROUNDTIME = 2 };

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
    volatile int64_t *start; /* what the announcement carries */
    invocation barrier;
    invocation announce;
} gate;

/* Returns the library's error code. After a round-time gate *target is the announced start, else 0. */
static inline int pass(const gate *g, int64_t *target) {
    int code;
    *target = 0;
    if (g->kind == GATE_NONE) return 0;
    if ((code = invoke(&g->barrier)) || g->kind == GATE_BARRIER) return code;
    if (g->announces) *g->start = now() + g->slack;
    if ((code = invoke(&g->announce))) return code;
    *target = *g->start;
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
    int code, failed; /* the error, and the number of the call that returned it; -1: the gate, -2: reading the device */
} outcome;

/* Another thread sets `halt` before it frees what the calls use (timing/halt.py). From then on none is made here; that
   this thread stays is written there (2), because the other one waits for it: it may sit between the look and the call. */
static inline void stay_if_halted(int32_t *halt) {
    const struct timespec nap = {0, 20000000};
    if (!__atomic_load_n(halt, __ATOMIC_ACQUIRE)) return;
    __atomic_store_n(halt, 2, __ATOMIC_RELEASE);
    while (__atomic_load_n(halt, __ATOMIC_ACQUIRE)) nanosleep(&nap, NULL);
}

static inline int perform(const operation *o, int32_t *halt, int64_t *marks, int *failed) {
    int code, i = 0;
    for (int stage = 0; stage < o->stages; stage++) {
        for (; i < o->end[stage]; i++) {
            stay_if_halted(halt);
            if ((code = invoke(&o->call[i]))) {
                *failed = i;
                return code;
            }
        }
        if (marks && stage + 1 < o->stages) marks[stage] = now();
    }
    return 0;
}

static void measure_samples(const gate *g, const operation *o, const invocation *completion, int64_t burst,
                            const invocation *reading, const volatile float *elapsed, int32_t *halt, int64_t n,
                            outcome *r) {
    for (r->done = 0; r->done < n; r->done++) {
        int64_t target, in, out, i = r->done;
        int64_t *marks = r->marks ? r->marks + i * (o->stages - 1) : NULL;
        r->failed = -1;
        if ((r->code = pass(g, &target))) return;
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

/* (address, word, word, ...) or None */
static int read_invocation(PyObject *tuple, invocation *c, const char *what) {
    memset(c, 0, sizeof *c);
    c->words = -1;
    if (tuple == Py_None) return 0;
    if (!PyTuple_Check(tuple)) {
        PyErr_Format(PyExc_TypeError, "%s: expected a tuple (address, words...) or None", what);
        return -1;
    }
    Py_ssize_t size = PyTuple_Size(tuple);
    if (size < 1 || size > 1 + MOST_WORDS) {
        PyErr_Format(PyExc_ValueError, "%s: a call takes an address and at most %d words", what, MOST_WORDS);
        return -1;
    }
    for (Py_ssize_t i = 0; i < size; i++) {
        word value = (word)PyLong_AsUnsignedLongLongMask(PyTuple_GetItem(tuple, i));
        if (PyErr_Occurred()) return -1;
        if (i == 0)
            c->address = value;
        else
            c->argument[i - 1] = value;
    }
    if (c->address == 0) {
        PyErr_Format(PyExc_ValueError, "%s: the address is zero", what);
        return -1;
    }
    c->words = (int)size - 1;
    return 0;
}

/* ((call, call, ...), (call, ...), ...): stages of calls */
static int read_operation(PyObject *stages, operation *o) {
    memset(o, 0, sizeof *o);
    if (!PyTuple_Check(stages) || PyTuple_Size(stages) < 1 || PyTuple_Size(stages) > MOST_STAGES) {
        PyErr_Format(PyExc_TypeError, "stages: expected a tuple of 1 to %d stages", MOST_STAGES);
        return -1;
    }
    o->stages = (int)PyTuple_Size(stages);
    for (int s = 0; s < o->stages; s++) {
        PyObject *calls = PyTuple_GetItem(stages, s);
        if (!PyTuple_Check(calls) || o->calls + PyTuple_Size(calls) > MOST_CALLS) {
            PyErr_Format(PyExc_TypeError, "stages: a stage is a tuple of calls, %d at most in all", MOST_CALLS);
            return -1;
        }
        o->calls += (int)PyTuple_Size(calls);
        o->end[s] = o->calls;
    }
    o->call = calloc((size_t)o->calls + 1, sizeof *o->call);
    if (o->call == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (int s = 0, i = 0; s < o->stages; s++)
        for (Py_ssize_t j = 0; i < o->end[s]; i++, j++) {
            if (read_invocation(PyTuple_GetItem(PyTuple_GetItem(stages, s), j), &o->call[i], "call")) return -1;
            if (o->call[i].words < 0) {
                PyErr_SetString(PyExc_TypeError, "call: must not be None");
                return -1;
            }
        }
    return 0;
}

/* Borrows a writable buffer of `length` bytes; None gives NULL where it may be absent. */
static int borrow(PyObject *from, Py_buffer *view, Py_ssize_t length, const char *what) {
    view->obj = NULL;
    view->buf = NULL;
    if (from == Py_None) return 0;
    if (PyObject_GetBuffer(from, view, PyBUF_WRITABLE)) return -1;
    if (view->len == length) return 0;
    PyErr_Format(PyExc_ValueError, "%s: has %zd bytes, and %zd are needed", what, view->len, length);
    return -1;
}

static int read_gate(PyObject *tuple, gate *g, Py_buffer *start) {
    PyObject *barrier, *announce, *buffer;
    long long slack, tolerance;
    if (!PyArg_ParseTuple(tuple, "iOOOpLL;gate: (kind, barrier, announce, start, announces, slack, tolerance)",
                          &g->kind, &barrier, &announce, &buffer, &g->announces, &slack, &tolerance))
        return -1;
    g->slack = slack;
    g->tolerance = tolerance;
    if (read_invocation(barrier, &g->barrier, "barrier") || read_invocation(announce, &g->announce, "announce"))
        return -1;
    if (g->kind < GATE_NONE || g->kind > GATE_ROUNDTIME || (g->kind >= GATE_BARRIER && g->barrier.words < 0) ||
        (g->kind == GATE_ROUNDTIME && g->announce.words < 0)) {
        PyErr_SetString(PyExc_ValueError, "gate: this kind needs a barrier, and roundtime an announcement too");
        return -1;
    }
    if (PyObject_GetBuffer(buffer, start, PyBUF_WRITABLE)) return -1;
    if (start->len < (Py_ssize_t)sizeof(int64_t)) {
        PyErr_SetString(PyExc_ValueError, "gate: start needs 8 bytes");
        return -1;
    }
    g->start = (volatile int64_t *)start->buf;
    return 0;
}

PyDoc_STRVAR(measure_doc,
             "measure(stages, completion, gate, burst, entered, left, late, marks, reading, device,"
             " halt) -> (done, code, failed)\n\n"
             "Time the operation n times, where n is the length of the writable buffer late (uint8). entered and left\n"
             "take n int64 in nanoseconds of CLOCK_MONOTONIC, marks (or None) n x (stages - 1). A sample is burst\n"
             "operations and one completion. reading is None, or (call, address): after each sample the call leaves a\n"
             "float there that goes into device (n float). Stops at the first call that returns other than 0: code,\n"
             "and failed is that call's number (the completion's comes last; -1 the gate, -2 the reading). Once halt (int32\n"
             "in a writable buffer) is not 0, the next call waits until it is 0 again. The interpreter lock is released\n"
             "meanwhile.");

enum { ENTERED, LEFT, LATE, MARKS, DEVICE, HALT, BUFFERS };

static int read_reading(PyObject *tuple, invocation *reading, const volatile float **elapsed) {
    reading->words = -1;
    if (tuple == Py_None) return 0;
    if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != 2) {
        PyErr_SetString(PyExc_TypeError, "reading: (call, address of a float) or None");
        return -1;
    }
    if (read_invocation(PyTuple_GetItem(tuple, 0), reading, "reading")) return -1;
    *elapsed = (const volatile float *)(word)PyLong_AsUnsignedLongLongMask(PyTuple_GetItem(tuple, 1));
    return PyErr_Occurred() ? -1 : 0;
}

static PyObject *measure(PyObject *module, PyObject *args) {
    PyObject *stages, *completion_words, *gate_fields, *reading_fields, *given[BUFFERS];
    invocation completion, reading;
    operation o = {0};
    gate g;
    Py_buffer start = {0}, view[BUFFERS] = {{0}};
    const volatile float *elapsed = NULL;
    long long burst;
    PyObject *result = NULL;
    (void)module;
    if (!PyArg_ParseTuple(args, "OOO!LOOOOOOO:measure", &stages, &completion_words, &PyTuple_Type, &gate_fields, &burst,
                          &given[ENTERED], &given[LEFT], &given[LATE], &given[MARKS], &reading_fields, &given[DEVICE],
                          &given[HALT]))
        return NULL;
    if (read_operation(stages, &o) || read_invocation(completion_words, &completion, "completion") ||
        read_reading(reading_fields, &reading, &elapsed) || read_gate(gate_fields, &g, &start))
        goto release;
    if (burst < 1 || (burst > 1 && o.stages > 1)) {
        PyErr_SetString(PyExc_ValueError, "burst: 1 or more, and 1 where stages are told apart");
        goto release;
    }
    if (PyObject_GetBuffer(given[LATE], &view[LATE], PyBUF_WRITABLE)) goto release;
    const Py_ssize_t n = view[LATE].len, wide = n * (Py_ssize_t)sizeof(int64_t);
    if (borrow(given[ENTERED], &view[ENTERED], wide, "entered") || borrow(given[LEFT], &view[LEFT], wide, "left") ||
        borrow(given[MARKS], &view[MARKS], wide * (o.stages - 1), "marks") ||
        borrow(given[DEVICE], &view[DEVICE], n * (Py_ssize_t)sizeof(float), "device") ||
        borrow(given[HALT], &view[HALT], sizeof(int32_t), "halt"))
        goto release;
    if (!view[ENTERED].buf || !view[LEFT].buf || !view[HALT].buf ||
        (view[DEVICE].buf && (reading.words < 0 || elapsed == NULL))) {
        PyErr_SetString(PyExc_ValueError, "entered, left and halt are needed, and a reading where device is given");
        goto release;
    }
    outcome r = {.entered = view[ENTERED].buf, .left = view[LEFT].buf, .marks = view[MARKS].buf,
                 .late = view[LATE].buf, .device = view[DEVICE].buf};
    Py_BEGIN_ALLOW_THREADS
    measure_samples(&g, &o, &completion, burst, &reading, elapsed, view[HALT].buf, n, &r);
    Py_END_ALLOW_THREADS
    result = Py_BuildValue("Lii", (long long)r.done, r.code, r.failed);
release:
    for (int i = 0; i < BUFFERS; i++)
        if (view[i].obj) PyBuffer_Release(&view[i]);
    if (start.obj) PyBuffer_Release(&start);
    free(o.call);
    return result;
}

/* A limit for C calls that keep the interpreter lock, as MPI_Init does: a thread that needs no interpreter. */
typedef struct {
    int generation;
    int64_t deadline;
    int code;
    char text[1024];
} limit;

static volatile int generation; /* a limit of an older generation has been lifted */

static void *keep_limit(void *argument) {
    limit *l = argument;
    struct timespec nap = {0, 20000000};
    while (generation == l->generation && now() < l->deadline) nanosleep(&nap, NULL);
    if (generation == l->generation) {
        if (write(2, l->text, strlen(l->text)) < 0) _exit(l->code);
        _exit(l->code);
    }
    free(l);
    return NULL;
}

PyDoc_STRVAR(set_limit_doc,
             "set_limit(seconds, text, code)\n\n"
             "Unless lift_limit is called within that time, write text to standard error and end the process with code.\n"
             "Replaces the limit before.");

static PyObject *set_limit(PyObject *module, PyObject *args) {
    double seconds;
    const char *text;
    int code;
    pthread_t thread;
    (void)module;
    if (!PyArg_ParseTuple(args, "dsi:set_limit", &seconds, &text, &code)) return NULL;
    limit *l = calloc(1, sizeof *l);
    if (l == NULL) return PyErr_NoMemory();
    l->generation = ++generation;
    l->deadline = now() + (int64_t)(seconds * 1e9);
    l->code = code;
    strncpy(l->text, text, sizeof l->text - 1);
    if (pthread_create(&thread, NULL, keep_limit, l)) {
        free(l);
        PyErr_SetString(PyExc_OSError, "no thread for the limit");
        return NULL;
    }
    pthread_detach(thread);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(lift_limit_doc, "lift_limit()\n\nLet the process live.");

static PyObject *lift_limit(PyObject *module, PyObject *args) {
    (void)module, (void)args;
    generation++;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {{"measure", measure, METH_VARARGS, measure_doc},
                                {"set_limit", set_limit, METH_VARARGS, set_limit_doc},
                                {"lift_limit", lift_limit, METH_NOARGS, lift_limit_doc},
                                {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_loop", "The native timing loop.", 0, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__loop(void) { return PyModule_Create(&definition); }
