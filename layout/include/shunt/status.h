/* The status page of a PE: what its agent tells any process of the machine. C form of layout/src/status.rs.
 *
 * Map /dev/shm/shunt-<uid>/<pid>-<pe> read-only, check magic, version and bytes, then call shunt_status_read as often
 * as you like: no system call, no lock, nothing of the GPU is touched. */
#ifndef SHUNT_STATUS_H
#define SHUNT_STATUS_H

#include <stdint.h>

#define SHUNT_STATUS_MAGIC UINT64_C(0x535453544e554853) /* "SHUNTSTS" */
#define SHUNT_STATUS_VERSION 3u
#define SHUNT_STATUS_RAILS 64
#define SHUNT_STATUS_PEERS 4096

enum shunt_rail_state { SHUNT_RAIL_ABSENT = 0, SHUNT_RAIL_UP = 1, SHUNT_RAIL_DOWN = 2 };

/* Larger is worse. */
enum shunt_peer_state {
    SHUNT_PEER_FINE = 0,      /* on its primary, every backup ready */
    SHUNT_PEER_THIN = 1,      /* on its primary; a backup is missing */
    SHUNT_PEER_BACKUP = 2,    /* on a backup */
    SHUNT_PEER_SWITCHING = 3, /* inside a switch */
    SHUNT_PEER_PATHLESS = 4,  /* inside a switch that finds no path */
    SHUNT_PEER_LOST = 5,      /* ended */
};

/* How the PE's rank stands among those that agreed on a mask. */
enum shunt_standing {
    SHUNT_STANDING_OFF = 0,    /* nobody asked for a mask */
    SHUNT_STANDING_MEMBER = 1, /* it goes on */
    SHUNT_STANDING_OUT = 2,    /* the others go on without it, and told it so */
    SHUNT_STANDING_ALONE = 3,  /* it lost a peer, found no majority, and masked itself */
};

/* The last switch that a fault made. */
struct shunt_status_fault {
    uint64_t noticed_unix_ns; /* 0: there was none */
    uint64_t lasted_ns;
    uint32_t peer, channel;
    uint32_t local_rail, remote_rail; /* of the path that was left */
    uint32_t cause, syndrome, kind, reserved;
};

/* Counters are sums over all channels since the start. */
struct shunt_status_summary {
    uint64_t updated_unix_ns; /* older than a second: the agent is gone or held up */
    uint64_t generation;      /* changes with everything but updated_unix_ns */
    uint64_t trouble_unix_ns; /* since when there is trouble; 0: all is well */
    uint64_t armed_unix_ns;   /* when every backup was ready for the first time; 0: not yet */
    uint32_t worst_peer;      /* enum shunt_peer_state */
    uint32_t rails_down;
    uint32_t channels, on_backup, switching, dead;
    uint64_t failovers, switchbacks, suspicions, fences_asked, replayed, placeholders, late_tickets, ledger_cuts;
    uint64_t pathless, uncertain;
    uint64_t events, events_lost;
    uint64_t epoch;            /* decisions about who is left out */
    uint32_t masked, standing; /* ranks left out, for this PE; enum shunt_standing */
    struct shunt_status_fault last_fault;
};

struct shunt_status_rail {
    uint32_t state; /* enum shunt_rail_state */
    uint32_t downs;
    uint64_t changed_unix_ns;
    uint32_t retired; /* Paths over it that an operator took out. */
    uint32_t leaving; /* Paths that are being taken out, and are drained first. */
    char name[16];
};

struct shunt_status_page {
    uint64_t magic;
    uint32_t version, bytes;
    uint32_t pid, pe, pe_count, rails;
    uint64_t started_unix_ns;
    char job[48];
    uint64_t reserved0[4];
    uint64_t sequence; /* odd while what follows changes */
    struct shunt_status_summary summary;
    struct shunt_status_rail rail[SHUNT_STATUS_RAILS];
    uint8_t peer[SHUNT_STATUS_PEERS]; /* enum shunt_peer_state */
    uint64_t mask[SHUNT_STATUS_PEERS / 64]; /* ranks left out, for this PE: a bit each */
    uint64_t reserved1[5];
} __attribute__((aligned(64)));

/* Copies the summary. 0; -1 if the writer was at it all the time, as one that died in the middle would be. */
static inline int shunt_status_read(const struct shunt_status_page *page, struct shunt_status_summary *out)
{
    const uint64_t *from = (const uint64_t *)&page->summary;
    uint64_t *to = (uint64_t *)out;
    for (int tries = 0; tries < 1000; tries++) {
        uint64_t before = __atomic_load_n(&page->sequence, __ATOMIC_ACQUIRE);
        if (before & 1)
            continue;
        for (unsigned i = 0; i < sizeof *out / sizeof *to; i++)
            to[i] = __atomic_load_n(&from[i], __ATOMIC_RELAXED);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (__atomic_load_n(&page->sequence, __ATOMIC_RELAXED) == before)
            return 0;
    }
    return -1;
}

#endif
