//! Faults of whole PEs: carried out by an actor each, at their instant.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use shunt_host::connect::oob::{Disturbance, OobNet};
use shunt_soft_nic::{Fault, Injection, PeFault, RailAt, SharedFabric};

use crate::sim::{ActorOptions, PeWorld, Sim, SimWorld};

/// An agent as its faults see it.
#[derive(Default)]
pub struct AgentFate {
    stalled_until_ns: Cell<u64>,
    /// The fault that stalls it, by number in [`PeFaults`].
    by: Cell<Option<usize>>,
    /// When the next agent takes over, and the fault that ends this one.
    dies: Cell<Option<(u64, usize)>>,
}

/// For ever, in virtual time.
const FOR_EVER_NS: u64 = u64::MAX / 4;

impl AgentFate {
    /// How much longer the agent does nothing. A pause that is noticed is a hit.
    pub fn stalled_ns(&self, now: u64, faults: &PeFaults) -> u64 {
        let left = self.stalled_until_ns.get().saturating_sub(now);
        if left > 0
            && let Some(id) = self.by.take()
        {
            faults.hit(id, 1);
        }
        left
    }

    /// When the next agent is to take over, if this one is to die. A death that is noticed is a hit.
    pub fn dies(&self, faults: &PeFaults) -> Option<u64> {
        let (until_ns, id) = self.dies.take()?;
        faults.hit(id, 1);
        Some(until_ns)
    }

    /// Does nothing until `until_ns`. A stall that lasts longer stays.
    pub fn stall(&self, until_ns: u64, by: Option<usize>) {
        if until_ns > self.stalled_until_ns.get() {
            self.stalled_until_ns.set(until_ns);
            self.by.set(by);
        }
    }
}

/// What a fault of a PE acts on.
pub struct Targets<'c> {
    /// Where actors run.
    pub sim: &'c Sim,
    /// The agents' own network.
    pub oob: &'c OobNet,
    /// All NICs.
    pub fabric: &'c SharedFabric,
    /// The agent of the PE.
    pub fate: &'c Rc<AgentFate>,
    /// The clock of the PE.
    pub clock: &'c Arc<PeWorld>,
    /// PEs of the job.
    pub pes: u32,
    /// Rails of each.
    pub rails: u32,
    /// Instant 0 of the faults' clock.
    pub began_ns: u64,
}

/// Planned faults of PEs, with their hits, and who is gone.
#[derive(Clone, Default)]
pub struct PeFaults(Rc<Inner>);

#[derive(Default)]
struct Inner {
    planned: RefCell<Vec<(Injection, u64)>>,
    /// Killed PEs and when.
    killed: RefCell<Vec<(u32, u64)>>,
    /// By PE: its actors, to be stopped with it.
    actors: RefCell<Vec<(u32, usize)>>,
}

impl PeFaults {
    fn plan(&self, injection: &Injection) -> usize {
        self.0.planned.borrow_mut().push((injection.clone(), 0));
        self.0.planned.borrow().len() - 1
    }

    fn hit(&self, id: usize, times: u64) {
        self.0.planned.borrow_mut()[id].1 += times;
    }

    /// Every planned fault and its hits so far.
    pub fn hits(&self) -> Vec<(Injection, u64)> {
        self.0.planned.borrow().clone()
    }

    /// When a PE was killed.
    pub fn killed_ns(&self, pe: u32) -> Option<u64> {
        self.0.killed.borrow().iter().find(|(killed, _)| *killed == pe).map(|(_, at)| *at)
    }

    /// An actor that ends with its PE.
    pub fn adopt(&self, pe: u32, actor: usize) {
        self.0.actors.borrow_mut().push((pe, actor));
    }

    /// Stops every actor of a PE for a while.
    fn stop(&self, pe: u32, world: &SimWorld, for_ns: u64, id: usize) {
        let until_ns = world.now().saturating_add(for_ns);
        self.actors_of(pe).into_iter().for_each(|actor| world.hold(actor, until_ns));
        self.hit(id, 1);
    }

    fn actors_of(&self, pe: u32) -> Vec<usize> {
        self.0.actors.borrow().iter().filter(|(of, _)| *of == pe).map(|(_, actor)| *actor).collect()
    }
}

impl PeFaults {
    /// Plans a fault of a whole PE: an actor carries it out at its instant.
    pub fn inject(&self, injection: &Injection, fault: PeFault, at: &Targets<'_>) {
        let id = self.plan(injection);
        let at_ns = at.began_ns + injection.at_ns;
        let (world, pe, faults) = (at.sim.world(), injection.pe, self.clone());
        let name = injection.to_string();
        let wait = {
            let world = world.clone();
            move || world.sleep(at_ns.saturating_sub(world.now()))
        };
        let options = ActorOptions::host;
        match fault {
            PeFault::AgentKilled | PeFault::AgentStalled { .. } => {
                let fate = at.fate.clone();
                let for_ns = match fault {
                    PeFault::AgentStalled { for_ns } => for_ns,
                    _ => FOR_EVER_NS,
                };
                at.sim.spawn(name, options(), move || {
                    wait();
                    fate.stall(world.now().saturating_add(for_ns), Some(id));
                });
            }
            PeFault::AgentRestart | PeFault::AgentDead { .. } => {
                let fate = at.fate.clone();
                let for_ns = if let PeFault::AgentDead { for_ns } = fault { for_ns } else { 0 };
                at.sim.spawn(name, options(), move || {
                    wait();
                    fate.dies.set(Some((world.now().saturating_add(for_ns), id)));
                });
            }
            PeFault::OobCut { for_ns } | PeFault::OobCutTx { for_ns } | PeFault::OobCutRx { for_ns } => {
                self.cut_links(injection, id, for_ns, at, wait);
            }
            PeFault::OobDup { .. } | PeFault::OobDelay { .. } | PeFault::OobReorder { .. } => {
                self.disturb_links(injection, id, at, wait);
            }
            PeFault::PeerStopped { for_ns } => {
                at.sim.spawn(name, options(), move || {
                    wait();
                    faults.stop(pe, &world, for_ns, id);
                });
            }
            PeFault::ClockJump { by_ns } => {
                let clock = at.clock.clone();
                at.sim.spawn(name, options(), move || {
                    wait();
                    clock.jump(by_ns);
                    faults.hit(id, 1);
                });
            }
            PeFault::PeerKilled => {
                let (oob, fabric, rails) = (at.oob.clone(), at.fabric.clone(), at.rails);
                at.sim.spawn(name, options(), move || {
                    wait();
                    if faults.killed_ns(pe).is_some() {
                        return;
                    }
                    faults.0.killed.borrow_mut().push((pe, world.now()));
                    for rail in 0..rails {
                        fabric.with(|fabric| fabric.kill(RailAt { pe, rail }));
                    }
                    oob.close(pe);
                    faults.actors_of(pe).into_iter().for_each(|actor| world.kill(actor));
                    faults.hit(id, 1);
                });
            }
        }
    }

    /// Disturbs what a PE's agent says and hears for a while.
    fn disturb_links(
        &self,
        injection: &Injection,
        id: usize,
        at: &Targets<'_>,
        wait: impl FnOnce() + 'static,
    ) {
        let (how, for_ns) = match injection.fault {
            Fault::Pe(PeFault::OobDup { every, for_ns }) => (Disturbance::Doubled(every), for_ns),
            Fault::Pe(PeFault::OobDelay { by_ns, for_ns }) => (Disturbance::Delayed(by_ns), for_ns),
            Fault::Pe(PeFault::OobReorder { every, for_ns }) => (Disturbance::Overtaken(every), for_ns),
            ref other => panic!("{other} disturbs no link"),
        };
        let (oob, pe, faults) = (at.oob.clone(), injection.pe, self.clone());
        let world = at.sim.world();
        at.sim.spawn(injection.to_string(), ActorOptions::host(), move || {
            wait();
            let number = oob.disturb(pe, how);
            let until = world.now().saturating_add(for_ns.unwrap_or(FOR_EVER_NS));
            let mut counted = 0;
            while world.now() < until {
                world.sleep((until - world.now()).min(1_000_000));
                let hits = oob.hits(number);
                faults.hit(id, hits - counted);
                counted = hits;
            }
            oob.calm(number);
        });
    }

    /// Cuts a PE's agent off from the others for a while, one way or both.
    fn cut_links(
        &self,
        injection: &Injection,
        id: usize,
        for_ns: Option<u64>,
        at: &Targets<'_>,
        wait: impl FnOnce() + 'static,
    ) {
        let (oob, pes, pe, faults) = (at.oob.clone(), at.pes, injection.pe, self.clone());
        let (world, fault) = (at.sim.world(), injection.fault.clone());
        at.sim.spawn(injection.to_string(), ActorOptions::host(), move || {
            wait();
            let others = || (0..pes).filter(|other| *other != pe);
            let lost = oob.counts().1;
            others().for_each(|other| match fault {
                Fault::Pe(PeFault::OobCutTx { .. }) => oob.cut_one_way(pe, other),
                Fault::Pe(PeFault::OobCutRx { .. }) => oob.cut_one_way(other, pe),
                _ => oob.cut(pe, other),
            });
            let until = world.now().saturating_add(for_ns.unwrap_or(FOR_EVER_NS));
            // Looked at now and then: hits of a cut that outlasts the run count as well.
            let mut counted = lost;
            while world.now() < until {
                world.sleep((until - world.now()).min(5_000_000));
                let lost = oob.counts().1;
                faults.hit(id, lost - counted);
                counted = lost;
            }
            others().for_each(|other| oob.join(pe, other));
        });
    }
}
