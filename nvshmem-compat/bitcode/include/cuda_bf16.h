/* In the place of CUDA's header: computed as float, and rounded to the nearest at each step. */
#ifndef SHUNT_BITCODE_CUDA_BF16_H
#define SHUNT_BITCODE_CUDA_BF16_H

#include "cuda_runtime.h"

/* sm_80 has no instruction to float: the bits are its upper half. */
SHUNT_BITCODE_NUMBER16(__nv_bfloat16, "cvt.rn.bf16.f32 %0, %1;", "mov.b32 %0, {0, %1};")

#endif
