/* What Shunt's library has beside NVSHMEM's functions: errors as values, the state of paths, faults of soft NICs.
 *
 * Most calls of NVSHMEM have no status. Where one cannot do what it was asked for, this library prints one line and
 * ends the process with 2 (the call makes no sense), 3 (a peer is lost, or an operation is uncertain), 4 (it waited for
 * longer than SHUNT_CALL_DEADLINE) or 1 (anything else). A program that would rather be told registers a handler: the
 * call then returns, with 0 or nothing for an answer. */
#ifndef SHUNT_NVSHMEM_OWN_H
#define SHUNT_NVSHMEM_OWN_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    SHUNT_NVSHMEM_OK = 0,
    SHUNT_NVSHMEM_USAGE = 1,
    SHUNT_NVSHMEM_PEER_LOST = 2,
    SHUNT_NVSHMEM_UNCERTAIN = 3,
    SHUNT_NVSHMEM_OVERDUE = 4,
    SHUNT_NVSHMEM_INIT = 5,
    SHUNT_NVSHMEM_SYSTEM = 6
};

typedef struct {
    uint32_t bytes;      /* of this structure */
    int32_t kind;        /* one of the above */
    int32_t status;      /* what the process would end with */
    int32_t peer;        /* -1: none is concerned */
    int32_t channel;     /* at the peer; -1: none */
    int32_t local_rail;  /* path: rail of this end; -1: none */
    int32_t remote_rail; /* rail of the other end; -1: none */
    uint32_t syndrome;   /* of the first error completion, vendor's half << 8 */
    uint64_t ticket;     /* first operation not known to be done; the uncertain one */
    uint64_t unfinished; /* operations handed out and not done */
    char message[1024];  /* all of it, for people */
} shunt_nvshmem_error;

typedef void (*shunt_nvshmem_error_handler)(const shunt_nvshmem_error *error, void *user);

/* From now on failures are told to this handler, on the thread of the call; NULL: they end the process. */
void shunt_nvshmem_on_error(shunt_nvshmem_error_handler handler, void *user);
/* A handler that does nothing: calls return, and shunt_nvshmem_last_error tells. */
void shunt_nvshmem_keep_error(const shunt_nvshmem_error *error, void *user);
/* The last failure of a call of this thread, once: its kind, and all of it where `error` is not NULL. */
int shunt_nvshmem_last_error(shunt_nvshmem_error *error);
/* Answers SHUNT_NVSHMEM_UNCERTAIN: whether the operation of that ticket was applied. 0, or a status. */
int shunt_nvshmem_resolve(int pe, uint64_t ticket, int applied);
/* 1 while a PE can be reached, 0 once it is lost. */
int shunt_nvshmem_peer_alive(int pe);
/* How often this PE's channels left a path because of a fault, and went back. */
void shunt_nvshmem_switches(uint64_t *failovers, uint64_t *switchbacks);
/* How many peers are reached by the first path of their channel. */
int shunt_nvshmem_on_primary(void);
/* Makes a soft NIC of this PE fail now, one of the library or one that an interposer shows to libibverbs: a fault as
 * shmem_put_bw --list-faults prints them. 0, or a status: hardware does not fail on request. */
int shunt_nvshmem_soft_fault(int rail, const char *fault);
/* The agent of this PE dies now, and another one takes over, as after a failure of its own. 0, or a status. */
int shunt_nvshmem_restart_agent(void);

#ifdef __cplusplus
}
#endif

#endif
