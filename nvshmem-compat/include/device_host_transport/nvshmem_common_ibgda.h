/* The state of NVSHMEM's IBGDA transport, for code that reads it directly: structures, constants and values as NVSHMEM
 * 3.8 has them, held against its own headers by `cargo xtask prefix`.
 *
 * Two orders of the RC queue pairs in globalmem.rcs are about, and no field tells them apart:
 *   PE-major, up to 3.4:  rcs[pe * queues + id]
 *   QP-major, from 3.5:   rcs[id * pes + pe]
 * The state's type stands for the order: nvshmemi_ibgda_device_state_v1 for the first, _v2 for the second, and
 * nvshmemi_ibgda_device_state_t is _v2 unless SHUNT_IBGDA_PE_MAJOR is defined. */
#ifndef SHUNT_NVSHMEM_COMMON_IBGDA_H
#define SHUNT_NVSHMEM_COMMON_IBGDA_H

#include <infiniband/mlx5dv.h>
#include <limits.h>
#include <linux/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NVSHMEMI_IBGDA_SCALAR_INVALID -1
#define NVSHMEMI_IBGDA_USSCALAR_INVALID 0xFFFF
#define NVSHMEMI_IBGDA_USCALAR_INVALID 0xFFFFFFFF
#define NVSHMEMI_IBGDA_ULSCALAR_INVALID 0xFFFFFFFFFFFFFFFF
/* Depth of a send queue, in blocks of 64 bytes. */
#define NVSHMEMI_IBGDA_MIN_QP_DEPTH 128
#define NVSHMEMI_IBGDA_MAX_QP_DEPTH 32768
/* An answer for each lane of a warp. */
#define NVSHMEMI_IBGDA_IBUF_SLOT_SIZE 256
/* Keys and targets that the constant part has room for; the rest is in globalmem. */
#define NVSHMEMI_IBGDA_MAX_CONST_LKEYS 64
#define NVSHMEMI_IBGDA_MAX_CONST_RKEYS 64
#define NVSHMEMI_IBGDA_MAX_CONST_DCTS 128
#define NVSHMEMI_IBGDA_MAX_DEVICES_PER_PE 15
#define NVSHMEMI_IBGDA_QP_MANAGEMENT_PADDING 24
#define NVSHMEMI_IBGDA_STATE_PADDING 64
#define NVSHMEMI_IBGDA_STATE_PADDING_V2 44

typedef enum {
    NVSHMEMI_IBGDA_DEVICE_QP_TYPE_DCI = 1,
    NVSHMEMI_IBGDA_DEVICE_QP_TYPE_DCT = 2,
    NVSHMEMI_IBGDA_DEVICE_QP_TYPE_RC = 3,
    NVSHMEMI_IBGDA_DEVICE_QP_TYPE_MAX = INT_MAX
} nvshmemi_ibgda_device_qp_type_t;

typedef enum {
    NVSHMEMI_IBGDA_DEVICE_QP_MAP_TYPE_CTA = 0,
    NVSHMEMI_IBGDA_DEVICE_QP_MAP_TYPE_SM = 1,
    NVSHMEMI_IBGDA_DEVICE_QP_MAP_TYPE_WARP = 2,
    NVSHMEMI_IBGDA_DEVICE_QP_MAP_TYPE_DCT = 3,
    NVSHMEMI_IBGDA_DEVICE_QP_MAP_TYPE_NONE = 4,
    NVSHMEMI_IBGDA_DEVICE_QP_MAP_TYPE_INVALID = INT_MAX
} nvshmemi_ibgda_device_qp_map_type_t;

typedef struct {
    int version;
    nvshmemi_ibgda_device_qp_type_t qp_type;
    __be32 *dbrec;
    void *cqe;
    /* These four point into the management variables of the queue pair. */
    uint64_t *prod_idx;
    uint64_t *cons_idx;
    uint64_t *resv_head;
    uint64_t *ready_head;
    uint32_t cqn;
    uint32_t ncqes;
    uint32_t qpn;
} nvshmemi_ibgda_device_cq_v1;
typedef nvshmemi_ibgda_device_cq_v1 nvshmemi_ibgda_device_cq_t;

/* Counters are "last index + 1" and never wrap. */
typedef struct {
    int version;
    int post_send_lock;
    struct {
        uint64_t resv_head;
        uint64_t ready_head;
        uint64_t prod_idx;
        uint64_t cons_idx;
        uint64_t get_head;
        uint64_t get_tail;
    } tx_wq;
    struct {
        uint64_t head;
        uint64_t tail;
    } ibuf;
    char padding[NVSHMEMI_IBGDA_QP_MANAGEMENT_PADDING];
} __attribute__((__aligned__(8))) nvshmemi_ibgda_device_qp_management_v1;
typedef nvshmemi_ibgda_device_qp_management_v1 nvshmemi_ibgda_device_qp_management_t;

typedef struct nvshmemi_ibgda_device_qp {
    int version;
    nvshmemi_ibgda_device_qp_type_t qp_type;
    uint32_t qpn;
    uint32_t dev_idx;
    struct {
        uint32_t nslots;
        void *buf;
        __be32 lkey;
        __be32 rkey;
    } ibuf;
    struct {
        uint16_t nwqes;
        void *wqe;
        /* The send counter: word 1 of the doorbell record. */
        __be32 *dbrec;
        void *bf;
        nvshmemi_ibgda_device_cq_t *cq;
        uint64_t *prod_idx;
    } tx_wq;
    nvshmemi_ibgda_device_qp_management_v1 mvars;
} nvshmemi_ibgda_device_qp_v1;
typedef nvshmemi_ibgda_device_qp_v1 nvshmemi_ibgda_device_qp_t;

typedef struct mlx5_wqe_av nvshmemi_ibgda_device_dct_t;

typedef struct nvshmemi_ibgda_device_local_only_mhandle {
    int version;
    bool is_sysmem_scope;
    uint64_t start;
    /* Inclusive. */
    uint64_t end;
    struct nvshmemi_ibgda_device_local_only_mhandle *next;
    __be32 lkeys[NVSHMEMI_IBGDA_MAX_DEVICES_PER_PE];
} nvshmemi_ibgda_device_local_only_mhandle_v1;
typedef nvshmemi_ibgda_device_local_only_mhandle_v1 nvshmemi_ibgda_device_local_only_mhandle_t;

typedef struct {
    __be32 key;
    /* One past the chunk: an address for an lkey, a heap offset for an rkey. */
    uint64_t next_addr;
} nvshmemi_ibgda_device_key_t;

/* What both versions begin with. */
#define SHUNT_IBGDA_STATE_HEAD                                                   \
    int version;                                                                 \
    uint32_t num_shared_dcis;                                                    \
    uint32_t num_exclusive_dcis;                                                 \
    nvshmemi_ibgda_device_qp_map_type_t dci_map_type;                            \
    uint32_t ndcts_per_pe;                                                       \
    uint32_t num_qp_groups;                                                      \
    uint32_t num_dct_groups;                                                     \
    uint32_t num_rc_per_pe;                                                      \
    nvshmemi_ibgda_device_qp_map_type_t rc_map_type;                             \
    uint32_t num_requests_in_batch;                                              \
    size_t log2_cumem_granularity;                                               \
    int num_devices_initialized;                                                 \
    bool nic_buf_on_gpumem;                                                      \
    bool support_half_av_seg;                                                    \
    bool may_skip_cst;                                                           \
    bool use_async_postsend;                                                     \
    struct {                                                                     \
        nvshmemi_ibgda_device_key_t lkeys[NVSHMEMI_IBGDA_MAX_CONST_LKEYS];       \
        nvshmemi_ibgda_device_key_t rkeys[NVSHMEMI_IBGDA_MAX_CONST_RKEYS];       \
        nvshmemi_ibgda_device_dct_t dcts[NVSHMEMI_IBGDA_MAX_CONST_DCTS];         \
    } constmem;                                                                  \
    struct {                                                                     \
        uint32_t *qp_group_switches;                                             \
        nvshmemi_ibgda_device_cq_t *cqs;                                         \
        nvshmemi_ibgda_device_qp_t *dcis;                                        \
        nvshmemi_ibgda_device_qp_t *rcs;                                         \
        struct nvshmemi_ibgda_device_local_only_mhandle *local_only_mhandle_head; \
        nvshmemi_ibgda_device_dct_t *dcts;                                       \
        nvshmemi_ibgda_device_key_t *lkeys;                                      \
        nvshmemi_ibgda_device_key_t *rkeys;                                      \
    } globalmem;

/* PE-major. */
typedef struct {
    SHUNT_IBGDA_STATE_HEAD
    void *extra;
    uint8_t reserved[NVSHMEMI_IBGDA_STATE_PADDING];
} nvshmemi_ibgda_device_state_v1;

/* QP-major. */
typedef struct {
    SHUNT_IBGDA_STATE_HEAD
    int num_default_rc_per_pe;
    bool use_address_stable_amo;
    void *extra;
    void *region_batch_rma_pending_qps;
    uint32_t region_batch_rma_threshold;
    uint8_t reserved[NVSHMEMI_IBGDA_STATE_PADDING_V2];
} nvshmemi_ibgda_device_state_v2;

#ifdef SHUNT_IBGDA_PE_MAJOR
typedef nvshmemi_ibgda_device_state_v1 nvshmemi_ibgda_device_state_t;
#define SHUNT_IBGDA_RC_INDEX(pe, id, pes, queues) ((uint32_t)(pe) * (uint32_t)(queues) + (uint32_t)(id))
#else
typedef nvshmemi_ibgda_device_state_v2 nvshmemi_ibgda_device_state_t;
#define SHUNT_IBGDA_RC_INDEX(pe, id, pes, queues) ((uint32_t)(id) * (uint32_t)(pes) + (uint32_t)(pe))
#endif

#ifdef __cplusplus
static_assert(sizeof(nvshmemi_ibgda_device_cq_v1) == 72, "a completion queue takes 72 bytes");
static_assert(sizeof(nvshmemi_ibgda_device_qp_management_v1) == 96, "management variables take 96 bytes");
static_assert(sizeof(nvshmemi_ibgda_device_qp_v1) == 184, "a queue pair takes 184 bytes");
static_assert(sizeof(nvshmemi_ibgda_device_local_only_mhandle_v1) == 96, "a handle takes 96 bytes");
static_assert(sizeof(nvshmemi_ibgda_device_key_t) == 16, "a key takes 16 bytes");
static_assert(sizeof(nvshmemi_ibgda_device_state_v1) == 8384, "the state takes 8384 bytes");
static_assert(sizeof(nvshmemi_ibgda_device_state_v2) == 8384, "the state takes 8384 bytes");
#endif

#ifdef __CUDACC__
extern __constant__ nvshmemi_ibgda_device_state_t nvshmemi_ibgda_device_state_d;
#endif

#endif
