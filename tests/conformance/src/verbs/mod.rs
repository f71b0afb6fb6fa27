//! RDMA verbs through libibverbs and libmlx5, as far as the checks need them.
//!
//! Objects are destroyed on drop and keep what they need alive. All of it is used by one thread.

mod completion;
mod device;
mod post;
mod queue;
mod region;
mod sge;

pub use completion::Completion;
pub use device::{Device, Setup};
pub use post::{Api, Op, Remote, Request};
pub use queue::{Ends, Queue, Shape, Side};
pub use region::{Access, Key, Region};
pub use sge::Sge;

/// What to do where there is no device.
const ADVICE: &str = "for hardware load the kernel module ib_uverbs, for NICs in software put `shunt soft-rdma run --` \
                      before the program";

/// What went wrong below the checks: a call of the library that failed.
#[derive(Debug, thiserror::Error)]
pub enum VerbsError {
    /// The libraries.
    #[error(transparent)]
    Load(#[from] shunt_mlx5_sys::LoadError),
    /// The devices could not be listed.
    #[error("no RDMA device was found: libibverbs lists none ({0}); {ADVICE}")]
    NoList(std::io::Error),
    /// There is none.
    #[error("no RDMA device was found: libibverbs lists none; {ADVICE}")]
    NoDevices,
    /// No device of that name.
    #[error("--device: expected one of {found}, got {wanted}")]
    NoDevice {
        /// Its name.
        wanted: String,
        /// Names of those that are there.
        found: String,
    },
    /// A call failed.
    #[error("{call}: {cause}")]
    Call {
        /// The function.
        call: &'static str,
        /// What the system says.
        cause: std::io::Error,
    },
    /// Nothing came.
    #[error("no {what} within {seconds} s")]
    Silence {
        /// What was waited for.
        what: &'static str,
        /// How long.
        seconds: u64,
    },
    /// A completion does not say what its entry says.
    #[error("the entry and what libmlx5 made of it differ: {0}")]
    Disagreement(String),
}

impl VerbsError {
    /// The failure of a call that leaves its cause in `errno`.
    fn last(call: &'static str) -> Self {
        Self::Call { call, cause: std::io::Error::last_os_error() }
    }

    /// The failure of a call that returned `code`.
    fn code(call: &'static str, code: i32) -> Self {
        let cause =
            if code > 0 { std::io::Error::from_raw_os_error(code) } else { std::io::Error::last_os_error() };
        Self::Call { call, cause }
    }
}

/// `Ok` if a call returned 0.
fn done(call: &'static str, code: i32) -> Result<(), VerbsError> {
    if code == 0 { Ok(()) } else { Err(VerbsError::code(call, code)) }
}

/// The pointer of a call that returns null for failure.
fn made<T>(call: &'static str, pointer: *mut T) -> Result<*mut T, VerbsError> {
    if pointer.is_null() { Err(VerbsError::last(call)) } else { Ok(pointer) }
}
