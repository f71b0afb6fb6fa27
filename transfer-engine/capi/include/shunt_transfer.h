/* Transfers between processes over several NICs, which outlive one of them: writes, pages, reads, immediates that
 * are counted once, messages in order, cancel with proof. Link with -lshunt_transfer.
 *
 * Every call returns a status: STE_OK, or why not. ste_last_error() has the text of this thread's last failure, in
 * the form "what: expected X, got Y". A call that fails with STE_OUT_OF_REGION to STE_HANDLE has posted nothing.
 *
 * Handles are opaque. NULL, a handle of another kind and one that was freed are refused with STE_HANDLE. A handle is
 * never used twice. ste_free_.. of NULL does nothing, and neither do ste_close and ste_unwatch.
 *
 * Any thread may call. A child of fork() may not: the engine's thread is its parent's. Times are nanoseconds;
 * UINT64_MAX waits without a limit. Calls without a time wait for the engine's thread alone, which answers between
 * two steps.
 *
 * An engine is an end of a job (ste_open), connected to all others from its start, or a node (ste_listen) that knows
 * nobody, and connects to other nodes one by one at any time.
 *
 * Memory that is registered stays the caller's. It must stay readable and writable until ste_deregister() of its
 * region or ste_close() of its engine has returned STE_OK; ste_free_region() gives back the handle and not the memory.
 * Between the start of a transfer and its end do not touch what it reads or writes. After an end with `quiet` 1 the
 * memory may be used again: no byte lands in it any more, and none is read. One exception: of a write with an immediate
 * that ended with STE_OK the receiver knows by its counted immediates that all bytes are there, and not before. */
#ifndef SHUNT_TRANSFER_H
#define SHUNT_TRANSFER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header: major, minor and patch in bytes 2, 1 and 0. */
#define STE_VERSION 0x000100u

typedef struct ste_engine ste_engine;
typedef struct ste_region ste_region;
typedef struct ste_target ste_target;
typedef struct ste_operation ste_operation;
typedef struct ste_watcher ste_watcher;

enum ste_status {
    STE_OK = 0,
    /* How an operation ended. */
    STE_PEER_LOST = 1, /* no rail to the peer worked for SHUNT_GIVE_UP: 1 s, 10 s on soft NICs */
    STE_PEER_LEFT = 2, /* the peer has left, or this end has cut it off */
    STE_CANCELLED = 3, /* before all of it was written */
    STE_UNCERTAIN = 4, /* pieces with immediates may have arrived or not: agree with the peer before repeating it */
    STE_UNPROVEN = 5,  /* pieces may still land: do not use the memory before one of the processes has ended */
    STE_DENIED = 6,    /* a NIC refused it: the peer has taken its region back, say. Ask it for a new description */
    STE_MISSING = 7,   /* an expectation's or barrier's deadline passed, or its peer was lost or has left */
    /* Why a call did nothing. */
    STE_OUT_OF_REGION = 8,
    STE_RIGHTS = 9,       /* the region was described for another use */
    STE_REFUSED = 10,     /* an argument that makes no sense */
    STE_DESCRIPTION = 11, /* bytes that describe no region of this version */
    STE_HANDLE = 12,
    STE_TOO_SMALL = 13,
    STE_TIMEOUT = 14, /* not within the time that the call was given: what it waits for goes on */
    STE_CLOSED = 15,
    STE_NICS = 16,   /* the NICs or the other ends cannot be reached */
    STE_SYSTEM = 17, /* a NIC or another end refuses */
    STE_DEFECT = 18  /* a defect of this library */
};

/* What carries transfers. */
enum ste_transport {
    STE_TRANSPORT_RDMA = 0,     /* queue pairs of NICs, as `nic` has it */
    STE_TRANSPORT_TCP = 1,      /* libfabric over TCP */
    STE_TRANSPORT_SHM = 2,      /* libfabric over shared memory: processes of one machine */
    STE_TRANSPORT_LIBFABRIC = 3 /* libfabric, as `provider` has it */
};

/* What carries the packets of NICs. */
enum ste_nic {
    STE_NIC_ENVIRONMENT = 0, /* as SHUNT_NIC says, else auto */
    STE_NIC_AUTO = 1,        /* RDMA devices where there are any, else software */
    STE_NIC_MLX5 = 2,        /* ConnectX through libibverbs and libmlx5 */
    STE_NIC_SOFT = 3         /* NICs in software: no hardware is needed */
};

/* What peers may do with a region. */
enum ste_rights { STE_LOCAL = 0, STE_WRITE = 1, STE_READ = 2, STE_READ_WRITE = 3 };

enum ste_cancel_how {
    STE_CANCEL_UNPOSTED = 0, /* what is not posted is dropped, the rest is waited for */
    STE_CANCEL_DRAIN = 1,    /* the same for a time, then as NOW */
    STE_CANCEL_NOW = 2       /* rails that hold pieces of it are fenced; other transfers lose nothing */
};

/* Begin with: ste_options options = STE_OPTIONS(timeout). */
typedef struct {
    size_t bytes;        /* of this structure */
    uint64_t timeout_ns; /* for all ends to be there and connected; 1 or more */
    uint32_t nic;        /* enum ste_nic */
    uint32_t rails;      /* NICs of each end: 1 to 8, 0 for 2. All ends have as many */
    uint32_t ends;       /* 2 to 64 ends in this process, or 0: the end that the launcher's variables name */
    uint32_t transport;  /* enum ste_transport. All ends have the same */
    double soft_gbps;    /* Gb/s of each rail in software; 0 for 1.0 */
    const char *provider;  /* of libfabric, such as "efa", with STE_TRANSPORT_LIBFABRIC; else NULL */
    const char *addresses; /* of this machine for rails of libfabric, one a rail, with commas; NULL: as it finds them */
} ste_options;

#define STE_OPTIONS(timeout) { sizeof(ste_options), (timeout), STE_NIC_ENVIRONMENT, 0, 0, STE_TRANSPORT_RDMA, 0.0, \
                               NULL, NULL }

/* Pages of a region: page i begins at offset + indices[i] * stride. */
typedef struct {
    const uint32_t *indices;
    size_t count;
    uint64_t stride; /* bytes */
    uint64_t offset; /* bytes */
} ste_pages;

/* How an operation ended. */
typedef struct {
    int32_t status; /* STE_OK, STE_PEER_LOST .. STE_MISSING, or STE_CLOSED */
    int32_t quiet;  /* 1: nothing of it lands any more. 0 with STE_UNPROVEN, STE_CLOSED and STE_MISSING */
} ste_result;

/* What one peer gets of a scatter. */
typedef struct {
    uint32_t peer;
    uint32_t reserved; /* 0 */
    ste_target *to;
    uint64_t to_offset;   /* bytes */
    uint64_t from_offset; /* bytes in the source */
    uint64_t bytes;       /* at most 2^30 */
    int64_t imm;          /* what the peer counts once, or STE_NO_IMM */
} ste_share;

/* One of those that meet. */
typedef struct {
    uint32_t peer;
    uint32_t reserved; /* 0 */
    ste_target *target;
} ste_other;

/* What has become of a peer of a node. Of one that left nothing lands here any more, and its number is not used
 * again. */
typedef struct {
    uint32_t peer;
    int32_t joined; /* 1: it is there now; 0: it has left, or did not answer for SHUNT_GIVE_UP */
} ste_change;

typedef struct {
    ste_operation *operation;
    void *user; /* what it was started with */
    ste_result result;
} ste_event;

/* Is called once, with the end of an operation. */
typedef void (*ste_on_end)(const ste_event *event);
/* Is called with the value of a word before a change, and now. 0: it is called for the next one as well. */
typedef int (*ste_on_change)(void *user, uint64_t before, uint64_t now);

typedef struct {
    uint64_t failovers; /* lanes that were left because of a fault; a lane is a path to a peer over a pair of rails */
    uint64_t opened;    /* lanes that were opened */
    uint64_t again;     /* pieces that were sent again on another lane */
} ste_counters;

/* A write that nothing counts. */
#define STE_NO_IMM ((int64_t)-1)
/* No description is longer, in bytes. */
#define STE_DESCRIPTION_MAX 512
/* No message is longer, in bytes. */
#define STE_MESSAGE_MAX ((size_t)1 << 20)
/* No text of ste_listens_at() is longer, in bytes, its 0 among them. */
#define STE_ADDRESS_MAX 80

/* The version of the library, as STE_VERSION has it. */
uint32_t ste_version(void);
/* A status in words. */
const char *ste_strerror(int status);
/* What the last failure of this thread was, "" if there was none. It stands until the next failure of this thread. */
const char *ste_last_error(void);

/* Finds NICs, joins the job and connects every other end over each rail. `engines` has one place; with options.ends
 * it has as many, and all ends live in this process: for tests. A launcher is `shunt run`, mpirun, srun or torchrun. */
int ste_open(const ste_options *options, ste_engine **engines);
/* Ends it: operations that have not ended end with STE_CLOSED. STE_OK: no NIC touches memory of this engine any
 * more, and the handle is gone. Regions, targets and operations are still to be freed. STE_TIMEOUT: memory may still
 * be touched, call it again. A NIC that takes no command any more never lets go: keep the memory until the process
 * ends. It takes 300 ms and more: other ends' last words are answered. Other ends may need this one, so agree to
 * end, for example by ste_exchange(). Threads that wait in a call of this engine are told STE_CLOSED, those in
 * ste_connect() STE_NICS. */
int ste_close(ste_engine *engine, uint64_t timeout_ns);

/* Opens a node that knows nobody, and listens at `at`, "HOST:PORT" (port 0: a free one), for others with the same
 * secret: that of SHUNT_SECRET or SHUNT_SECRET_FILE; where neither is set and `at` is this machine's alone, that of
 * this user. `number`: one of its own among the nodes of this machine whose NICs are software. They share the fabric
 * that SHUNT_FABRIC names. options.ends is 0. The number of this end is 0, and ste_exchange() is refused. */
int ste_listen(const ste_options *options, const char *at, uint32_t number, ste_engine **engine);
/* Where a node listens. *bytes: the room in `text`, then the bytes that there are, with the 0 at the end. With `text`
 * NULL it says how many alone. */
int ste_listens_at(ste_engine *engine, char *text, size_t *bytes);
/* Meets the node that listens at `to`, and waits for lanes to it: all rails, or those that are open when the time is
 * over. *peer is its number here, and it has another one for this node. One that is connected has its number.
 * STE_NICS: it did not answer in time, or no lane opened; at once where it has another secret, another version or another
 * number of rails, or is this node itself. It is no peer then: one that joined meanwhile has left again. */
int ste_connect(ste_engine *engine, const char *to, uint64_t timeout_ns, uint32_t *peer);
/* Peers of a node that are there. *count: the places in `peers`, then how many there are. With `peers` NULL it says
 * how many alone. */
int ste_peers(ste_engine *engine, uint32_t *peers, size_t *count);
/* The oldest change among the peers of a node that was not told yet. STE_TIMEOUT: none within this time. */
int ste_next_change(ste_engine *engine, uint64_t timeout_ns, ste_change *change);
/* Cuts a peer off for good, whether it answers or not. Transfers to it and expectations of it end. STE_OK: nothing of
 * it lands in memory of this end any more. STE_TIMEOUT: it is cut off, and that is not proven: ask again, with the same
 * number, and it waits for the same proof. An end of a job that has left in order is asked for the same way. Its number
 * is not used again; a node that connects later has another. */
int ste_revoke(ste_engine *engine, uint32_t peer, uint64_t timeout_ns);

/* The number of this end, and how many there are: of a node, itself and its peers now. */
int ste_end(ste_engine *engine, uint32_t *end);
int ste_ends(ste_engine *engine, uint32_t *ends);
/* Gives bytes to all ends and takes everyone's: those of end i lie at all + i * each, and sizes[i] says how many.
 * With sizes NULL every end gives `each` bytes. All ends call it equally often, from one thread at a time.
 * STE_TOO_SMALL: an end gave more than `each`; nothing was written, and the exchange is over. STE_TIMEOUT: it goes
 * on without the caller and counts as called; those after it keep their order. With `each` 0 it is a barrier. */
int ste_exchange(ste_engine *engine, const void *mine, size_t bytes, void *all, size_t each, size_t *sizes,
                 uint64_t timeout_ns);

/* Registers memory on every rail. When it may be freed stands at the top. */
int ste_register(ste_engine *engine, void *address, size_t bytes, uint32_t rights, ste_region **region);
/* What a peer needs to import it. *bytes: the room in `buffer`, then the bytes that there are. With `buffer` NULL it
 * says how many alone. */
int ste_describe(ste_region *region, void *buffer, size_t *bytes);
/* A peer's region, by the bytes that ste_describe() gave there. */
int ste_import(ste_engine *engine, const void *description, size_t bytes, ste_target **target);
/* Has every NIC take a region's keys back. STE_OK: nothing of any peer lands in it or reads it, whether the peer
 * answers or not, and the memory is the caller's alone. The handle is still to be freed. What a peer still sends to it
 * ends there with STE_DENIED. STE_REFUSED: a transfer of this end uses it. STE_SYSTEM, STE_TIMEOUT: memory may still
 * be touched. */
int ste_deregister(ste_region *region);
int ste_free_region(ste_region *region);
int ste_free_target(ste_target *target);

/* Starts to write bytes of a region into a peer's. `imm`: what the peer counts, ste_writes_of(bytes) times, 0 to
 * 2^32 - 1 or STE_NO_IMM. `user` comes back with the event. Transfers have no order. */
int ste_write(ste_engine *engine, uint32_t peer, ste_region *from, uint64_t from_offset, ste_target *to,
              uint64_t to_offset, uint64_t bytes, int64_t imm, void *user, ste_operation **operation);
/* Starts to write pages, the first to the first and so on. The peer counts an immediate for each page. */
int ste_write_pages(ste_engine *engine, uint32_t peer, uint64_t page_bytes, ste_region *from,
                    const ste_pages *from_pages, ste_target *to, const ste_pages *to_pages, int64_t imm, void *user,
                    ste_operation **operation);
/* Starts to read bytes of a peer's region into one of this end. The peer is told nothing. */
int ste_read(ste_engine *engine, uint32_t peer, ste_target *from, uint64_t from_offset, ste_region *to,
             uint64_t to_offset, uint64_t bytes, void *user, ste_operation **operation);
/* Starts to write parts of a region to several peers: one write and one immediate each. Each share ends for itself: a
 * peer that is lost holds up no other one. The operation ends when all have, with the status of the first share that
 * failed. */
int ste_scatter(ste_engine *engine, ste_region *from, const ste_share *shares, size_t count, void *user,
                ste_operation **operation);
/* How each share of a scatter ended, in order. *count: the places in `results`, then how many there are. STE_TIMEOUT:
 * it goes on. */
int ste_shares(ste_operation *operation, ste_result *results, size_t *count);
/* Starts to meet others: ends when each of them has called it with this end, or after this time with STE_MISSING. The
 * regions lend their keys alone, and targets are for writes. What was written before is not covered: wait for its end
 * first. Another failure is that of a peer which has come and may not know that this end has. Where one failed take
 * another immediate for the next: a late one would count. */
int ste_barrier(ste_engine *engine, uint32_t imm, ste_region *region, const ste_other *others, size_t count,
                uint64_t timeout_ns, void *user, ste_operation **operation);

/* Starts to send a message of at most STE_MESSAGE_MAX bytes, which are copied. A peer gets the messages of an end in
 * order, each once. STE_OK at its end: the peer's NIC has all of it. */
int ste_send(ste_engine *engine, uint32_t peer, const void *message, size_t bytes, void *user,
             ste_operation **operation);
/* The oldest message that was not taken, and whose it is. *bytes: the room in `buffer`, then the bytes of the message.
 * STE_TOO_SMALL: it is longer, and is left where it is. STE_TIMEOUT: none within this time. Messages wait in memory
 * until they are taken. */
int ste_receive(ste_engine *engine, uint64_t timeout_ns, uint32_t *peer, void *buffer, size_t *bytes);

/* Awaits `count` immediates of a peer; those that came before are counted. After that time, or when the peer is
 * lost, it ends with STE_MISSING. One at a time of each peer and immediate. */
int ste_expect(ste_engine *engine, uint32_t peer, uint32_t imm, uint64_t count, uint64_t timeout_ns, void *user,
               ste_operation **operation);

/* How many immediates of a peer have arrived and were not taken by an expectation. */
int ste_counter(ste_engine *engine, uint32_t peer, uint32_t imm, uint64_t *count);
/* Drops that count, of a transfer that was cancelled, say. An expectation of it ends with STE_MISSING. */
int ste_forget(ste_engine *engine, uint32_t peer, uint32_t imm);

/* How an operation ended: the status is returned, and is in *result unless that is NULL. STE_TIMEOUT: it goes on. */
int ste_test(ste_operation *operation, ste_result *result);
int ste_wait(ste_operation *operation, uint64_t timeout_ns, ste_result *result);
/* The ends of operations that were not told yet, oldest first, at most `most`. Each is told once, unless it is freed
 * first. STE_TIMEOUT: none within this time. STE_OK: *count of them, 1 or more, whatever each ended with. */
int ste_poll(ste_engine *engine, ste_event *events, size_t most, uint64_t timeout_ns, size_t *count);
/* Has a function called with the end of an operation, instead of an event: at once if it has ended, and with STE_CLOSED
 * if its engine is closed before. One thread of the engine makes all its calls, one after the other, and does nothing
 * else: so a function may begin operations, wait and free, and holds up the next calls alone. ste_close() is refused
 * there, and waits for the last call. What a function throws ends the process. STE_REFUSED: its end was told already,
 * or it has a function. One that is freed is not called for. */
int ste_when_ended(ste_operation *operation, ste_on_end call);
/* Cancels a transfer or a scatter and returns at once; its end says what came of it. An end of STE_OK: all of it was
 * written before. `timeout_ns` is for STE_CANCEL_DRAIN alone. */
int ste_cancel(ste_operation *operation, uint32_t how, uint64_t timeout_ns);
/* An operation that has not ended goes on, and nothing says when it ends: keep its memory until the engine is
 * closed. */
int ste_free_operation(ste_operation *operation);

/* Has the engine look at a word, 8 bytes at a multiple of 8, in each of its steps: that which a kernel writes, say, in
 * one piece. What was written before the word is seen by `call`, which is called as that of ste_when_ended(). Values
 * between two looks are passed over, and so are those that come while it is called; the last one is told. The word must
 * stay readable until ste_unwatch() or ste_close() has returned STE_OK. */
int ste_watch(ste_engine *engine, const uint64_t *word, ste_on_change call, void *user, ste_watcher **watcher);
/* Ends a watcher and frees it. STE_OK: its word is not read and its function not called any more; from that function
 * itself: not again. STE_CLOSED: the same once ste_close() has returned STE_OK. */
int ste_unwatch(ste_watcher *watcher);

/* How many immediates a single write of so many bytes counts. Both ends compute the same. */
int ste_writes_of(ste_engine *engine, uint64_t bytes, uint32_t *count);
int ste_counts(ste_engine *engine, ste_counters *counters);
/* Lanes to a peer that work now. */
int ste_lanes_to(ste_engine *engine, uint32_t peer, uint32_t *lanes);
/* Makes a rail of this end fail now, where NICs are software: a fault as `shmem_put_bw --list-faults` prints them,
 * such as "down", "up" or "down=200ms". Hardware refuses. */
int ste_soft_fault(ste_engine *engine, uint32_t rail, const char *fault);

#ifdef __cplusplus
}
#endif

#endif
