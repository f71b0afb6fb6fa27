//! What many events of one kind have in common, in one: where the channels went that left a path at about one time, and
//! how often a rail was suspected again. Pure: events and instants come in, what is to be told leaves.

use super::declare::Route;
use super::table::Event;
use std::collections::BTreeMap;

/// Failovers that follow each other faster than this are one burst.
const QUIET_NS: u64 = 200_000_000;
/// The longest burst. What goes on is told as another.
const BURST_NS: u64 = 2_000_000_000;
/// Time between two words about a rail that is suspected again and again.
const AGAIN_NS: u64 = 10_000_000_000;
/// A rail that was not suspected for so long is suspected for the first time again.
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

/// A rail that was suspected.
struct Suspected {
    /// When something was said of it last.
    said_ns: u64,
    /// When it was suspected last.
    last_ns: u64,
    /// How often since something was said.
    times: u64,
    cleared: bool,
}

/// What is known of the events so far.
#[derive(Default)]
pub(super) struct Summary {
    /// Devices of this PE's rails.
    devices: BTreeMap<u32, String>,
    burst: Option<Burst>,
    /// By PE and rail.
    rails: BTreeMap<(u32, u32), Suspected>,
}

impl Summary {
    /// Takes an event. False if it is one of many: the log for people has their sum in its place.
    pub(super) fn take(&mut self, at_ns: u64, event: &Event) -> bool {
        match event {
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
            Event::RailSuspected { of, rail } => return self.suspected(at_ns, (*of, *rail)),
            Event::RailCleared { of, rail, .. } => {
                let Some(known) = self.rails.get_mut(&(*of, *rail)) else { return true };
                known.cleared = true;
                return known.times == 0;
            }
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

    /// A rail is suspected. True if that is to be said at once.
    fn suspected(&mut self, at_ns: u64, rail: (u32, u32)) -> bool {
        let known = self.rails.get_mut(&rail);
        if let Some(known) = known
            && at_ns.saturating_sub(known.last_ns) < FORGET_NS
        {
            (known.last_ns, known.cleared) = (at_ns, false);
            known.times += 1;
            return false;
        }
        let fresh = Suspected { said_ns: at_ns, last_ns: at_ns, times: 0, cleared: false };
        self.rails.insert(rail, fresh);
        true
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
        let last_ns = self.rails.values().map(|known| known.last_ns).max().unwrap_or(0);
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

    /// Rails that were suspected again since something was said of them, `pause_ns` ago or more.
    fn again(&mut self, now_ns: u64, pause_ns: u64) -> Vec<Event> {
        let mut told = Vec::new();
        for ((of, rail), known) in &mut self.rails {
            if known.times == 0 || now_ns.saturating_sub(known.said_ns) < pause_ns {
                continue;
            }
            told.push(Event::RailSuspectedAgain {
                of: *of,
                rail: *rail,
                times: std::mem::take(&mut known.times),
                within_ns: known.last_ns.saturating_sub(known.said_ns),
                now: if known.cleared { "cleared" } else { "suspected" },
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

    #[test]
    fn places_beyond_a_few_are_counted() {
        let mut summary = Summary::default();
        (0..7).for_each(|rail| _ = summary.take(0, &failover(rail, (9, 9), (rail, 0))));
        let Some(Event::TrafficMoved { to, .. }) = summary.moved() else { panic!("nothing was told") };
        assert_eq!(to, "rail 0>0 x1, rail 1>0 x1, rail 2>0 x1, rail 3>0 x1, others x3");
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
