/* An end of a job of processes. `open SECONDS STATUS TEXT`: ste_open within that time returns that status, and its
 * text holds that. `lost`: end 1 is killed while end 0 writes to it. `waits`: while end 0 only waits for it. */
#include "check.h"
#include <signal.h>

static int opens(int seconds, int want, const char *text) {
    ste_engine *engine = NULL;
    ste_options options = STE_OPTIONS(SECONDS(seconds));
    uint64_t began = now();
    int status = ste_open(&options, &engine);
    if (status != want || strstr(ste_last_error(), text) == NULL) {
        printf("ste_open: expected %d and \"%s\", got %d: %s\n", want, text, status, ste_last_error());
        return 1;
    }
    TRUE(engine == NULL && now() - began < SECONDS(seconds) + SOON);
    printf("%s\n", ste_last_error());
    return 0;
}

static int loses(void) {
    ste_engine *engine = NULL;
    ste_options options = STE_OPTIONS(SOON);
    OK(ste_open(&options, &engine));
    size_t len = (size_t)1 << 20, bytes = STE_DESCRIPTION_MAX;
    uint8_t *memory = (uint8_t *)calloc(1, len), descriptions[2][STE_DESCRIPTION_MAX], mine[STE_DESCRIPTION_MAX];
    size_t sizes[2];
    uint32_t end = 9;
    ste_region *region = NULL;
    ste_target *target = NULL;
    TRUE(memory != NULL);
    OK(ste_end(engine, &end));
    OK(ste_register(engine, memory, len, STE_WRITE, &region));
    OK(ste_describe(region, mine, &bytes));
    OK(ste_exchange(engine, mine, bytes, descriptions, STE_DESCRIPTION_MAX, sizes, SOON));
    OK(ste_import(engine, descriptions[1 - end], sizes[1 - end], &target));
    if (end == 1) {
        ste_operation *expected = NULL;
        OK(ste_expect(engine, 0, 0, 1, SOON, NULL, &expected));
        OK(ste_wait(expected, SOON, NULL));
        raise(SIGKILL);
    }
    ste_operation *expected = NULL;
    ste_result result = {-1, -1};
    OK(ste_expect(engine, 1, 8, 1, UINT64_MAX, NULL, &expected));
    for (uint64_t until = now() + SOON;;) {
        ste_operation *write = NULL;
        OK(ste_write(engine, 1, region, 0, target, 0, len, 0, NULL, &write));
        int status = ste_wait(write, SOON, &result);
        OK(ste_free_operation(write));
        TRUE(status == result.status && now() < until);
        TRUE(status == STE_OK || status == STE_PEER_LOST || status == STE_UNPROVEN || status == STE_UNCERTAIN);
        TRUE(result.quiet == (status != STE_UNPROVEN));
        if (status == STE_PEER_LOST) {
            break;
        }
    }
    printf("end 0: %s\n", ste_last_error());
    /* It had no deadline: the peer is lost. */
    IS(STE_MISSING, ste_wait(expected, SOON, &result));
    OK(ste_free_operation(expected));
    OK(ste_free_target(target));
    OK(ste_close(engine, SOON));
    OK(ste_free_region(region));
    free(memory);
    return 0;
}

/* Nothing is sent to a peer that dies: what is expected of it ends all the same. */
static int waits(void) {
    ste_engine *engine = NULL;
    ste_options options = STE_OPTIONS(SOON);
    uint32_t end = 9;
    OK(ste_open(&options, &engine));
    OK(ste_end(engine, &end));
    OK(ste_exchange(engine, NULL, 0, NULL, 0, NULL, SOON));
    if (end == 1) {
        /* The exchange of end 0 has to be over as well, and nothing else tells. */
        nap(MILLISECONDS(500));
        raise(SIGKILL);
    }
    for (int turn = 0; turn < 2; turn++) {
        ste_operation *expected = NULL;
        OK(ste_expect(engine, 1, 8, 1, UINT64_MAX, NULL, &expected));
        IS(STE_MISSING, ste_wait(expected, SOON, NULL));
        OK(ste_free_operation(expected));
    }
    printf("end 0: %s\n", ste_last_error());
    OK(ste_close(engine, SOON));
    return 0;
}

int main(int count, char **words) {
    if (count == 5 && strcmp(words[1], "open") == 0) {
        return opens(atoi(words[2]), atoi(words[3]), words[4]);
    }
    if (count == 2 && strcmp(words[1], "waits") == 0) {
        return waits();
    }
    TRUE(count == 2 && strcmp(words[1], "lost") == 0);
    return loses();
}
