/* Puts and gets, of all types and sizes, from the symmetric heap and from memory of the program's own. */
#include "suite.h"

enum { COUNT = 33 };

static unsigned char *target, *source, *own[2];

static void begin(void) {
    if (target) return;
    target = nvshmem_malloc(1 << 20);
    source = nvshmem_malloc(1 << 20);
    own[0] = malloc(1 << 20);
    own[1] = malloc(1 << 20);
}

/* What the PE before gave lies in the target. */
static void arrived(size_t bytes, int round, const char *type) {
    nvshmem_barrier_all();
    pattern(own[1], bytes, BEFORE, round);
    CHECK(!memcmp(target, own[1], bytes), type);
    fold(target, bytes);
    memset(target, 0xee, bytes);
    nvshmem_barrier_all();
}

/* What was got is what the next PE gives. */
static void got(const void *where, size_t bytes, int round, const char *type) {
    pattern(own[1], bytes, NEXT, round);
    CHECK(!memcmp(where, own[1], bytes), type);
    fold(where, bytes);
}

#define RMA(N, T)                                                                  \
    static void rma_##N(int round) {                                               \
        size_t bytes = COUNT * sizeof(T);                                          \
        pattern(source, bytes, me, round);                                         \
        pattern(own[0], bytes, me, round);                                         \
        nvshmem_##N##_put((T *)target, (T *)source, COUNT, NEXT);                  \
        arrived(bytes, round, #N " put");                                          \
        nvshmem_##N##_put_nbi((T *)target, (T *)own[0], COUNT, NEXT);              \
        arrived(bytes, round, #N " put_nbi");                                      \
        nvshmem_##N##_get((T *)own[0], (T *)source, COUNT, NEXT);                  \
        got(own[0], bytes, round, #N " get");                                      \
        nvshmem_##N##_get_nbi((T *)target, (T *)source, COUNT, NEXT);              \
        nvshmem_quiet();                                                           \
        got(target, bytes, round, #N " get_nbi");                                  \
        nvshmem_barrier_all();                                                     \
        T one;                                                                     \
        memcpy(&one, source, sizeof one);                                          \
        nvshmem_##N##_p((T *)target, one, NEXT);                                   \
        arrived(sizeof one, round, #N " p");                                       \
        one = nvshmem_##N##_g((T *)source, NEXT);                                  \
        got(&one, sizeof one, round, #N " g");                                     \
        nvshmem_barrier_all();                                                     \
        step();                                                                    \
    }
SHUNT_RMA_TYPES(RMA)

#define SIZED(BITS)                                                                \
    static void sized_##BITS(int round) {                                          \
        size_t bytes = COUNT * BITS / 8;                                           \
        pattern(source, bytes, me, round);                                         \
        nvshmem_put##BITS(target, source, COUNT, NEXT);                            \
        arrived(bytes, round, "put" #BITS);                                        \
        nvshmem_put##BITS##_nbi(target, source, COUNT, NEXT);                      \
        arrived(bytes, round, "put" #BITS "_nbi");                                 \
        nvshmem_get##BITS(own[0], source, COUNT, NEXT);                            \
        got(own[0], bytes, round, "get" #BITS);                                    \
        nvshmem_get##BITS##_nbi(target, source, COUNT, NEXT);                      \
        nvshmem_quiet();                                                           \
        got(target, bytes, round, "get" #BITS "_nbi");                             \
        nvshmem_barrier_all();                                                     \
        step();                                                                    \
    }
SHUNT_SIZES(SIZED)

/* Lengths around the blocks that memory outside the heap goes through. */
static void lengths(int round) {
    static const size_t LENGTHS[] = {0, 1, 7, 4096, 262143, 262144, 262145, 700001};
    for (size_t i = 0; i < sizeof LENGTHS / sizeof *LENGTHS; i++) {
        size_t bytes = LENGTHS[i];
        pattern(source, bytes, me, round);
        pattern(own[0], bytes, me, round);
        nvshmem_putmem(target, own[0], bytes, NEXT);
        arrived(bytes, round, "putmem");
        nvshmem_putmem_nbi(target, source, bytes, NEXT);
        arrived(bytes, round, "putmem_nbi");
        nvshmem_getmem(own[0], source, bytes, NEXT);
        got(own[0], bytes, round, "getmem");
        nvshmem_getmem_nbi(own[0], source, bytes, NEXT);
        nvshmem_quiet();
        got(own[0], bytes, round, "getmem_nbi");
        nvshmem_barrier_all();
        step();
    }
}

void families_rma(void) {
    begin();
    int round = 0;
#define CALL(N, T) rma_##N(round++);
    SHUNT_RMA_TYPES(CALL)
#define CALL_SIZED(BITS) sized_##BITS(round++);
    SHUNT_SIZES(CALL_SIZED)
    lengths(round);
}

/* Every third element there from every second here, and backwards. */
#define STRIDED(N, T)                                                                          \
    static void strided_##N(int round) {                                                       \
        T *to = (T *)target, *from = (T *)source, expect;                                      \
        pattern(source, 2 * COUNT * sizeof(T), me, round);                                     \
        nvshmem_##N##_iput(to, from, 3, 2, COUNT, NEXT);                                       \
        nvshmem_barrier_all();                                                                 \
        pattern(own[0], 2 * COUNT * sizeof(T), BEFORE, round);                                 \
        for (int i = 0; i < COUNT; i++) {                                                      \
            memcpy(&expect, own[0] + 2 * i * sizeof(T), sizeof(T));                            \
            CHECK(!memcmp(&to[3 * i], &expect, sizeof(T)), #N " iput");                        \
            fold(&to[3 * i], sizeof(T));                                                       \
        }                                                                                      \
        pattern(own[0], 2 * COUNT * sizeof(T), NEXT, round);                                   \
        nvshmem_##N##_iget((T *)own[1] + COUNT - 1, from, -1, 2, COUNT, NEXT);                 \
        for (int i = 0; i < COUNT; i++) {                                                      \
            memcpy(&expect, own[0] + 2 * i * sizeof(T), sizeof(T));                            \
            CHECK(!memcmp((T *)own[1] + COUNT - 1 - i, &expect, sizeof(T)), #N " iget");       \
        }                                                                                      \
        fold(own[1], COUNT * sizeof(T));                                                       \
        nvshmem_barrier_all();                                                                 \
        step();                                                                                \
    }
SHUNT_RMA_TYPES(STRIDED)

#define STRIDED_SIZE(BITS)                                                                     \
    static void strided_size_##BITS(int round) {                                               \
        enum { BYTES = BITS / 8 };                                                             \
        pattern(source, 2 * COUNT * BYTES, me, round);                                         \
        nvshmem_iput##BITS(target, source, 1, 2, COUNT, NEXT);                                 \
        nvshmem_barrier_all();                                                                 \
        pattern(own[0], 2 * COUNT * BYTES, BEFORE, round);                                     \
        for (int i = 0; i < COUNT; i++) {                                                      \
            CHECK(!memcmp(target + i * BYTES, own[0] + 2 * i * BYTES, BYTES), "iput" #BITS);   \
        }                                                                                      \
        fold(target, COUNT * BYTES);                                                           \
        nvshmem_iget##BITS(own[1], source, 1, 2, COUNT, NEXT);                                 \
        pattern(own[0], 2 * COUNT * BYTES, NEXT, round);                                       \
        for (int i = 0; i < COUNT; i++) {                                                      \
            CHECK(!memcmp(own[1] + i * BYTES, own[0] + 2 * i * BYTES, BYTES), "iget" #BITS);   \
        }                                                                                      \
        fold(own[1], COUNT * BYTES);                                                           \
        nvshmem_barrier_all();                                                                 \
        step();                                                                                \
    }
SHUNT_SIZES(STRIDED_SIZE)

void families_strided(void) {
    begin();
    int round = 100;
#define CALL_STRIDED(N, T) strided_##N(round++);
    SHUNT_RMA_TYPES(CALL_STRIDED)
#define CALL_STRIDED_SIZE(BITS) strided_size_##BITS(round++);
    SHUNT_SIZES(CALL_STRIDED_SIZE)
}
