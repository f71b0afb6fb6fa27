/* The functions of NVSHMEM 3.5 that take the handle of a queue pair: nvshmemx_qp_create gives them. What goes by one
 * handle to one PE arrives in order. A word that a handle's signals write is written by that handle alone. */
#ifndef SHUNT_NVSHMEM_DEVICE_QP_H
#define SHUNT_NVSHMEM_DEVICE_QP_H

#define SHUNT_QP_RMA(S, E, N, T)                                                                                   \
    SHUNT_NVSHMEM_GROUP_CALL void nvshmemx_qp_##N##_put##E(T *to, const T *from, size_t count, int pe,             \
                                                           nvshmemx_qp_handle_t qp) {                              \
        shunt_nvshmem::put<shunt_nvshmem::S>(shunt_nvshmem::channel(qp), to, from, count * sizeof(T), pe, true);   \
    }                                                                                                              \
    SHUNT_NVSHMEM_GROUP_CALL void nvshmemx_qp_##N##_get##E(T *to, const T *from, size_t count, int pe,             \
                                                           nvshmemx_qp_handle_t qp) {                              \
        shunt_nvshmem::get<shunt_nvshmem::S>(shunt_nvshmem::channel(qp), to, from, count * sizeof(T), pe, true);   \
    }                                                                                                              \
    SHUNT_NVSHMEM_GROUP_CALL void nvshmemx_qp_##N##_put_nbi##E(T *to, const T *from, size_t count, int pe,         \
                                                               nvshmemx_qp_handle_t qp) {                          \
        shunt_nvshmem::put<shunt_nvshmem::S>(shunt_nvshmem::channel(qp), to, from, count * sizeof(T), pe, false);  \
    }                                                                                                              \
    SHUNT_NVSHMEM_GROUP_CALL void nvshmemx_qp_##N##_get_nbi##E(T *to, const T *from, size_t count, int pe,         \
                                                               nvshmemx_qp_handle_t qp) {                          \
        shunt_nvshmem::get<shunt_nvshmem::S>(shunt_nvshmem::channel(qp), to, from, count * sizeof(T), pe, false);  \
    }                                                                                                              \
    SHUNT_NVSHMEM_GROUP_CALL void nvshmemx_qp_##N##_put_signal##E(T *to, const T *from, size_t count,              \
                                                                  uint64_t *word, uint64_t value, int op, int pe,  \
                                                                  nvshmemx_qp_handle_t qp) {                       \
        shunt_nvshmem::put_signal<shunt_nvshmem::S>(shunt_nvshmem::channel(qp), to, from, count * sizeof(T), word, \
                                                    value, op, pe, true);                                          \
    }                                                                                                              \
    SHUNT_NVSHMEM_GROUP_CALL void nvshmemx_qp_##N##_put_signal_nbi##E(T *to, const T *from, size_t count,          \
                                                                      uint64_t *word, uint64_t value, int op,      \
                                                                      int pe, nvshmemx_qp_handle_t qp) {           \
        shunt_nvshmem::put_signal<shunt_nvshmem::S>(shunt_nvshmem::channel(qp), to, from, count * sizeof(T), word, \
                                                    value, op, pe, false);                                         \
    }

#define SHUNT_QP_WORD(N, T)                                                                              \
    SHUNT_NVSHMEM_GROUP_CALL void nvshmemx_qp_##N##_p(T *to, T value, int pe, nvshmemx_qp_handle_t qp) { \
        shunt_nvshmem::p(shunt_nvshmem::channel(qp), to, value, pe);                                     \
    }                                                                                                    \
    SHUNT_NVSHMEM_GROUP_CALL T nvshmemx_qp_##N##_g(const T *from, int pe, nvshmemx_qp_handle_t qp) {     \
        return shunt_nvshmem::g(shunt_nvshmem::channel(qp), from, pe);                                   \
    }                                                                                                    \
    SHUNT_QP_RMA(Thread, , N, T) SHUNT_QP_RMA(Warp, _warp, N, T) SHUNT_QP_RMA(Block, _block, N, T)

SHUNT_RMA_TYPES(SHUNT_QP_WORD)

#define SHUNT_QP_QUIET(S, E)                                                                               \
    SHUNT_NVSHMEM_GROUP_CALL void nvshmemx_qp_quiet##E(int pe, nvshmemx_qp_handle_t *handles, int count) { \
        shunt_nvshmem::qp_quiet<shunt_nvshmem::S>(pe, handles, count);                                     \
    }                                                                                                      \
    /* One queue pair is in order by itself. */                                                            \
    SHUNT_NVSHMEM_GROUP_CALL void nvshmemx_qp_fence##E(int pe, nvshmemx_qp_handle_t *handles, int count) { \
        if (count > 1 || handles[0] == NVSHMEMX_QP_ALL) {                                                  \
            shunt_nvshmem::qp_quiet<shunt_nvshmem::S>(pe, handles, count);                                 \
        }                                                                                                  \
    }

SHUNT_QP_QUIET(Thread, )
SHUNT_QP_QUIET(Warp, _warp)
SHUNT_QP_QUIET(Block, _block)

SHUNT_NVSHMEM_GROUP_CALL void nvshmemx_qp_signal_op(uint64_t *word, uint64_t value, int op, int pe,
                                                    nvshmemx_qp_handle_t qp) {
    shunt_nvshmem::signal(shunt_nvshmem::channel(qp), word, value, op, pe);
}

#endif
