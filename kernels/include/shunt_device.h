/*
 * Shunt's device library, for CUDA C++. Made by `cargo xtask gpu --bless` from kernels/src/library.rs: do not edit.
 *
 * Compile with `nvcc -rdc=true` and link libshunt_device.a. A function that comes three times is for one thread, for a
 * warp that acts as one, and for a block of whole warps: all threads of the group call it with the same arguments and
 * get the same answer. Offsets are offsets in the symmetric heap. Every wait has a deadline, in nanoseconds from the
 * call, and SHUNT_OVERDUE leaves what was waited for under way.
 *
 * One source file of the program says SHUNT_DEFINE_ROOT, and the host copies the root of the device state there before
 * the first kernel that uses it: cudaMemcpyToSymbol(shunt_root, state, SHUNT_ROOT_BYTES).
 */
#ifndef SHUNT_DEVICE_H
#define SHUNT_DEVICE_H

#include <stdint.h>

#ifdef __CUDACC__
#define SHUNT_DEVICE __device__
/* What a warp does as one, its first lane does; before it all lanes meet, and behind it, so that each sees what it saw.
 * Inlined: a warp that meets in a function of its own costs a stack on sm_80. */
#define SHUNT_WARP(ANSWER, NAME, PARAMETERS, ARGUMENTS)                                                    \
    static __device__ __forceinline__ ANSWER NAME##_warp PARAMETERS {                                      \
        const unsigned before = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);       \
        ANSWER answer = 0;                                                                                 \
        __syncwarp();                                                                                      \
        if (before % 32 == 0) answer = NAME##_thread ARGUMENTS;                                            \
        answer = __shfl_sync(0xffffffffu, answer, 0);                                                      \
        __syncwarp();                                                                                      \
        return answer;                                                                                     \
    }
#else
#define SHUNT_DEVICE
#define SHUNT_WARP(ANSWER, NAME, PARAMETERS, ARGUMENTS) ANSWER NAME##_warp PARAMETERS;
#endif

#define SHUNT_ROOT_BYTES 384
#define SHUNT_DEFINE_ROOT extern "C" { __constant__ __align__(16) unsigned char shunt_root[SHUNT_ROOT_BYTES]; }

/* What a post answers: a ticket, or SHUNT_FAILED and a fault. */
#define SHUNT_FAILED (UINT64_C(1) << 63)

/* Faults: the low 32 bits of a failed post, or the status of a wait. */
enum {
    SHUNT_COMPLETION = 1,
    SHUNT_OVERDUE = 2,
    SHUNT_PEER_LOST = 3,
    SHUNT_BAD_ADDRESS = 4,
    SHUNT_FENCE_UNPROVEN = 5,
    SHUNT_UNCERTAIN = 6,
    SHUNT_BAD_RESOLUTION = 7,
    SHUNT_ANSWER_LOST = 8,
    SHUNT_FETCH_NOT_EXACT = 9,
    SHUNT_NO_MASKED_ATOMICS = 10,
    /* shunt_root holds no device state of this version. */
    SHUNT_MISMATCH = 0x100,
    /* Of shunt_test: not yet. */
    SHUNT_PENDING = 0x101
};

/* Forms of an atomic, for shunt_exact. */
enum {
    SHUNT_ADD32 = 1,
    SHUNT_ADD64 = 2,
    SHUNT_SET32 = 3,
    SHUNT_SET64 = 4,
    SHUNT_AND32 = 5,
    SHUNT_AND64 = 6,
    SHUNT_OR32 = 7,
    SHUNT_OR64 = 8,
    SHUNT_XOR32 = 9,
    SHUNT_XOR64 = 10,
    SHUNT_COMPARE_SWAP32 = 11,
    SHUNT_COMPARE_SWAP64 = 12,
};

/* The report of a fault. */
typedef struct shunt_report {
    /* STATUS_OK, SHUNT_MISMATCH or a fault. */
    uint32_t status;
    /* CauseKind seen first on the path that failed. */
    uint32_t cause;
    /* Peer of the channel. */
    uint32_t peer;
    /* Index of the channel at the peer. */
    uint32_t channel;
    /* Path slot the channel was on. */
    uint32_t slot;
    /* Syndrome in the low byte, vendor syndrome in the next. */
    uint32_t syndrome;
    /* First ticket not known to be done. */
    uint64_t at;
    /* Tickets handed out and not done. */
    uint64_t unfinished;
    /* What the kernel's documentation calls its value. */
    uint64_t value;
    /* Nanoseconds: what the kernel's documentation calls its time. */
    uint64_t ns;
    /* An uncertain operation: the remote heap offset it went to. */
    uint64_t address;
    /* An uncertain operation: what it was, an Operation. */
    uint32_t op;
    /* Unused, zero. */
    uint32_t reserved;
} shunt_report;

#ifdef __cplusplus
extern "C" {
#endif

/* Writes bytes of this PE's heap at src to the heap of peer at dst. The answer is a ticket: the source may
 * be written again once a wait on it, or a quiet, has ended. */
SHUNT_DEVICE uint64_t shunt_put_thread(uint32_t peer, uint32_t channel, uint64_t dst, uint64_t src, uint64_t bytes);
SHUNT_WARP(uint64_t, shunt_put, (uint32_t peer, uint32_t channel, uint64_t dst, uint64_t src, uint64_t bytes), (peer, channel, dst, src, bytes))
SHUNT_DEVICE uint64_t shunt_put_block(uint32_t peer, uint32_t channel, uint64_t dst, uint64_t src, uint64_t bytes);

/* The same and, behind it, a kind 1 signal: the word at word takes value. Who sees it sees the put. */
SHUNT_DEVICE uint64_t shunt_put_signal_thread(uint32_t peer, uint32_t channel, uint64_t dst, uint64_t src, uint64_t bytes, uint64_t word, uint64_t value);
SHUNT_WARP(uint64_t, shunt_put_signal, (uint32_t peer, uint32_t channel, uint64_t dst, uint64_t src, uint64_t bytes, uint64_t word, uint64_t value), (peer, channel, dst, src, bytes, word, value))
SHUNT_DEVICE uint64_t shunt_put_signal_block(uint32_t peer, uint32_t channel, uint64_t dst, uint64_t src, uint64_t bytes, uint64_t word, uint64_t value);

/* Reads bytes of the heap of peer at src into this PE's heap at dst. They are there once a wait on the
 * ticket has ended. */
SHUNT_DEVICE uint64_t shunt_get_thread(uint32_t peer, uint32_t channel, uint64_t dst, uint64_t src, uint64_t bytes);
SHUNT_WARP(uint64_t, shunt_get, (uint32_t peer, uint32_t channel, uint64_t dst, uint64_t src, uint64_t bytes), (peer, channel, dst, src, bytes))
SHUNT_DEVICE uint64_t shunt_get_block(uint32_t peer, uint32_t channel, uint64_t dst, uint64_t src, uint64_t bytes);

/* Writes the low bytes (1 to 8) of value to the heap of peer at dst. */
SHUNT_DEVICE uint64_t shunt_p_thread(uint32_t peer, uint32_t channel, uint64_t dst, uint64_t value, uint32_t bytes);
SHUNT_WARP(uint64_t, shunt_p, (uint32_t peer, uint32_t channel, uint64_t dst, uint64_t value, uint32_t bytes), (peer, channel, dst, value, bytes))
SHUNT_DEVICE uint64_t shunt_p_block(uint32_t peer, uint32_t channel, uint64_t dst, uint64_t value, uint32_t bytes);

/* A kind 1 signal: the word at word takes value. This channel alone writes the word, each value is greater
 * than the one before, and the receiver never clears it. */
SHUNT_DEVICE uint64_t shunt_signal_thread(uint32_t peer, uint32_t channel, uint64_t word, uint64_t value);
SHUNT_WARP(uint64_t, shunt_signal, (uint32_t peer, uint32_t channel, uint64_t word, uint64_t value), (peer, channel, word, value))
SHUNT_DEVICE uint64_t shunt_signal_block(uint32_t peer, uint32_t channel, uint64_t word, uint64_t value);

/* A kind 2 signal: value is added to the word at word. This channel alone adds to it; the receiver clears it. */
SHUNT_DEVICE uint64_t shunt_signal_cleared_thread(uint32_t peer, uint32_t channel, uint64_t word, uint64_t value);
SHUNT_WARP(uint64_t, shunt_signal_cleared, (uint32_t peer, uint32_t channel, uint64_t word, uint64_t value), (peer, channel, word, value))
SHUNT_DEVICE uint64_t shunt_signal_cleared_block(uint32_t peer, uint32_t channel, uint64_t word, uint64_t value);

/* The least that posts a put, by one thread; the doorbell is rung if ring is not 0. One that was left is rung by
 * the next post on this channel that rings, or by a caller that waits or looks. */
SHUNT_DEVICE uint64_t shunt_try_put(uint32_t peer, uint32_t channel, uint64_t dst, uint64_t src, uint64_t bytes, uint32_t ring);

/* The least that posts a kind 2 signal on a word of four bytes, by one thread. */
SHUNT_DEVICE uint64_t shunt_try_cleared32(uint32_t peer, uint32_t channel, uint64_t word, uint32_t value);

/* The least that writes the low bytes (1 to 8) of value to the heap of peer at dst, by one thread. */
SHUNT_DEVICE uint64_t shunt_try_p(uint32_t peer, uint32_t channel, uint64_t dst, uint64_t value, uint32_t bytes);

/* One look at what the channel has outstanding, by one thread, for a kernel whose own waits look at nothing: a
 * switch that is under way or begins here is carried on for timeout_ns at most. 0 if none is left, SHUNT_PENDING
 * if one is, SHUNT_UNCERTAIN while the channel asks its owner, else the fault of a dead channel. Without a switch
 * it does not wait. */
SHUNT_DEVICE uint32_t shunt_progress(uint32_t peer, uint32_t channel, uint64_t timeout_ns);

/* A kind 3 signal: value is added to the word at word, which others add to as well. All of them use channels
 * of one index. */
SHUNT_DEVICE uint64_t shunt_signal_add_thread(uint32_t peer, uint32_t channel, uint64_t word, uint64_t value);
SHUNT_WARP(uint64_t, shunt_signal_add, (uint32_t peer, uint32_t channel, uint64_t word, uint64_t value), (peer, channel, word, value))
SHUNT_DEVICE uint64_t shunt_signal_add_block(uint32_t peer, uint32_t channel, uint64_t word, uint64_t value);

/* Waits until the operation of ticket is done. */
SHUNT_DEVICE uint32_t shunt_wait_thread(uint32_t peer, uint32_t channel, uint64_t ticket, uint64_t timeout_ns);
SHUNT_WARP(uint32_t, shunt_wait, (uint32_t peer, uint32_t channel, uint64_t ticket, uint64_t timeout_ns), (peer, channel, ticket, timeout_ns))
SHUNT_DEVICE uint32_t shunt_wait_block(uint32_t peer, uint32_t channel, uint64_t ticket, uint64_t timeout_ns);

/* Waits until everything published on the channel is done. */
SHUNT_DEVICE uint32_t shunt_quiet_thread(uint32_t peer, uint32_t channel, uint64_t timeout_ns);
SHUNT_WARP(uint32_t, shunt_quiet, (uint32_t peer, uint32_t channel, uint64_t timeout_ns), (peer, channel, timeout_ns))
SHUNT_DEVICE uint32_t shunt_quiet_block(uint32_t peer, uint32_t channel, uint64_t timeout_ns);

/* Waits until the word at word of this PE's heap is at least value. Meanwhile it looks after what this PE
 * sent. */
SHUNT_DEVICE uint32_t shunt_wait_until_thread(uint64_t word, uint64_t value, uint64_t timeout_ns);
SHUNT_WARP(uint32_t, shunt_wait_until, (uint64_t word, uint64_t value, uint64_t timeout_ns), (word, value, timeout_ns))
SHUNT_DEVICE uint32_t shunt_wait_until_block(uint64_t word, uint64_t value, uint64_t timeout_ns);

/* One look after what this PE sent, by one thread, for waits of the caller's own: silent paths are found out and
 * switches carried on. rounds is eight words of the caller's, zero before the first look of a wait, and kept to
 * its last. The answer is the time, in nanoseconds; its largest value where there is no device state. */
SHUNT_DEVICE uint64_t shunt_look_after(uint64_t *rounds);

/* One look at a ticket: 0 if it is done, SHUNT_PENDING if not yet, else a fault. */
SHUNT_DEVICE uint32_t shunt_test(uint32_t peer, uint32_t channel, uint64_t ticket);

/* Says whether a channel can still carry anything: 0, or its fault, whose report goes to report. */
SHUNT_DEVICE uint32_t shunt_alive(uint32_t peer, uint32_t channel, shunt_report *report);

/* Says whether a channel asks what became of an operation: 0 if not, else SHUNT_UNCERTAIN, and the report names
 * the operation. */
SHUNT_DEVICE uint32_t shunt_uncertain(uint32_t peer, uint32_t channel, shunt_report *report);

/* Answers what an uncertain channel asks: the operation of ticket was applied (1) or not (0). */
SHUNT_DEVICE uint32_t shunt_resolve(uint32_t peer, uint32_t channel, uint64_t ticket, uint32_t applied);

/* This PE's number, or 0xffffffff without a device state. */
SHUNT_DEVICE uint32_t shunt_my_pe(void);

/* PEs of the job, or 0 without a device state. */
SHUNT_DEVICE uint32_t shunt_pe_count(void);

/* The address of an offset in this PE's heap, or 0 without a device state. */
SHUNT_DEVICE uint64_t shunt_address(uint64_t offset);

/* What a fetching atomic on a word of eight bytes brought to result, once its ticket is done. */
SHUNT_DEVICE uint64_t shunt_fetched64(uint64_t result);

/* What a fetching atomic on a word of four bytes brought to result, once its ticket is done. */
SHUNT_DEVICE uint32_t shunt_fetched32(uint64_t result);

/* Has the owner of the word at word of the heap of peer execute an atomic: its NIC may lack it, or lose its
 * answer. form is one of SHUNT_ADD32 to SHUNT_COMPARE_SWAP64, with the operand value. old holds what the
 * word must be for the last two, and gets what it was. It lands behind what was posted on the channel before. */
SHUNT_DEVICE uint32_t shunt_exact(uint32_t peer, uint32_t channel, uint64_t word, uint32_t form, uint64_t value, uint64_t *old, uint64_t timeout_ns);

/* Amo::Add32(value) on the word at word of the heap of peer, by one thread. */
SHUNT_DEVICE uint64_t shunt_add32(uint32_t peer, uint32_t channel, uint64_t word, uint32_t value);

/* The same, what the word was going to the eight bytes at result of this PE's heap. */
SHUNT_DEVICE uint64_t shunt_fetch_add32(uint32_t peer, uint32_t channel, uint64_t word, uint32_t value, uint64_t result);

/* Amo::Add64(value) on the word at word of the heap of peer, by one thread. */
SHUNT_DEVICE uint64_t shunt_add64(uint32_t peer, uint32_t channel, uint64_t word, uint64_t value);

/* The same, what the word was going to the eight bytes at result of this PE's heap. */
SHUNT_DEVICE uint64_t shunt_fetch_add64(uint32_t peer, uint32_t channel, uint64_t word, uint64_t value, uint64_t result);

/* Amo::Set32(value) on the word at word of the heap of peer, by one thread. */
SHUNT_DEVICE uint64_t shunt_set32(uint32_t peer, uint32_t channel, uint64_t word, uint32_t value);

/* The same, what the word was going to the eight bytes at result of this PE's heap. */
SHUNT_DEVICE uint64_t shunt_fetch_set32(uint32_t peer, uint32_t channel, uint64_t word, uint32_t value, uint64_t result);

/* Amo::Set64(value) on the word at word of the heap of peer, by one thread. */
SHUNT_DEVICE uint64_t shunt_set64(uint32_t peer, uint32_t channel, uint64_t word, uint64_t value);

/* The same, what the word was going to the eight bytes at result of this PE's heap. */
SHUNT_DEVICE uint64_t shunt_fetch_set64(uint32_t peer, uint32_t channel, uint64_t word, uint64_t value, uint64_t result);

/* Amo::And32(value) on the word at word of the heap of peer, by one thread. */
SHUNT_DEVICE uint64_t shunt_and32(uint32_t peer, uint32_t channel, uint64_t word, uint32_t value);

/* The same, what the word was going to the eight bytes at result of this PE's heap. */
SHUNT_DEVICE uint64_t shunt_fetch_and32(uint32_t peer, uint32_t channel, uint64_t word, uint32_t value, uint64_t result);

/* Amo::And64(value) on the word at word of the heap of peer, by one thread. */
SHUNT_DEVICE uint64_t shunt_and64(uint32_t peer, uint32_t channel, uint64_t word, uint64_t value);

/* The same, what the word was going to the eight bytes at result of this PE's heap. */
SHUNT_DEVICE uint64_t shunt_fetch_and64(uint32_t peer, uint32_t channel, uint64_t word, uint64_t value, uint64_t result);

/* Amo::Or32(value) on the word at word of the heap of peer, by one thread. */
SHUNT_DEVICE uint64_t shunt_or32(uint32_t peer, uint32_t channel, uint64_t word, uint32_t value);

/* The same, what the word was going to the eight bytes at result of this PE's heap. */
SHUNT_DEVICE uint64_t shunt_fetch_or32(uint32_t peer, uint32_t channel, uint64_t word, uint32_t value, uint64_t result);

/* Amo::Or64(value) on the word at word of the heap of peer, by one thread. */
SHUNT_DEVICE uint64_t shunt_or64(uint32_t peer, uint32_t channel, uint64_t word, uint64_t value);

/* The same, what the word was going to the eight bytes at result of this PE's heap. */
SHUNT_DEVICE uint64_t shunt_fetch_or64(uint32_t peer, uint32_t channel, uint64_t word, uint64_t value, uint64_t result);

/* Amo::Xor32(value) on the word at word of the heap of peer, by one thread. */
SHUNT_DEVICE uint64_t shunt_xor32(uint32_t peer, uint32_t channel, uint64_t word, uint32_t value);

/* The same, what the word was going to the eight bytes at result of this PE's heap. */
SHUNT_DEVICE uint64_t shunt_fetch_xor32(uint32_t peer, uint32_t channel, uint64_t word, uint32_t value, uint64_t result);

/* Amo::Xor64(value) on the word at word of the heap of peer, by one thread. */
SHUNT_DEVICE uint64_t shunt_xor64(uint32_t peer, uint32_t channel, uint64_t word, uint64_t value);

/* The same, what the word was going to the eight bytes at result of this PE's heap. */
SHUNT_DEVICE uint64_t shunt_fetch_xor64(uint32_t peer, uint32_t channel, uint64_t word, uint64_t value, uint64_t result);

/* Amo::Swap32(value) on the word at word of the heap of peer, by one thread. */
SHUNT_DEVICE uint64_t shunt_swap32(uint32_t peer, uint32_t channel, uint64_t word, uint32_t value);

/* The same, what the word was going to the eight bytes at result of this PE's heap. */
SHUNT_DEVICE uint64_t shunt_fetch_swap32(uint32_t peer, uint32_t channel, uint64_t word, uint32_t value, uint64_t result);

/* Amo::Swap64(value) on the word at word of the heap of peer, by one thread. */
SHUNT_DEVICE uint64_t shunt_swap64(uint32_t peer, uint32_t channel, uint64_t word, uint64_t value);

/* The same, what the word was going to the eight bytes at result of this PE's heap. */
SHUNT_DEVICE uint64_t shunt_fetch_swap64(uint32_t peer, uint32_t channel, uint64_t word, uint64_t value, uint64_t result);

/* Amo::CompareSwap32 { expect, new: value } on the word at word of the heap of peer, by one thread. */
SHUNT_DEVICE uint64_t shunt_cas32(uint32_t peer, uint32_t channel, uint64_t word, uint32_t expect, uint32_t value);

/* The same, what the word was going to the eight bytes at result of this PE's heap. */
SHUNT_DEVICE uint64_t shunt_fetch_cas32(uint32_t peer, uint32_t channel, uint64_t word, uint32_t expect, uint32_t value, uint64_t result);

/* Amo::CompareSwap64 { expect, new: value } on the word at word of the heap of peer, by one thread. */
SHUNT_DEVICE uint64_t shunt_cas64(uint32_t peer, uint32_t channel, uint64_t word, uint64_t expect, uint64_t value);

/* The same, what the word was going to the eight bytes at result of this PE's heap. */
SHUNT_DEVICE uint64_t shunt_fetch_cas64(uint32_t peer, uint32_t channel, uint64_t word, uint64_t expect, uint64_t value, uint64_t result);

#ifdef __cplusplus
}
static_assert(sizeof(shunt_report) == 72, "the report has another size in Rust");
#endif

#endif
