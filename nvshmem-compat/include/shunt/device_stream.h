/* What a kernel of one block does for a call on a stream. */
#ifndef SHUNT_NVSHMEM_DEVICE_STREAM_H
#define SHUNT_NVSHMEM_DEVICE_STREAM_H

#include "device_link.h"
#include "device_teams.h"

namespace shunt_nvshmem {

__device__ inline void on_stream(const shunt_nvshmem_stream_call &call) {
    void *to = (void *)call.target;
    const void *from = (const void *)call.source;
    const bool first = Block::rank() == 0, waits = call.waits != 0;
    switch (call.what) {
    case SHUNT_NVSHMEM_STREAM_PUT:
        if (!call.word) return put<Block>(0, to, from, call.bytes, call.peer, waits);
        return put_signal<Block>(0, to, from, call.bytes, (uint64_t *)call.word, call.value, call.op, call.peer, waits);
    case SHUNT_NVSHMEM_STREAM_GET: return get<Block>(0, to, from, call.bytes, call.peer, waits);
    case SHUNT_NVSHMEM_STREAM_SIGNAL:
        if (first) signal(0, (uint64_t *)call.word, call.value, call.op, call.peer);
        return;
    case SHUNT_NVSHMEM_STREAM_WAIT:
        if (first) wait_until((uint64_t *)call.word, call.op, (uint64_t)call.value);
        return;
    case SHUNT_NVSHMEM_STREAM_QUIET: return quiet<Block>();
    case SHUNT_NVSHMEM_STREAM_MEET: meet<Block>(call.peer); return;
    case SHUNT_NVSHMEM_STREAM_BARRIER: barrier<Block>(call.peer); return;
    case SHUNT_NVSHMEM_STREAM_BROADCAST: broadcast<Block>(call.peer, to, from, call.bytes, call.op); return;
    case SHUNT_NVSHMEM_STREAM_COLLECT: spread<Block>(call.peer, to, from, call.bytes, false); return;
    case SHUNT_NVSHMEM_STREAM_ALL_TO_ALL: spread<Block>(call.peer, to, from, call.bytes, true); return;
    default: return;
    }
}

} // namespace shunt_nvshmem

#endif
