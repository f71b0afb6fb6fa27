//! What can go wrong between processes: secrets, joining, unique ids, and why a connection was refused.

use std::net::SocketAddr;
use std::path::PathBuf;
use thiserror::Error;

/// A secret that cannot be had.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SecretError {
    /// Too easy to guess.
    #[error("the secret: expected {}, got {met} characters", shunt_settings::syntax::SECRET)]
    Short {
        /// Characters there are.
        met: usize,
    },
    /// Others can read it.
    #[error("{} has mode {mode:o}, so others can read or change it; run chmod go-rwx on it", path.display())]
    Readable {
        /// File or directory.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// It is somebody else's.
    #[error("{} belongs to user {owner}; it must belong to the user of this process", path.display())]
    Owner {
        /// File or directory.
        path: PathBuf,
        /// User it belongs to.
        owner: u32,
    },
    /// The system refused.
    #[error("{}: {detail}", path.display())]
    File {
        /// File or directory.
        path: PathBuf,
        /// The system's words.
        detail: String,
    },
    /// What a variable names is none.
    #[error("{variable}: {error}")]
    Named {
        /// The variable.
        variable: &'static str,
        /// What is wrong.
        error: Box<SecretError>,
    },
    /// No random bytes.
    #[error("the system gives no random bytes: {detail}")]
    Random {
        /// The system's words.
        detail: String,
    },
}

/// Why a process could not join its job. Exit status 1: see [`crate::job::JobError`] for what was typed wrong.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum JoinError {
    /// The secret.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// The launcher, which carries rank 0's unique id.
    #[error("{launcher}: {detail}")]
    Launcher {
        /// Who.
        launcher: &'static str,
        /// What it said.
        detail: String,
    },
    /// The root's name has no address.
    #[error("root {root} has no address: {detail}")]
    Resolve {
        /// As it was given.
        root: String,
        /// The resolver's words.
        detail: String,
    },
    /// Rank 0 cannot listen.
    #[error(
        "rank 0 cannot listen at {root}: {detail}: expected an address of this machine for rank 0; is this rank 0?"
    )]
    Listen {
        /// Root address.
        root: String,
        /// The system's words.
        detail: String,
    },
    /// The inherited descriptor is no listening socket of the root's port.
    #[error("SHUNT_ROOT_FD={fd} is {met}: expected a listening TCP socket of port {port}")]
    Descriptor {
        /// Descriptor.
        fd: i32,
        /// What it is.
        met: String,
        /// Port of the root address.
        port: u16,
    },
    /// The system refused a resource.
    #[error("{what}: {detail}")]
    System {
        /// What was asked.
        what: &'static str,
        /// The system's words.
        detail: String,
    },
    /// The interfaces of this machine cannot be listed.
    #[error("the interfaces of this machine cannot be listed: {detail}")]
    Interfaces {
        /// The system's words.
        detail: String,
    },
    /// No interface fits.
    #[error("no interface that is up fits {spec:?}; this machine has {have:?}")]
    NoInterface {
        /// What was asked for.
        spec: String,
        /// Interfaces there are.
        have: Vec<String>,
    },
    /// A number that makes no sense.
    #[error("{what}: expected {want}, got {met}")]
    Value {
        /// Which.
        what: &'static str,
        /// What was met.
        met: u64,
        /// What would be right.
        want: String,
    },
    /// The root was not reached in time.
    #[error("root {root} was not reached within {:.0} s: {last}", *waited_ns as f64 / 1e9)]
    Unreachable {
        /// Root address.
        root: String,
        /// How long was tried.
        waited_ns: u64,
        /// What the last attempt met.
        last: String,
    },
    /// The root, or what listens in its place, is not one of ours.
    #[error("root {root} is refused: {reason}")]
    Root {
        /// Root address.
        root: String,
        /// Why.
        reason: Refusal,
    },
    /// The root refused this process.
    #[error("root {root} refuses rank {rank}: {reason}")]
    Refused {
        /// Root address.
        root: String,
        /// This process.
        rank: u32,
        /// Why.
        reason: Refusal,
    },
    /// Ranks did not come in time.
    #[error(
        "waited {:.0} s; rank(s) {missing:?} of {world} did not join: {}",
        *waited_ns as f64 / 1e9, why_missing(last_refused.as_ref())
    )]
    Missing {
        /// Ranks that did not come.
        missing: Vec<u32>,
        /// Ranks in the job.
        world: u32,
        /// How long was waited.
        waited_ns: u64,
        /// The last connection that was refused meanwhile.
        last_refused: Option<Refused>,
    },
    /// All joined, but two cannot connect.
    #[error(
        "waited {:.0} s; rank(s) {missing:?} joined, but no connection with them came about: {last}",
        *waited_ns as f64 / 1e9
    )]
    Mesh {
        /// Ranks without a connection.
        missing: Vec<u32>,
        /// How long was waited.
        waited_ns: u64,
        /// What the connection to the first of them met.
        last: String,
    },
    /// The root went away before all had joined.
    #[error("the root went away ({reason}) while rank(s) {missing:?} were missing")]
    RootLeft {
        /// Ranks that were missing when it was last heard.
        missing: Vec<u32>,
        /// How the connection ended.
        reason: String,
    },
}

/// Why a connection is refused. It is what the log says and, where the other side may know, what it is told.
#[derive(Clone, Debug, Error, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// Bytes that are no preamble of ours.
    #[error("its first bytes are not Shunt's")]
    Garbage,
    /// Another version of this protocol.
    #[error(
        "it speaks version {theirs} of the protocol between processes, {ours} here; run one build in all processes"
    )]
    Protocol {
        /// Version of the other side.
        theirs: u32,
        /// Our version.
        ours: u32,
    },
    /// Another layout of the device state.
    #[error("it has ABI version {theirs}, {ours} here; run one build in all processes")]
    Abi {
        /// Version of the other side.
        theirs: u32,
        /// Our version.
        ours: u32,
    },
    /// It does not have the job's secret.
    #[error("it does not have the same secret")]
    Secret,
    /// It said nothing, or not enough, in time.
    #[error("it did not finish the handshake in time")]
    Slow,
    /// It went away before the handshake was over.
    #[error("it left in the middle of the handshake")]
    Left,
    /// It had to give way to newer ones.
    #[error("too many connections were in the middle of their handshake")]
    Crowded,
    /// It broke the protocol after the key exchange.
    #[error("it broke the protocol: {0}")]
    Broken(&'static str),
    /// Its rank is there already.
    #[error("rank {rank} is there already")]
    Duplicate {
        /// Rank.
        rank: u32,
    },
    /// It belongs to a job of another size.
    #[error("world is {theirs} in one process and {ours} in the other; start all with the same")]
    World {
        /// World of the process that was refused.
        theirs: u32,
        /// World of the process that refuses.
        ours: u32,
    },
    /// No such rank.
    #[error("there is no rank {rank} to admit in a world of {world}")]
    Rank {
        /// Rank.
        rank: u32,
        /// World.
        world: u32,
    },
    /// The job runs; nobody is let in again.
    #[error("the job has started; rank {rank} is not let in again")]
    Started {
        /// Rank.
        rank: u32,
    },
    /// A mesh connection for another rank, or of a rank that does not connect here.
    #[error("it is for the pair of ranks {from} and {to}, not for this process")]
    Stray {
        /// Who connects.
        from: u32,
        /// To whom.
        to: u32,
    },
}

impl Refusal {
    /// As it goes over the wire: a code and two numbers.
    pub(super) fn to_wire(&self) -> (u8, u32, u32) {
        match *self {
            Self::Garbage => (1, 0, 0),
            Self::Protocol { theirs, ours } => (2, theirs, ours),
            Self::Abi { theirs, ours } => (3, theirs, ours),
            Self::Secret => (4, 0, 0),
            Self::Slow => (5, 0, 0),
            Self::Left => (6, 0, 0),
            Self::Crowded => (7, 0, 0),
            Self::Broken(_) => (8, 0, 0),
            Self::Duplicate { rank } => (9, rank, 0),
            Self::World { theirs, ours } => (10, theirs, ours),
            Self::Rank { rank, world } => (11, rank, world),
            Self::Started { rank } => (12, rank, 0),
            Self::Stray { from, to } => (13, from, to),
        }
    }

    /// The reason of a code, as the other side gave it.
    pub(super) fn from_wire(code: u8, a: u32, b: u32) -> Option<Self> {
        Some(match code {
            1 => Self::Garbage,
            2 => Self::Protocol { theirs: a, ours: b },
            3 => Self::Abi { theirs: a, ours: b },
            4 => Self::Secret,
            5 => Self::Slow,
            6 => Self::Left,
            7 => Self::Crowded,
            8 => Self::Broken("as the other side says"),
            9 => Self::Duplicate { rank: a },
            10 => Self::World { theirs: a, ours: b },
            11 => Self::Rank { rank: a, world: b },
            12 => Self::Started { rank: a },
            13 => Self::Stray { from: a, to: b },
            _ => return None,
        })
    }
}

fn why_missing(last_refused: Option<&Refused>) -> String {
    last_refused.map_or_else(
        || "is the root's address one that they reach?".to_owned(),
        |Refused { from, reason }| format!("the last connection refused came from {from}: {reason}"),
    )
}

/// A connection that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Where it came from.
    pub from: SocketAddr,
    /// Why.
    pub reason: Refusal,
}

/// Bytes or text that are no unique id.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum UniqueIdError {
    /// Another length.
    #[error("unique id: expected {want} {unit}, got {met}")]
    Length {
        /// What there is.
        met: usize,
        /// What is right.
        want: usize,
        /// Bytes or digits.
        unit: &'static str,
    },
    /// Not a digit.
    #[error("unique id: expected hexadecimal digits, got another character at {at}")]
    Digit {
        /// Which character.
        at: usize,
    },
    /// Not a unique id of ours.
    #[error("unique id: expected one that Shunt made, got other bytes")]
    Magic,
    /// Made by another version.
    #[error("the unique id: expected version {want}, got {met}; run one build in all processes")]
    Version {
        /// What was met.
        met: u16,
        /// What is right.
        want: u16,
    },
    /// Damaged.
    #[error("the unique id is damaged: its checksum does not match")]
    Checksum,
    /// A field has a value it cannot have.
    #[error("field {field} of the unique id is out of range")]
    Field {
        /// Which.
        field: &'static str,
    },
}
