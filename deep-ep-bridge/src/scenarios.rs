//! What MoE kernels must compute: one list for whatever can launch them, a simulated cluster whose warps are coroutines
//! or a GPU. Each scenario is a few layers among all ranks, every byte of which is held against the reference.

pub mod normal;

use crate::buffer::Buffer;
use crate::fault::MoeError;
use crate::layer::{self, Manner, Wrongs};
use crate::reference::Case;
use crate::runner::Runner;
use crate::settings::{Format, Signals};
use crate::staged::Mode;
use shunt_kernels::scenarios::Group;
use shunt_layout::moe::Shape;

/// Layers among ranks.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// What it is about.
    pub name: String,
    /// Sizes.
    pub shape: Shape,
    /// Experts of a token.
    pub topk: u32,
    /// How tokens travel.
    pub format: Format,
    /// Who acts in each block.
    pub group: Group,
    /// Blocks of a launch, at the same time.
    pub blocks: u32,
    /// How counts and flags travel.
    pub signals: Signals,
    /// Ranks of a node, which reach each other's heaps.
    pub locals: u32,
    /// How phases are run.
    pub mode: Mode,
    /// Rank 0's first port fails between two layers.
    pub fails: bool,
}

/// Layers of a scenario.
pub const LAYERS: usize = 4;
/// Before which of them the port fails.
pub const FAILS_BEFORE: usize = 1;
const _: () = assert!(FAILS_BEFORE < LAYERS);

/// All scenarios of a group of lanes.
pub fn of(group: Group) -> Vec<Scenario> {
    let mut out = Vec::new();
    for (ranks, locals) in [(2, 1), (4, 1), (4, 2)] {
        for (format, signals) in [(Format::Fp8, Signals::Cleared), (Format::Bf16, Signals::Absolute)] {
            for (mode, fails) in
                [(Mode::Launch, false), (Mode::Launch, true), (Mode::Graph, false), (Mode::Graph, true)]
            {
                if locals > 1 && !fails {
                    continue;
                }
                let how = if mode == Mode::Graph { ", replayed" } else { "" };
                let port = if fails { ", while a port fails" } else { "" };
                let nodes = if locals > 1 { format!(", {locals} a node,") } else { String::new() };
                let name =
                    format!("{format:?} among {ranks} ranks{nodes} by a {}{how}{port}", group.suffix());
                let shape = Shape::new(ranks, 2 * ranks, 4, 512).expect("sizes of our own");
                let (topk, blocks) = (3, 3);
                out.push(Scenario { name, shape, topk, format, group, blocks, signals, locals, mode, fails });
            }
        }
    }
    out
}

/// The list of a GPU.
pub fn all() -> Vec<Scenario> {
    [Group::Warp, Group::Block].into_iter().flat_map(of).collect()
}

impl Scenario {
    /// Input of each layer. A graph has as many tokens each time.
    pub fn cases(&self, seed: u64) -> Vec<Case> {
        let ranks = self.shape.ranks;
        let whole = |case: &Case| (0..ranks).all(|rank| case.tokens(rank) == self.shape.tokens as usize);
        let seeds = seed.wrapping_mul(1000)..;
        let cases = seeds.map(|seed| Case::random(self.shape, self.topk, self.format, seed));
        cases.filter(|case| self.mode == Mode::Launch || whole(case)).take(LAYERS).collect()
    }

    /// One rank's part; `before` is called before each layer. What is wrong.
    ///
    /// # Errors
    /// A fault.
    pub fn play<R: Runner>(
        &self,
        buffer: &mut Buffer<R>,
        cases: &[Case],
        mut before: impl FnMut(usize),
    ) -> Result<Wrongs, MoeError> {
        let mut wrongs = Vec::new();
        for (number, case) in cases.iter().enumerate() {
            before(number);
            let manner = match self.mode {
                // The second one meets the port that fails.
                Mode::Launch => [Manner::ZeroCopy, Manner::LogFmt, Manner::Copied][number % 3],
                // Where what experts made lies is the same at each replay.
                Mode::Graph => Manner::Copied,
            };
            wrongs.extend(layer::run(buffer, case, manner)?);
        }
        Ok(wrongs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_their_own() {
        let mut names: Vec<String> = all().into_iter().map(|scenario| scenario.name).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!((names.len(), count), (40, 40));
    }

    #[test]
    fn a_graph_has_as_many_tokens_each_time() {
        for scenario in all().iter().filter(|scenario| scenario.mode == Mode::Graph) {
            for case in scenario.cases(7) {
                assert!((0..scenario.shape.ranks).all(|rank| case.tokens(rank) == 4), "{}", scenario.name);
            }
        }
    }
}
