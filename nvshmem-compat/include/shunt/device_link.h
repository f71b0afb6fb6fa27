/* Between libnvshmem_device.a and the host library: who is told when the library is up, and what. */
#ifndef SHUNT_NVSHMEM_DEVICE_LINK_H
#define SHUNT_NVSHMEM_DEVICE_LINK_H

#include "device_state.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Answers of `place` that name no GPU. */
#define SHUNT_NVSHMEM_NO_GPU (-1)
#define SHUNT_NVSHMEM_ON_HOST (-2)

/* What the host library calls, by the thread that called NVSHMEM. */
typedef struct {
    unsigned long long version; /* SHUNT_NVSHMEM_DEVICE_VERSION */
    /* The number of the GPU that is current, or that there is none. */
    int (*place)(void);
    /* What the clock of kernels shows, in nanoseconds. */
    unsigned long long (*clock)(void);
    /* The root of the device state and the words beside it, at the end of every initialisation; null, null before the
     * library goes down. 0, or it could not be told. */
    int (*up)(const void *root, const shunt_nvshmem_device *words);
    /* Waits until all that kernels posted is done, for so long: 0, or a status << 32 | PE. */
    unsigned long long (*quiet)(unsigned long long timeout_ns);
    /* Waits for all that a stream holds; 0, or it was refused. */
    int (*drain)(void *stream);
} shunt_nvshmem_device_library;

/* Called when the program is loaded. 0, or a status where the host library speaks another version. */
int shunt_nvshmem_register_device(const shunt_nvshmem_device_library *library);

#ifdef __cplusplus
}
#endif

#endif
