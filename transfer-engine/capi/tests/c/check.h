/* What the programs here share. Exit statuses: 0 well, 1 wrong, 4 a fault or a cancel struck nothing: run it again */
#define _POSIX_C_SOURCE 200809L

#include <pthread.h>
#include <shunt_transfer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SECONDS(n) ((uint64_t)(n) * 1000000000u)
#define MILLISECONDS(n) ((uint64_t)(n) * 1000000u)
/* Longer than anything takes here. */
#define SOON SECONDS(100)
#define NOT_EXERCISED 4

/* A call that must return this status. */
#define IS(want, call) is_status((want), (call), #call, __LINE__)
#define OK(call) IS(STE_OK, call)
#define TRUE(condition) is_true((condition) ? 1 : 0, #condition, __LINE__)

static void is_status(int want, int got, const char *call, int line) {
    if (got != want) {
        printf("line %d: %s: expected %d (%s), got %d (%s): %s\n", line, call, want, ste_strerror(want), got,
               ste_strerror(got), ste_last_error());
        exit(1);
    }
}

static void is_true(int condition, const char *text, int line) {
    if (!condition) {
        printf("line %d: expected %s; the last error: %s\n", line, text, ste_last_error());
        exit(1);
    }
}

static inline void nap(uint64_t ns) {
    struct timespec time = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    nanosleep(&time, NULL);
}

static inline uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return SECONDS(time.tv_sec) + (uint64_t)time.tv_nsec;
}

static inline void not_exercised(const char *what) {
    printf("not exercised: %s\n", what);
    exit(NOT_EXERCISED);
}

/* Bytes that differ from one round to the next, and from one place to the next. */
static inline void fill(uint8_t *bytes, size_t count, unsigned round) {
    for (size_t at = 0; at < count; at++) {
        bytes[at] = (uint8_t)((at * 7 + at / 4096 + round * 31) % 251);
    }
}

static inline int all_are(const uint8_t *bytes, size_t count, uint8_t value) {
    for (size_t at = 0; at < count; at++) {
        if (bytes[at] != value) {
            return 0;
        }
    }
    return 1;
}

/* The region of one end as another one sees it. */
static inline ste_target *target_of(ste_region *region, ste_engine *engine) {
    uint8_t description[STE_DESCRIPTION_MAX];
    size_t bytes = sizeof description;
    ste_target *target = NULL;
    OK(ste_describe(region, description, &bytes));
    OK(ste_import(engine, description, bytes, &target));
    return target;
}
