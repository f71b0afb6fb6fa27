//! Functions for programs in other languages: `extern "C"`, in a relocatable object that `nvcc -rdc=true` links.
//!
//! `cargo xtask gpu` makes `kernels/include/shunt_device.h` from the list below: comments, names, arguments, in this
//! order. A function that comes three times is for one thread, for a warp that acts as one, and for a block of whole
//! warps; all threads of the group call it with the same arguments and get the same answer. Those of a warp are inlined
//! from the header, where its first lane calls that of a thread: a warp that meets in a function of its own costs a
//! stack on sm_80. On a CPU they are functions.

// Called from C++, where no function says what it does with a pointer.
#![allow(clippy::not_unsafe_ptr_arg_deref)]

use crate::Outcome;
#[cfg(not(target_arch = "nvptx64"))]
use crate::native::{Block, Gpu, Warp, here};
use core::mem::MaybeUninit;
#[cfg(target_arch = "nvptx64")]
use shunt_device::AbiMismatch;
#[cfg(target_arch = "nvptx64")]
use shunt_device::platform::nvptx::{Block, Gpu};
use shunt_device::{
    Amo, Channel, CqCheck, Deadline, Device, Fault, FaultKind, Get, HeapOffset, Posted, Put, Resolution,
    Rounds, Signal, Solo, Ticket,
};

/// The top bit of an answer: what is below it is no ticket but a fault.
const FAILED: u64 = 1 << 63;
/// Status: `shunt_root` holds no device state of this version.
const MISMATCH: u32 = crate::STATUS_ABI_MISMATCH;
/// Status: not yet.
const PENDING: u32 = 0x101;

type Here = Device<'static, Gpu>;

#[cfg(target_arch = "nvptx64")]
#[inline(always)]
fn here() -> Result<Here, AbiMismatch> {
    // SAFETY: the program's host code copied a device state there, which outlives its kernels, or nothing: then magic
    // and version are not right.
    unsafe { Here::attach(core::ptr::null(), Gpu) }
}

/// A ticket, or a fault in the same register.
#[inline(always)]
fn posted(to: u32, channel: u32, post: impl FnOnce(Channel<'static, Gpu>) -> Result<Ticket, Fault>) -> u64 {
    match here() {
        Ok(device) => match post(device.channel(to, channel)) {
            Ok(ticket) => ticket.0,
            Err(fault) => FAILED | fault.kind as u64,
        },
        Err(_) => FAILED | u64::from(MISMATCH),
    }
}

/// The same for a raw post, whose answer is one register already; of a channel that is dead it names no kind, which
/// `why` finds out.
#[inline(always)]
fn tried(to: u32, channel: u32, post: impl FnOnce(Channel<'static, Gpu>) -> Posted) -> u64 {
    match here() {
        Ok(device) => post(device.channel(to, channel)).raw(),
        Err(_) => FAILED | u64::from(MISMATCH),
    }
}

/// 0, or the status that a fault stands for.
#[inline(always)]
fn status(body: impl FnOnce(Here) -> Result<(), Fault>) -> u32 {
    match here() {
        Ok(device) => match body(device) {
            Ok(()) => 0,
            Err(fault) => fault.kind as u32,
        },
        Err(_) => MISMATCH,
    }
}

#[inline(always)]
fn put(dst: u64, src: u64, bytes: u64) -> Put {
    Put { dst: HeapOffset(dst), src: HeapOffset(src), bytes }
}

/// The words of a wait of the caller's.
#[repr(C)]
struct Looks {
    rounds: MaybeUninit<Rounds>,
    begun: u64,
}

const _: () = assert!(size_of::<Looks>() <= 64 && align_of::<Looks>() <= 8);

impl Looks {
    /// A look; the time.
    #[inline(always)]
    fn look(&mut self, device: Here) -> u64 {
        if self.begun == 0 {
            self.rounds.write(device.rounds());
            self.begun = 1;
        }
        // SAFETY: written at the first look.
        device.look_after(unsafe { self.rounds.assume_init_mut() });
        device.now_ns()
    }
}

/// Functions with their groups, or of one thread.
macro_rules! library {
    (@each $docs:tt [] $args:tt -> $out:ty = |$group:ident| $body:expr) => {};
    (@each {$(#[$doc:meta])*} [$name:ident Warp $(, $($rest:tt)*)?] ($($arg:ident: $type:ty),*) -> $out:ty =
        |$group:ident| $body:expr) => {
        $(#[$doc])*
        #[cfg(not(target_arch = "nvptx64"))]
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($($arg: $type),*) -> $out {
            let $group = Warp::default();
            $body
        }
        library! {
            @each {$(#[$doc])*} [$($($rest)*)?] ($($arg: $type),*) -> $out = |$group| $body
        }
    };
    (@each {$(#[$doc:meta])*} [$name:ident $lanes:ident $(, $($rest:tt)*)?] ($($arg:ident: $type:ty),*) -> $out:ty =
        |$group:ident| $body:expr) => {
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($($arg: $type),*) -> $out {
            let $group = <$lanes>::default();
            $body
        }
        library! {
            @each {$(#[$doc])*} [$($($rest)*)?] ($($arg: $type),*) -> $out = |$group| $body
        }
    };
    ($($(#[$doc:meta])* [$($names:tt)*] $args:tt -> $out:ty = |$group:ident| $body:expr;)*) => {
        $(library! { @each {$(#[$doc])*} [$($names)*] $args -> $out = |$group| $body })*
    };
}

library! {
    /// Writes `bytes` of this PE's heap at `src` to the heap of `peer` at `dst`. The answer is a ticket: the source may
    /// be written again once a wait on it, or a quiet, has ended.
    [shunt_put_thread Solo, shunt_put_warp Warp, shunt_put_block Block]
    (peer: u32, channel: u32, dst: u64, src: u64, bytes: u64) -> u64 =
        |lanes| posted(peer, channel, |channel| channel.put_nbi(lanes, put(dst, src, bytes)));

    /// The same and, behind it, a kind 1 signal: the word at `word` takes `value`. Who sees it sees the put.
    [shunt_put_signal_thread Solo, shunt_put_signal_warp Warp, shunt_put_signal_block Block]
    (peer: u32, channel: u32, dst: u64, src: u64, bytes: u64, word: u64, value: u64) -> u64 =
        |lanes| posted(peer, channel, |channel| {
            channel.put_signal_nbi(lanes, put(dst, src, bytes), HeapOffset(word), Signal::Monotone(value))
        });

    /// Reads `bytes` of the heap of `peer` at `src` into this PE's heap at `dst`. They are there once a wait on the
    /// ticket has ended.
    [shunt_get_thread Solo, shunt_get_warp Warp, shunt_get_block Block]
    (peer: u32, channel: u32, dst: u64, src: u64, bytes: u64) -> u64 =
        |lanes| posted(peer, channel, |channel| {
            channel.get_nbi(lanes, Get { dst: HeapOffset(dst), src: HeapOffset(src), bytes })
        });

    /// Writes the low `bytes` (1 to 8) of `value` to the heap of `peer` at `dst`.
    [shunt_p_thread Solo, shunt_p_warp Warp, shunt_p_block Block]
    (peer: u32, channel: u32, dst: u64, value: u64, bytes: u32) -> u64 =
        |lanes| posted(peer, channel, |channel| channel.p_nbi(lanes, HeapOffset(dst), value, bytes));

    /// A kind 1 signal: the word at `word` takes `value`. This channel alone writes the word, each value is greater
    /// than the one before, and the receiver never clears it.
    [shunt_signal_thread Solo, shunt_signal_warp Warp, shunt_signal_block Block]
    (peer: u32, channel: u32, word: u64, value: u64) -> u64 =
        |lanes| posted(peer, channel, |channel| {
            channel.signal_nbi(lanes, HeapOffset(word), Signal::Monotone(value))
        });

    /// A kind 2 signal: `value` is added to the word at `word`. This channel alone adds to it; the receiver clears it.
    [shunt_signal_cleared_thread Solo, shunt_signal_cleared_warp Warp, shunt_signal_cleared_block Block]
    (peer: u32, channel: u32, word: u64, value: u64) -> u64 =
        |lanes| posted(peer, channel, |channel| {
            channel.signal_nbi(lanes, HeapOffset(word), Signal::Cleared(value))
        });

    /// The least that posts a put, by one thread; the doorbell is rung if `ring` is not 0. One that was left is rung by
    /// the next post on this channel that rings, or by a caller that waits or looks.
    [shunt_try_put Solo]
    (peer: u32, channel: u32, dst: u64, src: u64, bytes: u64, ring: u32) -> u64 =
        |one| tried(peer, channel, |channel| channel.try_put_rung(one, put(dst, src, bytes), ring != 0));

    /// The least that posts a kind 2 signal on a word of four bytes, by one thread.
    [shunt_try_cleared32 Solo](peer: u32, channel: u32, word: u64, value: u32) -> u64 =
        |one| tried(peer, channel, |channel| {
            channel.try_signal(one, HeapOffset(word), Signal::Cleared32(value))
        });

    /// The least that writes the low `bytes` (1 to 8) of `value` to the heap of `peer` at `dst`, by one thread.
    [shunt_try_p Solo](peer: u32, channel: u32, dst: u64, value: u64, bytes: u32) -> u64 =
        |one| tried(peer, channel, |channel| channel.try_p(one, HeapOffset(dst), value, bytes));

    /// One look at what the channel has outstanding, by one thread, for a kernel whose own waits look at nothing: a
    /// switch that is under way or begins here is carried on for `timeout_ns` at most. 0 if none is left, SHUNT_PENDING
    /// if one is, SHUNT_UNCERTAIN while the channel asks its owner, else the fault of a dead channel. Without a switch
    /// it does not wait.
    [shunt_progress Solo](peer: u32, channel: u32, timeout_ns: u64) -> u32 =
        |_one| match here() {
            Ok(device) => {
                match device.channel(peer, channel).progress(Deadline::after(device.now_ns(), timeout_ns)) {
                    Ok(true) => 0,
                    Ok(false) => PENDING,
                    Err(kind) => kind as u32,
                }
            }
            Err(_) => MISMATCH,
        };

    /// A kind 3 signal: `value` is added to the word at `word`, which others add to as well. All of them use channels
    /// of one index.
    [shunt_signal_add_thread Solo, shunt_signal_add_warp Warp, shunt_signal_add_block Block]
    (peer: u32, channel: u32, word: u64, value: u64) -> u64 =
        |lanes| posted(peer, channel, |channel| channel.signal_nbi(lanes, HeapOffset(word), Signal::Add(value)));

    /// Waits until the operation of `ticket` is done.
    [shunt_wait_thread Solo, shunt_wait_warp Warp, shunt_wait_block Block]
    (peer: u32, channel: u32, ticket: u64, timeout_ns: u64) -> u32 =
        |lanes| status(|device| {
            let deadline = Deadline::after(device.now_ns(), timeout_ns);
            device.channel(peer, channel).wait(lanes, Ticket(ticket), deadline)
        });

    /// Waits until everything published on the channel is done.
    [shunt_quiet_thread Solo, shunt_quiet_warp Warp, shunt_quiet_block Block]
    (peer: u32, channel: u32, timeout_ns: u64) -> u32 =
        |lanes| status(|device| {
            device.channel(peer, channel).quiet(lanes, Deadline::after(device.now_ns(), timeout_ns))
        });

    /// Waits until the word at `word` of this PE's heap is at least `value`. Meanwhile it looks after what this PE
    /// sent.
    [shunt_wait_until_thread Solo, shunt_wait_until_warp Warp, shunt_wait_until_block Block]
    (word: u64, value: u64, timeout_ns: u64) -> u32 =
        |lanes| status(|device| {
            let deadline = Deadline::after(device.now_ns(), timeout_ns);
            device.wait_until_ge(lanes, HeapOffset(word), value, deadline).map(|_| ())
        });

    /// One look after what this PE sent, by one thread, for waits of the caller's own: silent paths are found out and
    /// switches carried on. `rounds` is eight words of the caller's, zero before the first look of a wait, and kept to
    /// its last. The answer is the time, in nanoseconds; its largest value where there is no device state.
    [shunt_look_after Solo](rounds: *mut u64) -> u64 = |_one| match here() {
        // SAFETY: the caller's words, eight of them and aligned.
        Ok(device) => unsafe { (*rounds.cast::<Looks>()).look(device) },
        Err(_) => u64::MAX,
    };

    /// One look at a ticket: 0 if it is done, SHUNT_PENDING if not yet, else a fault.
    [shunt_test Solo](peer: u32, channel: u32, ticket: u64) -> u32 =
        |_one| match here() {
            Ok(device) => match device.channel(peer, channel).check(Ticket(ticket), Deadline { at_ns: u64::MAX }) {
                CqCheck::Done => 0,
                CqCheck::Pending => PENDING,
                CqCheck::Failed(fault) | CqCheck::Overdue(fault) => fault.kind as u32,
            },
            Err(_) => MISMATCH,
        };

    /// Says whether a channel can still carry anything: 0, or its fault, whose report goes to `report`.
    [shunt_alive Solo](peer: u32, channel: u32, report: *mut Outcome) -> u32 =
        |_one| status(|device| {
            let alive = device.channel(peer, channel).alive();
            if let Err(fault) = &alive {
                // SAFETY: the caller's own report.
                unsafe { report.write(Outcome::fault(fault)) };
            }
            alive
        });

    /// Says whether a channel asks what became of an operation: 0 if not, else SHUNT_UNCERTAIN, and the report names
    /// the operation.
    [shunt_uncertain Solo](peer: u32, channel: u32, report: *mut Outcome) -> u32 =
        |_one| status(|device| match device.channel(peer, channel).uncertain() {
            Some(fault) => {
                // SAFETY: the caller's own report.
                unsafe { report.write(Outcome::fault(&fault)) };
                Err(fault)
            }
            None => Ok(()),
        });

    /// Answers what an uncertain channel asks: the operation of `ticket` was applied (1) or not (0).
    [shunt_resolve Solo](peer: u32, channel: u32, ticket: u64, applied: u32) -> u32 =
        |_one| status(|device| {
            let answer = if applied == 0 { Resolution::NotApplied } else { Resolution::Applied };
            device.channel(peer, channel).resolve(Ticket(ticket), answer)
        });

    /// This PE's number, or 0xffffffff without a device state.
    [shunt_my_pe Solo]() -> u32 = |_one| here().map_or(u32::MAX, |device| device.my_pe());

    /// PEs of the job, or 0 without a device state.
    [shunt_pe_count Solo]() -> u32 = |_one| here().map_or(0, |device| device.pe_count());

    /// The address of an offset in this PE's heap, or 0 without a device state.
    [shunt_address Solo](offset: u64) -> u64 =
        |_one| here().map_or(0, |device| device.local_address(HeapOffset(offset)));

    /// What a fetching atomic on a word of eight bytes brought to `result`, once its ticket is done.
    [shunt_fetched64 Solo](result: u64) -> u64 =
        |_one| here().map_or(0, |device| device.fetched(Amo::Add64(0), HeapOffset(result)));

    /// What a fetching atomic on a word of four bytes brought to `result`, once its ticket is done.
    [shunt_fetched32 Solo](result: u64) -> u32 =
        |_one| here().map_or(0, |device| device.fetched(Amo::Add32(0), HeapOffset(result)) as u32);

    /// Has the owner of the word at `word` of the heap of `peer` execute an atomic: its NIC may lack it, or lose its
    /// answer. `form` is one of SHUNT_ADD32 to SHUNT_COMPARE_SWAP64, with the operand `value`. `old` holds what the
    /// word must be for the last two, and gets what it was. It lands behind what was posted on the channel before.
    [shunt_exact Solo]
    (peer: u32, channel: u32, word: u64, form: u32, value: u64, old: *mut u64, timeout_ns: u64) -> u32 =
        |one| status(|device| {
            let deadline = Deadline::after(device.now_ns(), timeout_ns);
            let channel = device.channel(peer, channel);
            // SAFETY: the caller's own word.
            let Some(amo) = Amo::from_form(form, value, unsafe { old.read() }) else {
                return Err(channel.told(FaultKind::BadAddress));
            };
            let met = channel.fetch_exact(one, HeapOffset(word), amo, deadline)?;
            // SAFETY: the caller's own word.
            unsafe { old.write(met) };
            Ok(())
        });
}

/// An atomic without and with an answer, by one thread.
macro_rules! atomics {
    ($($name:ident $fetch:ident ($($arg:ident: $type:ty),*) = $amo:expr;)*) => {
        $(
            #[doc = concat!("`", stringify!($amo), "` on the word at `word` of the heap of `peer`.")]
            #[unsafe(no_mangle)]
            pub extern "C" fn $name(peer: u32, channel: u32, word: u64, $($arg: $type),*) -> u64 {
                posted(peer, channel, |channel| channel.amo_nbi(Solo, HeapOffset(word), $amo))
            }

            #[doc = concat!("`", stringify!($amo), "`, what the word was going to the eight bytes at `result` here.")]
            #[unsafe(no_mangle)]
            pub extern "C" fn $fetch(peer: u32, channel: u32, word: u64, $($arg: $type,)* result: u64) -> u64 {
                posted(peer, channel, |channel| {
                    channel.amo_fetch_nbi(Solo, HeapOffset(word), $amo, HeapOffset(result))
                })
            }
        )*
    };
}

atomics! {
    shunt_add32 shunt_fetch_add32(value: u32) = Amo::Add32(value);
    shunt_add64 shunt_fetch_add64(value: u64) = Amo::Add64(value);
    shunt_set32 shunt_fetch_set32(value: u32) = Amo::Set32(value);
    shunt_set64 shunt_fetch_set64(value: u64) = Amo::Set64(value);
    shunt_and32 shunt_fetch_and32(value: u32) = Amo::And32(value);
    shunt_and64 shunt_fetch_and64(value: u64) = Amo::And64(value);
    shunt_or32 shunt_fetch_or32(value: u32) = Amo::Or32(value);
    shunt_or64 shunt_fetch_or64(value: u64) = Amo::Or64(value);
    shunt_xor32 shunt_fetch_xor32(value: u32) = Amo::Xor32(value);
    shunt_xor64 shunt_fetch_xor64(value: u64) = Amo::Xor64(value);
    shunt_swap32 shunt_fetch_swap32(value: u32) = Amo::Swap32(value);
    shunt_swap64 shunt_fetch_swap64(value: u64) = Amo::Swap64(value);
    shunt_cas32 shunt_fetch_cas32(expect: u32, value: u32) = Amo::CompareSwap32 { expect, new: value };
    shunt_cas64 shunt_fetch_cas64(expect: u64, value: u64) = Amo::CompareSwap64 { expect, new: value };
}
