/* Two ends on soft NICs in this process, and memory between guards. */
#include "check.h"

#define LEN ((size_t)1 << 20)
#define PAGE ((size_t)4096)
#define PAGES (LEN / PAGE)
/* Beside each region: no byte of it may change. */
#define GUARD 64

typedef struct {
    uint8_t *block;
    uint8_t *bytes;
    size_t len;
    ste_region *region;
} memory;

/* Not aligned, and between guards. */
static inline memory allocated(ste_engine *engine, size_t len, uint32_t rights) {
    memory own = {(uint8_t *)malloc(len + 2 * GUARD), NULL, len, NULL};
    TRUE(own.block != NULL);
    memset(own.block, 0xA5, len + 2 * GUARD);
    own.bytes = own.block + GUARD + 3;
    memset(own.bytes, 0, len);
    OK(ste_register(engine, own.bytes, len, rights, &own.region));
    return own;
}

static inline void freed(memory *own) {
    TRUE(all_are(own->block, GUARD + 3, 0xA5) && all_are(own->bytes + own->len, GUARD - 3, 0xA5));
    OK(ste_free_region(own->region));
    free(own->block);
}

static inline void opened(ste_engine *engines[2], uint32_t rails) {
    ste_options options = STE_OPTIONS(SOON);
    options.nic = STE_NIC_SOFT;
    options.rails = rails;
    options.ends = 2;
    OK(ste_open(&options, engines));
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t end = 9, ends = 9;
        OK(ste_end(engines[i], &end));
        OK(ste_ends(engines[i], &ends));
        TRUE(end == i && ends == 2);
    }
}
