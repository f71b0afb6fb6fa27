//! Normal-mode MoE: dispatch and combine between nodes, through rings.
//!
//! A node is ranks that reach each other's memory. A token crosses between nodes once for each node, on the rails of
//! ranks of equal number, and is handed on inside the node. Channels cut the tokens into parts; each has its own rings,
//! and one block that plays all its roles in turn:
//!
//! | kernel | role | from | to |
//! | --- | --- | --- | --- |
//! | dispatch | send | a token | ring of a node, by puts of a chunk |
//! | dispatch | forward | ring of a node | rings of ranks of this node; returns heads |
//! | dispatch | receive | ring of a rank | rows |
//! | combine | send | rows | ring at the rank that sends them on |
//! | combine | forward | rings of ranks, summed | ring of a node, by puts of a chunk |
//! | combine | receive | rings of nodes, summed | a token; returns heads |
//!
//! A role does what it can and leaves the turn to the next: none ever waits while another could go on. Only when none
//! could, the block pauses, and looks after its rank's channels. So blocks may run at the same time or one after the
//! other, and two roles that meet a dead rail at once do not wait for each other.
//!
//! | words and messages | how | channel | free to be repeated, because |
//! | --- | --- | --- | --- |
//! | slots | puts | the part's | a ring is the mirror of the one it is put from |
//! | tails | kind 1, behind their slots | the part's | they only grow; who reads an old one waits |
//! | heads | kind 1 | the part's, behind all those of parts | the same |
//! | what ranks say to all | a put and kind 1 | 0 | sizes stay; giving up grows with cleanings, which settle |
//! | records of notify, credits, meetings | puts and kind 1 | 0 | the same, and records have room for two calls |
//! | words inside a node | stores | | nothing repeats them |
//!
//! Counters are of the whole life of the buffer and are never zeroed: a repeated word of an old call is less than what
//! was there, and brings nothing.

mod call;
mod combine;
mod combine_forward;
mod combine_receive;
mod combine_send;
mod dispatch;
mod dispatch_forward;
mod dispatch_receive;
mod dispatch_send;
mod hold;
mod layout;
mod node;
mod notify;
mod role;
mod settle;
mod sum;

pub use call::{CLEAN, FP8, GIVE_UP, NormalCall, ZERO};
pub use role::{Ended, Role};

#[cfg(not(target_arch = "nvptx64"))]
use crate::{Answer, Outcome};
use shunt_device::{Device, Lanes, Platform};

/// Makes each body one whose faults tell who was where.
macro_rules! kernels {
    ($($name:ident $module:ident;)*) => {$(
        #[doc = concat!("The kernel of the module `", stringify!($module), "`, which says what it reads and writes.")]
        #[inline(always)]
        pub fn $name<'s, P: Platform, L: Lanes>(
            device: Device<'s, P>,
            lanes: L,
            block: u32,
            call: &NormalCall,
        ) -> Ended<'s, P> {
            Ended { device, ended: $module::run(device, lanes, block, call) }
        }
    )*};
}
kernels! {
    find_layout layout;
    tell notify;
    send_out dispatch;
    bring_back combine;
    come_to_rest settle;
    hold_ranks hold;
}

/// The kernels.
#[cfg(not(target_arch = "nvptx64"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormalKernel {
    /// Which token goes where.
    Layout,
    /// How many come.
    Notify,
    /// Tokens to experts.
    Dispatch,
    /// Rows back.
    Combine,
    /// Nothing is under way.
    Settle,
    /// What ranks must have alike.
    Hold,
}

#[cfg(not(target_arch = "nvptx64"))]
impl NormalKernel {
    /// As entry points are named: `shunt_kernel_NAME_warp` and `shunt_kernel_NAME_block`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Layout => "moe_normal_layout",
            Self::Notify => "moe_normal_notify",
            Self::Dispatch => "moe_normal_dispatch",
            Self::Combine => "moe_normal_combine",
            Self::Settle => "moe_normal_settle",
            Self::Hold => "moe_normal_hold",
        }
    }

    /// Runs the kernel as block `block` of a launch: the same body that the entry points run. The leader's outcome
    /// counts.
    pub fn run<P: Platform, L: Lanes>(
        self,
        device: Device<'_, P>,
        lanes: L,
        block: u32,
        call: &NormalCall,
    ) -> Outcome {
        let ended = match self {
            Self::Layout => find_layout(device, lanes, block, call),
            Self::Notify => tell(device, lanes, block, call),
            Self::Dispatch => send_out(device, lanes, block, call),
            Self::Combine => bring_back(device, lanes, block, call),
            Self::Settle => come_to_rest(device, lanes, block, call),
            Self::Hold => hold_ranks(device, lanes, block, call),
        };
        ended.outcome()
    }
}
