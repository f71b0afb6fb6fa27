//! The nine defects of the public attempt that docs/DEEPEP.md names, a test each: a scenario that holds here, and the
//! break that stands for its rule, with which `cargo xtask mutate` shows that the scenario fails.

use shunt_layout::mutant::Mutant;
use shunt_tests::mutations::TABLE;
use shunt_tests::scale::{self, Hit, ScaleSpec};
use shunt_tests::scenarios::hold;

/// Holds a scenario, of which the table says that the rule fails it.
fn holds_and_fails_with(scenario: &str, rule: Mutant) {
    let caught = TABLE.iter().any(|row| row.mutant == rule && row.scenarios.contains(&scenario));
    assert!(caught, "no row says that {scenario} fails with {}", rule.name());
    hold(scenario);
}

#[test]
fn fork_1_a_put_waits_for_its_own_completion() {
    holds_and_fails_with("a_put_returns_before_its_completion", Mutant::PutAwaited);
    holds_and_fails_with("doorbells_that_were_left", Mutant::LeftUnrung);
}

#[test]
fn fork_2_a_deadline_in_software_is_taken_for_a_fence() {
    holds_and_fails_with("a_deadline_is_no_fence", Mutant::DeadlineForFence);
}

#[test]
fn fork_3_an_atomic_whose_answer_was_lost_is_posted_again() {
    holds_and_fails_with("nccl_2383_with_truth", Mutant::NoTruth);
}

#[test]
fn fork_4_an_error_completion_is_read_as_success() {
    holds_and_fails_with("transport_errors", Mutant::ErrorTakenForDone);
}

#[test]
fn fork_5_what_was_outstanding_is_forgotten_at_the_switch() {
    holds_and_fails_with("what_other_warps_had_in_flight", Mutant::OutstandingForgotten);
}

#[test]
fn fork_6_data_and_flag_on_different_nics() {
    holds_and_fails_with("posted_writes_of_the_backup", Mutant::NoDrain);
}

/// Its table had 32 entries, nothing ever went back, and each translation unit had a table of its own. All of ours read
/// one constant of the module, `shunt_root`, which the device library defines.
#[test]
fn fork_7_thirty_two_peers_and_no_way_back() {
    holds_and_fails_with("the_way_back_is_taken", Mutant::NoWayBack);
    let spec = ScaleSpec { time_limit_ns: 60_000_000_000, ..ScaleSpec::new(40, 50_000, Hit::Port) };
    assert_eq!(scale::run(&spec).opened_ns.len(), 40);
}

#[test]
fn fork_8_one_backup_that_takes_all() {
    holds_and_fails_with("two_rails_of_three_die", Mutant::OneBackup);
    holds_and_fails_with("a_dead_rail_is_shared_by_all", Mutant::NeighbourOnly);
}

#[test]
fn fork_9_the_control_plane_is_on_the_dead_nic() {
    holds_and_fails_with("agents_agree_while_their_rail_is_dead", Mutant::ControlOnRail);
}
