// broadcast, fcollect, alltoall, reductions: one thread, a warp, a block.
#include "program.h"

#define TYPE(N, T)                                                                                                     \
    static __device__ void type_##N(T *to, T *from, Tally tally) {                                                     \
        const nvshmem_team_t team = NVSHMEM_TEAM_WORLD;                                                                \
        const int me = nvshmem_my_pe(), pes = nvshmem_n_pes();                                                         \
        for (int i = (int)threadIdx.x; i < 4 * pes; i += blockDim.x) from[i] = (T)(me + 1);                            \
        nvshmemx_barrier_all_block();                                                                                  \
        if (threadIdx.x == 0) {                                                                                        \
            nvshmem_##N##_broadcast(team, to, from, 4, 0), tally.want(to[3] == (T)1);                                  \
            nvshmem_##N##_fcollect(team, to, from, 4), tally.want(to[4 * pes - 1] == (T)pes);                          \
            nvshmem_##N##_alltoall(team, to, from, 4), tally.want(to[4 * pes - 1] == (T)pes);                          \
            nvshmem_##N##_sum_reduce(team, to, from, 4), tally.want(to[3] == (T)(pes * (pes + 1) / 2));                \
            nvshmem_##N##_max_reduce(team, to, from, 4), tally.want(to[3] == (T)pes);                                  \
        }                                                                                                              \
        if (threadIdx.x < 32) {                                                                                        \
            nvshmemx_##N##_broadcast_warp(team, to, from, 4, 0);                                                       \
            nvshmemx_##N##_fcollect_warp(team, to, from, 4), nvshmemx_##N##_alltoall_warp(team, to, from, 4);          \
            nvshmemx_##N##_min_reduce_warp(team, to, from, 4), tally.want(to[3] == (T)1);                              \
        }                                                                                                              \
        nvshmemx_##N##_broadcast_block(team, to, from, 4, 0);                                                          \
        nvshmemx_##N##_fcollect_block(team, to, from, 4), nvshmemx_##N##_alltoall_block(team, to, from, 4);            \
        nvshmemx_##N##_prod_reduce_block(team, to, from, 4);                                                           \
        nvshmemx_##N##_sum_reducescatter_block(team, to, from, 4);                                                     \
        nvshmemx_barrier_all_block();                                                                                  \
    }

TYPE(int, int)
TYPE(float, float)

__global__ void family(void *memory, unsigned *wrong) {
    const Tally tally{wrong};
    char *to = (char *)memory, *from = to + kBytes / 2;
    type_int((int *)to, (int *)from, tally);
    type_float((float *)to, (float *)from, tally);
    nvshmemx_uint32_xor_reduce_block(NVSHMEM_TEAM_WORLD, (uint32_t *)to, (uint32_t *)from, 4);
    if (threadIdx.x < 32) nvshmemx_uint32_and_reduce_warp(NVSHMEM_TEAM_WORLD, (uint32_t *)to, (uint32_t *)from, 4);
    if (threadIdx.x == 0) nvshmem_uint32_or_reduce(NVSHMEM_TEAM_WORLD, (uint32_t *)to, (uint32_t *)from, 4);
}

#ifndef __CUDACC_RTC__
int main() { return program("collective", family); }
#endif
