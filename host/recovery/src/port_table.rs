//! What is known of ports, this PE's and the peers', and the damping of flaps.

use crate::nanos::Nanos;
use shunt_layout::mutant::Mutant;

/// A port that has been up this long starts over with a clean record.
pub const CALM_NS: Nanos = Nanos::secs(10);
/// Extra wait after the second flap in a row, doubled by each further one.
const FLAP_NS: Nanos = Nanos::millis(50);

/// How much longer than the recovery window a path must be ready, after so many failures beyond the first in a row.
pub fn penalty_ns(repeated: u32) -> Nanos {
    if repeated == 0 || Mutant::NoDamping.on() { Nanos::ZERO } else { FLAP_NS.doubled(repeated - 1) }
}

/// True when a report of `changed_ns` is to be told once more: what was said may have got lost. The pauses are as long
/// as the change is past: a word said in vain for long is said more seldom.
pub fn is_told_again(changed_ns: Nanos, again_ns: &mut Nanos, now: Nanos, first_ns: Nanos) -> bool {
    if now < *again_ns + first_ns {
        return false;
    }
    let past_ns = now - changed_ns;
    // With the first pause on top, as after the change.
    *again_ns = now + (past_ns.min(CALM_NS) - first_ns);
    true
}

/// What is known of one port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Port {
    down: bool,
    /// Times it went down without a calm time in between.
    flaps: u32,
    changed_ns: Nanos,
    /// When its PE says that it changed, on that PE's clock.
    said_ns: Nanos,
    /// Times it went down since the start.
    downs: u32,
    /// When its last change is told once more.
    again_ns: Nanos,
}

impl Port {
    fn change(&mut self, down: bool, now: Nanos) -> bool {
        if self.down == down {
            return false;
        }
        if down {
            let calm = self.flaps > 0 && now - self.changed_ns >= CALM_NS;
            self.flaps = if calm { 1 } else { self.flaps + 1 };
            self.downs = self.downs.saturating_add(1);
        }
        self.down = down;
        // Two changes in one step are told apart: a copy of the first that comes late is void.
        self.changed_ns = now.max(self.changed_ns + Nanos::new(1));
        self.again_ns = now;
        true
    }

    /// True when its last change is to be told once more.
    fn is_told_again(&mut self, now: Nanos, first_ns: Nanos) -> bool {
        self.changed_ns > Nanos::ZERO && is_told_again(self.changed_ns, &mut self.again_ns, now, first_ns)
    }

    /// How much longer than the recovery window this port must stay up: nothing after its first failure.
    fn penalty_ns(&self) -> Nanos {
        penalty_ns(self.flaps.saturating_sub(1))
    }
}

/// All ports this PE knows of: its own, and each peer's.
pub struct PortTable {
    local: Vec<Port>,
    remote: Vec<Vec<Port>>,
    /// By rail: its NIC's events cannot be read.
    silent: Vec<bool>,
    next_poll_ns: Nanos,
}

impl PortTable {
    /// Ports of so many ends of so many rails, all up.
    pub fn new(pes: u32, rails: u32) -> Self {
        let row = vec![Port::default(); rails as usize];
        let silent = vec![false; rails as usize];
        Self { local: row.clone(), remote: vec![row; pes as usize], silent, next_poll_ns: Nanos::ZERO }
    }

    /// One more end, of so many rails, all up.
    pub fn join(&mut self, rails: usize) {
        self.remote.push(vec![Port::default(); rails.max(self.local.len())]);
    }

    /// An end is gone: its ports matter no more.
    pub fn leave(&mut self, peer: u32) {
        self.remote.get_mut(peer as usize).into_iter().flatten().for_each(|port| *port = Port::default());
    }

    /// A port as an earlier agent knew it. One that was down is asked about, and told of, like one that has just gone;
    /// one of this PE that was up is told of like one that has just come: the word before may have been lost.
    pub fn remember(&mut self, pe: Option<u32>, rail: u32, down: bool, now: Nanos) {
        let port = match pe {
            None => &mut self.local[rail as usize],
            Some(pe) => &mut self.remote[pe as usize][rail as usize],
        };
        if !port.change(down, now) && pe.is_none() {
            (port.changed_ns, port.again_ns) = (now, now);
        }
    }

    /// By peer and rail: when the last word of a port was said, by the clock of who said it.
    pub fn words(&self) -> Vec<Vec<Nanos>> {
        self.remote.iter().map(|rails| rails.iter().map(|port| port.said_ns).collect()).collect()
    }

    /// What was said before stays so: older words are void to the next agent as well.
    pub fn keep_words(&mut self, words: &[Vec<Nanos>]) {
        let ports = self.remote.iter_mut().flatten().zip(words.iter().flatten());
        if !Mutant::WordsForgotten.on() {
            ports.for_each(|(port, said_ns)| port.said_ns = *said_ns);
        }
    }

    /// True if the events of a NIC could not be read when they were last.
    pub fn is_silent(&self, rail: usize) -> bool {
        self.silent[rail]
    }

    /// Whether the events of a NIC can be read. True if they cannot, and could before.
    pub fn set_silent(&mut self, rail: u32, silent: bool) -> bool {
        !std::mem::replace(&mut self.silent[rail as usize], silent) && silent
    }

    /// A port of this PE is up or down. Answers with when it changed before, if it changes.
    pub fn own_changes(&mut self, now: Nanos, rail: u32, down: bool) -> Option<Nanos> {
        let port = &mut self.local[rail as usize];
        let before = port.changed_ns;
        port.change(down, now).then_some(before)
    }

    /// A peer says at `said`, by its own clock, that a port of its is up or down. Copies travel over two links, some
    /// late: older words are void. Answers with when it changed before, if it changes.
    pub fn peer_says(&mut self, now: Nanos, pe: u32, rail: u32, down: bool, said: Nanos) -> Option<Nanos> {
        let port = &mut self.remote[pe as usize][rail as usize];
        if said < port.said_ns && !Mutant::OldPortWordBelieved.on() {
            return None;
        }
        port.said_ns = said;
        let before = port.changed_ns;
        port.change(down, now).then_some(before)
    }

    /// True if what firmware said of a port, asked at `asked`, counts. What happened since then is known better. That
    /// it is down is firmware's word only where the NIC's events tell nothing.
    pub fn believes_firmware(&self, rail: usize, up: bool, asked: Nanos) -> bool {
        self.local[rail].changed_ns <= asked && (up || self.silent[rail])
    }

    /// True if it is time to look at ports that are down, and at what is told again.
    pub fn is_due(&mut self, now: Nanos, pause: Nanos) -> bool {
        let due = now >= self.next_poll_ns;
        if due {
            self.next_poll_ns = now + pause;
        }
        due
    }

    /// True if firmware is to be asked about a port: it is down, in case the event of its return was lost, or its NIC's
    /// events cannot be read.
    pub fn is_in_question(&self, rail: usize) -> bool {
        self.local[rail].down || self.silent[rail]
    }

    /// True when the last change of a port of this PE is to be told once more.
    pub fn is_told_again(&mut self, now: Nanos, rail: usize, first: Nanos) -> bool {
        self.local[rail].is_told_again(now, first)
    }

    /// True if a port of this PE is down, and when it last changed.
    pub fn own(&self, rail: u32) -> (bool, Nanos) {
        let port = &self.local[rail as usize];
        (port.down, port.changed_ns)
    }

    /// True if neither port of a path is known to be down.
    pub fn up(&self, local: u32, peer: u32, remote: u32) -> bool {
        !self.local[local as usize].down && !self.remote[peer as usize][remote as usize].down
    }

    /// Of a port of this PE: whether it is down, how often it went down, and when it last changed.
    pub fn told(&self, rail: usize) -> (bool, u32, Nanos) {
        self.local.get(rail).map_or((false, 0, Nanos::ZERO), |port| (port.down, port.downs, port.changed_ns))
    }

    /// True if no port that is known of is down.
    pub fn all_up(&self) -> bool {
        self.local.iter().chain(self.remote.iter().flatten()).all(|port| !port.down)
    }

    /// True if a port of this PE (`None`) or of a peer is known to be down.
    pub fn is_down(&self, pe: Option<u32>, rail: u32) -> bool {
        match pe {
            None => self.local[rail as usize].down,
            Some(pe) => self.remote[pe as usize][rail as usize].down,
        }
    }

    /// True if a port of this PE is not known to be down.
    pub fn own_up(&self, rail: u32) -> bool {
        !self.local[rail as usize].down
    }

    /// The instant from which a path's recovery window counts: in the future after repeated flaps.
    pub fn calm_from(&self, now: Nanos, local: u32, peer: u32, remote: u32) -> Nanos {
        let penalty = self.local[local as usize].penalty_ns();
        now + penalty.max(self.remote[peer as usize][remote as usize].penalty_ns())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: u64) -> Nanos {
        Nanos::new(ns)
    }

    #[test]
    fn the_first_failure_costs_nothing_extra_and_flaps_double() {
        let mut port = Port::default();
        assert!(port.change(true, at(0)));
        assert!(!port.change(true, at(1)), "said twice is not changed twice");
        assert!(port.change(false, at(2)));
        assert_eq!(port.penalty_ns(), Nanos::ZERO);
        for (i, expected) in [FLAP_NS, FLAP_NS * 2, FLAP_NS * 4].into_iter().enumerate() {
            port.change(true, at(10 + i as u64));
            port.change(false, at(11 + i as u64));
            assert_eq!(port.penalty_ns(), expected);
        }
        port.change(true, CALM_NS + at(111));
        assert_eq!(port.penalty_ns(), Nanos::ZERO, "a calm time clears the record");
    }

    /// Events of one step share its time. Of two changes in one step a late copy of the first must not undo the second.
    #[test]
    fn two_changes_in_one_step_are_told_apart_and_firmware_asked_after_them_is_believed() {
        let mut ports = PortTable::new(2, 1);
        assert!(ports.own_changes(at(7_000), 0, true).is_some());
        assert!(ports.believes_firmware(0, true, at(7_000)), "asked in the step of the change, after it");
        let down = ports.own(0).1;
        assert!(ports.own_changes(at(7_000), 0, false).is_some());
        let up = ports.own(0).1;
        assert!(up > down);
        assert!(ports.peer_says(at(9_000), 1, 0, true, down).is_some());
        assert!(ports.peer_says(at(9_000), 1, 0, false, up).is_some());
        assert!(ports.peer_says(at(9_000), 1, 0, true, down).is_none(), "the late copy");
    }

    #[test]
    fn a_port_that_was_up_before_is_told_of_under_the_time_of_now() {
        const FIRST_NS: Nanos = Nanos::millis(100);
        let mut ports = PortTable::new(2, 1);
        ports.remember(None, 0, false, at(7_000));
        ports.remember(Some(1), 0, false, at(7_000));
        assert_eq!(ports.told(0), (false, 0, at(7_000)));
        assert!(ports.local[0].is_told_again(at(7_000) + FIRST_NS, FIRST_NS));
        assert_eq!(ports.remote[1][0], Port::default(), "what a peer says next counts");
    }

    #[test]
    fn what_was_said_of_a_port_is_said_again_ever_more_seldom() {
        const FIRST_NS: Nanos = Nanos::millis(100);
        let mut port = Port::default();
        let told = |port: &mut Port, from: Nanos, until: Nanos| {
            let looks = (from.get()..until.get()).step_by(10_000_000);
            looks.filter(|now| port.is_told_again(at(*now), FIRST_NS)).count()
        };
        assert_eq!(told(&mut port, Nanos::ZERO, Nanos::secs(60)), 0, "nothing was said");
        let from = Nanos::secs(60);
        port.change(true, from);
        let first = told(&mut port, from, from + CALM_NS);
        assert!((6..=9).contains(&first), "{first} times in the first ten seconds");
        let minute = told(&mut port, from + CALM_NS, from + CALM_NS + Nanos::secs(60));
        assert!((5..=7).contains(&minute), "{minute} times in the minute after");
        port.change(false, from + Nanos::secs(120));
        assert!(port.is_told_again(from + Nanos::secs(120) + FIRST_NS, FIRST_NS), "a change starts over");
    }
}
