/* The native timing loop: gate, clock, call, completion, clock, n times, into arrays.
 *
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

enum { MOST_WORDS = 12 };
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

static int64_t measure_samples(const gate *g, const invocation *call, const invocation *completion, int64_t n,
                               int64_t *entered, int64_t *left, uint8_t *late, int *code) {
    for (int64_t i = 0; i < n; i++) {
        int64_t target, in, out;
        if ((*code = pass(g, &target))) return i;
        in = now();
        *code = invoke(call);
        if (completion->words >= 0 && *code == 0) *code = invoke(completion);
        out = now();
        if (*code) return i;
        entered[i] = in;
        left[i] = out;
        late[i] = target != 0 && in > target + g->tolerance;
    }
    return n;
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
        PyBuffer_Release(start);
        return -1;
    }
    g->start = (volatile int64_t *)start->buf;
    return 0;
}

PyDoc_STRVAR(measure_doc,
             "measure(call, completion, gate, entered, left, late) -> (done, code)\n\n"
             "Time call n times, where n is the length of the writable buffers entered and left (int64, nanoseconds of\n"
             "CLOCK_MONOTONIC) and late (uint8). Stops at the first call that returns other than 0. The interpreter\n"
             "lock is released meanwhile.");

static PyObject *measure(PyObject *module, PyObject *args) {
    PyObject *call_words, *completion_words, *gate_fields, *buffers[3];
    invocation call, completion;
    gate g;
    Py_buffer start, view[3];
    int held = 0, code = 0;
    int64_t done = 0;
    PyObject *result = NULL;
    (void)module;
    if (!PyArg_ParseTuple(args, "OOO!OOO:measure", &call_words, &completion_words, &PyTuple_Type, &gate_fields,
                          &buffers[0], &buffers[1], &buffers[2]))
        return NULL;
    if (read_invocation(call_words, &call, "call") || read_invocation(completion_words, &completion, "completion"))
        return NULL;
    if (call.words < 0) {
        PyErr_SetString(PyExc_TypeError, "call: must not be None");
        return NULL;
    }
    if (read_gate(gate_fields, &g, &start)) return NULL;
    for (; held < 3; held++)
        if (PyObject_GetBuffer(buffers[held], &view[held], PyBUF_WRITABLE)) goto release;
    if (view[0].len != view[1].len || view[0].len != view[2].len * (Py_ssize_t)sizeof(int64_t)) {
        PyErr_SetString(PyExc_ValueError, "entered and left hold n int64, late n uint8");
        goto release;
    }
    Py_BEGIN_ALLOW_THREADS
    done = measure_samples(&g, &call, &completion, view[2].len, (int64_t *)view[0].buf, (int64_t *)view[1].buf,
                           (uint8_t *)view[2].buf, &code);
    Py_END_ALLOW_THREADS
    result = Py_BuildValue("Li", (long long)done, code);
release:
    while (held > 0) PyBuffer_Release(&view[--held]);
    PyBuffer_Release(&start);
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
