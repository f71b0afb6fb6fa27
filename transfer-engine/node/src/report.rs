//! What becomes of an engine's lanes, for the log (`SHUNT_LOG`) and for Prometheus (`SHUNT_METRICS`).

use crate::cuts::Why;
use crate::error::NoNode;
use shunt::host::events::{EndMetrics, Logging, Watching};
use shunt_transfer_engine::domain::LaneFacts;
use shunt_transfer_engine::transfer::Counts;
use std::collections::{BTreeMap, BTreeSet};

/// Installs the log that the environment asks for: for programs that cannot install one, in C above all.
///
/// # Errors
/// A variable of the log makes no sense.
pub fn install_log() -> Result<(), NoNode> {
    Logging::install_if_asked().map_err(|error| NoNode::Refused(error.to_string()))
}

/// A lane: its peer, and the rails of this end and of the peer.
type Way = (u32, u32, u32);

/// What was told of an end.
pub struct Report {
    end: u32,
    counts: Counts,
    /// How many lanes go each way.
    ways: BTreeMap<Way, u32>,
    /// Peers that have left or were cut off: of their lanes nothing more is told.
    gone: BTreeSet<u32>,
    metrics: Option<EndMetrics>,
}

impl Report {
    /// One of which nothing was told, for the end of this number.
    pub fn of_end(end: u32) -> Self {
        let endpoint = Watching::from_env().endpoint();
        let metrics = endpoint.map(|endpoint| endpoint.metrics().of_end(end));
        Self { end, counts: Counts::default(), ways: BTreeMap::new(), gone: BTreeSet::new(), metrics }
    }

    /// Tells what has changed since the last call. Lanes are looked at only if their counts have.
    pub fn look<'a, L: Iterator<Item = &'a LaneFacts>>(&mut self, counts: Counts, lanes: impl FnOnce() -> L) {
        if counts == self.counts {
            return;
        }
        let mut ways = BTreeMap::new();
        for lane in lanes().filter(|lane| !self.gone.contains(&lane.peer.0)) {
            *ways.entry((lane.peer.0, lane.local, lane.remote)).or_default() += 1;
        }
        let before = std::mem::replace(&mut self.ways, ways);
        for (way, left) in changes(&before, &self.ways) {
            self.tell(way, left);
        }
        let Counts { opened, closed, returned: _, again, replays } = counts;
        if let Some(metrics) = &self.metrics {
            metrics.count([opened, closed, again, replays]);
            for peer in before.keys().chain(self.ways.keys()).map(|(peer, ..)| *peer) {
                metrics.lanes(peer, self.to(peer) as usize);
            }
        }
        self.counts = counts;
    }

    /// Tells that a peer is not there any more.
    pub(crate) fn gone(&mut self, peer: u32, why: Why) {
        let (end, lanes) = (self.end, self.to(peer));
        self.gone.insert(peer);
        self.ways.retain(|(to, ..), _| *to != peer);
        if let Some(metrics) = &self.metrics {
            metrics.lanes(peer, 0);
        }
        match why {
            Why::Left => tracing::info!(
                target: "shunt", event = "peer_left", end, peer, lanes,
                "a peer has left; what was under way to it and expected of it ends"
            ),
            Why::CutOff => tracing::info!(
                target: "shunt", event = "peer_cut_off", end, peer, lanes,
                "this end cut a peer off; what was under way to it and expected of it ends"
            ),
        }
    }

    /// Lanes to a peer.
    fn to(&self, peer: u32) -> u32 {
        self.ways.iter().filter(|((to, ..), _)| *to == peer).map(|(_, count)| count).sum()
    }

    fn tell(&self, (peer, local, remote): Way, left: bool) {
        let (end, lanes) = (self.end, self.to(peer));
        match left {
            true => tracing::warn!(
                target: "shunt", event = "lane_left", end, peer, local, remote, lanes,
                "a lane failed or held what was cancelled; transfers go on over those that are there"
            ),
            false => tracing::info!(
                target: "shunt", event = "lane_opened", end, peer, local, remote, lanes,
                "a lane may be used"
            ),
        }
    }
}

/// Ways that have fewer lanes than before (true), or more.
fn changes(before: &BTreeMap<Way, u32>, now: &BTreeMap<Way, u32>) -> Vec<(Way, bool)> {
    let count = |of: &BTreeMap<Way, u32>, way: &Way| of.get(way).copied().unwrap_or_default();
    let fewer = before.iter().filter(|(way, lanes)| count(now, way) < **lanes).map(|(way, _)| (*way, true));
    let more = now.iter().filter(|(way, lanes)| count(before, way) < **lanes).map(|(way, _)| (*way, false));
    fewer.chain(more).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_transfer_engine::ids::PeerId;

    #[test]
    fn nothing_is_told_of_lanes_to_a_peer_that_is_gone() {
        let lane = |peer| LaneFacts {
            peer: PeerId(peer),
            local: 0,
            remote: 0,
            depth: 1,
            rate: 1,
            lands_late: false,
        };
        let (both, counts) = ([lane(1), lane(2)], |opened| Counts { opened, ..Counts::default() });
        let mut report = Report::of_end(0);
        report.look(counts(2), || both.iter());
        report.gone(1, Why::Left);
        assert_eq!((report.to(1), report.to(2)), (0, 1));
        // They are closed a moment later.
        report.look(counts(3), || both.iter());
        assert_eq!((report.to(1), report.to(2)), (0, 1));
    }

    #[test]
    fn a_way_that_lost_a_lane_or_got_one_is_told() {
        let ways = |all: &[(Way, u32)]| all.iter().copied().collect::<BTreeMap<_, _>>();
        let before = ways(&[((0, 0, 0), 2), ((0, 1, 1), 2), ((1, 0, 0), 1)]);
        let now = ways(&[((0, 0, 0), 1), ((0, 1, 1), 2), ((2, 0, 0), 1)]);
        assert_eq!(changes(&before, &now), [((0, 0, 0), true), ((1, 0, 0), true), ((2, 0, 0), false)]);
        assert!(changes(&now, &now).is_empty());
    }
}
