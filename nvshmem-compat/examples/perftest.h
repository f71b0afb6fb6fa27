// What the three programs share: options, start and end, tables as NVSHMEM's own programs print them.
#ifndef SHUNT_PERFTEST_H
#define SHUNT_PERFTEST_H

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#include <nvshmem.h>
#include <nvshmemx.h>

enum Scope { kThread, kWarp, kBlock };

struct Options {
    size_t min_bytes = 4, max_bytes = 4 << 20, step = 2;
    size_t iterations = 10, warmup = 5, blocks = 32, threads = 256;
    Scope scope = kBlock;
    const char *atomic = "inc";
    bool both_ways = false;
};

// "32M" and its like; ends the program at anything else.
inline size_t size_of(const char *option, const char *text) {
    char *end = nullptr;
    const double number = std::strtod(text, &end);
    const char *units = "kmg";
    size_t scale = 1;
    if (const char *unit = *end ? std::strchr(units, *end | 32) : nullptr) {
        for (const char *at = units; at <= unit; ++at) scale <<= 10;
        ++end;
    }
    if (end == text || *end || number < 0) {
        std::fprintf(stderr, "%s: expected a number, such as 4096 or 32M, got %s\n", option, text);
        std::exit(2);
    }
    return (size_t)(number * (double)scale);
}

inline Scope scope_of(const char *text) {
    if (!std::strcmp(text, "thread")) return kThread;
    if (!std::strcmp(text, "warp")) return kWarp;
    if (std::strcmp(text, "block")) {
        std::fprintf(stderr, "-s: expected thread, warp or block, got %s\n", text);
        std::exit(2);
    }
    return kBlock;
}

inline Options read_options(int count, char **arguments) {
    Options options;
    for (int i = 1; i < count; ++i) {
        const char *name = arguments[i];
        if (!std::strcmp(name, "--bidir")) {
            options.both_ways = true;
            continue;
        }
        if (name[0] != '-' || std::strlen(name) != 2 || !std::strchr("befnwctsa", name[1]) || i + 1 == count) {
            std::fprintf(stderr,
                         "%s: options are -b SMALLEST -e LARGEST -f FACTOR -n ITERATIONS -w WARMUP -c BLOCKS "
                         "-t THREADS -s thread|warp|block -a ATOMIC --bidir\n",
                         name);
            std::exit(2);
        }
        const char *value = arguments[++i];
        switch (name[1]) {
        case 'b': options.min_bytes = size_of(name, value); break;
        case 'e': options.max_bytes = size_of(name, value); break;
        case 'f': options.step = size_of(name, value); break;
        case 'n': options.iterations = size_of(name, value); break;
        case 'w': options.warmup = size_of(name, value); break;
        case 'c': options.blocks = size_of(name, value); break;
        case 't': options.threads = size_of(name, value); break;
        case 's': options.scope = scope_of(value); break;
        default: options.atomic = value;
        }
    }
    if (options.step < 2 || options.iterations == 0 || options.blocks == 0 || options.threads == 0 ||
        options.threads > 1024) {
        std::fprintf(stderr, "-f from 2, -n and -c from 1, -t from 1 to 1024 are right\n");
        std::exit(2);
    }
    return options;
}

// Ends with 2 without a GPU, and, as NVSHMEM's programs do, with 0 unless there are two PEs.
inline void start() {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        std::printf("no GPU\n");
        std::exit(2);
    }
    nvshmem_init();
    cudaSetDevice(nvshmem_team_my_pe(NVSHMEMX_TEAM_NODE) % devices);
    if (nvshmem_n_pes() != 2) {
        std::fprintf(stderr, "This test requires exactly two processes\n");
        nvshmem_finalize();
        std::exit(0);
    }
}

inline bool for_machines() {
    const char *asked = std::getenv("NVSHMEM_MACHINE_READABLE_OUTPUT");
    return asked && *asked && !std::strchr("0NnFf", *asked);
}

inline void title(const char *name, const char *value) {
    if (nvshmem_my_pe() != 0 || for_machines()) return;
    std::printf("#%s\n%-10s  %-8s  %-16s\n", name, "size(B)", "scope", value);
}

inline void row(const char *name, const char *scope, size_t bytes, const char *what, double value, const char *unit,
                const char *better) {
    if (nvshmem_my_pe() != 0 || bytes == 0 || value == 0) return;
    if (for_machines()) {
        std::printf("&&&& PERF %s___%s___size__%zu___%s %lf %s%s\n", name, scope, bytes, what, value, better, unit);
    } else {
        std::printf("%-10zu  %-8s  %-16.6lf\n", bytes, scope, value);
    }
    std::fflush(stdout);
}

// Milliseconds of a launch; ends the program where it fails.
template <typename Launch> float timed(Launch launch) {
    cudaEvent_t from, to;
    cudaEventCreate(&from), cudaEventCreate(&to);
    cudaEventRecord(from);
    launch();
    cudaEventRecord(to);
    const cudaError_t error = cudaEventSynchronize(to);
    float ms = 0;
    cudaEventElapsedTime(&ms, from, to);
    cudaEventDestroy(from), cudaEventDestroy(to);
    if (error != cudaSuccess) {
        std::fprintf(stderr, "kernel: %s\n", cudaGetErrorString(error));
        nvshmem_global_exit(1);
    }
    return ms;
}

// All blocks of the grid, which are on the GPU together: `arrived` counts up for ever.
__device__ inline void meet_of_blocks(unsigned *arrived, unsigned round) {
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(arrived, 1);
        while (*(volatile unsigned *)arrived < round * gridDim.x) {}
        __threadfence();
    }
    __syncthreads();
}

#endif
