//! What the ends of a run tell each other beside the NICs: not part of what is tested. Kernels of one process all look
//! at the same board; between processes, each keeps one and [`super::courier`] keeps them alike. So everything on it
//! only ever moves one way, and any copy of any age may be merged in any order.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A sender that has not ended.
const RUNNING: u64 = u64::MAX;

/// What the two ends of one stream know of it.
#[derive(Debug)]
pub struct Link {
    /// The receiver's slots are poisoned: nothing may come before.
    ready: AtomicBool,
    posted: AtomicU64,
    finished: AtomicBool,
}

impl Link {
    fn new() -> Self {
        Self {
            ready: AtomicBool::new(false),
            posted: AtomicU64::new(RUNNING),
            finished: AtomicBool::new(false),
        }
    }

    /// The receiver may be sent to.
    pub fn set_ready(&self) {
        self.ready.store(true, Ordering::Release);
    }

    /// True once it may.
    pub fn ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    /// The sender has posted this much and ends.
    pub fn set_posted(&self, puts: u64) {
        self.posted.fetch_min(puts, Ordering::AcqRel);
    }

    /// What the sender has posted; the largest number while it has not ended.
    pub fn posted(&self) -> u64 {
        self.posted.load(Ordering::Acquire)
    }

    /// The receiver has consumed everything and looked for ghosts, or ended.
    pub fn set_finished(&self) {
        self.finished.store(true, Ordering::Release);
    }
}

/// One stream's words, copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkState {
    /// See [`Link::set_ready`].
    pub ready: bool,
    /// See [`Link::set_posted`].
    pub posted: u64,
    /// See [`Link::set_finished`].
    pub finished: bool,
}

/// A board, copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoardState {
    /// Streams.
    pub links: Vec<LinkState>,
    /// Rows of the table that the target has looked at.
    pub rows: u64,
    /// A bit for each of them that was wrong.
    pub corrupt: u64,
    /// The source has measured its last row.
    pub table_over: bool,
    /// The run is ended early.
    pub aborted: bool,
    /// The run shall stop posting.
    pub stopping: bool,
}

/// The board of one phase of a run: the table, or the stream.
#[derive(Debug)]
pub struct Board {
    links: Vec<Link>,
    rows: AtomicU64,
    corrupt: AtomicU64,
    table_over: AtomicBool,
    aborted: AtomicBool,
    stopping: AtomicBool,
    /// PEs of this process that were killed: no news, what is dead tells nothing.
    killed: Vec<AtomicBool>,
}

impl Board {
    /// An empty board.
    pub fn new(streams: usize, pes: u32) -> Self {
        Self {
            links: (0..streams).map(|_| Link::new()).collect(),
            rows: AtomicU64::new(0),
            corrupt: AtomicU64::new(0),
            table_over: AtomicBool::new(false),
            aborted: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            killed: (0..pes).map(|_| AtomicBool::new(false)).collect(),
        }
    }

    /// A stream's words.
    pub fn link(&self, stream: usize) -> &Link {
        &self.links[stream]
    }

    /// True once every receiver has finished.
    pub fn all_finished(&self) -> bool {
        self.links.iter().all(|link| link.finished.load(Ordering::Acquire))
    }

    /// The target has looked at one more row of the table.
    pub fn row_done(&self, row: u64, intact: bool) {
        if !intact && row < 64 {
            self.corrupt.fetch_or(1 << row, Ordering::AcqRel);
        }
        self.rows.fetch_max(row + 1, Ordering::AcqRel);
    }

    /// What the target found of a row; `None` while it has not looked.
    pub fn row(&self, row: u64) -> Option<bool> {
        let done = self.rows.load(Ordering::Acquire) > row;
        done.then(|| self.corrupt.load(Ordering::Acquire) >> row.min(63) & 1 == 0)
    }

    /// The source has measured its last row, or given up.
    pub fn end_table(&self) {
        self.table_over.store(true, Ordering::Release);
    }

    /// True once it has.
    pub fn table_over(&self) -> bool {
        self.table_over.load(Ordering::Acquire)
    }

    /// Ends every kernel.
    pub fn abort(&self) {
        self.aborted.store(true, Ordering::Release);
    }

    /// True once somebody ended the run.
    pub fn aborted(&self) -> bool {
        self.aborted.load(Ordering::Acquire)
    }

    /// Senders shall stop.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// True once they shall.
    pub fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// A PE of this process dies.
    pub fn kill(&self, pe: u32) {
        self.killed[pe as usize].store(true, Ordering::Release);
    }

    /// True once it is dead.
    pub fn killed(&self, pe: u32) -> bool {
        self.killed[pe as usize].load(Ordering::Acquire)
    }

    /// A copy, for others.
    pub fn state(&self) -> BoardState {
        let link = |link: &Link| LinkState {
            ready: link.ready(),
            posted: link.posted(),
            finished: link.finished.load(Ordering::Acquire),
        };
        BoardState {
            links: self.links.iter().map(link).collect(),
            rows: self.rows.load(Ordering::Acquire),
            corrupt: self.corrupt.load(Ordering::Acquire),
            table_over: self.table_over(),
            aborted: self.aborted(),
            stopping: self.stopping(),
        }
    }

    /// Takes over what another board says; false if it is the board of another run.
    pub fn merge(&self, other: &BoardState) -> bool {
        if other.links.len() != self.links.len() {
            return false;
        }
        for (link, other) in self.links.iter().zip(&other.links) {
            link.ready.fetch_or(other.ready, Ordering::AcqRel);
            link.posted.fetch_min(other.posted, Ordering::AcqRel);
            link.finished.fetch_or(other.finished, Ordering::AcqRel);
        }
        // The bits before the count that vouches for them.
        self.corrupt.fetch_or(other.corrupt, Ordering::AcqRel);
        self.rows.fetch_max(other.rows, Ordering::AcqRel);
        self.table_over.fetch_or(other.table_over, Ordering::AcqRel);
        self.aborted.fetch_or(other.aborted, Ordering::AcqRel);
        self.stopping.fetch_or(other.stopping, Ordering::AcqRel);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn state() -> impl Strategy<Value = BoardState> {
        let link = (any::<bool>(), prop_oneof![Just(RUNNING), 0u64..9], any::<bool>())
            .prop_map(|(ready, posted, finished)| LinkState { ready, posted, finished });
        let rest = (0u64..9, any::<u64>(), any::<[bool; 3]>());
        (prop::collection::vec(link, 3), rest).prop_map(|(links, (rows, corrupt, flags))| BoardState {
            links,
            rows,
            corrupt,
            table_over: flags[0],
            aborted: flags[1],
            stopping: flags[2],
        })
    }

    fn merged<'s>(states: impl Iterator<Item = &'s BoardState>) -> BoardState {
        let board = Board::new(3, 2);
        for state in states {
            assert!(board.merge(state));
        }
        board.state()
    }

    proptest! {
        #[test]
        fn copies_may_come_in_any_order_and_again(states in prop::collection::vec(state(), 1..6), turn in 0usize..6) {
            let whole = merged(states.iter());
            // Which came last must not matter.
            let again = &states[turn % states.len()];
            prop_assert_eq!(&merged(states.iter().rev()), &whole);
            prop_assert_eq!(&merged(states.iter().chain([again])), &whole);
            prop_assert_eq!(&merged([&whole, again].into_iter()), &whole);
        }
    }

    #[test]
    fn the_board_of_another_run_is_refused_and_death_is_not_told() {
        let board = Board::new(2, 2);
        board.kill(1);
        assert!(board.killed(1) && !board.killed(0));
        assert!(!Board::new(1, 2).merge(&board.state()));
        let other = Board::new(2, 2);
        assert!(other.merge(&board.state()) && !other.killed(1));
    }

    #[test]
    fn rows_are_known_once_they_were_looked_at() {
        let board = Board::new(0, 2);
        board.row_done(0, true);
        board.row_done(1, false);
        assert_eq!([board.row(0), board.row(1), board.row(2)], [Some(true), Some(false), None]);
    }
}
