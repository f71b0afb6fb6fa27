//! What Prometheus reads: counters from events and from device counters, gauges from the status page, stage times.
//!
//! Labels are bounded: PEs of this process, rails of a PE, pairs of rails, and peers up to [`PEERS_NAMED`] of them (in
//! larger jobs the peer is `many`). Updating takes no lock that a scrape holds for long and does no I/O.

use super::log::{Sink, Told};
use super::table::{EVENTS, Event};
use super::transfers::{self, EndMetrics};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use shunt_layout::state::CauseKind;
use shunt_layout::status::{PeerState, RailState, StatusPage, StatusSummary};
use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

/// Jobs up to this many PEs have a label a peer.
pub const PEERS_NAMED: u32 = 64;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PeLabel {
    pe: u32,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct EventLabels {
    pe: u32,
    event: &'static str,
    level: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RailLabels {
    pe: u32,
    rail: u32,
    device: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StateLabels {
    pe: u32,
    state: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PathLabels {
    pe: u32,
    peer: String,
    path: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StageLabels {
    pe: u32,
    stage: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct CauseLabels {
    pe: u32,
    cause: &'static str,
}

/// What a failover may be caused by.
const FAILS: [CauseKind; 6] = [
    CauseKind::Completion,
    CauseKind::Overdue,
    CauseKind::PortDown,
    CauseKind::FencedByPeer,
    CauseKind::DrainFailed,
    CauseKind::LedgerFailed,
];

/// Asks a port for the bytes that it has sent and received so far.
type AskTraffic = Box<dyn Fn() -> Option<(u64, u64)> + Send>;

type Stages = Family<StageLabels, Histogram, fn() -> Histogram>;

/// Every metric.
#[derive(Clone)]
struct Families {
    events: Family<EventLabels, Counter>,
    failovers: Family<PathLabels, Counter>,
    causes: Family<CauseLabels, Counter>,
    operations: Family<RailLabels, Counter>,
    sent: Family<RailLabels, Counter>,
    received: Family<RailLabels, Counter>,
    switchbacks: Family<PathLabels, Counter>,
    stages: Stages,
    rail_up: Family<RailLabels, Gauge>,
    rail_downs: Family<RailLabels, Counter>,
    peers: Family<StateLabels, Gauge>,
    channels: Family<StateLabels, Gauge>,
    trouble: Family<PeLabel, Gauge>,
    armed: Family<PeLabel, Gauge>,
    sums: [Family<PeLabel, Counter>; SUMS.len()],
}

/// A counter of the summary: name, meaning, where it is.
type Sum = (&'static str, &'static str, fn(&StatusSummary) -> u64);

/// Counters that are those of the status page.
const SUMS: [Sum; 9] = [
    ("shunt_suspicions", "Switches started because of silence only", |it| it.suspicions),
    ("shunt_fences_asked", "Fences asked of the agent", |it| it.fences_asked),
    ("shunt_replayed_operations", "Operations sent again", |it| it.replayed),
    ("shunt_placeholder_operations", "Executed operations that a placeholder stood in for", |it| {
        it.placeholders
    }),
    ("shunt_late_tickets", "Tickets that waited for a switch", |it| it.late_tickets),
    ("shunt_ledger_cuts", "Cuts taken from the ledger, for want of truth", |it| it.ledger_cuts),
    ("shunt_pathless", "Times a channel found no usable path", |it| it.pathless),
    ("shunt_uncertain_operations", "Operations that may or may not have been applied", |it| it.uncertain),
    ("shunt_events_lost", "Events lost before anybody read them", |it| it.events_lost),
];

/// 1 us to 8.4 s, each twice the one before.
fn stage_times() -> Histogram {
    Histogram::new(exponential_buckets(1e-6, 2.0, 24))
}

impl Families {
    fn new() -> Self {
        Self {
            events: Family::default(),
            failovers: Family::default(),
            causes: Family::default(),
            operations: Family::default(),
            sent: Family::default(),
            received: Family::default(),
            switchbacks: Family::default(),
            stages: Family::new_with_constructor(stage_times),
            rail_up: Family::default(),
            rail_downs: Family::default(),
            peers: Family::default(),
            channels: Family::default(),
            trouble: Family::default(),
            armed: Family::default(),
            sums: std::array::from_fn(|_| Family::default()),
        }
    }

    fn register(&self, to: &mut Registry) {
        to.register("shunt_events", "Events told, by name", self.events.clone());
        to.register(
            "shunt_failovers",
            "Generations opened because of a fault, by the path left",
            self.failovers.clone(),
        );
        to.register(
            "shunt_switchbacks",
            "Generations opened by a switch-back, by the path left",
            self.switchbacks.clone(),
        );
        to.register("shunt_switches", "Generations opened because of a fault, by cause", self.causes.clone());
        to.register(
            "shunt_operations",
            "Puts, signals and other operations posted, by the rail in use",
            self.operations.clone(),
        );
        to.register(
            "shunt_rail_sent_bytes",
            "Bytes the port has sent, by its own counter",
            self.sent.clone(),
        );
        to.register(
            "shunt_rail_received_bytes",
            "Bytes the port has received, by its own counter",
            self.received.clone(),
        );
        to.register_with_unit(
            "shunt_stage",
            "Time of each stage of a switch",
            Unit::Seconds,
            self.stages.clone(),
        );
        to.register("shunt_rail_up", "1 while the port of a rail is up", self.rail_up.clone());
        to.register("shunt_rail_downs", "Times the port of a rail went down", self.rail_downs.clone());
        to.register("shunt_peers", "Peers by the state of their worst channel", self.peers.clone());
        to.register("shunt_channels", "Channels by state", self.channels.clone());
        to.register(
            "shunt_trouble",
            "1 from the first sign of trouble until all is well",
            self.trouble.clone(),
        );
        to.register("shunt_backups_armed", "1 once every backup has been ready", self.armed.clone());
        for ((name, help, _), family) in SUMS.iter().zip(&self.sums) {
            to.register(*name, *help, family.clone());
        }
    }
}

/// All metrics of a process.
pub struct Metrics {
    registry: Registry,
    families: Families,
    traffic: Mutex<Vec<(RailLabels, AskTraffic)>>,
    transfers: Arc<transfers::Families>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::with(Registry::default())
    }
}

impl Metrics {
    /// Those of a process of `job`, with labels that say so: `job` and `instance` are Prometheus' own.
    pub fn of_job(job: &str) -> Self {
        let labels = [("shunt_job", job.to_owned()), ("host", super::logging::host())];
        let labels = labels.into_iter().map(|(name, value)| (Cow::Borrowed(name), Cow::Owned(value)));
        Self::with(Registry::with_labels(labels))
    }

    fn with(mut registry: Registry) -> Self {
        let families = Families::new();
        families.register(&mut registry);
        let abi = shunt_layout::ABI_VERSION.to_string();
        let build = Info::new(vec![("version", env!("CARGO_PKG_VERSION").to_owned()), ("abi", abi)]);
        registry.register("shunt_build", "The build", build);
        let transfers = Arc::new(transfers::Families::default());
        transfers.register(&mut registry);
        Self { registry, families, traffic: Mutex::default(), transfers }
    }

    /// Asks every port, which may take as long as its NIC takes.
    fn ask_ports(&self) {
        let traffic = self.traffic.lock().unwrap_or_else(PoisonError::into_inner);
        for (labels, ask) in &*traffic {
            let Some((sent, received)) = ask() else { continue };
            for (family, now) in [(&self.families.sent, sent), (&self.families.received, received)] {
                let counter = family.get_or_create(labels);
                // A port that was reset counts from 0: nothing is taken back.
                counter.inc_by(now.saturating_sub(counter.get()));
            }
        }
    }

    /// What a scrape gets: OpenMetrics text.
    pub fn text(&self) -> String {
        self.ask_ports();
        let mut out = String::new();
        // Writing to a string does not fail.
        let _ = prometheus_client::encoding::text::encode(&mut out, &self.registry);
        out
    }

    /// Those of one end of a transfer engine, by its number.
    pub fn of_end(&self, end: u32) -> EndMetrics {
        EndMetrics::new(self.transfers.clone(), end)
    }

    /// Those of one PE, in a job of `pes`.
    pub fn of_pe(self: &Arc<Self>, pe: u32, pes: u32) -> PeMetrics {
        let (named, last, rails) = (pes <= PEERS_NAMED, StatusSummary::default(), Vec::new());
        let metrics = PeMetrics { all: self.clone(), pe, named, last, rails };
        // A counter that is not there cannot be told from one that does not move.
        for event in EVENTS {
            let labels = EventLabels { pe, event: event.name, level: event.level.name() };
            let _ = self.families.events.get_or_create(&labels);
        }
        for cause in FAILS {
            let _ = self.families.causes.get_or_create(&CauseLabels { pe, cause: cause.name() });
        }
        metrics
    }
}

/// The metrics of one PE, as its agent sees them: told of events, and of each new status page.
#[derive(Clone)]
pub struct PeMetrics {
    all: Arc<Metrics>,
    pe: u32,
    named: bool,
    last: StatusSummary,
    /// By rank: their counters of operations.
    rails: Vec<Counter>,
}

impl PeMetrics {
    /// Counts what the port of a rail sends and receives; it is asked by each scrape, from the endpoint's thread.
    pub fn count_traffic(
        &self,
        rail: u32,
        device: &str,
        ask: impl Fn() -> Option<(u64, u64)> + Send + 'static,
    ) {
        let labels = RailLabels { pe: self.pe, rail, device: device.to_owned() };
        self.all.traffic.lock().unwrap_or_else(PoisonError::into_inner).push((labels, Box::new(ask)));
    }

    /// So many operations more went out on a rail.
    pub fn count_operations(&self, rail: u32, more: u64) {
        if let Some(counter) = self.rails.get(rail as usize) {
            counter.inc_by(more);
        }
    }

    /// Takes the sums and states of a new status page.
    pub fn update(&mut self, page: &StatusPage) {
        let (families, pe) = (&self.all.families, self.pe);
        let label = PeLabel { pe };
        for ((_, _, get), family) in SUMS.iter().zip(&families.sums) {
            let grown = get(&page.summary).saturating_sub(get(&self.last));
            family.get_or_create(&label).inc_by(grown);
        }
        self.last = page.summary;
        families.trouble.get_or_create(&label).set((page.summary.trouble_unix_ns != 0).into());
        families.armed.get_or_create(&label).set((page.summary.armed_unix_ns != 0).into());
        for (rail, row) in (0..page.rails).zip(&page.rail) {
            let end = row.name.iter().position(|byte| *byte == 0).unwrap_or(row.name.len());
            let device = String::from_utf8_lossy(&row.name[..end]).into_owned();
            let labels = RailLabels { pe, rail, device };
            let up = RailState::from_raw(row.state) == RailState::Up;
            families.rail_up.get_or_create(&labels).set(up.into());
            if self.rails.len() == rail as usize {
                self.rails.push(families.operations.get_or_create_owned(&labels));
            }
            let downs = families.rail_downs.get_or_create(&labels);
            downs.inc_by(u64::from(row.downs).saturating_sub(downs.get()));
        }
        let summary = &page.summary;
        let settled = summary.channels.saturating_sub(summary.on_backup + summary.switching + summary.dead);
        for (state, count) in [
            ("primary", settled),
            ("backup", summary.on_backup),
            ("switching", summary.switching),
            ("dead", summary.dead),
        ] {
            families.channels.get_or_create(&StateLabels { pe, state }).set(count.into());
        }
        self.update_peers(page);
    }

    fn update_peers(&self, page: &StatusPage) {
        use PeerState::{Backup, Fine, Lost, Pathless, Switching, Thin};
        let mut counts = [0i64; 6];
        let peers = page.peer.iter().zip(0..page.pe_count).filter(|(_, peer)| *peer != self.pe);
        peers.for_each(|(raw, _)| counts[PeerState::from_raw(*raw) as usize] += 1);
        for state in [Fine, Thin, Backup, Switching, Pathless, Lost] {
            let labels = StateLabels { pe: self.pe, state: state.name() };
            self.all.families.peers.get_or_create(&labels).set(counts[state as usize]);
        }
    }

    fn stages(&self, stages: &[(&'static str, u64)]) {
        for (stage, ns) in stages {
            let labels = StageLabels { pe: self.pe, stage };
            self.all.families.stages.get_or_create(&labels).observe(*ns as f64 / 1e9);
        }
    }

    fn path(&self, left: &super::Route) -> PathLabels {
        let peer = if self.named { left.place.peer.to_string() } else { "many".to_owned() };
        PathLabels { pe: self.pe, peer, path: format!("{}>{}", left.local_rail, left.remote_rail) }
    }
}

impl Sink for PeMetrics {
    fn tell(&mut self, told: &Told) {
        let event = &told.event;
        let (name, level) = (event.name(), event.level().name());
        let labels = EventLabels { pe: self.pe, event: name, level };
        self.all.families.events.get_or_create(&labels).inc();
        match event {
            Event::Failover { from, cause, fence_ns, cut_ns, replay_ns, open_ns, .. } => {
                self.all.families.causes.get_or_create(&CauseLabels { pe: self.pe, cause }).inc();
                self.all.families.failovers.get_or_create(&self.path(from)).inc();
                let stages =
                    [("fence", *fence_ns), ("cut", *cut_ns), ("replay", *replay_ns), ("open", *open_ns)];
                self.stages(&stages);
            }
            Event::SwitchBack { from, drain_ns, flush_ns, open_ns, .. } => {
                self.all.families.switchbacks.get_or_create(&self.path(from)).inc();
                self.stages(&[("drain", *drain_ns), ("drain_flush", *flush_ns), ("back_open", *open_ns)]);
            }
            Event::HalfFenced { error_ns, query_ns, flush_ns, again_ns, .. } => {
                let times = [*error_ns, *query_ns, *flush_ns, *again_ns];
                let names = ["half_2err", "half_query", "half_flush", "half_query_again"];
                names.into_iter().zip(times).for_each(|stage| self.stages(&[stage]));
            }
            Event::PathFenced { took_ns, .. } => self.stages(&[("pair_fence", *took_ns)]),
            Event::PathAdmitted { out_ns, .. } => self.stages(&[("revival", *out_ns)]),
            Event::Recovered { lasted_ns } => self.stages(&[("trouble", *lasted_ns)]),
            _ => {}
        }
    }
}
