//! What is decided about an operation whose fate nobody can know: the channel stands still until somebody says whether
//! it was applied.
//!
//! The program knows no more of it than the library does, so it does not guess: by default the run ends and names the
//! operation. `--uncertain applied` or `not` gives one answer to all, and the verdict shows whether it was true.

use crate::cluster::Cluster;
use crate::job::entry::Entry;
use crate::kernel::Control;
use crate::options::Uncertain;
use crate::report::{Ended, Failing};
use shunt_device::{Fault, FaultKind, Operation, Resolution};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Answers that are told of each channel; all are counted.
const TOLD: u64 = 3;

/// Tickets that were asked about, by PE and channel.
#[derive(Debug, Default)]
pub struct Decided(Mutex<BTreeMap<(u32, u32), Vec<u64>>>);

impl Decided {
    /// Whether one of these tickets was asked about.
    pub fn holds(&self, pe: u32, channel: u32, tickets: Range<u64>) -> bool {
        let decided = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        decided.get(&(pe, channel)).is_some_and(|all| all.iter().any(|ticket| tickets.contains(ticket)))
    }

    /// One more; answers with how many of its channel there are now.
    fn add(&self, pe: u32, fault: &Fault) -> u64 {
        let mut decided = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let tickets = decided.entry((pe, fault.channel)).or_default();
        tickets.push(fault.at.0);
        tickets.len() as u64
    }

    /// Not one more: it was the question before.
    fn take_back(&self, pe: u32, fault: &Fault) {
        let mut decided = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        decided.entry((pe, fault.channel)).or_default().pop();
    }
}

/// Looks at every sending channel of this process, and answers for it.
pub struct Arbiter<'r> {
    cluster: &'r Cluster,
    control: &'r Control,
    /// PE, peer and channel of each.
    channels: Vec<(u32, u32, u32)>,
    policy: Uncertain,
    decided: &'r Decided,
}

impl<'r> Arbiter<'r> {
    /// For channels that live here; none where nothing can be uncertain.
    pub fn new(
        cluster: &'r Cluster,
        control: &'r Control,
        channels: Vec<(u32, u32, u32)>,
        policy: Uncertain,
        decided: &'r Decided,
    ) -> Self {
        Self { cluster, control, channels, policy, decided }
    }

    /// Answers what is asked, and says so.
    pub fn look(&self, now_ns: u64) -> Vec<Entry> {
        let mut out = Vec::new();
        for (pe, peer, channel) in self.channels.iter().copied() {
            let asked = self.cluster.unit(pe).device().channel(peer, channel).uncertain();
            match (asked, self.policy) {
                (None, _) => {}
                (Some(fault), Uncertain::Stop) => self.stop(pe, &fault, now_ns, &mut out),
                (Some(fault), Uncertain::Applied) => {
                    self.answer(pe, &fault, (Resolution::Applied, "applied"), now_ns, &mut out);
                }
                (Some(fault), Uncertain::Not) => {
                    self.answer(pe, &fault, (Resolution::NotApplied, "not applied"), now_ns, &mut out);
                }
            }
        }
        out
    }

    /// The run is over. The one that waits to post may go, and nothing of it is judged.
    fn stop(&self, pe: u32, fault: &Fault, now_ns: u64, out: &mut Vec<Entry>) {
        if self.decided.holds(pe, fault.channel, fault.at.0..fault.at.0 + 1) {
            return;
        }
        let count = self.decided.add(pe, fault);
        out.push(Entry::Uncertain { pe, channel: fault.channel, count });
        self.control.abort(now_ns);
        let why = format!("{}: was it applied?", named(pe, fault));
        out.push(Entry::Ended(0, Ended::Failed(Failing::Uncertain, why)));
        // Where kernels wait their deadlines end that: on a GPU nobody else changes words of their channels.
        if self.cluster.unit(pe).kernels().is_none() {
            let channel = self.cluster.unit(pe).device().channel(fault.peer, fault.channel);
            let _ = channel.resolve(fault.at, Resolution::Applied);
        }
    }

    fn answer(
        &self,
        pe: u32,
        fault: &Fault,
        (resolution, said): (Resolution, &str),
        now_ns: u64,
        out: &mut Vec<Entry>,
    ) {
        let channel = self.cluster.unit(pe).device().channel(fault.peer, fault.channel);
        let refused = |resolution| {
            let answer = channel.resolve(fault.at, resolution);
            answer.is_err_and(|refused| refused.kind == FaultKind::BadResolution)
        };
        // Before the channel goes on: who judges what it did looks here.
        let count = self.decided.add(pe, fault);
        let against = refused(resolution);
        if against && refused(Resolution::Applied) {
            // Answered a moment ago, and the switch has not taken it up. A later question about the same ticket is
            // another one: what was repeated can be lost as well.
            self.decided.take_back(pe, fault);
            return;
        }
        out.push(Entry::Uncertain { pe, channel: fault.channel, count });
        let named = named(pe, fault);
        match count {
            ..=TOLD => shunt_host::complain!("{named}: taken as {said}"),
            _ if count == TOLD + 1 => {
                shunt_host::complain!("{named}: taken as {said}; further ones are only counted")
            }
            _ => {}
        }
        if against {
            self.control.abort(now_ns);
            let why =
                format!("{named}: it is known to have been applied, --uncertain not is no answer to it");
            out.push(Entry::Ended(0, Ended::Failed(Failing::Uncertain, why)));
        }
    }
}

/// What is asked about, in words.
fn named(pe: u32, fault: &Fault) -> String {
    format!(
        "PE {pe} does not know of {}, ticket {}, at heap offset {:#x} of PE {}, channel {}",
        operation(fault),
        fault.at.0,
        fault.address,
        fault.peer,
        fault.channel
    )
}

/// What it was.
fn operation(fault: &Fault) -> &'static str {
    match fault.operation() {
        Operation::Fetch => "a fetching atomic",
        Operation::Add => "an add or another atomic",
        Operation::Cleared => "a signal that is cleared",
        Operation::Monotone => "a monotone signal",
        Operation::Put => "a put",
        Operation::Get => "a get",
        Operation::None => "an operation",
    }
}
