//! Completion queues of the program: what waits in them, and whose completions come there.
//!
//! While all is well a completion is counted, and nothing more: [`Tally`]. The journal of its queue pair is told of the
//! counts when somebody wants to know.

use crate::objects::{At, Context};
use crate::voice;
use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxHashMap;
use shunt_mlx5_sys::{IBV_WC_RECV, IBV_WC_SUCCESS, ibv_cq, ibv_cq_ex, ibv_poll_cq_attr, ibv_wc};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// `poll_cq` of a provider.
type Poll = unsafe extern "C" fn(*mut ibv_cq, i32, *mut ibv_wc) -> i32;
/// `start_poll` of a provider.
type StartPoll = unsafe extern "C" fn(*mut ibv_cq_ex, *mut ibv_poll_cq_attr) -> i32;

/// Good completions of one direction of a program's own queue pair. Who writes has entered its completion queue.
#[derive(Default)]
struct Lane {
    count: AtomicU64,
    newest: AtomicU64,
}

/// Those of both directions: what was sent, and what came.
#[derive(Default)]
pub struct Tally([Lane; 2]);

impl Tally {
    /// Counts one. Its completion queue was entered.
    #[inline]
    fn add(&self, wc: &ibv_wc) {
        let lane = &self.0[usize::from(wc.opcode & IBV_WC_RECV != 0)];
        lane.newest.store(wc.wr_id, Ordering::Relaxed);
        // One writer at a time: no read-modify-write is needed.
        lane.count.store(lane.count.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// Completions so far: of what was sent, and of what came.
    pub fn counts(&self) -> [u64; 2] {
        [0, 1].map(|at| self.0[at].count.load(Ordering::Acquire))
    }

    /// The program's number for the newest of a lane, whose completion queue was entered.
    pub fn newest(&self, lane: usize) -> u64 {
        self.0[lane].newest.load(Ordering::Acquire)
    }
}

/// Who gets a completion of the program's own queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goes {
    /// The program.
    On,
    /// Nobody.
    Nowhere,
}

/// A protected queue pair, as its completion queues see it.
pub trait Member: Send + Sync {
    /// A completion of the program's own queue pair that is not good, or comes when not all is well. True if it is to
    /// be counted as one that came by the program's own queue pair.
    fn absorb(&self, wc: &ibv_wc) -> (Goes, bool);
    /// Where its good completions are counted.
    fn tally(&self) -> &Arc<Tally>;
    /// To count its good completions is enough.
    fn is_counted(&self) -> bool;
    /// Completions of queue pairs that stand in, and of a queue pair that is lost, which belong to a completion queue.
    fn collect(&self, of: &CompletionQueue, to: &mut VecDeque<ibv_wc>);
    /// Its completions are taken in a way that passes this library by: it is not protected from now on.
    fn give_up(&self);
}

/// Queue pairs that are found at once, by the last bits of their numbers.
const NEAR: usize = 16;
/// A number that no queue pair has: they have 24 bits.
const NO_ONE: u32 = u32::MAX;

/// What waits in a completion queue, and whose completions come there.
pub struct Completions {
    /// Completions that come before those of the NIC.
    pub ready: VecDeque<ibv_wc>,
    /// Some of them came since the program was woken last.
    pub fresh: bool,
    /// Protected queue pairs by number.
    members: FxHashMap<u32, Arc<dyn Member>>,
    near: [(u32, Arc<Tally>); NEAR],
}

impl Completions {
    fn new() -> Self {
        let nothing = Arc::<Tally>::default();
        let near = std::array::from_fn(|_| (NO_ONE, nothing.clone()));
        Self { ready: VecDeque::new(), fresh: false, members: FxHashMap::default(), near }
    }

    /// Completions of this queue pair come here from now on.
    pub fn join(&mut self, qpn: u32, member: Arc<dyn Member>) {
        if member.is_counted() {
            self.near[qpn as usize % NEAR] = (qpn, member.tally().clone());
        }
        self.members.insert(qpn, member);
    }

    /// None of it does any more.
    pub fn leave(&mut self, qpn: u32) {
        self.members.remove(&qpn);
        let near = &mut self.near[qpn as usize % NEAR];
        if near.0 == qpn {
            near.0 = NO_ONE;
        }
    }

    /// Counts good completions of queue pairs that are on their own: how many there are before the first that is
    /// something else.
    #[inline]
    pub fn count(&self, wcs: &[ibv_wc]) -> usize {
        for (at, wc) in wcs.iter().enumerate() {
            let (qpn, tally) = &self.near[wc.qp_num as usize % NEAR];
            if *qpn != wc.qp_num || wc.status != IBV_WC_SUCCESS {
                return at;
            }
            tally.add(wc);
        }
        wcs.len()
    }

    /// A completion of any kind: whether the program gets it.
    pub fn absorb(&self, wc: &ibv_wc) -> Goes {
        let Some(member) = self.members.get(&wc.qp_num) else {
            voice::failed_by_number(wc);
            return Goes::On;
        };
        let (goes, counts) = member.absorb(wc);
        if counts {
            member.tally().add(wc);
        }
        goes
    }

    /// Takes completions of queue pairs that run elsewhere.
    pub fn collect(&mut self, of: &CompletionQueue) {
        let before = self.ready.len();
        self.members.values().for_each(|member| member.collect(of, &mut self.ready));
        self.fresh |= self.ready.len() > before;
    }
}

/// A completion queue of the program.
pub struct CompletionQueue {
    /// Its address.
    pub raw: At<ibv_cq>,
    /// Where it was made.
    pub context: Arc<Context>,
    /// The provider's function.
    pub poll: Poll,
    /// The provider's function for what is read entry by entry.
    pub start_poll: Option<StartPoll>,
    /// It wakes the program.
    pub wakes: bool,
    /// The program has read it entry by entry.
    by_entry: AtomicBool,
    /// Completions do not come from the program's own queue alone, or others than the program want the lock: so many.
    special: AtomicU32,
    completions: Mutex<Completions>,
}

impl CompletionQueue {
    /// One that was made.
    pub fn new(raw: At<ibv_cq>, context: Arc<Context>, wakes: bool) -> Self {
        let (special, poll) = (AtomicU32::new(0), context.ops.poll_cq.unwrap_or(no_poll));
        let completions = Mutex::new(Completions::new());
        let (start_poll, by_entry) = (None, AtomicBool::new(false));
        Self { raw, context, poll, start_poll, wakes, by_entry, special, completions }
    }

    /// The program reads it entry by entry: nobody of it is protected from now on.
    pub fn give_up_members(&self) {
        if !self.by_entry.swap(true, Ordering::SeqCst) {
            self.enter_first().members.values().for_each(|member| member.give_up());
        }
    }

    /// The same for one that has just joined.
    pub fn check_member(&self, member: &dyn Member) {
        if self.by_entry.load(Ordering::SeqCst) {
            member.give_up();
        }
    }

    /// The program's way in while all is well; none otherwise.
    #[inline]
    pub fn enter_straight(&self) -> Option<MutexGuard<'_, Completions>> {
        let guard = self.completions.lock();
        (self.special.load(Ordering::Acquire) == 0).then_some(guard)
    }

    /// The program's way in: whoever else wants in goes first.
    pub fn enter(&self) -> MutexGuard<'_, Completions> {
        while self.special.load(Ordering::Acquire) & !MOVED > 0 {
            std::thread::yield_now();
        }
        self.completions.lock()
    }

    /// The agent's way in.
    pub fn enter_first(&self) -> MutexGuard<'_, Completions> {
        self.special.fetch_add(1, Ordering::AcqRel);
        let guard = self.completions.lock();
        self.special.fetch_sub(1, Ordering::AcqRel);
        guard
    }

    /// From now on completions may wait here, or come from elsewhere.
    pub fn mark_moved(&self) {
        self.special.fetch_or(MOVED, Ordering::AcqRel);
    }

    /// See [`CompletionQueue::mark_moved`].
    pub fn has_moved(&self) -> bool {
        self.special.load(Ordering::Acquire) & MOVED != 0
    }
}

/// Set once completions may come from elsewhere.
const MOVED: u32 = 1 << 31;

/// For a provider that has none.
unsafe extern "C" fn no_poll(_: *mut ibv_cq, _: i32, _: *mut ibv_wc) -> i32 {
    -libc::EOPNOTSUPP
}
