/* Calls on the null stream do what those without a stream do. */
#include "suite.h"

enum { COUNT = 9 };

static unsigned char *target, *source, *expect;
static uint64_t *word;

#define STREAM(N, T)                                                                                              \
    static void stream_##N(int round) {                                                                           \
        size_t bytes = COUNT * sizeof(T);                                                                         \
        pattern(source, bytes, me, round);                                                                        \
        nvshmemx_##N##_put_on_stream((T *)target, (T *)source, COUNT, NEXT, NULL);                                \
        nvshmemx_barrier_all_on_stream(NULL);                                                                     \
        pattern(expect, bytes, BEFORE, round);                                                                    \
        CHECK(!memcmp(target, expect, bytes), #N " put_on_stream");                                               \
        nvshmemx_sync_all_on_stream(NULL);                                                                        \
        nvshmemx_##N##_put_nbi_on_stream((T *)target + COUNT, (T *)source, COUNT, NEXT, NULL);                    \
        nvshmemx_##N##_iput_on_stream((T *)target + 2 * COUNT, (T *)source, 1, 1, COUNT, NEXT, NULL);             \
        nvshmemx_##N##_put_signal_on_stream((T *)target, (T *)source, COUNT, word, 1, NVSHMEM_SIGNAL_ADD, NEXT, NULL); \
        nvshmemx_signal_wait_until_on_stream(word, NVSHMEM_CMP_GE, (uint64_t)(2 * round + 1), NULL);              \
        CHECK(!memcmp(target, expect, bytes), #N " put_signal_on_stream");                                        \
        CHECK(!memcmp((T *)target + 2 * COUNT, expect, bytes), #N " iput_on_stream");                             \
        nvshmemx_##N##_put_signal_nbi_on_stream((T *)target, (T *)source, COUNT, word, 1, NVSHMEM_SIGNAL_ADD, NEXT, NULL); \
        nvshmemx_uint64_wait_until_on_stream(word, NVSHMEM_CMP_EQ, (uint64_t)(2 * round + 2), NULL);              \
        nvshmemx_quiet_on_stream(NULL);                                                                           \
        nvshmemx_barrier_on_stream(NVSHMEM_TEAM_WORLD, NULL);                                                     \
        CHECK(!memcmp((T *)target + COUNT, expect, bytes), #N " put_nbi_on_stream");                              \
        pattern(expect, bytes, NEXT, round);                                                                      \
        nvshmemx_##N##_get_on_stream((T *)target, (T *)source, COUNT, NEXT, NULL);                                \
        CHECK(!memcmp(target, expect, bytes), #N " get_on_stream");                                               \
        memset(target, 0, bytes);                                                                                 \
        nvshmemx_##N##_get_nbi_on_stream((T *)target, (T *)source, COUNT, NEXT, NULL);                            \
        nvshmemx_flush_on_stream(NULL);                                                                           \
        CHECK(!memcmp(target, expect, bytes), #N " get_nbi_on_stream");                                           \
        memset(target, 0, bytes);                                                                                 \
        nvshmemx_##N##_iget_on_stream((T *)target, (T *)source, 1, 1, COUNT, NEXT, NULL);                         \
        CHECK(!memcmp(target, expect, bytes), #N " iget_on_stream");                                              \
        T one = nvshmemx_##N##_g_on_stream((T *)source, NEXT, NULL);                                              \
        CHECK(!memcmp(&one, expect, sizeof one), #N " g_on_stream");                                              \
        nvshmemx_##N##_p_on_stream((T *)source + COUNT, one, NEXT, NULL);                                         \
        nvshmemx_team_sync_on_stream(NVSHMEM_TEAM_WORLD, NULL);                                                   \
        CHECK(nvshmemx_##N##_broadcast_on_stream(NVSHMEM_TEAM_WORLD, (T *)target, (T *)source, COUNT, 0, NULL) == 0, #N); \
        pattern(expect, bytes, 0, round);                                                                         \
        CHECK(!memcmp(target, expect, bytes), #N " broadcast_on_stream");                                         \
        nvshmemx_barrier_all_on_stream(NULL);                                                                     \
        CHECK(nvshmemx_##N##_fcollect_on_stream(NVSHMEM_TEAM_WORLD, (T *)target, (T *)source, 1, NULL) == 0, #N);  \
        CHECK(!memcmp(target, expect, sizeof(T)), #N " fcollect_on_stream");                                      \
        fold(target, sizeof(T) * (size_t)pes);                                                                    \
        nvshmemx_barrier_all_on_stream(NULL);                                                                     \
        CHECK(nvshmemx_##N##_alltoall_on_stream(NVSHMEM_TEAM_WORLD, (T *)target, (T *)source, 1, NULL) == 0, #N);  \
        fold(target, sizeof(T) * (size_t)pes);                                                                    \
        nvshmemx_barrier_all_on_stream(NULL);                                                                     \
        step();                                                                                                   \
    }
SHUNT_RMA_TYPES(STREAM)

#define SUMS(N, T)                                                                                                \
    static void sums_##N(void) {                                                                                  \
        T *to = (T *)target, *from = (T *)source, all = of_##N(pes);                                              \
        for (int i = 0; i < 8; i++) from[i] = of_##N(1);                                                          \
        CHECK(nvshmemx_##N##_sum_reduce_on_stream(NVSHMEM_TEAM_WORLD, to, from, 1, NULL) == 0, #N);               \
        CHECK(!memcmp(to, &all, sizeof all), #N " sum_reduce_on_stream");                                         \
        CHECK(nvshmemx_##N##_sum_reducescatter_on_stream(NVSHMEM_TEAM_WORLD, to + 1, from, 1, NULL) == 0, #N);    \
        CHECK(!memcmp(to + 1, &all, sizeof all), #N " sum_reducescatter_on_stream");                              \
        nvshmemx_barrier_all_on_stream(NULL);                                                                     \
        step();                                                                                                   \
    }
SHUNT_REDUCE_TYPES(SUMS)

#define WAITS(N, T)                                                                                               \
    static void waits_##N(void) {                                                                                 \
        T *at = (T *)target, values[2] = {1, 2};                                                                  \
        nvshmemx_barrier_all_on_stream(NULL);                                                                     \
        at[0] = at[1] = 0;                                                                                        \
        nvshmemx_barrier_all_on_stream(NULL);                                                                     \
        nvshmemx_##N##_p_on_stream(at, 1, NEXT, NULL);                                                            \
        nvshmemx_##N##_p_on_stream(at + 1, 2, NEXT, NULL);                                                        \
        nvshmemx_##N##_wait_until_on_stream(at + 1, NVSHMEM_CMP_NE, 0, NULL);                                     \
        CHECK(at[0] == 1, #N " order");                                                                           \
        nvshmemx_##N##_wait_until_all_on_stream(at, 2, NULL, NVSHMEM_CMP_GT, 0, NULL);                            \
        nvshmemx_##N##_wait_until_all_vector_on_stream(at, 2, NULL, NVSHMEM_CMP_EQ, values, NULL);                \
        step();                                                                                                   \
    }
SHUNT_WAIT_TYPES(WAITS)

/* A stream that CUDA might have made is refused: nothing here could be ordered behind it. */
static void refused(void) {
    static char any;
    shunt_nvshmem_on_error(shunt_nvshmem_keep_error, NULL);
    nvshmemx_quiet_on_stream((cudaStream_t)(void *)&any);
    CHECK(shunt_nvshmem_last_error(NULL) == SHUNT_NVSHMEM_USAGE, "stream");
    shunt_nvshmem_on_error(NULL, NULL);
}

void families_stream(void) {
    target = nvshmem_malloc(4096);
    source = nvshmem_malloc(4096);
    expect = malloc(4096);
    word = nvshmem_calloc(1, sizeof *word);
    int round = 0;
#define CALL(N, T) stream_##N(round++);
    SHUNT_RMA_TYPES(CALL)
#define CALL_SUMS(N, T) sums_##N();
    SHUNT_REDUCE_TYPES(CALL_SUMS)
#define CALL_WAITS(N, T) waits_##N();
    SHUNT_WAIT_TYPES(CALL_WAITS)
    refused();
    nvshmem_barrier_all();
    free(expect);
    nvshmem_free(word);
    nvshmem_free(source);
    nvshmem_free(target);
}
