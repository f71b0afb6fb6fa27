//! Normal-mode MoE: roles of one kernel that meet a fault at the same time.

use super::kit::{Wrongs, judged};
use super::scenario::Scenario;
use crate::cluster::Cluster;
use crate::moe::all;
use crate::moe_normal::{NodeBuffer, cases, patience, spec, start};
use shunt_deep_ep_bridge::normal::layer;
use shunt_deep_ep_bridge::normal::reference::NormalCase;
use shunt_deep_ep_bridge::{Format, MoeError};
use shunt_layout::moe_normal::NormalShape;
use shunt_layout::state::{SwitchKind, SwitchRecord};
use std::rc::Rc;

pub const SCENARIOS: &[Scenario] =
    &[Scenario { name: "moe_two_roles_on_a_dead_rail", seeds: 4, run: two_roles }];

const LAYERS: u64 = 3;
/// Runs of a seed at most: in nearly each two roles meet a fault at once.
const TRIES: u64 = 4;

/// Many more tokens than slots: a rank that sends needs heads all the time, and returns as many.
fn shape() -> NormalShape {
    NormalShape {
        nodes: 2,
        locals: 2,
        local_experts: 2,
        tokens: 40,
        hidden: 512,
        topk: 3,
        channels: 2,
        chunk: 2,
        slots: 4,
        near_slots: 3,
    }
}

/// Two roles of one block have work on two channels of one rail as it dies: the sender with a chunk under way, the
/// forwarder with a head. Each channel is left by itself, and each role goes on as soon as its own can.
fn two_roles(seed: u64) -> Wrongs {
    judged(|| {
        for turn in 0..TRIES {
            let (wrongs, met) = run(seed * TRIES + turn);
            if met || !wrongs.is_empty() {
                return wrongs;
            }
        }
        vec!["no two roles saw a fault at once".into()]
    })
}

/// One run: what is wrong, and whether two roles met a fault at once.
fn run(seed: u64) -> (Wrongs, bool) {
    let mut spec = spec(&shape(), seed);
    // In the middle of the first dispatch, then of what follows; the other rail is there again by then.
    for number in 0..12 {
        let (at, rank, rail) = (40 + seed % 5 * 17 + number * 90, number % 4, (number / 4 + seed) % 2);
        let kind = ["down=300us", "blackhole-tx=300us"][((seed + number) % 2) as usize];
        spec.faults.push(format!("{at}us:{rank}.{rail}:{kind}").parse().expect("a fault"));
    }
    let cluster = Cluster::start(&spec);
    spec.faults.iter().for_each(|fault| cluster.inject(fault));
    let cases = Rc::new(cases(shape(), 3, Format::Bf16, seed, LAYERS));
    let mut patience = patience(&spec);
    patience.timeout_ns = 3_000_000_000;
    let tasks: Vec<_> = (0..shape().ranks())
        .map(|rank| {
            let cases = cases.clone();
            start(&cluster, shape(), rank, patience, move |buffer, _| layers(buffer, &cases))
        })
        .collect();
    let wrongs = all(cluster.sim.finish_all(&tasks));
    let met = met_together(&cluster.records());
    (wrongs, met)
}

fn layers(buffer: &mut NodeBuffer, cases: &[NormalCase]) -> Result<Wrongs, MoeError> {
    let mut wrongs = Vec::new();
    for case in cases {
        wrongs.extend(layer::run(buffer, case)?.0);
    }
    buffer.settle()?;
    Ok(wrongs)
}

/// Whether some rank left one rail on a channel of data and on one of heads, with work on both, at the same time.
fn met_together(records: &[(u32, SwitchRecord)]) -> bool {
    let channels = shape().channels;
    let at_work = |(_, record): &&(u32, SwitchRecord)| {
        record.kind == SwitchKind::Failover as u32 && record.journal_end > record.done_at_close
    };
    let left = |record: &SwitchRecord| (record.peer, record.left.local_rail, record.left.remote_rail);
    let switches: Vec<_> = records.iter().filter(at_work).collect();
    switches.iter().any(|(pe, data)| {
        switches.iter().any(|(other, head)| {
            let roles = data.channel < channels && head.channel >= channels;
            let apart = data.stamps[5] < head.stamps[0] || head.stamps[5] < data.stamps[0];
            pe == other && roles && !apart && left(data) == left(head)
        })
    })
}
