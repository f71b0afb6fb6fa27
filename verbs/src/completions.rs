//! Completion queues of the program: what waits in them, and whose completions come there.
//!
//! While all is well a completion is counted, and nothing more: [`Tally`]. The journal of its queue pair is told of the
//! counts when somebody wants to know.

use crate::objects::{At, Context};
use crate::voice;
use core::mem::offset_of;
use core::ops::Range;
use rustc_hash::FxHashMap;
use shunt_mlx5_sys::{IBV_WC_RECV, IBV_WC_SUCCESS, ibv_cq, ibv_cq_ex, ibv_poll_cq_attr, ibv_wc};
use shunt_verbs_near::gate::{Gate, Inside};
use shunt_verbs_near::lane::Lane;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// `poll_cq` of a provider.
type Poll = unsafe extern "C" fn(*mut ibv_cq, i32, *mut ibv_wc) -> i32;
/// `start_poll` of a provider.
type StartPoll = unsafe extern "C" fn(*mut ibv_cq_ex, *mut ibv_poll_cq_attr) -> i32;

/// Those of both directions: what was sent, and what came.
pub struct Tally {
    qpn: u32,
    lanes: [Lane; 2],
}

/// Opcodes of what came have this bit.
const fn lane(wc: &ibv_wc) -> usize {
    (wc.opcode & IBV_WC_RECV != 0) as usize
}

/// Status and opcode of a completion, as they lie in memory.
#[inline(always)]
fn word(wc: &ibv_wc) -> u64 {
    let row = (&raw const *wc).cast::<u8>().wrapping_add(offset_of!(ibv_wc, status));
    // SAFETY: both words lie in the completion, one behind the other.
    unsafe { row.cast::<u64>().read_unaligned() }
}

/// What a good completion of what was sent has none of.
const NOT_SENT: u64 = {
    assert!(offset_of!(ibv_wc, opcode) == offset_of!(ibv_wc, status) + 4 && IBV_WC_SUCCESS == 0);
    let ([a, b, c, d], [e, f, g, h]) = (u32::MAX.to_ne_bytes(), IBV_WC_RECV.to_ne_bytes());
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
};

impl Tally {
    /// Of a queue pair of this number.
    pub fn new(qpn: u32) -> Self {
        Self { qpn, lanes: Default::default() }
    }

    /// Completions so far: of what was sent, and of what came.
    pub fn counts(&self) -> [u64; 2] {
        [0, 1].map(|at| self.lanes[at].count())
    }

    /// The program's number for the newest of a lane, whose completion queue was entered.
    pub fn newest(&self, lane: usize) -> u64 {
        self.lanes[lane].newest()
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
    /// Whose requests were counted last: a tally that is in `near`, or `nobody`.
    last: AtomicPtr<Tally>,
    nobody: Arc<Tally>,
    /// Where the program wants completions, while the provider writes them.
    pub to: At<ibv_wc>,
}

impl Completions {
    fn new() -> Self {
        let nobody = Arc::new(Tally::new(NO_ONE));
        let near = std::array::from_fn(|_| (NO_ONE, nobody.clone()));
        let last = AtomicPtr::new(Arc::as_ptr(&nobody).cast_mut());
        let (ready, members, to) = (VecDeque::new(), FxHashMap::default(), At::default());
        Self { ready, fresh: false, members, near, last, nobody, to }
    }

    /// Completions of this queue pair come here from now on.
    pub fn join(&mut self, qpn: u32, member: Arc<dyn Member>) {
        self.forget_last();
        if member.is_counted() {
            self.near[qpn as usize % NEAR] = (qpn, member.tally().clone());
        }
        if self.members.insert(qpn, member).is_some() {
            // Of one that was destroyed, and leaves later.
            self.ready.retain(|wc| wc.qp_num != qpn);
        }
    }

    /// None of it does any more, and none that waits is told: as a NIC does it. Another queue pair that has its number
    /// by now stays.
    pub fn leave(&mut self, qpn: u32, tally: &Arc<Tally>) {
        self.forget_last();
        if self.members.get(&qpn).is_some_and(|member| Arc::ptr_eq(member.tally(), tally)) {
            self.members.remove(&qpn);
            self.ready.retain(|wc| wc.qp_num != qpn);
        }
        let near = &mut self.near[qpn as usize % NEAR];
        if Arc::ptr_eq(&near.1, tally) {
            *near = (NO_ONE, self.nobody.clone());
        }
    }

    fn forget_last(&mut self) {
        *self.last.get_mut() = Arc::as_ptr(&self.nobody).cast_mut();
    }

    /// Counts a completion if it is good, and of a request of the queue pair that was counted last.
    #[inline(always)]
    pub fn count_like_last(&self, wc: &ibv_wc) -> bool {
        // SAFETY: `near` and `nobody` keep it, and what changes those changes this.
        let tally = unsafe { &*self.last.load(Ordering::Relaxed) };
        let is_like = wc.qp_num == tally.qpn && word(wc) & NOT_SENT == 0;
        if is_like {
            tally.lanes[0].add(1, wc.wr_id);
        }
        is_like
    }

    /// The same of several: all of them, or none.
    #[inline(always)]
    pub fn count_all_like_last(&self, wcs: &[ibv_wc]) -> bool {
        // SAFETY: as above.
        let tally = unsafe { &*self.last.load(Ordering::Relaxed) };
        let qpn = tally.qpn;
        let Range { start: mut at, end } = wcs.as_ptr_range();
        // By hand: what the compiler makes of `all` looks at one more word of each.
        while at != end {
            // SAFETY: one of them.
            let wc = unsafe { &*at };
            if wc.qp_num != qpn {
                return false;
            }
            if word(wc) & NOT_SENT != 0 {
                return false;
            }
            at = at.wrapping_add(1);
        }
        if let [.., newest] = wcs {
            tally.lanes[0].add(wcs.len() as u64, newest.wr_id);
        }
        true
    }

    /// Counts good completions of queue pairs that are on their own: how many there are before the first that is
    /// something else.
    pub fn count(&mut self, wcs: &[ibv_wc]) -> usize {
        let mut at = 0;
        while at < wcs.len() {
            let first = &wcs[at];
            let (qpn, tally) = &self.near[first.qp_num as usize % NEAR];
            let is_like = |wc: &&ibv_wc| {
                let same = wc.qp_num == *qpn && lane(wc) == lane(first);
                same && wc.status == IBV_WC_SUCCESS
            };
            let run = wcs[at..].iter().take_while(is_like).count();
            if run == 0 {
                break;
            }
            at += run;
            tally.lanes[lane(first)].add(run as u64, wcs[at - 1].wr_id);
            self.last.store(Arc::as_ptr(tally).cast_mut(), Ordering::Relaxed);
        }
        at
    }

    /// A completion of any kind: whether the program gets it.
    pub fn absorb(&self, wc: &ibv_wc) -> Goes {
        let Some(member) = self.members.get(&wc.qp_num) else {
            voice::failed_by_number(wc);
            return Goes::On;
        };
        let (goes, counts) = member.absorb(wc);
        if counts {
            member.tally().lanes[lane(wc)].add(1, wc.wr_id);
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

/// A completion queue of the program. What each poll looks at comes first.
#[repr(C)]
pub struct CompletionQueue {
    /// Shut once completions may come from elsewhere than the program's own queue.
    completions: Gate<Completions>,
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
}

impl CompletionQueue {
    /// One that was made.
    pub fn new(raw: At<ibv_cq>, context: Arc<Context>, wakes: bool) -> Self {
        let poll = context.ops.poll_cq.unwrap_or(no_poll);
        let completions = Gate::new(Completions::new());
        let (start_poll, by_entry) = (None, AtomicBool::new(false));
        Self { raw, context, poll, start_poll, wakes, by_entry, completions }
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
    #[inline(always)]
    pub fn enter_straight(&self) -> Option<Inside<'_, Completions>> {
        self.completions.pass()
    }

    /// The program's way in: whoever else wants in goes first.
    pub fn enter(&self) -> Inside<'_, Completions> {
        self.completions.wait()
    }

    /// The agent's way in.
    pub fn enter_first(&self) -> Inside<'_, Completions> {
        self.completions.enter_first()
    }

    /// From now on completions may wait here, or come from elsewhere.
    pub fn mark_moved(&self) {
        self.completions.set_shut(true);
    }

    /// See [`CompletionQueue::mark_moved`].
    pub fn has_moved(&self) -> bool {
        self.completions.is_shut()
    }
}

/// For a provider that has none.
unsafe extern "C" fn no_poll(_: *mut ibv_cq, _: i32, _: *mut ibv_wc) -> i32 {
    -libc::EOPNOTSUPP
}

#[cfg(test)]
mod tests {
    use super::*;

    struct One(Arc<Tally>);

    impl Member for One {
        fn absorb(&self, _: &ibv_wc) -> (Goes, bool) {
            (Goes::On, true)
        }

        fn tally(&self) -> &Arc<Tally> {
            &self.0
        }

        fn is_counted(&self) -> bool {
            true
        }

        fn collect(&self, _: &CompletionQueue, _: &mut VecDeque<ibv_wc>) {}

        fn give_up(&self) {}
    }

    /// A program was told of requests of a queue pair that it had destroyed: with addresses that it had freed.
    #[test]
    fn nothing_is_told_of_a_queue_pair_that_is_gone_and_another_of_its_number_stays() {
        let mut inside = Completions::new();
        let [old, new, other] = [5, 5, 6].map(|qpn| Arc::new(Tally::new(qpn)));
        inside.join(5, Arc::new(One(old.clone())));
        inside.join(6, Arc::new(One(other)));
        inside.ready.extend([5, 6, 5].map(|qp_num| ibv_wc { qp_num, ..ibv_wc::default() }));
        inside.leave(5, &old);
        assert_eq!(inside.ready.iter().map(|wc| wc.qp_num).collect::<Vec<_>>(), [6]);
        inside.join(5, Arc::new(One(new.clone())));
        inside.leave(5, &old);
        let good = ibv_wc { qp_num: 5, opcode: shunt_mlx5_sys::IBV_WC_SEND, ..ibv_wc::default() };
        assert_eq!((inside.count(&[good]), new.counts()), (1, [1, 0]));
        assert!(inside.members.contains_key(&5) && inside.members.contains_key(&6));
    }
}
