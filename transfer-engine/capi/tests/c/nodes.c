/* Nodes of this process on soft NICs, on a fabric of their own: they connect at any time, talk, take memory back, cut
 * each other off, and are told who came and who left. */
#include "two.h"

static ste_engine *listening(uint32_t number, char at[STE_ADDRESS_MAX]) {
    ste_options options = STE_OPTIONS(SOON);
    options.nic = STE_NIC_SOFT;
    ste_engine *engine = NULL;
    size_t bytes = STE_ADDRESS_MAX, needed = 0;
    uint32_t end = 9, ends = 9;
    OK(ste_listen(&options, "127.0.0.1:0", number, &engine));
    OK(ste_listens_at(engine, NULL, &needed));
    OK(ste_listens_at(engine, at, &bytes));
    TRUE(bytes == needed && strlen(at) + 1 == bytes && strncmp(at, "127.0.0.1:", 10) == 0);
    OK(ste_end(engine, &end));
    OK(ste_ends(engine, &ends));
    TRUE(end == 0 && ends == 1);
    return engine;
}

/* The next change is this one; its peer. */
static uint32_t changed(ste_engine *engine, int32_t joined) {
    ste_change change = {9, 9};
    OK(ste_next_change(engine, SOON, &change));
    TRUE(change.joined == joined);
    return change.peer;
}

static int wrote(ste_engine *engine, uint32_t peer, memory *from, ste_target *to) {
    ste_operation *write = NULL;
    ste_result result = {-1, -1};
    OK(ste_write(engine, peer, from->region, 0, to, 0, LEN, STE_NO_IMM, NULL, &write));
    int status = ste_wait(write, SOON, &result);
    TRUE(result.status == status && result.quiet == 1);
    OK(ste_free_operation(write));
    return status;
}

/* The memory of a region that was taken back is the caller's at once: it is freed and is another's. */
static void taken_back(ste_engine *one, ste_engine *two, uint32_t peer, memory *from) {
    memory to = allocated(two, LEN, STE_WRITE);
    ste_target *target = target_of(to.region, one);
    IS(STE_OK, wrote(one, peer, from, target));
    TRUE(memcmp(from->bytes, to.bytes, LEN) == 0);
    ste_operation *writes[20] = {NULL};
    OK(ste_soft_fault(one, 0, "hold=100ms"));
    for (size_t i = 0; i < 20; i++) {
        OK(ste_write(one, peer, from->region, 0, target, 0, LEN, STE_NO_IMM, NULL, &writes[i]));
    }
    IS(STE_REFUSED, ste_deregister(from->region));
    OK(ste_deregister(to.region));
    memset(to.bytes, 0xEE, LEN);
    unsigned denied = 0;
    for (size_t i = 0; i < 20; i++) {
        ste_result result = {-1, -1};
        int status = ste_wait(writes[i], SOON, &result);
        TRUE((status == STE_OK || status == STE_DENIED) && result.quiet == 1);
        denied += status == STE_DENIED;
        OK(ste_free_operation(writes[i]));
    }
    if (denied == 0) {
        not_exercised("all was written before the region was taken back");
    }
    nap(MILLISECONDS(200));
    TRUE(all_are(to.bytes, LEN, 0xEE));
    size_t bytes = 0;
    IS(STE_REFUSED, ste_describe(to.region, NULL, &bytes));
    IS(STE_REFUSED, ste_deregister(to.region));
    IS(STE_DENIED, wrote(one, peer, from, target));
    freed(&to);
    OK(ste_free_target(target));
}

/* A peer that holds packets back is cut off: they land nowhere. */
static void cut_off(ste_engine *one, ste_engine *two, uint32_t peer, uint32_t back, memory *from) {
    memory to = allocated(two, LEN, STE_WRITE);
    ste_target *target = target_of(to.region, one);
    ste_operation *expected = NULL, *late = NULL;
    OK(ste_soft_fault(one, 0, "hold=200ms"));
    OK(ste_soft_fault(one, 1, "hold=200ms"));
    OK(ste_write(one, peer, from->region, 0, target, 0, LEN, STE_NO_IMM, NULL, &late));
    OK(ste_expect(two, back, 77, 1, UINT64_MAX, NULL, &expected));
    nap(MILLISECONDS(20));
    OK(ste_revoke(two, back, SOON));
    memset(to.bytes, 0xDD, LEN);
    IS(STE_MISSING, ste_wait(expected, SOON, NULL));
    OK(ste_revoke(two, back, 0)); /* the same proof */
    ste_operation *none = NULL;
    IS(STE_REFUSED, ste_send(two, back, "late", 4, NULL, &none));
    TRUE(none == NULL && changed(one, 0) == peer);
    IS(STE_PEER_LEFT, ste_wait(late, SOON, NULL));
    nap(MILLISECONDS(300));
    TRUE(all_are(to.bytes, LEN, 0xDD));
    OK(ste_free_operation(expected));
    OK(ste_free_operation(late));
    OK(ste_free_target(target));
    OK(ste_deregister(to.region));
    freed(&to);
}

typedef struct {
    ste_engine *engine;
    int kind;
} waiter;

/* A thread that waits in a call when its engine is closed. */
static void *waits(void *argument) {
    waiter own = *(waiter *)argument;
    uint32_t peer = 0;
    size_t bytes = 0;
    ste_change change;
    if (own.kind == 0) {
        IS(STE_CLOSED, ste_receive(own.engine, UINT64_MAX, &peer, NULL, &bytes));
    } else if (own.kind == 1) {
        IS(STE_CLOSED, ste_next_change(own.engine, UINT64_MAX, &change));
    } else {
        IS(STE_NICS, ste_connect(own.engine, "127.0.0.1:9", UINT64_MAX, &peer));
    }
    return NULL;
}

static void refusals(ste_engine *one, const char *at) {
    ste_options options = STE_OPTIONS(SOON);
    ste_engine *engine = NULL;
    uint32_t peer = 9;
    options.nic = STE_NIC_SOFT;
    IS(STE_NICS, ste_connect(one, at, MILLISECONDS(300), &peer));
    TRUE(strstr(ste_last_error(), "this node itself") != NULL);
    IS(STE_NICS, ste_connect(one, "127.0.0.1:9", MILLISECONDS(300), &peer));
    IS(STE_NICS, ste_connect(one, "nonsense", MILLISECONDS(300), &peer));
    TRUE(strstr(ste_last_error(), "HOST:PORT") != NULL);
    IS(STE_REFUSED, ste_connect(one, NULL, SOON, &peer));
    IS(STE_REFUSED, ste_connect(one, at, SOON, NULL));
    IS(STE_REFUSED, ste_listen(&options, "nonsense", 7, &engine));
    IS(STE_REFUSED, ste_listen(&options, NULL, 7, &engine));
    options.ends = 2;
    IS(STE_REFUSED, ste_listen(&options, "127.0.0.1:0", 7, &engine));
    IS(STE_REFUSED, ste_exchange(one, NULL, 0, NULL, 0, NULL, SOON));
    IS(STE_REFUSED, ste_revoke(one, 5, SOON));
    ste_change change = {9, 9};
    IS(STE_TIMEOUT, ste_next_change(one, MILLISECONDS(5), &change));
    TRUE(engine == NULL && peer == 9);
}

int main(void) {
    char at[3][STE_ADDRESS_MAX];
    ste_engine *one = listening(0, at[0]), *two = listening(1, at[1]);
    uint32_t peer = 9, back = 9, again = 9, peers[1] = {9};
    size_t count = 0;
    refusals(one, at[0]);
    OK(ste_connect(one, at[1], SOON, &peer));
    back = changed(two, 1);
    TRUE(changed(one, 1) == peer);
    OK(ste_connect(one, at[1], SOON, &again));
    TRUE(again == peer);
    IS(STE_TOO_SMALL, ste_peers(one, peers, &count));
    TRUE(count == 1);
    OK(ste_peers(one, peers, &count));
    TRUE(peers[0] == peer);
    memory from = allocated(one, LEN, STE_LOCAL);
    fill(from.bytes, LEN, 9);
    taken_back(one, two, peer, &from);
    cut_off(one, two, peer, back, &from);
    /* They meet again, as others. Then one of them ends. */
    OK(ste_connect(two, at[0], SOON, &again));
    TRUE(again != back && changed(one, 1) != peer);
    pthread_t threads[3];
    waiter waiters[3];
    for (int kind = 0; kind < 3; kind++) {
        waiters[kind] = (waiter){two, kind};
        /* What it was told so far. */
        if (kind == 1) {
            TRUE(changed(two, 1) == again);
        }
        TRUE(pthread_create(&threads[kind], NULL, waits, &waiters[kind]) == 0);
    }
    nap(MILLISECONDS(50));
    OK(ste_close(two, SOON));
    for (int kind = 0; kind < 3; kind++) {
        pthread_join(threads[kind], NULL);
    }
    changed(one, 0);
    count = 9;
    OK(ste_peers(one, NULL, &count));
    TRUE(count == 0);
    OK(ste_close(one, SOON));
    freed(&from);
    printf("nothing landed behind a word that nothing lands\n");
    return 0;
}
