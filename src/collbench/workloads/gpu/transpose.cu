/* Two copies and six ways to transpose a square matrix of floats, by blocks of TILE x ROWS threads that each take a tile
 * of TILE x TILE. `side` is a multiple of TILE.
 *
 * The names are those of NVIDIA's sample. The two before the last show what a transpose consists of, and are none:
 * `coarse_grained` moves each tile to its transposed place as it is, `fine_grained` transposes each tile where it is.
 */

#define ELEMENT(row, column) ((size_t)(row)*side + (column))

/* The column and the row of this thread in the matrix, by those of its tile, and the rows further down that it takes. */
#define COLUMN(of_tiles) ((of_tiles)*TILE + threadIdx.x)
#define ROW(of_tiles) ((of_tiles)*TILE + threadIdx.y)
#define EACH_ROW(i) for (int i = 0; i < TILE; i += ROWS)

extern "C" __global__ void simple_copy(const float *in, float *out, int side) {
    EACH_ROW(i) out[ELEMENT(ROW(blockIdx.y) + i, COLUMN(blockIdx.x))] = in[ELEMENT(ROW(blockIdx.y) + i, COLUMN(blockIdx.x))];
}

extern "C" __global__ void shared_memory_copy(const float *in, float *out, int side) {
    __shared__ float tile[TILE][TILE];
    EACH_ROW(i) tile[threadIdx.y + i][threadIdx.x] = in[ELEMENT(ROW(blockIdx.y) + i, COLUMN(blockIdx.x))];
    __syncthreads();
    EACH_ROW(i) out[ELEMENT(ROW(blockIdx.y) + i, COLUMN(blockIdx.x))] = tile[threadIdx.y + i][threadIdx.x];
}

/* Threads that are neighbours write far from each other. */
extern "C" __global__ void naive(const float *in, float *out, int side) {
    EACH_ROW(i) out[ELEMENT(COLUMN(blockIdx.x), ROW(blockIdx.y) + i)] = in[ELEMENT(ROW(blockIdx.y) + i, COLUMN(blockIdx.x))];
}

/* Neighbours write side by side, and read a column of shared memory, which lies in one bank. */
extern "C" __global__ void coalesced(const float *in, float *out, int side) {
    __shared__ float tile[TILE][TILE];
    EACH_ROW(i) tile[threadIdx.y + i][threadIdx.x] = in[ELEMENT(ROW(blockIdx.y) + i, COLUMN(blockIdx.x))];
    __syncthreads();
    EACH_ROW(i) out[ELEMENT(ROW(blockIdx.x) + i, COLUMN(blockIdx.y))] = tile[threadIdx.x][threadIdx.y + i];
}

/* A column of shared memory is spread over the banks. */
extern "C" __global__ void optimized(const float *in, float *out, int side) {
    __shared__ float tile[TILE][TILE + 1];
    EACH_ROW(i) tile[threadIdx.y + i][threadIdx.x] = in[ELEMENT(ROW(blockIdx.y) + i, COLUMN(blockIdx.x))];
    __syncthreads();
    EACH_ROW(i) out[ELEMENT(ROW(blockIdx.x) + i, COLUMN(blockIdx.y))] = tile[threadIdx.x][threadIdx.y + i];
}

extern "C" __global__ void coarse_grained(const float *in, float *out, int side) {
    __shared__ float tile[TILE][TILE + 1];
    EACH_ROW(i) tile[threadIdx.y + i][threadIdx.x] = in[ELEMENT(ROW(blockIdx.y) + i, COLUMN(blockIdx.x))];
    __syncthreads();
    EACH_ROW(i) out[ELEMENT(ROW(blockIdx.x) + i, COLUMN(blockIdx.y))] = tile[threadIdx.y + i][threadIdx.x];
}

extern "C" __global__ void fine_grained(const float *in, float *out, int side) {
    __shared__ float tile[TILE][TILE + 1];
    EACH_ROW(i) tile[threadIdx.y + i][threadIdx.x] = in[ELEMENT(ROW(blockIdx.y) + i, COLUMN(blockIdx.x))];
    __syncthreads();
    EACH_ROW(i) out[ELEMENT(ROW(blockIdx.y) + i, COLUMN(blockIdx.x))] = tile[threadIdx.x][threadIdx.y + i];
}

/* Blocks that run at a time lie on a diagonal, so that they read and write in different partitions of the memory. */
extern "C" __global__ void diagonal(const float *in, float *out, int side) {
    __shared__ float tile[TILE][TILE + 1];
    const int y = blockIdx.x, x = (blockIdx.x + blockIdx.y) % gridDim.x;
    EACH_ROW(i) tile[threadIdx.y + i][threadIdx.x] = in[ELEMENT(ROW(y) + i, COLUMN(x))];
    __syncthreads();
    EACH_ROW(i) out[ELEMENT(ROW(x) + i, COLUMN(y))] = tile[threadIdx.x][threadIdx.y + i];
}
