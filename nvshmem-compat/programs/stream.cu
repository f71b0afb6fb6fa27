// Calls on a stream, which are kernels of the library: put, get, put with signal, signal, wait, quiet, barrier, sync,
// collective calls. On a GPU they are also captured in a graph, which is launched several times.
#include "program.h"

__global__ void family(void *, unsigned *) {}

#ifndef __CUDACC_RTC__
namespace {

constexpr int kCount = 300, kMost = 8;
// Where each call leaves its elements, in parts of kCount; signal words behind them.
enum Part { kSource, kPut, kPutNbi, kGot, kSignalled, kSent, kAll, kPieces = kAll + kMost, kMine = kPieces + kMost, kEnd };
static_assert((kEnd * kCount + 16) * sizeof(int) < kBytes, "room for all parts");

int value(int pe, int i) { return 1000 * (pe + 1) + i; }

struct Calls {
    int *memory, me, pes, next, last;
    cudaStream_t stream;

    int *part(int number) const { return memory + number * kCount; }
    uint64_t *word(int number) const { return (uint64_t *)(memory + kEnd * kCount + kCount % 2) + number; }

    void make() const {
        nvshmemx_barrier_all_on_stream(stream);
        nvshmemx_int_put_on_stream(part(kPut), part(kSource), kCount, next, stream);
        nvshmemx_putmem_nbi_on_stream(part(kPutNbi), part(kSource), kCount * sizeof(int), next, stream);
        nvshmemx_quiet_on_stream(stream);
        nvshmemx_sync_all_on_stream(stream);
        nvshmemx_int_get_on_stream(part(kGot), part(kSource), kCount, next, stream);
        nvshmemx_int_put_signal_on_stream(part(kSignalled), part(kSource), kCount, word(0), 1, NVSHMEM_SIGNAL_ADD, next,
                                          stream);
        nvshmemx_signal_op_on_stream(word(1), 5, NVSHMEM_SIGNAL_SET, next, stream);
        nvshmemx_signal_wait_until_on_stream(word(0), NVSHMEM_CMP_GE, 1, stream);
        nvshmemx_signal_wait_until_on_stream(word(1), NVSHMEM_CMP_EQ, 5, stream);
        nvshmemx_int_broadcast_on_stream(NVSHMEM_TEAM_WORLD, part(kSent), part(kSource), kCount, 0, stream);
        nvshmemx_int_fcollect_on_stream(NVSHMEM_TEAM_WORLD, part(kAll), part(kSource), kCount, stream);
        nvshmemx_int_alltoall_on_stream(NVSHMEM_TEAM_WORLD, part(kPieces), part(kAll), kCount, stream);
        nvshmemx_barrier_on_stream(NVSHMEM_TEAM_WORLD, stream);
        nvshmemx_team_sync_on_stream(NVSHMEM_TEAM_WORLD, stream);
    }

    void prepare() const {
        int source[kCount];
        for (int i = 0; i < kCount; ++i) source[i] = value(me, i);
        cudaMemset(memory, 0, kBytes);
        cudaMemcpy(part(kSource), source, sizeof source, cudaMemcpyHostToDevice);
        cudaDeviceSynchronize();
        nvshmem_barrier_all();
    }

    unsigned differs(int number, int pe) const {
        int there[kCount];
        cudaMemcpy(there, part(number), sizeof there, cudaMemcpyDeviceToHost);
        unsigned wrong = 0;
        for (int i = 0; i < kCount; ++i) wrong += there[i] != value(pe, i);
        return wrong;
    }

    unsigned wrong() const {
        unsigned count = differs(kPut, last) + differs(kPutNbi, last) + differs(kGot, next) + differs(kSignalled, last) +
                         differs(kSent, 0);
        // All parts are alike at all members, so what each has for this one is its own part of this one.
        for (int pe = 0; pe < pes; ++pe) count += differs(kAll + pe, pe) + differs(kPieces + pe, me);
        return count;
    }
};

unsigned calls(void *memory) {
    const int me = nvshmem_my_pe(), pes = nvshmem_n_pes();
    if (pes > kMost) return 1;
    Calls all = {(int *)memory, me, pes, (me + 1) % pes, (me + pes - 1) % pes, nullptr};
    unsigned wrong = 0;
#ifdef __NVCC__
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t made = nullptr;
    wrong += cudaStreamCreateWithFlags(&all.stream, cudaStreamNonBlocking) != cudaSuccess;
#endif
    all.prepare();
    all.make();
#ifdef __NVCC__
    wrong += cudaStreamSynchronize(all.stream) != cudaSuccess;
#endif
    wrong += all.wrong();
#ifdef __NVCC__
    wrong += cudaStreamBeginCapture(all.stream, cudaStreamCaptureModeThreadLocal) != cudaSuccess;
    all.make();
    wrong += cudaStreamEndCapture(all.stream, &graph) != cudaSuccess;
    wrong += cudaGraphInstantiateWithFlags(&made, graph, 0) != cudaSuccess;
    for (int launch = 0; wrong == 0 && launch < 3; ++launch) {
        all.prepare();
        wrong += cudaGraphLaunch(made, all.stream) != cudaSuccess || cudaStreamSynchronize(all.stream) != cudaSuccess;
        wrong += all.wrong();
    }
    cudaGraphExecDestroy(made);
    cudaGraphDestroy(graph);
    cudaStreamDestroy(all.stream);
#endif
    return wrong;
}

} // namespace

int main() { return program("stream", family, false, calls); }
#endif
