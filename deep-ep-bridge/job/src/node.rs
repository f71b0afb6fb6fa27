//! Ranks of a node, where each rank is a process: who they are, and how they reach each other's memory.

use crate::error::NoJob;
use shunt::{HeapCard, Mapping};
use shunt_host::connect::Bootstrap;
use std::ops::Range;

/// Ranks of a node at most where nobody says: as many GPUs as DeepEP has in one.
const LOCALS_MAX: u32 = 8;

/// Ranks of a node, by the machine of each rank: `asked`, or as many as divide the ranks of every machine.
pub(crate) fn size(asked: Option<u32>, machines: &[Vec<u8>]) -> Result<u32, NoJob> {
    let ranks = machines.len() as u32;
    let runs: Vec<u32> = machines.chunk_by(|a, b| a == b).map(|run| run.len() as u32).collect();
    let fits = |locals: &u32| runs.iter().all(|run| run.is_multiple_of(*locals));
    match asked {
        None => Ok((1..=LOCALS_MAX).rev().find(fits).unwrap_or(1)),
        Some(0) => Err(NoJob::Node(format!("expected 1 to {ranks}, got 0"))),
        Some(locals) if !ranks.is_multiple_of(locals) => {
            Err(NoJob::Node(format!("expected a divisor of the {ranks} ranks, got {locals}")))
        }
        Some(locals) if fits(&locals) => Ok(locals),
        Some(locals) => Err(NoJob::Node(format!(
            "expected ranks of one machine, got nodes of {locals} across machines that have {runs:?} ranks in a row"
        ))),
    }
}

/// The node of a rank.
pub(crate) fn of(rank: u32, locals: u32) -> Range<u32> {
    let first = rank / locals * locals;
    first..first + locals
}

/// Maps the heaps of the other ranks of `node`. All ranks of the job call it; `own`: the heap of this one. Answers with
/// the mappings, `None` for this rank.
///
/// # Errors
/// A heap of any rank cannot be reached: all ranks are told.
pub(crate) fn map(
    bootstrap: &dyn Bootstrap,
    node: Range<u32>,
    own: &Mapping,
) -> Result<Vec<Option<Mapping>>, NoJob> {
    let me = bootstrap.rank();
    let mine = own.card().map_err(|error| NoJob::Node(error.to_string()))?;
    let all = bootstrap.all_gather(&mine.to_bytes())?;
    let mut trouble = String::new();
    let mut reach = |rank: u32| {
        if rank == me {
            return None;
        }
        let found = Mapping::open(
            all.get(rank as usize).map_or(HeapCard::default(), |card| HeapCard::of_bytes(card)),
        );
        let told = found.map_err(|error| {
            trouble = format!("rank {me} does not reach the memory of rank {rank}: {error}");
        });
        told.ok()
    };
    let mapped = node.map(&mut reach).collect();
    let told = bootstrap.all_gather(trouble.as_bytes())?;
    match told.iter().find(|text| !text.is_empty()) {
        Some(text) => {
            Err(NoJob::Node(format!("{}; ranks_per_node=1 does without", String::from_utf8_lossy(text))))
        }
        None => Ok(mapped),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machines(runs: &[(u8, usize)]) -> Vec<Vec<u8>> {
        runs.iter().flat_map(|(name, ranks)| vec![vec![*name]; *ranks]).collect()
    }

    #[test]
    fn nodes_are_of_one_machine() {
        let usual = |runs: &[(u8, usize)]| size(None, &machines(runs)).unwrap();
        assert_eq!([usual(&[(1, 4)]), usual(&[(1, 16)]), usual(&[(1, 12)])], [4, 8, 6]);
        assert_eq!([usual(&[(1, 8), (2, 8)]), usual(&[(1, 2), (2, 4)]), usual(&[(1, 1), (2, 4)])], [8, 2, 1]);
        assert_eq!(size(Some(2), &machines(&[(1, 4)])).unwrap(), 2);
        let refused =
            |asked, runs: &[(u8, usize)]| size(Some(asked), &machines(runs)).unwrap_err().to_string();
        assert!(refused(3, &[(1, 4)]).contains("a divisor of the 4 ranks, got 3"));
        assert!(refused(0, &[(1, 4)]).contains("got 0"));
        assert!(refused(2, &[(1, 1), (2, 3)]).contains("[1, 3] ranks in a row"));
        assert_eq!((of(5, 4), of(3, 1)), (4..8, 3..4));
    }
}
