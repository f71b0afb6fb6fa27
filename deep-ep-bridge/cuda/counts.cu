// A kernel for each function of ibgda_device.cuh, whose machine code is counted. A signal's look is a kernel of its
// own: compiled with SHUNT_DEEP_EP_CHECK_NS=0.

#include "ibgda_device.cuh"

extern "C" {

__global__ void shunt_deep_ep_put(uint64_t to, uint64_t from, size_t bytes, int pe, int queue) {
    deep_ep::nvshmemi_ibgda_put_nbi_warp<true>(to, from, bytes, pe, queue, threadIdx.x & 31, 0);
}

__global__ void shunt_deep_ep_put_batched(uint64_t to, uint64_t from, size_t bytes, int pe, int queue, int number) {
    deep_ep::nvshmemi_ibgda_put_nbi_warp(to, from, bytes, pe, queue, threadIdx.x & 31, number);
}

__global__ void shunt_deep_ep_signal(int *word, int value, int pe, int queue) {
    deep_ep::nvshmemi_ibgda_amo_nonfetch_add(word, value, pe, queue);
}

__global__ void shunt_deep_ep_look(int pe, int queue) {
    shunt_deep_ep::look(pe, queue);
}

__global__ void shunt_deep_ep_p(int *word, int value, int pe, int queue) {
    deep_ep::nvshmemi_ibgda_rma_p(word, value, pe, queue);
}

__global__ void shunt_deep_ep_quiet(int pe, int queue) {
    deep_ep::nvshmemi_ibgda_quiet(pe, queue);
}

}
