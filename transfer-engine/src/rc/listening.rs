//! Queue pairs that are listened to: what a peer sends comes by whichever of them.

use super::doubts::Ended;
use super::endpoint::{AllMade, Made};
use super::queue::Came;
use crate::domain::Event;
use crate::ids::PeerId;
use shunt_device::platform::host::World;
use std::sync::{Arc, PoisonError};

/// All of them.
pub(super) struct Listening {
    /// Workers add to it.
    made: AllMade,
    /// As it was at the last look: a poll takes no lock.
    queues: Vec<Made>,
}

impl Listening {
    /// To none yet.
    pub fn new(made: AllMade) -> Self {
        Self { made, queues: Vec::new() }
    }

    /// Takes what has arrived. What went wrong is remarked.
    pub fn poll(&self, world: &dyn World, events: &mut Vec<Event>, remarks: &mut Vec<String>) {
        self.queues.iter().for_each(|made| take(made, world, events, remarks));
    }

    /// The same of those as well that were made since. One that its NIC has destroyed is polled this once more.
    pub fn look(
        &mut self,
        world: &dyn World,
        events: &mut Vec<Event>,
        remarks: &mut Vec<String>,
        ended: &mut Ended,
    ) {
        // To drop a queue pair destroys it, which may be a worker's turn: not while the list is locked.
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.queues = made;
        for made in &self.queues {
            let gone = made.queue.is_gone();
            take(made, world, events, remarks);
            if gone {
                let mut all = self.made.lock().unwrap_or_else(PoisonError::into_inner);
                all.retain(|one| !Arc::ptr_eq(&one.queue, &made.queue));
                ended.put(made.peer, (made.key, made.incarnation), made.queue.tell_came());
            }
        }
    }
}

fn take(made: &Made, world: &dyn World, events: &mut Vec<Event>, remarks: &mut Vec<String>) {
    let peer = PeerId(made.peer);
    let came = |came| match came {
        Came::Imm(imm) => events.push(Event::Imm(peer, imm)),
        Came::Part(part) => events.push(Event::Part(peer, part)),
    };
    if let Err(error) = made.queue.poll_received(world, came) {
        remarks.push(format!("a completion of path {}: {error}", made.key));
    }
}
