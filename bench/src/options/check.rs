//! What a command line may not say, and what would be right.

use super::{DeviceKind, Mode, NicKind, OnOff, Options, Uncertain};
use crate::usage::{Usage, bad};
use shunt_figures::units::show_size;
use shunt_soft_nic::fault::format_time;

/// Longest stream: the timeline has a bin for every 10 ms.
const DURATION_MAX_NS: u64 = 3_600_000_000_000;
const DURATION_MIN_NS: u64 = 20_000_000;
const SIZE_MAX: u64 = 1 << 30;
/// Threads of a block on a GPU: what registers there are, shared by what a kernel may need when something fails.
const THREADS_MAX: u32 = 256;
/// Heap of a PE beyond which nobody meant it.
const HEAP_MAX: u64 = 4 << 30;

impl Options {
    /// What a GPU's kernels do not do.
    pub(super) fn check_device(&mut self) -> Result<(), Usage> {
        if self.device == DeviceKind::Cpu {
            return match &self.kernels {
                Some(file) => {
                    bad(format!("--kernels {} with --device cpu: add --device gpu", file.display()))
                }
                None => Ok(()),
            };
        }
        let threads = self.threads_per_cta;
        if threads > THREADS_MAX || (threads > 1 && !threads.is_multiple_of(32)) {
            return bad(format!(
                "-t with --device gpu: expected 1, or a multiple of 32 up to {THREADS_MAX}, got {threads}"
            ));
        }
        if let Some(count) = self.table.filter(|count| *count != 0) {
            return bad(format!(
                "-n {count} with --device gpu: the table is that of threads, `cargo xtask gpu run` measures kernels \
                 by themselves; -n 0 or none, or --device cpu"
            ));
        }
        self.iterations = 0;
        if let Some(answer @ (Uncertain::Applied | Uncertain::Not)) = self.uncertain {
            let word = if answer == Uncertain::Not { "not" } else { "applied" };
            return bad(format!(
                "--uncertain {word} with --device gpu: an answer changes words of a channel that kernels are changing; \
                 --uncertain stop, or --device cpu"
            ));
        }
        Ok(())
    }

    pub(super) fn check_table(&self) -> Result<(), Usage> {
        if self.iterations == 0 {
            return Ok(());
        }
        let (least, min_size) = (8 * self.ctas as u64, self.min_size());
        if min_size < least {
            return bad(format!(
                "-b: expected at least {}, 8 bytes for each of {} blocks (-c), got {}",
                show_size(least),
                self.ctas,
                show_size(min_size)
            ));
        }
        if self.max_size < min_size || self.max_size > SIZE_MAX {
            return bad(format!(
                "-e: expected a size from that of -b, {}, to 1G, got {}",
                show_size(min_size),
                show_size(self.max_size)
            ));
        }
        Ok(())
    }

    pub(super) fn check_sizes(&self) -> Result<(), Usage> {
        if self.mode != Mode::Write
            && let Some(size) = self.size
        {
            let what = match self.mode {
                Mode::P => "p, whose puts are 8 bytes",
                Mode::Amo => "amo, whose words are 8 bytes",
                _ => "signal, without puts",
            };
            let size = show_size(size);
            return bad(format!("--size {size} with --mode {what}: leave --size out, or --mode"));
        }
        if self.mode == Mode::Signal && self.verify == OnOff::Off {
            return bad(
                "--verify off with --mode signal, where no byte is put: leave --verify out, or --mode"
                    .to_owned(),
            );
        }
        let size = self.put_size();
        if size < 8 || !size.is_multiple_of(8) || size > SIZE_MAX {
            return bad(format!("--size: expected a multiple of 8 from 8 to 1G, got {}", show_size(size)));
        }
        let heap = 2 * self.ctas as u64 * self.window as u64 * size + self.table_bytes();
        if heap > HEAP_MAX {
            return bad(format!(
                "-c {} with --window {} and --size {}: expected a heap of at most {} for a PE, got {heap} bytes",
                self.ctas,
                self.window,
                show_size(size),
                show_size(HEAP_MAX)
            ));
        }
        Ok(())
    }

    /// What is of soft NICs that this program makes.
    fn check_soft(&self) -> Result<(), Usage> {
        let given = [
            ("--rail-gbps", self.rail_gbps.is_some()),
            ("--profile", self.profile.is_some()),
            ("--fabric", self.fabric.is_some()),
        ];
        match given.into_iter().find(|(_, given)| *given && self.nic == NicKind::Mlx5) {
            Some((flag, _)) => bad(format!(
                "{flag} with --nic mlx5: it is of soft NICs that this program makes; those of \
                     `shunt soft-rdma run` take it there, hardware is as it is"
            )),
            None => Ok(()),
        }
    }

    pub(super) fn check_run(&self) -> Result<(), Usage> {
        if !self.pes().is_multiple_of(2) {
            return bad(format!(
                "--pes: expected an even number, since PE 2k puts to PE 2k+1, got {}",
                self.pes()
            ));
        }
        if self.channels() < self.ctas {
            return bad(format!(
                "NVSHMEM_IBGDA_NUM_RC_PER_PE: expected at least {}, a channel for each block of -c, got {}",
                self.ctas,
                self.channels()
            ));
        }
        self.check_soft()?;
        if !(DURATION_MIN_NS..=DURATION_MAX_NS).contains(&self.duration) {
            return bad(format!("--duration: expected 20ms to 60m, got {}", format_time(self.duration)));
        }
        if self.give_up() > 600_000_000_000 {
            return bad(format!("--give-up: expected at most 10m, got {}", format_time(self.give_up())));
        }
        if !self.tolerant() && self.give_up.is_some() {
            return bad("--ft off gives up at the first fault: leave --give-up out, or --ft off".to_owned());
        }
        if let Some(ns) = self.suspect.filter(|ns| !(100_000..=10_000_000_000).contains(ns)) {
            return bad(format!("--suspect: expected 100us to 10s, got {}", format_time(ns)));
        }
        if self.uncertain.is_some() && !self.may_be_uncertain() {
            return bad(
                "--uncertain: expected operations that can be uncertain, got puts and monotone signals; leave it out, \
                 or choose --signal cleared, --signal add or --mode amo"
                    .to_owned(),
            );
        }
        if let Some(window) = self.recovery_window.filter(|ns| !(1_000_000..=600_000_000_000).contains(ns)) {
            return bad(format!("--recovery-window: expected 1ms to 10m, got {}", format_time(window)));
        }
        let tolerated = [
            ("--backups", self.backups.is_some()),
            ("--recovery-window", self.recovery_window.is_some()),
            ("--uncertain", self.uncertain.is_some()),
            ("--fence", self.fence.is_some()),
        ];
        if let Some((flag, _)) = tolerated.into_iter().find(|(_, given)| *given && !self.tolerant()) {
            return bad(format!("--ft off leaves no path for another: leave {flag} out, or --ft off"));
        }
        let others = self.rails * self.rails - 1;
        if let Some(backups) = self.backups.filter(|backups| *backups > others) {
            return bad(format!(
                "--backups: expected at most {others}, which is how many paths beside the primary --rails {} makes, \
                 got {backups}; take fewer, or more --rails",
                self.rails
            ));
        }
        for (option, path, end) in [("--plot", &self.plot, "svg"), ("--report", &self.report, "html")] {
            if let Some(path) = path.as_ref().filter(|path| path.extension().is_none_or(|it| it != end)) {
                return bad(format!("{option}: expected a file that ends in .{end}, got {}", path.display()));
            }
        }
        Ok(())
    }
}
