/* What the host tells device code beside the root of the device state. Words of 64 bits, in this order; offsets are
 * offsets in the symmetric heap. */
#ifndef SHUNT_NVSHMEM_DEVICE_STATE_H
#define SHUNT_NVSHMEM_DEVICE_STATE_H

typedef struct {
    unsigned long long version;      /* SHUNT_NVSHMEM_DEVICE_VERSION; 0: the library is not up */
    unsigned long long me;           /* this PE */
    unsigned long long pes;          /* of the job */
    unsigned long long base;         /* address of the heap, for the device */
    unsigned long long user;         /* bytes of the heap that the program has */
    unsigned long long channels;     /* of kernels, at each peer: the default, then handles of queue pairs */
    unsigned long long deadline_ns;  /* longest time of a call */
    unsigned long long team_ids;     /* rows of the table of teams */
    unsigned long long teams;        /* offset: a row of shunt_nvshmem_team for each id */
    unsigned long long members;      /* offset: for each id, a 32-bit PE number for each member */
    unsigned long long meetings;     /* offset: a word for each id and PE, written by that PE */
    unsigned long long work;         /* offset: for each id, memory that reductions work in */
    unsigned long long work_bytes;   /* of it, for each id */
    unsigned long long answers;      /* offset: words that answers land in */
    unsigned long long claims;       /* offset: a word for each of them, 1 while somebody uses it */
    unsigned long long answer_count; /* how many */
    unsigned long long never;        /* offset: a word that stays 0 */
    unsigned long long faults;       /* offset: the first fault (status << 32 | PE), and how many */
    unsigned long long mapped;       /* offset: for each PE, the address of its heap here; 0: not mapped */
    unsigned long long exact;        /* 1: atomics are executed by the word's owner */
} shunt_nvshmem_device;

typedef struct {
    unsigned long long size;    /* members; 0: there is no such team */
    unsigned long long me;      /* this PE's number in it */
    unsigned long long meeting; /* how often it has met on devices */
    unsigned long long unused;
} shunt_nvshmem_team;

#define SHUNT_NVSHMEM_DEVICE_VERSION 7

#endif
