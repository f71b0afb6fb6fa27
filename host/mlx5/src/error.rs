//! Every error of the driver: lower-case facts with the state that was met.

use shunt_layout::mlx5::prm::cmd::Status;
use thiserror::Error;

/// How long was waited, in words.
fn within(ns: u64) -> String {
    match ns {
        0 => "because none before it was".to_owned(),
        ns => format!("within {:.1} ms", ns as f64 / 1e6),
    }
}

/// What the driver or the firmware answered.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum DevxError {
    /// The firmware did not answer in time: the NIC is dead to commands.
    #[error("{nic}: {command} was not answered {}; the NIC is dead to commands", within(*waited_ns))]
    Timeout {
        /// Name of the NIC.
        nic: String,
        /// Command.
        command: String,
        /// How long the caller waited.
        waited_ns: u64,
    },
    /// The firmware refused the command.
    #[error(
        "{nic}: {command} was refused with status {status:#04x} ({}), syndrome {syndrome:#010x}",
        Status::name(*.status)
    )]
    Refused {
        /// Name of the NIC.
        nic: String,
        /// Command.
        command: String,
        /// Status byte of the output mailbox.
        status: u8,
        /// Firmware syndrome.
        syndrome: u32,
    },
    /// The answer is shorter than the command's output mailbox.
    #[error("{nic}: {command} answered {got} bytes where {want} are due")]
    ShortAnswer {
        /// Name of the NIC.
        nic: String,
        /// Command.
        command: String,
        /// Bytes that came.
        got: usize,
        /// Bytes expected.
        want: usize,
    },
    /// A resource of the driver (umem, UAR page, event queue) could not be had.
    #[error("{nic}: {what} failed: {detail}")]
    Resource {
        /// Name of the NIC.
        nic: String,
        /// What was asked.
        what: &'static str,
        /// The driver's words.
        detail: String,
    },
    /// The driver refused a command: it did not reach the firmware.
    #[error("{nic}: {command} was refused by the driver: {text}")]
    Driver {
        /// Name of the NIC.
        nic: String,
        /// Command.
        command: String,
        /// The driver's error number.
        errno: i32,
        /// What it stands for.
        text: String,
    },
}

/// Why a device could not be opened through libibverbs.
#[cfg(feature = "ibverbs")]
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum IbverbsError {
    /// rdma-core is missing or too old.
    #[error(transparent)]
    Load(#[from] shunt_mlx5_sys::LoadError),
    /// The devices could not be listed.
    #[error(
        "no RDMA device was found: libibverbs lists none ({detail}); for hardware load the kernel module ib_uverbs, \
         for NICs in software use `shunt soft-rdma run -- PROGRAM`"
    )]
    List {
        /// What the system said.
        detail: String,
    },
    /// No such device.
    #[error("{nic}: libibverbs lists no such device; there {}", listed(have))]
    NoDevice {
        /// Name that was asked for.
        nic: String,
        /// Names there are.
        have: Vec<String>,
    },
    /// Another maker's device.
    #[error("{nic}: not a device that libmlx5 drives; a ConnectX of Mellanox or NVIDIA is needed")]
    NotMlx5 {
        /// Name of the device.
        nic: String,
    },
    /// The device opens for nobody, with DEVX or without.
    #[error(
        "{nic}: cannot be opened: {detail}; its node in /dev/infiniband must be there for this user \
         (in a container: pass it in), and locked memory unlimited (ulimit -l)"
    )]
    Open {
        /// Name of the device.
        nic: String,
        /// What the system said.
        detail: String,
    },
    /// It opens, but without DEVX.
    #[error(
        "{nic}: opens, but not with DEVX: {detail}; a ConnectX-5 or later whose firmware has user contexts \
         (UCTX_EN=1), and a kernel that lets this user have one, are needed"
    )]
    NoDevx {
        /// Name of the device.
        nic: String,
        /// What the system said.
        detail: String,
    },
    /// A step of opening failed.
    #[error("{nic}: {what} failed: {detail}")]
    Driver {
        /// Name of the device.
        nic: String,
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        detail: String,
    },
}

#[cfg(feature = "ibverbs")]
fn listed(names: &[String]) -> String {
    if names.is_empty() { "are none".into() } else { format!("are {}", names.join(", ")) }
}

impl DevxError {
    /// True if the NIC no longer answers commands.
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::Timeout { .. })
    }
}

/// What went wrong with an object on a NIC.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum NicError {
    /// A GPU's memory could be registered neither way.
    #[error(
        "{nic}: expected the GPU's memory to be registered, got by dma-buf: {dmabuf}; by nvidia_peermem: {peermem}; \
         use the open GPU kernel modules with Linux 5.12 or later, or load nvidia_peermem, or put the heap in the \
         host's memory (SHUNT_HEAP=host)"
    )]
    GpuMemory {
        /// Name of the NIC.
        nic: String,
        /// Why not through a dma-buf.
        dmabuf: String,
        /// Why not by its address.
        peermem: String,
    },
    /// The command failed.
    #[error(transparent)]
    Devx(#[from] DevxError),
    /// Memory for rings could not be had or written.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// The NIC lacks something Shunt stands on.
    #[error("{nic}: {what}: expected {want}, got {met}; {cure}")]
    Unfit {
        /// Name of the NIC.
        nic: String,
        /// Capability.
        what: &'static str,
        /// What the NIC reports.
        met: String,
        /// What would do.
        want: &'static str,
        /// What to do.
        cure: &'static str,
    },
    /// A QP is not in the state, or not in the mode, that it was put into.
    #[error("{nic}: QP {qpn:#x}: {what}: expected {want}, got {met}; {cure}")]
    Qp {
        /// Name of the NIC.
        nic: String,
        /// Queue pair.
        qpn: u32,
        /// Which property.
        what: &'static str,
        /// What QUERY_QP says.
        met: String,
        /// What it should say.
        want: &'static str,
        /// What to do.
        cure: &'static str,
    },
    /// A work request that the host itself posted ended in an error completion.
    #[error(
        "{nic}: host work request {index} on QP {qpn:#x} completed with syndrome {syndrome:#04x}, \
         vendor {vendor:#04x}"
    )]
    Completion {
        /// Name of the NIC.
        nic: String,
        /// Queue pair.
        qpn: u32,
        /// Its index.
        index: u64,
        /// Syndrome.
        syndrome: u8,
        /// Vendor syndrome.
        vendor: u8,
    },
    /// A work request that the host itself posted did not complete in time.
    #[error("{nic}: host work request {index} on QP {qpn:#x} did not complete within {waited_ns} ns")]
    Overdue {
        /// Name of the NIC.
        nic: String,
        /// Queue pair.
        qpn: u32,
        /// Its index.
        index: u64,
        /// How long the caller waited.
        waited_ns: u64,
    },
    /// The code that worked on it panicked. What it had begun with the NIC is not known.
    #[error("{nic}: its worker panicked: {said}")]
    Panicked {
        /// Name of the NIC.
        nic: String,
        /// What the panic said.
        said: String,
    },
    /// The two ends cannot be connected.
    #[error("{nic}: cannot connect to rail {peer}: {detail}")]
    Mismatch {
        /// Name of the NIC.
        nic: String,
        /// Name of the other end's rail.
        peer: String,
        /// Why.
        detail: String,
    },
}

/// What went wrong with device-visible memory.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum GpuError {
    /// No memory.
    #[error("{bytes} bytes of device-visible memory could not be allocated")]
    NoMemory {
        /// Bytes asked for.
        bytes: u64,
    },
    /// An access outside every allocation.
    #[error("{bytes} bytes at {address:#x} do not lie in one allocation")]
    OutOfBounds {
        /// First address.
        address: u64,
        /// Length.
        bytes: u64,
    },
    /// The GPU's driver.
    #[error("{detail}")]
    Driver {
        /// Its words.
        detail: String,
    },
}
