//! The same of normal mode: two nodes of two ranks, rings so small that all of them wrap.

use super::{FAILS_BEFORE, LAYERS};
use crate::fault::MoeError;
use crate::layer::Wrongs;
use crate::normal::reference::NormalCase;
use crate::normal::{NormalBuffer, NormalRunner, layer};
use crate::reference::Case;
use crate::settings::Format;
use shunt_kernels::scenarios::Group;
use shunt_layout::moe::Shape;
use shunt_layout::moe_normal::NormalShape;

/// Layers among nodes.
#[derive(Clone, Debug)]
pub struct NormalScenario {
    /// What it is about.
    pub name: String,
    /// Sizes.
    pub shape: NormalShape,
    /// Experts of a token.
    pub topk: u32,
    /// How tokens travel.
    pub format: Format,
    /// Who acts in each block.
    pub group: Group,
    /// Blocks of a launch, at the same time: as many as there are channels, or less.
    pub blocks: u32,
    /// What happens to rank 0's first rail between two layers, as a soft NIC's fault is written.
    pub fault: Option<&'static str>,
}

/// Faults that are survived by a switch, and are noticed in three ways: by an event, an error completion, silence.
const FAULTS: [Option<&str>; 4] = [None, Some("down"), Some("cqe-error=0x15"), Some("blackhole-tx")];

/// All scenarios of a group of lanes.
pub fn of(group: Group) -> Vec<NormalScenario> {
    let mut out = Vec::new();
    for (format, blocks) in [(Format::Fp8, 2), (Format::Bf16, 3)] {
        for fault in FAULTS {
            let hurt = fault.map(|fault| format!(", {fault}")).unwrap_or_default();
            let name = format!("{format:?} between nodes by a {}{hurt}", group.suffix());
            let (local_experts, tokens, hidden, topk) = (2, 9, 512, 3);
            let (nodes, locals, channels, chunk, slots, near_slots) = (2, 2, 3, 2, 4, 3);
            let shape = NormalShape {
                nodes,
                locals,
                local_experts,
                tokens,
                hidden,
                topk,
                channels,
                chunk,
                slots,
                near_slots,
            };
            out.push(NormalScenario { name, shape, topk, format, group, blocks, fault });
        }
    }
    out
}

/// The list of a GPU.
pub fn all() -> Vec<NormalScenario> {
    [Group::Warp, Group::Block].into_iter().flat_map(of).collect()
}

impl NormalScenario {
    /// The same sizes, as low latency has them.
    pub fn low(&self) -> Shape {
        let shape = &self.shape;
        let experts = shape.experts() as u32;
        Shape::new(shape.ranks(), experts, shape.tokens, shape.hidden).expect("sizes of our own")
    }

    /// Input of each layer.
    pub fn cases(&self, seed: u64) -> Vec<NormalCase> {
        let case = |number| Case::random(self.low(), self.topk, self.format, number);
        let seeds = (seed.wrapping_mul(1000)..).take(LAYERS);
        seeds.map(|seed| NormalCase { case: case(seed), shape: self.shape }).collect()
    }

    /// One rank's part; `fail` is called before the layer in which rank 0's rail is hurt. Every second layer is
    /// repeated with other tokens that go the same ways. What is wrong.
    ///
    /// # Errors
    /// A fault.
    pub fn play<R: NormalRunner>(
        &self,
        buffer: &mut NormalBuffer<R>,
        cases: &[NormalCase],
        mut fail: impl FnMut(&str),
    ) -> Result<Wrongs, MoeError> {
        let mut wrongs = Vec::new();
        for (number, case) in cases.iter().enumerate() {
            if let (FAILS_BEFORE, Some(fault)) = (number, self.fault) {
                fail(fault);
            }
            let (wrong, handle) = layer::run(buffer, case)?;
            wrongs.extend(wrong);
            if number % 2 == 1 {
                let again = NormalCase { case: case.case.again(number as u64), ..case.clone() };
                wrongs.extend(layer::run_cached(buffer, &again, &handle)?);
            }
        }
        buffer.settle()?;
        Ok(wrongs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_their_own_and_shapes_can_be() {
        let mut names: Vec<String> = all().into_iter().map(|scenario| scenario.name).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!((names.len(), count), (16, 16));
        for scenario in all() {
            scenario.shape.check().unwrap();
            assert!(scenario.blocks <= scenario.shape.channels && scenario.cases(7).len() == LAYERS);
        }
    }
}
