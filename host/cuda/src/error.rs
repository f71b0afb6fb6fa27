//! Why a GPU cannot be used.

use shunt_mlx5::error::GpuError;
use thiserror::Error;

/// Why a GPU cannot be used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum CudaError {
    /// The driver is not installed.
    #[error(
        "no GPU: {looked_for} was looked for where the loader looks (LD_LIBRARY_PATH, /etc/ld.so.conf) and is not \
         there; NVIDIA's driver brings it; without a GPU, --device cpu runs the same kernels as threads"
    )]
    NoDriver {
        /// The library's name.
        looked_for: &'static str,
    },
    /// The driver has no GPU of that number.
    #[error(
        "no GPU {asked}: the driver has {count}, counted from 0; see nvidia-smi -L and CUDA_VISIBLE_DEVICES"
    )]
    NoGpu {
        /// The number asked for.
        asked: u32,
        /// How many there are.
        count: u32,
    },
    /// The GPU and the host do not use one address for one byte.
    #[error(
        "{name} does not reach the host's memory at the host's own addresses: unified addressing is needed"
    )]
    NoSharedAddresses {
        /// The GPU.
        name: String,
    },
    /// A soft NIC's threads cannot load and store a GPU's memory.
    #[error("a soft NIC cannot move a heap in the GPU's memory: put it in the host's, or take --nic mlx5")]
    HeapOutOfReach,
    /// No file with kernels.
    #[error(
        "no kernels for {arch}: looked at {looked}; `cargo xtask gpu` builds them for sm_80, sm_90 and sm_100"
    )]
    NoKernels {
        /// Architecture of the GPU.
        arch: String,
        /// What was looked at.
        looked: String,
    },
    /// The module has no such kernel.
    #[error("the module has no kernel {entry}: it is of another version, `cargo xtask gpu` rebuilds it")]
    NoEntry {
        /// Entry point.
        entry: String,
    },
    /// A kernel ended and left no outcome.
    #[error("kernel {kernel} ended and stored no outcome: `cargo xtask gpu` rebuilds the kernels")]
    NoAnswer {
        /// The kernel.
        kernel: String,
    },
    /// The module's root is of another version.
    #[error("the module's root: expected {right} bytes, got {met}: `cargo xtask gpu` rebuilds it")]
    RootSize {
        /// Bytes met.
        met: u64,
        /// Bytes of this version's.
        right: u64,
    },
    /// The driver took a NIC's doorbell page in no way.
    #[error(
        "cuMemHostRegister of a doorbell page: expected one of two ways to be taken, got {tries}; load the nvidia \
         kernel module with NVreg_RegistryDwords=\"PeerMappingOverride=1;\" (a line \"options nvidia ...\" in \
         /etc/modprobe.d, then reload the module or reboot)"
    )]
    Registers {
        /// Each way, and the driver's answer.
        tries: String,
    },
    /// The driver did not take memory of the host.
    #[error("cuMemHostRegister: expected memory of the host to be taken, got {tries}; see ulimit -l")]
    Memory {
        /// The way, and the driver's answer.
        tries: String,
    },
    /// GDRCopy's library or kernel module is missing.
    #[error("GDRCopy is not there: {what}; install gdrcopy's library and load its module gdrdrv")]
    NoGdr {
        /// What.
        what: String,
    },
    /// GDRCopy's library refused something.
    #[error("GDRCopy: {call} answered {code}; see the module gdrdrv's messages in dmesg")]
    Gdr {
        /// Its function.
        call: &'static str,
        /// Its answer, an errno.
        code: i32,
    },
    /// The system gave no memory or addresses.
    #[error("{bytes} bytes of addresses: {what}")]
    Host {
        /// How many.
        bytes: u64,
        /// The system's word.
        what: String,
    },
    /// The driver places reservations where it likes.
    #[error(
        "cuMemAddressReserve: expected the GPU's heap in front of its part in the host's memory, got another address \
         at {tries} tries; set SHUNT_HEAP=host"
    )]
    NotAdjacent {
        /// How many.
        tries: usize,
    },
    /// A key covers less than the driver maps.
    #[error(
        "NVSHMEM_CUMEM_GRANULARITY: expected a multiple of {granularity} bytes for a heap in the GPU's memory, got one \
         that ends the heap at {met}"
    )]
    Granularity {
        /// Where the host's part would begin.
        met: u64,
        /// What the driver maps at the least.
        granularity: u64,
    },
    /// What NICs write is seen in no order.
    #[error(
        "{name}: expected GPUDirect RDMA writes to be ordered, got none (CUDA attribute \
         GPU_DIRECT_RDMA_WRITES_ORDERING is 0), so that a kernel may see a signal before its data; put the heap in \
         the host's memory (SHUNT_HEAP=host)"
    )]
    WritesUnordered {
        /// The GPU.
        name: String,
    },
    /// The driver refused something.
    #[error("{call}: {what} (CUDA error {code})")]
    Refused {
        /// The driver's function.
        call: &'static str,
        /// Its answer.
        code: u32,
        /// What it says of that.
        what: String,
    },
}

impl From<CudaError> for GpuError {
    fn from(error: CudaError) -> Self {
        Self::Driver { detail: error.to_string() }
    }
}
