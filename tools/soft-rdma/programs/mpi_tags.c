/* Ranks that send each other, and themselves, tagged messages by MPI and compare each byte.
 *
 *   mpirun -n RANKS .. mpi_tags SECONDS
 *
 * Messages of all sizes, so that MPI uses inline data, copies, buffers of the caller's and rendezvous. After each window
 * of them comes a sum over all ranks. Ends with status 0 if all came as they were sent, 1 if something did not. MPI ends
 * the program where it fails itself. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <mpi.h>

enum { WINDOW = 8, LARGEST = 256 << 10, HEADER = 8, SUMS = 1000, TAGS = 1 << 20, SENDS = 0, RECEIVES = 1 };

static const size_t sizes[] = { 8, 40, 200, 1000, 4096, 8200, 30000, 65536, 150001, LARGEST };

static size_t size_of(uint64_t number)
{
    return sizes[number % (sizeof sizes / sizeof *sizes)];
}

/* The bytes of a message, by its number, its sender and its receiver. */
static uint64_t seed(uint64_t number, int from, int to)
{
    return number ^ (uint64_t)from << 40 ^ (uint64_t)to << 52;
}

static uint8_t byte_at(uint64_t seed, size_t at)
{
    return (uint8_t)((seed * 2654435761u + at * 31 + (at >> 8)) >> 3);
}

static void fill(uint8_t *to, size_t size, uint64_t seed)
{
    memcpy(to, &seed, HEADER);
    for (size_t at = HEADER; at < size; at++)
        to[at] = byte_at(seed, at);
}

static int holds(const uint8_t *from, size_t size, uint64_t seed)
{
    if (memcmp(from, &seed, HEADER) != 0)
        return 0;
    for (size_t at = HEADER; at < size; at++)
        if (from[at] != byte_at(seed, at))
            return 0;
    return 1;
}

/* Sends and receives a window of messages at once: how many came otherwise than they were sent. */
static unsigned exchange(uint8_t *buffers[2][WINDOW], uint64_t first, int rank, int to, int from)
{
    MPI_Request requests[2 * WINDOW];
    unsigned wrong = 0;
    for (unsigned n = 0; n < WINDOW; n++) {
        size_t size = size_of(first + n);
        int tag = (int)((first + n) % TAGS);
        memset(buffers[RECEIVES][n], 0xee, size);
        fill(buffers[SENDS][n], size, seed(first + n, rank, to));
        MPI_Irecv(buffers[RECEIVES][n], (int)size, MPI_BYTE, from, tag, MPI_COMM_WORLD, &requests[2 * n]);
        MPI_Isend(buffers[SENDS][n], (int)size, MPI_BYTE, to, tag, MPI_COMM_WORLD, &requests[2 * n + 1]);
    }
    MPI_Waitall(2 * WINDOW, requests, MPI_STATUSES_IGNORE);
    for (unsigned n = 0; n < WINDOW; n++)
        wrong += !holds(buffers[RECEIVES][n], size_of(first + n), seed(first + n, from, rank));
    return wrong;
}

/* How many words of a sum over all ranks are not what they should be. */
static unsigned sum(uint64_t number, int rank, int ranks)
{
    uint64_t mine[SUMS], all[SUMS];
    unsigned wrong = 0;
    for (unsigned n = 0; n < SUMS; n++)
        mine[n] = number + n * (uint64_t)(rank + 1);
    MPI_Allreduce(mine, all, SUMS, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    for (unsigned n = 0; n < SUMS; n++)
        wrong += all[n] != number * (uint64_t)ranks + n * (uint64_t)(ranks * (ranks + 1) / 2);
    return wrong;
}

int main(int count, char **args)
{
    MPI_Init(&count, &args);
    if (count != 2) {
        fprintf(stderr, "usage: mpi_tags SECONDS\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    uint8_t *buffers[2][WINDOW];
    for (unsigned n = 0; n < 2 * WINDOW; n++)
        if ((buffers[n / WINDOW][n % WINDOW] = malloc(LARGEST)) == NULL)
            MPI_Abort(MPI_COMM_WORLD, 2);

    uint64_t number = 1;
    time_t until = time(NULL) + atoi(args[1]);
    unsigned wrong = 0, all = 0;
    for (int more = 1; more; number += WINDOW) {
        for (int step = 0; step < ranks; step++)
            wrong += exchange(buffers, number, rank, (rank + step) % ranks, (rank + ranks - step) % ranks);
        wrong += sum(number, rank, ranks);
        more = time(NULL) < until;
        MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    MPI_Allreduce(&wrong, &all, 1, MPI_UNSIGNED, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%llu messages from each rank to each, %u wrong\n", (unsigned long long)number - 1, all);
    MPI_Finalize();
    return all != 0;
}
