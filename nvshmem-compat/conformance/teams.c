/* Teams: the built-in ones, strided ones and planes of the program's own, and calls of theirs. */
#include "suite.h"

static long *to, *from;

/* The sum of the world numbers of a team's members, by the team's own reduction. */
static void sums(nvshmem_team_t team, long expect, const char *type) {
    *from = me;
    CHECK(nvshmem_long_sum_reduce(team, to, from, 1) == 0 && *to == expect, type);
    fold(to, sizeof *to);
    CHECK(nvshmem_barrier(team) == 0 && nvshmem_team_sync(team) == 0, type);
    step();
}

static void built_in(void) {
    CHECK(nvshmem_team_my_pe(NVSHMEM_TEAM_WORLD) == me && nvshmem_team_n_pes(NVSHMEM_TEAM_WORLD) == pes, "world");
    /* All PEs of the node, or each alone. */
    int mapped = nvshmem_team_n_pes(NVSHMEM_TEAM_SHARED) > 1, number = nvshmem_team_my_pe(NVSHMEM_TEAM_SHARED);
    CHECK(nvshmem_team_n_pes(NVSHMEM_TEAM_SHARED) == (mapped ? pes : 1) && number == (mapped ? me : 0), "shared");
    CHECK(nvshmem_team_n_pes(NVSHMEMX_TEAM_NODE) == pes, "node");
    CHECK(nvshmem_team_n_pes(NVSHMEMX_TEAM_SAME_MYPE_NODE) == 1, "same number");
    CHECK(nvshmem_team_translate_pe(NVSHMEM_TEAM_SHARED, number, NVSHMEM_TEAM_WORLD) == me, "translate");
    CHECK(nvshmem_team_my_pe(NVSHMEM_TEAM_INVALID) == -1 && nvshmem_team_n_pes(NVSHMEM_TEAM_INVALID) == -1, "none");
    sums(NVSHMEM_TEAM_WORLD, (long)pes * (pes - 1) / 2, "world");
    sums(NVSHMEM_TEAM_SHARED, mapped ? (long)pes * (pes - 1) / 2 : me, "shared");
    sums(NVSHMEMX_TEAM_NODE, (long)pes * (pes - 1) / 2, "node");
}

static void strided(void) {
    nvshmem_team_config_t config, read;
    memset(&config, 0, sizeof config);
    config.num_contexts = 3;
    int even = (pes + 1) / 2;
    nvshmem_team_t team = 99;
    CHECK(nvshmem_team_split_strided(NVSHMEM_TEAM_WORLD, 0, 2, even, &config, NVSHMEM_TEAM_CONFIG_MASK_NUM_CONTEXTS,
                                     &team) == 0, "strided");
    CHECK((team == NVSHMEM_TEAM_INVALID) == (me % 2 == 1), "strided");
    if (team != NVSHMEM_TEAM_INVALID) {
        CHECK(nvshmem_team_n_pes(team) == even && nvshmem_team_my_pe(team) == me / 2, "strided");
        nvshmem_team_get_config(team, &read);
        CHECK(read.num_contexts == 3, "config");
        sums(team, (long)even * (even - 1), "strided");
        /* A team of a team, the other way round. */
        nvshmem_team_t back;
        CHECK(nvshmem_team_split_strided(team, even - 1, -1, even, NULL, 0, &back) == 0, "reversed");
        CHECK(nvshmem_team_my_pe(back) == even - 1 - me / 2, "reversed");
        CHECK(nvshmem_team_translate_pe(back, 0, NVSHMEM_TEAM_WORLD) == 2 * (even - 1), "reversed");
        sums(back, (long)even * (even - 1), "reversed");
        nvshmem_team_destroy(back);
        nvshmem_team_destroy(team);
        CHECK(nvshmem_team_my_pe(team) == -1, "destroyed");
    } else {
        step(), step();
    }
}

static void plane(void) {
    nvshmem_team_t row, column;
    CHECK(nvshmem_team_split_2d(NVSHMEM_TEAM_WORLD, 2, NULL, 0, &row, NULL, 0, &column) == 0, "plane");
    int first = me / 2 * 2, width = first + 1 < pes ? 2 : 1;
    CHECK(nvshmem_team_n_pes(row) == width && nvshmem_team_my_pe(row) == me % 2, "row");
    sums(row, width == 2 ? 2 * first + 1 : first, "row");
    long expect = 0;
    for (int pe = me % 2; pe < pes; pe += 2) expect += pe;
    CHECK(nvshmem_team_my_pe(column) == me / 2, "column");
    sums(column, expect, "column");
    int seven = 7, *all = nvshmem_malloc(sizeof(int) * 8), *one = nvshmem_malloc(sizeof(int));
    *one = me == nvshmem_team_translate_pe(column, 0, NVSHMEM_TEAM_WORLD) ? seven + me : 0;
    CHECK(nvshmem_int_broadcast(column, all, one, 1, 0) == 0 && *all == seven + me % 2, "column broadcast");
    fold(all, sizeof(int));
    nvshmem_team_destroy(row);
    nvshmem_team_destroy(column);
    nvshmem_barrier_all();
    nvshmem_free(one);
    nvshmem_free(all);
}

/* What is no team is refused with a status, and nothing is left of it. */
static void refused(void) {
    nvshmem_team_t team;
    shunt_nvshmem_error error;
    shunt_nvshmem_on_error(shunt_nvshmem_keep_error, NULL);
    CHECK(nvshmem_team_split_strided(NVSHMEM_TEAM_WORLD, 0, 1, pes + 1, NULL, 0, &team) == 2, "too many");
    CHECK(team == NVSHMEM_TEAM_INVALID, "too many");
    CHECK(shunt_nvshmem_last_error(&error) == SHUNT_NVSHMEM_USAGE && strstr(error.message, "team: expected PEs 0 to "), "why");
    CHECK(nvshmem_team_sync(42) == 2 && shunt_nvshmem_last_error(NULL) == SHUNT_NVSHMEM_USAGE, "unknown");
    nvshmem_team_destroy(NVSHMEM_TEAM_WORLD);
    CHECK(shunt_nvshmem_last_error(&error) == SHUNT_NVSHMEM_USAGE && strstr(error.message, "built in"), "world");
    nvshmem_int_p((int *)&error, 1, NEXT);
    CHECK(shunt_nvshmem_last_error(&error) == SHUNT_NVSHMEM_USAGE && strstr(error.message, "symmetric heap"), "heap");
    nvshmem_quiet();
    CHECK(shunt_nvshmem_last_error(&error) == SHUNT_NVSHMEM_OK && error.peer == -1, "none");
    shunt_nvshmem_on_error(NULL, NULL);
    nvshmem_barrier_all();
}

void families_teams(void) {
    to = nvshmem_malloc(sizeof *to);
    from = nvshmem_malloc(sizeof *from);
    built_in();
    strided();
    plane();
    /* Ids are used again. */
    for (int i = 0; i < 20; i++) {
        nvshmem_team_t team;
        CHECK(nvshmem_team_split_strided(NVSHMEM_TEAM_WORLD, i % pes, 1, 1, NULL, 0, &team) == 0, "again");
        if (team != NVSHMEM_TEAM_INVALID) nvshmem_team_destroy(team);
        step();
    }
    refused();
    nvshmem_free(from);
    nvshmem_free(to);
}
