/* Puts and barriers until a file is there, at least one turn.
 *
 *     linger FILE [START FAULT]
 *
 * Each PE puts a counter to the next one; PE 0 looks for the file, and tells all which turn is the last: a PE that is
 * behind hears of it in the turn before. Once the file START is there, the soft NIC of PE 0's first rail fails as FAULT
 * says. */
#include <nvshmem.h>
#include <nvshmemx.h>
#include <shunt_nvshmem.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc != 2 && argc != 4) return 2;
    int fault = argc == 4;
    nvshmem_init();
    int me = nvshmem_my_pe(), pes = nvshmem_n_pes(), next = (me + 1) % pes, wrong = 0;
    long *words = nvshmem_calloc(2, sizeof *words);
    if (!words) return 20;
    nvshmem_barrier_all();
    for (long turn = 1; (!words[1] || turn <= words[1]) && !wrong; turn++) {
        nvshmem_long_p(words, turn, next);
        if (me == 0 && fault && access(argv[2], F_OK) == 0) {
            fault = 0;
            if (shunt_nvshmem_soft_fault(0, argv[3])) return 21;
        }
        if (me == 0 && !words[1] && access(argv[1], F_OK) == 0) {
            for (int pe = 0; pe < pes; pe++) nvshmem_long_p(words + 1, turn, pe);
        }
        nvshmem_barrier_all();
        if (words[0] != turn) printf("PE %d: the word is %ld, expected %ld\n", me, words[0], turn), wrong = 1;
        nvshmem_barrier_all();
        usleep(1000);
    }
    printf("PE %d: status %d\n", me, wrong);
    fflush(stdout);
    nvshmem_finalize();
    return wrong;
}
