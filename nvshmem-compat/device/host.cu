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
