//! What came of a run, at one end and at both.

use crate::options::{Mode, Options};
use crate::phases::Phase;
use clap::ValueEnum as _;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use shunt_json::Kind;
use shunt_transfer_program::faults::Struck;
use shunt_transfer_program::start::exit_status;
use shunt_transfer_program::why;

/// What one end saw.
#[derive(Clone, Debug, Default, JsonSchema, Serialize, Deserialize)]
pub struct Part {
    /// Transfers that were written, and that ended otherwise.
    pub transfers: u64,
    /// See [`Part::transfers`].
    pub transfers_failed: u64,
    /// Of those that failed: immediates may have arrived or not, and the receiver's NIC could not say which.
    pub transfers_uncertain: u64,
    /// Of those that failed: no rail to the peer worked any more, or it has left.
    pub transfers_lost: u64,
    /// This end has given the other one up, or that has left before its last word.
    pub peer_lost: bool,
    /// Transfers that were cancelled, or whose sender was cut off, before all of them was written.
    pub cancelled: u64,
    /// From a cancel or revoke to the proof that nothing of it lands any more, nanoseconds: median, 99th percentile,
    /// longest.
    pub cancel_ns: [u64; 3],
    /// Why the first of them failed.
    pub failure: String,
    /// From the first transfer to the end of the last, nanoseconds.
    pub took_ns: u64,
    /// Pages that were checked, and that held other bytes than were sent.
    pub pages: u64,
    /// See [`Part::pages`].
    pub pages_wrong: u64,
    /// Immediates that came once too often.
    pub imm_doubled: u64,
    /// Transfers whose immediates did not all come.
    pub imm_missing: u64,
    /// Slots that were written after they were read and before they were given back.
    pub late_writes: u64,
    /// Longest time between two transfers that arrived, nanoseconds.
    pub max_gap_ns: u64,
    /// Lanes that were left because of a fault, and opened again.
    pub failovers: u64,
    /// See [`Part::failovers`].
    pub returns: u64,
    /// Pieces that were sent again on another lane.
    pub pieces_again: u64,
    /// Pieces of both ends that were executed after a younger one of their lane: a simulated network tells.
    pub pieces_reordered: u64,
    /// Of the end that moves the bytes: how much was moved while how many rails worked. None of `revoke`.
    pub phases: Vec<Phase>,
    /// Phases that came after the first 64, which are not kept.
    pub phases_dropped: u64,
    /// Faults at NICs of this end.
    pub faults: Vec<Struck>,
    /// The other end has left, or is gone: this one speaks for both.
    #[serde(skip)]
    pub is_alone: bool,
}

/// What came of it all.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Verdict {
    /// `clean`, `broken`, `peer lost`, `uncertain` or `not exercised`.
    pub verdict: &'static str,
    /// What figures are.
    pub clock: &'static str,
    /// `single`, `paged`, `read`, `cancel` or `revoke`.
    pub mode: String,
    /// Bytes of a page or write.
    pub size: u64,
    /// Rails of each end.
    pub rails: u32,
    /// Bytes written a second, in GB, from the first transfer to the end of the last.
    pub gb_s: f64,
    /// What the ends saw: the sender's figures of sending, the receiver's of receiving, and faults of both.
    #[serde(flatten)]
    pub part: Part,
}

impl Kind for Verdict {
    const NAME: &'static str = "shunt-transfer-bw";
    const VERSION: u32 = 1;
}

impl Verdict {
    /// Judges what both ends saw.
    pub fn of(options: &Options, clock: &'static str, sender: &Part, receiver: &Part) -> Self {
        let faults: Vec<_> = sender.faults.iter().chain(&receiver.faults).cloned().collect();
        let mover = if options.mode == Mode::Read { receiver } else { sender };
        let part = Part {
            pages: receiver.pages,
            pages_wrong: receiver.pages_wrong,
            imm_doubled: receiver.imm_doubled,
            imm_missing: receiver.imm_missing,
            late_writes: receiver.late_writes,
            max_gap_ns: receiver.max_gap_ns,
            peer_lost: sender.peer_lost || receiver.peer_lost,
            phases: mover.phases.clone(),
            phases_dropped: mover.phases_dropped,
            faults,
            ..sender.clone()
        };
        let broken = part.pages_wrong + part.imm_doubled + part.imm_missing + part.late_writes;
        let too_few = part.cancelled < options.cancels.map_or(0, u64::from);
        let missed = too_few || part.faults.iter().any(|struck| struck.hits == 0);
        let verdict = match () {
            () if broken > 0 || part.transfers_failed > part.transfers_uncertain + part.transfers_lost => {
                "broken"
            }
            () if part.peer_lost => "peer lost",
            () if part.transfers_uncertain > 0 => "uncertain",
            () if idle(&part, options).is_some() => "broken",
            () if missed => "not exercised",
            () => "clean",
        };
        let bytes = part.transfers * options.transfer_bytes();
        Self {
            verdict,
            clock,
            mode: options.mode.to_possible_value().map(|mode| mode.get_name().to_owned()).unwrap_or_default(),
            size: options.size,
            rails: options.nics.rails(),
            gb_s: bytes as f64 / part.took_ns.max(1) as f64,
            part,
        }
    }

    /// 0 clean, 3 where no rail was left or the fate of a transfer is not known, else 1.
    pub fn exit_status(&self) -> u8 {
        exit_status(self.verdict)
    }

    /// Why it is not clean, in the order in which it is judged.
    pub fn why(&self, options: &Options) -> String {
        if self.verdict == "clean" {
            return String::new();
        }
        let part = &self.part;
        let wrong = [
            ("pages wrong", part.pages_wrong),
            ("immediates doubled", part.imm_doubled),
            ("immediates missing", part.imm_missing),
            ("late writes", part.late_writes),
        ];
        let excused = part.transfers_uncertain + part.transfers_lost;
        let mut failed = why::none_of(&[("failed transfers", part.transfers_failed.saturating_sub(excused))]);
        failed.iter_mut().for_each(|line| *line = format!("{line} ({})", part.failure));
        let lost = part
            .peer_lost
            .then(|| "rails to an end that is there: expected one or more, got none".to_owned());
        let missed = match options.cancels.map_or(0, u64::from) {
            want if part.cancelled < want => {
                vec![format!("cancelled transfers: expected {want}, got {}", part.cancelled)]
            }
            _ => why::unhit(&part.faults),
        };
        why::first([
            why::none_of(&wrong),
            failed,
            lost.into_iter().collect(),
            why::none_of(&[("transfers of unknown fate", part.transfers_uncertain)]),
            idle(part, options).into_iter().collect(),
            missed,
        ])
    }
}

/// What a run that shows nothing lacks: one that moved nothing, or checked too little.
fn idle(part: &Part, options: &Options) -> Option<String> {
    let want = part.transfers * options.pages();
    match options.mode {
        Mode::Cancel | Mode::Revoke if part.cancelled == 0 => {
            Some("cancelled transfers: expected one or more, got 0".to_owned())
        }
        Mode::Cancel | Mode::Revoke => None,
        _ if part.transfers == 0 => Some("transfers: expected one or more, got 0".to_owned()),
        _ if part.pages != want => Some(format!("checked pages: expected {want}, got {}", part.pages)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_is_kept() {
        shunt_json::kept(Verdict::NAME, &shunt_json::schema::<Verdict>());
    }
}
