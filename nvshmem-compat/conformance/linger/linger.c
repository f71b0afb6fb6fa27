/* Puts and barriers until a file is there, at least one turn.
 *
 *     linger FILE
 *
 * Each PE puts a counter to the next one; PE 0 looks for the file, and tells all which turn is the last: a PE that is
 * behind hears of it in the turn before. */
#include <nvshmem.h>
#include <nvshmemx.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    nvshmem_init();
    int me = nvshmem_my_pe(), pes = nvshmem_n_pes(), next = (me + 1) % pes, wrong = 0;
    long *words = nvshmem_calloc(2, sizeof *words);
    if (!words) return 20;
    nvshmem_barrier_all();
    for (long turn = 1; (!words[1] || turn <= words[1]) && !wrong; turn++) {
        nvshmem_long_p(words, turn, next);
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
