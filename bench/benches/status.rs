//! Wall time of a look at a status page: what a framework pays between two steps. `cargo bench -p shunt-bench --bench
//! status`. Instructions are counted by the bench `instructions`.

#[path = "rig/page.rs"]
mod page;

use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;

fn read(criterion: &mut Criterion) {
    let page = page::Page::new();
    let mut group = criterion.benchmark_group("status page");
    group.bench_function("summary", |bencher| {
        bencher.iter(|| black_box(&page.reader).summary().expect("no writer is running"));
    });
    group.bench_function("whole page", |bencher| {
        bencher.iter(|| black_box(&page.reader).page().expect("no writer is running"));
    });
    group.finish();
}

criterion_group!(benches, read);
criterion_main!(benches);
