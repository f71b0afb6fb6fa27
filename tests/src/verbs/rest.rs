//! How a program waits: it looks again and again, or sleeps on its completion channel.
//!
//! One that sleeps asks for an event, looks once more, and looks no further until the event comes. Meanwhile it posts
//! when its time has come. The judge looks at what it does not: a completion that is there for long, and no event.

use std::sync::Arc;

use shunt_mlx5_sys as sys;
use shunt_verbs::{real, registry};

use super::connection::Connection;
use super::events::Events;
use super::library::{VerbsContext, req_notify_cq};
use super::queue::VerbsCq;
use super::spec::VerbsSpec;
use crate::sim::SimWorld;

/// The judge looks that often.
const JUDGE_NS: u64 = 200_000;
/// Who could not post looks again after that.
const AGAIN_NS: u64 = 20_000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Awake,
    /// It has asked for an event, and looks once more.
    Armed,
    Asleep,
}

/// How it waits.
pub(super) struct Rest {
    me: u32,
    channel: *mut sys::ibv_comp_channel,
    events: Arc<Events>,
    stage: Stage,
    late_ns: u64,
    /// A completion is there, and it sleeps, since then.
    beside_since: Option<u64>,
    /// Times that an event woke it.
    pub wakes: u64,
    pub wrong: Vec<String>,
}

impl Rest {
    /// Of a program that sleeps, or does not.
    pub(super) fn new(me: u32, context: &VerbsContext, events: Arc<Events>, spec: &VerbsSpec) -> Self {
        // SAFETY: the context is open.
        let make = || unsafe { real::ibv_create_comp_channel(context.raw()) };
        let channel = if spec.sleeps { make() } else { std::ptr::null_mut() };
        let (stage, late_ns, beside_since) = (Stage::Awake, spec.late_ns, None);
        Self { me, channel, events, stage, late_ns, beside_since, wakes: 0, wrong: Vec::new() }
    }

    /// Its channel; null if it does not sleep.
    pub(super) fn channel(&self) -> *mut sys::ibv_comp_channel {
        self.channel
    }

    /// It looks at its queues.
    pub(super) fn may_look(&self) -> bool {
        self.stage != Stage::Asleep
    }

    /// Takes events. True if there were any.
    fn woken(&mut self) -> bool {
        // A NIC that does not answer tells of nothing.
        _ = self.events.pull();
        let (mut cq, mut of, before) = (std::ptr::null_mut(), std::ptr::null_mut(), self.wakes);
        // SAFETY: the channel is this program's and alive; the places are ours.
        while unsafe { real::ibv_get_cq_event(self.channel, &raw mut cq, &raw mut of) } == 0 {
            self.wakes += 1;
        }
        self.wakes > before
    }

    /// A completion is there, or none is.
    fn judge(&mut self, now: u64, there: bool) {
        let since = *self.beside_since.get_or_insert(now);
        self.beside_since = self.beside_since.filter(|_| there);
        if there && now > since + self.late_ns && self.wrong.is_empty() {
            self.wrong.push(format!("process {} sleeps beside a completion, and no event comes", self.me));
        }
    }

    /// Waits, if the program sleeps. False if it does not.
    pub(super) fn rests(&mut self, sim: &SimWorld, took: bool, of: &Beside<'_>) -> bool {
        if self.channel.is_null() {
            return false;
        }
        match self.stage {
            _ if took => {
                self.stage = Stage::Awake;
                sim.sleep(AGAIN_NS / 10 + sim.draw(AGAIN_NS / 10));
            }
            Stage::Awake => {
                // SAFETY: the queues are this program's and alive.
                of.queues.iter().for_each(|cq| _ = unsafe { req_notify_cq(*cq, 0) });
                self.stage = Stage::Armed;
                sim.sleep(100 + sim.draw(100));
            }
            Stage::Armed | Stage::Asleep => self.sleep(sim, of),
        }
        true
    }

    fn sleep(&mut self, sim: &SimWorld, of: &Beside<'_>) {
        let now = sim.now();
        self.stage = Stage::Asleep;
        if self.woken() {
            (self.stage, self.beside_since) = (Stage::Awake, None);
            return sim.sleep(AGAIN_NS / 10 + sim.draw(AGAIN_NS / 10));
        }
        self.judge(now, of.is_there());
        let posts_at = of.posts_at.unwrap_or(u64::MAX);
        sim.park(posts_at.max(now + AGAIN_NS).min(now + JUDGE_NS));
    }
}

/// What a program sleeps beside.
pub(super) struct Beside<'a> {
    pub queues: &'a [*mut sys::ibv_cq],
    pub connections: &'a [Connection],
    /// When it posts next.
    pub posts_at: Option<u64>,
}

impl Beside<'_> {
    /// A completion is there that a look would find.
    fn is_there(&self) -> bool {
        // SAFETY: every queue of a simulation is one of these, and these are alive.
        let more = |cq: *mut sys::ibv_cq| unsafe { (*cq.cast::<VerbsCq>()).has_more() };
        let kept = |cq: *mut sys::ibv_cq| {
            let known = registry::queue(cq).expect("a queue of this program");
            !known.enter_first().ready.is_empty()
        };
        let elsewhere = |one: &Connection| {
            let state = one.pair.state();
            let sent = state.send_on.spare().and_then(|on| Some(on.queue.parts().as_ref()?.send_cq));
            let came = state.recv_on.spare().and_then(|on| Some(on.queue.parts().as_ref()?.recv_cq));
            let lost = state.lost && !state.sends.is_empty();
            drop(state);
            lost || sent.into_iter().chain(came).any(|cq| more(cq.0))
        };
        self.queues.iter().any(|cq| more(*cq) || kept(*cq)) || self.connections.iter().any(elsewhere)
    }
}
