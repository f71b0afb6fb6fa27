//! What an exact fetching atomic costs beside one that the NIC answers: virtual time with the simulator's latencies
//! (link 2 us, agent's step 2 us), one caller on one channel, one at a time.
//!
//! `cargo run --release -p shunt-tests --example fetch_cost`

use std::cell::Cell;
use std::rc::Rc;

use shunt_device::{Amo, Deadline, HeapOffset, Solo};
use shunt_tests::cluster::Cluster;
use shunt_tests::spec::RunSpec;

const COUNT: u64 = 1_000;

/// Nanoseconds of one, with an agent that sleeps for `idle_ns` while there is nothing to do.
fn cost(exact: bool, idle_ns: u64, pause_ns: u64) -> u64 {
    let spec = RunSpec { exact: 1, idle_ns, ..RunSpec::default() };
    let cluster = Cluster::start(&spec);
    let took = Rc::new(Cell::new(0));
    let told = took.clone();
    let task = cluster.spawn("fetch", 0, move |kernel| {
        let device = kernel.device();
        let channel = device.channel(1, 0);
        for number in 0..COUNT {
            kernel.world.sleep(pause_ns);
            let start = kernel.world.now();
            let deadline = Deadline::after(start, 1_000_000_000);
            let word = HeapOffset(64);
            let old = if exact {
                channel.fetch_exact(Solo, word, Amo::Add64(1), deadline)
            } else {
                let result = HeapOffset(128);
                let ticket = channel.amo_fetch_nbi(Solo, word, Amo::Add64(1), result);
                ticket
                    .and_then(|ticket| channel.wait(Solo, ticket, deadline))
                    .map(|()| device.fetched(Amo::Add64(1), result))
            };
            assert_eq!(old.map_err(|fault| fault.kind), Ok(number));
            if number > 0 {
                told.set(told.get() + kernel.world.now() - start);
            }
        }
    });
    cluster.sim.finish_all(&[task]);
    took.get() / (COUNT - 1)
}

fn main() {
    println!("{:44} {:>10} {:>12}", "one fetching add after the other", "us each", "a second");
    let rows = [
        ("the NIC answers", false, 5_000, 0),
        ("the owner, in a loop", true, 5_000, 0),
        ("the owner, agent asleep (naps of 200 us)", true, 200_000, 1_000_000),
    ];
    for (what, exact, idle_ns, pause_ns) in rows {
        let ns = cost(exact, idle_ns, pause_ns);
        println!("{what:44} {:>10.1} {:>12.0}", ns as f64 / 1e3, 1e9 / ns as f64);
    }
}
