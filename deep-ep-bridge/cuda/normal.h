/* One round of DeepEP's normal kernels between nodes as they call ibgda_device.cuh: what lies where, which token goes
 * where, and what every word and byte must be. A PE is one node's GPU; the node's other GPUs are rows of its memory. */
#ifndef SHUNT_DEEP_EP_NORMAL_H
#define SHUNT_DEEP_EP_NORMAL_H

#include "harness.h"

/* Broken on purpose, one at a time: what the program must notice. */
#define BREAK_NO_QUIET 1       /* words are cleared while adds to them are under way */
#define BREAK_ADD_TWICE 2      /* an add is repeated, as one whose answer was lost */
#define BREAK_TAIL_ELSEWHERE 3 /* a tail on another queue pair than its chunk */
#ifndef BREAK
#define BREAK 0
#endif

constexpr int kLanes = SHUNT_NVSHMEM_WARP;
/* GPUs of a node: a forwarder warp for each. Warps that fill rings, and that reduce. */
constexpr int kLocal = 2, kSenders = 2, kReaders = 2, kMaxReaders = 2;
constexpr int kMaxNodes = 8;
/* Of a token: a header and what it carries. */
constexpr int kTokenWords = 32;
constexpr size_t kTokenBytes = 8 * kTokenWords;
/* What a channel will send: for each GPU of the node from which token to which, then for the node. */
constexpr int kMeta = 2 * kLocal + 2;
/* Of a notification: the round, tokens for each GPU of the node, and for the node. */
constexpr int kCounts = kLocal + 2;

struct Round {
    /* In the symmetric heap. Rings and words are by channel and node, counts by node. */
    uint64_t *send, *receive, *head, *tail;
    int *meta_send, *meta, *counts_send, *counts;
    /* What each reader's node says that it added to a head, by channel and node. */
    int *returned;
    /* Of this GPU: tokens in a ring, tokens that a reader is done with, readers that are done. */
    uint64_t *filled, *taken, *retired;
    /* What was dispatched, by GPU of the node, source and number. */
    uint64_t *rows;
    unsigned *wrong;
    long long patience;
    unsigned number;
    int nodes, me, channels, tokens, slots, chunk;

    __device__ int at(int channel, int node) const { return channel * nodes + node; }
    __device__ uint64_t *slot(uint64_t *rings, int channel, int node, uint64_t token) const {
        return rings + ((size_t)at(channel, node) * slots + token % slots) * kTokenWords;
    }
    __device__ uint64_t *row(int local, int source, int token) const {
        return rows + ((size_t)(local * nodes + source) * tokens + token) * kTokenWords;
    }
    __device__ uint64_t *reader(int channel, int reader, int node) const {
        return taken + (channel * kMaxReaders + reader) * nodes + node;
    }
    __device__ uint64_t *done(int channel, int reader) const {
        return retired + channel * kMaxReaders + reader;
    }
    __device__ int first(int channel) const { return tokens * channel / channels; }
    __device__ int last(int channel) const { return tokens * (channel + 1) / channels; }
    __device__ void want(bool right) const {
        if (!right) atomicAdd(wrong, 1u);
    }
};

__device__ inline uint64_t mixed(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

/* The GPUs of `node` to which a token goes: none of them at times. */
__device__ inline unsigned route(const Round &round, int source, int token, int node) {
    const uint64_t what = (uint64_t)round.number << 40 | (uint64_t)source << 32 | (uint64_t)token << 8 | (unsigned)node;
    return (unsigned)(mixed(what + 1) >> 20) & ((1u << kLocal) - 1);
}

/* Tokens of `source` before `end` that go to a GPU of `node`, or, with -1, to any. */
__device__ inline int count(const Round &round, int source, int node, int local, int end) {
    int found = 0;
    for (int token = 0; token < end; ++token) {
        const unsigned mask = route(round, source, token, node);
        found += local < 0 ? mask != 0 : mask >> local & 1;
    }
    return found;
}

__device__ inline uint64_t header(const Round &round, int source, int token) {
    return (uint64_t)round.number << 40 | (uint64_t)source << 32 | (unsigned)token;
}

__device__ inline uint64_t word(const Round &round, int source, int token, int i) {
    return mixed(header(round, source, token) * kTokenWords + i);
}

__device__ inline void store(uint64_t *at, uint64_t value) { *(volatile uint64_t *)at = value; }

/* By all lanes: what lane 0 found. */
template <typename Find> __device__ inline int told(int lane, Find find) {
    int found = lane == 0 ? find() : 0;
    __syncwarp();
    return __shfl_sync(0xffffffff, found, 0);
}

/* A wait of a whole warp; one that runs out is counted. */
template <typename Holds> __device__ inline bool held(const Round &round, int lane, Holds holds) {
    const bool came = told(lane, [&] { return (int)await(holds, round.patience); }) != 0;
    if (lane == 0) round.want(came);
    return came;
}

/* One thread: an add behind what was posted on the queue pair. */
__device__ inline void add(const Round &round, uint64_t *word, int value, int node, int queue) {
    for (int i = 0; i < (BREAK == BREAK_ADD_TWICE ? 2 : 1); ++i) {
        deep_ep::nvshmemi_ibgda_amo_nonfetch_add(word, value, node, queue, node == round.me);
    }
}

/* A warp: a chunk of a ring that was filled, and behind it, on the same queue pair, how much it is. */
__device__ inline void issue(const Round &round, int channel, int node, uint64_t from, int tokens, int lane) {
    if (node != round.me) {
        const uint64_t to = (uint64_t)round.slot(round.receive, channel, round.me, from);
        const uint64_t here = (uint64_t)round.slot(round.send, channel, node, from);
        deep_ep::nvshmemi_ibgda_put_nbi_warp<true>(to, here, kTokenBytes * tokens, node, channel, lane, 0);
    } else {
        __threadfence_system();
    }
    __syncwarp();
    const int queue = BREAK == BREAK_TAIL_ELSEWHERE ? (channel + 1) % round.channels : channel;
    if (lane == node % kLanes) add(round, round.tail + round.at(channel, round.me), tokens, node, queue);
    __syncwarp();
}

/* Where a token for `node` is made: the ring that is sent from, or received in where it stays here. */
__device__ inline uint64_t *made_in(const Round &round, int channel, int node, uint64_t token) {
    return round.slot(node == round.me ? round.receive : round.send, channel, node, token);
}

/* A warp: room in the ring to `node` for its next token. */
__device__ inline bool room(const Round &round, int channel, int node, uint64_t token, int lane) {
    const uint64_t *head = round.head + round.at(channel, node);
    return held(round, lane, [&] { return token < seen(head) + (uint64_t)round.slots; });
}

/* A warp, a lane for each node: gives room back once all who read the ring are done with a chunk of it; at the end it says
 * how much that was, by an absolute value. */
__device__ inline void return_heads(const Round &round, int channel, int readers, int lane) {
    uint64_t last[kMaxNodes] = {};
    const long long start = clock64();
    for (bool reads = true; reads;) {
        reads = false;
        for (int node = lane; node < round.nodes; node += kLanes) {
            uint64_t least = ~0ull;
            for (int reader = 0; reader < readers; ++reader) {
                if (seen(round.done(channel, reader)) != 0) continue;
                reads = true;
                least = min(least, seen(round.reader(channel, reader, node)));
            }
            if (least == ~0ull || least < last[node] + round.chunk) continue;
            add(round, round.head + round.at(channel, round.me), (int)(least - last[node]), node,
                channel + round.channels);
            last[node] = least;
        }
        if (clock64() - start > 2 * round.patience) return round.want(false);
    }
    for (int node = lane; node < round.nodes; node += kLanes) {
        int *word = round.returned + round.at(channel, round.me);
        if (node == round.me) {
            *(volatile int *)word = (int)last[node];
        } else {
            deep_ep::nvshmemi_ibgda_rma_p(word, (int)last[node], node, channel + round.channels);
        }
    }
}

#endif
