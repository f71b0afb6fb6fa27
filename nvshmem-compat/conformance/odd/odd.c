/* What happens where not all is well: a peer that dies, the end of the job by one PE, a job by unique id, another
 * library in the process, calls before and after. The first argument says which. */
#include <dlfcn.h>
#include <nvshmem.h> /* the extensions as well, as NVSHMEM's own */
#include <shunt_nvshmem.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int me, pes;

static void begin(void) {
    nvshmem_init();
    me = nvshmem_my_pe();
    pes = nvshmem_n_pes();
}

/* The last PE dies once what it said in a barrier is with the others. These wait for nothing before: it may be dead
 * already, and has not acknowledged all. */
static void die_last(void) {
    if (me != pes - 1) return;
    nvshmem_quiet();
    kill(getpid(), SIGKILL);
}

/* The last PE dies after all have met; the others meet again, to no end. */
static int lost(int told) {
    begin();
    nvshmem_barrier_all();
    die_last();
    if (told) shunt_nvshmem_on_error(shunt_nvshmem_keep_error, NULL);
    nvshmem_barrier_all();
    shunt_nvshmem_error error;
    if (shunt_nvshmem_last_error(&error) != SHUNT_NVSHMEM_PEER_LOST) return 10;
    if (error.peer != pes - 1 || error.status != 3 || shunt_nvshmem_peer_alive(error.peer)) return 11;
    printf("told of %d: %s\n", error.peer, strstr(error.message, "unfinished") ? "all" : error.message);
    fflush(stdout);
    nvshmem_finalize();
    printf("finalized\n");
    return 0;
}

/* The same, and the others wait for words that the last PE would have written: for one of it, or by tests in a loop.
 * Where they are told they go on without it: further waits are for others. */
static int awaited(const char *how) {
    begin();
    uint64_t *word = nvshmem_calloc(2, sizeof *word);
    nvshmem_barrier_all();
    die_last();
    if (!strcmp(how, "signal")) nvshmem_signal_wait_until(word, NVSHMEM_CMP_NE, 0);
    if (!strcmp(how, "test")) while (!nvshmem_uint64_test(word, NVSHMEM_CMP_NE, 0)) {}
    if (strcmp(how, "told")) return 33;
    shunt_nvshmem_on_error(shunt_nvshmem_keep_error, NULL);
    nvshmem_uint64_wait_until(word, NVSHMEM_CMP_NE, 0);
    shunt_nvshmem_error error;
    if (shunt_nvshmem_last_error(&error) != SHUNT_NVSHMEM_PEER_LOST || error.peer != pes - 1) return 34;
    if (me == 1) {
        usleep(1500000);
        nvshmem_uint64_p(word + 1, 5, 0);
        nvshmem_uint64_wait_until(word + 1, NVSHMEM_CMP_EQ, 6);
    } else {
        nvshmem_uint64_wait_until(word + 1, NVSHMEM_CMP_EQ, 5);
        nvshmem_uint64_p(word + 1, 6, 1);
    }
    if (shunt_nvshmem_last_error(&error) || word[1] != 5 + (uint64_t)me) return 35;
    nvshmem_finalize();
    printf("went on\n");
    return 0;
}

static int ends(void) {
    begin();
    nvshmem_barrier_all();
    if (me == 0) nvshmem_global_exit(7);
    /* PE 0 never comes. */
    nvshmem_barrier_all();
    return 9;
}

/* The id goes by a file, as a program of its own would send it. */
static int unique(const char *path, int rank, int ranks) {
    nvshmemx_uniqueid_t id;
    nvshmemx_init_attr_t attr;
    char partial[4096];
    memset(&attr, 0xaa, sizeof attr);
    if (rank == 0) {
        if (nvshmemx_get_uniqueid(&id)) return 12;
        snprintf(partial, sizeof partial, "%s.part", path);
        FILE *file = fopen(partial, "w");
        if (!file || fwrite(&id, sizeof id, 1, file) != 1 || fclose(file) || rename(partial, path)) return 13;
    } else {
        FILE *file;
        while (!(file = fopen(path, "r"))) usleep(1000);
        if (fread(&id, sizeof id, 1, file) != 1) return 14;
        fclose(file);
    }
    if (nvshmemx_set_attr_uniqueid_args(rank, ranks, &id, &attr)) return 15;
    if (nvshmemx_init_attr(NVSHMEMX_INIT_WITH_UNIQUEID, &attr)) return 16;
    if (nvshmem_my_pe() != rank || nvshmem_n_pes() != ranks) return 17;
    int *word = nvshmem_calloc(1, sizeof *word);
    nvshmem_int_p(word, rank + 1, (rank + 1) % ranks);
    nvshmem_int_wait_until(word, NVSHMEM_CMP_NE, 0);
    if (*word != (rank + ranks - 1) % ranks + 1) return 18;
    nvshmem_barrier_all();
    nvshmem_finalize();
    if (nvshmemx_init_status() != NVSHMEM_STATUS_NOT_INITIALIZED || nvshmem_my_pe() != -1) return 19;
    if (rank == 0) unlink(path);
    printf("done\n");
    return 0;
}

/* Inits of every kind while the library is up: as many finalizes, of which the last one ends it. */
static int nested(void) {
    int provided = -1, further = 0;
    nvshmemx_uniqueid_t id;
    nvshmemx_init_attr_t attr = NVSHMEMX_INIT_ATTR_INITIALIZER;
    memset(&id, 0, sizeof id);
    begin();
    int *word = nvshmem_calloc(1, sizeof *word);
    if (nvshmem_init_thread(NVSHMEM_THREAD_MULTIPLE, &provided) || provided != NVSHMEM_THREAD_SERIALIZED) return 22;
    nvshmem_init();
    if (nvshmemx_init_attr(0, NULL) || nvshmemx_hostlib_init_attr(0, NULL)) return 23;
    if (nvshmemx_set_attr_uniqueid_args(me, pes, &id, &attr)) return 24;
    if (nvshmemx_init_attr(NVSHMEMX_INIT_WITH_UNIQUEID, &attr)) return 25;
    further = 5;
    /* Another PE than this one: refused, and not counted. */
    if (nvshmemx_set_attr_uniqueid_args(me, pes + 1, &id, &attr)) return 26;
    if (nvshmemx_hostlib_init_attr(NVSHMEMX_INIT_WITH_UNIQUEID, &attr) != 2) return 27;
    for (int round = 1; round <= further; ++round) {
        if (round % 2) nvshmem_finalize(); else nvshmemx_hostlib_finalize();
        if (nvshmemx_init_status() != NVSHMEM_STATUS_IS_INITIALIZED || nvshmem_my_pe() != me) return 28;
        nvshmem_int_p(word, round, (me + 1) % pes);
        nvshmem_barrier_all();
        if (*word != round) return 29;
        nvshmem_barrier_all();
    }
    nvshmem_finalize();
    if (nvshmemx_init_status() != NVSHMEM_STATUS_NOT_INITIALIZED || nvshmem_my_pe() != -1) return 30;
    nvshmem_finalize();
    printf("nested\n");
    return 0;
}

/* NVIDIA's device library has such a function. */
static int state_of_theirs(void **device, void **transport) {
    *device = *transport = NULL;
    return 0;
}

/* The heap is asked for exactly as large as one buffer, and less is taken before. */
static int exact(size_t bytes) {
    begin();
    for (int i = 0; i < 10; ++i) {
        if (!nvshmem_malloc(sizeof(double))) return 31;
    }
    if (!nvshmem_malloc(bytes)) return 32;
    nvshmem_finalize();
    return 0;
}

/* What PEs of a node write into each other's heaps without a NIC, while a port of PE 0 is down. */
static int shared(int expected) {
    begin();
    if (nvshmem_team_n_pes(NVSHMEM_TEAM_SHARED) != (expected ? pes : 1)) return 40;
    long *words = nvshmem_calloc((size_t)pes, sizeof *words), outside;
    nvshmem_barrier_all();
    if (me == 0 && shunt_nvshmem_soft_fault(0, "down=100ms")) return 41;
    for (int pe = 0; pe < pes; pe++) {
        long *there = nvshmem_ptr(words + me, pe);
        if (!there != !(expected || pe == me) || nvshmem_ptr(&outside, pe)) return 42;
        if (there) *there = 100 + me;
    }
    nvshmem_barrier_all();
    for (int pe = 0; pe < pes; pe++) {
        long want = expected || pe == me ? 100 + pe : 0;
        if (words[pe] != want) return 43;
        if (expected && nvshmem_long_g(words + pe, (me + 1) % pes) != want) return 44;
    }
    nvshmem_barrier_all();
    nvshmem_finalize();
    return 0;
}

/* All PEs of a node meet by its memory alone, for the n-th time. */
static void meet_near(long *words, long number) {
    for (int pe = 0; pe < pes; pe++)
        __atomic_store_n((long *)nvshmem_ptr(words + me, pe), number, __ATOMIC_SEQ_CST);
    for (int pe = 0; pe < pes; pe++)
        while (__atomic_load_n(words + pe, __ATOMIC_SEQ_CST) < number) {}
}

/* Puts and gets of all kinds between PEs of a node, while no port of any of them is up, and none comes back. */
static int nearby(void) {
    enum { COUNT = 1000 };
    static long private[COUNT], back[COUNT];
    begin();
    int next = (me + 1) % pes, last = (me + pes - 1) % pes;
    long *words = nvshmem_calloc((size_t)pes, sizeof *words), *mine = nvshmem_calloc(COUNT, sizeof *mine);
    long *put = nvshmem_calloc(COUNT, sizeof *put), *apart = nvshmem_calloc(COUNT, sizeof *apart);
    short *single = nvshmem_calloc(4, sizeof *single);
    for (int i = 0; i < COUNT; i++) private[i] = mine[i] = 1000 * me + i;
    nvshmem_barrier_all();
    nvshmem_quiet();
    meet_near(words, 1);
    if (shunt_nvshmem_soft_fault(0, "down") || shunt_nvshmem_soft_fault(1, "down")) return 50;
    nvshmem_putmem(put, private, COUNT / 2 * sizeof *put, next);
    nvshmem_long_put_nbi(put + COUNT / 2, mine + COUNT / 2, COUNT / 2, next);
    nvshmem_long_iput(apart, private, 2, 1, COUNT / 2, next);
    nvshmem_short_p(single + 1, (short)(7 + me), next);
    nvshmem_fence();
    nvshmem_quiet();
    meet_near(words, 2);
    for (int i = 0; i < COUNT; i++) {
        long gap = i % 2 ? 0 : 1000 * last + i / 2;
        if (put[i] != 1000 * last + i || apart[i] != gap) return 51;
    }
    if (single[0] || single[1] != 7 + last || single[2]) return 52;
    nvshmem_getmem(back, mine, sizeof back, next);
    for (int i = 0; i < COUNT; i++)
        if (back[i] != 1000 * next + i) return 53;
    nvshmem_long_iget(back, mine, 1, 2, COUNT / 2, last);
    for (int i = 0; i < COUNT / 2; i++)
        if (back[i] != 1000 * last + 2 * i) return 54;
    if (nvshmem_long_g(mine + 9, next) != 1000 * next + 9 || nvshmem_short_g(single + 1, next) != 7 + me) return 55;
    printf("by memory\n");
    fflush(stdout);
    meet_near(words, 3);
    /* Nobody could say goodbye. */
    _exit(0);
}

/* Atomics go by NIC and puts by memory: a fence between them holds for both, and so does a signal behind a put. */
static int ordered(void) {
    begin();
    int next = (me + 1) % pes;
    long *count = nvshmem_calloc(2, sizeof *count), *data = nvshmem_calloc(64, sizeof *data), values[64];
    uint64_t *told = nvshmem_calloc(1, sizeof *told);
    nvshmem_barrier_all();
    for (long round = 1; round <= 40; round++) {
        for (int i = 0; i < 8; i++) nvshmem_long_atomic_inc(count, next);
        nvshmem_fence();
        nvshmem_long_p(count + 1, round, next);
        nvshmem_long_wait_until(count + 1, NVSHMEM_CMP_GE, round);
        if (__atomic_load_n(count, __ATOMIC_SEQ_CST) < 8 * round) return 60;
        for (int i = 0; i < 64; i++) values[i] = round;
        nvshmem_putmem_signal(data, values, sizeof values, told, (uint64_t)round, NVSHMEM_SIGNAL_SET, next);
        nvshmem_signal_wait_until(told, NVSHMEM_CMP_GE, (uint64_t)round);
        for (int i = 0; i < 64; i++)
            if (__atomic_load_n(data + i, __ATOMIC_SEQ_CST) < round) return 61;
        nvshmem_barrier_all();
    }
    nvshmem_finalize();
    return 0;
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    if (!strcmp(mode, "lost")) return lost(0);
    if (!strcmp(mode, "told")) return lost(1);
    if (!strcmp(mode, "awaited") && argc > 2) return awaited(argv[2]);
    if (!strcmp(mode, "ends")) return ends();
    if (!strcmp(mode, "nested")) return nested();
    if (!strcmp(mode, "unique") && argc > 4) return unique(argv[2], atoi(argv[3]), atoi(argv[4]));
    if (!strcmp(mode, "exact") && argc > 2) return exact(strtoul(argv[2], NULL, 10));
    if (!strcmp(mode, "shared")) return shared(1);
    if (!strcmp(mode, "apart")) return shared(0);
    if (!strcmp(mode, "nearby")) return nearby();
    if (!strcmp(mode, "ordered")) return ordered();
    if (!strcmp(mode, "early")) nvshmem_quiet();
    if (!strcmp(mode, "twin") && argc > 2) {
        if (!dlopen(argv[2], RTLD_NOW)) return 20;
        nvshmem_init();
    }
    if (!strcmp(mode, "device")) {
        nvshmemi_version_t version = {3, 8, 0};
        int provided;
        return nvshmemid_hostlib_init_attr(NVSHMEM_THREAD_SERIALIZED, &provided, 0, NULL, version, state_of_theirs);
    }
    if (!strcmp(mode, "comm")) {
        nvshmemx_init_attr_t attr = NVSHMEMX_INIT_ATTR_INITIALIZER;
        nvshmemx_init_attr(NVSHMEMX_INIT_WITH_MPI_COMM, &attr);
    }
    if (!strcmp(mode, "once")) {
        begin();
        nvshmem_barrier_all();
        nvshmem_finalize();
        printf("PE %d of %d\n", me, pes);
        return 0;
    }
    if (!strcmp(mode, "alone")) {
        begin();
        nvshmem_barrier_all();
        nvshmem_finalize();
        begin();
        nvshmem_finalize();
        printf("PE %d of %d, twice\n", me, pes);
        return 0;
    }
    return 21;
}
