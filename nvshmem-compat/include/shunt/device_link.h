/* Between libnvshmem_device.a and the host library: who is told when the library is up, and what. */
#ifndef SHUNT_NVSHMEM_DEVICE_LINK_H
#define SHUNT_NVSHMEM_DEVICE_LINK_H

#include "device_state.h"

#ifdef __cplusplus
extern "C" {
#endif

/* `up` is called at the end of every initialisation with the root of the device state; unless it answers with 0, that
 * fails. 0, or a status where the library speaks another version. */
int shunt_nvshmem_register_device(unsigned long long version, int (*up)(const void *root));

#ifdef __cplusplus
}
#endif

#endif
