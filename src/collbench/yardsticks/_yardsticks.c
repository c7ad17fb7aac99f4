/* What cores are like now, measured by threads: one bound to each core. The calling thread sleeps, and stays where it is.
 *
 * Threads are joined before a function returns. Each wait ends at a deadline; a thread whose core never runs it is then
 * let onto the cores of the caller, where it sees that it is to stop.
 */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <Python.h>

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { HERE = 0, THERE = 1, OVER = 2, SPINS = 4096, MOST_CORES = 4096, AGAIN = 20000000 /* ns */ };

typedef struct team team;

typedef struct {
    team *all;
    pthread_t thread;
    int number, core, started, error;
    int64_t began, ended;
} member;

struct team {
    member *members;
    int count;
    void (*work)(member *);
    size_t amount;
    int repeats;
    int64_t deadline;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    int running;
    atomic_int arrived, stop;
    _Alignas(128) atomic_int ball; /* alone in its cache line */
};

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int is_over(team *all) {
    return atomic_load_explicit(&all->stop, memory_order_relaxed) || now() > all->deadline;
}

/* Whether the ball came here; not where the game is over, by who holds it or by the deadline. */
static int await_ball(team *all, int here) {
    for (;;) {
        for (int i = 0; i < SPINS; i++) {
            int ball = atomic_load_explicit(&all->ball, memory_order_acquire);
            if (ball == here) return 1;
            if (ball == OVER) return 0;
        }
        if (is_over(all)) return 0;
    }
}

/* Of the first member, the shortest batch of trips there and back. */
static void exchange(member *m) {
    team *all = m->all;
    if (m->number == 1) {
        while (await_ball(all, THERE)) atomic_store_explicit(&all->ball, HERE, memory_order_release);
        return;
    }
    for (int batch = 0; batch < all->repeats; batch++) {
        int64_t began = now();
        for (size_t trip = 0; trip < all->amount; trip++) {
            atomic_store_explicit(&all->ball, THERE, memory_order_release);
            if (!await_ball(all, HERE)) break;
        }
        int64_t ended = now();
        if (is_over(all)) break;
        if (m->ended == 0 || ended - began < m->ended - m->began) m->began = began, m->ended = ended;
    }
    atomic_store_explicit(&all->ball, OVER, memory_order_release);
}

/* A chain of multiplications and additions, each of which waits for the one before. */
static void compute(member *m) {
    uint64_t x = (uint64_t)m->number;
    m->began = now();
    for (int piece = 0; piece < m->all->repeats; piece++) {
        for (size_t i = 0; i < m->all->amount; i++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            __asm__ volatile("" : "+r"(x));
        }
        if (is_over(m->all)) return;
    }
    m->ended = now();
}

/* Whether all are here. */
static int meet(team *all) {
    atomic_fetch_add(&all->arrived, 1);
    while (atomic_load(&all->arrived) < all->count) {
        if (is_over(all)) return 0;
        sched_yield();
    }
    return 1;
}

static void copy(member *m) {
    size_t bytes = m->all->amount;
    char *from = mmap(NULL, 2 * bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (from == MAP_FAILED) {
        m->error = errno, atomic_store(&m->all->stop, 1);
        return;
    }
    memset(from, 1, 2 * bytes); /* its pages are near the core that touches them first */
    int round = 0;
    if (meet(m->all))
        for (m->began = now(); round < m->all->repeats && !is_over(m->all); round++) {
            memcpy(from + bytes, from, bytes);
            __asm__ volatile("" : : "r"(from) : "memory");
        }
    if (round == m->all->repeats) m->ended = now();
    munmap(from, 2 * bytes);
}

static void *run_member(void *given) {
    member *m = given;
    team *all = m->all;
    cpu_set_t cores;
    CPU_ZERO(&cores);
    if (m->core < CPU_SETSIZE) CPU_SET(m->core, &cores);
    if (sched_setaffinity(0, sizeof cores, &cores)) m->error = errno, atomic_store(&all->stop, 1);
    else if (all->work == copy || meet(all)) all->work(m); /* who copies meets the others with pages in place */
    pthread_mutex_lock(&all->lock);
    all->running--;
    pthread_cond_signal(&all->ended);
    pthread_mutex_unlock(&all->lock);
    return NULL;
}

static struct timespec time_of(int64_t ns) { return (struct timespec){ns / 1000000000, ns % 1000000000}; }

/* Let threads that are late onto the caller's cores, again and again: one may just have bound itself to its own. */
static void wait_for_all(team *all) {
    cpu_set_t own;
    int known = !pthread_getaffinity_np(pthread_self(), sizeof own, &own);
    struct timespec until = time_of(all->deadline);
    pthread_mutex_lock(&all->lock);
    while (all->running) {
        if (pthread_cond_timedwait(&all->ended, &all->lock, &until) != ETIMEDOUT) continue;
        atomic_store(&all->stop, 1);
        for (int i = 0; i < all->count && known; i++)
            if (all->members[i].started) pthread_setaffinity_np(all->members[i].thread, sizeof own, &own);
        until = time_of(now() + AGAIN);
    }
    pthread_mutex_unlock(&all->lock);
}

/* Start all, wait for them, join them. 0, or the errno of the first that failed. */
static int run_team(team *all) {
    sigset_t every, before;
    pthread_condattr_t monotonic;
    int error = 0;
    pthread_mutex_init(&all->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&all->ended, &monotonic);
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before); /* signals are the caller's */
    pthread_mutex_lock(&all->lock);
    for (int i = 0; i < all->count; i++) {
        member *m = &all->members[i];
        int failed = pthread_create(&m->thread, NULL, run_member, m); /* else m->error is the thread's */
        if (failed) m->error = failed, atomic_store(&all->stop, 1);
        m->started = !failed;
        all->running += !failed;
    }
    pthread_mutex_unlock(&all->lock);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    wait_for_all(all);
    for (int i = 0; i < all->count; i++) {
        if (all->members[i].started) pthread_join(all->members[i].thread, NULL);
        if (!error) error = all->members[i].error;
    }
    pthread_cond_destroy(&all->ended);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_destroy(&all->lock);
    return error;
}

static const struct {
    const char *name;
    void (*work)(member *);
} WORKS[] = {{"exchange", exchange}, {"compute", compute}, {"copy", copy}};

/* The team of a request, or 0 with an exception. */
static int parsed(PyObject *args, team *all) {
    const char *name;
    PyObject *cores;
    Py_ssize_t amount;
    double limit;
    if (!PyArg_ParseTuple(args, "sO!nid:run", &name, &PyTuple_Type, &cores, &amount, &all->repeats, &limit)) return 0;
    for (size_t i = 0; i < sizeof WORKS / sizeof *WORKS; i++)
        if (!strcmp(name, WORKS[i].name)) all->work = WORKS[i].work;
    Py_ssize_t count = PyTuple_Size(cores);
    int fits = all->work == exchange ? count == 2 : count > 0 && count <= MOST_CORES;
    if (!all->work || !fits || amount <= 0 || all->repeats <= 0 || !(limit > 0 && limit < 1e6)) {
        PyErr_SetString(PyExc_ValueError, "no such work, too few or too many cores, or nothing to do");
        return 0;
    }
    all->members = calloc((size_t)count, sizeof *all->members);
    if (!all->members) return PyErr_NoMemory() != NULL;
    all->count = (int)count, all->amount = (size_t)amount, all->deadline = now() + (int64_t)(limit * 1e9);
    for (int i = 0; i < count; i++) {
        long core = PyLong_AsLong(PyTuple_GetItem(cores, i));
        all->members[i] = (member){.all = all, .number = i, .core = core < 0 || core > CPU_SETSIZE ? CPU_SETSIZE : (int)core};
        if (PyErr_Occurred()) return free(all->members), 0;
    }
    return 1;
}

PyDoc_STRVAR(run_doc,
             "run(work, cores, amount, repeats, limit)\n\nBegin and end (ns) of the work of each core, all at once. "
             "exchange: of two cores, the shortest of batches of `amount` trips. compute: steps of a fixed loop. copy: "
             "a block of `amount` bytes.\n\nOSError: EINVAL for a core that may not be used, ETIMEDOUT after limit s, "
             "ENOMEM, EAGAIN.");

static PyObject *run(PyObject *module, PyObject *args) {
    team all = {.count = 0};
    PyObject *found = NULL;
    int error;
    (void)module;
    if (!parsed(args, &all)) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    error = run_team(&all);
    Py_END_ALLOW_THREADS;
    int counted = all.work == exchange ? 1 : all.count;
    for (int i = 0; i < counted && !error; i++) error = all.members[i].ended ? 0 : ETIMEDOUT;
    if (error) errno = error, PyErr_SetFromErrno(PyExc_OSError);
    else found = PyTuple_New(counted);
    for (int i = 0; i < counted && found; i++) {
        member *m = &all.members[i];
        PyObject *pair = Py_BuildValue("LL", (long long)m->began, (long long)m->ended);
        if (!pair || PyTuple_SetItem(found, i, pair)) Py_CLEAR(found);
    }
    free(all.members);
    return found;
}

static PyMethodDef methods[] = {{"run", run, METH_VARARGS, run_doc}, {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_yardsticks", "What cores are like now.", 0, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__yardsticks(void) { return PyModule_Create(&definition); }
