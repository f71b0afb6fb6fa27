// quiet, fence, flush, barrier, sync, teams: one thread, a warp, four of them, a block.
#include "program.h"

__global__ void family(void *memory, unsigned *wrong) {
    const Tally tally{wrong};
    int *to = (int *)memory;
    if (threadIdx.x == 0) {
        nvshmem_int_p(to, 1, next_pe());
        nvshmem_fence();
        nvshmem_int_p(to, 2, next_pe());
        nvshmem_quiet();
        nvshmemx_flush();
        nvshmem_barrier_all();
        tally.want(to[0] == 2);
        nvshmem_sync_all();
        tally.want(nvshmem_barrier(NVSHMEM_TEAM_WORLD) == 0 && nvshmem_team_sync(NVSHMEM_TEAM_WORLD) == 0);
        tally.want(nvshmem_sync(NVSHMEM_TEAM_WORLD) == 0);
        tally.want(nvshmem_team_my_pe(NVSHMEM_TEAM_WORLD) == nvshmem_my_pe());
        tally.want(nvshmem_team_n_pes(NVSHMEM_TEAM_WORLD) == nvshmem_n_pes());
        tally.want(nvshmem_team_translate_pe(NVSHMEM_TEAM_WORLD, 0, NVSHMEM_TEAM_WORLD) == 0);
    }
    if (threadIdx.x < 32) {
        nvshmemx_flush_warp();
        nvshmemx_barrier_all_warp();
        nvshmemx_sync_all_warp();
        tally.want(nvshmemx_barrier_warp(NVSHMEM_TEAM_WORLD) == 0);
        tally.want(nvshmemx_team_sync_warp(NVSHMEM_TEAM_WORLD) == 0);
    }
    tally.want(nvshmemx_barrier_warpgroup(NVSHMEM_TEAM_WORLD) == 0);
    nvshmemx_flush_block();
    nvshmemx_barrier_all_block();
    nvshmemx_sync_all_block();
    tally.want(nvshmemx_barrier_block(NVSHMEM_TEAM_WORLD) == 0);
    tally.want(nvshmemx_team_sync_block(NVSHMEM_TEAM_WORLD) == 0);
}

#ifndef __CUDACC_RTC__
int main() { return program("order", family, true); }
#endif
