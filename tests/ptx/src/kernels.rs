//! The list of kernels' scenarios that a GPU runs, on the machine: every byte of every heap against the model.

use crate::code::Module;
use crate::library;
use crate::outcome::{Run, caught, cluster};
use crate::raw;
use crate::rig::{Mode, Rig, Station, THREADS, actor, bytes_of, outcome_words, outcomes};
use shunt_kernels::Outcome;
use shunt_kernels::scenarios::{HEAP_BYTES, Launch, Machine, Scenario, run};
use shunt_tests::oracle::{load, store};
use std::rc::Rc;

/// By which functions launches are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// Entry points.
    Entries,
    /// Entry points without fault tolerance, where there are some.
    Plain,
    /// Functions of the device library.
    Library,
    /// Its raw posts, looks and questions, where there are some.
    Raw,
}

impl Door {
    const fn is_library(self) -> bool {
        matches!(self, Self::Library | Self::Raw)
    }
}

/// A cluster whose kernels are launched by a door.
pub(crate) struct OnMachine(pub(crate) Rig, pub(crate) Door);

impl OnMachine {
    fn station(&self, pe: u32) -> Station {
        self.0.station(pe)
    }

    /// The entry point of a launch, by this door.
    fn entry(&self, launch: &Launch) -> String {
        let plain = format!("shunt_kernel_{}_ft_off_{}", launch.kernel, launch.group.suffix());
        if self.1 == Door::Plain && self.0.has(&plain) { plain } else { launch.entry() }
    }
}

impl Machine for OnMachine {
    fn fill(&mut self, pe: u32, bytes: &[u8]) {
        let heap = self.0.cluster.pe(pe).heap().address;
        for (at, word) in (heap..).step_by(8).zip(bytes.chunks_exact(8)) {
            store(at, u64::from_le_bytes(word.try_into().expect("eight bytes")));
        }
    }

    fn heap(&mut self, pe: u32) -> Vec<u8> {
        let heap = self.0.cluster.pe(pe).heap().address;
        (heap..heap + HEAP_BYTES as u64).step_by(8).flat_map(|at| load(at).to_le_bytes()).collect()
    }

    fn launch(&mut self, launches: &[Launch]) -> Vec<Vec<Outcome>> {
        let mut tasks = Vec::new();
        let mut rooms = Vec::new();
        for launch in launches {
            let room = Rc::new(outcome_words(launch.blocks));
            let station = self.station(launch.pe);
            station.lent.lend(&room);
            // SAFETY: a `Call` is plain words.
            let params =
                vec![unsafe { bytes_of(&launch.call) }, (room.as_ptr() as u64).to_le_bytes().to_vec()];
            for block in 0..launch.blocks {
                let (station, entry, params, blocks) =
                    (station.clone(), self.entry(launch), params.clone(), launch.blocks);
                let (door, launch) = (self.1, *launch);
                let name = format!("{entry}.{}.{block}", launch.pe);
                tasks.push(self.0.cluster.sim.spawn(name, actor(), move || {
                    match door {
                        Door::Library => return Some(library::run(&station, &launch)),
                        Door::Raw => return Some(raw::run(&station, &launch)),
                        Door::Entries | Door::Plain => {}
                    }
                    station.run(&entry, &params, (block, blocks), THREADS);
                    None
                }));
            }
            rooms.push((room, launch.blocks));
        }
        let answers = self.0.cluster.sim.finish_all(&tasks);
        if self.1.is_library() {
            return answers.into_iter().map(|answer| answer.into_iter().collect()).collect();
        }
        rooms.iter().map(|(room, blocks)| outcomes(room, *blocks)).collect()
    }
}

/// One scenario on a cluster of its own, without a fault or with one.
pub fn judge(module: &Rc<Module>, scenario: &Scenario, mode: Mode, fault: Option<&str>, door: Door) -> Run {
    caught(|| {
        let cluster = cluster(mode.seed);
        fault.iter().for_each(|fault| cluster.inject(&fault.parse().expect("a fault")));
        let mut machine = OnMachine(Rig::new(cluster, module, mode, false), door);
        let wrongs = run(scenario, &mut machine, mode.seed).err().into_iter().collect();
        let mut found = Run { wrongs, ..Run::default() };
        found.ended(&machine.0);
        found
    })
}
