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

/* Answers of `drain`. */
#define SHUNT_NVSHMEM_DRAINED 0
#define SHUNT_NVSHMEM_NOT_YET 1
#define SHUNT_NVSHMEM_CAPTURED 2
#define SHUNT_NVSHMEM_BROKEN 3

/* Answer of `clock` and `quiet`: no kernel could be started; why has been said. */
#define SHUNT_NVSHMEM_NO_ANSWER (~0ull)

/* What a kernel does for a call on a stream. */
#define SHUNT_NVSHMEM_STREAM_PUT 0        /* source to target of PE `peer`; with a word, a signal behind it */
#define SHUNT_NVSHMEM_STREAM_GET 1
#define SHUNT_NVSHMEM_STREAM_SIGNAL 2     /* word of PE `peer` */
#define SHUNT_NVSHMEM_STREAM_WAIT 3       /* until the word holds */
#define SHUNT_NVSHMEM_STREAM_QUIET 4
#define SHUNT_NVSHMEM_STREAM_MEET 5       /* of team `peer`, as what follows */
#define SHUNT_NVSHMEM_STREAM_BARRIER 6
#define SHUNT_NVSHMEM_STREAM_BROADCAST 7  /* from member `op` */
#define SHUNT_NVSHMEM_STREAM_COLLECT 8
#define SHUNT_NVSHMEM_STREAM_ALL_TO_ALL 9

/* Addresses are of this PE's heap; `bytes` of each member's part where it is a team's. `waits`: what is behind it on the
 * stream may change the source. */
typedef struct {
    unsigned long long what, target, source, bytes, word, value;
    int op, peer, waits, unused;
} shunt_nvshmem_stream_call;

/* What the host library calls, by the thread that called NVSHMEM. */
typedef struct {
    unsigned long long version; /* SHUNT_NVSHMEM_DEVICE_VERSION */
    /* The number of the GPU that is current, or that there is none. */
    int (*place)(void);
    /* What the clock of kernels shows, in nanoseconds. */
    unsigned long long (*clock)(void);
    /* The root of the device state and the words beside it, at the end of every initialisation. 0, or it could not be
     * told. */
    int (*up)(const void *root, const shunt_nvshmem_device *words);
    /* At every call: a GPU that has become current since is told as well. 0, or it could not be. */
    int (*follow)(void);
    /* Waits until all that kernels posted is done, for so long: 0, or a status << 32 | PE. */
    unsigned long long (*quiet)(unsigned long long timeout_ns);
    /* One look at what a stream holds. */
    int (*drain)(void *stream);
    /* Puts a kernel on a stream that does this; a stream that is being captured takes it into its graph. 0, or it could
     * not be launched. */
    int (*launch)(const shunt_nvshmem_stream_call *call, void *stream);
    /* Before the library goes down: waits for so long until kernels have ended. A bit for each GPU on which some still
     * run. */
    unsigned long long (*settle)(unsigned long long timeout_ns);
    /* The library is down: all that was told is forgotten. */
    void (*down)(void);
    /* A module of CUDA's driver, or a library of it, is given what kernels of the program have, or (`enter` is 0) loses
     * it. 0, or a status. */
    int (*module)(void *of, int is_library, int enter);
} shunt_nvshmem_device_library;

/* Called when the program is loaded. 0, or a status where the host library speaks another version. */
int shunt_nvshmem_join_device(const shunt_nvshmem_device_library *library);

#ifdef __cplusplus
}
#endif

#endif
