//! Layers of normal mode while rails fail: every kind of fault that leaves a path, at random times of notify, dispatch,
//! forwarding, combine, of settling and of cleaning, from one seed each.
//!
//! `SHUNT_MOE_SEEDS=N` runs so many instead of 50.

use crate::faults::is_programs_own;
use shunt_deep_ep_bridge::normal::layer;
use shunt_deep_ep_bridge::normal::reference::NormalCase;
use shunt_deep_ep_bridge::{Format, MoeError, Runner};
use shunt_layout::moe_normal::NormalShape;
use shunt_layout::state::SwitchKind;
use shunt_soft_nic::Injection;
use shunt_tests::cluster::Cluster;
use shunt_tests::draw::drawn;
use shunt_tests::kernel::Kernel;
use shunt_tests::moe::{all, pause};
use shunt_tests::moe_normal::{NodeBuffer, cases, patience, spec, start};
use shunt_tests::rng::Rng;
use shunt_tests::spec::RunSpec;
use shunt_tests::swarm::or_panic;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Layers of a run.
const LAYERS: u64 = 4;

/// What a seed runs.
struct Drawn {
    spec: RunSpec,
    shape: NormalShape,
    cases: Vec<NormalCase>,
    pauses: [u64; 3],
}

fn draw(seed: u64) -> Drawn {
    let mut rng = Rng::new(seed ^ 0x6e_6f_72);
    let (nodes, locals) = rng.pick(&[(2, 2), (2, 2), (2, 1), (3, 1), (2, 4), (4, 2)]);
    let chunk = rng.between(1, 3) as u32;
    let shape = NormalShape {
        nodes,
        locals,
        local_experts: rng.between(1, 2) as u32,
        tokens: rng.between(2, 12) as u32,
        hidden: 512,
        topk: 3,
        channels: rng.between(1, 3) as u32,
        chunk,
        slots: chunk * rng.between(2, 3) as u32,
        near_slots: rng.between(1, 4) as u32,
    };
    let (format, topk) = (rng.pick(&[Format::Bf16, Format::Fp8]), rng.between(1, 3) as u32);
    let mut spec = spec(&shape, seed);
    // Half of all runs without the responder's truth: the ledger alone says what arrived.
    spec.rmsn_cleared = seed % 2 == 1;
    spec.time_fence = seed % 8 == 5;
    spec.log_depth = rng.pick(&[3, 4, 7]);
    spec.suspect_ns = rng.pick(&[2_000_000, 10_000_000]);
    spec.suspect_floor_ns = spec.suspect_ns;
    spec.mtu = rng.pick(&[4096, 1024, 256]);
    // When faults are drawn: within so many times 6 us.
    spec.traffic.messages = 50;
    let kinds: Vec<_> =
        drawn().into_iter().filter(|info| !info.whole_pe && info.name() != "rkey-revoked").collect();
    // One rail of each PE may fail: between the others there is a path at all times.
    let bad: Vec<u32> = (0..shape.ranks()).map(|_| rng.below(2) as u32).collect();
    for number in 0..rng.between(1, 3) {
        let info = if number == 0 { kinds[seed as usize % kinds.len()] } else { rng.pick(&kinds) };
        let mut faults = spec.draw_fault(&mut rng, info);
        while faults.iter().any(is_programs_own) {
            faults = spec.draw_fault(&mut rng, info);
        }
        for fault in &mut faults {
            fault.rail = Some(bad[fault.pe as usize]);
        }
        spec.faults.extend(faults);
    }
    let pauses = std::array::from_fn(|_| rng.pick(&[0, 0, 5_000, 40_000]));
    Drawn { spec, shape, cases: cases(shape, topk, format, seed, LAYERS), pauses }
}

fn layers(
    buffer: &mut NodeBuffer,
    kernel: &Kernel,
    cases: &[NormalCase],
    pauses: [u64; 3],
) -> Result<Vec<String>, MoeError> {
    let mut wrongs = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        let (wrong, received) = layer::dispatch(buffer, case)?;
        wrongs.extend(wrong);
        wrongs.extend(layer::check_received(case, buffer.runner().rank(), &received, true));
        pause(kernel, pauses[0]);
        wrongs.extend(layer::answer(buffer, case, &received, true)?);
        pause(kernel, pauses[1]);
        if number % 2 == 1 {
            let again = NormalCase { case: case.case.again(number as u64), ..case.clone() };
            wrongs.extend(layer::run_cached(buffer, &again, &received.handle)?);
        }
        match number % 3 {
            1 => buffer.clean()?,
            2 => buffer.settle()?,
            _ => {}
        }
        pause(kernel, pauses[2]);
    }
    buffer.settle()?;
    Ok(wrongs)
}

/// What came of a run.
#[derive(Default)]
struct Ran {
    wrongs: Vec<String>,
    failovers: u64,
    by_ledger: u64,
    hits: Vec<(Injection, u64)>,
}

fn ran(drawn: Drawn) -> Ran {
    let Drawn { spec, shape, cases, pauses } = drawn;
    let cluster = Cluster::start(&spec);
    spec.faults.iter().for_each(|fault| cluster.inject(fault));
    let cases = Rc::new(cases);
    let tasks: Vec<_> = (0..shape.ranks())
        .map(|rank| {
            let cases = cases.clone();
            start(&cluster, shape, rank, patience(&spec), move |buffer, kernel| {
                layers(buffer, kernel, &cases, pauses)
            })
        })
        .collect();
    let wrongs = all(cluster.sim.finish_all(&tasks));
    let records = cluster.records();
    let failovers = records.iter().filter(|(_, record)| record.kind == SwitchKind::Failover as u32);
    Ran {
        wrongs,
        failovers: failovers.clone().count() as u64,
        by_ledger: failovers.filter(|_| spec.rmsn_cleared).count() as u64,
        hits: cluster.faults(),
    }
}

/// No signal of normal mode is ever in doubt: all are absolute.
#[test]
fn layers_between_nodes_are_right_while_rails_fail() {
    let said = std::env::var("SHUNT_MOE_SEEDS");
    let seeds: u64 = said.map_or(50, |text| text.parse().expect("SHUNT_MOE_SEEDS: a number"));
    let (mut bad, mut failovers, mut by_ledger) = (Vec::new(), 0, 0);
    let mut hits: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in 0..seeds {
        let drawn = draw(seed);
        let text = format!("{:?}", drawn.spec.faults.iter().map(ToString::to_string).collect::<Vec<_>>());
        match or_panic(|| ran(drawn)) {
            Ok(ran) => {
                failovers += ran.failovers;
                by_ledger += ran.by_ledger;
                for (fault, count) in &ran.hits {
                    *hits.entry(fault.fault.name()).or_default() += count;
                }
                if !ran.wrongs.is_empty() {
                    bad.push(format!("seed {seed}, faults {text}:\n  {}", ran.wrongs.join("\n  ")));
                }
            }
            Err(said) => bad.push(format!("seed {seed}, faults {text}: {said}")),
        }
    }
    println!(
        "{seeds} seeds: {failovers} failovers, {by_ledger} of them without the responder's truth; hits {hits:?}"
    );
    assert!(bad.is_empty(), "{} of {seeds}:\n{}", bad.len(), bad.join("\n"));
    // Of faults that strike a path at rest nobody fails over; enough others are drawn.
    assert!(failovers * 4 > seeds * 3 && by_ledger > 0, "{failovers} failovers, {by_ledger} by the ledger");
}
