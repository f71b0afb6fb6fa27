//! What a fault adds to the layer that meets it, in virtual time:
//! `cargo run --release -p shunt-deep-ep-bridge --example fault_time -- 200`. Each run is a simulated cluster of two
//! ranks, once as it is and once with one fault at a time drawn within its layers; what the slowest layer takes longer
//! is what the fault added.

use shunt_deep_ep_bridge::Format;
use shunt_deep_ep_bridge::layer::{self, Manner};
use shunt_device::platform::host::World;
use shunt_layout::moe::Shape;
use shunt_tests::cluster::Cluster;
use shunt_tests::moe::{cases, patience, spec, start};
use shunt_tests::rng::Rng;
use std::rc::Rc;

const LAYERS: u64 = 6;

/// Virtual nanoseconds of each layer at rank 0, and how often the fault struck.
fn layers(seed: u64, fault: Option<&str>) -> (Vec<u64>, u64) {
    let shape = Shape::new(2, 4, 8, 2048).expect("sizes that can be");
    let mut spec = spec(&shape, seed);
    spec.firmware_ns = 100_000;
    spec.faults = fault.iter().map(|fault| fault.parse().expect("a fault")).collect();
    let cluster = Cluster::start(&spec);
    spec.faults.iter().for_each(|fault| cluster.inject(fault));
    let cases = Rc::new(cases(shape, 2, Format::Fp8, seed, LAYERS));
    let tasks: Vec<_> = (0..2)
        .map(|rank| {
            let cases = cases.clone();
            start(&cluster, shape, rank, patience(&spec), move |buffer, kernel| {
                let mut spans = Vec::new();
                for case in cases.iter() {
                    let begin_ns = kernel.world.now_ns();
                    let wrongs = layer::run(buffer, case, Manner::default()).expect("a path is left");
                    assert!(wrongs.is_empty(), "{wrongs:?}");
                    spans.push(kernel.world.now_ns() - begin_ns);
                }
                spans
            })
        })
        .collect();
    let spans = cluster.sim.finish_all(&tasks).swap_remove(0);
    (spans, cluster.faults().iter().map(|(_, hits)| *hits).sum())
}

fn percentile(sorted: &[u64], part: f64) -> f64 {
    let at = ((sorted.len() as f64 * part).ceil() as usize).clamp(1, sorted.len()) - 1;
    sorted[at] as f64 / 1e6
}

fn main() {
    let runs: u64 = std::env::args().nth(1).map_or(200, |text| text.parse().expect("a number of runs"));
    println!("virtual time, ms; a layer without a fault, then what one adds");
    for kind in ["down", "blackhole-tx", "drop-acks"] {
        let (mut plain, mut added, mut idle) = (Vec::new(), Vec::new(), 0);
        let mut seed = 0;
        while added.len() < runs as usize && seed < 4 * runs {
            let (without, _) = layers(seed, None);
            let mut rng = Rng::new(seed ^ 0x66_61_75_6c);
            let at_us = rng.below(without.iter().sum::<u64>() / 1000);
            let (with, hits) = layers(seed, Some(&format!("{at_us}us:{}.0:{kind}", seed % 2)));
            plain.extend(&without);
            let slowest = |spans: &[u64]| spans.iter().copied().max().unwrap_or(0);
            if hits > 0 {
                added.push(slowest(&with).saturating_sub(slowest(&without)))
            } else {
                idle += 1
            }
            seed += 1;
        }
        plain.sort_unstable();
        added.sort_unstable();
        println!(
            "{kind:14} layer p50 {:.3}  added p50 {:.3}  p99 {:.3}  longest {:.3}  ({} faults, {idle} struck nothing)",
            percentile(&plain, 0.5),
            percentile(&added, 0.5),
            percentile(&added, 0.99),
            percentile(&added, 1.0),
            added.len()
        );
    }
}
