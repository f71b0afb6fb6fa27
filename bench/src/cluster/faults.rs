//! What a channel's fault means, in words: the peer, the first cause, and how each path stands.

use super::Unit;
use crate::report::{Ended, Failing};
use shunt_device::{Fault, FaultKind};
use shunt_figures::switch_table::ends;
use shunt_host::agent::standing::{standings, syndrome_text};
use shunt_host::agent::words::Place;
use shunt_layout::state::{CauseKind, PathIdentity, PathState};
use std::fmt::Write;

impl Unit {
    /// What a fault means, what is known of the peer's death, and how each path of its channel stands.
    pub fn describe(&self, fault: &Fault, tolerant: bool, gone: Option<String>) -> Ended {
        let (me, peer) = (self.words.root().my_pe, fault.peer);
        let what = match fault.kind {
            FaultKind::Uncertain if self.words.was_executed(peer, fault.channel, fault.at.0) => {
                "an operation was applied, and its answer is lost"
            }
            FaultKind::Uncertain => "it is not known whether an operation was applied",
            kind => kind.meaning(),
        };
        let whom = match fault.kind {
            FaultKind::PeerLost | FaultKind::Overdue => format!("PE {me} lost peer {peer}"),
            _ => format!("PE {me} ended what it sent to PE {peer}"),
        };
        let text = format!(
            "{whom} on channel {}: {what}; ticket {}, {} operations unfinished; first cause {}, {}",
            fault.channel,
            fault.at.0,
            fault.unfinished,
            self.first_cause(fault).name(),
            syndrome_text(fault.syndrome)
        );
        let text = text
            + &and_gone(gone)
            + &self.describe_paths(peer, fault.channel, fault.kind == FaultKind::PeerLost);
        match failing(fault, tolerant) {
            Some(why) => Ended::Failed(why, text),
            None => Ended::Stalled(text),
        }
    }

    /// The cause to name first. A peer that fences a path saw our dead port from its side: the port is the
    /// cause.
    fn first_cause(&self, fault: &Fault) -> CauseKind {
        let local_down = |slot: u32| {
            let row = self.words.read_row(Place { peer: fault.peer, channel: fault.channel, slot });
            PathState::from_raw(row.state) != PathState::Absent && self.words.is_down(None, row.local_rail)
        };
        if fault.cause == CauseKind::FencedByPeer && (0..self.words.root().slots).any(local_down) {
            return CauseKind::PortDown;
        }
        fault.cause
    }

    /// A wait that ran out although no completion, good or bad, ever came.
    pub fn describe_silence(&self, peer: u32, channel: u32, what: &str, gone: Option<String>) -> Ended {
        let me = self.words.root().my_pe;
        let text = format!(
            "PE {me} lost peer {peer} on channel {channel}: waited too long for {what}; {}",
            syndrome_text(0)
        );
        Ended::Failed(
            Failing::Untolerated,
            text + &and_gone(gone) + &self.describe_paths(peer, channel, false),
        )
    }

    fn describe_paths(&self, peer: u32, channel: u32, lost: bool) -> String {
        let mut text = String::new();
        for (line, row) in standings(&self.words, (peer, channel), lost) {
            let made = row.identity != PathIdentity::EMPTY;
            let ends = if made { format!("  {}", ends(&row.identity)) } else { String::new() };
            let _ = write!(text, "\n    {line}{ends}");
        }
        text
    }
}

fn and_gone(gone: Option<String>) -> String {
    gone.map_or_else(String::new, |gone| format!("; {gone}"))
}

/// Why the channel failed; `None` if it did not: a wait ran out, or this program is wrong.
fn failing(fault: &Fault, tolerant: bool) -> Option<Failing> {
    let syndrome = fault.syndrome();
    match fault.kind {
        FaultKind::Completion if syndrome.is_program_error() => Some(Failing::Program(syndrome)),
        FaultKind::BadAddress => None,
        _ if !tolerant => Some(Failing::Untolerated),
        FaultKind::FenceUnproven => Some(Failing::Unfenced),
        FaultKind::PeerLost | FaultKind::Completion => Some(Failing::NoPath),
        FaultKind::Uncertain | FaultKind::AnswerLost => Some(Failing::Uncertain),
        // A wait that ran out, or an answer that nobody asked for.
        FaultKind::Overdue
        | FaultKind::BadResolution
        | FaultKind::FetchNotExact
        | FaultKind::NoMaskedAtomics => None,
    }
}
