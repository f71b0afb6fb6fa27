//! The facade on soft NICs, in one process.

use shunt::device::{HeapOffset, Put, Signal, Solo};
use shunt::host::agent::words::Place;
use shunt::host::silence::Silence;
use shunt::soft_nic::{FaultKind, RailAt};
use shunt::{
    AgentThread, Members, Nics, NoAgent, Runtime, Settings, SoftNics, Turn, soft_give_up_ns, start_together,
};
use std::sync::Arc;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);
/// Silence of a path says nothing where tests share few cores.
const SUSPECT_NS: u64 = 50_000_000;
const DATA: HeapOffset = HeapOffset(0);
const FLAG: HeapOffset = HeapOffset(8192);

fn two_pes() -> (Arc<SoftNics>, Vec<Runtime>) {
    two_pes_with(None)
}

fn two_pes_with(kernels_from: Option<u32>) -> (Arc<SoftNics>, Vec<Runtime>) {
    let nics = Arc::new(SoftNics::new(0..2, 2));
    let settings = Settings { suspect_ns: Some(SUSPECT_NS), ..Settings::default() };
    let builder = |member| {
        let builder = Runtime::builder(nics.clone(), member).settings(settings).fault_tolerance(true);
        builder.adjust(move |config| config.kernels_from = kernels_from)
    };
    let members = Members::in_process(2, &nics.clock()).members;
    let pes = start_together(members.into_iter().map(builder)).unwrap();
    assert!(pes.iter().all(|pe| pe.wait_armed(PATIENCE)), "backup paths were not made in time");
    (nics, pes)
}

/// Puts 4 KiB and a flag, and looks at what arrived.
fn send(pes: &[Runtime], number: u8) {
    post(pes, number);
    arrived(pes, number);
    pes[0].channel(1, 0).quiet(Solo, pes[0].deadline(PATIENCE)).unwrap();
}

fn post(pes: &[Runtime], number: u8) {
    let data = [number; 4096];
    pes[0].write(DATA, &data).unwrap();
    let put = Put { dst: DATA, src: DATA, bytes: data.len() as u64 };
    pes[0].channel(1, 0).put_signal_nbi(Solo, put, FLAG, Signal::Monotone(number.into())).unwrap();
}

fn arrived(pes: &[Runtime], number: u8) {
    pes[1].device().wait_until_ge(Solo, FLAG, number.into(), pes[1].deadline(PATIENCE)).unwrap();
    let mut arrived = [0; 4096];
    pes[1].read(DATA, &mut arrived).unwrap();
    assert_eq!(arrived, [number; 4096]);
}

/// The same with queues in a region of their own, which the agents reach by copies.
#[test]
fn puts_arrive_wherever_their_queues_lie() {
    let (nics, pes) = two_pes_with(Some(0));
    for pe in &pes {
        let there = pe.pe().device_control().expect("a region of their own");
        let row = pe.path(Place { peer: 1 - pe.rank(), channel: 0, slot: 0 });
        assert!((there.address..there.address + there.bytes).contains(&row.send_queue), "{row:?}");
    }
    send(&pes, 1);
    assert!(pes[0].posted(1) > 0, "entries that were posted are counted");
    nics.fail(RailAt { pe: 0, rail: 0 }, FaultKind::Down { for_ns: None });
    for number in 2..10 {
        post(&pes, number);
        // Only who waits at the sender carries its switch on: no agent reaches these channels.
        pes[0].channel(1, 0).quiet(Solo, pes[0].deadline(PATIENCE)).unwrap();
        arrived(&pes, number);
    }
    assert!(pes[0].switches().0 >= 1 && nics.hits()[0] >= 1, "no channel switched");
    pes.iter().for_each(Runtime::ask_to_stop);
}

#[test]
fn puts_arrive_over_what_is_left_of_two_ports() {
    let (nics, pes) = two_pes();
    assert_eq!((pes[0].rank(), pes[1].rank(), pes[0].pes()), (0, 1, 2));
    send(&pes, 1);
    nics.fail(RailAt { pe: 0, rail: 0 }, FaultKind::Down { for_ns: None });
    for number in 2..10 {
        send(&pes, number);
    }
    assert!(pes[0].switches().0 >= 1, "no channel switched");
    assert!(nics.hits()[0] >= 1, "the fault hit nothing");
    pes.iter().for_each(Runtime::ask_to_stop);
}

/// A program that says nothing of failover has it. Without a backup nobody is told to be armed: not with failover off,
/// not on one rail.
#[test]
fn failover_is_the_default_and_nobody_is_armed_without_a_backup() {
    for (rails, off, armed) in [(2, false, true), (2, true, false), (1, false, false)] {
        let nics = Arc::new(SoftNics::new(0..2, rails));
        let members = Members::in_process(2, &nics.clock()).members;
        let builder = |member| {
            let builder = Runtime::builder(nics.clone(), member);
            if off { builder.fault_tolerance(false) } else { builder }
        };
        let pes = start_together(members.into_iter().map(builder)).unwrap();
        let patience = if armed { PATIENCE } else { Duration::from_millis(100) };
        assert!(pes.iter().all(|pe| pe.wait_armed(patience) == armed), "{rails} rails, off: {off}");
        pes.iter().for_each(Runtime::ask_to_stop);
    }
}

#[test]
fn what_lies_outside_the_heap_is_refused() {
    let (_nics, pes) = two_pes();
    let bytes = pes[0].pe().heap().bytes;
    for at in [bytes - 7, bytes, bytes + 1, u64::MAX - 3, u64::MAX] {
        assert!(pes[0].write(HeapOffset(at), &[0; 8]).is_err(), "{at}");
        assert!(pes[0].read(HeapOffset(at), &mut [0; 8]).is_err(), "{at}");
    }
    pes[0].write(HeapOffset(bytes - 8), &[1; 8]).unwrap();
    pes[0].write(HeapOffset(bytes), &[]).unwrap();
    pes.iter().for_each(Runtime::ask_to_stop);
}

#[test]
fn a_pe_has_one_agent() {
    let (_nics, pes) = two_pes();
    let second = AgentThread::spawn(pes[0].pe().clone(), Vec::new(), || Turn::Step);
    assert!(matches!(second, Err(NoAgent::Taken)));
    pes.iter().for_each(Runtime::ask_to_stop);
}

#[test]
fn what_nobody_set_is_as_the_nics_are() {
    let silence_of = |name: &'static str, value: &'static str, usual| {
        let lookup = move |asked: &str| (asked == name).then(|| value.to_owned());
        let policy = Settings::from_lookup(&lookup).unwrap().pe_config(1 << 20, usual).policy;
        (policy.suspect_ns, policy.suspect_floor_ns)
    };
    let of = |silence: Silence| (silence.suspect_ns, silence.floor_ns);
    assert_eq!(silence_of("", "", Silence::HARDWARE), of(Silence::HARDWARE));
    assert_eq!(silence_of("", "", Silence::SOFT), of(Silence::SOFT));
    assert_eq!(silence_of("SHUNT_SUSPECT", "70ms", Silence::HARDWARE), (70_000_000, 35_000_000));
    // A suspect time below the usual floor takes the floor with it.
    assert_eq!(silence_of("SHUNT_SUSPECT", "5ms", Silence::HARDWARE), (5_000_000, 5_000_000));
    assert_eq!(silence_of("SHUNT_SUSPECT_FLOOR", "1ms", Silence::SOFT), (10_000_000, 1_000_000));
}

#[test]
fn a_peer_on_soft_nics_is_given_up_when_somebody_said_or_late() {
    let asked = |value: Option<&str>| {
        let lookup = |name: &str| value.filter(|_| name == "SHUNT_GIVE_UP").map(str::to_owned);
        Settings::from_lookup(&lookup).unwrap()
    };
    let of = |settings: Settings| soft_give_up_ns(settings.give_up_ns, settings.env.give_up_ns);
    assert_eq!(asked(None).env.give_up_ns, 1_000_000_000);
    assert_eq!([asked(None), asked(Some("2s"))].map(of), [10_000_000_000, 2_000_000_000]);
    assert_eq!(soft_give_up_ns(None, 60_000_000_000), 60_000_000_000);
}

/// A row outside the table would be read, and what lies there taken for a channel.
#[test]
#[should_panic(expected = "channel: expected a peer below 2, got 7")]
fn a_peer_that_is_not_there_is_named() {
    let (_nics, pes) = two_pes();
    pes[0].channel(7, 0);
}
