/* How far apart two cores are now: the time of a cache line's way there and back, in ns, smallest of several batches.
 *
 *     cc -O2 -pthread -o core_distance core_distance.c && ./core_distance 0 1
 *
 * On a virtual machine the answer changes by a factor of three while it runs, as its cores are moved about.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BATCHES = 20, TRIPS = 2000 };

static _Alignas(128) atomic_int ball;

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void stand_on(int core) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(core, &cores);
    if (sched_setaffinity(0, sizeof cores, &cores)) exit(1);
}

static void *partner(void *core) {
    stand_on(*(int *)core);
    for (int i = 0; i < BATCHES * TRIPS; i++) {
        while (atomic_load_explicit(&ball, memory_order_acquire) != 1) {
        }
        atomic_store_explicit(&ball, 0, memory_order_release);
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    int here = atoi(argv[1]), there = atoi(argv[2]);
    int64_t best = INT64_MAX;
    pthread_t thread;
    stand_on(here);
    if (pthread_create(&thread, NULL, partner, &there)) return 1;
    for (int batch = 0; batch < BATCHES; batch++) {
        int64_t began = now();
        for (int i = 0; i < TRIPS; i++) {
            atomic_store_explicit(&ball, 1, memory_order_release);
            while (atomic_load_explicit(&ball, memory_order_acquire) != 0) {
            }
        }
        int64_t took = now() - began;
        best = took < best ? took : best;
    }
    pthread_join(thread, NULL);
    printf("%.1f\n", (double)best / TRIPS);
    return 0;
}
