//! Wall time of device code on the host: one put, one signal, one completion check. The NIC stands still meanwhile.
//!
//! `cargo bench -p shunt-bench --bench device`. Instructions, which do not move with the machine's load, are counted
//! by the bench `instructions`.

mod rig;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use rig::{BATCH, Rig};
use shunt_device::Ticket;
use std::cell::Cell;

/// Takes the completions of the batch that was posted last.
fn drain(rig: &Rig, last: &Cell<Option<Ticket>>) {
    if let Some(last) = last.take() {
        rig.drain(last);
    }
}

fn post(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("post");
    group.throughput(Throughput::Elements(BATCH));
    for (name, ft) in [("put, fault tolerance on", true), ("put, fault tolerance off", false)] {
        let rig = Rig::new(ft);
        let last = Cell::new(None);
        group.bench_function(name, |bencher| {
            let ready = || drain(&rig, &last);
            bencher.iter_batched(ready, |()| last.set(Some(rig.puts())), BatchSize::PerIteration);
        });
    }
    let (rig, last, next) = (Rig::new(true), Cell::new(None), Cell::new(1));
    group.bench_function("signal", |bencher| {
        let ready = || drain(&rig, &last);
        let signals = |()| {
            last.set(Some(rig.signals(next.get())));
            next.set(next.get() + BATCH);
        };
        bencher.iter_batched(ready, signals, BatchSize::PerIteration);
    });
    group.finish();
}

fn check(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("check");
    group.throughput(Throughput::Elements(BATCH));
    let rig = Rig::new(true);
    group.bench_function("done", |bencher| {
        let completed = || {
            let last = rig.puts();
            rig.complete(last);
            last
        };
        bencher.iter_batched(completed, |last| assert_eq!(rig.checks(last), BATCH), BatchSize::PerIteration);
    });
    let rig = Rig::new(true);
    let last = Cell::new(None);
    group.bench_function("pending", |bencher| {
        let posted = || {
            drain(&rig, &last);
            rig.puts()
        };
        let checks = |posted| {
            assert_eq!(rig.checks(posted), 0);
            last.set(Some(posted));
        };
        bencher.iter_batched(posted, checks, BatchSize::PerIteration);
    });
    group.finish();
}

criterion_group!(benches, post, check);
criterion_main!(benches);
