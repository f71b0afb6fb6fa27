// What goes before a round, as DeepEP calls it: all queue pairs quiet, a meeting, counts to each rank, quiet again; and
// the meeting of ranks that may lose one, by words of absolute values.

#include "harness.h"

namespace {

template <bool kOfTeam> __device__ void meet(nvshmem_team_t team) {
    if (threadIdx.x == 0) {
        if (kOfTeam) {
            nvshmem_sync(team);
        } else {
            nvshmem_sync_all();
        }
    }
    __syncthreads();
}

// A warp for each rank sends what it will be sent; the words were cleared between the meetings.
template <bool kOfTeam>
__global__ void __launch_bounds__(kThreads / 2, 1) notify(int *send, int *receive, int words, int ranks, int me, nvshmem_team_t team) {
    quiet_all(ranks, me);
    meet<kOfTeam>(team);
    for (int i = threadIdx.x; i < words * ranks; i += blockDim.x) receive[i] = 0;
    __threadfence_system();
    meet<kOfTeam>(team);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int rank = warp; rank < ranks; rank += blockDim.x / 32) {
        if (rank == me) continue;
        deep_ep::nvshmemi_ibgda_put_nbi_warp<true>((uint64_t)(receive + me * words), (uint64_t)(send + rank * words),
                                                   words * sizeof(int), rank, 0, lane, 0);
    }
    __syncthreads();
    if ((int)threadIdx.x < ranks && (int)threadIdx.x != me) deep_ep::nvshmemi_ibgda_quiet(threadIdx.x, 0);
    __syncthreads();
    meet<kOfTeam>(team);
}

// Each rank writes its count of meetings to all others and waits for theirs; one that does not come is masked.
__global__ void meet_or_mask(int *counts, int *mask, int ranks, int me) {
    quiet_all(ranks, me);
    const int rank = threadIdx.x;
    const int count = counts[me] - 1;
    __syncthreads();
    if (rank < ranks && rank != me && mask[rank] == 0) {
        deep_ep::nvshmemi_ibgda_rma_p(counts + me, count, rank, 0);
        if (!await([&] { return seen(counts + rank) <= count; })) mask[rank] = 1;
    }
    __syncthreads();
    if (rank == 0) counts[me] = count;
}

__global__ void clean(int *words, int count) {
    nvshmemx_barrier_all_block();
    for (int i = threadIdx.x; i < count; i += blockDim.x) words[i] = 0;
    nvshmemx_barrier_all_block();
}

} // namespace

int main() {
    return on_gpu("notify", [](char *memory) {
        int *words = (int *)memory;
        notify<true><<<1, 128>>>(words, words + 1024, 18, 2, 0, NVSHMEM_TEAM_WORLD);
        notify<false><<<1, 128>>>(words, words + 1024, 18, 2, 0, NVSHMEM_TEAM_WORLD);
        meet_or_mask<<<1, 32>>>(words + 2048, words + 3072, 2, 0);
        clean<<<1, 256>>>(words, 64);
    });
}
