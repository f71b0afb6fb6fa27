/* The conformance program: every family of host functions over all its types, on as many PEs as it is started with.
 * PE 0 prints a line for each family; a run with --fault, where a port goes down in the middle of each, prints the
 * same lines. */
#include "suite.h"

#include <unistd.h>

int me, pes;

const family FAMILIES[] = {
    {"heap", families_heap},     {"rma", families_rma},       {"strided", families_strided},
    {"amo", families_amo},       {"signal", families_signal}, {"wait", families_wait},
    {"move", families_move},     {"reduce", families_reduce}, {"teams", families_teams},
    {"stream", families_stream},
};
const int FAMILY_COUNT = sizeof FAMILIES / sizeof *FAMILIES;

/* The step of a family at which a port goes down. */
enum { MIDDLE = 5 };

static const char *current;
static int number, steps, with_fault, failed;
static uint64_t digest;

void wrong(const char *what, const char *type, int line) {
    fprintf(stderr, "PE %d: %s, %s, line %d: not so: %s\n", me, current, type, line, what);
    failed = 1;
}

void fold(const void *bytes, size_t count) {
    const unsigned char *at = bytes;
    for (size_t i = 0; i < count; i++) digest = (digest ^ at[i]) * 0x100000001b3ull;
}

void pattern(void *to, size_t bytes, int pe, int round) {
    unsigned char *at = to;
    for (size_t i = 0; i < bytes; i++) at[i] = (unsigned char)(i * 7 + (size_t)pe * 31 + (size_t)round * 13 + i / 251);
}

/* Which port fails in a family: not always that of the same PE, and the one that was well before. */
static int victim(void) {
    return number / 2 % pes;
}

void step(void) {
    if (++steps == MIDDLE && with_fault && pes > 1 && me == victim()) {
        CHECK(shunt_nvshmem_soft_fault(number % 2, "down") == 0, "port");
    }
}

static uint64_t run(const family *which) {
    current = which->name;
    steps = 0;
    digest = 0xcbf29ce484222325ull;
    which->run();
    CHECK(steps > MIDDLE, "steps");
    if (with_fault && pes > 1 && me == victim()) CHECK(shunt_nvshmem_soft_fault(number % 2, "up") == 0, "port");
    static uint64_t *mine, *all;
    if (!mine) mine = nvshmem_malloc(sizeof *mine), all = nvshmem_malloc(sizeof *all);
    /* Equal digests of two PEs must not cancel. */
    *mine = digest * (2 * (uint64_t)me + 1);
    CHECK(nvshmem_uint64_xor_reduce(NVSHMEM_TEAM_WORLD, all, mine, 1) == 0, "digest");
    return *all;
}

int main(int argc, char **argv) {
    const char *only = NULL;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--fault")) with_fault = 1;
        else only = argv[i];
    }
    nvshmem_init();
    me = nvshmem_my_pe();
    pes = nvshmem_n_pes();
    for (number = 0; number < FAMILY_COUNT; number++) {
        if (only && strcmp(only, FAMILIES[number].name)) continue;
        uint64_t found = run(&FAMILIES[number]);
        if (me == 0) printf("%s %016llx\n", FAMILIES[number].name, (unsigned long long)found), fflush(stdout);
    }
    uint64_t failovers = 0, back = 0;
    shunt_nvshmem_switches(&failovers, &back);
    fprintf(stderr, "PE %d: %llu failovers, %llu switch-backs\n", me, (unsigned long long)failovers,
            (unsigned long long)back);
    nvshmem_barrier_all();
    nvshmem_finalize();
    return failed;
}
