/* Broadcast, fcollect, alltoall, reductions, of all types, in place and not. */
#include "suite.h"

enum { COUNT = 5, PES_MAX = 8 };

static unsigned char *target, *source, *kept;

static void begin(void) {
    if (target) return;
    target = nvshmem_malloc(1 << 21);
    source = nvshmem_malloc(1 << 21);
    kept = malloc(1 << 21);
}

/* Part `part` of what a PE gives. */
static void given(void *to, size_t bytes, int pe, int round, int part) {
    pattern(to, bytes, pe * 17 + part, round);
}

static void is(const void *at, size_t bytes, int pe, int round, int part, const char *type) {
    given(kept, bytes, pe, round, part);
    CHECK(!memcmp(at, kept, bytes), type);
    fold(at, bytes);
}

#define MOVE(N, T)                                                                                          \
    static void move_##N(int round, size_t count) {                                                         \
        size_t bytes = count * sizeof(T);                                                                   \
        int root = round % pes;                                                                             \
        nvshmem_barrier_all();                                                                              \
        given(source, bytes, me, round, 0);                                                                 \
        CHECK(nvshmem_##N##_broadcast(NVSHMEM_TEAM_WORLD, (T *)target, (T *)source, count, root) == 0, #N); \
        is(target, bytes, root, round, 0, #N " broadcast");                                                 \
        nvshmem_barrier_all();                                                                              \
        CHECK(nvshmem_##N##_fcollect(NVSHMEM_TEAM_WORLD, (T *)target, (T *)source, count) == 0, #N);        \
        for (int pe = 0; pe < pes; pe++) is(target + bytes * pe, bytes, pe, round, 0, #N " fcollect");      \
        nvshmem_barrier_all();                                                                              \
        for (int pe = 0; pe < pes; pe++) given(source + bytes * pe, bytes, me, round, pe);                  \
        CHECK(nvshmem_##N##_alltoall(NVSHMEM_TEAM_WORLD, (T *)target, (T *)source, count) == 0, #N);        \
        for (int pe = 0; pe < pes; pe++) is(target + bytes * pe, bytes, pe, round, me, #N " alltoall");     \
        step();                                                                                             \
    }
SHUNT_RMA_TYPES(MOVE)

void families_move(void) {
    begin();
    int round = 0;
#define CALL(N, T) move_##N(round++, COUNT);
    SHUNT_RMA_TYPES(CALL)
    move_uint8(round++, 100003);
    nvshmem_barrier_all();
    given(source, 77, me, round, 0);
    CHECK(nvshmem_broadcastmem(NVSHMEM_TEAM_WORLD, target, source, 77, 0) == 0, "broadcastmem");
    is(target, 77, 0, round, 0, "broadcastmem");
    nvshmem_barrier_all();
    CHECK(nvshmem_fcollectmem(NVSHMEM_TEAM_WORLD, target, source, 77) == 0, "fcollectmem");
    for (int pe = 0; pe < pes; pe++) is(target + 77 * pe, 77, pe, round, 0, "fcollectmem");
    nvshmem_barrier_all();
    for (int pe = 0; pe < pes; pe++) given(source + 77 * pe, 77, me, round, pe);
    CHECK(nvshmem_alltoallmem(NVSHMEM_TEAM_WORLD, target, source, 77) == 0, "alltoallmem");
    for (int pe = 0; pe < pes; pe++) is(target + 77 * pe, 77, pe, round, me, "alltoallmem");
    nvshmem_barrier_all();
}

/* What PE `pe` gives as element `at`: 1 to 3, so that the product of four fits every type. */
static int value(int pe, int at) {
    return 1 + (pe * 5 + at * 3) % 3;
}

static int expected(const char *op, int at) {
    int result = value(0, at);
    for (int pe = 1; pe < pes; pe++) {
        int next = value(pe, at);
        if (!strcmp(op, "min")) result = next < result ? next : result;
        if (!strcmp(op, "max")) result = next > result ? next : result;
        if (!strcmp(op, "sum")) result += next;
        if (!strcmp(op, "prod")) result *= next;
        if (!strcmp(op, "and")) result &= next;
        if (!strcmp(op, "or")) result |= next;
        if (!strcmp(op, "xor")) result ^= next;
    }
    return result;
}

/* Into another place; then in place; then a part for each. */
#define REDUCE(N, T, OP)                                                                                  \
    {                                                                                                     \
        T *to = (T *)target, *from = (T *)source, expect;                                                 \
        for (int at = 0; at < COUNT * PES_MAX; at++) from[at] = of_##N(value(me, at));                    \
        CHECK(nvshmem_##N##_##OP##_reduce(NVSHMEM_TEAM_WORLD, to, from, COUNT) == 0, #N " " #OP);         \
        for (int at = 0; at < COUNT; at++) {                                                              \
            expect = of_##N(expected(#OP, at));                                                           \
            CHECK(!memcmp(&to[at], &expect, sizeof expect), #N " " #OP "_reduce");                        \
        }                                                                                                 \
        fold(to, COUNT * sizeof(T));                                                                      \
        CHECK(nvshmem_##N##_##OP##_reducescatter(NVSHMEM_TEAM_WORLD, to, from, COUNT) == 0, #N " " #OP);  \
        for (int at = 0; at < COUNT; at++) {                                                              \
            expect = of_##N(expected(#OP, me * COUNT + at));                                              \
            CHECK(!memcmp(&to[at], &expect, sizeof expect), #N " " #OP "_reducescatter");                 \
        }                                                                                                 \
        fold(to, COUNT * sizeof(T));                                                                      \
        CHECK(nvshmem_##N##_##OP##_reduce(NVSHMEM_TEAM_WORLD, from, from, COUNT) == 0, #N " " #OP);       \
        expect = of_##N(expected(#OP, COUNT - 1));                                                        \
        CHECK(!memcmp(&from[COUNT - 1], &expect, sizeof expect), #N " " #OP "_reduce in place");          \
        step();                                                                                           \
    }
#define BITWISE(N, T) REDUCE(N, T, and) REDUCE(N, T, or) REDUCE(N, T, xor)
#define ARITHMETIC(N, T) REDUCE(N, T, min) REDUCE(N, T, max) REDUCE(N, T, sum) REDUCE(N, T, prod)
#define BITWISE_OF(N, T) static void bitwise_##N(void) BITWISE_BODY(N, T)
#define BITWISE_BODY(N, T) {BITWISE(N, T)}
#define ARITHMETIC_OF(N, T) static void arithmetic_##N(void) ARITHMETIC_BODY(N, T)
#define ARITHMETIC_BODY(N, T) {ARITHMETIC(N, T)}
SHUNT_BITWISE_REDUCE_TYPES(BITWISE_OF)
SHUNT_REDUCE_TYPES(ARITHMETIC_OF)

void families_reduce(void) {
    begin();
    nvshmem_barrier_all();
#define CALL_BITWISE(N, T) bitwise_##N();
    SHUNT_BITWISE_REDUCE_TYPES(CALL_BITWISE)
#define CALL_ARITHMETIC(N, T) arithmetic_##N();
    SHUNT_REDUCE_TYPES(CALL_ARITHMETIC)
    /* More than the buffer that reductions work in has room for at once. */
    enum { MANY = 1 << 17 };
    uint64_t *to = (uint64_t *)target, *from = (uint64_t *)source;
    for (int at = 0; at < MANY; at++) from[at] = (uint64_t)at * (uint64_t)(me + 1);
    CHECK(nvshmem_uint64_sum_reduce(NVSHMEM_TEAM_WORLD, to, from, MANY) == 0, "many");
    uint64_t times = (uint64_t)pes * (uint64_t)(pes + 1) / 2;
    for (int at = 0; at < MANY; at++) CHECK(to[at] == (uint64_t)at * times, "many");
    fold(to, MANY * sizeof *to);
    nvshmem_barrier_all();
}
