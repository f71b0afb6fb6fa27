//! When a process leaks. Pure: what was sampled in, what is wrong out.

/// A process at a moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Seconds from the start.
    pub at: f64,
    /// KiB of memory that is its own: anonymous and shared pages. A file's pages come and go as the kernel likes.
    pub memory: u64,
    /// Open descriptors.
    pub descriptors: u64,
    /// Threads.
    pub threads: u64,
}

/// All samples of a process.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    pub name: String,
    pub pid: u32,
    pub samples: Vec<Sample>,
}

/// What of a sample is counted.
type Count = fn(&Sample) -> u64;

/// What memory may grow by in the second half.
pub const ALLOWED_KIB: f64 = 1024.0;
/// And by so much a second in each process of the main program: of what was delivered every 10 ms its report holds 8
/// bytes three times over, as receivers add it up, as it was told to the process that judges, and as that one holds it.
const TIMELINE_KIB: f64 = 2.5;
/// Which those are.
const MAIN_PROGRAM: &str = "shmem_put_bw ";
/// Fewer samples say nothing.
pub const SAMPLES_MIN: usize = 20;
/// Pieces of the second half, each with a slope of its own.
const PIECES: usize = 8;
pub const RULE: &str = "memory: the second half, at the median of the slopes of its eighths, rises by more than 1 MiB \
     (and 2.5 KiB a second in the main program's processes, for its timeline); descriptors, threads: the fewest of \
     the last quarter are more than the fewest of the second quarter";

impl Series {
    /// KiB by which memory grows in the second half, at the median of its pieces' slopes: a cache that reaches a new
    /// height is a step in one of them, a leak is in all.
    pub fn growth(&self) -> f64 {
        let half = &self.samples[self.samples.len() / 2..];
        let (Some(first), Some(last)) = (half.first(), half.last()) else { return 0.0 };
        let piece = half.len().div_ceil(PIECES).max(4);
        let points = |part: &[Sample]| part.iter().map(|s| (s.at, s.memory as f64)).collect::<Vec<_>>();
        let mut slopes: Vec<f64> = half.chunks(piece).map(|part| slope(&points(part))).collect();
        slopes.sort_by(f64::total_cmp);
        slopes[slopes.len() / 2] * (last.at - first.at)
    }

    /// What it may grow by in the second half.
    fn allowed(&self) -> f64 {
        let seconds = self.samples.last().map_or(0.0, |last| last.at) / 2.0;
        ALLOWED_KIB + if self.name.starts_with(MAIN_PROGRAM) { TIMELINE_KIB * seconds } else { 0.0 }
    }

    /// What is wrong with it.
    pub fn wrong(&self) -> Vec<String> {
        let Self { name, pid, samples } = self;
        if samples.len() < SAMPLES_MIN {
            let count = samples.len();
            return vec![format!("{name} ({pid}): {count} samples say nothing, {SAMPLES_MIN} would")];
        }
        let mut wrong = Vec::new();
        let growth = self.growth();
        if growth > self.allowed() {
            wrong.push(format!("{name} ({pid}): memory grew by {growth:.0} KiB in the second half"));
        }
        let counts: [(&str, Count); 2] =
            [("descriptors", |sample| sample.descriptors), ("threads", |sample| sample.threads)];
        let quarter = samples.len() / 4;
        for (what, of) in counts {
            let fewest = |part: &[Sample]| part.iter().map(of).min().unwrap_or(0);
            let (before, after) =
                (fewest(&samples[quarter..2 * quarter]), fewest(&samples[samples.len() - quarter..]));
            if after > before {
                wrong.push(format!("{name} ({pid}): never below {after} {what} at the end, {before} before"));
            }
        }
        wrong
    }
}

/// Of the line of least squares.
fn slope(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let (x, y) = points.iter().fold((0.0, 0.0), |(x, y), point| (x + point.0 / count, y + point.1 / count));
    let (above, below) = points.iter().fold((0.0, 0.0), |(above, below), point| {
        let off = point.0 - x;
        (above + off * (point.1 - y), below + off * off)
    });
    if below > 0.0 { above / below } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(of: impl Fn(u64) -> (u64, u64, u64)) -> Series {
        let samples = (0..200).map(|n| {
            let (memory, descriptors, threads) = of(n);
            Sample { at: n as f64, memory, descriptors, threads }
        });
        Series { name: "x".to_owned(), pid: 1, samples: samples.collect() }
    }

    #[test]
    fn what_comes_and_goes_is_no_leak() {
        // It warms up, then it swings; descriptors of a moment.
        let well =
            series(|n| (50_000 + 10_000 * n.min(60) + 3000 * (n % 7), 20 + n % 3, 9 + n / 150 * (n % 2)));
        assert_eq!(well.wrong(), Vec::<String>::new());
        // A cache reaches a new height, once and for good.
        let step = series(|n| (if n < 150 { 10_000 } else { 19_000 }, 20, 9));
        assert_eq!(step.wrong(), Vec::<String>::new());
    }

    #[test]
    fn each_kind_of_leak_is_found() {
        let grows = |memory: u64, descriptors: u64, threads: u64| {
            series(move |n| (40_000 + n * memory + n % 5, 20 + n * descriptors / 100, 9 + n * threads / 100))
        };
        assert!(grows(20, 0, 0).wrong()[0].contains("memory grew by 19"), "{:?}", grows(20, 0, 0).wrong());
        assert_eq!(grows(5, 0, 0).wrong().len(), 0, "half of what is allowed");
        assert!(grows(0, 2, 0).wrong()[0].contains("descriptors"));
        assert!(grows(0, 0, 2).wrong()[0].contains("threads"));
    }

    #[test]
    fn a_timeline_is_allowed_where_it_is_held() {
        let of = |name: &str| Series { name: name.to_owned(), ..series(|n| (40_000 + 12 * n, 20, 9)) };
        assert_eq!(of("shmem_put_bw 0").wrong().len() + of("shmem_put_bw 1").wrong().len(), 0);
        assert_eq!(of("ib_write_bw 0").wrong().len(), 1);
    }

    #[test]
    fn a_process_that_was_hardly_seen_is_not_called_well() {
        let mut short = series(|_| (1, 1, 1));
        short.samples.truncate(SAMPLES_MIN - 1);
        assert_eq!(short.wrong().len(), 1);
    }
}
