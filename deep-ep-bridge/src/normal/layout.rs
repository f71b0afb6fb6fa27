//! Which token goes where: found by the experts of each, or told by the caller.

use super::{NormalBuffer, NormalRunner};
use crate::buffer::argument;
use crate::fault::MoeError;
use shunt_kernels::moe::normal::{NormalCall, NormalKernel};
use shunt_layout::moe_normal::NOWHERE;

/// Which token goes where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Tokens to each rank.
    pub rank_counts: Vec<u32>,
    /// Tokens to each node.
    pub node_counts: Vec<u32>,
    /// Tokens to each expert.
    pub expert_counts: Vec<u32>,
    /// By token and rank: the row among all that go there from here.
    pub(super) position: Vec<u32>,
    pub(super) buffer: u64,
    pub(super) tokens: u32,
    pub(super) topk: u32,
}

impl Layout {
    /// Whether a token goes to a rank.
    pub fn is_token_in_rank(&self, token: usize, rank: usize) -> bool {
        let ranks = self.rank_counts.len();
        rank < ranks && self.position.get(token * ranks + rank).is_some_and(|row| *row != NOWHERE)
    }
}

impl<R: NormalRunner> NormalBuffer<R> {
    /// DeepEP's `get_dispatch_layout`: which token goes where, by its `topk` experts. All ranks have as many experts a
    /// token, those without tokens as well.
    ///
    /// # Errors
    /// Arguments that cannot be.
    pub fn dispatch_layout(&mut self, topk: u32, topk_index: &[i64]) -> Result<Layout, MoeError> {
        let tokens = self.check_topk(topk, topk_index)?;
        let shape = self.shape;
        let mut layout = Layout {
            rank_counts: vec![0; shape.ranks() as usize],
            node_counts: vec![0; shape.nodes as usize],
            expert_counts: vec![0; shape.experts() as usize],
            position: vec![NOWHERE; tokens * shape.ranks() as usize],
            buffer: self.made,
            tokens: tokens as u32,
            topk,
        };
        let call = NormalCall {
            topk_index: topk_index.as_ptr() as u64,
            rank_counts: layout.rank_counts.as_mut_ptr() as u64,
            node_counts: layout.node_counts.as_mut_ptr() as u64,
            expert_counts: layout.expert_counts.as_mut_ptr() as u64,
            position: layout.position.as_mut_ptr() as u64,
            tokens: layout.tokens,
            topk,
            ..self.call()
        };
        self.run(NormalKernel::Layout, &call)?;
        Ok(layout)
    }

    /// The same where the caller knows it: by token and rank whether the one goes to the other. What it says of experts
    /// is told to those that receive, as it is. Such a dispatch may have no experts and weights: `topk` 0.
    ///
    /// # Errors
    /// Arguments that cannot be.
    pub fn layout_of(
        &self,
        is_token_in_rank: &[bool],
        expert_counts: &[u32],
        topk: u32,
    ) -> Result<Layout, MoeError> {
        let (shape, ranks) = (self.shape, self.shape.ranks() as usize);
        let tokens = is_token_in_rank.len() / ranks;
        if !is_token_in_rank.len().is_multiple_of(ranks) {
            let right = format!("a multiple of {ranks}, the ranks there are");
            return Err(argument("answers whether a token goes to a rank", is_token_in_rank.len(), right));
        }
        self.check_tokens(tokens)?;
        if expert_counts.len() as u64 != shape.experts() {
            return Err(argument("counts of experts", expert_counts.len(), shape.experts()));
        }
        if let Some(count) = expert_counts.iter().find(|count| **count as usize > tokens) {
            let right = format!("{tokens} at most, the tokens there are");
            return Err(argument("tokens to an expert", count, right));
        }
        let (mut rank_counts, mut node_counts) = (vec![0; ranks], vec![0; shape.nodes as usize]);
        let mut position = vec![NOWHERE; tokens * ranks];
        for (goes, rows) in is_token_in_rank.chunks_exact(ranks).zip(position.chunks_exact_mut(ranks)) {
            for (rank, row) in rows.iter_mut().enumerate().filter(|(rank, _)| goes[*rank]) {
                *row = rank_counts[rank];
                rank_counts[rank] += 1;
            }
            let nodes = goes.chunks_exact(shape.locals as usize).zip(&mut node_counts);
            nodes.for_each(|(goes, count)| *count += u32::from(goes.contains(&true)));
        }
        let (expert_counts, buffer) = (expert_counts.to_vec(), self.made);
        Ok(Layout { rank_counts, node_counts, expert_counts, position, buffer, tokens: tokens as u32, topk })
    }
}
