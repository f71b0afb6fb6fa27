//! Where the processes of a simulation find each other's queue pairs, and talk.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard};

use shunt_host::connect::oob::LATENCY_NS;
use shunt_verbs::agent::MeetingPlace;

use super::steps::Steps;
use crate::sim::SimWorld;

/// A message on its way: when it arrives, from whom, and what it is.
type Letter = (u64, String, Vec<u8>);

#[derive(Default)]
struct Inside {
    pairs: HashMap<([u8; 16], u32), String>,
    letters: HashMap<String, VecDeque<Letter>>,
    /// Actors of agents, by name.
    agents: HashMap<String, usize>,
    /// Who may put a message off.
    steps: Option<Rc<Steps>>,
}

/// The place of all of them.
#[derive(Default)]
pub struct Town(Mutex<Inside>);

impl Town {
    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().expect("one thread")
    }

    /// From now on these may put messages off.
    pub(super) fn watch(&self, steps: Rc<Steps>) {
        self.inside().steps = Some(steps);
    }
}

// SAFETY: a town is of one simulation, which one thread carries on.
unsafe impl Send for Inside {}

/// One process's door to it.
pub struct Door {
    town: Arc<Town>,
    sim: Arc<SimWorld>,
    process: u32,
    name: String,
}

impl Door {
    /// Of a process.
    pub fn new(town: &Arc<Town>, sim: &Arc<SimWorld>, process: u32) -> Self {
        Self { town: town.clone(), sim: sim.clone(), process, name: name(process) }
    }

    /// The caller is this process's agent, and is woken when a message comes. What wakes it for other reasons.
    pub fn live_here(&self) -> Arc<dyn Fn() + Send + Sync> {
        let actor = self.sim.current().expect("an actor");
        self.town.inside().agents.insert(self.name.clone(), actor);
        let sim = self.sim.clone();
        Arc::new(move || {
            if !sim.closing() {
                sim.unpark(actor);
            }
        })
    }

    fn has_letter(&self) -> bool {
        self.town.inside().letters.get(&self.name).is_some_and(|all| !all.is_empty())
    }
}

fn name(process: u32) -> String {
    format!("process{process}")
}

impl MeetingPlace for Door {
    fn is_open(&self) -> Option<bool> {
        Some(true)
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn put(&self, gid: &[u8; 16], qpn: u32) -> io::Result<()> {
        self.town.inside().pairs.insert((*gid, qpn), self.name.clone());
        Ok(())
    }

    fn remove(&self, gid: &[u8; 16], qpn: u32) {
        self.town.inside().pairs.remove(&(*gid, qpn));
    }

    fn get(&self, gid: &[u8; 16], qpn: u32) -> Option<String> {
        self.town.inside().pairs.get(&(*gid, qpn)).cloned()
    }

    fn send(&self, to: &str, bytes: &[u8]) -> io::Result<()> {
        let mut town = self.town.inside();
        self.sim.stir();
        let late_ns = town.steps.as_ref().map_or(0, |steps| steps.letter(self.process, self.sim.now()));
        let letter = (self.sim.now() + LATENCY_NS + late_ns, self.name.clone(), bytes.to_vec());
        town.letters.entry(to.to_owned()).or_default().push_back(letter);
        if let Some(agent) = town.agents.get(to) {
            self.sim.unpark(*agent);
        }
        Ok(())
    }

    fn receive(&self) -> Option<(String, Vec<u8>)> {
        let now = self.sim.now();
        let mut town = self.town.inside();
        let (_, from, bytes) = town.letters.get_mut(&self.name)?.pop_front_if(|letter| letter.0 <= now)?;
        self.sim.stir();
        Some((from, bytes))
    }

    fn remarks(&self) -> Vec<String> {
        Vec::new()
    }

    fn tells(&self) -> bool {
        true
    }

    fn wait(&self, _others: Vec<RawFd>, milliseconds: i32) {
        let until = self.sim.now() + u64::from(milliseconds.unsigned_abs()) * 1_000_000;
        loop {
            let due = self.town.inside().letters.get(&self.name).and_then(|all| all.front()).map(|one| one.0);
            let now = self.sim.now();
            match due {
                Some(due) if due <= until => return self.sim.sleep(due.saturating_sub(now)),
                // Woken by a NIC, or late enough.
                _ if !self.sim.park(until) || !self.has_letter() => return,
                _ => {}
            }
        }
    }
}
