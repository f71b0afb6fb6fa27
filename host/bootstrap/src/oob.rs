//! The agents' own channel, beside the rails: unreliable, in order per pair of PEs.

use shunt_device::platform::host::World;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

/// One agent's end. Nothing here waits.
pub trait Oob: Send {
    /// Sends to the agent of a PE. It may get lost.
    fn send(&self, to_pe: u32, bytes: Vec<u8>);
    /// The next message that has arrived: sender and bytes.
    fn try_recv(&self) -> Option<(u32, Vec<u8>)>;
    /// False while the link to that PE is known to be broken: an answer need not be waited for. True says nothing.
    fn reachable(&self, _pe: u32) -> bool {
        true
    }
    /// True once that PE has said that it leaves: no link to it is expected any more.
    fn has_left(&self, _pe: u32) -> bool {
        false
    }
}

/// Latency if none is given.
pub const LATENCY_NS: u64 = 30_000;

/// Sender and bytes by (arrival, number): the order of sending decides between equal arrivals.
type Inbox = BTreeMap<(u64, u64), (u32, Vec<u8>)>;

/// Whether a message of one PE to another gets lost.
type Loses = Box<dyn FnMut(u32, u32, &[u8]) -> bool + Send>;

/// What may go wrong with the messages to and from one PE besides their loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance {
    /// Every so manyeth arrives once more, [`LATE_NS`] later.
    Doubled(u32),
    /// Each arrives so much later.
    Delayed(u64),
    /// Every so manyeth arrives [`LATE_NS`] later, behind others.
    Overtaken(u32),
}

/// How much later a message arrives that is overtaken, and the copy of one that is doubled.
pub const LATE_NS: u64 = 1_000_000;

/// One of them, while it lasts.
struct Disturbed {
    pe: u32,
    how: Disturbance,
    met: u64,
    hits: u64,
    over: bool,
}

#[derive(Default)]
struct Net {
    /// In flight to each PE.
    inbox: Vec<Inbox>,
    sent: u64,
    lost: u64,
    /// Sender and receiver of what is lost.
    cuts: BTreeSet<(u32, u32)>,
    /// PEs whose end is closed, as that of a process that ended.
    closed: BTreeSet<u32>,
    loses: Option<Loses>,
    disturbed: Vec<Disturbed>,
}

impl Net {
    /// When a message sent now arrives, once or more often.
    fn arrivals(&mut self, from: u32, to: u32, due: u64) -> Vec<u64> {
        let (mut due, mut copies) = (due, Vec::new());
        let concerned = |one: &&mut Disturbed| !one.over && (one.pe == from || one.pe == to);
        for one in self.disturbed.iter_mut().filter(concerned) {
            one.met += 1;
            let turn = |every: u32| one.met.is_multiple_of(u64::from(every.max(1)));
            let hit = match one.how {
                Disturbance::Delayed(by_ns) => {
                    due += by_ns;
                    true
                }
                Disturbance::Doubled(every) => {
                    copies.extend(turn(every).then_some(due + LATE_NS));
                    turn(every)
                }
                Disturbance::Overtaken(every) => {
                    due += if turn(every) { LATE_NS } else { 0 };
                    turn(every)
                }
            };
            one.hits += u64::from(hit);
        }
        copies.push(due);
        copies
    }
}

/// A network of agents in one process, with a stated latency, whose links can be cut.
#[derive(Clone)]
pub struct OobNet {
    net: Arc<Mutex<Net>>,
    latency_ns: u64,
    world: Arc<dyn World>,
}

impl OobNet {
    /// A network of `size` PEs.
    pub fn new(size: u32, latency_ns: u64, world: Arc<dyn World>) -> Self {
        let net = Net { inbox: vec![BTreeMap::new(); size as usize], ..Net::default() };
        Self { net: Arc::new(Mutex::new(net)), latency_ns, world }
    }

    fn with<R>(&self, f: impl FnOnce(&mut Net) -> R) -> R {
        f(&mut self.net.lock().expect("no panic under this lock"))
    }

    /// The end of a PE.
    pub fn end(&self, pe: u32) -> OobEnd {
        OobEnd { net: self.clone(), pe }
    }

    /// Cuts the link between two PEs, both ways; what is in flight on it is lost.
    pub fn cut(&self, a: u32, b: u32) {
        self.cut_one_way(a, b);
        self.cut_one_way(b, a);
    }

    /// Cuts what goes from one PE to another; what is in flight there is lost.
    pub fn cut_one_way(&self, from: u32, to: u32) {
        self.with(|net| {
            net.cuts.insert((from, to));
            let inbox = &mut net.inbox[to as usize];
            let before = inbox.len();
            inbox.retain(|_, (sender, _)| *sender != from);
            net.lost += (before - inbox.len()) as u64;
        });
    }

    /// Closes the end of a PE for good, as when its process ends: what it sent arrives, and the others know.
    pub fn close(&self, pe: u32) {
        self.with(|net| {
            net.closed.insert(pe);
            net.lost += std::mem::take(&mut net.inbox[pe as usize]).len() as u64;
        });
    }

    /// From now on the messages that `which` picks, by sender, receiver and bytes, get lost.
    pub fn lose(&self, which: impl FnMut(u32, u32, &[u8]) -> bool + Send + 'static) {
        self.with(|net| net.loses = Some(Box::new(which)));
    }

    /// Disturbs the messages to and from a PE from now on; answers with a number for [`OobNet::hits`].
    pub fn disturb(&self, pe: u32, how: Disturbance) -> usize {
        self.with(|net| {
            net.disturbed.push(Disturbed { pe, how, met: 0, hits: 0, over: false });
            net.disturbed.len() - 1
        })
    }

    /// Ends a disturbance.
    pub fn calm(&self, number: usize) {
        self.with(|net| net.disturbed[number].over = true);
    }

    /// Messages that a disturbance hit so far.
    pub fn hits(&self, number: usize) -> u64 {
        self.with(|net| net.disturbed[number].hits)
    }

    /// Joins a link that was cut, both ways.
    pub fn join(&self, a: u32, b: u32) {
        self.with(|net| net.cuts.retain(|cut| *cut != (a, b) && *cut != (b, a)));
    }

    /// The earliest arrival of a message in flight: a simulator may let time jump there.
    pub fn next_due(&self) -> Option<u64> {
        self.with(|net| net.inbox.iter().filter_map(|inbox| inbox.keys().next()).map(|(at, _)| *at).min())
    }

    /// Messages sent, and how many of them were lost to cuts.
    pub fn counts(&self) -> (u64, u64) {
        self.with(|net| (net.sent, net.lost))
    }
}

/// One PE's end of an [`OobNet`].
pub struct OobEnd {
    net: OobNet,
    pe: u32,
}

impl Oob for OobEnd {
    fn send(&self, to_pe: u32, bytes: Vec<u8>) {
        let due = self.net.world.now_ns() + self.net.latency_ns;
        self.net.with(|net| {
            net.sent += 1;
            let number = net.sent;
            let closed = net.closed.contains(&to_pe) || net.closed.contains(&self.pe);
            let lost = net.loses.as_mut().is_some_and(|loses| loses(self.pe, to_pe, &bytes));
            if lost || closed || net.cuts.contains(&(self.pe, to_pe)) || to_pe as usize >= net.inbox.len() {
                net.lost += 1;
            } else {
                for due in net.arrivals(self.pe, to_pe, due) {
                    // Of one message no two copies arrive at one instant.
                    net.inbox[to_pe as usize].insert((due, number), (self.pe, bytes.clone()));
                }
            }
        });
    }

    fn try_recv(&self) -> Option<(u32, Vec<u8>)> {
        let now = self.net.world.now_ns();
        self.net.with(|net| {
            let first = net.inbox[self.pe as usize].first_entry()?;
            (first.key().0 <= now).then(|| first.remove())
        })
    }

    fn reachable(&self, pe: u32) -> bool {
        self.net.with(|net| !net.closed.contains(&pe))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step_world::StepWorld;

    fn net() -> (OobNet, Arc<StepWorld>) {
        let world = Arc::new(StepWorld::new(10));
        (OobNet::new(3, 100, world.clone()), world)
    }

    #[test]
    fn messages_arrive_in_order_after_the_latency() {
        let (net, world) = net();
        let (a, b) = (net.end(0), net.end(1));
        a.send(1, vec![1]);
        a.send(1, vec![2]);
        assert_eq!(b.try_recv(), None);
        assert_eq!(net.next_due(), Some(world.now_ns() + 100));
        (0..10).for_each(|_| world.relax());
        assert_eq!(b.try_recv(), Some((0, vec![1])));
        assert_eq!(b.try_recv(), Some((0, vec![2])));
        assert_eq!((b.try_recv(), net.next_due()), (None, None));
    }

    #[test]
    fn a_cut_loses_what_is_in_flight_and_nothing_of_other_links() {
        let (net, world) = net();
        let ends = [net.end(0), net.end(1), net.end(2)];
        ends[0].send(1, vec![1]);
        ends[2].send(1, vec![2]);
        net.cut(1, 0);
        ends[1].send(0, vec![3]);
        net.join(0, 1);
        ends[0].send(1, vec![4]);
        (0..10).for_each(|_| world.relax());
        assert_eq!(ends[1].try_recv(), Some((2, vec![2])));
        assert_eq!(ends[1].try_recv(), Some((0, vec![4])));
        assert_eq!((ends[1].try_recv(), ends[0].try_recv()), (None, None));
        assert_eq!(net.counts(), (4, 2));
    }

    #[test]
    fn a_cut_one_way_leaves_the_other() {
        let (net, world) = net();
        let ends = [net.end(0), net.end(1), net.end(2)];
        ends[0].send(1, vec![1]);
        net.cut_one_way(0, 1);
        ends[0].send(1, vec![2]);
        ends[1].send(0, vec![3]);
        net.join(1, 0);
        ends[0].send(1, vec![4]);
        (0..10).for_each(|_| world.relax());
        assert_eq!((ends[1].try_recv(), ends[1].try_recv()), (Some((0, vec![4])), None));
        assert_eq!(ends[0].try_recv(), Some((1, vec![3])));
        assert_eq!(net.counts(), (4, 2));
    }

    #[test]
    fn messages_are_doubled_delayed_and_overtaken() {
        let (net, world) = net();
        let (a, b, c) = (net.end(0), net.end(1), net.end(2));
        let later = |ns| world.pass(ns);
        let doubled = net.disturb(1, Disturbance::Doubled(2));
        (1..=3).for_each(|n| a.send(1, vec![n]));
        c.send(0, vec![9]);
        later(100);
        assert_eq!([b.try_recv(), b.try_recv(), b.try_recv()], [1, 2, 3].map(|n| Some((0, vec![n]))));
        assert_eq!((b.try_recv(), net.hits(doubled)), (None, 1));
        later(LATE_NS);
        assert_eq!((b.try_recv(), b.try_recv()), (Some((0, vec![2])), None), "the copy");
        net.calm(doubled);
        let overtaken = net.disturb(0, Disturbance::Overtaken(2));
        (4..=5).for_each(|n| a.send(1, vec![n]));
        net.calm(overtaken);
        let delayed = net.disturb(0, Disturbance::Delayed(2 * LATE_NS));
        b.send(0, vec![6]);
        later(100 + LATE_NS);
        assert_eq!((b.try_recv(), b.try_recv()), (Some((0, vec![4])), Some((0, vec![5]))));
        assert_eq!(a.try_recv(), Some((2, vec![9])));
        assert_eq!((a.try_recv(), net.hits(overtaken), net.hits(delayed)), (None, 1, 1));
        later(LATE_NS);
        assert_eq!((a.try_recv(), net.hits(doubled)), (Some((1, vec![6])), 1), "calm again");
    }

    #[test]
    fn an_end_that_is_closed_is_known_to_be() {
        let (net, world) = net();
        let ends = [net.end(0), net.end(1), net.end(2)];
        ends[1].send(0, vec![1]);
        ends[0].send(1, vec![2]);
        net.close(1);
        ends[0].send(1, vec![3]);
        ends[1].send(0, vec![4]);
        (0..10).for_each(|_| world.relax());
        assert_eq!(ends[0].try_recv(), Some((1, vec![1])), "sent before");
        assert_eq!((ends[0].try_recv(), ends[1].try_recv()), (None, None));
        assert_eq!((ends[0].reachable(1), ends[0].reachable(2)), (false, true));
    }
}
