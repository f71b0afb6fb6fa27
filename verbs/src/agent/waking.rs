//! Wakes programs that sleep on a completion channel.
//!
//! The channel is the program's own, and only its NIC makes it ready. So a queue pair that stands in has a channel that
//! wakes the agent, which takes the completions there and wakes the program through its own queue pair:
//! [`QueuePair::wake`]. It does so as well where the program was quicker: a completion that comes after a queue was
//! armed makes an event, polled or not.

use super::Agent;
use crate::completions::CompletionQueue;
use crate::hooks::{batch, poll};
use crate::objects::{At, Channel};
use crate::queue_pair::QueuePair;
use shunt_layout::mutant::Mutant;
use shunt_mlx5_sys::ibv_qp;
use std::sync::PoisonError;

impl Agent {
    /// Channels on which completions of queue pairs that stand in are told.
    pub(super) fn channels(&self) -> Vec<Channel> {
        let sleeps = |one: &&super::Charge| one.pair.may_sleep() && !one.keys.is_empty();
        let mut own: Vec<Channel> = Vec::new();
        for charge in self.charges.iter().filter(sleeps) {
            let made = charge.pair.context.channel.get().copied().flatten();
            own.extend(made.filter(|made| own.iter().all(|known| known.fd() != made.fd())));
        }
        let any = self.charges.iter().any(|one| sleeps(&one));
        own.extend(self.owned.devices.iter().filter(|_| any).filter_map(|device| device.channel));
        own
    }

    /// Takes what has completed elsewhere, and wakes those who wait for it.
    pub(super) fn wake_sleepers(&mut self) {
        let told: Vec<usize> = self.channels().into_iter().flat_map(Channel::take_events).collect();
        for charge in self.charges.iter().filter(|one| one.pair.may_sleep()) {
            let pair = &charge.pair;
            let of_spares = match told.is_empty() {
                true => [false; 2],
                false => arm_again(pair, &told),
            };
            if !charge.marked {
                continue;
            }
            // While the program has the queue pair, its completion queues are alive.
            let raw = pair.raw.read().unwrap_or_else(PoisonError::into_inner);
            let Some(own) = *raw else { continue };
            for (queue, told) in [&pair.send_cq, &pair.recv_cq].into_iter().zip(of_spares) {
                let due = queue.wakes && (poll::has_more(queue) || told);
                if due && !Mutant::WakeForgotten.on() && !wake(pair, own, queue) {
                    queue.enter_first().fresh = true;
                }
            }
        }
        self.busy |= !told.is_empty();
    }
}

/// Wakes the program. False if that is to be tried again.
fn wake(pair: &QueuePair, own: At<ibv_qp>, queue: &CompletionQueue) -> bool {
    if pair.is_waking(queue) {
        // What woke it before is in the queue, perhaps, and makes no second event: out of the way.
        poll::drain(queue);
    }
    pair.wake(own, queue)
}

/// Arms the queues of a pair's stand-ins, and says whether any of those that send, or receive, was told of.
fn arm_again(pair: &QueuePair, told: &[usize]) -> [bool; 2] {
    let spares = pair.spares.lock().unwrap_or_else(PoisonError::into_inner);
    let mut found = [false; 2];
    for spare in spares.iter() {
        spare.arm();
        let queues = spare.parts().map(|parts| [parts.send_cq, parts.recv_cq]);
        for (found, queue) in found.iter_mut().zip(queues.into_iter().flatten()) {
            *found |= told.contains(&queue.0.addr());
        }
    }
    found
}

/// Moves the program's own queue pair to ERR, if no fence has: what is left of it is told through it.
pub(super) fn stop_own(pair: &QueuePair) {
    if !pair.may_sleep() || pair.state().own_fenced {
        return;
    }
    let raw = pair.raw.read().unwrap_or_else(PoisonError::into_inner);
    let Some(own) = *raw else { return };
    // SAFETY: alive while the guard is held.
    let errno = unsafe { batch::fence(pair, own.0) };
    pair.state().own_fenced = errno == 0;
}
