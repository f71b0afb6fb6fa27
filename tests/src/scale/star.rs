//! How thousands of PEs that all talk to one are brought up at the price of one row each.
//!
//! The centre is PE 0 of a job with everybody in it. Each far PE is PE 1 of a job of two, with the centre as PE 0: it
//! holds no rows for the others, and runs the same code.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use shunt_device::platform::host::World;
use shunt_host::connect::bootstrap::Bootstrap;
use shunt_host::connect::card::PeCard;
use shunt_host::connect::oob::{LATENCY_NS, Oob, OobEnd};
use shunt_host::error::BootstrapError;

use crate::sim::SimWorld;

/// Pause between two looks at an exchange.
const LOOK_NS: u64 = 50_000;
/// What an exchange may take.
const PATIENCE_NS: u64 = 60_000_000_000;
/// The round of bring-up in which PEs tell who they are.
const CARDS: usize = 0;

/// What one PE gave in a round.
#[derive(Clone)]
enum Given {
    All(Vec<u8>),
    /// By rank, as the PE itself counts.
    Rows(Vec<Vec<u8>>),
}

impl Given {
    fn part(&self, rank: u32) -> &[u8] {
        match self {
            Self::All(bytes) => bytes,
            Self::Rows(rows) => &rows[rank as usize],
        }
    }
}

/// What everybody gave, by round and PE.
pub struct Star {
    world: Arc<SimWorld>,
    pes: u32,
    given: RefCell<Vec<BTreeMap<u32, Given>>>,
}

/// One PE's end of the exchange.
pub struct StarEnd {
    star: Rc<Star>,
    pe: u32,
    round: Cell<usize>,
}

impl Star {
    /// An exchange of `pes` PEs, the centre among them.
    pub fn new(world: Arc<SimWorld>, pes: u32) -> Rc<Self> {
        Rc::new(Self { world, pes, given: RefCell::default() })
    }

    /// The end of a PE.
    pub fn end(self: &Rc<Self>, pe: u32) -> StarEnd {
        StarEnd { star: self.clone(), pe, round: Cell::new(0) }
    }

    fn give(&self, round: usize, pe: u32, mine: Given) {
        let mut given = self.given.borrow_mut();
        if given.len() <= round {
            given.resize(round + 1, BTreeMap::new());
        }
        given[round].insert(pe, mine);
    }

    fn await_until(&self, round: usize, there: impl Fn(&BTreeMap<u32, Given>) -> bool) -> bool {
        let deadline_ns = self.world.now() + PATIENCE_NS;
        while !there(&self.given.borrow()[round]) {
            if self.world.now() > deadline_ns {
                return false;
            }
            self.world.sleep(LOOK_NS);
        }
        true
    }

    /// What a far PE gave, as the centre takes it: that PE counts itself as PE 1.
    fn inwards(&self, round: usize, pe: u32, given: &Given) -> Vec<u8> {
        let bytes = given.part(0);
        match round {
            CARDS => PeCard { pe, ..PeCard::from_bytes(bytes).expect("a card of this version") }.to_bytes(),
            _ => bytes.to_vec(),
        }
    }
}

impl StarEnd {
    fn meet(&self, mine: Given) -> Result<Vec<Vec<u8>>, BootstrapError> {
        let (star, round, pe) = (&self.star, self.round.get(), self.pe);
        self.round.set(round + 1);
        let own = mine.part(self.rank()).to_vec();
        star.give(round, pe, mine);
        let (rank, size, waited_ns) = (self.rank(), self.size(), PATIENCE_NS);
        let missing = |who: Vec<u32>| {
            Err(BootstrapError::Missing { round: round as u64, missing: who, size, waited_ns })
        };
        if rank > 0 {
            if !star.await_until(round, |given| given.contains_key(&0)) {
                return missing(vec![0]);
            }
            let given = star.given.borrow();
            return Ok(vec![given[round][&0].part(pe).to_vec(), own]);
        }
        if !star.await_until(round, |given| given.len() == star.pes as usize) {
            let given = star.given.borrow();
            return missing((0..star.pes).filter(|pe| !given[round].contains_key(pe)).collect());
        }
        let given = star.given.borrow();
        let far = given[round].iter().filter(|(pe, _)| **pe > 0);
        let far = far.map(|(pe, given)| star.inwards(round, *pe, given));
        Ok(std::iter::once(own).chain(far).collect())
    }
}

impl Bootstrap for StarEnd {
    fn rank(&self) -> u32 {
        (self.pe > 0) as u32
    }

    fn size(&self) -> u32 {
        if self.pe == 0 { self.star.pes } else { 2 }
    }

    fn all_gather(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>, BootstrapError> {
        self.meet(Given::All(mine.to_vec()))
    }

    fn all_gather_within(&self, mine: &[u8], _: u64) -> Result<Vec<Vec<u8>>, BootstrapError> {
        self.all_gather(mine)
    }

    fn exchange(&self, rows: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, BootstrapError> {
        self.meet(Given::Rows(rows))
    }
}

/// Wakes agents that sleep when a message for them arrives: thousands of them would else poll.
#[derive(Default)]
pub struct Mailbag {
    /// By PE: its agent's actor, and when its next message arrives.
    sleepers: Mutex<BTreeMap<u32, (usize, Option<u64>)>>,
}

impl Mailbag {
    /// The agent of `pe` runs as `actor`.
    pub fn register(&self, pe: u32, actor: usize) {
        self.sleepers.lock().expect("one thread").insert(pe, (actor, None));
    }

    fn expect(&self, world: &SimWorld, pe: u32) {
        let at = world.now() + LATENCY_NS;
        let actor = {
            let mut sleepers = self.sleepers.lock().expect("one thread");
            let Some((actor, due)) = sleepers.get_mut(&pe) else { return };
            *due = Some(due.map_or(at, |before| before.min(at)));
            *actor
        };
        if !world.closing() {
            world.unpark(actor);
        }
    }

    /// Sleeps for `ns`, until a message arrives at the latest.
    pub fn sleep(&self, world: &SimWorld, pe: u32, ns: u64) {
        let until = world.now() + ns;
        loop {
            let now = world.now();
            let wake = {
                let mut sleepers = self.sleepers.lock().expect("one thread");
                let Some((_, due)) = sleepers.get_mut(&pe) else { return };
                if due.is_some_and(|at| at <= now) {
                    *due = None;
                    return;
                }
                due.map_or(until, |at| at.min(until))
            };
            if now >= until {
                return;
            }
            world.park(wake);
        }
    }
}

/// An end of the agents' network whose messages wake sleepers; a far PE knows the centre as PE 0 and itself as PE 1.
pub struct StarOob {
    end: OobEnd,
    bag: Arc<Mailbag>,
    world: Arc<SimWorld>,
}

impl StarOob {
    /// Around an end.
    pub fn new(end: OobEnd, bag: Arc<Mailbag>, world: Arc<SimWorld>) -> Self {
        Self { end, bag, world }
    }
}

impl Oob for StarOob {
    fn send(&self, to_pe: u32, bytes: Vec<u8>) {
        self.end.send(to_pe, bytes);
        self.bag.expect(&self.world, to_pe);
    }

    fn try_recv(&self) -> Option<(u32, Vec<u8>)> {
        self.end.try_recv()
    }

    fn reachable(&self, pe: u32) -> bool {
        self.end.reachable(pe)
    }
}

/// The world of a PE, as the host code takes it.
pub fn as_world<W: World + 'static>(world: &Arc<W>) -> Arc<dyn World> {
    world.clone()
}
