//! Buffers that several queue pairs take from: a shared receive queue of the program.
//!
//! While its queue pairs are on their own, their NIC has the buffers. One that was moved cannot take from there: it is
//! dealt some of what the program posts from then on, and of what no message has come into. That is known once no queue
//! pair is on its own any more, so all follow the first that leaves. What one was dealt and did not need comes back
//! when it moves again: one that has too much is moved for that, if another has nothing.

use crate::objects::At;
use parking_lot::Mutex;
use shunt_layout::mutant::Mutant;
use shunt_mlx5_sys::{ibv_recv_wr, ibv_srq, ibv_srq_attr};
use shunt_verbs_journal::receive_queue::ReceiveQueue;
use shunt_verbs_journal::request::Receive;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

/// A queue pair that takes from it.
pub trait Taker: Send + Sync {
    /// There may be a buffer for it.
    fn serve(&self);
}

/// `post_srq_recv` of a provider.
pub type PostShared = unsafe extern "C" fn(*mut ibv_srq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> i32;

/// A queue pair that takes from it.
struct Share {
    taker: Weak<dyn Taker>,
    id: u64,
    /// It receives on its own.
    home: bool,
    /// It is not protected, and stays there.
    stranger: bool,
    /// Buffers that it was dealt and no message has come into, as far as is known.
    held: usize,
    /// Another gave its own back for it last: the higher, the later.
    served: u64,
}

#[derive(Default)]
struct Inside {
    /// What the NIC was given and no message has come into, as far as is known: the oldest first.
    own: VecDeque<Receive>,
    /// What waits for a queue pair that was moved.
    pool: VecDeque<Receive>,
    /// Queue pairs that take from it. Who gave back last is the last.
    members: Vec<Share>,
    /// A queue pair that is to give its buffers back.
    called: Option<u64>,
    /// One that has none, for which that was: the first buffer is its own.
    promised: Option<u64>,
    /// Times that one gave its buffers back for another.
    served: u64,
    /// One has left, or is about to.
    left: bool,
    /// What the NIC was given has been taken back from it, by the book.
    taken_back: bool,
    /// It is not known any more what the NIC has.
    spoilt: bool,
    /// A queue pair takes from it that was never protected.
    strange: bool,
}

impl Inside {
    fn has_strangers(&self) -> bool {
        self.strange || self.members.iter().any(|one| one.stranger)
    }

    fn away(&self) -> usize {
        self.members.iter().filter(|one| !one.home).count()
    }

    /// Who holds most, but for one, and how much that is.
    fn richest(&self, but: u64) -> Option<(u64, usize)> {
        let others = self.members.iter().filter(|one| !one.home && one.id != but && one.held > 0);
        let most = others.clone().map(|one| one.held).max()?;
        others.clone().find(|one| one.held == most).map(|one| (one.id, most))
    }

    /// Buffers that no message has come into are the first to be dealt, in their order.
    fn put_back(&mut self, mut back: VecDeque<Receive>) {
        if Mutant::SharedLost.on() {
            back.pop_back();
        }
        if Mutant::SharedTwice.on() {
            back.extend(back.back().cloned());
        }
        back.into_iter().rev().for_each(|one| self.pool.push_front(one));
    }

    /// A queue pair gives back what it was dealt, and is promised nothing any more.
    fn take(&mut self, id: u64, dealt: Vec<Receive>) -> Option<Share> {
        self.put_back(dealt.into());
        self.called = self.called.filter(|called| *called != id);
        self.promised = self.promised.filter(|hungry| *hungry != id);
        let at = self.members.iter().position(|one| one.id == id)?;
        Some(Share { held: 0, ..self.members.remove(at) })
    }

    /// Once no queue pair takes from the NIC's queue, what is in it is for those that were moved.
    fn take_back(&mut self) {
        let alone = self.away() == self.members.len() && !self.members.is_empty();
        if alone && !self.spoilt && !self.taken_back {
            self.taken_back = true;
            let own = std::mem::take(&mut self.own);
            self.put_back(own);
        }
    }
}

/// The queue.
pub struct SharedQueue {
    /// Its address.
    pub raw: At<ibv_srq>,
    /// How much it holds.
    pub attr: ibv_srq_attr,
    /// What the provider posts by.
    pub post: PostShared,
    inside: Mutex<Inside>,
}

impl SharedQueue {
    /// One that was made.
    pub fn new(raw: At<ibv_srq>, attr: ibv_srq_attr, post: PostShared) -> Self {
        Self { raw, attr, post, inside: Mutex::default() }
    }

    /// A queue pair takes from it.
    pub fn join(&self, taker: Weak<dyn Taker>, id: u64) {
        self.inside.lock().members.push(Share { taker, id, home: true, stranger: false, held: 0, served: 0 });
    }

    /// A queue pair that takes from it is another from now on: its NIC has forgotten it. False if one has left: what is
    /// in the NIC's queue is, or will be, for those that were moved.
    pub fn renew(&self, from: u64, taker: Weak<dyn Taker>, id: u64) -> bool {
        let mut inside = self.inside.lock();
        if inside.left {
            return false;
        }
        let member = inside.members.iter_mut().find(|one| one.id == from);
        member.into_iter().for_each(|one| (one.id, one.taker, one.stranger) = (id, taker.clone(), false));
        true
    }

    /// A queue pair that takes from it is not protected, or never was (`None`): what is in the NIC's queue is not known
    /// as long as it is there.
    pub fn estrange(&self, id: Option<u64>) {
        let mut inside = self.inside.lock();
        match id {
            None => inside.strange = true,
            Some(id) => {
                inside.members.iter_mut().filter(|one| one.id == id).for_each(|one| one.stranger = true)
            }
        }
    }

    /// One that is not protected takes from it: those that move would starve.
    pub fn has_strangers(&self) -> bool {
        self.inside.lock().has_strangers()
    }

    /// One that was moved has no buffer, none is left to deal, and those of the NIC stay there.
    pub fn starves(&self, id: u64) -> bool {
        let inside = self.inside.lock();
        let empty = |one: &Share| one.id == id && !one.home && one.held == 0;
        inside.has_strangers()
            && !inside.taken_back
            && inside.pool.is_empty()
            && inside.members.iter().any(empty)
    }

    /// New queue pairs would take what others were dealt.
    pub fn is_taken_back(&self) -> bool {
        self.inside.lock().taken_back
    }

    /// The program posts one: `own` posts it to the NIC's queue.
    ///
    /// # Errors
    /// An errno.
    pub fn push(&self, receive: Receive, own: impl FnOnce() -> i32) -> Result<(), i32> {
        let mut inside = self.inside.lock();
        let away = inside.away();
        if away > 0 && (inside.taken_back || inside.pool.is_empty()) {
            if inside.pool.len() >= self.attr.max_wr as usize {
                return Err(libc::ENOMEM);
            }
            inside.pool.push_back(receive);
            return Ok(());
        }
        match own() {
            0 => inside.own.push_back(receive),
            errno => return Err(errno),
        }
        Ok(())
    }

    /// Queue pairs that were moved.
    pub fn moved(&self) -> Vec<Arc<dyn Taker>> {
        let inside = self.inside.lock();
        let away = inside.members.iter().filter(|one| !one.home);
        away.filter_map(|one| one.taker.upgrade()).collect()
    }

    /// A message came into a buffer of the NIC's queue. False if there was none of this number.
    pub fn taken(&self, wr_id: u64) -> bool {
        let mut inside = self.inside.lock();
        let at = inside.own.iter().position(|one| one.wr_id == wr_id);
        at.is_some_and(|at| inside.own.remove(at).is_some())
    }

    /// It is not known any more what the NIC has: a queue pair is not protected any more, or lost.
    pub fn spoil(&self) {
        let mut inside = self.inside.lock();
        (inside.spoilt, inside.called, inside.promised) = (true, None, None);
    }

    /// A queue pair is about to leave: the others follow.
    pub fn leave(&self) {
        self.inside.lock().left = true;
    }

    /// One has left, or is about to.
    pub fn is_left(&self) -> bool {
        self.inside.lock().left
    }

    /// A queue pair receives nowhere now, and all that came to it is known. What it was dealt comes back.
    pub fn give_back(&self, id: u64, dealt: Vec<Receive>) {
        let mut inside = self.inside.lock();
        if let Some(share) = inside.take(id, dealt) {
            inside.members.push(Share { home: false, ..share });
        }
        inside.take_back();
    }

    /// A queue pair is destroyed.
    pub fn forget(&self, id: u64, dealt: Vec<Receive>) {
        let mut inside = self.inside.lock();
        inside.take(id, dealt);
        inside.take_back();
    }

    /// Deals to a queue pair that was moved: no more than its share of half of what there is, so that no other goes
    /// without.
    pub fn deal(&self, id: u64, to: &mut ReceiveQueue) {
        let mut inside = self.inside.lock();
        let Some(at) = inside.members.iter().position(|one| one.id == id) else { return };
        inside.members[at].held = to.len();
        let held: usize = inside.members.iter().map(|one| one.held).sum();
        let share = ((inside.pool.len() + held) / (2 * inside.members.len())).max(1);
        let kept = usize::from(inside.promised.is_some_and(|hungry| hungry != id));
        while to.len() < share
            && inside.pool.len() > kept
            && let Some(one) = inside.pool.pop_front()
        {
            to.push(one.wr_id, &one.pieces);
        }
        inside.members[at].held = to.len();
        inside.promised = inside.promised.filter(|hungry| *hungry != id || to.is_empty());
    }

    /// If a queue pair that was moved has no buffer, and none is left to deal: how many the one has that has most, and
    /// how many others have none and were served longer ago. A message that comes to this queue pair waits meanwhile,
    /// however many buffers the program has posted.
    pub fn hoard_elsewhere(&self, id: u64) -> Option<(usize, usize)> {
        let inside = self.inside.lock();
        let hungry = inside.members.iter().filter(|one| !one.home && one.held == 0);
        let asked = inside.called.is_some() || inside.promised.is_some();
        let own = hungry.clone().find(|one| one.id == id).filter(|_| !asked && inside.pool.is_empty())?;
        let (_, most) = inside.richest(id)?;
        let before = |one: &Share| (one.served, one.id) < (own.served, own.id);
        Some((most, hungry.filter(|one| before(one)).count()))
    }

    /// Who has most is to give it back, for one that has nothing.
    pub fn call_back(&self, hungry: u64) {
        let mut inside = self.inside.lock();
        inside.called = inside.richest(hungry).map(|(id, _)| id);
        inside.promised = inside.called.map(|_| hungry);
        inside.served += 1;
        let served = inside.served;
        inside.members.iter_mut().filter(|one| one.id == hungry).for_each(|one| one.served = served);
    }

    /// A queue pair is to give back what it was dealt.
    pub fn is_called_back(&self, id: u64) -> bool {
        self.inside.lock().called == Some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::null_mut;

    struct Nobody;

    impl Taker for Nobody {
        fn serve(&self) {}
    }

    unsafe extern "C" fn none(_: *mut ibv_srq, _: *mut ibv_recv_wr, _: *mut *mut ibv_recv_wr) -> i32 {
        0
    }

    /// A queue of eight buffers of which some are posted, by numbers from 1, and two queue pairs, 7 and 8.
    fn queue(count: u64) -> (SharedQueue, Arc<dyn Taker>) {
        let shared =
            SharedQueue::new(At(null_mut()), ibv_srq_attr { max_wr: 8, max_sge: 1, srq_limit: 0 }, none);
        let nobody: Arc<dyn Taker> = Arc::new(Nobody);
        [7, 8].into_iter().for_each(|id| shared.join(Arc::downgrade(&nobody), id));
        (1..=count).for_each(|wr_id| post(&shared, wr_id, true));
        (shared, nobody)
    }

    /// The program posts one, which goes to the NIC, or does not.
    fn post(shared: &SharedQueue, wr_id: u64, to_nic: bool) {
        let mut went = false;
        let own = || {
            went = true;
            0
        };
        assert_eq!(shared.push(Receive { wr_id, pieces: vec![] }, own), Ok(()));
        assert_eq!(went, to_nic, "{wr_id}");
    }

    fn dealt(shared: &SharedQueue, id: u64) -> Vec<u64> {
        let mut to = ReceiveQueue::new(8);
        shared.deal(id, &mut to);
        to.take_all().iter().map(|one| one.wr_id).collect()
    }

    fn receives(ids: &[u64]) -> Vec<Receive> {
        ids.iter().map(|wr_id| Receive { wr_id: *wr_id, pieces: vec![] }).collect()
    }

    #[test]
    fn what_no_message_came_into_is_dealt_once_all_have_left() {
        let (shared, _kept) = queue(8);
        assert!(shared.taken(1) && shared.taken(3) && !shared.taken(3));
        shared.leave();
        shared.give_back(7, vec![]);
        assert_eq!((dealt(&shared, 7), shared.is_left(), shared.is_taken_back()), (vec![], true, false));
        post(&shared, 9, false);
        post(&shared, 10, true);
        shared.give_back(8, vec![]);
        assert!(shared.is_taken_back());
        assert_eq!((dealt(&shared, 7), dealt(&shared, 8)), (vec![2, 4], vec![5, 6]), "no more than a share");
        assert_eq!(dealt(&shared, 8), [7], "the share is of what there is");
    }

    #[test]
    fn what_one_did_not_need_comes_back_in_front_and_is_not_lost_with_it() {
        let (shared, _kept) = queue(4);
        [7, 8].into_iter().for_each(|id| shared.give_back(id, vec![]));
        assert_eq!(dealt(&shared, 7), [1]);
        shared.give_back(7, receives(&[1]));
        assert_eq!(dealt(&shared, 7), [1]);
        shared.forget(7, receives(&[1]));
        assert_eq!(
            (dealt(&shared, 8), shared.moved().len()),
            (vec![1, 2], 1),
            "half of all is its own now: no other takes from it"
        );
        (1..=6).for_each(|wr_id| post(&shared, wr_id, false));
        assert_eq!(shared.push(receives(&[9])[0].clone(), || 0), Err(libc::ENOMEM));
    }

    #[test]
    fn what_the_nic_may_still_use_is_not_dealt() {
        let (shared, _kept) = queue(3);
        shared.spoil();
        [7, 8].into_iter().for_each(|id| shared.give_back(id, vec![]));
        assert_eq!((dealt(&shared, 7), shared.is_taken_back()), (vec![], false));
    }

    /// Open MPI over UCX: an unprotected connection of a rank to itself takes from the queue of the others. Those were
    /// moved, had no buffer, and both ends waited without end.
    #[test]
    fn one_that_was_moved_starves_while_one_that_is_not_protected_stays() {
        let (shared, _kept) = queue(2);
        assert!(!shared.has_strangers());
        shared.estrange(Some(8));
        assert!(shared.has_strangers());
        assert!(!shared.starves(7), "it is not moved");
        shared.give_back(7, vec![]);
        assert!(shared.starves(7) && !shared.starves(8));
        post(&shared, 3, false);
        assert!(!shared.starves(7), "there is one to deal");
        assert_eq!(dealt(&shared, 7), [3]);
        shared.forget(8, vec![]);
        let mut to = ReceiveQueue::new(8);
        shared.deal(7, &mut to);
        assert!(!shared.starves(7) && to.len() == 1, "it is gone, and what the NIC had is dealt");
        shared.estrange(None);
        assert!(!shared.starves(7), "the NIC has none any more");
    }

    /// One that was reset while another had been moved took the buffers that the other was dealt.
    #[test]
    fn one_that_begins_again_takes_nothing_that_was_dealt() {
        let (shared, kept) = queue(4);
        shared.estrange(Some(8));
        assert!(shared.renew(8, Arc::downgrade(&kept), 9) && !shared.has_strangers());
        shared.forget(8, vec![]);
        shared.give_back(7, vec![]);
        assert!(!shared.is_taken_back(), "it takes from the NIC's queue, as it did");
        shared.leave();
        assert!(!shared.renew(9, Arc::downgrade(&kept), 10));
        shared.give_back(9, vec![]);
        assert!(shared.is_taken_back());
    }

    /// A program that posts again once few are left waits for a message that may come to the queue pair that has none,
    /// while the other has all: neither end went on, with `ibv_srq_pingpong`.
    #[test]
    fn who_has_too_much_is_called_back_for_who_has_nothing() {
        let (shared, _kept) = queue(8);
        [7, 8].into_iter().for_each(|id| shared.give_back(id, vec![]));
        let (mut of_7, mut of_8) = (ReceiveQueue::new(8), ReceiveQueue::new(8));
        shared.deal(7, &mut of_7);
        while !of_8.is_empty() || shared.hoard_elsewhere(8).is_none() {
            assert!(!shared.is_called_back(7), "there is something to deal");
            shared.deal(8, &mut of_8);
            of_8.given(8);
            while of_8.take().is_some() {}
            shared.deal(8, &mut of_8);
        }
        assert_eq!((shared.hoard_elsewhere(8), shared.hoard_elsewhere(7)), (Some((2, 0)), None));
        shared.call_back(8);
        assert!(shared.is_called_back(7) && !shared.is_called_back(8));
        assert_eq!(shared.hoard_elsewhere(8), None, "one at a time");
        shared.give_back(7, of_7.take_all());
        assert!(!shared.is_called_back(7));
        shared.deal(8, &mut of_8);
        shared.deal(7, &mut of_7);
        assert_eq!((of_8.len(), of_7.len()), (1, 1));
    }

    #[test]
    fn the_last_buffer_is_for_the_one_that_asked() {
        let (shared, _kept) = queue(1);
        [7, 8].into_iter().for_each(|id| shared.give_back(id, vec![]));
        let (mut of_7, mut of_8) = (ReceiveQueue::new(8), ReceiveQueue::new(8));
        shared.deal(7, &mut of_7);
        assert_eq!((of_7.len(), shared.hoard_elsewhere(8)), (1, Some((1, 0))));
        shared.call_back(8);
        shared.give_back(7, of_7.take_all());
        shared.deal(7, &mut of_7);
        shared.deal(8, &mut of_8);
        assert_eq!((of_7.len(), of_8.len()), (0, 1));
        shared.call_back(7);
        shared.give_back(8, of_8.take_all());
        shared.forget(7, vec![]);
        shared.deal(8, &mut of_8);
        assert_eq!(of_8.len(), 1, "what is gone is promised nothing");
    }

    /// Two that received nothing any more took the last buffer from each other. The third never got it.
    #[test]
    fn each_that_has_none_gets_the_last_buffer_in_its_turn() {
        let (shared, kept) = queue(1);
        shared.join(Arc::downgrade(&kept), 9);
        let ids = [7, 8, 9];
        ids.into_iter().for_each(|id| shared.give_back(id, vec![]));
        let mut of = ids.map(|_| ReceiveQueue::new(8));
        shared.deal(7, &mut of[0]);
        let mut served = Vec::new();
        for _ in 0..6 {
            let first = |at: &usize| shared.hoard_elsewhere(ids[*at]).is_some_and(|(_, before)| before == 0);
            let at = (0..3).find(first).expect("one of those that have none");
            let from = of.iter().position(|one| !one.is_empty()).expect("one has it");
            shared.call_back(ids[at]);
            shared.give_back(ids[from], of[from].take_all());
            (0..3).for_each(|at| shared.deal(ids[at], &mut of[at]));
            assert_eq!(of[at].len(), 1);
            served.push(ids[at]);
        }
        assert_eq!(served, [8, 7, 9, 8, 7, 9]);
    }
}
