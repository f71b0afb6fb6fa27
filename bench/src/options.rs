//! The command line: perftest's letters, and ours. Whatever cannot be honoured is refused, never ignored.

mod check;
mod choices;

pub use choices::{DeviceKind, FenceKind, Mode, NicKind, SignalKind, Uncertain};
pub use shunt_figures::units::OnOff;

use crate::environment::{Environment, Lookup, of_process};
use crate::nics::Medium;
use crate::plan::{self, Stream, default_plan};
use crate::usage::{Usage, bad};
use clap::Parser;
use shunt::choice::software;
use shunt::machine::{Found, Rails};
use shunt_figures::units::{parse_count, parse_gbps, parse_size, parse_time, show_time, whole};
use shunt_host::config::{FenceMode, NicKind as Asked};
use shunt_host::job::{Flags, Job};
use shunt_soft_nic::Profile;
use shunt_soft_nic::fault::Injection;
use std::path::PathBuf;

const TABLE: &str = "Table";
const STREAM: &str = "Stream";
const FAULTS: &str = "Faults";
const RECOVERY: &str = "Recovery";
const JOB: &str = "PEs, NICs, processes";
const OUTPUT: &str = "Files";

/// shmem_put_bw: put bandwidth between PEs, then a verified stream with faults in it.
#[derive(Parser, Clone, Debug)]
#[command(name = "shmem_put_bw", version, disable_help_subcommand = true, max_term_width = 80)]
#[command(after_help = "Exit status: 0 clean, 1 a promise was broken or a fault was not exercised, \
                        2 bad usage, 3 no path left, a program error, or a fault with --ft off. \
                        --list-faults names every fault.")]
pub struct Options {
    /// Smallest size of the table [default: 8 for each block of -c]
    #[arg(short = 'b', long, value_name = "SIZE", value_parser = parse_size, allow_hyphen_values = true)]
    #[arg(help_heading = TABLE)]
    pub min_size: Option<u64>,
    /// Largest size of the table
    #[arg(short = 'e', long, value_name = "SIZE", default_value = "4M", value_parser = parse_size)]
    #[arg(allow_hyphen_values = true)]
    #[arg(help_heading = TABLE)]
    pub max_size: u64,
    /// Factor from one size to the next
    #[arg(short = 'f', long, value_name = "N", default_value_t = 2, value_parser = whole(2..=1024))]
    #[arg(allow_negative_numbers = true)]
    #[arg(help_heading = TABLE)]
    pub factor: u32,
    /// Iterations of each size; 0: no table [default: 100; 0 with --device gpu]
    #[arg(short = 'n', long = "iterations", value_name = "N", value_parser = whole(0..=u32::MAX))]
    #[arg(allow_negative_numbers = true)]
    #[arg(help_heading = TABLE)]
    pub table: Option<u32>,
    /// Iterations of each size before the clock runs
    #[arg(short = 'w', long, value_name = "N", default_value_t = 10, value_parser = whole(0..=u32::MAX))]
    #[arg(allow_negative_numbers = true)]
    #[arg(help_heading = TABLE)]
    pub warmup: u32,
    /// Blocks: each moves its equal share on a channel of its own, and channels start on rails in turn [default: 1;
    /// above two rails as many]
    #[arg(short = 'c', long = "ctas", value_name = "N", value_parser = whole(1..=32))]
    #[arg(allow_negative_numbers = true)]
    #[arg(help_heading = JOB)]
    pub blocks: Option<u32>,
    /// Threads of a block: with --device gpu 1, or whole warps up to 256; with --device cpu a block is one lane
    /// whatever is said here
    #[arg(short = 't', long, value_name = "N", default_value_t = 1, value_parser = whole(1..=1024))]
    #[arg(allow_negative_numbers = true)]
    #[arg(help_heading = JOB)]
    pub threads_per_cta: u32,
    /// PEs; an even number, PE 2k puts to PE 2k+1 [default: 2, or --world]
    #[arg(long, value_name = "N", value_parser = whole(2..=16), allow_negative_numbers = true)]
    #[arg(help_heading = JOB)]
    pub pes: Option<u32>,
    /// Rails of each PE
    #[arg(long, value_name = "R", default_value_t = 2, value_parser = whole(1..=8))]
    #[arg(allow_negative_numbers = true)]
    #[arg(help_heading = JOB)]
    pub rails: u32,
    /// Rate of each rail in Gb/s, with --nic soft [default: 4]
    #[arg(long, value_parser = parse_gbps, value_name = "G", allow_negative_numbers = true)]
    #[arg(help_heading = JOB)]
    pub rail_gbps: Option<f64>,
    /// What kind of device each NIC is, with --nic soft: soft, cx5, cx6dx, cx7, bf3, vf, ib-ar, strict [default: soft]
    #[arg(long, value_name = "DEVICE")]
    #[arg(help_heading = JOB)]
    pub profile: Option<Profile>,
    /// Where the kernels run
    #[arg(long, default_value = "cpu")]
    #[arg(help_heading = JOB)]
    pub device: DeviceKind,
    /// Kernels for --device gpu: cubin, fatbin or PTX [default: what `cargo xtask gpu` built for the GPU]
    #[arg(long, value_name = "FILE")]
    #[arg(help_heading = JOB)]
    pub kernels: Option<PathBuf>,
    /// What carries the packets [default: SHUNT_NIC, else soft]
    #[arg(long = "nic", value_name = "NIC")]
    #[arg(help_heading = JOB)]
    pub nic_asked: Option<NicKind>,
    /// What carries them, by the flag or by the variable.
    #[arg(skip)]
    pub nic: NicKind,
    /// How long the stream runs
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = parse_time)]
    #[arg(allow_hyphen_values = true)]
    #[arg(help_heading = STREAM)]
    pub duration: u64,
    /// Seed of the data and of the faults' dice
    #[arg(long, value_name = "S", default_value_t = 1, value_parser = parse_count)]
    #[arg(allow_hyphen_values = true)]
    #[arg(help_heading = STREAM)]
    pub seed: u64,
    /// How long every path must stay dead before a peer is lost; 0: at once [default: SHUNT_GIVE_UP, else 1s]
    #[arg(long, value_name = "TIME", value_parser = parse_time, allow_hyphen_values = true)]
    #[arg(help_heading = RECOVERY)]
    pub give_up: Option<u64>,
    /// A path with work and no completion for this long is suspected [default: SHUNT_SUSPECT, else 10ms, 50ms when
    /// oversubscribed]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    #[arg(allow_hyphen_values = true)]
    #[arg(help_heading = RECOVERY)]
    pub suspect: Option<u64>,
    /// What the stream is made of
    #[arg(long, default_value = "write")]
    #[arg(help_heading = STREAM)]
    pub mode: Mode,
    /// What the signals are
    #[arg(long, default_value = "monotone")]
    #[arg(help_heading = STREAM)]
    pub signal: SignalKind,
    /// Bytes of one put of the stream, with --mode write [default: 64K]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, allow_hyphen_values = true)]
    #[arg(help_heading = STREAM)]
    pub size: Option<u64>,
    /// Slots of the receiver, and puts in flight at most
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = whole(2..=512))]
    #[arg(allow_negative_numbers = true)]
    #[arg(help_heading = STREAM)]
    pub window: u32,
    /// A fault: '<time>:<pe>.<rail>:<fault>' or '<time>:<pe>:<fault>', time from the start of the stream;
    /// repeatable
    #[arg(long, value_name = "FAULT", value_parser = parse_fault, allow_hyphen_values = true)]
    #[arg(help_heading = FAULTS)]
    pub inject: Vec<Injection>,
    /// Inject no faults; print each switch as it happens, and the rails' counters each second
    #[arg(long)]
    #[arg(help_heading = FAULTS)]
    pub watch: bool,
    /// Fault tolerance [default: on, or as NVSHMEM_IBGDA_ENABLE_FAULT_TOLERANCE says]
    #[arg(long)]
    #[arg(help_heading = RECOVERY)]
    pub ft: Option<OnOff>,
    /// Backup paths of each channel [default: SHUNT_BACKUPS, else every pair of rails, at most 7]
    #[arg(long, value_name = "N", value_parser = whole(0..=7), allow_negative_numbers = true)]
    #[arg(help_heading = RECOVERY)]
    pub backups: Option<u32>,
    /// How long the primary must be ready again before a channel goes back to it [default: SHUNT_RECOVERY_WINDOW, else
    /// 100ms]
    #[arg(long, value_name = "TIME", value_parser = parse_time, allow_hyphen_values = true)]
    #[arg(help_heading = RECOVERY)]
    pub recovery_window: Option<u64>,
    /// What proves that an abandoned path is silent [default: SHUNT_FENCE, else strict]
    #[arg(long)]
    #[arg(help_heading = RECOVERY)]
    pub fence: Option<FenceKind>,
    /// How to resolve an uncertain operation [default: stop]
    #[arg(long)]
    #[arg(help_heading = STREAM)]
    pub uncertain: Option<Uncertain>,
    /// Check every byte and poison every slot
    #[arg(long, default_value = "on")]
    #[arg(help_heading = STREAM)]
    pub verify: OnOff,
    /// Write the result here as one JSON object
    #[arg(long, value_name = "FILE")]
    #[arg(help_heading = OUTPUT)]
    pub json: Option<PathBuf>,
    /// Write the timeline here as SVG
    #[arg(long, value_name = "FILE.svg")]
    #[arg(help_heading = OUTPUT)]
    pub plot: Option<PathBuf>,
    /// Write a page with channels, switches, faults and verdict here
    #[arg(long, value_name = "FILE.html")]
    #[arg(help_heading = OUTPUT)]
    pub report: Option<PathBuf>,
    /// Write a trace for Perfetto or chrome://tracing here
    #[arg(long, value_name = "FILE.json")]
    #[arg(help_heading = OUTPUT)]
    pub trace: Option<PathBuf>,
    /// List fault types and exit
    #[arg(long)]
    #[arg(help_heading = FAULTS)]
    pub list_faults: bool,
    /// This process is PE R of a job, the others are processes of their own [default: SHUNT_RANK]
    #[arg(long, value_name = "R", allow_negative_numbers = true)]
    #[arg(help_heading = JOB)]
    pub rank: Option<u32>,
    /// Processes of the job [default: SHUNT_WORLD]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    #[arg(help_heading = JOB)]
    pub world: Option<u32>,
    /// Where rank 0 listens for the others [default: SHUNT_ROOT]
    #[arg(long, value_name = "HOST:PORT")]
    #[arg(help_heading = JOB)]
    pub root: Option<String>,
    /// The job's secret; needed unless the root is on loopback [default: SHUNT_SECRET_FILE]
    #[arg(long, value_name = "FILE")]
    #[arg(help_heading = JOB)]
    pub secret_file: Option<PathBuf>,
    /// Soft fabric of the processes of this machine, with --nic soft [default: SHUNT_FABRIC, else default]
    #[arg(long, value_name = "NAME")]
    #[arg(help_heading = JOB)]
    pub fabric: Option<String>,
    /// Blocks.
    #[arg(skip)]
    pub ctas: u32,
    /// Iterations of each size.
    #[arg(skip)]
    pub iterations: u32,
    /// Every PE's kernels run on the GPU, not only the senders'.
    #[arg(skip)]
    pub gpu_everywhere: bool,
    /// log2 of the bytes that one key covers, if not as many as can be.
    #[arg(skip)]
    pub log2_chunk: Option<u32>,
    /// What the environment says.
    #[arg(skip)]
    pub environment: Environment,
    /// The job, if the PEs are processes.
    #[arg(skip)]
    pub job: Option<Job>,
    /// What carries the packets, once it is known.
    #[arg(skip)]
    pub medium: Medium,
}

/// Reads one `--inject`.
fn parse_fault(text: &str) -> Result<Injection, String> {
    text.parse::<Injection>().map_err(|error| match error.to_string() {
        said if said.contains("--list-faults") => said,
        said => format!("{said}; --list-faults names every fault"),
    })
}

/// Iterations of the table by default.
const ITERATIONS_DEFAULT: u32 = 100;
/// Size of a put of the stream by default.
const SIZE_DEFAULT: u64 = 64 << 10;

impl Options {
    /// Parses and checks, with the process's environment. `arguments` starts with the program's name.
    ///
    /// # Errors
    /// What was given and what is expected.
    pub fn from_arguments<I, T>(arguments: I) -> Result<Self, Usage>
    where
        I: IntoIterator<Item = T>,
        T: Into<std::ffi::OsString> + Clone,
    {
        Self::from_parts(arguments, &of_process)
    }

    /// Parses and checks, with any environment.
    ///
    /// # Errors
    /// What was given and what is expected.
    pub fn from_parts<I, T>(arguments: I, lookup: Lookup<'_>) -> Result<Self, Usage>
    where
        I: IntoIterator<Item = T>,
        T: Into<std::ffi::OsString> + Clone,
    {
        let mut options = Self::try_parse_from(arguments)?;
        // Where rails are counted, each should have something to carry.
        options.ctas = options.blocks.unwrap_or(if options.rails > 2 { options.rails } else { 1 });
        options.iterations = options.table.unwrap_or(ITERATIONS_DEFAULT);
        options.environment = Environment::read(lookup)?;
        options.nic = options.settle_nic(lookup)?;
        options.join_a_job(lookup)?;
        options.check_device()?;
        options.check_table()?;
        options.check_sizes()?;
        options.check_run()?;
        let stream = Stream { duration_ns: options.duration, pes: options.pes(), rails: options.rails };
        plan::check(&options.inject, options.watch, &stream)?;
        // What hurts other NICs is known once they are found.
        if options.nic == NicKind::Soft && options.hurts_by_itself() {
            options.inject = default_plan(options.duration);
        }
        Ok(options)
    }

    /// The flag wins over the variable.
    fn settle_nic(&self, lookup: Lookup<'_>) -> Result<NicKind, Usage> {
        let bad = |error: &dyn std::fmt::Display| Usage::Bad(error.to_string());
        let variable = Asked::from_lookup(lookup).map_err(|error| bad(&error))?;
        match (self.nic_asked, variable.unwrap_or(Asked::Soft)) {
            (Some(nic), _) => Ok(nic),
            (None, Asked::Soft) => Ok(NicKind::Soft),
            (None, Asked::Mlx5) => Ok(NicKind::Mlx5),
            (None, Asked::Auto) => match Found::find(Asked::Auto, Rails::Exactly(self.rails), lookup) {
                Ok(Found::Mlx5(_)) => Ok(NicKind::Mlx5),
                Ok(Found::Soft(why)) => {
                    shunt_host::complain!("{}", software(&why));
                    Ok(NicKind::Soft)
                }
                Err(error) => Err(bad(&error)),
            },
        }
    }

    /// PEs of the job.
    pub fn pes(&self) -> u32 {
        self.job.as_ref().map_or(self.pes.unwrap_or(2), |job| job.world)
    }

    /// Processes they are spread over.
    pub fn processes(&self) -> u32 {
        self.job.as_ref().map_or(1, |job| job.world)
    }

    /// Whether failures switch paths.
    pub fn tolerant(&self) -> bool {
        let said = self.ft.map(|ft| ft == OnOff::On);
        said.or(self.environment.fault_tolerance).unwrap_or(true)
    }

    /// What proves that an abandoned path is silent.
    pub fn fence(&self) -> FenceMode {
        match self.fence {
            Some(FenceKind::Strict) => FenceMode::Strict,
            Some(FenceKind::Time) => FenceMode::Time,
            None => self.environment.config.fence,
        }
    }

    /// How to resolve an uncertain operation.
    pub fn uncertain(&self) -> Uncertain {
        self.uncertain.unwrap_or(Uncertain::Stop)
    }

    /// Whether some operation of the stream can be uncertain.
    pub fn may_be_uncertain(&self) -> bool {
        self.mode == Mode::Amo || self.signal != SignalKind::Monotone || self.environment.config.polled_puts
    }

    /// Slots of a ring that one put takes with its signal, at most.
    pub fn tickets_per_put(&self) -> u32 {
        let put = match self.mode {
            Mode::Signal => 0,
            Mode::Write | Mode::P => 1,
            Mode::Amo => 2,
        };
        // A signal that is cleared may stand between two words of a ledger.
        (put + if self.signal == SignalKind::Cleared { 3 } else { 1 }).max(2)
    }

    /// Channels to each peer.
    pub fn channels(&self) -> u32 {
        self.environment.channels.unwrap_or(self.ctas)
    }

    /// What all processes of a job must have been started with, a line each.
    pub fn shared_lines(&self) -> Vec<String> {
        let name = |value: &dyn std::fmt::Debug| format!("{value:?}").to_lowercase();
        let said = &self.environment;
        let mut lines = vec![
            format!("-b {} -e {} -f {}", self.min_size(), self.max_size, self.factor),
            format!("-n {} -w {} -c {}", self.iterations, self.warmup, self.ctas),
            format!("--nic {} ({})", name(&self.nic), self.medium.name()),
            format!("--device {}", self.device.name()),
            format!("--rails {} --rail-gbps {}", self.rails, self.soft_gbps()),
            format!("--duration {}", show_time(self.duration)),
            format!("--seed {}", self.seed),
            format!("--mode {} --size {} --window {}", name(&self.mode), self.put_size(), self.window),
            format!("--signal {} --uncertain {}", name(&self.signal), name(&self.uncertain())),
            format!("--fence {}", name(&self.fence())),
            format!("--verify {}", name(&self.verify)),
            format!("--watch {}", self.watch),
            format!("--ft {}", if self.tolerant() { "on" } else { "off" }),
            format!("--give-up {}", show_time(self.give_up())),
            format!("a packet lifetime of {}", show_time(said.config.packet_lifetime_ns)),
            format!(
                "{} channels, ring depth {:?}, backups {:?}",
                self.channels(),
                said.log_depth,
                self.backups()
            ),
            format!("--recovery-window {:?}", self.recovery_window.map(show_time)),
        ];
        lines.extend(self.inject.iter().map(|injection| format!("--inject {injection}")));
        lines
    }

    /// Flags first, then variables: rank, world and root belong together.
    fn join_a_job(&mut self, lookup: Lookup<'_>) -> Result<(), Usage> {
        let text = |path: &PathBuf| path.to_string_lossy().into_owned();
        let (file, fabric) = (self.secret_file.as_ref().map(text), self.fabric.clone());
        let over = |name: &str| match name {
            "SHUNT_SECRET_FILE" if file.is_some() => file.clone(),
            // The flag wins over whichever variable.
            "SHUNT_SECRET" if file.is_some() => None,
            "SHUNT_FABRIC" if fabric.is_some() => fabric.clone(),
            _ => lookup(name),
        };
        let flags = Flags { rank: self.rank, world: self.world, root: self.root.clone() };
        let job = Job::from_lookup(&flags, &over).map_err(|error| Usage::Bad(error.to_string()))?;
        let Some(job) = job else {
            for (flag, given) in [("--secret-file", file.is_some()), ("--fabric", fabric.is_some())] {
                if given {
                    return bad(format!(
                        "{flag} without a job of processes: give --rank, --world and --root too"
                    ));
                }
            }
            return Ok(());
        };
        if !(2..=16).contains(&job.world) || !job.world.is_multiple_of(2) {
            return bad(format!(
                "--world: expected an even number from 2 to 16, since PE 2k puts to PE 2k+1, got {} from {}",
                job.world,
                job.launcher.name()
            ));
        }
        if let Some(pes) = self.pes.filter(|pes| *pes != job.world) {
            return bad(format!(
                "--pes {pes} in a world of {}: each process is one PE; leave --pes out",
                job.world
            ));
        }
        self.job = Some(job);
        Ok(())
    }

    /// Smallest size of the table: a double for each block by default.
    pub fn min_size(&self) -> u64 {
        self.min_size.unwrap_or(8 * self.ctas as u64)
    }

    /// Bytes of one put of the stream: what `p` writes inline, what a slot of `signal` would have.
    pub fn put_size(&self) -> u64 {
        if self.mode == Mode::Write { self.size.unwrap_or(SIZE_DEFAULT) } else { 8 }
    }

    /// Whether the default faults are planned.
    pub fn hurts_by_itself(&self) -> bool {
        self.inject.is_empty() && !self.watch && self.tolerant()
    }

    /// Rate of a soft NIC of this process.
    pub fn soft_gbps(&self) -> f64 {
        self.rail_gbps.unwrap_or(4.0)
    }

    /// How long a path may be silent, if given.
    pub fn suspect(&self) -> Option<u64> {
        self.suspect.or(self.environment.suspect)
    }

    /// Backup paths of each channel, if given.
    pub fn backups(&self) -> Option<u32> {
        self.backups.or(self.environment.backups)
    }

    /// How long every path must stay dead before a peer is lost.
    pub fn give_up(&self) -> u64 {
        self.give_up.unwrap_or(self.environment.config.give_up_ns)
    }

    /// Bytes of the largest put of the table; 0 without a table.
    pub fn table_bytes(&self) -> u64 {
        if self.iterations == 0 { 0 } else { self.max_size }
    }
}
