//! Invariant 8: with fault tolerance on, a put, a kind 1 signal and a quiet touch no more memory than without it.

use shunt_tests::cost::{CALLS, costs};
use shunt_tests::scenarios::hold;

/// As a scenario, too: what a put reads more with fault tolerance on must be noticed (`cargo xtask mutate`).
#[test]
fn scenario_23_nothing_is_paid_while_healthy() {
    hold("nothing_is_paid_while_healthy");
}

#[test]
fn scenario_23_a_long_soak() {
    hold("a_long_soak_costs_the_same");
}

#[test]
fn fault_tolerance_costs_no_memory_access() {
    let (on, off) = (costs(false), costs(true));
    for ((name, on), off) in CALLS.iter().zip(on).zip(off) {
        println!("{name}: {on:?}");
        assert_eq!(on.clock_reads, 0, "{name}: the clock is for waits");
        if *name != "cleared" {
            assert_eq!(on, off, "{name} with fault tolerance on (left) and off (right)");
        }
    }
    // Pinned, so that a change that adds an access is seen: DeepEP's put without fault tolerance makes 12 loads
    // and 4 atomics, its doorbell included.
    let [put, signal, quiet, get, add, set64, cleared] = on;
    assert!(put.loads <= 12 && put.atomics <= 4, "{put:?}");
    assert!(signal.loads <= 12 && signal.atomics <= 4, "{signal:?}");
    assert!(quiet.loads <= 7 && quiet.stores == 0 && quiet.atomics == 1, "{quiet:?}");
    assert_eq!((get.loads, get.stores, get.atomics), (put.loads, put.stores, put.atomics), "a get is a put");
    // Four segments, the key of the scratch that the answer goes to, and whether the channel is bound to its home.
    assert_eq!((add.loads, add.stores, add.atomics), (signal.loads + 2, signal.stores + 1, signal.atomics));
    // A fifth segment, and the path's count of such WQEs.
    assert_eq!((set64.loads, set64.stores, set64.atomics), (add.loads, add.stores + 1, add.atomics + 1));
    // The price of a bracket, which only fault tolerance pays: two inline writes with their keys, no doorbell more.
    let bare = off[6];
    let more = (cleared.loads - bare.loads, cleared.stores - bare.stores, cleared.atomics - bare.atomics);
    assert_eq!(more, (4, 6, 0), "{cleared:?} against {bare:?}");
    // One writer needs no home.
    assert_eq!((bare.loads + 1, bare.stores, bare.atomics), (add.loads, add.stores, add.atomics));
}
