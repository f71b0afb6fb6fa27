// The host's part of libnvshmem_device.a: the constants that device code finds its state in, and launches of kernels
// that meet.

#define SHUNT_NVSHMEM_DEFINE_STATE
#include <cstdio>

#include "nvshmem.h"
#include "nvshmemx.h"
#include "shunt/device_link.h"

namespace {

// The library keeps heap, rings and NICs in memory of the host that no kernel reaches: constants stay zero, device
// functions do nothing but say so (shunt_nvshmem_device_fault), and here it is said beforehand.
int up(const void *) {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0) {
        std::fprintf(stderr, "shunt: nvshmem_init: heap and NICs are in host memory: NVSHMEM's calls in kernels do "
                             "nothing\n");
    }
    // Without a GPU there are no kernels either.
    cudaGetLastError();
    return 0;
}

const int registered = shunt_nvshmem_register_device(SHUNT_NVSHMEM_DEVICE_VERSION, up);

} // namespace

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
extern "C" int nvshmemx_collective_launch(const void *kernel, dim3 grid, dim3 block, void **arguments, size_t shared,
                                          cudaStream_t stream) {
    int most = 0;
    if (grid.x == 0) {
        const int status = nvshmemx_collective_launch_query_gridsize(kernel, block, arguments, shared, &most);
        if (status != 0) return status;
        grid = dim3((unsigned)most);
    }
    const cudaError_t error = cudaLaunchCooperativeKernel(kernel, grid, block, arguments, shared, stream);
    return error == cudaSuccess ? 0 : (int)NVSHMEMX_ERROR_COLLECTIVE_LAUNCH_FAILED;
}
