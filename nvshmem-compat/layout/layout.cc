// Prints sizes, offsets and values of NVSHMEM's structures and constants: compiled against NVSHMEM's headers and
// against ours, it must print the same.

#include <cstddef>
#include <cstdint>
#include <cstdio>

#include <cuda_runtime.h>

#include "device_host/nvshmem_types.h"
#include "device_host_transport/nvshmem_common_ibgda.h"
#include "nvshmem.h"
#include "nvshmemx.h"

namespace {

#define SIZE(T) std::printf("size %s %zu align %zu\n", #T, sizeof(T), alignof(T))
#define AT(T, F) std::printf("at %s.%s %zu size %zu\n", #T, #F, offsetof(T, F), sizeof(((T *)nullptr)->F))
#define VALUE(C) std::printf("value %s %lld\n", #C, static_cast<long long>(C))

void completion_queue() {
    using T = nvshmemi_ibgda_device_cq_v1;
    SIZE(nvshmemi_ibgda_device_cq_v1);
    SIZE(nvshmemi_ibgda_device_cq_t);
    AT(T, version), AT(T, qp_type), AT(T, dbrec), AT(T, cqe), AT(T, prod_idx), AT(T, cons_idx), AT(T, resv_head);
    AT(T, ready_head), AT(T, cqn), AT(T, ncqes), AT(T, qpn);
}

void queue_pair() {
    using M = nvshmemi_ibgda_device_qp_management_v1;
    SIZE(nvshmemi_ibgda_device_qp_management_v1);
    SIZE(nvshmemi_ibgda_device_qp_management_t);
    AT(M, version), AT(M, post_send_lock), AT(M, tx_wq.resv_head), AT(M, tx_wq.ready_head), AT(M, tx_wq.prod_idx);
    AT(M, tx_wq.cons_idx), AT(M, tx_wq.get_head), AT(M, tx_wq.get_tail), AT(M, ibuf.head), AT(M, ibuf.tail);
    AT(M, padding);
    using Q = nvshmemi_ibgda_device_qp_v1;
    SIZE(nvshmemi_ibgda_device_qp_v1);
    SIZE(nvshmemi_ibgda_device_qp_t);
    AT(Q, version), AT(Q, qp_type), AT(Q, qpn), AT(Q, dev_idx), AT(Q, ibuf.nslots), AT(Q, ibuf.buf);
    AT(Q, ibuf.lkey), AT(Q, ibuf.rkey), AT(Q, tx_wq.nwqes), AT(Q, tx_wq.wqe), AT(Q, tx_wq.dbrec), AT(Q, tx_wq.bf);
    AT(Q, tx_wq.cq), AT(Q, tx_wq.prod_idx), AT(Q, mvars);
}

void keys() {
    using H = nvshmemi_ibgda_device_local_only_mhandle_v1;
    SIZE(nvshmemi_ibgda_device_local_only_mhandle_t);
    AT(H, version), AT(H, is_sysmem_scope), AT(H, start), AT(H, end), AT(H, next), AT(H, lkeys);
    SIZE(nvshmemi_ibgda_device_key_t);
    AT(nvshmemi_ibgda_device_key_t, key), AT(nvshmemi_ibgda_device_key_t, next_addr);
    using D = nvshmemi_ibgda_device_dct_t;
    SIZE(nvshmemi_ibgda_device_dct_t);
    AT(D, key.dc_key), AT(D, dqp_dct), AT(D, stat_rate_sl), AT(D, fl_mlid), AT(D, rlid), AT(D, rmac), AT(D, tclass);
    AT(D, hop_limit), AT(D, grh_gid_fl), AT(D, rgid);
}

#define STATE(T)                                                                                                   \
    SIZE(T);                                                                                                       \
    AT(T, version), AT(T, num_shared_dcis), AT(T, num_exclusive_dcis), AT(T, dci_map_type), AT(T, ndcts_per_pe);   \
    AT(T, num_qp_groups), AT(T, num_dct_groups), AT(T, num_rc_per_pe), AT(T, rc_map_type);                         \
    AT(T, num_requests_in_batch), AT(T, log2_cumem_granularity), AT(T, num_devices_initialized);                   \
    AT(T, nic_buf_on_gpumem), AT(T, support_half_av_seg), AT(T, may_skip_cst), AT(T, use_async_postsend);          \
    AT(T, constmem.lkeys), AT(T, constmem.rkeys), AT(T, constmem.dcts), AT(T, globalmem.qp_group_switches);        \
    AT(T, globalmem.cqs), AT(T, globalmem.dcis), AT(T, globalmem.rcs), AT(T, globalmem.local_only_mhandle_head);   \
    AT(T, globalmem.dcts), AT(T, globalmem.lkeys), AT(T, globalmem.rkeys), AT(T, extra), AT(T, reserved)

void states() {
    STATE(nvshmemi_ibgda_device_state_v1);
    STATE(nvshmemi_ibgda_device_state_v2);
    using V2 = nvshmemi_ibgda_device_state_v2;
    AT(V2, num_default_rc_per_pe), AT(V2, use_address_stable_amo), AT(V2, region_batch_rma_pending_qps);
    AT(V2, region_batch_rma_threshold);
    SIZE(nvshmemi_ibgda_device_state_t);
    using S = nvshmemi_device_host_state_v1;
    SIZE(nvshmemi_device_host_state_t);
    AT(S, version), AT(S, mype), AT(S, npes), AT(S, node_mype), AT(S, node_npes), AT(S, pe_dist), AT(S, proxy);
    AT(S, atomics_sync), AT(S, job_connectivity), AT(S, proxy_ops_are_ordered), AT(S, atomics_complete_on_quiet);
    AT(S, heap_base), AT(S, heap_size), AT(S, peer_heap_base_p2p), AT(S, peer_heap_base_remote);
    AT(S, symmetric_heap_kind), AT(S, enable_rail_opt), AT(S, atomics_le_min_size), AT(S, timeout);
    AT(S, test_wait_any_start_idx_ptr), AT(S, team_pool), AT(S, psync_pool), AT(S, sync_counter);
    AT(S, global_exit_request_state);
}

void constants() {
    VALUE(NVSHMEMI_IBGDA_SCALAR_INVALID), VALUE(NVSHMEMI_IBGDA_USSCALAR_INVALID);
    VALUE(NVSHMEMI_IBGDA_USCALAR_INVALID), VALUE(NVSHMEMI_IBGDA_ULSCALAR_INVALID);
    VALUE(NVSHMEMI_IBGDA_MIN_QP_DEPTH), VALUE(NVSHMEMI_IBGDA_MAX_QP_DEPTH), VALUE(NVSHMEMI_IBGDA_IBUF_SLOT_SIZE);
    VALUE(NVSHMEMI_IBGDA_MAX_CONST_LKEYS), VALUE(NVSHMEMI_IBGDA_MAX_CONST_RKEYS);
    VALUE(NVSHMEMI_IBGDA_MAX_CONST_DCTS), VALUE(NVSHMEMI_IBGDA_MAX_DEVICES_PER_PE);
    VALUE(NVSHMEMI_IBGDA_QP_MANAGEMENT_PADDING), VALUE(NVSHMEMI_IBGDA_STATE_PADDING);
    VALUE(NVSHMEMI_IBGDA_STATE_PADDING_V2);
    VALUE(NVSHMEMI_IBGDA_DEVICE_QP_TYPE_DCI), VALUE(NVSHMEMI_IBGDA_DEVICE_QP_TYPE_DCT);
    VALUE(NVSHMEMI_IBGDA_DEVICE_QP_TYPE_RC), VALUE(NVSHMEMI_IBGDA_DEVICE_QP_TYPE_MAX);
    VALUE(NVSHMEMI_IBGDA_DEVICE_QP_MAP_TYPE_CTA), VALUE(NVSHMEMI_IBGDA_DEVICE_QP_MAP_TYPE_SM);
    VALUE(NVSHMEMI_IBGDA_DEVICE_QP_MAP_TYPE_WARP), VALUE(NVSHMEMI_IBGDA_DEVICE_QP_MAP_TYPE_DCT);
    VALUE(NVSHMEMI_IBGDA_DEVICE_QP_MAP_TYPE_NONE), VALUE(NVSHMEMI_IBGDA_DEVICE_QP_MAP_TYPE_INVALID);
    VALUE(NVSHMEMX_QP_HOST), VALUE(NVSHMEMX_QP_DEFAULT), VALUE(NVSHMEMX_QP_ANY), VALUE(NVSHMEMX_QP_ALL);
    VALUE(NVSHMEM_PE_INVALID), VALUE(NVSHMEMX_PE_ANY), VALUE(NVSHMEMX_PE_ALL);
    VALUE(NVSHMEM_SIGNAL_SET), VALUE(NVSHMEM_SIGNAL_ADD), VALUE(NVSHMEM_CMP_EQ), VALUE(NVSHMEM_CMP_NE);
    VALUE(NVSHMEM_CMP_GT), VALUE(NVSHMEM_CMP_LE), VALUE(NVSHMEM_CMP_LT), VALUE(NVSHMEM_CMP_GE);
    VALUE(NVSHMEM_TEAM_INVALID), VALUE(NVSHMEM_TEAM_WORLD), VALUE(NVSHMEM_TEAM_SHARED), VALUE(NVSHMEMX_TEAM_NODE);
    VALUE(NVSHMEMX_TEAM_SAME_MYPE_NODE), VALUE(NVSHMEM_THREAD_SERIALIZED), VALUE(NVSHMEM_THREAD_MULTIPLE);
    VALUE(NVSHMEMX_INIT_THREAD_PES), VALUE(NVSHMEMX_INIT_WITH_MPI_COMM), VALUE(NVSHMEMX_INIT_WITH_SHMEM);
    VALUE(NVSHMEMX_INIT_WITH_UNIQUEID), VALUE(NVSHMEM_STATUS_NOT_INITIALIZED), VALUE(NVSHMEM_STATUS_IS_INITIALIZED);
    VALUE(NVSHMEMX_SUCCESS), VALUE(NVSHMEMX_ERROR_INVALID_VALUE), VALUE(NVSHMEMX_ERROR_INTERNAL), VALUE(NVSHMEMX_ERROR_SENTINEL);
    VALUE(NVSHMEM_MAJOR_VERSION), VALUE(NVSHMEM_MINOR_VERSION), VALUE(NVSHMEM_VENDOR_MAJOR_VERSION);
    VALUE(NVSHMEM_VENDOR_MINOR_VERSION), VALUE(NVSHMEM_VENDOR_PATCH_VERSION), VALUE(NVSHMEM_MAX_NAME_LEN);
}

void attributes() {
    SIZE(nvshmemx_uniqueid_t), SIZE(nvshmemx_uniqueid_args_t), SIZE(nvshmemx_init_args_t);
    SIZE(nvshmemx_init_attr_t), SIZE(nvshmem_team_config_t), SIZE(nvshmem_team_t), SIZE(nvshmemx_qp_handle_t);
    AT(nvshmemx_uniqueid_t, version), AT(nvshmemx_uniqueid_t, internal);
    AT(nvshmemx_uniqueid_args_t, id), AT(nvshmemx_uniqueid_args_t, myrank), AT(nvshmemx_uniqueid_args_t, nranks);
    AT(nvshmemx_init_args_t, uid_args), AT(nvshmemx_init_attr_t, mpi_comm), AT(nvshmemx_init_attr_t, args);
    AT(nvshmem_team_config_t, num_contexts);
    SIZE(nvshmemx_region_handle_t), SIZE(nvshmemx_region_attrs_t);
    AT(nvshmemx_region_attrs_t, hints), AT(nvshmemx_region_attrs_t, reserved);
    VALUE(NVSHMEMX_REGION_HINT_NONE), VALUE(NVSHMEMX_REGION_HINT_BATCH_RMA);
}

} // namespace

int main() {
    completion_queue();
    queue_pair();
    keys();
    states();
    constants();
    attributes();
    return 0;
}
