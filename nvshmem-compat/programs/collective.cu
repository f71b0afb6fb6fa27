// broadcast, fcollect, alltoall, reductions: one thread, a warp, a block.
#include "program.h"

// Each call with one type: what differs from type to type is the same for all of them, and NVSHMEM's headers take a
// compiler long.
static __device__ void of_thread(int *to, int *from, float *real, Tally tally) {
    const nvshmem_team_t team = NVSHMEM_TEAM_WORLD;
    const int pes = nvshmem_n_pes();
    nvshmem_int_broadcast(team, to, from, 4, 0), tally.want(to[3] == 1);
    nvshmem_int_fcollect(team, to, from, 4), tally.want(to[4 * pes - 1] == pes);
    nvshmem_int_alltoall(team, to, from, 4), tally.want(to[4 * pes - 1] == pes);
    nvshmem_int_sum_reduce(team, to, from, 4), tally.want(to[3] == pes * (pes + 1) / 2);
    nvshmem_float_max_reduce(team, (float *)to, real, 4), tally.want(((float *)to)[3] == (float)pes);
    nvshmem_uint32_or_reduce(team, (uint32_t *)to, (uint32_t *)from, 4);
}

static __device__ void of_warp(int *to, int *from, float *real, Tally tally) {
    const nvshmem_team_t team = NVSHMEM_TEAM_WORLD;
    nvshmemx_float_broadcast_warp(team, (float *)to, real, 4, 0);
    nvshmemx_float_fcollect_warp(team, (float *)to, real, 4);
    nvshmemx_float_alltoall_warp(team, (float *)to, real, 4);
    nvshmemx_uint32_and_reduce_warp(team, (uint32_t *)to, (uint32_t *)from, 4);
    nvshmemx_int_min_reduce_warp(team, to, from, 4), tally.want(to[3] == 1);
}

static __device__ void of_block(int *to, int *from, float *real) {
    const nvshmem_team_t team = NVSHMEM_TEAM_WORLD;
    nvshmemx_int_broadcast_block(team, to, from, 4, 0);
    nvshmemx_int_fcollect_block(team, to, from, 4);
    nvshmemx_int_alltoall_block(team, to, from, 4);
    nvshmemx_float_prod_reduce_block(team, (float *)to, real, 4);
    nvshmemx_int_sum_reducescatter_block(team, to, from, 4);
    nvshmemx_uint32_xor_reduce_block(team, (uint32_t *)to, (uint32_t *)from, 4);
}

__global__ void family(void *memory, unsigned *wrong) {
    const Tally tally{wrong};
    int *to = (int *)memory, *from = to + kBytes / 12;
    float *real = (float *)from + kBytes / 12;
    const int me = nvshmem_my_pe(), pes = nvshmem_n_pes();
    for (int i = (int)threadIdx.x; i < 4 * pes; i += blockDim.x) from[i] = me + 1, real[i] = (float)(me + 1);
    nvshmemx_barrier_all_block();
    if (threadIdx.x == 0) of_thread(to, from, real, tally);
    if (threadIdx.x < 32) of_warp(to, from, real, tally);
    of_block(to, from, real);
    nvshmemx_barrier_all_block();
}

#ifndef __CUDACC_RTC__
int main() { return program("collective", family); }
#endif
