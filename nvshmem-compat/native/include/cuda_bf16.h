/* In the place of CUDA's header. */
#ifndef SHUNT_NATIVE_CUDA_BF16_H
#define SHUNT_NATIVE_CUDA_BF16_H

#include "cuda_runtime.h"

struct __nv_bfloat16 {
    uint16_t bits;
    __nv_bfloat16() = default;
    __nv_bfloat16(const __nv_bfloat16 &) = default;
    __nv_bfloat16(const volatile __nv_bfloat16 &other) : bits(other.bits) {}
    __nv_bfloat16 &operator=(const __nv_bfloat16 &) = default;
    void operator=(const __nv_bfloat16 &other) volatile { bits = other.bits; }
    __nv_bfloat16(float from) {
        uint32_t all;
        std::memcpy(&all, &from, 4);
        /* To the nearest, ties to even. */
        bits = (uint16_t)((all + 0x7fff + (all >> 16 & 1)) >> 16);
    }
    operator float() const {
        const uint32_t all = (uint32_t)bits << 16;
        float value;
        std::memcpy(&value, &all, 4);
        return value;
    }
};

#endif
