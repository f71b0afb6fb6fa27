//! The event queue: what the NIC tells its host unasked.

use shunt_layout::mlx5::eqe;
use std::collections::VecDeque;

/// Bytes of an event queue entry.
pub(crate) const EQE_BYTES: usize = 64;

/// An entry and when it may be seen.
struct Pending {
    due: u64,
    announced: bool,
    entry: [u8; EQE_BYTES],
}

/// Events not yet taken by the host.
#[derive(Default)]
pub(crate) struct Events {
    queue: VecDeque<Pending>,
    raised: u64,
}

impl Events {
    /// Adds an entry that becomes visible at `due`.
    pub(crate) fn push(&mut self, due: u64, mut entry: [u8; EQE_BYTES]) {
        eqe::OWNER.set(&mut entry, (self.raised >> 10) as u32 & 1);
        self.raised += 1;
        let at = self.queue.partition_point(|pending| pending.due <= due);
        self.queue.insert(at, Pending { due, announced: false, entry });
    }

    /// The oldest entry that is visible at `now`.
    pub(crate) fn pop(&mut self, now: u64) -> Option<[u8; EQE_BYTES]> {
        if self.queue.front()?.due > now {
            return None;
        }
        self.queue.pop_front().map(|pending| pending.entry)
    }

    /// True if an entry became visible since the last call.
    pub(crate) fn announce(&mut self, now: u64) -> bool {
        let mut any = false;
        for pending in self.queue.iter_mut().take_while(|pending| pending.due <= now) {
            any |= !pending.announced;
            pending.announced = true;
        }
        any
    }

    /// When the next entry becomes visible.
    pub(crate) fn next_due(&self) -> Option<u64> {
        self.queue.iter().find(|pending| !pending.announced).map(|pending| pending.due)
    }
}

/// A port change entry.
pub(crate) fn port_change(sub_type: u8) -> [u8; EQE_BYTES] {
    let mut entry = [0; EQE_BYTES];
    eqe::EVENT_TYPE.set(&mut entry, eqe::event::PORT_CHANGE as u32);
    eqe::SUB_TYPE.set(&mut entry, sub_type as u32);
    eqe::PORT_NUM.set(&mut entry, 1);
    entry
}

/// An entry about a queue pair, completion queue or receive pool.
pub(crate) fn object(kind: u8, number: u32) -> [u8; EQE_BYTES] {
    let mut entry = [0; EQE_BYTES];
    eqe::EVENT_TYPE.set(&mut entry, kind as u32);
    if kind == eqe::event::CQ_ERROR {
        eqe::CQ_ERROR_CQN.set(&mut entry, number);
        entry[0x2b] = 1; // overrun
    } else {
        eqe::OBJECT.set(&mut entry, number);
    }
    entry
}
