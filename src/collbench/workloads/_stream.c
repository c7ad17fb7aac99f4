/* The kernels of the workload `stream` on arrays of doubles: copy, scale, add, triad, and their check. One thread. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include <math.h>
#include <stdint.h>
#include <time.h>

#define SCALAR 3.0

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

PyDoc_STRVAR(fill_doc, "fill(a, b, c)\n\nThe values that the kernels start from: 1, 2 and 0.");

static PyObject *fill(PyObject *module, PyObject *args) {
    PyObject *given[3];
    arrays x;
    (void)module;
    if (!PyArg_ParseTuple(args, "OOO:fill", &given[0], &given[1], &given[2]) || !take(&x, given)) return NULL;
    for (size_t i = 0; i < x.n; i++) x.a[i] = START[0], x.b[i] = START[1], x.c[i] = START[2];
    release(&x);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(kernels_doc, "kernels(a, b, c)\n\nEach kernel once: nanoseconds of copy, scale, add and triad.");

static PyObject *kernels(PyObject *module, PyObject *args) {
    PyObject *given[3];
    arrays x;
    int64_t t[5];
    (void)module;
    if (!PyArg_ParseTuple(args, "OOO:kernels", &given[0], &given[1], &given[2]) || !take(&x, given)) return NULL;
    t[0] = now();
    copy(x.a, x.c, x.n);
    t[1] = now();
    scale(x.b, x.c, x.n);
    t[2] = now();
    add(x.a, x.b, x.c, x.n);
    t[3] = now();
    triad(x.a, x.b, x.c, x.n);
    t[4] = now();
    release(&x);
    return Py_BuildValue("LLLL", (long long)(t[1] - t[0]), (long long)(t[2] - t[1]), (long long)(t[3] - t[2]),
                         (long long)(t[4] - t[3]));
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
