// Bandwidth of puts from one PE to another, block by block, warp by warp or thread by thread.
//   nvcc -rdc=true -std=c++17 -arch=sm_90 shmem_put_bw.cu -I$NVSHMEM_DIR/include -L$NVSHMEM_DIR/lib -lnvshmem_device
//        -lnvshmem_host -o shmem_put_bw
#include "perftest.h"

__global__ void put_bw(double *data, size_t doubles, int peer, size_t iterations, Scope scope, unsigned *arrived) {
    const size_t thread = blockIdx.x * (size_t)blockDim.x + threadIdx.x, warps = blockDim.x / 32;
    const size_t parts = scope == kBlock ? gridDim.x : scope == kWarp ? gridDim.x * warps : gridDim.x * blockDim.x;
    const size_t number = scope == kBlock ? blockIdx.x : scope == kWarp ? thread / 32 : thread;
    const size_t share = doubles / parts;
    double *mine = data + number * share;
    for (size_t i = 0; i < iterations; ++i) {
        if (scope == kBlock) {
            nvshmemx_double_put_nbi_block(mine, mine, share, peer);
        } else if (scope == kWarp) {
            nvshmemx_double_put_nbi_warp(mine, mine, share, peer);
        } else {
            nvshmem_double_put_nbi(mine, mine, share, peer);
        }
        meet_of_blocks(arrived, (unsigned)i + 1);
    }
    if (threadIdx.x == 0) nvshmem_quiet();
}

int main(int count, char **arguments) {
    const Options options = read_options(count, arguments);
    start();
    const char *name = options.both_ways ? "shmem_put_bw_bidi" : "shmem_put_bw_uni";
    const int me = nvshmem_my_pe();
    double *data = (double *)nvshmem_malloc(options.max_bytes), *sum = (double *)nvshmem_malloc(2 * sizeof *sum);
    unsigned *arrived = nullptr;
    cudaMalloc(&arrived, sizeof *arrived);
    title(name, "BW (GB/sec)");
    for (size_t bytes = options.min_bytes; bytes <= options.max_bytes; bytes *= options.step) {
        const auto run = [&](size_t iterations) {
            cudaMemset(arrived, 0, sizeof *arrived);
            return timed([&] {
                put_bw<<<(unsigned)options.blocks, (unsigned)options.threads>>>(data, bytes / sizeof *data, 1 - me,
                                                                                iterations, options.scope, arrived);
            });
        };
        nvshmem_barrier_all();
        double gb_s = 0;
        if (me == 0 || options.both_ways) {
            run(options.warmup);
            const float ms = run(options.iterations);
            gb_s = (double)bytes / (ms * (1e9 / ((double)options.iterations * 1000)));
        }
        nvshmem_barrier_all();
        if (options.both_ways) {
            cudaMemcpy(sum, &gb_s, sizeof gb_s, cudaMemcpyDefault);
            nvshmem_double_sum_reduce(NVSHMEM_TEAM_WORLD, sum + 1, sum, 1);
            cudaMemcpy(&gb_s, sum + 1, sizeof gb_s, cudaMemcpyDefault);
        }
        row(name, "None", bytes, "BW", gb_s, "GB/sec", "+");
    }
    cudaFree(arrived);
    nvshmem_free(sum);
    nvshmem_free(data);
    nvshmem_finalize();
    return 0;
}
