/* In the place of CUDA's header: numbers of 16 bits, computed as float and cut off to the bits they have. */
#ifndef SHUNT_NATIVE_CUDA_FP16_H
#define SHUNT_NATIVE_CUDA_FP16_H

#include "cuda_runtime.h"

struct __half {
    _Float16 value;
    __half() = default;
    __half(const __half &) = default;
    __half(const volatile __half &other) : value(other.value) {}
    __half(float from) : value((_Float16)from) {}
    __half &operator=(const __half &) = default;
    void operator=(const __half &other) volatile { value = other.value; }
    operator float() const { return (float)value; }
};

#endif
