//! Structures of NVSHMEM's C interface that this library reads and writes: layouts, versions, defaults.

use std::ffi::{c_char, c_int, c_void};

/// The version that is spoken of: the release whose interface this is.
pub const VENDOR_VERSION: [c_int; 3] = [3, 8, 0];
/// Level of the OpenSHMEM specification.
pub const SPEC_VERSION: [c_int; 2] = [1, 3];
/// Bytes that a name may take, the last 0 among them.
pub const NAME_MAX: usize = 256;
/// The library's name, within [`NAME_MAX`].
pub const NAME: &str = concat!("Shunt ", env!("CARGO_PKG_VERSION"), " (NVSHMEM v3.8.0 interface)");

/// Version of a structure: a major number above its size.
const fn version(major: c_int, bytes: usize) -> c_int {
    (major << 16) + bytes as c_int
}

/// `nvshmemi_version_t`: what the program was compiled against.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// Major.
    pub major: c_int,
    /// Minor.
    pub minor: c_int,
    /// Patch.
    pub patch: c_int,
}

/// `nvshmemx_uniqueid_t`: bytes that one process makes and all others get.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UniqueIdBytes(pub [c_int; 32]);

/// `nvshmemx_uniqueid_args_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UniqueIdArgs {
    /// Version and size.
    pub version: c_int,
    /// The id.
    pub id: *mut UniqueIdBytes,
    /// Number of this PE.
    pub rank: c_int,
    /// PEs.
    pub ranks: c_int,
}

/// `nvshmemx_init_args_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct InitArgs {
    /// Version and size.
    pub version: c_int,
    /// Unique id.
    pub uid: UniqueIdArgs,
    /// CUDA device; -1: none is named.
    pub cuda_device: c_int,
    /// Room for more.
    pub padding: [c_char; 92],
}

/// `nvshmemx_init_attr_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct InitAttr {
    /// Version and size.
    pub version: c_int,
    /// An MPI communicator.
    pub mpi_comm: *mut c_void,
    /// The rest.
    pub args: InitArgs,
}

impl InitAttr {
    /// Attributes of a job of a communicator's processes: every field is written, whatever lay there.
    pub fn with_mpi_comm(communicator: *mut c_void) -> Self {
        Self { mpi_comm: communicator, ..Self::with_unique_id(-1, -1, std::ptr::null_mut()) }
    }

    /// Attributes of a job by unique id: every field is written, whatever lay there.
    pub fn with_unique_id(rank: c_int, ranks: c_int, id: *mut UniqueIdBytes) -> Self {
        let uid = UniqueIdArgs { version: version(1, size_of::<UniqueIdArgs>()), id, rank, ranks };
        let args =
            InitArgs { version: version(2, size_of::<InitArgs>()), uid, cuda_device: -1, padding: [0; 92] };
        Self { version: version(2, size_of::<Self>()), mpi_comm: std::ptr::null_mut(), args }
    }
}

/// `nvshmem_team_config_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TeamConfig {
    /// Version and size; 0 in a configuration that says nothing.
    pub version: c_int,
    /// Contexts that are wanted.
    pub contexts: c_int,
    /// Unique id of a team made by parts.
    pub unique_id: u64,
    /// Room for more.
    pub padding: [c_char; 48],
}

impl TeamConfig {
    /// A configuration that says nothing but the number of contexts.
    pub fn new(contexts: c_int) -> Self {
        Self { version: version(2, size_of::<Self>()), contexts, unique_id: u64::MAX, padding: [0; 48] }
    }
}

/// Init flags.
pub mod flags {
    /// Threads as PEs.
    pub const THREAD_PES: u32 = 1;
    /// An MPI communicator.
    pub const MPI_COMM: u32 = 2;
    /// OpenSHMEM.
    pub const SHMEM: u32 = 4;
    /// A unique id.
    pub const UNIQUE_ID: u32 = 8;
}

/// `nvshmemx_init_status_t`, what this library can be.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InitStatus {
    /// Not initialised, or finalised.
    Not = 0,
    /// Initialised.
    Initialized = 2,
}

/// Level of thread support that is given: calls of one PE do not overlap.
pub const THREAD_SERIALIZED: c_int = 2;

const _: () = assert!(size_of::<UniqueIdBytes>() == 128 && align_of::<UniqueIdBytes>() == 4);
const _: () = assert!(size_of::<UniqueIdArgs>() == 24 && size_of::<InitArgs>() == 128);
const _: () = assert!(size_of::<InitAttr>() == 144 && size_of::<TeamConfig>() == 64);
const _: () = assert!(NAME.len() < NAME_MAX);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_say_their_versions() {
        let attr = InitAttr::with_unique_id(1, 2, std::ptr::null_mut());
        assert_eq!((attr.version, attr.args.version, attr.args.uid.version), (0x20090, 0x20080, 0x10018));
        assert_eq!((attr.args.uid.rank, attr.args.uid.ranks, attr.args.cuda_device), (1, 2, -1));
        assert_eq!(TeamConfig::new(4).version, 0x20040);
    }
}
