//! perftest's table: put bandwidth over sizes, no faults, the payload of the last iteration checked.

use crate::heap::{HeapMap, HeapView};
use crate::kernel::{Control, Dev, Kernel, Stop};
use crate::nics::Medium;
use crate::options::Options;
use schemars::JsonSchema;
use serde::Serialize;
use shunt_device::platform::host::World;
use shunt_device::{HeapOffset, Put, Signal, Solo};
use shunt_figures::timeline::gb_s;
use shunt_oracle::pattern::{Salt, fill, first_mismatch};
use std::fmt::Write;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Pause between two looks at another process.
const PAUSE: Duration = Duration::from_micros(200);

/// One size.
#[derive(Clone, Copy, Debug, JsonSchema, PartialEq, Serialize)]
pub struct Row {
    /// Bytes of one iteration, over all blocks.
    pub size: u64,
    /// Decimal GB/s.
    pub gb_s: f64,
    /// Puts per second.
    pub messages_s: f64,
    /// False if the target's memory was wrong at the end.
    pub intact: bool,
}

/// Sizes of the table.
pub fn sizes(options: &Options) -> Vec<u64> {
    let next = |size: &u64| size.checked_mul(options.factor as u64);
    std::iter::successors(Some(options.min_size()), next)
        .take_while(|size| *size <= options.max_size)
        .collect()
}

/// Who measures, and where.
pub struct Table<'r> {
    /// The command line.
    pub options: &'r Options,
    /// What a rail carries.
    pub rail_gbps: f64,
    /// Where everything lies.
    pub map: HeapMap,
    /// The clock.
    pub clock: &'r dyn World,
    /// PE 0's heap, if it lives here.
    pub source: Option<HeapView>,
    /// PE 1's heap, if it lives here: looked at after each row.
    pub target: Option<HeapView>,
    /// Ends the run.
    pub control: &'r Control,
}

impl Table<'_> {
    /// Measures every size, where PE 0 lives; `done` hears of each row.
    ///
    /// # Errors
    /// Why a wait ended.
    pub fn run(&self, kernel: Kernel<'_>, device: Dev<'_>, mut done: impl FnMut(&Row)) -> Result<(), Stop> {
        for (number, size) in sizes(self.options).into_iter().enumerate() {
            done(&self.row(kernel, device, number as u64, size)?);
        }
        Ok(())
    }

    /// Looks at every row as it arrives, where PE 1 lives and PE 0 does not.
    ///
    /// # Errors
    /// Why it did not come.
    pub fn look_on(&self, device: Dev<'_>) -> Result<(), Stop> {
        for (number, size) in (0..).zip(sizes(self.options)) {
            // PE 0's own limit for a row ends it first, if it lives.
            let limit = self.control.stall_ns + self.transfer_ns(self.share(size), self.rounds());
            let arrived = || self.target.is_some_and(|target| self.arrived(&target, number + 1));
            self.wait(device, "a row of the table", limit, arrived)?;
            self.control.board.row_done(number, self.intact(number, size));
        }
        let over = || self.control.board.table_over();
        self.wait(device, "the end of the table", self.control.stall_ns, over)
    }

    /// Waits for the end, where neither lives.
    ///
    /// # Errors
    /// Why it did not come.
    pub fn sit_out(&self, device: Dev<'_>) -> Result<(), Stop> {
        let all = |size| 2 * self.control.stall_ns + self.transfer_ns(self.share(size), self.rounds());
        let limit = sizes(self.options).into_iter().map(all).sum();
        self.wait(device, "the end of the table", limit, || self.control.board.table_over())
    }

    /// Waits for PE 0.
    fn wait(
        &self,
        device: Dev<'_>,
        what: &'static str,
        limit: u64,
        done: impl Fn() -> bool,
    ) -> Result<(), Stop> {
        let end = self.clock.now_ns().saturating_add(limit);
        while !done() {
            if self.control.aborted() {
                return Err(Stop::Aborted);
            }
            // A source that is gone sends nothing.
            device.channel(0, 0).alive().map_err(Stop::Fault)?;
            if self.clock.now_ns() > end {
                return Err(Stop::Stalled(what));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Bytes of one block, whole doubles: perftest's integer division, without the rest it silently drops.
    fn share(&self, size: u64) -> u64 {
        size / self.options.ctas as u64 / 8 * 8
    }

    fn rounds(&self) -> u32 {
        self.options.warmup.max(self.options.iterations)
    }

    /// A ring of puts at the rail's rate, four times over.
    fn transfer_ns(&self, share: u64, iterations: u32) -> u64 {
        let bytes = share as f64 * self.options.ctas as f64 * iterations as f64;
        (bytes * 32.0 / self.rail_gbps) as u64
    }

    fn salt(&self) -> Salt {
        Salt::new(self.options.seed, 0, u32::MAX)
    }

    fn row(&self, kernel: Kernel<'_>, device: Dev<'_>, number: u64, size: u64) -> Result<Row, Stop> {
        let share = self.share(size);
        let bytes = share * self.options.ctas as u64;
        if let Some(source) = &self.source {
            fill(source.words(self.map.table(), bytes / 8), self.salt(), number);
        }
        self.iterate(kernel, device, share, self.options.warmup)?;
        let start = self.clock.now_ns();
        self.iterate(kernel, device, share, self.options.iterations)?;
        let elapsed = (self.clock.now_ns() - start).max(1);
        let intact = self.finish_row(device, number, size)?;
        let iterations = self.options.iterations as u64;
        Ok(Row {
            size: bytes,
            gb_s: gb_s(bytes * iterations, elapsed),
            messages_s: (iterations * self.options.ctas as u64) as f64 * 1e9 / elapsed as f64,
            intact,
        })
    }

    fn iterate(&self, kernel: Kernel<'_>, device: Dev<'_>, share: u64, iterations: u32) -> Result<(), Stop> {
        for _ in 0..iterations {
            for block in 0..self.options.ctas {
                let at = HeapOffset(self.map.table().0 + block as u64 * share);
                let put = Put { dst: at, src: at, bytes: share };
                device.channel(1, block).put_nbi(Solo, put).map_err(Stop::Fault)?;
            }
        }
        // On top of what no wait may exceed.
        let limit = self.control.stall_ns + self.transfer_ns(share, iterations);
        for block in 0..self.options.ctas {
            let channel = device.channel(1, block);
            let quiet = |slice| channel.quiet(Solo, slice);
            kernel.patiently(limit, "a quiet of the table", || Ok(()), quiet)?;
        }
        Ok(())
    }

    /// A signal behind the row on each channel; once it is visible so are the puts, and they are looked at, here or
    /// where PE 1 lives.
    fn finish_row(&self, device: Dev<'_>, number: u64, size: u64) -> Result<bool, Stop> {
        for block in 0..self.options.ctas {
            let word = self.map.row_end(block);
            device
                .channel(1, block)
                .signal_nbi(Solo, word, Signal::Monotone(number + 1))
                .map_err(Stop::Fault)?;
        }
        let end = self.clock.now_ns() + self.control.stall_ns;
        loop {
            match &self.target {
                Some(target) if self.arrived(target, number + 1) => return Ok(self.intact(number, size)),
                Some(_) => self.clock.relax(),
                None => {
                    if let Some(intact) = self.control.board.row(number) {
                        return Ok(intact);
                    }
                    // A target that is gone never looks.
                    device.channel(1, 0).alive().map_err(Stop::Fault)?;
                    std::thread::sleep(PAUSE);
                }
            }
            if self.clock.now_ns() > end {
                return Err(Stop::Stalled("the signal behind a row of the table"));
            }
        }
    }

    /// True once the signals behind a row are all there.
    fn arrived(&self, target: &HeapView, value: u64) -> bool {
        let word = |block| target.words(self.map.row_end(block), 1)[0].load(Ordering::Acquire);
        (0..self.options.ctas).all(|block| word(block) >= value)
    }

    /// Whether PE 1's memory holds a row.
    fn intact(&self, number: u64, size: u64) -> bool {
        let words = self.share(size) * self.options.ctas as u64 / 8;
        self.target.is_some_and(|target| {
            first_mismatch(target.words(self.map.table(), words), self.salt(), number).is_none()
        })
    }
}

/// The lines above the rows, in perftest's widths.
pub fn header(medium: Medium, oversubscribed: bool) -> String {
    let mark = if oversubscribed { "yes" } else { "no" };
    format!(
        "#shmem_put_bw_uni  ({}, oversubscribed: {mark})\n{:<10}  {:<8}  {:<16}  {}",
        medium.clock(),
        "size(B)",
        "scope",
        "BW (GB/sec)",
        "puts/sec"
    )
}

/// One row.
pub fn line(row: &Row) -> String {
    let mut out = format!("{:<10}  {:<8}  {:<16.6}  {:.0}", row.size, "block", row.gb_s, row.messages_s);
    if !row.intact {
        let _ = write!(out, "  CORRUPT");
    }
    out
}

/// One row as perftest prints it under NVSHMEM_MACHINE_READABLE_OUTPUT=1.
pub fn machine_line(row: &Row) -> String {
    format!("&&&& PERF shmem_put_bw___uni___size__{}___BW {:.6} +GB/sec", row.size, row.gb_s)
}
