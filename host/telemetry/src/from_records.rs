//! Device records as events: one switch is up to seven of them, each at the instant of its stamp.

use super::declare::{Place, Route};
use super::table::Event;
use shunt_layout::state::{CauseKind, PathIdentity, Step, StepRecord, SwitchKind, SwitchRecord};

/// A path that a record names.
fn route(pe: u32, place: Place, ends: &PathIdentity) -> Route {
    Route {
        pe,
        place,
        local_rail: ends.local_rail,
        remote_rail: ends.remote_rail,
        incarnation: ends.incarnation,
    }
}

/// The events of a switch record of `pe`, with their instants, in order.
pub fn of_switch(pe: u32, record: &SwitchRecord, tell: &mut dyn FnMut(u64, Event)) {
    let place = |slot: u32| Place { peer: record.peer, channel: record.channel, slot };
    let from = route(pe, place(record.from), &record.left);
    let to = route(pe, place(record.to), &record.entered);
    let (generation, cause) = (record.generation, CauseKind::from_raw(record.cause));
    let [noticed, closed, fenced, cut, replayed, opened] = record.stamps;
    // A stage that was not reached has the stamp of an older switch, or none.
    let reached = |stamp: u64| stamp >= noticed && stamp <= opened;
    let name = cause.name();
    tell(noticed, Event::SwitchNoticed { at: from, generation, cause: name, syndrome: record.syndrome });
    if cause == CauseKind::Overdue {
        tell(noticed, Event::Suspected { at: from });
    }
    if reached(closed) {
        tell(closed, Event::SwitchClosed { at: from, generation });
    }
    if reached(fenced) {
        tell(fenced, Event::SwitchFenced { at: from, generation });
    }
    if reached(cut) && cut >= fenced {
        let (done, executed, journal_end) = (record.done_at_close, record.executed, record.journal_end);
        let ledger = record.ledger != 0;
        tell(cut, Event::SwitchCut { at: from, generation, done, executed, journal_end, ledger });
    }
    let again = record.journal_end.saturating_sub(record.executed.max(record.done_at_close));
    let dead = record.kind == SwitchKind::Dead as u32;
    if reached(replayed) && replayed >= cut && !dead {
        tell(replayed, Event::SwitchReplayed { at: to, generation, replayed: again });
    }
    let since = |from: u64, to: u64| to.saturating_sub(from.max(noticed));
    let end = match record.kind {
        kind if kind == SwitchKind::Failover as u32 => Event::Failover {
            from,
            to,
            generation,
            cause: name,
            fence_ns: since(noticed, fenced),
            cut_ns: since(fenced, cut),
            replay_ns: since(cut, replayed),
            open_ns: since(replayed, opened),
            replayed: again,
        },
        kind if kind == SwitchKind::SwitchBack as u32 => Event::SwitchBack {
            from,
            to,
            generation,
            drain_ns: since(noticed, fenced),
            flush_ns: since(fenced, cut),
            open_ns: since(cut, opened),
        },
        _ => Event::ChannelDead { at: from, cause: name, syndrome: record.syndrome, unfinished: again },
    };
    tell(opened, end);
}

/// The event of a step record.
pub fn of_step(channels_per_pe: u32, record: &StepRecord) -> Event {
    let per = channels_per_pe.max(1);
    Event::Step {
        peer: record.row / per,
        channel: record.row % per,
        step: step_name(record.step),
        from: record.from,
        to: record.to,
        cause: CauseKind::from_raw(record.cause).name(),
    }
}

/// The step in one word.
fn step_name(raw: u32) -> &'static str {
    match Step::from_raw(raw) {
        Step::Idle => "open",
        Step::Settle => "settle",
        Step::Fence => "fence",
        Step::Choose => "choose",
        Step::Ledger => "ledger",
        Step::Replay => "replay",
        Step::Drain => "drain",
        Step::DrainFlush => "drain-flush",
        Step::Uncertain => "uncertain",
        Step::Dead => "dead",
    }
}
