//! What the agent is shown of a switch, and when: a path is made again only while nobody is on it. Rules 7 and 17.

use std::cell::{Cell, RefCell};
use std::mem::offset_of;
use std::rc::Rc;

use shunt_layout::state::{Channel, Mirror, NO_SLOT, PathRow, Step, SwitchWord, Word};

use super::kit::{Wrongs, both_ways, brisk, faults_of_kernels, judged, promises, wrong_if};
use super::scenario::Scenario;
use crate::cluster::Cluster;
use crate::oracle::load;
use crate::run::{finish, start_streams};
use crate::sim::{Access, Interference};
use crate::traffic::Traffic;

pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "announced_while_the_path_fails", seeds: 4, run: |seed| announced(seed, false) },
    Scenario {
        name: "announced_while_the_path_fails_on_a_device",
        seeds: 4,
        run: |seed| announced(seed, true),
    },
];

/// A path of the channel from PE 0 to PE 1, by slot.
fn row_at(cluster: &Cluster) -> impl Fn(u32) -> u64 + use<> {
    let root = cluster.pe(0).root();
    let (paths, first) = (root.paths, root.channels_per_pe * root.slots);
    move |slot| paths + u64::from(first + slot) * size_of::<PathRow>() as u64
}

/// Says so once the path that the channel from PE 0 to PE 1 is open on was made again meanwhile. What is posted there
/// may come to no harm, because its hot line is that of the incarnation that was entered; the agent must not do so all
/// the same.
pub(super) fn made_again_in_use(cluster: &Cluster) -> impl FnMut() -> Option<String> + use<> {
    let (row, ticket) =
        (row_at(cluster), cluster.step_word(0, 1, 0) - offset_of!(Channel, switch.word) as u64);
    let mut on = None;
    move || {
        let word = Word(load(ticket + offset_of!(Channel, ticket) as u64));
        let at = row(word.slot()) + offset_of!(PathRow, incarnation) as u64;
        let incarnation = (load(at & !7) >> if at & 4 != 0 { 32 } else { 0 }) as u32;
        let now = (word.slot(), word.generation(), incarnation);
        let (slot, generation, before) = *on.get_or_insert(now);
        if (slot, generation) != (now.0, now.1) {
            on = Some(now);
            return None;
        }
        let again = !word.flag() && before != incarnation;
        again.then(|| {
            format!(
                "slot {slot} became incarnation {incarnation} while generation {generation} was open on it"
            )
        })
    }
}

/// Notes where a path is made again though the channel is on it, or between its switcher's second look and its entry.
struct Watch<R> {
    row: R,
    /// Slot and incarnation that the channel is on, or that its switcher found ready.
    on: Option<(u32, u32)>,
    wrong: Rc<RefCell<Option<String>>>,
}

impl<R: Fn(u32) -> u64> Watch<R> {
    fn incarnation(&self, slot: u32) -> u32 {
        let at = (self.row)(slot) + offset_of!(PathRow, incarnation) as u64;
        (load(at & !7) >> if at & 4 != 0 { 32 } else { 0 }) as u32
    }

    fn see(&mut self, word: SwitchWord, access: Access) {
        let (slot, looks) = match word.step() {
            Step::Idle | Step::Settle | Step::Fence => (word.slot(), false),
            Step::Ledger | Step::Replay => (word.to(), false),
            Step::Choose if word.to() != NO_SLOT => {
                let state = (self.row)(word.to()) + offset_of!(PathRow, state) as u64;
                (word.to(), access.method == "load32" && access.address == state)
            }
            _ => return self.on = None,
        };
        let now = (slot, self.incarnation(slot));
        match self.on {
            _ if looks => self.on = Some(now),
            None if word.step() != Step::Choose => self.on = Some(now),
            Some((was, incarnation))
                if was == slot && incarnation != now.1 && word.step() != Step::Choose =>
            {
                let text = format!("slot {slot} became incarnation {} at {:?}", now.1, word.step());
                self.wrong.borrow_mut().get_or_insert(text);
            }
            Some((was, _)) if was != slot => self.on = (word.step() != Step::Choose).then_some(now),
            _ => {}
        }
    }
}

/// A switcher announces a path and sleeps before its agent is shown. The other direction leaves the path meanwhile, the
/// agents make it again: the switcher must find that, or its agent must not do so.
fn announced(seed: u64, on_device: bool) -> Wrongs {
    let (first, second) = (seed % 2, seed / 2 % 2);
    let faults = [format!("150us:{first}.0:down"), format!("700us:{second}.1:down=2ms")];
    let mut spec = brisk(both_ways(seed, &faults.each_ref().map(String::as_str)));
    (spec.rails, spec.backups, spec.warps, spec.agent.looks) = (3, 7, 6, 0);
    spec.queues_on_device = on_device;
    spec.traffic = Traffic { messages: 150, slots: 4, pace_ns: 50_000, credit_lag: 1, ..spec.traffic };
    judged(|| {
        let mut cluster = Cluster::start(&spec);
        let (word, hit) = (cluster.step_word(0, 1, 0), Rc::new(Cell::new(false)));
        let mirror = cluster.mirror(0, 1, 0) + offset_of!(Mirror, word) as u64;
        let (seen, wrong) = (hit.clone(), Rc::new(RefCell::new(None)));
        let mut watch = Watch { row: row_at(&cluster), on: None, wrong: wrong.clone() };
        let at = move |access: Access| {
            let word = SwitchWord(load(word));
            watch.see(word, access);
            let announced = word.step() == Step::Choose && word.to() != NO_SLOT;
            if seen.get() || !announced || access.address != mirror {
                return 0;
            }
            seen.set(true);
            20_000_000
        };
        let interference = Interference::default();
        interference.ask(at);
        cluster.interference = Rc::new(interference);
        spec.faults.iter().for_each(|fault| cluster.inject(fault));
        let streams = start_streams(&cluster);
        let outcome = finish(&cluster, streams);
        let never = wrong_if(!hit.get(), || "no caller was stopped".into());
        let wrong = wrong.borrow_mut().take().into_iter().collect();
        [promises(&outcome), faults_of_kernels(&outcome), never, wrong].concat()
    })
}
