/* The Python module of the native timing loop: arguments in, results out, and a time limit. The loop is in
 * `_loop_timed.h`.
 */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "_loop_timed.h"

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

/* A view of a writable buffer of `length` bytes; None gives NULL. */
static int borrow(PyObject *from, Py_buffer *view, Py_ssize_t length, const char *what) {
    view->obj = NULL;
    view->buf = NULL;
    if (from == Py_None) return 0;
    if (PyObject_GetBuffer(from, view, PyBUF_WRITABLE)) return -1;
    if (view->len == length) return 0;
    PyErr_Format(PyExc_ValueError, "%s: has %zd bytes; needs %zd", what, view->len, length);
    return -1;
}

static int read_alignment(PyObject *tuple, alignment *g, Py_buffer *start) {
    PyObject *barrier, *announce, *buffer;
    long long slack, tolerance, offset = 0, origin = 0;
    g->slope = 0;
    if (!PyArg_ParseTuple(tuple,
                          "iOOOpLL|LdL;align: (kind, barrier, announce, start, announces, slack, tolerance[, offset,"
                          " slope, origin])",
                          &g->kind, &barrier, &announce, &buffer, &g->announces, &slack, &tolerance, &offset, &g->slope,
                          &origin))
        return -1;
    g->slack = slack;
    g->tolerance = tolerance;
    g->offset = offset;
    g->origin = origin;
    if (read_invocation(barrier, &g->barrier, "barrier") || read_invocation(announce, &g->announce, "announce"))
        return -1;
    if (g->kind < ALIGN_NONE || g->kind > ALIGN_ROUNDTIME || (g->kind >= ALIGN_BARRIER && g->barrier.words < 0) ||
        (g->kind == ALIGN_ROUNDTIME && g->announce.words < 0)) {
        PyErr_SetString(PyExc_ValueError, "align: this kind needs a barrier, and roundtime an announcement too");
        return -1;
    }
    if (PyObject_GetBuffer(buffer, start, PyBUF_WRITABLE)) return -1;
    if (start->len < (Py_ssize_t)sizeof(int64_t)) {
        PyErr_SetString(PyExc_ValueError, "align: start needs 8 bytes");
        return -1;
    }
    g->start = (volatile int64_t *)start->buf;
    return 0;
}

PyDoc_STRVAR(measure_doc,
             "measure(stages, completion, align, burst, entered, left, late, marks, reading, device,"
             " halt) -> (done, code, failed)\n\n"
             "Time the operation n times, where n is the length of the writable buffer late (uint8). entered and left\n"
             "take n int64 in nanoseconds of CLOCK_MONOTONIC, marks (or None) n x (stages - 1). A sample is burst\n"
             "operations and one completion. reading is None, or (call, address): after each sample the call leaves a\n"
             "float there that goes into device (n float). Stops at the first call that returns other than 0: code,\n"
             "and failed is that call's number (the completion's comes last; -1 lining up, -2 the reading). Once halt\n"
             "(int32 in a writable buffer) is not 0, the next call waits until it is 0 again. The interpreter lock is\n"
             "released meanwhile.");

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
    PyObject *stages, *completion_words, *align_fields, *reading_fields, *given[BUFFERS];
    invocation completion, reading;
    operation o = {0};
    alignment g;
    Py_buffer start = {0}, view[BUFFERS] = {{0}};
    const volatile float *elapsed = NULL;
    long long burst;
    PyObject *result = NULL;
    (void)module;
    if (!PyArg_ParseTuple(args, "OOO!LOOOOOOO:measure", &stages, &completion_words, &PyTuple_Type, &align_fields,
                          &burst, &given[ENTERED], &given[LEFT], &given[LATE], &given[MARKS], &reading_fields, &given[DEVICE],
                          &given[HALT]))
        return NULL;
    if (read_operation(stages, &o) || read_invocation(completion_words, &completion, "completion") ||
        read_reading(reading_fields, &reading, &elapsed) || read_alignment(align_fields, &g, &start))
        goto release;
    if (burst < 1 || (burst > 1 && o.stages > 1)) {
        PyErr_SetString(PyExc_ValueError, "burst: at least 1, and 1 where an operation has several stages");
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

PyDoc_STRVAR(exchange_doc,
             "exchange(send, receive, cell, n, before, theirs, after) -> (done, code)\n\n"
             "Exchange clocks with another rank n times. send and receive are calls that move the 8 bytes of the\n"
             "writable buffer cell. Who asks gives three writable buffers of n int64: its CLOCK_MONOTONIC in ns before\n"
             "each question, the other's in between, its own after the answer; who answers gives None three times.\n"
             "Stops at the first call that returns other than 0: code. The interpreter lock is released meanwhile.");

static PyObject *exchange(PyObject *module, PyObject *args) {
    PyObject *send_words, *receive_words, *given[4];
    invocation send, receive;
    Py_buffer view[4] = {{0}};
    long long n;
    int64_t done = 0;
    int code = 0;
    PyObject *result = NULL;
    (void)module;
    if (!PyArg_ParseTuple(args, "OOOLOOO:exchange", &send_words, &receive_words, &given[0], &n, &given[1], &given[2],
                          &given[3]) ||
        read_invocation(send_words, &send, "send") || read_invocation(receive_words, &receive, "receive"))
        return NULL;
    for (int i = 0; i < 4; i++)
        if (borrow(given[i], &view[i], (i ? n : 1) * (Py_ssize_t)sizeof(int64_t), i ? "times" : "cell")) goto release;
    if (send.words < 0 || receive.words < 0 || !view[0].buf || !view[1].buf != !view[2].buf ||
        !view[1].buf != !view[3].buf) {
        PyErr_SetString(PyExc_ValueError, "exchange: needs send, receive and cell, and all three times or none");
        goto release;
    }
    Py_BEGIN_ALLOW_THREADS
    done = exchange_clocks(&send, &receive, view[0].buf, n, view[1].buf, view[2].buf, view[3].buf, &code);
    Py_END_ALLOW_THREADS
    result = Py_BuildValue("Li", (long long)done, code);
release:
    for (int i = 0; i < 4; i++)
        if (view[i].obj) PyBuffer_Release(&view[i]);
    return result;
}

/* A time limit for C calls that hold the interpreter lock, as MPI_Init does: a thread that needs no interpreter. */
typedef struct {
    int generation;
    int64_t deadline;
    int code;
    char text[1024];
} limit;

static volatile int generation; /* limits of older generations were cancelled or replaced */

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
             "Replaces an earlier limit.");

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
        PyErr_SetString(PyExc_OSError, "cannot start the thread that keeps the limit");
        return NULL;
    }
    pthread_detach(thread);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(lift_limit_doc, "lift_limit()\n\nCancel the limit.");

static PyObject *lift_limit(PyObject *module, PyObject *args) {
    (void)module, (void)args;
    generation++;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {{"measure", measure, METH_VARARGS, measure_doc},
                                {"exchange", exchange, METH_VARARGS, exchange_doc},
                                {"set_limit", set_limit, METH_VARARGS, set_limit_doc},
                                {"lift_limit", lift_limit, METH_NOARGS, lift_limit_doc},
                                {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_loop", "The native timing loop.", 0, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__loop(void) { return PyModule_Create(&definition); }
