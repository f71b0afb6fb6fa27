//! Bytes delivered per 10 ms, and the figures read off them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Length of one bin.
pub const BIN_NS: u64 = 10_000_000;
/// Left out of medians at the start of the stream and after a switch-back.
pub const WARM_UP_NS: u64 = 100_000_000;

/// Bins from the start of the stream. Receivers add, the progress line reads.
#[derive(Debug)]
pub struct Timeline {
    start_ns: u64,
    bins: Vec<AtomicU64>,
}

impl Timeline {
    /// Bins that cover `length_ns` from `start_ns`; what comes later goes to the last one.
    pub fn new(start_ns: u64, length_ns: u64) -> Self {
        let bins = (length_ns / BIN_NS + 1) as usize;
        Self { start_ns, bins: (0..bins).map(|_| AtomicU64::new(0)).collect() }
    }

    /// `bytes` were delivered at `now_ns`.
    pub fn add(&self, now_ns: u64, bytes: u64) {
        let bin = (now_ns.saturating_sub(self.start_ns) / BIN_NS) as usize;
        self.bins[bin.min(self.bins.len() - 1)].fetch_add(bytes, Relaxed);
    }

    /// Bytes of some bins, of those that there are.
    pub fn range(&self, bins: std::ops::Range<usize>) -> Vec<u64> {
        let end = bins.end.min(self.bins.len());
        self.bins[bins.start.min(end)..end].iter().map(|bin| bin.load(Relaxed)).collect()
    }

    /// Bytes per bin.
    pub fn bytes(&self) -> Vec<u64> {
        self.bins.iter().map(|bin| bin.load(Relaxed)).collect()
    }
}

/// Decimal GB/s of `bytes` in `nanoseconds`.
pub fn gb_s(bytes: u64, nanoseconds: u64) -> f64 {
    if nanoseconds == 0 { 0.0 } else { bytes as f64 / nanoseconds as f64 }
}

/// Median GB/s of the bins that lie wholly in `from_ns..to_ns`, times since the start of the stream. `None`
/// if no bin does.
pub fn median_gb_s(bins: &[u64], from_ns: u64, to_ns: u64) -> Option<f64> {
    let first = from_ns.div_ceil(BIN_NS) as usize;
    let end = ((to_ns / BIN_NS) as usize).min(bins.len());
    let mut window: Vec<u64> = bins.get(first..end)?.to_vec();
    window.sort_unstable();
    window.get(window.len() / 2).map(|&bytes| gb_s(bytes, BIN_NS))
}

/// Mean GB/s of the bins that lie wholly in `from_ns..to_ns`, times since the start of the stream; bins that are not
/// there are empty. `None` if no bin does.
pub fn mean_gb_s(bins: &[u64], from_ns: u64, to_ns: u64) -> Option<f64> {
    let (first, end) = (from_ns.div_ceil(BIN_NS), to_ns / BIN_NS);
    let sum = (first..end).filter_map(|bin| bins.get(bin as usize)).sum();
    (end > first).then(|| gb_s(sum, (end - first) * BIN_NS))
}

/// Longest run of empty bins in `from_ns..to_ns`, times since the start of the stream; bins that are not there are
/// empty. `None` if no bin is: what is shorter than a bin does not show.
pub fn longest_silence(bins: &[u64], from_ns: u64, to_ns: u64) -> Option<u64> {
    let (mut longest, mut run) = (0, 0);
    for bin in from_ns.div_ceil(BIN_NS)..to_ns.div_ceil(BIN_NS) {
        let part = (to_ns - bin * BIN_NS).min(BIN_NS);
        let empty = bins.get(bin as usize).is_none_or(|bytes| *bytes == 0);
        run = if empty { run + part } else { 0 };
        longest = longest.max(run);
    }
    (longest > 0).then_some(longest)
}

/// Longest time between deliveries, from the end of the warm-up on.
#[derive(Clone, Copy, Debug)]
pub struct Gap {
    counts_from_ns: u64,
    last_ns: u64,
    longest_ns: u64,
}

impl Gap {
    /// A gap counts for what of it lies after `counts_from_ns`.
    pub fn new(counts_from_ns: u64) -> Self {
        Self { counts_from_ns, last_ns: counts_from_ns, longest_ns: 0 }
    }

    /// Something was delivered at `now_ns`, or the stream ended then: which may lie before the last delivery.
    pub fn delivery(&mut self, now_ns: u64) {
        if now_ns >= self.counts_from_ns {
            self.longest_ns = self.longest_ns.max(now_ns.saturating_sub(self.last_ns));
            self.last_ns = self.last_ns.max(now_ns);
        }
    }

    /// The longest so far.
    pub fn longest_ns(&self) -> u64 {
        self.longest_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_and_median() {
        let line = Timeline::new(1000, 5 * BIN_NS);
        for (bin, bytes) in [(0, 1), (1, 50), (2, 30), (3, 20), (4, 90)] {
            line.add(1000 + bin * BIN_NS, bytes * 1_000_000);
        }
        line.add(u64::MAX, 7);
        let bins = line.bytes();
        assert_eq!(bins[5], 7);
        assert_eq!(median_gb_s(&bins, BIN_NS, 4 * BIN_NS), Some(3.0));
        assert_eq!(median_gb_s(&bins, 1, 4 * BIN_NS), Some(3.0));
        assert_eq!(median_gb_s(&bins, 3 * BIN_NS, 3 * BIN_NS), None);
        assert_eq!(median_gb_s(&bins, 30 * BIN_NS, 40 * BIN_NS), None);
    }

    #[test]
    fn a_mean_counts_bins_that_are_missing_as_empty() {
        let bins = [1, 3, 5].map(|bytes| bytes * BIN_NS);
        assert_eq!(mean_gb_s(&bins, 1, 3 * BIN_NS + 1), Some(4.0));
        assert_eq!(mean_gb_s(&bins, 0, 6 * BIN_NS), Some(1.5));
        assert_eq!(mean_gb_s(&bins, 1, BIN_NS), None);
    }

    #[test]
    fn silence_is_a_run_of_empty_bins_and_what_is_missing_is_empty() {
        let bins = [0, 0, 0, 9, 0, 0, 9];
        assert_eq!(longest_silence(&bins, 0, 7 * BIN_NS), Some(3 * BIN_NS));
        assert_eq!(longest_silence(&bins, 2 * BIN_NS, 7 * BIN_NS), Some(2 * BIN_NS));
        assert_eq!(longest_silence(&bins, 2 * BIN_NS, 9 * BIN_NS + 1), Some(2 * BIN_NS + 1));
        assert_eq!(longest_silence(&bins, 3 * BIN_NS, 4 * BIN_NS), None);
        assert_eq!(longest_silence(&bins, 9 * BIN_NS, 4 * BIN_NS), None);
    }

    #[test]
    fn a_gap_that_ends_the_stream_counts() {
        let mut gap = Gap::new(100);
        for at in [10, 50, 110, 300, 310, 700] {
            gap.delivery(at);
        }
        assert_eq!(gap.longest_ns(), 390);
        // The stream was to stop before what came last.
        gap.delivery(120);
        assert_eq!(gap.longest_ns(), 390);
    }
}
