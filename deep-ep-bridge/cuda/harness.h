/* What the test kernels share: patience of their waits, copies, and a main function.
 *
 * The kernels are ours. They call ibgda_device.cuh in the roles and in the order in which DeepEP's V1 kernels do. */
#ifndef SHUNT_DEEP_EP_HARNESS_H
#define SHUNT_DEEP_EP_HARNESS_H

#include <cstdio>
#include <cuda_runtime.h>

#include "ibgda_device.cuh"

/* DeepEP's blocks may be as large as blocks can be, which leaves 64 registers to a thread and to all it calls. */
constexpr int kThreads = 1024;

/* Cycles that a kernel waits for a word at most. */
constexpr long long kPatience = 1 << 22;

__device__ inline int seen(const int *word) {
    const int value = *(const volatile int *)word;
    __threadfence_system();
    return value;
}

__device__ inline uint64_t seen(const uint64_t *word) {
    const uint64_t value = *(const volatile uint64_t *)word;
    __threadfence_system();
    return value;
}

/* Waits until `holds` answers true; false once patience ends. */
template <typename Holds> __device__ inline bool await(Holds holds, long long patience = kPatience) {
    const long long start = clock64();
    while (!holds()) {
        if (clock64() - start > patience) return false;
    }
    return true;
}

/* Threads share out the queue pairs of all other ranks. */
__device__ inline void quiet_all(int ranks, int me) {
    const auto state = deep_ep::ibgda_get_state();
    const int queues = (int)state->num_rc_per_pe * state->num_devices_initialized;
    for (int i = threadIdx.x; i < queues * (ranks - 1); i += blockDim.x) {
        deep_ep::nvshmemi_ibgda_quiet((i / queues + me + 1) % ranks, i % queues);
    }
    __syncthreads();
}

/* To a rank that a store reaches; by all lanes. */
__device__ inline void copy(uint64_t to, uint64_t from, size_t bytes, int lane) {
    for (size_t i = (size_t)lane * 16; i < bytes; i += 32 * 16) *(int4 *)(to + i) = *(const int4 *)(from + i);
    __syncwarp();
}

/* One round of memory that the kernels of a program run on. */
constexpr size_t kBytes = 1 << 20;

/* Without a device state no call reaches anything: each kernel must end all the same. 2 without a GPU. */
template <typename Launch> int on_gpu(const char *name, Launch launch) {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        std::printf("%s: no GPU\n", name);
        return 2;
    }
    void *memory = nullptr;
    cudaError_t error = cudaMalloc(&memory, kBytes);
    if (error == cudaSuccess) error = cudaMemset(memory, 0, kBytes);
    if (error == cudaSuccess) launch((char *)memory);
    if (error == cudaSuccess) error = cudaDeviceSynchronize();
    std::printf("%s: %s\n", name, error == cudaSuccess ? "its kernels ended" : cudaGetErrorString(error));
    return error == cudaSuccess ? 0 : 1;
}

#endif
