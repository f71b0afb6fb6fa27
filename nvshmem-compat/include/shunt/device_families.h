/* NVSHMEM's device functions, family by family. Those of one thread have the names of the host's and are defined where
 * device code is compiled; those of a warp and of a block are the device's alone. */
#ifndef SHUNT_NVSHMEM_DEVICE_FAMILIES_H
#define SHUNT_NVSHMEM_DEVICE_FAMILIES_H

#include "device_teams.h"

/* What functions of the device alone are: bitcode has them under their C names. */
#ifndef SHUNT_NVSHMEM_GROUP_CALL
#define SHUNT_NVSHMEM_GROUP_CALL static __device__ inline
#endif

/* Thread, of a name without an end; and the other two. */
#define SHUNT_DEVICE_GROUPS(X, ...) X(Warp, _warp, __VA_ARGS__) X(Block, _block, __VA_ARGS__)

#define SHUNT_GROUP_RMA(S, E, N, T)                                                                                  \
    SHUNT_NVSHMEM_GROUP_CALL void nvshmemx_##N##_put##E(T *to, const T *from, size_t count, int pe) {                \
        shunt_nvshmem::put<shunt_nvshmem::S>(0, to, from, count * sizeof(T), pe, true);                              \
    }                                                                                                                \
    SHUNT_NVSHMEM_GROUP_CALL void nvshmemx_##N##_get##E(T *to, const T *from, size_t count, int pe) {                \
        shunt_nvshmem::get<shunt_nvshmem::S>(0, to, from, count * sizeof(T), pe, true);                              \
    }                                                                                                                \
    SHUNT_NVSHMEM_GROUP_CALL void nvshmemx_##N##_put_nbi##E(T *to, const T *from, size_t count, int pe) {            \
        shunt_nvshmem::put<shunt_nvshmem::S>(0, to, from, count * sizeof(T), pe, false);                             \
    }                                                                                                                \
    SHUNT_NVSHMEM_GROUP_CALL void nvshmemx_##N##_get_nbi##E(T *to, const T *from, size_t count, int pe) {            \
        shunt_nvshmem::get<shunt_nvshmem::S>(0, to, from, count * sizeof(T), pe, false);                             \
    }                                                                                                                \
    SHUNT_NVSHMEM_GROUP_CALL void nvshmemx_##N##_iput##E(T *to, const T *from, ptrdiff_t dst, ptrdiff_t sst,         \
                                                         size_t count, int pe) {                                     \
        shunt_nvshmem::strided<shunt_nvshmem::S>(true, to, from, dst, sst, count, pe);                               \
    }                                                                                                                \
    SHUNT_NVSHMEM_GROUP_CALL void nvshmemx_##N##_iget##E(T *to, const T *from, ptrdiff_t dst, ptrdiff_t sst,         \
                                                         size_t count, int pe) {                                     \
        shunt_nvshmem::strided<shunt_nvshmem::S>(false, to, from, dst, sst, count, pe);                              \
    }                                                                                                                \
    SHUNT_NVSHMEM_GROUP_CALL void nvshmemx_##N##_put_signal##E(T *to, const T *from, size_t count, uint64_t *word,   \
                                                               uint64_t value, int op, int pe) {                     \
        shunt_nvshmem::put_signal<shunt_nvshmem::S>(0, to, from, count * sizeof(T), word, value, op, pe, true);      \
    }                                                                                                                \
    SHUNT_NVSHMEM_GROUP_CALL void nvshmemx_##N##_put_signal_nbi##E(T *to, const T *from, size_t count,               \
                                                                   uint64_t *word, uint64_t value, int op, int pe) { \
        shunt_nvshmem::put_signal<shunt_nvshmem::S>(0, to, from, count * sizeof(T), word, value, op, pe, false);     \
    }

#define SHUNT_GROUP_SIZED(S, E, N)                                                                                  \
    SHUNT_NVSHMEM_GROUP_CALL void nvshmemx_put##N##E(void *to, const void *from, size_t count, int pe) {            \
        shunt_nvshmem::put<shunt_nvshmem::S>(0, to, from, count * (N / 8), pe, true);                               \
    }                                                                                                               \
    SHUNT_NVSHMEM_GROUP_CALL void nvshmemx_get##N##E(void *to, const void *from, size_t count, int pe) {            \
        shunt_nvshmem::get<shunt_nvshmem::S>(0, to, from, count * (N / 8), pe, true);                               \
    }                                                                                                               \
    SHUNT_NVSHMEM_GROUP_CALL void nvshmemx_put##N##_nbi##E(void *to, const void *from, size_t count, int pe) {      \
        shunt_nvshmem::put<shunt_nvshmem::S>(0, to, from, count * (N / 8), pe, false);                              \
    }                                                                                                               \
    SHUNT_NVSHMEM_GROUP_CALL void nvshmemx_get##N##_nbi##E(void *to, const void *from, size_t count, int pe) {      \
        shunt_nvshmem::get<shunt_nvshmem::S>(0, to, from, count * (N / 8), pe, false);                              \
    }                                                                                                               \
    SHUNT_NVSHMEM_GROUP_CALL void nvshmemx_put##N##_signal##E(void *to, const void *from, size_t count,             \
                                                              uint64_t *word, uint64_t value, int op, int pe) {     \
        shunt_nvshmem::put_signal<shunt_nvshmem::S>(0, to, from, count * (N / 8), word, value, op, pe, true);       \
    }                                                                                                               \
    SHUNT_NVSHMEM_GROUP_CALL void nvshmemx_put##N##_signal_nbi##E(void *to, const void *from, size_t count,         \
                                                                  uint64_t *word, uint64_t value, int op, int pe) { \
        shunt_nvshmem::put_signal<shunt_nvshmem::S>(0, to, from, count * (N / 8), word, value, op, pe, false);      \
    }

#define SHUNT_GROUP_STRIDED(S, E, N, T)                                                                               \
    SHUNT_NVSHMEM_GROUP_CALL void nvshmemx_iput##N##E(void *to, const void *from, ptrdiff_t dst, ptrdiff_t sst,        \
                                                      size_t count, int pe) {                                          \
        shunt_nvshmem::strided<shunt_nvshmem::S>(true, (T *)to, (const T *)from, dst, sst, count, pe);                 \
    }                                                                                                                  \
    SHUNT_NVSHMEM_GROUP_CALL void nvshmemx_iget##N##E(void *to, const void *from, ptrdiff_t dst, ptrdiff_t sst,        \
                                                      size_t count, int pe) {                                          \
        shunt_nvshmem::strided<shunt_nvshmem::S>(false, (T *)to, (const T *)from, dst, sst, count, pe);                \
    }
#define SHUNT_GROUPS_STRIDED(N, T) SHUNT_DEVICE_GROUPS(SHUNT_GROUP_STRIDED, N, T)

#define SHUNT_GROUP_PLAIN(S, E, UNUSED)                                                                           \
    SHUNT_NVSHMEM_GROUP_CALL void nvshmemx_putmem##E(void *to, const void *from, size_t bytes, int pe) {          \
        shunt_nvshmem::put<shunt_nvshmem::S>(0, to, from, bytes, pe, true);                                       \
    }                                                                                                             \
    SHUNT_NVSHMEM_GROUP_CALL void nvshmemx_getmem##E(void *to, const void *from, size_t bytes, int pe) {          \
        shunt_nvshmem::get<shunt_nvshmem::S>(0, to, from, bytes, pe, true);                                       \
    }                                                                                                             \
    SHUNT_NVSHMEM_GROUP_CALL void nvshmemx_putmem_nbi##E(void *to, const void *from, size_t bytes, int pe) {      \
        shunt_nvshmem::put<shunt_nvshmem::S>(0, to, from, bytes, pe, false);                                      \
    }                                                                                                             \
    SHUNT_NVSHMEM_GROUP_CALL void nvshmemx_getmem_nbi##E(void *to, const void *from, size_t bytes, int pe) {      \
        shunt_nvshmem::get<shunt_nvshmem::S>(0, to, from, bytes, pe, false);                                      \
    }                                                                                                             \
    SHUNT_NVSHMEM_GROUP_CALL void nvshmemx_putmem_signal##E(void *to, const void *from, size_t bytes,             \
                                                            uint64_t *word, uint64_t value, int op, int pe) {     \
        shunt_nvshmem::put_signal<shunt_nvshmem::S>(0, to, from, bytes, word, value, op, pe, true);               \
    }                                                                                                             \
    SHUNT_NVSHMEM_GROUP_CALL void nvshmemx_putmem_signal_nbi##E(void *to, const void *from, size_t bytes,         \
                                                                uint64_t *word, uint64_t value, int op, int pe) { \
        shunt_nvshmem::put_signal<shunt_nvshmem::S>(0, to, from, bytes, word, value, op, pe, false);              \
    }                                                                                                             \
    SHUNT_NVSHMEM_GROUP_CALL void nvshmemx_flush##E() { shunt_nvshmem::quiet<shunt_nvshmem::S>(); }               \
    SHUNT_NVSHMEM_GROUP_CALL int nvshmemx_barrier##E(nvshmem_team_t team) {                                       \
        return shunt_nvshmem::barrier<shunt_nvshmem::S>(team);                                                    \
    }                                                                                                             \
    SHUNT_NVSHMEM_GROUP_CALL void nvshmemx_barrier_all##E() {                                                     \
        shunt_nvshmem::barrier<shunt_nvshmem::S>(NVSHMEM_TEAM_WORLD);                                             \
    }                                                                                                             \
    SHUNT_NVSHMEM_GROUP_CALL int nvshmemx_team_sync##E(nvshmem_team_t team) {                                     \
        return shunt_nvshmem::meet<shunt_nvshmem::S>(team);                                                       \
    }                                                                                                             \
    SHUNT_NVSHMEM_GROUP_CALL void nvshmemx_sync_all##E() {                                                        \
        shunt_nvshmem::meet<shunt_nvshmem::S>(NVSHMEM_TEAM_WORLD);                                                \
    }                                                                                                             \
    SHUNT_NVSHMEM_GROUP_CALL int nvshmemx_broadcastmem##E(nvshmem_team_t team, void *to, const void *from,        \
                                                          size_t bytes, int root) {                               \
        return shunt_nvshmem::broadcast<shunt_nvshmem::S>(team, to, from, bytes, root);                           \
    }                                                                                                             \
    SHUNT_NVSHMEM_GROUP_CALL int nvshmemx_fcollectmem##E(nvshmem_team_t team, void *to, const void *from,         \
                                                         size_t bytes) {                                          \
        return shunt_nvshmem::spread<shunt_nvshmem::S>(team, to, from, bytes, false);                             \
    }                                                                                                             \
    SHUNT_NVSHMEM_GROUP_CALL int nvshmemx_alltoallmem##E(nvshmem_team_t team, void *to, const void *from,         \
                                                         size_t bytes) {                                          \
        return shunt_nvshmem::spread<shunt_nvshmem::S>(team, to, from, bytes, true);                              \
    }

#define SHUNT_GROUP_COLLECTIVE(S, E, N, T)                                                              \
    SHUNT_NVSHMEM_GROUP_CALL int nvshmemx_##N##_broadcast##E(nvshmem_team_t team, T *to, const T *from, \
                                                             size_t count, int root) {                  \
        return shunt_nvshmem::broadcast<shunt_nvshmem::S>(team, to, from, count * sizeof(T), root);     \
    }                                                                                                   \
    SHUNT_NVSHMEM_GROUP_CALL int nvshmemx_##N##_fcollect##E(nvshmem_team_t team, T *to, const T *from,  \
                                                            size_t count) {                             \
        return shunt_nvshmem::spread<shunt_nvshmem::S>(team, to, from, count * sizeof(T), false);       \
    }                                                                                                   \
    SHUNT_NVSHMEM_GROUP_CALL int nvshmemx_##N##_alltoall##E(nvshmem_team_t team, T *to, const T *from,  \
                                                            size_t count) {                             \
        return shunt_nvshmem::spread<shunt_nvshmem::S>(team, to, from, count * sizeof(T), true);        \
    }

#define SHUNT_GROUP_REDUCE(S, E, N, T, OP, O)                                                                      \
    SHUNT_NVSHMEM_GROUP_CALL int nvshmemx_##N##_##OP##_reduce##E(nvshmem_team_t team, T *to, const T *from,        \
                                                                 size_t count) {                                   \
        return shunt_nvshmem::reduce<shunt_nvshmem::S, shunt_nvshmem::O>(team, to, from, count, false);            \
    }                                                                                                              \
    SHUNT_NVSHMEM_GROUP_CALL int nvshmemx_##N##_##OP##_reducescatter##E(nvshmem_team_t team, T *to, const T *from, \
                                                                        size_t count) {                            \
        return shunt_nvshmem::reduce<shunt_nvshmem::S, shunt_nvshmem::O>(team, to, from, count, true);             \
    }

#define SHUNT_GROUPS_RMA(N, T) SHUNT_DEVICE_GROUPS(SHUNT_GROUP_RMA, N, T)
#define SHUNT_GROUPS_SIZED(N) SHUNT_DEVICE_GROUPS(SHUNT_GROUP_SIZED, N)
#define SHUNT_GROUPS_COLLECTIVE(N, T) SHUNT_DEVICE_GROUPS(SHUNT_GROUP_COLLECTIVE, N, T)
#define SHUNT_GROUPS_REDUCE(N, T)                         \
    SHUNT_DEVICE_GROUPS(SHUNT_GROUP_REDUCE, N, T, sum, Sum)   \
    SHUNT_DEVICE_GROUPS(SHUNT_GROUP_REDUCE, N, T, prod, Prod) \
    SHUNT_DEVICE_GROUPS(SHUNT_GROUP_REDUCE, N, T, min, Min)   \
    SHUNT_DEVICE_GROUPS(SHUNT_GROUP_REDUCE, N, T, max, Max)
#define SHUNT_GROUPS_BITWISE_REDUCE(N, T)                   \
    SHUNT_DEVICE_GROUPS(SHUNT_GROUP_REDUCE, N, T, and, And) \
    SHUNT_DEVICE_GROUPS(SHUNT_GROUP_REDUCE, N, T, or, Or)   \
    SHUNT_DEVICE_GROUPS(SHUNT_GROUP_REDUCE, N, T, xor, Xor)

SHUNT_DEVICE_GROUPS(SHUNT_GROUP_PLAIN, )
SHUNT_NVSHMEM_GROUP_CALL int nvshmemx_barrier_warpgroup(nvshmem_team_t team) {
    return shunt_nvshmem::barrier<shunt_nvshmem::Warpgroup>(team);
}
SHUNT_RMA_TYPES(SHUNT_GROUPS_RMA)
SHUNT_SIZES(SHUNT_GROUPS_SIZED)
SHUNT_GROUPS_STRIDED(8, int8_t)
SHUNT_GROUPS_STRIDED(16, int16_t)
SHUNT_GROUPS_STRIDED(32, int32_t)
SHUNT_GROUPS_STRIDED(64, int64_t)
SHUNT_GROUPS_STRIDED(128, int4)
SHUNT_RMA_TYPES(SHUNT_GROUPS_COLLECTIVE)
SHUNT_REDUCE_TYPES(SHUNT_GROUPS_REDUCE)
SHUNT_BITWISE_REDUCE_TYPES(SHUNT_GROUPS_BITWISE_REDUCE)

/* The greatest of the first halves, with the second half that it came with; of equal ones the first of the team's. */
SHUNT_NVSHMEM_GROUP_CALL int nvshmemx_double2_maxloc_reduce_block(nvshmem_team_t team, double2 *to, const double2 *from,
                                                                  size_t count) {
    return shunt_nvshmem::reduce<shunt_nvshmem::Block, shunt_nvshmem::MaxLoc>(team, to, from, count, false);
}

/* Regions, as on the host: posts are made at once. */
SHUNT_NVSHMEM_GROUP_CALL int nvshmemx_region_start_block(nvshmemx_region_handle_t *handle,
                                                         const nvshmemx_region_attrs_t *attrs) {
    if (!handle || !attrs || attrs->hints & ~(uint32_t)NVSHMEMX_REGION_HINT_BATCH_RMA) {
        return NVSHMEMX_ERROR_INVALID_VALUE;
    }
    *handle = 1;
    __syncthreads();
    return NVSHMEMX_SUCCESS;
}
SHUNT_NVSHMEM_GROUP_CALL int nvshmemx_region_stop_block(nvshmemx_region_handle_t handle) {
    __syncthreads();
    return handle == 1 ? NVSHMEMX_SUCCESS : NVSHMEMX_ERROR_INVALID_VALUE;
}

#include "device_qp.h"
#ifdef __CUDA_ARCH__
#include "device_thread.h"
#endif

#endif
