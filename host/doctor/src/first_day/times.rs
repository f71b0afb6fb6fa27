//! How long a NIC's commands take: a [`Devx`] that measures what passes through it.

use shunt_mlx5::devx::MkeyShape;
use shunt_mlx5::devx::SubnetPort;
use shunt_mlx5::devx::{Devx, Neighbour, PortGid, PortReport, UarPage, command_name};
use shunt_mlx5::error::DevxError;
use shunt_mlx5::memory::{DmaBuf, Span};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Durations of each command that was answered, in nanoseconds of wall time, as the caller waited for it.
pub type CommandTimes = BTreeMap<String, Vec<u64>>;

/// Upper ends of the histogram's classes, in microseconds; the last class has none.
const CLASSES_US: [u64; 12] = [1, 3, 10, 30, 100, 200, 300, 500, 1_000, 3_000, 10_000, 100_000];

/// Durations in classes, and their quantiles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    /// Samples.
    pub count: usize,
    /// Half of the samples took no longer, in nanoseconds; the others alike.
    pub p50: u64,
    /// 90 of 100.
    pub p90: u64,
    /// 99 of 100; the longest below 100 samples.
    pub p99: u64,
    /// The longest.
    pub max: u64,
    /// Upper end of a class in microseconds (`None`: no end), and the samples in it; classes without samples at both
    /// ends are left out.
    pub classes: Vec<(Option<u64>, usize)>,
}

impl Histogram {
    /// Of samples in nanoseconds; `None` if there are none.
    pub fn of(samples: &[u64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_unstable();
        let max = *sorted.last()?;
        // Nearest rank: the smallest sample that so many of 100 do not exceed.
        let quantile = |percent: usize| sorted[(sorted.len() * percent).div_ceil(100).max(1) - 1];
        let mut counts = vec![0; CLASSES_US.len() + 1];
        for sample in &sorted {
            counts[CLASSES_US.partition_point(|end| end * 1_000 < *sample)] += 1;
        }
        let ends = CLASSES_US.iter().copied().map(Some).chain([None]);
        let all: Vec<(Option<u64>, usize)> = ends.zip(counts).collect();
        let first = all.iter().position(|(_, count)| *count > 0)?;
        let last = all.iter().rposition(|(_, count)| *count > 0)?;
        let classes = all[first..=last].to_vec();
        let (p50, p90, p99) = (quantile(50), quantile(90), quantile(99));
        Some(Self { count: sorted.len(), p50, p90, p99, max, classes })
    }
}

/// A NIC whose commands are timed.
pub struct TimedDevx {
    inner: Arc<dyn Devx>,
    times: Mutex<CommandTimes>,
}

impl TimedDevx {
    /// Times what passes to `inner`.
    pub fn new(inner: Arc<dyn Devx>) -> Arc<Self> {
        Arc::new(Self { inner, times: Mutex::default() })
    }

    /// What was measured until now. Refused commands are not in it.
    pub fn times(&self) -> CommandTimes {
        self.times.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn timed<T>(&self, name: String, run: impl FnOnce() -> Result<T, DevxError>) -> Result<T, DevxError> {
        let since = Instant::now();
        let done = run()?;
        let took = since.elapsed().as_nanos() as u64;
        self.times.lock().unwrap_or_else(PoisonError::into_inner).entry(name).or_default().push(took);
        Ok(done)
    }
}

impl Devx for TimedDevx {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn command(&self, input: &[u8], output: &mut [u8]) -> Result<(), DevxError> {
        self.timed(command_name(input), || self.inner.command(input, output))
    }

    unsafe fn register_umem(&self, span: Span, dmabuf: Option<DmaBuf>) -> Result<u32, DevxError> {
        // SAFETY: what the caller upholds is what the inner NIC asks for.
        self.timed("memory registration".into(), || unsafe { self.inner.register_umem(span, dmabuf) })
    }

    fn deregister_umem(&self, id: u32) -> Result<(), DevxError> {
        self.inner.deregister_umem(id)
    }

    fn alloc_pd(&self) -> Result<u32, DevxError> {
        self.inner.alloc_pd()
    }

    fn dealloc_pd(&self, pd: u32) -> Result<(), DevxError> {
        self.inner.dealloc_pd(pd)
    }

    fn keys_need_umem(&self) -> bool {
        self.inner.keys_need_umem()
    }

    unsafe fn create_key(&self, shape: &MkeyShape, dmabuf: Option<DmaBuf>) -> Result<u32, DevxError> {
        // SAFETY: what the caller upholds is what the inner NIC asks for.
        self.timed("key registration".into(), || unsafe { self.inner.create_key(shape, dmabuf) })
    }

    fn destroy_key(&self, key: u32) -> Result<(), DevxError> {
        self.inner.destroy_key(key)
    }

    fn map_uar(&self) -> Result<UarPage, DevxError> {
        self.inner.map_uar()
    }

    fn free_uar(&self, id: u32) {
        self.inner.free_uar(id);
    }

    fn query_eqn(&self) -> Result<u32, DevxError> {
        self.inner.query_eqn()
    }

    fn gid(&self, index: u32) -> Result<Option<PortGid>, DevxError> {
        self.inner.gid(index)
    }

    fn gid_index(&self) -> Option<u32> {
        self.inner.gid_index()
    }

    fn subnet(&self) -> Result<SubnetPort, DevxError> {
        self.inner.subnet()
    }

    fn port(&self) -> Result<Option<PortReport>, DevxError> {
        self.inner.port()
    }

    fn resolve_mac(&self, pd: u32, neighbour: &Neighbour) -> Result<Option<[u8; 6]>, DevxError> {
        self.inner.resolve_mac(pd, neighbour)
    }

    fn next_event(&self) -> Result<Option<[u8; 64]>, DevxError> {
        self.inner.next_event()
    }

    fn responsive(&self) -> bool {
        self.inner.responsive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_samples_and_classes_count_each_once() {
        let samples: Vec<u64> = (1..=200).map(|us| us * 1_000).rev().collect();
        let met = Histogram::of(&samples).unwrap();
        assert_eq!((met.p50, met.p90, met.p99, met.max), (100_000, 180_000, 198_000, 200_000));
        assert_eq!(met.classes.iter().map(|(_, count)| count).sum::<usize>(), 200);
        assert_eq!(met.classes.first(), Some(&(Some(1), 1)));
        assert_eq!(met.classes.last(), Some(&(Some(200), 100)));
        assert_eq!(Histogram::of(&[]), None);
        let late = Histogram::of(&[200_000_000]).unwrap();
        assert_eq!((late.p50, late.classes), (200_000_000, vec![(None, 1)]));
    }
}
