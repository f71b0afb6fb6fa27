//! Buffers that several queue pairs take from: a shared receive queue of the program.
//!
//! While its queue pairs are on their own, their NIC has the buffers. One that was moved cannot take from there: it is
//! dealt some of what the program posts from then on, and of what no message has come into. That is known once no queue
//! pair is on its own any more, so all follow the first that leaves. What one was dealt and did not need comes back
//! when it moves again.

use crate::objects::At;
use crate::receive_queue::ReceiveQueue;
use crate::request::Receive;
use parking_lot::Mutex;
use shunt_mlx5_sys::{ibv_recv_wr, ibv_srq, ibv_srq_attr};
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

/// A queue pair that takes from it.
pub trait Taker: Send + Sync {
    /// There may be a buffer for it.
    fn serve(&self);
}

/// `post_srq_recv` of a provider.
pub type PostShared = unsafe extern "C" fn(*mut ibv_srq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> i32;

#[derive(Default)]
struct Inside {
    /// What the NIC was given and no message has come into, as far as is known: the oldest first.
    own: VecDeque<Receive>,
    /// What waits for a queue pair that was moved.
    pool: VecDeque<Receive>,
    /// Queue pairs that take from it: each with whether it receives on its own.
    members: Vec<(Weak<dyn Taker>, u64, bool)>,
    /// One has left, or is about to.
    left: bool,
    /// What the NIC was given has been taken back from it, by the book.
    taken_back: bool,
    /// It is not known any more what the NIC has.
    spoilt: bool,
}

impl Inside {
    fn away(&self) -> usize {
        self.members.iter().filter(|(.., home)| !home).count()
    }

    /// Once no queue pair takes from the NIC's queue, what is in it is for those that were moved.
    fn take_back(&mut self) {
        let alone = self.away() == self.members.len() && !self.members.is_empty();
        if alone && !self.spoilt && !self.taken_back {
            self.taken_back = true;
            let own = std::mem::take(&mut self.own);
            own.into_iter().rev().for_each(|one| self.pool.push_front(one));
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
        self.inside.lock().members.push((taker, id, true));
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
        let away = inside.members.iter().filter(|(.., home)| !home);
        away.filter_map(|(pair, ..)| pair.upgrade()).collect()
    }

    /// A message came into a buffer of the NIC's queue. False if there was none of this number.
    pub fn taken(&self, wr_id: u64) -> bool {
        let mut inside = self.inside.lock();
        let at = inside.own.iter().position(|one| one.wr_id == wr_id);
        at.is_some_and(|at| inside.own.remove(at).is_some())
    }

    /// It is not known any more what the NIC has: a queue pair is not protected any more, or lost.
    pub fn spoil(&self) {
        self.inside.lock().spoilt = true;
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
        dealt.into_iter().rev().for_each(|one| inside.pool.push_front(one));
        for (.., home) in inside.members.iter_mut().filter(|(_, of, _)| *of == id) {
            *home = false;
        }
        inside.take_back();
    }

    /// A queue pair is destroyed.
    pub fn forget(&self, id: u64, dealt: Vec<Receive>) {
        let mut inside = self.inside.lock();
        dealt.into_iter().rev().for_each(|one| inside.pool.push_front(one));
        inside.members.retain(|(_, of, _)| *of != id);
        inside.take_back();
    }

    /// Deals to a queue pair that was moved: no more than its share of a half, so that no other goes without.
    pub fn deal(&self, to: &mut ReceiveQueue) {
        let mut inside = self.inside.lock();
        let share = (self.attr.max_wr as usize / (2 * inside.members.len().max(1))).max(1);
        while to.len() < share
            && let Some(one) = inside.pool.pop_front()
        {
            to.push(one.wr_id, &one.pieces);
        }
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

    fn dealt(shared: &SharedQueue) -> Vec<u64> {
        let mut to = ReceiveQueue::new(8);
        shared.deal(&mut to);
        to.take_all().iter().map(|one| one.wr_id).collect()
    }

    fn receives(ids: &[u64]) -> Vec<Receive> {
        ids.iter().map(|wr_id| Receive { wr_id: *wr_id, pieces: vec![] }).collect()
    }

    #[test]
    fn what_no_message_came_into_is_dealt_once_all_have_left() {
        let (shared, _kept) = queue(5);
        assert!(shared.taken(1) && shared.taken(3) && !shared.taken(3));
        shared.leave();
        shared.give_back(7, vec![]);
        assert_eq!((dealt(&shared), shared.is_left(), shared.is_taken_back()), (vec![], true, false));
        post(&shared, 6, false);
        post(&shared, 9, true);
        shared.give_back(8, vec![]);
        assert!(shared.is_taken_back());
        assert_eq!((dealt(&shared), dealt(&shared)), (vec![2, 4], vec![5, 9]), "no more than a share");
        assert_eq!(dealt(&shared), [6]);
    }

    #[test]
    fn what_one_did_not_need_comes_back_in_front_and_is_not_lost_with_it() {
        let (shared, _kept) = queue(3);
        [7, 8].into_iter().for_each(|id| shared.give_back(id, vec![]));
        assert_eq!(dealt(&shared), [1, 2]);
        shared.give_back(7, receives(&[1, 2]));
        assert_eq!(dealt(&shared), [1, 2]);
        shared.forget(7, receives(&[1, 2]));
        assert_eq!(
            (dealt(&shared), shared.moved().len()),
            (vec![1, 2, 3], 1),
            "all of the share is one's own now"
        );
        (1..=8).for_each(|wr_id| post(&shared, wr_id, false));
        assert_eq!(shared.push(receives(&[9])[0].clone(), || 0), Err(libc::ENOMEM));
    }

    #[test]
    fn what_the_nic_may_still_use_is_not_dealt() {
        let (shared, _kept) = queue(3);
        shared.spoil();
        [7, 8].into_iter().for_each(|id| shared.give_back(id, vec![]));
        assert_eq!((dealt(&shared), shared.is_taken_back()), (vec![], false));
    }
}
