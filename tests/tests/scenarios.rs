//! The scenarios that must exist, by number and name; docs/TESTING.md lists what each holds and the breaks it catches.
//! What they are made of stands in `tests/src/scenarios`; more of the same stands in the files beside this one.

use shunt_tests::scenarios::hold;

#[test]
fn scenario_02_f01_posted_writes_of_the_old_nic() {
    hold("posted_writes_of_the_old_nic");
}

#[test]
fn scenario_02_f01_posted_writes_of_the_backup() {
    hold("posted_writes_of_the_backup");
}

#[test]
fn scenario_03_f02_both_sides_leave_at_once() {
    hold("both_sides_leave_at_once");
}

#[test]
fn scenario_03_a_flush_is_seen_before_the_message() {
    hold("a_flush_is_seen_before_the_message");
}

#[test]
fn scenario_03_the_hint_is_lost() {
    hold("the_hint_is_lost");
}

#[test]
fn scenario_04_f03_gets_whose_responses_are_lost_or_late() {
    hold("gets_executed_and_their_responses_lost");
    hold("responses_late_after_local_reuse");
    hold("a_get_before_a_second_failure");
}

#[test]
fn scenario_04_f03_fetches_whose_answers_are_lost() {
    hold("fetches_executed_and_their_answers_lost");
    hold("atomics_without_truth");
}

#[test]
fn scenario_05_f04_one_direction_leaves_long_before_the_other() {
    hold("one_direction_leaves_long_before_the_other");
}

#[test]
fn scenario_05_late_messages_of_an_old_incarnation() {
    hold("late_messages_of_an_old_incarnation");
}

#[test]
fn scenario_05_answers_that_come_late() {
    hold("answers_that_come_late");
    hold("a_second_switch_with_packets_on_their_way");
}

#[test]
fn scenario_05_a_revival_that_fails_and_is_tried_again() {
    hold("a_revival_that_fails_and_is_tried_again");
}

#[test]
fn scenario_06_f05_ghosts_across_a_revival() {
    hold("ghosts_older_than_a_revival");
    hold("ghosts_within_the_lifetime_at_a_revival");
}

#[test]
fn scenario_06_f05_ghosts_at_near_psns_and_of_acknowledgements() {
    hold("ghosts_older_than_two_revivals");
    hold("ghosts_of_acknowledgements");
}

#[test]
fn scenario_07_f06_paths_fail_one_after_the_other() {
    hold("a_backup_that_executes_nothing");
    hold("three_paths_fail_in_a_row");
}

#[test]
fn scenario_08_f07_ring_full_at_the_close() {
    hold("ring_full_at_the_close");
}

#[test]
fn scenario_09_f08_f11_stopped_between_reserve_and_doorbell() {
    hold("disturbed_at_every_access");
    hold("stopped_for_long_at_a_doorbell");
    hold("stopped_before_a_look");
    hold("stopped_before_a_first_look");
    hold("doorbells_only_go_up");
}

#[test]
fn scenario_09_f08_f11_asleep_across_switches() {
    hold("asleep_across_one_switch");
    hold("asleep_across_two_switches");
    hold("asleep_across_256_switches");
}

#[test]
fn scenario_09_f12_stopped_while_opening() {
    hold("stopped_before_tickets_open");
    hold("stopped_before_flags_change");
    hold("stopped_before_done_opens");
}

#[test]
fn scenario_10_f09_a_deadline_is_no_fence() {
    hold("a_deadline_is_no_fence");
    hold("packets_on_their_way_when_the_port_goes_down");
}

#[test]
fn scenario_10_f09_frames_held_and_sent_again() {
    hold("held_for_longer_than_suspected");
    hold("held_while_the_receiver_is_silent");
    hold("retransmitted_just_before_the_fence");
}

#[test]
fn scenario_10_f09_the_packet_lifetime() {
    hold("packets_outlive_a_silent_receiver");
    hold("a_clock_jump_during_the_lifetime");
}

#[test]
fn scenario_10_f09_the_fence_by_time() {
    hold("silence_is_no_fence_by_time");
    hold("the_lifetime_of_a_fence_by_time");
}

#[test]
fn scenario_11_f10_one_loses_a_rail_and_another_does_not() {
    hold("a_sender_rail_lost_while_others_add");
    hold("a_receiver_rail_lost_while_all_add");
}

#[test]
fn scenario_11_f10_a_home_moves() {
    hold("a_home_moves_while_all_add");
    hold("a_home_moves_and_a_third_pe_is_idle");
    hold("a_home_moves_and_an_agent_is_out_of_reach");
    hold("a_fault_while_a_home_moves");
}

#[test]
fn scenario_11_f10_a_home_on_a_dead_nic() {
    hold("a_home_on_a_nic_that_answers_no_commands");
    hold("a_home_that_nobody_can_prove_silent");
}

#[test]
fn scenario_11_one_backup_is_enough() {
    hold("two_homes_and_one_backup");
    hold("a_nic_that_does_not_let_go_and_one_backup");
}

#[test]
fn scenario_11_what_works_is_not_taken_from_the_other_direction() {
    hold("the_last_path_that_works_is_kept");
    hold("a_slot_that_works_is_given_away");
}

#[test]
fn scenario_11_f10_who_comes_late() {
    hold("the_first_add_finds_the_channel_on_a_backup");
    hold("a_stale_home_and_a_recreated_path");
}

#[test]
fn scenario_23_exact_fetches() {
    hold("exact_fetches_without_a_fault");
    hold("exact_fetches_of_two_blocks_use_rings_up");
    hold("exact_fetches_and_a_port_of_either_end");
    hold("exact_fetches_and_both_ports_in_turn");
}

#[test]
fn scenario_23_exact_fetches_and_their_owner() {
    hold("exact_fetches_and_an_owners_agent_that_restarts");
    hold("exact_fetches_beside_atomics_of_the_nic_while_a_home_moves");
    hold("exact_fetches_of_a_home_that_moves_behind_a_slow_nic");
    hold("exact_fetches_of_an_owner_whose_nic_answers_no_commands");
    hold("exact_fetches_of_an_owner_whose_nic_is_gone");
    hold("exact_fetches_of_a_deaf_nic_that_is_not_ready");
}

#[test]
fn scenario_12_neither_half_answers_commands() {
    hold("neither_half_answers_commands");
    hold("both_nics_dead_to_commands");
}

#[test]
fn scenario_12_one_half_answers_commands() {
    hold("sender_nic_dead_to_commands");
    hold("receiver_nic_dead_to_commands");
}

#[test]
fn scenario_12_a_healthy_nic_fences_beside_a_dead_one() {
    hold("a_healthy_nic_fences_beside_a_dead_one");
}

#[test]
fn rule_20_a_port_down_fences_what_has_work() {
    hold("a_port_down_fences_what_has_work");
}

#[test]
fn rule_13_a_ledger_as_slow_as_all_else() {
    hold("a_ledger_as_slow_as_all_else");
}

#[test]
fn scenario_13_truth_that_lies() {
    hold("a_count_that_2err_clears");
    hold("a_count_that_is_zero");
    hold("a_count_at_a_psn_never_sent");
    hold("firmware_that_does_not_move_to_err");
}

#[test]
fn scenario_13_counts_that_lie_about_atomics() {
    hold("atomics_that_the_count_leaves_out");
    hold("atomics_counted_and_dropped");
}

#[test]
fn scenario_14_h03_placement_out_of_order_is_refused() {
    hold("nics_that_place_out_of_order");
    hold("nics_that_deny_their_order");
    hold("adaptive_routing_that_nothing_overrides");
}

#[test]
fn scenario_17_h11_polled_puts() {
    hold("polled_puts_without_truth");
}

#[test]
fn scenario_14_h03_a_network_that_reorders_unseen() {
    hold("a_network_that_reorders_unseen");
}

#[test]
fn scenario_14_h03_atomics_carry_order() {
    hold("atomics_carry_order_where_writes_do_not");
    hold("ledger_words_behind_lost_signals");
}

#[test]
fn scenario_14_h03_relaxed_data_and_strict_signals() {
    hold("relaxed_data_and_strict_signals");
}

#[test]
fn scenario_15_kernels_that_are_gone() {
    hold("kernel_gone_with_work_in_flight");
    hold("owner_gone_mid_step");
}

#[test]
fn scenario_16_cuts_with_and_without_truth() {
    hold("acks_lost_before_a_switch");
    hold("requests_lost_before_a_switch");
    hold("acks_lost_without_truth");
    hold("the_journal_of_a_recreated_path");
}

#[test]
fn scenario_16_brackets_and_wide_atomics() {
    hold("brackets_without_truth");
    hold("the_gap_of_a_bracket");
    hold("the_gap_of_a_bracket_behind_lost_acks");
    hold("wide_atomics_before_a_cut");
}

#[test]
fn scenario_16_counters_wrap() {
    hold("generations_wrap");
    hold("more_work_than_a_counter_counts");
}

#[test]
fn scenario_18_waiters_behind_a_hole() {
    hold("kernel_gone_between_reserve_and_publish");
    hold("done_means_delivered");
}

#[test]
fn scenario_18_who_is_lost_and_when() {
    hold("all_paths_dead_for_less_than_the_give_up_time");
    hold("a_peer_that_is_gone");
}

#[test]
fn scenario_19_mixed_lanes_on_mixed_channels() {
    hold("mixed_lanes_on_mixed_channels");
    hold("one_owner_at_a_time");
}

#[test]
fn scenario_20_first_causes() {
    hold("program_errors");
    hold("transport_errors");
}

#[test]
fn scenario_21_flaps_and_ways_back() {
    hold("there_and_back");
    hold("the_recovery_window");
    hold("a_flapping_primary");
    hold("a_primary_that_is_up_and_carries_nothing");
    hold("a_path_slower_than_the_suspect_time");
}

#[test]
fn scenario_21_a_train_of_flaps() {
    hold("twenty_flaps_of_fifty_milliseconds");
}

#[test]
fn scenario_21_a_thousand_channels_fenced_at_once() {
    hold("a_thousand_channels_fenced_at_once");
}

#[test]
fn scenario_22_a_port_down_is_known_at_once() {
    hold("a_port_down_is_known_at_once");
}

#[test]
fn scenario_22_agents_go_on_over_the_rails() {
    hold("a_port_fails_behind_a_cut_link");
    hold("old_news_of_a_port");
    hold("copies_of_old_news_behind_a_cut_link");
}

#[test]
fn scenario_22_who_is_suspected() {
    hold("a_suspect_rail_is_better_than_none");
    hold("a_dead_rail_is_left_by_all_in_one_suspect_time");
}

/// A fault during each step, and a third one after it.
mod scenario_07_f06_fault_during {
    use super::hold;

    macro_rules! during {
        ($($step:ident)*) => { $(
            #[test]
            fn $step() {
                hold(concat!("fault_during_", stringify!($step)));
                hold(concat!("last_path_lost_during_", stringify!($step)));
            }
        )* };
    }
    during! { settle fence truth flush cut replay open drain drain_flush revive probe }
}

/// Nothing of an abandoned path is visible, however late it comes.
#[test]
fn scenario_06_f05_ghosts_of_sixty_seconds() {
    hold("ghosts_of_sixty_seconds");
}

#[test]
fn scenario_05_agent_restart_between_fence_and_answer() {
    hold("agent_restart_between_fence_and_answer");
    hold("agent_restart_before_the_truth_is_told");
    hold("agent_restart_after_the_truth_was_told");
    hold("agent_restart_with_fences_not_begun");
}

#[test]
fn scenario_05_agent_dead_while_a_fence_is_asked() {
    hold("agent_dead_while_a_fence_is_asked");
    hold("agent_dead_while_a_port_goes_down");
}

#[test]
fn scenario_05_agent_restart_during_a_revival_and_a_drain() {
    hold("agent_restart_during_a_revival");
    hold("agent_restart_during_a_drain");
}

#[test]
fn scenario_05_agent_restart_with_the_link_cut() {
    hold("agent_restart_with_the_link_cut");
}

#[test]
fn scenario_05_agent_restarts_three_in_a_row() {
    hold("agent_restarts_three_in_a_row");
    hold("agent_restart_while_all_is_well");
}

#[test]
fn scenario_15_an_owner_gone_at_the_close() {
    hold("owner_gone_at_the_close");
}

#[test]
fn scenario_15_an_owner_back_after_its_lease() {
    hold("owner_back_after_its_lease");
}

#[test]
fn scenario_15_an_owner_back_with_nothing_left_to_replay() {
    hold("owner_back_with_nothing_left");
}

#[test]
fn a_post_lock_whose_holder_is_gone_keeps_nobody_waiting() {
    hold("a_post_lock_that_is_never_let_go");
}

#[test]
fn a_doorbell_that_was_left_is_rung_by_the_next_caller() {
    hold("doorbells_that_were_left");
}

#[test]
fn scenario_15_a_clock_that_jumps_ends_no_lease() {
    hold("a_clock_that_jumps_ends_no_lease");
}

#[test]
fn scenario_15_callers_wait_for_the_next_owner() {
    hold("callers_wait_for_the_next_owner");
}

#[test]
fn scenario_07_a_ledger_path_that_failed_is_not_entered_again() {
    hold("a_ledger_path_that_failed");
}

#[test]
fn scenario_21_twice_without_a_path_is_not_added_up() {
    hold("twice_without_a_path");
}

#[test]
fn scenario_06_a_half_that_could_not_be_fenced() {
    hold("a_half_that_could_not_be_fenced");
}

#[test]
fn scenario_09_f12_stopped_before_idle_while_the_path_fails() {
    hold("stopped_before_idle_while_the_path_fails");
    hold("stopped_before_idle_on_a_device");
}

#[test]
fn scenario_09_f12_announced_while_the_path_fails() {
    hold("announced_while_the_path_fails");
    hold("announced_while_the_path_fails_on_a_device");
}

#[test]
fn scenario_15_owner_gone_while_opening() {
    hold("owner_gone_while_opening");
}

#[test]
fn scenario_12_both_nics_answer_late() {
    hold("both_nics_answer_late");
}

#[test]
fn scenario_12_both_nics_answer_before_the_peer_is_given_up() {
    hold("both_nics_answer_before_the_peer_is_given_up");
}

#[test]
fn scenario_12_a_nic_that_is_silent_for_a_while() {
    hold("a_nic_that_is_silent_for_a_while");
}

#[test]
fn scenario_12_fences_whose_flush_fails() {
    hold("fences_whose_flush_fails");
}

#[test]
fn scenario_05_a_peer_that_names_what_does_not_exist() {
    hold("a_peer_that_names_what_does_not_exist");
}

#[test]
fn scenario_18_a_healthy_pair_among_dead_rails() {
    hold("one_pair_of_four_is_left");
    hold("one_pair_of_four_is_left_and_pings_pass");
    hold("two_pairs_of_nine_are_left");
    hold("a_peer_lost_beside_a_healthy_pair");
    hold("a_nic_of_each_end_is_gone_at_once");
}

#[test]
fn scenario_21_a_port_with_more_pairs_than_a_lifetime() {
    hold("a_port_with_more_pairs_than_a_lifetime");
}

#[test]
fn scenario_21_counted_with_packets_on_their_way() {
    hold("counted_with_packets_on_their_way");
}

#[test]
fn scenario_02_f01_posted_writes_of_many_channels() {
    hold("posted_writes_of_many_channels");
}

#[test]
fn a_pause_is_no_failure() {
    hold("a_pause_is_no_failure");
}

#[test]
fn a_silence_behind_pauses() {
    hold("a_silence_behind_pauses");
}

#[test]
fn scenario_12_fences_that_wait_for_their_turn() {
    hold("fences_that_wait_for_their_turn");
}

#[test]
fn scenario_05_orders_whose_words_are_lost() {
    hold("a_path_that_is_out_and_a_word_that_was_lost");
    hold("a_path_that_is_left_and_gone_back_to");
}

#[test]
fn scenario_21_an_order_is_no_failure() {
    hold("a_path_taken_out_again_and_again");
}

#[test]
fn scenario_21_large_messages_are_no_silence() {
    hold("large_messages_on_a_slow_rail");
}

#[test]
fn scenario_21_a_large_message_on_a_dead_path() {
    hold("a_large_message_on_a_dead_path");
    hold("a_large_message_on_a_suspect_rail");
}

#[test]
fn scenario_21_a_large_message_while_it_is_drained() {
    hold("a_large_message_while_it_is_drained");
}

#[test]
fn scenario_12_said_in_hand_and_no_more() {
    hold("said_in_hand_and_no_more");
}

#[test]
fn scenario_22_old_news_and_another_agent() {
    hold("old_news_of_a_port_and_another_agent");
}

#[test]
fn scenario_22_messages_doubled_late_and_overtaken() {
    hold("messages_doubled_late_and_overtaken");
}

#[test]
fn scenario_22_a_process_that_was_stopped() {
    hold("a_process_that_was_stopped");
}

#[test]
fn moe_experts_get_each_token_once() {
    hold("moe_counts_applied_and_not_answered");
    hold("moe_a_rank_that_receives_late");
    hold("moe_posts_that_find_no_room");
    hold("moe_a_replay_behind_the_last_number");
}

#[test]
fn moe_roles_of_one_kernel_do_not_wait_for_each_other() {
    hold("moe_two_roles_on_a_dead_rail");
}

#[test]
fn transfers_count_an_immediate_once_and_prove_their_end() {
    hold("transfers_through_random_faults");
    hold("transfers_a_piece_that_is_lost_in_silence");
}

#[test]
fn transfers_take_no_longer_than_their_bars() {
    hold("transfers_leave_a_port_within_a_millisecond");
    hold("transfers_prove_cancels_and_cuts_within_a_millisecond");
    hold("transfers_keep_the_rate_of_healthy_rails");
}

#[test]
fn verbs_programs_lose_nothing_and_repeat_nothing() {
    hold("verbs_programs_through_random_faults");
    hold("verbs_completions_that_come_late");
    hold("verbs_schedules_of_a_move");
    hold("verbs_a_return_under_load");
}

#[test]
fn verbs_programs_that_sleep_are_woken_and_shared_buffers_are_used_once() {
    hold("verbs_programs_that_sleep");
    hold("verbs_buffers_that_are_shared");
}
