// The rings of DeepEP's normal kernels between nodes: a sender's coordinator puts chunks of tokens and adds to the tail
// at the receiver; the receiver's forwarder takes them and adds to the head at the sender, on a queue pair of its own.

#include "harness.h"

namespace {

struct Ring {
    uint64_t send, receive; // slots of tokens
    int *meta_send, *meta;  // what a channel will send, as complements
    uint64_t *head, *tail;  // tokens taken and tokens sent
    size_t bytes;           // of a token
    int slots, chunk, channels, peer, me;
};

// One warp: says how much comes, then sends it; never more than the ring has room for.
__device__ void send(const Ring &ring, int channel, int tokens, int lane) {
    if (lane == 0) *ring.meta_send = -tokens - 1;
    deep_ep::nvshmemi_ibgda_put_nbi_warp<true>((uint64_t)ring.meta, (uint64_t)ring.meta_send, sizeof(int), ring.peer,
                                               channel, lane, 0);
    for (int sent = 0; sent < tokens;) {
        const int count = min(ring.chunk, tokens - sent);
        const uint64_t full = (uint64_t)(sent + count - ring.slots);
        if (sent + count > ring.slots && !await([&] { return seen(ring.head) >= full; })) return;
        const uint64_t at = (uint64_t)(sent % ring.slots) * ring.bytes;
        deep_ep::nvshmemi_ibgda_put_nbi_warp<true>(ring.receive + at, ring.send + at, ring.bytes * count, ring.peer,
                                                   channel, lane, 0);
        __syncwarp();
        // Any lane may add: the put was posted.
        if (lane == ring.peer % 32) {
            deep_ep::nvshmemi_ibgda_amo_nonfetch_add(ring.tail, count, ring.peer, channel, ring.peer == ring.me);
        }
        __syncwarp();
        sent += count;
    }
}

// One warp: takes what arrives and gives the room back.
__device__ void forward(const Ring &ring, int channel, uint64_t to, int lane) {
    if (!await([&] { return seen(ring.meta) < 0; })) return;
    const int tokens = -seen(ring.meta) - 1;
    for (int taken = 0; taken < tokens;) {
        if (!await([&] { return seen(ring.tail) > (uint64_t)taken; })) return;
        const int count = (int)(seen(ring.tail) - (uint64_t)taken);
        for (int token = taken; token < taken + count; ++token) {
            copy(to + token * ring.bytes, ring.receive + (uint64_t)(token % ring.slots) * ring.bytes, ring.bytes, lane);
        }
        if (lane == 0) {
            deep_ep::nvshmemi_ibgda_amo_nonfetch_add(ring.head, count, ring.peer, channel + ring.channels,
                                                     ring.peer == ring.me);
        }
        __syncwarp();
        taken += count;
    }
}

// Two blocks a channel.
__global__ void __launch_bounds__(kThreads, 1) exchange(Ring ring, uint64_t to, int tokens) {
    const int channel = blockIdx.x / 2, lane = threadIdx.x % 32;
    if (threadIdx.x >= 32) return;
    if (blockIdx.x % 2 == 0) {
        send(ring, channel, tokens, lane);
    } else {
        forward(ring, channel, to, lane);
    }
}

} // namespace

int main() {
    return on_gpu("forward", [](char *memory) {
        int *words = (int *)memory;
        const uint64_t data = (uint64_t)memory + 4096;
        const Ring ring = {data, data, words, words + 32, (uint64_t *)(words + 64), (uint64_t *)(words + 128),
                           128,  8,    4,     1,          1,                        0};
        exchange<<<2, 64>>>(ring, data, 16);
    });
}
