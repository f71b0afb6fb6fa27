//! What is said while a run is under way: on stderr, and only to a terminal.

use crate::job::book::Book;
use crate::kernel::Control;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use shunt_figures::say;
use shunt_figures::timeline::{BIN_NS, gb_s};

/// Bins the rate shown is the mean of.
const RECENT: usize = 20;

/// Between two tables of counters while a run is watched.
const COUNTERS_NS: u64 = 1_000_000_000;

/// A bar over the stream's time. Hidden where stderr is no terminal, or on request.
pub struct Progress {
    bar: ProgressBar,
    quiet: bool,
    /// Every switch as it happens, and the rails' counters.
    watch: bool,
    /// Switches shown so far.
    shown: usize,
    /// When counters are shown next.
    next_counters_ns: u64,
}

impl Progress {
    /// A bar on stderr; `watch` for switches and counters on stdout.
    pub fn shown(watch: bool) -> Self {
        Self::new(ProgressDrawTarget::stderr(), false, watch)
    }

    /// Says nothing.
    pub fn hidden() -> Self {
        Self::new(ProgressDrawTarget::hidden(), true, false)
    }

    fn new(target: ProgressDrawTarget, quiet: bool, watch: bool) -> Self {
        let style = ProgressStyle::with_template("{bar:40} {pos}/{len} ms  {msg}");
        let bar = ProgressBar::with_draw_target(Some(0), target);
        let bar = bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self { bar, quiet, watch, shown: 0, next_counters_ns: COUNTERS_NS }
    }

    /// Shows where the stream is.
    pub fn tick(&mut self, now_ns: u64, control: &Control, book: &Book) {
        let ms = |ns: u64| ns / 1_000_000;
        let elapsed = now_ns.saturating_sub(control.start_ns);
        if self.watch {
            self.watch(elapsed, book);
        }
        let length = control.stop_ns() - control.start_ns;
        self.bar.set_length(ms(length));
        self.bar.set_position(ms(elapsed.min(length)));
        if elapsed > length {
            self.bar.set_message("draining");
            return;
        }
        if self.bar.is_hidden() {
            return;
        }
        let bins = book.bins();
        let end = (elapsed / BIN_NS) as usize;
        let recent = &bins[end.saturating_sub(RECENT).min(bins.len())..end.min(bins.len())];
        let bytes = recent.iter().sum();
        self.bar.set_message(format!("{:.3} GB/s", gb_s(bytes, recent.len() as u64 * BIN_NS)));
    }

    fn watch(&mut self, elapsed_ns: u64, book: &Book) {
        self.switches(book);
        if elapsed_ns >= self.next_counters_ns {
            self.next_counters_ns += COUNTERS_NS;
            let at = elapsed_ns / 1_000_000;
            self.bar.suspend(|| {
                say!("at {at} ms");
                counters(book);
            });
        }
    }

    /// Switches that were not shown yet.
    fn switches(&mut self, book: &Book) {
        if self.shown < book.switches() {
            let lines = book.lines_from(self.shown);
            self.shown = book.switches();
            self.bar.suspend(|| {
                lines.iter().for_each(|line| say!("at {:.1} ms  {line}", line.opened_ns as f64 / 1e6))
            });
        }
    }

    /// The stream is over.
    pub fn finish(&mut self, book: &Book) {
        self.bar.finish_and_clear();
        if self.watch {
            self.switches(book);
            counters(book);
        }
        if book.records_lost() > 0 && !self.quiet {
            shunt_host::complain!(
                "{} switch records were overwritten before they were read; the counts are whole",
                book.records_lost()
            );
        }
    }
}

/// Every rail's counters.
fn counters(book: &Book) {
    say!(
        "{:<6} {:>12} {:>12} {:>16} {:>10} {:>8} {:>8}",
        "rail",
        "packets tx",
        "packets rx",
        "bytes tx",
        "resent",
        "naks",
        "dropped"
    );
    let shown = |count: Option<u64>| count.map_or("-".to_owned(), |count| count.to_string());
    for (at, c) in book.counters() {
        say!(
            "{:<6} {:>12} {:>12} {:>16} {:>10} {:>8} {:>8}",
            at.to_string(),
            shown(c.packets_tx),
            shown(c.packets_rx),
            shown(c.bytes_tx),
            shown(c.resent),
            shown(c.naks),
            shown(c.dropped)
        );
    }
}
