/* In the place of CUDA's header, where clang makes bitcode of the device functions: what nvshmem.h uses of CUDA, and no
 * more. So no toolkit is needed, and a clang that is older or newer than CUDA's headers does. */
#ifndef SHUNT_BITCODE_CUDA_RUNTIME_H
#define SHUNT_BITCODE_CUDA_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __constant__ __attribute__((constant))
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(N) __attribute__((aligned(N)))

struct dim3 {
    unsigned x, y, z;
};
struct uint3 {
    unsigned x, y, z;
};
#include <__clang_cuda_builtin_vars.h>

struct double2 {
    double x, y;
} __attribute__((aligned(16)));
struct int4 {
    int x, y, z, w;
} __attribute__((aligned(16)));

typedef struct CUstream_st *cudaStream_t;
struct cudaLaunchConfig_t {
    void *unused;
};

/* A number of 16 bits, which CUDA has as a structure of one word. */
#define SHUNT_BITCODE_NUMBER16(NAME, FROM_FLOAT, TO_FLOAT)                                     \
    struct __attribute__((aligned(2))) NAME {                                                  \
        unsigned short bits;                                                                   \
        NAME() = default;                                                                      \
        NAME(const NAME &) = default;                                                          \
        __device__ NAME(const volatile NAME &other) : bits(other.bits) {}                      \
        __device__ NAME(float from) { asm(FROM_FLOAT : "=h"(bits) : "f"(from)); }              \
        NAME &operator=(const NAME &) = default;                                               \
        __device__ void operator=(const NAME &other) volatile { bits = other.bits; }           \
        __device__ operator float() const {                                                    \
            float value;                                                                       \
            asm(TO_FLOAT : "=f"(value) : "h"(bits));                                           \
            return value;                                                                      \
        }                                                                                      \
    };

__device__ __forceinline__ void __syncwarp() { asm volatile("bar.warp.sync 0xffffffff;" ::: "memory"); }
__device__ __forceinline__ void __threadfence_system() { asm volatile("fence.sc.sys;" ::: "memory"); }

__device__ __forceinline__ uint32_t __shfl_sync(unsigned lanes, uint32_t own, int from) {
    uint32_t there;
    asm volatile("shfl.sync.idx.b32 %0, %1, %2, 0x1f, %3;" : "=r"(there) : "r"(own), "r"(from), "r"(lanes) : "memory");
    return there;
}
__device__ __forceinline__ uint64_t __shfl_sync(unsigned lanes, uint64_t own, int from) {
    const uint32_t low = __shfl_sync(lanes, (uint32_t)own, from);
    return (uint64_t)__shfl_sync(lanes, (uint32_t)(own >> 32), from) << 32 | low;
}

/* Atomics that other GPUs and the processor see as such: 32 and 64 bits. */
#define SHUNT_BITCODE_ATOMIC(NAME, PTX32, PTX64)                                                                 \
    template <typename T> __device__ __forceinline__ T NAME##_system(T *at, T value) {                           \
        static_assert(sizeof(T) == 4 || sizeof(T) == 8, "atomics are of 32 and of 64 bits");                     \
        if (sizeof(T) == 4) {                                                                                    \
            uint32_t had;                                                                                        \
            asm volatile(PTX32 " %0, [%1], %2;" : "=r"(had) : "l"(at), "r"((uint32_t)value) : "memory");         \
            return (T)had;                                                                                       \
        }                                                                                                        \
        uint64_t had;                                                                                            \
        asm volatile(PTX64 " %0, [%1], %2;" : "=l"(had) : "l"(at), "l"((uint64_t)value) : "memory");             \
        return (T)had;                                                                                           \
    }
SHUNT_BITCODE_ATOMIC(atomicAdd, "atom.relaxed.sys.add.u32", "atom.relaxed.sys.add.u64")
SHUNT_BITCODE_ATOMIC(atomicAnd, "atom.relaxed.sys.and.b32", "atom.relaxed.sys.and.b64")
SHUNT_BITCODE_ATOMIC(atomicOr, "atom.relaxed.sys.or.b32", "atom.relaxed.sys.or.b64")
SHUNT_BITCODE_ATOMIC(atomicXor, "atom.relaxed.sys.xor.b32", "atom.relaxed.sys.xor.b64")
SHUNT_BITCODE_ATOMIC(atomicExch, "atom.relaxed.sys.exch.b32", "atom.relaxed.sys.exch.b64")

template <typename T> __device__ __forceinline__ T atomicCAS_system(T *at, T expect, T value) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "atomics are of 32 and of 64 bits");
    if (sizeof(T) == 4) {
        uint32_t had;
        asm volatile("atom.relaxed.sys.cas.b32 %0, [%1], %2, %3;"
                     : "=r"(had)
                     : "l"(at), "r"((uint32_t)expect), "r"((uint32_t)value)
                     : "memory");
        return (T)had;
    }
    uint64_t had;
    asm volatile("atom.relaxed.sys.cas.b64 %0, [%1], %2, %3;"
                 : "=l"(had)
                 : "l"(at), "l"((uint64_t)expect), "l"((uint64_t)value)
                 : "memory");
    return (T)had;
}

#endif
