//! Whether a typed fault is an answer: judged from what went wrong, and from nothing the library says.
//!
//! A fault of the plan that hit something *harms* the paths through its rail for a span: as long as it lasts, twice
//! that for the pauses that double meanwhile, and the time to recreate a path. `PeerLost` is right where every pair of
//! rails, made ahead or not, was harmed at once for the give-up time, but for the time it takes to find one that is not
//! (`search_ns`); or, of a channel whose signals are adds, every path to one rail of the receiver while its home could
//! not move; `FenceUnproven` where neither end of a path could fence it; `Completion` where the program's own error was
//! injected; `Overdue` where the counterpart gave up, or within the lease of an owner that may be gone.

use shunt_device::{Fault as DeviceFault, FaultKind as Ended};
use shunt_layout::mlx5::cqe::Syndrome;
use shunt_layout::state::LEASE_NS;
use shunt_soft_nic::{Fault, FaultKind, Injection, PeFault};

use crate::outcome::Outcome;
use crate::spec::RunSpec;
use crate::workload::{Report, Side};

/// The end of a span that has none.
pub const FOR_EVER: u64 = u64::MAX;
/// Pauses between probes after which a pair that is silent gives way to another one, where nothing else works.
const PROBES_PATIENCE: u64 = 32;
/// Messages of agents that follow each other while a path is fenced and recreated.
const REVIVAL_MESSAGES: u64 = 8;
/// Backups that agents make at start are there by then, where nothing holds them up.
const ARMED_NS: u64 = 50_000_000;

/// What it takes to recreate a path once nothing is wrong any more: fence, lifetime, pause, probes.
fn revive_ns(spec: &RunSpec) -> u64 {
    spec.agent.peer_ns + 2 * spec.agent.lifetime_ns
}

/// What the discovery of a killed peer may take beyond the give-up time, for each path of a channel: suspicion,
/// commands that are not answered, the packet lifetime.
fn discovery_ns(spec: &RunSpec) -> u64 {
    10 * spec.command_timeout_ns + spec.agent.lifetime_ns
}

/// An open span of the run's own time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Nanoseconds after the start.
    pub from: u64,
    /// The same, excluded.
    pub until: u64,
}

impl Span {
    /// From `at`, while a fault of `lasts` acts and until its consequences are over.
    pub fn of(at: u64, lasts: u64, revive_ns: u64) -> Self {
        let until = at.saturating_add(lasts.saturating_mul(2)).saturating_add(revive_ns);
        Self { from: at, until: if lasts == FOR_EVER { FOR_EVER } else { until } }
    }

    fn meets(self, other: Self) -> bool {
        self.from < other.until && other.from < self.until
    }
}

/// Joins spans that touch.
pub fn merged(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_by_key(|span| span.from);
    let mut out: Vec<Span> = Vec::new();
    for span in spans {
        match out.last_mut() {
            Some(last) if span.from <= last.until => last.until = last.until.max(span.until),
            _ => out.push(span),
        }
    }
    out
}

/// Where both lists are.
pub fn common(a: &[Span], b: &[Span]) -> Vec<Span> {
    let meet = |x: &Span, y: &Span| Span { from: x.from.max(y.from), until: x.until.min(y.until) };
    let all = a.iter().flat_map(|x| b.iter().map(move |y| meet(x, y)));
    merged(all.filter(|span| span.from < span.until).collect())
}

/// How long a fault of a NIC keeps a path from working, if it does.
fn lasts(kind: &FaultKind) -> Option<u64> {
    match kind {
        // Nothing of a path depends on these.
        FaultKind::Up
        | FaultKind::Dup { .. }
        | FaultKind::EventLost { .. }
        | FaultKind::EventLate { .. }
        | FaultKind::PlacementDelay { .. }
        | FaultKind::MissingFlush { .. }
        | FaultKind::CqeGarbageInit { .. } => None,
        FaultKind::Flap { period_ns, count } => Some(period_ns.saturating_mul(u64::from(*count))),
        FaultKind::GidChange => Some(0),
        // When these strike is not known, only since when they may.
        _ => Some(kind.duration().unwrap_or(FOR_EVER)),
    }
}

/// True if commands of a NIC, or the host's own work requests on it, may fail.
fn silences_nic(kind: &FaultKind) -> bool {
    matches!(
        kind,
        FaultKind::NicGone { .. }
            | FaultKind::FwTimeout { .. }
            | FaultKind::CqeError { .. }
            | FaultKind::LostDoorbell { .. }
            | FaultKind::LateCqe { .. }
            // The READ that flushes a NIC uses a key of its own.
            | FaultKind::RkeyRevoked { .. }
    )
}

/// What went wrong in a run, as its judge knows it.
struct Judge<'a> {
    outcome: &'a Outcome,
    /// Faults that hit.
    faults: Vec<&'a Injection>,
}

impl<'a> Judge<'a> {
    fn new(outcome: &'a Outcome) -> Self {
        let hit = |(injection, hits): &'a (Injection, u64)| (*hits > 0).then_some(injection);
        Self { outcome, faults: outcome.faults.iter().filter_map(hit).collect() }
    }

    fn span(&self, at: u64, lasts: u64) -> Span {
        Span::of(at, lasts, revive_ns(&self.outcome.spec))
    }

    fn of_rail(&self, pe: u32, rail: u32) -> impl Iterator<Item = (u64, &FaultKind)> {
        self.faults.iter().filter_map(move |one| match &one.fault {
            Fault::Nic(kind) if one.pe == pe && one.rail == Some(rail) => Some((one.at_ns, kind)),
            _ => None,
        })
    }

    fn of_pe(&self, pe: u32) -> impl Iterator<Item = (u64, PeFault)> {
        self.faults.iter().filter_map(move |one| match one.fault {
            Fault::Pe(fault) if one.pe == pe => Some((one.at_ns, fault)),
            _ => None,
        })
    }

    fn killed(&self, pe: u32) -> Option<u64> {
        self.of_pe(pe).find(|(_, fault)| *fault == PeFault::PeerKilled).map(|(at, _)| at)
    }

    /// True if a PE's streams have signals that are atomics: credits are none, and adders have a channel of their own.
    fn sends_atomics(&self, pe: u32) -> bool {
        let spec = &self.outcome.spec;
        (spec.traffic.signals != 1 || spec.traffic.fetches > 0) && (spec.both_ways || pe + 1 < spec.pes)
    }

    /// True if senders ask for answers: gets, fetching atomics.
    fn asks(&self) -> bool {
        let traffic = &self.outcome.spec.traffic;
        traffic.gets + traffic.fetches > 0
    }

    /// True if what is placed so late keeps a path from working. A completion is a posted write of its NIC: it is
    /// placed as late as any other, and behind those before it, and so are those of probes and of flush READs. Only a
    /// NIC whose completions pass its writes shows nothing of it, until somebody asks for an answer.
    fn completions_wait(&self, by_ns: u64) -> bool {
        self.overdue(by_ns) && (self.asks() || !self.outcome.spec.reads_pass_writes)
    }

    /// True if channels of a PE that share a slow rail may be suspected on healthy paths: suspicion looks at the bytes
    /// of one message, at a gigabit a second, and not at those of the others.
    fn is_crowded(&self, pe: u32) -> bool {
        let spec = &self.outcome.spec;
        let channels = self.outcome.first_paths.keys().filter(|(from, ..)| *from == pe).count() as u64;
        let message_ns = 8 * spec.traffic.slot_bytes / u64::from(spec.rail_gbps.max(1));
        let waits_ns = channels * spec.traffic.slots * message_ns;
        spec.rail_gbps > 0 && waits_ns > spec.suspect_floor_ns + 8 * spec.traffic.slot_bytes
    }

    /// True if what is so late may be suspected.
    fn overdue(&self, by_ns: u64) -> bool {
        2 * by_ns >= self.outcome.spec.suspect_floor_ns
    }

    /// When the paths through a rail may not work.
    fn harm(&self, pe: u32, rail: u32) -> Vec<Span> {
        let ups: Vec<u64> =
            self.of_rail(pe, rail).filter(|(_, kind)| **kind == FaultKind::Up).map(|(at, _)| at).collect();
        let span = |(at, kind): (u64, &FaultKind)| {
            let lasts = match kind {
                FaultKind::LostAtomicResponse { .. } if !self.sends_atomics(pe) => return None,
                FaultKind::PlacementDelay { by_ns, for_ns } if self.completions_wait(*by_ns) => {
                    for_ns.unwrap_or(FOR_EVER)
                }
                FaultKind::Down { for_ns: None } => {
                    ups.iter().filter(|up| **up >= at).min().map_or(FOR_EVER, |up| up - at)
                }
                kind => lasts(kind)?,
            };
            Some(self.span(at, lasts))
        };
        let killed = self.killed(pe).map(|at| self.span(at, FOR_EVER));
        merged(self.of_rail(pe, rail).filter_map(span).chain(killed).collect())
    }

    /// When the agents of two PEs may not agree on anything.
    fn silence(&self, a: u32, b: u32) -> Vec<Span> {
        let span = |(at, fault): (u64, PeFault)| match fault {
            PeFault::PeerKilled | PeFault::AgentKilled => Some(self.span(at, FOR_EVER)),
            PeFault::AgentStalled { for_ns } => Some(self.span(at, for_ns)),
            PeFault::OobCut { for_ns } | PeFault::OobCutTx { for_ns } | PeFault::OobCutRx { for_ns } => {
                Some(self.span(at, for_ns.unwrap_or(FOR_EVER)))
            }
            PeFault::AgentRestart => Some(self.span(at, 0)),
            PeFault::AgentDead { for_ns } => Some(self.span(at, for_ns)),
            PeFault::OobDelay { by_ns, for_ns } if self.outlasts_patience(by_ns) => {
                Some(self.span(at, for_ns.unwrap_or(FOR_EVER)))
            }
            PeFault::PeerStopped { for_ns } => Some(self.span(at, for_ns)),
            // Said twice, or a little late, is said.
            PeFault::OobDup { .. }
            | PeFault::OobReorder { .. }
            | PeFault::OobDelay { .. }
            | PeFault::ClockJump { .. } => None,
        };
        merged([a, b].into_iter().flat_map(|pe| self.of_pe(pe)).filter_map(span).collect())
    }

    /// True if agents whose words are so late may take each other for silent: a question and its answer are both late.
    fn outlasts_patience(&self, by_ns: u64) -> bool {
        2 * by_ns >= self.outcome.spec.agent.peer_ns
    }

    /// What late words add to a revival, or to a pick of a chain: each of its messages comes that much later.
    fn late_words_ns(&self, pe: u32, peer: u32) -> u64 {
        let late_ns = |(_, fault)| match fault {
            PeFault::OobDelay { by_ns, .. } if !self.outlasts_patience(by_ns) => by_ns,
            _ => 0,
        };
        REVIVAL_MESSAGES * [pe, peer].into_iter().flat_map(|pe| self.of_pe(pe)).map(late_ns).sum::<u64>()
    }

    /// How long a PE's kernels may have counted as the give-up time what was none: their clock jumped, or they went on
    /// after they were stopped, which looks the same.
    fn miscounted_ns(&self, pe: u32) -> u64 {
        let ns = |(_, fault)| match fault {
            PeFault::ClockJump { by_ns: ns } | PeFault::PeerStopped { for_ns: ns } => ns,
            _ => 0,
        };
        self.of_pe(pe).map(ns).fold(0, u64::saturating_add)
    }

    /// How long all paths must have been dead before a kernel of this PE may give up.
    fn give_up_ns(&self, pe: u32) -> u64 {
        self.outcome.spec.give_up_ns.saturating_sub(self.miscounted_ns(pe))
    }

    /// When no path of a channel may work: no pair of rails at all, where pairs are made on demand and the give-up time
    /// is enough to find one; else of those it had at start, or of those it had at the end.
    fn no_path(&self, pe: u32, peer: u32, channel: u32) -> Vec<Span> {
        let spec = &self.outcome.spec;
        let at = (pe, peer, channel);
        let (first, last) = (&self.outcome.first_paths[&at], &self.outcome.paths[&at]);
        let pairs: Vec<_> =
            (0..spec.rails * spec.rails).map(|at| (at / spec.rails, at % spec.rails)).collect();
        let search_ns = self.search_ns(pe, peer, &pairs, first);
        // With one slot nothing is made but its own pair, and a bound channel's home decides what may be.
        let chained = first.len() > 1 && spec.traffic.signals != 3 && spec.traffic.fetches == 0;
        if chained && search_ns < spec.give_up_ns {
            return self.none_found(pe, peer, &pairs, search_ns);
        }
        [first, last].into_iter().flat_map(|paths| self.none_of(pe, peer, first[0], paths)).collect()
    }

    /// How long a chain may take to find the pair that works: one packet lifetime, one pause and the patience of probes
    /// for each wrong pick, and once more for what lies in its slots. Every pair that was ever harmed is one, and the
    /// slots try side by side. Nothing where all pairs are made ahead.
    fn search_ns(&self, pe: u32, peer: u32, pairs: &[(u32, u32)], first: &[(u32, u32)]) -> u64 {
        let harmed =
            |pair: &&(u32, u32)| !self.harm(pe, pair.0).is_empty() || !self.harm(peer, pair.1).is_empty();
        let picks = pairs.iter().filter(|pair| !first.contains(pair)).filter(harmed).count();
        let agent = &self.outcome.spec.agent;
        let pick_ns = agent.lifetime_ns
            + agent.backoff_ns
            + PROBES_PATIENCE * agent.probe_ns
            + self.late_words_ns(pe, peer);
        let made_ahead = first.len() >= pairs.len() && !self.outcome.spec.backups_later;
        if made_ahead { 0 } else { (1 + picks.div_ceil(first.len().max(2) - 1)) as u64 * pick_ns }
    }

    /// When a chain may find none of these pairs. One that works for less than `search_ns` before it is harmed need not
    /// be found; and while agents, or a NIC that has an old half, say nothing, none is made.
    fn none_found(&self, pe: u32, peer: u32, pairs: &[(u32, u32)], search_ns: u64) -> Vec<Span> {
        let nics =
            [pe, peer].into_iter().flat_map(|pe| (0..self.outcome.spec.rails).map(move |rail| (pe, rail)));
        let mute = nics.flat_map(|(pe, rail)| self.of_rail(pe, rail)).filter(|(_, kind)| silences_nic(kind));
        let mute = mute.filter_map(|(at, kind)| Some(self.span(at, lasts(kind)?)));
        let mut unmade: Vec<Span> = if search_ns > 0 { mute.collect() } else { Vec::new() };
        unmade.extend(if search_ns > 0 { self.silence(pe, peer) } else { Vec::new() });
        // One that was looked for just before that need not have been found either.
        unmade.iter_mut().for_each(|span| span.from = span.from.saturating_sub(search_ns));
        let paths = pairs.iter().map(|pair| {
            let mut harm = self.harm_of(pe, peer, pair);
            harm.iter_mut().for_each(|span| span.from = span.from.saturating_sub(search_ns));
            harm.extend(&unmade);
            merged(harm)
        });
        paths.fold(vec![Span { from: 0, until: FOR_EVER }], |all, one| common(&all, &one))
    }

    /// When a channel that carries atomics of many writers may reach no home: none of its paths to a rail of the
    /// receiver works, and the receiver can not move the home, or not learn that it must.
    fn no_way_home(&self, pe: u32, peer: u32, channel: u32) -> Vec<Span> {
        let traffic = &self.outcome.spec.traffic;
        if traffic.signals != 3 && traffic.fetches == 0 {
            return Vec::new();
        }
        let of_rail = |rail: u32| {
            // As in `no_path`: of those it had at start, or of those it had at the end.
            let at = (pe, peer, channel);
            let harm =
                [&self.outcome.first_paths[&at], &self.outcome.paths[&at]].into_iter().flat_map(|paths| {
                    let home: Vec<_> = paths.iter().copied().filter(|(_, remote)| *remote == rail).collect();
                    let primary = self.outcome.first_paths[&at][0];
                    if home.is_empty() { Vec::new() } else { self.none_of(pe, peer, primary, &home) }
                });
            // What its NIC does not say, every sender's agent has to.
            let silent = self.of_rail(peer, rail).filter(|(_, kind)| silences_nic(kind));
            let silent = silent.filter_map(|(at, kind)| Some(self.span(at, lasts(kind)?)));
            let stuck: Vec<Span> = silent.chain(self.silence(pe, peer)).collect();
            // A home takes its time to move, and so does another path to it: a sender that gives up sooner, or whose
            // clock jumps meanwhile, does not wait for it.
            let spec = &self.outcome.spec;
            let hasty = self.give_up_ns(pe) < spec.agent.peer_ns;
            let holds = |span: &Span| hasty || stuck.iter().any(|other| other.meets(*span));
            harm.filter(holds).collect::<Vec<_>>()
        };
        (0..self.outcome.spec.rails).flat_map(of_rail).collect()
    }

    /// When none of these paths may work. All but the primary are still to be made where the agents make them, and are
    /// not while those are silent.
    fn none_of(&self, pe: u32, peer: u32, primary: (u32, u32), paths: &[(u32, u32)]) -> Vec<Span> {
        let always = vec![Span { from: 0, until: FOR_EVER }];
        let later = self.outcome.spec.backups_later;
        let early = |span: &Span| later && span.from < ARMED_NS;
        // They were not there before those fell silent either.
        let unmade = self.silence(pe, peer).into_iter().filter(early).map(|span| Span { from: 0, ..span });
        let unmade: Vec<Span> = unmade.collect();
        let harm = |path: &(u32, u32)| {
            let mut harm = self.harm_of(pe, peer, path);
            harm.extend(if *path == primary { &[] } else { unmade.as_slice() });
            merged(harm)
        };
        paths.iter().map(harm).fold(always, |all, one| common(&all, &one))
    }

    /// When this path may not work.
    fn harm_of(&self, pe: u32, peer: u32, (local, remote): &(u32, u32)) -> Vec<Span> {
        let silence = self.silence(pe, peer);
        let mut harm = [self.harm(pe, *local), self.harm(peer, *remote)].concat();
        if self.is_crowded(pe) {
            // Suspected for no fault, it is not recreated before the agents speak.
            harm.extend(&silence);
        }
        // While the agents are silent nothing is recreated, and afterwards all of it at once.
        let late_words_ns = self.late_words_ns(pe, peer);
        for span in &mut harm {
            span.until = span.until.saturating_add(late_words_ns);
            let after = silence.iter().filter(|silence| silence.until > span.from);
            span.until = after.fold(span.until, |until, silence| until.max(silence.until));
        }
        merged(harm)
    }

    /// Every path that a channel is known to have had.
    fn any_path(&self, pe: u32, peer: u32, channel: u32) -> impl Iterator<Item = &(u32, u32)> {
        let at = (pe, peer, channel);
        self.outcome.first_paths[&at].iter().chain(&self.outcome.paths[&at])
    }

    fn is_justified(&self, fault: &DeviceFault, pe: u32, report: &Report, side: Side) -> bool {
        let (peer, channel) = (fault.peer, report.stream.channel);
        match fault.kind {
            Ended::PeerLost => {
                let wanted = self.give_up_ns(pe);
                let ended_ns = report.ended_ns.saturating_sub(self.outcome.began_ns);
                // All was well again for that long: what happened before is no reason any more.
                let late_ns = wanted.saturating_add(revive_ns(&self.outcome.spec));
                let lost = |span: &Span| {
                    let lasted = span.until - span.from >= wanted && ended_ns >= span.from + wanted;
                    lasted && ended_ns <= span.until.saturating_add(late_ns)
                };
                // A channel carries signals if its PE sends; where all do, credits go with them.
                let adds = side == Side::Sender || self.outcome.spec.both_ways;
                let homeless = if adds { self.no_way_home(pe, peer, channel) } else { Vec::new() };
                let none = self.no_path(pe, peer, channel).iter().chain(&homeless).any(lost);
                none || self.nobody_looks(pe, peer, channel, ended_ns.saturating_sub(wanted))
            }
            Ended::FenceUnproven => self.unfenced(pe, peer, channel),
            Ended::Completion => self.outcome.spec.ft_off || self.own_error(pe, peer, channel),
            Ended::Overdue => {
                let book = self.outcome.oracle.book(report.stream.id);
                let left = match side {
                    Side::Sender => book.receiver_left_ns,
                    Side::Receiver => book.sender_left_ns,
                };
                // The side that left first needs another reason.
                left.is_some_and(|left_ns| left_ns < report.ended_ns)
                    || self.nobody_tells(pe, report)
                    || self.lease_of_the_gone(report)
            }
            // Only what goes wrong with the network makes an operation uncertain; a kernel answers it.
            Ended::Uncertain | Ended::BadAddress | Ended::BadResolution => false,
            // Streams have no exact atomics, and NICs of the simulator have masked ones.
            Ended::AnswerLost | Ended::FetchNotExact | Ended::NoMaskedAtomics => false,
        }
    }

    /// True if the peer was killed and this PE has no agent to find that out, or one that leaves channels alone: where
    /// nothing is outstanding, only the agent can, and what is left is the kernel's own deadline.
    fn nobody_tells(&self, pe: u32, report: &Report) -> bool {
        let peer = if report.stream.from == pe { report.stream.to } else { report.stream.from };
        let killed = self.of_pe(pe).any(|(_, fault)| fault == PeFault::AgentKilled);
        self.killed(peer).is_some() && (killed || self.touches_nothing())
    }

    /// True if a path of the channel was still harmed at `since_ns`, agents leave channels alone, and no kernel of the
    /// peer's end of this channel ran since then, or there was none: one that posts on another channel looks at that
    /// alone. A direction that nobody looks at does not leave a fenced path, and that is not made again until it has
    /// been left.
    fn nobody_looks(&self, pe: u32, peer: u32, channel: u32, since_ns: u64) -> bool {
        let outcome = self.outcome;
        let ended = |report: &Report| report.ended_ns.saturating_sub(outcome.began_ns) < since_ns;
        let ends =
            |report: &Report, at: u32, other: u32| (at, other, report.stream.channel) == (peer, pe, channel);
        let mut senders = outcome.senders.iter().filter(|r| ends(r, r.stream.from, r.stream.to));
        let mut receivers = outcome.receivers.iter().filter(|r| ends(r, r.stream.to, r.stream.from));
        let harmed = |path| self.harm_of(pe, peer, path).iter().any(|span| span.until > since_ns);
        let harmed = self.any_path(pe, peer, channel).any(harmed);
        self.touches_nothing() && harmed && senders.all(ended) && receivers.all(ended)
    }

    /// True if agents put nothing on the wire of channels at rest.
    fn touches_nothing(&self) -> bool {
        self.outcome.spec.agent.touch_ns == u64::MAX
    }

    /// True if an agent that is gone may have owned a switch when the kernel gave up: nobody takes over before the
    /// lease ends, and a program that waits for less gives up first.
    fn lease_of_the_gone(&self, report: &Report) -> bool {
        let gone = |fault| match fault {
            PeFault::AgentKilled | PeFault::AgentRestart | PeFault::AgentDead { .. } => true,
            PeFault::AgentStalled { for_ns } | PeFault::PeerStopped { for_ns } => {
                for_ns >= self.outcome.spec.traffic.wait_ns
            }
            _ => false,
        };
        let ended_ns = report.ended_ns.saturating_sub(self.outcome.began_ns);
        [report.stream.from, report.stream.to]
            .into_iter()
            .flat_map(|pe| self.of_pe(pe))
            .any(|(at, fault)| gone(fault) && at <= ended_ns && ended_ns < at.saturating_add(LEASE_NS))
    }

    /// True if some path of the channel could be fenced at neither end.
    fn unfenced(&self, pe: u32, peer: u32, channel: u32) -> bool {
        let own_agent = self.of_pe(pe).any(|(_, fault)| match fault {
            PeFault::AgentKilled => true,
            PeFault::AgentStalled { for_ns } | PeFault::AgentDead { for_ns } => {
                for_ns > self.outcome.spec.fence_wait_ns / 2
            }
            // The wait for a fence has a deadline, which a clock that jumps that far ends.
            PeFault::ClockJump { by_ns: ns } | PeFault::PeerStopped { for_ns: ns } => {
                ns > self.outcome.spec.fence_wait_ns / 2
            }
            _ => false,
        });
        let silent = |pe: u32, rail: u32| -> Vec<Span> {
            let kinds = self.of_rail(pe, rail).filter(|(_, kind)| silences_nic(kind));
            kinds.filter_map(|(at, kind)| Some(self.span(at, lasts(kind)?))).collect()
        };
        let far = self.silence(pe, peer);
        let neither = |(local, remote): &(u32, u32)| {
            let mut other = silent(peer, *remote);
            other.extend(&far);
            silent(pe, *local).iter().any(|here| other.iter().any(|there| here.meets(*there)))
        };
        own_agent || self.any_path(pe, peer, channel).any(neither)
    }

    /// True if an error that is the program's own was injected on a path of the channel.
    fn own_error(&self, pe: u32, peer: u32, channel: u32) -> bool {
        self.any_path(pe, peer, channel).any(|(local, remote)| {
            let here = self.of_rail(pe, *local).any(|(_, kind)| {
                matches!(kind, FaultKind::CqeError { syndrome } if Syndrome(*syndrome).is_program_error())
            });
            here || self.of_rail(peer, *remote).any(|(_, kind)| matches!(kind, FaultKind::RkeyRevoked { .. }))
        })
    }

    /// A kernel whose peer was killed has to know it in time, unless its own side was hampered. The READ that flushes a
    /// NIC is refused by one that is not ready.
    fn too_late(&self, pe: u32, report: &Report) -> Option<String> {
        let peer = if report.stream.from == pe { report.stream.to } else { report.stream.from };
        let killed_ns = self.killed(peer)?;
        let slots = self.outcome.paths[&(pe, peer, report.stream.channel)].len() as u64;
        let hampers = |kind: &FaultKind| silences_nic(kind) || matches!(kind, FaultKind::Rnr { .. });
        let hampered = self.of_pe(pe).next().is_some()
            || (0..self.outcome.spec.rails).any(|rail| self.of_rail(pe, rail).any(|(_, kind)| hampers(kind)));
        let bound_ns = self.outcome.spec.give_up_ns + slots * discovery_ns(&self.outcome.spec);
        let ended_ns = report.ended_ns.saturating_sub(self.outcome.began_ns);
        let hampered = hampered || self.touches_nothing();
        let late = !hampered && report.fault.is_some() && ended_ns > killed_ns.saturating_add(bound_ns);
        late.then(|| {
            format!(
                "{} at PE {pe} ended {} ms after its peer was killed, expected at most {} ms",
                report.stream,
                (ended_ns - killed_ns) / 1_000_000,
                bound_ns / 1_000_000
            )
        })
    }
}

/// Kernels that ended as nothing that went wrong justifies, one line each.
pub fn unjustified(outcome: &Outcome) -> Vec<String> {
    let judge = Judge::new(outcome);
    let mut lines = Vec::new();
    let senders = outcome.senders.iter().map(|report| (report, Side::Sender, report.stream.from));
    let receivers = outcome.receivers.iter().map(|report| (report, Side::Receiver, report.stream.to));
    for (report, side, pe) in senders.chain(receivers).filter(|(report, ..)| !report.killed) {
        if let Some(fault) = &report.fault
            && !judge.is_justified(fault, pe, report, side)
        {
            let what = format!("{} at PE {pe} ended with {fault:?}", report.stream);
            lines.push(format!("{what}; nothing that went wrong justifies it"));
        }
        lines.extend(judge.too_late(pe, report));
    }
    lines
}

impl Outcome {
    /// Everything that is wrong with the run: broken promises, and kernels that ended as nothing justifies.
    pub fn wrongs(&self) -> Vec<String> {
        let mut wrongs = unjustified(self);
        if self.oracle.total() > 0 {
            wrongs.insert(0, self.oracle.describe());
        }
        wrongs
    }

    /// Fails unless every promise was kept, and every kernel ended well or with a fault that is an answer.
    pub fn assert_held(&self) {
        let wrongs = self.wrongs();
        assert!(wrongs.is_empty(), "{}\n{self}", wrongs.join("\n"));
    }
}
