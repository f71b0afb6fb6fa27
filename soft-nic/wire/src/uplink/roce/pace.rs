//! A rate, kept by a token bucket.

use super::instant::Nanoseconds;
use super::system::BATCH;

/// Frame check sequence, preamble and gap of an Ethernet frame.
const GAP_BYTES: f64 = 24.0;
/// What may leave at once after a pause: enough for a full batch, and for a thread that sleeps in between.
const BURST_NS: f64 = 500_000.0;
const BURST_LEAST: f64 = (BATCH * 4200) as f64;

/// A token bucket. Without a rate it is never empty.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    /// Bytes a nanosecond; infinite without a rate.
    rate: f64,
    burst: f64,
    /// Bytes that may leave now; below zero after a frame that was larger.
    tokens: f64,
    filled: Nanoseconds,
}

impl Bucket {
    pub(super) fn new(gbps: Option<f64>) -> Self {
        let rate = gbps.map_or(f64::INFINITY, |gbps| gbps / 8.0);
        let burst = (rate * BURST_NS).max(BURST_LEAST);
        Self { rate, burst, tokens: burst, filled: Nanoseconds(0) }
    }

    /// Adds what has come in since the last time.
    pub(super) fn fill(&mut self, now: Nanoseconds) {
        if self.rate.is_finite() {
            let passed = now.0.saturating_sub(self.filled.0) as f64;
            self.tokens = (self.tokens + passed * self.rate).min(self.burst);
            self.filled = now;
        }
    }

    /// Takes a frame's tokens. False if there are none.
    pub(super) fn take(&mut self, bytes: usize) -> bool {
        if self.tokens <= 0.0 {
            return false;
        }
        if self.rate.is_finite() {
            self.tokens -= bytes as f64 + GAP_BYTES;
        }
        true
    }

    /// Gives the tokens of a frame back that did not leave.
    pub(super) fn give(&mut self, bytes: usize) {
        if self.rate.is_finite() {
            self.tokens += bytes as f64 + GAP_BYTES;
        }
    }

    /// Nanoseconds until there are tokens.
    pub(super) fn wait_ns(&self) -> u64 {
        if self.tokens > 0.0 { 0 } else { (-self.tokens / self.rate) as u64 + 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_kept_over_time_and_a_burst_bounded() {
        let mut bucket = Bucket::new(Some(8.0));
        let (mut now, mut bytes) = (1_000_000_000, 0);
        let end = now + 100_000_000;
        while now < end {
            bucket.fill(Nanoseconds(now));
            while bucket.take(4000) {
                bytes += 4024;
            }
            now += bucket.wait_ns();
        }
        // A byte a nanosecond, and half a millisecond's at once.
        assert!((100_000_000..100_510_000).contains(&bytes), "{bytes}");
        bucket.fill(Nanoseconds(now + 5_000_000_000));
        let mut burst = 0;
        while bucket.take(4000) {
            burst += 4024;
        }
        assert!((500_000..510_000).contains(&burst), "{burst}");
        bucket.give(100_000);
        assert_eq!(bucket.wait_ns(), 0);
    }

    #[test]
    fn without_a_rate_nothing_waits() {
        let mut bucket = Bucket::new(None);
        bucket.fill(Nanoseconds(5));
        assert!((0..1_000_000).all(|_| bucket.take(4000)));
    }
}
