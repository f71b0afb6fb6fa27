//! Which bytes of a prefiller's cache go to which bytes of a decoder's, where the two split the heads otherwise. Pure.
//!
//! MLA has one latent vector for all heads: every rank holds all of it, and any prefiller rank can write all pages. GQA
//! splits KV heads over the ranks of tensor parallelism. Pages lie head first, so that what two ranks share is one run
//! of bytes in each page.

use thiserror::Error;

/// How heads are split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Not at all.
    Mla,
    /// KV heads over ranks, the same number at each rank of a side.
    Gqa {
        /// KV heads of the model.
        heads: u32,
        /// Ranks of the prefillers.
        tp_from: u32,
        /// Ranks of the decoders.
        tp_to: u32,
    },
}

/// One run of bytes in each page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Rank that writes it.
    pub from: u32,
    /// Rank whose page it is.
    pub to: u32,
    /// First byte in the writer's page.
    pub from_at: u64,
    /// First byte in the other one.
    pub to_at: u64,
    /// Bytes.
    pub len: u64,
}

/// A split that cannot be.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{what}: expected {want}, got {got}")]
pub struct NoLayout {
    /// Of what.
    pub what: &'static str,
    /// What would do.
    pub want: &'static str,
    /// What there was.
    pub got: String,
}

impl Layout {
    /// The runs that fill the pages of every decoder rank, each byte once. `page_len` is that of the whole model: a
    /// rank holds its share of it.
    ///
    /// # Errors
    /// Ranks do not divide the heads, or heads the page.
    pub fn runs(self, page_len: u64) -> Result<Vec<Run>, NoLayout> {
        let (heads, tp_from, tp_to) = match self {
            Self::Mla => return Ok(vec![Run { from: 0, to: 0, from_at: 0, to_at: 0, len: page_len }]),
            Self::Gqa { heads, tp_from, tp_to } => (heads, tp_from, tp_to),
        };
        for (what, ranks) in [("ranks of prefillers", tp_from), ("ranks of decoders", tp_to)] {
            if ranks == 0 || !heads.is_multiple_of(ranks) {
                return Err(NoLayout {
                    what,
                    want: "a divisor of the KV heads",
                    got: format!("{ranks} of {heads}"),
                });
            }
        }
        if heads == 0 || page_len == 0 || !page_len.is_multiple_of(heads.into()) {
            let (what, want) = ("bytes of a page", "a multiple of the KV heads");
            return Err(NoLayout { what, want, got: format!("{page_len} for {heads}") });
        }
        let head = page_len / u64::from(heads);
        let (each_from, each_to) = (heads / tp_from, heads / tp_to);
        let mut runs = Vec::new();
        let mut at = 0;
        while at < heads {
            let (from, to) = (at / each_from, at / each_to);
            let next = ((from + 1) * each_from).min((to + 1) * each_to);
            let bytes = |heads: u32| u64::from(heads) * head;
            runs.push(Run {
                from,
                to,
                from_at: bytes(at - from * each_from),
                to_at: bytes(at - to * each_to),
                len: bytes(next - at),
            });
            at = next;
        }
        Ok(runs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn splits_that_cannot_be_are_refused() {
        for (heads, tp_from, tp_to, page) in
            [(8, 3, 2, 64), (8, 2, 0, 64), (8, 2, 4, 63), (0, 1, 1, 64), (8, 1, 1, 0)]
        {
            assert!(
                Layout::Gqa { heads, tp_from, tp_to }.runs(page).is_err(),
                "{heads} {tp_from} {tp_to} {page}"
            );
        }
        assert_eq!(Layout::Mla.runs(7).map(|runs| runs.len()), Ok(1));
    }

    proptest! {
        /// The bytes of every head lie where a copy head by head would put them.
        #[test]
        fn runs_are_a_copy_head_by_head(logs in (0..5u32, 0..5u32, 0..5u32), head in 1..9u64) {
            let (heads, tp_from, tp_to) = (1 << logs.0, 1 << logs.1.min(logs.0), 1 << logs.2.min(logs.0));
            let page = head * u64::from(heads);
            let runs = Layout::Gqa { heads, tp_from, tp_to }.runs(page).expect("powers of two");
            let (from_len, to_len) = (page / u64::from(tp_from), page / u64::from(tp_to));
            // Each byte of the model's page has a number; ranks hold theirs in order.
            let mut target = vec![vec![u64::MAX; to_len as usize]; tp_to as usize];
            for run in &runs {
                for byte in 0..run.len {
                    let number = u64::from(run.from) * from_len + run.from_at + byte;
                    let place = &mut target[run.to as usize][(run.to_at + byte) as usize];
                    prop_assert_eq!(*place, u64::MAX, "written once");
                    *place = number;
                }
            }
            prop_assert_eq!(target.concat(), (0..page).collect::<Vec<_>>());
        }
    }
}
