//! Who watches a PE: timeline, metrics, status page, an operator's orders.

use super::{Agent, hand_on, status};
use crate::agent::status_page::StatusBoard;
use crate::agent::words::Place;
use crate::events::page::zeroed;
use crate::events::{Metrics, Sink, Watching};
use crate::nanos::Nanos;
use std::sync::Arc;

impl Agent {
    /// Lets others watch this PE, as `watching` asks for; `metrics` are those of the process. What cannot be had is
    /// said, and the job goes on.
    pub fn be_watched(&mut self, now: Nanos, watching: &Watching, metrics: Option<&Arc<Metrics>>) {
        let (pe, pes) = (self.words().root().my_pe, self.words().root().pe_count);
        if let Some(timeline) = watching.timeline(pe, Some(status::unix_ahead_ns(now))) {
            self.add_sink(Box::new(timeline));
        }
        let metrics = metrics.map(|metrics| metrics.of_pe(pe, pes));
        if let Some(metrics) = metrics.clone() {
            for rail in &self.recovery.engine.rails {
                // It may wait for its NIC: who scrapes does that, in a thread of its own, and keeps nothing alive.
                let nic = Arc::downgrade(&rail.devx);
                metrics.count_traffic(rail.index, &rail.name, move || nic.upgrade()?.traffic());
            }
            self.add_sink(Box::new(metrics) as Box<dyn Sink>);
        }
        hand_on::say_paths(&mut self.recovery, now);
        let mut image = zeroed();
        status::fill_head(&self.recovery, &mut image, &watching.job);
        status::fill(&self.recovery, &self.agreement, now, &mut image);
        if let Some(board) = StatusBoard::open(watching, metrics, image) {
            self.board = Some(Box::new(board));
            self.refresh_board(now);
        }
    }

    /// The operator's orders, if there are any.
    pub(super) fn hear_operator(&mut self, now: Nanos) {
        let Some(board) = self.board.take() else { return };
        board.hear(|order| {
            let order = order?;
            self.recovery.note(now, format!("the operator orders: {order}"));
            self.obey(now, order)
        });
        self.board = Some(board);
    }

    /// Brings the board up to date, if it is time.
    pub(super) fn refresh_board(&mut self, now: Nanos) {
        let Some(board) = self.board.as_mut() else { return };
        let (recovery, agreement) = (&self.recovery, &self.agreement);
        let reporter = &recovery.channels.reporter;
        let ((told, _), trouble) = (reporter.counts(), reporter.trouble_since().is_some());
        board.refresh(now, told, trouble, |image| status::fill(recovery, agreement, now, image));
        let words = &recovery.channels.words;
        board.count(now, hand_on::rows(recovery), |row| {
            let look = words.look_at(row);
            let (peer, channel) = (row / words.root().channels_per_pe, row % words.root().channels_per_pe);
            let rail = || words.read_row(Place { peer, channel, slot: look.slot }).identity.local_rail;
            (look.posted, rail())
        });
    }
}
