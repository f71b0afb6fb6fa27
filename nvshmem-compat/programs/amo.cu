// Atomics of all types, with and without an answer.
#include "program.h"

#define STANDARD(N, T)                                                                                                 \
    static __device__ void standard_##N(T *word, Tally tally) {                                                        \
        const int next = next_pe();                                                                                    \
        nvshmem_##N##_atomic_set(word, (T)5, next);                                                                    \
        nvshmem_##N##_atomic_inc(word, next);                                                                          \
        nvshmem_##N##_atomic_add(word, (T)4, next);                                                                    \
        tally.want(nvshmem_##N##_atomic_fetch(word, next) == (T)10);                                                   \
        tally.want(nvshmem_##N##_atomic_fetch_inc(word, next) == (T)10);                                               \
        tally.want(nvshmem_##N##_atomic_fetch_add(word, (T)9, next) == (T)11);                                         \
        tally.want(nvshmem_##N##_atomic_compare_swap(word, (T)20, (T)7, next) == (T)20);                               \
        tally.want(nvshmem_##N##_atomic_swap(word, (T)12, next) == (T)7);                                              \
    }
/* The device library of NVSHMEM 3.8.0 has no sums of these types, though its headers declare them. */
#define WITHOUT_SUMS(N, T)                                                                                             \
    static __device__ void standard_##N(T *word, Tally tally) {                                                        \
        const int next = next_pe();                                                                                    \
        nvshmem_##N##_atomic_set(word, (T)20, next);                                                                   \
        tally.want(nvshmem_##N##_atomic_fetch(word, next) == (T)20);                                                   \
        tally.want(nvshmem_##N##_atomic_compare_swap(word, (T)20, (T)7, next) == (T)20);                               \
        tally.want(nvshmem_##N##_atomic_swap(word, (T)12, next) == (T)7);                                              \
    }
#define BITWISE(N, T)                                                                                                  \
    static __device__ void bitwise_##N(T *word, Tally tally) {                                                         \
        const int next = next_pe();                                                                                    \
        nvshmem_##N##_atomic_and(word, (T)8, next);                                                                    \
        nvshmem_##N##_atomic_or(word, (T)1, next);                                                                     \
        nvshmem_##N##_atomic_xor(word, (T)3, next);                                                                    \
        tally.want(nvshmem_##N##_atomic_fetch_and(word, (T)10, next) == (T)10);                                        \
        tally.want(nvshmem_##N##_atomic_fetch_or(word, (T)4, next) == (T)10);                                          \
        tally.want(nvshmem_##N##_atomic_fetch_xor(word, (T)15, next) == (T)14);                                        \
    }

STANDARD(int, int)
STANDARD(long, long)
WITHOUT_SUMS(longlong, long long)
STANDARD(size, size_t)
WITHOUT_SUMS(ptrdiff, ptrdiff_t)
STANDARD(uint, unsigned int)
STANDARD(ulong, unsigned long)
STANDARD(ulonglong, unsigned long long)
STANDARD(int32, int32_t)
STANDARD(uint32, uint32_t)
WITHOUT_SUMS(int64, int64_t)
STANDARD(uint64, uint64_t)
BITWISE(uint, unsigned int)
BITWISE(ulong, unsigned long)
BITWISE(ulonglong, unsigned long long)
BITWISE(int32, int32_t)
BITWISE(uint32, uint32_t)
BITWISE(int64, int64_t)
BITWISE(uint64, uint64_t)

__global__ void family(void *memory, unsigned *wrong) {
    const Tally tally{wrong};
    if (threadIdx.x == 0) {
        char *at = (char *)memory;
        standard_int((int *)at, tally), standard_long((long *)(at + 8), tally);
        standard_longlong((long long *)(at + 16), tally), standard_size((size_t *)(at + 24), tally);
        standard_ptrdiff((ptrdiff_t *)(at + 32), tally), standard_uint((unsigned int *)(at + 40), tally);
        standard_ulong((unsigned long *)(at + 48), tally), standard_ulonglong((unsigned long long *)(at + 56), tally);
        standard_int32((int32_t *)(at + 64), tally), standard_uint32((uint32_t *)(at + 72), tally);
        standard_int64((int64_t *)(at + 80), tally), standard_uint64((uint64_t *)(at + 88), tally);
        bitwise_uint((unsigned int *)(at + 40), tally), bitwise_ulong((unsigned long *)(at + 48), tally);
        bitwise_ulonglong((unsigned long long *)(at + 56), tally), bitwise_int32((int32_t *)(at + 64), tally);
        bitwise_uint32((uint32_t *)(at + 72), tally), bitwise_int64((int64_t *)(at + 80), tally);
        bitwise_uint64((uint64_t *)(at + 88), tally);
        nvshmem_float_atomic_set((float *)(at + 96), 1.5f, next_pe());
        tally.want(nvshmem_float_atomic_swap((float *)(at + 96), 2.5f, next_pe()) == 1.5f);
        nvshmem_double_atomic_set((double *)(at + 104), 1.5, next_pe());
        tally.want(nvshmem_double_atomic_fetch((double *)(at + 104), next_pe()) == 1.5);
    }
    nvshmemx_barrier_all_block();
}

#ifndef __CUDACC_RTC__
int main() { return program("amo", family); }
#endif
