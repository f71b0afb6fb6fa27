/* Every call with NULL where a pointer stands, and with handles that stand for nothing: each is refused, none ends the
 * process, and none counts as a defect of the library. */
#include "two.h"

static unsigned calls;

static void refused(int status, const char *call, int line) {
    calls++;
    if (status == STE_OK || status == STE_DEFECT || *ste_last_error() == 0) {
        printf("line %d: %s: expected a refusal with a text, got %d (%s): %s\n", line, call, status,
               ste_strerror(status), ste_last_error());
        exit(1);
    }
}

#define NO(call) refused((call), #call, __LINE__)

static void on_end(const ste_event *event) { (void)event; }
static int on_change(void *user, uint64_t before, uint64_t now) { return user != NULL && before == now; }

static const uint32_t indices[] = {0};
static const ste_pages pages = {indices, 1, 8, 0};
static uint64_t word;

/* `bad` is no handle of any kind; `good` handles are. */
static void handles(void *bad, ste_engine *engine, ste_region *region, ste_target *target) {
    ste_engine *e = (ste_engine *)bad, *opened[2];
    ste_region *r = (ste_region *)bad, *region_out;
    ste_target *t = (ste_target *)bad, *target_out;
    ste_operation *o = (ste_operation *)bad, *out;
    ste_watcher *w = (ste_watcher *)bad, *watcher_out;
    char text[STE_ADDRESS_MAX];
    size_t n = sizeof text;
    uint32_t number;
    uint64_t wide;
    ste_change change;
    ste_event event;
    ste_counters counters;
    ste_result result;
    ste_share share = {1, 0, target, 0, 0, 8, STE_NO_IMM}, bad_share = {1, 0, t, 0, 0, 8, STE_NO_IMM};
    ste_other other = {1, 0, target}, bad_other = {1, 0, t};
    (void)opened;
    NO(ste_listens_at(e, text, &n));
    NO(ste_connect(e, "127.0.0.1:1", 1, &number));
    NO(ste_peers(e, &number, &n));
    NO(ste_next_change(e, 0, &change));
    NO(ste_revoke(e, 1, 0));
    NO(ste_end(e, &number));
    NO(ste_ends(e, &number));
    NO(ste_exchange(e, NULL, 0, NULL, 0, NULL, 0));
    NO(ste_register(e, &word, sizeof word, STE_LOCAL, &region_out));
    NO(ste_describe(r, text, &n));
    NO(ste_import(e, text, sizeof text, &target_out));
    NO(ste_deregister(r));
    NO(ste_write(e, 1, region, 0, target, 0, 8, STE_NO_IMM, NULL, &out));
    NO(ste_write(engine, 1, r, 0, target, 0, 8, STE_NO_IMM, NULL, &out));
    NO(ste_write(engine, 1, region, 0, t, 0, 8, STE_NO_IMM, NULL, &out));
    NO(ste_write_pages(e, 1, 8, region, &pages, target, &pages, STE_NO_IMM, NULL, &out));
    NO(ste_write_pages(engine, 1, 8, r, &pages, target, &pages, STE_NO_IMM, NULL, &out));
    NO(ste_write_pages(engine, 1, 8, region, &pages, t, &pages, STE_NO_IMM, NULL, &out));
    NO(ste_read(e, 1, target, 0, region, 0, 8, NULL, &out));
    NO(ste_read(engine, 1, t, 0, region, 0, 8, NULL, &out));
    NO(ste_read(engine, 1, target, 0, r, 0, 8, NULL, &out));
    NO(ste_scatter(e, region, &share, 1, NULL, &out));
    NO(ste_scatter(engine, r, &share, 1, NULL, &out));
    NO(ste_scatter(engine, region, &bad_share, 1, NULL, &out));
    NO(ste_shares(o, &result, &n));
    NO(ste_barrier(e, 1, region, &other, 1, 1, NULL, &out));
    NO(ste_barrier(engine, 1, r, &other, 1, 1, NULL, &out));
    NO(ste_barrier(engine, 1, region, &bad_other, 1, 1, NULL, &out));
    NO(ste_send(e, 1, text, 1, NULL, &out));
    NO(ste_receive(e, 0, &number, text, &n));
    NO(ste_expect(e, 1, 1, 1, 1, NULL, &out));
    NO(ste_counter(e, 1, 1, &wide));
    NO(ste_forget(e, 1, 1));
    NO(ste_test(o, &result));
    NO(ste_wait(o, 1, &result));
    NO(ste_poll(e, &event, 1, 0, &n));
    NO(ste_when_ended(o, on_end));
    NO(ste_cancel(o, STE_CANCEL_NOW, 0));
    NO(ste_watch(e, &word, on_change, NULL, &watcher_out));
    if (w != NULL) {
        NO(ste_unwatch(w));
    }
    NO(ste_writes_of(e, 8, &number));
    NO(ste_counts(e, &counters));
    NO(ste_lanes_to(e, 1, &number));
    NO(ste_soft_fault(e, 0, "down"));
}

/* Handles are good, and everything else is NULL. */
static void pointers(ste_engine *engine, ste_region *region, ste_target *target, ste_operation *expectation) {
    ste_options options = STE_OPTIONS(SOON);
    ste_operation *out;
    ste_engine *opened[2];
    ste_event event;
    size_t n = 1;
    uint64_t odd[2] = {0, 0};
    ste_watcher *watcher;
    NO(ste_open(NULL, NULL));
    NO(ste_listen(NULL, NULL, 0, NULL));
    NO(ste_listen(&options, NULL, 0, opened));
    NO(ste_listen(&options, "", 0, opened));
    NO(ste_listen(&options, "\xff\xfe", 0, opened));
    NO(ste_listen(&options, "127.0.0.1:0", 0, NULL));
    NO(ste_listens_at(engine, NULL, NULL));
    NO(ste_connect(engine, NULL, 1, NULL));
    NO(ste_connect(engine, "", 1, NULL));
    NO(ste_peers(engine, NULL, NULL));
    NO(ste_next_change(engine, 0, NULL));
    NO(ste_end(engine, NULL));
    NO(ste_ends(engine, NULL));
    NO(ste_exchange(engine, NULL, 1, NULL, 1, NULL, 1));
    NO(ste_register(engine, NULL, 0, 0, NULL));
    NO(ste_describe(region, NULL, NULL));
    NO(ste_import(engine, NULL, 0, NULL));
    NO(ste_write(engine, 1, region, 0, target, 0, 8, STE_NO_IMM, NULL, NULL));
    NO(ste_write_pages(engine, 1, 8, region, NULL, target, NULL, STE_NO_IMM, NULL, NULL));
    NO(ste_write_pages(engine, 1, 8, region, &pages, target, NULL, STE_NO_IMM, NULL, &out));
    NO(ste_write_pages(engine, 1, UINT64_MAX, region, &pages, target, &pages, STE_NO_IMM, NULL, &out));
    NO(ste_read(engine, 1, target, UINT64_MAX, region, UINT64_MAX, UINT64_MAX, NULL, &out));
    NO(ste_scatter(engine, region, NULL, 1, NULL, NULL));
    NO(ste_scatter(engine, region, NULL, 0, NULL, &out));
    NO(ste_scatter(engine, region, NULL, SIZE_MAX, NULL, &out));
    NO(ste_shares(expectation, NULL, NULL));
    NO(ste_barrier(engine, 1, region, NULL, 1, 1, NULL, NULL));
    NO(ste_barrier(engine, 1, region, NULL, 0, 1, NULL, &out));
    NO(ste_barrier(engine, 1, region, NULL, SIZE_MAX, 1, NULL, &out));
    NO(ste_send(engine, 1, NULL, 1, NULL, NULL));
    NO(ste_send(engine, 1, NULL, SIZE_MAX, NULL, &out));
    NO(ste_send(engine, UINT32_MAX, "x", 1, NULL, &out));
    NO(ste_receive(engine, 0, NULL, NULL, NULL));
    NO(ste_expect(engine, 1, 1, 1, 1, NULL, NULL));
    NO(ste_expect(engine, UINT32_MAX, 1, 1, 1, NULL, &out));
    NO(ste_counter(engine, 1, 1, NULL));
    NO(ste_counter(engine, UINT32_MAX, 1, NULL));
    NO(ste_forget(engine, UINT32_MAX, 1));
    NO(ste_revoke(engine, UINT32_MAX, 0));
    NO(ste_poll(engine, NULL, 0, 0, NULL));
    NO(ste_poll(engine, NULL, SIZE_MAX, 0, &n));
    NO(ste_poll(engine, &event, SIZE_MAX, 0, &n));
    NO(ste_when_ended(expectation, NULL));
    NO(ste_cancel(expectation, 77, UINT64_MAX));
    NO(ste_watch(engine, NULL, NULL, NULL, NULL));
    NO(ste_watch(engine, odd, NULL, NULL, &watcher));
    NO(ste_watch(engine, NULL, on_change, NULL, &watcher));
    NO(ste_watch(engine, (const uint64_t *)(const void *)((const char *)odd + 1), on_change, NULL, &watcher));
    NO(ste_watch(engine, odd, on_change, NULL, NULL));
    NO(ste_writes_of(engine, 8, NULL));
    NO(ste_counts(engine, NULL));
    NO(ste_lanes_to(engine, 1, NULL));
    NO(ste_lanes_to(engine, UINT32_MAX, NULL));
    NO(ste_soft_fault(engine, UINT32_MAX, NULL));
    NO(ste_soft_fault(engine, 0, "\xff"));
    TRUE(ste_strerror(-1) != NULL && ste_strerror(12345) != NULL);
}

int main(void) {
    ste_engine *engines[2] = {NULL, NULL}, *gone[2] = {NULL, NULL};
    int local = 0;
    opened(engines, 2);
    opened(gone, 1);
    memory from = allocated(engines[0], LEN, STE_READ_WRITE), to = allocated(engines[1], LEN, STE_READ_WRITE);
    ste_target *target = target_of(to.region, engines[0]);
    ste_operation *expectation = NULL;
    OK(ste_expect(engines[0], 1, 3, 1, UINT64_MAX, NULL, &expectation));
    OK(ste_close(gone[0], SOON));
    OK(ste_close(gone[1], SOON));
    void *bad[] = {NULL, gone[0], &local, (void *)UINTPTR_MAX, (void *)(uintptr_t)1};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        handles(bad[i], engines[0], from.region, target);
    }
    pointers(engines[0], from.region, target, expectation);
    /* And everything still works. */
    ste_operation *write = NULL;
    memset(from.bytes, 7, LEN);
    OK(ste_write(engines[0], 1, from.region, 0, target, 0, LEN, STE_NO_IMM, NULL, &write));
    OK(ste_wait(write, SOON, NULL));
    TRUE(all_are(to.bytes, LEN, 7));
    OK(ste_free_operation(write));
    OK(ste_free_operation(expectation));
    OK(ste_free_target(target));
    OK(ste_close(engines[0], SOON));
    OK(ste_close(engines[1], SOON));
    freed(&from);
    freed(&to);
    printf("refused: %u calls\n", calls);
    return 0;
}
