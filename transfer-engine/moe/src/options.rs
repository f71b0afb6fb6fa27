//! The command line. Whatever cannot be honoured is refused, never ignored.

use clap::Parser;
use shunt_figures::units::{show_size, whole};
use shunt_layout::moe::{Shape, TOPK_MAX};
use shunt_moe_proxy::buffers::Buffers;
use shunt_transfer_engine::shard::PIECE_MIN;
use shunt_transfer_program::NicOptions;
use shunt_transfer_program::alike::{Alike, given, option};
use shunt_transfer_program::start::Checked;

/// moe_proxy: ranks dispatch the tokens of MoE layers to experts and combine what comes back, layer by layer, through a
/// proxy on the host, while ports fail. Every byte and every value is checked.
///
/// Alone it runs all ranks in one process. Under `shunt run -n RANKS` each rank is a process of its own; all get the
/// same command line. Kernels run on the processor.
#[derive(Parser, Clone, Debug)]
#[command(name = "moe_proxy", version)]
#[command(
    max_term_width = 80,
    after_help = "Exit status: 0 clean, 1 a promise was broken or a fault hit nothing, 2 bad usage, 3 no rail to a \
                  rank was left, or the fate of a write is not known. Figures are wall time on what `clock` in the \
                  verdict names."
)]
pub struct Options {
    /// Ranks
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = whole(2..=32))]
    pub ranks: u32,
    /// Layers
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = whole(1..=1_000_000))]
    pub layers: u32,
    /// Tokens of a rank in a layer, at most
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = whole(1..=8192))]
    pub tokens: u32,
    /// Channels of a token, BF16; a multiple of 512
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = whole(512..=16_384))]
    pub hidden: u32,
    /// Experts of all ranks; a multiple of them
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = whole(1..=1024))]
    pub experts: u32,
    /// Experts of a token, at most
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = whole(1..=TOPK_MAX))]
    pub top_k: u32,
    /// Rows for a rank that are sent before the routes are known, to a buffer of their source's own
    #[arg(long, value_name = "N", default_value_t = 24, value_parser = whole(0..=1024))]
    pub private: u32,
    /// A run for each of several private buffers, and a table: no faults, and --private is not used
    #[arg(long)]
    pub private_sweep: bool,
    /// Seed of tokens and routes
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Rails, NICs, faults, and the file of the verdict
    #[command(flatten)]
    pub nics: NicOptions,
}

/// Most bytes of all ranks together, and channels of a layer.
const MEMORY_MAX: u64 = 32 << 30;
const CHANNELS_MAX: u64 = 1 << 26;
/// Most seconds that a rank may send in a layer, at the rate of its rails.
const LAYER_MAX_S: f64 = 5.0;

impl Options {
    /// Where everything lies.
    ///
    /// # Errors
    /// Sizes that do not go together.
    pub fn buffers(&self) -> Result<Buffers, String> {
        let shape = Shape::new(self.ranks, self.experts, self.tokens, self.hidden);
        let shape = shape.map_err(|bad| bad.to_string())?;
        let (rails, piece_min) = (self.nics.rails(), PIECE_MIN);
        Ok(Buffers { shape, topk: self.top_k, private: self.private, rails, piece_min })
    }
}

impl Checked for Options {
    fn nics(&self) -> &NicOptions {
        &self.nics
    }

    fn own_alike(&self) -> Alike {
        vec![
            option("--ranks", self.ranks),
            option("--layers", self.layers),
            option("--tokens", self.tokens),
            option("--hidden", self.hidden),
            option("--experts", self.experts),
            option("--top-k", self.top_k),
            option("--private", self.private),
            given("--private-sweep", self.private_sweep),
            option("--seed", self.seed),
        ]
    }

    fn check(&self) -> Result<(), String> {
        let buffers = self.buffers()?;
        if self.top_k > self.experts {
            return Err(format!("--top-k: expected at most {} experts, got {}", self.experts, self.top_k));
        }
        let channels = u64::from(self.ranks) * u64::from(self.tokens) * u64::from(self.hidden);
        if channels > CHANNELS_MAX {
            let why = format!("expected at most {CHANNELS_MAX} channels of a layer, got {channels}");
            return Err(format!("--tokens and --hidden: {why}"));
        }
        let memory = u64::from(self.ranks) * (buffers.receive_bytes() + buffers.send_bytes());
        if memory > MEMORY_MAX {
            let (most, met) = (show_size(MEMORY_MAX), show_size(memory));
            return Err(format!("--tokens: expected at most {most} at all ranks together, got {met}"));
        }
        let gbps = self.nics.rail_gbps.unwrap_or(1.0) * f64::from(self.nics.rails());
        let seconds = (2 * buffers.own_rows() * buffers.row_bytes()) as f64 * 8e-9 / gbps;
        if seconds > LAYER_MAX_S {
            return Err(format!(
                "--tokens: expected a layer of at most {LAYER_MAX_S} s at the rate of the rails, got {seconds:.0} s; \
                 take fewer --tokens or a higher --rail-gbps"
            ));
        }
        if let Some(fault) = self.nics.inject.first().filter(|_| self.private_sweep) {
            return Err(format!("--private-sweep: expected no faults, got --inject {fault}"));
        }
        self.nics.check_faults(self.ranks)
    }
}
