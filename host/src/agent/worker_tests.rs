//! Tests of the desk: what goes first, what a NIC owes.

use super::*;

fn id(number: u64) -> JobId {
    JobId { number, about: 0 }
}

fn desk(jobs: &[(Urgency, u64)]) -> Desk {
    let desk = Desk::default();
    jobs.iter().for_each(|(urgency, number)| desk.submit(*urgency, id(*number), Job::AskPort));
    desk
}

fn order(desk: &Desk) -> Vec<u64> {
    std::iter::from_fn(|| desk.begin(0, |_| true)).map(|(id, _)| id.number).collect()
}

#[test]
fn what_somebody_waits_for_goes_first_and_equals_in_turn() {
    use Urgency::{Asked, Idle, Making, Peer, Port};
    let desk = desk(&[(Idle, 1), (Making, 2), (Port, 3), (Peer, 4), (Asked, 5), (Peer, 6)]);
    desk.hasten(Asked, 3);
    desk.hasten(Idle, 4);
    assert!(desk.recall(2).is_some() && desk.recall(2).is_none());
    assert_eq!(order(&desk), [5, 3, 4, 6, 1]);
}

#[test]
fn who_was_hastened_last_goes_last_whenever_the_job_was_laid_down() {
    let desk = desk(&[(Urgency::Port, 1), (Urgency::Port, 2), (Urgency::Port, 3)]);
    desk.hasten(Urgency::Asked, 3);
    desk.hasten(Urgency::Asked, 1);
    desk.hasten(Urgency::Asked, 3);
    assert_eq!(order(&desk), [3, 1, 2]);
}

#[test]
fn a_nic_owes_from_its_first_job_until_it_answers() {
    let desk = desk(&[(Urgency::Peer, 1), (Urgency::Peer, 2), (Urgency::Peer, 3)]);
    assert_eq!(desk.owing_ns(), None);
    for (now, answered, owing) in [(10, false, Some(10)), (20, false, Some(10)), (30, true, None)] {
        assert!(desk.begin(now, |_| true).is_some());
        assert_eq!(desk.owing_ns(), if owing.is_some() { owing } else { Some(10) });
        desk.rest(answered);
        assert_eq!(desk.owing_ns(), owing);
    }
    desk.submit(Urgency::Peer, id(4), Job::AskPort);
    assert!(desk.begin(40, |_| true).is_some());
    desk.rest(false);
    desk.submit(Urgency::Peer, id(5), Job::AskPort);
    assert_eq!(desk.owing_ns(), None, "a job for an idle NIC shows anew whether it answers");
}

#[test]
fn a_closed_desk_is_empty() {
    let desk = desk(&[(Urgency::Peer, 1)]);
    desk.close();
    assert_eq!((desk.waiting(), order(&desk)), (0, vec![]));
}
