//! Every fault there is.

/// A fault or sabotage, with its parameters. Times are nanoseconds; `for_ns` absent means for ever.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)] // each variant is described in `FaultKind::LIST`; fields are its parameters
pub enum FaultKind {
    Down { for_ns: Option<u64> },
    Up,
    Flap { period_ns: u64, count: u32 },
    BlackholeTx { for_ns: Option<u64> },
    BlackholeRx { for_ns: Option<u64> },
    DropAcks { for_ns: Option<u64> },
    Drop { probability: f64, for_ns: Option<u64> },
    Delay { by_ns: u64, for_ns: Option<u64> },
    Hold { for_ns: u64 },
    Dup { probability: f64, for_ns: Option<u64> },
    Reorder { every: u32, for_ns: Option<u64> },
    Slow { gbps: f64, for_ns: Option<u64> },
    PlacementDelay { by_ns: u64, for_ns: Option<u64> },
    LateCqe { by_ns: u64, for_ns: Option<u64> },
    LostDoorbell { for_ns: Option<u64> },
    NicGone { for_ns: Option<u64> },
    FwTimeout { for_ns: Option<u64> },
    EventLost { for_ns: Option<u64> },
    EventLate { by_ns: u64, for_ns: Option<u64> },
    LostAtomicResponse { for_ns: Option<u64> },
    CqeError { syndrome: u8 },
    PartialWrite { packets: u32 },
    RkeyRevoked { for_ns: Option<u64> },
    GidChange,
    MissingFlush { for_ns: Option<u64> },
    Rnr { for_ns: Option<u64> },
    CqeGarbageInit { for_ns: Option<u64> },
    Corrupt,
    DoubleSignal,
    SwapSignal,
    DoubleAtomic,
    SkipAtomic,
}

/// One line of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultInfo {
    /// How it is written.
    pub syntax: &'static str,
    /// What it does.
    pub meaning: &'static str,
    /// True if it breaks a promise on purpose: a run with it must fail.
    pub sabotage: bool,
    /// True if it hits a whole PE, and so names no rail.
    pub whole_pe: bool,
}

impl FaultInfo {
    /// The name without parameters.
    pub fn name(&self) -> &'static str {
        self.syntax.split(['=', '[']).next().unwrap_or(self.syntax)
    }
}

pub(super) const fn fault(syntax: &'static str, meaning: &'static str) -> FaultInfo {
    FaultInfo { syntax, meaning, sabotage: false, whole_pe: false }
}

pub(super) const fn pe_fault(syntax: &'static str, meaning: &'static str) -> FaultInfo {
    FaultInfo { whole_pe: true, ..fault(syntax, meaning) }
}

const fn sabotage(syntax: &'static str, meaning: &'static str) -> FaultInfo {
    FaultInfo { sabotage: true, ..fault(syntax, meaning) }
}

impl FaultKind {
    /// All of them. `[=T]` or `[/T]` is how long; for ever if absent.
    pub const LIST: &'static [FaultInfo] = &[
        fault(
            "down[=T]",
            "the port loses its link: packets are dropped both ways, an event follows, no queue pair errs",
        ),
        fault("up", "the port gets its link back"),
        fault(
            "flap=PERIOD/COUNT",
            "the port goes down and up COUNT times, down for the first half of each PERIOD",
        ),
        fault("blackhole-tx[=T]", "everything the port sends is lost, silently"),
        fault("blackhole-rx[=T]", "everything that arrives at the port is lost, silently"),
        fault(
            "drop-acks[=T]",
            "ACKs, NAKs, READ responses and atomic answers that arrive at the port are lost",
        ),
        fault("drop=P[/T]", "each packet through the port is lost with probability P"),
        fault("delay=T[/T]", "each packet through the port arrives later"),
        fault(
            "hold=T",
            "nothing passes the port for T, and nothing is lost: then all of it arrives, in order (as PFC pauses do)",
        ),
        fault("dup=P[/T]", "each packet through the port arrives twice with probability P"),
        fault(
            "reorder=N[/T]",
            "every N-th packet through the port is overtaken by those behind it (10 us late)",
        ),
        fault("slow=GBPS[/T]", "the port sends no faster than this"),
        fault(
            "placement-delay=T[/T]",
            "writes are executed and acknowledged at once but visible later, in order",
        ),
        fault("late-cqe=T[/T]", "completions are written later"),
        fault("lost-doorbell[=T]", "the next doorbell is lost; with a time, all of them"),
        fault(
            "nic-gone[=T]",
            "the NIC stops: no packets, no commands, no timers, no events; posted writes still land",
        ),
        fault("fw-timeout[=T]", "firmware commands do not finish; the data path works"),
        fault("event-lost[=T]", "events are lost"),
        fault("event-late=T[/T]", "events come later"),
        fault(
            "lost-atomic-response[=T]",
            "atomic answers that arrive at the port are lost: applied, not known",
        ),
        fault("cqe-error=SYNDROME", "the next completion is an error with this syndrome"),
        fault(
            "partial-write=N",
            "of the next multi-packet write that arrives, N packets do; its queue pair hears no more",
        ),
        fault("rkey-revoked[=T]", "peers' accesses through this NIC's keys are refused (NAK remote access)"),
        fault("gid-change", "the port's address changes: packets to the old one are lost"),
        fault("missing-flush[=T]", "queue pairs that err do not flush their work"),
        fault("rnr[=T]", "requests that arrive are answered \"receiver not ready\", as at a page fault"),
        fault(
            "cqe-garbage-init[=T]",
            "fresh completion queues hold stale completions: of what software wrote, the owner bits stay",
        ),
        sabotage("corrupt", "one byte of the next inbound write above 8 bytes is flipped as it is placed"),
        sabotage("double-signal", "the next inbound write of up to 8 bytes is placed again 1 ms later"),
        sabotage(
            "swap-signal",
            "the next inbound write above 8 bytes is placed 1 ms after writes behind it may be",
        ),
        sabotage(
            "double-atomic",
            "the next inbound atomic whose repetition changes its word is executed twice",
        ),
        sabotage(
            "skip-atomic",
            "the next inbound atomic that would change its word is answered, not executed",
        ),
    ];

    /// True if it breaks a promise on purpose.
    pub const fn is_sabotage(&self) -> bool {
        matches!(
            self,
            Self::Corrupt | Self::DoubleSignal | Self::SwapSignal | Self::DoubleAtomic | Self::SkipAtomic
        )
    }

    /// True for a parameter that nobody means: a probability, a delay or a duration of zero.
    pub fn does_nothing(&self) -> bool {
        let no_parameter = match self {
            Self::Drop { probability, .. } | Self::Dup { probability, .. } => *probability == 0.0,
            Self::Delay { by_ns, .. }
            | Self::PlacementDelay { by_ns, .. }
            | Self::LateCqe { by_ns, .. }
            | Self::EventLate { by_ns, .. } => *by_ns == 0,
            _ => false,
        };
        no_parameter || self.duration() == Some(0)
    }

    /// True if it acts once and is then used up.
    pub const fn acts_once(&self) -> bool {
        matches!(
            self,
            Self::LostDoorbell { for_ns: None }
                | Self::CqeError { .. }
                | Self::Corrupt
                | Self::DoubleSignal
                | Self::DoubleAtomic
                | Self::SkipAtomic
        )
    }

    /// How long it acts, if not for ever.
    pub const fn duration(&self) -> Option<u64> {
        match *self {
            Self::Down { for_ns }
            | Self::BlackholeTx { for_ns }
            | Self::BlackholeRx { for_ns }
            | Self::DropAcks { for_ns }
            | Self::Drop { for_ns, .. }
            | Self::Delay { for_ns, .. }
            | Self::Dup { for_ns, .. }
            | Self::Reorder { for_ns, .. }
            | Self::Slow { for_ns, .. }
            | Self::PlacementDelay { for_ns, .. }
            | Self::LateCqe { for_ns, .. }
            | Self::LostDoorbell { for_ns }
            | Self::NicGone { for_ns }
            | Self::FwTimeout { for_ns }
            | Self::EventLost { for_ns }
            | Self::EventLate { for_ns, .. }
            | Self::LostAtomicResponse { for_ns }
            | Self::RkeyRevoked { for_ns }
            | Self::MissingFlush { for_ns }
            | Self::Rnr { for_ns }
            | Self::CqeGarbageInit { for_ns } => for_ns,
            Self::Hold { for_ns } => Some(for_ns),
            Self::Up
            | Self::Flap { .. }
            | Self::CqeError { .. }
            | Self::PartialWrite { .. }
            | Self::GidChange
            | Self::Corrupt
            | Self::DoubleSignal
            | Self::SwapSignal
            | Self::DoubleAtomic
            | Self::SkipAtomic => None,
        }
    }
}
