//! What came of a run.

use std::fmt;

use shunt_device::FaultKind;
use shunt_layout::state::{CauseKind, SwitchKind, SwitchRecord};
use shunt_soft_nic::Injection;

use crate::cluster::Paths;
use crate::oracle::Oracle;
use crate::spec::RunSpec;
use crate::workload::Report;

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
    pub faults: Vec<(Injection, u64)>,
    /// Paths of each channel as they were made at start: local and remote rail, by slot.
    pub first_paths: Paths,
    /// The same at the end: slots may have been given to other pairs of rails.
    pub paths: Paths,
    /// What the agents said.
    pub notes: Vec<String>,
    /// Uncertain operations that were resolved.
    pub resolved: u64,
    /// Hash of every scheduling decision and fabric event.
    pub trace: u64,
    /// Scheduling steps.
    pub steps: u64,
    /// Instant 0 of the faults' clock.
    pub began_ns: u64,
    /// From the first to the last instant of the traffic.
    pub lasted_ns: u64,
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

    /// Fails if a planned fault hit nothing.
    pub fn assert_exercised(&self) {
        for (injection, hits) in &self.faults {
            assert!(*hits > 0, "planned fault {injection} hit nothing\n{self}");
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
        let senders = self.senders.iter().map(|report| (report, "sender", report.stream.from));
        let receivers = self.receivers.iter().map(|report| (report, "receiver", report.stream.to));
        for (report, side, pe) in senders.chain(receivers) {
            let ended_us = report.ended_ns.saturating_sub(self.began_ns) as f64 / 1e3;
            let how = report.fault.map_or("all done".into(), |fault| format!("{fault:?}"));
            let (stream, messages) = (report.stream, report.messages);
            writeln!(
                f,
                "{stream}: {side} at PE {pe}, {messages} messages, ended at {ended_us:.1} us: {how}"
            )?;
        }
        for (injection, hits) in &self.faults {
            writeln!(f, "fault {injection}: {hits} hits")?;
        }
        for note in self.notes.iter().rev().take(20).rev() {
            writeln!(f, "{note}")?;
        }
        Ok(())
    }
}
