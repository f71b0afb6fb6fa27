//! The status page and the metrics of a PE, kept up to date by its agent: a look over all channels when something was
//! told, a stamp of time otherwise.

use super::Agent;
use super::agree::as_told;
use super::words::Place;
use crate::events::control::Control;
use crate::events::page::{PageWriter, zeroed};
use crate::events::{Metrics, PeMetrics, Sink, Watching};
use shunt_layout::state::{PathState, Step, SwitchKind, SwitchRecord};
use shunt_layout::status::{
    PeerState, RailState, STATUS_PEERS, STATUS_RAILS, STATUS_VERSION, Standing, StatusFault, StatusPage,
};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Time between two stamps of a page on which nothing changes.
const STAMP_NS: u64 = 100_000_000;
/// Time between two looks over all channels at least.
const LOOK_NS: u64 = 5_000_000;

/// What of a PE others look at.
pub(super) struct Board {
    /// Where an operator's orders are heard.
    control: Option<Control>,
    page: Option<PageWriter>,
    metrics: Option<PeMetrics>,
    image: Box<StatusPage>,
    /// Events told when it was last brought up to date.
    seen: u64,
    next_look_ns: u64,
    next_stamp_ns: u64,
}

/// The wall clock.
fn unix_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// Text into a field, cut to what it holds with a zero behind it.
fn put_text<const N: usize>(to: &mut [u8; N], text: &str) {
    let bytes = text.as_bytes();
    let length = bytes.len().min(N - 1);
    to[..length].copy_from_slice(&bytes[..length]);
}

impl Agent {
    /// Lets others watch this PE, as `watching` asks for; `metrics` are those of the process. What cannot be had is
    /// said, and the job goes on.
    pub fn be_watched(&mut self, watching: &Watching, metrics: Option<&Arc<Metrics>>) {
        let root = self.words.root();
        let (pe, pes) = (root.my_pe, root.pe_count);
        if let Some(timeline) = watching.timeline(pe, Some(self.unix_ahead_ns())) {
            self.add_sink(Box::new(timeline));
        }
        let metrics = metrics.map(|metrics| metrics.of_pe(pe, pes));
        if let Some(metrics) = metrics.clone() {
            self.add_sink(Box::new(metrics) as Box<dyn Sink>);
        }
        let mut image = zeroed();
        self.fill_head(&mut image, &watching.job);
        self.fill(&mut image);
        let page = watching.status.as_ref().and_then(|folder| match PageWriter::create(folder, &image) {
            Ok(page) => Some(page),
            Err(error) => {
                crate::events::say(&format!("no status page: {error}"));
                None
            }
        });
        if page.is_some() || metrics.is_some() {
            let control = page.as_ref().and_then(|page| match Control::open(page.path()) {
                Ok(control) => Some(control),
                Err(error) => {
                    crate::events::say(&format!("no orders: {error}"));
                    None
                }
            });
            let board =
                Board { control, page, metrics, image, seen: u64::MAX, next_look_ns: 0, next_stamp_ns: 0 };
            self.news.board = Some(Box::new(board));
            self.refresh_board();
        }
    }

    /// The operator's orders, if there are any.
    pub(super) fn hear_operator(&mut self) {
        let Some(board) = &self.news.board else { return };
        let Some((order, from)) = board.control.as_ref().and_then(Control::next_order) else { return };
        let answer = order.and_then(|order| {
            self.note(format!("the operator orders: {order}"));
            self.obey(order)
        });
        if let Some(control) = self.news.board.as_ref().and_then(|board| board.control.as_ref()) {
            control.answer(&from, &answer);
        }
    }

    /// What the wall clock is ahead of this PE's.
    fn unix_ahead_ns(&self) -> u64 {
        unix_ns().wrapping_sub(self.now())
    }

    /// Brings the board up to date, if it is time.
    pub(super) fn refresh_board(&mut self) {
        let Some(mut board) = self.news.board.take() else { return };
        let (now, told) = (self.now(), self.news.log.told());
        let trouble = self.news.log.trouble_since().is_some();
        let look = (told != board.seen || trouble) && now >= board.next_look_ns;
        if look || now >= board.next_stamp_ns {
            board.next_stamp_ns = now.saturating_add(STAMP_NS);
            board.image.summary.updated_unix_ns = unix_ns();
            if look {
                board.seen = told;
                board.next_look_ns = now.saturating_add(LOOK_NS);
                self.fill(&mut board.image);
                if let Some(metrics) = &mut board.metrics {
                    metrics.update(&board.image);
                }
            }
            if let Some(page) = &mut board.page {
                page.publish(&board.image);
            }
        }
        self.news.board = Some(board);
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
    fn fill(&self, page: &mut StatusPage) {
        let ahead = self.unix_ahead_ns();
        let wall = |at_ns: u64| at_ns.wrapping_add(ahead);
        let root = self.words.root();
        page.summary.events = self.news.log.told();
        page.summary.events_lost = self.news.lost;
        page.summary.trouble_unix_ns = self.news.log.trouble_since().map_or(0, wall);
        page.summary.rails_down = 0;
        for (rail, row) in page.rail.iter_mut().enumerate().take(page.rails as usize) {
            let (down, downs, changed_ns) = self.ports.told(rail);
            row.state = if down { RailState::Down } else { RailState::Up } as u32;
            page.summary.rails_down += down as u32;
            (row.downs, row.changed_unix_ns) = (downs, if changed_ns == 0 { 0 } else { wall(changed_ns) });
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
        if let Some(fault) = &self.news.last_fault {
            page.summary.last_fault = StatusFault { noticed_unix_ns: wall(fault.noticed_unix_ns), ..*fault };
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

/// The fault of a record, with the PE's own clock; none for a switch-back.
pub(super) fn fault_of(record: &SwitchRecord) -> Option<StatusFault> {
    let [noticed, .., opened] = record.stamps;
    (record.kind != SwitchKind::SwitchBack as u32).then_some(StatusFault {
        noticed_unix_ns: noticed,
        lasted_ns: opened.saturating_sub(noticed),
        peer: record.peer,
        channel: record.channel,
        local_rail: record.left.local_rail,
        remote_rail: record.left.remote_rail,
        cause: record.cause,
        syndrome: record.syndrome,
        kind: record.kind,
        reserved: 0,
    })
}
