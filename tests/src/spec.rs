//! A run in words: what `regressions/*.toml` hold, what the swarm draws from a seed and prints when it fails.
//!
//! The files use the small part of TOML that a run needs: `key = number`, `key = true`, `key = "text"` and
//! `key = ["text", ...]` on one line, and comments. Anything else is refused by line.

use std::fmt;
use std::str::FromStr;

use shunt_host::agent::AgentOptions;
use shunt_soft_nic::fault::{Injection, ParseInjectionError};

use crate::toml;
use crate::traffic::Traffic;

/// One run: a cluster, its traffic, its faults.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSpec {
    /// What went wrong once, in one sentence (regressions only).
    pub cause: String,
    /// Seed of every decision.
    pub seed: u64,
    /// PEs; streams run between all pairs.
    pub pes: u32,
    /// Rails of each PE.
    pub rails: u32,
    /// Channels to each peer.
    pub channels: u32,
    /// Of these, so many carry streams; 0: all.
    pub stream_channels: u32,
    /// Streams, each a warp of its own, on one channel.
    pub warps: u32,
    /// log2 of the ring depth.
    pub log_depth: u32,
    /// Streams run both ways; if not, from lower to higher PEs.
    pub both_ways: bool,
    /// What kind of device each NIC is, with its port, or several kinds with commas between them, which PE by PE its
    /// rails take in turn; none: the one that takes everything.
    pub profile: String,
    /// InfiniBand instead of Ethernet.
    pub infiniband: bool,
    /// The NICs clear `rmsn` when a QP goes to ERR.
    pub rmsn_cleared: bool,
    /// What the NICs' counts say of atomics: 0 the truth, 1 they leave them out, 2 they count one again that is sent
    /// again, 3 they count what 2ERR drops. Above 0 the start-up proof looks.
    pub atomic_count: u32,
    /// The NICs answer READs before the writes posted ahead of them are visible: no flush flushes.
    pub reads_pass_writes: bool,
    /// The NICs place packets of writes out of order. Bits: 1 those from others, 2 those from themselves, 4 and they
    /// deny it.
    pub out_of_order: u32,
    /// The order that the job wants: `OrderPolicy`.
    pub ordering: u32,
    /// Receivers act on the data of puts before a signal covers it.
    pub polled_puts: bool,
    /// Destroyed queue pairs' numbers are handed out again.
    pub qpn_reused: bool,
    /// The NICs' retries come after growing waits.
    pub adaptive_retransmission: bool,
    /// Device code gives way before one access in this many; 0: only where it waits.
    pub interference: u64,
    /// Longest time between two looks of a waiting kernel, or of an idle agent, in a quiet world.
    pub idle_ns: u64,
    /// Suspect time of the policy.
    pub suspect_ns: u64,
    /// Floor of the suspect time; as long as that: it follows nothing.
    pub suspect_floor_ns: u64,
    /// Old paths are fenced by time where nobody answers.
    pub time_fence: bool,
    /// Recovery window of the policy.
    pub recovery_ns: u64,
    /// Give-up time of the policy.
    pub give_up_ns: u64,
    /// Backup paths of each channel.
    pub backups: u32,
    /// The agents make them once the PEs are up.
    pub backups_later: bool,
    /// Channels, rings and all else that a put touches lie in memory of a device, which the host copies to and from.
    pub queues_on_device: bool,
    /// Of these, so many channels to each peer, the first, are host calls' all the same.
    pub host_channels: u32,
    /// log2 of the bytes one key covers.
    pub log2_chunk: u32,
    /// Raw atomics run on the last channel, which then carries no streams.
    pub adders: bool,
    /// All PEs but one add to one word of that one, on the channel behind those of the streams.
    pub sharers: bool,
    /// Those who have the word's owner answer them: 0 none, 1 all, 2 every other one.
    pub exact: u32,
    /// Between the instants at which an atomic reads its word and writes it.
    pub atomic_gap_ns: u32,
    /// Largest payload of a packet.
    pub mtu: u32,
    /// Ticket that every channel starts at.
    pub first_ticket: u64,
    /// Generation that every channel starts at.
    pub first_generation: u64,
    /// Rate of each rail in Gb/s; 0: unlimited.
    pub rail_gbps: u32,
    /// Failures are reported, not survived.
    pub ft_off: bool,
    /// A run that reaches this virtual instant hangs.
    pub time_limit_ns: u64,
    /// So is one that takes this many scheduling steps. Not part of the text.
    pub step_limit: u64,
    /// Patience of the agents.
    pub agent: AgentOptions,
    /// What a firmware command takes.
    pub firmware_ns: u64,
    /// A command without an answer for this long counts as unanswered.
    pub command_timeout_ns: u64,
    /// How long a host waits for a flush.
    pub flush_ns: u64,
    /// How long device code waits for its agent's fence.
    pub fence_wait_ns: u64,
    /// How long it waits for a drain, and for READs of the ledger.
    pub drain_ns: u64,
    /// After the last kernel has ended, this long nothing may change memory any more.
    pub settle_ns: u64,
    /// What the streams do.
    pub traffic: Traffic,
    /// What goes wrong.
    pub faults: Vec<Injection>,
}

impl Default for RunSpec {
    fn default() -> Self {
        Self {
            cause: String::new(),
            seed: 1,
            pes: 2,
            rails: 2,
            channels: 1,
            stream_channels: 0,
            warps: 1,
            log_depth: 7,
            both_ways: false,
            profile: String::new(),
            infiniband: false,
            rmsn_cleared: false,
            atomic_count: 0,
            reads_pass_writes: false,
            out_of_order: 0,
            ordering: 0,
            polled_puts: false,
            qpn_reused: false,
            adaptive_retransmission: false,
            interference: 0,
            idle_ns: 5_000,
            suspect_ns: 10_000_000,
            suspect_floor_ns: 10_000_000,
            time_fence: false,
            recovery_ns: 20_000_000,
            give_up_ns: 1_000_000_000,
            backups: 3,
            backups_later: false,
            queues_on_device: false,
            host_channels: 0,
            log2_chunk: 30,
            adders: false,
            sharers: false,
            exact: 0,
            atomic_gap_ns: 0,
            mtu: 4096,
            first_ticket: 0,
            first_generation: 0,
            rail_gbps: 0,
            ft_off: false,
            time_limit_ns: 30_000_000_000,
            step_limit: 200_000_000,
            agent: AgentOptions::default(),
            firmware_ns: 100_000,
            command_timeout_ns: 20_000_000,
            flush_ns: 50_000_000,
            fence_wait_ns: 2_000_000_000,
            drain_ns: 20_000_000,
            settle_ns: 100_000_000,
            traffic: Traffic::default(),
            faults: Vec::new(),
        }
    }
}

/// One place for all keys, so that reading and writing agree.
macro_rules! keys {
    ($self:ident, $visit:ident) => {
        $visit!("cause", $self.cause);
        $visit!("seed", $self.seed);
        $visit!("pes", $self.pes);
        $visit!("rails", $self.rails);
        $visit!("channels", $self.channels);
        $visit!("stream_channels", $self.stream_channels);
        $visit!("warps", $self.warps);
        $visit!("log_depth", $self.log_depth);
        $visit!("both_ways", $self.both_ways);
        $visit!("profile", $self.profile);
        $visit!("infiniband", $self.infiniband);
        $visit!("rmsn_cleared", $self.rmsn_cleared);
        $visit!("atomic_count", $self.atomic_count);
        $visit!("reads_pass_writes", $self.reads_pass_writes);
        $visit!("out_of_order", $self.out_of_order);
        $visit!("ordering", $self.ordering);
        $visit!("polled_puts", $self.polled_puts);
        $visit!("qpn_reused", $self.qpn_reused);
        $visit!("adaptive_retransmission", $self.adaptive_retransmission);
        $visit!("interference", $self.interference);
        $visit!("idle_ns", $self.idle_ns);
        $visit!("suspect_ns", $self.suspect_ns);
        $visit!("suspect_floor_ns", $self.suspect_floor_ns);
        $visit!("time_fence", $self.time_fence);
        $visit!("recovery_ns", $self.recovery_ns);
        $visit!("give_up_ns", $self.give_up_ns);
        $visit!("backups", $self.backups);
        $visit!("backups_later", $self.backups_later);
        $visit!("queues_on_device", $self.queues_on_device);
        $visit!("host_channels", $self.host_channels);
        $visit!("log2_chunk", $self.log2_chunk);
        $visit!("adders", $self.adders);
        $visit!("sharers", $self.sharers);
        $visit!("exact", $self.exact);
        $visit!("atomic_gap_ns", $self.atomic_gap_ns);
        $visit!("mtu", $self.mtu);
        $visit!("first_ticket", $self.first_ticket);
        $visit!("first_generation", $self.first_generation);
        $visit!("rail_gbps", $self.rail_gbps);
        $visit!("ft_off", $self.ft_off);
        $visit!("time_limit_ns", $self.time_limit_ns);
        $visit!("firmware_ns", $self.firmware_ns);
        $visit!("command_timeout_ns", $self.command_timeout_ns);
        $visit!("flush_ns", $self.flush_ns);
        $visit!("fence_wait_ns", $self.fence_wait_ns);
        $visit!("drain_ns", $self.drain_ns);
        $visit!("settle_ns", $self.settle_ns);
        $visit!("agent_lifetime_ns", $self.agent.lifetime_ns);
        $visit!("agent_peer_ns", $self.agent.peer_ns);
        $visit!("agent_nic_ns", $self.agent.nic_ns);
        $visit!("agent_doubt_ns", $self.agent.doubt_ns);
        $visit!("agent_resend_ns", $self.agent.resend_ns);
        $visit!("agent_probe_ns", $self.agent.probe_ns);
        $visit!("agent_revive_ns", $self.agent.revive_ns);
        $visit!("agent_backoff_ns", $self.agent.backoff_ns);
        $visit!("agent_port_poll_ns", $self.agent.port_poll_ns);
        $visit!("agent_touch_ns", $self.agent.touch_ns);
        $visit!("agent_looks", $self.agent.looks);
        $visit!("messages", $self.traffic.messages);
        $visit!("slots", $self.traffic.slots);
        $visit!("slot_bytes", $self.traffic.slot_bytes);
        $visit!("puts", $self.traffic.puts);
        $visit!("signals", $self.traffic.signals);
        $visit!("gets", $self.traffic.gets);
        $visit!("fetches", $self.traffic.fetches);
        $visit!("pace_ns", $self.traffic.pace_ns);
        $visit!("credit_lag", $self.traffic.credit_lag);
        $visit!("quiet_before_reuse", $self.traffic.quiet_before_reuse);
        $visit!("wait_ns", $self.traffic.wait_ns);
        $visit!("slice_ns", $self.traffic.slice_ns);
        $visit!("abandoned_ns", $self.traffic.abandoned_ns);
    };
}

impl fmt::Display for RunSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        macro_rules! write_key {
            ($name:literal, $value:expr) => {
                writeln!(f, "{} = {}", $name, Value::write(&$value))?;
            };
        }
        keys!(self, write_key);
        let faults: Vec<String> = self.faults.iter().map(|fault| toml::quote(&fault.to_string())).collect();
        writeln!(f, "faults = [{}]", faults.join(", "))
    }
}

impl FromStr for RunSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut spec = Self::default();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let bad = |why: &str| format!("line {}: {why}: {line}", number + 1);
            let (key, value) = line.split_once('=').ok_or_else(|| bad("no `=`"))?;
            spec.set(key.trim(), value.trim()).map_err(|why| bad(&why))?;
        }
        Ok(spec)
    }
}

/// A value of a key.
trait Value: Sized {
    fn read(text: &str) -> Option<Self>;
    fn write(&self) -> String;
}

impl Value for String {
    fn read(text: &str) -> Option<Self> {
        toml::text(text)
    }
    fn write(&self) -> String {
        toml::quote(self)
    }
}

macro_rules! parsed_values {
    ($($type:ty),*) => { $(impl Value for $type {
        fn read(text: &str) -> Option<Self> {
            text.parse().ok()
        }
        fn write(&self) -> String {
            self.to_string()
        }
    })* };
}
parsed_values!(u32, u64, usize, bool);

impl RunSpec {
    /// The run with its queues in memory of the host, or of a device. There agents cannot carry a switch on, so they do
    /// not here either: nothing else differs.
    pub fn with_queues(mut self, on_device: bool) -> Self {
        self.queues_on_device = on_device;
        (self.agent.looks, self.agent.touch_ns) = (0, u64::MAX);
        self
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        macro_rules! set_key {
            ($name:literal, $field:expr) => {
                if key == $name {
                    $field = Value::read(value).ok_or("a value of another type")?;
                    return Ok(());
                }
            };
        }
        keys!(self, set_key);
        if key != "faults" {
            return Err("unknown key".into());
        }
        let faults = toml::texts(value).ok_or("faults is a list of texts")?;
        let parsed: Result<_, ParseInjectionError> = faults.iter().map(|fault| fault.parse()).collect();
        self.faults = parsed.map_err(|error| error.to_string())?;
        Ok(())
    }
}
