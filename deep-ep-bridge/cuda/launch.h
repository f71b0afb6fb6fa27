/* A launch of roles: a function of (round, block, warp, lane) as a kernel `NAME_kernel` where there is a GPU; where
 * kernels are functions of the processor, a thread for each warp, which has one lane. A block has THREADS at most, which
 * says how many registers each may have. */
#ifndef SHUNT_DEEP_EP_LAUNCH_H
#define SHUNT_DEEP_EP_LAUNCH_H

#include "harness.h"

#if SHUNT_NVSHMEM_WARP == 1

#include <thread>
#include <vector>

class Launched {
    std::vector<std::thread> warps_;

  public:
    template <typename Run> void start(Run run) { warps_.emplace_back(run); }
    cudaError_t finish() {
        for (std::thread &warp : warps_) warp.join();
        return cudaSuccess;
    }
};

#define ROLES(NAME, ROUND, THREADS)                                                                                    \
    Launched launch_##NAME(const ROUND &round, int blocks, int warps) {                                                \
        Launched launched;                                                                                             \
        for (int i = 0; i < blocks * warps; ++i) launched.start([=] { NAME(round, i / warps, i % warps, 0); });        \
        return launched;                                                                                               \
    }

#else

struct Launched {
    cudaError_t finish() { return cudaDeviceSynchronize(); }
};

#define ROLES(NAME, ROUND, THREADS)                                                                                    \
    __global__ void __launch_bounds__(THREADS, 1) NAME##_kernel(ROUND round) {                                         \
        NAME(round, blockIdx.x, threadIdx.x / 32, threadIdx.x % 32);                                                   \
    }                                                                                                                  \
    Launched launch_##NAME(const ROUND &round, int blocks, int warps) {                                                \
        NAME##_kernel<<<blocks, 32 * warps>>>(round);                                                                  \
        return {};                                                                                                     \
    }

#endif

#endif
