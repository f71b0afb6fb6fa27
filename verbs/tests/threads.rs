//! Threads of a program post to one queue pair and poll one completion queue, while it is moved again and again.
//!
//! The hooks, the journal and the locks are those that ship, and so is each part of a move. In the place of NICs stands
//! a provider. It executes what was posted some time later, acknowledges it later still, and flushes the rest when a
//! queue pair is fenced. In the place of the agent stands a thread that fences, cuts and goes on.

use shunt_layout::state::AnswerStatus;
use shunt_mlx5_sys as sys;
use shunt_recovery::verdict::Verdict;
use shunt_verbs::completions::CompletionQueue;
use shunt_verbs::hooks::{data, poll as polling};
use shunt_verbs::objects::{At, Context, Domain, Extended};
use shunt_verbs::queue_pair::QueuePair;
use shunt_verbs::spare::{Lies, Place, Spare};
use shunt_verbs::{real, registry};
use std::collections::{HashMap, VecDeque};
use std::ffi::{CStr, c_int, c_void};
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, RwLock};
use std::time::{Duration, Instant};

/// Threads that post, and those that only poll.
const POSTERS: u64 = 3;
const POLLERS: u64 = 2;
/// Messages of each of them.
const MESSAGES: u64 = 6_000;
const DEPTH: u32 = 64;
/// Nothing takes longer.
const PATIENCE: Duration = Duration::from_secs(60);
/// Moves without which a run shows nothing: each thread posts so many messages at most until the next one.
const MOVES: u64 = 50;
const BETWEEN: u64 = MESSAGES / (2 * MOVES);

/// What a queue pair was given: its number, what its completion is called, and the message that it carries.
type Given = (u64, u32, Option<u64>);

/// A queue pair of the provider.
#[derive(Default)]
struct Pair {
    cq: usize,
    /// What is not executed, and what is not acknowledged.
    posted: VecDeque<(Given, bool)>,
    unacknowledged: VecDeque<(Given, bool)>,
    executed: u64,
    fenced: bool,
}

/// All of the provider, under one lock: nothing here depends on the library's.
#[derive(Default)]
struct Nics {
    next: u32,
    pairs: HashMap<usize, Pair>,
    queues: HashMap<usize, VecDeque<sys::ibv_wc>>,
    /// Messages as the other end has received them.
    received: Vec<u64>,
    seed: u64,
}

static NICS: Mutex<Option<Nics>> = Mutex::new(None);

fn with<R>(act: impl FnOnce(&mut Nics) -> R) -> R {
    let mut nics: MutexGuard<'_, Option<Nics>> = NICS.lock().expect("no panic under this lock");
    act(nics.get_or_insert_default())
}

impl Nics {
    fn draw(&mut self, below: u64) -> u64 {
        self.seed = self.seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.seed >> 33) % below
    }

    fn tell(&mut self, qp: usize, (wr_id, opcode, _): Given, status: u32) {
        let (cq, qp_num) = (self.pairs[&qp].cq, qp as u32);
        let wc = sys::ibv_wc { wr_id, opcode, status, qp_num, ..Default::default() };
        self.queues.get_mut(&cq).expect("a queue of this provider").push_back(wc);
    }

    /// Executes and acknowledges some.
    fn go_on(&mut self, qp: usize) {
        for _ in 0..self.draw(4) {
            let pair = self.pairs.get_mut(&qp).expect("a queue pair of this provider");
            let Some(one) = pair.posted.pop_front() else { break };
            pair.executed += 1;
            pair.unacknowledged.push_back(one);
            self.received.extend(one.0.2);
        }
        for _ in 0..self.draw(4) {
            let pair = self.pairs.get_mut(&qp).expect("a queue pair of this provider");
            let Some((one, signaled)) = pair.unacknowledged.pop_front() else { break };
            if signaled {
                self.tell(qp, one, sys::IBV_WC_SUCCESS);
            }
        }
    }

    /// Fences it: how many it has executed.
    fn fence(&mut self, qp: usize) -> u64 {
        self.go_on(qp);
        let pair = self.pairs.get_mut(&qp).expect("a queue pair of this provider");
        pair.fenced = true;
        let executed = pair.executed;
        let rest: Vec<Given> =
            pair.unacknowledged.drain(..).chain(pair.posted.drain(..)).map(|one| one.0).collect();
        rest.into_iter().for_each(|one| self.tell(qp, one, sys::IBV_WC_WR_FLUSH_ERR));
        executed
    }
}

unsafe extern "C" fn post(
    qp: *mut sys::ibv_qp,
    mut at: *mut sys::ibv_send_wr,
    bad: *mut *mut sys::ibv_send_wr,
) -> c_int {
    while !at.is_null() {
        // SAFETY: the caller's list, and its queue pair.
        let (wr, number) = unsafe { (&*at, (*qp).qp_num as usize) };
        let taken = with(|nics| {
            nics.go_on(number);
            let pair = nics.pairs.get_mut(&number).expect("a queue pair of this provider");
            if pair.posted.len() + pair.unacknowledged.len() >= DEPTH as usize {
                return false;
            }
            // SAFETY: one buffer of a word, by the caller, unless it is none.
            let message = (wr.num_sge > 0).then(|| unsafe {
                let at = (*wr.sg_list).addr as usize;
                (*std::ptr::with_exposed_provenance::<AtomicU64>(at)).load(Ordering::Relaxed)
            });
            let given = (wr.wr_id, sys::IBV_WC_SEND, message);
            if pair.fenced {
                nics.tell(number, given, sys::IBV_WC_WR_FLUSH_ERR);
            } else {
                pair.posted.push_back((given, wr.send_flags & sys::IBV_SEND_SIGNALED != 0));
            }
            true
        });
        if !taken {
            // SAFETY: the caller's place for it.
            unsafe { *bad = at };
            return libc::ENOMEM;
        }
        at = wr.next;
    }
    0
}

unsafe extern "C" fn poll(cq: *mut sys::ibv_cq, most: c_int, to: *mut sys::ibv_wc) -> c_int {
    with(|nics| {
        let of: Vec<usize> = nics
            .pairs
            .iter()
            .filter(|(_, pair)| pair.cq == cq.addr() && !pair.fenced)
            .map(|(at, _)| *at)
            .collect();
        of.into_iter().for_each(|qp| nics.go_on(qp));
        let queue = nics.queues.get_mut(&cq.addr()).expect("a queue of this provider");
        let count = queue.len().min(most as usize);
        for (at, wc) in queue.drain(..count).enumerate() {
            // SAFETY: room for so many, by the caller.
            unsafe { *to.add(at) = wc };
        }
        count as c_int
    })
}

unsafe extern "C" fn create_cq(
    _: *mut sys::ibv_context,
    _: c_int,
    _: *mut c_void,
    _: *mut sys::ibv_comp_channel,
    _: c_int,
) -> *mut sys::ibv_cq {
    let made = Box::into_raw(Box::new(sys::ibv_cq::default()));
    with(|nics| nics.queues.insert(made.addr(), VecDeque::new()));
    made
}

unsafe extern "C" fn destroy_cq(cq: *mut sys::ibv_cq) -> c_int {
    with(|nics| nics.queues.remove(&cq.addr()));
    // SAFETY: made above, and destroyed once.
    drop(unsafe { Box::from_raw(cq) });
    0
}

unsafe extern "C" fn create_qp(_: *mut sys::ibv_pd, attr: *mut sys::ibv_qp_init_attr) -> *mut sys::ibv_qp {
    // SAFETY: the caller's attributes.
    let cq = unsafe { (*attr).send_cq.addr() };
    let qp_num = with(|nics| {
        nics.next += 1;
        nics.pairs.insert(nics.next as usize, Pair { cq, ..Pair::default() });
        nics.next
    });
    Box::into_raw(Box::new(sys::ibv_qp { qp_num, ..Default::default() }))
}

unsafe extern "C" fn destroy_qp(qp: *mut sys::ibv_qp) -> c_int {
    // SAFETY: made above, and destroyed once.
    let made = unsafe { Box::from_raw(qp) };
    with(|nics| nics.pairs.remove(&(made.qp_num as usize)));
    0
}

fn lookup(name: &CStr) -> *mut c_void {
    match name.to_bytes() {
        b"ibv_create_cq" => create_cq as *mut c_void,
        b"ibv_destroy_cq" => destroy_cq as *mut c_void,
        b"ibv_create_qp" => create_qp as *mut c_void,
        b"ibv_destroy_qp" => destroy_qp as *mut c_void,
        _ => null_mut(),
    }
}

fn ops() -> sys::ibv_context_ops {
    sys::ibv_context_ops { post_send: Some(post), poll_cq: Some(poll), ..Default::default() }
}

/// The program's objects.
#[derive(Clone)]
struct Program {
    qp: At<sys::ibv_qp>,
    cq: At<sys::ibv_cq>,
    pair: Arc<QueuePair>,
    /// By number of the request: what it carries until it is complete.
    memory: Arc<Vec<AtomicU64>>,
    /// Completions that came, by number, and all of them.
    came: Arc<Vec<AtomicU64>>,
    count: Arc<AtomicU64>,
    moves: Arc<AtomicU64>,
    wrong: Arc<Mutex<Vec<String>>>,
    over: Arc<AtomicBool>,
}

/// The newest request of each thread whose completion a thread has got.
type Seen = [u64; POSTERS as usize];

const TOTAL: u64 = POSTERS * MESSAGES;
/// What stands where the program may use the memory again.
const REUSED: u64 = u64::MAX;

impl Program {
    fn new() -> Self {
        // SAFETY: each function has its name's type.
        unsafe { real::stand_in(lookup) };
        let (raw, channel) = (At(without_provenance_mut(0x1000)), OnceLock::new());
        let ex = Extended::default();
        let known = Arc::new(Context { raw, device: "none".into(), ops: ops(), ex, channel });
        let (regions, changes) = (RwLock::default(), Default::default());
        let pd = At(without_provenance_mut(0x2000));
        let domain = Arc::new(Domain { raw: pd, context: known.clone(), regions, changes });
        let cap = sys::ibv_qp_cap { max_send_wr: DEPTH, max_send_sge: 1, ..Default::default() };
        // SAFETY: nobody looks at what is not ours.
        let (cq, qp) = unsafe {
            let cq = create_cq(null_mut(), 0, null_mut(), null_mut(), 0);
            let mut attr = sys::ibv_qp_init_attr { send_cq: cq, recv_cq: cq, cap, ..Default::default() };
            (cq, create_qp(null_mut(), &raw mut attr))
        };
        // SAFETY: just made.
        let qpn = unsafe { (*qp).qp_num };
        let queue = Arc::new(CompletionQueue::new(At(cq), known, false));
        let queues = (queue.clone(), queue.clone(), None);
        let pair = Arc::new(QueuePair::new(1, (At(qp), qpn), domain, queues, cap, false));
        pair.state().armed = true;
        queue.enter().join(qpn, pair.clone());
        registry::with_mut(|objects| {
            objects.put_queue(cq, queue);
            objects.put_pair(qp, pair.clone());
        });
        let words = |value| Arc::new((0..TOTAL).map(|_| AtomicU64::new(value)).collect());
        Self {
            qp: At(qp),
            cq: At(cq),
            pair,
            memory: words(REUSED),
            came: words(0),
            count: Arc::default(),
            moves: Arc::default(),
            wrong: Arc::default(),
            over: Arc::default(),
        }
    }

    fn complain(&self, what: String) {
        let mut wrong = self.wrong.lock().expect("no panic under this lock");
        if wrong.len() < 20 {
            wrong.push(what);
        }
        self.over.store(true, Ordering::Release);
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire) || self.count.load(Ordering::Acquire) >= TOTAL
    }

    /// Posts messages of a thread, one or two at a time, and polls where there is no room.
    fn post_all(&self, thread: u64) {
        let mut next = thread * MESSAGES;
        let end = next + MESSAGES;
        let mut seen = Seen::default();
        while next < end && !self.is_over() {
            if next % MESSAGES / BETWEEN > self.moves.load(Ordering::Acquire) {
                self.poll(&mut seen);
                std::thread::yield_now();
                continue;
            }
            let count = (1 + next % 2).min(end - next);
            let word = |number: u64| &self.memory[number as usize];
            (next..next + count).for_each(|number| word(number).store(number, Ordering::Relaxed));
            let mut sges = [0, 1].map(|at| sys::ibv_sge {
                addr: word((next + at).min(end - 1)).as_ptr().expose_provenance() as u64,
                length: 8,
                lkey: 1,
            });
            let mut wrs = [0, 1].map(|at| sys::ibv_send_wr {
                wr_id: next + at,
                num_sge: 1,
                opcode: sys::IBV_WR_SEND,
                send_flags: sys::IBV_SEND_SIGNALED,
                ..Default::default()
            });
            for (wr, sge) in wrs.iter_mut().zip(&mut sges) {
                wr.sg_list = sge;
            }
            let second = &raw mut wrs[1];
            wrs[0].next = if count == 2 { second } else { null_mut() };
            let mut bad = null_mut();
            // SAFETY: the queue pair is this program's and alive; the list is ours.
            let errno = unsafe { data::post_send(self.qp.0, &raw mut wrs[0], &raw mut bad) };
            let taken = match errno {
                0 => count,
                _ => u64::from(bad == second),
            };
            next += taken;
            if errno != 0 {
                self.poll(&mut seen);
            }
        }
    }

    /// Takes completions. Of each thread's requests those come in order that one thread gets.
    fn poll(&self, seen: &mut Seen) {
        let mut wcs = [sys::ibv_wc::default(); 8];
        // SAFETY: the queue is this program's and alive; there is room for so many.
        let count = unsafe { polling::poll_cq(self.cq.0, wcs.len() as c_int, wcs.as_mut_ptr()) };
        for wc in wcs.iter().take(usize::try_from(count).unwrap_or_default()) {
            if wc.status != sys::IBV_WC_SUCCESS || wc.wr_id >= TOTAL {
                return self.complain(format!("request {:#x} failed: status {}", wc.wr_id, wc.status));
            }
            let last = &mut seen[(wc.wr_id / MESSAGES) as usize];
            if wc.wr_id < *last {
                self.complain(format!("request {} is complete behind {last}", wc.wr_id));
            }
            *last = wc.wr_id;
            if self.came[wc.wr_id as usize].fetch_add(1, Ordering::AcqRel) > 0 {
                self.complain(format!("request {} is complete twice", wc.wr_id));
            }
            self.memory[wc.wr_id as usize].store(REUSED, Ordering::Relaxed);
            self.count.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Moves the queue pair until all is complete: how often, and how many requests were posted again.
    fn move_about(&self) -> (u64, u64) {
        let lies = Lies { rail: 0, at_home: true, peer_rail: 0, peer_home: 0 };
        let (context, domain) = (self.pair.context.raw, self.pair.domain.raw);
        let place = Place { context, ops: ops(), domain, lies, name: "none".into(), channel: None };
        let mut from = self.pair.qpn as usize;
        let (mut moves, mut again) = (0, 0);
        self.pair.mark_moved();
        while !self.is_over() {
            std::thread::sleep(Duration::from_micros(50));
            let made_for = (1, moves as u32);
            let spare = Arc::new(Spare::make(&place, self.pair.cap, made_for).expect("a queue pair"));
            self.pair.state().closed = true;
            let executed = with(|nics| nics.fence(from));
            polling::drain(&self.pair.send_cq);
            let verdict = Verdict { status: AnswerStatus::Truth, executed: executed as u32 };
            let mut queue = self.pair.send_cq.enter_first();
            let mut state = self.pair.state();
            let cut = self.pair.cut_sends(&mut queue, &mut state, verdict);
            drop((state, queue));
            match cut {
                Ok(count) => again += count,
                Err(why) => {
                    self.complain(format!("move {moves}: {why}"));
                    break;
                }
            }
            from = spare.qpn as usize;
            self.pair.send_over(1, spare);
            moves += 1;
            self.moves.store(moves, Ordering::Release);
        }
        (moves, again)
    }
}

/// What came to the other end: each message once, and those of one thread in order.
fn judge(received: &[u64]) -> Vec<String> {
    let (mut wrong, mut next) = (Vec::new(), [0; POSTERS as usize]);
    for message in received {
        let (thread, number) = ((message / MESSAGES) as usize, message % MESSAGES);
        match next.get_mut(thread) {
            Some(next) if *next == number => *next += 1,
            Some(next) => wrong.push(format!("thread {thread}: {number} came, {next} is due")),
            None => wrong.push(format!("{message:#x} came, which was never posted")),
        }
    }
    wrong.extend(
        next.iter()
            .enumerate()
            .filter(|(_, next)| **next != MESSAGES)
            .map(|(thread, next)| format!("thread {thread}: {next} of {MESSAGES} messages came")),
    );
    wrong
}

#[test]
fn threads_that_post_and_poll_while_their_queue_pair_is_moved_lose_and_repeat_nothing() {
    let program = Program::new();
    let began = Instant::now();
    let (moves, again) = std::thread::scope(|scope| {
        let mover = scope.spawn(|| program.move_about());
        for thread in 0..POSTERS {
            let program = &program;
            scope.spawn(move || program.post_all(thread));
        }
        for _ in 0..POLLERS {
            scope.spawn(|| {
                let mut seen = Seen::default();
                while !program.is_over() {
                    program.poll(&mut seen);
                    if began.elapsed() > PATIENCE {
                        let state = program.pair.state();
                        let (first, next) = (state.sends.first(), state.sends.next());
                        drop(state);
                        program.complain(format!("it has come to a stop at {first}, {next} is the next"));
                    }
                    std::thread::yield_now();
                }
            });
        }
        mover.join().expect("no panic while it is moved")
    });
    let mut wrong = std::mem::take(&mut *program.wrong.lock().expect("no panic under this lock"));
    let received = with(|nics| std::mem::take(&mut nics.received));
    wrong.extend(judge(&received).into_iter().take(20));
    assert_eq!(wrong, Vec::<String>::new(), "{moves} moves");
    let once = program.came.iter().all(|count| count.load(Ordering::Acquire) == 1);
    assert!(once, "each request is complete once");
    assert!(moves >= MOVES && again > 0, "not exercised: {moves} moves, {again} requests posted again");
}
