//! Which scenarios must fail when a part of the protocol is taken away. `cargo xtask mutate` runs the table.

use shunt_layout::mutant::Mutant;

/// A break, and the scenarios that must catch it.
pub struct Row {
    /// The break.
    pub mutant: Mutant,
    /// Other breaks that are in as well, with and without this one: what one rule guards is often guarded by
    /// another, too.
    pub on_top_of: &'static [Mutant],
    /// Names of scenarios.
    pub scenarios: &'static [&'static str],
}

const fn row(mutant: Mutant, scenarios: &'static [&'static str]) -> Row {
    Row { mutant, on_top_of: &[], scenarios }
}

const fn with(mutant: Mutant, on_top_of: &'static [Mutant], scenarios: &'static [&'static str]) -> Row {
    Row { mutant, on_top_of, scenarios }
}

/// Every break.
pub const TABLE: &[Row] = &[
    row(Mutant::BlockedNeverSaid, &["ring_full_at_the_close"]),
    row(Mutant::LeaveAfterReserve, &["ring_full_at_the_close"]),
    row(Mutant::DoneByStore, &["disturbed_at_every_access"]),
    row(Mutant::PublishOutOfOrder, &["disturbed_at_every_access"]),
    row(Mutant::DoorbellBeforeReplay, &["disturbed_at_every_access"]),
    row(Mutant::NotSettled, &["disturbed_at_every_access"]),
    row(Mutant::DoneNotFrozen, &["disturbed_at_every_access"]),
    row(Mutant::OpenByStore, &["stopped_before_tickets_open"]),
    row(Mutant::AdoptByDoneAlone, &["stopped_before_done_opens"]),
    row(Mutant::AnnouncementTakenBack, &["stopped_before_idle_while_the_path_fails"]),
    row(Mutant::OldTriggerActedOn, &["stopped_before_a_look"]),
    with(Mutant::LateLookBelieved, &[Mutant::OldTriggerActedOn], &["stopped_before_a_first_look"]),
    row(Mutant::RingBackwards, &["doorbells_only_go_up"]),
    row(Mutant::CloseNotResumed, &["owner_gone_at_the_close"]),
    row(Mutant::ReturnedOwnerGoesOn, &["owner_back_after_its_lease"]),
    row(Mutant::FailedLedgerEnteredAgain, &["a_ledger_path_that_failed"]),
    row(Mutant::DeadSinceKept, &["twice_without_a_path"]),
    row(Mutant::LeaseNeverEnds, &["owner_gone_mid_step"]),
    row(Mutant::AgentNeverSwitches, &["owner_gone_mid_step", "kernel_gone_with_work_in_flight"]),
    row(Mutant::HoleAwaitedForEver, &["kernel_gone_between_reserve_and_publish"]),
    row(Mutant::QuietAtPublish, &["done_means_delivered"]),
    with(
        Mutant::NotMovedToErr,
        &[Mutant::StateNotLookedAt],
        &["packets_on_their_way_when_the_port_goes_down", "ghosts_of_sixty_seconds"],
    ),
    row(Mutant::DeadlineForFence, &["a_deadline_is_no_fence"]),
    row(Mutant::QueryBeforeErr, &["a_deadline_is_no_fence"]),
    row(Mutant::NotMovedToErr, &["a_deadline_is_no_fence"]),
    row(Mutant::OldAnswerTaken, &["a_second_switch_with_packets_on_their_way"]),
    row(Mutant::OnlyOwnHalf, &["both_sides_leave_at_once"]),
    row(Mutant::NoLifetimeAfterFence, &["packets_outlive_a_silent_receiver"]),
    row(Mutant::ClockTrusted, &["a_clock_jump_during_the_lifetime"]),
    row(Mutant::NoFlushAfterFence, &["posted_writes_of_the_old_nic"]),
    row(Mutant::StateNotLookedAt, &["firmware_that_does_not_move_to_err"]),
    row(Mutant::UnprovableAtOnce, &["both_nics_answer_late"]),
    row(Mutant::UnprovenGoesOn, &["neither_half_answers_commands"]),
    row(Mutant::LateAnswerWritten, &["answers_that_come_late"]),
    row(Mutant::NoTruth, &["acks_lost_before_a_switch"]),
    row(Mutant::KeysOfTheOldRail, &["requests_lost_before_a_switch"]),
    row(Mutant::NoLedger, &["acks_lost_without_truth"]),
    row(Mutant::NoStartProof, &["a_count_that_2err_clears"]),
    row(Mutant::RefutedTruthBelieved, &["a_count_that_is_zero"]),
    row(Mutant::PsnNotChecked, &["a_count_at_a_psn_never_sent"]),
    row(Mutant::CutRecomputed, &["a_get_before_a_second_failure"]),
    row(Mutant::CutForgottenAtOpen, &["a_get_before_a_second_failure"]),
    row(Mutant::ExecutedRepeated, &["gets_executed_and_their_responses_lost"]),
    row(Mutant::GetNotIssuedAgain, &["gets_executed_and_their_responses_lost"]),
    with(Mutant::NotMovedToErr, &[Mutant::StateNotLookedAt], &["responses_late_after_local_reuse"]),
    row(Mutant::LostAnswerIgnored, &["fetches_executed_and_their_answers_lost"]),
    row(Mutant::UncertainRepeated, &["atomics_without_truth"]),
    row(Mutant::ResolvedNotKept, &["atomics_without_truth"]),
    row(Mutant::BracketHalfRead, &["the_gap_of_a_bracket_behind_lost_acks"]),
    row(Mutant::LedgerNotRewritten, &["brackets_without_truth"]),
    row(Mutant::BlocksTakenForMessages, &["wide_atomics_before_a_cut"]),
    row(Mutant::JournalOverwritten, &["the_journal_of_a_path_made_anew"]),
    row(Mutant::RingsBeginAtZero, &["there_and_back"]),
    row(Mutant::TruthNotKept, &["one_direction_leaves_long_before_the_other"]),
    row(Mutant::NoDrain, &["posted_writes_of_the_backup"]),
    row(Mutant::NoFlushAfterDrain, &["posted_writes_of_the_backup"]),
    row(Mutant::NoRecoveryWindow, &["the_recovery_window"]),
    row(Mutant::NoDamping, &["a_flapping_primary"]),
    row(Mutant::IncarnationUsedTwice, &["a_revival_that_fails_and_is_tried_again"]),
    row(Mutant::OldMessageActedOn, &["late_messages_of_an_old_incarnation"]),
    row(Mutant::RevivedBeforeLeft, &["one_direction_leaves_long_before_the_other"]),
    row(Mutant::SamePsn, &["ghosts_older_than_a_revival"]),
    row(Mutant::UnfencedMadeAnew, &["a_half_that_could_not_be_fenced"]),
    with(Mutant::NoLifetimeBeforeRevival, &[Mutant::SamePsn], &["ghosts_within_the_lifetime_at_a_revival"]),
    with(Mutant::PortHintIgnored, &[Mutant::PortNotFenced], &["a_port_down_is_known_at_once"]),
    row(Mutant::PortNotTold, &["a_port_down_is_known_at_once"]),
    row(Mutant::PeerLostAtOnce, &["all_paths_dead_for_less_than_the_give_up_time"]),
    row(Mutant::SilentNotTouched, &["a_peer_that_is_gone"]),
    row(Mutant::ProgramErrorsChained, &["program_errors"]),
    row(Mutant::ErrorTakenForDone, &["transport_errors"]),
    row(Mutant::PortNotFenced, &["a_port_down_fences_what_has_work"]),
    row(Mutant::OneWorker, &["a_healthy_nic_fences_beside_a_dead_one"]),
    row(Mutant::RestartTruthZero, &["agent_restart_before_the_truth_is_told"]),
    row(Mutant::RestartFencesNothing, &["agent_restart_with_fences_not_begun"]),
    row(Mutant::IncarnationForgotten, &["agent_restart_during_a_revival"]),
    row(Mutant::RequestsLostAtRestart, &["agent_dead_while_a_fence_is_asked"]),
    row(Mutant::NoSecondLink, &["a_port_fails_behind_a_cut_link"]),
    with(Mutant::OldPortWordBelieved, &[Mutant::CopiesTaken], &["copies_of_old_news_behind_a_cut_link"]),
    with(Mutant::CopiesTaken, &[Mutant::OldPortWordBelieved], &["copies_of_old_news_behind_a_cut_link"]),
    row(Mutant::SuspicionMasks, &["a_suspect_rail_is_better_than_none"]),
    row(Mutant::NobodyAsked, &["a_dead_rail_is_left_by_all_in_one_suspect_time"]),
    with(Mutant::NoProbes, &[Mutant::NobodyAsked], &["a_primary_that_is_up_and_carries_nothing"]),
    row(Mutant::ManySwitchers, &["one_owner_at_a_time"]),
    row(Mutant::TimeFenceByDeadline, &["silence_is_no_fence_by_time"]),
    row(Mutant::TimeFenceAtOnce, &["the_lifetime_of_a_fence_by_time"]),
    row(Mutant::LeaderDoesNotWait, &["mixed_lanes_on_mixed_channels"]),
    row(Mutant::OrderNotChecked, &["nics_that_place_out_of_order"]),
    row(Mutant::HintReadByPuts, &["nothing_is_paid_while_healthy"]),
    row(Mutant::GenerationCompared, &["generations_wrap"]),
    row(Mutant::CounterNotWrapped, &["more_work_than_a_counter_counts"]),
    row(
        Mutant::NoHome,
        &["a_sender_rail_lost_while_others_add", "the_first_add_finds_the_channel_on_a_backup"],
    ),
    row(Mutant::AwayChosen, &["a_sender_rail_lost_while_others_add"]),
    row(Mutant::BoundUnseen, &["the_first_add_finds_the_channel_on_a_backup"]),
    row(Mutant::HomeMovedUnfenced, &["a_home_moves_and_an_agent_is_out_of_reach"]),
    row(Mutant::HomeNotCarried, &["a_stale_home_and_a_path_made_anew"]),
    row(Mutant::PatienceNeverLearned, &["a_path_slower_than_the_suspect_time"]),
];
