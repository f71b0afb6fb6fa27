// Waits for words and tests of them: one, all, any, some, each against a value of its own.
#include "program.h"

#define TYPE(N, T)                                                                                                     \
    static __device__ void wait_##N(T *words, T *values, size_t *which, Tally tally) {                                 \
        const int left_out[4] = {0, 0, 1, 0};                                                                          \
        for (int i = 0; i < 4; ++i) {                                                                                  \
            values[i] = (T)(i + 1);                                                                                    \
            nvshmem_##N##_p(words + i, (T)(i + 1), next_pe());                                                         \
        }                                                                                                              \
        nvshmem_##N##_wait_until(words, NVSHMEM_CMP_EQ, (T)1);                                                         \
        nvshmem_##N##_wait_until_all(words, 4, left_out, NVSHMEM_CMP_GT, (T)0);                                        \
        tally.want(nvshmem_##N##_wait_until_any(words, 4, left_out, NVSHMEM_CMP_EQ, (T)4) == 3);                       \
        tally.want(nvshmem_##N##_wait_until_some(words, 4, which, left_out, NVSHMEM_CMP_GE, (T)2) == 2);               \
        nvshmem_##N##_wait_until_all_vector(words, 4, left_out, NVSHMEM_CMP_EQ, values);                               \
        tally.want(nvshmem_##N##_wait_until_any_vector(words, 4, left_out, NVSHMEM_CMP_LE, values) < 4);               \
        tally.want(nvshmem_##N##_wait_until_some_vector(words, 4, which, left_out, NVSHMEM_CMP_GE, values) == 3);      \
        tally.want(nvshmem_##N##_test(words, NVSHMEM_CMP_NE, (T)9));                                                   \
        tally.want(nvshmem_##N##_test_all(words, 4, left_out, NVSHMEM_CMP_LT, (T)9));                                  \
        tally.want(nvshmem_##N##_test_any(words, 4, left_out, NVSHMEM_CMP_EQ, (T)9) == SIZE_MAX);                      \
        tally.want(nvshmem_##N##_test_some(words, 4, which, left_out, NVSHMEM_CMP_GT, (T)1) == 2);                     \
        tally.want(nvshmem_##N##_test_all_vector(words, 4, left_out, NVSHMEM_CMP_EQ, values));                         \
        tally.want(nvshmem_##N##_test_any_vector(words, 4, left_out, NVSHMEM_CMP_EQ, values) < 4);                     \
        tally.want(nvshmem_##N##_test_some_vector(words, 4, which, left_out, NVSHMEM_CMP_EQ, values) == 3);            \
    }

TYPE(int, int)
TYPE(long, long)
TYPE(longlong, long long)
TYPE(uint, unsigned int)
TYPE(ulong, unsigned long)
TYPE(ulonglong, unsigned long long)
TYPE(int32, int32_t)
TYPE(int64, int64_t)
TYPE(uint32, uint32_t)
TYPE(uint64, uint64_t)
TYPE(size, size_t)
TYPE(ptrdiff, ptrdiff_t)

// A caller that asks waits for the answer, and for nothing else: a path that falls silent under the question is found
// out by that wait, or never.
static __device__ void question(uint64_t *asked, Tally tally) {
    uint64_t *answered = asked + 1;
    nvshmem_uint64_p(asked, 1, next_pe());
    nvshmem_uint64_wait_until(asked, NVSHMEM_CMP_EQ, 1);
    nvshmem_uint64_p(answered, 2, last_pe());
    nvshmem_uint64_wait_until(answered, NVSHMEM_CMP_EQ, 2);
    tally.want(*(volatile uint64_t *)answered == 2);
}

__global__ void family(void *memory, unsigned *wrong) {
    const Tally tally{wrong};
    if (threadIdx.x == 0) {
        question((uint64_t *)memory + 4096, tally);
        char *at = (char *)memory, *values = at + 8192;
        size_t *which = (size_t *)(at + 16384);
        wait_int((int *)at, (int *)values, which, tally), wait_long((long *)(at + 64), (long *)values, which, tally);
        wait_longlong((long long *)(at + 128), (long long *)values, which, tally);
        wait_uint((unsigned *)(at + 192), (unsigned *)values, which, tally);
        wait_ulong((unsigned long *)(at + 256), (unsigned long *)values, which, tally);
        wait_ulonglong((unsigned long long *)(at + 320), (unsigned long long *)values, which, tally);
        wait_int32((int32_t *)(at + 384), (int32_t *)values, which, tally);
        wait_int64((int64_t *)(at + 448), (int64_t *)values, which, tally);
        wait_uint32((uint32_t *)(at + 512), (uint32_t *)values, which, tally);
        wait_uint64((uint64_t *)(at + 576), (uint64_t *)values, which, tally);
        wait_size((size_t *)(at + 640), (size_t *)values, which, tally);
        wait_ptrdiff((ptrdiff_t *)(at + 704), (ptrdiff_t *)values, which, tally);
    }
    nvshmemx_barrier_all_block();
}

#ifndef __CUDACC_RTC__
int main() { return program("wait", family); }
#endif
