/* Two ends on soft NICs in this process: messages, scatters, barriers, counters of immediates. */
#include "two.h"

static void ended(int want, ste_operation *operation) {
    ste_result result = {-1, -1};
    IS(want, ste_wait(operation, SOON, &result));
    TRUE(result.status == want);
    OK(ste_free_operation(operation));
}

/* The next message of an end is this one. */
static void heard(ste_engine *engine, uint32_t from, const void *message, size_t bytes) {
    static uint8_t buffer[STE_MESSAGE_MAX];
    size_t got = sizeof buffer;
    uint32_t peer = 9;
    OK(ste_receive(engine, SOON, &peer, buffer, &got));
    TRUE(peer == from && got == bytes && (bytes == 0 || memcmp(buffer, message, bytes) == 0));
}

/* Of every length, while a port goes down and comes back. */
static void messages(ste_engine *one, ste_engine *two) {
    static uint8_t sent[STE_MESSAGE_MAX];
    ste_operation *operation = NULL;
    uint8_t small[3];
    size_t room = sizeof small;
    uint32_t peer = 9;
    fill(sent, sizeof sent, 5);
    for (size_t number = 0; number < 100; number++) {
        size_t bytes = number == 50 ? STE_MESSAGE_MAX : number * 371 % 9000;
        if (number == 40) {
            OK(ste_soft_fault(one, 0, "down=100ms"));
        }
        OK(ste_send(one, 1, sent + number, number == 50 ? bytes - 50 : bytes, NULL, &operation));
        heard(two, 0, sent + number, number == 50 ? bytes - 50 : bytes);
        ended(STE_OK, operation);
    }
    IS(STE_TIMEOUT, ste_receive(two, MILLISECONDS(5), &peer, small, &room));
    OK(ste_send(two, 0, "four", 4, NULL, &operation));
    ended(STE_OK, operation);
    IS(STE_TOO_SMALL, ste_receive(one, SOON, &peer, small, &room));
    TRUE(room == 4 && peer == 9);
    IS(STE_REFUSED, ste_receive(one, SOON, &peer, NULL, &room));
    heard(one, 1, "four", 4);
    OK(ste_send(two, 0, NULL, 0, NULL, &operation));
    ended(STE_OK, operation);
    heard(one, 1, "", 0);
    operation = NULL;
    IS(STE_REFUSED, ste_send(one, 1, sent, STE_MESSAGE_MAX + 1, NULL, &operation));
    IS(STE_REFUSED, ste_send(one, 0, sent, 1, NULL, &operation));
    IS(STE_REFUSED, ste_send(one, 1, NULL, 1, NULL, &operation));
    TRUE(operation == NULL);
}

static void scatters(ste_engine *one, ste_engine *two, memory *from, memory *to) {
    ste_target *target = target_of(to->region, one);
    ste_share shares[] = {{1, 0, target, 10, 1000, 500, 7}, {1, 0, target, 5000, 2000, 600, 7}};
    ste_operation *scatter = NULL, *expected = NULL;
    ste_result results[2] = {{-1, -1}, {-1, -1}};
    size_t count = 1;
    uint64_t came = 9;
    fill(from->bytes, LEN, 1);
    OK(ste_scatter(one, from->region, shares, 2, NULL, &scatter));
    OK(ste_wait(scatter, SOON, NULL));
    IS(STE_TOO_SMALL, ste_shares(scatter, results, &count));
    TRUE(count == 2);
    OK(ste_shares(scatter, results, &count));
    TRUE(results[0].status == STE_OK && results[1].status == STE_OK && results[0].quiet && results[1].quiet);
    OK(ste_free_operation(scatter));
    for (uint64_t until = now() + SOON; came != 2; nap(MILLISECONDS(1))) {
        OK(ste_counter(two, 0, 7, &came));
        TRUE(now() < until);
    }
    TRUE(memcmp(to->bytes + 10, from->bytes + 1000, 500) == 0 && memcmp(to->bytes + 5000, from->bytes + 2000, 600) == 0);
    TRUE(all_are(to->bytes, 10, 0) && all_are(to->bytes + 510, 4490, 0) && all_are(to->bytes + 5600, LEN - 5600, 0));
    /* What came is forgotten, and an expectation ends with it. */
    OK(ste_forget(two, 0, 7));
    OK(ste_counter(two, 0, 7, &came));
    TRUE(came == 0);
    OK(ste_expect(two, 0, 7, 3, UINT64_MAX, NULL, &expected));
    OK(ste_forget(two, 0, 7));
    ended(STE_MISSING, expected);
    /* One share that leaves the region: nothing is posted. */
    shares[1].to_offset = LEN;
    scatter = NULL;
    IS(STE_OUT_OF_REGION, ste_scatter(one, from->region, shares, 2, NULL, &scatter));
    shares[1].reserved = 1;
    IS(STE_REFUSED, ste_scatter(one, from->region, shares, 2, NULL, &scatter));
    IS(STE_REFUSED, ste_scatter(one, from->region, shares, 0, NULL, &scatter));
    IS(STE_REFUSED, ste_scatter(one, from->region, NULL, 1, NULL, &scatter));
    IS(STE_REFUSED, ste_scatter(one, to->region, shares, 1, NULL, &scatter));
    TRUE(scatter == NULL);
    OK(ste_counter(two, 0, 7, &came));
    TRUE(came == 0);
    OK(ste_free_target(target));
}

static void meetings(ste_engine *one, ste_engine *two, memory *from, memory *to) {
    ste_other first = {1, 0, target_of(to->region, one)}, second = {0, 0, target_of(from->region, two)};
    ste_other twice[2] = {first, first};
    ste_operation *here = NULL, *there = NULL;
    OK(ste_barrier(one, 50, from->region, &first, 1, SOON, NULL, &here));
    IS(STE_TIMEOUT, ste_wait(here, MILLISECONDS(30), NULL));
    IS(STE_REFUSED, ste_cancel(here, STE_CANCEL_NOW, 0));
    size_t count = 0;
    IS(STE_REFUSED, ste_shares(here, NULL, &count));
    OK(ste_barrier(two, 50, to->region, &second, 1, SOON, NULL, &there));
    ended(STE_OK, here);
    ended(STE_OK, there);
    OK(ste_barrier(one, 51, from->region, &first, 1, MILLISECONDS(20), NULL, &here));
    ended(STE_MISSING, here);
    IS(STE_REFUSED, ste_barrier(one, 52, from->region, twice, 2, SOON, NULL, &here));
    IS(STE_REFUSED, ste_barrier(one, 52, from->region, NULL, 0, SOON, NULL, &here));
    IS(STE_REFUSED, ste_barrier(one, 52, to->region, &first, 1, SOON, NULL, &here));
    OK(ste_free_target(first.target));
    OK(ste_free_target(second.target));
}

int main(void) {
    ste_engine *engines[2] = {NULL, NULL};
    opened(engines, 2);
    memory from = allocated(engines[0], LEN, STE_WRITE), to = allocated(engines[1], LEN, STE_WRITE);
    messages(engines[0], engines[1]);
    scatters(engines[0], engines[1], &from, &to);
    meetings(engines[0], engines[1], &from, &to);
    ste_counters counters = {0, 0, 0};
    OK(ste_counts(engines[0], &counters));
    if (counters.failovers == 0) {
        not_exercised("no lane was left");
    }
    OK(ste_close(engines[0], SOON));
    OK(ste_close(engines[1], SOON));
    freed(&from);
    freed(&to);
    printf("every message and every share came\n");
    return 0;
}
