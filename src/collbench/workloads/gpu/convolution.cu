/* The convolution of a square image of floats with a separable filter of 2 RADIUS + 1 taps: along the rows, then along
 * the columns. Outside the image there are zeros.
 *
 * Each block keeps what its outputs depend on in shared memory. `columns` is run by blocks of WIDTH threads along x and
 * LINES along y, each of which computes STEPS outputs, one below the other, LINES apart.
 */

enum { RADIUS = 8, WIDTH = 32, LINES = 8, STEPS = 8, SPAN = 256, HEIGHT = LINES * STEPS };

/* As nobody would get them right by accident: not symmetrical. */
__constant__ float TAPS[2 * RADIUS + 1] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2};

/* Blocks of SPAN threads along x, each of which computes an output. */
extern "C" __global__ void rows(const float *in, float *out, int side) {
    __shared__ float pixels[SPAN + 2 * RADIUS];
    const int first = blockIdx.x * SPAN - RADIUS, column = blockIdx.x * SPAN + threadIdx.x;
    const float *row = in + (size_t)blockIdx.y * side;
    for (int i = threadIdx.x; i < SPAN + 2 * RADIUS; i += SPAN)
        pixels[i] = first + i >= 0 && first + i < side ? row[first + i] : 0.0f;
    __syncthreads();
    if (column >= side) return;
    float sum = 0.0f;
    for (int tap = -RADIUS; tap <= RADIUS; tap++) sum += TAPS[RADIUS + tap] * pixels[threadIdx.x + RADIUS - tap];
    out[(size_t)blockIdx.y * side + column] = sum;
}

extern "C" __global__ void columns(const float *in, float *out, int side) {
    __shared__ float pixels[HEIGHT + 2 * RADIUS][WIDTH];
    const int first = blockIdx.y * HEIGHT - RADIUS, column = blockIdx.x * WIDTH + threadIdx.x;
    for (int i = threadIdx.y; i < HEIGHT + 2 * RADIUS; i += LINES) {
        const int row = first + i;
        pixels[i][threadIdx.x] = column < side && row >= 0 && row < side ? in[(size_t)row * side + column] : 0.0f;
    }
    __syncthreads();
    for (int i = threadIdx.y; i < HEIGHT; i += LINES) {
        const int row = blockIdx.y * HEIGHT + i;
        if (column >= side || row >= side) return;
        float sum = 0.0f;
        for (int tap = -RADIUS; tap <= RADIUS; tap++) sum += TAPS[RADIUS + tap] * pixels[i + RADIUS - tap][threadIdx.x];
        out[(size_t)row * side + column] = sum;
    }
}
