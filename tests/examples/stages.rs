//! How long a failover takes, stage by stage, in virtual time, and what its code costs: `cargo run --profile test -p
//! shunt-tests --example stages -- 1000`. One port of the sender goes down under steady traffic both ways, at an
//! instant that the seed decides.
//!
//! Latencies stated: link 2 us, firmware command 100 us, port event 50 us, agents' own channel 30 us; agents and
//! kernels poll at intervals of the simulator's, which count as well. CPU time is that of the sender's PE: two
//! kernels, its agent, the workers of its NICs, waiting included.

use shunt_layout::state::SwitchKind;
use shunt_tests::cluster::Cluster;
use shunt_tests::run::{finish, start_streams};
use shunt_tests::spec::RunSpec;
use shunt_tests::traffic::Traffic;

const STAGES: [&str; 7] = ["detect", "close", "fence", "cut", "replay", "open", "total"];
/// Stages that device code goes through in one turn cannot be told apart by the clock.
const CPU: [&str; 5] = ["detect (waits)", "notice, close", "fence (waits)", "cut to open", "total"];

fn main() {
    let runs: u64 = std::env::args().nth(1).map_or(1000, |text| text.parse().expect("a number of runs"));
    let mut spans: [Vec<u64>; STAGES.len()] = Default::default();
    let mut cpu: [Vec<u64>; CPU.len()] = Default::default();
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
        let cluster = Cluster::start(&spec);
        spec.faults.iter().for_each(|fault| cluster.inject(fault));
        cluster.sim.count_cpu("pe0.");
        let streams = start_streams(&cluster);
        let outcome = finish(&cluster, streams);
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
        let turns = cluster.sim.cpu_turns();
        let within = |from: u64, to: u64| {
            turns.iter().filter(|(at, _)| (from..to).contains(at)).map(|(_, spent)| spent).sum::<u64>()
        };
        let borders = [down_ns, stamps[1], stamps[1] + 1, stamps[2].max(stamps[1] + 1), stamps[5] + 1];
        for stage in 0..4 {
            cpu[stage].push(within(borders[stage], borders[stage + 1]));
        }
        cpu[4].push(within(borders[0], borders[4]));
    }
    println!("{runs} port-downs, virtual time, microseconds");
    head();
    STAGES.iter().zip(&mut spans).for_each(|(name, span)| line(name, span));
    line("gap", &mut gaps);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    println!("\nCPU time of the sender's PE by stage, microseconds, on {cores} cores, one thread");
    head();
    CPU.iter().zip(&mut cpu).for_each(|(name, span)| line(name, span));
}

fn head() {
    println!("| {:14} | {:>9} | {:>9} | {:>9} |", "stage", "p50", "p99", "max");
    println!("| --- | --- | --- | --- |");
}

fn line(name: &str, span: &mut [u64]) {
    span.sort_unstable();
    let at = |share: f64| span[((span.len() - 1) as f64 * share) as usize] as f64 / 1000.0;
    println!("| {name:14} | {:9.1} | {:9.1} | {:9.1} |", at(0.5), at(0.99), at(1.0));
}
