//! What many events of one kind have in common, in one: where the channels went that left a path at about one time, how
//! often a rail was suspected again, how often the link to a peer was lost again. Pure: events and instants come in,
//! what is to be told leaves.

use super::declare::Route;
use super::table::Event;
use std::collections::BTreeMap;

/// Failovers that follow each other faster than this are one burst.
const QUIET_NS: u64 = 200_000_000;
/// The longest burst. What goes on is told as another.
const BURST_NS: u64 = 2_000_000_000;
/// Time between two words about what happens again and again.
const AGAIN_NS: u64 = 10_000_000_000;
/// What did not happen for so long happens for the first time again.
const FORGET_NS: u64 = 60_000_000_000;
/// Places that a line names; the others are counted.
const NAMED: usize = 4;

/// Channels that left a path at about one time.
struct Burst {
    first_ns: u64,
    last_ns: u64,
    /// By peer and channel: the path that it left first, and the one that it is on.
    moved: BTreeMap<(u32, u32), (Route, Route)>,
    replayed: u64,
    ended: u64,
}

/// What happens again and again, and is over again each time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Topic {
    /// A rail of a PE is suspected.
    Rail(u32, u32),
    /// The link to a peer is lost.
    Link(u32),
}

/// How often it did.
struct Trouble {
    /// When something was said of it last.
    said_ns: u64,
    /// When it happened last.
    last_ns: u64,
    /// How often since something was said.
    times: u64,
    over: bool,
}

/// What is known of the events so far.
#[derive(Default)]
pub(super) struct Summary {
    /// Devices of this PE's rails.
    devices: BTreeMap<u32, String>,
    burst: Option<Burst>,
    troubles: BTreeMap<Topic, Trouble>,
    /// The log for people spoke of a fault, and not of its end.
    told: bool,
}

impl Summary {
    /// Takes an event. False if it is one of many: the log for people has their sum in its place.
    pub(super) fn take(&mut self, at_ns: u64, event: &Event) -> bool {
        match event {
            Event::RailDown { .. } | Event::NicError { .. } | Event::TrafficMoved { .. } => self.told = true,
            // Paths that are made at the start, or taken out by an operator, are no fault whose end is of interest.
            Event::Recovered { .. } => return std::mem::take(&mut self.told),
            Event::RailOpened { rail, device, .. } => _ = self.devices.insert(*rail, device.clone()),
            Event::Failover { from, to, replayed, .. } => {
                let burst = self.burst(at_ns);
                burst.replayed += replayed;
                let key = (to.place.peer, to.place.channel);
                burst.moved.entry(key).and_modify(|(_, now)| *now = *to).or_insert((*from, *to));
            }
            Event::ChannelDead { at, .. } => {
                let burst = self.burst(at_ns);
                burst.ended += 1;
                burst.moved.remove(&(at.place.peer, at.place.channel));
            }
            Event::RailSuspected { of, rail } => return self.happened(at_ns, Topic::Rail(*of, *rail)),
            Event::RailCleared { of, rail, .. } => return self.is_over(Topic::Rail(*of, *rail)),
            Event::AgentLinkLost { peer } => return self.happened(at_ns, Topic::Link(*peer)),
            Event::AgentLinkBack { peer, .. } => return self.is_over(Topic::Link(*peer)),
            _ => {}
        }
        true
    }

    fn burst(&mut self, at_ns: u64) -> &mut Burst {
        let none =
            || Burst { first_ns: at_ns, last_ns: at_ns, moved: BTreeMap::new(), replayed: 0, ended: 0 };
        let burst = self.burst.get_or_insert_with(none);
        burst.first_ns = burst.first_ns.min(at_ns);
        burst.last_ns = burst.last_ns.max(at_ns);
        burst
    }

    /// True if that is to be said at once.
    fn happened(&mut self, at_ns: u64, topic: Topic) -> bool {
        if let Some(known) = self.troubles.get_mut(&topic)
            && at_ns.saturating_sub(known.last_ns) < FORGET_NS
        {
            (known.last_ns, known.over) = (at_ns, false);
            known.times += 1;
            return false;
        }
        self.troubles.insert(topic, Trouble { said_ns: at_ns, last_ns: at_ns, times: 0, over: false });
        true
    }

    /// True if that is to be said: the sum says it of what happened again.
    fn is_over(&mut self, topic: Topic) -> bool {
        let Some(known) = self.troubles.get_mut(&topic) else { return true };
        known.over = true;
        known.times == 0
    }

    /// What is to be told by now.
    pub(super) fn due(&mut self, now_ns: u64) -> Vec<Event> {
        let over = |burst: &Burst| {
            now_ns >= burst.last_ns.saturating_add(QUIET_NS)
                || now_ns >= burst.first_ns.saturating_add(BURST_NS)
        };
        let moved = if self.burst.as_ref().is_some_and(over) { self.moved() } else { None };
        let again = self.again(now_ns, AGAIN_NS);
        moved.into_iter().chain(again).collect()
    }

    /// What was not told yet: nothing follows.
    pub(super) fn rest(&mut self) -> Vec<Event> {
        let last_ns = self.troubles.values().map(|known| known.last_ns).max().unwrap_or(0);
        self.moved().into_iter().chain(self.again(last_ns, 0)).collect()
    }

    /// Where the channels of the burst went, if there is one, which ends here.
    pub(super) fn moved(&mut self) -> Option<Event> {
        let burst = self.burst.take()?;
        if burst.moved.is_empty() {
            return None;
        }
        Some(Event::TrafficMoved {
            channels: burst.moved.len() as u64,
            from: self.places(burst.moved.values().map(|(from, _)| from)),
            to: self.places(burst.moved.values().map(|(_, to)| to)),
            replayed: burst.replayed,
            ended: burst.ended,
            lasted_ns: burst.last_ns - burst.first_ns,
        })
    }

    /// `mlx5_1>0 x12, mlx5_1>1 x4`: NIC of this end, rail of the other, channels. Those of most channels first.
    fn places<'a>(&self, routes: impl Iterator<Item = &'a Route>) -> String {
        let mut counts = BTreeMap::<(u32, u32), u64>::new();
        for route in routes {
            *counts.entry((route.local_rail, route.remote_rail)).or_default() += 1;
        }
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let name = |local: &u32| self.devices.get(local).cloned().unwrap_or_else(|| format!("rail {local}"));
        let named = counts.iter().take(NAMED);
        let named = named.map(|((local, remote), count)| format!("{}>{remote} x{count}", name(local)));
        let mut text = named.collect::<Vec<_>>().join(", ");
        if counts.len() > NAMED {
            let others: u64 = counts[NAMED..].iter().map(|(_, count)| count).sum();
            text += &format!(", others x{others}");
        }
        text
    }

    /// What happened again since something was said of it, `pause_ns` ago or more.
    fn again(&mut self, now_ns: u64, pause_ns: u64) -> Vec<Event> {
        let mut told = Vec::new();
        for (topic, known) in &mut self.troubles {
            if known.times == 0 || now_ns.saturating_sub(known.said_ns) < pause_ns {
                continue;
            }
            let times = std::mem::take(&mut known.times);
            let within_ns = known.last_ns.saturating_sub(known.said_ns);
            told.push(match *topic {
                Topic::Rail(of, rail) => {
                    let now = if known.over { "cleared" } else { "suspected" };
                    Event::RailSuspectedAgain { of, rail, times, within_ns, now }
                }
                Topic::Link(peer) => {
                    let now = if known.over { "back" } else { "lost" };
                    Event::AgentLinkLostAgain { peer, times, within_ns, now }
                }
            });
            known.said_ns = now_ns;
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::declare::Place;

    const MILLI: u64 = 1_000_000;

    fn route(peer: u32, channel: u32, local_rail: u32, remote_rail: u32) -> Route {
        Route {
            pe: 0,
            place: Place { peer, channel, slot: local_rail },
            local_rail,
            remote_rail,
            incarnation: 1,
        }
    }

    fn failover(channel: u32, from: (u32, u32), to: (u32, u32)) -> Event {
        Event::Failover {
            from: route(1, channel, from.0, from.1),
            to: route(1, channel, to.0, to.1),
            generation: 1,
            cause: "overdue",
            fence_ns: 0,
            cut_ns: 0,
            replay_ns: 0,
            open_ns: 0,
            replayed: 2,
        }
    }

    fn dead(channel: u32) -> Event {
        Event::ChannelDead { at: route(1, channel, 0, 0), cause: "overdue", syndrome: 0, unfinished: 0 }
    }

    /// Hundreds of channels leave a rail, one of them twice, and one ends: one event says where they are.
    #[test]
    fn a_burst_of_failovers_is_one_event() {
        let mut summary = Summary::default();
        for (rail, device) in [(0, "mlx5_0"), (1, "mlx5_1")] {
            summary.take(0, &Event::RailOpened { rail, device: device.into(), up: true });
        }
        for channel in 0..300 {
            assert!(summary.take(u64::from(channel) * MILLI, &failover(channel, (0, 0), (1, 0))));
            assert_eq!(summary.due(u64::from(channel) * MILLI), []);
        }
        summary.take(300 * MILLI, &failover(7, (1, 0), (1, 1)));
        summary.take(300 * MILLI, &failover(9, (1, 0), (0, 1)));
        summary.take(300 * MILLI, &dead(9));
        assert_eq!(summary.due(300 * MILLI + QUIET_NS - 1), []);
        let moved = Event::TrafficMoved {
            channels: 299,
            from: "mlx5_0>0 x299".into(),
            to: "mlx5_1>0 x298, mlx5_1>1 x1".into(),
            replayed: 604,
            ended: 1,
            lasted_ns: 300 * MILLI,
        };
        assert_eq!(summary.due(300 * MILLI + QUIET_NS), [moved]);
        assert_eq!((summary.due(u64::MAX), summary.rest()), (vec![], vec![]));
    }

    /// Failovers without a pause are told within the longest burst. Ends alone are no move.
    #[test]
    fn a_burst_has_an_end() {
        let mut summary = Summary::default();
        let told = (0..100).flat_map(|turn| {
            summary.take(turn * 100 * MILLI, &failover(turn as u32, (0, 0), (1, 1)));
            summary.due(turn * 100 * MILLI)
        });
        assert_eq!(told.count(), 4);
        assert_eq!(summary.rest().len(), 1, "the last burst is told at the end");
        summary.take(0, &dead(3));
        assert_eq!(summary.rest(), []);
    }

    /// A job said that all was well again before anything had failed: its first paths were being made.
    #[test]
    fn an_end_is_told_of_what_was_told() {
        let mut summary = Summary::default();
        let recovered = Event::Recovered { lasted_ns: 5 };
        assert!(!summary.take(5, &recovered));
        summary.take(10, &failover(0, (0, 0), (1, 1)));
        let moved = summary.moved().expect("one channel");
        assert!(summary.take(20, &moved) && summary.take(30, &recovered) && !summary.take(40, &recovered));
        assert!(summary.take(50, &Event::RailDown { rail: 0 }) && summary.take(60, &recovered));
    }

    #[test]
    fn places_beyond_a_few_are_counted() {
        let mut summary = Summary::default();
        (0..7).for_each(|rail| _ = summary.take(0, &failover(rail, (9, 9), (rail, 0))));
        let Some(Event::TrafficMoved { to, .. }) = summary.moved() else { panic!("nothing was told") };
        assert_eq!(to, "rail 0>0 x1, rail 1>0 x1, rail 2>0 x1, rail 3>0 x1, others x3");
    }

    /// A link that comes and goes has a line for the first time, and a sum of its own.
    #[test]
    fn a_link_is_lost_once_and_again_in_sums() {
        let mut summary = Summary::default();
        let lost = |peer| Event::AgentLinkLost { peer };
        let back = |peer| Event::AgentLinkBack { peer, lost_ns: 1 };
        assert!(summary.take(0, &lost(4)) && summary.take(1, &back(4)));
        for at_ns in [2, 4, 6] {
            assert!(!summary.take(at_ns, &lost(4)) && !summary.take(at_ns + 1, &back(4)));
        }
        assert!(summary.take(8, &lost(5)) && summary.take(9, &Event::RailSuspected { of: 4, rail: 0 }));
        assert!(!summary.take(10, &lost(4)));
        let sum = Event::AgentLinkLostAgain { peer: 4, times: 4, within_ns: 10, now: "lost" };
        assert_eq!((summary.due(AGAIN_NS - 1), summary.due(AGAIN_NS)), (vec![], vec![sum]));
    }

    /// A rail is suspected and cleared a thousand times: said once, then summed up; another rail has its own line.
    #[test]
    fn a_rail_is_suspected_once_and_again_in_sums() {
        let mut summary = Summary::default();
        let (mut lines, mut sums) = (0, Vec::new());
        for turn in 0..1000 {
            let at_ns = turn * 40 * MILLI;
            lines += u32::from(summary.take(at_ns, &Event::RailSuspected { of: 1, rail: 0 }));
            let cleared = Event::RailCleared { of: 1, rail: 0, suspected_ns: MILLI };
            lines += u32::from(summary.take(at_ns + MILLI, &cleared));
            sums.extend(summary.due(at_ns + MILLI));
        }
        sums.extend(summary.rest());
        assert_eq!(lines, 2, "the first suspicion and its end");
        let times = |event: &Event| match event {
            Event::RailSuspectedAgain { of: 1, rail: 0, times, now: "cleared", .. } => *times,
            other => panic!("{other:?}"),
        };
        assert_eq!((sums.len(), sums.iter().map(times).sum::<u64>()), (4, 999), "{sums:?}");
        assert!(summary.take(0, &Event::RailSuspected { of: 1, rail: 1 }), "another rail");
        let late = 1000 * 40 * MILLI + FORGET_NS;
        assert!(summary.take(late, &Event::RailSuspected { of: 1, rail: 0 }), "forgotten in between");
    }
}
