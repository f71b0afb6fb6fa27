//! The status page and the metrics of a PE: an image that is brought up to date when something was told, and stamped
//! with the time otherwise.

use crate::events::control::{Control, Order};
use crate::events::page::PageWriter;
use crate::events::{PeMetrics, Watching};
use crate::nanos::Nanos;
use shunt_layout::status::StatusPage;
use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// Time between two stamps of a page on which nothing was told to change. Channels are looked at then as well: what a
/// switch meets is told once it is over, and one that finds no path is not over.
const STAMP: Nanos = Nanos::millis(100);
/// Time between two looks over all channels at least.
const LOOK: Nanos = Nanos::millis(5);
/// Time between two counts of operations: the state of channels may lie across PCIe.
const COUNT: Nanos = Nanos::millis(1000);

/// What of a PE others look at.
pub(super) struct StatusBoard {
    /// Where an operator's orders are heard.
    control: Option<Control>,
    page: Option<PageWriter>,
    metrics: Option<PeMetrics>,
    image: Box<StatusPage>,
    /// Events told when it was last brought up to date.
    seen: u64,
    next_look: Nanos,
    next_stamp: Nanos,
    next_count: Nanos,
    /// By row of the channels: tickets that were counted.
    counted: HashMap<u32, u64>,
}

/// Nanoseconds of the wall clock.
pub(super) fn unix_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// Text into a field of zeros, cut to what it holds with one behind it.
pub(super) fn put_text<const N: usize>(to: &mut [u8; N], text: &str) {
    let bytes = text.as_bytes();
    let length = bytes.len().min(N - 1);
    to[..length].copy_from_slice(&bytes[..length]);
}

impl StatusBoard {
    /// The board that somebody asked for, if anybody did. What cannot be had is said, and the job goes on.
    pub(super) fn open(
        watching: &Watching,
        metrics: Option<PeMetrics>,
        image: Box<StatusPage>,
    ) -> Option<Self> {
        let page = watching.status.as_ref().and_then(|folder| match PageWriter::create(folder, &image) {
            Ok(page) => Some(page),
            Err(error) => {
                crate::events::say(&format!("no status page: {error}"));
                None
            }
        });
        let control = page.as_ref().and_then(|page| match Control::open(page.path()) {
            Ok(control) => Some(control),
            Err(error) => {
                crate::events::say(&format!("no orders: {error}"));
                None
            }
        });
        let (next_look, next_stamp) = (Nanos::ZERO, Nanos::ZERO);
        let wanted = page.is_some() || metrics.is_some();
        let (seen, next_count, counted) = (u64::MAX, Nanos::ZERO, HashMap::new());
        wanted.then_some(Self {
            control,
            page,
            metrics,
            image,
            seen,
            next_look,
            next_stamp,
            next_count,
            counted,
        })
    }

    /// Hears an operator's order, if there is one, and answers with what `obey` says of it.
    pub(super) fn hear(&self, obey: impl FnOnce(Result<Order, String>) -> Result<String, String>) {
        let Some(control) = &self.control else { return };
        if let Some((order, from)) = control.next_order() {
            control.answer(&from, &obey(order));
        }
    }

    /// Counts operations by rail for the metrics, if there are any and it is time: `look` tells of a row how many
    /// tickets were handed out, and the rail in use.
    pub(super) fn count(
        &mut self,
        now: Nanos,
        rows: impl Iterator<Item = u32>,
        look: impl Fn(u32) -> (u64, u32),
    ) {
        let Some(metrics) = self.metrics.as_ref().filter(|_| now >= self.next_count) else { return };
        self.next_count = now + COUNT;
        for row in rows {
            let (posted, rail) = look(row);
            let before = self.counted.entry(row).or_insert(0);
            let more = posted.saturating_sub(*before); // who saw it earlier may have written later
            *before += more;
            metrics.count_operations(rail, more);
        }
    }

    /// Brings it up to date, if it is time: `told` events were told so far, there is `trouble` or not. `fill` writes
    /// everything that changes.
    pub(super) fn refresh(
        &mut self,
        now: Nanos,
        told: u64,
        trouble: bool,
        fill: impl FnOnce(&mut StatusPage),
    ) {
        let stamp = now >= self.next_stamp;
        let look = stamp || ((told != self.seen || trouble) && now >= self.next_look);
        if !look {
            return;
        }
        self.next_stamp = now + STAMP;
        self.image.summary.updated_unix_ns = unix_ns();
        self.seen = told;
        self.next_look = now + LOOK;
        fill(&mut self.image);
        if let Some(metrics) = &mut self.metrics {
            metrics.update(&self.image);
        }
        if let Some(page) = &mut self.page {
            page.publish(&self.image);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::page::zeroed;

    #[test]
    fn text_is_cut_with_a_zero_behind_it() {
        let mut field = [0; 4];
        put_text(&mut field, "abcdef");
        assert_eq!(field, *b"abc\0");
    }

    #[test]
    fn it_looks_when_something_was_told_or_is_wrong_and_not_too_often() {
        let (control, page, metrics, image) = (None, None, None, zeroed());
        let (next_look, next_stamp) = (Nanos::ZERO, Nanos::ZERO);
        let (seen, next_count, counted) = (u64::MAX, Nanos::ZERO, HashMap::new());
        let mut board =
            StatusBoard { control, page, metrics, image, seen, next_look, next_stamp, next_count, counted };
        let mut filled = |now, told, trouble| {
            let mut any = false;
            board.refresh(now, told, trouble, |_| any = true);
            any
        };
        assert!(filled(Nanos::ZERO, 0, false), "the first look");
        assert!(!filled(LOOK, 0, false), "nothing was told");
        assert!(filled(LOOK, 1, false) && !filled(LOOK, 2, false), "too early");
        assert!(filled(LOOK * 2, 2, false) && filled(LOOK * 3, 2, true), "there is trouble");
        assert!(
            !filled(LOOK * 4, 2, false) && filled(LOOK * 3 + STAMP, 2, false),
            "a switch that tells nothing"
        );
    }
}
