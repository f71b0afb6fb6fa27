//! Every error of the host side: one enum a layer, lower-case facts with the state that was met.

pub use shunt_bootstrap::BootstrapError;
#[cfg(feature = "mlx5")]
pub use shunt_mlx5::error::IbverbsError;
pub use shunt_mlx5::error::{DevxError, GpuError, NicError};
pub use shunt_settings::ConfigError;
pub use shunt_wire::CardError;

use thiserror::Error;

/// Key tables that do not fit together.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum KeyError {
    /// A rail has another number of keys than the heap has chunks.
    #[error("PE {pe} rail {rail} has {met} keys, the heap has {want} chunks")]
    Count {
        /// PE.
        pe: u32,
        /// Rail.
        rail: u32,
        /// Keys there are.
        met: usize,
        /// Chunks.
        want: usize,
    },
    /// A PE has more rails than the table has rows.
    #[error("PE {pe} has {met} rails, the table has rows for {want}")]
    Rails {
        /// PE.
        pe: u32,
        /// Rails it has.
        met: usize,
        /// Rows.
        want: usize,
    },
}

/// The device state that was read back is not the one that was written.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum UploadError {
    /// Memory could not be reached.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// It differs.
    #[error("{table} was written at {address:#x} and reads back different at byte {at}")]
    Differs {
        /// Which table.
        table: &'static str,
        /// Where it lies.
        address: u64,
        /// First byte that differs.
        at: usize,
    },
}

/// Why a PE could not start.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum StartError {
    /// A setting is out of range.
    #[error("{what}: expected {want}, got {met}")]
    Config {
        /// Setting.
        what: &'static str,
        /// What was met.
        met: u64,
        /// What would be right.
        want: String,
    },
    /// PEs were started with different settings.
    #[error("{what} is {theirs} on PE {pe} and {mine} here; all PEs must agree")]
    Disagree {
        /// Setting.
        what: &'static str,
        /// The other PE.
        pe: u32,
        /// Its value.
        theirs: u64,
        /// Ours.
        mine: u64,
    },
    /// Fetching atomics are to be exact and cannot be.
    #[error(
        "SHUNT_FETCH: expected a heap that its host reaches, got one in GPU memory; set SHUNT_FETCH=auto, or have the \
         heap in host memory"
    )]
    Fetch,
    /// More of the heap was asked for, and a NIC did not take it.
    #[error("PE {pe} could not register more of its heap; it says why")]
    NotReached {
        /// Whose.
        pe: u32,
    },
    /// A NIC object.
    #[error(transparent)]
    Nic(#[from] NicError),
    /// Memory.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// Exchange.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    /// A peer's card.
    #[error("card of PE {pe}: {error}")]
    Card {
        /// The PE.
        pe: u32,
        /// What is wrong.
        error: CardError,
    },
    /// Keys.
    #[error(transparent)]
    Keys(#[from] KeyError),
    /// Upload.
    #[error(transparent)]
    Upload(#[from] UploadError),
}

impl From<DevxError> for StartError {
    fn from(error: DevxError) -> Self {
        Self::Nic(NicError::Devx(error))
    }
}
