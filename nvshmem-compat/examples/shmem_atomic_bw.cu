// Bandwidth of atomics on words of eight bytes at another PE, a word for each thread.
//   nvcc -rdc=true -std=c++17 -arch=sm_90 shmem_atomic_bw.cu -I$NVSHMEM_DIR/include -L$NVSHMEM_DIR/lib
//        -lnvshmem_device -lnvshmem_host -o shmem_atomic_bw
#include "perftest.h"

enum Atomic {
    kInc, kFetchInc, kSet, kAdd, kFetchAdd, kAnd, kFetchAnd, kOr, kFetchOr, kXor, kFetchXor, kSwap, kCompareSwap
};
static const char *const kNames[] = {"inc", "fetch_inc", "set",      "add", "fetch_add", "and",         "fetch_and",
                                     "or",  "fetch_or",  "xor",      "fetch_xor", "swap", "compare_swap"};

__device__ void atomic(Atomic what, uint64_t *word, int peer) {
    switch (what) {
    case kInc: nvshmem_uint64_atomic_inc(word, peer); break;
    case kFetchInc: nvshmem_uint64_atomic_fetch_inc(word, peer); break;
    case kSet: nvshmem_uint64_atomic_set(word, 1, peer); break;
    case kAdd: nvshmem_uint64_atomic_add(word, 1, peer); break;
    case kFetchAdd: nvshmem_uint64_atomic_fetch_add(word, 1, peer); break;
    case kAnd: nvshmem_uint64_atomic_and(word, 1, peer); break;
    case kFetchAnd: nvshmem_uint64_atomic_fetch_and(word, 1, peer); break;
    case kOr: nvshmem_uint64_atomic_or(word, 1, peer); break;
    case kFetchOr: nvshmem_uint64_atomic_fetch_or(word, 1, peer); break;
    case kXor: nvshmem_uint64_atomic_xor(word, 1, peer); break;
    case kFetchXor: nvshmem_uint64_atomic_fetch_xor(word, 1, peer); break;
    case kSwap: nvshmem_uint64_atomic_swap(word, 1, peer); break;
    default: nvshmem_uint64_atomic_compare_swap(word, 0, 1, peer);
    }
}

__global__ void atomic_bw(uint64_t *words, size_t count, int peer, size_t iterations, Atomic what, unsigned *arrived) {
    for (size_t i = 0; i < iterations; ++i) {
        const size_t first = blockIdx.x * (size_t)blockDim.x + threadIdx.x, all = gridDim.x * (size_t)blockDim.x;
        for (size_t at = first; at < count; at += all) atomic(what, words + at, peer);
        meet_of_blocks(arrived, (unsigned)i + 1);
    }
    if (threadIdx.x == 0) nvshmem_quiet();
}

int main(int count, char **arguments) {
    const Options options = read_options(count, arguments);
    int what = 0;
    while (what <= kCompareSwap && std::strcmp(options.atomic, kNames[what])) ++what;
    if (what > kCompareSwap) {
        std::fprintf(stderr, "-a %s: inc, fetch_inc, set, add, and so on to compare_swap are right\n", options.atomic);
        return 2;
    }
    start();
    uint64_t *words = (uint64_t *)nvshmem_calloc(1, options.max_bytes);
    unsigned *arrived = nullptr;
    cudaMalloc(&arrived, sizeof *arrived);
    char name[64];
    std::snprintf(name, sizeof name, "shmem_atomic_%s_bw", kNames[what]);
    title(name, "BW (GB/sec)");
    for (size_t bytes = options.min_bytes; bytes <= options.max_bytes; bytes *= options.step) {
        const auto run = [&](size_t iterations) {
            cudaMemset(arrived, 0, sizeof *arrived);
            return timed([&] {
                atomic_bw<<<(unsigned)options.blocks, (unsigned)options.threads>>>(words, bytes / sizeof *words, 1,
                                                                                   iterations, (Atomic)what, arrived);
            });
        };
        nvshmem_barrier_all();
        double gb_s = 0;
        if (nvshmem_my_pe() == 0) {
            run(options.warmup);
            gb_s = (double)bytes / (run(options.iterations) * (1e9 / ((double)options.iterations * 1000)));
        }
        nvshmem_barrier_all();
        row(name, "None", bytes, "BW", gb_s, "GB/sec", "+");
    }
    cudaFree(arrived);
    nvshmem_free(words);
    nvshmem_finalize();
    return 0;
}
