//! What the status page shows of a PE. When it does is in `status_page.rs`.

use super::Agent;
use super::membership::as_told;
use crate::agent::status_page::{StatusBoard, put_text, unix_ns};
use crate::agent::words::Place;
use crate::events::page::zeroed;
use crate::events::{Metrics, Sink, Watching};
use crate::nanos::Nanos;
use shunt_layout::state::{PathState, Step};
use shunt_layout::status::{
    PeerState, RailState, STATUS_PEERS, STATUS_RAILS, STATUS_VERSION, Standing, StatusFault, StatusPage,
};
use std::sync::Arc;

impl Agent {
    /// Lets others watch this PE, as `watching` asks for; `metrics` are those of the process. What cannot be had is
    /// said, and the job goes on.
    pub fn be_watched(&mut self, now: Nanos, watching: &Watching, metrics: Option<&Arc<Metrics>>) {
        let root = self.words.root();
        let (pe, pes) = (root.my_pe, root.pe_count);
        if let Some(timeline) = watching.timeline(pe, Some(Self::unix_ahead_ns(now))) {
            self.add_sink(Box::new(timeline));
        }
        let metrics = metrics.map(|metrics| metrics.of_pe(pe, pes));
        if let Some(metrics) = metrics.clone() {
            self.add_sink(Box::new(metrics) as Box<dyn Sink>);
        }
        let mut image = zeroed();
        self.fill_head(&mut image, &watching.job);
        self.fill(now, &mut image);
        if let Some(board) = StatusBoard::open(watching, metrics, image) {
            self.board = Some(Box::new(board));
            self.refresh_board(now);
        }
    }

    /// The operator's orders, if there are any.
    pub(in crate::agent) fn hear_operator(&mut self, now: Nanos) {
        let Some(board) = self.board.take() else { return };
        board.hear(|order| {
            let order = order?;
            self.note(now, format!("the operator orders: {order}"));
            self.obey(now, order)
        });
        self.board = Some(board);
    }

    /// What the wall clock is ahead of this PE's.
    fn unix_ahead_ns(now: Nanos) -> u64 {
        unix_ns().wrapping_sub(now.get())
    }

    /// Brings the board up to date, if it is time.
    pub(in crate::agent) fn refresh_board(&mut self, now: Nanos) {
        let Some(mut board) = self.board.take() else { return };
        let ((told, _), trouble) = (self.reporter.counts(), self.reporter.trouble_since().is_some());
        board.refresh(now, told, trouble, |image| self.fill(now, image));
        self.board = Some(board);
    }

    fn fill_head(&self, page: &mut StatusPage, job: &str) {
        let root = self.words.root();
        page.version = STATUS_VERSION;
        page.bytes = size_of::<StatusPage>() as u32;
        page.pid = std::process::id();
        (page.pe, page.pe_count) = (root.my_pe, root.pe_count.min(STATUS_PEERS as u32));
        page.rails = self.rails.len().min(STATUS_RAILS) as u32;
        page.started_unix_ns = unix_ns();
        put_text(&mut page.job, job);
        for (rail, row) in self.rails.iter().zip(&mut page.rail) {
            put_text(&mut row.name, &rail.name);
        }
    }

    /// Everything that changes.
    fn fill(&self, now: Nanos, page: &mut StatusPage) {
        let ahead = Self::unix_ahead_ns(now);
        let wall = |at_ns: u64| at_ns.wrapping_add(ahead);
        let root = self.words.root();
        (page.summary.events, page.summary.events_lost) = self.reporter.counts();
        page.summary.trouble_unix_ns = self.reporter.trouble_since().map_or(0, wall);
        page.summary.rails_down = 0;
        for (rail, row) in page.rail.iter_mut().enumerate().take(page.rails as usize) {
            let (down, downs, changed_ns) = self.ports.told(rail);
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
        self.fill_mask(page);
        page.peer = [0; STATUS_PEERS];
        let mut thin = false;
        for row in 0..root.pe_count * root.channels_per_pe {
            let peer = row / root.channels_per_pe;
            if peer != root.my_pe {
                thin |= self.fill_row(page, row, peer);
            }
        }
        page.summary.worst_peer = page.peer.iter().copied().max().unwrap_or(0).into();
        if !thin && page.summary.armed_unix_ns == 0 {
            page.summary.armed_unix_ns = unix_ns();
        }
        if let Some(fault) = self.reporter.last_fault() {
            page.summary.last_fault = StatusFault { noticed_unix_ns: wall(fault.noticed_unix_ns), ..fault };
        }
    }

    /// Who is left out, where somebody asked for it.
    fn fill_mask(&self, page: &mut StatusPage) {
        let ranks = &self.agreement.ranks;
        if !ranks.is_asked() {
            return;
        }
        let agreed = ranks.agreed();
        (page.summary.epoch, page.summary.masked) = (agreed.epoch, agreed.mask.count());
        page.summary.standing = as_told(agreed.standing) as u32;
        page.mask.iter_mut().zip(agreed.mask.words()).for_each(|(to, word)| *to = *word);
    }

    /// One channel. True if one of its paths is not ready.
    fn fill_row(&self, page: &mut StatusPage, row: u32, peer: u32) -> bool {
        let root = self.words.root();
        let (sum, look) = (&mut page.summary, self.words.look_at(row));
        let channel = row % root.channels_per_pe;
        let mut states = (0..root.slots).map(|slot| self.words.path_state(Place { peer, channel, slot }));
        let thin =
            states.any(|state| !matches!(state, PathState::Ready | PathState::Absent | PathState::Retired));
        let state = match look.step {
            Step::Dead => PeerState::Lost,
            Step::Idle if look.slot != 0 => PeerState::Backup,
            Step::Idle if thin => PeerState::Thin,
            Step::Idle => PeerState::Fine,
            _ if look.pathless => PeerState::Pathless,
            _ => PeerState::Switching,
        };
        sum.channels += 1;
        sum.dead += (state == PeerState::Lost) as u32;
        sum.on_backup += (state == PeerState::Backup) as u32;
        sum.switching += matches!(state, PeerState::Switching | PeerState::Pathless) as u32;
        let (failovers, switchbacks) = self.words.generations(row);
        sum.failovers += failovers;
        sum.switchbacks += switchbacks;
        let tally = self.words.tally(row);
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
}
