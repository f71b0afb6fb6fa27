/* Two ends of this process over libfabric's tcp, while a rail goes down and comes back. */
#include "two.h"

static void refused(void) {
    ste_options options = STE_OPTIONS(SOON);
    ste_engine *engines[2] = {NULL, NULL};
    options.ends = 2;
    options.transport = STE_TRANSPORT_LIBFABRIC;
    options.provider = "nothing";
    IS(STE_NICS, ste_open(&options, engines));
    TRUE(strstr(ste_last_error(), "nothing") != NULL);
    options.provider = "tcp";
    options.addresses = "127.0.0.1";
    IS(STE_REFUSED, ste_open(&options, engines));
    TRUE(strcmp(ste_last_error(), "addresses: expected 2, one a rail, got 1") == 0);
    options.transport = STE_TRANSPORT_SHM;
    options.provider = NULL;
    options.addresses = NULL;
    IS(STE_REFUSED, ste_open(&options, engines));
    TRUE(strstr(ste_last_error(), "ends of one process over libfabric's shm: expected 1, got 2") != NULL);
    TRUE(engines[0] == NULL && engines[1] == NULL);
}

int main(void) {
    ste_options options = STE_OPTIONS(SOON);
    ste_engine *engines[2] = {NULL, NULL};
    options.ends = 2;
    options.transport = STE_TRANSPORT_TCP;
    options.addresses = "127.0.0.1,127.0.0.2";
    if (ste_open(&options, engines) != STE_OK) {
        printf("%s\n", ste_last_error());
        return 1;
    }
    memory from = allocated(engines[0], LEN, STE_LOCAL), to = allocated(engines[1], LEN, STE_WRITE);
    ste_target *target = target_of(to.region, engines[0]);
    uint32_t writes = 0;
    OK(ste_writes_of(engines[0], LEN, &writes));
    ste_counters counters = {0, 0, 0};
    uint64_t until = now() + SECONDS(20);
    for (unsigned round = 0; round < 20 || (counters.failovers == 0 && now() < until); round++) {
        ste_operation *write = NULL, *expected = NULL;
        if (round == 5 || round == 10) {
            OK(ste_soft_fault(engines[0], 0, round == 5 ? "down" : "up"));
        }
        fill(from.bytes, LEN, round);
        OK(ste_expect(engines[1], 0, 7, writes, SOON, NULL, &expected));
        OK(ste_write(engines[0], 1, from.region, 0, target, 0, LEN, 7, NULL, &write));
        OK(ste_wait(expected, SOON, NULL));
        TRUE(memcmp(from.bytes, to.bytes, LEN) == 0);
        OK(ste_wait(write, SOON, NULL));
        OK(ste_free_operation(write));
        OK(ste_free_operation(expected));
        OK(ste_counts(engines[0], &counters));
    }
    OK(ste_free_target(target));
    for (size_t i = 0; i < 2; i++) {
        OK(ste_close(engines[i], SOON));
    }
    freed(&from);
    freed(&to);
    refused();
    if (counters.failovers == 0) {
        not_exercised("down");
    }
    printf("every byte over libfabric\n");
    return 0;
}
