/* Puts, gets and sums between all PEs, round after round, while links go down and come back: by somebody else's hand, or
 * with RAIL by that of PE 0, on soft NICs. Everything that arrives is compared.
 *
 *     hosts SECONDS [RAIL]
 *
 * Once every PE has left a path because of a fault and gone back, some rounds more have signals and atomics as well:
 * channels that carry those go where the words' home is, which stays on the rail that it moved to. Ends with 0, or with
 * 1 where anything is wrong or the first part takes longer than SECONDS. */
#include <nvshmem.h>
#include <nvshmemx.h>
#include <shunt_nvshmem.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BYTES = 4096, WORDS = BYTES / sizeof(uint64_t), DOWN_MS = 300, UP_MS = 1500, ATOMIC_ROUNDS = 20 };

static int me, pes, bad;

static void want(int right, const char *what, long round) {
    if (right) return;
    printf("PE %d: round %ld: %s: not as expected\n", me, round, what);
    bad = 1;
}

static uint64_t word_of(int pe, long round, int at) {
    return ((uint64_t)round << 32 | (uint64_t)pe << 16 | (uint64_t)at) * 0x9e3779b97f4a7c15ull;
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

typedef struct {
    uint64_t *blocks, *signals, *own, *got;
    long *added, *mine, *all;
} memory;

/* One round, the `number`th with atomics, or 0: one without. What it compares depends on no time. */
static void round_of(const memory *at, long round, long number) {
    int next = (me + 1) % pes;
    for (int i = 0; i < WORDS; i++) at->own[i] = word_of(me, round, i);
    for (int pe = 0; pe < pes; pe++) {
        uint64_t *to = at->blocks + me * WORDS, signal = (uint64_t)number;
        if (number) nvshmem_uint64_put_signal(to, at->own, WORDS, at->signals + me, signal, NVSHMEM_SIGNAL_SET, pe);
        else nvshmem_uint64_put(to, at->own, WORDS, pe);
    }
    if (!number) nvshmem_barrier_all();
    for (int pe = 0; pe < pes; pe++) {
        if (number) nvshmem_signal_wait_until(at->signals + pe, NVSHMEM_CMP_GE, (uint64_t)number);
        int same = 1;
        for (int i = 0; i < WORDS; i++) same &= at->blocks[pe * WORDS + i] == word_of(pe, round, i);
        want(same, "a block that was put", round);
    }
    nvshmem_uint64_get(at->got, at->own, WORDS, next);
    int same = 1;
    for (int i = 0; i < WORDS; i++) same &= at->got[i] == word_of(next, round, i);
    want(same, "a block that was got", round);
    if (number) {
        want(nvshmem_long_atomic_fetch_add(at->added, 1, next) == number - 1, "a value that was fetched", round);
    }
    at->mine[0] = round * (me + 1);
    nvshmem_long_sum_reduce(NVSHMEM_TEAM_WORLD, at->all, at->mine, 1);
    want(at->all[0] == round * pes * (pes + 1) / 2, "a sum", round);
    nvshmem_barrier_all();
    want(*at->added == number, "a word that the PE before adds to", round);
}

/* PE 0's port, down for a while and up for a while. */
static void flap(int rail, double since) {
    static int down;
    long at = (long)(since * 1e3) % (DOWN_MS + UP_MS);
    int now = since * 1e3 > DOWN_MS && at < DOWN_MS;
    if (me != 0 || rail < 0 || now == down) return;
    want(shunt_nvshmem_soft_fault(rail, now ? "down" : "up") == 0, "a port of a soft NIC", 0);
    down = now;
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    double limit = atof(argv[1]);
    int rail = argc > 2 ? atoi(argv[2]) : -1;
    nvshmem_init();
    me = nvshmem_my_pe(), pes = nvshmem_n_pes();
    memory at = {
        .blocks = nvshmem_calloc((size_t)(pes * WORDS), sizeof(uint64_t)),
        .signals = nvshmem_calloc((size_t)pes, sizeof(uint64_t)),
        .own = nvshmem_calloc(WORDS, sizeof(uint64_t)),
        .got = nvshmem_calloc(WORDS, sizeof(uint64_t)),
        .added = nvshmem_calloc(1, sizeof(long)),
        .mine = nvshmem_calloc(1, sizeof(long)),
        .all = nvshmem_calloc(1, sizeof(long)),
    };
    if (!at.all) return 2;
    nvshmem_barrier_all();
    double began = seconds();
    uint64_t failovers = 0, back = 0;
    long round = 0, least = 0;
    do {
        double since = seconds() - began;
        flap(rail, since);
        round_of(&at, ++round, 0);
        shunt_nvshmem_switches(&failovers, &back);
        /* 2: it has gone back; 1: not yet; 0: it is late. All PEs end in the same round. */
        at.mine[0] = failovers && back ? 2 : since < limit ? 1 : 0;
        nvshmem_long_min_reduce(NVSHMEM_TEAM_WORLD, at.all, at.mine, 1);
        least = at.all[0];
    } while (least == 1);
    want(least == 2, "a failover and a switch-back of every PE in time", round);
    for (long number = 1; number <= ATOMIC_ROUNDS; number++) {
        flap(rail, seconds() - began);
        round_of(&at, ++round, number);
    }
    shunt_nvshmem_switches(&failovers, &back);
    printf("PE %d of %d: %ld rounds, %llu failovers, %llu switch-backs, %s\n", me, pes, round,
           (unsigned long long)failovers, (unsigned long long)back, bad ? "wrong" : "all as expected");
    fflush(stdout);
    nvshmem_barrier_all();
    nvshmem_finalize();
    return bad;
}
