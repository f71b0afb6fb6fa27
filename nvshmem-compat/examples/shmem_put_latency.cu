// Time of a put until it is delivered: one thread, a warp, a block.
//   nvcc -rdc=true -std=c++17 -arch=sm_90 shmem_put_latency.cu -I$NVSHMEM_DIR/include -L$NVSHMEM_DIR/lib
//        -lnvshmem_device -lnvshmem_host -o shmem_put_latency
#include "perftest.h"

__global__ void put_latency(int *data, size_t words, int peer, size_t iterations, Scope scope) {
    for (size_t i = 0; i < iterations; ++i) {
        if (scope == kBlock) {
            nvshmemx_int_put_block(data, data, words, peer);
        } else if (scope == kWarp) {
            nvshmemx_int_put_warp(data, data, words, peer);
        } else {
            nvshmem_int_put_nbi(data, data, words, peer);
        }
        __syncthreads();
        if (threadIdx.x == 0) nvshmem_quiet();
        __syncthreads();
    }
}

int main(int count, char **arguments) {
    const Options options = read_options(count, arguments);
    start();
    static const char *const names[] = {"thread", "warp", "block"};
    int *data = (int *)nvshmem_malloc(options.max_bytes);
    title("shmem_put_latency", "latency (us)");
    for (Scope scope : {kThread, kWarp, kBlock}) {
        const unsigned threads = scope == kThread ? 1 : scope == kWarp ? 32 : (unsigned)options.threads;
        for (size_t bytes = options.min_bytes; bytes <= options.max_bytes; bytes *= options.step) {
            const auto run = [&](size_t iterations) {
                return timed([&] { put_latency<<<1, threads>>>(data, bytes / sizeof *data, 1, iterations, scope); });
            };
            nvshmem_barrier_all();
            double us = 0;
            if (nvshmem_my_pe() == 0) {
                run(options.warmup);
                us = run(options.iterations) * 1000 / (double)options.iterations;
            }
            nvshmem_barrier_all();
            row("shmem_put_latency", names[scope], bytes, "latency", us, "us", "-");
        }
    }
    nvshmem_free(data);
    nvshmem_finalize();
    return 0;
}
