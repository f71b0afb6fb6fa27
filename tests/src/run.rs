//! A whole run of a [`RunSpec`], and its verdict.

use std::fmt;

use shunt_device::{FaultKind, Solo};
use shunt_layout::state::{CauseKind, SwitchKind, SwitchRecord};
use shunt_soft_nic::FaultReport;

use crate::cluster::Cluster;
use crate::oracle::{Kind, Oracle, load};
use crate::sim::Task;
use crate::spec::RunSpec;
use crate::workload::Report;

/// After the last kernel has ended, this long nothing may change memory any more.
const SETTLE_NS: u64 = 100_000_000;

/// What came of a run.
pub struct Outcome {
    /// What was run.
    pub spec: RunSpec,
    /// What each sender did.
    pub senders: Vec<Report>,
    /// What each receiver did.
    pub receivers: Vec<Report>,
    /// Broken promises.
    pub oracle: Oracle,
    /// Every switch: PE and record.
    pub records: Vec<(u32, SwitchRecord)>,
    /// Faults and their hits.
    pub faults: Vec<FaultReport>,
    /// What the agents said.
    pub notes: Vec<String>,
    /// Hash of every scheduling decision and fabric event.
    pub trace: u64,
    /// Scheduling steps.
    pub steps: u64,
    /// Instant 0 of the faults' clock.
    pub began_ns: u64,
    /// From the first to the last instant of the traffic.
    pub lasted_ns: u64,
}

/// Runs `spec` to its end.
pub fn run(spec: &RunSpec) -> Outcome {
    let cluster = Cluster::start(spec);
    spec.faults.iter().for_each(|fault| cluster.inject(fault));
    let tasks = start_streams(&cluster);
    finish(&cluster, tasks)
}

/// Senders and receivers of a run.
pub struct Streams {
    senders: Vec<Task<Report>>,
    receivers: Vec<Task<Report>>,
}

impl Streams {
    /// True once all of them have returned.
    pub fn done(&self) -> bool {
        self.senders.iter().chain(&self.receivers).all(Task::is_done)
    }
}

/// Starts the sender and the receiver of every stream.
pub fn start_streams(cluster: &Cluster) -> Streams {
    let (mut senders, mut receivers) = (Vec::new(), Vec::new());
    for stream in cluster.streams().iter().copied() {
        cluster.watch(stream.to, stream.signal());
        cluster.watch(stream.from, stream.credit());
        let traffic = cluster.spec.traffic.clone();
        let name = format!("send{}", stream.id);
        senders.push(cluster.spawn(&name, stream.from, move |kernel| kernel.send(Solo, stream, &traffic)));
        let traffic = cluster.spec.traffic.clone();
        let name = format!("receive{}", stream.id);
        receivers.push(cluster.spawn(&name, stream.to, move |kernel| kernel.receive(Solo, stream, &traffic)));
    }
    Streams { senders, receivers }
}

/// Runs to the end of all kernels, lets the rest settle, and judges.
pub fn finish(cluster: &Cluster, streams: Streams) -> Outcome {
    let senders = cluster.sim.finish_all(&streams.senders);
    let receivers = cluster.sim.finish_all(&streams.receivers);
    let lasted_ns = cluster.sim.now() - cluster.began_ns();
    cluster.sim.run_for(SETTLE_NS);
    judge(cluster, &senders, &receivers);
    Outcome {
        spec: cluster.spec.clone(),
        senders,
        receivers,
        oracle: cluster.oracle.clone(),
        records: cluster.records(),
        faults: cluster.faults(),
        notes: cluster.notes(),
        trace: cluster.sim.trace_hash(),
        steps: cluster.sim.steps(),
        began_ns: cluster.began_ns(),
        lasted_ns,
    }
}

/// What can only be said at the end: nothing lost, nothing twice, no ghost since.
fn judge(cluster: &Cluster, senders: &[Report], receivers: &[Report]) {
    let (oracle, now) = (&cluster.oracle, cluster.sim.now());
    for (sent, received) in senders.iter().zip(receivers) {
        let stream = sent.stream;
        let well = sent.fault.is_none() && received.fault.is_none();
        if well && received.messages != sent.messages {
            let what = format!("{stream}: {} sent, {} received", sent.messages, received.messages);
            oracle.report(Kind::Lost, now, what);
        }
        let heap = cluster.pe(stream.to).heap().address;
        if received.fault.is_none() {
            for message in received.messages.saturating_sub(stream.slots)..received.messages {
                stream.check_poison(heap, message, oracle, now);
            }
        }
        let words = [
            (stream.to, stream.signal(), "signal", sent.messages, well),
            (stream.from, stream.credit(), "credit", received.credits, well),
        ];
        for (pe, offset, name, posted, well) in words {
            let (watched, value) =
                (cluster.watched(pe, offset), load(cluster.pe(pe).heap().address + offset));
            // A post that ended with a fault may have been applied all the same.
            if watched.not_increasing > 0 || watched.writes > posted + u64::from(!well) {
                let (writes, back) = (watched.writes, watched.not_increasing);
                let what =
                    format!("{stream}: {name} posted {posted}, applied {writes}, {back} not increasing");
                oracle.report(Kind::Duplicate, now, what);
            }
            if well && (watched.writes < posted || value != sent.messages) {
                let what = format!("{stream}: {name} reads {value}, applied {} of {posted}", watched.writes);
                oracle.report(Kind::Lost, now, what);
            }
        }
    }
}

impl Outcome {
    /// Fails unless every promise was kept and every kernel ended well.
    pub fn assert_clean(&self) {
        self.assert_kept();
        let bad = self.senders.iter().chain(&self.receivers).find(|report| report.fault.is_some());
        if let Some(report) = bad {
            panic!("{} ended with {:?}\n{self}", report.stream, report.fault);
        }
    }

    /// Fails unless every promise was kept; kernels may have ended with a typed fault.
    pub fn assert_kept(&self) {
        assert_eq!(self.oracle.total(), 0, "promises broken\n{}\n{self}", self.oracle.describe());
    }

    /// Fails unless every promise was kept, and, if a rail was left alone by all faults, every kernel ended well.
    pub fn assert_held(&self) {
        if self.spec.has_healthy_rail() { self.assert_clean() } else { self.assert_kept() }
    }

    /// Fails if a planned fault hit nothing.
    pub fn assert_exercised(&self) {
        for fault in &self.faults {
            assert!(fault.hits > 0, "planned fault {} hit nothing\n{self}", fault.kind);
        }
    }

    /// Generations opened because of a fault.
    pub fn failovers(&self) -> usize {
        self.of_kind(SwitchKind::Failover).count()
    }

    /// Generations opened by a switch-back.
    pub fn switchbacks(&self) -> usize {
        self.of_kind(SwitchKind::SwitchBack).count()
    }

    /// Records of one kind.
    pub fn of_kind(&self, kind: SwitchKind) -> impl Iterator<Item = &SwitchRecord> {
        self.records.iter().map(|(_, record)| record).filter(move |record| record.kind == kind as u32)
    }

    /// Faults of kernels, of one kind.
    pub fn ended_with(&self, kind: FaultKind) -> usize {
        let faults = self.senders.iter().chain(&self.receivers).filter_map(|report| report.fault);
        faults.filter(|fault| fault.kind == kind).count()
    }

    /// The longest time a stream's receiver saw nothing.
    pub fn max_gap_ns(&self) -> u64 {
        self.receivers.iter().map(|report| report.max_gap_ns).max().unwrap_or(0)
    }
}

/// A path as the field writes it: local rail, remote rail.
pub fn path_name(identity: &shunt_layout::state::PathIdentity) -> String {
    format!("0.{}>{}", identity.local_rail, identity.remote_rail)
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "--- the run, as a file for regressions/ ---\n{}---", self.spec)?;
        for (pe, record) in &self.records {
            let micro = |stamp: usize| record.stamps[stamp] as f64 / 1e3;
            writeln!(
                f,
                "PE {pe} channel {}>{} kind {} cause {} syndrome {:#x} slot {}>{} D {} X {} L {} generation {} \
                 noticed {:.1} closed {:.1} fenced {:.1} cut {:.1} replayed {:.1} opened {:.1} us",
                record.peer,
                record.channel,
                record.kind,
                CauseKind::from_raw(record.cause).name(),
                record.syndrome,
                record.from,
                record.to as i32,
                record.done_at_close,
                record.executed,
                record.journal_end,
                record.generation,
                micro(0),
                micro(1),
                micro(2),
                micro(3),
                micro(4),
                micro(5),
            )?;
        }
        for fault in &self.faults {
            writeln!(f, "fault {} at {:.1} us: {} hits", fault.kind, fault.at_ns as f64 / 1e3, fault.hits)?;
        }
        for note in self.notes.iter().rev().take(20).rev() {
            writeln!(f, "{note}")?;
        }
        Ok(())
    }
}
