//! What is said while a run is under way: on stderr, and only to a terminal. And how lines are printed.

use crate::kernel::Control;
use crate::timeline::{BIN_NS, Timeline, gb_s};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use shunt_soft_nic::{Counters, RailAt};
use std::io::{ErrorKind, Write};
use std::sync::OnceLock;

/// The first line that could not be printed, and why.
static LOST_LINE: OnceLock<String> = OnceLock::new();

/// Prints a line to stdout. A run is not given up for that; [`stdout_error`] tells at the end.
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write;
        $crate::progress::note(writeln!(std::io::stdout(), $($text)*));
    }};
}
pub(crate) use say;

/// Keeps the first error. A reader that went away is none: the exit status still tells it.
pub(crate) fn note(written: std::io::Result<()>) {
    if let Err(error) = written
        && error.kind() != ErrorKind::BrokenPipe
    {
        let _ = LOST_LINE.set(error.to_string());
    }
}

/// What went wrong on stdout, once everything is said.
pub fn stdout_error() -> Option<&'static str> {
    note(std::io::stdout().flush());
    LOST_LINE.get().map(String::as_str)
}

/// Bins the rate shown is the mean of.
const RECENT: usize = 20;

/// A bar over the stream's time. Hidden where stderr is no terminal, or on request.
pub struct Progress {
    bar: ProgressBar,
    quiet: bool,
}

impl Progress {
    /// A bar on stderr.
    pub fn shown() -> Self {
        Self::new(ProgressDrawTarget::stderr(), false)
    }

    /// Says nothing.
    pub fn hidden() -> Self {
        Self::new(ProgressDrawTarget::hidden(), true)
    }

    fn new(target: ProgressDrawTarget, quiet: bool) -> Self {
        let style = ProgressStyle::with_template("{bar:40} {pos}/{len} ms  {msg}");
        let bar = ProgressBar::with_draw_target(Some(0), target);
        Self { bar: bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())), quiet }
    }

    /// Shows where the stream is.
    pub fn tick(&self, now_ns: u64, control: &Control, timeline: &Timeline) {
        let ms = |ns: u64| ns / 1_000_000;
        let elapsed = now_ns.saturating_sub(control.start_ns);
        let length = control.stop_ns - control.start_ns;
        self.bar.set_length(ms(length));
        self.bar.set_position(ms(elapsed.min(length)));
        if elapsed > length {
            self.bar.set_message("draining");
            return;
        }
        let bins = timeline.bytes();
        let end = (elapsed / BIN_NS) as usize;
        let recent = &bins[end.saturating_sub(RECENT).min(bins.len())..end.min(bins.len())];
        let bytes = recent.iter().sum();
        self.bar.set_message(format!("{:.3} GB/s", gb_s(bytes, recent.len() as u64 * BIN_NS)));
    }

    /// The stream is over.
    pub fn finish(&self, records_lost: u64) {
        self.bar.finish_and_clear();
        if records_lost > 0 && !self.quiet {
            eprintln!(
                "{records_lost} switch records were overwritten before they were read; the counts are whole"
            );
        }
    }

    /// Every rail's counters.
    pub fn counters(&self, counters: &[(RailAt, Counters)]) {
        if self.quiet {
            return;
        }
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
        for (at, c) in counters {
            say!(
                "{:<6} {:>12} {:>12} {:>16} {:>10} {:>8} {:>8}",
                format!("{}.{}", at.pe, at.rail),
                c.packets_tx,
                c.packets_rx,
                c.bytes_tx,
                c.retransmits,
                c.naks,
                c.dropped
            );
        }
    }
}
