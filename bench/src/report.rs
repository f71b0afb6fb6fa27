//! The result: figures, verdict, exit status, and the one JSON object.

use crate::nics::Medium;
use crate::options::DeviceKind;
use crate::table::Row;
use schemars::JsonSchema;
use serde::Serialize;
use shunt_figures::lines::{Bin, FaultLine};
use shunt_figures::plot::Picture;
use shunt_figures::rail_stats::{Phase, RailLine, Spread};
use shunt_figures::switch_table::SwitchLine;
use shunt_figures::timeline::{BIN_NS, WARM_UP_NS, gb_s, median_gb_s};
use shunt_json::Kind;
use shunt_layout::mlx5::cqe::Syndrome;
use shunt_layout::state::SwitchKind;
use std::fmt;

/// What a run counted, before it is judged. Times are nanoseconds since the start of the stream unless named otherwise.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Payload bytes handed to the library.
    pub bytes_posted: u64,
    /// Payload bytes found whole at the receivers.
    pub bytes_delivered: u64,
    /// Puts that were posted and are not whole at their receiver.
    pub puts_lost: u64,
    /// Signals posted, credits not among them.
    pub signals_posted: u64,
    /// Signals whose value their word took; where placements are not counted, those up to the value that was seen.
    pub signals_applied: u64,
    /// Signal placements that did not make their word larger, as far as they can be known.
    pub signals_duplicated: u64,
    /// Signal values that were never posted.
    pub signals_wild: u64,
    /// Operations reported as uncertain.
    pub uncertain: u64,
    /// Fetched values that are not what the word had held.
    pub misread: u64,
    /// Puts that were not whole when their signal was visible, and became so later.
    pub order_violations: u64,
    /// Slots that changed while nobody was allowed to write them.
    pub ghost_writes: u64,
    /// Generations opened because of a fault, over all channels of all PEs.
    pub failovers: u64,
    /// Generations opened by a switch-back.
    pub switchbacks: u64,
    /// Longest time between deliveries at one receiver channel after warm-up, if it is known.
    pub max_gap_ns: Option<u64>,
}

/// Why a channel failed. Exit status 3 for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failing {
    /// Every path was tried.
    NoPath,
    /// The first cause was this syndrome: it would fail on every path alike, so the others were not tried.
    Program(Syndrome),
    /// Fault tolerance is off: nobody tried another path.
    Untolerated,
    /// A path that was left could not be proven silent: nothing may be replayed over another.
    Unfenced,
    /// A process of the job went away without its report, and no channel says so.
    Gone,
    /// Nobody can know whether an operation was applied, and the program does not guess.
    Uncertain,
}

impl Failing {
    /// In two or three words, for JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoPath => "no path left",
            Self::Program(_) => "program error",
            Self::Untolerated => "fault tolerance off",
            Self::Unfenced => "fence unproven",
            Self::Gone => "peer gone",
            Self::Uncertain => "uncertain",
        }
    }
}

impl fmt::Display for Failing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPath => f.write_str("no path left"),
            Self::Program(syndrome) => write!(
                f,
                "channel failed: program error {:#04x} ({}), not chained",
                syndrome.0,
                syndrome.meaning()
            ),
            Self::Untolerated => f.write_str("fault tolerance is off"),
            Self::Unfenced => f.write_str("channel failed: the path that was left could not be fenced"),
            Self::Gone => f.write_str("a process is gone"),
            Self::Uncertain => f.write_str("uncertain: an operation may or may not have been applied"),
        }
    }
}

/// Why a run ended early.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ended {
    /// A channel failed; the text names peer, syndrome and paths.
    #[error("{0}: {1}")]
    Failed(Failing, String),
    /// Something stood still beyond every deadline.
    #[error("{0}")]
    Stalled(String),
}

/// How a run is judged. Exit status 0, 1, 1, 3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every promise was kept and every planned fault happened.
    Clean,
    /// What was broken.
    Broken(Vec<String>),
    /// Planned faults that did nothing.
    NotExercised(Vec<String>),
    /// Why, and the peer and the syndrome.
    Failed(Failing, String),
}

impl Verdict {
    /// The process's exit status.
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Clean => 0,
            Self::Broken(_) | Self::NotExercised(_) => 1,
            Self::Failed(..) => 3,
        }
    }

    /// One word or two, for JSON.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::Broken(_) => "broken",
            Self::NotExercised(_) => "not exercised",
            Self::Failed(why, _) => why.name(),
        }
    }

    /// Weighs what was counted. A run that lost its peer is judged for that alone: what was in flight then is
    /// named by the fault, not lost silently; but what no fault excuses still counts.
    pub fn weigh(counts: &Counts, faults: &[FaultLine], ended: Option<&Ended>) -> Self {
        let mut broken = Vec::new();
        let mut name = |count: u64, what: &str| {
            if count > 0 {
                broken.push(format!("{count} {what}"));
            }
        };
        let lost_peer = matches!(ended, Some(Ended::Failed(..)));
        if !lost_peer {
            name(counts.puts_lost, "puts lost or corrupt");
            let missing = counts.signals_posted.saturating_sub(counts.signals_applied);
            name(missing, "signals not applied");
        }
        name(counts.signals_duplicated, "signals duplicated");
        name(counts.signals_wild, "signal values that were never posted");
        name(counts.order_violations, "signals visible before their puts");
        name(counts.ghost_writes, "ghost writes");
        name(counts.misread, "fetched values wrong");
        if let Some(Ended::Stalled(text)) = ended {
            broken.push(text.clone());
        }
        if !broken.is_empty() {
            return Self::Broken(broken);
        }
        if let Some(Ended::Failed(why, text)) = ended {
            return Self::Failed(*why, text.clone());
        }
        let idle: Vec<String> = faults
            .iter()
            .filter(|fault| fault.hits == 0)
            .map(|f| format!("{}:{}", f.place, f.kind))
            .collect();
        if idle.is_empty() { Self::Clean } else { Self::NotExercised(idle) }
    }
}

impl Verdict {
    /// Judges one process's part of a run whose judge is gone: what it alone knows. Sums over both ends of a stream say
    /// nothing then.
    pub fn weigh_alone(raw: &Raw) -> Self {
        let alone = Counts { puts_lost: 0, signals_posted: 0, signals_applied: 0, ..raw.counts.clone() };
        Self::weigh(&alone, &[], raw.ended.as_ref())
    }
}

/// What a stream left behind.
#[derive(Clone, Debug, Default)]
pub struct Raw {
    /// Figures.
    pub counts: Counts,
    /// End of posting, or where a channel failed before.
    pub end_ns: u64,
    /// Bytes per 10 ms.
    pub bins: Vec<u64>,
    /// How it was spread over the rails.
    pub spread: Spread,
    /// Every switch, in any order.
    pub switches: Vec<SwitchLine>,
    /// Planned faults.
    pub faults: Vec<FaultLine>,
    /// Path of PE 0's first channel when the stream began.
    pub first_path: String,
    /// Why it ended early, if it did.
    pub ended: Option<Ended>,
    /// More threads than cores.
    pub oversubscribed: bool,
    /// Processes the PEs were spread over.
    pub processes: u32,
    /// Where the senders' kernels ran.
    pub device: DeviceKind,
    /// The seed.
    pub seed: u64,
    /// What carried the packets.
    pub medium: Medium,
    /// A signal that is applied twice shows: placements are counted, or the word itself counts.
    pub repeats_show: bool,
}

/// The JSON object of `shmem_put_bw`. Sums are over all streams; a stream is a channel from PE 2k to PE 2k+1. Moments
/// are milliseconds since the start of the stream (`_ms`), lengths of time microseconds (`_us`).
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Report {
    /// Rows of the table, without faults; empty with `-n 0`.
    pub table: Vec<Row>,
    /// Payload handed to the library.
    pub bytes_posted: u64,
    /// Payload found whole at its receiver when its signal was seen, or soon after.
    pub bytes_delivered: u64,
    /// Puts posted that are not whole at their receiver.
    pub puts_lost: u64,
    /// Signals posted; the receivers' credits are not among them.
    pub signals_posted: u64,
    /// Signals whose value their word took.
    pub signals_applied: u64,
    /// Signals, credits among them, that were placed again: their word did not become larger, or counted one too
    /// many. `null` for monotone ones on hardware where none was seen: it does not tell what it writes.
    pub signals_duplicated: Option<u64>,
    /// Operations reported as uncertain; puts and monotone signals never are.
    pub uncertain: u64,
    /// Fetched values that are not what the word had held.
    pub fetches_wrong: u64,
    /// Puts that were not whole when their signal was visible, and became so later.
    pub order_violations: u64,
    /// Slots that changed while nobody was allowed to write them.
    pub ghost_writes: u64,
    /// Generations opened because of a fault, over all channels of all PEs.
    pub failovers: u64,
    /// Generations opened by a switch-back.
    pub switchbacks: u64,
    /// Longest time between deliveries at one receiver, from 100 ms (at most a tenth of the stream) after its
    /// start; `null` if nobody knows.
    pub max_gap_us: Option<f64>,
    /// Every switch, in order of time.
    pub switches: Vec<SwitchLine>,
    /// Delivered bytes per 10 ms.
    pub timeline: Vec<Bin>,
    /// Bandwidth between faults of rails.
    pub phases: Vec<Phase>,
    /// What each sending rail carried, and its share in each phase.
    pub rails: Vec<RailLine>,
    /// Every planned fault.
    pub faults: Vec<FaultLine>,
    /// Median 10 ms bin from 100 ms after the start to the first fault, or to the end; `null` if there is
    /// none.
    pub gb_s_before: Option<f64>,
    /// Median 10 ms bin from 100 ms after the last switch-back to the end; `null` if there is none.
    pub gb_s_after: Option<f64>,
    /// More threads than cores: times say little.
    pub oversubscribed: bool,
    /// Processes the PEs were spread over.
    pub processes: u32,
    /// Where the senders' kernels ran: `cpu` or `gpu`.
    pub device: &'static str,
    /// The seed.
    pub seed: u64,
    /// `clean`, `broken`, `not exercised`, or why a channel failed ([`Failing::name`]).
    pub verdict: &'static str,
    /// What the times are: wall time, over which NICs.
    pub clock: &'static str,
    /// The verdict with its reasons.
    #[serde(skip)]
    pub judged: Verdict,
    /// What carried the packets.
    #[serde(skip)]
    pub medium: Medium,
}

impl Kind for Report {
    const NAME: &'static str = "shunt-put-bw";
    const VERSION: u32 = 1;
}

impl Report {
    /// Judges and derives. The table is empty.
    pub fn new(raw: Raw) -> Self {
        let judged = Verdict::weigh(&raw.counts, &raw.faults, raw.ended.as_ref());
        let mut switches = raw.switches.clone();
        switches.sort_by_key(|line| line.noticed_ns);
        let counts = &raw.counts;
        Self {
            table: Vec::new(),
            bytes_posted: counts.bytes_posted,
            bytes_delivered: counts.bytes_delivered,
            puts_lost: counts.puts_lost,
            signals_posted: counts.signals_posted,
            signals_applied: counts.signals_applied,
            signals_duplicated: (raw.repeats_show || counts.signals_duplicated > 0)
                .then_some(counts.signals_duplicated),
            uncertain: counts.uncertain,
            fetches_wrong: counts.misread,
            order_violations: counts.order_violations,
            ghost_writes: counts.ghost_writes,
            failovers: counts.failovers,
            switchbacks: counts.switchbacks,
            max_gap_us: counts.max_gap_ns.map(|gap_ns| gap_ns as f64 / 1e3),
            timeline: timeline(&raw, &switches),
            gb_s_before: before(&raw),
            gb_s_after: after(&raw, &switches),
            switches,
            phases: raw.spread.phases,
            rails: raw.spread.rails,
            faults: raw.faults,
            oversubscribed: raw.oversubscribed,
            processes: raw.processes,
            device: raw.device.name(),
            seed: raw.seed,
            verdict: judged.name(),
            clock: raw.medium.clock(),
            judged,
            medium: raw.medium,
        }
    }

    /// The timeline as a picture. It is as long as the run was.
    pub fn picture(&self) -> Picture<'_> {
        let caption = format!(
            "delivered, GB/s per 10 ms; {}; seed {}; oversubscribed: {}",
            self.clock,
            self.seed,
            if self.oversubscribed { "yes" } else { "no" }
        );
        Picture { caption, bins: &self.timeline, faults: &self.faults }
    }
}

/// The bins of the posting time, each with the path PE 0's first channel was on at its end.
fn timeline(raw: &Raw, switches: &[SwitchLine]) -> Vec<Bin> {
    let length = raw.end_ns.div_ceil(BIN_NS) as usize;
    let mut own = switches.iter().filter(|s| s.pe == 0 && s.channel == 0 && !s.to.is_empty()).peekable();
    let mut path = &raw.first_path;
    let bin = |number: usize| {
        // Nothing came in the last ones if nobody lived to report them.
        let bytes = raw.bins.get(number).copied().unwrap_or(0);
        let end = (number as u64 + 1) * BIN_NS;
        while let Some(line) = own.next_if(|line| line.opened_ns < end) {
            path = &line.to;
        }
        Bin { t_ms: (number as u64 * BIN_NS) as f64 / 1e6, gb_s: gb_s(bytes, BIN_NS), path: path.clone() }
    };
    (0..length).map(bin).collect()
}

fn before(raw: &Raw) -> Option<f64> {
    let end = raw.end_ns;
    let first = raw.faults.iter().map(|fault| (fault.at_ms * 1e6) as u64).min().unwrap_or(end);
    median_gb_s(&raw.bins, WARM_UP_NS, first.min(end))
}

fn after(raw: &Raw, switches: &[SwitchLine]) -> Option<f64> {
    let back = switches.iter().filter(|line| line.kind == Some(SwitchKind::SwitchBack));
    let opened = back.map(|line| line.opened_ns).max()?;
    let from = opened + WARM_UP_NS;
    median_gb_s(&raw.bins, from, raw.end_ns)
}
