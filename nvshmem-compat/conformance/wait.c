/* Waits for words and tests of them, of all types: the next PE writes, this one waits. */
#include "suite.h"

enum { WORDS = 6 };

static void *words(size_t bytes) {
    static unsigned char *words;
    if (!words) words = nvshmem_malloc(WORDS * 8);
    nvshmem_barrier_all();
    memset(words, 0, bytes);
    nvshmem_barrier_all();
    return words;
}

#define WAIT(N, T)                                                                                       \
    static void wait_##N(void) {                                                                         \
        T *at = words(WORDS * sizeof(T)), values[WORDS] = {1, 2, 3, 4, 5, 6};                            \
        int out[WORDS] = {0, 1, 0, 0, 1, 0};                                                             \
        size_t which[WORDS], count;                                                                      \
        CHECK(!nvshmem_##N##_test(at, NVSHMEM_CMP_NE, 0), #N " test");                                   \
        CHECK(nvshmem_##N##_test_any(at, WORDS, out, NVSHMEM_CMP_GT, 0) == SIZE_MAX, #N " test_any");    \
        CHECK(nvshmem_##N##_test_some(at, WORDS, which, out, NVSHMEM_CMP_GT, 0) == 0, #N " test_some");  \
        nvshmem_barrier_all();                                                                           \
        nvshmem_##N##_p(at + 3, 4, NEXT);                                                                \
        CHECK(nvshmem_##N##_wait_until_any(at, WORDS, out, NVSHMEM_CMP_EQ, 4) == 3, #N " any");          \
        count = nvshmem_##N##_wait_until_some(at, WORDS, which, NULL, NVSHMEM_CMP_GT, 0);                \
        CHECK(count == 1 && which[0] == 3, #N " some");                                                  \
        CHECK(nvshmem_##N##_test_any_vector(at, WORDS, out, NVSHMEM_CMP_EQ, values) == 3, #N " vector"); \
        nvshmem_barrier_all();                                                                           \
        for (int i = 0; i < WORDS; i++) {                                                                \
            if (!out[i]) nvshmem_##N##_p(at + i, (T)(i + 1), NEXT);                                      \
        }                                                                                                \
        nvshmem_##N##_wait_until_all(at, WORDS, out, NVSHMEM_CMP_GE, 1);                                 \
        nvshmem_##N##_wait_until_all_vector(at, WORDS, out, NVSHMEM_CMP_EQ, values);                     \
        CHECK(nvshmem_##N##_test_all(at, WORDS, out, NVSHMEM_CMP_LE, 6), #N " test_all");                \
        CHECK(!nvshmem_##N##_test_all(at, WORDS, NULL, NVSHMEM_CMP_GT, 0), #N " test_all");              \
        CHECK(nvshmem_##N##_test_all_vector(at, WORDS, out, NVSHMEM_CMP_EQ, values), #N " all_vector");  \
        count = nvshmem_##N##_test_some_vector(at, WORDS, which, NULL, NVSHMEM_CMP_EQ, values);          \
        CHECK(count == 4 && which[1] == 2 && which[3] == 5, #N " test_some_vector");                     \
        CHECK(nvshmem_##N##_wait_until_any_vector(at, WORDS, out, NVSHMEM_CMP_EQ, values) == 0, #N);     \
        count = nvshmem_##N##_wait_until_some_vector(at, WORDS, which, out, NVSHMEM_CMP_GE, values);     \
        CHECK(count == 4 && which[3] == 5, #N " some_vector");                                           \
        fold(at, WORDS * sizeof(T));                                                                     \
        step();                                                                                          \
    }
SHUNT_WAIT_TYPES(WAIT)

void families_wait(void) {
#define CALL(N, T) wait_##N();
    SHUNT_WAIT_TYPES(CALL)
    /* Signs count. */
    int *word = words(sizeof(int));
    nvshmem_int_p(word, -5, NEXT);
    nvshmem_int_wait_until(word, NVSHMEM_CMP_LT, 0);
    CHECK(nvshmem_int_test(word, NVSHMEM_CMP_LE, -5) && !nvshmem_uint_test((unsigned *)word, NVSHMEM_CMP_LT, 5), "sign");
    nvshmem_barrier_all();
}
