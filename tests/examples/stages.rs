//! How long a failover takes, stage by stage, in virtual time: `cargo run --release -p shunt-tests --example stages
//! -- 1000`. One port of the sender goes down under steady traffic both ways, at an instant that the seed decides.
//!
//! Latencies stated: link 2 us, firmware command 100 us, port event 50 us, agents' own channel 30 us; agents and
//! kernels poll at intervals of the simulator's, which count as well.

use shunt_layout::state::SwitchKind;
use shunt_tests::run::run;
use shunt_tests::spec::RunSpec;
use shunt_tests::workload::Traffic;

const STAGES: [&str; 7] = ["detect", "close", "fence", "cut", "replay", "open", "total"];

fn main() {
    let runs: u64 = std::env::args().nth(1).map_or(1000, |text| text.parse().expect("a number of runs"));
    let mut spans: [Vec<u64>; STAGES.len()] = Default::default();
    let mut gaps = Vec::new();
    for seed in 0..runs {
        let at_ns = 3_000_000 + seed * 7_919 % 1_000_000;
        let spec = RunSpec {
            seed,
            both_ways: true,
            traffic: Traffic { messages: 150, pace_ns: 50_000, ..Traffic::default() },
            faults: vec![format!("{at_ns}ns:0.0:down").parse().expect("a fault")],
            ..RunSpec::default()
        };
        let outcome = run(&spec);
        outcome.assert_clean();
        outcome.assert_exercised();
        gaps.push(outcome.max_gap_ns());
        let down_ns = outcome.began_ns + at_ns;
        let sender = outcome.records.iter().find(|(pe, r)| *pe == 0 && r.kind == SwitchKind::Failover as u32);
        let stamps = sender.expect("the sender fails over").1.stamps;
        spans[0].push(stamps[0].saturating_sub(down_ns));
        for stage in 1..stamps.len() {
            spans[stage].push(stamps[stage] - stamps[stage - 1]);
        }
        spans[6].push(stamps[5].saturating_sub(down_ns));
    }
    println!("{runs} port-downs, virtual time, microseconds");
    println!("{:8} {:>9} {:>9} {:>9}", "stage", "p50", "p99", "max");
    for (name, span) in STAGES.iter().zip(&mut spans) {
        line(name, span);
    }
    line("gap", &mut gaps);
}

fn line(name: &str, span: &mut [u64]) {
    span.sort_unstable();
    let at = |share: f64| span[((span.len() - 1) as f64 * share) as usize] as f64 / 1000.0;
    println!("{name:8} {:9.1} {:9.1} {:9.1}", at(0.5), at(0.99), at(1.0));
}
