/* What the families of the conformance program share: checks, digests, and a port that goes down in the middle. */
#ifndef SUITE_H
#define SUITE_H

#include <nvshmem.h>
#include <nvshmemx.h>
#include <shunt_nvshmem.h>
#include <stdio.h>
#include <string.h>

extern int me, pes;

/* One family: what it found is folded into a digest that does not depend on time. */
typedef struct {
    const char *name;
    void (*run)(void);
} family;

extern const family FAMILIES[];
extern const int FAMILY_COUNT;

void families_rma(void);
void families_strided(void);
void families_amo(void);
void families_signal(void);
void families_wait(void);
void families_move(void);
void families_reduce(void);
void families_teams(void);
void families_stream(void);
void families_heap(void);

/* Fails the run. */
void wrong(const char *what, const char *type, int line);
/* Folds bytes into the digest. */
void fold(const void *bytes, size_t count);
/* A step of a family: in the middle of it, a port goes down where that was asked for. */
void step(void);
/* Bytes that a PE gives in a round, the same in every run. */
void pattern(void *to, size_t bytes, int pe, int round);

#define CHECK(what, type) \
    do {                  \
        if (!(what)) wrong(#what, type, __LINE__); \
    } while (0)
#define NEXT ((me + 1) % pes)
#define BEFORE ((me + pes - 1) % pes)

/* Small whole numbers as elements of every type. */
#define NUMERIC_TYPES(X)                                                                                          \
    X(float, float) X(double, double) X(char, char) X(short, short) X(schar, signed char) X(int, int)             \
    X(long, long) X(longlong, long long) X(uchar, unsigned char) X(ushort, unsigned short) X(uint, unsigned int)  \
    X(ulong, unsigned long) X(ulonglong, unsigned long long) X(int8, int8_t) X(int16, int16_t) X(int32, int32_t)  \
    X(int64, int64_t) X(uint8, uint8_t) X(uint16, uint16_t) X(uint32, uint32_t) X(uint64, uint64_t)               \
    X(size, size_t) X(ptrdiff, ptrdiff_t)

#define OF(N, T)                    \
    static inline T of_##N(int v) { \
        return (T)v;                \
    }
NUMERIC_TYPES(OF)

/* The bits of a whole number from 0 to 255 in a format with so many bits of fraction and that bias. */
static inline uint16_t small_bits(int v, int fraction, int bias) {
    int exponent = 0;
    if (v == 0) return 0;
    while (v >> (exponent + 1)) exponent++;
    return (uint16_t)((exponent + bias) << fraction | ((v << 8 >> exponent) & 255) << fraction >> 8);
}

static inline shunt_half of_half(int v) {
    uint16_t bits = small_bits(v, 10, 15);
    shunt_half half;
    memcpy(&half, &bits, 2);
    return half;
}

static inline shunt_bfloat16 of_bfloat16(int v) {
    uint16_t bits = small_bits(v, 7, 127);
    shunt_bfloat16 half;
    memcpy(&half, &bits, 2);
    return half;
}

#endif
