// put, get, p, g, iput, iget: one thread, a warp, a block; types and sizes.
#include "program.h"

#define TYPE(N, T)                                                                                                     \
    template <> struct Calls<T> {                                                                                      \
        static __device__ void run(T *to, T *from, Tally tally) {                                                      \
            const int next = next_pe();                                                                                \
            if (threadIdx.x == 0) {                                                                                    \
                nvshmem_##N##_p(to, (T)(nvshmem_my_pe() + 1), next);                                                   \
                nvshmem_##N##_put(to + 1, from, 4, next);                                                              \
                nvshmem_##N##_put_nbi(to + 5, from, 4, next);                                                          \
                nvshmem_##N##_iput(to + 9, from, 2, 1, 4, next);                                                       \
            }                                                                                                          \
            if (threadIdx.x < 32) {                                                                                    \
                nvshmemx_##N##_put_warp(to + 17, from, 4, next);                                                       \
                nvshmemx_##N##_put_nbi_warp(to + 21, from, 4, next);                                                   \
            }                                                                                                          \
            nvshmemx_##N##_put_block(to + 25, from, 4, next);                                                          \
            nvshmemx_##N##_put_nbi_block(to + 29, from, 4, next);                                                      \
            nvshmemx_barrier_all_block();                                                                              \
            if (threadIdx.x == 0) {                                                                                    \
                tally.want(to[0] == (T)(last_pe() + 1) && to[1] == from[0] && to[32] == from[3]);                      \
                tally.want(nvshmem_##N##_g(to, next) == (T)(nvshmem_my_pe() + 1));                                     \
                nvshmem_##N##_get(to + 33, from, 4, next);                                                             \
                nvshmem_##N##_get_nbi(to + 37, from, 4, next);                                                         \
                nvshmem_##N##_iget(to + 41, from, 1, 1, 4, next);                                                      \
                nvshmem_quiet();                                                                                       \
                tally.want(to[33] == from[0] && to[40] == from[3] && to[44] == from[3]);                               \
            }                                                                                                          \
            if (threadIdx.x < 32) nvshmemx_##N##_get_warp(to + 45, from, 4, next);                                     \
            nvshmemx_##N##_get_block(to + 49, from, 4, next);                                                          \
            nvshmemx_##N##_get_nbi_block(to + 53, from, 4, next);                                                      \
            nvshmemx_barrier_all_block();                                                                              \
            if (threadIdx.x == 0) tally.want(to[45] == from[0] && to[52] == from[3] && to[56] == from[3]);             \
        }                                                                                                              \
    };

template <typename T> struct Calls;
TYPE(char, char)
TYPE(int, int)
TYPE(uint16, uint16_t)
TYPE(uint64, uint64_t)
TYPE(double, double)

template <typename T> __device__ void type(void *memory, Tally tally) {
    T *to = (T *)memory, *from = to + 64;
    for (unsigned i = threadIdx.x; i < 4; i += blockDim.x) from[i] = (T)(i + 40);
    nvshmemx_barrier_all_block();
    Calls<T>::run(to, from, tally);
    nvshmemx_barrier_all_block();
}

__global__ void family(void *memory, unsigned *wrong) {
    const Tally tally{wrong};
    type<char>(memory, tally);
    type<int>(memory, tally);
    type<uint16_t>(memory, tally);
    type<uint64_t>(memory, tally);
    type<double>(memory, tally);
    const int next = next_pe();
    char *to = (char *)memory, *from = to + 512;
    if (threadIdx.x == 0) {
        nvshmem_putmem(to, from, 16, next);
        nvshmem_putmem_nbi(to + 16, from, 16, next);
        nvshmem_getmem(to + 32, from, 16, next);
        nvshmem_getmem_nbi(to + 48, from, 16, next);
        nvshmem_put8(to + 64, from, 16, next);
        nvshmem_put128_nbi(to + 96, from, 1, next);
        nvshmem_get64(to + 128, from, 2, next);
        tally.want(nvshmem_ptr(to, nvshmem_my_pe()) == to);
    }
    nvshmemx_putmem_nbi_block(to + 160, from, 64, next);
    nvshmemx_getmem_block(to + 224, from, 64, next);
    if (threadIdx.x < 32) nvshmemx_putmem_warp(to + 288, from, 64, next);
    nvshmemx_barrier_all_block();
    // Strides of plain sizes, in a region, which changes nothing.
    nvshmemx_region_handle_t region;
    nvshmemx_region_attrs_t attrs = NVSHMEMX_REGION_ATTRS_INITIALIZER;
    int *marks = (int *)(to + 640), *put = marks + 16, *got = marks + 32;
    if (threadIdx.x == 0) {
        for (int i = 0; i < 4; ++i) marks[i] = i + 1;
    }
    nvshmemx_barrier_all_block();
    tally.want(nvshmemx_region_start_block(&region, &attrs) == 0);
    nvshmemx_iput32_block(put, marks, 2, 1, 4, next);
    if (threadIdx.x < 32) nvshmemx_iget32_warp(got, marks, 1, 1, 4, next);
    tally.want(nvshmemx_region_stop_block(region) == 0);
    nvshmemx_barrier_all_block();
    if (threadIdx.x == 0) {
        int major = 0, minor = 0, patch = 0, active = 1;
        nvshmem_info_get_version(&major, &minor);
        tally.want(put[6] == 4 && got[3] == 4 && major == NVSHMEM_MAJOR_VERSION);
        nvshmemx_vendor_get_version_info(&major, &minor, &patch);
        tally.want(major == 3 && nvshmemx_region_is_active(0, &active) == 0);
    }
}

#ifndef __CUDACC_RTC__
int main() { return program("rma", family); }
#endif
