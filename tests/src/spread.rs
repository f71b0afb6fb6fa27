//! Bandwidth over rate-limited rails while rails die: what is kept, and how it lies on the healthy ones.

use std::fmt;

use crate::cluster::Cluster;
use crate::run::start_streams;
use crate::spec::RunSpec;
use crate::traffic::Traffic;

/// Rate of each rail.
const RAIL_GBPS: u32 = 1;
const RAILS: u32 = 8;
/// So many that each pair of dead rails leaves as good as equal shares.
const CHANNELS: u32 = RAILS * (RAILS - 1);
/// From a change to the first instant that is measured.
const SETTLE_NS: u64 = 7_000_000;
/// How long is measured.
const SPAN_NS: u64 = 5_000_000;

/// One measurement.
#[derive(Clone, Debug)]
pub struct Row {
    /// Rails of PE 0 that are dead.
    pub dead: Vec<u32>,
    /// Payload that arrived, in Gb/s of virtual time.
    pub gbps: f64,
    /// What each rail of PE 0 sent, in Gb/s.
    pub rails: Vec<f64>,
    /// Channels on each rail of PE 0.
    pub channels: Vec<u32>,
}

/// Measurements with no, one and two rails dead.
#[derive(Clone, Debug)]
pub struct Spread {
    /// In the order in which rails died.
    pub rows: Vec<Row>,
}

impl Spread {
    /// What is left of the bandwidth of all rails, in per cent.
    pub fn kept(&self, row: usize) -> f64 {
        100.0 * self.rows[row].gbps / self.rows[0].gbps
    }
}

fn spec() -> RunSpec {
    RunSpec {
        rails: RAILS,
        channels: CHANNELS,
        backups: 2,
        rail_gbps: RAIL_GBPS,
        // More than is measured: the run is cut off.
        traffic: Traffic { messages: 1 << 30, slots: 4, slot_bytes: 8192, puts: 1, ..Traffic::default() },
        ..RunSpec::default()
    }
}

/// Payload that reached the rails of PE 1, packet by packet: whole messages are too coarse for a short span.
fn received_bytes(cluster: &Cluster) -> u64 {
    (0..RAILS).map(|rail| cluster.counters(1, rail).bytes_rx).sum()
}

fn sent_bytes(cluster: &Cluster) -> Vec<u64> {
    (0..RAILS).map(|rail| cluster.counters(0, rail).bytes_tx).collect()
}

/// The rails that the channels of PE 0 are on.
fn channels_by_rail(cluster: &Cluster) -> Vec<u32> {
    let mut rails: Vec<u32> = (0..CHANNELS).map(|channel| channel % RAILS).collect();
    for (_, record) in cluster.records().iter().filter(|(pe, _)| *pe == 0) {
        rails[record.channel as usize] = record.entered.local_rail;
    }
    (0..RAILS).map(|rail| rails.iter().filter(|on| **on == rail).count() as u32).collect()
}

fn measure(cluster: &Cluster, dead: &[u32]) -> Row {
    cluster.sim.run_for(SETTLE_NS);
    let (before, sent) = (received_bytes(cluster), sent_bytes(cluster));
    cluster.sim.run_for(SPAN_NS);
    let gbps = |bytes: u64| bytes as f64 * 8.0 / SPAN_NS as f64;
    Row {
        dead: dead.to_vec(),
        gbps: gbps(received_bytes(cluster) - before),
        rails: sent_bytes(cluster).iter().zip(&sent).map(|(now, before)| gbps(now - before)).collect(),
        channels: channels_by_rail(cluster),
    }
}

/// Runs traffic from PE 0 to PE 1 and takes the rails `dying` of PE 0 away, one after the other.
///
/// # Panics
/// If a promise was broken.
pub fn run(dying: &[u32]) -> Spread {
    let cluster = Cluster::start(&spec());
    let _streams = start_streams(&cluster);
    let mut rows = vec![measure(&cluster, &[])];
    for count in 1..=dying.len() {
        let at_ns = cluster.sim.now() - cluster.began_ns();
        let fault = format!("{at_ns}ns:0.{}:down", dying[count - 1]);
        cluster.inject(&fault.parse().expect("a fault"));
        rows.push(measure(&cluster, &dying[..count]));
    }
    assert_eq!(cluster.oracle.total(), 0, "promises broken\n{}", cluster.oracle.describe());
    Spread { rows }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{RAILS} rails of {RAIL_GBPS} Gb/s, {CHANNELS} channels; virtual time, soft NIC; Gb/s of payload"
        )?;
        write!(f, "{:<10} {:>8} {:>7}", "dead", "gb/s", "kept %")?;
        (0..RAILS).try_for_each(|rail| write!(f, " {:>11}", format!("rail {rail}")))?;
        writeln!(f)?;
        for (number, row) in self.rows.iter().enumerate() {
            let dead: Vec<String> = row.dead.iter().map(u32::to_string).collect();
            let dead = if dead.is_empty() { "none".to_owned() } else { dead.join(", ") };
            write!(f, "{dead:<10} {:>8.2} {:>7.1}", row.gbps, self.kept(number))?;
            let cells = row.rails.iter().zip(&row.channels);
            cells
                .map(|(gbps, channels)| format!("{gbps:.2} ({channels})"))
                .try_for_each(|cell| write!(f, " {cell:>11}"))?;
            writeln!(f)?;
        }
        write!(f, "in brackets: channels on that rail")
    }
}
