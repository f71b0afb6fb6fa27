//! Runs over libfabric. On soft EFAs: the cases `efa-transfer-*` of the stage `soft-rdma`.

use crate::{clean, first_with, program, there_and_back, transfer_bw};
use shunt_task::ports;
use shunt_transfer_program::trial::{all_hit, alone, number};
use std::process::{Output, Stdio};

/// Whether libfabric is here; else a word that it is not.
fn is_here() -> bool {
    let output = transfer_bw(&["--transport", "tcp", "--duration", "20ms"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let missing = said.contains("install libfabric1");
    if missing {
        println!("SKIPPED: {said}");
        assert!(std::env::var_os("CI").is_none(), "CI is set, and libfabric is missing");
    }
    !missing
}

#[test]
fn a_rail_of_tcp_that_goes_down_and_comes_back_costs_nothing_but_time() {
    if !is_here() {
        return;
    }
    let faults = ["--inject", "300ms:0.0:down", "--inject", "900ms:0.0:up"];
    let arguments = [&["--transport", "tcp", "--duration", "2s"][..], &faults].concat();
    let verdict = clean(&arguments, |verdict| there_and_back(verdict) && all_hit(verdict));
    assert_eq!(verdict["clock"].as_str(), Some("libfabric tcp, wall time"));
}

/// libfabric's layer for connections read through a null pointer here, in an end that closed one. The protocol
/// that passes operations to tcp does not.
#[test]
fn a_rail_of_the_layer_for_connections_that_goes_down_and_comes_back_costs_nothing_but_time() {
    if !is_here() {
        return;
    }
    let layer = ["--transport", "libfabric", "--provider", "tcp;ofi_rxm", "--duration", "2s"];
    let faults = ["--inject", "300ms:0.0:down", "--inject", "900ms:0.0:up"];
    clean(&[&layer[..], &faults].concat(), |verdict| there_and_back(verdict) && all_hit(verdict));
}

#[test]
fn two_processes_go_over_shared_memory() {
    if !is_here() {
        return;
    }
    let both_ends = || -> Output {
        let _alone = alone();
        let root = format!("127.0.0.1:{}", ports::free(1).expect("a port"));
        let ends = ["0", "1"].map(|rank| {
            program()
                .args(["--transport", "shm", "--duration", "1s"])
                .envs([("SHUNT_RANK", rank), ("SHUNT_WORLD", "2"), ("SHUNT_ROOT", &root)])
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("the program starts")
        });
        let [first, second] = ends.map(|end| end.wait_with_output().expect("its end"));
        let said = String::from_utf8_lossy(&second.stderr).into_owned();
        assert_eq!((second.status.code(), second.stdout.len()), (first.status.code(), 0), "{said}");
        first
    };
    let verdict = first_with("clean", both_ends, |verdict| number(verdict, "transfers") > 0);
    assert_eq!(verdict["clock"].as_str(), Some("libfabric shm, wall time"));
}
