//! How large rings are, and how many.

use shunt_layout::moe_normal::NormalShape;

/// DeepEP's `Config`: SMs, and slots of rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// SMs: two for each channel there, a block for each channel here.
    pub sms: u32,
    /// Slots of a ring inside a node.
    pub nvl_slots: u32,
    /// Slots that one put brings at most.
    pub rdma_chunk: u32,
    /// Slots of a ring between nodes.
    pub rdma_slots: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self { sms: 20, nvl_slots: 256, rdma_chunk: 6, rdma_slots: 256 }
    }
}

impl Config {
    /// The shape of a job with such rings. Slots between nodes are rounded up to whole chunks, two at least.
    pub const fn shape(
        &self,
        nodes: u32,
        locals: u32,
        experts: (u32, u32),
        tokens: u32,
        hidden: u32,
    ) -> NormalShape {
        let (local_experts, topk) = experts;
        let chunk = if self.rdma_chunk == 0 { 1 } else { self.rdma_chunk };
        let least = chunk.saturating_mul(2);
        let slots = if self.rdma_slots < least { least } else { self.rdma_slots.next_multiple_of(chunk) };
        let channels = if self.sms < 2 { 1 } else { self.sms / 2 };
        NormalShape {
            nodes,
            locals,
            local_experts,
            tokens,
            hidden,
            topk,
            channels,
            chunk,
            slots,
            near_slots: self.nvl_slots,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_whole_chunks_two_at_least() {
        let of = |rdma_chunk, rdma_slots| {
            let config = Config { rdma_chunk, rdma_slots, ..Config::default() };
            let shape = config.shape(2, 4, (2, 4), 16, 512).check().expect("a shape that can be");
            (shape.chunk, shape.slots, shape.channels)
        };
        assert_eq!(
            [of(20, 128), of(8, 128), of(6, 1), of(0, 0)],
            [(20, 140, 10), (8, 128, 10), (6, 12, 10), (1, 2, 10)]
        );
    }
}
