/* The loads of the workload `chase`: a random cycle through the lines of a buffer, each of which has the next address. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include <stdint.h>
#include <time.h>

/* A writable buffer of lines; places are numbers of lines. */
typedef struct {
    Py_buffer view;
    char *first;
    size_t line, n;
} lines;

static int take(lines *x, PyObject *buffer, Py_ssize_t line) {
    if (PyObject_GetBuffer(buffer, &x->view, PyBUF_WRITABLE)) return 0;
    x->first = x->view.buf, x->line = (size_t)line, x->n = line > 0 ? (size_t)(x->view.len / line) : 0;
    if (x->n >= 1 && line % (Py_ssize_t)sizeof(char *) == 0 && (uintptr_t)x->first % sizeof(char *) == 0) return 1;
    PyErr_SetString(PyExc_ValueError, "no whole line, or lines that addresses are not aligned in");
    PyBuffer_Release(&x->view);
    return 0;
}

static char **at(const lines *x, size_t place) { return (char **)(x->first + place * x->line); }

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* splitmix64: G. Steele, D. Lea, C. Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014. */
static uint64_t random_number(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

PyDoc_STRVAR(link_doc,
             "link(buffer, line, seed)\n\nMake one random cycle through all lines (S. Sattolo, \"An algorithm to generate "
             "a random cyclic permutation\", Information Processing Letters 22, 1986).");

static PyObject *link_lines(PyObject *module, PyObject *args) {
    PyObject *buffer;
    Py_ssize_t line;
    unsigned long long seed;
    lines x;
    (void)module;
    if (!PyArg_ParseTuple(args, "OnK:link", &buffer, &line, &seed) || !take(&x, buffer, line)) return NULL;
    uint64_t state = seed;
    for (size_t i = 0; i < x.n; i++) *at(&x, i) = (char *)at(&x, i);
    for (size_t i = x.n - 1; i > 0; i--) {
        size_t j = (size_t)(random_number(&state) % i);
        char *swapped = *at(&x, i);
        *at(&x, i) = *at(&x, j), *at(&x, j) = swapped;
    }
    PyBuffer_Release(&x.view);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(lap_doc,
             "lap(buffer, line)\n\nFrom the first line until it comes again, at most as many loads as there are lines: "
             "how many they were, and the sum of the places (modulo 2^64).");

static PyObject *lap(PyObject *module, PyObject *args) {
    PyObject *buffer;
    Py_ssize_t line;
    lines x;
    (void)module;
    if (!PyArg_ParseTuple(args, "On:lap", &buffer, &line) || !take(&x, buffer, line)) return NULL;
    size_t loads = 0;
    uint64_t sum = 0;
    char *here = x.first;
    do {
        here = *(char **)here, loads++;
        sum += (uint64_t)(here - x.first) / x.line;
    } while (here != x.first && loads < x.n);
    PyBuffer_Release(&x.view);
    return Py_BuildValue("nK", (Py_ssize_t)loads, (unsigned long long)sum);
}

PyDoc_STRVAR(chase_doc,
             "chase(buffer, line, place, loads)\n\nSo many loads from a place on, each of the address that the one before "
             "loaded: nanoseconds, and the place where they end.");

static PyObject *chase(PyObject *module, PyObject *args) {
    PyObject *buffer;
    Py_ssize_t line, place, loads;
    lines x;
    (void)module;
    if (!PyArg_ParseTuple(args, "Onnn:chase", &buffer, &line, &place, &loads) || !take(&x, buffer, line)) return NULL;
    if (place < 0 || (size_t)place >= x.n) {
        PyErr_SetString(PyExc_ValueError, "no such place");
        PyBuffer_Release(&x.view);
        return NULL;
    }
    char *here = (char *)at(&x, (size_t)place);
    int64_t began = now();
    for (Py_ssize_t i = 0; i < loads; i++) here = *(char *volatile *)here;
    __asm__ volatile("" : : "r"(here)); /* the last one has come before the clock is read */
    int64_t ended = now();
    PyBuffer_Release(&x.view);
    return Py_BuildValue("Ln", (long long)(ended - began), (Py_ssize_t)((size_t)(here - x.first) / x.line));
}

static PyMethodDef methods[] = {{"link", link_lines, METH_VARARGS, link_doc},
                                {"lap", lap, METH_VARARGS, lap_doc},
                                {"chase", chase, METH_VARARGS, chase_doc},
                                {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_chase", "The loads of chase.", 0, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__chase(void) { return PyModule_Create(&definition); }
