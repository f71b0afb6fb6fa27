//! perftest's table: put bandwidth over sizes, no faults, the payload of the last iteration checked.

use crate::heap::{HeapMap, HeapView};
use crate::kernel::{Control, Dev, Stop, patiently};
use crate::options::Options;
use crate::pattern::{Salt, fill, first_mismatch};
use crate::timeline::gb_s;
use shunt_device::platform::host::World;
use shunt_device::{HeapOffset, Put, Solo};
use std::fmt::Write;

/// One size.
#[derive(Clone, Copy, Debug, PartialEq)]
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
    /// Where everything lies.
    pub map: HeapMap,
    /// The clock.
    pub world: &'r dyn World,
    /// PE 0's heap.
    pub source: HeapView,
    /// PE 1's heap, looked at after each row.
    pub target: HeapView,
    /// Ends the run.
    pub control: &'r Control,
}

impl Table<'_> {
    /// Measures every size; `done` hears of each row.
    ///
    /// # Errors
    /// Why a wait ended.
    pub fn run(&self, device: Dev<'_>, mut done: impl FnMut(&Row)) -> Result<Vec<Row>, Stop> {
        let mut rows = Vec::new();
        for (number, size) in sizes(self.options).into_iter().enumerate() {
            let row = self.row(device, number as u64, size)?;
            done(&row);
            rows.push(row);
        }
        Ok(rows)
    }

    /// Bytes of one block, whole doubles: perftest's integer division, without the rest it silently drops.
    fn share(&self, size: u64) -> u64 {
        size / self.options.ctas as u64 / 8 * 8
    }

    fn row(&self, device: Dev<'_>, number: u64, size: u64) -> Result<Row, Stop> {
        let share = self.share(size);
        let (salt, words) = (Salt::new(self.options.seed, 0, u32::MAX), share * self.options.ctas as u64 / 8);
        fill(self.source.words(self.map.table(), words), salt, number);
        self.iterate(device, share, self.options.warmup)?;
        let start = self.world.now_ns();
        self.iterate(device, share, self.options.iterations)?;
        let elapsed = (self.world.now_ns() - start).max(1);
        self.finish_row(device, number + 1)?;
        let intact = first_mismatch(self.target.words(self.map.table(), words), salt, number).is_none();
        let iterations = self.options.iterations as u64;
        Ok(Row {
            size: share * self.options.ctas as u64,
            gb_s: gb_s(words * 8 * iterations, elapsed),
            messages_s: (iterations * self.options.ctas as u64) as f64 * 1e9 / elapsed as f64,
            intact,
        })
    }

    fn iterate(&self, device: Dev<'_>, share: u64, iterations: u32) -> Result<(), Stop> {
        for _ in 0..iterations {
            for block in 0..self.options.ctas {
                let at = HeapOffset(self.map.table().0 + block as u64 * share);
                let put = Put { dst: at, src: at, bytes: share };
                device.channel(1, block).put_nbi(Solo, put).map_err(Stop::Fault)?;
            }
        }
        // A ring of puts at the rail's rate, four times over, on top of what no wait may exceed.
        let bytes = share * self.options.ctas as u64 * iterations as u64;
        let limit = self.control.stall_ns + (bytes as f64 * 32.0 / self.options.rail_gbps) as u64;
        for block in 0..self.options.ctas {
            let channel = device.channel(1, block);
            patiently(self.world, self.control, limit, "a quiet of the table", None, |slice| {
                channel.quiet(Solo, slice)
            })?;
        }
        Ok(())
    }

    /// A signal behind the row on each channel; once it is visible so are the puts.
    fn finish_row(&self, device: Dev<'_>, value: u64) -> Result<(), Stop> {
        for block in 0..self.options.ctas {
            let word = self.map.row_end(block);
            device.channel(1, block).signal_set_nbi(Solo, word, value).map_err(Stop::Fault)?;
        }
        let end = self.world.now_ns() + self.control.stall_ns;
        for block in 0..self.options.ctas {
            let word = &self.target.words(self.map.row_end(block), 1)[0];
            while word.load(std::sync::atomic::Ordering::Acquire) < value {
                if self.world.now_ns() > end {
                    return Err(Stop::Stalled("the signal behind a row of the table"));
                }
                self.world.relax();
            }
        }
        Ok(())
    }
}

/// The lines above the rows, in perftest's widths.
pub fn header(oversubscribed: bool) -> String {
    let mark = if oversubscribed { "yes" } else { "no" };
    format!(
        "#shmem_put_bw_uni  (soft NIC, wall time, oversubscribed: {mark})\n{:<10}  {:<8}  {:<16}  {}",
        "size(B)", "scope", "BW (GB/sec)", "puts/sec"
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
