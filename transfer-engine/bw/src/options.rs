//! The command line. Whatever cannot be honoured is refused, never ignored.

use clap::{Parser, ValueEnum};
use shunt::soft_nic::fault::format_time;
use shunt_figures::units::{parse_size, parse_time, show_size, whole};
use shunt_transfer::Transport;
use shunt_transfer_program::NicOptions;
use shunt_transfer_program::alike::{Alike, given, option, word};
use shunt_transfer_program::start::Checked;

/// How memory is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// One write at a time, split over the rails.
    Single,
    /// Pages, one write each, dealt to the rails.
    Paged,
    /// End 1 reads what end 0 says is there, split over the rails.
    Read,
    /// Pages without immediates. Each transfer is cancelled at a random moment, and its memory is used again at once.
    Cancel,
    /// Pages without immediates, of a sender in a process of its own. It is stopped in the middle, cut off, and goes
    /// on; its memory at end 1 is used again meanwhile.
    Revoke,
}

/// How transfers are cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CancelHow {
    /// Rails that hold pieces of it are fenced.
    Now,
    /// What is under way has 2 ms, then as with now.
    Drain,
    /// What is not posted is dropped, the rest is waited for.
    Unposted,
    /// Not at all, nor is a sender cut off: end 1 uses the memory again while the transfer is under way. The run shows
    /// late writes, and fails.
    Never,
}

/// transfer_bw: end 0 writes to end 1 with the transfer engine, or end 1 reads from end 0, while ports fail, and end 1
/// checks every byte and every immediate.
///
/// Alone it runs both ends in one process. Under `shunt run -n 2` each end is a process of its own; both get the same
/// command line.
#[derive(Parser, Clone, Debug)]
#[command(name = "transfer_bw", version)]
#[command(
    max_term_width = 80,
    after_help = "Exit status: 0 clean, 1 a promise was broken or a fault hit nothing, 2 bad usage, 3 no rail was \
                  left, or the fate of a transfer is not known. Figures are wall time on what `clock` in the verdict \
                  names."
)]
pub struct Options {
    /// How memory is written
    #[arg(long, value_enum, default_value = "paged")]
    pub mode: Mode,
    /// Bytes of a page, or of a single write or read: a multiple of 8
    #[arg(long, value_name = "SIZE", default_value = "64K", value_parser = parse_size)]
    pub size: u64,
    /// Pages of one transfer, with --mode paged, cancel or revoke
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = whole(1..=256))]
    pub pages: u32,
    /// How transfers are cancelled, with --mode cancel or revoke
    #[arg(long, value_enum, value_name = "HOW", default_value = "now")]
    pub cancel: CancelHow,
    /// Ends once so many transfers were cancelled, with --mode cancel; --duration is then the limit [default: 5m]
    #[arg(long, value_name = "N", value_parser = whole(1..=u32::MAX))]
    pub cancels: Option<u32>,
    /// The rate of each kind and size of transfer instead, without faults: a row for each, on 1, 2, 4 .. --rails rails,
    /// or on each of a list such as --rails 1,3
    #[arg(long, conflicts_with_all = ["mode", "size", "cancel", "cancels", "inject"])]
    pub table: bool,
    /// How long end 0 begins transfers [default: 3s; a row of --table 500ms]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub duration: Option<u64>,
    /// This process is the sender of --mode revoke, which connects to this address
    #[arg(long, value_name = "HOST:PORT", hide = true)]
    pub sender: Option<String>,
    /// Rails, NICs, faults, and the file of the verdict
    #[command(flatten)]
    pub nics: NicOptions,
}

/// Bytes of one transfer at most: a region has room for some of them.
const TRANSFER_MAX: u64 = 32 << 20;
/// The largest page of `--table`.
pub const TABLE_PAGE: u64 = 1 << 20;
/// Shortest run: one that moves nothing would say nothing.
const DURATION_MIN_NS: u64 = 20_000_000;
/// Of a run, and of a row of the table, where nothing is said.
const DURATION_NS: u64 = 3_000_000_000;
const ROW_NS: u64 = 500_000_000;
const CANCELS_NS: u64 = 300_000_000_000;

impl Options {
    /// Writes and pages of one transfer.
    pub fn pages(&self) -> u64 {
        if matches!(self.mode, Mode::Paged | Mode::Cancel | Mode::Revoke) { self.pages.into() } else { 1 }
    }

    /// How long end 0 begins transfers, nanoseconds.
    pub fn duration(&self) -> u64 {
        self.duration.unwrap_or(match self.cancels {
            _ if self.table => ROW_NS,
            Some(_) => CANCELS_NS,
            None => DURATION_NS,
        })
    }

    /// Bytes of one transfer.
    pub fn transfer_bytes(&self) -> u64 {
        self.size * self.pages()
    }
}

impl Checked for Options {
    fn nics(&self) -> &NicOptions {
        &self.nics
    }

    fn makes_rows(&self) -> bool {
        self.table
    }

    fn own_alike(&self) -> Alike {
        let mut all = vec![
            given("--table", self.table),
            word("--mode", &self.mode),
            option("--size", show_size(self.size)),
            option("--pages", self.pages()),
        ];
        // The receiver of a row waits as long as the sender sends.
        all.extend(self.table.then(|| option("--duration", format_time(self.duration()))));
        all
    }

    fn check(&self) -> Result<(), String> {
        let size = show_size(self.size);
        if self.size == 0 || !self.size.is_multiple_of(8) {
            return Err(format!("--size: expected a multiple of 8 from 8 on, got {size}"));
        }
        if self.size.checked_mul(self.pages()).is_none_or(|bytes| bytes > TRANSFER_MAX) {
            let pages = self.pages();
            return Err(format!(
                "--size: expected at most {} in one transfer, got {pages} times {size}; take fewer --pages",
                show_size(TRANSFER_MAX)
            ));
        }
        if self.table && u64::from(self.pages) * TABLE_PAGE > TRANSFER_MAX {
            let most = TRANSFER_MAX / TABLE_PAGE;
            return Err(format!("--pages: expected at most {most} with --table, got {}", self.pages));
        }
        let duration = self.duration();
        if duration < DURATION_MIN_NS {
            let least = format_time(DURATION_MIN_NS);
            return Err(format!("--duration: expected at least {least}, got {}", format_time(duration)));
        }
        if self.cancels.is_some() && self.mode != Mode::Cancel {
            return Err("--cancels: expected with --mode cancel, got another mode".to_owned());
        }
        if self.cancel != CancelHow::Now && !matches!(self.mode, Mode::Cancel | Mode::Revoke) {
            return Err("--cancel: expected with --mode cancel or revoke, got another mode".to_owned());
        }
        if self.mode == Mode::Revoke {
            if self.nics.transport != Transport::Rdma {
                return Err(format!(
                    "--mode revoke: expected --transport rdma, whose NICs prove that nothing of a sender lands that \
                     was cut off, got {}",
                    self.nics.transport.name()
                ));
            }
            if matches!(self.cancel, CancelHow::Drain | CancelHow::Unposted) {
                return Err("--cancel: expected now or never with --mode revoke, got another one".to_owned());
            }
            if let Some(fault) = self.nics.inject.first() {
                return Err(format!(
                    "--inject {fault}: expected no fault with --mode revoke, which stops a process"
                ));
            }
        }
        self.nics.check_faults(2)?;
        for injection in &self.nics.inject {
            if injection.at_ns >= duration {
                let (duration, at) = (format_time(duration), format_time(injection.at_ns));
                return Err(format!(
                    "--inject {injection}: expected a time before --duration {duration}, got {at}"
                ));
            }
        }
        Ok(())
    }
}
