//! What an agent takes over: what bring-up made, or what the last agent left.

use crate::agent::checkpoint::{Checkpoint, PairCheckpoint, Slot};
use crate::agent::destroy_queue::DestroyQueue;
use crate::agent::nic_dispatch::Nics;
use crate::agent::reader::Cursor;
use crate::agent::reporter::Reporter;
use crate::agent::worker::Crew;
use crate::pe::connect::first_psn;
use crate::pe::{AgentResources, Pe};
use std::collections::VecDeque;

/// For the next agent of a PE; none while one lives.
pub(super) fn take(pe: &Pe, crew: &dyn Crew) -> Option<Checkpoint> {
    Some(match pe.checkpoint().take()? {
        Slot::Fresh(resources) => first(pe, resources, crew),
        Slot::Left(checkpoint) => *checkpoint,
    })
}

/// For the first agent of a PE.
fn first(pe: &Pe, resources: AgentResources, crew: &dyn Crew) -> Checkpoint {
    let root = *pe.root();
    let bases = pe.bases();
    let (mut pairs, mut spares) = (Vec::new(), Vec::new());
    for channel in resources.channels {
        let own = channel.peer == root.my_pe;
        spares.push((!own).then(|| pe.plan().spare_queue(bases, channel.peer, channel.index)));
        let psn = |slot| first_psn(root.my_pe, channel.peer, channel.index, slot);
        let mut slots = channel.slots.into_iter().zip(0..);
        let mut next = || {
            slots
                .next()
                .map(|(slot, number)| PairCheckpoint::made_at_start(slot, psn(number), pe.config().tuning))
        };
        pairs.extend((0..root.slots).map(|_| next()));
    }
    Checkpoint {
        unfenced: vec![0; pairs.len()],
        pairs,
        spares,
        oob: resources.oob,
        addresses: Vec::new(),
        port_words: Vec::new(),
        nics: Nics::spawn(crew, pe.rails(), pe.world()),
        destroys: DestroyQueue::default(),
        reporter: Reporter::new(root.my_pe, root.pe_count),
        records_seen: Cursor::default(),
        board: None,
        events: VecDeque::new(),
        arrivals: VecDeque::new(),
        lives: 0,
    }
}
