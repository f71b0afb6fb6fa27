/* The functions by which DeepEP's V1 kernels post RDMA, over Shunt's device library: put in the place of DeepEP's file
 * of this name, with NVSHMEM_DIR set to Shunt's prefix, its kernels survive the loss of a path. Names, arguments and
 * who calls what are DeepEP's; docs/DEEPEP.md says what differs.
 *
 * Nothing here traps and nothing waits without a deadline. These functions have no status: what could not be done is
 * kept in the heap, the first fault and their number, where shunt_nvshmem_device_fault() finds it. */
#ifndef SHUNT_DEEP_EP_IBGDA_DEVICE_CUH
#define SHUNT_DEEP_EP_IBGDA_DEVICE_CUH

/* DeepEP's kernels take its other headers from here: those that its version has. */
#if __has_include("configs.cuh")
#include "configs.cuh"
#endif
#if __has_include("exception.cuh")
#include "exception.cuh"
#elif __has_include(<deep_ep/common/exception.cuh>)
#include <deep_ep/common/exception.cuh>
#endif
#if __has_include("utils.cuh")
#include "utils.cuh"
#endif

#include <cstddef>
#include <cstdint>

#include <nvshmem.h>

/* Behind each signal this PE's end of the channel gets one look, because DeepEP's own waits give it none; a switch that
 * is found under way is carried on for so many nanoseconds at most, and then by the agent. 0: no look. */
#ifndef SHUNT_DEEP_EP_CHECK_NS
#define SHUNT_DEEP_EP_CHECK_NS 20000
#endif

/* DeepEP's waits look at nothing of ours, but each of them reads this GPU's clock whenever it goes round. So in what comes
 * behind this header reading the clock looks after this PE's channels now and then, and a caller that waits finds a
 * silent path and carries a switch on. 0: the clock is CUDA's. */
#ifndef SHUNT_DEEP_EP_CLOCK_LOOKS
#define SHUNT_DEEP_EP_CLOCK_LOOKS 1
#endif

namespace shunt_deep_ep {

/* DeepEP rings one doorbell for so many puts that it need not ring for at once. */
constexpr unsigned kPutsPerDoorbell = 4;
constexpr uint32_t kNoImmediate = 0xffffffffu;

/* The channel of a queue pair's number. Normal kernels number twice as many as they ask for where they ask for one a
 * channel: the second half, of heads, shares with the first. Beyond that it is the default one. */
__device__ __forceinline__ uint32_t real(uint32_t qp) {
    const uint32_t channels = (uint32_t)shunt_nvshmem::state().channels;
    return shunt_nvshmem::real(qp < channels ? qp : qp - channels);
}

__device__ __forceinline__ uint64_t offset(const void *at) { return shunt_nvshmem::offset(at); }
__device__ __forceinline__ uint64_t offset(uint64_t at) { return at - shunt_nvshmem::state().base; }

/* Keeps a fault. A channel that is dead knows its own better than the answer of a post. */
__device__ __noinline__ inline void refused_slow(uint64_t answer, int pe, int qp) {
    uint32_t status = (uint32_t)answer;
    if (status == 0) {
        shunt_report report;
        status = shunt_alive((uint32_t)pe, real((uint32_t)qp), &report);
    }
    shunt_nvshmem::fault(status, pe);
}

/* SHUNT_PENDING is no fault: a switch is under way, and others carry it on. */
__device__ __noinline__ inline void look(int pe, int qp) {
    const uint32_t status = shunt_progress((uint32_t)pe, real((uint32_t)qp), SHUNT_DEEP_EP_CHECK_NS);
    if (status != 0 && status != SHUNT_PENDING) refused_slow(status, pe, qp);
}

__device__ __forceinline__ void posted(uint64_t answer, int pe, int qp) {
    if (answer & SHUNT_FAILED) refused_slow(answer, pe, qp);
}

/* Of so many ticks a reading of the clock looks in the first few: of 128 times round a look is made about once. */
constexpr unsigned kTicks = 1u << 16, kLooks = kTicks / 128;

/* A look at two channels, by one thread of the GPU at a time: another one has better to do. What it remembers is of a wait
 * that never ends, no matter who waits; a time in which nobody looked is nobody's silence. */
__device__ __noinline__ inline void look_after() {
    static unsigned long long rounds[8], looking;
    if (atomicCAS_system(&looking, 0ull, 1ull) != 0) return;
    __threadfence_system();
    shunt_look_after((uint64_t *)rounds);
    __threadfence_system();
    atomicExch_system(&looking, 0ull);
}

/* The clock, for waits. Of a warp's lanes one looks. */
__device__ __forceinline__ long long clock_of_waits() {
    const long long now = clock64();
    if (((unsigned)now & (kTicks - 1)) < kLooks) {
        if ((threadIdx.x & (SHUNT_NVSHMEM_WARP - 1)) == (unsigned)__ffs((int)__activemask()) - 1) look_after();
    }
    return now;
}

/* The two numbers that kernels read of the state. */
struct State {
    uint32_t num_rc_per_pe;
    int num_devices_initialized;
    __device__ __forceinline__ const State *operator->() const { return this; }
};

} // namespace shunt_deep_ep

namespace deep_ep {

/* Which NIC an operation leaves through is the channel's business, so there is one device, and as many queue pairs to
 * each PE as the host library made (NVSHMEM_IBGDA_NUM_RC_PER_PE). */
__device__ static __forceinline__ shunt_deep_ep::State ibgda_get_state() {
    return {(uint32_t)shunt_nvshmem::state().channels, 1};
}

/* All lanes of a warp; lane 0 posts. A doorbell that is left is rung by the next post that rings, by a caller that waits
 * or looks, or by a switch. */
template <bool kAlwaysDoPostSend = false>
__device__ static __forceinline__ void nvshmemi_ibgda_put_nbi_warp(uint64_t req_rptr, uint64_t req_lptr, size_t bytes,
                                                                   int dst_pe, int qp_id, int lane_id,
                                                                   int message_idx) {
    using namespace shunt_deep_ep;
    __syncwarp();
    if (lane_id == 0) {
        const bool ring = kAlwaysDoPostSend || ((unsigned)message_idx + 1) % kPutsPerDoorbell == 0;
        posted(shunt_try_put((uint32_t)dst_pe, real((uint32_t)qp_id), offset(req_rptr), offset(req_lptr), bytes, ring),
               dst_pe, qp_id);
    }
    __syncwarp();
}

/* One thread: four bytes, in the work queue entry itself. There are no receive queues for an immediate. */
__device__ static __forceinline__ void nvshmemi_ibgda_rma_p(int *rptr, const int value, int dst_pe, int qp_id,
                                                            uint32_t imm = shunt_deep_ep::kNoImmediate) {
    using namespace shunt_deep_ep;
    if (imm != kNoImmediate) return refused_slow(SHUNT_FAILED | SHUNT_BAD_ADDRESS, dst_pe, qp_id);
    const uint32_t channel = real((uint32_t)qp_id);
    posted(shunt_try_p((uint32_t)dst_pe, channel, offset(rptr), (uint32_t)value, sizeof(int)), dst_pe, qp_id);
}

/* One thread: adds to four bytes at the PE, behind all that was posted on the queue pair, or to eight here. Each such
 * word has one writer and its receiver clears it: a signal of kind 2, applied once whatever becomes of the path. */
__device__ __forceinline__ void nvshmemi_ibgda_amo_nonfetch_add(void *rptr, const int &value, int pe, int qp_id,
                                                                bool is_local_copy = false) {
    using namespace shunt_deep_ep;
    if (is_local_copy) {
        atomicAdd((unsigned long long *)rptr, (unsigned long long)(long long)value);
        return;
    }
    posted(shunt_try_cleared32((uint32_t)pe, real((uint32_t)qp_id), offset(rptr), (uint32_t)value), pe, qp_id);
    if (SHUNT_DEEP_EP_CHECK_NS != 0) look(pe, qp_id);
}

/* Where memory of another rank is here: 0 if only a NIC reaches it. */
__device__ __forceinline__ uint64_t nvshmemi_get_p2p_ptr(const uint64_t &ptr, const int &rank, const int &dst_rank) {
    if (rank == dst_rank) return ptr;
    return (uint64_t)nvshmem_ptr((const void *)ptr, dst_rank);
}

/* One thread: all that was posted on the queue pair is delivered, or the deadline of calls has passed. */
__device__ static __forceinline__ void nvshmemi_ibgda_quiet(int dst_pe, int qp_id) {
    if (shunt_nvshmem::here(dst_pe)) return;
    const uint64_t patience_ns = shunt_nvshmem::state().deadline_ns;
    const uint32_t status = shunt_quiet_thread((uint32_t)dst_pe, shunt_deep_ep::real((uint32_t)qp_id), patience_ns);
    if (status != 0) shunt_deep_ep::refused_slow(status, dst_pe, qp_id);
}

} // namespace deep_ep

#if SHUNT_DEEP_EP_CLOCK_LOOKS
#define clock64() shunt_deep_ep::clock_of_waits()
#endif

#endif
