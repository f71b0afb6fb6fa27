/* NVSHMEM's device functions over Shunt's device library: what all families are made of.
 *
 * Every wait ends by the deadline of calls (SHUNT_CALL_DEADLINE). Device functions have no status: what could not be
 * done is kept in the heap, and shunt_nvshmem_device_fault() tells it on the device.
 *
 * A block is one dimension of whole warps. Source of a put and target of a get lie in the symmetric heap. */
#ifndef SHUNT_NVSHMEM_DEVICE_H
#define SHUNT_NVSHMEM_DEVICE_H

#include "shunt_device.h"
#include "device_state.h"

/* libnvshmem_device.a defines them; what is linked without it says SHUNT_NVSHMEM_DEFINE_STATE in one module. */
#ifdef SHUNT_NVSHMEM_DEFINE_STATE
SHUNT_DEFINE_ROOT
__constant__ shunt_nvshmem_device shunt_nvshmem_device_state;
#else
extern __constant__ shunt_nvshmem_device shunt_nvshmem_device_state;
#endif

/* Lanes of a warp. Fewer where kernels are compiled for a processor (native/). */
#ifndef SHUNT_NVSHMEM_WARP
#define SHUNT_NVSHMEM_WARP 32
#endif

namespace shunt_nvshmem {

static const uint32_t kNone = 0xffffffffu;

__device__ __forceinline__ const shunt_nvshmem_device &state() { return shunt_nvshmem_device_state; }

/* The channel to each peer that a queue pair of kernels is: the one in front of them is the host's. One that there is
 * not is the default one. */
__device__ __forceinline__ uint32_t real(uint32_t qp) { return qp < (uint32_t)state().channels ? qp + 1 : 1; }

/* Who takes part in a call. */
struct Thread {
    static __device__ __forceinline__ uint32_t rank() { return 0; }
    static __device__ __forceinline__ uint32_t size() { return 1; }
    static __device__ __forceinline__ void sync() {}
    static __device__ __forceinline__ uint64_t put(uint32_t pe, uint32_t qp, uint64_t to, uint64_t from,
                                                   uint64_t bytes) {
        return shunt_put_thread(pe, real(qp), to, from, bytes);
    }
    static __device__ __forceinline__ uint64_t get(uint32_t pe, uint32_t qp, uint64_t to, uint64_t from,
                                                   uint64_t bytes) {
        return shunt_get_thread(pe, real(qp), to, from, bytes);
    }
    static __device__ __forceinline__ uint32_t wait(uint32_t pe, uint32_t qp, uint64_t ticket, uint64_t ns) {
        return shunt_wait_thread(pe, real(qp), ticket, ns);
    }
};

struct Warp {
    static __device__ __forceinline__ uint32_t rank() { return threadIdx.x & (SHUNT_NVSHMEM_WARP - 1); }
    static __device__ __forceinline__ uint32_t size() { return SHUNT_NVSHMEM_WARP; }
    static __device__ __forceinline__ void sync() { __syncwarp(); }
    static __device__ __forceinline__ uint64_t put(uint32_t pe, uint32_t qp, uint64_t to, uint64_t from,
                                                   uint64_t bytes) {
        return shunt_put_warp(pe, real(qp), to, from, bytes);
    }
    static __device__ __forceinline__ uint64_t get(uint32_t pe, uint32_t qp, uint64_t to, uint64_t from,
                                                   uint64_t bytes) {
        return shunt_get_warp(pe, real(qp), to, from, bytes);
    }
    static __device__ __forceinline__ uint32_t wait(uint32_t pe, uint32_t qp, uint64_t ticket, uint64_t ns) {
        return shunt_wait_warp(pe, real(qp), ticket, ns);
    }
};

/* Four warps, which meet by the hardware barrier that NVSHMEM takes for them, too: 1 and their number in the block. */
struct Warpgroup {
    static __device__ __forceinline__ uint32_t rank() { return threadIdx.x % size(); }
    static __device__ __forceinline__ uint32_t size() { return blockDim.x < 128 ? blockDim.x : 128; }
    static __device__ __forceinline__ void sync() {
#if SHUNT_NVSHMEM_WARP == 32
        asm volatile("bar.sync %0, %1;" ::"r"(1 + threadIdx.x / size()), "r"(size()) : "memory");
#endif
    }
};

struct Block {
    static __device__ __forceinline__ uint32_t rank() { return threadIdx.x; }
    static __device__ __forceinline__ uint32_t size() { return blockDim.x; }
    static __device__ __forceinline__ void sync() { __syncthreads(); }
    static __device__ __forceinline__ uint64_t put(uint32_t pe, uint32_t qp, uint64_t to, uint64_t from,
                                                   uint64_t bytes) {
        return shunt_put_block(pe, real(qp), to, from, bytes);
    }
    static __device__ __forceinline__ uint64_t get(uint32_t pe, uint32_t qp, uint64_t to, uint64_t from,
                                                   uint64_t bytes) {
        return shunt_get_block(pe, real(qp), to, from, bytes);
    }
    static __device__ __forceinline__ uint32_t wait(uint32_t pe, uint32_t qp, uint64_t ticket, uint64_t ns) {
        return shunt_wait_block(pe, real(qp), ticket, ns);
    }
};


__device__ __forceinline__ bool here(int pe) { return state().version != 0 && (uint64_t)pe == state().me; }

__device__ __forceinline__ uint64_t offset(const void *at) { return (uint64_t)at - state().base; }

template <typename T> __device__ __forceinline__ T *at(uint64_t offset) { return (T *)(state().base + offset); }

/* Where symmetric memory of a PE is mapped here, or null. */
__device__ __forceinline__ void *mapped(const void *symmetric, int pe) {
    const uint64_t from = offset(symmetric);
    if (state().version == 0 || pe < 0 || (uint64_t)pe >= state().pes || from >= state().user) return nullptr;
    const uint64_t heap = at<uint64_t>(state().mapped)[pe];
    return heap == 0 ? nullptr : (void *)(heap + from);
}

/* Keeps the first fault and counts all. */
__device__ __noinline__ inline void fault(uint32_t status, int pe) {
    if (state().version == 0) return;
    unsigned long long *words = at<unsigned long long>(state().faults);
    atomicCAS_system(words, 0ull, (unsigned long long)status << 32 | (uint32_t)pe);
    atomicAdd_system(words + 1, 1ull);
}

template <typename S> __device__ __forceinline__ void ended(uint32_t status, int pe) {
    if (status != 0 && S::rank() == 0) fault(status, pe);
}

/* The queue pair of a handle. One value means both "any" and "all": any is the default one. */
__device__ __forceinline__ uint32_t channel(nvshmemx_qp_handle_t qp) {
    return qp == NVSHMEMX_QP_DEFAULT || qp == NVSHMEMX_QP_HOST || qp == NVSHMEMX_QP_ANY ? 0u : (uint32_t)qp - 1u;
}

/* The end of a post: the answer is a ticket or a fault. */
template <typename S> __device__ __forceinline__ void posted(uint64_t answer, uint32_t qp, int pe, bool waits) {
    if (answer & SHUNT_FAILED) {
        ended<S>((uint32_t)answer, pe);
    } else if (waits) {
        ended<S>(S::wait((uint32_t)pe, qp, answer, state().deadline_ns), pe);
    }
}

/* Copies here: PEs have no channel to themselves. */
template <typename S> __device__ __noinline__ void copy(void *to, const void *from, size_t bytes) {
    S::sync();
    if ((((uint64_t)to | (uint64_t)from | bytes) & 7) == 0) {
        for (size_t i = S::rank(); i < bytes / 8; i += S::size()) {
            ((volatile uint64_t *)to)[i] = ((const volatile uint64_t *)from)[i];
        }
    } else {
        for (size_t i = S::rank(); i < bytes; i += S::size()) {
            ((volatile unsigned char *)to)[i] = ((const volatile unsigned char *)from)[i];
        }
    }
    __threadfence_system();
    S::sync();
}

template <typename S>
__device__ __noinline__ void put(uint32_t qp, void *to, const void *from, size_t bytes, int pe, bool waits) {
    if (bytes == 0) return;
    if (here(pe)) return copy<S>(to, from, bytes);
    posted<S>(S::put((uint32_t)pe, qp, offset(to), offset(from), bytes), qp, pe, waits);
}

template <typename S>
__device__ __noinline__ void get(uint32_t qp, void *to, const void *from, size_t bytes, int pe, bool waits) {
    if (bytes == 0) return;
    if (here(pe)) return copy<S>(to, from, bytes);
    posted<S>(S::get((uint32_t)pe, qp, offset(to), offset(from), bytes), qp, pe, waits);
}

/* A number's bits, and back. */
template <typename T> __device__ __forceinline__ uint64_t bits(T value) {
    union {
        uint64_t all;
        unsigned char bytes[sizeof(T)];
    } to;
    to.all = 0;
    const unsigned char *from = (const unsigned char *)&value;
    for (size_t i = 0; i < sizeof(T); ++i) to.bytes[i] = from[i];
    return to.all;
}

template <typename T> __device__ __forceinline__ T number(uint64_t from) {
    T value;
    unsigned char *to = (unsigned char *)&value;
    for (size_t i = 0; i < sizeof(T); ++i) to[i] = (unsigned char)(from >> (8 * i));
    return value;
}

template <typename T> __device__ inline void p(uint32_t qp, T *to, T value, int pe) {
    if (here(pe)) {
        *(volatile T *)to = value;
        __threadfence_system();
        return;
    }
    posted<Thread>(shunt_p_thread((uint32_t)pe, real(qp), offset(to), bits(value), sizeof(T)), qp, pe, false);
}

/* A wait of one thread: it looks after what this PE sent, and ends by the deadline of calls. */
class Wait {
    uint64_t rounds_[8] = {};
    uint64_t until_ = 0;

  public:
    /* A look; false once the call's time is over. */
    __device__ __noinline__ bool goes_on() {
        const uint64_t now = shunt_look_after(rounds_);
        if (until_ == 0) until_ = now + state().deadline_ns;
        return now < until_ && now != ~0ull;
    }
};

/* A word for an answer, kept until `release`; kNone if all were in use for too long. */
__device__ __noinline__ inline uint32_t claim() {
    const uint32_t count = (uint32_t)state().answer_count;
    if (count == 0) return kNone; // the library is not up
    uint32_t next = (blockIdx.x * blockDim.x + threadIdx.x) % count;
    Wait wait;
    do {
        if (atomicCAS_system(at<unsigned long long>(state().claims) + next, 0ull, 1ull) == 0) return next;
        next = next + 1 == count ? 0 : next + 1;
    } while (wait.goes_on());
    return kNone;
}

__device__ __forceinline__ void release(uint32_t number) {
    __threadfence_system();
    *((volatile unsigned long long *)at<unsigned long long>(state().claims) + number) = 0;
}

/* Waits for an answer; a word whose answer may still come stays in use. */
__device__ __noinline__ inline bool answered(uint64_t answer, uint32_t qp, int pe, uint32_t slot) {
    uint32_t status = (uint32_t)answer;
    if (!(answer & SHUNT_FAILED)) {
        status = shunt_wait_thread((uint32_t)pe, real(qp), answer, state().deadline_ns);
        if (status == 0) return true;
    } else {
        release(slot);
    }
    fault(status, pe);
    return false;
}

__device__ __noinline__ inline uint64_t g_bits(uint32_t qp, const void *from, uint32_t bytes, int pe) {
    const uint32_t slot = claim();
    if (slot == kNone) {
        fault(SHUNT_OVERDUE, pe);
        return 0;
    }
    const uint64_t to = state().answers + 8ull * slot;
    const uint64_t answer = shunt_get_thread((uint32_t)pe, real(qp), to, offset(from), bytes);
    if (!answered(answer, qp, pe, slot)) return 0;
    const uint64_t seen = *at<volatile uint64_t>(to);
    release(slot);
    return seen;
}

template <typename T> __device__ inline T g(uint32_t qp, const T *from, int pe) {
    if (here(pe)) return *(const volatile T *)from;
    return number<T>(g_bits(qp, from, sizeof(T), pe));
}

enum Op { kAdd, kSet, kAnd, kOr, kXor, kSwap, kCompareSwap };

/* On this PE's own words: atomic among its processors. */
template <typename W> __device__ inline W change_here(Op op, W *word, W expect, W value) {
    switch (op) {
    case kAdd: return atomicAdd_system(word, value);
    case kAnd: return atomicAnd_system(word, value);
    case kOr: return atomicOr_system(word, value);
    case kXor: return atomicXor_system(word, value);
    case kCompareSwap: return atomicCAS_system(word, expect, value);
    default: return atomicExch_system(word, value);
    }
}

__device__ inline uint64_t change32(Op op, bool fetch, uint32_t pe, uint32_t qp, uint64_t at, uint32_t expect,
                                    uint32_t value, uint64_t to) {
    switch (op) {
    case kAdd: return fetch ? shunt_fetch_add32(pe, qp, at, value, to) : shunt_add32(pe, qp, at, value);
    case kSet: return shunt_set32(pe, qp, at, value);
    case kAnd: return fetch ? shunt_fetch_and32(pe, qp, at, value, to) : shunt_and32(pe, qp, at, value);
    case kOr: return fetch ? shunt_fetch_or32(pe, qp, at, value, to) : shunt_or32(pe, qp, at, value);
    case kXor: return fetch ? shunt_fetch_xor32(pe, qp, at, value, to) : shunt_xor32(pe, qp, at, value);
    case kSwap: return shunt_fetch_swap32(pe, qp, at, value, to);
    default: return shunt_fetch_cas32(pe, qp, at, expect, value, to);
    }
}

__device__ inline uint64_t change64(Op op, bool fetch, uint32_t pe, uint32_t qp, uint64_t at, uint64_t expect,
                                    uint64_t value, uint64_t to) {
    switch (op) {
    case kAdd: return fetch ? shunt_fetch_add64(pe, qp, at, value, to) : shunt_add64(pe, qp, at, value);
    case kSet: return shunt_set64(pe, qp, at, value);
    case kAnd: return fetch ? shunt_fetch_and64(pe, qp, at, value, to) : shunt_and64(pe, qp, at, value);
    case kOr: return fetch ? shunt_fetch_or64(pe, qp, at, value, to) : shunt_or64(pe, qp, at, value);
    case kXor: return fetch ? shunt_fetch_xor64(pe, qp, at, value, to) : shunt_xor64(pe, qp, at, value);
    case kSwap: return shunt_fetch_swap64(pe, qp, at, value, to);
    default: return shunt_fetch_cas64(pe, qp, at, expect, value, to);
    }
}

/* Has the word's owner execute it. Forms of four and of eight bytes alternate. */
__device__ __noinline__ inline uint64_t change_by_owner(Op op, bool wide, uint32_t qp, uint64_t at, uint64_t expect,
                                                        uint64_t value, int pe) {
    uint32_t form = SHUNT_COMPARE_SWAP32;
    switch (op) {
    case kAdd: form = SHUNT_ADD32; break;
    case kAnd: form = SHUNT_AND32; break;
    case kOr: form = SHUNT_OR32; break;
    case kXor: form = SHUNT_XOR32; break;
    case kSet:
    case kSwap: form = SHUNT_SET32; break;
    default: break;
    }
    uint64_t old = expect;
    const uint32_t status =
        shunt_exact((uint32_t)pe, real(qp), at, form + wide, value, &old, state().deadline_ns);
    /* A job without exact fetches has no other way: what the NIC lacks is the reason. */
    ended<Thread>(status == SHUNT_FETCH_NOT_EXACT ? (uint32_t)SHUNT_NO_MASKED_ATOMICS : status, pe);
    return old;
}

/* An atomic on a word of four or eight bytes, by its bits. */
__device__ __noinline__ inline uint64_t amo_bits(Op op, bool fetch, bool wide, uint32_t qp, const void *word,
                                                 uint64_t expect, uint64_t value, int pe) {
    if (here(pe)) {
        if (!wide) return change_here(op, (unsigned int *)word, (unsigned int)expect, (unsigned int)value);
        return change_here(op, (unsigned long long *)word, (unsigned long long)expect, (unsigned long long)value);
    }
    if (state().exact) return change_by_owner(op, wide, qp, offset(word), expect, value, pe);
    const uint32_t slot = fetch ? claim() : 0;
    if (slot == kNone) {
        fault(SHUNT_OVERDUE, pe);
        return 0;
    }
    const uint64_t to = state().answers + 8ull * slot;
    const uint64_t answer = wide
        ? change64(op, fetch, (uint32_t)pe, real(qp), offset(word), expect, value, to)
        : change32(op, fetch, (uint32_t)pe, real(qp), offset(word), (uint32_t)expect, (uint32_t)value, to);
    if (wide && answer == (SHUNT_FAILED | SHUNT_NO_MASKED_ATOMICS)) {
        if (fetch) release(slot);
        return change_by_owner(op, wide, qp, offset(word), expect, value, pe);
    }
    if (!fetch) {
        posted<Thread>(answer, qp, pe, false);
        return 0;
    }
    if (!answered(answer, qp, pe, slot)) return 0;
    const uint64_t seen = wide ? shunt_fetched64(to) : shunt_fetched32(to);
    release(slot);
    return seen;
}

template <typename T>
__device__ __forceinline__ T amo(Op op, bool fetch, uint32_t qp, const T *word, T expect, T value, int pe) {
    return number<T>(amo_bits(op, fetch, sizeof(T) == 8, qp, word, bits(expect), bits(value), pe));
}

__device__ inline void signal(uint32_t qp, uint64_t *word, uint64_t value, int op, int pe) {
    amo<uint64_t>(op == NVSHMEM_SIGNAL_ADD ? kAdd : kSet, false, qp, word, 0, value, pe);
}

template <typename S>
__device__ __noinline__ void put_signal(uint32_t qp, void *to, const void *from, size_t bytes, uint64_t *word,
                                  uint64_t value, int op, int pe, bool waits) {
    put<S>(qp, to, from, bytes, pe, waits);
    S::sync();
    if (S::rank() == 0) signal(qp, word, value, op, pe);
    S::sync();
}

/* Every element by itself. */
template <typename S, typename T>
__device__ inline void strided(bool put_them, T *to, const T *from, ptrdiff_t step_to, ptrdiff_t step_from,
                               size_t count, int pe) {
    for (size_t i = S::rank(); i < count; i += S::size()) {
        T *target = to + (ptrdiff_t)i * step_to;
        const T *source = from + (ptrdiff_t)i * step_from;
        if (put_them) {
            put<Thread>(0, target, source, sizeof(T), pe, true);
        } else {
            get<Thread>(0, target, source, sizeof(T), pe, true);
        }
    }
    S::sync();
}

template <typename S> __device__ inline void quiet_of(uint32_t first, uint32_t channels, int pe) {
    if (here(pe)) return;
    for (uint32_t qp = first; qp < first + channels; ++qp) {
        const uint32_t status = shunt_quiet_thread((uint32_t)pe, real(qp), state().deadline_ns);
        if (status != 0) fault(status, pe);
    }
}

/* All that this PE sent is delivered. */
template <typename S> __device__ __noinline__ void quiet() {
    S::sync();
    for (uint32_t pe = S::rank(); pe < state().pes; pe += S::size()) {
        quiet_of<S>(0, (uint32_t)state().channels, (int)pe);
    }
    __threadfence_system();
    S::sync();
}

/* The same by one thread, for so long: 0, or the worst fault and its PE. */
__device__ inline uint64_t quiet_within(uint64_t timeout_ns) {
    uint64_t worst = state().version == 0 ? (uint64_t)SHUNT_MISMATCH << 32 : 0;
    for (uint32_t pe = 0; pe < state().pes; ++pe) {
        for (uint32_t qp = 0; !here((int)pe) && qp < state().channels; ++qp) {
            const uint32_t status = shunt_quiet_thread(pe, real(qp), timeout_ns);
            /* What may still end comes behind what has failed. */
            if (status != 0 && (worst == 0 || worst >> 32 == SHUNT_OVERDUE)) worst = (uint64_t)status << 32 | pe;
            /* One look at the others is enough then: the caller asks again. */
            if (status == SHUNT_OVERDUE) timeout_ns = 0;
        }
    }
    __threadfence_system();
    return worst;
}

/* What goes to one PE by one queue pair arrives in order; what was sent by others is waited for. */
__device__ __noinline__ inline void fence() {
    for (uint32_t pe = 0; state().channels > 1 && pe < state().pes; ++pe) {
        quiet_of<Thread>(1, (uint32_t)state().channels - 1, (int)pe);
    }
    __threadfence_system();
}

template <typename S> __device__ __noinline__ void qp_quiet(int pe, const nvshmemx_qp_handle_t *handles, int count) {
    S::sync();
    const bool all_pes = pe == NVSHMEMX_PE_ALL;
    const uint32_t from = all_pes ? 0 : (uint32_t)pe, to = all_pes ? (uint32_t)state().pes : from + 1;
    for (uint32_t peer = from + S::rank(); peer < to; peer += S::size()) {
        for (int i = 0; i < count; ++i) {
            const bool all = handles[i] == NVSHMEMX_QP_ALL;
            quiet_of<S>(all ? 0 : channel(handles[i]), all ? (uint32_t)state().channels : 1, (int)peer);
        }
    }
    __threadfence_system();
    S::sync();
}

template <typename T> __device__ __forceinline__ bool compare(T seen, int how, T value) {
    switch (how) {
    case NVSHMEM_CMP_EQ: return seen == value;
    case NVSHMEM_CMP_NE: return seen != value;
    case NVSHMEM_CMP_GT: return seen > value;
    case NVSHMEM_CMP_LE: return seen <= value;
    case NVSHMEM_CMP_LT: return seen < value;
    default: return seen >= value;
    }
}

template <typename T> __device__ __forceinline__ T read(const T *word) {
    const T seen = *(const volatile T *)word;
    __threadfence_system();
    return seen;
}

/* How many of the words hold; `which` gets the first, or all. */
template <typename T>
__device__ inline size_t held(const T *words, size_t count, const int *left_out, int how, const T *values, T value,
                              size_t *which, bool all, size_t *looked) {
    size_t found = 0, counted = 0;
    for (size_t i = 0; i < count; ++i) {
        if (left_out && left_out[i]) continue;
        ++counted;
        if (!compare(read(words + i), how, values ? values[i] : value)) continue;
        if (which && (all || found == 0)) which[all ? found : 0] = i;
        ++found;
    }
    *looked = counted;
    return found;
}

enum Enough { kAny, kAll };

template <typename T>
__device__ inline size_t wait_for(const T *words, size_t count, const int *left_out, int how, const T *values, T value,
                                  size_t *which, bool numbers, Enough enough) {
    Wait wait;
    size_t looked;
    for (;;) {
        const size_t found = held(words, count, left_out, how, values, value, which, numbers, &looked);
        if (enough == kAll ? found == looked : found != 0 || looked == 0) return found;
        if (!wait.goes_on()) return fault(SHUNT_OVERDUE, -1), 0;
    }
}

template <typename T> __device__ inline void wait_until(const T *word, int how, T value) {
    Wait wait;
    while (!compare(read(word), how, value)) {
        if (!wait.goes_on()) return fault(SHUNT_OVERDUE, -1);
    }
}

} // namespace shunt_nvshmem

/* The first fault of this PE's device functions: a status of shunt_device.h in the high half, the PE in the low one. */
static __device__ inline unsigned long long shunt_nvshmem_device_fault() {
    using namespace shunt_nvshmem;
    if (state().version == 0) return (unsigned long long)SHUNT_MISMATCH << 32;
    return read(at<unsigned long long>(state().faults));
}

#endif
