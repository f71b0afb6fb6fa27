//! One end of a connection as a program has it: what it posts, what it expects, and what is wrong with what comes.
//!
//! Both ends know what the other posts. A message is checked against its number when it comes, and with it all WRITEs
//! before it: what is lost, doubled, out of order, or written again behind the reader is found. Memory of a request is
//! used again as soon as that is complete: what is posted again later shows as rubbish at the other end.

use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use shunt_mlx5_sys as sys;
use shunt_verbs::hooks::data;
use shunt_verbs::queue_pair::QueuePair;

use super::extended::{self, Built};
use super::requests::{Does, Layout, PATTERN, PLACE, RECEIVES, Request, fill, requests, shape};
use super::spec::{Board, Card};
use crate::oracle::{load, store};

/// Requests under way at most.
pub(super) const WINDOW: u64 = 16;
/// What stands where a source may be used again, a target was read, and a result was taken.
const REUSED: u64 = u64::MAX;
const READ: u64 = u64::MAX - 1;
pub(super) const TAKEN: u64 = u64::MAX - 2;

/// One end.
pub(super) struct Connection {
    /// Its number among those of its process.
    pub number: usize,
    me: u32,
    /// As libibverbs has it, and as this library does.
    pub qp: *mut sys::ibv_qp,
    pub pair: Arc<QueuePair>,
    own: Layout,
    there: Layout,
    lkey: u32,
    rkey: u32,
    requests: Vec<Request>,
    theirs: Vec<Request>,
    /// The next number to post, and the first that is not known to be complete.
    next: u64,
    done: u64,
    /// Atomics that are complete, and those that were posted: adds, and swaps.
    atomics: [(u64, u64); 2],
    /// Numbers of messages that come, and how many came.
    due: Vec<u64>,
    heard: usize,
    /// WRITEs of the other end before this number were read.
    read: u64,
    needs_answers: bool,
    /// It posts by `ibv_wr_*`.
    extended: bool,
    /// It got an error.
    pub lost: bool,
    /// The first signaled request that was posted after a fault that is measured.
    probe: Option<u64>,
    /// How long after each fault, but the last ones, such a request completed.
    pub gaps_ns: Vec<u64>,
    /// When it posts next.
    pub next_at: u64,
    pub wrong: Vec<String>,
}

/// What a connection posts, and how it is judged.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub seed: u64,
    pub requests: u64,
    pub posts: [bool; 2],
    pub atomics: bool,
    pub needs_answers: bool,
    pub extended: bool,
    /// What an end posts, if it is not drawn.
    pub few: Vec<Request>,
}

impl Connection {
    pub(super) fn new(
        (me, number): (u32, usize),
        plan: &Plan,
        (qp, pair): (*mut sys::ibv_qp, Arc<QueuePair>),
        (base, lkey): (u64, u32),
        there: Card,
    ) -> Self {
        let stream = |process: u32| {
            let count = if plan.posts[process as usize] { plan.requests } else { 0 };
            if !plan.few.is_empty() {
                return plan.few[..count as usize].to_vec();
            }
            requests(plan.seed ^ u64::from(process) << 32 ^ (number as u64) << 40, count, plan.atomics)
        };
        let (requests, theirs) = (stream(me), stream(1 - me));
        let numbered = (0u64..).zip(&theirs);
        let due = numbered.filter(|(_, one)| one.is_two_sided()).map(|(number, _)| number).collect();
        let layout = |base| Layout::new(base, plan.requests);
        let mut made = Self {
            number,
            me,
            qp,
            pair,
            own: layout(base),
            there: layout(there.base),
            lkey,
            rkey: there.rkey,
            requests,
            theirs,
            next: 0,
            done: 0,
            atomics: [(0, 0); 2],
            due,
            heard: 0,
            read: 0,
            needs_answers: plan.needs_answers,
            extended: plan.extended,
            lost: false,
            probe: None,
            gaps_ns: Vec::new(),
            next_at: 0,
            wrong: Vec::new(),
        };
        made.fill_all();
        made
    }

    fn fill_all(&mut self) {
        for (number, request) in (0u64..).zip(&self.requests) {
            let of = self.of(self.me);
            let source = self.own.source(number, *request);
            fill(source, request.bytes(), |word| shape(of, number, word));
            if !request.writes() && !request.fetches() {
                store(source, number);
            }
        }
        let of = self.of(self.me);
        for number in 0..PATTERN / PLACE {
            fill(self.own.pattern(number), PLACE, |word| shape(of, 1 << 20 | number, word));
        }
        [false, true].into_iter().for_each(|swapped| store(self.own.word(swapped), 0));
    }

    /// Whose words these are.
    const fn of(&self, process: u32) -> u64 {
        (process as u64) << 8 | self.number as u64
    }

    fn complain(&mut self, what: impl FnOnce(&Self) -> String) {
        let text = format!("process {}, connection {}: {}", self.me, self.number, what(self));
        self.wrong.push(text);
    }

    /// Posts a receive. The queue pair is in INIT or further.
    pub(super) fn receive(&mut self, slot: u64) {
        let mut sge = sys::ibv_sge { addr: self.own.buffer(slot), length: PLACE as u32, lkey: self.lkey };
        let mut wr =
            sys::ibv_recv_wr { wr_id: slot, sg_list: &raw mut sge, num_sge: 1, ..Default::default() };
        let mut bad = null_mut();
        // SAFETY: the queue pair is this program's and alive; the buffer is in its region.
        let errno = unsafe { data::post_recv(self.qp, &raw mut wr, &raw mut bad) };
        if errno != 0 {
            self.complain(|_| format!("a receive was refused: {errno}"));
        }
    }

    /// Posts the next request, if its time has come; by `ibv_wr_*` often two together.
    pub(super) fn post(&mut self, now: u64, pace_ns: u64, board: &Board) {
        let room = (self.requests.len() as u64).min(self.done + WINDOW).saturating_sub(self.next);
        if board.lost.borrow()[self.number] || room == 0 || now < self.next_at {
            return;
        }
        // Its queue pair is being moved to ERR: a thread would wait, this one looks again.
        if self.extended && self.pair.batching.load(Ordering::Acquire) {
            return;
        }
        self.next_at = now + pace_ns;
        let first = self.next;
        let count = if self.extended { room.min(1 + first % 2) } else { 1 };
        let mut list: Vec<Built> = (first..first + count).map(|number| self.build(number)).collect();
        let errno = match self.extended {
            // SAFETY: the queue pair is this program's, alive, and made for such; what it names is in its region.
            true => unsafe { extended::post(self.qp, &list) },
            false => {
                let (sge, wr) = &mut list[0];
                wr.sg_list = &raw mut *sge;
                let mut bad = null_mut();
                // SAFETY: as above.
                unsafe { data::post_send(self.qp, &raw mut *wr, &raw mut bad) }
            }
        };
        if errno != 0 {
            self.complain(|_| format!("request {first} was refused: {errno}"));
        }
        let fault_at = board.faults_at.borrow().get(self.gaps_ns.len()).copied();
        if self.probe.is_none() && fault_at.is_some_and(|at| at <= now) {
            let signaled = |number: &u64| self.requests[*number as usize].signaled;
            self.probe = (first..first + count).find(signaled);
        }
        self.next += count;
    }

    /// A request, but for where its list of buffers is.
    fn build(&mut self, number: u64) -> Built {
        let request = self.requests[number as usize];
        let length = request.bytes();
        let addr = match request.fetches() {
            true => self.own.result(number),
            false => self.own.source(number, request),
        };
        let sge = sys::ibv_sge { addr, length: length as u32, lkey: self.lkey };
        let mut wr = sys::ibv_send_wr { wr_id: number, num_sge: 1, ..Default::default() };
        let (opcode, remote) = match request.does {
            Does::Send => (sys::IBV_WR_SEND, 0),
            Does::SendImmediate => (sys::IBV_WR_SEND_WITH_IMM, 0),
            Does::Write | Does::WriteLarge => (sys::IBV_WR_RDMA_WRITE, self.there.target(number, request)),
            Does::WriteImmediate => (sys::IBV_WR_RDMA_WRITE_WITH_IMM, self.there.target(number, request)),
            Does::Read => (sys::IBV_WR_RDMA_READ, self.there.pattern(number)),
            Does::Add => (sys::IBV_WR_ATOMIC_FETCH_AND_ADD, self.there.word(false)),
            Does::Swap => (sys::IBV_WR_ATOMIC_CMP_AND_SWP, self.there.word(true)),
        };
        wr.opcode = opcode;
        wr.__bindgen_anon_1.imm_data = (number as u32).to_be();
        if request.is_atomic() {
            let posted = &mut self.atomics[usize::from(request.does == Does::Swap)].1;
            // The one before it has left that count there.
            let (compare, swap) = if request.does == Does::Swap { (*posted, *posted + 1) } else { (1, 0) };
            wr.wr.atomic.remote_addr = remote;
            (wr.wr.atomic.compare_add, wr.wr.atomic.swap, wr.wr.atomic.rkey) = (compare, swap, self.rkey);
            *posted += 1;
        } else {
            (wr.wr.rdma.remote_addr, wr.wr.rdma.rkey) = (remote, self.rkey);
        }
        let inline = request.inline && length <= 16 && !request.fetches();
        for (set, flag) in [(request.signaled, sys::IBV_SEND_SIGNALED), (inline, sys::IBV_SEND_INLINE)] {
            wr.send_flags |= if set { flag } else { 0 };
        }
        (sge, wr)
    }

    /// A completion of this queue pair; of a message into a buffer that is shared: where that is.
    pub(super) fn take(&mut self, now: u64, wc: &sys::ibv_wc, at: Option<u64>, board: &Board) {
        if self.probe == Some(wc.wr_id) && wc.opcode & sys::IBV_WC_RECV == 0 {
            let fault_at = board.faults_at.borrow()[self.gaps_ns.len()];
            self.gaps_ns.push(now - fault_at);
            self.probe = None;
        }
        match (wc.status, wc.opcode & sys::IBV_WC_RECV != 0) {
            (sys::IBV_WC_SUCCESS, true) => self.came(wc, at),
            (sys::IBV_WC_SUCCESS, false) => self.completed(wc),
            _ => self.failed(wc, board),
        }
    }

    fn completed(&mut self, wc: &sys::ibv_wc) {
        let due = (self.done..self.next).find(|number| self.requests[*number as usize].signaled);
        if due != Some(wc.wr_id) || self.lost {
            return self.complain(|_| format!("a completion of {} came, {due:?} is due", wc.wr_id));
        }
        (self.done..=wc.wr_id).for_each(|number| self.finished(number));
        self.done = wc.wr_id + 1;
    }

    /// A request is complete: its memory is used again, and its result is taken.
    fn finished(&mut self, number: u64) {
        let (request, result) = (self.requests[number as usize], self.own.result(number));
        match request.does {
            Does::Read => {
                let of = self.of(1 - self.me);
                let what = (1 << 20) | (number % (PATTERN / PLACE));
                let right = (0..PLACE / 8).all(|word| load(result + 8 * word) == shape(of, what, word));
                if !right {
                    self.complain(|_| format!("what {number} read is not there when it is complete"));
                }
                fill(result, PLACE, |_| TAKEN);
            }
            Does::Add | Does::Swap => {
                let (before, which) = (load(result), usize::from(request.does == Does::Swap));
                let expected = self.atomics[which].0;
                if self.needs_answers && before != expected {
                    self.complain(|_| format!("atomic {number} found {before}, expected {expected}"));
                }
                self.atomics[which].0 += 1;
                store(result, TAKEN);
            }
            _ => fill(self.own.source(number, request), request.bytes(), |_| REUSED),
        }
    }

    /// A message came: it is the next one, and all WRITEs before it are there.
    fn came(&mut self, wc: &sys::ibv_wc, shared: Option<u64>) {
        let slot = if shared.is_some() { wc.wr_id } else { self.heard as u64 % RECEIVES };
        let buffer = shared.unwrap_or_else(|| self.own.buffer(slot));
        let Some(number) = self.due.get(self.heard).copied() else {
            return self.complain(|_| "a message came that was never sent".into());
        };
        let request = self.theirs[number as usize];
        // SAFETY: plain words.
        let immediate = u32::from_be(unsafe { wc.__bindgen_anon_1.imm_data });
        let (found, opcode) = match request.does {
            Does::WriteImmediate => (u64::from(immediate), sys::IBV_WC_RECV_RDMA_WITH_IMM),
            Does::SendImmediate => (u64::from(immediate), sys::IBV_WC_RECV),
            _ => (load(buffer), sys::IBV_WC_RECV),
        };
        let is_written = request.does == Does::WriteImmediate;
        let content = load(buffer + 8);
        let whole = is_written || content == shape(self.of(1 - self.me), number, 1);
        if (wc.wr_id, wc.opcode, found) != (slot, opcode, number) || !whole {
            let got = (wc.wr_id, wc.opcode, found, content);
            self.complain(|_| format!("message {number} is due in buffer {slot}, got {got:?}"));
        }
        if u64::from(wc.byte_len) != request.bytes() {
            self.complain(|_| format!("message {number} has {} bytes", wc.byte_len));
        }
        self.read_until(number + 1);
        self.heard += 1;
        match shared {
            Some(buffer) => fill(buffer, PLACE, |_| TAKEN),
            None => self.receive(slot),
        }
    }

    /// Reads what the other end wrote before that request.
    fn read_until(&mut self, end: u64) {
        let of = self.of(1 - self.me);
        for number in self.read..end {
            let request = self.theirs[number as usize];
            let at = self.own.target(number, request);
            if !request.writes() {
                continue;
            }
            let wrong = (0..request.bytes() / 8).find(|word| load(at + 8 * word) != shape(of, number, *word));
            if let Some(word) = wrong {
                let found = load(at + 8 * word);
                self.complain(|_| format!("{found:#x} is in the place of {number}, word {word}"));
            }
            fill(at, request.bytes(), |_| READ);
        }
        self.read = end;
    }

    /// The connection ends: only by an atomic whose answer is lost, here or at the other end.
    fn failed(&mut self, wc: &sys::ibv_wc, board: &Board) {
        board.lost.borrow_mut()[self.number] = true;
        if wc.opcode & sys::IBV_WC_RECV != 0 {
            if !self.needs_answers {
                self.complain(|_| format!("receive {} failed: status {}", wc.wr_id, wc.status));
            }
            return;
        }
        let request = self.requests.get(wc.wr_id as usize).copied();
        let first = !std::mem::replace(&mut self.lost, true);
        if first && request.is_some_and(Request::is_atomic) && wc.status != sys::IBV_WC_WR_FLUSH_ERR {
            board.explained.borrow_mut()[self.number] = true;
        }
        // What was executed before the first error is complete, and some of that wants no completion.
        let signaled = |number: &u64| !first || self.requests[*number as usize].signaled;
        let due = (self.done..self.next).find(|number| *number == wc.wr_id || signaled(number));
        if !self.needs_answers || due != Some(wc.wr_id) {
            self.complain(|me| {
                format!("{} ({request:?}) failed: status {}, {} is due", wc.wr_id, wc.status, me.done)
            });
        }
        self.done = wc.wr_id + 1;
    }

    /// Messages that come.
    pub(super) fn due(&self) -> u64 {
        self.due.len() as u64
    }

    /// Where its buffers are.
    pub(super) fn buffers(&self) -> impl Iterator<Item = u64> {
        let own = self.own;
        (0..RECEIVES).map(move |slot| own.buffer(slot))
    }

    /// When it posts next, if nothing comes before that.
    pub(super) fn posts_at(&self, board: &Board) -> Option<u64> {
        let room = (self.requests.len() as u64).min(self.done + WINDOW) > self.next;
        (room && !board.lost.borrow()[self.number]).then_some(self.next_at)
    }

    /// All of it was posted, has completed, and has come; or it ended by an error.
    pub(super) fn is_over(&self, board: &Board) -> bool {
        let count = self.requests.len() as u64;
        let lost = board.lost.borrow()[self.number];
        if lost {
            // What wants no completion may have been executed, and is not told of then.
            return (self.done..self.next).all(|number| !self.requests[number as usize].signaled);
        }
        self.done == count && self.heard == self.due.len()
    }

    /// What the end looks like, to find out why it does not come.
    pub(super) fn standing(&self) -> String {
        let state = self.pair.state();
        let (count, switches) = (self.requests.len(), state.switches);
        format!(
            "connection {}: {} of {count} posted, {} complete, {} of {} messages came, {switches} moves",
            self.number,
            self.next,
            self.done,
            self.heard,
            self.due.len()
        )
    }

    /// Nothing was written behind a reader, and each atomic was executed once.
    pub(super) fn judge(&mut self, board: &Board) {
        let lost = board.lost.borrow()[self.number];
        if lost && !board.explained.borrow()[self.number] {
            self.complain(|_| "it ended by an error, and no answer of an atomic was lost".into());
        }
        let theirs = self.theirs.clone();
        let read = (0..self.read).zip(theirs);
        for (number, request) in read.filter(|(_, request)| request.writes()) {
            let at = self.own.target(number, request);
            if (0..request.bytes() / 8).any(|word| load(at + 8 * word) != READ) {
                self.complain(|_| format!("{number} was written again"));
            }
        }
        for number in (0..self.done).filter(|_| !lost) {
            let bytes = match self.requests[number as usize].does {
                Does::Read => PLACE,
                Does::Add | Does::Swap => 8,
                _ => continue,
            };
            if (0..bytes / 8).any(|word| load(self.own.result(number) + 8 * word) != TAKEN) {
                self.complain(|_| format!("an answer of {number} came after it was complete"));
            }
        }
        let atomics = board.atomics.borrow()[1 - self.me as usize][self.number];
        for (swapped, (completed, posted)) in [false, true].into_iter().zip(atomics) {
            let found = load(self.own.word(swapped));
            let right = if lost { (completed..=posted).contains(&found) } else { found == completed };
            if !right {
                let what = if swapped { "swaps" } else { "adds" };
                self.complain(|_| {
                    format!("{completed} {what} completed of {posted}, and the word is {found}")
                });
            }
        }
    }

    /// Atomics that completed, and that were posted: adds, and swaps.
    pub(super) const fn atomics(&self) -> [(u64, u64); 2] {
        self.atomics
    }

    /// Requests that completed well.
    pub(super) const fn completed_well(&self) -> u64 {
        self.done
    }
}
