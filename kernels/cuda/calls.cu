// Calls every function of the device library from CUDA C++, through its header: what does not link is found here.
//
// Without a GPU it says so and ends with 2. On a GPU it runs a kernel without a device state, in which every call must
// answer that there is none, and ends with 0 if all did.

#include <cstdio>
#include <cstring>
#include <cuda_runtime.h>

#include "shunt_device.h"

SHUNT_DEFINE_ROOT

namespace {

constexpr uint64_t kMismatch = SHUNT_FAILED | SHUNT_MISMATCH;

// Counts answers that are not `right`.
struct Tally {
    unsigned calls = 0;
    unsigned wrong = 0;
    __device__ void of(uint64_t answer, uint64_t right) {
        calls += 1;
        wrong += answer != right;
    }
};

// The functions of a group of threads.
#define CALL_GROUP(tally, group)                                                                                       \
    do {                                                                                                               \
        tally.of(shunt_put_##group(1, 0, 64, 128, 32), kMismatch);                                                     \
        tally.of(shunt_put_signal_##group(1, 0, 64, 128, 32, 8, 1), kMismatch);                                        \
        tally.of(shunt_get_##group(1, 0, 64, 128, 32), kMismatch);                                                     \
        tally.of(shunt_p_##group(1, 0, 64, 7, 8), kMismatch);                                                          \
        tally.of(shunt_signal_##group(1, 0, 8, 1), kMismatch);                                                         \
        tally.of(shunt_signal_cleared_##group(1, 0, 8, 1), kMismatch);                                                 \
        tally.of(shunt_signal_add_##group(1, 0, 8, 1), kMismatch);                                                     \
        tally.of(shunt_wait_##group(1, 0, 0, 1000), SHUNT_MISMATCH);                                                   \
        tally.of(shunt_quiet_##group(1, 0, 1000), SHUNT_MISMATCH);                                                     \
        tally.of(shunt_wait_until_##group(8, 1, 1000), SHUNT_MISMATCH);                                                \
    } while (0)

// An atomic of one operand, with and without an answer, of both sizes.
#define CALL_AMO(tally, name)                                                                                          \
    do {                                                                                                               \
        tally.of(shunt_##name##32(1, 0, 8, 1), kMismatch);                                                             \
        tally.of(shunt_##name##64(1, 0, 8, 1), kMismatch);                                                             \
        tally.of(shunt_fetch_##name##32(1, 0, 8, 1, 16), kMismatch);                                                   \
        tally.of(shunt_fetch_##name##64(1, 0, 8, 1, 16), kMismatch);                                                   \
    } while (0)

__device__ void one_thread(Tally &tally) {
    CALL_GROUP(tally, thread);
    tally.of(shunt_try_put(1, 0, 64, 128, 32, 0), kMismatch);
    tally.of(shunt_try_cleared32(1, 0, 8, 1), kMismatch);
    tally.of(shunt_try_p(1, 0, 64, 7, 8), kMismatch);
    tally.of(shunt_progress(1, 0, 1000), SHUNT_MISMATCH);
    CALL_AMO(tally, add);
    CALL_AMO(tally, set);
    CALL_AMO(tally, and);
    CALL_AMO(tally, or);
    CALL_AMO(tally, xor);
    CALL_AMO(tally, swap);
    tally.of(shunt_cas32(1, 0, 8, 0, 1), kMismatch);
    tally.of(shunt_cas64(1, 0, 8, 0, 1), kMismatch);
    tally.of(shunt_fetch_cas32(1, 0, 8, 0, 1, 16), kMismatch);
    tally.of(shunt_fetch_cas64(1, 0, 8, 0, 1, 16), kMismatch);
    shunt_report report;
    tally.of(shunt_test(1, 0, 0), SHUNT_MISMATCH);
    tally.of(shunt_alive(1, 0, &report), SHUNT_MISMATCH);
    tally.of(shunt_uncertain(1, 0, &report), SHUNT_MISMATCH);
    tally.of(shunt_resolve(1, 0, 0, 1), SHUNT_MISMATCH);
    tally.of(shunt_my_pe(), 0xffffffff);
    tally.of(shunt_pe_count(), 0);
    tally.of(shunt_address(64), 0);
    tally.of(shunt_fetched64(16), 0);
    tally.of(shunt_fetched32(16), 0);
}

__global__ void call_all(unsigned *calls, unsigned *wrong) {
    Tally tally;
    if (threadIdx.x < 32) {
        CALL_GROUP(tally, warp);
    }
    CALL_GROUP(tally, block);
    if (threadIdx.x == 0) {
        one_thread(tally);
    }
    atomicAdd(calls, tally.calls);
    atomicAdd(wrong, tally.wrong);
}

bool failed(cudaError_t error, const char *what) {
    if (error != cudaSuccess) {
        std::printf("calls: %s: %s\n", what, cudaGetErrorString(error));
    }
    return error != cudaSuccess;
}

} // namespace

int main() {
    int devices = 0;
    if (failed(cudaGetDeviceCount(&devices), "no GPU") || devices == 0) {
        return 2;
    }
    unsigned char none[SHUNT_ROOT_BYTES];
    std::memset(none, 0, sizeof none);
    unsigned *counts = nullptr;
    if (failed(cudaMemcpyToSymbol(shunt_root, none, sizeof none), "cannot write the root") ||
        failed(cudaMallocManaged(&counts, 2 * sizeof *counts), "cannot allocate")) {
        return 1;
    }
    counts[0] = counts[1] = 0;
    call_all<<<1, 64>>>(&counts[0], &counts[1]);
    if (failed(cudaDeviceSynchronize(), "the kernel failed")) {
        return 1;
    }
    std::printf("calls: %u calls without a device state, %u answered wrong\n", counts[0], counts[1]);
    return counts[0] != 0 && counts[1] == 0 ? 0 : 1;
}
