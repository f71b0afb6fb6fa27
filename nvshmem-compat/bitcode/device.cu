// libnvshmem_device.bc: the headers' device functions under their C names, for compilers that link bitcode. One module
// defines them, so none is inline.

#define SHUNT_DEFINE extern "C" __host__ __device__
#define SHUNT_NVSHMEM_GROUP_CALL extern "C" __device__
#include <nvshmem.h>
#include <nvshmemx.h>

// nvshmemx_cumodule_init writes it, and shunt_root, which the Rust library defines.
__constant__ shunt_nvshmem_device shunt_nvshmem_device_state;
