//! Instructions, counted by callgrind: the same figure on a loaded machine. Device code by batches of 32 operations,
//! the soft NIC (both ends and the wire) by 1024 writes of 8 bytes or one of 1 MiB, one look at a status page.
//!
//! Needs valgrind and the runner of the same version: `cargo install gungraun-runner --version VERSION`, with the
//! version of `gungraun` in Cargo.lock; then `cargo bench -p shunt-bench --bench instructions`.

#![allow(missing_docs)] // what the macros make

#[path = "rig/page.rs"]
mod page;
mod rig;
#[path = "rig/traffic.rs"]
mod traffic;

use gungraun::{library_benchmark, library_benchmark_group, main};
use rig::Rig;
use shunt_device::Ticket;
use shunt_layout::mlx5::wqe::inline8;
use std::hint::black_box;

/// One batch has gone before, so that what is counted is no first time.
fn warm(ft: bool) -> Rig {
    let rig = Rig::new(ft);
    rig.drain(rig.puts());
    rig.drain(rig.signals(1));
    rig
}

fn posted() -> (Rig, Ticket) {
    let rig = warm(true);
    let last = rig.puts();
    (rig, last)
}

fn completed() -> (Rig, Ticket) {
    let (rig, last) = posted();
    rig.complete(last);
    (rig, last)
}

#[library_benchmark(setup = warm)]
#[bench::fault_tolerance_on(true)]
#[bench::fault_tolerance_off(false)]
fn puts(rig: Rig) -> (Ticket, Rig) {
    (black_box(&rig).puts(), rig)
}

#[library_benchmark(setup = warm)]
#[bench::fault_tolerance_on(true)]
fn signals(rig: Rig) -> (Ticket, Rig) {
    (black_box(&rig).signals(100), rig)
}

#[library_benchmark]
#[bench::done(completed())]
#[bench::pending(posted())]
fn checks((rig, last): (Rig, Ticket)) -> (u64, Rig) {
    (black_box(&rig).checks(last), rig)
}

fn warm_nics() -> (traffic::Rig, traffic::End) {
    let (mut nics, mut end) = traffic::pair();
    traffic::drive(&mut nics, &mut end, 1024, |rig, _| [rig.remote(1, 0), rig.local(0, 0, 4096)]);
    (nics, end)
}

type Nics = (traffic::Rig, traffic::End);

#[library_benchmark(setup = warm_nics)]
fn writes_of_8_bytes((mut nics, mut end): Nics) -> Nics {
    traffic::drive(&mut nics, &mut end, 1024, |rig, n| [rig.remote(1, (n as usize & 0xff) * 8), inline8(n)]);
    (nics, end)
}

#[library_benchmark(setup = warm_nics)]
fn write_of_1_mib((mut nics, mut end): Nics) -> Nics {
    traffic::drive(&mut nics, &mut end, 1, |rig, _| [rig.remote(1, 0), rig.local(0, 0, 1 << 20)]);
    (nics, end)
}

fn looked_at() -> page::Page {
    let page = page::Page::new();
    let _ = black_box(page.reader.summary());
    page
}

#[library_benchmark(setup = looked_at)]
fn status_summary(page: page::Page) -> page::Page {
    let _ = black_box(black_box(&page).reader.summary());
    page
}

#[library_benchmark(setup = looked_at)]
fn status_whole_page(page: page::Page) -> page::Page {
    let _ = black_box(black_box(&page).reader.page());
    page
}

library_benchmark_group!(name = device; benchmarks = puts, signals, checks);
library_benchmark_group!(name = nic; benchmarks = writes_of_8_bytes, write_of_1_mib);
library_benchmark_group!(name = status; benchmarks = status_summary, status_whole_page);
main!(library_benchmark_groups = device, nic, status);
