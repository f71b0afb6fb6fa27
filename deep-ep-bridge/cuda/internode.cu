// Rounds of dispatch and combine between nodes, as DeepEP's normal kernels make them through ibgda_device.cuh: all queue
// pairs quiet, a meeting, words cleared, counts; what a channel will send, chunks with a tail behind each, heads that give
// room back on a queue pair of their own; then the same way home. A job of PEs; all that arrives is compared.

#include <cstdlib>
#include <cstring>
#include <nvshmemx.h>
#include <shunt_nvshmem.h>

#include "launch.h"
#include "normal.h"

namespace {

__device__ void meet() {
    if (threadIdx.x == 0) nvshmem_sync_all();
    __syncthreads();
}

// One block: nobody's words are cleared before everybody's adds are through.
__device__ void clear(const Round &round) {
    if (BREAK != BREAK_NO_QUIET) quiet_all(round.nodes, round.me);
    meet();
    const int words = round.channels * round.nodes;
    for (int i = threadIdx.x; i < words; i += blockDim.x) {
        // Each add once, of the round before and of none else.
        round.want(seen(round.head + i) == (uint64_t)seen(round.returned + i));
        *(volatile int *)(round.returned + i) = 0;
        store(round.head + i, 0);
        store(round.tail + i, 0);
    }
    for (int i = threadIdx.x; i < words * kMeta; i += blockDim.x) *(volatile int *)(round.meta + i) = 0;
    __threadfence_system();
    __syncthreads();
}

__device__ int counted(const Round &round, int source, int node, int i) {
    if (i == 0) return (int)round.number;
    return count(round, source, node, i <= kLocal ? i - 1 : -1, round.tokens);
}

// How much comes: before a dispatch.
__device__ void notify(const Round &round, int, int warp, int lane) {
    clear(round);
    for (int node = warp; node < round.nodes; node += blockDim.x / kLanes) {
        int *from = round.counts_send + node * kCounts, *to = round.counts + round.me * kCounts;
        for (int i = lane; i < kCounts; i += kLanes) {
            (node == round.me ? to : from)[i] = counted(round, round.me, node, i);
        }
        __threadfence_system();
        if (node == round.me) continue;
        deep_ep::nvshmemi_ibgda_put_nbi_warp<true>((uint64_t)to, (uint64_t)from, kCounts * sizeof(int), node, 0, lane, 0);
    }
    __syncthreads();
    for (int node = threadIdx.x; node < round.nodes; node += blockDim.x) {
        if (node != round.me) deep_ep::nvshmemi_ibgda_quiet(node, 0);
    }
    __syncthreads();
    meet();
    for (int i = threadIdx.x; i < round.nodes * kCounts; i += blockDim.x) {
        round.want(seen(round.counts + i) == counted(round, i / kCounts, round.me, i % kCounts));
    }
    if (threadIdx.x == 0) round.want(shunt_nvshmem_device_fault() == 0);
}

// Before a combine, for which the counts are known.
__device__ void cached_notify(const Round &round, int, int, int) {
    clear(round);
    meet();
}

__device__ int announced(const Round &round, int source, int node, int channel, int i) {
    const int end = i < kLocal || i == 2 * kLocal ? round.first(channel) : round.last(channel);
    return count(round, source, node, i < 2 * kLocal ? i % kLocal : -1, end);
}

// A warp: what the channel will send to a node, as complements.
__device__ void announce(const Round &round, int channel, int node, int lane) {
    int *from = round.meta_send + round.at(channel, node) * kMeta;
    int *to = round.meta + round.at(channel, round.me) * kMeta;
    for (int i = lane; i < kMeta; i += kLanes) {
        *(volatile int *)((node == round.me ? to : from) + i) = -announced(round, round.me, node, channel, i) - 1;
    }
    __threadfence_system();
    if (node != round.me) {
        deep_ep::nvshmemi_ibgda_put_nbi_warp<true>((uint64_t)to, (uint64_t)from, kMeta * sizeof(int), node, channel, lane,
                                                   0);
    }
    __syncwarp();
}

// A warp of those that fill the rings, in turns; tokens count in their order.
__device__ void fill(const Round &round, int channel, int warp, int lane) {
    for (int node = warp; node < round.nodes; node += kSenders) announce(round, channel, node, lane);
    uint64_t next[kMaxNodes] = {};
    const int first = round.first(channel);
    for (int token = first; token < round.last(channel); ++token) {
        for (int node = 0; node < round.nodes; ++node) {
            const unsigned mask = route(round, round.me, token, node);
            if (mask == 0) continue;
            const uint64_t at = next[node]++;
            if ((token - first) % kSenders != warp) continue;
            if (!room(round, channel, node, at, lane)) return;
            uint64_t *words = made_in(round, channel, node, at);
            for (int i = lane; i < kTokenWords; i += kLanes) {
                const uint64_t value = i == 0 ? header(round, round.me, token) : word(round, round.me, token, i);
                store(words + i, i == 1 ? mask : value);
            }
            __threadfence_system();
            __syncwarp();
            uint64_t *filled = round.filled + round.at(channel, node);
            if (!held(round, lane, [&] { return seen(filled) == at; })) return;
            if (lane == 0) store(filled, at + 1);
        }
    }
}

// The coordinator's warp: chunks, from whichever ring has one.
__device__ void coordinate(const Round &round, int channel, int lane) {
    int left[kMaxNodes] = {}, all = 0;
    uint64_t issued[kMaxNodes] = {};
    for (int node = 0; node < round.nodes; ++node) {
        left[node] = announced(round, round.me, node, channel, 2 * kLocal + 1) -
                     announced(round, round.me, node, channel, 2 * kLocal);
        all += left[node];
    }
    long long start = clock64();
    for (int i = channel + round.me; all > 0; ++i) {
        const int node = i % round.nodes, tokens = min(left[node], round.chunk);
        const int ready = told(lane, [&] {
            if (clock64() - start > round.patience) return -1;
            return tokens > 0 && seen(round.filled + round.at(channel, node)) >= issued[node] + tokens ? 1 : 0;
        });
        if (ready < 0) {
            if (lane == 0) round.want(false);
            return;
        }
        if (ready == 0) continue;
        issue(round, channel, node, issued[node], tokens, lane);
        issued[node] += tokens, left[node] -= tokens, all -= tokens;
        start = clock64();
    }
}

// A forwarder's warp: takes the tokens of one GPU of its node out of all rings.
__device__ void forward(const Round &round, int channel, int local, int lane) {
    int left[kMaxNodes] = {}, rows[kMaxNodes] = {}, all = 0;
    uint64_t taken[kMaxNodes] = {};
    for (int node = 0; node < round.nodes; ++node) {
        const int *meta = round.meta + round.at(channel, node) * kMeta;
        for (int i = 0; i < kMeta; ++i) {
            if (!held(round, lane, [&] { return seen(meta + i) < 0; })) return;
            if (lane == 0) round.want(-seen(meta + i) - 1 == announced(round, node, round.me, channel, i));
        }
        left[node] = announced(round, node, round.me, channel, 2 * kLocal + 1) -
                     announced(round, node, round.me, channel, 2 * kLocal);
        rows[node] = announced(round, node, round.me, channel, local), all += left[node];
    }
    long long start = clock64();
    for (int i = channel; all > 0; ++i) {
        const int node = i % round.nodes;
        const int came = told(lane, [&] {
            if (clock64() - start > round.patience) return -1;
            return (int)(seen(round.tail + round.at(channel, node)) - taken[node]);
        });
        // More than the ring holds, or than there is: a tail that was added twice.
        if (came < 0 || came > round.slots || came > left[node]) {
            if (lane == 0) round.want(false);
            return;
        }
        for (int token = 0; token < came; ++token, ++taken[node]) {
            const uint64_t *words = round.slot(round.receive, channel, node, taken[node]);
            if ((seen(words + 1) >> local & 1) == 0) continue;
            uint64_t *row = round.row(local, node, min(rows[node]++, round.tokens - 1));
            for (int i = lane; i < kTokenWords; i += kLanes) row[i] = seen(words + i);
        }
        if (came == 0) continue;
        left[node] -= came, all -= came;
        __syncwarp();
        __threadfence_system();
        if (lane == 0) store(round.reader(channel, local, node), taken[node]);
        start = clock64();
    }
    if (lane == 0) store(round.done(channel, local), 1);
}

// Two blocks a channel.
__device__ void dispatch(const Round &round, int block, int warp, int lane) {
    const int channel = block / 2;
    if (block % 2 == 0) {
        if (warp < kSenders) fill(round, channel, warp, lane);
        if (warp == kSenders) coordinate(round, channel, lane);
    } else {
        if (warp < kLocal) forward(round, channel, warp, lane);
        if (warp == kLocal) return_heads(round, channel, kLocal, lane);
    }
}

// A warp for each node: what its tokens became goes back, the GPUs of this node added up.
__device__ void send_back(const Round &round, int channel, int node, int lane) {
    int rows[kLocal];
    for (int local = 0; local < kLocal; ++local) rows[local] = announced(round, node, round.me, channel, local);
    uint64_t at = 0, issued = 0;
    for (int token = round.first(channel); token < round.last(channel); ++token) {
        const unsigned mask = route(round, node, token, round.me);
        if (mask == 0) continue;
        if (!room(round, channel, node, at, lane)) return;
        uint64_t *words = made_in(round, channel, node, at++);
        for (int i = lane; i < kTokenWords; i += kLanes) {
            uint64_t sum = 0;
            for (int local = 0; local < kLocal; ++local) {
                if ((mask >> local & 1) == 0) continue;
                const uint64_t got = round.row(local, node, rows[local])[i];
                const uint64_t value = i == 0 ? header(round, node, token) : word(round, node, token, i);
                round.want(got == (i == 1 ? mask : value));
                sum += got * (uint64_t)(local + 1);
            }
            store(words + i, sum);
        }
        for (int local = 0; local < kLocal; ++local) rows[local] += mask >> local & 1;
        __threadfence_system();
        __syncwarp();
        if (at - issued < (uint64_t)round.chunk) continue;
        issue(round, channel, node, issued, round.chunk, lane);
        issued = at;
    }
    if (at > issued) issue(round, channel, node, issued, (int)(at - issued), lane);
}

// A warp of those that take tokens in turns: adds up what came back from all nodes.
__device__ void receive_back(const Round &round, int channel, int reader, int lane) {
    uint64_t next[kMaxNodes] = {};
    const int first = round.first(channel);
    for (int token = first; token < round.last(channel); ++token) {
        const bool mine = (token - first) % kReaders == reader;
        for (int node = 0; node < round.nodes; ++node) {
            // What lies before is read, or another's.
            if (mine && lane == 0) store(round.reader(channel, reader, node), next[node]);
            const unsigned mask = route(round, round.me, token, node);
            if (mask == 0) continue;
            const uint64_t at = next[node]++;
            if (!mine) continue;
            const uint64_t *tail = round.tail + round.at(channel, node);
            if (!held(round, lane, [&] { return seen(tail) > at; })) return;
            const uint64_t *words = round.slot(round.receive, channel, node, at);
            const uint64_t factor = (mask & 1) + (mask >> 1 & 1) * 2;
            for (int i = lane; i < kTokenWords; i += kLanes) {
                const uint64_t value = i == 0 ? header(round, round.me, token) : word(round, round.me, token, i);
                round.want(seen(words + i) == (i == 1 ? mask : value) * factor);
            }
            __threadfence_system();
            __syncwarp();
        }
    }
    if (lane == 0) store(round.done(channel, reader), 1);
}

__device__ void combine(const Round &round, int block, int warp, int lane) {
    const int channel = block / 2;
    if (block % 2 == 0) {
        if (warp < round.nodes) send_back(round, channel, warp, lane);
    } else {
        if (warp < kReaders) receive_back(round, channel, warp, lane);
        if (warp == kReaders) return_heads(round, channel, kReaders, lane);
    }
}

// Blocks as large as DeepEP's.
ROLES(notify, Round, kThreads / 2)
ROLES(dispatch, Round, kThreads)
ROLES(cached_notify, Round, kThreads / 2)
ROLES(combine, Round, kThreads)

// Which port goes down while a round is under way, of which PE's; -1: none.
constexpr int kRounds = 6;
constexpr int kDown[kRounds] = {-1, 0, 1, -1, 1, 0};

// Warps of what acts as a block: barriers of one are nothing where a thread is all there is.
constexpr int kBlock = kLanes == 1 ? 1 : 4;

// Memory of a round, or, counted from null, its size.
char *take(char *&free, size_t bytes) {
    char *at = free;
    free += (bytes + 127) / 128 * 128;
    return at;
}

size_t lay_out(Round &round, char *shared) {
    char *free = shared;
    const size_t places = (size_t)round.channels * round.nodes, nodes = round.nodes;
    round.head = (uint64_t *)take(free, places * 8), round.tail = (uint64_t *)take(free, places * 8);
    round.meta = (int *)take(free, places * kMeta * 4), round.meta_send = (int *)take(free, places * kMeta * 4);
    round.counts = (int *)take(free, nodes * kCounts * 4), round.counts_send = (int *)take(free, nodes * kCounts * 4);
    round.returned = (int *)take(free, places * 4);
    round.send = (uint64_t *)take(free, places * round.slots * kTokenBytes);
    round.receive = (uint64_t *)take(free, places * round.slots * kTokenBytes);
    return free - shared;
}

// Of one GPU: words that each launch begins with as zeros come first; answers with their bytes.
size_t lay_out_here(Round &round, char *here, size_t *all) {
    char *free = here;
    round.filled = (uint64_t *)take(free, 8 * (size_t)round.channels * round.nodes);
    round.taken = (uint64_t *)take(free, 8 * (size_t)round.channels * kMaxReaders * round.nodes);
    round.retired = (uint64_t *)take(free, 8 * (size_t)round.channels * kMaxReaders);
    const size_t zeros = free - here;
    round.wrong = (unsigned *)take(free, sizeof(unsigned));
    round.rows = (uint64_t *)take(free, kTokenBytes * kLocal * round.nodes * round.tokens);
    *all = free - here;
    return zeros;
}

int number(const char *name, int otherwise) {
    const char *text = std::getenv(name);
    return text ? std::atoi(text) : otherwise;
}

// A port of the round's PE has a fault; what is not "down" stays for good, and so does the other port.
struct Fault {
    const char *kind = std::getenv("PROGRAM_FAULTS");
    bool set(int round, const char *fault) const {
        const bool down = kind && !std::strcmp(kind, "down");
        if (!kind || kDown[round] < 0 || (!down && (round != 1 || fault != kind))) return true;
        const int rail = kDown[round], pe = down ? round % nvshmem_n_pes() : nvshmem_my_pe();
        return pe != nvshmem_my_pe() || shunt_nvshmem_soft_fault(rail, fault) == 0;
    }
};

// A launch with a port that goes down some milliseconds later.
template <typename Launch> cudaError_t hurt(Launch launch, const Fault &fault, int number, bool now, bool *ports) {
    Launched launched = launch();
    if (now) {
        const timespec pause = {0, 1000000l * (1 + number)};
        nanosleep(&pause, nullptr);
        *ports &= fault.set(number, fault.kind);
    }
    return launched.finish();
}

cudaError_t go(const Round &round, size_t zeros, const Fault &fault, bool *ports) {
    const int blocks = 2 * round.channels, number = (int)round.number - 1;
    cudaError_t ended = cudaMemset(round.filled, 0, zeros);
    if (ended == cudaSuccess) ended = launch_notify(round, 1, kBlock).finish();
    const auto out = [&] { return launch_dispatch(round, blocks, max(kSenders, kLocal) + 1); };
    if (ended == cudaSuccess) ended = hurt(out, fault, number, number % 2 != 0, ports);
    if (ended == cudaSuccess) ended = cudaMemset(round.filled, 0, zeros);
    if (ended == cudaSuccess) ended = launch_cached_notify(round, 1, kBlock).finish();
    const auto back = [&] { return launch_combine(round, blocks, max(round.nodes, kReaders + 1)); };
    if (ended == cudaSuccess) ended = hurt(back, fault, number, number % 2 == 0, ports);
    return ended;
}

int run() {
    if (nvshmemx_init_status() == 0) nvshmem_init();
    const int nodes = nvshmem_n_pes();
    Round round = {};
    round.nodes = nodes, round.me = nvshmem_my_pe(), round.channels = 2;
    round.tokens = number("PROGRAM_TOKENS", 96), round.chunk = 4, round.slots = 3 * round.chunk;
    round.patience = 1000000000ll * number("PROGRAM_PATIENCE", 60);
    // As DeepEP's kernels have it: one for each channel, or one more for each channel's heads.
    const int queues = number("NVSHMEM_IBGDA_NUM_RC_PER_PE", 1);
    if (nodes > kMaxNodes || (queues != round.channels && queues < 2 * round.channels)) {
        std::printf("internode: at most %d PEs, and NVSHMEM_IBGDA_NUM_RC_PER_PE %d, or %d and more\n", kMaxNodes,
                    round.channels, 2 * round.channels);
        return 1;
    }
    char *shared = (char *)nvshmem_calloc(1, lay_out(round, nullptr)), *here = nullptr;
    size_t all = 0;
    lay_out_here(round, nullptr, &all);
    if (!shared || cudaMalloc((void **)&here, all) != cudaSuccess) return 1;
    lay_out(round, shared);
    const size_t zeros = lay_out_here(round, here, &all);
    cudaError_t ended = cudaMemset(here, 0, all);
    unsigned *verdict = (unsigned *)nvshmem_calloc(2, sizeof(unsigned));
    const Fault fault;
    bool ports = verdict != nullptr;
    unsigned wrong = 0, all_wrong = 0;
    for (int i = 0; i < kRounds && ended == cudaSuccess && ports && all_wrong == 0; ++i) {
        round.number = i + 1;
        ended = go(round, zeros, fault, &ports);
        nvshmem_barrier_all();
        ports &= fault.set(i, "up");
        if (ended == cudaSuccess) ended = cudaMemcpy(&wrong, round.wrong, sizeof wrong, cudaMemcpyDeviceToHost);
        // All end with the first of them.
        ports &= cudaMemcpy(verdict, &wrong, sizeof wrong, cudaMemcpyHostToDevice) == cudaSuccess;
        ports &= nvshmem_uint_max_reduce(NVSHMEM_TEAM_WORLD, verdict + 1, verdict, 1) == 0;
        ports &= cudaMemcpy(&all_wrong, verdict + 1, sizeof wrong, cudaMemcpyDeviceToHost) == cudaSuccess;
    }
    uint64_t failovers = 0;
    shunt_nvshmem_switches(&failovers, nullptr);
    std::printf("internode: PE %d of %d: launch 0, %s, %u wrong, %llu failovers\n", round.me, nodes,
                cudaGetErrorString(ended), wrong, (unsigned long long)failovers);
    nvshmem_free(verdict);
    nvshmem_free(shared);
    cudaFree(here);
    nvshmem_finalize();
    return ended == cudaSuccess && wrong == 0 && ports ? 0 : 1;
}

} // namespace

int main() {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        std::printf("internode: no GPU\n");
        return 2;
    }
    return run();
}
