//! A reliable queue pair of the program: where its two directions run, and what has not completed.

use crate::objects::{At, CompletionQueue, Context, Domain, Goes, Member};
use crate::receive_queue::ReceiveQueue;
use crate::request::{Kind, Request};
use crate::send_queue::{Done, SendQueue};
use crate::settings::settings;
use crate::spare::{Keys, Spare};
use shunt_mlx5_sys::{
    IBV_SEND_SIGNALED, IBV_WC_COMP_SWAP, IBV_WC_FETCH_ADD, IBV_WC_RDMA_READ, IBV_WC_RDMA_WRITE, IBV_WC_RECV,
    IBV_WC_RETRY_EXC_ERR, IBV_WC_SEND, IBV_WC_SUCCESS, IBV_WC_WR_FLUSH_ERR, IBV_WR_SEND, ibv_qp, ibv_qp_attr,
    ibv_qp_cap, ibv_recv_wr, ibv_send_wr, ibv_wc,
};
use std::collections::VecDeque;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// Where one direction runs.
#[derive(Clone, Default)]
pub enum On {
    /// On the program's own queue pair.
    #[default]
    Own,
    /// Nowhere: it is being moved.
    Nowhere,
    /// On one that stands in.
    Spare(Track),
}

impl On {
    /// The queue pair that stands in.
    pub const fn spare(&self) -> Option<&Track> {
        match self {
            Self::Spare(track) => Some(track),
            _ => None,
        }
    }

    /// True on the program's own.
    pub const fn is_own(&self) -> bool {
        matches!(self, Self::Own)
    }
}

/// A queue pair that stands in, and where the counts of both begin.
#[derive(Clone)]
pub struct Track {
    /// The path's key.
    pub key: usize,
    /// The queue pair.
    pub queue: Arc<Spare>,
    /// The first request on it, by number.
    pub first_number: u64,
    /// The same by its index on that queue pair.
    pub first_index: u64,
}

/// What the program connected it with.
#[derive(Clone, Copy, Default)]
pub struct Connection {
    /// The attributes, gathered.
    pub attr: ibv_qp_attr,
    /// Its own GID.
    pub gid: [u8; 16],
    /// It was moved to RTS.
    pub sends: bool,
}

/// What changes.
#[derive(Default)]
pub struct State {
    /// What was posted to send.
    pub sends: SendQueue,
    /// What was posted to receive.
    pub receives: ReceiveQueue,
    /// Where it sends.
    pub send_on: On,
    /// Where it receives.
    pub recv_on: On,
    /// Requests are kept back: the queue pair that they would go to is being fenced.
    pub closed: bool,
    /// It is not protected, and why.
    pub passing: Option<&'static str>,
    /// No path is left: what is outstanding ends in errors.
    pub lost: bool,
    /// The error was told.
    pub lost_told: bool,
    /// A completion of the program's own queue pair said that something is wrong.
    pub own_failed: bool,
    /// The program's own queue pair is in ERR at its NIC, and stays there.
    pub own_fenced: bool,
    /// A request, and a receive, that were posted there to wake the program and are not flushed yet.
    pub waking: [bool; 2],
    /// One of a queue pair that stands in did: for which path and incarnation that was made.
    pub spare_failed: Option<(usize, u32)>,
    /// The first such completion.
    pub first_error: Option<ibv_wc>,
    /// Both ends know each other, and a backup is being made.
    pub armed: bool,
    /// Keys of the peer's memory on its rails.
    pub keys: Arc<RwLock<Keys>>,
    /// What it was connected with.
    pub connection: Connection,
    /// Times that it moved.
    pub switches: u32,
    /// Requests that were posted again.
    pub replayed: u64,
    /// What `ibv_wr_start` began, and the request that is being put together.
    pub batch: Vec<Request>,
}

/// A reliable queue pair of the program.
pub struct QueuePair {
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
    /// How much it holds.
    pub cap: ibv_qp_cap,
    /// Every request is signaled.
    pub all_signaled: bool,
    /// Queue pairs that stand in, or did, while they exist.
    pub spares: Mutex<Vec<Arc<Spare>>>,
    /// A thread of the program is between `ibv_wr_start` and its end.
    pub batching: AtomicBool,
    /// `ibv_wr_*` of it lead here.
    pub extended: AtomicBool,
    state: Mutex<State>,
}

/// Numbers of the request and the receive that are posted to wake the program: both are flushed.
const WAKE: [u64; 2] = [u64::MAX - 1, u64::MAX - 2];

/// True for errors that another path would not cure: the program's own.
const fn is_the_programs(status: u32) -> bool {
    // Local length, operation, protection, binding, access; what the responder refuses.
    matches!(status, 1 | 2 | 3 | 4 | 6 | 7 | 8 | 9 | 10 | 11 | 15)
}

impl QueuePair {
    /// One that was made: its number here, where it lies and its own number, and what it was made with.
    pub fn new(
        id: u64,
        (raw, qpn): (At<ibv_qp>, u32),
        domain: Arc<Domain>,
        (send_cq, recv_cq): (Arc<CompletionQueue>, Arc<CompletionQueue>),
        cap: ibv_qp_cap,
        all_signaled: bool,
    ) -> Self {
        let context = domain.context.clone();
        let state = State { sends: SendQueue::new(settings().answers), ..State::default() };
        Self {
            id,
            raw: RwLock::new(Some(raw)),
            qpn,
            context,
            domain,
            send_cq,
            recv_cq,
            cap,
            all_signaled,
            spares: Mutex::default(),
            batching: AtomicBool::new(false),
            extended: AtomicBool::new(false),
            state: Mutex::new(state),
        }
    }

    /// Its state.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
        self.send_cq.moved.fetch_add(1, Ordering::AcqRel);
        self.recv_cq.moved.fetch_add(1, Ordering::AcqRel);
    }

    /// The program may sleep until one of its queues has something for it.
    pub fn may_sleep(&self) -> bool {
        self.send_cq.wakes || self.recv_cq.wakes
    }

    /// Wakes a program that sleeps until a completion queue has something for it: a request, or a receive, of nothing
    /// is posted on its own queue pair, which is in ERR, and so is flushed into that very queue. It is alive while the
    /// caller holds it. False if nothing can be posted now.
    pub fn wake(&self, own: At<ibv_qp>, queue: &CompletionQueue) -> bool {
        let mut state = self.state();
        let which = self.wakes_by(queue);
        if state.own_fenced && !state.waking[which] {
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
        self.context.ops.post_send.is_some_and(|post| unsafe { post(own.0, &raw mut wr, &raw mut bad) } == 0)
    }

    /// The same of a receive.
    fn receive_nothing(&self, own: At<ibv_qp>) -> bool {
        let mut wr = ibv_recv_wr { wr_id: WAKE[1], ..ibv_recv_wr::default() };
        let mut bad = null_mut();
        // SAFETY: as above.
        self.context.ops.post_recv.is_some_and(|post| unsafe { post(own.0, &raw mut wr, &raw mut bad) } == 0)
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
                Err(_) => state.spare_failed = Some(track.queue.made_for),
            },
            status if is_the_programs(status) => {
                if let Some(request) = state.sends.get(number) {
                    state.first_error = Some(ibv_wc { wr_id: request.wr_id, qp_num: self.qpn, ..*wc });
                }
                state.lost = true;
            }
            _ => state.spare_failed = Some(track.queue.made_for),
        }
    }

    fn received(&self, state: &mut State, from: &Spare, wc: &ibv_wc, to: &mut VecDeque<ibv_wc>) {
        if wc.status != IBV_WC_SUCCESS {
            state.spare_failed = Some(from.made_for);
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

    /// The errors that the program would have seen without us: the first as it came, and all others flushed.
    fn flush(&self, state: &mut State, sends: bool, receives: bool, to: &mut VecDeque<ibv_wc>) {
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
        if receives {
            let ids = state.receives.give_up();
            to.extend(ids.into_iter().map(|wr_id| error(wr_id, IBV_WC_WR_FLUSH_ERR, IBV_WC_RECV)));
        }
    }

    /// Gives queue pairs that stand in what they have room for.
    pub fn push_out(&self, state: &mut State) {
        if let On::Spare(track) = &state.send_on
            && !state.closed
        {
            let keys = state.keys.read().unwrap_or_else(PoisonError::into_inner);
            while let Some((request, executed)) = state.sends.peek() {
                let number = state.sends.next();
                if !track.queue.post_send(&self.domain, &keys, number, request, executed) {
                    break;
                }
                state.sends.given();
            }
        }
        if let On::Spare(track) = &state.recv_on {
            while let Some(receive) = state.receives.peek() {
                if !track.queue.post_receive(&self.domain, receive) {
                    break;
                }
                state.receives.given();
            }
        }
    }
}

impl Member for QueuePair {
    fn absorb(&self, wc: &ibv_wc) -> Goes {
        let mut state = self.state();
        if state.woke(wc) {
            return Goes::Nowhere;
        }
        if state.passing.is_some() {
            return Goes::On;
        }
        if state.lost {
            return Goes::Nowhere;
        }
        if wc.status != IBV_WC_SUCCESS {
            return state.failed(wc);
        }
        let received = wc.opcode & IBV_WC_RECV != 0;
        let (there, fits) = match received {
            true if state.recv_on.is_own() => (true, state.receives.take() == Some(wc.wr_id)),
            false if state.send_on.is_own() => (true, state.sends.signaled_done(wc.wr_id).is_ok()),
            _ => (false, true),
        };
        if there && !fits {
            state.pass("its completions were not those of what it posted through ibv_post_send");
        }
        if there { Goes::On } else { Goes::Nowhere }
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
        }
    }
}

impl State {
    /// It is not protected from now on. Only while both directions are on the program's own queue pair.
    pub fn pass(&mut self, why: &'static str) {
        self.passing.get_or_insert(why);
    }

    /// True while everything is on the program's own queue pair and nothing is being moved.
    pub const fn is_at_home(&self) -> bool {
        self.send_on.is_own() && self.recv_on.is_own() && !self.closed && !self.lost
    }

    /// Takes a completion of what was posted to wake the program. True if this is one.
    fn woke(&mut self, wc: &ibv_wc) -> bool {
        let flushed = wc.status == IBV_WC_WR_FLUSH_ERR;
        let which = WAKE.iter().position(|number| flushed && *number == wc.wr_id);
        which.is_some_and(|which| std::mem::take(&mut self.waking[which]))
    }

    fn failed(&mut self, wc: &ibv_wc) -> Goes {
        let over = !self.send_on.is_own() && !self.recv_on.is_own();
        if over {
            return Goes::Nowhere;
        }
        if self.is_at_home() && is_the_programs(wc.status) {
            self.pass("an error of the program's own");
            return Goes::On;
        }
        if !self.armed && self.is_at_home() {
            self.pass("it failed before a backup was ready");
            return Goes::On;
        }
        self.first_error.get_or_insert(*wc);
        self.own_failed = true;
        Goes::Nowhere
    }
}
