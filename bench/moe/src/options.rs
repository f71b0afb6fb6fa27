//! The command line of `moe_pressure`.

use crate::trouble::Trouble;
use crate::verdict::{ITERS_MAX, USAGE};
use clap::{Parser, ValueEnum};
use shunt_deep_ep_bridge::normal::Config;
use shunt_deep_ep_bridge::{Format, Signals};
use shunt_figures::units::{OnOff, parse_count, parse_time, show_size, show_time, whole};
use shunt_host::config::NicKind;
use shunt_host::job::{Flags, Job as Place};
use shunt_layout::moe::{Shape, TOPK_MAX};
use shunt_layout::moe_normal::{BadNormalShape, NormalShape};
use shunt_soft_nic::fault::format_time;
use std::ffi::OsString;
use std::path::PathBuf;

/// Parts of the tokens in normal mode, each with rings of its own.
const CHANNELS: u32 = 2;
/// Ranks by default.
const RANKS_DEFAULT: u32 = 4;
/// Ranks at most.
const RANKS_MAX: u32 = 64;
/// Nodes of normal mode by default.
const NODES_DEFAULT: u32 = 2;
/// Mean time between two faults by default.
const EVERY_DEFAULT_NS: u64 = 100_000_000;
/// Largest heap of a rank that is accepted.
const HEAP_MAX: u64 = 4 << 30;

/// How tokens travel.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormatKind {
    /// BF16
    Bf16,
    /// FP8 with 32-bit scales
    Fp8,
    /// FP8 with scales that are powers of two, as exponents
    Ue8m0,
    /// Each of them in turn
    All,
}

/// Which of DeepEP's modes.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModeKind {
    /// Ranks send to ranks
    LowLatency,
    /// Ranks of a node share memory; tokens cross once to each node
    Normal,
}

/// What counts and flags are.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalsKind {
    /// Added to, and cleared by the receiver, as DeepEP's
    Cleared,
    /// Absolute values
    Absolute,
}

impl From<SignalsKind> for Signals {
    fn from(kind: SignalsKind) -> Self {
        match kind {
            SignalsKind::Cleared => Self::Cleared,
            SignalsKind::Absolute => Self::Absolute,
        }
    }
}

fn parse_iters(text: &str) -> Result<u64, String> {
    let iters = text.parse().ok().filter(|iters| (1..=ITERS_MAX).contains(iters));
    iters.ok_or_else(|| format!("expected a whole number from 1 to {ITERS_MAX}, got {text:?}"))
}

/// Runs MoE layers (dispatch, experts, combine) on NICs that fail, and compares every byte with a reference.
#[derive(Parser, Clone, Debug)]
#[command(
    name = "moe_pressure",
    version,
    max_term_width = 80,
    after_help = "Exit status: 0 clean; 1 a layer was wrong, a wait ran out, or faults were planned and none struck; \
                  2 bad usage; 3 no path left, or a signal in doubt"
)]
pub struct MoeOptions {
    /// Mode
    #[arg(long, default_value = "low-latency")]
    pub mode: ModeKind,
    /// Nodes that the ranks are on: a divisor of the ranks [default: 2 with --mode normal, else as many as ranks]
    #[arg(long, value_name = "N", value_parser = whole(1..=64))]
    #[arg(allow_negative_numbers = true)]
    pub nodes: Option<u32>,
    /// Ranks of a node, which reach each other's memory, in place of --nodes: a divisor of the ranks
    #[arg(long, value_name = "N", value_parser = whole(1..=RANKS_MAX))]
    #[arg(allow_negative_numbers = true, conflicts_with = "nodes")]
    pub ranks_per_node: Option<u32>,
    /// Ranks: threads of this process; under `shunt run`, its processes [default: 4, or those of the job]
    #[arg(long = "ranks", value_name = "N", value_parser = whole(2..=RANKS_MAX))]
    #[arg(allow_negative_numbers = true)]
    pub ranks_asked: Option<u32>,
    /// Ranks.
    #[arg(skip)]
    pub ranks: u32,
    /// This process's place in a job, if it is one of several.
    #[arg(skip)]
    pub place: Option<Place>,
    /// What carries the packets [default: SHUNT_NIC, else soft]
    #[arg(long = "nic", value_name = "NIC")]
    pub nic_asked: Option<NicKind>,
    /// What carries the packets.
    #[arg(skip)]
    pub nic: NicKind,
    /// Layers
    #[arg(long, visible_alias = "iterations", value_name = "N", default_value_t = 1000)]
    #[arg(value_parser = parse_iters, allow_negative_numbers = true)]
    pub iters: u64,
    /// What goes wrong: none, random, or a fault as `shmem_put_bw --list-faults` writes it, again and again
    #[arg(long, value_name = "none|random|KIND", default_value = "random")]
    pub faults: Trouble,
    /// Mean time between two faults [default: 100ms]
    #[arg(long, value_name = "TIME", value_parser = parse_time, allow_hyphen_values = true)]
    pub every: Option<u64>,
    /// Seed of tokens, routes and faults
    #[arg(long, value_name = "S", default_value_t = 1, value_parser = parse_count, allow_hyphen_values = true)]
    pub seed: u64,
    /// Experts of each rank
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = whole(1..=64))]
    #[arg(allow_negative_numbers = true)]
    pub local_experts: u32,
    /// Tokens of each rank, at most
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = whole(1..=511))]
    #[arg(allow_negative_numbers = true)]
    pub tokens: u32,
    /// Channels of a token
    #[arg(long, value_name = "N", default_value_t = 512, allow_negative_numbers = true)]
    pub hidden: u32,
    /// Experts of a token, at most
    #[arg(long, value_name = "N", default_value_t = 4, allow_negative_numbers = true)]
    #[arg(value_parser = whole(1..=TOPK_MAX))]
    pub topk: u32,
    /// How tokens travel
    #[arg(long, default_value = "all")]
    pub format: FormatKind,
    /// What counts and flags are: cleared ones, of --mode low-latency, may end in doubt where a NIC dies with its
    /// counts [default: absolute]
    #[arg(long)]
    pub signals: Option<SignalsKind>,
    /// Fault tolerance
    #[arg(long, default_value = "on")]
    pub ft: OnOff,
    /// A kernel that has not ended after this long hangs
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = parse_time)]
    #[arg(allow_hyphen_values = true)]
    pub timeout: u64,
    /// Write the result here as one JSON object
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the timeline here as SVG
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
}

impl MoeOptions {
    /// Parses and checks. What is to be printed instead of a run, and the status.
    ///
    /// # Errors
    /// As above.
    pub fn read(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, (String, u8)> {
        let bad = |error: clap::Error| (error.to_string(), error.exit_code() as u8);
        let mut options = Self::try_parse_from(arguments).map_err(bad)?;
        let settled = options.settle(&|name| std::env::var(name).ok());
        settled.map_err(|text| (format!("error: {text}"), USAGE))?;
        match options.wrong() {
            Some(text) => Err((format!("error: {text}"), USAGE)),
            None => Ok(options),
        }
    }

    /// What the environment says: a job of several processes, and what carries the packets. A flag wins.
    fn settle(&mut self, lookup: &dyn Fn(&str) -> Option<String>) -> Result<(), String> {
        let variable = NicKind::from_lookup(lookup).map_err(|error| error.to_string())?;
        self.nic = self.nic_asked.or(variable).unwrap_or(NicKind::Soft);
        self.place = Place::from_lookup(&Flags::default(), lookup).map_err(|error| error.to_string())?;
        let Some(place) = &self.place else {
            self.ranks = self.ranks_asked.unwrap_or(RANKS_DEFAULT);
            return Ok(());
        };
        self.ranks = place.world;
        if !(2..=RANKS_MAX).contains(&place.world) {
            return Err(format!("expected a job of 2 to {RANKS_MAX} processes, got {}", place.world));
        }
        match self.ranks_asked.filter(|ranks| *ranks != place.world) {
            Some(ranks) => Err(format!(
                "--ranks {ranks}: expected {}, the processes of the job, or no --ranks: each process is a rank",
                place.world
            )),
            None => Ok(()),
        }
    }

    /// Whether this process prints and writes.
    pub fn is_first(&self) -> bool {
        self.place.as_ref().is_none_or(|place| place.rank == 0)
    }

    /// Nodes that the ranks cannot be on.
    fn wrong_nodes(&self) -> Result<(), String> {
        let ranks = self.ranks;
        if let Some(locals) = self.ranks_per_node.filter(|locals| !ranks.is_multiple_of(*locals)) {
            return Err(format!("--ranks-per-node: expected a divisor of the {ranks} ranks, got {locals}"));
        }
        let nodes = self.nodes();
        if ranks.is_multiple_of(nodes) {
            return Ok(());
        }
        Err(format!("--nodes: expected a divisor of the {ranks} ranks, got {nodes}"))
    }

    /// What cannot be, or would change nothing.
    fn wrong(&self) -> Option<String> {
        let bytes = self.wrong_nodes().and_then(|()| match self.mode {
            ModeKind::LowLatency => self.wrong_in_low_latency(),
            ModeKind::Normal => self.wrong_in_normal_mode(),
        });
        let bytes = match bytes {
            Ok(bytes) => bytes,
            Err(text) => return Some(text),
        };
        if bytes > HEAP_MAX {
            return Some(format!(
                "--ranks {}, --local-experts {}, --tokens {} and --hidden {} need a heap of {bytes} bytes a rank; \
                 expected at most {}",
                self.ranks,
                self.local_experts,
                self.tokens,
                self.hidden,
                show_size(HEAP_MAX)
            ));
        }
        if let (Trouble::None, Some(every)) = (&self.faults, self.every) {
            return Some(format!(
                "--every {} with --faults none: nothing goes wrong there; give --faults random, or leave --every \
                 out",
                format_time(every)
            ));
        }
        if let Some(path) = self.plot.as_ref().filter(|path| path.extension().is_none_or(|end| end != "svg"))
        {
            return Some(format!("--plot: expected a file that ends in .svg, got {}", path.display()));
        }
        let short = [("--every", self.every()), ("--timeout", self.timeout)];
        let (name, time) = short.into_iter().find(|(_, time)| *time < 1_000_000)?;
        Some(format!("{name}: expected at least 1ms, got {}", format_time(time)))
    }

    /// Bytes of the heap of low latency.
    fn wrong_in_low_latency(&self) -> Result<u64, String> {
        self.shape_or()
            .map(|shape| shape.bytes())
            .map_err(|error| format!("--hidden {}: {error}", self.hidden))
    }

    /// What normal mode does not have; else bytes of its heap.
    fn wrong_in_normal_mode(&self) -> Result<u64, String> {
        if self.signals == Some(SignalsKind::Cleared) {
            return Err("--signals cleared with --mode normal: all words there are absolute; give --mode low-latency, \
                        or leave --signals out"
                .into());
        }
        if self.format == FormatKind::Ue8m0 {
            return Err("--format: expected bf16, fp8 or all in normal mode, got ue8m0".into());
        }
        self.shape_or().map_err(|error| format!("--hidden {}: {error}", self.hidden))?;
        self.normal_or().map(|shape| shape.bytes()).map_err(|error| error.to_string())
    }

    /// Nodes that the ranks are on.
    pub fn nodes(&self) -> u32 {
        match (self.ranks_per_node, self.mode) {
            (Some(locals), _) => self.ranks / locals,
            (None, ModeKind::LowLatency) => self.nodes.unwrap_or(self.ranks),
            (None, ModeKind::Normal) => self.nodes.unwrap_or(NODES_DEFAULT),
        }
    }

    /// Ranks of a node.
    pub fn locals(&self) -> u32 {
        self.ranks / self.nodes()
    }

    /// Mean nanoseconds between two faults.
    pub fn every(&self) -> u64 {
        self.every.unwrap_or(EVERY_DEFAULT_NS)
    }

    /// What counts and flags are.
    pub fn signals(&self) -> Signals {
        self.signals.unwrap_or(SignalsKind::Absolute).into()
    }

    fn normal_or(&self) -> Result<NormalShape, BadNormalShape> {
        // Rings so small that all of them wrap within a few layers.
        let config = Config { sms: 2 * CHANNELS, nvl_slots: 8, rdma_chunk: 2, rdma_slots: 4 };
        let experts = (self.local_experts, self.topk);
        config.shape(self.nodes(), self.ranks / self.nodes(), experts, self.tokens, self.hidden).check()
    }

    /// The sizes of normal mode.
    ///
    /// # Panics
    /// Not where the options were read for it: they were checked then.
    pub fn normal_shape(&self) -> NormalShape {
        self.normal_or().expect("checked when they were read")
    }

    fn shape_or(&self) -> Result<Shape, shunt_layout::moe::BadShape> {
        Shape::new(self.ranks, self.ranks * self.local_experts, self.tokens, self.hidden)
    }

    /// The sizes.
    ///
    /// # Panics
    /// Not where the options were read: they were checked then.
    pub fn shape(&self) -> Shape {
        self.shape_or().expect("checked when they were read")
    }

    /// Formats, which take turns.
    pub fn formats(&self) -> &'static [Format] {
        match self.format {
            FormatKind::All if self.mode == ModeKind::Normal => &[Format::Bf16, Format::Fp8],
            FormatKind::Bf16 => &[Format::Bf16],
            FormatKind::Fp8 => &[Format::Fp8],
            FormatKind::Ue8m0 => &[Format::Fp8Exponents],
            FormatKind::All => &[Format::Bf16, Format::Fp8, Format::Fp8Rounded, Format::Fp8Exponents],
        }
    }

    /// The run in one line.
    pub fn describe(&self) -> String {
        let mode = match self.mode {
            ModeKind::LowLatency => "low latency".to_owned(),
            ModeKind::Normal => format!("normal mode on {} nodes", self.nodes()),
        };
        let faults = match &self.faults {
            Trouble::None => "no faults".to_owned(),
            trouble => format!("faults {trouble} every {}", show_time(self.every())),
        };
        format!(
            "moe_pressure: {mode}, {} ranks{} of 2 rails, {} layers of up to {} tokens of {} channels, {} experts, \
             top-{}, {faults}, seed {}",
            self.ranks,
            if self.place.is_some() { ", each a process," } else { "" },
            self.iters,
            self.tokens,
            self.hidden,
            self.ranks * self.local_experts,
            self.topk,
            self.seed
        )
    }
}
