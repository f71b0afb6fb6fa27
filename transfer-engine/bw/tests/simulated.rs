//! Runs over a simulated network.

use crate::{clean, first_with, program, there_and_back, transfer_bw};
use shunt_transfer_program::trial::{all_hit, number};

fn over(order: &str, rest: &[&str]) -> Vec<String> {
    let network = ["--transport", "sim", "--reorder", order];
    network.iter().chain(rest).map(|text| (*text).to_owned()).collect()
}

#[test]
fn a_rail_that_goes_down_and_comes_back_costs_nothing_but_time_in_any_order() {
    for order in ["none", "all"] {
        let faults = ["--duration", "1500ms", "--inject", "300ms:0.0:down", "--inject", "700ms:0.0:up"];
        let arguments = over(order, &faults);
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let verdict = clean(&arguments, |verdict| there_and_back(verdict) && all_hit(verdict));
        assert_eq!(number(&verdict, "pieces_reordered") > 0, order == "all");
        assert_eq!(verdict["clock"].as_str(), Some("simulated network, wall time"));
    }
}

#[test]
fn what_is_held_back_lands_late_unless_it_is_cancelled() {
    for (how, word) in [("now", "clean"), ("never", "broken")] {
        let fault = [
            "--mode",
            "cancel",
            "--cancel",
            how,
            "--size",
            "4K",
            "--duration",
            "1500ms",
            "--inject",
            "100ms:0.0:hold=1s",
        ];
        let arguments = over("all", &fault);
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let run = || transfer_bw(&arguments);
        first_with(word, run, |verdict| {
            all_hit(verdict)
                && number(verdict, "cancelled") > 0
                && (number(verdict, "late_writes") > 0) == (how == "never")
        });
    }
}

#[test]
fn what_a_simulated_network_has_not_is_refused() {
    let refused = |arguments: &[&str], text: &str| {
        let output = transfer_bw(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains(text), "{arguments:?}: {said}");
    };
    refused(&["--reorder", "all"], "--reorder: expected --transport sim, got rdma");
    refused(
        &["--transport", "sim", "--nic", "soft"],
        "--nic: expected rails of NICs, got a simulated network",
    );
    let gone = ["--transport", "sim", "--inject", "1s:0.0:nic-gone"];
    refused(
        &gone,
        "expected down, down=TIME, up, drop-acks, drop-acks=TIME or hold=TIME of a rail of a simulated network",
    );
    let job = program()
        .args(["--transport", "sim"])
        .envs([("SHUNT_RANK", "0"), ("SHUNT_WORLD", "2"), ("SHUNT_ROOT", "127.0.0.1:1")])
        .output()
        .expect("the program starts");
    let said = String::from_utf8_lossy(&job.stderr).into_owned();
    assert!(job.status.code() == Some(2) && said.contains("got processes of their own"), "{said}");
}
