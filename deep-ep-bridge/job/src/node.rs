//! Ranks of a node, where each rank is a process: who they are, and how they reach each other's memory.

use crate::error::NoJob;
use crate::shared::Mapping;
use shunt_host::connect::Bootstrap;
use std::io;
use std::ops::Range;

/// Ranks of a node at most where nobody says: as many GPUs as DeepEP has in one.
const LOCALS_MAX: u32 = 8;

/// What tells this machine from others: its name, and the number of its start.
pub(crate) fn machine() -> Vec<u8> {
    let read = |path: &str| std::fs::read(path).unwrap_or_default();
    [read("/proc/sys/kernel/hostname"), read("/proc/sys/kernel/random/boot_id")].concat()
}

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

/// A process, its descriptor, the length, and a word that stands at the start of its heap.
type Ticket = (u32, i32, u64, u64);

fn ticket_to_bytes((process, number, bytes, word): Ticket) -> Vec<u8> {
    let head = [process.to_le_bytes(), number.to_le_bytes()].concat();
    [head, bytes.to_le_bytes().to_vec(), word.to_le_bytes().to_vec()].concat()
}

fn ticket_of_bytes(bytes: &[u8]) -> Option<Ticket> {
    let (head, rest) = bytes.split_first_chunk::<8>()?;
    let (length, rest) = rest.split_first_chunk::<8>()?;
    let word = rest.first_chunk::<8>()?;
    let four = |at: usize| head[at..at + 4].try_into().expect("four of eight");
    let (process, number) = (u32::from_le_bytes(four(0)), i32::from_le_bytes(four(4)));
    Some((process, number, u64::from_le_bytes(*length), u64::from_le_bytes(*word)))
}

/// A word that stands for a rank of a process.
pub(crate) fn word(rank: u32) -> u64 {
    u64::from(std::process::id()) << 32 | u64::from(rank)
}

fn opened(ticket: Option<Ticket>) -> io::Result<Mapping> {
    let (process, number, bytes, word) = ticket.ok_or_else(|| io::Error::other("no ticket"))?;
    let mapping = Mapping::open(process, number, bytes)?;
    match mapping.word(0) {
        met if met == word => Ok(mapping),
        met => Err(io::Error::other(format!("expected the heap that begins with {word:#x}, got {met:#x}"))),
    }
}

/// Maps the heaps of the other ranks of `node`. All ranks of the job call it; `own`: the heap of this one, which begins
/// with its [`word`]. Answers with the mappings, `None` for this rank.
///
/// # Errors
/// A heap of any rank cannot be reached: all ranks are told.
pub(crate) fn map(
    bootstrap: &dyn Bootstrap,
    node: Range<u32>,
    own: &Mapping,
) -> Result<Vec<Option<Mapping>>, NoJob> {
    let me = bootstrap.rank();
    let mine = (std::process::id(), own.number(), own.span().bytes, word(me));
    let all = bootstrap.all_gather(&ticket_to_bytes(mine))?;
    let mut trouble = String::new();
    let mut reach = |rank: u32| {
        if rank == me {
            return None;
        }
        let found = opened(all.get(rank as usize).and_then(|bytes| ticket_of_bytes(bytes)));
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

    #[test]
    fn a_ticket_is_read_back_and_a_stranger_is_none() {
        let ticket = (7, -3, 1 << 40, word(2));
        assert_eq!(ticket_of_bytes(&ticket_to_bytes(ticket)), Some(ticket));
        assert_eq!(ticket_of_bytes(&[0; 9]), None);
        let own = Mapping::create(4096).unwrap();
        let wrong = (std::process::id(), own.number(), 4096, 5);
        assert!(opened(Some(wrong)).err().unwrap().to_string().contains("begins with 0x5, got 0x0"));
    }
}
