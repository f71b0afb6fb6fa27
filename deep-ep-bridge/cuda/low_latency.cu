// Low-latency dispatch and combine as DeepEP calls them: a put for each token and expert on the expert's queue pair,
// four to a doorbell, then one add that says how many; the receiver polls, reads and clears.

#include "harness.h"

namespace {

struct Round {
    uint64_t send;   // a message for each token
    uint64_t data;   // slots of messages: by local expert, source rank, slot
    int *counts;     // words that are signalled: by local expert and source rank, or by expert
    int *finished;   // messages issued, by expert; here
    int *slots;      // slots taken, by expert; here
    int *routes;     // experts of each token, -1 for none
    int *received;   // what arrived, by local expert and source rank
    size_t bytes;    // of a message
    int tokens, top_k, local_experts, ranks, me;
};

__device__ uint64_t slot_at(const Round &round, int local_expert, int source, int slot) {
    const int group = local_expert * round.ranks + source;
    return round.data + ((size_t)group * round.tokens + slot) * round.bytes;
}

// One warp: a message to the expert's rank, by memory where that reaches, else by a NIC.
__device__ void send_one(const Round &round, uint64_t to, uint64_t from, int rank, int queue, int lane, int number) {
    const uint64_t mapped = deep_ep::nvshmemi_get_p2p_ptr(to, round.me, rank);
    if (mapped == 0) {
        deep_ep::nvshmemi_ibgda_put_nbi_warp(to, from, round.bytes, rank, queue, lane, number);
    } else {
        copy(mapped, from, round.bytes, lane);
    }
}

// One thread: the word at `rank` gets `value`, behind all that was sent there for the same expert.
__device__ void tell(const Round &round, int *word, int value, int rank, int queue) {
    const uint64_t mapped = deep_ep::nvshmemi_get_p2p_ptr((uint64_t)word, round.me, rank);
    if (mapped == 0) {
        deep_ep::nvshmemi_ibgda_amo_nonfetch_add(word, value, rank, queue);
    } else {
        __threadfence_system();
        atomicAdd_system((int *)mapped, value);
    }
}

__device__ void send_tokens(const Round &round, int warp, int lane) {
    if (warp >= round.top_k) return;
    for (int token = blockIdx.x; token < round.tokens; token += gridDim.x) {
        const int expert = round.routes[token * round.top_k + warp];
        if (expert < 0) continue;
        int slot = lane == 0 ? atomicAdd(round.slots + expert, 1) : 0;
        slot = __shfl_sync(0xffffffff, slot, 0);
        const int rank = expert / round.local_experts, local = expert % round.local_experts;
        const uint64_t from = round.send + (size_t)token * round.bytes;
        send_one(round, slot_at(round, local, round.me, slot), from, rank, local, lane, slot);
        if (lane == 0) {
            __threadfence();
            atomicAdd(round.finished + expert, 1);
        }
    }
}

// The last warp of a block: how many went to an expert, once all of them were issued; none is a number, too.
__device__ void send_counts(const Round &round, int lane) {
    const int experts = round.ranks * round.local_experts;
    for (int expert = blockIdx.x; expert < experts; expert += gridDim.x) {
        int count = 0;
        for (int i = lane; i < round.tokens * round.top_k; i += 32) count += round.routes[i] == expert;
        count = __reduce_add_sync(0xffffffff, count);
        if (lane == 0) {
            await([&] { return seen(round.finished + expert) >= count; });
            const int local = expert % round.local_experts;
            tell(round, round.counts + local * round.ranks + round.me, -count - 1, expert / round.local_experts, local);
        }
        __syncwarp();
    }
}

__global__ void __launch_bounds__(kThreads, 1) dispatch_send(Round round) {
    if (round.top_k > 0 && deep_ep::ibgda_get_state()->num_rc_per_pe < (uint32_t)round.local_experts) return;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, last = blockDim.x / 32 - 1;
    if (warp == last) {
        send_counts(round, lane);
    } else {
        send_tokens(round, warp, lane);
    }
}

// One thread for each local expert and source: the number is kept as its complement, so that zero is "not yet".
__global__ void dispatch_receive(Round round) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= round.local_experts * round.ranks) return;
    const bool came = await([&] { return seen(round.counts + at) != 0; });
    round.received[at] = came ? -round.counts[at] - 1 : -1;
    round.counts[at] = 0;
}

// One warp for each local expert and rank: what came goes back to where it came from, then a flag.
__global__ void __launch_bounds__(kThreads, 1) combine_send(Round round) {
    const int lane = threadIdx.x % 32, warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    if (warp >= round.local_experts * round.ranks) return;
    const int local = warp / round.ranks, rank = warp % round.ranks;
    const int expert = round.me * round.local_experts + local;
    for (int slot = 0; slot < round.received[warp]; ++slot) {
        const uint64_t from = slot_at(round, local, rank, slot);
        const uint64_t to = round.data + ((size_t)expert * round.tokens + slot) * round.bytes;
        send_one(round, to, from, rank, local, lane, slot);
    }
    if (lane == 0) tell(round, round.counts + expert, 1, rank, local);
}

__global__ void combine_receive(Round round) {
    const int expert = blockIdx.x * blockDim.x + threadIdx.x;
    if (expert >= round.local_experts * round.ranks) return;
    await([&] { return seen(round.counts + expert) != 0; });
    round.counts[expert] = 0;
}

} // namespace

int main() {
    return on_gpu("low_latency", [](char *memory) {
        int *words = (int *)memory;
        const uint64_t data = (uint64_t)memory + 4096;
        const Round round = {data, data, words, words + 64, words + 128, words + 192, words + 256, 128, 4, 2, 2, 2, 0};
        dispatch_send<<<2, 128>>>(round);
        dispatch_receive<<<1, 32>>>(round);
        combine_send<<<1, 128>>>(round);
        combine_receive<<<1, 32>>>(round);
    });
}
