/* Atomics on words of the last PE: all others at once, or that PE alone where there is no other. */
#include "suite.h"

enum { ROUNDS = 8 };

/* PEs that change words, and what this one is among them; -1: the owner, who does not while others do. */
static int writers, writer;
#define OWNER (pes - 1)

static void begin(void) {
    writers = pes > 1 ? pes - 1 : 1;
    writer = pes > 1 && me == OWNER ? -1 : me;
}

static void *word(void) {
    static uint64_t *word;
    if (!word) word = nvshmem_malloc(64);
    nvshmem_barrier_all();
    *word = 0;
    nvshmem_barrier_all();
    return word;
}

#define STANDARD(N, T)                                                                                       \
    static void standard_##N(void) {                                                                         \
        T *at = word(), sum = 0;                                                                             \
        for (int i = 0; i < ROUNDS && writer >= 0; i++) {                                                    \
            nvshmem_##N##_atomic_inc(at, OWNER);                                                             \
            nvshmem_##N##_atomic_add(at, 3, OWNER);                                                          \
            T before = nvshmem_##N##_atomic_fetch_inc(at, OWNER);                                            \
            T after = nvshmem_##N##_atomic_fetch_add(at, 2, OWNER);                                          \
            CHECK(after > before, #N " fetch");                                                              \
        }                                                                                                    \
        nvshmem_barrier_all();                                                                               \
        if (me == OWNER) CHECK(*at == (T)(7 * ROUNDS * writers), #N " inc, add");                            \
        sum = nvshmem_##N##_g(at, OWNER);                                                                    \
        fold(&sum, sizeof sum);                                                                              \
        at = word();                                                                                         \
        for (int i = 0; i < ROUNDS && writer >= 0; i++) {                                                    \
            T seen = nvshmem_##N##_g(at, OWNER), met;                                                        \
            while ((met = nvshmem_##N##_atomic_compare_swap(at, seen, seen + 1, OWNER)) != seen) seen = met; \
        }                                                                                                    \
        nvshmem_barrier_all();                                                                               \
        CHECK(nvshmem_##N##_g(at, OWNER) == (T)(ROUNDS * writers), #N " compare_swap");                      \
        step();                                                                                              \
    }
SHUNT_STANDARD_AMO_TYPES(STANDARD)

#define EXTENDED(N, T)                                                                                       \
    static void extended_##N(void) {                                                                         \
        T *at = word();                                                                                      \
        if (writer == 0) {                                                                                   \
            nvshmem_##N##_atomic_set(at, (T)5, OWNER);                                                       \
            CHECK(nvshmem_##N##_atomic_swap(at, (T)9, OWNER) == (T)5, #N " set, swap");                      \
            CHECK(nvshmem_##N##_atomic_fetch(at, OWNER) == (T)9, #N " fetch");                               \
        }                                                                                                    \
        nvshmem_barrier_all();                                                                               \
        T met = nvshmem_##N##_atomic_fetch(at, OWNER);                                                       \
        CHECK(met == (T)9, #N " swap");                                                                      \
        fold(&met, sizeof met);                                                                              \
        step();                                                                                              \
    }
SHUNT_EXTENDED_AMO_TYPES(EXTENDED)

/* Each writer has a bit of its own. */
#define BITWISE(N, T)                                                                                        \
    static void bitwise_##N(void) {                                                                          \
        T *at = word(), bit = writer < 0 ? 0 : (T)1 << writer, other = writer < 0 ? 0 : (T)256 << writer;    \
        if (writer >= 0) {                                                                                   \
            nvshmem_##N##_atomic_or(at, bit, OWNER);                                                         \
            CHECK((nvshmem_##N##_atomic_fetch_or(at, other, OWNER) & (bit | other)) == bit, #N " or");       \
            CHECK((nvshmem_##N##_atomic_fetch_xor(at, bit, OWNER) & bit) == bit, #N " xor");                 \
            nvshmem_##N##_atomic_xor(at, bit, OWNER);                                                        \
            CHECK((nvshmem_##N##_atomic_fetch_and(at, ~bit, OWNER) & bit) == bit, #N " and");                \
            CHECK((nvshmem_##N##_atomic_fetch(at, OWNER) & (bit | other)) == other, #N " left");             \
        }                                                                                                    \
        nvshmem_barrier_all();                                                                               \
        T all = nvshmem_##N##_g(at, OWNER);                                                                  \
        CHECK(all == (T)(((1 << writers) - 1) << 8), #N " bits");                                            \
        nvshmem_barrier_all();                                                                               \
        if (writer >= 0) nvshmem_##N##_atomic_and(at, ~other, OWNER);                                        \
        nvshmem_barrier_all();                                                                               \
        CHECK(nvshmem_##N##_g(at, OWNER) == 0, #N " and");                                                   \
        fold(&all, sizeof all);                                                                              \
        step();                                                                                              \
    }
SHUNT_BITWISE_AMO_TYPES(BITWISE)

/* Numbers that NICs do not add; halves next to each other. */
static void numbers(void) {
    float *f = word();
    if (writer >= 0) nvshmemx_float_atomic_add(f, 0.5f, OWNER), nvshmemx_float_atomic_fetch_add(f, 1.0f, OWNER);
    nvshmem_barrier_all();
    CHECK(nvshmem_float_g(f, OWNER) == 1.5f * (float)writers, "float add");
    double *d = word();
    if (writer >= 0) nvshmemx_double_atomic_add(d, 0.25, OWNER), nvshmemx_double_atomic_fetch_add(d, 1.0, OWNER);
    nvshmem_barrier_all();
    CHECK(nvshmem_double_g(d, OWNER) == 1.25 * writers, "double add");
    shunt_half *h = word(), sum, expect[2] = {of_half(3 * writers), of_half(2 * writers)};
    if (writer >= 0) {
        nvshmemx_half_atomic_add(h, of_half(3), OWNER);
        nvshmemx_half_atomic_fetch_add(h + 1, of_half(2), OWNER);
    }
    nvshmem_barrier_all();
    for (int i = 0; i < 2; i++) {
        sum = nvshmem_half_g(h + i, OWNER);
        CHECK(!memcmp(&sum, &expect[i], sizeof sum), "half add");
        fold(&sum, sizeof sum);
    }
    step();
}

void families_amo(void) {
    begin();
#define CALL_STANDARD(N, T) standard_##N();
    SHUNT_STANDARD_AMO_TYPES(CALL_STANDARD)
#define CALL_EXTENDED(N, T) extended_##N();
    SHUNT_EXTENDED_AMO_TYPES(CALL_EXTENDED)
#define CALL_BITWISE(N, T) bitwise_##N();
    SHUNT_BITWISE_AMO_TYPES(CALL_BITWISE)
    numbers();
}

/* Put with signal: who sees the signal sees the data. */
static uint64_t *words;
static unsigned char *data, *give;
enum { BYTES = 3000 };

static void sent(int round, uint64_t value, const char *type) {
    CHECK(nvshmem_signal_wait_until(&words[0], NVSHMEM_CMP_GE, value) >= value, type);
    unsigned char expect[BYTES];
    pattern(expect, BYTES, BEFORE, round);
    CHECK(!memcmp(data, expect, BYTES), type);
    fold(data, BYTES);
    /* The one before may write again. */
    nvshmemx_signal_op(&words[1], (uint64_t)round, NVSHMEM_SIGNAL_SET, BEFORE);
    nvshmem_uint64_wait_until(&words[1], NVSHMEM_CMP_EQ, (uint64_t)round);
    step();
}

void families_signal(void) {
    words = nvshmem_calloc(2, 8);
    data = nvshmem_malloc(BYTES);
    give = nvshmem_malloc(BYTES);
    int round = 1;
    uint64_t value = 1;
#define SIGNALLED(N, T)                                                                                     \
    pattern(give, BYTES, me, round);                                                                        \
    nvshmem_##N##_put_signal((T *)data, (T *)give, BYTES / sizeof(T), words, value, NVSHMEM_SIGNAL_SET, NEXT); \
    sent(round++, value++, #N " put_signal");                                                               \
    pattern(give, BYTES, me, round);                                                                        \
    nvshmem_##N##_put_signal_nbi((T *)data, (T *)give, BYTES / sizeof(T), words, 1, NVSHMEM_SIGNAL_ADD, NEXT); \
    sent(round++, value++, #N " put_signal_nbi");
    SHUNT_RMA_TYPES(SIGNALLED)
#define SIGNALLED_SIZE(BITS)                                                                                \
    pattern(give, BYTES, me, round);                                                                        \
    nvshmem_put##BITS##_signal(data, give, BYTES * 8 / BITS, words, value, NVSHMEM_SIGNAL_SET, NEXT);       \
    nvshmem_put##BITS##_signal_nbi(data, give, 0, words, 0, NVSHMEM_SIGNAL_ADD, NEXT);                      \
    if (BYTES % (BITS / 8)) nvshmem_putmem(data, give, BYTES, NEXT), nvshmem_barrier_all();                 \
    sent(round++, value++, "put" #BITS "_signal");
    SHUNT_SIZES(SIGNALLED_SIZE)
    pattern(give, BYTES, me, round);
    nvshmem_putmem_signal(data, give, BYTES, words, value, NVSHMEM_SIGNAL_SET, NEXT);
    sent(round++, value++, "putmem_signal");
    pattern(give, BYTES, me, round);
    nvshmem_putmem_signal_nbi(data, give, BYTES, words, 1, NVSHMEM_SIGNAL_ADD, NEXT);
    sent(round++, value++, "putmem_signal_nbi");
    uint64_t last = nvshmem_signal_fetch(words);
    CHECK(last == value - 1, "signal_fetch");
    fold(&last, sizeof last);
    nvshmem_barrier_all();
    nvshmem_free(give);
    nvshmem_free(data);
    nvshmem_free(words);
}
