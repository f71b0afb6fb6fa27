/* In the place of CUDA's header: computed as float, and rounded to the nearest at each step. */
#ifndef SHUNT_BITCODE_CUDA_FP16_H
#define SHUNT_BITCODE_CUDA_FP16_H

#include "cuda_runtime.h"

SHUNT_BITCODE_NUMBER16(__half, "cvt.rn.f16.f32 %0, %1;", "cvt.f32.f16 %0, %1;")

#endif
