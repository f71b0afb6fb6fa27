/* Families of functions: lists of types, and what a type has of each family. */
#ifndef SHUNT_NVSHMEM_FAMILIES_H
#define SHUNT_NVSHMEM_FAMILIES_H

/* What host and device code call by one name. The host's is in the library, the device's in device.h. */
#ifdef __CUDACC__
#define SHUNT_HD __host__ __device__
#else
#define SHUNT_HD
#endif

#define SHUNT_RMA_TYPES(X)                                                                                       \
    X(bfloat16, shunt_bfloat16) X(half, shunt_half) X(float, float) X(double, double) X(char, char)              \
    X(short, short) X(schar, signed char) X(int, int) X(long, long) X(longlong, long long)                       \
    X(uchar, unsigned char) X(ushort, unsigned short) X(uint, unsigned int) X(ulong, unsigned long)              \
    X(ulonglong, unsigned long long) X(int8, int8_t) X(int16, int16_t) X(int32, int32_t) X(int64, int64_t)       \
    X(uint8, uint8_t) X(uint16, uint16_t) X(uint32, uint32_t) X(uint64, uint64_t) X(size, size_t)                \
    X(ptrdiff, ptrdiff_t)

#define SHUNT_SIZES(X) X(8) X(16) X(32) X(64) X(128)

#define SHUNT_BITWISE_AMO_TYPES(X)                                                                               \
    X(uint, unsigned int) X(ulong, unsigned long) X(ulonglong, unsigned long long) X(int32, int32_t)             \
    X(uint32, uint32_t) X(int64, int64_t) X(uint64, uint64_t)

#define SHUNT_STANDARD_AMO_TYPES(X)                                                                              \
    SHUNT_BITWISE_AMO_TYPES(X)                                                                                   \
    X(int, int) X(long, long) X(longlong, long long) X(size, size_t) X(ptrdiff, ptrdiff_t)

#define SHUNT_EXTENDED_AMO_TYPES(X) SHUNT_STANDARD_AMO_TYPES(X) X(float, float) X(double, double)

#define SHUNT_WAIT_TYPES(X)                                                                                      \
    X(short, short) X(int, int) X(long, long) X(longlong, long long) X(ushort, unsigned short)                   \
    X(uint, unsigned int) X(ulong, unsigned long) X(ulonglong, unsigned long long) X(int32, int32_t)             \
    X(int64, int64_t) X(uint32, uint32_t) X(uint64, uint64_t) X(size, size_t) X(ptrdiff, ptrdiff_t)

#define SHUNT_BITWISE_REDUCE_TYPES(X)                                                                            \
    X(uchar, unsigned char) X(ushort, unsigned short) X(uint, unsigned int) X(ulong, unsigned long)              \
    X(ulonglong, unsigned long long) X(int8, int8_t) X(int16, int16_t) X(int32, int32_t) X(int64, int64_t)       \
    X(uint8, uint8_t) X(uint16, uint16_t) X(uint32, uint32_t) X(uint64, uint64_t) X(size, size_t)

#define SHUNT_REDUCE_TYPES(X)                                                                                    \
    SHUNT_BITWISE_REDUCE_TYPES(X)                                                                                \
    X(char, char) X(schar, signed char) X(short, short) X(int, int) X(long, long) X(longlong, long long)         \
    X(bfloat16, shunt_bfloat16) X(half, shunt_half) X(float, float) X(double, double)

#define SHUNT_RMA(N, T)                                                                                          \
    SHUNT_HD void nvshmem_##N##_p(T *target, T value, int pe);                                                   \
    SHUNT_HD T nvshmem_##N##_g(const T *source, int pe);                                                         \
    SHUNT_HD void nvshmem_##N##_put(T *target, const T *source, size_t count, int pe);                           \
    SHUNT_HD void nvshmem_##N##_get(T *target, const T *source, size_t count, int pe);                           \
    SHUNT_HD void nvshmem_##N##_put_nbi(T *target, const T *source, size_t count, int pe);                       \
    SHUNT_HD void nvshmem_##N##_get_nbi(T *target, const T *source, size_t count, int pe);                       \
    SHUNT_HD void nvshmem_##N##_iput(T *target, const T *source, ptrdiff_t dst, ptrdiff_t sst, size_t count, int pe); \
    SHUNT_HD void nvshmem_##N##_iget(T *target, const T *source, ptrdiff_t dst, ptrdiff_t sst, size_t count, int pe); \
    SHUNT_HD void nvshmem_##N##_put_signal(T *target, const T *source, size_t count, uint64_t *word, uint64_t value, \
                                  int op, int pe);                                                               \
    SHUNT_HD void nvshmem_##N##_put_signal_nbi(T *target, const T *source, size_t count, uint64_t *word,         \
                                        uint64_t value,                                                          \
                                      int op, int pe);

#define SHUNT_SIZED(N)                                                                                           \
    SHUNT_HD void nvshmem_put##N(void *target, const void *source, size_t count, int pe);                        \
    SHUNT_HD void nvshmem_get##N(void *target, const void *source, size_t count, int pe);                        \
    SHUNT_HD void nvshmem_put##N##_nbi(void *target, const void *source, size_t count, int pe);                  \
    SHUNT_HD void nvshmem_get##N##_nbi(void *target, const void *source, size_t count, int pe);                  \
    SHUNT_HD void nvshmem_iput##N(void *target, const void *source, ptrdiff_t dst, ptrdiff_t sst,                \
                                  size_t count, int pe);                                                         \
    SHUNT_HD void nvshmem_iget##N(void *target, const void *source, ptrdiff_t dst, ptrdiff_t sst,                \
                                  size_t count, int pe);                                                         \
    SHUNT_HD void nvshmem_put##N##_signal(void *target, const void *source, size_t count, uint64_t *word,        \
                                        uint64_t value,                                                          \
                                 int op, int pe);                                                                \
    SHUNT_HD void nvshmem_put##N##_signal_nbi(void *target, const void *source, size_t count, uint64_t *word,    \
                                     uint64_t value, int op, int pe);

#define SHUNT_STANDARD_AMO(N, T)                                                                                 \
    SHUNT_HD void nvshmem_##N##_atomic_inc(T *word, int pe);                                                     \
    SHUNT_HD T nvshmem_##N##_atomic_fetch_inc(T *word, int pe);                                                  \
    SHUNT_HD void nvshmem_##N##_atomic_add(T *word, T value, int pe);                                            \
    SHUNT_HD T nvshmem_##N##_atomic_fetch_add(T *word, T value, int pe);                                         \
    SHUNT_HD T nvshmem_##N##_atomic_compare_swap(T *word, T expect, T value, int pe);

#define SHUNT_EXTENDED_AMO(N, T)                                                                                 \
    SHUNT_HD T nvshmem_##N##_atomic_fetch(const T *word, int pe);                                                \
    SHUNT_HD void nvshmem_##N##_atomic_set(T *word, T value, int pe);                                            \
    SHUNT_HD T nvshmem_##N##_atomic_swap(T *word, T value, int pe);

#define SHUNT_BITWISE_AMO(N, T)                                                                                  \
    SHUNT_HD void nvshmem_##N##_atomic_and(T *word, T value, int pe);                                            \
    SHUNT_HD void nvshmem_##N##_atomic_or(T *word, T value, int pe);                                             \
    SHUNT_HD void nvshmem_##N##_atomic_xor(T *word, T value, int pe);                                            \
    SHUNT_HD T nvshmem_##N##_atomic_fetch_and(T *word, T value, int pe);                                         \
    SHUNT_HD T nvshmem_##N##_atomic_fetch_or(T *word, T value, int pe);                                          \
    SHUNT_HD T nvshmem_##N##_atomic_fetch_xor(T *word, T value, int pe);

#define SHUNT_WAIT(N, T)                                                                                         \
    SHUNT_HD void nvshmem_##N##_wait_until(T *word, int compare, T value);                                       \
    SHUNT_HD void nvshmem_##N##_wait_until_all(T *words, size_t count, const int *left_out, int compare, T value); \
    SHUNT_HD size_t nvshmem_##N##_wait_until_any(T *words, size_t count, const int *left_out, int compare, T value); \
    SHUNT_HD size_t nvshmem_##N##_wait_until_some(T *words, size_t count, size_t *which, const int *left_out,    \
                                         int compare, T value);                                                  \
    SHUNT_HD void nvshmem_##N##_wait_until_all_vector(T *words, size_t count, const int *left_out, int compare,  \
                                             T *values);                                                         \
    SHUNT_HD size_t nvshmem_##N##_wait_until_any_vector(T *words, size_t count, const int *left_out, int compare, \
                                               T *values);                                                       \
    SHUNT_HD size_t nvshmem_##N##_wait_until_some_vector(T *words, size_t count, size_t *which, const int *left_out, \
                                                int compare, T *values);                                         \
    SHUNT_HD int nvshmem_##N##_test(T *word, int compare, T value);                                              \
    SHUNT_HD int nvshmem_##N##_test_all(T *words, size_t count, const int *left_out, int compare, T value);      \
    SHUNT_HD size_t nvshmem_##N##_test_any(T *words, size_t count, const int *left_out, int compare, T value);   \
    SHUNT_HD size_t nvshmem_##N##_test_some(T *words, size_t count, size_t *which, const int *left_out, int compare, \
                                   T value);                                                                     \
    SHUNT_HD int nvshmem_##N##_test_all_vector(T *words, size_t count, const int *left_out, int compare, T *values); \
    SHUNT_HD size_t nvshmem_##N##_test_any_vector(T *words, size_t count, const int *left_out, int compare,      \
                                        T *values);                                                              \
    SHUNT_HD size_t nvshmem_##N##_test_some_vector(T *words, size_t count, size_t *which, const int *left_out,   \
                                          int compare, T *values);

#define SHUNT_COLLECTIVE(N, T)                                                                                   \
    SHUNT_HD int nvshmem_##N##_broadcast(nvshmem_team_t team, T *target, const T *source, size_t count, int root); \
    SHUNT_HD int nvshmem_##N##_fcollect(nvshmem_team_t team, T *target, const T *source, size_t count);          \
    SHUNT_HD int nvshmem_##N##_alltoall(nvshmem_team_t team, T *target, const T *source, size_t count);

#define SHUNT_ONE_REDUCE(N, T, OP)                                                                               \
    SHUNT_HD int nvshmem_##N##_##OP##_reduce(nvshmem_team_t team, T *target, const T *source, size_t count);     \
    SHUNT_HD int nvshmem_##N##_##OP##_reducescatter(nvshmem_team_t team, T *target, const T *source, size_t count);
#define SHUNT_BITWISE_REDUCE(N, T) SHUNT_ONE_REDUCE(N, T, and) SHUNT_ONE_REDUCE(N, T, or) SHUNT_ONE_REDUCE(N, T, xor)
#define SHUNT_REDUCE(N, T)                                                                                       \
    SHUNT_ONE_REDUCE(N, T, min) SHUNT_ONE_REDUCE(N, T, max) SHUNT_ONE_REDUCE(N, T, sum) SHUNT_ONE_REDUCE(N, T, prod)

/* The same on a stream. */
#define SHUNT_RMA_ON_STREAM(N, T)                                                                                \
    void nvshmemx_##N##_p_on_stream(T *target, T value, int pe, cudaStream_t stream);                            \
    T nvshmemx_##N##_g_on_stream(const T *source, int pe, cudaStream_t stream);                                  \
    void nvshmemx_##N##_put_on_stream(T *target, const T *source, size_t count, int pe, cudaStream_t stream);    \
    void nvshmemx_##N##_get_on_stream(T *target, const T *source, size_t count, int pe, cudaStream_t stream);    \
    void nvshmemx_##N##_put_nbi_on_stream(T *target, const T *source, size_t count, int pe,                      \
                                          cudaStream_t stream);                                                  \
    void nvshmemx_##N##_get_nbi_on_stream(T *target, const T *source, size_t count, int pe,                      \
                                          cudaStream_t stream);                                                  \
    void nvshmemx_##N##_iput_on_stream(T *target, const T *source, ptrdiff_t dst, ptrdiff_t sst, size_t count,   \
                                       int pe, cudaStream_t stream);                                             \
    void nvshmemx_##N##_iget_on_stream(T *target, const T *source, ptrdiff_t dst, ptrdiff_t sst, size_t count,   \
                                       int pe, cudaStream_t stream);                                             \
    void nvshmemx_##N##_put_signal_on_stream(T *target, const T *source, size_t count, uint64_t *word,           \
                                             uint64_t value, int op, int pe, cudaStream_t stream);               \
    void nvshmemx_##N##_put_signal_nbi_on_stream(T *target, const T *source, size_t count, uint64_t *word,       \
                                                 uint64_t value, int op, int pe, cudaStream_t stream);

#define SHUNT_SIZED_ON_STREAM(N)                                                                                 \
    void nvshmemx_put##N##_on_stream(void *target, const void *source, size_t count, int pe,                     \
                                     cudaStream_t stream);                                                       \
    void nvshmemx_get##N##_on_stream(void *target, const void *source, size_t count, int pe,                     \
                                     cudaStream_t stream);                                                       \
    void nvshmemx_put##N##_nbi_on_stream(void *target, const void *source, size_t count, int pe,                 \
                                         cudaStream_t stream);                                                   \
    void nvshmemx_get##N##_nbi_on_stream(void *target, const void *source, size_t count, int pe,                 \
                                         cudaStream_t stream);                                                   \
    void nvshmemx_iput##N##_on_stream(void *target, const void *source, ptrdiff_t dst, ptrdiff_t sst,            \
                                      size_t count, int pe, cudaStream_t stream);                                \
    void nvshmemx_iget##N##_on_stream(void *target, const void *source, ptrdiff_t dst, ptrdiff_t sst,            \
                                      size_t count, int pe, cudaStream_t stream);                                \
    void nvshmemx_put##N##_signal_on_stream(void *target, const void *source, size_t count, uint64_t *word,      \
                                            uint64_t value, int op, int pe, cudaStream_t stream);                \
    void nvshmemx_put##N##_signal_nbi_on_stream(void *target, const void *source, size_t count, uint64_t *word,  \
                                                uint64_t value, int op, int pe, cudaStream_t stream);

#define SHUNT_WAIT_ON_STREAM(N, T)                                                                               \
    void nvshmemx_##N##_wait_until_on_stream(T *word, int compare, T value, cudaStream_t stream);                \
    void nvshmemx_##N##_wait_until_all_on_stream(T *words, size_t count, const int *left_out, int compare,       \
                                                 T value, cudaStream_t stream);                                  \
    void nvshmemx_##N##_wait_until_all_vector_on_stream(T *words, size_t count, const int *left_out,             \
                                                        int compare, T *values, cudaStream_t stream);

#define SHUNT_COLLECTIVE_ON_STREAM(N, T)                                                                         \
    int nvshmemx_##N##_broadcast_on_stream(nvshmem_team_t team, T *target, const T *source, size_t count,        \
                                           int root, cudaStream_t stream);                                       \
    int nvshmemx_##N##_fcollect_on_stream(nvshmem_team_t team, T *target, const T *source, size_t count,         \
                                          cudaStream_t stream);                                                  \
    int nvshmemx_##N##_alltoall_on_stream(nvshmem_team_t team, T *target, const T *source, size_t count,         \
                                          cudaStream_t stream);

#define SHUNT_ONE_REDUCE_ON_STREAM(N, T, OP)                                                                     \
    int nvshmemx_##N##_##OP##_reduce_on_stream(nvshmem_team_t team, T *target, const T *source, size_t count,    \
                                               cudaStream_t stream);                                             \
    int nvshmemx_##N##_##OP##_reducescatter_on_stream(nvshmem_team_t team, T *target, const T *source,           \
                                                      size_t count, cudaStream_t stream);
#define SHUNT_BITWISE_REDUCE_ON_STREAM(N, T)                                                                     \
    SHUNT_ONE_REDUCE_ON_STREAM(N, T, and) SHUNT_ONE_REDUCE_ON_STREAM(N, T, or) SHUNT_ONE_REDUCE_ON_STREAM(N, T, xor)
#define SHUNT_REDUCE_ON_STREAM(N, T)                                                                             \
    SHUNT_ONE_REDUCE_ON_STREAM(N, T, min) SHUNT_ONE_REDUCE_ON_STREAM(N, T, max)                                  \
    SHUNT_ONE_REDUCE_ON_STREAM(N, T, sum) SHUNT_ONE_REDUCE_ON_STREAM(N, T, prod)

#endif
