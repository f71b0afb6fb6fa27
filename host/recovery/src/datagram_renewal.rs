//! A rail's datagram queue pair that ended is made again, and a rail's address that changed is told: the other agents
//! know both by value only.

use super::port_table::is_told_again;
use crate::nanos::Nanos;
use shunt_mlx5::descriptor::HalfCard;

/// First pause after a queue pair that could not be made, doubled with each failure.
const PAUSE: Nanos = Nanos::millis(20);
/// An address is not asked for more often.
const ADDRESS: Nanos = Nanos::millis(20);

/// What is being done about one rail.
#[derive(Clone, Copy, Debug, Default)]
pub struct Renewal {
    /// The end of its queue pair was told.
    ended: bool,
    /// A new one is being made.
    making: bool,
    failures: u32,
    next: Nanos,
    /// When its address was asked for last.
    address_at: Nanos,
    /// What the peers were told last; none: they know it from the start.
    told: Option<HalfCard>,
    /// When that was told first.
    told_at: Nanos,
    /// When it is told once more.
    again: Nanos,
}

impl Renewal {
    /// Its queue pair has ended. True if that is to be told.
    pub fn ended(&mut self) -> bool {
        !std::mem::replace(&mut self.ended, true)
    }

    /// True if a new queue pair is to be made now.
    pub fn begin(&mut self, now: Nanos) -> bool {
        let due = !self.making && now >= self.next;
        self.making |= due;
        due
    }

    /// A new queue pair is there.
    pub fn made(&mut self) {
        (self.making, self.ended, self.failures) = (false, false, 0);
    }

    /// None could be made.
    pub fn failed(&mut self, now: Nanos) {
        self.making = false;
        self.next = now + PAUSE.doubled(self.failures);
        self.failures += 1;
    }

    /// True if the rail's address is to be asked for now.
    pub fn asks_address(&mut self, now: Nanos) -> bool {
        let due = self.address_at == Nanos::ZERO || now >= self.address_at + ADDRESS;
        if due {
            self.address_at = now;
        }
        due
    }

    /// What the peers were told last.
    pub const fn told(&self) -> Option<HalfCard> {
        self.told
    }

    /// The peers are told.
    pub fn tell(&mut self, now: Nanos, card: HalfCard) {
        if self.told.replace(card) != Some(card) {
            (self.told_at, self.again) = (now, now);
        }
    }

    /// True if they are to be told once more, as seldom as an old word of a port.
    pub fn is_told_again(&mut self, now: Nanos, first: Nanos) -> bool {
        self.told.is_some() && is_told_again(self.told_at, &mut self.again, now, first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_queue_pair_is_made_at_a_time_and_later_after_each_failure() {
        let mut rail = Renewal::default();
        assert!(rail.ended() && !rail.ended(), "told once");
        let mut now = Nanos::ZERO;
        for pause in [PAUSE, PAUSE * 2, PAUSE * 4] {
            assert!(rail.begin(now) && !rail.begin(Nanos::MAX));
            rail.failed(now);
            assert!(!rail.begin(now + (pause - Nanos::new(1))));
            now += pause;
        }
        assert!(rail.begin(now));
        rail.made();
        assert!(rail.ended() && rail.begin(now), "that one may end as well");
    }

    #[test]
    fn an_address_is_asked_for_now_and_then() {
        let (mut rail, now) = (Renewal::default(), Nanos::secs(1));
        assert!(rail.asks_address(now) && !rail.asks_address(now + (ADDRESS - Nanos::new(1))));
        assert!(rail.asks_address(now + ADDRESS));
    }
}
