//! Low-latency MoE: dispatch and combine, each in a phase that sends and one that receives.
//!
//! Warps share out the work of a phase, whatever block they are in; no call makes a block's warps meet. A rank calls
//! phases in the order that all ranks call them. No warp waits for one of its launch that did not begin its part, so
//! blocks may run in any order and one after the other. What is sent between ranks:
//!
//! | words and messages | kind | written by | given back by |
//! | --- | --- | --- | --- |
//! | dispatch messages, combine messages | puts | one rank, once a call | the receiver's credit |
//! | counts, flags | kind 2, behind their messages | one channel, once a call | cleared where they are seen |
//! | credits, meetings | kind 1, on channel 0 | one rank | never |
//!
//! With `ABSOLUTE` counts and flags are kind 1 instead: the call's number above the count. Nobody clears them, and
//! where nothing but the ledger can tell whether one was applied, it is repeated; one of kind 2 is `Uncertain` then.
//!
//! Ranks of a node whose heaps are mapped ([`MoeCall::peers`]) store the same messages and words there (`near`).
//!
//! A credit says that a rank took all that it was sent in a call. Call `n` is sent to a rank that took call `n - 2`,
//! which is nearly always known by then: what that rank sent in call `n - 1` came behind it.
//!
//! Every wait looks after this rank's channels, has the kernel's deadline, and asks every slice whether the peer is
//! lost. An outcome that is a fault names peer, channel, path slot, ticket and syndrome; its value is the [`Stage`].

mod call;
mod clean;
mod combine_log;
mod combine_receive;
mod combine_send;
mod dispatch_receive;
mod dispatch_send;
mod exchange;
pub mod logfmt;
mod near;
pub mod normal;
pub mod number;
mod poster;
mod room;
mod stage;
mod stop;
mod tensor;

pub use call::{ABSOLUTE, ASK, COUNT_ON, EXPONENTS, FP8, MoeCall, ROUNDED, ZERO_COPY};
pub use exchange::Part;
pub use stage::Stage;
pub use stop::Phase;

#[cfg(not(target_arch = "nvptx64"))]
use crate::{Answer, Outcome};
use shunt_device::{Device, Platform, WarpLanes};

/// Whether what experts made travels as LogFMT-10: both phases of a combine, on all ranks alike.
const LOGFMT: bool = true;
/// As BF16.
const BF16: bool = false;

/// Makes each body one whose faults tell where it was.
macro_rules! phases {
    ($($name:ident $stage:ident $body:expr;)*) => {$(
        #[doc = concat!("The phase of [`Stage::", stringify!($stage), "`]; its module says what it reads and writes.")]
        #[inline(always)]
        pub fn $name<'s, P: Platform, L: WarpLanes>(
            device: Device<'s, P>,
            lanes: L,
            part: Part,
            call: &MoeCall,
        ) -> Phase<'s, P> {
            Phase { device, stage: Stage::$stage, ended: $body(device, lanes, part, call) }
        }
    )*};
}
phases! {
    dispatch_send DispatchSend dispatch_send::run;
    dispatch_receive DispatchReceive dispatch_receive::run;
    combine_send CombineSend combine_send::run::<P, L, BF16>;
    combine_receive CombineReceive combine_receive::run::<P, L, BF16>;
    combine_send_log CombineSendLog combine_send::run::<P, L, LOGFMT>;
    combine_receive_log CombineReceiveLog combine_receive::run::<P, L, LOGFMT>;
    clean Clean clean::run;
    room Room room::run;
}

#[cfg(not(target_arch = "nvptx64"))]
impl Stage {
    /// The phase as entry points are named: `shunt_kernel_NAME_warp` and `shunt_kernel_NAME_block`.
    pub const fn kernel(self) -> &'static str {
        match self {
            Self::DispatchSend => "moe_dispatch_send",
            Self::DispatchReceive => "moe_dispatch_receive",
            Self::CombineSend => "moe_combine_send",
            Self::CombineReceive => "moe_combine_receive",
            Self::Clean => "moe_clean",
            Self::Room => "moe_room",
            Self::CombineSendLog => "moe_combine_send_log",
            Self::CombineReceiveLog => "moe_combine_receive_log",
        }
    }

    /// Runs a part of the phase: the same body that the entry points run. The leader's outcome counts.
    pub fn run<P: Platform, L: WarpLanes>(
        self,
        device: Device<'_, P>,
        lanes: L,
        part: Part,
        call: &MoeCall,
    ) -> Outcome {
        let phase = match self {
            Self::DispatchSend => dispatch_send(device, lanes, part, call),
            Self::DispatchReceive => dispatch_receive(device, lanes, part, call),
            Self::CombineSend => combine_send(device, lanes, part, call),
            Self::CombineReceive => combine_receive(device, lanes, part, call),
            Self::Clean => clean(device, lanes, part, call),
            Self::Room => room(device, lanes, part, call),
            Self::CombineSendLog => combine_send_log(device, lanes, part, call),
            Self::CombineReceiveLog => combine_receive_log(device, lanes, part, call),
        };
        phase.outcome()
    }
}
