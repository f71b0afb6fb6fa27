//! Many paths between two devices: each segment takes one by lot, and each path takes its own time. What is sent in
//! order arrives in none.

use std::collections::BTreeMap;

/// Paths.
const PATHS: u64 = 16;

/// A segment on its way out, and where it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// GID of the device it goes to.
    pub destination: u128,
    /// MAC of that device.
    pub mac: u64,
    /// Queue pair there.
    pub qpn: u16,
    /// Key of that queue pair.
    pub qkey: u32,
    /// Queue pair here.
    pub source_qpn: u16,
    /// The segment.
    pub segment: Vec<u8>,
}

/// Segments that have not left yet.
pub struct Paths {
    random: u64,
    spread_ns: u64,
    /// Bits per nanosecond; no limit if absent.
    rate: Option<f64>,
    /// When the port is free again.
    free_ns: u64,
    order: u64,
    waiting: BTreeMap<(u64, u64), Outgoing>,
}

impl Paths {
    /// Paths whose times differ by up to so many nanoseconds, drawn by this seed.
    pub fn new(seed: u64, spread_ns: u64, rate_gbps: Option<f64>) -> Self {
        let random = seed ^ 0x9e37_79b9_7f4a_7c15;
        Self { random, spread_ns, rate: rate_gbps, free_ns: 0, order: 0, waiting: BTreeMap::new() }
    }

    /// The next number of the seed's (splitmix64).
    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Sends a segment.
    pub fn push(&mut self, now: u64, outgoing: Outgoing) {
        let path = self.draw() % PATHS;
        let bits = outgoing.segment.len() as f64 * 8.0;
        let starts = now.max(self.free_ns);
        self.free_ns = self.rate.map_or(now, |rate| starts + (bits / rate) as u64);
        let leaves = self.free_ns.max(now) + path * self.spread_ns / PATHS;
        self.order += 1;
        self.waiting.insert((leaves, self.order), outgoing);
    }

    /// The next segment that leaves by `now`.
    pub fn pop(&mut self, now: u64) -> Option<Outgoing> {
        let first = self.waiting.first_entry()?;
        if first.key().0 > now { None } else { Some(first.remove()) }
    }

    /// When the next segment leaves.
    pub fn next_due(&self) -> Option<u64> {
        self.waiting.first_key_value().map(|((leaves, _), _)| *leaves)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(seed: u64, spread_ns: u64) -> Vec<u16> {
        let mut paths = Paths::new(seed, spread_ns, None);
        for qpn in 0..50 {
            let segment = Vec::new();
            paths.push(0, Outgoing { destination: 1, mac: 2, qpn, qkey: 0, source_qpn: 0, segment });
        }
        std::iter::from_fn(|| paths.pop(u64::MAX)).map(|outgoing| outgoing.qpn).collect()
    }

    #[test]
    fn a_seed_has_an_order_and_it_is_not_that_of_sending() {
        let in_order: Vec<u16> = (0..50).collect();
        assert_eq!(sent(1, 0), in_order, "one path");
        assert_eq!(sent(1, 10_000), sent(1, 10_000));
        assert_ne!(sent(1, 10_000), in_order);
        assert_ne!(sent(1, 10_000), sent(2, 10_000));
        let mut all = sent(3, 10_000);
        all.sort_unstable();
        assert_eq!(all, in_order, "none is lost");
    }

    #[test]
    fn a_rate_spaces_what_leaves() {
        let mut paths = Paths::new(1, 0, Some(8.0));
        for _ in 0..2 {
            let segment = vec![0; 1000];
            paths.push(100, Outgoing { destination: 1, mac: 2, qpn: 3, qkey: 0, source_qpn: 0, segment });
        }
        assert_eq!(paths.next_due(), Some(1100));
        assert!(paths.pop(1099).is_none() && paths.pop(1100).is_some());
        assert_eq!(paths.next_due(), Some(2100));
    }
}
