/* Where code that reads NVSHMEM's device state directly looks for it. */
#ifndef SHUNT_NVSHMEM_COMMON_DEVICE_DEFINES_CUH
#define SHUNT_NVSHMEM_COMMON_DEVICE_DEFINES_CUH

#include "../../../device_host/nvshmem_types.h"

#ifdef __CUDACC__
extern __constant__ nvshmemi_device_host_state_t nvshmemi_device_state_d;
#endif

#endif
