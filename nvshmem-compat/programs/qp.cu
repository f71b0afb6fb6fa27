// Handles of queue pairs: made on the host, used for puts, gets, signals, quiet, fence.
#include "program.h"

__constant__ nvshmemx_qp_handle_t handles[2];

__global__ void family(void *memory, unsigned *wrong) {
    const Tally tally{wrong};
    const int next = next_pe();
    int *to = (int *)memory, *from = to + 1024;
    uint64_t *words = (uint64_t *)(to + 2048);
    nvshmemx_qp_handle_t mine[2] = {handles[0], handles[1]};
    for (unsigned i = threadIdx.x; i < 4; i += blockDim.x) from[i] = (int)i + 1;
    nvshmemx_barrier_all_block();
    if (threadIdx.x == 0) {
        nvshmemx_qp_int_p(to, 7, next, mine[0]);
        nvshmemx_qp_int_put(to + 4, from, 4, next, mine[0]);
        nvshmemx_qp_int_put_nbi(to + 8, from, 4, next, mine[1]);
        nvshmemx_qp_fence(next, mine, 2);
        nvshmemx_qp_signal_op(words, 1, NVSHMEM_SIGNAL_SET, next, mine[0]);
        nvshmemx_qp_int_put_signal_nbi(to + 12, from, 4, words + 1, 1, NVSHMEM_SIGNAL_ADD, next, mine[1]);
        nvshmemx_qp_quiet(next, mine, 2);
        nvshmem_signal_wait_until(words, NVSHMEM_CMP_EQ, 1);
        nvshmem_signal_wait_until(words + 1, NVSHMEM_CMP_EQ, 1);
        tally.want(to[0] == 7 && to[7] == 4 && to[15] == 4);
        tally.want(nvshmemx_qp_int_g(from, next, mine[0]) == 1);
        nvshmemx_qp_int_get(to + 16, from, 4, next, mine[1]);
        tally.want(to[19] == 4);
    }
    if (threadIdx.x < 32) nvshmemx_qp_char_put_nbi_warp((char *)to + 80, (char *)from, 16, next, mine[0]);
    nvshmemx_qp_double_put_nbi_block((double *)to + 16, (double *)from, 2, next, mine[1]);
    nvshmemx_qp_quiet_block(NVSHMEMX_PE_ALL, mine, 2);
    nvshmemx_barrier_all_block();
}

#ifndef __CUDACC_RTC__
int main() {
    nvshmemx_qp_handle_t *made = nullptr;
    int devices = 0;
    if (cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0) {
        nvshmem_init();
        if (nvshmemx_qp_create(2, &made) != 0 ||
            cudaMemcpyToSymbol(handles, made, 2 * sizeof *made) != cudaSuccess) {
            return 1;
        }
    }
    return program("qp", family);
}
#endif
