// A kernel that asks for what cannot be: a put from an address that no other PE has. Its call returns; the PE tells.
#include "../programs/program.h"
#include <shunt_nvshmem.h>

__global__ void family(void *memory, unsigned *wrong) {
    const Tally tally{wrong};
    // NVSHMEM's own headers have this one, too, and do not compile it.
    double2 *pairs = (double2 *)memory;
    pairs[0] = double2{(double)nvshmem_my_pe(), nvshmem_my_pe() + 10.0};
    tally.want(nvshmemx_double2_maxloc_reduce_block(NVSHMEM_TEAM_WORLD, pairs + 1, pairs, 1) == 0);
    tally.want(pairs[1].x == nvshmem_n_pes() - 1 && pairs[1].y == nvshmem_n_pes() + 9);
    // All PEs are on this node.
    int *there = (int *)nvshmem_ptr((int *)memory + 64, next_pe());
    tally.want(there != nullptr && nvshmem_ptr(&there, next_pe()) == nullptr);
    if (there != nullptr) *there = 7 + nvshmem_my_pe();
    nvshmemx_barrier_all_block();
    const int before = (nvshmem_my_pe() + nvshmem_n_pes() - 1) % nvshmem_n_pes();
    tally.want(((int *)memory)[64] == 7 + before);
    int here = 1;
    nvshmem_int_put((int *)memory, &here, 1, next_pe());
    const unsigned long long fault = shunt_nvshmem_device_fault();
    tally.want(fault >> 32 == SHUNT_BAD_ADDRESS && (int)fault == next_pe());
}

// With an argument: kernels that have not ended on two GPUs when the library goes down.
extern "C" unsigned long long shunt_native_still_running;

// The host library's functions for modules, which programs ask the loader for, come to the device library.
static int modules() {
    auto *module = (CUmod_st *)16;
    auto *library = (CUlib_st *)32;
    return nvshmemx_cumodule_init(module) == 17 && nvshmemx_cumodule_finalize(module) == 16 &&
                   nvshmemx_culibrary_init(library) == 35 && nvshmemx_culibrary_finalize(library) == 34
               ? 0
               : 6;
}

int main(int count, char **arguments) {
    if (count > 1 && !std::strcmp(arguments[1], "modules")) return modules();
    if (count > 1) {
        shunt_native_still_running = 5;
        if (!std::strcmp(arguments[1], "told")) shunt_nvshmem_on_error(shunt_nvshmem_keep_error, nullptr);
    }
    const int status = program("odd", family);
    shunt_nvshmem_error error;
    if (count > 1 && shunt_nvshmem_last_error(&error) == SHUNT_NVSHMEM_OVERDUE) std::printf("told: %s\n", error.message);
    return status;
}
