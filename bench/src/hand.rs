//! What posts and waits for a sender: its own thread, or kernels that it launches on a GPU.

use crate::gpu::Kernels;
use crate::kernel::Dev;
use shunt_device::platform::host::Host;
use shunt_device::{Amo, Channel, Deadline, Fault, HeapOffset, Put, Signal, Solo, Ticket};
use shunt_kernels::scenarios::Group;
use shunt_kernels::{Call, Outcome};

/// A sender's hand.
#[derive(Clone, Copy)]
pub enum Hand<'a, 'w> {
    /// Device code on the sender's thread.
    Thread(Dev<'w>, Channel<'w, Host<'w>>),
    /// Kernels, each of so many threads, with the peer and the channel that each is told.
    Gpu(&'a Kernels, u32, Call),
}

/// The kernel of a signal, its value.
fn signal_kernel(signal: Signal) -> (&'static str, u64) {
    match signal {
        Signal::Monotone(value) => ("signal_monotone", value),
        Signal::Cleared(add) => ("signal_cleared", add),
        Signal::Cleared32(add) => ("signal_cleared32", add.into()),
        Signal::Add(add) => ("signal_add", add),
    }
}

/// The kernel of an atomic without its first word, `amo` or `fetch`, its value and what it expects.
fn atomic_kernel(amo: Amo) -> (&'static str, u64, u64) {
    match amo {
        Amo::Add32(value) => ("add32", value.into(), 0),
        Amo::Add64(value) => ("add64", value, 0),
        Amo::Set32(value) => ("set32", value.into(), 0),
        Amo::Set64(value) => ("set64", value, 0),
        Amo::And32(value) => ("and32", value.into(), 0),
        Amo::And64(value) => ("and64", value, 0),
        Amo::Or32(value) => ("or32", value.into(), 0),
        Amo::Or64(value) => ("or64", value, 0),
        Amo::Xor32(value) => ("xor32", value.into(), 0),
        Amo::Xor64(value) => ("xor64", value, 0),
        Amo::Swap32(value) => ("swap32", value.into(), 0),
        Amo::Swap64(value) => ("swap64", value, 0),
        Amo::CompareSwap32 { expect, new } => ("cas32", new.into(), expect.into()),
        Amo::CompareSwap64 { expect, new } => ("cas64", new, expect),
    }
}

/// What a fetching atomic has come to when it was posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetching {
    /// Its answer is there once this ticket is done.
    Posted(Ticket),
    /// A kernel waited for it.
    Answered(u64),
}

/// The ticket that a kernel answered with, or its fault. What the driver refuses is not survived: the GPU is gone.
fn answer(outcome: &Outcome) -> Result<u64, Fault> {
    match outcome.as_fault() {
        Some(fault) => Err(fault),
        None => Ok(outcome.value),
    }
}

impl Hand<'_, '_> {
    fn launch(kernels: &Kernels, threads: u32, kernel: &str, call: Call) -> Result<u64, Fault> {
        // These have no entry point for a block, and a warp's is as good.
        let alone = ["signal_", "amo_", "fetch_"].iter().any(|of| kernel.starts_with(of)) || kernel == "p";
        let threads = if alone { threads.min(32) } else { threads };
        let group = crate::gpu::group_of(threads);
        let threads = if group == Group::Warp { 32 } else { threads };
        match kernels.run(kernel, group, 1, threads, call) {
            Ok(outcomes) => answer(&outcomes[0]),
            // A thread that cannot go on, as one of device code that panics.
            Err(error) => panic!("the GPU failed in {kernel}: {error}"),
        }
    }

    /// A put with its signal behind it.
    pub fn put_signal(&self, put: Put, at: HeapOffset, signal: Signal) -> Result<Ticket, Fault> {
        match *self {
            Self::Thread(_, channel) => channel.put_signal_nbi(Solo, put, at, signal),
            Self::Gpu(kernels, threads, call) => {
                let call = Call { dst: put.dst.0, src: put.src.0, bytes: put.bytes, ..call };
                if let Signal::Monotone(value) = signal {
                    let call = Call { word: at.0, value, ..call };
                    return Self::launch(kernels, threads, "put_signal", call).map(Ticket);
                }
                Self::launch(kernels, threads, "put", call)?;
                self.signal(at, signal)
            }
        }
    }

    /// Up to eight bytes.
    pub fn p(&self, dst: HeapOffset, value: u64, bytes: u32) -> Result<Ticket, Fault> {
        match *self {
            Self::Thread(_, channel) => channel.p_nbi(Solo, dst, value, bytes),
            Self::Gpu(kernels, threads, call) => {
                let call = Call { dst: dst.0, value, bytes: bytes.into(), ..call };
                Self::launch(kernels, threads, "p", call).map(Ticket)
            }
        }
    }

    /// A signal alone.
    pub fn signal(&self, at: HeapOffset, signal: Signal) -> Result<Ticket, Fault> {
        match *self {
            Self::Thread(_, channel) => channel.signal_nbi(Solo, at, signal),
            Self::Gpu(kernels, threads, call) => {
                let (kernel, value) = signal_kernel(signal);
                Self::launch(kernels, threads, kernel, Call { word: at.0, value, ..call }).map(Ticket)
            }
        }
    }

    /// An atomic.
    pub fn amo(&self, at: HeapOffset, amo: Amo) -> Result<Ticket, Fault> {
        match *self {
            Self::Thread(_, channel) => channel.amo_nbi(Solo, at, amo),
            Self::Gpu(kernels, threads, call) => {
                let (name, value, expect) = atomic_kernel(amo);
                let call = Call { word: at.0, value, expect, ..call };
                Self::launch(kernels, threads, &format!("amo_{name}"), call).map(Ticket)
            }
        }
    }

    /// An atomic that answers with what the word was, by way of eight bytes at `result` here.
    pub fn fetch(&self, at: HeapOffset, amo: Amo, result: HeapOffset) -> Result<Fetching, Fault> {
        match *self {
            Self::Thread(_, channel) => channel.amo_fetch_nbi(Solo, at, amo, result).map(Fetching::Posted),
            Self::Gpu(kernels, threads, call) => {
                let (name, value, expect) = atomic_kernel(amo);
                let call = Call { word: at.0, value, expect, result: result.0, ..call };
                Self::launch(kernels, threads, &format!("fetch_{name}"), call).map(Fetching::Answered)
            }
        }
    }

    /// Waits for a ticket, a kernel for all that was published: it is no later than the next slot's would be.
    pub fn wait(&self, ticket: Ticket, deadline: Deadline, now_ns: u64) -> Result<(), Fault> {
        match *self {
            Self::Thread(_, channel) => channel.wait(Solo, ticket, deadline),
            Self::Gpu(..) => self.quiet(deadline, now_ns),
        }
    }

    /// Waits for all that was published.
    pub fn quiet(&self, deadline: Deadline, now_ns: u64) -> Result<(), Fault> {
        match *self {
            Self::Thread(_, channel) => channel.quiet(Solo, deadline),
            Self::Gpu(kernels, threads, call) => {
                let timeout_ns = deadline.at_ns.saturating_sub(now_ns);
                Self::launch(kernels, threads, "quiet", Call { timeout_ns, ..call }).map(|_| ())
            }
        }
    }

    /// Waits for a word of this PE's heap.
    pub fn wait_until_ge(
        &self,
        word: HeapOffset,
        value: u64,
        deadline: Deadline,
        now_ns: u64,
    ) -> Result<u64, Fault> {
        match *self {
            Self::Thread(device, _) => device.wait_until_ge(Solo, word, value, deadline),
            Self::Gpu(kernels, threads, call) => {
                let timeout_ns = deadline.at_ns.saturating_sub(now_ns);
                let call = Call { word: word.0, value, timeout_ns, ..call };
                Self::launch(kernels, threads, "wait_until", call)
            }
        }
    }

    /// True if device code on this thread may look after the PE's channels.
    pub fn is_thread(&self) -> bool {
        matches!(self, Self::Thread(..))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_device::FaultKind;

    #[test]
    fn every_signal_has_its_kernel() {
        for signal in [Signal::Monotone(3), Signal::Cleared(3), Signal::Cleared32(3), Signal::Add(3)] {
            let (name, value) = signal_kernel(signal);
            let known = shunt_kernels::KERNELS.iter().find(|(kernel, _)| *kernel == name);
            assert!(known.is_some_and(|(_, entries)| entries.len() >= 2), "{name}");
            assert_eq!(value, 3);
        }
    }

    /// Of a thread and of a warp, posted and fetching.
    #[test]
    fn every_atomic_has_its_kernels() {
        let all = [
            Amo::Add32(3),
            Amo::Add64(3),
            Amo::Set32(3),
            Amo::Set64(3),
            Amo::And32(3),
            Amo::And64(3),
            Amo::Or32(3),
            Amo::Or64(3),
            Amo::Xor32(3),
            Amo::Xor64(3),
            Amo::Swap32(3),
            Amo::Swap64(3),
            Amo::CompareSwap32 { expect: 5, new: 3 },
            Amo::CompareSwap64 { expect: 5, new: 3 },
        ];
        let mut names = std::collections::BTreeSet::new();
        for amo in all {
            let (name, value, expect) = atomic_kernel(amo);
            assert_eq!((value, expect), (3, if name.starts_with("cas") { 5 } else { 0 }));
            for kind in ["amo", "fetch"] {
                let known =
                    shunt_kernels::KERNELS.iter().find(|(kernel, _)| *kernel == format!("{kind}_{name}"));
                assert!(known.is_some_and(|(_, entries)| entries.len() == 2), "{kind}_{name}");
            }
            assert_eq!(name.ends_with("64"), amo.bytes() == 8, "{name}");
            names.insert(name);
        }
        assert_eq!(names.len(), all.len());
    }

    #[test]
    fn an_outcome_is_a_value_or_its_fault() {
        assert_eq!(answer(&Outcome::ok(7)), Ok(7));
        let lost = Outcome { status: FaultKind::PeerLost as u32, at: 5, ..Outcome::default() };
        assert!(answer(&lost).is_err_and(|fault| fault.kind == FaultKind::PeerLost && fault.at.0 == 5));
    }
}
