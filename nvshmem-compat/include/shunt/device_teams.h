/* Teams on the device: meetings of their members, and collective calls made of them. */
#ifndef SHUNT_NVSHMEM_DEVICE_TEAMS_H
#define SHUNT_NVSHMEM_DEVICE_TEAMS_H

#include "device.h"

namespace shunt_nvshmem {

/* Row and members of a team; size 0: there is none. */
__device__ __forceinline__ shunt_nvshmem_team *team_row(int team) {
    return team < 0 || (uint64_t)team >= state().team_ids ? nullptr : at<shunt_nvshmem_team>(state().teams) + team;
}

__device__ __forceinline__ uint32_t team_size(int team) {
    const shunt_nvshmem_team *row = team_row(team);
    return row ? (uint32_t)row->size : 0;
}

__device__ __forceinline__ uint32_t team_me(int team) { return (uint32_t)team_row(team)->me; }

__device__ __forceinline__ int member(int team, uint32_t number) {
    return (int)at<const uint32_t>(state().members)[(uint64_t)team * state().pes + number];
}

/* All members come; what each had sent before by the default queue pair is seen by all. */
template <typename S> __device__ __noinline__ int meet(int team) {
    const uint32_t size = team_size(team);
    if (size == 0) return -1;
    shunt_nvshmem_team *row = team_row(team);
    const uint64_t number = *(volatile unsigned long long *)&row->meeting + 1;
    const uint64_t words = state().meetings + (uint64_t)team * state().pes * 8;
    S::sync();
    for (uint32_t i = S::rank(); i < size; i += S::size()) {
        const int pe = member(team, i);
        if (here(pe)) continue;
        posted<Thread>(shunt_signal_thread((uint32_t)pe, real(0), words + state().me * 8, number), 0, pe, false);
    }
    /* One deadline for all of them. Such a wait has no ticket: whether a member can still come is the channel's to say. */
    Wait wait;
    int missing = 0;
    for (uint32_t i = S::rank(); i < size; i += S::size()) {
        const int pe = member(team, i);
        if (here(pe)) continue;
        uint32_t status = 0;
        while (status == 0 && read(at<unsigned long long>(words) + pe) < number) {
            shunt_report report;
            status = wait.goes_on() ? shunt_alive((uint32_t)pe, real(0), &report) : (uint32_t)SHUNT_OVERDUE;
        }
        if (status == 0) continue;
        fault(status, pe);
        missing = -1;
    }
    S::sync();
    if (S::rank() == 0) *(volatile unsigned long long *)&row->meeting = number;
    __threadfence_system();
    S::sync();
    return missing;
}

template <typename S> __device__ inline int barrier(int team) {
    quiet<S>();
    return meet<S>(team);
}

/* Each member gets what `from` has for it: the same for all, or a piece each. */
template <typename S>
__device__ __noinline__ int spread(int team, void *to, const void *from, size_t bytes, bool pieces) {
    const uint32_t size = team_size(team);
    if (size == 0) return -1;
    const uint32_t me = team_me(team);
    for (uint32_t i = 0; i < size; ++i) {
        const char *source = (const char *)from + (pieces ? i * bytes : 0);
        put<S>(0, (char *)to + me * bytes, source, bytes, member(team, i), false);
    }
    return barrier<S>(team);
}

template <typename S>
__device__ __noinline__ int broadcast(int team, void *to, const void *from, size_t bytes, int root) {
    const uint32_t size = team_size(team);
    if (size == 0 || root < 0 || (uint32_t)root >= size) return -1;
    for (uint32_t i = 0; team_me(team) == (uint32_t)root && i < size; ++i) {
        put<S>(0, to, from, bytes, member(team, i), false);
    }
    return barrier<S>(team);
}

struct Sum { template <typename T> static __device__ __forceinline__ T of(T a, T b) { return a + b; } };
struct Prod { template <typename T> static __device__ __forceinline__ T of(T a, T b) { return a * b; } };
struct Min { template <typename T> static __device__ __forceinline__ T of(T a, T b) { return b < a ? b : a; } };
struct Max { template <typename T> static __device__ __forceinline__ T of(T a, T b) { return a < b ? b : a; } };
struct MaxLoc { template <typename T> static __device__ __forceinline__ T of(T a, T b) { return a.x < b.x ? b : a; } };
struct And { template <typename T> static __device__ __forceinline__ T of(T a, T b) { return a & b; } };
struct Or { template <typename T> static __device__ __forceinline__ T of(T a, T b) { return a | b; } };
struct Xor { template <typename T> static __device__ __forceinline__ T of(T a, T b) { return a ^ b; } };

/* In the order of the team, so that all members have the same bits; piece by piece, through memory of the team's own.
 * `scatter`: each member's piece of the sources alone. */
template <typename S, typename O, typename T>
__device__ __noinline__ int reduce(int team, T *to, const T *from, size_t count, bool scatter) {
    const uint32_t size = team_size(team);
    if (size == 0) return -1;
    const uint32_t me = team_me(team);
    const size_t room = state().work_bytes / size / sizeof(T);
    T *work = at<T>(state().work + (uint64_t)team * state().work_bytes);
    for (size_t done = 0; done < count; done += room) {
        const size_t now = count - done < room ? count - done : room;
        for (uint32_t i = 0; i < size; ++i) {
            const T *source = from + done + (scatter ? i * count : 0);
            put<S>(0, work + me * room, source, now * sizeof(T), member(team, i), false);
        }
        barrier<S>(team);
        for (size_t i = S::rank(); i < now; i += S::size()) {
            T value = work[i];
            for (uint32_t other = 1; other < size; ++other) value = O::of(value, work[other * room + i]);
            to[done + i] = value;
        }
        /* Nobody writes again before all have read. */
        meet<S>(team);
    }
    return 0;
}

} // namespace shunt_nvshmem

#endif
