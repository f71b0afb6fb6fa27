// What the programs of the families share: start, one kernel on one block, its count of what was wrong, end.
#ifndef SHUNT_PROGRAM_H
#define SHUNT_PROGRAM_H

#ifndef __CUDACC_RTC__
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#endif
#include <cuda_runtime.h>
#include <nvshmem.h>
#include <nvshmemx.h>
#if __has_include(<shunt_nvshmem.h>) && !defined(__CUDACC_RTC__)
#include <shunt_nvshmem.h>
#endif

// One block.
constexpr int kThreads = 64;
constexpr size_t kBytes = 1 << 16;

// Counts what is not as it must be.
struct Tally {
    unsigned *wrong;
    __device__ void want(bool right) const {
        if (!right) atomicAdd(wrong, 1);
    }
};

#ifndef __CUDACC_RTC__
// Which port fails before a round, of PE 0; -1: none. Not always the same one, and the one that was well before. What is
// not "down" is not undone: then it is the second alone, on which the default queue pair of kernels begins. Where PEs are
// to go back, rounds without a failure follow.
constexpr int kRounds = 4, kCalm = 36;
constexpr int kDown[kRounds] = {-1, 0, 1, -1};

// A port of this PE goes down or comes back: soft NICs of Shunt do.
inline bool port(int rail, const char *fault) {
#if __has_include(<shunt_nvshmem.h>)
    return nvshmem_my_pe() != 0 || rail < 0 || shunt_nvshmem_soft_fault(rail, fault) == 0;
#else
    return rail < 0 || fault == nullptr;
#endif
}

// Changes of path so far: because of a fault, and back.
struct Switches {
    uint64_t failovers = 0, back = 0;
};
inline Switches switches() {
    Switches count;
#if __has_include(<shunt_nvshmem.h>)
    shunt_nvshmem_switches(&count.failovers, &count.back);
#endif
    return count;
}

// Whether all PEs have left a path and gone back: what somebody else's hand does to their ports, within so many seconds.
// Asked by all of them together.
struct Back {
    int *words;
    double until;
    explicit Back(double seconds) : words((int *)nvshmem_malloc(2 * sizeof(int))), until(now() + seconds) {}
    static double now() {
        timespec time = {};
        clock_gettime(CLOCK_MONOTONIC, &time);
        return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
    }
    // 2: they have; 1: not yet; 0: it is too late.
    int ask() {
        const Switches count = switches();
        const int mine = count.failovers && count.back ? 2 : now() < until ? 1 : 0;
        int all = 0;
        cudaMemcpy(words, &mine, sizeof mine, cudaMemcpyHostToDevice);
        nvshmem_int_min_reduce(NVSHMEM_TEAM_WORLD, words + 1, words, 1);
        cudaMemcpy(&all, words + 1, sizeof all, cudaMemcpyDeviceToHost);
        return all;
    }
};

// Runs a kernel with symmetric memory that is zero; 2 without a GPU. With PROGRAM_FAULTS set to a fault it runs several
// times, a port having it in some; with PROGRAM_UNTIL_BACK set to seconds, until all PEs have left a path and gone back.
// A launch is told what it needs in either of two ways. `calls`: what the host calls beside it, and how much of that was
// wrong.
template <typename Kernel>
int program(const char *family, Kernel kernel, bool attributes = false, unsigned (*calls)(void *) = nullptr) {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        std::printf("%s: no GPU\n", family);
        return 2;
    }
    if (nvshmemx_init_status() == 0) nvshmem_init();
    unsigned *wrong = nullptr;
    void *memory = nvshmem_malloc(kBytes);
    if (!memory || cudaMalloc(&wrong, sizeof *wrong) != cudaSuccess) return 1;
    cudaMemset(wrong, 0, sizeof *wrong);
    void *arguments[] = {&memory, &wrong};
    nvshmemx_collective_launch_attr_t launch = {};
    launch.cuda_config.gridDim = dim3(1);
    launch.cuda_config.blockDim = dim3(kThreads);
    const char *fault = std::getenv("PROGRAM_FAULTS");
    const bool down = fault && !std::strcmp(fault, "down");
    const char *seconds = std::getenv("PROGRAM_UNTIL_BACK");
    Back *back = seconds ? new Back(std::atof(seconds)) : nullptr;
    unsigned bad = 0, said = 0;
    int launched = 0, ports = 1, rounds = fault ? kRounds : 1, more = seconds ? 1 : 2;
    cudaError_t ended = cudaSuccess;
    int round = 0;
    for (; (round < rounds || more == 1) && launched == 0 && ended == cudaSuccess; ++round) {
        cudaMemset(memory, 0, kBytes);
        ended = cudaDeviceSynchronize();
        nvshmem_barrier_all();
        // Ports that flap are waited for ever longer: who has not gone back by then gets the time.
        const bool calm = back && round % (kRounds + kCalm) >= kRounds;
        const int next = kDown[round % (kRounds + kCalm) % kRounds];
        const int rail = !fault || calm || (!down && next != 1) ? -1 : next;
        ports &= port(rail, fault);
        launched |= attributes
                        ? nvshmemx_collective_launch_attr(&launch, (const void *)kernel, arguments)
                        : nvshmemx_collective_launch((const void *)kernel, dim3(1), dim3(kThreads), arguments, 0, 0);
        if (ended == cudaSuccess) ended = cudaDeviceSynchronize();
        if (calls) bad += calls(memory);
        nvshmem_barrier_all();
        if (down) ports &= port(rail, "up");
        if (back) more = back->ask();
    }
    const Switches count = switches();
    if (back) {
        nvshmem_free(back->words);
        delete back;
        std::printf("%s: PE %d of %d: %d rounds, %llu failovers, %llu switch-backs, %s\n", family, nvshmem_my_pe(),
                    nvshmem_n_pes(), round, (unsigned long long)count.failovers, (unsigned long long)count.back,
                    more == 2 ? "all went back" : "somebody did not go back in time");
    }
    cudaMemcpy(&said, wrong, sizeof said, cudaMemcpyDeviceToHost);
    bad += said;
    std::printf("%s: PE %d of %d: launch %d, %s, %u wrong, %llu failovers\n", family, nvshmem_my_pe(),
                nvshmem_n_pes(), launched, cudaGetErrorString(ended), bad, (unsigned long long)count.failovers);
    cudaFree(wrong);
    nvshmem_free(memory);
    nvshmem_finalize();
    return launched == 0 && ended == cudaSuccess && bad == 0 && ports && more == 2 ? 0 : 1;
}
#endif

// The PE behind this one, and the one before it.
__device__ inline int next_pe() { return (nvshmem_my_pe() + 1) % nvshmem_n_pes(); }
__device__ inline int last_pe() { return (nvshmem_my_pe() + nvshmem_n_pes() - 1) % nvshmem_n_pes(); }

#endif
