/* Shunt's header in NVSHMEM's place: the host functions of NVSHMEM 3.8. Those of this library alone are in
 * shunt_nvshmem.h. */
#ifndef SHUNT_NVSHMEM_H
#define SHUNT_NVSHMEM_H

#include "shunt/types.h"
#include "shunt/families.h"

#ifndef __CUDACC_RTC__
#include <stdlib.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* NVRTC compiles no functions of the host. */
#ifndef __CUDACC_RTC__
/* Begin and end. The three that start with nvshmemi_ are called by the inline functions below. */
int nvshmemi_init_thread(int requested, int *provided, unsigned int flags, nvshmemx_init_attr_t *attr,
                         nvshmemi_version_t compiled);
void nvshmemi_finalize(void);
int nvshmemx_hostlib_init_attr(unsigned int flags, nvshmemx_init_attr_t *attr);
void nvshmemx_hostlib_finalize(void);
int nvshmemx_init_status(void);
/* What a device library calls: the second of them is called by NVIDIA's with a function, and then refused. */
int nvshmemid_init_status(void);
int nvshmemid_hostlib_init_attr(int requested, int *provided, unsigned int flags, nvshmemx_init_attr_t *attr,
                                nvshmemi_version_t compiled, nvshmemx_device_lib_init_cb device_state);
void nvshmemid_hostlib_finalize(void *device_state, void *transport_state);
int nvshmemx_get_uniqueid(nvshmemx_uniqueid_t *id);
int nvshmemx_set_attr_uniqueid_args(int rank, int ranks, const nvshmemx_uniqueid_t *id, nvshmemx_init_attr_t *attr);
/* The address of an MPI_Comm, with NVSHMEMX_INIT_WITH_MPI_COMM. */
int nvshmemx_set_attr_mpi_comm_args(void *communicator, nvshmemx_init_attr_t *attr);
void nvshmem_query_thread(int *provided);
void nvshmem_global_exit(int status);

/* Why it failed was printed; the status is what this process should end with. */
static inline int nvshmem_init_thread(int requested, int *provided) {
    nvshmemi_version_t compiled = {NVSHMEM_VENDOR_MAJOR_VERSION, NVSHMEM_VENDOR_MINOR_VERSION,
                                   NVSHMEM_VENDOR_PATCH_VERSION};
    int status = nvshmemi_init_thread(requested, provided, 0, NULL, compiled);
    if (status) exit(status);
    return status;
}

static inline void nvshmem_init(void) {
    int provided;
    nvshmem_init_thread(NVSHMEM_THREAD_SERIALIZED, &provided);
}

static inline int nvshmemx_init_attr(unsigned int flags, nvshmemx_init_attr_t *attr) {
    nvshmemi_version_t compiled = {NVSHMEM_VENDOR_MAJOR_VERSION, NVSHMEM_VENDOR_MINOR_VERSION,
                                   NVSHMEM_VENDOR_PATCH_VERSION};
    int provided;
    int status = nvshmemi_init_thread(NVSHMEM_THREAD_SERIALIZED, &provided, flags, attr, compiled);
    if (status) exit(status);
    return status;
}

static inline void nvshmem_finalize(void) {
    nvshmemi_finalize();
}
#endif

/* Who and how many. */
SHUNT_HD int nvshmem_my_pe(void);
SHUNT_HD int nvshmem_n_pes(void);
SHUNT_HD void nvshmem_info_get_version(int *major, int *minor);
SHUNT_HD void nvshmem_info_get_name(char *name);
SHUNT_HD void nvshmemx_vendor_get_version_info(int *major, int *minor, int *patch);
/* Regions of transfers that may be posted together: accepted, and posts are made at once, so none is ever active. */
SHUNT_HD int nvshmemx_region_is_active(uint32_t hints, int *active);
#ifndef __CUDACC_RTC__
int nvshmemx_region_start(nvshmemx_region_handle_t *handle, const nvshmemx_region_attrs_t *attrs);
int nvshmemx_region_stop(nvshmemx_region_handle_t handle);

/* The symmetric heap. */
void *nvshmem_malloc(size_t bytes);
void *nvshmem_calloc(size_t count, size_t bytes);
void *nvshmem_align(size_t alignment, size_t bytes);
void nvshmem_free(void *at);
int nvshmemx_buffer_register(void *at, size_t bytes);
int nvshmemx_buffer_unregister(void *at);
void nvshmemx_buffer_unregister_all(void);
/* Refused: memory of the program's own does not become a part of the heap. Null, or a status. */
void *nvshmemx_buffer_register_symmetric(void *at, size_t bytes, int flags);
void *nvshmemx_buffer_register_symmetric_at_preferred_address(void *at, size_t bytes, void *preferred, int flags);
int nvshmemx_buffer_unregister_symmetric(void *at, size_t bytes);
#endif
SHUNT_HD void *nvshmem_ptr(const void *at, int pe);
/* Null: a multicast address is NVLink's, and PEs reach each other through NICs alone. */
SHUNT_HD void *nvshmemx_mc_ptr(nvshmem_team_t team, const void *at);

/* Teams. */
SHUNT_HD int nvshmem_team_my_pe(nvshmem_team_t team);
SHUNT_HD int nvshmem_team_n_pes(nvshmem_team_t team);
SHUNT_HD int nvshmem_team_translate_pe(nvshmem_team_t from, int pe, nvshmem_team_t to);
#ifndef __CUDACC_RTC__
void nvshmem_team_get_config(nvshmem_team_t team, nvshmem_team_config_t *config);
int nvshmem_team_split_strided(nvshmem_team_t parent, int start, int stride, int size,
                               const nvshmem_team_config_t *config, long mask, nvshmem_team_t *made);
int nvshmem_team_split_2d(nvshmem_team_t parent, int width, const nvshmem_team_config_t *row_config, long row_mask,
                          nvshmem_team_t *row, const nvshmem_team_config_t *column_config, long column_mask,
                          nvshmem_team_t *column);
void nvshmem_team_destroy(nvshmem_team_t team);
#endif

/* Order, and meeting. */
SHUNT_HD void nvshmem_quiet(void);
SHUNT_HD void nvshmem_fence(void);
SHUNT_HD int nvshmem_barrier(nvshmem_team_t team);
SHUNT_HD void nvshmem_barrier_all(void);
SHUNT_HD int nvshmem_team_sync(nvshmem_team_t team);
SHUNT_HD void nvshmem_sync_all(void);
#define nvshmem_sync nvshmem_team_sync

/* Transfers of plain bytes; those of types and sizes are made below. */
SHUNT_HD void nvshmem_putmem(void *target, const void *source, size_t bytes, int pe);
SHUNT_HD void nvshmem_getmem(void *target, const void *source, size_t bytes, int pe);
SHUNT_HD void nvshmem_putmem_nbi(void *target, const void *source, size_t bytes, int pe);
SHUNT_HD void nvshmem_getmem_nbi(void *target, const void *source, size_t bytes, int pe);
SHUNT_HD void nvshmem_putmem_signal(void *target, const void *source, size_t bytes, uint64_t *word, uint64_t value,
                                    int op, int pe);
SHUNT_HD void nvshmem_putmem_signal_nbi(void *target, const void *source, size_t bytes, uint64_t *word,
                                        uint64_t value, int op, int pe);
SHUNT_HD uint64_t nvshmem_signal_fetch(uint64_t *word);
SHUNT_HD uint64_t nvshmem_signal_wait_until(uint64_t *word, int compare, uint64_t value);
SHUNT_HD int nvshmem_broadcastmem(nvshmem_team_t team, void *target, const void *source, size_t bytes, int root);
SHUNT_HD int nvshmem_fcollectmem(nvshmem_team_t team, void *target, const void *source, size_t bytes);
SHUNT_HD int nvshmem_alltoallmem(nvshmem_team_t team, void *target, const void *source, size_t bytes);

SHUNT_RMA_TYPES(SHUNT_RMA)
SHUNT_SIZES(SHUNT_SIZED)
SHUNT_STANDARD_AMO_TYPES(SHUNT_STANDARD_AMO)
SHUNT_EXTENDED_AMO_TYPES(SHUNT_EXTENDED_AMO)
SHUNT_BITWISE_AMO_TYPES(SHUNT_BITWISE_AMO)
SHUNT_WAIT_TYPES(SHUNT_WAIT)
SHUNT_RMA_TYPES(SHUNT_COLLECTIVE)
SHUNT_BITWISE_REDUCE_TYPES(SHUNT_BITWISE_REDUCE)
SHUNT_REDUCE_TYPES(SHUNT_REDUCE)

#ifdef __cplusplus
}
#endif

#ifdef __CUDACC__
/* Code written for NVSHMEM uses the short name without making it. */
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
#include "shunt/device_families.h"
#endif

/* NVSHMEM's header has its extensions, too. */
#include "nvshmemx.h"

#endif
