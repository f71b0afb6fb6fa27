//! Why a process has no devices.

use crate::settings::SettingError;
use crate::sysfs::TreeError;
use shunt_soft_nic::UplinkError;
use std::io;
use std::path::PathBuf;

/// What keeps this process from having devices.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The environment.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The way to other processes.
    #[error("no way to other processes: {0}")]
    Uplink(#[from] UplinkError),
    /// Every number of the fabric is somebody's.
    #[error("all {most} numbers of fabric {fabric:?} belong to live processes; another fabric has its own")]
    Full {
        /// The fabric.
        fabric: String,
        /// Numbers it has.
        most: u32,
    },
    /// The files that stand for devices.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// Two processes would write into one capture.
    #[error("another process writes packets to {0:?}; %p in a name stands for the process's number")]
    CaptureTaken(PathBuf),
    /// The capture cannot be written.
    #[error("cannot write packets to {path:?}: {cause}")]
    Capture {
        /// The file.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// The system gave no thread.
    #[error("cannot start the thread {what:?}: {cause}")]
    Thread {
        /// Which one.
        what: &'static str,
        /// What the system said.
        cause: io::Error,
    },
}
