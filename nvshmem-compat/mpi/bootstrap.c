/* The bootstrap by MPI: what the host library asks MPI for. Built with the MPI of the machine's own mpicc, loaded when
 * a job starts from a communicator or under an MPI launcher; nothing else of the library knows MPI. */
#include <mpi.h>
#include <stdlib.h>

static void end(void) {
    int ended = 0;
    if (MPI_Finalized(&ended) == MPI_SUCCESS && !ended) MPI_Finalize();
}

/* MPI is up: the program's, or ours until the process ends. */
static int up(void) {
    int is_up = 0, ended = 0, provided;
    if (MPI_Finalized(&ended) != MPI_SUCCESS || ended || MPI_Initialized(&is_up) != MPI_SUCCESS) return 1;
    if (is_up) return 0;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS) return 1;
    return atexit(end);
}

static MPI_Comm of(const void *communicator) {
    return communicator ? *(const MPI_Comm *)communicator : MPI_COMM_WORLD;
}

/* Number of this process, and processes. NULL: all of the job. 0, or MPI cannot say. */
int shunt_bootstrap_mpi_place(const void *communicator, int *rank, int *size) {
    if (up()) return 1;
    MPI_Comm comm = of(communicator);
    if (comm == MPI_COMM_NULL) return 1;
    return MPI_Comm_rank(comm, rank) != MPI_SUCCESS || MPI_Comm_size(comm, size) != MPI_SUCCESS;
}

/* Gives the bytes of process 0 to all. */
int shunt_bootstrap_mpi_broadcast(const void *communicator, void *bytes, int count) {
    return MPI_Bcast(bytes, count, MPI_BYTE, 0, of(communicator)) != MPI_SUCCESS;
}
