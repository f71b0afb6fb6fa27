//! Every event, declared once. The enum, its `tracing` form, its JSON line, its counter and the table in
//! docs/OPERATIONS.md follow from what stands here. Names and fields are an interface: they are added, not changed.

use super::declare::{Declaration, Field, Level, Route, Value, events};

events! {
    /// The agent looks after the PE from here on.
    AgentStarted "agent_started" Info { pes: u32 = "PEs of the job", rails: u32 = "rails" }
    /// A rail of this PE, at the start.
    RailOpened "rail_opened" Info { rail: u32 = "rank of the rail", device: String = "its NIC", up: bool = "it is up" }
    /// Paths of one kind, at the start: one pair of rails in one slot of channels.
    PathsOpened "paths_opened" Info {
        slot: u32 = "0: primary, else a backup", local_rail: u32 = "rail here", remote_rail: u32 = "rail there",
        paths: u32 = "how many", ready: u32 = "of them connected; agents make the others",
    }
    /// A NIC's count failed its start-up proof: the ledger decides, or `Uncertain` where it cannot tell.
    CountRefused "count_refused" Warn { rail: u32 = "rank of the rail", why: String = "what the proof saw" }
    /// The agent failed: what it knew is lost. Another one takes over, later after each failure in a row.
    AgentFailed "agent_failed" Error { error: String = "the error", pause_ns: u64 = "ns until the next one" }
    /// Another agent took over: what it finds ready goes on, all else is fenced once more.
    AgentRestarted "agent_restarted" Warn {
        lives: u32 = "agents of this PE so far", ready: u32 = "paths found ready",
        again: u32 = "paths fenced once more", requests: u64 = "requests without an answer",
    }
    /// The agent ended in good order.
    AgentEnded "agent_ended" Info {}
    /// A port of this PE went down.
    RailDown "rail_down" Warn { rail: u32 = "rank of the rail" }
    /// A port of this PE is up again.
    RailUp "rail_up" Info { rail: u32 = "rank of the rail", down_ns: u64 = "ns it was down" }
    /// A NIC reports an internal error: nothing passes through it until it says otherwise.
    NicError "nic_error" Error { rail: u32 = "rank of the rail" }
    /// The events of a NIC cannot be read.
    NicSilent "nic_silent" Error { rail: u32 = "rank of the rail", error: String = "the error" }
    /// A peer says that a port of its own went down.
    PeerRailDown "peer_rail_down" Info { peer: u32 = "PE", rail: u32 = "rank of the rail there" }
    /// A peer says that a port of its own is up again.
    PeerRailUp "peer_rail_up" Info {
        peer: u32 = "PE", rail: u32 = "rank of the rail there", down_ns: u64 = "ns it was down",
    }
    /// A switch of a channel wants proof that an old path is silent.
    FenceAsked "fence_asked" Debug { at: Route = "path", request: u64 = "number of the request" }
    /// This half of a pair is in ERR, and is being read and flushed.
    PathFencing "path_fencing" Debug { at: Route = "path", why: &'static str = "asked, failed or retire" }
    /// This half was moved to ERR, read, flushed at this end and read again. Halves may share a flush.
    HalfFenced "half_fenced" Debug {
        at: Route = "path", truth: &'static str = "exact, fenced, unflushed, unknown or dead",
        executed: u32 = "messages executed here, modulo 2^24", error_ns: u64 = "ns of 2ERR",
        query_ns: u64 = "ns of QUERY_QP", flush_ns: u64 = "ns of the flush READ",
        again_ns: u64 = "ns of the second QUERY_QP",
    }
    /// A command of a fence failed here: nothing is proved of this half.
    FenceFailed "fence_failed" Error { at: Route = "path", error: String = "the error" }
    /// Both halves are known, or what silence allows: the old path changes nothing any more.
    PathFenced "path_fenced" Debug { at: Route = "path", took_ns: u64 = "ns since fencing began" }
    /// A switcher was answered.
    FenceAnswered "fence_answered" Debug {
        at: Route = "path", request: u64 = "number of the request",
        status: &'static str = "truth, no-truth or unprovable", executed: u32 = "messages executed, modulo 2^24",
    }
    /// Both directions left a path; it rests for the packet lifetime and for its ports.
    PathReleased "path_released" Debug { at: Route = "path" }
    /// A path is recreated, under the next incarnation.
    PathRevived "path_revived" Debug { at: Route = "path" }
    /// Both new halves are connected; probes run.
    PathProbing "path_probing" Debug { at: Route = "path" }
    /// A path could not be recreated; it rests longer and is tried again.
    RevivalFailed "revival_failed" Info { at: Route = "path", error: String = "the error" }
    /// A recreated path may be used.
    PathAdmitted "path_admitted" Debug { at: Route = "path", out_ns: u64 = "ns since it was fenced" }
    /// A path was taken out; only `readmit` brings it back.
    PathRetired "path_retired" Info { at: Route = "path" }
    /// A channel's slot leads over other rails from now on.
    SlotAssigned "slot_assigned" Debug {
        at: Route = "path it was", local_rail: u32 = "rail now", remote_rail: u32 = "rail now",
    }
    /// The words of a channel index that many write take their atomics through another rail of this PE.
    HomeMoved "home_moved" Debug {
        channel: u32 = "index of the channel, of all senders", from: u32 = "rail it was", to: u32 = "rail now",
        version: u32 = "times it has moved",
    }
    /// A channel had a reason to leave its path.
    SwitchNoticed "switch_noticed" Debug {
        at: Route = "path in use", generation: u64 = "generation to come", cause: &'static str = "cause",
        syndrome: u32 = "syndrome, vendor's << 8",
    }
    /// A path was left for silence alone: suspicion, not proof.
    Suspected "suspected" Debug { at: Route = "path" }
    /// The channel is closed: tickets wait.
    SwitchClosed "switch_closed" Debug { at: Route = "path that is left", generation: u64 = "generation to come" }
    /// The path that is left is fenced; of a switch-back: drained.
    SwitchFenced "switch_fenced" Debug { at: Route = "path that is left", generation: u64 = "generation to come" }
    /// It is known how far the receiver got.
    SwitchCut "switch_cut" Debug {
        at: Route = "path that is left", generation: u64 = "generation to come", done: u64 = "first ticket not done",
        executed: u64 = "first ticket not executed", journal_end: u64 = "first ticket not posted",
        ledger: bool = "cut from the ledger",
    }
    /// The journal is in the new ring.
    SwitchReplayed "switch_replayed" Debug {
        at: Route = "path that is entered", generation: u64 = "generation to come",
        replayed: u64 = "operations sent again",
    }
    /// A channel is open on another path, because of a fault.
    Failover "failover" Info {
        from: Route = "path left", to: Route = "path entered", generation: u64 = "generation opened",
        cause: &'static str = "cause", fence_ns: u64 = "ns from noticed to fenced", cut_ns: u64 = "ns to the cut",
        replay_ns: u64 = "ns to replayed", open_ns: u64 = "ns to open", replayed: u64 = "operations sent again",
    }
    /// Traffic goes on by other paths, because of a fault: the failovers of one burst, summed up.
    TrafficMoved "traffic_moved" Warn {
        channels: u64 = "channels that moved", from: String = "NIC here > rail there, x channels",
        to: String = "the same of where they are", replayed: u64 = "operations sent again",
        ended: u64 = "channels that ended meanwhile", lasted_ns: u64 = "ns from the first failover to the last",
    }
    /// A channel is back on a better path; nothing was sent again.
    SwitchBack "switch_back" Info {
        from: Route = "path left", to: Route = "path entered", generation: u64 = "generation opened",
        drain_ns: u64 = "ns from noticed to drained", flush_ns: u64 = "ns to flushed", open_ns: u64 = "ns to open",
    }
    /// A channel ended: no path left, a fence that cannot be proved, or a program error.
    ChannelDead "channel_dead" Error {
        at: Route = "path it was on", cause: &'static str = "first cause", syndrome: u32 = "syndrome, vendor's << 8",
        unfinished: u64 = "tickets posted and not known to be executed",
    }
    /// Every channel to a peer ended.
    PeerLost "peer_lost" Error { peer: u32 = "PE" }
    /// The agents agreed on who is left out, or this rank found no majority and left itself out.
    RankMask "rank_mask" Error {
        epoch: u64 = "decisions so far", masked: u32 = "ranks left out, for this one",
        standing: &'static str = "member, out or alone",
    }
    /// Operations were reported that may or may not have been applied.
    Uncertain "uncertain" Error { peer: u32 = "PE", channel: u32 = "channel", count: u64 = "operations" }
    /// A rail answers no ping, or its NIC no command, and no port says why: it is left sooner and chosen last.
    RailSuspected "rail_suspected" Warn { of: u32 = "PE whose rail it is", rail: u32 = "rail" }
    /// A rail was suspected again, so often; the log has this in place of a line each.
    RailSuspectedAgain "rail_suspected_again" Warn {
        of: u32 = "PE whose rail it is", rail: u32 = "rail", times: u64 = "times",
        within_ns: u64 = "ns since the log spoke of it", now: &'static str = "suspected or cleared",
    }
    /// A suspect rail answered, or its port told what is the matter.
    RailCleared "rail_cleared" Info {
        of: u32 = "PE whose rail it is", rail: u32 = "rail", suspected_ns: u64 = "ns under suspicion",
    }
    /// The queue pair of the agents' datagrams on a rail had ended and was recreated.
    AgentRailRenewed "agent_rail_renewed" Info { rail: u32 = "rank of the rail", qpn: u32 = "its number now" }
    /// The link to a peer's agent broke, or carries nothing.
    AgentLinkLost "agent_link_lost" Warn { peer: u32 = "PE" }
    /// The link to a peer's agent was lost again, so often; the log has this in place of a line each.
    AgentLinkLostAgain "agent_link_lost_again" Warn {
        peer: u32 = "PE", times: u64 = "times", within_ns: u64 = "ns since the log spoke of it",
        now: &'static str = "lost or back",
    }
    /// The link to a peer's agent is there again.
    AgentLinkBack "agent_link_back" Info { peer: u32 = "PE", lost_ns: u64 = "ns without it" }
    /// Words of a peer's agent make no sense and were dropped.
    MessageRefused "message_refused" Warn { peer: u32 = "PE", error: String = "the error" }
    /// A step of a switch was entered (only where step records are on).
    Step "step" Debug {
        peer: u32 = "PE", channel: u32 = "channel", step: &'static str = "step", from: u32 = "slot left",
        to: u32 = "slot entered", cause: &'static str = "cause",
    }
    /// Every path is ready but those that an operator took out, and every channel is on the first of them again.
    Recovered "recovered" Warn { lasted_ns: u64 = "ns since the first sign of trouble" }
    /// Records were overwritten or dropped before anybody read them, or a record of them was never finished.
    EventsLost "events_lost" Warn { from: &'static str = "records, steps, log or file", count: u64 = "how many" }
    /// Whatever has no event of its own.
    Remark "remark" Warn { text: String = "what is to be said" }
}

impl Event {
    /// How it is declared.
    pub fn declaration(&self) -> &'static Declaration {
        &EVENTS[self.number()]
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.declaration().name
    }

    /// Its level.
    pub fn level(&self) -> Level {
        self.declaration().level
    }

    /// True if trouble begins with it, where there was none.
    pub(super) const fn is_trouble(&self) -> bool {
        matches!(
            self,
            Self::RailDown { .. }
                | Self::PeerRailDown { .. }
                | Self::NicError { .. }
                | Self::PathFencing { .. }
                | Self::SwitchNoticed { .. }
                | Self::ChannelDead { .. }
        )
    }
}

/// `name field=value ..: sentence`.
impl std::fmt::Display for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())?;
        let mut result = Ok(());
        self.visit(&mut |name, value| {
            if result.is_ok() {
                result = write!(f, " {name}={value}");
            }
        });
        result
    }
}

/// The table of docs/OPERATIONS.md.
pub fn markdown() -> String {
    let mut out = String::from("| event | level | fields | meaning |\n| --- | --- | --- | --- |\n");
    for event in EVENTS {
        let field = |(name, meaning): &(&str, &str)| format!("`{name}` ({meaning})");
        let fields: Vec<String> = event.fields.iter().map(field).collect();
        let fields = if fields.is_empty() { "-".to_owned() } else { fields.join(", ") };
        out += &format!("| `{}` | {} | {fields} | {} |\n", event.name, event.level.name(), event.sentence);
    }
    out
}
