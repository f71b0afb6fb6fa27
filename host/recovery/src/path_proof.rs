//! The start-up proof once more, on real paths: what a loopback pair shows of `rmsn` says nothing of packets that
//! crossed a network, nor of virtual functions.
//!
//! A backup that was recreated and has carried nothing but its probes is moved to ERR as in any fence. Its responder
//! must then show as many messages and packets as the peer's probes were. What moves it there is a fence for whatever
//! cause; and where none comes, the agent that leads asks for one a while after the start, of one idle backup for each
//! pair of rails, while its channel has a path and another backup besides. Nothing of a channel waits for it; a program
//! may (`Agent::is_settled`).
//!
//! Where a path disagrees with what its NIC showed on loopback, the count is not believed on that path, and the ledger
//! stands in. That a flush makes visible what was executed is the NIC's own affair, and shown on loopback alone.

use super::nic_job::Fenced;
use crate::nanos::Nanos;
use crate::slots::RailPair;
use shunt_mlx5::nic::qp::MASK_24;

/// For so long an idle backup is asked for: less than what forces a peer off a slot.
const ASK_FOR: Nanos = Nanos::millis(40);

/// What a responder that was fenced shows of probes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shown {
    /// Their count, as on loopback.
    Held,
    /// More than probes passed: nothing is known.
    Used,
    /// Another count.
    Lied(String),
}

/// Judges a half that was fenced: probes are messages of one packet each. Pure.
pub fn judge(probes: u32, first_psn: u32, fenced: &Fenced) -> Shown {
    let last = &fenced.last;
    let packets = last.next_rcv_psn.wrapping_sub(first_psn) & MASK_24;
    if packets > probes && packets < 1 << 23 {
        return Shown::Used;
    }
    if packets != probes {
        return Shown::Lied(format!("next_rcv_psn is {packets} packets on after {probes} probes and 2ERR"));
    }
    match last.rmsn == probes {
        true => Shown::Held,
        false => Shown::Lied(format!("rmsn is {} after {probes} executed probes and 2ERR", last.rmsn)),
    }
}

/// What was shown of a pair of rails with a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Verdict {
    peer: u32,
    pair: RailPair,
    held: bool,
}

/// An idle backup that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asked {
    index: usize,
    since: Nanos,
}

/// What real paths have shown.
#[derive(Default)]
pub struct Proofs {
    verdicts: Vec<Verdict>,
    asked: Option<Asked>,
    /// Pairs whose proof was asked for: once each.
    tried: Vec<(u32, RailPair)>,
}

impl Proofs {
    /// False where a path disagreed with its NIC's proof on loopback.
    pub fn believes(&self, peer: u32, pair: RailPair) -> bool {
        !self.verdicts.iter().any(|one| (one.peer, one.pair, one.held) == (peer, pair, false))
    }

    /// Keeps what was shown; the reason, if it is to be told now. A path that disagreed once is not believed again.
    pub fn keep(&mut self, peer: u32, pair: RailPair, shown: Shown) -> Option<String> {
        let (held, why) = match shown {
            Shown::Used => return None,
            Shown::Held => (true, None),
            Shown::Lied(why) => (false, Some(why)),
        };
        match self.verdicts.iter_mut().find(|one| (one.peer, one.pair) == (peer, pair)) {
            None => self.verdicts.push(Verdict { peer, pair, held }),
            Some(one) if one.held && !held => one.held = false,
            Some(_) => return None,
        }
        why
    }

    /// The idle backup that is asked for, until its time is over.
    pub fn asked(&self, now: Nanos) -> Option<(usize, bool)> {
        self.asked.map(|Asked { index, since }| (index, now < since + ASK_FOR))
    }

    /// Asks for an idle backup of these rails to a peer: once each.
    pub fn ask(&mut self, now: Nanos, index: usize, peer: u32, pair: RailPair) {
        self.tried.push((peer, pair));
        self.asked = Some(Asked { index, since: now });
    }

    /// True while an idle backup is asked for.
    pub fn is_asking(&self) -> bool {
        self.asked.is_some()
    }

    /// It is not asked for any more.
    pub fn end(&mut self) {
        self.asked = None;
    }

    /// True if nothing was shown of a pair of rails, nor asked for.
    pub fn is_open(&self, peer: u32, pair: RailPair) -> bool {
        let known = self.verdicts.iter().any(|one| (one.peer, one.pair) == (peer, pair));
        !known && !self.tried.contains(&(peer, pair))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nic_job::FenceTimes;
    use shunt_layout::mlx5::prm::qp::State;
    use shunt_mlx5::nic::qp::QpTruth;

    /// Probes that cross the wrap of the PSN.
    const FIRST: u32 = 0xff_fffe;

    fn fenced(rmsn: u32, next_rcv_psn: u32) -> Fenced {
        let state = Some(State::Err);
        let last = QpTruth {
            state,
            rmsn,
            next_rcv_psn,
            next_send_psn: 0,
            last_acked_psn: 0,
            in_order: true,
            ece: 0,
        };
        Fenced { first: last, last, flushed: true, stopped: true, times: FenceTimes::default() }
    }

    #[test]
    fn a_path_shows_its_probes_or_nothing_is_known() {
        assert_eq!(judge(3, FIRST, &fenced(3, 1)), Shown::Held);
        assert_eq!(judge(3, FIRST, &fenced(9, 7)), Shown::Used, "a channel was there");
        assert_eq!(judge(3, FIRST, &fenced(0, 7)), Shown::Used, "and then nothing is known");
    }

    #[test]
    fn a_count_that_a_network_spoils_is_found() {
        for (rmsn, next_rcv_psn, words) in [
            (0, 1, "rmsn is 0 after 3 executed probes"),
            (4, 1, "rmsn is 4 after 3"),
            (3, 0, "next_rcv_psn is 2 packets on after 3 probes"),
            (3, FIRST - 1, "packets on after 3 probes"),
        ] {
            let Shown::Lied(why) = judge(3, FIRST, &fenced(rmsn, next_rcv_psn)) else { panic!("{words}") };
            assert!(why.contains(words), "{why}");
        }
    }

    #[test]
    fn a_path_that_lied_once_is_told_once_and_not_believed_again() {
        let (mut proofs, pair) = (Proofs::default(), RailPair { local: 0, remote: 1 });
        assert!(proofs.believes(1, pair) && proofs.is_open(1, pair));
        assert_eq!(proofs.keep(1, pair, Shown::Used), None);
        assert_eq!(proofs.keep(1, pair, Shown::Held), None);
        assert!(proofs.believes(1, pair) && !proofs.is_open(1, pair));
        assert_eq!(proofs.keep(1, pair, Shown::Lied("why".into())), Some("why".into()));
        assert_eq!(proofs.keep(1, pair, Shown::Lied("again".into())), None);
        assert_eq!(proofs.keep(1, pair, Shown::Held), None);
        assert!(!proofs.believes(1, pair));
        assert!(proofs.believes(2, pair) && proofs.believes(1, RailPair { local: 1, remote: 0 }), "no other");
    }
}
