// Teams that the host made, one of them with an id that another had: numbers, meetings, collective calls.
#include "program.h"

__constant__ nvshmem_team_t teams[2];

__global__ void family(void *memory, unsigned *wrong) {
    const Tally tally{wrong};
    int *to = (int *)memory, *from = to + 1024;
    nvshmemx_barrier_all_block();
    for (int which = 0; which < 2; ++which) {
        // Not every PE is in it.
        const nvshmem_team_t team = teams[which];
        const int me = nvshmem_team_my_pe(team), size = nvshmem_team_n_pes(team);
        if (threadIdx.x == 0) tally.want((team == NVSHMEM_TEAM_INVALID) == (size == -1));
        if (team == NVSHMEM_TEAM_INVALID) continue;
        for (int i = (int)threadIdx.x; i < 4 * size; i += blockDim.x) from[i] = me + 1;
        nvshmemx_barrier_block(team);
        // A member that is ahead writes what nobody looks at any more.
        int *sum = to, *cast = to + 4, *all = to + 8;
        if (threadIdx.x == 0) {
            tally.want(nvshmem_team_translate_pe(team, me, NVSHMEM_TEAM_WORLD) == nvshmem_my_pe());
            tally.want(nvshmem_int_sum_reduce(team, sum, from, 4) == 0 && sum[3] == size * (size + 1) / 2);
            tally.want(nvshmem_int_broadcast(team, cast, from, 4, size - 1) == 0 && cast[3] == size);
        }
        nvshmemx_int_fcollect_block(team, all, from, 4);
        if (threadIdx.x == 0) tally.want(all[4 * size - 1] == size);
        nvshmemx_barrier_block(team);
    }
    nvshmemx_barrier_all_block();
}

#ifndef __CUDACC_RTC__
int main() {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0) {
        nvshmem_team_t made[2], row;
        nvshmem_init();
        const int pes = nvshmem_n_pes();
        nvshmem_team_split_strided(NVSHMEM_TEAM_WORLD, 0, 1, pes, nullptr, 0, &made[0]);
        nvshmem_team_destroy(made[0]);
        nvshmem_team_split_strided(NVSHMEM_TEAM_WORLD, 0, 2, (pes + 1) / 2, nullptr, 0, &made[0]);
        nvshmem_team_split_2d(NVSHMEM_TEAM_WORLD, 2, nullptr, 0, &row, nullptr, 0, &made[1]);
        if (cudaMemcpyToSymbol(teams, made, sizeof made) != cudaSuccess) return 1;
    }
    return program("teams", family);
}
#endif
