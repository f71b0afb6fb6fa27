//! How much may be under way to a destination that loses what it cannot hold.
//!
//! Requests and the answers they ask for are counted alike, in packets: a READ fills this side's own socket. The
//! window is halved when packets had to be sent again and grows while they arrive, so that many senders to one socket
//! find out what it holds.

/// No window is smaller.
const LEAST: u32 = 8;
/// Packets that must arrive for one more to be allowed.
const GROWTH: u32 = 16;
/// Losses within this time are one.
const ONE_LOSS_NS: u64 = 1_000_000;

/// What a queue pair has under way, and to whom.
#[derive(Clone, Copy, Debug, Default)]
pub struct Charge {
    /// A NIC of another process; counts only with packets.
    pub to: u32,
    /// Packets under way.
    pub packets: u32,
}

/// The packets under way to one destination, and how many may be.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    in_flight: u32,
    most: u32,
    /// Packets allowed, in parts of [`GROWTH`].
    size: u32,
    /// Somebody was refused: nobody goes on until so few are under way.
    opens_at: Option<u32>,
    cut_ns: u64,
}

impl Window {
    /// Nothing under way, of so many packets at most.
    pub fn new(most: u32) -> Self {
        Self { in_flight: 0, most, size: most * GROWTH, opens_at: None, cut_ns: 0 }
    }

    fn packets(&self) -> u32 {
        self.size / GROWTH
    }

    /// Asks for packets to be sent. A queue pair that is `idle` may always send one: it would learn nothing of what
    /// others have under way. What is larger than the window goes when little else is.
    pub fn admits(&mut self, packets: u32, idle: bool) -> bool {
        if idle && packets == 1 {
            return true;
        }
        let (size, large) = (self.packets(), packets > 1);
        let fits = self.in_flight + packets <= size || large && self.in_flight <= size / 4;
        if self.opens_at.is_none() && fits {
            return true;
        }
        let level = if large { size / 4 } else { size / 2 };
        self.opens_at = Some(self.opens_at.map_or(level, |opens_at| opens_at.min(level)));
        false
    }

    /// Packets came under way, or arrived. True if those who were refused may try again.
    pub fn change(&mut self, before: u32, after: u32) -> bool {
        self.in_flight = self.in_flight.saturating_sub(before) + after;
        let arrived = before.saturating_sub(after);
        self.size = (self.size + arrived).min(self.most * GROWTH);
        let opens = self.opens_at.is_some_and(|opens_at| self.in_flight <= opens_at);
        if opens {
            self.opens_at = None;
        }
        opens
    }

    /// Packets must be sent again.
    pub fn cut(&mut self, now: u64) {
        if self.cut_ns == 0 || now.saturating_sub(self.cut_ns) >= ONE_LOSS_NS {
            self.cut_ns = now.max(1);
            self.size = (self.size / 2).max(LEAST.min(self.most) * GROWTH);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_window_opens_when_half_of_it_arrived() {
        let mut window = Window::new(100);
        for _ in 0..100 {
            assert!(window.admits(1, false));
            window.change(0, 1);
        }
        assert!(!window.admits(1, false));
        assert!(window.admits(1, true), "one of an idle queue pair");
        assert!(!window.change(100, 51));
        assert!(!window.admits(1, false), "those who were refused before come first");
        assert!(window.change(51, 50));
        assert!(window.admits(1, false));
    }

    #[test]
    fn what_is_larger_than_the_window_goes_when_little_else_does() {
        let mut window = Window::new(100);
        assert!(window.admits(2048, true));
        window.change(0, 2048);
        assert!(!window.admits(2048, true) && !window.admits(1, false));
        assert!(!window.change(2048, 26));
        assert!(window.change(26, 25));
        assert!(window.admits(2048, false));
    }

    #[test]
    fn a_loss_halves_it_once_and_arrivals_bring_it_back() {
        let mut window = Window::new(64);
        window.cut(0);
        window.cut(ONE_LOSS_NS - 1);
        assert_eq!(window.packets(), 32);
        for n in 1..20 {
            window.cut(n * ONE_LOSS_NS);
        }
        assert_eq!(window.packets(), LEAST);
        for _ in 0..64 {
            window.change(GROWTH, 0);
        }
        assert_eq!(window.packets(), 64);
        assert!(Window::new(1).admits(1, false));
    }
}
