//! What Prometheus reads of the ends of a transfer engine.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::sync::Arc;

/// Peers with numbers below this have a gauge of their own.
const PEERS: u32 = 64;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct EndLabel {
    end: u32,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PeerLabel {
    end: u32,
    peer: u32,
}

/// What an end counts: its name, and what that is.
const SUMS: [(&str, &str); 4] = [
    ("shunt_transfer_lanes_opened", "Lanes that were opened"),
    ("shunt_transfer_lanes_left", "Lanes that were left: they failed, or held what was cancelled"),
    ("shunt_transfer_pieces_again", "Pieces under way on a lane that was left, which go over another one"),
    (
        "shunt_transfer_replays",
        "Times that a receiver could not tell which pieces of an immediate had arrived",
    ),
];

/// Sums of an end, in the order of the names: lanes opened, lanes left, pieces sent again, replays.
pub type EndSums = [u64; SUMS.len()];

#[derive(Default)]
pub(crate) struct Families {
    sums: [Family<EndLabel, Counter>; SUMS.len()],
    lanes: Family<PeerLabel, Gauge>,
}

impl Families {
    pub(crate) fn register(&self, to: &mut Registry) {
        for ((name, help), family) in SUMS.iter().zip(&self.sums) {
            to.register(*name, *help, family.clone());
        }
        to.register("shunt_transfer_lanes", "Lanes to a peer that may be used", self.lanes.clone());
    }
}

/// Metrics of one end of a transfer engine.
pub struct EndMetrics {
    families: Arc<Families>,
    end: u32,
}

impl EndMetrics {
    pub(crate) fn new(families: Arc<Families>, end: u32) -> Self {
        let metrics = Self { families, end };
        // A counter that is not there cannot be told from one that does not move.
        metrics.count([0; SUMS.len()]);
        metrics
    }

    /// The end has counted so much so far.
    pub fn count(&self, sums: EndSums) {
        for (family, sum) in self.families.sums.iter().zip(sums) {
            let counter = family.get_or_create(&EndLabel { end: self.end });
            counter.inc_by(sum.saturating_sub(counter.get()));
        }
    }

    /// So many lanes to a peer may be used now. Peers from number 64 on have no gauge.
    pub fn lanes(&self, peer: u32, count: usize) {
        if peer < PEERS {
            self.families.lanes.get_or_create(&PeerLabel { end: self.end, peer }).set(count as i64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_have_sums_that_grow_and_lanes_that_come_and_go() {
        let (families, mut registry) = (Arc::new(Families::default()), Registry::default());
        families.register(&mut registry);
        let end = EndMetrics::new(families, 3);
        let text = || {
            let mut text = String::new();
            prometheus_client::encoding::text::encode(&mut text, &registry).expect("a string");
            text
        };
        let has = |line: &str| {
            let text = text();
            assert!(text.lines().any(|one| one == line), "{line}: {text}");
        };
        has("shunt_transfer_lanes_left_total{end=\"3\"} 0");
        end.count([4, 1, 7, 0]);
        end.count([4, 2, 9, 0]);
        end.lanes(1, 2);
        end.lanes(1, 1);
        end.lanes(PEERS, 5);
        has("shunt_transfer_lanes_opened_total{end=\"3\"} 4");
        has("shunt_transfer_lanes_left_total{end=\"3\"} 2");
        has("shunt_transfer_pieces_again_total{end=\"3\"} 9");
        has("shunt_transfer_lanes{end=\"3\",peer=\"1\"} 1");
        assert!(!text().contains("peer=\"64\""));
    }
}
