//! What can go wrong in a call, typed. Calls of the C interface have no status, so [`crate::report`] says it.

use crate::duplicate_library::DuplicateLibrary;
use crate::env::EnvError;
use crate::heap::HeapError;
use crate::registry::RegistryError;
use crate::teams::TeamError;
use shunt_device::FaultKind;
use shunt_host::connect::tcp::JoinError;
use shunt_host::connect::tcp::error::UniqueIdError;
use shunt_host::error::{BootstrapError, GpuError};
use shunt_host::job::JobError;
use thiserror::Error;

/// Why the library is not up.
#[derive(Debug, Error)]
pub enum InitError {
    /// Another library of this name.
    #[error(transparent)]
    DuplicateLibrary(#[from] DuplicateLibrary),
    /// MPI does not help.
    #[error(transparent)]
    Mpi(#[from] crate::mpi::MpiError),
    /// A variable.
    #[error(transparent)]
    Environment(#[from] EnvError),
    /// Who this process is.
    #[error(transparent)]
    Place(#[from] JobError),
    /// The others were not found.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The unique id is none of ours.
    #[error("unique id: {0}")]
    UniqueId(#[from] UniqueIdError),
    /// Attributes that make no job.
    #[error("{what}: expected {want}, got {met}")]
    Attribute {
        /// Attribute.
        what: &'static str,
        /// What was met.
        met: i64,
        /// What would be right.
        want: String,
    },
    /// A way to start that is not there.
    #[error("{0}")]
    Unsupported(&'static str),
    /// An exchange failed.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    /// PEs were started with different settings.
    #[error("PE {pe} was started with {theirs}, PE 0 with {ours}; all PEs must agree")]
    Disagree {
        /// Who differs.
        pe: u32,
        /// Its line.
        theirs: String,
        /// PE 0's.
        ours: String,
    },
    /// The soft fabric.
    #[error("soft fabric {name}: {why}")]
    Fabric {
        /// Its name.
        name: String,
        /// What is wrong.
        why: String,
    },
    /// The machine's RDMA devices.
    #[error(transparent)]
    Nics(#[from] shunt::machine::NoMachine),
    /// The PE did not come up.
    #[error(transparent)]
    Start(#[from] shunt::Error),
    /// The GPU that the program's kernels run on.
    #[error("the program has kernels, and their GPU cannot be used: {0}")]
    Gpu(shunt_host::gpu::cuda::CudaError),
    /// The heap cannot lie where it was asked for.
    #[error("{0}")]
    Heap(String),
    /// Queues cannot lie where they were asked for.
    #[error(transparent)]
    Queues(#[from] shunt::queues::NoQueues),
    /// It has no agent.
    #[error(transparent)]
    Agent(#[from] shunt::NoAgent),
    /// Host and device code are of different builds.
    #[error(
        "device state: expected one of this build, got another; link the program with this library's prefix again"
    )]
    Build,
    /// It is up, as another PE than this call names.
    #[error(
        "PE {met} of {met_pes} is named, and the library is up as PE {pe} of {pes}: further calls name the same"
    )]
    Already {
        /// The PE that is named.
        met: i32,
        /// Of how many.
        met_pes: i32,
        /// This PE.
        pe: u32,
        /// PEs.
        pes: u32,
    },
}

/// A channel that carries nothing any more, or asks its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Peer.
    pub peer: u32,
    /// Index of the channel.
    pub channel: u32,
    /// Rails of the path it was on: this end's, the other end's.
    pub rails: (u32, u32),
    /// First ticket not known to be done.
    pub ticket: u64,
    /// Tickets handed out and not done.
    pub unfinished: u64,
    /// Syndrome, and vendor syndrome << 8.
    pub syndrome: u32,
    /// True if it asks whether an operation was applied.
    pub uncertain: bool,
    /// All of it, for people.
    pub text: String,
}

/// Why a call did not do what it was asked for.
#[derive(Debug, Error)]
pub enum Failure {
    /// Not initialised, or finalised.
    #[error("the library is not initialised; call nvshmem_init first")]
    NotInitialized,
    /// Initialising failed.
    #[error(transparent)]
    Init(#[from] InitError),
    /// No such PE.
    #[error("PE: expected 0 to {}, got {met}", pes - 1)]
    NoPe {
        /// What was given.
        met: i32,
        /// PEs there are.
        pes: u32,
    },
    /// Handles of more queue pairs than there are.
    #[error(
        "{met} queue pairs; {left} to each peer are left beside the default one, NVSHMEM_IBGDA_NUM_RC_PER_PE makes more"
    )]
    QueuePairs {
        /// What was asked for.
        met: i32,
        /// How many there are.
        left: u32,
    },
    /// An address that other PEs do not have.
    #[error("address: expected the symmetric heap, {start:#x} to {end:#x}, got {bytes} bytes at {at:#x}")]
    NotSymmetric {
        /// Address.
        at: u64,
        /// Length.
        bytes: u64,
        /// First address of the heap.
        start: u64,
        /// The one behind it.
        end: u64,
    },
    /// A word that is not aligned to its size.
    #[error("address of a word: expected a multiple of {bytes}, got {at:#x}")]
    Unaligned {
        /// Address.
        at: u64,
        /// Length.
        bytes: u64,
    },
    /// An argument out of its range.
    #[error("{what}: expected {want}, got {met}")]
    Argument {
        /// Argument.
        what: &'static str,
        /// What was given.
        met: i64,
        /// What would be right.
        want: &'static str,
    },
    /// A work stream, where there is no CUDA.
    #[error("stream: expected the null stream, since this library runs without CUDA, got another one")]
    Stream,
    /// A team.
    #[error(transparent)]
    Team(#[from] TeamError),
    /// The heap.
    #[error(transparent)]
    Heap(#[from] HeapError),
    /// Registered buffers.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// PEs of a collective call gave different arguments.
    #[error(
        "PE {pe} called with {theirs}, PE {mine} with {ours}; a collective call has the same arguments everywhere"
    )]
    Differs {
        /// Who differs.
        pe: u32,
        /// What it gave.
        theirs: String,
        /// This PE.
        mine: u32,
        /// What this PE gave.
        ours: String,
    },
    /// An exchange.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    /// A channel.
    #[error("{}", .0.text)]
    Channel(Box<Broken>),
    /// An answer to what a channel does not ask.
    #[error(
        "ticket: expected that of the operation which the channel to PE {pe} asks about, and applied=1 where it is \
         known to be applied; got {ticket}, of which it asks nothing, or another answer"
    )]
    NotAsked {
        /// Peer.
        pe: u32,
        /// What was given.
        ticket: u64,
    },
    /// Nothing came.
    #[error("waited {waited_ms} ms for {what}{lost}; SHUNT_CALL_DEADLINE is how long a call may wait")]
    Overdue {
        /// For what.
        what: String,
        /// How long.
        waited_ms: u64,
        /// Peers that are lost, in words.
        lost: String,
    },
    /// A channel of kernels carries nothing any more.
    #[error(
        "a queue pair of kernels to PE {pe} ended with fault {status} (shunt_device.h): what they sent on it is not \
         all there"
    )]
    Kernels {
        /// Peer.
        pe: u32,
        /// `SHUNT_PEER_LOST` and its like.
        status: u32,
    },
    /// A stream that is being captured holds nothing that could be waited for.
    #[error(
        "the stream is being captured, and no kernel makes this call: expected put, get, put with signal, signal, \
         signal_wait_until, quiet, barrier, sync, broadcast, fcollect or alltoall, with all memory in the symmetric \
         heap; make it outside the capture"
    )]
    Captured,
    /// CUDA said why.
    #[error("the GPU did not do what was asked for (the line before this one)")]
    NoKernel,
    /// Modules are told by the program's device library.
    #[error(
        "this program has no device functions: link libnvshmem_device.a of the prefix into the program or library that \
         calls this"
    )]
    NoDeviceLibrary,
    /// No NIC of this PE executes an atomic on a word of this PE.
    #[error(
        "an atomic on a word of this PE's own, in a device's memory: {why}{}",
        if *uncertain { "; it may have been applied" } else { "" }
    )]
    OwnAtomic {
        /// Whether it may have been applied.
        uncertain: bool,
        /// The NICs' words.
        why: String,
    },
    /// NICs do not take more of the heap.
    #[error("more of the symmetric heap: {0}")]
    Registration(String),
    /// The heap's memory could not be copied.
    #[error("copy of the heap's or the program's memory: {0}")]
    Memory(#[from] GpuError),
    /// What this library does not do.
    #[error("{0}")]
    Unsupported(&'static str),
    /// A fault of NICs was asked for that there is not.
    #[error("{0}")]
    Fault(String),
}

/// Which of them it is, as C programs see it.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// None.
    None = 0,
    /// What was asked for makes no sense.
    Usage = 1,
    /// Every path to a peer is dead, or an old one could not be fenced.
    PeerLost = 2,
    /// It is not known whether an operation was applied.
    Uncertain = 3,
    /// A wait was over.
    Overdue = 4,
    /// The library is not up.
    Init = 5,
    /// The machine or the job gave out.
    System = 6,
}

impl Failure {
    /// Which of them it is.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Init(_) => Kind::Init,
            Self::Channel(broken) if broken.uncertain => Kind::Uncertain,
            Self::Kernels { status, .. } if *status == FaultKind::Uncertain as u32 => Kind::Uncertain,
            Self::Channel(_) | Self::Kernels { .. } => Kind::PeerLost,
            Self::OwnAtomic { uncertain: true, .. } => Kind::Uncertain,
            Self::NoKernel | Self::Memory(_) | Self::Registration(_) | Self::OwnAtomic { .. } => Kind::System,
            Self::Overdue { .. } => Kind::Overdue,
            Self::Bootstrap(_) => Kind::System,
            _ => Kind::Usage,
        }
    }

    /// The failure of a call behind another operation, whose own atomic may be under way at the word's owner.
    pub(crate) fn asked_for(mut self) -> Self {
        if let Self::Channel(broken) = &mut self {
            broken.text.push_str(
                "; the atomic of this call may have been asked for: it is then executed once when the channel goes on, \
                 and its value is lost",
            );
        }
        self
    }

    /// The failure of an answer that came when its channel had ended.
    pub(crate) fn too_late(mut self) -> Self {
        if let Self::Channel(broken) = &mut self {
            broken.uncertain = false;
            broken.text.insert_str(0, "the answer came too late, and the channel has ended: ");
        }
        self
    }

    /// What the process ends with, and what a call with a status answers.
    pub fn status(&self) -> i32 {
        match self.kind() {
            Kind::None => 0,
            Kind::Usage => 2,
            Kind::PeerLost | Kind::Uncertain => 3,
            Kind::Overdue => 4,
            Kind::System => 1,
            Kind::Init => match self {
                Self::Init(InitError::Environment(_) | InitError::Place(_) | InitError::Disagree { .. }) => 2,
                Self::Init(
                    InitError::Nics(_)
                    | InitError::DuplicateLibrary(_)
                    | InitError::Mpi(_)
                    | InitError::Attribute { .. }
                    | InitError::Heap(_)
                    | InitError::Queues(_)
                    | InitError::Already { .. }
                    | InitError::Unsupported(_),
                ) => 2,
                _ => 1,
            },
        }
    }

    /// The channel it was on.
    pub fn broken(&self) -> Option<&Broken> {
        match self {
            Self::Channel(broken) => Some(broken),
            _ => None,
        }
    }
}
