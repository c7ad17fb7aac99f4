/* What a CUDA kernel is written with, for a compiler of the host: each block runs in this process, its threads one after
 * the other, each until its next barrier. Shared memory has no value before a block writes it. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <ucontext.h>

#include <tuple>
#include <utility>
#include <vector>

struct dim3 {
    unsigned x, y, z;
};

static dim3 threadIdx, blockIdx, blockDim, gridDim;

#define __global__
#define __device__
#define __constant__ static const
#define __shared__ static __attribute__((section("shared_memory")))

static unsigned atomicAdd(unsigned *address, unsigned value) {
    const unsigned before = *address;
    *address = before + value;
    return before;
}

static ucontext_t scheduler;
static std::vector<ucontext_t> threads;
static size_t current;

static void __syncthreads() { swapcontext(&threads[current], &scheduler); }

/* Always there, so that the section is. */
__shared__ unsigned char any_shared_memory[1] __attribute__((used));
extern "C" unsigned char __start_shared_memory[], __stop_shared_memory[];

/* The device's own view of an address that it was given; does not return where it is not the device's. */
typedef uint64_t (*translation)(uint64_t);

template <class T> T argument(void *parameter, translation) {
    T value;
    memcpy(&value, parameter, sizeof value);
    return value;
}
template <class T> T *pointer_argument(void *parameter, translation seen) {
    uint64_t address;
    memcpy(&address, parameter, sizeof address);
    return (T *)seen(address);
}
template <class T> struct Taken {
    static T from(void *parameter, translation seen) { return argument<T>(parameter, seen); }
};
template <class T> struct Taken<T *> {
    static T *from(void *parameter, translation seen) { return pointer_argument<T>(parameter, seen); }
};

struct Bound {
    virtual void call() = 0;
    virtual ~Bound() {}
};
template <class... A> struct BoundTo : Bound {
    void (*kernel)(A...);
    std::tuple<A...> *values;
    template <size_t... I> void with(std::index_sequence<I...>) { kernel(std::get<I>(*values)...); }
    void call() override { with(std::index_sequence_for<A...>()); }
};

static Bound *running;
static std::vector<char> done;

static void one_thread() {
    const size_t self = current;
    running->call();
    done[self] = 1;
}

static void run_block(Bound &bound, unsigned count) {
    enum { STACK = 1 << 15 };
    static std::vector<char> stacks;
    stacks.resize((size_t)STACK * count);
    threads.assign(count, ucontext_t());
    done.assign(count, 0);
    memset(__start_shared_memory, 0xA5, __stop_shared_memory - __start_shared_memory);
    running = &bound;
    for (unsigned i = 0; i < count; i++) {
        getcontext(&threads[i]);
        threads[i].uc_stack.ss_sp = &stacks[(size_t)STACK * i];
        threads[i].uc_stack.ss_size = STACK;
        threads[i].uc_link = &scheduler;
        makecontext(&threads[i], one_thread, 0);
    }
    for (unsigned left = count; left > 0;) {
        left = 0;
        for (unsigned i = 0; i < count; i++) {
            if (done[i]) continue;
            current = i;
            threadIdx = {i % blockDim.x, i / blockDim.x, 0};
            swapcontext(&scheduler, &threads[i]);
            left += !done[i];
        }
    }
}

template <class... A, size_t... I>
void run_with(void (*kernel)(A...), void **parameters, translation seen, std::index_sequence<I...>) {
    std::tuple<A...> values(Taken<A>::from(parameters[I], seen)...);
    BoundTo<A...> bound;
    bound.kernel = kernel;
    bound.values = &values;
    for (unsigned y = 0; y < gridDim.y; y++)
        for (unsigned x = 0; x < gridDim.x; x++) {
            blockIdx = {x, y, 0};
            run_block(bound, blockDim.x * blockDim.y);
        }
}

template <class... A>
void run_grid(void (*kernel)(A...), const unsigned *shape, void **parameters, translation seen) {
    gridDim = {shape[0], shape[1], 1};
    blockDim = {shape[2], shape[3], 1};
    run_with(kernel, parameters, seen, std::index_sequence_for<A...>());
}

template <class... A> constexpr int arity(void (*)(A...)) { return sizeof...(A); }

#define ON_HOST(kernel)                                                                                            \
    extern "C" int arity_of_##kernel() { return arity(kernel); }                                                   \
    extern "C" void run_##kernel(const unsigned *shape, void **parameters, translation seen) {                     \
        run_grid(kernel, shape, parameters, seen);                                                                 \
    }
