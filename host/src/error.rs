//! Every error of the host side: one enum a layer, lower-case facts with the state that was met.

use shunt_layout::mlx5::prm::cmd::Status;
use thiserror::Error;

/// What the driver or the firmware answered.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum DevxError {
    /// The firmware did not answer in time: the NIC is dead to commands.
    #[error("{nic}: {command} was not answered within {waited_ns} ns; the NIC is dead to commands")]
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
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum IbverbsError {
    /// rdma-core is missing or too old.
    #[error(transparent)]
    Load(#[from] shunt_mlx5_sys::LoadError),
    /// The devices could not be listed.
    #[error("libibverbs gives no list of devices: {detail}; is the kernel module ib_uverbs loaded?")]
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
         host's memory"
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
    #[error(transparent)]
    Cuda(#[from] crate::gpu::cuda::CudaError),
}

/// What went wrong while all PEs exchanged their cards.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum BootstrapError {
    /// The system gives no random bytes.
    #[error("the system gives no random bytes: {detail}")]
    Random {
        /// The system's word.
        detail: String,
    },
    /// Some ranks did not arrive.
    #[error("all-gather {round} waited {waited_ns} ns; rank(s) {missing:?} of {size} did not arrive")]
    Missing {
        /// Number of the all-gather.
        round: u64,
        /// Ranks that did not arrive.
        missing: Vec<u32>,
        /// Ranks in the group.
        size: u32,
        /// How long the caller waited.
        waited_ns: u64,
    },
    /// A rank left before it gave its part, or rank 0, through whom all parts go.
    #[error("all-gather {round} lost rank {rank}: {reason}")]
    Lost {
        /// Number of the all-gather.
        round: u64,
        /// Rank.
        rank: u32,
        /// How it left.
        reason: String,
    },
    /// This process has left the job.
    #[error("all-gather {round} ended: this process has left the job")]
    Closed {
        /// Number of the all-gather.
        round: u64,
    },
    /// Too many bytes.
    #[error("all-gather {round} was given {met} bytes; at most {want} are right")]
    TooLong {
        /// Number of the all-gather.
        round: u64,
        /// Bytes given.
        met: usize,
        /// Bytes at most.
        want: usize,
    },
    /// Too few rows for an exchange, or too many.
    #[error("an exchange was given {met} rows; {size} are right, one for each rank")]
    Rows {
        /// Rows given.
        met: usize,
        /// Ranks in the group.
        size: u32,
    },
    /// A rank arrived twice.
    #[error("rank {rank} arrived twice in all-gather {round}; each rank belongs to one caller")]
    Twice {
        /// Number of the all-gather.
        round: u64,
        /// Rank.
        rank: u32,
    },
}

/// A card that cannot be understood.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum CardError {
    /// Too few bytes.
    #[error("card ends after {got} bytes, in field {field} that ends at byte {want}")]
    Short {
        /// Field that was being read.
        field: &'static str,
        /// Bytes there are.
        got: usize,
        /// Bytes needed.
        want: usize,
    },
    /// Bytes behind the end.
    #[error("card has {extra} bytes behind its end")]
    Long {
        /// Bytes left over.
        extra: usize,
    },
    /// Not a card of this kind.
    #[error("card begins with {met:#010x}, a {kind} begins with {want:#010x}")]
    Magic {
        /// Kind that was expected.
        kind: &'static str,
        /// What it begins with.
        met: u32,
        /// What it should begin with.
        want: u32,
    },
    /// Made by another version.
    #[error("card has ABI version {met}, this build has {want}; run one build on all PEs")]
    Abi {
        /// Version of the card.
        met: u32,
        /// This version.
        want: u32,
    },
    /// A field has a value it cannot have.
    #[error("card field {field} is {met}, {want} is right")]
    Value {
        /// Field.
        field: &'static str,
        /// What it holds.
        met: u64,
        /// What it may hold.
        want: &'static str,
    },
}

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

/// A setting that makes no sense.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{variable}={met:?} is not understood; {want} is right")]
pub struct ConfigError {
    /// Variable.
    pub variable: String,
    /// What was met.
    pub met: String,
    /// What would be right.
    pub want: &'static str,
}

/// Why a PE could not start.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum StartError {
    /// A setting is out of range.
    #[error("{what} is {met}, {want} is right")]
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
