/* The symmetric heap, registered buffers, who and how many, versions. */
#include "suite.h"

static void about(void) {
    int major, minor, patch, provided = -1;
    char name[NVSHMEM_MAX_NAME_LEN];
    nvshmem_info_get_version(&major, &minor);
    CHECK(major == NVSHMEM_MAJOR_VERSION && minor == NVSHMEM_MINOR_VERSION, "version");
    nvshmemx_vendor_get_version_info(&major, &minor, &patch);
    CHECK(major == 3 && minor == 8 && patch == 0, "vendor version");
    nvshmem_info_get_name(name);
    CHECK(strstr(name, "Shunt") && strlen(name) < sizeof name, "name");
    nvshmem_query_thread(&provided);
    CHECK(provided == NVSHMEM_THREAD_SERIALIZED, "threads");
    CHECK(nvshmemx_init_status() == NVSHMEM_STATUS_IS_INITIALIZED, "status");
    CHECK(nvshmemid_init_status() == NVSHMEM_STATUS_IS_INITIALIZED, "status by its other name");
    CHECK(me >= 0 && me < pes, "PE");
}

static void registered(void) {
    static char buffer[1000], *inside;
    inside = nvshmem_malloc(64);
    CHECK(nvshmemx_buffer_register(buffer, sizeof buffer) == 0, "register");
    shunt_nvshmem_on_error(shunt_nvshmem_keep_error, NULL);
    CHECK(nvshmemx_buffer_register(buffer + 10, 10) == 2, "overlap");
    CHECK(nvshmemx_buffer_register(inside, 10) == 2, "symmetric");
    CHECK(nvshmemx_buffer_unregister(buffer + 1) == 2, "unknown");
    CHECK(!nvshmemx_buffer_register_symmetric(buffer, sizeof buffer, 0), "a part of the heap");
    shunt_nvshmem_error error;
    CHECK(shunt_nvshmem_last_error(&error) == SHUNT_NVSHMEM_USAGE && strstr(error.message, "nvshmem_malloc"), "why");
    CHECK(!nvshmemx_buffer_register_symmetric_at_preferred_address(buffer, 10, inside, 0), "there");
    CHECK(nvshmemx_buffer_unregister_symmetric(buffer, 10) == 2, "none");
    CHECK(nvshmemx_cumodule_init(NULL) == 2 && nvshmemx_culibrary_init(NULL) == 2, "modules without device functions");
    shunt_nvshmem_on_error(NULL, NULL);
    nvshmemx_buffer_unregister_all();
    CHECK(nvshmemx_buffer_register(buffer, 10) == 0 && nvshmemx_buffer_unregister(buffer) == 0, "unregister");
    nvshmem_free(inside);
}

static void regions(void) {
    nvshmemx_region_handle_t handle;
    nvshmemx_region_attrs_t attrs = NVSHMEMX_REGION_ATTRS_INITIALIZER;
    int active = 7;
    attrs.hints = NVSHMEMX_REGION_HINT_BATCH_RMA;
    CHECK(nvshmemx_region_start(&handle, &attrs) == 0 && nvshmemx_region_stop(handle) == 0, "region");
    CHECK(nvshmemx_region_is_active(NVSHMEMX_REGION_HINT_BATCH_RMA, &active) == 0 && active == 0, "active");
    shunt_nvshmem_on_error(shunt_nvshmem_keep_error, NULL);
    attrs.hints = 6;
    CHECK(nvshmemx_region_start(&handle, &attrs) == 2 && nvshmemx_region_stop(0) == 2, "hints");
    CHECK(nvshmemx_region_is_active(0, NULL) == 2, "no address");
    shunt_nvshmem_on_error(NULL, NULL);
}

void families_heap(void) {
    about();
    regions();
    registered();
    char *base = nvshmem_malloc(1);
    int mapped = pes == 1 || nvshmem_team_n_pes(NVSHMEM_TEAM_SHARED) > 1;
    for (int round = 0; round < 10; round++) {
        size_t count = 100 + 1000 * (size_t)round;
        char *a = nvshmem_malloc(count), *b = nvshmem_calloc(count, 3), *c = nvshmem_align(4096, count);
        CHECK(a && b && c && (uintptr_t)c % 4096 == 0, "allocated");
        /* The same place on every PE. */
        ptrdiff_t at[3] = {a - base, b - base, c - base};
        fold(at, sizeof at);
        for (size_t i = 0; i < 3 * count; i++) CHECK(b[i] == 0, "calloc");
        CHECK(nvshmem_ptr(a, me) == a && !nvshmem_ptr(a, NEXT) == !mapped, "ptr");
        CHECK(!nvshmem_ptr(&count, me) && !nvshmemx_mc_ptr(NVSHMEM_TEAM_WORLD, a), "ptr");
        memset(a, me, count);
        memset(b, 0x55, 3 * count);
        nvshmem_putmem(c, a, count, NEXT);
        nvshmem_barrier_all();
        CHECK(c[0] == BEFORE && c[count - 1] == BEFORE, "put");
        nvshmem_free(b);
        nvshmem_free(a);
        nvshmem_free(c);
        step();
    }
    CHECK(!nvshmem_malloc(0), "no bytes");
    CHECK(!nvshmem_malloc((size_t)1 << 45), "too many");
    nvshmem_free(NULL);
    nvshmem_free(base);
}
