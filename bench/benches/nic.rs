//! Wall time of the soft NIC itself, on one core: producer, both NICs and consumer in one thread, in virtual time.
//!
//! `cargo bench -p shunt-bench --bench nic`

#[path = "rig/traffic.rs"]
mod traffic;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use shunt_layout::mlx5::wqe::inline8;
use traffic::{Rig, drive, pair};

fn small(criterion: &mut Criterion) {
    const MESSAGES: u64 = 8192;
    let mut group = criterion.benchmark_group("WQE/s");
    group.throughput(Throughput::Elements(MESSAGES));
    let (mut rig, mut end) = pair();
    group.bench_function("WRITE of 8 B, inline", |bencher| {
        let body = |rig: &Rig, n: u64| [rig.remote(1, (n as usize & 0xff) * 8), inline8(n)];
        bencher.iter(|| drive(&mut rig, &mut end, MESSAGES, body));
    });
    group.bench_function("WRITE of 8 B, from memory", |bencher| {
        let body = |rig: &Rig, n: u64| {
            let at = (n as usize & 0xff) * 8;
            [rig.remote(1, at), rig.local(0, at, 8)]
        };
        bencher.iter(|| drive(&mut rig, &mut end, MESSAGES, body));
    });
    group.finish();
}

fn large(criterion: &mut Criterion) {
    const MESSAGES: u64 = 64;
    let mut group = criterion.benchmark_group("bytes/s");
    group.sample_size(20);
    for (name, bytes) in [("WRITE of 4 KiB", 4096u32), ("WRITE of 1 MiB", 1 << 20)] {
        group.throughput(Throughput::Bytes(MESSAGES * u64::from(bytes)));
        let (mut rig, mut end) = pair();
        group.bench_function(name, |bencher| {
            let body = |rig: &Rig, _| [rig.remote(1, 0), rig.local(0, 0, bytes)];
            bencher.iter(|| drive(&mut rig, &mut end, MESSAGES, body));
        });
    }
    group.finish();
}

criterion_group!(benches, small, large);
criterion_main!(benches);
