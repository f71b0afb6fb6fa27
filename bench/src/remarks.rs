//! Warnings on stderr that agents otherwise write to their logs only.

use shunt_host::events::{Event, Sink, Told};
use shunt_host::pe::Pe;
use shunt_host::rail::{self, Rail};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// Says what of these NICs is weaker than elsewhere. Phases of one run meet the same NICs: each thing is said once.
pub fn say_weaker(rails: &[Arc<Rail>]) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    for remark in rail::remarks(rails) {
        if !said.contains(&remark) {
            shunt_host::complain!("note: {remark}");
            said.insert(remark);
        }
    }
}

/// Says which NICs' counts are not used, and why: what is cut without them may end in doubt. On loopback and on real
/// paths.
pub struct Doubts {
    pe: u32,
    /// Of the rails.
    names: Vec<String>,
}

impl Doubts {
    /// Of the NICs of a PE.
    pub fn of(pe: &Pe) -> Self {
        Self { pe: pe.root().my_pe, names: pe.rails().iter().map(|rail| rail.name.clone()).collect() }
    }
}

impl Sink for Doubts {
    fn tell(&mut self, told: &Told) {
        if let Event::CountRefused { rail, why } = &told.event {
            let nic = self.names.get(*rail as usize).map_or("", String::as_str);
            shunt_host::complain!(
                "PE {}, rail {rail} ({nic}): its count is not believed, the ledger is: {why}",
                self.pe
            );
        }
    }
}
