// Puts with a signal behind them, signals alone, waits for them: one thread, a warp, a block.
#include "program.h"

__global__ void family(void *memory, unsigned *wrong) {
    const Tally tally{wrong};
    const int next = next_pe();
    int *to = (int *)memory, *from = to + 1024;
    uint64_t *words = (uint64_t *)(to + 2048);
    for (unsigned i = threadIdx.x; i < 4; i += blockDim.x) from[i] = (int)i + 1;
    nvshmemx_barrier_all_block();
    if (threadIdx.x == 0) {
        nvshmem_int_put_signal(to, from, 4, words, 3, NVSHMEM_SIGNAL_SET, next);
        nvshmem_int_put_signal_nbi(to + 4, from, 4, words + 1, 2, NVSHMEM_SIGNAL_ADD, next);
        nvshmem_putmem_signal_nbi(to + 8, from, 16, words + 2, 1, NVSHMEM_SIGNAL_SET, next);
        nvshmem_put32_signal(to + 12, from, 4, words + 3, 1, NVSHMEM_SIGNAL_SET, next);
        nvshmemx_signal_op(words + 4, 9, NVSHMEM_SIGNAL_ADD, next);
        tally.want(nvshmem_signal_wait_until(words, NVSHMEM_CMP_EQ, 3) == 3 && to[3] == 4);
        tally.want(nvshmem_signal_wait_until(words + 1, NVSHMEM_CMP_GE, 2) == 2 && to[7] == 4);
        nvshmem_signal_wait_until(words + 2, NVSHMEM_CMP_NE, 0);
        nvshmem_signal_wait_until(words + 3, NVSHMEM_CMP_GT, 0);
        tally.want(nvshmem_signal_wait_until(words + 4, NVSHMEM_CMP_EQ, 9) == 9 && to[15] == 4);
        tally.want(nvshmem_signal_fetch(words) == 3);
    }
    if (threadIdx.x < 32) {
        nvshmemx_int_put_signal_warp(to + 16, from, 4, words + 5, 1, NVSHMEM_SIGNAL_SET, next);
        nvshmemx_int_put_signal_nbi_warp(to + 20, from, 4, words + 6, 1, NVSHMEM_SIGNAL_SET, next);
    }
    nvshmemx_int_put_signal_block(to + 24, from, 4, words + 7, 1, NVSHMEM_SIGNAL_SET, next);
    nvshmemx_double_put_signal_nbi_block((double *)to + 32, (double *)from, 2, words + 8, 1, NVSHMEM_SIGNAL_SET, next);
    nvshmemx_putmem_signal_nbi_block(to + 96, from, 16, words + 9, 1, NVSHMEM_SIGNAL_SET, next);
    if (threadIdx.x == 0) {
        for (int i = 5; i < 10; ++i) nvshmem_signal_wait_until(words + i, NVSHMEM_CMP_EQ, 1);
        tally.want(to[19] == 4 && to[27] == 4);
    }
    nvshmemx_barrier_all_block();
}

#ifndef __CUDACC_RTC__
int main() { return program("signal", family); }
#endif
