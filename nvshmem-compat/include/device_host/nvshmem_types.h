/* The state of NVSHMEM 3.8 that device code finds in constant memory, for code that reads it directly; held against its
 * own headers by `cargo xtask prefix`. What such code does not read is padding here, and types that are pointed to and
 * that nobody outside NVSHMEM knows are void. */
#ifndef SHUNT_NVSHMEM_DEVICE_HOST_TYPES_H
#define SHUNT_NVSHMEM_DEVICE_HOST_TYPES_H

#include "../shunt/types.h"

#include <stdbool.h>

typedef struct {
    int version;
    int mype;
    int npes;
    int node_mype;
    int node_npes;
    int pe_dist;
    int proxy;
    int atomics_sync;
    int job_connectivity;
    bool proxy_ops_are_ordered;
    bool atomics_complete_on_quiet;
    void *heap_base;
    size_t heap_size;
    void **peer_heap_base_p2p;
    void **peer_heap_base_remote;
    bool symmetric_heap_kind;
    bool enable_rail_opt;
    uint32_t atomics_le_min_size;
    void *timeout;
    unsigned long long *test_wait_any_start_idx_ptr;
    void **team_pool;
    long *psync_pool;
    long *sync_counter;
    char shunt_collectives_and_proxy[632];
    int *global_exit_request_state;
    char shunt_rest[88];
} nvshmemi_device_host_state_v1;
typedef nvshmemi_device_host_state_v1 nvshmemi_device_host_state_t;

#ifdef __cplusplus
static_assert(sizeof(nvshmemi_device_host_state_v1) == 848, "the state takes 848 bytes");
#endif

#endif
