/* The macros that programs for NVSHMEM, its own measurements among them, say errors with: names, arguments and what
 * becomes of the process are NVSHMEM's. */
#ifndef SHUNT_NVSHMEM_ERROR_H
#define SHUNT_NVSHMEM_ERROR_H

#include "../shunt/types.h"

#ifndef __CUDACC_RTC__
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define nvshmemxi_error_unlikely(x) __builtin_expect(!!(x), 0)

static inline const char *nvshmemx_status_string(int status) {
    switch (status) {
    case NVSHMEMX_SUCCESS: return "NVSHMEMX_SUCCESS";
    case NVSHMEMX_ERROR_INVALID_VALUE: return "NVSHMEMX_ERROR_INVALID_VALUE";
    case NVSHMEMX_ERROR_OUT_OF_MEMORY: return "NVSHMEMX_ERROR_OUT_OF_MEMORY";
    case NVSHMEMX_ERROR_NOT_SUPPORTED: return "NVSHMEMX_ERROR_NOT_SUPPORTED";
    case NVSHMEMX_ERROR_SYMMETRY: return "NVSHMEMX_ERROR_SYMMETRY";
    case NVSHMEMX_ERROR_GPU_NOT_SELECTED: return "NVSHMEMX_ERROR_GPU_NOT_SELECTED";
    case NVSHMEMX_ERROR_COLLECTIVE_LAUNCH_FAILED: return "NVSHMEMX_ERROR_COLLECTIVE_LAUNCH_FAILED";
    case NVSHMEMX_ERROR_INTERNAL: return "NVSHMEMX_ERROR_INTERNAL";
    default: return "NVSHMEMX_ERROR_<unknown>";
    }
}

/* One line: where, which status (`named`: by its name), and what the program says of it. */
__attribute__((format(printf, 5, 6))) static inline void shunt_nvshmem_say(const char *file, int line, int status,
                                                                           int named, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%s:%d: ", file, line);
    if (status) fprintf(stderr, "status %d (%s): ", status, named ? nvshmemx_status_string(status) : strerror(status));
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
}
#define SHUNT_NVSHMEM_SAY(status, named, ...) \
    shunt_nvshmem_say(__FILE__, __LINE__, (int)(status), named, __VA_ARGS__)

#define NVSHMEMI_ERROR_PRINT(...) SHUNT_NVSHMEM_SAY(0, 1, __VA_ARGS__)
#define NVSHMEMI_WARN_PRINT(...) (fputs("WARN: ", stdout), printf(__VA_ARGS__), (void)putchar('\n'))
#define NVSHMEMI_ERROR_EXIT(...) (SHUNT_NVSHMEM_SAY(0, 1, __VA_ARGS__), exit(-1))

/* Where it is so, `then` behind what is said. */
#define SHUNT_NVSHMEM_WHERE(is, told, named, then, ...)  \
    do {                                                 \
        if (nvshmemxi_error_unlikely(is)) {              \
            SHUNT_NVSHMEM_SAY(told, named, __VA_ARGS__); \
            then;                                        \
        }                                                \
    } while (0)
#define SHUNT_NVSHMEM_JUMP(status, err, label) (status) = (err); goto label
#define SHUNT_NVSHMEM_RETURN(status, err) return (status) = (err)

#define NVSHMEMI_ERROR_JMP(status, err, label, ...) \
    SHUNT_NVSHMEM_WHERE(1, err, 1, SHUNT_NVSHMEM_JUMP(status, err, label), __VA_ARGS__)
#define NVSHMEMI_NULL_ERROR_JMP(var, status, err, label, ...) \
    SHUNT_NVSHMEM_WHERE((var) == NULL, err, 1, SHUNT_NVSHMEM_JUMP(status, err, label), __VA_ARGS__)
#define NVSHMEMI_EQ_ERROR_JMP(status, expected, err, label, ...) \
    SHUNT_NVSHMEM_WHERE((status) == (expected), status, 1, SHUNT_NVSHMEM_JUMP(status, err, label), __VA_ARGS__)
#define NVSHMEMI_NE_ERROR_JMP(status, expected, err, label, ...) \
    SHUNT_NVSHMEM_WHERE((status) != (expected), status, 1, SHUNT_NVSHMEM_JUMP(status, err, label), __VA_ARGS__)
#define NVSHMEMI_NZ_ERROR_JMP(status, err, label, ...) NVSHMEMI_NE_ERROR_JMP(status, 0, err, label, __VA_ARGS__)
#define NVSHMEMI_CHECK_ERROR_JMP(statement, status, err, label, ...) \
    SHUNT_NVSHMEM_WHERE(statement, 0, 1, SHUNT_NVSHMEM_JUMP(status, err, label), __VA_ARGS__)

#define NVSHMEMI_NZ_EXIT(status, ...) SHUNT_NVSHMEM_WHERE((status) != 0, status, 1, exit(-1), __VA_ARGS__)
#define NVSHMEMI_NZ_SYSCHECK_EXIT(status, ...) SHUNT_NVSHMEM_WHERE((status) != 0, status, 0, exit(-1), __VA_ARGS__)

#define NVSHMEMI_ERROR_RET(status, err, ...) \
    SHUNT_NVSHMEM_WHERE(1, err, 1, SHUNT_NVSHMEM_RETURN(status, err), __VA_ARGS__)
#define NVSHMEMI_NULL_ERROR_RET(var, status, err, ...) \
    SHUNT_NVSHMEM_WHERE((var) == NULL, err, 1, SHUNT_NVSHMEM_RETURN(status, err), __VA_ARGS__)
#define NVSHMEMI_NE_ERROR_RET(status, expected, err, ...) \
    SHUNT_NVSHMEM_WHERE((status) != (expected), status, 1, SHUNT_NVSHMEM_RETURN(status, err), __VA_ARGS__)
#define NVSHMEMI_NZ_ERROR_RET(status, err, ...) NVSHMEMI_NE_ERROR_RET(status, 0, err, __VA_ARGS__)
#endif

#endif
