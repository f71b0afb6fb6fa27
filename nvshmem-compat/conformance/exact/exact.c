/* Atomics and signals while NICs fail: every value that an atomic fetched comes once, every add is there, every signal
 * is counted once.
 *
 *     exact fetch|put|signal COUNT PE RAIL AT FAULT [FAULT ...]
 *
 * Each PE does COUNT operations at the next PE, and with fetch as many on its own word. Before its operation
 * number AT, PE has the soft NIC of RAIL fail as FAULT says, in several ways if it is a list with commas; with each
 * further FAULT forty operations later, on the next rail. A PE of -1 is every PE, each with a rail of its own. The fault
 * `agent-restart` is of the PE: another agent takes over. */
#include <nvshmem.h>
#include <nvshmemx.h>
#include <shunt_nvshmem.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BETWEEN = 40 };

static int me, pes, count, who, rail, at, faults;
static char **plan;

static int inject(int on, const char *fault) {
    return strcmp(fault, "agent-restart") ? shunt_nvshmem_soft_fault(on, fault) : shunt_nvshmem_restart_agent();
}

static int fail_at(int operation) {
    int number = (operation - at) / BETWEEN;
    if ((who >= 0 && me != who) || operation < at || (operation - at) % BETWEEN || number >= faults) return 0;
    for (char *fault = strtok(plan[number], ","); fault; fault = strtok(NULL, ",")) {
        if (inject((rail + number + (who < 0 ? me : 0)) % 2, fault)) return 1;
    }
    return 0;
}

/* Fetched values of a word go where they say: 0 to 2 * COUNT - 1, each once. */
static int fetches(void) {
    long *word = nvshmem_calloc(1, sizeof *word);
    unsigned char *seen = nvshmem_calloc((size_t)(2 * count), 1);
    int next = (me + 1) % pes, wrong = 0;
    if (!word || !seen) return 20;
    nvshmem_barrier_all();
    for (int i = 0; i < count; i++) {
        if (fail_at(i)) return 21;
        for (int turn = 0; turn < 2; turn++) {
            int owner = turn ? me : next;
            long old = nvshmem_long_atomic_fetch_add(word, 1, owner);
            if (old < 0 || old >= 2 * count) return 22;
            unsigned char before = nvshmem_uchar_g(seen + old, owner);
            if (before) printf("PE %d: %ld of PE %d was fetched twice\n", me, old, owner), wrong = 1;
            nvshmem_uchar_p(seen + old, 1, owner);
            nvshmem_quiet();
        }
        usleep(20);
    }
    nvshmem_barrier_all();
    if (*word != 2 * count) printf("PE %d: the word is %ld, expected %d\n", me, *word, 2 * count), wrong = 1;
    for (int i = 0; i < 2 * count; i++) {
        if (!seen[i]) printf("PE %d: nobody fetched %d\n", me, i), wrong = 1;
    }
    return wrong;
}

/* Puts and barriers. */
static int writes(void) {
    long *data = nvshmem_calloc((size_t)pes, sizeof *data);
    int next = (me + 1) % pes, before = (me + pes - 1) % pes, wrong = 0;
    if (!data) return 20;
    nvshmem_barrier_all();
    for (int i = 0; i < count; i++) {
        long value = i + 1;
        if (fail_at(i)) return 21;
        nvshmem_long_put(data + me, &value, 1, next);
        nvshmem_barrier_all();
        if (data[before] != value) printf("PE %d: the data is %ld, expected %ld\n", me, data[before], value), wrong = 1;
        nvshmem_barrier_all();
    }
    return wrong;
}

/* A put and an add to the signal of the next PE, which other PEs add to as well. */
static int signals(void) {
    uint64_t *word = nvshmem_calloc(1, sizeof *word);
    long *data = nvshmem_calloc((size_t)pes, sizeof *data);
    int next = (me + 1) % pes, wrong = 0;
    if (!word || !data) return 20;
    nvshmem_barrier_all();
    for (int i = 0; i < count; i++) {
        long value = i + 1;
        if (fail_at(i)) return 21;
        nvshmem_long_put_signal(data + me, &value, 1, word, 1, NVSHMEM_SIGNAL_ADD, next);
        nvshmemx_signal_op(word, 1, NVSHMEM_SIGNAL_ADD, me);
        nvshmem_signal_wait_until(word, NVSHMEM_CMP_GE, (uint64_t)(i + 1));
    }
    nvshmem_barrier_all();
    int before = (me + pes - 1) % pes;
    if (*word != 2 * (uint64_t)count) {
        printf("PE %d: the signal is %llu, expected %d\n", me, (unsigned long long)*word, 2 * count), wrong = 1;
    }
    if (data[before] != count) printf("PE %d: the data is %ld\n", me, data[before]), wrong = 1;
    return wrong;
}

int main(int argc, char **argv) {
    if (argc < 7) return 2;
    count = atoi(argv[2]), who = atoi(argv[3]), rail = atoi(argv[4]), at = atoi(argv[5]);
    faults = argc - 6, plan = argv + 6;
    nvshmem_init();
    me = nvshmem_my_pe(), pes = nvshmem_n_pes();
    int status = !strcmp(argv[1], "fetch") ? fetches() : !strcmp(argv[1], "put") ? writes() : signals();
    uint64_t failovers, back;
    shunt_nvshmem_switches(&failovers, &back);
    printf("PE %d: status %d, %llu failovers\n", me, status, (unsigned long long)failovers);
    fflush(stdout);
    nvshmem_finalize();
    return status;
}
