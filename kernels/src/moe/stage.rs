//! Phases, as faults name them.

/// Where a kernel was when it met a fault.
#[repr(u64)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Sending tokens to experts.
    DispatchSend = 1,
    /// Waiting for tokens, packing them.
    DispatchReceive = 2,
    /// Sending back what experts made.
    CombineSend = 3,
    /// Waiting for that, summing it.
    CombineReceive = 4,
    /// Cleaning the buffer.
    Clean = 5,
    /// Waiting for room, for a caller that is to write the send buffer itself.
    Room = 6,
    /// Sending back what experts made, as LogFMT. A kernel of its own: it needs more registers.
    CombineSendLog = 7,
    /// Waiting for that, summing it.
    CombineReceiveLog = 8,
}

impl Stage {
    /// The stage of an outcome's value.
    pub const fn from_raw(raw: u64) -> Option<Self> {
        Some(match raw {
            1 => Self::DispatchSend,
            2 => Self::DispatchReceive,
            3 => Self::CombineSend,
            4 => Self::CombineReceive,
            5 => Self::Clean,
            6 => Self::Room,
            7 => Self::CombineSendLog,
            8 => Self::CombineReceiveLog,
            _ => return None,
        })
    }

    /// As a message names it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::DispatchSend => "dispatch, sending",
            Self::DispatchReceive => "dispatch, receiving",
            Self::CombineSend => "combine, sending",
            Self::CombineReceive => "combine, receiving",
            Self::Clean => "cleaning",
            Self::Room => "waiting for room",
            Self::CombineSendLog => "combine by LogFMT, sending",
            Self::CombineReceiveLog => "combine by LogFMT, receiving",
        }
    }
}
