//! What must hold of one path, whatever happens to it.

use super::half::Half;
use super::state::{End, QpState, System};
use shunt_layout::state::AnswerStatus;
use shunt_recovery::health::Health;
use shunt_recovery::path::{PathMachine, Task};
use shunt_recovery::truth::SideTruth;
use shunt_recovery::verdict::Verdict;

/// An end's name in traces.
pub(super) fn name(at: usize) -> &'static str {
    ["A", "B"][at]
}

/// (a) A truth is what the responder executed, all of it is in memory, and it stays so.
pub(super) fn answered(s: &mut System, at: usize, incarnation: u32, verdict: Verdict) -> Result<(), String> {
    let (flow, who) = (&mut s.flows[at], name(at));
    let of_it = flow.incarnation() == incarnation;
    let executed = if of_it { u32::from(flow.executed) } else { 0 };
    if verdict.status == AnswerStatus::Truth && verdict.executed != executed {
        let said = verdict.executed;
        return Err(format!(
            "truth: {who} is told {said} of incarnation {incarnation}, executed are {executed}"
        ));
    }
    if verdict.status != AnswerStatus::Unprovable && of_it {
        if flow.placed < flow.executed {
            return Err(format!("truth: {who} is answered while a write of its is not in memory"));
        }
        flow.closed = true;
    }
    Ok(())
}

/// (a) Nothing of a direction is executed after its owner was answered.
pub(super) fn executed(s: &System, from: usize) -> Result<(), String> {
    let there = &s.ends[1 - from].path;
    if there.incarnation() == s.flows[from].incarnation() && there.truths().1 == Some(SideTruth::Unused) {
        return Err(format!("unused: a message of {} is executed, which said that it sent none", name(from)));
    }
    if s.flows[from].closed {
        let incarnation = s.flows[from].incarnation();
        return Err(format!(
            "truth: a message of {} is executed after it was answered about {incarnation}",
            name(from)
        ));
    }
    Ok(())
}

/// (b) and (c): what must be before a NIC makes the half of an incarnation.
pub(super) fn to_be_made(s: &System, at: usize, incarnation: u32) -> Result<(), String> {
    let (nic, who) = (&s.ends[at].nic, name(at));
    if nic.made >> incarnation & 1 == 1 {
        return Err(format!("incarnation: {who} makes {incarnation} twice"));
    }
    if nic.qps.iter().flatten().any(|(_, state)| *state != QpState::Error) {
        return Err(format!("rule 17: {who} makes {incarnation}, its old half is not in ERR"));
    }
    for (owner, end) in s.ends.iter().enumerate() {
        if end.owner.uses != 0 && end.owner.uses < incarnation && !end.owner.looks_again {
            return Err(format!(
                "rule 17: {who} makes {incarnation}, the owner at {} has not left",
                name(owner)
            ));
        }
    }
    for (from, flow) in s.flows.iter().enumerate() {
        // Of a half that its NIC did not fence nobody knows when it sent last.
        let unfenced = s.failed && s.ends[from].nic.is_alive(flow.incarnation());
        if flow.incarnation() < incarnation && flow.posted > 0 && !flow.gone && !unfenced {
            let from = name(from);
            return Err(format!(
                "rule 17: {who} makes {incarnation} within a packet lifetime of the last half that sent, at {from}"
            ));
        }
    }
    Ok(())
}

/// (d) and (e), where a machine decided something.
pub(super) fn moved(s: &System, at: usize, before: &PathMachine<Half>) -> Result<(), String> {
    let (after, who) = (&s.ends[at].path, name(at));
    let incarnation = after.incarnation();
    if incarnation < before.incarnation() {
        return Err(format!("incarnation: {who} goes back to {incarnation}"));
    }
    if after.health() == Health::Ready && before.health() != Health::Ready {
        let missing = s.ends.iter().position(|end: &End| end.proved != incarnation);
        if let Some(end) = missing {
            let end = name(end);
            return Err(format!("probes: {who} is ready with {incarnation}, no probe of {end} was answered"));
        }
    }
    told(s, at)?;
    if incarnation > before.incarnation() || after.health() == Health::Ready {
        return Ok(());
    }
    let ((_, before), (_, after)) = (before.truths(), after.truths());
    if says(after) < says(before) {
        return Err(format!("rule 18: {who} knew {before:?} of the other half, and knows {after:?}"));
    }
    Ok(())
}

/// (a) What an end knows of the other half is so: it is in ERR, and its count is final.
fn told(s: &System, at: usize) -> Result<(), String> {
    let (path, other, who) = (&s.ends[at].path, &s.ends[1 - at], name(at));
    let (incarnation, flow) = (path.incarnation(), &s.flows[at]);
    let Some(SideTruth::Exact { executed, .. }) = path.truths().1 else { return Ok(()) };
    // One that was counted behind a port that is down is moved to ERR after that.
    let counted = matches!(other.path.standing().task, Task::Stop(_));
    if other.nic.is_alive(incarnation) && !counted && !s.failed {
        return Err(format!(
            "truth: {who} has one of incarnation {incarnation}, the other half is not in ERR"
        ));
    }
    if flow.incarnation() == incarnation && executed != u32::from(flow.executed) {
        let so_far = flow.executed;
        return Err(format!(
            "truth: {who} hears {executed} of incarnation {incarnation}, executed are {so_far}"
        ));
    }
    Ok(())
}

/// How much a truth says.
fn says(truth: Option<SideTruth>) -> u8 {
    match truth {
        None => 0,
        Some(SideTruth::Dead) => 1,
        Some(SideTruth::Unused) => 2,
        Some(SideTruth::Unflushed) => 3,
        Some(SideTruth::Unknown) => 4,
        Some(SideTruth::Fenced) => 5,
        Some(SideTruth::Exact { .. }) => 6,
    }
}
