// SPDX-License-Identifier: GPL-2.0

//! The model, broken on purpose: each way is found within some thousand seeds, by the check that it
//! is for. A simulation that cannot fail shows nothing.

use sim::{
    Kind,
    Mutation,
    Options, //
};

use crate::first_failure;

/// Seeds within which a broken model must be found.
const SEEDS: u64 = 6000;

fn is_found(mutation: Mutation, as_one_of: &[Kind]) {
    let options = Options {
        mutation: Some(mutation),
        ..Options::default()
    };
    let found = first_failure(SEEDS, options);
    let kind = found
        .and_then(|(_, outcome)| outcome.violation)
        .map(|v| v.kind);
    assert!(
        kind.is_some_and(|k| as_one_of.contains(&k)),
        "{mutation:?} was found as {kind:?}"
    );
}

#[test]
fn sending_again_before_the_old_queue_pair_is_drained_is_found() {
    is_found(Mutation::SkipDrain, &[Kind::LostWrite, Kind::ForeignData]);
}

#[test]
fn serving_a_chunk_that_is_in_flight_on_another_path_is_found() {
    is_found(Mutation::ForgetChunkFence, &[Kind::ChunkTwice]);
}

#[test]
fn overlooking_a_path_that_is_being_closed_is_found() {
    is_found(Mutation::FenceOnlyLive, &[Kind::ChunkTwice]);
}

#[test]
fn letting_a_path_in_before_its_predecessor_is_drained_is_found() {
    let kinds = [Kind::LostWrite, Kind::ForeignData, Kind::ChunkTwice];
    is_found(Mutation::ForgetReconnectFence, &kinds);
}

#[test]
fn giving_a_request_another_chunk_at_fail_over_is_found() {
    let kinds = [Kind::ForeignData, Kind::LostWrite, Kind::Stuck];
    is_found(Mutation::ReuseChunkEarly, &kinds);
}

#[test]
fn using_the_chunk_of_a_request_that_failed_unanswered_is_found() {
    is_found(Mutation::NoQuarantine, &[Kind::ForeignData]);
}

#[test]
fn releasing_a_lost_requests_chunk_when_another_path_returns_is_found() {
    let kinds = [Kind::ForeignData, Kind::LostWrite];
    is_found(Mutation::AnyPathEndsQuarantine, &kinds);
}

#[test]
fn releasing_a_lost_requests_chunk_when_its_path_is_removed_is_found() {
    let kinds = [Kind::ForeignData, Kind::LostWrite];
    is_found(Mutation::RemovalEndsQuarantine, &kinds);
}

#[test]
fn making_a_lost_request_anew_in_another_chunk_is_found() {
    is_found(Mutation::AnotherChunkAgain, &[Kind::LostWrite]);
}

#[test]
fn waiting_for_a_path_that_does_not_come_back_is_found() {
    is_found(Mutation::NeverAskServer, &[Kind::Stuck]);
}

#[test]
fn waiting_for_a_session_without_io_is_found() {
    is_found(Mutation::HoldBackForEver, &[Kind::Stuck]);
}

#[test]
fn waiting_only_while_an_administrator_tries_is_found() {
    is_found(Mutation::ForgetDevice, &[Kind::Stuck]);
}

#[test]
fn d1_a_lost_set_of_tried_paths_is_found() {
    is_found(Mutation::LoseTried, &[Kind::TriedTwice]);
}

#[test]
fn forgetting_what_was_in_flight_is_found() {
    is_found(Mutation::NoFailOver, &[Kind::Stuck]);
}

#[test]
fn counting_attempts_past_a_success_is_found() {
    is_found(Mutation::NoBackoffReset, &[Kind::GivenUpEarly]);
}

#[test]
fn going_on_after_an_outage_without_opening_the_devices_is_found() {
    let kinds = [Kind::Refused, Kind::WrongDevice];
    is_found(Mutation::NoReopen, &kinds);
}

#[test]
fn using_a_path_that_was_not_validated_is_found() {
    let kinds = [Kind::Refused, Kind::WrongDevice, Kind::SilentLoss];
    is_found(Mutation::NoValidation, &kinds);
}

#[test]
fn opening_and_closing_devices_without_an_order_is_found() {
    let kinds = [Kind::Refused, Kind::WrongDevice];
    is_found(Mutation::NoLock, &kinds);
}

#[test]
fn using_a_number_that_a_lost_close_may_end_is_found() {
    is_found(Mutation::NoDoubts, &[Kind::Refused]);
}

#[test]
fn using_a_devices_number_of_before_an_outage_is_found() {
    let kinds = [Kind::Refused, Kind::WrongDevice];
    is_found(Mutation::OldNumber, &kinds);
}

#[test]
fn going_on_with_a_fenced_device_is_found() {
    is_found(Mutation::ValidationAdopts, &[Kind::FenceBroken]);
}

#[test]
fn giving_the_number_of_a_fenced_device_to_another_is_found() {
    let kinds = [Kind::WrongDevice, Kind::FenceBroken];
    is_found(Mutation::ReuseNumber, &kinds);
}

#[test]
fn taking_a_rebooted_server_for_the_old_one_is_found() {
    is_found(Mutation::IgnoreBoot, &[Kind::SilentLoss]);
}

#[test]
fn taking_a_flush_to_cover_later_writes_is_found() {
    is_found(Mutation::FlushCoversLater, &[Kind::SilentLoss]);
}

#[test]
fn a_flush_that_is_only_acknowledged_is_found() {
    let kinds = [Kind::LostWrite, Kind::SilentLoss];
    is_found(Mutation::IgnoreFlush, &kinds);
}

#[test]
fn a_forced_write_that_stays_in_the_cache_is_found() {
    is_found(Mutation::IgnoreFua, &[Kind::LostWrite]);
}

#[test]
fn sending_a_request_again_without_a_limit_is_found() {
    is_found(Mutation::NoResendLimit, &[Kind::TooOften]);
}

#[test]
fn answering_without_room_on_the_send_queue_is_found() {
    is_found(Mutation::IgnoreRoom, &[Kind::QueueFull]);
}

#[test]
fn forgetting_an_answer_that_waits_for_room_is_found() {
    is_found(Mutation::ForgetWaiting, &[Kind::Unanswered]);
}

#[test]
fn using_a_chunks_old_key_is_found() {
    is_found(Mutation::OldKey, &[Kind::BadKey]);
}

#[test]
fn d20_an_answer_without_a_new_key_is_found() {
    is_found(Mutation::NoKeyAfterWait, &[Kind::BadKey]);
}

#[test]
fn taking_two_clients_chunks_for_one_is_found() {
    is_found(Mutation::MixSessions, &[Kind::OtherClient]);
}

#[test]
fn closing_the_devices_of_another_client_is_found() {
    let kinds = [Kind::Refused, Kind::WrongDevice];
    is_found(Mutation::CloseAll, &kinds);
}

#[test]
fn sending_again_without_a_fence_message_is_found() {
    let kinds = [Kind::LostWrite, Kind::ForeignData];
    is_found(Mutation::NoFence, &kinds);
}

#[test]
fn answering_a_fence_message_without_closing_the_path_is_found() {
    let kinds = [Kind::LostWrite, Kind::ForeignData];
    is_found(Mutation::FencedEarly, &kinds);
}

#[test]
fn d24_waiting_for_ever_for_an_answer_is_found() {
    is_found(Mutation::NoRequestTimeout, &[Kind::Stuck]);
}

#[test]
fn answering_before_the_disk_has_it_is_found() {
    let kinds = [Kind::LostWrite, Kind::WrongRead, Kind::ChunkTwice];
    is_found(Mutation::AnswerEarly, &kinds);
}

#[test]
fn a_client_without_heartbeat_is_found() {
    is_found(Mutation::NoHeartbeat, &[Kind::Stuck]);
}
