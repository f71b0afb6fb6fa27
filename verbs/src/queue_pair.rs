//! A reliable queue pair of the program: where its two directions run, and what has not completed.

use crate::batch::Batch;
use crate::bell::{Bell, Sleeper};
use crate::completions::{CompletionQueue, Goes, Member, Tally};
use crate::objects::{At, Context, Domain, PostRecv, PostSend, no_post};
use crate::pair_state::{Held, NOT_POSTED, On, STOPPED, State, Track, WAKE};
use crate::settings::settings;
use crate::shared_receive::{SharedQueue, Taker};
use crate::spare::Spare;
use crate::voice::{self, is_the_programs};
use parking_lot::Mutex as Lock;
use shunt_mlx5_sys::{
    IBV_SEND_SIGNALED, IBV_WC_COMP_SWAP, IBV_WC_FETCH_ADD, IBV_WC_RDMA_READ, IBV_WC_RDMA_WRITE, IBV_WC_RECV,
    IBV_WC_RETRY_EXC_ERR, IBV_WC_RNR_RETRY_EXC_ERR, IBV_WC_SEND, IBV_WC_SUCCESS, IBV_WC_WR_FLUSH_ERR,
    IBV_WR_SEND, ibv_qp, ibv_qp_cap, ibv_recv_wr, ibv_send_wr, ibv_wc,
};
use shunt_verbs_journal::receive_queue::ReceiveQueue;
use shunt_verbs_journal::request::Kind;
use shunt_verbs_journal::send_queue::{Done, SendQueue};
use shunt_verbs_near::gate::{Gate, Inside};
use std::collections::VecDeque;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

/// A reliable queue pair of the program. What each post looks at comes first.
#[repr(C)]
pub struct QueuePair {
    state: Gate<State>,
    /// Its number here: not used again.
    pub id: u64,
    /// Its address, while the program has it.
    pub raw: RwLock<Option<At<ibv_qp>>>,
    /// Its number.
    pub qpn: u32,
    /// Where it was made.
    pub context: Arc<Context>,
    /// Its domain.
    pub domain: Arc<Domain>,
    /// Where its completions go.
    pub send_cq: Arc<CompletionQueue>,
    /// The same of messages that arrive.
    pub recv_cq: Arc<CompletionQueue>,
    /// Where its buffers come from, unless they are its own.
    pub shared: Option<Arc<SharedQueue>>,
    /// How much it holds, and what stands in for it.
    pub cap: ibv_qp_cap,
    /// Every request is signaled.
    pub all_signaled: bool,
    /// Queue pairs that stand in, or did, while they exist.
    pub spares: Mutex<Vec<Arc<Spare>>>,
    /// What wakes a program that sleeps for messages, if its own queue pair cannot.
    pub bell: Mutex<Option<Bell>>,
    /// A thread of the program is between `ibv_wr_start` and its end.
    pub batching: AtomicBool,
    /// `ibv_wr_*` of it lead here.
    pub extended: AtomicBool,
    /// What they have put together.
    pub batch: Lock<Batch>,
    /// What the provider posts by.
    pub post_send: PostSend,
    /// The same of receives.
    pub post_recv: PostRecv,
    /// Who is told of it; none: this process's agent.
    pub keeper: OnceLock<Arc<dyn Keeper>>,
    tally: Arc<Tally>,
}

/// Who is told of what the program does with its queue pairs.
pub trait Keeper: Send + Sync {
    /// It is connected.
    fn connected(&self, pair: &Arc<QueuePair>);
    /// It is being destroyed.
    fn gone(&self, pair: &Arc<QueuePair>);
    /// Something has changed that must be looked at now.
    fn stirred(&self);
    /// Something has that may wait a few milliseconds.
    fn stirred_later(&self);
}

/// Where completions of what it sends and receives go, and where its buffers come from if they are shared.
pub type Queues = (Arc<CompletionQueue>, Arc<CompletionQueue>, Option<Arc<SharedQueue>>);

impl QueuePair {
    /// One that was made: its number here, where it lies and its own number, and what it was made with.
    pub fn new(
        id: u64,
        (raw, qpn): (At<ibv_qp>, u32),
        domain: Arc<Domain>,
        (send_cq, recv_cq, shared): Queues,
        mut cap: ibv_qp_cap,
        all_signaled: bool,
    ) -> Self {
        let context = domain.context.clone();
        if let Some(shared) = &shared {
            // What stands in has a queue of its own.
            (cap.max_recv_wr, cap.max_recv_sge) = (shared.attr.max_wr, shared.attr.max_sge);
        }
        let state = State {
            sends: SendQueue::new(settings().policy, all_signaled, cap.max_send_wr as usize),
            receives: ReceiveQueue::new(cap.max_recv_wr as usize),
            ..State::default()
        };
        let post_send = context.ops.post_send.unwrap_or(no_post);
        let post_recv = context.ops.post_recv.unwrap_or(no_post);
        Self {
            id,
            raw: RwLock::new(Some(raw)),
            qpn,
            context,
            domain,
            send_cq,
            recv_cq,
            shared,
            cap,
            all_signaled,
            spares: Mutex::default(),
            bell: Mutex::default(),
            batching: AtomicBool::new(false),
            extended: AtomicBool::new(false),
            batch: Lock::default(),
            post_send,
            post_recv,
            keeper: OnceLock::new(),
            tally: Arc::new(Tally::new(qpn)),
            state: Gate::new(state),
        }
    }

    /// Its state.
    pub fn state(&self) -> Held<'_> {
        let mut state = self.state.enter_first();
        state.caught_up();
        state.settle(&self.tally);
        Held(state)
    }

    /// Why it is not protected any more, and whether it stood elsewhere by then.
    pub fn over(&self) -> Option<(&'static str, bool)> {
        self.state().over()
    }

    /// Its state says something new to who carries it on, who is to look now.
    #[cold]
    pub fn stir(&self) {
        if let Some(keeper) = self.keeper.get() {
            keeper.stirred();
        }
    }

    /// True from when the program connects it until it ends it.
    pub fn is_connected(&self) -> bool {
        let state = self.state();
        state.connection.receives && state.over().is_none_or(|(why, _)| why != STOPPED)
    }

    /// True if it goes on elsewhere when its device fails.
    pub fn is_protected(&self) -> bool {
        let shares = self.shared.as_ref().is_some_and(|shared| shared.has_strangers());
        let state = self.state();
        state.armed && !state.lost && state.over().is_none() && !(shares && state.is_at_home())
    }

    /// It is not protected, for this reason, and keeps the buffers of a queue that it shares; in ERR it takes nothing.
    pub fn estrange(&self, why: &str) {
        if let Some(shared) = self.shared.as_ref().filter(|_| why != STOPPED) {
            shared.estrange(Some(self.id));
        }
    }

    /// Its state, not up to date, for who posts requests that are [`SendQueue::usual`]: none is while requests do not
    /// go straight to the program's own queue pair. None if somebody else is there.
    #[inline(always)]
    pub fn try_state(&self) -> Option<Inside<'_, State>> {
        self.state.take()
    }

    /// The same after all others, for any request.
    pub fn wait_state(&self) -> Inside<'_, State> {
        self.state.wait()
    }

    /// Its state for who posts to the program's own queue pair: not up to date. None if requests do not go there.
    pub fn straight_sends(&self) -> Option<Inside<'_, State>> {
        let mut state = self.state.take().unwrap_or_else(|| self.state.wait());
        state.goes_straight().then(|| state.caught_up())?;
        Some(state)
    }

    /// The same of receives.
    #[inline]
    pub fn straight_receives(&self) -> Option<Inside<'_, State>> {
        let state = self.state.take().unwrap_or_else(|| self.state.wait());
        state.receives_straight().then_some(state)
    }

    /// Makes room in the journals: first by what is complete.
    #[cold]
    pub fn make_room(&self, state: &mut State) {
        state.settle(&self.tally);
        state.sends.make_room();
    }

    /// True if the newest completions are those of the newest requests, and receives, that are known to be complete.
    /// Of requests if their completion queue was entered, and so of receives. The state is up to date.
    pub fn fits(&self, state: &State, receives: bool) -> bool {
        let known = if receives { state.receives.newest_done() } else { state.sends.newest_done() };
        let lane = usize::from(receives);
        state.settled[lane] == 0 || known == self.tally.newest(lane)
    }

    /// Nobody is between `ibv_wr_start` and its end until [`QueuePair::end_batch`].
    pub fn begin_batch(&self) {
        while self.batching.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
    }

    /// See [`QueuePair::begin_batch`].
    pub fn end_batch(&self) {
        self.batching.store(false, Ordering::Release);
    }

    /// From now on completions come from elsewhere as well.
    pub fn mark_moved(&self) {
        self.send_cq.mark_moved();
        self.recv_cq.mark_moved();
    }

    /// The program may sleep until one of its queues has something for it.
    pub fn may_sleep(&self) -> bool {
        self.send_cq.wakes || self.recv_cq.wakes
    }

    /// Makes what wakes a program that sleeps for messages where its own queue pair cannot, while the NIC answers.
    pub fn hang_bell(self: &Arc<Self>) {
        // While the program has the queue pair, its domain and completion queues are alive.
        let raw = self.raw.read().unwrap_or_else(PoisonError::into_inner);
        if raw.is_none() || self.shared.is_none() || !self.recv_cq.wakes {
            return;
        }
        let mut bell = self.bell.lock().unwrap_or_else(PoisonError::into_inner);
        if bell.is_none() {
            let port = self.state().connection.attr.port_num;
            let sleeper = Arc::downgrade(self);
            *bell = Bell::make(self.domain.raw, port, &self.recv_cq, sleeper);
        }
    }

    /// Wakes a program that sleeps until a completion queue has something for it: a request, or a receive, of nothing
    /// is posted on its own queue pair, which is in ERR, and so is flushed into that very queue; a receive is posted on
    /// the bell if buffers are shared. It is alive while the caller holds it. False if nothing can be posted now.
    pub fn wake(&self, own: At<ibv_qp>, queue: &CompletionQueue) -> bool {
        let which = self.wakes_by(queue);
        let bell = self.bell.lock().unwrap_or_else(PoisonError::into_inner);
        let own = match (which, &self.shared) {
            (1, Some(_)) => bell.as_ref().map(Bell::queue_pair),
            _ => Some(own),
        };
        let mut state = self.state();
        if let Some(own) = own.filter(|_| (state.own_fenced || state.own_stopped) && !state.waking[which]) {
            state.waking[which] = if which == 0 { self.post_nothing(own) } else { self.receive_nothing(own) };
        }
        // One that is not flushed yet wakes it later than now.
        state.waking[which]
    }

    /// True if what was posted to wake the program is not flushed, or was not taken.
    pub fn is_waking(&self, queue: &CompletionQueue) -> bool {
        self.state().waking[self.wakes_by(queue)]
    }

    /// 0 if the program is woken by a request, 1 if by a receive.
    fn wakes_by(&self, queue: &CompletionQueue) -> usize {
        let sends = std::ptr::eq(&*self.send_cq, queue) && self.cap.max_send_wr > 0;
        usize::from(!sends)
    }

    /// Posts a request of nothing on the program's own queue pair.
    fn post_nothing(&self, own: At<ibv_qp>) -> bool {
        let mut wr = ibv_send_wr {
            wr_id: WAKE[0],
            opcode: IBV_WR_SEND,
            send_flags: IBV_SEND_SIGNALED,
            ..ibv_send_wr::default()
        };
        let mut bad = null_mut();
        // SAFETY: the caller holds the queue pair; the request is ours.
        unsafe { (self.post_send)(own.0, &raw mut wr, &raw mut bad) == 0 }
    }

    /// The same of a receive.
    fn receive_nothing(&self, own: At<ibv_qp>) -> bool {
        let mut wr = ibv_recv_wr { wr_id: WAKE[1], ..ibv_recv_wr::default() };
        let mut bad = null_mut();
        // SAFETY: as above.
        unsafe { (self.post_recv)(own.0, &raw mut wr, &raw mut bad) == 0 }
    }

    fn sent(&self, state: &mut State, track: &Track, wc: &ibv_wc, to: &mut VecDeque<ibv_wc>) {
        // Probes came before the first of ours.
        let Some(number) = wc.wr_id.checked_sub(track.first_number).map(|_| wc.wr_id) else { return };
        match wc.status {
            IBV_WC_SUCCESS => match state.sends.numbered_done(number) {
                Ok(done) => {
                    let last = done.len().saturating_sub(1);
                    let size = |at: usize| if at == last { wc.byte_len } else { 0 };
                    to.extend(done.iter().enumerate().map(|(at, one)| self.completion(*one, size(at))));
                }
                Err(_) => state.spare_failed[0] = Some(track.queue.made_for),
            },
            // A shared queue's buffers may have been dealt to another: one move deals them again.
            IBV_WC_RNR_RETRY_EXC_ERR if state.not_ready.replace(number) != Some(number) => {
                state.spare_failed[0] = Some(track.queue.made_for);
            }
            status if is_the_programs(status) => {
                if let Some(wr_id) = state.sends.wr_id(number) {
                    state.first_error = Some(ibv_wc { wr_id, qp_num: self.qpn, ..*wc });
                }
                state.lost = true;
            }
            _ => state.spare_failed[0] = Some(track.queue.made_for),
        }
    }

    fn received(&self, state: &mut State, from: &Spare, wc: &ibv_wc, to: &mut VecDeque<ibv_wc>) {
        if wc.status != IBV_WC_SUCCESS {
            state.spare_failed[1] = Some(from.made_for);
        } else if let Some(wr_id) = state.receives.take() {
            let src_qp = state.connection.attr.dest_qp_num;
            to.push_back(ibv_wc { wr_id, qp_num: self.qpn, src_qp, ..*wc });
        }
    }

    /// A completion as the program would have seen it.
    pub fn completion(&self, done: Done, bytes: u32) -> ibv_wc {
        let opcode = match done.kind {
            Kind::Send(_) => IBV_WC_SEND,
            Kind::Write(_) => IBV_WC_RDMA_WRITE,
            Kind::Read => IBV_WC_RDMA_READ,
            Kind::FetchAdd(_) => IBV_WC_FETCH_ADD,
            Kind::CompareSwap(..) => IBV_WC_COMP_SWAP,
        };
        let byte_len = match done.kind {
            Kind::Read => bytes,
            kind if kind.is_atomic() => 8,
            _ => 0,
        };
        let status = IBV_WC_SUCCESS;
        ibv_wc { wr_id: done.wr_id, status, opcode, byte_len, qp_num: self.qpn, ..ibv_wc::default() }
    }

    /// The errors that the program would have seen: the first, and all others flushed. Once no NIC uses its buffers.
    fn flush(&self, state: &mut State, sends: bool, receives: bool, to: &mut VecDeque<ibv_wc>) {
        if !state.released {
            return;
        }
        let error = |wr_id, status, opcode| {
            let vendor_err = if status == IBV_WC_WR_FLUSH_ERR { 0xf9 } else { 0x81 };
            ibv_wc { wr_id, status, opcode, vendor_err, qp_num: self.qpn, ..ibv_wc::default() }
        };
        if sends {
            for (n, wr_id) in state.sends.give_up().into_iter().enumerate() {
                let first = n == 0 && !std::mem::replace(&mut state.lost_told, true);
                let known = state.first_error.filter(|known| known.status != IBV_WC_WR_FLUSH_ERR);
                let cause = known.map_or(IBV_WC_RETRY_EXC_ERR, |known| known.status);
                to.push_back(error(wr_id, if first { cause } else { IBV_WC_WR_FLUSH_ERR }, IBV_WC_SEND));
            }
        }
        // Buffers that are shared are not flushed.
        if receives && self.shared.is_none() {
            let ids = state.receives.give_up();
            to.extend(ids.into_iter().map(|wr_id| error(wr_id, IBV_WC_WR_FLUSH_ERR, IBV_WC_RECV)));
        }
    }

    /// Gives queue pairs that stand in what they have room for. Of one that is lost nothing is sent any more: what is
    /// behind an error never arrives.
    pub fn push_out(&self, state: &mut State) {
        if state.lost {
            return;
        }
        if let On::Spare(track) = &state.send_on
            && !state.closed
        {
            let keys = state.keys.read().unwrap_or_else(PoisonError::into_inner);
            while let Some((request, executed)) = state.sends.peek() {
                let number = state.sends.next();
                if !track.queue.post_send(&self.domain, &keys, number, &request, executed) {
                    break;
                }
                state.sends.given(1);
            }
        }
        if let On::Spare(track) = &state.recv_on {
            if let Some(shared) = &self.shared {
                shared.deal(self.id, &mut state.receives);
            }
            while let Some(receive) = state.receives.peek() {
                if !track.queue.post_receive(&self.domain, &receive) {
                    break;
                }
                state.receives.given(1);
            }
        }
    }
}

impl Member for QueuePair {
    fn absorb(&self, wc: &ibv_wc) -> (Goes, bool) {
        let mut state = self.state();
        if state.woke(wc) {
            return (Goes::Nowhere, false);
        }
        let received = wc.status == IBV_WC_SUCCESS && wc.opcode & IBV_WC_RECV != 0;
        let shared = self.shared.as_ref().filter(|_| received);
        if let Some(why) = state.passing {
            voice::failed(wc, &self.context.device, why);
            if let Some(shared) = shared {
                shared.taken(wc.wr_id);
            }
            return (Goes::On, false);
        }
        if state.lost {
            return (Goes::Nowhere, false);
        }
        if wc.status != IBV_WC_SUCCESS {
            let goes = state.failed(wc);
            if let Some(why) = state.passing {
                voice::failed(wc, &self.context.device, why);
            }
            drop(state);
            self.stir();
            return (goes, false);
        }
        if let Some(shared) = shared.filter(|_| state.recv_on.is_own()) {
            if shared.taken(wc.wr_id) {
                state.receives.came_elsewhere();
            } else {
                state.pass(NOT_POSTED);
            }
            return (Goes::On, false);
        }
        let there = if received { state.recv_on.is_own() } else { state.send_on.is_own() };
        (if there { Goes::On } else { Goes::Nowhere }, there)
    }

    fn tally(&self) -> &Arc<Tally> {
        &self.tally
    }

    fn is_counted(&self) -> bool {
        self.shared.is_none()
    }

    fn collect(&self, of: &CompletionQueue, to: &mut VecDeque<ibv_wc>) {
        let (from_sends, from_receives) =
            (std::ptr::eq(&*self.send_cq, of), std::ptr::eq(&*self.recv_cq, of));
        let mut state = self.state();
        if state.lost {
            return self.flush(&mut state, from_sends, from_receives, to);
        }
        if from_sends && let On::Spare(track) = &state.send_on {
            let track = track.clone();
            track.queue.poll_sends(|wc| self.sent(&mut state, &track, wc, to));
            self.push_out(&mut state);
        }
        if from_receives && let On::Spare(track) = &state.recv_on {
            let queue = track.queue.clone();
            queue.poll_receives(|wc| self.received(&mut state, &queue, wc, to));
            if self.shared.is_some() {
                self.push_out(&mut state);
            }
        }
        let failed = state.spare_failed != [None; 2] || state.lost;
        drop(state);
        if failed {
            self.stir();
        }
    }

    fn give_up(&self) {
        self.state().stop("its completions are taken by ibv_start_poll");
        self.stir();
    }
}

impl Sleeper for QueuePair {
    fn woke(&self, wc: &ibv_wc) {
        self.state().woke(wc);
    }
}

impl Taker for QueuePair {
    fn serve(&self) {
        let mut state = self.state();
        self.push_out(&mut state);
    }
}
