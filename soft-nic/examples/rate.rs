//! How fast the NIC itself is, on one core: `cargo run --release -p shunt-soft-nic --example rate [MESSAGES]`.
//!
//! With fewer messages than the default 1048576 it is short enough to count instructions under callgrind. The
//! loop below is producer, both NICs and consumer in one thread, stepped without a pause in virtual time; what
//! is printed is wall time.
#[allow(dead_code)] // the tests use the rest
#[path = "../tests/rig/mod.rs"]
mod rig;

use rig::{End, Options, Rig};
use shunt_layout::mlx5::wqe::{Opcode, Segment, inline8};
use std::time::Instant;

/// Posts `total` messages, 32 to a doorbell, and takes their completions; nanoseconds it took.
fn drive(rig: &mut Rig, a: &mut End, total: u64, body: impl Fn(&Rig, u64) -> [Segment; 2]) -> f64 {
    let start = Instant::now();
    let (mut posted, mut done) = (0, 0);
    while done < total {
        while posted < total && posted - done < 900 {
            for _ in 0..32 {
                let segments = body(rig, posted);
                a.post(Opcode::RdmaWrite, &segments);
                posted += 1;
            }
            rig.ring(a);
        }
        rig.run_for(2_500);
        while let Some(one) = a.poll() {
            assert_eq!(one.syndrome, 0);
            done += 1;
        }
    }
    start.elapsed().as_nanos() as f64
}

fn main() {
    let options = Options { log_depth: 10, log_cq: 10, ack_timeout: 18, ..Options::default() };
    let mut rig = Rig::new(1);
    let (mut a, _b) = rig.pair(0, 1, options);
    // Rounded down to whole doorbells.
    let total = std::env::args().nth(1).map_or(1 << 20, |text| text.parse::<u64>().expect("a number")) & !31;
    let took = drive(&mut rig, &mut a, total, |rig, n| [rig.remote(1, (n as usize & 0xff) * 8), inline8(n)]);
    println!("8 B inline: {:.2} M WQE/s", total as f64 * 1e3 / took);
    let took = drive(&mut rig, &mut a, total, |rig, n| {
        [rig.remote(1, (n as usize & 0xff) * 8), rig.local(0, (n as usize & 0xff) * 8, 8)]
    });
    println!("8 B from memory: {:.2} M WQE/s", total as f64 * 1e3 / took);
    for bytes in [4096u32, 65_536, 1 << 20] {
        let total = ((total << 12) / bytes as u64).max(32) & !31;
        let took = drive(&mut rig, &mut a, total, |rig, _| [rig.remote(1, 0), rig.local(0, 0, bytes)]);
        println!("{bytes} B: {:.2} GB/s", (total * bytes as u64) as f64 / took);
    }
}
