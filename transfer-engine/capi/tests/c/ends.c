/* Two ends on soft NICs in this process: every kind of transfer, a port that goes down and comes back, cancels,
 * exchanges, the end. `gone`: a NIC that does not let go of memory. */
#include "two.h"

/* An operation ended so, and is quiet. */
static void ends_well(ste_operation *operation) {
    ste_result result = {-1, -1};
    OK(ste_wait(operation, SOON, &result));
    TRUE(result.status == STE_OK && result.quiet == 1);
    OK(ste_test(operation, NULL));
    OK(ste_free_operation(operation));
}

/* Writes while a port of end 0 goes down and comes back, each compared byte for byte. */
static void writes(ste_engine *one, ste_engine *two, memory *from, memory *to) {
    ste_target *target = target_of(to->region, one);
    uint32_t count = 0;
    OK(ste_writes_of(one, LEN, &count));
    TRUE(count == 2);
    for (unsigned round = 0; round < 6; round++) {
        if (round == 2) {
            OK(ste_soft_fault(one, 0, "down"));
        }
        if (round == 4) {
            OK(ste_soft_fault(one, 0, "up"));
        }
        ste_operation *write = NULL, *expected = NULL;
        fill(from->bytes, LEN, round);
        memset(to->bytes, 0, LEN);
        OK(ste_expect(two, 0, round, count, SOON, NULL, &expected));
        OK(ste_write(one, 1, from->region, 0, target, 0, LEN, round, NULL, &write));
        ends_well(expected);
        ends_well(write);
        TRUE(memcmp(from->bytes, to->bytes, LEN) == 0);
    }
    /* A part, without an immediate: what lies around it stays. */
    ste_operation *write = NULL;
    memset(to->bytes, 0, LEN);
    OK(ste_write(one, 1, from->region, 100, target, 5000, 777, STE_NO_IMM, NULL, &write));
    ends_well(write);
    TRUE(memcmp(from->bytes + 100, to->bytes + 5000, 777) == 0);
    TRUE(all_are(to->bytes, 5000, 0) && all_are(to->bytes + 5777, LEN - 5777, 0));
    OK(ste_free_target(target));
}

static void pages_and_reads(ste_engine *one, ste_engine *two, memory *from, memory *to) {
    ste_target *target = target_of(to->region, one), *source = target_of(from->region, two);
    uint32_t forth[PAGES], back[PAGES];
    for (uint32_t i = 0; i < PAGES; i++) {
        forth[i] = i;
        back[i] = (uint32_t)PAGES - 1 - i;
    }
    ste_pages from_pages = {forth, PAGES, PAGE, 0}, to_pages = {back, PAGES, PAGE, 0};
    ste_operation *write = NULL, *expected = NULL, *read = NULL;
    fill(from->bytes, LEN, 7);
    OK(ste_soft_fault(one, 1, "down=50ms"));
    OK(ste_write_pages(one, 1, PAGE, from->region, &from_pages, target, &to_pages, 77, NULL, &write));
    ends_well(write);
    /* The immediates came before anybody expected them. */
    OK(ste_expect(two, 0, 77, PAGES, SOON, NULL, &expected));
    ends_well(expected);
    for (size_t i = 0; i < PAGES; i++) {
        TRUE(memcmp(from->bytes + i * PAGE, to->bytes + (PAGES - 1 - i) * PAGE, PAGE) == 0);
    }
    OK(ste_read(two, 0, source, 0, to->region, 0, LEN, NULL, &read));
    ends_well(read);
    TRUE(memcmp(from->bytes, to->bytes, LEN) == 0);
    OK(ste_free_target(target));
    OK(ste_free_target(source));
}

/* Many operations at once, each told once with its pointer; one that is freed is not told. */
static void events(ste_engine *one, ste_engine *two, memory *from, memory *to) {
    enum { COUNT = 40 };
    ste_target *target = target_of(to->region, one);
    char names[COUNT] = {0};
    ste_event events[7];
    size_t told = 0, got = 0;
    while (ste_poll(one, events, 7, 0, &got) == STE_OK) {
        TRUE(0 && "all operations before were freed");
    }
    ste_operation *untold = NULL;
    for (size_t i = 0; i < COUNT; i++) {
        ste_operation *write = NULL;
        OK(ste_write(one, 1, from->region, i * PAGE, target, i * PAGE, PAGE, STE_NO_IMM, &names[i], &write));
    }
    OK(ste_write(one, 1, from->region, 0, target, 0, 8, STE_NO_IMM, NULL, &untold));
    OK(ste_free_operation(untold));
    while (told < COUNT) {
        OK(ste_poll(one, events, 7, SOON, &got));
        TRUE(got >= 1 && got <= 7);
        for (size_t i = 0; i < got; i++, told++) {
            char *name = (char *)events[i].user;
            TRUE(events[i].result.status == STE_OK && events[i].result.quiet == 1);
            TRUE(name >= names && name < names + COUNT && (*name)++ == 0);
            OK(ste_free_operation(events[i].operation));
        }
    }
    TRUE(all_are((uint8_t *)names, COUNT, 1));
    IS(STE_TIMEOUT, ste_poll(one, events, 7, MILLISECONDS(5), &got));
    TRUE(got == 0);
    IS(STE_TIMEOUT, ste_poll(two, events, 7, 0, &got));
    TRUE(memcmp(from->bytes, to->bytes, COUNT * PAGE) == 0);
    OK(ste_free_target(target));
}

/* A port holds packets back: the cancelled write would land later. */
static void cancels(ste_engine *one, ste_engine *two) {
    size_t len = (size_t)4 << 20;
    memory from = allocated(one, len, STE_LOCAL), to = allocated(two, len, STE_WRITE);
    ste_target *target = target_of(to.region, one);
    static const uint32_t HOWS[] = {STE_CANCEL_NOW, STE_CANCEL_DRAIN};
    for (size_t i = 0; i < 2; i++) {
        ste_operation *write = NULL;
        ste_result result = {-1, -1};
        memset(from.bytes, 0x11, len);
        OK(ste_soft_fault(one, 0, "hold=200ms"));
        OK(ste_write(one, 1, from.region, 0, target, 0, len, STE_NO_IMM, NULL, &write));
        nap(MILLISECONDS(5));
        OK(ste_cancel(write, HOWS[i], MILLISECONDS(5)));
        int ended = ste_wait(write, SOON, &result);
        if (ended == STE_OK) {
            not_exercised("all was written before the cancel");
        }
        IS(STE_CANCELLED, ended);
        TRUE(result.status == STE_CANCELLED && result.quiet == 1);
        TRUE(strncmp(ste_last_error(), "cancelled: ", 11) == 0);
        /* Memory of both ends is used again at once: nothing of it is sent or lands any more. */
        memset(from.bytes, 0x22, len);
        memset(to.bytes, 0xEE, len);
        nap(MILLISECONDS(300));
        TRUE(all_are(to.bytes, len, 0xEE));
        OK(ste_free_operation(write));
    }
    /* Pages that wait for room on a lane are dropped; those under way are waited for. */
    uint32_t indices[1024];
    for (uint32_t i = 0; i < 1024; i++) {
        indices[i] = i;
    }
    ste_pages pages = {indices, 1024, PAGE, 0};
    ste_operation *paged = NULL;
    ste_result ended = {-1, -1};
    memset(to.bytes, 0xEE, len);
    OK(ste_soft_fault(one, 0, "hold=100ms"));
    OK(ste_soft_fault(one, 1, "hold=100ms"));
    OK(ste_write_pages(one, 1, PAGE, from.region, &pages, target, &pages, STE_NO_IMM, NULL, &paged));
    OK(ste_cancel(paged, STE_CANCEL_UNPOSTED, 0));
    if (ste_wait(paged, SOON, &ended) == STE_OK) {
        not_exercised("all pages were written before the cancel");
    }
    TRUE(ended.status == STE_CANCELLED && ended.quiet == 1);
    size_t written = 0;
    for (size_t page = 0; page < 1024; page++) {
        int is_written = all_are(to.bytes + page * PAGE, PAGE, 0x22);
        TRUE(is_written || all_are(to.bytes + page * PAGE, PAGE, 0xEE));
        written += (size_t)is_written;
    }
    TRUE(written < 1024);
    OK(ste_free_operation(paged));
    /* What is missing is told, and is not quiet: it may still come. */
    ste_operation *missing = NULL;
    ste_result result = {-1, -1};
    OK(ste_expect(two, 0, 999, 3, MILLISECONDS(20), NULL, &missing));
    IS(STE_MISSING, ste_wait(missing, SOON, &result));
    TRUE(result.status == STE_MISSING && result.quiet == 0);
    OK(ste_free_operation(missing));
    OK(ste_free_target(target));
    OK(ste_close(one, SOON));
    OK(ste_close(two, SOON));
    freed(&from);
    freed(&to);
}

typedef struct {
    ste_engine *engine;
    uint32_t end;
    pthread_barrier_t *late;
} caller;

/* Sizes that differ; then bytes of one size; then a barrier. */
static void *exchanges(void *argument) {
    caller own = *(caller *)argument;
    uint8_t mine[9] = {(uint8_t)(own.end + 1), 2, 3}, all[2][9];
    uint32_t number = own.end + 40, numbers[2] = {0, 0};
    size_t sizes[2] = {99, 99};
    memset(all, 0xFF, sizeof all);
    OK(ste_exchange(own.engine, mine, 3 + own.end * 6, all, 9, sizes, SOON));
    TRUE(sizes[0] == 3 && sizes[1] == 9 && all[0][0] == 1 && all[1][0] == 2 && all[0][3] == 0xFF);
    OK(ste_exchange(own.engine, &number, 4, numbers, 4, NULL, SOON));
    TRUE(numbers[0] == 40 && numbers[1] == 41);
    OK(ste_exchange(own.engine, NULL, 0, NULL, 0, NULL, SOON));
    /* End 1 gives more than end 0 has room for. */
    sizes[0] = 77;
    if (own.end == 0) {
        IS(STE_TOO_SMALL, ste_exchange(own.engine, mine, 1, all, 1, sizes, SOON));
        TRUE(sizes[0] == 77);
    } else {
        OK(ste_exchange(own.engine, mine, 9, all, 9, sizes, SOON));
    }
    /* End 1 comes late: end 0 is told in time, and what it gave comes in order. */
    if (own.end == 1) {
        pthread_barrier_wait(own.late);
    }
    for (uint32_t turn = 0; turn < 8; turn++) {
        number = own.end * 100 + turn;
        if (own.end == 0 && turn < 7) {
            IS(STE_TIMEOUT, ste_exchange(own.engine, &number, 4, numbers, 4, NULL, MILLISECONDS(2)));
            continue;
        }
        if (own.end == 0) {
            pthread_barrier_wait(own.late);
        }
        OK(ste_exchange(own.engine, &number, 4, numbers, 4, NULL, SOON));
        TRUE(numbers[0] == turn && numbers[1] == 100 + turn);
    }
    return NULL;
}

static void exchanged(ste_engine *engines[2]) {
    pthread_t threads[2];
    caller callers[2];
    pthread_barrier_t late;
    TRUE(pthread_barrier_init(&late, NULL, 2) == 0);
    for (uint32_t end = 0; end < 2; end++) {
        callers[end] = (caller){engines[end], end, &late};
        TRUE(pthread_create(&threads[end], NULL, exchanges, &callers[end]) == 0);
    }
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    pthread_barrier_destroy(&late);
}

static void *waits(void *operation) {
    ste_result result = {-1, -1};
    IS(STE_CLOSED, ste_wait((ste_operation *)operation, UINT64_MAX, &result));
    TRUE(result.status == STE_CLOSED && result.quiet == 0);
    return NULL;
}

static void *polls(void *engine) {
    ste_event event;
    size_t count = 0;
    OK(ste_poll((ste_engine *)engine, &event, 1, UINT64_MAX, &count));
    TRUE(count == 1 && event.result.status == STE_CLOSED && event.user == engine);
    return NULL;
}

/* Threads that wait are told, and the memory is the caller's again. */
static void closed(ste_engine *one, ste_engine *two, memory *from, memory *to) {
    pthread_t threads[2];
    ste_operation *open = NULL;
    uint32_t number = 0;
    OK(ste_expect(two, 0, 1, 1, UINT64_MAX, two, &open));
    TRUE(pthread_create(&threads[0], NULL, waits, open) == 0);
    TRUE(pthread_create(&threads[1], NULL, polls, two) == 0);
    nap(MILLISECONDS(20));
    IS(STE_TIMEOUT, ste_close(two, 0));
    IS(STE_CLOSED, ste_writes_of(two, 1, &number));
    uint8_t description[STE_DESCRIPTION_MAX];
    size_t bytes = sizeof description;
    IS(STE_CLOSED, ste_describe(to->region, description, &bytes));
    OK(ste_close(two, SOON));
    freed(to);
    IS(STE_HANDLE, ste_close(two, SOON));
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    IS(STE_CLOSED, ste_test(open, NULL));
    OK(ste_free_operation(open));
    OK(ste_close(one, SOON));
    freed(from);
}

/* A NIC that is gone takes no command: it may hold on to the memory, which is not the caller's again. */
static int gone(void) {
    ste_engine *engines[2] = {NULL, NULL};
    opened(engines, 1);
    memory own = allocated(engines[0], LEN, STE_WRITE);
    OK(ste_soft_fault(engines[0], 0, "nic-gone"));
    IS(STE_TIMEOUT, ste_close(engines[0], SECONDS(3)));
    TRUE(strstr(ste_last_error(), "in use") != NULL);
    IS(STE_TIMEOUT, ste_close(engines[0], 0));
    OK(ste_close(engines[1], SOON));
    OK(ste_free_region(own.region));
    printf("gone: %s\n", ste_last_error());
    return 0;
}

int main(int count, char **words) {
    ste_engine *engines[2] = {NULL, NULL};
    if (count == 2 && strcmp(words[1], "gone") == 0) {
        return gone();
    }
    TRUE(ste_version() == STE_VERSION && ste_last_error()[0] == 0);
    opened(engines, 2);
    memory from = allocated(engines[0], LEN, STE_READ), to = allocated(engines[1], LEN, STE_WRITE);
    exchanged(engines);
    writes(engines[0], engines[1], &from, &to);
    pages_and_reads(engines[0], engines[1], &from, &to);
    events(engines[0], engines[1], &from, &to);
    ste_counters counters = {0, 0, 0};
    OK(ste_counts(engines[0], &counters));
    if (counters.failovers == 0) {
        not_exercised("no lane was left");
    }
    for (uint64_t until = now() + SOON, lanes = 0; lanes < 2;) {
        uint32_t found = 0;
        OK(ste_lanes_to(engines[0], 1, &found));
        lanes = found;
        TRUE(now() < until);
        nap(MILLISECONDS(5));
    }
    closed(engines[0], engines[1], &from, &to);
    opened(engines, 2);
    cancels(engines[0], engines[1]);
    printf("two ends in one process: every byte as it was sent, failovers: %llu\n",
           (unsigned long long)counters.failovers);
    return 0;
}
