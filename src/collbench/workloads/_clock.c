/* The program of the workload `container_start`: says the time at which it began, in ns of CLOCK_MONOTONIC, and ends. */

#include <stdio.h>
#include <time.h>

int main(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return printf("%lld\n", (long long)t.tv_sec * 1000000000 + t.tv_nsec) < 0;
}
