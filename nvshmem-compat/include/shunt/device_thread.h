/* The device's own of the functions that the host has too: of one thread. Included where device code is compiled. */
#ifndef SHUNT_NVSHMEM_DEVICE_THREAD_H
#define SHUNT_NVSHMEM_DEVICE_THREAD_H

/* As they are declared, and defined in the header; bitcode has them as symbols. */
#ifndef SHUNT_DEFINE
#define SHUNT_DEFINE extern "C" __host__ __device__ inline
#endif

#define SHUNT_THREAD_RMA(N, T)                                                                                        \
    SHUNT_DEFINE void nvshmem_##N##_p(T *to, T value, int pe) {                                                       \
        shunt_nvshmem::p(0, to, value, pe);                                                                           \
    }                                                                                                                 \
    SHUNT_DEFINE T nvshmem_##N##_g(const T *from, int pe) {                                                           \
        return shunt_nvshmem::g(0, from, pe);                                                                         \
    }                                                                                                                 \
    SHUNT_DEFINE void nvshmem_##N##_put(T *to, const T *from, size_t count, int pe) {                                 \
        shunt_nvshmem::put<shunt_nvshmem::Thread>(0, to, from, count * sizeof(T), pe, true);                          \
    }                                                                                                                 \
    SHUNT_DEFINE void nvshmem_##N##_get(T *to, const T *from, size_t count, int pe) {                                 \
        shunt_nvshmem::get<shunt_nvshmem::Thread>(0, to, from, count * sizeof(T), pe, true);                          \
    }                                                                                                                 \
    SHUNT_DEFINE void nvshmem_##N##_put_nbi(T *to, const T *from, size_t count, int pe) {                             \
        shunt_nvshmem::put<shunt_nvshmem::Thread>(0, to, from, count * sizeof(T), pe, false);                         \
    }                                                                                                                 \
    SHUNT_DEFINE void nvshmem_##N##_get_nbi(T *to, const T *from, size_t count, int pe) {                             \
        shunt_nvshmem::get<shunt_nvshmem::Thread>(0, to, from, count * sizeof(T), pe, false);                         \
    }                                                                                                                 \
    SHUNT_DEFINE void nvshmem_##N##_iput(T *to, const T *from, ptrdiff_t dst, ptrdiff_t sst, size_t count, int pe) {  \
        shunt_nvshmem::strided<shunt_nvshmem::Thread>(true, to, from, dst, sst, count, pe);                           \
    }                                                                                                                 \
    SHUNT_DEFINE void nvshmem_##N##_iget(T *to, const T *from, ptrdiff_t dst, ptrdiff_t sst, size_t count, int pe) {  \
        shunt_nvshmem::strided<shunt_nvshmem::Thread>(false, to, from, dst, sst, count, pe);                          \
    }                                                                                                                 \
    SHUNT_DEFINE void nvshmem_##N##_put_signal(T *to, const T *from, size_t count, uint64_t *word, uint64_t value,    \
                                               int op, int pe) {                                                      \
        shunt_nvshmem::put_signal<shunt_nvshmem::Thread>(0, to, from, count * sizeof(T), word, value, op, pe, true);  \
    }                                                                                                                 \
    SHUNT_DEFINE void nvshmem_##N##_put_signal_nbi(T *to, const T *from, size_t count, uint64_t *word,                \
                                                   uint64_t value, int op, int pe) {                                  \
        shunt_nvshmem::put_signal<shunt_nvshmem::Thread>(0, to, from, count * sizeof(T), word, value, op, pe, false); \
    }

#define SHUNT_THREAD_SIZED(N)                                                                                       \
    SHUNT_DEFINE void nvshmem_put##N(void *to, const void *from, size_t count, int pe) {                            \
        shunt_nvshmem::put<shunt_nvshmem::Thread>(0, to, from, count * (N / 8), pe, true);                          \
    }                                                                                                               \
    SHUNT_DEFINE void nvshmem_put##N##_nbi(void *to, const void *from, size_t count, int pe) {                      \
        shunt_nvshmem::put<shunt_nvshmem::Thread>(0, to, from, count * (N / 8), pe, false);                         \
    }                                                                                                               \
    SHUNT_DEFINE void nvshmem_get##N(void *to, const void *from, size_t count, int pe) {                            \
        shunt_nvshmem::get<shunt_nvshmem::Thread>(0, to, from, count * (N / 8), pe, true);                          \
    }                                                                                                               \
    SHUNT_DEFINE void nvshmem_get##N##_nbi(void *to, const void *from, size_t count, int pe) {                      \
        shunt_nvshmem::get<shunt_nvshmem::Thread>(0, to, from, count * (N / 8), pe, false);                         \
    }                                                                                                               \
    SHUNT_DEFINE void nvshmem_put##N##_signal(void *to, const void *from, size_t count, uint64_t *word,             \
                                               uint64_t value, int op, int pe) {                                    \
        shunt_nvshmem::put_signal<shunt_nvshmem::Thread>(0, to, from, count * (N / 8), word, value, op, pe, true);  \
    }                                                                                                               \
    SHUNT_DEFINE void nvshmem_put##N##_signal_nbi(void *to, const void *from, size_t count, uint64_t *word,         \
                                               uint64_t value, int op, int pe) {                                    \
        shunt_nvshmem::put_signal<shunt_nvshmem::Thread>(0, to, from, count * (N / 8), word, value, op, pe, false); \
    }                                                                                                               \
    SHUNT_DEFINE void nvshmem_iput##N(void *to, const void *from, ptrdiff_t dst, ptrdiff_t sst, size_t count,       \
                                       int pe) {                                                                    \
        struct Element { char bytes[N / 8]; };                                                                      \
        Element *target = (Element *)to;                                                                            \
        const Element *source = (const Element *)from;                                                              \
        shunt_nvshmem::strided<shunt_nvshmem::Thread>(true, target, source, dst, sst, count, pe);                   \
    }                                                                                                               \
    SHUNT_DEFINE void nvshmem_iget##N(void *to, const void *from, ptrdiff_t dst, ptrdiff_t sst, size_t count,       \
                                       int pe) {                                                                    \
        struct Element { char bytes[N / 8]; };                                                                      \
        Element *target = (Element *)to;                                                                            \
        const Element *source = (const Element *)from;                                                              \
        shunt_nvshmem::strided<shunt_nvshmem::Thread>(false, target, source, dst, sst, count, pe);                  \
    }

#define SHUNT_THREAD_STANDARD_AMO(N, T)                                                              \
    SHUNT_DEFINE void nvshmem_##N##_atomic_inc(T *word, int pe) {                                    \
        shunt_nvshmem::amo<T>(shunt_nvshmem::kAdd, false, 0, word, 0, 1, pe);                        \
    }                                                                                                \
    SHUNT_DEFINE T nvshmem_##N##_atomic_fetch_inc(T *word, int pe) {                                 \
        return shunt_nvshmem::amo<T>(shunt_nvshmem::kAdd, true, 0, word, 0, 1, pe);                  \
    }                                                                                                \
    SHUNT_DEFINE void nvshmem_##N##_atomic_add(T *word, T value, int pe) {                           \
        shunt_nvshmem::amo<T>(shunt_nvshmem::kAdd, false, 0, word, 0, value, pe);                    \
    }                                                                                                \
    SHUNT_DEFINE T nvshmem_##N##_atomic_fetch_add(T *word, T value, int pe) {                        \
        return shunt_nvshmem::amo<T>(shunt_nvshmem::kAdd, true, 0, word, 0, value, pe);              \
    }                                                                                                \
    SHUNT_DEFINE T nvshmem_##N##_atomic_compare_swap(T *word, T expect, T value, int pe) {           \
        return shunt_nvshmem::amo<T>(shunt_nvshmem::kCompareSwap, true, 0, word, expect, value, pe); \
    }

#define SHUNT_THREAD_EXTENDED_AMO(N, T)                                                  \
    SHUNT_DEFINE T nvshmem_##N##_atomic_fetch(const T *word, int pe) {                   \
        return shunt_nvshmem::amo<T>(shunt_nvshmem::kAdd, true, 0, word, 0, 0, pe);      \
    }                                                                                    \
    SHUNT_DEFINE void nvshmem_##N##_atomic_set(T *word, T value, int pe) {               \
        shunt_nvshmem::amo<T>(shunt_nvshmem::kSet, false, 0, word, 0, value, pe);        \
    }                                                                                    \
    SHUNT_DEFINE T nvshmem_##N##_atomic_swap(T *word, T value, int pe) {                 \
        return shunt_nvshmem::amo<T>(shunt_nvshmem::kSwap, true, 0, word, 0, value, pe); \
    }

#define SHUNT_THREAD_BITWISE_AMO(N, T)                                                  \
    SHUNT_DEFINE void nvshmem_##N##_atomic_and(T *word, T value, int pe) {              \
        shunt_nvshmem::amo<T>(shunt_nvshmem::kAnd, false, 0, word, 0, value, pe);       \
    }                                                                                   \
    SHUNT_DEFINE T nvshmem_##N##_atomic_fetch_and(T *word, T value, int pe) {           \
        return shunt_nvshmem::amo<T>(shunt_nvshmem::kAnd, true, 0, word, 0, value, pe); \
    }                                                                                   \
    SHUNT_DEFINE void nvshmem_##N##_atomic_or(T *word, T value, int pe) {               \
        shunt_nvshmem::amo<T>(shunt_nvshmem::kOr, false, 0, word, 0, value, pe);        \
    }                                                                                   \
    SHUNT_DEFINE T nvshmem_##N##_atomic_fetch_or(T *word, T value, int pe) {            \
        return shunt_nvshmem::amo<T>(shunt_nvshmem::kOr, true, 0, word, 0, value, pe);  \
    }                                                                                   \
    SHUNT_DEFINE void nvshmem_##N##_atomic_xor(T *word, T value, int pe) {              \
        shunt_nvshmem::amo<T>(shunt_nvshmem::kXor, false, 0, word, 0, value, pe);       \
    }                                                                                   \
    SHUNT_DEFINE T nvshmem_##N##_atomic_fetch_xor(T *word, T value, int pe) {           \
        return shunt_nvshmem::amo<T>(shunt_nvshmem::kXor, true, 0, word, 0, value, pe); \
    }

#define SHUNT_THREAD_WAIT(N, T) \
    SHUNT_DEFINE void nvshmem_##N##_wait_until(T *word, int how, T value) { \
        shunt_nvshmem::wait_until(word, how, value); \
    } \
    SHUNT_DEFINE int nvshmem_##N##_test(T *word, int how, T value) { \
        return shunt_nvshmem::compare(shunt_nvshmem::read(word), how, value); \
    } \
    SHUNT_DEFINE void nvshmem_##N##_wait_until_all(T *words, size_t count, const int *left_out, int how, \
                                                  T value) { \
        shunt_nvshmem::wait_for<T>(words, count, left_out, how, nullptr, value, nullptr, false, shunt_nvshmem::kAll); \
    } \
    SHUNT_DEFINE size_t nvshmem_##N##_wait_until_any(T *words, size_t count, const int *left_out, int how, \
                                                  T value) { \
        size_t which = SIZE_MAX; \
        shunt_nvshmem::wait_for<T>(words, count, left_out, how, nullptr, value, &which, false, shunt_nvshmem::kAny); \
        return which; \
    } \
    SHUNT_DEFINE size_t nvshmem_##N##_wait_until_some(T *words, size_t count, size_t *which, const int *left_out, \
                                                   int how, T value) { \
        return shunt_nvshmem::wait_for<T>(words, count, left_out, how, nullptr, value, which, true, \
            shunt_nvshmem::kAny); \
    } \
    SHUNT_DEFINE int nvshmem_##N##_test_all(T *words, size_t count, const int *left_out, int how, T value) { \
        size_t looked; \
        return shunt_nvshmem::held<T>(words, count, left_out, how, nullptr, value, nullptr, false, &looked) == looked; \
    } \
    SHUNT_DEFINE size_t nvshmem_##N##_test_any(T *words, size_t count, const int *left_out, int how, T value) { \
        size_t looked, which = SIZE_MAX; \
        shunt_nvshmem::held<T>(words, count, left_out, how, nullptr, value, &which, false, &looked); \
        return which; \
    } \
    SHUNT_DEFINE size_t nvshmem_##N##_test_some(T *words, size_t count, size_t *which, const int *left_out, int how, \
                                              T value) { \
        size_t looked; \
        return shunt_nvshmem::held<T>(words, count, left_out, how, nullptr, value, which, true, &looked); \
    } \
    SHUNT_DEFINE void nvshmem_##N##_wait_until_all_vector(T *words, size_t count, const int *left_out, int how, \
                                                  T *values) { \
        shunt_nvshmem::wait_for<T>(words, count, left_out, how, values, 0, nullptr, false, shunt_nvshmem::kAll); \
    } \
    SHUNT_DEFINE size_t nvshmem_##N##_wait_until_any_vector(T *words, size_t count, const int *left_out, int how, \
                                                  T *values) { \
        size_t which = SIZE_MAX; \
        shunt_nvshmem::wait_for<T>(words, count, left_out, how, values, 0, &which, false, shunt_nvshmem::kAny); \
        return which; \
    } \
    SHUNT_DEFINE size_t nvshmem_##N##_wait_until_some_vector(T *words, size_t count, size_t *which, \
            const int *left_out, \
                                                   int how, T *values) { \
        return shunt_nvshmem::wait_for<T>(words, count, left_out, how, values, 0, which, true, shunt_nvshmem::kAny); \
    } \
    SHUNT_DEFINE int nvshmem_##N##_test_all_vector(T *words, size_t count, const int *left_out, int how, T *values) { \
        size_t looked; \
        return shunt_nvshmem::held<T>(words, count, left_out, how, values, 0, nullptr, false, &looked) == looked; \
    } \
    SHUNT_DEFINE size_t nvshmem_##N##_test_any_vector(T *words, size_t count, const int *left_out, int how, \
            T *values) { \
        size_t looked, which = SIZE_MAX; \
        shunt_nvshmem::held<T>(words, count, left_out, how, values, 0, &which, false, &looked); \
        return which; \
    } \
    SHUNT_DEFINE size_t nvshmem_##N##_test_some_vector(T *words, size_t count, size_t *which, \
            const int *left_out, int how, \
                                              T *values) { \
        size_t looked; \
        return shunt_nvshmem::held<T>(words, count, left_out, how, values, 0, which, true, &looked); \
    }

#define SHUNT_THREAD_COLLECTIVE(N, T)                                                                             \
    SHUNT_DEFINE int nvshmem_##N##_broadcast(nvshmem_team_t team, T *to, const T *from, size_t count, int root) { \
        return shunt_nvshmem::broadcast<shunt_nvshmem::Thread>(team, to, from, count * sizeof(T), root);          \
    }                                                                                                             \
    SHUNT_DEFINE int nvshmem_##N##_fcollect(nvshmem_team_t team, T *to, const T *from, size_t count) {            \
        return shunt_nvshmem::spread<shunt_nvshmem::Thread>(team, to, from, count * sizeof(T), false);            \
    }                                                                                                             \
    SHUNT_DEFINE int nvshmem_##N##_alltoall(nvshmem_team_t team, T *to, const T *from, size_t count) {            \
        return shunt_nvshmem::spread<shunt_nvshmem::Thread>(team, to, from, count * sizeof(T), true);             \
    }

#define SHUNT_THREAD_REDUCE_ONE(N, T, OP, O)                                                                       \
    SHUNT_DEFINE int nvshmem_##N##_##OP##_reduce(nvshmem_team_t team, T *to, const T *from, size_t count) {        \
        return shunt_nvshmem::reduce<shunt_nvshmem::Thread, shunt_nvshmem::O>(team, to, from, count, false);       \
    }                                                                                                              \
    SHUNT_DEFINE int nvshmem_##N##_##OP##_reducescatter(nvshmem_team_t team, T *to, const T *from, size_t count) { \
        return shunt_nvshmem::reduce<shunt_nvshmem::Thread, shunt_nvshmem::O>(team, to, from, count, true);        \
    }

#define SHUNT_THREAD_REDUCE(N, T)                                                   \
    SHUNT_THREAD_REDUCE_ONE(N, T, sum, Sum) SHUNT_THREAD_REDUCE_ONE(N, T, prod, Prod) \
    SHUNT_THREAD_REDUCE_ONE(N, T, min, Min) SHUNT_THREAD_REDUCE_ONE(N, T, max, Max)
#define SHUNT_THREAD_BITWISE_REDUCE(N, T)                                         \
    SHUNT_THREAD_REDUCE_ONE(N, T, and, And) SHUNT_THREAD_REDUCE_ONE(N, T, or, Or) \
    SHUNT_THREAD_REDUCE_ONE(N, T, xor, Xor)

SHUNT_RMA_TYPES(SHUNT_THREAD_RMA)
SHUNT_SIZES(SHUNT_THREAD_SIZED)
SHUNT_STANDARD_AMO_TYPES(SHUNT_THREAD_STANDARD_AMO)
SHUNT_EXTENDED_AMO_TYPES(SHUNT_THREAD_EXTENDED_AMO)
SHUNT_BITWISE_AMO_TYPES(SHUNT_THREAD_BITWISE_AMO)
SHUNT_WAIT_TYPES(SHUNT_THREAD_WAIT)
SHUNT_RMA_TYPES(SHUNT_THREAD_COLLECTIVE)
SHUNT_REDUCE_TYPES(SHUNT_THREAD_REDUCE)
SHUNT_BITWISE_REDUCE_TYPES(SHUNT_THREAD_BITWISE_REDUCE)

SHUNT_DEFINE int nvshmem_my_pe(void) {
    return (int)shunt_nvshmem::state().me;
}
SHUNT_DEFINE int nvshmem_n_pes(void) {
    return (int)shunt_nvshmem::state().pes;
}
SHUNT_DEFINE void *nvshmem_ptr(const void *at, int pe) {
    return shunt_nvshmem::mapped(at, pe);
}
SHUNT_DEFINE void *nvshmemx_mc_ptr(nvshmem_team_t, const void *) {
    return nullptr;
}
SHUNT_DEFINE void nvshmem_info_get_version(int *major, int *minor) {
    *major = NVSHMEM_MAJOR_VERSION, *minor = NVSHMEM_MINOR_VERSION;
}
SHUNT_DEFINE void nvshmem_info_get_name(char *name) {
    const char own[] = NVSHMEM_VENDOR_STRING;
    for (size_t i = 0; i < sizeof own; ++i) name[i] = own[i];
}
SHUNT_DEFINE void nvshmemx_vendor_get_version_info(int *major, int *minor, int *patch) {
    *major = NVSHMEM_VENDOR_MAJOR_VERSION, *minor = NVSHMEM_VENDOR_MINOR_VERSION, *patch = NVSHMEM_VENDOR_PATCH_VERSION;
}
SHUNT_DEFINE int nvshmemx_region_is_active(uint32_t hints, int *active) {
    if (!active || hints & ~(uint32_t)NVSHMEMX_REGION_HINT_BATCH_RMA) return NVSHMEMX_ERROR_INVALID_VALUE;
    *active = 0;
    return NVSHMEMX_SUCCESS;
}
SHUNT_DEFINE int nvshmem_team_n_pes(nvshmem_team_t team) {
    return shunt_nvshmem::team_size(team) == 0 ? -1 : (int)shunt_nvshmem::team_size(team);
}
SHUNT_DEFINE int nvshmem_team_my_pe(nvshmem_team_t team) {
    return shunt_nvshmem::team_size(team) == 0 ? -1 : (int)shunt_nvshmem::team_me(team);
}
SHUNT_DEFINE int nvshmem_team_translate_pe(nvshmem_team_t from, int pe, nvshmem_team_t to) {
    if (pe < 0 || (uint32_t)pe >= shunt_nvshmem::team_size(from)) return -1;
    for (uint32_t i = 0; i < shunt_nvshmem::team_size(to); ++i) {
        if (shunt_nvshmem::member(to, i) == shunt_nvshmem::member(from, (uint32_t)pe)) return (int)i;
    }
    return -1;
}
SHUNT_DEFINE void nvshmem_quiet(void) {
    shunt_nvshmem::quiet<shunt_nvshmem::Thread>();
}
SHUNT_DEFINE void nvshmem_fence(void) {
    shunt_nvshmem::fence();
}
SHUNT_DEFINE void nvshmemx_flush(void) {
    shunt_nvshmem::quiet<shunt_nvshmem::Thread>();
}
SHUNT_DEFINE int nvshmem_barrier(nvshmem_team_t team) {
    return shunt_nvshmem::barrier<shunt_nvshmem::Thread>(team);
}
SHUNT_DEFINE void nvshmem_barrier_all(void) {
    shunt_nvshmem::barrier<shunt_nvshmem::Thread>(NVSHMEM_TEAM_WORLD);
}
SHUNT_DEFINE int nvshmem_team_sync(nvshmem_team_t team) {
    return shunt_nvshmem::meet<shunt_nvshmem::Thread>(team);
}
SHUNT_DEFINE void nvshmem_sync_all(void) {
    shunt_nvshmem::meet<shunt_nvshmem::Thread>(NVSHMEM_TEAM_WORLD);
}
SHUNT_DEFINE void nvshmem_putmem(void *to, const void *from, size_t bytes, int pe) {
    shunt_nvshmem::put<shunt_nvshmem::Thread>(0, to, from, bytes, pe, true);
}
SHUNT_DEFINE void nvshmem_putmem_nbi(void *to, const void *from, size_t bytes, int pe) {
    shunt_nvshmem::put<shunt_nvshmem::Thread>(0, to, from, bytes, pe, false);
}
SHUNT_DEFINE void nvshmem_getmem(void *to, const void *from, size_t bytes, int pe) {
    shunt_nvshmem::get<shunt_nvshmem::Thread>(0, to, from, bytes, pe, true);
}
SHUNT_DEFINE void nvshmem_getmem_nbi(void *to, const void *from, size_t bytes, int pe) {
    shunt_nvshmem::get<shunt_nvshmem::Thread>(0, to, from, bytes, pe, false);
}
SHUNT_DEFINE void nvshmem_putmem_signal(void *to, const void *from, size_t bytes, uint64_t *word, uint64_t value,
                                        int op, int pe) {
    shunt_nvshmem::put_signal<shunt_nvshmem::Thread>(0, to, from, bytes, word, value, op, pe, true);
}
SHUNT_DEFINE void nvshmem_putmem_signal_nbi(void *to, const void *from, size_t bytes, uint64_t *word, uint64_t value,
                                        int op, int pe) {
    shunt_nvshmem::put_signal<shunt_nvshmem::Thread>(0, to, from, bytes, word, value, op, pe, false);
}
SHUNT_DEFINE void nvshmemx_signal_op(uint64_t *word, uint64_t value, int op, int pe) {
    shunt_nvshmem::signal(0, word, value, op, pe);
}
SHUNT_DEFINE uint64_t nvshmem_signal_fetch(uint64_t *word) {
    return shunt_nvshmem::read(word);
}
SHUNT_DEFINE uint64_t nvshmem_signal_wait_until(uint64_t *word, int how, uint64_t value) {
    shunt_nvshmem::wait_until(word, how, value);
    return shunt_nvshmem::read(word);
}
SHUNT_DEFINE int nvshmem_broadcastmem(nvshmem_team_t team, void *to, const void *from, size_t bytes, int root) {
    return shunt_nvshmem::broadcast<shunt_nvshmem::Thread>(team, to, from, bytes, root);
}
SHUNT_DEFINE int nvshmem_fcollectmem(nvshmem_team_t team, void *to, const void *from, size_t bytes) {
    return shunt_nvshmem::spread<shunt_nvshmem::Thread>(team, to, from, bytes, false);
}
SHUNT_DEFINE int nvshmem_alltoallmem(nvshmem_team_t team, void *to, const void *from, size_t bytes) {
    return shunt_nvshmem::spread<shunt_nvshmem::Thread>(team, to, from, bytes, true);
}

#endif
