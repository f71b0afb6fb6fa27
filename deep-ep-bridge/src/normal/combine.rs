//! DeepEP's `combine` of normal mode.

use super::data::{NormalCombined, NormalHandle};
use super::{NormalBuffer, NormalRunner};
use crate::buffer::{aligned, argument};
use crate::fault::MoeError;
use shunt_kernels::moe::normal::{NormalCall, NormalKernel};
use shunt_layout::moe_normal::CallTerms;

impl<R: NormalRunner> NormalBuffer<R> {
    /// DeepEP's `combine`: `x` is what was made of the rows of a dispatch, and is summed for each token; weights of
    /// rows as well, if there are any.
    ///
    /// # Errors
    /// As [`dispatch`](Self::dispatch).
    pub fn combine(
        &mut self,
        x: &[u16],
        topk_weights: Option<&[f32]>,
        handle: &NormalHandle,
    ) -> Result<NormalCombined, MoeError> {
        self.combine_biased(x, topk_weights, [None, None], handle)
    }

    /// The same, with biases: BF16 by token, added behind the sum of all nodes, before it is rounded.
    ///
    /// # Errors
    /// As [`dispatch`](Self::dispatch).
    pub fn combine_biased(
        &mut self,
        x: &[u16],
        topk_weights: Option<&[f32]>,
        biases: [Option<&[u16]>; 2],
        handle: &NormalHandle,
    ) -> Result<NormalCombined, MoeError> {
        self.own("the handle", handle.buffer)?;
        let (rows, hidden) = (handle.rows(), self.shape.hidden as usize);
        if x.len() != rows * hidden {
            return Err(argument("channels of all rows", x.len(), rows * hidden));
        }
        let topk = if topk_weights.is_some() { handle.topk as usize } else { 0 };
        let weights = topk_weights.unwrap_or_default();
        if weights.len() != rows * topk {
            let right = format!("{topk} for each of {rows} rows");
            return Err(argument("topk weights", weights.len(), right));
        }
        let tokens = handle.tokens as usize;
        if let Some(bias) = biases.iter().flatten().find(|bias| bias.len() != tokens * hidden) {
            return Err(argument("channels of a bias", bias.len(), tokens * hidden));
        }
        let (mut handle, copied) = (handle.clone(), aligned(x));
        let copies = biases.map(|bias| bias.and_then(aligned));
        let mut out = vec![0u64; tokens * hidden / 4];
        let mut out_weights = vec![0f32; tokens * topk];
        let some = |at: u64, count: usize| if count > 0 { at } else { 0 };
        let call = NormalCall {
            x: at(x, &copied),
            biases: [0, 1].map(|number| biases[number].map_or(0, |bias| at(bias, &copies[number]))),
            topk_weights: some(weights.as_ptr() as u64, weights.len()),
            out: out.as_mut_ptr() as u64,
            out_weights: some(out_weights.as_mut_ptr() as u64, out_weights.len()),
            topk: topk as u32,
            terms: CallTerms::combine(topk_weights.is_some()).bits(),
            ..self.with(&mut handle)
        };
        self.run(NormalKernel::Combine, &call)?;
        let four = |word: u64| [word as u16, (word >> 16) as u16, (word >> 32) as u16, (word >> 48) as u16];
        Ok(NormalCombined { x: out.into_iter().flat_map(four).collect(), topk_weights: out_weights })
    }
}

/// The address of channels, or of their copy at whole words.
fn at(x: &[u16], copy: &Option<Vec<u64>>) -> u64 {
    copy.as_ref().map_or(x.as_ptr() as u64, |words| words.as_ptr() as u64)
}
