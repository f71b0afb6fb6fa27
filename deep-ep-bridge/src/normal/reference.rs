//! What a dispatch and a combine of normal mode must give, said again without rings.

use crate::reference::{Case, Sent, expert, nearest_bf16, value};
use shunt_layout::moe_normal::NormalShape;

/// A row that a rank receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Where its token is from.
    pub source: u32,
    /// The token there.
    pub token: u32,
}

/// One layer's input on all ranks, and the nodes they are on.
#[derive(Clone, Debug)]
pub struct NormalCase {
    /// Tokens, routes and weights.
    pub case: Case,
    /// Sizes.
    pub shape: NormalShape,
}

/// A channel of a combined token: its bits, how far it may be from the exact sum, and that.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Combined {
    /// Summed as kernels do: ranks of a node in their order, rounded, then nodes.
    pub bits: u16,
    /// Half a step of BF16 for each of the two roundings, and one of 32 bits for each sum.
    pub bound: f64,
    /// The sum without any rounding.
    pub exact: f64,
}

impl NormalCase {
    /// Experts of a token.
    pub fn route(&self, source: u32, token: u32) -> &[i64] {
        let topk = self.case.topk as usize;
        &self.case.topk_index[source as usize][token as usize * topk..][..topk]
    }

    /// Whether a token goes to a rank.
    pub fn goes(&self, source: u32, token: u32, rank: u32) -> bool {
        let own = self.experts_of(rank);
        self.route(source, token).iter().any(|index| own.contains(index))
    }

    /// A rank's experts.
    pub fn experts_of(&self, rank: u32) -> std::ops::Range<i64> {
        let count = i64::from(self.shape.local_experts);
        i64::from(rank) * count..(i64::from(rank) + 1) * count
    }

    /// The rows that a rank receives, in their order.
    pub fn rows(&self, rank: u32) -> Vec<Row> {
        let tokens =
            |source: u32| (0..self.case.tokens(source) as u32).map(move |token| Row { source, token });
        let all = (0..self.shape.ranks()).flat_map(tokens);
        all.filter(|row| self.goes(row.source, row.token, rank)).collect()
    }

    /// A token as it travels.
    pub fn sent(&self, row: Row) -> &Sent {
        self.case.sent(row.source, row.token)
    }

    /// What a rank makes of a channel of a row.
    pub fn made(&self, rank: u32, channel: f32) -> u16 {
        expert(u64::from(rank), channel)
    }

    /// What a rank gets back for its tokens.
    pub fn combined(&self, source: u32) -> Vec<Combined> {
        let mut out = Vec::new();
        for token in 0..self.case.tokens(source) as u32 {
            let ranks: Vec<u32> =
                (0..self.shape.ranks()).filter(|rank| self.goes(source, token, *rank)).collect();
            for channel in &self.case.sent(source, token).values {
                out.push(self.sum(&ranks, f32::from_bits(*channel)));
            }
        }
        out
    }

    fn sum(&self, ranks: &[u32], channel: f32) -> Combined {
        let (mut all, mut exact, mut size, mut bound) = (0f32, 0f64, 0f64, 1e-30);
        for node in 0..self.shape.nodes {
            let of_node = ranks.iter().filter(|rank| *rank / self.shape.locals == node);
            let mut sum = 0f32;
            let mut any = false;
            for rank in of_node {
                let part = value(self.made(*rank, channel));
                (sum, any) = (sum + part, true);
                (exact, size) = (exact + f64::from(part), size + f64::from(part.abs()));
            }
            if any {
                all += value(nearest_bf16(f64::from(sum)));
                bound += f64::from(sum.abs()) / 256.0;
            }
        }
        bound += f64::from(all.abs()) / 256.0 + size * (ranks.len() + 1) as f64 / 8_388_608.0;
        Combined { bits: nearest_bf16(f64::from(all)), bound, exact }
    }

    /// Weights that a rank gets back: those of experts that there are.
    pub fn weights(&self, source: u32) -> Vec<f32> {
        let (routes, weights) =
            (&self.case.topk_index[source as usize], &self.case.topk_weights[source as usize]);
        routes.iter().zip(weights).map(|(index, weight)| if *index < 0 { 0.0 } else { *weight }).collect()
    }

    /// Tokens that a rank sends to `ranks`, each counted once.
    pub fn count(&self, source: u32, ranks: std::ops::Range<u32>) -> u32 {
        let goes = |token: &u32| ranks.clone().any(|rank| self.goes(source, *token, rank));
        (0..self.case.tokens(source) as u32).filter(goes).count() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::normal::Config;
    use crate::settings::Format;
    use shunt_layout::moe::Shape;

    #[test]
    fn sums_of_few_are_exact_and_all_are_within_their_bound() {
        let config = Config { sms: 4, nvl_slots: 2, rdma_chunk: 2, rdma_slots: 4 };
        let shape = config.shape(2, 2, (2, 4), 6, 512);
        let low = Shape::new(4, 8, 6, 512).unwrap();
        let mut summed = 0;
        for seed in 0..20 {
            let case = NormalCase { case: Case::random(low, 4, Format::Bf16, seed), shape };
            for rank in 0..4 {
                for Combined { bits, bound, exact } in case.combined(rank) {
                    assert!(
                        (f64::from(value(bits)) - exact).abs() <= bound,
                        "{bits:#x}, {exact:e}, {bound:e}"
                    );
                    summed += 1;
                }
                assert!(
                    case.rows(rank)
                        .windows(2)
                        .all(|two| (two[0].source, two[0].token) < (two[1].source, two[1].token))
                );
            }
        }
        assert!(summed > 10_000);
    }
}
