/* Types, structures and constants of NVSHMEM 3.8's host interface, laid out as they are there. */
#ifndef SHUNT_NVSHMEM_TYPES_H
#define SHUNT_NVSHMEM_TYPES_H

#ifdef __CUDACC_RTC__
/* NVRTC has no headers of the system. */
#include <cuda/std/climits>
#include <cuda/std/cstddef>
#include <cuda/std/cstdint>
typedef cuda::std::ptrdiff_t ptrdiff_t;
#else
#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#endif

/* With CUDA its own types are taken; without, types of the same size and the same way through a call. */
#if defined(__has_include)
#if __has_include(<cuda_runtime.h>) && __has_include(<cuda_fp16.h>) && __has_include(<cuda_bf16.h>)
#define SHUNT_NVSHMEM_CUDA 1
#endif
#endif
#ifdef SHUNT_NVSHMEM_CUDA
/* Programs for NVSHMEM take types of the driver from here. NVRTC has none of them. */
#if !defined(__CUDACC_RTC__) && __has_include(<cuda.h>)
#include <cuda.h>
#endif
#include <cuda_runtime.h>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
typedef __half shunt_half;
typedef __nv_bfloat16 shunt_bfloat16;
#else
typedef struct CUstream_st *cudaStream_t;
typedef struct {
    uint16_t bits;
} shunt_half;
typedef struct {
    uint16_t bits;
} shunt_bfloat16;
#endif

#define NVSHMEM_MAJOR_VERSION 1
#define NVSHMEM_MINOR_VERSION 3
#define NVSHMEM_VENDOR_MAJOR_VERSION 3
#define NVSHMEM_VENDOR_MINOR_VERSION 8
#define NVSHMEM_VENDOR_PATCH_VERSION 0
#define NVSHMEM_VENDOR_VERSION 30800
#define NVSHMEM_VENDOR_STRING "Shunt (NVSHMEM v3.8.0 interface)"
#define NVSHMEM_MAX_NAME_LEN 256

typedef struct {
    int major;
    int minor;
    int patch;
} nvshmemi_version_t;

typedef int (*nvshmemx_device_lib_init_cb)(void **device_state, void **transport_state);

typedef struct {
    int version;
    char internal[124];
} nvshmemx_uniqueid_t;

typedef struct {
    int version;
    nvshmemx_uniqueid_t *id;
    int myrank;
    int nranks;
} nvshmemx_uniqueid_args_t;

typedef struct {
    int version;
    nvshmemx_uniqueid_args_t uid_args;
    int cuda_device_id;
    char content[92];
} nvshmemx_init_args_t;

typedef struct {
    int version;
    void *mpi_comm;
    nvshmemx_init_args_t args;
} nvshmemx_init_attr_t;

typedef int32_t nvshmem_team_t;
typedef nvshmem_team_t nvshmemx_team_t;
typedef int nvshmemx_qp_handle_t;

typedef uint64_t nvshmemx_region_handle_t;
typedef enum { NVSHMEMX_REGION_HINT_NONE = 0, NVSHMEMX_REGION_HINT_BATCH_RMA = 1 } nvshmemx_region_hint_t;
#define NVSHMEMX_REGION_ATTRS_RESERVED_BYTES 60
#define NVSHMEMX_REGION_ATTRS_INITIALIZER {NVSHMEMX_REGION_HINT_NONE, {0}}
typedef struct nvshmemx_region_attrs {
    uint32_t hints;
    char reserved[NVSHMEMX_REGION_ATTRS_RESERVED_BYTES];
} nvshmemx_region_attrs_t;

typedef struct {
    int version;
    int num_contexts;
    uint64_t uniqueid;
    char padding[48];
} nvshmem_team_config_t;

#define NVSHMEMX_UNIQUEID_INITIALIZER {(1 << 16) + (int)sizeof(nvshmemx_uniqueid_t), {0}}
#define NVSHMEMX_UNIQUEID_ARGS_INITIALIZER {(1 << 16) + (int)sizeof(nvshmemx_uniqueid_args_t), NULL, -1, -1}
#define NVSHMEMX_INIT_ARGS_INITIALIZER \
    {(2 << 16) + (int)sizeof(nvshmemx_init_args_t), NVSHMEMX_UNIQUEID_ARGS_INITIALIZER, -1, {0}}
#define NVSHMEMX_INIT_ATTR_INITIALIZER \
    {(2 << 16) + (int)sizeof(nvshmemx_init_attr_t), NULL, NVSHMEMX_INIT_ARGS_INITIALIZER}
#define NVSHMEM_TEAM_CONFIG_INITIALIZER {(2 << 16) + (int)sizeof(nvshmem_team_config_t), -1, UINT64_MAX, {0}}
#define NVSHMEM_TEAM_CONFIG_MASK_NUM_CONTEXTS 1L
#define NVSHMEM_TEAM_CONFIG_MASK_UNIQUEID 2L

enum {
    NVSHMEM_TEAM_INVALID = -1,
    NVSHMEM_TEAM_WORLD = 0,
    NVSHMEM_TEAM_SHARED = 1,
    NVSHMEMX_TEAM_NODE = 2,
    NVSHMEMX_TEAM_SAME_MYPE_NODE = 3,
    NVSHMEMI_TEAM_SAME_GPU = 4,
    NVSHMEMI_TEAM_GPU_LEADERS = 5,
    NVSHMEM_TEAM_MC_SHARED = 6
};

enum {
    NVSHMEMX_INIT_THREAD_PES = 1,
    NVSHMEMX_INIT_WITH_MPI_COMM = 2,
    NVSHMEMX_INIT_WITH_SHMEM = 4,
    NVSHMEMX_INIT_WITH_UNIQUEID = 8
};

typedef enum {
    NVSHMEM_CMP_EQ = 0,
    NVSHMEM_CMP_NE = 1,
    NVSHMEM_CMP_GT = 2,
    NVSHMEM_CMP_LE = 3,
    NVSHMEM_CMP_LT = 4,
    NVSHMEM_CMP_GE = 5,
    NVSHMEM_CMP_SENTINEL = INT_MAX
} nvshmemx_cmp_type_t;

typedef enum {
    NVSHMEM_THREAD_SINGLE = 0,
    NVSHMEM_THREAD_FUNNELED = 1,
    NVSHMEM_THREAD_SERIALIZED = 2,
    NVSHMEM_THREAD_MULTIPLE = 3,
    NVSHMEM_THREAD_TYPE_SENTINEL = INT_MAX
} nvshmemx_thread_support_t;

typedef enum {
    NVSHMEM_STATUS_NOT_INITIALIZED = 0,
    NVSHMEM_STATUS_IS_BOOTSTRAPPED = 1,
    NVSHMEM_STATUS_IS_INITIALIZED = 2,
    NVSHMEM_STATUS_LIMITED_MPG = 3,
    NVSHMEM_STATUS_FULL_MPG = 4,
    NVSHMEM_STATUS_INVALID = INT_MAX
} nvshmemx_init_status_t;

/* One value stands for any queue pair and for all of them: which is meant, the call says. */
enum { NVSHMEMX_QP_HOST = 0, NVSHMEMX_QP_DEFAULT = 1, NVSHMEMX_QP_ANY = INT_MAX, NVSHMEMX_QP_ALL = INT_MAX };
enum { NVSHMEM_PE_INVALID = -1, NVSHMEMX_PE_ANY = 1 << 15, NVSHMEMX_PE_ALL = 1 << 15 };

typedef enum { NVSHMEM_SIGNAL_SET = 9, NVSHMEM_SIGNAL_ADD = 10 } nvshmemx_signal_op_t;

typedef enum nvshmemx_status {
    NVSHMEMX_SUCCESS = 0,
    NVSHMEMX_ERROR_INVALID_VALUE = 1,
    NVSHMEMX_ERROR_OUT_OF_MEMORY = 2,
    NVSHMEMX_ERROR_NOT_SUPPORTED = 3,
    NVSHMEMX_ERROR_SYMMETRY = 4,
    NVSHMEMX_ERROR_GPU_NOT_SELECTED = 5,
    NVSHMEMX_ERROR_COLLECTIVE_LAUNCH_FAILED = 6,
    NVSHMEMX_ERROR_INTERNAL = 7,
    NVSHMEMX_ERROR_SENTINEL = INT_MAX
} nvshmemx_status;

#endif
