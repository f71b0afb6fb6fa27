//! Who of a kernel of normal mode did what, and how a kernel ends that could not go on.

use crate::moe::stop::{Stop, stopped};
use crate::{Answer, Outcome};
use shunt_device::{Device, Platform};

/// Where a kernel was when it met a fault. The numbers stand behind those of low-latency stages.
#[repr(u64)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Finding out which token goes where.
    Layout = 32,
    /// Notify: telling nodes how many tokens come.
    NotifySend = 33,
    /// Notify: waiting for what nodes and ranks tell.
    NotifyReceive = 34,
    /// Notify: giving the records' room back.
    NotifyCredit = 35,
    /// Dispatch: putting tokens to nodes.
    DispatchSend = 36,
    /// Dispatch: handing tokens on to ranks of this node.
    DispatchForward = 37,
    /// Dispatch: telling a node that its slots were taken.
    DispatchHead = 38,
    /// Dispatch: taking tokens from ranks of this node.
    DispatchReceive = 39,
    /// Combine: handing rows to the rank of this node that sends them on.
    CombineSend = 40,
    /// Combine: summing rows of this node and putting the sums.
    CombineForward = 41,
    /// Combine: telling a node that its slots were taken.
    CombineHead = 42,
    /// Combine: summing what nodes sent.
    CombineReceive = 43,
    /// Settling: waiting until all that was posted is done.
    Quiet = 44,
    /// Settling: waiting for all ranks.
    Meet = 45,
    /// Before the first dispatch: telling all ranks what this one has, and waiting for theirs.
    Hold = 46,
    /// Dispatch, combine: a rank's terms of the call are others. The fault's address is
    /// [these](shunt_layout::moe_normal::CallTerms).
    Differs = 47,
    /// A rank gave up the call that this one is in. The fault's address is [why](shunt_layout::moe_normal::Why).
    GaveUp = 48,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 17] = [
        Self::Layout,
        Self::NotifySend,
        Self::NotifyReceive,
        Self::NotifyCredit,
        Self::DispatchSend,
        Self::DispatchForward,
        Self::DispatchHead,
        Self::DispatchReceive,
        Self::CombineSend,
        Self::CombineForward,
        Self::CombineHead,
        Self::CombineReceive,
        Self::Quiet,
        Self::Meet,
        Self::Hold,
        Self::Differs,
        Self::GaveUp,
    ];

    /// The role of an outcome's value.
    pub fn from_raw(raw: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|role| *role as u64 == raw)
    }

    /// As a message names it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Layout => "layout",
            Self::NotifySend => "notify, sending",
            Self::NotifyReceive => "notify, receiving",
            Self::NotifyCredit => "notify, giving back",
            Self::DispatchSend => "dispatch, sending between nodes",
            Self::DispatchForward => "dispatch, forwarding",
            Self::DispatchHead => "dispatch, returning a head",
            Self::DispatchReceive => "dispatch, receiving inside the node",
            Self::CombineSend => "combine, sending inside the node",
            Self::CombineForward => "combine, forwarding",
            Self::CombineHead => "combine, returning a head",
            Self::CombineReceive => "combine, receiving between nodes",
            Self::Quiet => "settling, waiting for what was posted",
            Self::Meet => "settling, meeting",
            Self::Hold => "holding ranks against each other",
            Self::Differs => "a call, holding its terms",
            Self::GaveUp => "a call, given up by a rank",
        }
    }
}

/// A role that cannot go on, and why.
#[derive(Clone, Copy)]
pub struct Halt {
    pub role: Role,
    pub stop: Stop,
}

/// What a kernel answers. Of a fault the value is the [`Role`].
pub struct Ended<'s, P: Platform> {
    /// The device.
    pub device: Device<'s, P>,
    /// What the kernel's documentation calls its value, or why it was broken off.
    pub ended: Result<u64, Halt>,
}

impl<P: Platform> Answer for Ended<'_, P> {
    #[inline(always)]
    fn outcome(self) -> Outcome {
        match self.ended {
            Ok(value) => Outcome::ok(value),
            Err(Halt { role, stop }) => {
                Outcome { value: role as u64, ..Outcome::fault(&stop.fault(self.device)) }
            }
        }
    }
    #[inline(always)]
    unsafe fn store(self, out: *mut Outcome, block: u32) {
        match self.ended {
            // SAFETY: forwarded to the caller.
            Ok(value) => unsafe { (&raw mut (*out.add(block as usize)).value).write(value) },
            Err(Halt { role, stop }) => {
                // SAFETY: one for each block.
                stopped(self.device, role as u64, stop, unsafe { out.add(block as usize) });
            }
        }
    }
}
