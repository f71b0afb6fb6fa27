// What the programs of the families share: start, one kernel on one block, its count of what was wrong, end.
#ifndef SHUNT_PROGRAM_H
#define SHUNT_PROGRAM_H

#ifndef __CUDACC_RTC__
#include <cstdio>
#endif
#include <cuda_runtime.h>
#include <nvshmem.h>
#include <nvshmemx.h>

// One block.
constexpr int kThreads = 64;
constexpr size_t kBytes = 1 << 16;

// Counts what is not as it must be.
struct Tally {
    unsigned *wrong;
    __device__ void want(bool right) const {
        if (!right) atomicAdd(wrong, 1);
    }
};

#ifndef __CUDACC_RTC__
// Runs a kernel with the symmetric memory, after which all words of it are zero again; 2 without a GPU. A launch is
// told what it needs in either of two ways.
template <typename Kernel> int program(const char *family, Kernel kernel, bool attributes = false) {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        std::printf("%s: no GPU\n", family);
        return 2;
    }
    nvshmem_init();
    unsigned *wrong = nullptr;
    void *memory = nvshmem_malloc(kBytes);
    if (!memory || cudaMalloc(&wrong, sizeof *wrong) != cudaSuccess) return 1;
    cudaMemset(memory, 0, kBytes);
    cudaMemset(wrong, 0, sizeof *wrong);
    nvshmem_barrier_all();
    void *arguments[] = {&memory, &wrong};
    nvshmemx_collective_launch_attr_t launch = {};
    launch.cuda_config.gridDim = dim3(1);
    launch.cuda_config.blockDim = dim3(kThreads);
    const int launched =
        attributes ? nvshmemx_collective_launch_attr(&launch, (const void *)kernel, arguments)
                   : nvshmemx_collective_launch((const void *)kernel, dim3(1), dim3(kThreads), arguments, 0, 0);
    unsigned count = 0;
    const cudaError_t ended = cudaDeviceSynchronize();
    cudaMemcpy(&count, wrong, sizeof count, cudaMemcpyDeviceToHost);
    nvshmem_barrier_all();
    std::printf("%s: PE %d of %d: launch %d, %s, %u wrong\n", family, nvshmem_my_pe(), nvshmem_n_pes(), launched,
                cudaGetErrorString(ended), count);
    cudaFree(wrong);
    nvshmem_free(memory);
    nvshmem_finalize();
    return launched == 0 && ended == cudaSuccess && count == 0 ? 0 : 1;
}
#endif

// The PE behind this one, and the one before it.
__device__ inline int next_pe() { return (nvshmem_my_pe() + 1) % nvshmem_n_pes(); }
__device__ inline int last_pe() { return (nvshmem_my_pe() + nvshmem_n_pes() - 1) % nvshmem_n_pes(); }

#endif
