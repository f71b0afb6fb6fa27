// The host's part where kernels are functions of the processor: what device/host.cu is on a GPU. A launch is a call, on
// the thread that makes it.

#define __CUDACC__ 1
#define SHUNT_NVSHMEM_DEFINE_STATE
#include <cuda_runtime.h>

#include "nvshmem.h"
#include "nvshmemx.h"
#include "shunt/device_link.h"
#include "shunt/device_stream.h"

extern "C" void shunt_native_root(const void *root);
extern "C" uint64_t shunt_native_now();
// GPUs that a program pretends not to be done, a bit each.
extern "C" unsigned long long shunt_native_still_running;
unsigned long long shunt_native_still_running = 0;

namespace {

int place() { return SHUNT_NVSHMEM_ON_HOST; }
unsigned long long clock_of_kernels() { return shunt_native_now(); }

int up(const void *root, const shunt_nvshmem_device *words) {
    // Copies, as a GPU's constants are.
    std::memcpy(shunt_root, root, sizeof shunt_root);
    shunt_nvshmem_device_state = *words;
    shunt_native_root(shunt_root);
    return 0;
}

unsigned long long quiet(unsigned long long timeout_ns) { return shunt_nvshmem::quiet_within(timeout_ns); }
int follow() { return 0; }
int drain(void *) { return SHUNT_NVSHMEM_DRAINED; }
int launch(const shunt_nvshmem_stream_call *call, void *) {
    shunt_nvshmem::on_stream(*call);
    return 0;
}
unsigned long long settle(unsigned long long) { return shunt_native_still_running; }

void down() {
    shunt_native_root(nullptr);
    std::memset(shunt_root, 0, sizeof shunt_root);
    shunt_nvshmem_device_state = shunt_nvshmem_device{};
}

// There is no driver that loads modules: what came is the answer, for who looks whether it came.
int module(void *of, int is_library, int enter) { return (int)(uintptr_t)of + 2 * is_library + enter; }

const shunt_nvshmem_device_library library = {
    SHUNT_NVSHMEM_DEVICE_VERSION, place, clock_of_kernels, up, follow, quiet, drain, launch, settle, down, module};
const int registered = shunt_nvshmem_join_device(&library);

} // namespace

// The programs here have kernels of two arguments.
extern "C" int nvshmemx_collective_launch(const void *kernel, dim3, dim3, void **arguments, size_t, cudaStream_t) {
    ((void (*)(void *, unsigned *))kernel)(*(void **)arguments[0], *(unsigned **)arguments[1]);
    return 0;
}

extern "C" int nvshmemx_collective_launch_attr(const nvshmemx_collective_launch_attr_t *, const void *kernel,
                                               void **arguments) {
    return nvshmemx_collective_launch(kernel, dim3(), dim3(), arguments, 0, nullptr);
}
