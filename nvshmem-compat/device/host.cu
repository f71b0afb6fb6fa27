// The host's part of libnvshmem_device.a: the constants that device code finds its state in, what the host library asks
// of kernels, launches of kernels that meet, and modules that are loaded by themselves.

#define SHUNT_NVSHMEM_DEFINE_STATE
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <thread>

#include "nvshmem.h"
#include "nvshmemx.h"
#include "shunt/device_link.h"
#include "shunt/device_stream.h"

namespace {

// What was told last: GPUs and modules that come later are told the same.
struct Told {
    unsigned char root[SHUNT_ROOT_BYTES];
    shunt_nvshmem_device words;
} told;
// Which GPUs were, a bit each.
unsigned long long gpus = 0;

// One word that kernels of ours and the host share, the stream that they run on, and whether the last one may still run.
unsigned long long *answer = nullptr;
cudaStream_t own = nullptr;
bool running = false;

bool failed(cudaError_t error, const char *what) {
    if (error == cudaSuccess) return false;
    std::fprintf(stderr, "shunt: %s: %s\n", what, cudaGetErrorString(error));
    return true;
}

__global__ void shunt_nvshmem_clock(unsigned long long *to) {
    unsigned long long now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    *(volatile unsigned long long *)to = now;
    __threadfence_system();
}

__global__ void shunt_nvshmem_quiet(unsigned long long timeout_ns, unsigned long long *to) {
    *(volatile unsigned long long *)to = shunt_nvshmem::quiet_within(timeout_ns);
    __threadfence_system();
}

__global__ void shunt_nvshmem_stream(shunt_nvshmem_stream_call call) { shunt_nvshmem::on_stream(call); }

// The last kernel of ours has ended, or not within so long: a GPU that is full of others lets it wait.
cudaError_t ended(unsigned long long timeout_ns) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(timeout_ns);
    cudaError_t error;
    do {
        error = cudaStreamQuery(own);
    } while (error == cudaErrorNotReady && std::chrono::steady_clock::now() < until);
    running = error == cudaErrorNotReady;
    return error;
}

// Runs one of the kernels above, on a stream that waits for no other.
unsigned long long ask(const void *kernel, void **arguments, unsigned long long timeout_ns) {
    constexpr unsigned long long kOverdue = (unsigned long long)SHUNT_OVERDUE << 32, kLaunch = 1000000000;
    if (!answer && failed(cudaMallocHost(&answer, sizeof *answer), "memory for an answer")) return ~0ull;
    if (!own && failed(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking), "a stream")) return ~0ull;
    // One that is still there would write the answer of the next one.
    if (running && ended(timeout_ns) == cudaErrorNotReady) return kOverdue;
    *answer = ~0ull;
    if (failed(cudaLaunchKernel(kernel, dim3(1), dim3(1), arguments, 0, own), "a kernel of the library")) return ~0ull;
    const cudaError_t error = ended(timeout_ns + kLaunch);
    if (error == cudaErrorNotReady) return kOverdue;
    return failed(error, "a kernel of the library") ? ~0ull : *(volatile unsigned long long *)answer;
}

int place() {
    int devices = 0, device = 0;
    if (cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0 && cudaGetDevice(&device) == cudaSuccess) {
        return device;
    }
    // Without a GPU there are no kernels either.
    cudaGetLastError();
    return SHUNT_NVSHMEM_NO_GPU;
}

unsigned long long clock_of_kernels() {
    void *arguments[] = {&answer};
    // The argument is an address that the first call makes.
    if (!answer && failed(cudaMallocHost(&answer, sizeof *answer), "memory for an answer")) return ~0ull;
    return ask((const void *)shunt_nvshmem_clock, arguments, 1000000000);
}

unsigned long long quiet(unsigned long long timeout_ns) {
    void *arguments[] = {&timeout_ns, &answer};
    if (!answer && failed(cudaMallocHost(&answer, sizeof *answer), "memory for an answer")) return ~0ull;
    return ask((const void *)shunt_nvshmem_quiet, arguments, timeout_ns);
}

int write_constants() {
    return failed(cudaMemcpyToSymbol(shunt_root, told.root, sizeof told.root), "the root of the device state") ||
           failed(cudaMemcpyToSymbol(shunt_nvshmem_device_state, &told.words, sizeof told.words), "the device state");
}

int follow() {
    int device = 0;
    if (failed(cudaGetDevice(&device), "the GPU that is current")) return 1;
    const unsigned long long bit = 1ull << (device & 63);
    if (gpus & bit) return 0;
    // A stream and what it runs belong to one GPU.
    if (own) cudaStreamDestroy(own), own = nullptr, running = false;
    if (write_constants()) return 1;
    gpus |= bit;
    // The first launch loads code, which waits for all that runs: now, and not beside kernels of the program.
    return quiet(0) == ~0ull;
}

int up(const void *root, const shunt_nvshmem_device *words) {
    std::memcpy(told.root, root, sizeof told.root);
    told.words = *words;
    gpus = 0;
    return follow();
}

// On each GPU that was told, and back.
template <typename What> void on_each(What what) {
    int before = 0;
    cudaGetDevice(&before);
    for (int device = 0; device < 64; ++device) {
        if (gpus >> device & 1 && cudaSetDevice(device) == cudaSuccess) what();
    }
    cudaSetDevice(before);
}

// A GPU's end is waited for by a thread of its own, which nobody need join: CUDA's wait has no deadline.
unsigned long long settle(unsigned long long timeout_ns) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(timeout_ns);
    const auto running = std::make_shared<std::atomic<unsigned long long>>(gpus);
    for (int device = 0; device < 64; ++device) {
        if (!(gpus >> device & 1)) continue;
        std::thread([running, device] {
            if (!failed(cudaSetDevice(device), "a GPU")) failed(cudaDeviceSynchronize(), "kernels that still ran");
            running->fetch_and(~(1ull << device));
        }).detach();
    }
    while (running->load() != 0 && std::chrono::steady_clock::now() < until) {
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    return running->load();
}

void down() {
    told = Told{};
    on_each([] { write_constants(); });
    gpus = 0;
    if (own) cudaStreamDestroy(own);
    if (answer) cudaFreeHost(answer);
    own = nullptr, answer = nullptr, running = false;
}

int drain(void *stream) {
    // A caller that asks for the end of a stream that is being captured ends the capture.
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    const cudaError_t asked = cudaStreamIsCapturing((cudaStream_t)stream, &capture);
    if (asked == cudaErrorStreamCaptureImplicit || capture != cudaStreamCaptureStatusNone) {
        cudaGetLastError();
        return SHUNT_NVSHMEM_CAPTURED;
    }
    const cudaError_t error = cudaStreamQuery((cudaStream_t)stream);
    if (error == cudaErrorNotReady) return SHUNT_NVSHMEM_NOT_YET;
    return failed(error, "a stream") ? SHUNT_NVSHMEM_BROKEN : SHUNT_NVSHMEM_DRAINED;
}

int launch(const shunt_nvshmem_stream_call *call, void *stream) {
    constexpr unsigned kThreads = 128;
    shunt_nvshmem_stream_call copied = *call;
    void *arguments[] = {&copied};
    const void *kernel = (const void *)shunt_nvshmem_stream;
    return failed(cudaLaunchKernel(kernel, dim3(1), dim3(kThreads), arguments, 0, (cudaStream_t)stream),
                  "a call on a stream");
}

// A function of the driver, which a program need not link.
template <typename Function> Function driver(const char *name) {
    void *found = nullptr;
    cudaDriverEntryPointQueryResult how;
#if CUDART_VERSION >= 13000
    const cudaError_t error = cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &how);
#else
    const cudaError_t error = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &how);
#endif
    if (error != cudaSuccess || how != cudaDriverEntryPointSuccess) return nullptr;
    return (Function)found;
}

// CUresult, CUdeviceptr.
typedef int (*Global)(unsigned long long *, size_t *, void *, const char *);

// Writes a constant of what was loaded by itself.
bool write(Global global, void *of, const char *name, const void *from, size_t bytes) {
    unsigned long long at = 0;
    size_t there = 0;
    if (!global || global(&at, &there, of, name) != 0 || there != bytes) {
        std::fprintf(stderr, "shunt: a module without %s of %zu bytes: link it with libnvshmem_device.a\n", name,
                     bytes);
        return false;
    }
    return !failed(cudaMemcpy((void *)at, from, bytes, cudaMemcpyHostToDevice), name);
}

int enter(Global global, void *of, const Told &what) {
    return write(global, of, "shunt_root", what.root, sizeof what.root) &&
                   write(global, of, "shunt_nvshmem_device_state", &what.words, sizeof what.words)
               ? 0
               : (int)NVSHMEMX_ERROR_INVALID_VALUE;
}

int not_up(const char *name) {
    std::fprintf(stderr, "shunt: %s: nvshmem_init comes first\n", name);
    return (int)NVSHMEMX_ERROR_INVALID_VALUE;
}

int module(void *of, int is_library, int enter_it) {
    const char *name = is_library ? "nvshmemx_culibrary_init" : "nvshmemx_cumodule_init";
    if (enter_it && told.words.version == 0) return not_up(name);
    const Global global = driver<Global>(is_library ? "cuLibraryGetGlobal" : "cuModuleGetGlobal");
    return enter(global, of, enter_it ? told : Told{});
}

const shunt_nvshmem_device_library library = {
    SHUNT_NVSHMEM_DEVICE_VERSION, place, clock_of_kernels, up, follow, quiet, drain, launch, settle, down, module};
const int registered = shunt_nvshmem_join_device(&library);

} // namespace

extern "C" int nvshmemx_cumodule_init(CUmod_st *of) { return module(of, 0, 1); }
extern "C" int nvshmemx_cumodule_finalize(CUmod_st *of) { return module(of, 0, 0); }
extern "C" int nvshmemx_culibrary_init(CUlib_st *of) { return module(of, 1, 1); }
extern "C" int nvshmemx_culibrary_finalize(CUlib_st *of) { return module(of, 1, 0); }

extern "C" int nvshmemx_collective_launch_query_gridsize(const void *kernel, dim3 block, void **, size_t shared,
                                                         int *blocks) {
    int device = 0, processors = 0, each = 0;
    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device) != cudaSuccess ||
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, (int)(block.x * block.y * block.z), shared) !=
            cudaSuccess) {
        return NVSHMEMX_ERROR_INTERNAL;
    }
    *blocks = each * processors;
    return 0;
}

// All blocks of the grid are on the GPU at once, or none is started.
extern "C" int nvshmemx_collective_launch_attr(const nvshmemx_collective_launch_attr_t *attr, const void *kernel,
                                               void **arguments) {
    // CUDA knows fewer.
    constexpr unsigned kMost = 32;
    if (!attr || !kernel || attr->cuda_config.numAttrs >= kMost) return NVSHMEMX_ERROR_INVALID_VALUE;
    cudaLaunchConfig_t config = attr->cuda_config;
    cudaLaunchAttribute attributes[kMost];
    bool said = false;
    for (unsigned i = 0; i < config.numAttrs; ++i) {
        attributes[i] = config.attrs[i];
        said = said || attributes[i].id == cudaLaunchAttributeCooperative;
    }
    if (!said) {
        attributes[config.numAttrs].id = cudaLaunchAttributeCooperative;
        attributes[config.numAttrs++].val.cooperative = 1;
    }
    config.attrs = attributes;
    if (config.gridDim.x == 0) {
        int most = 0;
        const int status = nvshmemx_collective_launch_query_gridsize(kernel, config.blockDim, arguments,
                                                                     config.dynamicSmemBytes, &most);
        if (status != 0) return status;
        config.gridDim = dim3((unsigned)most);
    }
    const cudaError_t error = cudaLaunchKernelExC(&config, kernel, arguments);
    return error == cudaSuccess ? 0 : (int)NVSHMEMX_ERROR_COLLECTIVE_LAUNCH_FAILED;
}

extern "C" int nvshmemx_collective_launch(const void *kernel, dim3 grid, dim3 block, void **arguments, size_t shared,
                                          cudaStream_t stream) {
    nvshmemx_collective_launch_attr_t attr = {};
    attr.cuda_config.gridDim = grid;
    attr.cuda_config.blockDim = block;
    attr.cuda_config.dynamicSmemBytes = shared;
    attr.cuda_config.stream = stream;
    return nvshmemx_collective_launch_attr(&attr, kernel, arguments);
}
