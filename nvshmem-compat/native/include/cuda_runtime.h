/* In the place of CUDA's header, where kernels are functions of the processor: a block is one thread, which is a warp
 * of one lane. What the programs here use of CUDA, and no more; streams and graphs are not there. */
#ifndef SHUNT_NATIVE_CUDA_RUNTIME_H
#define SHUNT_NATIVE_CUDA_RUNTIME_H

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <sched.h>

#define SHUNT_NVSHMEM_WARP 1
#define __CUDA_ARCH__ 900
#define __host__
#define __device__
#define __global__
#define __constant__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __align__(N) __attribute__((aligned(N)))

using std::max;
using std::min;

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
constexpr dim3 threadIdx(0, 0, 0), blockIdx(0, 0, 0), blockDim(1, 1, 1), gridDim(1, 1, 1);

struct double2 {
    double x, y;
};
struct int4 {
    int x, y, z, w;
};

typedef struct CUstream_st *cudaStream_t;
enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1 };
enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2 };

inline const char *cudaGetErrorString(cudaError_t error) { return error == cudaSuccess ? "no error" : "an error"; }
inline cudaError_t cudaGetDeviceCount(int *count) { return *count = 1, cudaSuccess; }
inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
inline cudaError_t cudaMalloc(void **at, size_t bytes) {
    return (*at = std::calloc(1, bytes)) ? cudaSuccess : cudaErrorInvalidValue;
}
template <typename T> cudaError_t cudaMalloc(T **at, size_t bytes) { return cudaMalloc((void **)at, bytes); }
inline cudaError_t cudaFree(void *at) { return std::free(at), cudaSuccess; }
inline cudaError_t cudaMemset(void *at, int value, size_t bytes) { return std::memset(at, value, bytes), cudaSuccess; }
inline cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind) {
    return std::memcpy(to, from, bytes), cudaSuccess;
}
template <typename T> cudaError_t cudaMemcpyToSymbol(T &to, const void *from, size_t bytes) {
    return std::memcpy(&to, from, bytes), cudaSuccess;
}

struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
    void *attrs;
    unsigned numAttrs;
};

/* Nanoseconds; who reads it waits, and others want the core. */
inline long long clock64() {
    timespec now;
    sched_yield();
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}
inline unsigned __activemask() { return 1; }
inline int __ffs(int bits) { return __builtin_ffs(bits); }
inline void __syncwarp() {}
template <typename T> T __shfl_sync(unsigned, T own, int) { return own; }
inline void __syncthreads() {}
inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
template <typename T> T atomicAdd(T *at, T value) { return __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST); }
inline unsigned atomicAdd(unsigned *at, int value) { return atomicAdd(at, (unsigned)value); }
template <typename T> T atomicAdd_system(T *at, T value) { return __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST); }
template <typename T> T atomicAnd_system(T *at, T value) { return __atomic_fetch_and(at, value, __ATOMIC_SEQ_CST); }
template <typename T> T atomicOr_system(T *at, T value) { return __atomic_fetch_or(at, value, __ATOMIC_SEQ_CST); }
template <typename T> T atomicXor_system(T *at, T value) { return __atomic_fetch_xor(at, value, __ATOMIC_SEQ_CST); }
template <typename T> T atomicExch_system(T *at, T value) { return __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST); }
template <typename T> T atomicCAS_system(T *at, T expect, T value) {
    __atomic_compare_exchange_n(at, &expect, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return expect;
}

#endif
