//! A process: its NICs, its agent, and the program that posts, polls and judges.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use shunt_device::platform::host::World;
use shunt_host::gpu::{GpuMemory, HeapMemory, OwnedSpan, Placement};
use shunt_host::nic::mkey::Mkey;
use shunt_host::nic::umem::Umem;
use shunt_mlx5_sys as sys;
use shunt_soft_devx::SoftDevx;
use shunt_soft_nic::RailAt;
use shunt_verbs::agent::{Device, Orders};
use shunt_verbs::hooks::{memory, poll, qp, queue, shared};
use shunt_verbs::objects::{At, Channel, Context, Extended};
use shunt_verbs::pair_state::On;
use shunt_verbs::queue_pair::QueuePair;
use shunt_verbs::registry;
use shunt_verbs_journal::policy::{Answers, Policy, Rule};
use shunt_verbs_journal::send_queue::SendQueue;

use super::agent::{AgentActor, open_rail};
use super::around::Around;
use super::buffers::Buffers;
use super::commands::Commands;
use super::connection::{Connection, Plan, WINDOW};
use super::events::Events;
use super::extended;
use super::library::{VerbsContext, Yard, create_qp_ex, table};
use super::requests::{self, RECEIVES};
use super::rest::{Beside, Rest};
use super::spec::{Board, Card, Told, VerbsSpec};
use crate::sim::ActorOptions;

/// A command of firmware that takes longer is given up.
const COMMAND_NS: u64 = 5_000_000;
/// Completions that are taken at once.
const BATCH: usize = 8;
/// Nothing to do: the program looks again after that, and after twice as long each time.
const LOOK_NS: u64 = 2_000;
/// Room of queue pairs.
const DEPTH: u32 = WINDOW as u32 + 8;
const ACCESS: u32 = sys::IBV_ACCESS_LOCAL_WRITE
    | sys::IBV_ACCESS_REMOTE_WRITE
    | sys::IBV_ACCESS_REMOTE_READ
    | sys::IBV_ACCESS_REMOTE_ATOMIC;

/// A process that has started.
pub(super) struct Process {
    me: u32,
    around: Around,
    spec: VerbsSpec,
    agent: AgentActor,
    pd: *mut sys::ibv_pd,
    mr: *mut sys::ibv_mr,
    queues: Vec<*mut sys::ibv_cq>,
    connections: Vec<Connection>,
    /// How it waits.
    rest: Rest,
    /// Those of a queue that all its connections take from.
    buffers: Option<Buffers>,
    began: bool,
    commands: Commands,
    /// Taken apart in this order, after the rest.
    context: Box<VerbsContext>,
    devices: Vec<VerbsContext>,
    yard: Rc<Yard>,
    keys: RefCell<Vec<(Mkey, Umem)>>,
}

/// What a program has of a queue pair that is not connected.
struct Fresh {
    qp: *mut sys::ibv_qp,
    pair: Arc<QueuePair>,
    base: u64,
}

/// A device for the agent. It stays open until that has ended.
fn device(opened: &VerbsContext, sleeps: bool) -> Device {
    let (name, context) = (opened.rail.name.clone(), At(opened.raw()));
    // SAFETY: open, as above.
    let channel = sleeps.then(|| unsafe { Channel::make(context) }).flatten();
    Device { name, context, ops: table(), channel }
}

/// What the library knows of the program's device.
fn known(opened: &VerbsContext) -> Arc<Context> {
    Arc::new(Context {
        raw: At(opened.raw()),
        device: opened.rail.name.clone(),
        ops: table(),
        ex: Extended { create_qp_ex: Some(create_qp_ex), ..Extended::default() },
        channel: OnceLock::new(),
    })
}

impl Process {
    /// Opens the NICs, connects to the other process, and waits until every connection is protected.
    pub(super) fn start(me: u32, around: &Around, world: Arc<dyn World>, spec: &VerbsSpec) -> Self {
        let span: Arc<dyn GpuMemory> = Arc::new(HeapMemory::new());
        let part = requests::bytes(spec.requests).next_multiple_of(64);
        let bytes = (part * u64::from(spec.pairs)).next_multiple_of(4096);
        let region = OwnedSpan::alloc(&span, bytes, Placement::Heap).expect("memory");
        let (mut rails, mut keys, mut events) = (Vec::new(), Vec::new(), Vec::new());
        for rail in 0..spec.rails {
            let nic =
                around.fabric.with(|fabric| fabric.find(RailAt { pe: me, rail })).expect("added before");
            let devx = SoftDevx::new(around.fabric.clone(), nic, world.clone(), COMMAND_NS);
            events.push(Events::new(devx));
            let (rail, key) = open_rail(events[rail as usize].clone(), rail, &world, &region);
            around.net.0.borrow_mut().push(rail.card());
            rails.push(rail);
            keys.push(key);
        }
        let yard: Rc<Yard> = Rc::default();
        let open = |rail: usize| {
            VerbsContext::open(
                (&rails[rail], &events[rail]),
                &world,
                &around.net,
                &yard,
                keys[rail].0.key_be().to_be(),
            )
        };
        let context = open(0);
        let devices: Vec<VerbsContext> = (0..rails.len()).map(|rail| *open(rail)).collect();
        around.board.programs.borrow_mut()[me as usize] = around.sim.current().expect("an actor");
        let orders: Arc<Orders> = Arc::default();
        let given = devices.iter().map(|opened| device(opened, spec.sleeps)).collect();
        let agent = AgentActor::spawn(me, around, world, rails, given, orders.clone());
        registry::with_mut(|objects| objects.contexts.insert(context.raw().addr(), known(&context)));
        // SAFETY: the context is open; the region stays as long as this process.
        let (pd, mr) = unsafe {
            let pd = memory::alloc_pd(context.raw());
            let at = std::ptr::with_exposed_provenance_mut(region.span().address as usize);
            (pd, memory::reg_mr(pd, at, bytes as usize, ACCESS as i32))
        };
        let mut process = Self {
            me,
            around: around.clone(),
            spec: spec.clone(),
            agent,
            pd,
            mr,
            rest: Rest::new(me, &context, events[0].clone(), spec),
            buffers: None,
            queues: Vec::new(),
            connections: Vec::new(),
            began: false,
            commands: Commands::default(),
            context,
            devices,
            yard,
            keys: RefCell::new(keys),
        };
        process.spawn_sexton();
        process.connect(region.span().address, part, &orders);
        process
    }

    /// Takes apart what was destroyed, beside everybody else.
    fn spawn_sexton(&self) {
        let (yard, over, sim) = (self.yard.clone(), self.agent.over.clone(), self.around.sim.clone());
        let body = move || {
            while !over.get() {
                if !yard.clear() {
                    sim.sleep(500_000);
                }
            }
        };
        self.around.sim.spawn(format!("sexton{}", self.me), ActorOptions::host(), Box::new(body));
    }

    fn queue(&mut self, entries: u32) -> *mut sys::ibv_cq {
        let (null, channel) = (std::ptr::null_mut(), self.rest.channel());
        // SAFETY: the context is open.
        let made = unsafe { queue::create(self.context.raw(), entries as i32, null, channel, 0) };
        assert!(!made.is_null(), "a completion queue on a soft NIC");
        self.queues.push(made);
        made
    }

    fn make(&mut self, base: u64, orders: &Arc<Orders>) -> Fresh {
        let [send_cq, recv_cq] = match (self.spec.one_queue, self.queues.first().copied()) {
            (true, Some(one)) => [one; 2],
            (true, None) => [self.queue(2 * self.spec.pairs * 32); 2],
            (false, _) => [self.queue(32), self.queue(32)],
        };
        let cap = sys::ibv_qp_cap {
            max_send_wr: DEPTH,
            max_recv_wr: RECEIVES as u32,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 16,
        };
        let srq = self.buffers.as_ref().map_or(std::ptr::null_mut(), Buffers::queue);
        let qp_type = sys::IBV_QPT_RC;
        let mut attr = sys::ibv_qp_init_attr { send_cq, recv_cq, srq, cap, qp_type, ..Default::default() };
        let mut with_operations = extended::attributes(&attr, self.pd);
        // SAFETY: context, domain and queues are alive, the attributes ours.
        let qp = unsafe {
            match self.spec.extended {
                true => qp::create_qp_ex(self.context.raw(), &raw mut with_operations),
                false => qp::create_qp(self.pd, &raw mut attr),
            }
        };
        assert!(!qp.is_null(), "a queue pair on a soft NIC");
        let pair = registry::pair(qp).expect("a reliable one is protected");
        assert!(pair.keeper.set(orders.clone()).is_ok(), "made just now");
        let answers = if self.spec.needs_answers { Answers::Needed } else { Answers::Unread };
        let policy = Policy { answers, rule: Rule::Exact };
        pair.state().sends = SendQueue::new(policy, false, DEPTH as usize);
        Fresh { qp, pair, base }
    }

    /// Makes the connections.
    fn connect(&mut self, base: u64, part: u64, orders: &Arc<Orders>) {
        self.buffers = self.spec.shared.then(|| Buffers::make(self.pd, self.spec.pairs));
        let fresh: Vec<Fresh> =
            (0..self.spec.pairs).map(|number| self.make(base + part * u64::from(number), orders)).collect();
        let (gid, me) = (self.context.rail.address().gid, self.me as usize);
        // SAFETY: registered above.
        let (lkey, rkey) = unsafe { ((*self.mr).lkey, (*self.mr).rkey) };
        let card = |(number, one): (u32, &Fresh)| Card {
            gid,
            qpn: one.pair.qpn,
            psn: 0x1000 * (1 + number) + self.me,
            base: one.base,
            rkey,
        };
        let own: Vec<Card> = (0..).zip(&fresh).map(card).collect();
        self.around.board.cards.borrow_mut()[me].clone_from(&own);
        while self.around.board.cards.borrow()[1 - me].is_empty() {
            self.around.sim.sleep(20_000);
        }
        let theirs = self.around.board.cards.borrow()[1 - me].clone();
        let VerbsSpec { seed, requests, posts, atomics, needs_answers, extended, .. } = self.spec;
        let few = self.spec.few.clone();
        let plan = Plan { seed, requests, posts, atomics, needs_answers, extended, few };
        let spare = self.spec.spare_buffers;
        for (number, one) in fresh.into_iter().enumerate() {
            self.modify(one.qp, sys::IBV_QPS_INIT, &own[number], &theirs[number]);
            let at = (self.me, number);
            let pair = (one.qp, one.pair);
            let mut made = Connection::new(at, &plan, pair, (one.base, lkey), theirs[number]);
            match &mut self.buffers {
                Some(buffers) => buffers.add(lkey, &made),
                None => (0..RECEIVES).for_each(|slot| made.receive(slot)),
            }
            self.modify(made.qp, sys::IBV_QPS_RTR, &own[number], &theirs[number]);
            self.modify(made.qp, sys::IBV_QPS_RTS, &own[number], &theirs[number]);
            self.connections.push(made);
        }
        let due: u64 = self.connections.iter().map(Connection::due).sum();
        if let Some(buffers) = &mut self.buffers {
            buffers.supply(due + spare);
        }
    }

    fn modify(&self, qp: *mut sys::ibv_qp, state: u32, own: &Card, there: &Card) {
        let mut attr = sys::ibv_qp_attr { qp_state: state, ..Default::default() };
        let mask = match state {
            sys::IBV_QPS_INIT => {
                (attr.port_num, attr.qp_access_flags) = (1, ACCESS);
                sys::IBV_QP_STATE | sys::IBV_QP_PKEY_INDEX | sys::IBV_QP_PORT | sys::IBV_QP_ACCESS_FLAGS
            }
            sys::IBV_QPS_RTR => {
                (attr.ah_attr.is_global, attr.ah_attr.port_num) = (1, 1);
                attr.ah_attr.grh.dgid.raw = there.gid;
                (attr.path_mtu, attr.dest_qp_num, attr.rq_psn) = (sys::IBV_MTU_4096, there.qpn, there.psn);
                (attr.max_dest_rd_atomic, attr.min_rnr_timer) = (4, 1);
                sys::IBV_QP_STATE
                    | sys::IBV_QP_AV
                    | sys::IBV_QP_PATH_MTU
                    | sys::IBV_QP_DEST_QPN
                    | sys::IBV_QP_RQ_PSN
                    | sys::IBV_QP_MAX_DEST_RD_ATOMIC
                    | sys::IBV_QP_MIN_RNR_TIMER
            }
            _ => {
                (attr.sq_psn, attr.timeout, attr.retry_cnt) =
                    (own.psn, self.spec.ack_timeout, self.spec.retries);
                (attr.rnr_retry, attr.max_rd_atomic) = (7, 4);
                sys::IBV_QP_STATE
                    | sys::IBV_QP_SQ_PSN
                    | sys::IBV_QP_TIMEOUT
                    | sys::IBV_QP_RETRY_CNT
                    | sys::IBV_QP_RNR_RETRY
                    | sys::IBV_QP_MAX_QP_RD_ATOMIC
            }
        };
        // SAFETY: the queue pair is alive, the attributes are ours.
        let errno = unsafe { qp::modify_qp(qp, &raw mut attr, mask as i32) };
        assert_eq!(errno, 0, "a move of a queue pair on a soft NIC that works");
    }

    /// Posts and polls, until all is complete and has come at both ends.
    pub(super) fn run(mut self) -> Told {
        let (sim, board) = (self.around.sim.clone(), self.around.board.clone());
        let (me, until) = (self.me as usize, sim.now() + self.spec.patience_ns);
        let mut pause = LOOK_NS;
        let mut told = Told::default();
        while !Board::all(&board.done) {
            let now = sim.now();
            if now > until {
                let standing: Vec<String> = self.connections.iter().map(Connection::standing).collect();
                told.wrong.push(format!("process {me} has come to a stop: {}", standing.join("; ")));
                board.done.borrow_mut().iter_mut().for_each(|done| *done = true);
                break;
            }
            let before = self.began;
            self.begin();
            if self.began && !before && me == 1 {
                sim.sleep(self.spec.stall_ns);
            }
            let took = self.rest.may_look() && self.poll();
            if self.began {
                let pace_ns = self.spec.pace_ns;
                self.connections.iter_mut().for_each(|one| one.post(now, pace_ns, &board));
            }
            board.done.borrow_mut()[me] = self.connections.iter().all(|one| one.is_over(&board));
            if me == 0 {
                self.commands.count(&self.around.fabric, &board, now, &self.connections);
            }
            let posts = self.connections.iter().filter_map(|one| one.posts_at(&board)).min();
            let posts_at = posts.filter(|_| self.began);
            let of = Beside { queues: &self.queues, connections: &self.connections, posts_at };
            if !self.rest.rests(&sim, took, &of) {
                pause = if took { LOOK_NS } else { (2 * pause).min(self.spec.look_ns) };
                sim.sleep(pause + sim.draw(pause));
            }
        }
        // What is late by less than a lifetime comes now.
        self.around.steps.end();
        let until = sim.now() + self.spec.quiet_ns;
        while sim.now() < until {
            self.poll();
            sim.sleep(100_000);
        }
        for one in &self.connections {
            board.atomics.borrow_mut()[me][one.number] = one.atomics();
        }
        sim.sleep(500_000);
        self.connections.iter_mut().for_each(|one| one.judge(&board));
        self.tell(&mut told);
        self.end();
        told
    }

    fn tell(&mut self, told: &mut Told) {
        told.commands = std::mem::take(&mut self.commands.counted);
        told.wakes = self.rest.wakes;
        told.wrong.append(&mut self.rest.wrong);
        if let Some(buffers) = &mut self.buffers {
            buffers.judge();
            told.wrong.append(&mut buffers.wrong);
        }
        for one in &mut self.connections {
            let state = one.pair.state();
            told.switches += u64::from(state.switches);
            told.replayed += state.replayed;
            let returned = state.send_on.spare().is_some_and(|track| track.queue.lies.at_home);
            told.at_home += u64::from(returned && matches!(state.recv_on, On::Spare(_)));
            told.completed += one.completed_well();
            told.lost += u64::from(one.lost);
            told.gaps_ns.append(&mut one.gaps_ns);
            if let Some(why) = state.passing {
                one.wrong.push(format!("process {}, connection {}: unprotected: {why}", self.me, one.number));
            }
            drop(state);
            told.wrong.append(&mut one.wrong);
        }
    }

    /// They begin once every connection is protected at both ends, and faults with them.
    fn begin(&mut self) {
        let (board, sim) = (&self.around.board, &self.around.sim);
        if self.began {
            return;
        }
        let armed = |one: &Connection| {
            let made = one.pair.spares.lock().expect("one thread").len();
            one.pair.state().armed && made >= 3
        };
        board.armed.borrow_mut()[self.me as usize] = self.connections.iter().all(armed);
        if !Board::all(&board.armed) {
            return;
        }
        self.began = true;
        if self.me > 0 {
            return;
        }
        let began_ns = sim.now();
        self.around.steps.begin(began_ns);
        *board.faults_at.borrow_mut() = self.spec.faults.iter().map(|(at, ..)| began_ns + at).collect();
        self.around.fabric.with(|fabric| {
            self.spec.faults.iter().for_each(|(at, place, kind)| fabric.plan(began_ns + at, *place, *kind));
        });
        for (at, process, for_ns) in self.spec.pauses.iter().copied() {
            let (agent, world) = (board.agents.borrow()[process as usize], sim.clone());
            let body = move || {
                world.sleep(at);
                world.hold(agent, world.now() + for_ns);
            };
            sim.spawn("pause".into(), ActorOptions::host(), Box::new(body));
        }
    }

    /// Takes completions of every queue. True if there were any.
    fn poll(&mut self) -> bool {
        let (mut any, now) = (false, self.around.sim.now());
        for cq in self.queues.clone() {
            let mut wcs = [sys::ibv_wc::default(); BATCH];
            // SAFETY: the queue is this program's and alive; there is room for so many.
            let count = unsafe { poll::poll_cq(cq, BATCH as i32, wcs.as_mut_ptr()) };
            let count = usize::try_from(count).expect("a poll of a soft NIC");
            any |= count > 0;
            for wc in &wcs[..count] {
                let of = self.connections.iter_mut().find(|one| one.pair.qpn == wc.qp_num);
                let at = self.buffers.as_mut().and_then(|buffers| buffers.take(wc));
                of.expect("a queue pair of this program").take(now, wc, at, &self.around.board);
                self.buffers.iter_mut().for_each(Buffers::post);
            }
        }
        any
    }

    /// Ends the agent, and gives everything back as a program does.
    fn end(self) {
        let sim = self.around.sim.clone();
        self.agent.stop.set(true);
        while !self.agent.over.get() {
            sim.sleep(50_000);
        }
        for one in self.connections {
            // SAFETY: this program's, and not used after this.
            unsafe { qp::destroy_qp(one.qp) };
        }
        // SAFETY: as above; what was on them is gone.
        unsafe {
            self.buffers.into_iter().for_each(|buffers| _ = shared::destroy(buffers.queue()));
            self.queues.into_iter().for_each(|cq| _ = queue::destroy(cq));
            memory::dereg_mr(self.mr);
            memory::dealloc_pd(self.pd);
        }
        registry::with_mut(|objects| objects.contexts.remove(&self.context.raw().addr()));
        while self.yard.clear() {}
        drop((self.context, self.devices));
        self.keys.borrow_mut().clear();
    }
}
