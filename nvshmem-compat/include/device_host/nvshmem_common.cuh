/* Types, constants and the device state, without functions: what programs use of NVSHMEM's header of this name. Its lists
 * of types and the words of its collective calls are not in it. */
#ifndef SHUNT_NVSHMEM_DEVICE_HOST_COMMON_CUH
#define SHUNT_NVSHMEM_DEVICE_HOST_COMMON_CUH

#include "nvshmem_types.h"

#endif
