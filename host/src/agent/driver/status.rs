//! What the status page shows of a PE. When it does is in `status_page.rs`.

use super::membership::as_told;
use crate::agent::agreement::Agreement;
use crate::agent::recovery::Recovery;
use crate::agent::status_page::{put_text, unix_ns};
use crate::agent::words::Place;
use crate::nanos::Nanos;
use shunt_layout::state::{PathState, Step};
use shunt_layout::status::{
    PeerState, RailState, STATUS_PEERS, STATUS_RAILS, STATUS_VERSION, Standing, StatusFault, StatusPage,
};

/// What the wall clock is ahead of this PE's.
pub(super) fn unix_ahead_ns(now: Nanos) -> u64 {
    unix_ns().wrapping_sub(now.get())
}

/// What does not change.
pub(super) fn fill_head(recovery: &Recovery, page: &mut StatusPage, job: &str) {
    let root = recovery.channels.words.root();
    page.version = STATUS_VERSION;
    page.bytes = size_of::<StatusPage>() as u32;
    page.pid = std::process::id();
    (page.pe, page.pe_count) = (root.my_pe, root.pe_count.min(STATUS_PEERS as u32));
    page.rails = recovery.engine.rails.len().min(STATUS_RAILS) as u32;
    page.started_unix_ns = unix_ns();
    put_text(&mut page.job, job);
    for (rail, row) in recovery.engine.rails.iter().zip(&mut page.rail) {
        put_text(&mut row.name, &rail.name);
    }
}

/// Everything that changes.
pub(super) fn fill(recovery: &Recovery, agreement: &Agreement, now: Nanos, page: &mut StatusPage) {
    let ahead = unix_ahead_ns(now);
    let wall = |at_ns: u64| at_ns.wrapping_add(ahead);
    let root = recovery.channels.words.root();
    (page.summary.events, page.summary.events_lost) = recovery.channels.reporter.counts();
    page.summary.trouble_unix_ns = recovery.channels.reporter.trouble_since().map_or(0, wall);
    page.summary.rails_down = 0;
    for (rail, row) in page.rail.iter_mut().enumerate().take(page.rails as usize) {
        let (down, downs, changed_ns) = recovery.engine.ports.told(rail);
        (row.retired, row.leaving) = (0, 0);
        row.state = if down { RailState::Down } else { RailState::Up } as u32;
        page.summary.rails_down += down as u32;
        (row.downs, row.changed_unix_ns) =
            (downs, if changed_ns == Nanos::ZERO { 0 } else { wall(changed_ns.get()) });
    }
    let fresh = shunt_layout::status::StatusSummary {
        updated_unix_ns: page.summary.updated_unix_ns,
        trouble_unix_ns: page.summary.trouble_unix_ns,
        armed_unix_ns: page.summary.armed_unix_ns,
        rails_down: page.summary.rails_down,
        events: page.summary.events,
        events_lost: page.summary.events_lost,
        standing: Standing::Off as u32,
        ..Default::default()
    };
    page.summary = fresh;
    fill_mask(agreement, page);
    page.peer = [0; STATUS_PEERS];
    let mut thin = false;
    for row in 0..root.pe_count * root.channels_per_pe {
        let peer = row / root.channels_per_pe;
        if peer != root.my_pe {
            thin |= fill_row(recovery, page, row, peer);
        }
    }
    page.summary.worst_peer = page.peer.iter().copied().max().unwrap_or(0).into();
    if !thin && page.summary.armed_unix_ns == 0 {
        page.summary.armed_unix_ns = unix_ns();
    }
    if let Some(fault) = recovery.channels.reporter.last_fault() {
        page.summary.last_fault = StatusFault { noticed_unix_ns: wall(fault.noticed_unix_ns), ..fault };
    }
}

/// Who is left out, where somebody asked for it.
fn fill_mask(agreement: &Agreement, page: &mut StatusPage) {
    let ranks = &agreement.ranks;
    if !ranks.is_asked() {
        return;
    }
    let agreed = ranks.agreed();
    (page.summary.epoch, page.summary.masked) = (agreed.epoch, agreed.mask.count());
    page.summary.standing = as_told(agreed.standing) as u32;
    page.mask.iter_mut().zip(agreed.mask.words()).for_each(|(to, word)| *to = *word);
}

/// One channel. True if one of its paths is not ready.
fn fill_row(recovery: &Recovery, page: &mut StatusPage, row: u32, peer: u32) -> bool {
    let root = recovery.channels.words.root();
    let (sum, look) = (&mut page.summary, recovery.channels.words.look_at(row));
    let channel = row % root.channels_per_pe;
    let mut thin = false;
    for at in (0..root.slots).map(|slot| Place { peer, channel, slot }) {
        let state = recovery.channels.words.path_state(at);
        thin |= !matches!(state, PathState::Ready | PathState::Absent | PathState::Retired);
        if matches!(state, PathState::Retired | PathState::Leaving) {
            let rail = recovery.channels.words.read_row(at).identity.local_rail;
            if let Some(rail) = page.rail.get_mut(rail as usize) {
                let count = if state == PathState::Retired { &mut rail.retired } else { &mut rail.leaving };
                *count += 1;
            }
        }
    }
    let state = match look.step {
        Step::Dead => PeerState::Lost,
        Step::Idle if !recovery.channels.words.is_first_in(row, look.slot) => PeerState::Backup,
        Step::Idle if thin => PeerState::Thin,
        Step::Idle => PeerState::Fine,
        _ if look.pathless => PeerState::Pathless,
        _ => PeerState::Switching,
    };
    sum.channels += 1;
    sum.dead += (state == PeerState::Lost) as u32;
    sum.on_backup += (state == PeerState::Backup) as u32;
    sum.switching += matches!(state, PeerState::Switching | PeerState::Pathless) as u32;
    let (failovers, switchbacks) = recovery.channels.words.generations(row);
    sum.failovers += failovers;
    sum.switchbacks += switchbacks;
    let tally = recovery.channels.words.tally(row);
    sum.suspicions += tally.suspicions;
    sum.fences_asked += tally.fences_asked;
    sum.replayed += tally.replayed;
    sum.placeholders += tally.placeholders;
    sum.late_tickets += tally.late_tickets;
    sum.ledger_cuts += tally.ledger_cuts;
    sum.pathless += tally.pathless;
    sum.uncertain += tally.uncertain;
    if let Some(worst) = page.peer.get_mut(peer as usize) {
        *worst = (*worst).max(state as u8);
    }
    thin
}
