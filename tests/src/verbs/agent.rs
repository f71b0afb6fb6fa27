//! The agent of a process as an actor of its own, and the NICs that it stands on.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use shunt_device::platform::host::World;
use shunt_host::devx::Devx;
use shunt_host::gpu::OwnedSpan;
use shunt_host::nic::mkey::{Access, Mkey};
use shunt_host::nic::umem::Umem;
use shunt_host::rail::{Rail, RailOptions};
use shunt_soft_nic::RailAt;
use shunt_verbs::agent::{Agent, Device, Orders, Post, SOON, assemble};

use super::around::Around;
use super::place::Door;
use super::steps::Who;
use crate::sim::{ActorOptions, SimCrew};

/// Opens a rail and registers the region on it.
pub(super) fn open_rail(
    devx: Arc<dyn Devx>,
    index: u32,
    world: &Arc<dyn World>,
    region: &Arc<OwnedSpan>,
) -> (Arc<Rail>, (Mkey, Umem)) {
    let options = RailOptions { proof_atomics: 0, order_rounds: 0, ..RailOptions::default() };
    let mut rail = Rail::open(devx.clone(), index, options, world.clone()).expect("a soft NIC");
    rail.settle_truth();
    assert!(rail.truth_holds, "{}", rail.truth_detail);
    let umem = Umem::for_keys(&devx, region).expect("memory of this process");
    let key = Mkey::create(&devx, rail.pd(), &umem, 0..region.span().bytes, Access::Remote).expect("a key");
    (Arc::new(rail), (key, umem))
}

/// The agent's end, as an actor of its own.
pub(super) struct AgentActor {
    pub stop: Rc<Cell<bool>>,
    pub over: Rc<Cell<bool>>,
}

impl AgentActor {
    /// Begins.
    pub(super) fn spawn(
        me: u32,
        around: &Around,
        clock: Arc<dyn World>,
        rails: Vec<Arc<Rail>>,
        devices: Vec<Device>,
        orders: Arc<Orders>,
    ) -> Self {
        let (stop, over) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
        let ends = (stop.clone(), over.clone());
        let around = around.clone();
        let (sim, steps) = (around.sim.clone(), around.steps.clone());
        let body = move || {
            let (sim, board) = (&around.sim, &around.board);
            let door = Door::new(&around.town, sim, me);
            // A NIC's event wakes the agent, as its descriptor does, and a program that sleeps. So does the answer of a
            // command, which a real one finds when it looks next. What the program tells the agent wakes that alone.
            let (wake, program) = (door.live_here(), board.programs.borrow()[me as usize]);
            let told = wake.clone();
            orders.wakes_by(Box::new(move || told()));
            let world = sim.clone();
            let wake: Arc<dyn Fn() + Send + Sync> = Arc::new(move || {
                wake();
                if !world.closing() {
                    world.unpark(program);
                }
            });
            around.fabric.with(|fabric| {
                for rail in 0..rails.len() as u32 {
                    let nic = fabric.find(RailAt { pe: me, rail }).expect("added before");
                    fabric.nic(nic).set_waker(wake.clone());
                }
            });
            board.agents.borrow_mut()[me as usize] = sim.current().expect("an actor");
            let post = Arc::new(Post::new(Box::new(door)));
            let workers: Rc<RefCell<Vec<usize>>> = Rc::default();
            let hired = workers.clone();
            let steps = around.steps.clone();
            let crew = SimCrew::new(sim.clone(), me, move |actor| {
                steps.knows(actor, Who::Worker(me));
                hired.borrow_mut().push(actor);
            });
            let machine = assemble(&post, &clock, &crew, rails, devices);
            let mut agent = Agent::stand_on(machine, post, orders);
            while !stop.get() {
                match agent.turn() {
                    Some(wait) => agent.rest(wait),
                    None => sim.sleep(SOON.get()),
                }
            }
            drop(agent);
            // A worker may be in the middle of a command, and hold what the program is to destroy.
            while workers.borrow().iter().any(|worker| !sim.is_done(*worker)) {
                sim.sleep(100_000);
            }
            over.set(true);
        };
        let actor = sim.spawn(format!("agent{me}"), ActorOptions::host(), Box::new(body));
        steps.knows(actor, Who::Agent(me));
        let (stop, over) = ends;
        Self { stop, over }
    }
}
