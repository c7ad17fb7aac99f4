/* How often each value occurs among bytes, in BINS bins: a histogram of each block, and then their sum.
 *
 * Every warp of a block counts in a histogram of its own, so that fewer threads wait for each other's additions.
 */

enum { WARP = 32, WARPS = THREADS / WARP };

extern "C" __global__ void of_blocks(const unsigned int *words, unsigned int *partial, int length) {
    __shared__ unsigned int counts[WARPS][BINS];
    const int thread = threadIdx.x, warp = thread / WARP;
    for (int i = thread; i < WARPS * BINS; i += THREADS) counts[i / BINS][i % BINS] = 0;
    __syncthreads();
    for (int i = blockIdx.x * THREADS + thread; i < length; i += gridDim.x * THREADS) {
        const unsigned int four = words[i];
        for (int shift = 0; shift < 32; shift += 8) atomicAdd(&counts[warp][(four >> shift & 255) * BINS / 256], 1u);
    }
    __syncthreads();
    for (int bin = thread; bin < BINS; bin += THREADS) {
        unsigned int sum = 0;
        for (int i = 0; i < WARPS; i++) sum += counts[i][bin];
        partial[blockIdx.x * BINS + bin] = sum;
    }
}

/* One block for each bin; THREADS is a power of two. */
extern "C" __global__ void of_all(const unsigned int *partial, unsigned int *histogram, int blocks) {
    __shared__ unsigned int sums[THREADS];
    const int thread = threadIdx.x;
    unsigned int sum = 0;
    for (int block = thread; block < blocks; block += THREADS) sum += partial[block * BINS + blockIdx.x];
    sums[thread] = sum;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (thread < half) sums[thread] += sums[thread + half];
    }
    if (thread == 0) histogram[blockIdx.x] = sums[0];
}
