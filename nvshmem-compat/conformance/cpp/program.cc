// The headers in C++: structures as NVSHMEM 3.8 lays them out, the macros that programs say errors with, and a job of
// one. The one header has all of it.
#include <device_host/nvshmem_common.cuh>
#include <host/nvshmem_api.h>
#include <host/nvshmemx_api.h>
#include <non_abi/nvshmem_version.h>
#include <nvshmem_host.h>
#include <shunt_nvshmem.h>

#include <cstddef>
#include <cstdio>

static_assert(sizeof(nvshmemx_uniqueid_t) == 128 && sizeof(nvshmemx_uniqueid_args_t) == 24, "unique id");
static_assert(offsetof(nvshmemx_uniqueid_args_t, id) == 8 && offsetof(nvshmemx_uniqueid_args_t, nranks) == 20, "id");
static_assert(sizeof(nvshmemx_init_args_t) == 128 && sizeof(nvshmemx_init_attr_t) == 144, "attributes");
static_assert(offsetof(nvshmemx_init_args_t, cuda_device_id) == 32, "arguments");
static_assert(offsetof(nvshmemx_init_attr_t, mpi_comm) == 8 && offsetof(nvshmemx_init_attr_t, args) == 16, "args");
static_assert(sizeof(nvshmem_team_config_t) == 64 && sizeof(nvshmem_team_t) == 4, "teams");
static_assert(NVSHMEM_CMP_GE == 5 && NVSHMEM_SIGNAL_SET == 9 && NVSHMEMX_INIT_WITH_UNIQUEID == 8, "constants");

// Ends with what the macros leave.
static int said(int status) {
    NVSHMEMI_NE_ERROR_JMP(status, 0, NVSHMEMX_ERROR_INTERNAL, out, "status %d", status);
    NVSHMEMI_NULL_ERROR_RET(&status, status, NVSHMEMX_ERROR_SYMMETRY, "no %s", "address");
    NVSHMEMI_ERROR_PRINT("nothing wrong with %d", status);
out:
    return status;
}

int main() {
    if (said(0) != 0 || said(3) != NVSHMEMX_ERROR_INTERNAL) return 2;
    nvshmem_init();
    auto *word = static_cast<double *>(nvshmem_malloc(sizeof(double)));
    nvshmem_double_p(word, 2.5, nvshmem_my_pe());
    nvshmem_barrier_all();
    const double seen = nvshmem_double_g(word, nvshmem_my_pe());
    uint64_t failovers = 1;
    shunt_nvshmem_switches(&failovers, nullptr);
    nvshmem_free(word);
    nvshmem_finalize();
    std::printf("C++: %g\n", seen);
    return seen == 2.5 && failovers == 0 ? 0 : 1;
}
