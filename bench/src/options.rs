//! The command line: perftest's letters, and ours. Whatever cannot be honoured is refused, never ignored.

use crate::inject::{Injection, default_plan};
use crate::units::{parse_count, parse_size, parse_time, show_size, show_time};
use clap::builder::RangedI64ValueParser;
use clap::{Parser, ValueEnum};
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// shmem_put_bw: put bandwidth between PEs, then a verified stream with faults in it.
#[derive(Parser, Clone, Debug)]
#[command(name = "shmem_put_bw", version, disable_help_subcommand = true)]
#[command(after_help = "Exit status: 0 clean, 1 a promise was broken or a fault was not exercised, \
                        2 bad usage, 3 no path left, a program error, or a fault with --ft off. \
                        --list-faults names every fault.")]
pub struct Options {
    /// Smallest size of the table [default: 8 for each block of -c]
    #[arg(short = 'b', long, value_name = "SIZE", value_parser = parse_size, allow_hyphen_values = true)]
    pub min_size: Option<u64>,
    /// Largest size of the table
    #[arg(short = 'e', long, value_name = "SIZE", default_value = "4M", value_parser = parse_size)]
    #[arg(allow_hyphen_values = true)]
    pub max_size: u64,
    /// Factor from one size to the next
    #[arg(short = 'f', long, value_name = "N", default_value_t = 2, value_parser = range(2..=1024))]
    #[arg(allow_negative_numbers = true)]
    pub factor: u32,
    /// Iterations of each size; 0: no table
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100)]
    #[arg(allow_negative_numbers = true)]
    pub iterations: u32,
    /// Iterations of each size before the clock runs
    #[arg(short = 'w', long, value_name = "N", default_value_t = 10)]
    #[arg(allow_negative_numbers = true)]
    pub warmup: u32,
    /// Blocks: each moves its equal share on a channel of its own
    #[arg(short = 'c', long, value_name = "N", default_value_t = 1, value_parser = range(1..=32))]
    #[arg(allow_negative_numbers = true)]
    pub ctas: u32,
    /// Threads of a block; with --device cpu a block is one lane whatever is said here
    #[arg(short = 't', long, value_name = "N", default_value_t = 1, value_parser = range(1..=1024))]
    #[arg(allow_negative_numbers = true)]
    pub threads_per_cta: u32,
    /// PEs; an even number, PE 2k puts to PE 2k+1
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = range(2..=16))]
    #[arg(allow_negative_numbers = true)]
    pub pes: u32,
    /// Rails of each PE
    #[arg(long, value_name = "R", default_value_t = 2, value_parser = range(1..=8))]
    #[arg(allow_negative_numbers = true)]
    pub rails: u32,
    /// Rate of each rail in Gb/s
    #[arg(long, value_name = "G", default_value_t = 4.0)]
    #[arg(allow_negative_numbers = true)]
    pub rail_gbps: f64,
    /// Where the kernels run
    #[arg(long, default_value = "cpu")]
    pub device: DeviceKind,
    /// What carries the packets
    #[arg(long, default_value = "soft")]
    pub nic: NicKind,
    /// How long the stream runs
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = parse_time)]
    #[arg(allow_hyphen_values = true)]
    pub duration: u64,
    /// Seed of the data and of the faults' dice
    #[arg(long, value_name = "S", default_value_t = 1, value_parser = parse_count)]
    #[arg(allow_hyphen_values = true)]
    pub seed: u64,
    /// How long every path must stay dead before a peer is lost; 0: at once [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = parse_time, allow_hyphen_values = true)]
    pub give_up: Option<u64>,
    /// A path with work and no completion for this long is suspected [default: 10ms, 50ms when
    /// oversubscribed]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    #[arg(allow_hyphen_values = true)]
    pub suspect: Option<u64>,
    /// What the stream is made of
    #[arg(long, default_value = "write")]
    pub mode: Mode,
    /// What the signals are
    #[arg(long, default_value = "monotone")]
    pub signal: SignalKind,
    /// Bytes of one put of the stream, with --mode write [default: 64K]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, allow_hyphen_values = true)]
    pub size: Option<u64>,
    /// Slots of the receiver, and puts in flight at most
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = range(2..=512))]
    #[arg(allow_negative_numbers = true)]
    pub window: u32,
    /// A fault: '<time>:<pe>.<rail>:<fault>', time from the start of the stream; repeatable
    #[arg(long, value_name = "FAULT", value_parser = Injection::parse)]
    #[arg(allow_hyphen_values = true)]
    pub inject: Vec<Injection>,
    /// No faults but those that happen; prints the rails' counters at the end
    #[arg(long)]
    pub watch: bool,
    /// Fault tolerance
    #[arg(long, default_value = "on")]
    pub ft: OnOff,
    /// What proves that an abandoned path is silent
    #[arg(long, default_value = "strict")]
    pub fence: FenceKind,
    /// Check every byte and poison every slot
    #[arg(long, default_value = "on")]
    pub verify: OnOff,
    /// Write the result here as one JSON object
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the timeline here as SVG
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
    /// Print every fault there is and leave
    #[arg(long)]
    pub list_faults: bool,
}

/// Where kernels run.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// Threads of this process
    Cpu,
    /// CUDA
    Gpu,
}

/// What carries packets.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum NicKind {
    /// The software ConnectX
    Soft,
    /// Hardware
    Mlx5,
}

/// What the stream is made of.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A put and a signal
    Write,
    /// An inline put of 8 bytes and a signal
    P,
    /// Signals alone
    Signal,
    /// Atomics
    Amo,
}

/// What signals are.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalKind {
    /// Absolute values of a single writer, never cleared
    Monotone,
    /// Single writer, cleared by the receiver
    Cleared,
    /// Remote atomic adds
    Add,
}

/// A switch.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnOff {
    /// Yes
    On,
    /// No
    Off,
}

/// What a fence rests on.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceKind {
    /// Both halves in ERR, the receiver's count, the placement flush
    Strict,
    /// ERR of the requester and the packet lifetime
    Time,
}

/// Why a command line was refused. Exit status 2.
#[derive(Debug, thiserror::Error)]
pub enum Usage {
    /// clap's message; also `--help` and `--version`, which are no errors.
    #[error("{0}")]
    Clap(#[from] clap::Error),
    /// A value that cannot be, or goes badly with another.
    #[error("error: {0}")]
    Bad(String),
    /// Understood, but not in this version.
    #[error("error: {0} is not in this version; {1}")]
    NotYet(&'static str, &'static str),
}

fn range(values: RangeInclusive<i64>) -> RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(values)
}

/// Longest stream: the timeline has a bin for every 10 ms.
const DURATION_MAX_NS: u64 = 3_600_000_000_000;
const DURATION_MIN_NS: u64 = 20_000_000;
const SIZE_MAX: u64 = 1 << 30;
/// A put of the stream when nobody says.
const SIZE_DEFAULT: u64 = 64 << 10;
const GIVE_UP_DEFAULT_NS: u64 = 1_000_000_000;
/// Heap of a PE beyond which nobody meant it.
const HEAP_MAX: u64 = 4 << 30;

impl Options {
    /// Parses and checks. `arguments` starts with the program's name.
    pub fn from_arguments<I, T>(arguments: I) -> Result<Self, Usage>
    where
        I: IntoIterator<Item = T>,
        T: Into<std::ffi::OsString> + Clone,
    {
        let mut options = Self::try_parse_from(arguments)?;
        options.refuse_what_is_missing()?;
        options.check_table()?;
        options.check_sizes()?;
        options.check_run()?;
        options.check_faults()?;
        if options.inject.is_empty() && !options.watch && options.ft == OnOff::On {
            options.inject = default_plan(options.duration);
        }
        Ok(options)
    }

    /// Smallest size of the table: a double for each block when nobody says.
    pub fn min_size(&self) -> u64 {
        self.min_size.unwrap_or(8 * self.ctas as u64)
    }

    /// Bytes of one put of the stream: what `p` writes inline, what a slot of `signal` would have.
    pub fn put_size(&self) -> u64 {
        if self.mode == Mode::Write { self.size.unwrap_or(SIZE_DEFAULT) } else { 8 }
    }

    /// How long every path must stay dead before a peer is lost.
    pub fn give_up(&self) -> u64 {
        self.give_up.unwrap_or(GIVE_UP_DEFAULT_NS)
    }

    /// Bytes of the largest put of the table; 0 without a table.
    pub fn table_bytes(&self) -> u64 {
        if self.iterations == 0 { 0 } else { self.max_size }
    }

    fn refuse_what_is_missing(&self) -> Result<(), Usage> {
        if self.device == DeviceKind::Gpu {
            return Err(Usage::NotYet("--device gpu", "kernels run as threads: --device cpu"));
        }
        if self.nic == NicKind::Mlx5 {
            return Err(Usage::NotYet("--nic mlx5", "packets go over the software ConnectX: --nic soft"));
        }
        if self.mode == Mode::Amo {
            return Err(Usage::NotYet("--mode amo", "choose write, p or signal"));
        }
        if self.fence == FenceKind::Time {
            return Err(Usage::NotYet("--fence time", "choose strict"));
        }
        match self.signal {
            SignalKind::Monotone => Ok(()),
            SignalKind::Cleared => Err(Usage::NotYet("--signal cleared", "choose monotone")),
            SignalKind::Add => Err(Usage::NotYet("--signal add", "choose monotone")),
        }
    }

    fn check_table(&self) -> Result<(), Usage> {
        if self.iterations == 0 {
            return Ok(());
        }
        let (least, min_size) = (8 * self.ctas as u64, self.min_size());
        if min_size < least {
            return bad(format!(
                "-b {min_size} gives each of {} blocks less than one double; at least {least}",
                self.ctas
            ));
        }
        if self.max_size < min_size || self.max_size > SIZE_MAX {
            return bad(format!("-e {}: from -b {min_size} to 1G", self.max_size));
        }
        Ok(())
    }

    fn check_sizes(&self) -> Result<(), Usage> {
        if self.mode != Mode::Write
            && let Some(size) = self.size
        {
            let what =
                if self.mode == Mode::P { "p, whose puts are 8 bytes" } else { "signal, without puts" };
            return bad(format!("--size {size} with --mode {what}: leave --size out, or --mode"));
        }
        let size = self.put_size();
        if size < 8 || !size.is_multiple_of(8) || size > SIZE_MAX {
            return bad(format!("--size {size}: a multiple of 8 from 8 to 1G"));
        }
        let heap = 2 * self.ctas as u64 * self.window as u64 * size + self.table_bytes();
        if heap > HEAP_MAX {
            return bad(format!(
                "-c {} with --window {} and --size {} needs a heap of {heap} bytes a PE; at most {}",
                self.ctas,
                self.window,
                show_size(size),
                show_size(HEAP_MAX)
            ));
        }
        Ok(())
    }

    fn check_run(&self) -> Result<(), Usage> {
        if !self.pes.is_multiple_of(2) {
            return bad(format!("--pes {}: an even number, PE 2k puts to PE 2k+1", self.pes));
        }
        if !(self.rail_gbps >= 0.01 && self.rail_gbps <= 800.0) {
            return bad(format!("--rail-gbps {}: Gb/s from 0.01 to 800", self.rail_gbps));
        }
        if !(DURATION_MIN_NS..=DURATION_MAX_NS).contains(&self.duration) {
            return bad(format!("--duration {}: from 20ms to 60m", show_time(self.duration)));
        }
        if self.give_up() > 600_000_000_000 {
            return bad(format!("--give-up {}: at most 10m", show_time(self.give_up())));
        }
        if self.ft == OnOff::Off && self.give_up.is_some() {
            return bad("--ft off gives up at the first fault: leave --give-up out, or --ft off".to_owned());
        }
        if self.suspect.is_some_and(|ns| !(100_000..=10_000_000_000).contains(&ns)) {
            return bad(format!("--suspect {}: from 100us to 10s", show_time(self.suspect.unwrap_or(0))));
        }
        if self.plot.as_ref().is_some_and(|path| path.extension().is_none_or(|e| e != "svg")) {
            return bad("--plot writes SVG: give a file that ends in .svg".to_owned());
        }
        Ok(())
    }

    fn check_faults(&self) -> Result<(), Usage> {
        if self.watch && !self.inject.is_empty() {
            return bad("--watch injects nothing: leave --inject out, or --watch".to_owned());
        }
        for injection in &self.inject {
            if injection.does_nothing() {
                return bad(format!("--inject {injection}: 0 does nothing; a value above 0, or no fault"));
            }
            if injection.at_ns >= self.duration {
                return bad(format!(
                    "--inject {injection}: the stream ends at {}; the time must lie before",
                    show_time(self.duration)
                ));
            }
            if injection.pe >= self.pes || injection.rail >= self.rails {
                return bad(format!(
                    "--inject {injection}: there is no rail {}.{}; PEs are 0 to {}, rails 0 to {}",
                    injection.pe,
                    injection.rail,
                    self.pes - 1,
                    self.rails - 1
                ));
            }
        }
        Ok(())
    }
}

fn bad(text: String) -> Result<(), Usage> {
    Err(Usage::Bad(text))
}
