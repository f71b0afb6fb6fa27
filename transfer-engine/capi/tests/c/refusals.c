/* Calls that make no sense, between two ends in this process: each is told by status and text, and posts nothing. */
#include "two.h"

static void refusals_of_transfers(ste_engine *one, ste_engine *two, memory *from, memory *to, ste_engine *single) {
    ste_target *target = target_of(to->region, one), *unread = NULL, *few = NULL;
    memory other = allocated(single, PAGE, STE_READ_WRITE);
    few = target_of(other.region, one);
    unread = target_of(to->region, two);
    uint32_t inside[] = {0, 1}, beyond[] = {0, (uint32_t)PAGES};
    ste_pages good = {inside, 2, PAGE, 0}, bad = {beyond, 2, PAGE, 0}, one_page = {inside, 1, PAGE, 0};
    ste_pages none = {NULL, 2, PAGE, 0}, huge = {inside, SIZE_MAX, PAGE, 0};
    ste_operation *operation = NULL;
    ste_region *own = from->region;
    fill(to->bytes, LEN, 3);
#define WRITE(peer, at, target, to, len, imm) ste_write(one, peer, own, at, target, to, len, imm, NULL, &operation)
#define WRITE_PAGES(from, to) ste_write_pages(one, 1, PAGE, own, from, target, to, STE_NO_IMM, NULL, &operation)
    IS(STE_OUT_OF_REGION, WRITE(1, LEN - 4, target, 0, 8, STE_NO_IMM));
    IS(STE_OUT_OF_REGION, WRITE(1, 0, target, UINT64_MAX, 8, STE_NO_IMM));
    TRUE(strstr(ste_last_error(), "target: expected bytes within 1048576 of the region, got ") != NULL);
    IS(STE_OUT_OF_REGION, WRITE_PAGES(&good, &bad));
    IS(STE_OUT_OF_REGION, WRITE_PAGES(&bad, &good));
    IS(STE_REFUSED, WRITE_PAGES(&good, &one_page));
    IS(STE_REFUSED, WRITE_PAGES(&none, &good));
    IS(STE_REFUSED, WRITE_PAGES(&huge, &good));
    IS(STE_REFUSED, WRITE_PAGES(NULL, &good));
    IS(STE_REFUSED, WRITE(0, 0, target, 0, 8, STE_NO_IMM));
    IS(STE_REFUSED, WRITE(2, 0, target, 0, 8, STE_NO_IMM));
    IS(STE_REFUSED, WRITE(1, 0, target, 0, 8, -2));
    IS(STE_REFUSED, WRITE(1, 0, target, 0, 8, (int64_t)1 << 32));
    /* Described over one rail, where this end has two. */
    IS(STE_REFUSED, WRITE(1, 0, few, 0, 8, STE_NO_IMM));
    TRUE(strstr(ste_last_error(), "one for each rail") != NULL);
    /* A region of another engine. */
    IS(STE_REFUSED, ste_write(one, 1, to->region, 0, target, 0, 8, STE_NO_IMM, NULL, &operation));
    /* Memory that peers may write and not read. */
    IS(STE_RIGHTS, ste_read(one, 1, target, 0, own, 0, 8, NULL, &operation));
    TRUE(strcmp(ste_last_error(),
                "source: expected a region that was described for reads of peers, got one of writes") == 0);
    IS(STE_RIGHTS, ste_read(two, 0, unread, 0, to->region, 0, 8, NULL, &operation));
    IS(STE_REFUSED, ste_read(one, 1, target, 0, own, 0, 0, NULL, &operation));
    IS(STE_REFUSED, ste_expect(one, 1, 5, 0, SOON, NULL, &operation));
    IS(STE_REFUSED, ste_expect(one, 0, 5, 1, SOON, NULL, &operation));
    IS(STE_REFUSED, ste_write(one, 1, own, 0, target, 0, 8, STE_NO_IMM, NULL, NULL));
    TRUE(operation == NULL);
    /* Nothing was posted: nothing lands, nothing is told. */
    size_t count = 9;
    ste_event event;
    IS(STE_TIMEOUT, ste_poll(one, &event, 1, MILLISECONDS(30), &count));
    uint8_t *same = (uint8_t *)malloc(LEN);
    TRUE(same != NULL);
    fill(same, LEN, 3);
    TRUE(count == 0 && memcmp(same, to->bytes, LEN) == 0);
    free(same);
    /* A second expectation of the same immediate; the first stands. */
    ste_operation *first = NULL;
    OK(ste_expect(one, 1, 5, 1, UINT64_MAX, NULL, &first));
    IS(STE_REFUSED, ste_expect(one, 1, 5, 1, SOON, NULL, &operation));
    IS(STE_REFUSED, ste_cancel(first, STE_CANCEL_NOW, 0));
    IS(STE_TIMEOUT, ste_test(first, NULL));
    OK(ste_free_operation(first));
    OK(ste_free_target(target));
    OK(ste_free_target(unread));
    OK(ste_free_target(few));
    OK(ste_close(single, SOON));
    freed(&other);
}

static void refusals_of_memory(ste_engine *one, memory *from) {
    uint8_t description[STE_DESCRIPTION_MAX], small[1];
    size_t bytes = sizeof description, room = sizeof small;
    ste_target *target = NULL;
    ste_region *region = NULL;
    OK(ste_describe(from->region, NULL, &room));
    OK(ste_describe(from->region, description, &bytes));
    TRUE(room == bytes);
    room = sizeof small;
    IS(STE_TOO_SMALL, ste_describe(from->region, small, &room));
    TRUE(room == bytes);
    IS(STE_REFUSED, ste_describe(from->region, description, NULL));
    for (size_t cut = 0; cut < bytes; cut++) {
        IS(STE_DESCRIPTION, ste_import(one, description, cut, &target));
    }
    IS(STE_DESCRIPTION, ste_import(one, description, bytes + 1, &target));
    IS(STE_REFUSED, ste_import(one, NULL, bytes, &target));
    IS(STE_REFUSED, ste_import(one, description, bytes, NULL));
    description[0]++;
    IS(STE_DESCRIPTION, ste_import(one, description, bytes, &target));
    TRUE(strstr(ste_last_error(), "both ends must run the same version") != NULL);
    IS(STE_REFUSED, ste_register(one, NULL, 8, STE_LOCAL, &region));
    IS(STE_REFUSED, ste_register(one, from->bytes, 0, STE_LOCAL, &region));
    IS(STE_REFUSED, ste_register(one, from->bytes, SIZE_MAX, STE_LOCAL, &region));
    IS(STE_REFUSED, ste_register(one, from->bytes, 8, 4, &region));
    IS(STE_REFUSED, ste_register(one, from->bytes, 8, STE_LOCAL, NULL));
    TRUE(target == NULL && region == NULL);
}

static void refusals_of_handles(ste_engine *one, memory *from) {
    ste_engine *engine = NULL;
    ste_operation *operation = NULL;
    uint32_t number = 9;
    size_t count = 9;
    ste_event event;
    ste_target *freed = target_of(from->region, one);
    OK(ste_free_target(freed));
    IS(STE_HANDLE, ste_end(NULL, &number));
    TRUE(strcmp(ste_last_error(), "engine: expected a handle of ste_open, got NULL") == 0);
    IS(STE_HANDLE, ste_end((ste_engine *)from->region, &number));
    TRUE(strcmp(ste_last_error(),
                "engine: expected a handle of ste_open, got a handle of another kind: region") == 0);
    IS(STE_HANDLE, ste_end((ste_engine *)&number, &number));
    IS(STE_HANDLE, ste_free_target(freed));
    IS(STE_HANDLE, ste_write(one, 1, from->region, 0, freed, 0, 8, STE_NO_IMM, NULL, &operation));
    IS(STE_HANDLE, ste_free_region((ste_region *)one));
    IS(STE_HANDLE, ste_free_operation((ste_operation *)from->region));
    IS(STE_HANDLE, ste_wait(NULL, SOON, NULL));
    IS(STE_HANDLE, ste_cancel(NULL, STE_CANCEL_NOW, 0));
    IS(STE_HANDLE, ste_close((ste_engine *)from->region, SOON));
    IS(STE_HANDLE, ste_poll(NULL, &event, 1, 0, &count));
    IS(STE_REFUSED, ste_poll(one, NULL, 1, 0, &count));
    IS(STE_REFUSED, ste_poll(one, &event, 0, 0, &count));
    IS(STE_REFUSED, ste_poll(one, &event, 1, 0, NULL));
    IS(STE_REFUSED, ste_end(one, NULL));
    IS(STE_REFUSED, ste_soft_fault(one, 2, "down"));
    IS(STE_REFUSED, ste_soft_fault(one, 0, "dwon"));
    IS(STE_REFUSED, ste_soft_fault(one, 0, NULL));
    IS(STE_REFUSED, ste_exchange(one, NULL, 8, &number, 8, &count, SOON));
    IS(STE_REFUSED, ste_exchange(one, &number, 4, NULL, 4, NULL, SOON));
    IS(STE_REFUSED, ste_exchange(one, &number, 4, &number, 3, &count, SOON));
    OK(ste_free_region(NULL));
    OK(ste_free_target(NULL));
    OK(ste_free_operation(NULL));
    OK(ste_close(NULL, 0));
    ste_options options = STE_OPTIONS(SOON);
    IS(STE_REFUSED, ste_open(NULL, &engine));
    IS(STE_REFUSED, ste_open(&options, NULL));
    static const struct {
        size_t bytes;
        uint64_t timeout_ns;
        uint32_t nic, rails, ends, transport;
        double soft_gbps;
        const char *provider, *addresses, *why;
    } WRONG[] = {
        {1, 1, 0, 0, 0, 0, 0, NULL, NULL, "options.bytes: expected "},
        {0, 0, 0, 0, 0, 0, 0, NULL, NULL, "options.timeout_ns: expected 1 or more, got 0"},
        {0, 1, 4, 0, 0, 0, 0, NULL, NULL, "options.nic: expected one of STE_NIC_.., got 4"},
        {0, 1, 0, 9, 0, 0, 0, NULL, NULL, "options.rails: expected at most 8, got 9"},
        {0, 1, 0, 0, 1, 0, 0, NULL, NULL, "options.ends: expected 0 for the launcher's job, or 2 to 64, got 1"},
        {0, 1, 0, 0, 65, 0, 0, NULL, NULL, "options.ends: expected"},
        {0, 1, 0, 0, 0, 4, 0, NULL, NULL, "options.transport: expected one of STE_TRANSPORT_.., got 4"},
        {0, 1, 0, 0, 0, 0, -1, NULL, NULL, "options.soft_gbps: expected a number above 0, got -1"},
        {0, SOON, 0, 0, 2, 3, 0, NULL, NULL, "options.transport libfabric: expected options.provider, got none"},
        {0, SOON, 0, 0, 2, 1, 0, "efa", NULL, "options.provider efa: expected options.transport libfabric, got another"},
        {0, SOON, 3, 0, 2, 1, 0, NULL, NULL, "options.nic: expected rails of NICs, got libfabric's tcp"},
        {0, SOON, 0, 0, 2, 2, 1, NULL, NULL, "options.soft_gbps: expected rails of NICs, got libfabric's shm"},
        {0, SOON, 0, 0, 2, 0, 0, NULL, "10.0.0.1",
         "options.addresses: expected rails of libfabric, got NICs; set options.transport"},
    };
    for (size_t i = 0; i < sizeof WRONG / sizeof *WRONG; i++) {
        ste_options wrong = {WRONG[i].bytes ? WRONG[i].bytes : sizeof wrong, WRONG[i].timeout_ns, WRONG[i].nic,
                             WRONG[i].rails, WRONG[i].ends, WRONG[i].transport, WRONG[i].soft_gbps,
                             WRONG[i].provider, WRONG[i].addresses};
        IS(STE_REFUSED, ste_open(&wrong, &engine));
        TRUE(strncmp(ste_last_error(), WRONG[i].why, strlen(WRONG[i].why)) == 0);
    }
    /* No launcher has started this. */
    options.nic = STE_NIC_SOFT;
    IS(STE_REFUSED, ste_open(&options, &engine));
    TRUE(strstr(ste_last_error(), "SHUNT_RANK: expected a number") != NULL);
    TRUE(engine == NULL && operation == NULL);
}

int main(void) {
    ste_engine *engines[2] = {NULL, NULL}, *singles[2] = {NULL, NULL};
    opened(engines, 2);
    opened(singles, 1);
    memory from = allocated(engines[0], LEN, STE_READ), to = allocated(engines[1], LEN, STE_WRITE);
    refusals_of_transfers(engines[0], engines[1], &from, &to, singles[0]);
    refusals_of_memory(engines[0], &from);
    refusals_of_handles(engines[0], &from);
    for (size_t i = 0; i < 2; i++) {
        OK(ste_close(engines[i], SOON));
    }
    OK(ste_close(singles[1], SOON));
    freed(&from);
    freed(&to);
    printf("refused, and nothing posted\n");
    return 0;
}
