//! Real time: the engine's thread serves doorbells, commands and timers, and lets others have the fabric.

use crate::rig;
use crate::rig::{Options, Rig};
use shunt_layout::mlx5::prm::cmd::Opcode as Cmd;
use shunt_layout::mlx5::wqe::{Opcode, inline8};
use shunt_soft_nic::{Clock, Engine, Fabric, FabricConfig};
use std::thread;
use std::time::{Duration, Instant};

/// Long enough for any machine; a test that waits so long fails.
const PATIENCE: Duration = Duration::from_secs(60);

fn wait(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "{what} did not happen");
        thread::yield_now();
    }
}

#[test]
fn doorbells_with_and_without_a_kick() {
    ring_and_wait(0);
}

/// So many that they are not looked at in every round.
#[test]
fn doorbells_among_many_pages() {
    ring_and_wait(600);
}

fn ring_and_wait(further_pages: u32) {
    let mut rig = Rig::new(1);
    let (mut a, _b) = rig.pair(0, 1, Options::default());
    for _ in 0..further_pages {
        rig.fabric.nic(rig.hosts[0].nic).alloc_uar();
    }
    let fabric = std::mem::replace(&mut rig.fabric, Fabric::new(FabricConfig::default()));
    let engine = Engine::spawn(fabric, Clock::new());
    for n in 1..200u64 {
        a.post(Opcode::RdmaWrite, &[rig.remote(1, 0), inline8(n)]);
        rig.ring(&a);
        if n % 2 == 0 {
            engine.kick();
        }
        if n % 50 == 0 {
            thread::sleep(Duration::from_millis(2)); // Let it park.
        }
        wait("a completion", || a.poll().is_some());
        assert_eq!(rig.hosts[1].heap.get64(0), n);
    }
    drop(engine);
}

#[test]
fn commands_and_retry_timers_without_a_kick() {
    let mut rig = Rig::new(1);
    let (mut a, _b) = rig.pair(0, 1, Options { ack_timeout: 5, retry: 2, ..Options::default() });
    rig.inject(1, "blackhole-rx");
    let fabric = std::mem::replace(&mut rig.fabric, Fabric::new(FabricConfig::default()));
    let clock = Clock::new();
    let engine = Engine::spawn(fabric, clock);
    let (shared, nic) = (engine.fabric(), rig.hosts[0].nic);
    let id =
        shared.with(|fabric| fabric.nic(nic).command_submit(clock.now_ns(), &rig::header(Cmd::Nop, 0), 16));
    wait("a command", || shared.with(|fabric| fabric.nic(nic).command_poll(clock.now_ns(), id)).is_some());
    a.post(Opcode::RdmaWrite, &[rig.remote(1, 0), inline8(1)]);
    rig.ring(&a);
    let mut syndrome = 0;
    wait("retries to end", || a.poll().map(|done| syndrome = done.syndrome).is_some());
    assert_eq!(syndrome, 0x15);
}

#[test]
fn a_busy_engine_does_not_starve_others() {
    let mut rig = Rig::new(1);
    let (mut a, _b) = rig.pair(0, 1, Options::default());
    let fabric = std::mem::replace(&mut rig.fabric, Fabric::new(FabricConfig::default()));
    let engine = Engine::spawn(fabric, Clock::new());
    let shared = engine.fabric();
    for _ in 0..4 {
        a.post(Opcode::RdmaWrite, &[rig.remote(1, 0), rig.local(0, 0, rig::HEAP as u32)]);
    }
    rig.ring(&a);
    engine.kick();
    // The writes take the engine some milliseconds; all the while others get in.
    let mut turns = 0;
    wait("the writes", || {
        turns += shared.with(|fabric| fabric.faults().len() + 1);
        a.poll().is_some() && a.posted() == 4
    });
    assert!(turns > 0);
    wait("the rest", || {
        while a.poll().is_some() {}
        shared.with(|fabric| fabric.nic(rig.hosts[0].nic).counters().cqes) == 4
    });
}
