; A kernel as Triton makes it: device functions by name, addresses as numbers, and an answer that nobody reads.
; `cargo xtask prefix --bitcode` links it with libnvshmem_device.bc, and assembles it: nothing may stay undefined.
target triple = "nvptx64-nvidia-cuda"

declare i32 @nvshmem_my_pe()
declare i32 @nvshmem_n_pes()
declare i64 @nvshmem_ptr(i64, i32)
declare i32 @nvshmemx_putmem_nbi_block(i64, i64, i64, i32)
declare i32 @nvshmemx_getmem_nbi_warp(i64, i64, i64, i32)
declare i32 @nvshmemx_putmem_signal_nbi_block(i64, i64, i64, i64, i64, i32, i32)
declare i32 @nvshmemx_signal_op(i64, i64, i32, i32)
declare i64 @nvshmem_signal_wait_until(i64, i32, i64)
declare i32 @nvshmem_int_p(i64, i32, i32)
declare i32 @nvshmem_int_g(i64, i32)
declare i32 @nvshmem_fence()
declare i32 @nvshmem_quiet()
declare i32 @nvshmemx_barrier_all_block()
declare i32 @nvshmemx_broadcastmem_block(i32, i64, i64, i64, i32)
declare i32 @nvshmemx_float_fcollect_block(i32, i64, i64, i64)
declare i32 @nvshmem_float_sum_reduce(i32, i64, i64, i64)
declare i32 @nvshmem_bfloat16_max_reduce(i32, i64, i64, i64)

define ptx_kernel void @kernel(i64 %to, i64 %from, i64 %word, i64 %bytes) {
  %me = call i32 @nvshmem_my_pe()
  %pes = call i32 @nvshmem_n_pes()
  %after = add i32 %me, 1
  %peer = urem i32 %after, %pes
  %near = call i64 @nvshmem_ptr(i64 %to, i32 %peer)
  %1 = call i32 @nvshmemx_putmem_nbi_block(i64 %to, i64 %from, i64 %bytes, i32 %peer)
  %2 = call i32 @nvshmemx_getmem_nbi_warp(i64 %to, i64 %from, i64 %bytes, i32 %peer)
  %3 = call i32 @nvshmemx_putmem_signal_nbi_block(i64 %to, i64 %from, i64 %bytes, i64 %word, i64 1, i32 9, i32 %peer)
  %4 = call i32 @nvshmemx_signal_op(i64 %word, i64 %near, i32 10, i32 %peer)
  %5 = call i64 @nvshmem_signal_wait_until(i64 %word, i32 5, i64 1)
  %there = call i32 @nvshmem_int_g(i64 %from, i32 %peer)
  %6 = call i32 @nvshmem_int_p(i64 %to, i32 %there, i32 %peer)
  %7 = call i32 @nvshmem_fence()
  %8 = call i32 @nvshmem_quiet()
  %9 = call i32 @nvshmemx_barrier_all_block()
  %10 = call i32 @nvshmemx_broadcastmem_block(i32 0, i64 %to, i64 %from, i64 %bytes, i32 0)
  %11 = call i32 @nvshmemx_float_fcollect_block(i32 0, i64 %to, i64 %from, i64 %bytes)
  %12 = call i32 @nvshmem_float_sum_reduce(i32 0, i64 %to, i64 %from, i64 %bytes)
  %13 = call i32 @nvshmem_bfloat16_max_reduce(i32 0, i64 %to, i64 %from, i64 %bytes)
  ret void
}
