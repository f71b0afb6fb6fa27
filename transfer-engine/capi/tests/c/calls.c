/* Functions that are called: at the ends of operations, and when words change. */
#include "two.h"

#define WRITES 64

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int ends[WRITES];
static int count, closed;
static ste_operation *operations[WRITES];
static ste_engine *engines[2];
static ste_target *target;
static memory from, to;

static void told(void) {
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void waits(uint64_t since) {
    struct timespec time;
    TRUE(now() - since < SOON);
    clock_gettime(CLOCK_REALTIME, &time);
    time.tv_sec++;
    pthread_cond_timedwait(&changed, &lock, &time);
}

/* Waits until so many functions were called. */
static void until(const int *what, int want) {
    uint64_t since = now();
    pthread_mutex_lock(&lock);
    while (*what < want) {
        waits(since);
    }
    pthread_mutex_unlock(&lock);
}

static void begun(size_t number, ste_operation **operation) {
    OK(ste_write(engines[0], 1, from.region, PAGE * number, target, PAGE * number, PAGE, STE_NO_IMM, &ends[number],
                 operation));
}

/* Counts, frees, and begins the next one: it may do all of it. */
static void on_end(const ste_event *event) {
    int *which = (int *)event->user;
    size_t number = (size_t)(which - ends);
    IS(STE_OK, event->result.status);
    TRUE(event->result.quiet == 1);
    TRUE(memcmp(from.bytes + PAGE * number, to.bytes + PAGE * number, PAGE) == 0);
    OK(ste_test(event->operation, NULL));
    OK(ste_free_operation(event->operation));
    IS(STE_REFUSED, ste_close(engines[0], SOON));
    TRUE(strstr(ste_last_error(), "ste_close: expected a thread of the program's") != NULL);
    pthread_mutex_lock(&lock);
    ++*which;
    count++;
    told();
    if (number + 2 < WRITES) {
        ste_operation *next = NULL;
        begun(number + 2, &next);
        OK(ste_when_ended(next, on_end));
    }
}

static void no_end(const ste_event *event) {
    (void)event;
    TRUE(!"a function of an operation that was freed");
}

static void on_closed(const ste_event *event) {
    IS(STE_CLOSED, event->result.status);
    TRUE(event->result.quiet == 0);
    pthread_mutex_lock(&lock);
    closed++;
    told();
}

static void ends_of_operations(void) {
    for (size_t i = 0; i < 2; i++) {
        begun(i, &operations[i]);
        if (i == 1) {
            /* It has ended. */
            IS(STE_OK, ste_wait(operations[i], SOON, NULL));
        }
        OK(ste_when_ended(operations[i], on_end));
    }
    until(&count, WRITES);
    for (size_t i = 0; i < WRITES; i++) {
        TRUE(ends[i] == 1);
    }
    ste_event event;
    size_t polled = 0;
    IS(STE_TIMEOUT, ste_poll(engines[0], &event, 1, 0, &polled));
    /* One that was polled, one that has a function, one that is freed. */
    begun(0, &operations[0]);
    OK(ste_poll(engines[0], &event, 1, SOON, &polled));
    IS(STE_REFUSED, ste_when_ended(operations[0], no_end));
    TRUE(strcmp(ste_last_error(), "operation: expected one whose end was not told, got one whose end was told") == 0);
    OK(ste_free_operation(operations[0]));
    IS(STE_HANDLE, ste_when_ended(operations[0], no_end));
    OK(ste_expect(engines[0], 1, 5, 1, UINT64_MAX, NULL, &operations[0]));
    IS(STE_REFUSED, ste_when_ended(operations[0], NULL));
    OK(ste_when_ended(operations[0], no_end));
    IS(STE_REFUSED, ste_when_ended(operations[0], no_end));
    OK(ste_free_operation(operations[0]));
    /* It ends with its engine. */
    OK(ste_expect(engines[0], 1, 6, 1, UINT64_MAX, NULL, &operations[1]));
    OK(ste_when_ended(operations[1], on_closed));
}

typedef struct {
    uint64_t word;
    uint64_t last;
    int calls;
    int most;
    ste_watcher *watcher;
} watched;

static int on_change(void *user, uint64_t before, uint64_t now) {
    watched *own = (watched *)user;
    pthread_mutex_lock(&lock);
    TRUE(before == own->last && now > before);
    own->last = now;
    own->calls++;
    int is_enough = own->calls == own->most;
    told();
    return is_enough;
}

static int on_own_end(void *user, uint64_t before, uint64_t now) {
    watched *own = (watched *)user;
    (void)before;
    (void)now;
    OK(ste_unwatch(own->watcher));
    pthread_mutex_lock(&lock);
    own->calls++;
    told();
    return 0;
}

static void put(uint64_t *word, uint64_t value) {
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

static void words(void) {
    watched all = {100, 100, 0, 0, NULL}, two = {0, 0, 0, 2, NULL}, own = {0, 0, 0, 0, NULL};
    ste_watcher *none = NULL;
    IS(STE_REFUSED, ste_watch(engines[0], NULL, on_change, NULL, &none));
    IS(STE_REFUSED, ste_watch(engines[0], (const uint64_t *)((uintptr_t)&all.word + 4), on_change, NULL, &none));
    TRUE(strstr(ste_last_error(), "word: expected an address that is a multiple of 8, got 0x") != NULL);
    IS(STE_REFUSED, ste_watch(engines[0], &all.word, NULL, NULL, &none));
    IS(STE_REFUSED, ste_watch(engines[0], &all.word, on_change, NULL, NULL));
    IS(STE_HANDLE, ste_watch(NULL, &all.word, on_change, NULL, &none));
    IS(STE_HANDLE, ste_unwatch((ste_watcher *)engines[0]));
    OK(ste_unwatch(NULL));
    TRUE(none == NULL);
    OK(ste_watch(engines[0], &all.word, on_change, &all, &all.watcher));
    OK(ste_watch(engines[0], &two.word, on_change, &two, &two.watcher));
    OK(ste_watch(engines[0], &own.word, on_own_end, &own, &own.watcher));
    for (uint64_t value = 101; value <= 20000; value++) {
        put(&all.word, value);
    }
    uint64_t since = now();
    pthread_mutex_lock(&lock);
    while (all.last != 20000) {
        waits(since);
    }
    pthread_mutex_unlock(&lock);
    put(&two.word, 1);
    until(&two.calls, 1);
    put(&two.word, 2);
    until(&two.calls, 2);
    put(&two.word, 3);
    put(&own.word, 1);
    until(&own.calls, 1);
    IS(STE_HANDLE, ste_unwatch(own.watcher));
    OK(ste_unwatch(two.watcher));
    OK(ste_unwatch(all.watcher));
    IS(STE_HANDLE, ste_unwatch(all.watcher));
    int calls = all.calls;
    put(&all.word, 20001);
    put(&own.word, 2);
    nap(MILLISECONDS(20));
    TRUE(all.calls == calls && two.calls == 2 && own.calls == 1);
}

int main(void) {
    static watched last = {0, 0, 0, 0, NULL};
    opened(engines, 2);
    from = allocated(engines[0], LEN, STE_LOCAL);
    to = allocated(engines[1], LEN, STE_WRITE);
    target = target_of(to.region, engines[0]);
    fill(from.bytes, LEN, 1);
    ends_of_operations();
    words();
    /* One that is watched while its engine is closed. */
    OK(ste_watch(engines[1], &last.word, on_change, &last, &last.watcher));
    OK(ste_free_target(target));
    OK(ste_close(engines[0], SOON));
    TRUE(closed == 1);
    OK(ste_free_operation(operations[1]));
    OK(ste_close(engines[1], SOON));
    put(&last.word, 1);
    OK(ste_unwatch(last.watcher));
    TRUE(last.calls == 0);
    freed(&from);
    freed(&to);
    printf("each function once, and every last value\n");
    return 0;
}
