/* Shunt's header in the place of NVSHMEM's extensions: calls on a stream, signals, flush, and atomics of numbers that
 * NICs do not add. A call on a stream waits for what the stream holds and runs at once; without a GPU any stream but a
 * default one is refused. */
#ifndef SHUNT_NVSHMEMX_H
#define SHUNT_NVSHMEMX_H

#include "nvshmem.h"
#include "non_abi/nvshmemx_error.h"

/* CUmodule and CUlibrary point to these. */
struct CUmod_st;
struct CUlib_st;

#ifdef __cplusplus
extern "C" {
#endif

SHUNT_HD void nvshmemx_signal_op(uint64_t *word, uint64_t value, int op, int pe);
SHUNT_HD void nvshmemx_flush(void);

#ifndef __CUDACC_RTC__
/* Give a module or library of CUDA's driver that was linked with libnvshmem_device.a by itself what the program's own
 * kernels have, after initialisation and before its kernels; and take it back. CUmodule, CUlibrary. */
int nvshmemx_cumodule_init(struct CUmod_st *module);
int nvshmemx_cumodule_finalize(struct CUmod_st *module);
int nvshmemx_culibrary_init(struct CUlib_st *library);
int nvshmemx_culibrary_finalize(struct CUlib_st *library);

/* Device code's handles of queue pairs, and launches of kernels that meet: with libnvshmem_device.a. */
int nvshmemx_qp_create(int count, nvshmemx_qp_handle_t **handles);
#ifdef SHUNT_NVSHMEM_CUDA
#ifdef __cplusplus
int nvshmemx_collective_launch(const void *kernel, dim3 grid, dim3 block, void **arguments, size_t shared,
                               cudaStream_t stream);
/* The same with a launch's configuration: what it says of cooperation is taken as it says. */
typedef struct nvshmemx_collective_launch_attr {
    cudaLaunchConfig_t cuda_config;
} nvshmemx_collective_launch_attr_t;
int nvshmemx_collective_launch_attr(const nvshmemx_collective_launch_attr_t *attr, const void *kernel,
                                    void **arguments);
int nvshmemx_collective_launch_query_gridsize(const void *kernel, dim3 block, void **arguments, size_t shared,
                                              int *blocks);
#endif
#endif

void nvshmemx_signal_op_on_stream(uint64_t *word, uint64_t value, int op, int pe, cudaStream_t stream);
void nvshmemx_signal_wait_until_on_stream(uint64_t *word, int compare, uint64_t value, cudaStream_t stream);
void nvshmemx_flush_on_stream(cudaStream_t stream);
void nvshmemx_quiet_on_stream(cudaStream_t stream);
int nvshmemx_barrier_on_stream(nvshmem_team_t team, cudaStream_t stream);
void nvshmemx_barrier_all_on_stream(cudaStream_t stream);
int nvshmemx_team_sync_on_stream(nvshmem_team_t team, cudaStream_t stream);
void nvshmemx_sync_all_on_stream(cudaStream_t stream);

void nvshmemx_putmem_on_stream(void *target, const void *source, size_t bytes, int pe, cudaStream_t stream);
void nvshmemx_getmem_on_stream(void *target, const void *source, size_t bytes, int pe, cudaStream_t stream);
void nvshmemx_putmem_nbi_on_stream(void *target, const void *source, size_t bytes, int pe, cudaStream_t stream);
void nvshmemx_getmem_nbi_on_stream(void *target, const void *source, size_t bytes, int pe, cudaStream_t stream);
void nvshmemx_putmem_signal_on_stream(void *target, const void *source, size_t bytes, uint64_t *word, uint64_t value,
                                      int op, int pe, cudaStream_t stream);
void nvshmemx_putmem_signal_nbi_on_stream(void *target, const void *source, size_t bytes, uint64_t *word,
                                          uint64_t value, int op, int pe, cudaStream_t stream);
int nvshmemx_broadcastmem_on_stream(nvshmem_team_t team, void *target, const void *source, size_t bytes, int root,
                                    cudaStream_t stream);
int nvshmemx_fcollectmem_on_stream(nvshmem_team_t team, void *target, const void *source, size_t bytes,
                                   cudaStream_t stream);
int nvshmemx_alltoallmem_on_stream(nvshmem_team_t team, void *target, const void *source, size_t bytes,
                                   cudaStream_t stream);

#define SHUNT_NUMBER_AMO(N, T)                                \
    void nvshmemx_##N##_atomic_add(T *word, T value, int pe); \
    T nvshmemx_##N##_atomic_fetch_add(T *word, T value, int pe);
SHUNT_NUMBER_AMO(half, shunt_half)
SHUNT_NUMBER_AMO(float, float)
SHUNT_NUMBER_AMO(double, double)

SHUNT_RMA_TYPES(SHUNT_RMA_ON_STREAM)
SHUNT_SIZES(SHUNT_SIZED_ON_STREAM)
SHUNT_WAIT_TYPES(SHUNT_WAIT_ON_STREAM)
SHUNT_RMA_TYPES(SHUNT_COLLECTIVE_ON_STREAM)
SHUNT_BITWISE_REDUCE_TYPES(SHUNT_BITWISE_REDUCE_ON_STREAM)
SHUNT_REDUCE_TYPES(SHUNT_REDUCE_ON_STREAM)
#endif

#ifdef __cplusplus
}
#endif

#endif
