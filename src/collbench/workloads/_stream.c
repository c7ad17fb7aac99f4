/* The kernels of the workload `stream` on arrays of doubles: copy, scale, add, triad, and their check. They run on the
 * calling thread, or on threads that are each bound to a processor, on parts of the arrays that they touched first.
 */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <Python.h>

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#define SCALAR 3.0

enum { PER_LINE = 64 / sizeof(double), MOST_THREADS = 4096 };

static const double START[3] = {1.0, 2.0, 0.0};

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Not inlined, where gcc would forget `restrict`: as in stream.c, whose arrays are static, it calls memcpy. */
__attribute__((noinline)) static void copy(const double *restrict a, double *restrict c, size_t n) {
    for (size_t i = 0; i < n; i++) c[i] = a[i];
}

static void scale(double *restrict b, const double *restrict c, size_t n) {
    for (size_t i = 0; i < n; i++) b[i] = SCALAR * c[i];
}

static void add(const double *restrict a, const double *restrict b, double *restrict c, size_t n) {
    for (size_t i = 0; i < n; i++) c[i] = a[i] + b[i];
}

static void triad(double *restrict a, const double *restrict b, const double *restrict c, size_t n) {
    for (size_t i = 0; i < n; i++) a[i] = b[i] + SCALAR * c[i];
}

/* Three writable arrays of one length. */
typedef struct {
    Py_buffer view[3];
    int held;
    double *a, *b, *c;
    size_t n;
} arrays;

static void release(arrays *x) {
    while (x->held > 0) PyBuffer_Release(&x->view[--x->held]);
}

static int take(arrays *x, PyObject *const given[3]) {
    for (x->held = 0; x->held < 3; x->held++) {
        if (PyObject_GetBuffer(given[x->held], &x->view[x->held], PyBUF_WRITABLE)) {
            release(x);
            return 0;
        }
    }
    if (x->view[0].len != x->view[1].len || x->view[0].len != x->view[2].len) {
        PyErr_SetString(PyExc_ValueError, "the arrays differ in length");
        release(x);
        return 0;
    }
    x->a = x->view[0].buf, x->b = x->view[1].buf, x->c = x->view[2].buf;
    x->n = (size_t)x->view[0].len / sizeof(double);
    return 1;
}

/* Threads that meet before and after each kernel; of a single one there is no team. */
typedef struct {
    int count;
    arrays whole;
    Py_ssize_t rounds;
    int64_t (*times)[5];
    _Alignas(128) atomic_uint_fast64_t arrived; /* at all meetings together */
    _Alignas(128) atomic_int error;
} team;

typedef struct {
    team *all;
    pthread_t thread;
    int number, processor;
    uint64_t meetings;
} member;

static int failed(team *all) { return atomic_load_explicit(&all->error, memory_order_relaxed); }

/* Spin until all are here, or one of them failed. */
static void meet(member *m) {
    if (!m) return;
    uint64_t all_here = ++m->meetings * (uint64_t)m->all->count;
    atomic_fetch_add(&m->all->arrived, 1);
    while (atomic_load_explicit(&m->all->arrived, memory_order_acquire) < all_here && !failed(m->all)) continue;
}

static void start_values(arrays *x) {
    for (size_t i = 0; i < x->n; i++) x->a[i] = START[0], x->b[i] = START[1], x->c[i] = START[2];
}

/* Each kernel once on the arrays x: the time before the first, and after each. */
static void each_kernel(arrays *x, int64_t t[5], member *m) {
    meet(m), t[0] = now();
    copy(x->a, x->c, x->n);
    meet(m), t[1] = now();
    scale(x->b, x->c, x->n);
    meet(m), t[2] = now();
    add(x->a, x->b, x->c, x->n);
    meet(m), t[3] = now();
    triad(x->a, x->b, x->c, x->n);
    meet(m), t[4] = now();
}

static size_t first_of(const team *all, size_t number) {
    size_t lines = (all->whole.n + PER_LINE - 1) / PER_LINE, count = (size_t)all->count;
    size_t first = PER_LINE * (lines / count * number + lines % count * number / count);
    return first < all->whole.n ? first : all->whole.n;
}

/* Whole cache lines, of which each thread has as many as any other, or one more. */
static arrays part_of(const member *m) {
    const arrays *x = &m->all->whole;
    size_t first = first_of(m->all, (size_t)m->number), end = first_of(m->all, (size_t)m->number + 1);
    return (arrays){.a = x->a + first, .b = x->b + first, .c = x->c + first, .n = end - first};
}

static void *run_member(void *given) {
    member *m = given;
    cpu_set_t bound;
    int64_t unused[5];
    CPU_ZERO(&bound);
    if (m->processor < CPU_SETSIZE) CPU_SET(m->processor, &bound);
    if (sched_setaffinity(0, sizeof bound, &bound)) return atomic_store(&m->all->error, errno), NULL;
    arrays part = part_of(m);
    start_values(&part); /* pages are near the processor that touches them first */
    for (Py_ssize_t round = 0; round < m->all->rounds && !failed(m->all); round++)
        each_kernel(&part, m->number ? unused : m->all->times[round], m);
    return NULL;
}

/* Start all and join them. 0, or the errno of one that failed. */
static int run_team(team *all, member *members) {
    sigset_t every, before;
    int started = 0;
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before); /* signals are the caller's */
    for (int error = 0; started < all->count && !error; started += !error) {
        error = pthread_create(&members[started].thread, NULL, run_member, &members[started]);
        if (error) atomic_store(&all->error, error);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    while (started > 0) pthread_join(members[--started].thread, NULL);
    return atomic_load(&all->error);
}

PyDoc_STRVAR(fill_doc, "fill(a, b, c)\n\nThe values that the kernels start from: 1, 2 and 0.");

static PyObject *fill(PyObject *module, PyObject *args) {
    PyObject *given[3];
    arrays x;
    (void)module;
    if (!PyArg_ParseTuple(args, "OOO:fill", &given[0], &given[1], &given[2]) || !take(&x, given)) return NULL;
    start_values(&x);
    release(&x);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(kernels_doc, "kernels(a, b, c)\n\nEach kernel once: nanoseconds of copy, scale, add and triad.");

static PyObject *differences(const int64_t t[5]) {
    return Py_BuildValue("LLLL", (long long)(t[1] - t[0]), (long long)(t[2] - t[1]), (long long)(t[3] - t[2]),
                         (long long)(t[4] - t[3]));
}

static PyObject *kernels(PyObject *module, PyObject *args) {
    PyObject *given[3];
    arrays x;
    int64_t t[5];
    (void)module;
    if (!PyArg_ParseTuple(args, "OOO:kernels", &given[0], &given[1], &given[2]) || !take(&x, given)) return NULL;
    each_kernel(&x, t, NULL);
    release(&x);
    return differences(t);
}

/* A member for each processor, or NULL with an exception. */
static member *members_on(PyObject *processors, team *all) {
    Py_ssize_t count = PyTuple_Size(processors);
    if (count < 1 || count > MOST_THREADS || all->rounds < 1) {
        PyErr_SetString(PyExc_ValueError, "too few or too many processors, or no rounds");
        return NULL;
    }
    member *members = calloc((size_t)count, sizeof *members);
    if (!members) return PyErr_NoMemory(), NULL;
    all->count = (int)count;
    for (int i = 0; i < count; i++) {
        long number = PyLong_AsLong(PyTuple_GetItem(processors, i));
        if (PyErr_Occurred()) return free(members), NULL;
        int processor = number < 0 || number > CPU_SETSIZE ? CPU_SETSIZE : (int)number;
        members[i] = (member){.all = all, .number = i, .processor = processor};
    }
    return members;
}

/* What the team took, by round, or NULL with an exception. */
static PyObject *rounds_of(team *all, member *members) {
    int error;
    all->times = calloc((size_t)all->rounds, sizeof *all->times);
    if (!all->times) return PyErr_NoMemory();
    Py_BEGIN_ALLOW_THREADS;
    error = run_team(all, members);
    Py_END_ALLOW_THREADS;
    if (error) errno = error, PyErr_SetFromErrno(PyExc_OSError);
    PyObject *rounds = error ? NULL : PyList_New(all->rounds);
    for (Py_ssize_t i = 0; i < all->rounds && rounds; i++) {
        PyObject *taken = differences(all->times[i]);
        if (!taken || PyList_SetItem(rounds, i, taken)) Py_CLEAR(rounds);
    }
    free(all->times);
    return rounds;
}

PyDoc_STRVAR(bound_doc,
             "bound(a, b, c, processors, rounds)\n\n`fill`, and the kernels so many times, by a thread bound to each "
             "processor: a list of what `kernels` gives.\n\nOSError: EINVAL for a processor that may not be used, "
             "EAGAIN.");

static PyObject *bound(PyObject *module, PyObject *args) {
    PyObject *given[3], *processors, *rounds = NULL;
    team all = {.count = 0};
    (void)module;
    if (!PyArg_ParseTuple(args, "OOOO!n:bound", &given[0], &given[1], &given[2], &PyTuple_Type, &processors,
                          &all.rounds))
        return NULL;
    member *members = members_on(processors, &all);
    if (members && take(&all.whole, given)) {
        rounds = rounds_of(&all, members);
        release(&all.whole);
    }
    free(members);
    return rounds;
}

static size_t count_wrong(const double *values, size_t n, double expected, double tolerance) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++) count += !(fabs(values[i] - expected) <= tolerance * fabs(expected)); /* or NaN */
    return count;
}

PyDoc_STRVAR(wrong_doc,
             "wrong(a, b, c, rounds, tolerance)\n\n"
             "How many elements differ by more than tolerance, relatively, from the result of that many rounds.");

static PyObject *wrong(PyObject *module, PyObject *args) {
    PyObject *given[3];
    arrays x;
    int rounds;
    double tolerance, a = START[0], b = START[1], c = START[2];
    (void)module;
    if (!PyArg_ParseTuple(args, "OOOid:wrong", &given[0], &given[1], &given[2], &rounds, &tolerance)) return NULL;
    if (!take(&x, given)) return NULL;
    for (int i = 0; i < rounds; i++) c = a, b = SCALAR * c, c = a + b, a = b + SCALAR * c;
    size_t count = count_wrong(x.a, x.n, a, tolerance) + count_wrong(x.b, x.n, b, tolerance) +
                   count_wrong(x.c, x.n, c, tolerance);
    release(&x);
    return PyLong_FromSize_t(count);
}

static PyMethodDef methods[] = {{"fill", fill, METH_VARARGS, fill_doc},
                                {"kernels", kernels, METH_VARARGS, kernels_doc},
                                {"bound", bound, METH_VARARGS, bound_doc},
                                {"wrong", wrong, METH_VARARGS, wrong_doc},
                                {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_stream", "The kernels of stream.", 0, methods, NULL, NULL, NULL, NULL,
};

#ifdef __clang__
#define COMPILER __VERSION__
#else
#define COMPILER "GCC " __VERSION__
#endif

PyMODINIT_FUNC PyInit__stream(void) {
    PyObject *module = PyModule_Create(&definition);
    if (module != NULL && PyModule_AddStringConstant(module, "COMPILER", COMPILER)) Py_CLEAR(module);
    return module;
}
