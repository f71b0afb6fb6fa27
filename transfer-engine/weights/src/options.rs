//! The command line. Whatever cannot be honoured is refused, never ignored.

use clap::{Parser, ValueEnum};
use shunt_figures::units::{parse_size, show_size, whole};
use shunt_transfer_program::NicOptions;
use shunt_transfer_program::alike::{Alike, given, option, word};
use shunt_transfer_program::start::Checked;
use shunt_weight_sync::stages::Rounding;

/// The way of the weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Each trainer writes its share to all servers.
    P2p,
    /// All goes through trainer 0: the others write to it, then it writes to all servers.
    Rank0,
    /// Rank 0, then p2p, and the ratio of their rates.
    Both,
}

/// What a server holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Copies {
    /// All parameters.
    Full,
    /// Of each parameter as much as any other server.
    Shard,
}

/// What is done to weights on their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Change {
    /// Nothing.
    Keep,
    /// fp32 becomes bf16.
    Bf16,
}

/// weight_sync: trainers write their weights straight into the memory of servers, step by step, while ports fail, and
/// the servers check every byte and every immediate.
///
/// Ends are numbered: the trainers from 0 on, then the servers. Alone it runs all of them in one process. Under `shunt
/// run -n ENDS` each end is a process of its own; all get the same command line.
#[derive(Parser, Clone, Debug)]
#[command(name = "weight_sync", version)]
#[command(
    max_term_width = 80,
    after_help = "Exit status: 0 clean, 1 a promise was broken or a fault hit nothing, 2 bad usage, 3 no rail to an \
                  end was left, or the fate of a write is not known. Figures are wall time on what `clock` in the \
                  verdict names."
)]
pub struct Options {
    /// Ends that hold weights
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = whole(1..=64))]
    pub trainers: u32,
    /// Ends that get them
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = whole(1..=64))]
    pub servers: u32,
    /// Parameters
    #[arg(long, value_name = "N", default_value_t = 24, value_parser = whole(1..=100_000))]
    pub params: u32,
    /// Bytes of all parameters together, as trainers hold them
    #[arg(long, value_name = "SIZE", default_value = "32M", value_parser = parse_size)]
    pub bytes: u64,
    /// Steps of p2p without faults, and with them. Each has other bytes [default: 12]
    #[arg(long, value_name = "N", value_parser = whole(1..=1000))]
    pub steps: Option<u32>,
    /// Steps through rank 0, which are slow [default: as --steps, beside p2p 4 at most]
    #[arg(long, value_name = "N", value_parser = whole(1..=1000))]
    pub rank0_steps: Option<u32>,
    /// The way of the weights
    #[arg(long, value_enum, default_value = "both")]
    pub mode: Mode,
    /// Trainers that hold the same bytes; trainers are a multiple of it [default: 2, or 1 for an odd number of them]
    #[arg(long, value_name = "N", value_parser = whole(1..=64))]
    pub replicas: Option<u32>,
    /// What a server holds
    #[arg(long, value_enum, default_value = "full")]
    pub copies: Copies,
    /// What is done to weights on their way
    #[arg(long, value_enum, default_value = "keep")]
    pub change: Change,
    /// Most bytes of one write
    #[arg(long, value_name = "SIZE", default_value = "256K", value_parser = parse_size)]
    pub piece: u64,
    /// Most bytes of a trainer that are fetched or staged at once
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = parse_size)]
    pub watermark: u64,
    /// Rails, NICs, faults, and the file of the verdict
    #[command(flatten)]
    pub nics: NicOptions,
}

/// Bytes that a parameter is a multiple of.
pub const UNIT: u64 = 64;
/// The largest parameter is so many times the smallest one.
const SPREAD: u64 = 8;
/// Most bytes of the model, and of what ends hold of it together.
const BYTES_MAX: u64 = 4 << 30;
const MEMORY_MAX: u64 = 64 << 30;
/// Steps of p2p where nothing else is asked for.
const STEPS: u32 = 12;
/// Most steps through rank 0 beside p2p where nothing else is asked for.
const RANK0_STEPS: u32 = 4;
/// No step may take longer, at the rate of its rails.
const STEP_MAX_S: f64 = 30.0;

impl Options {
    /// Trainers that hold the same bytes.
    pub fn replicas(&self) -> u32 {
        self.replicas.unwrap_or(if self.trainers.is_multiple_of(2) { 2 } else { 1 })
    }

    /// Steps of p2p.
    pub fn steps(&self) -> u32 {
        self.steps.unwrap_or(STEPS)
    }

    /// Steps through rank 0.
    pub fn rank0_steps(&self) -> u32 {
        let most = if self.mode == Mode::Rank0 { u32::MAX } else { RANK0_STEPS };
        self.rank0_steps.unwrap_or(self.steps().min(most))
    }

    /// All ends.
    pub fn ends(&self) -> u32 {
        self.trainers + self.servers
    }

    /// What is done to weights on their way.
    pub fn rounding(&self) -> Rounding {
        match self.change {
            Change::Keep => Rounding::Keep,
            Change::Bf16 => Rounding::Bf16,
        }
    }

    fn check_bytes(&self) -> Result<(), String> {
        let (bytes, params) = (self.bytes, u64::from(self.params));
        let least = params * UNIT * SPREAD;
        if !(least..=BYTES_MAX).contains(&bytes) {
            let (least, most) = (show_size(least), show_size(BYTES_MAX));
            let met = show_size(bytes);
            return Err(format!("--bytes: expected {least} to {most} for {params} parameters, got {met}"));
        }
        let copies = if self.copies == Copies::Full { u64::from(self.servers) } else { 1 };
        let all =
            bytes * (copies + u64::from(self.replicas()) + 1) + self.watermark * u64::from(self.trainers);
        if all > MEMORY_MAX {
            let (most, met) = (show_size(MEMORY_MAX), show_size(all));
            return Err(format!("--bytes: expected at most {most} at all ends together, got {met}"));
        }
        // Rank 0 writes all copies over its own rails. Ends that are done wait a minute for it.
        let gbps = self.nics.rail_gbps.unwrap_or(1.0) * f64::from(self.nics.rails());
        let widest = if self.mode == Mode::P2p { copies.div_ceil(self.trainers.into()) } else { copies };
        let seconds = (bytes * widest.max(1)) as f64 * 8e-9 / gbps;
        if seconds > STEP_MAX_S {
            return Err(format!(
                "--bytes: expected a step of at most {STEP_MAX_S} s at the rate of the rails, got {seconds:.0} s; take \
                 fewer --bytes or a higher --rail-gbps"
            ));
        }
        Ok(())
    }
}

impl Checked for Options {
    fn nics(&self) -> &NicOptions {
        &self.nics
    }

    fn own_alike(&self) -> Alike {
        vec![
            option("--trainers", self.trainers),
            option("--servers", self.servers),
            option("--params", self.params),
            option("--bytes", show_size(self.bytes)),
            option("--steps", self.steps()),
            option("--rank0-steps", self.rank0_steps()),
            word("--mode", &self.mode),
            option("--replicas", self.replicas()),
            word("--copies", &self.copies),
            word("--change", &self.change),
            option("--piece", show_size(self.piece)),
            // With faults there are steps more.
            given("--inject", !self.nics.inject.is_empty()),
        ]
    }

    fn check(&self) -> Result<(), String> {
        let (trainers, replicas) = (self.trainers, self.replicas());
        if !trainers.is_multiple_of(replicas) {
            return Err(format!("--replicas: expected a divisor of {trainers} trainers, got {replicas}"));
        }
        if self.piece < UNIT || !self.piece.is_multiple_of(UNIT) || self.piece > 1 << 30 {
            let met = show_size(self.piece);
            return Err(format!("--piece: expected a multiple of {UNIT} up to 1G, got {met}"));
        }
        let least = 2 * self.piece;
        if self.watermark < least {
            let (least, met) = (show_size(least), show_size(self.watermark));
            let piece = show_size(self.piece);
            return Err(format!(
                "--watermark: expected at least {least}, a piece of {piece} fetched and staged, got {met}"
            ));
        }
        match (self.mode, self.rank0_steps) {
            (Mode::P2p, Some(steps)) => {
                return Err(format!("--rank0-steps {steps}: expected --mode both or rank0, got p2p"));
            }
            (Mode::Rank0, Some(_)) => self.steps.map_or(Ok(()), |steps| {
                Err(format!("--steps: expected none with --mode rank0 and --rank0-steps, got {steps}"))
            })?,
            _ => {}
        }
        self.check_bytes()?;
        self.nics.check_faults(self.ends())
    }
}
