//! The mask of ranks: one an epoch, made by a majority, the minority masks itself. Machines alone, over bad links.

use shunt_tests::scenarios::hold;

#[test]
fn after_one_event_the_majority_goes_on_with_one_mask_and_the_minority_masks_itself() {
    hold("ranks_one_event");
}

#[test]
fn in_a_storm_no_epoch_has_two_masks() {
    hold("ranks_in_a_storm");
}

#[test]
fn two_attempts_at_once_decide_once() {
    hold("ranks_two_attempts_at_once");
}

#[test]
fn what_was_decided_by_one_that_died_is_found() {
    hold("ranks_that_follow_one_that_decided");
}

#[test]
fn one_that_missed_the_decision_is_told_of_it() {
    hold("ranks_one_that_missed_the_decision");
}
