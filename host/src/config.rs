//! Settings, and their defaults from the environment: ours, and NVSHMEM's of the same meaning. Pure.

pub use shunt_settings::{
    ELSEWHERE, NicKind, QueuesKind, VARIABLES, Variable, nearest, parse_duration, unread,
};

use crate::error::ConfigError;
use crate::events;
use crate::nic::qp::QpTuning;
use crate::rail::RailOptions;
use crate::topology::select::Selection;
use shunt_layout::mutant::Mutant;
use shunt_layout::state::{FencePolicy, OrderPolicy, Policy, SLOTS_MAX};
use shunt_settings::{Lookup, MACHINE_READABLE, TEN_MINUTES_NS, parse_bool, within};

/// How an old path is fenced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FenceMode {
    /// Both halves in ERR, the receiver's count, its NIC flushed.
    #[default]
    Strict,
    /// The same, or, with no host in the loop: an error completion of the old path, and the packet lifetime since.
    Time,
}

/// Who answers fetching atomics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FetchMode {
    /// The NIC at the word: fast, and a port that fails may lose the answer.
    Nic,
    /// The NIC or the word's owner, as device code asks; host calls that want an answer ask the owner.
    #[default]
    Auto,
    /// The same, and host calls ask the owner for every atomic and every signal that adds.
    Exact,
}

impl FetchMode {
    /// By its name.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "nic" => Self::Nic,
            "auto" => Self::Auto,
            "exact" => Self::Exact,
            _ => return None,
        })
    }
}

/// Settings of a PE that the environment may give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnvConfig {
    /// Backup paths made for each channel at start.
    pub backups: u32,
    /// How long every path must stay dead before the peer is reported lost; 0: at once.
    pub give_up_ns: u64,
    /// Longest silence of a path with work outstanding before it is suspected.
    pub suspect_ns: u64,
    /// Shortest, for a path whose completions usually come fast.
    pub suspect_floor_ns: u64,
    /// How long the primary must have been ready again before channels go back to it.
    pub recovery_window_ns: u64,
    /// Good probes wanted, each way, of a path that was recreated.
    pub probes: u32,
    /// Fence.
    pub fence: FenceMode,
    /// Longest time a packet may live in the network.
    pub packet_lifetime_ns: u64,
    /// In which order writes may land; `None`: strict where every NIC keeps the order, else unordered, and said so.
    pub ordering: Option<OrderPolicy>,
    /// Whether receivers act on the data of puts before a signal covers it.
    pub polled_puts: bool,
    /// Who answers fetching atomics.
    pub fetch: FetchMode,
    /// Channels to each peer.
    pub channels_per_pe: u32,
    /// log2 of the rings' depth.
    pub log_depth: u32,
    /// Timers and retries.
    pub tuning: QpTuning,
    /// Service level (InfiniBand) or Ethernet priority of all connections.
    pub service_level: u8,
    /// Traffic class of all connections: its upper six bits are the DSCP of RoCE packets.
    pub traffic_class: u8,
    /// Whether ends of a path agree on options of enhanced connection establishment, where both NICs have it.
    pub ece: bool,
    /// Whether failures switch paths.
    pub fault_tolerance: bool,
    /// Whether switchers leave a record of each step.
    pub step_records: bool,
    /// In whose memory the queues of kernels lie.
    pub queues: QueuesKind,
}

impl Default for EnvConfig {
    fn default() -> Self {
        Self {
            backups: 2,
            give_up_ns: 1_000_000_000,
            suspect_ns: 10_000_000,
            suspect_floor_ns: 2_000_000,
            recovery_window_ns: 100_000_000,
            probes: 3,
            fence: FenceMode::Strict,
            packet_lifetime_ns: 50_000_000,
            ordering: None,
            polled_puts: false,
            fetch: FetchMode::Auto,
            channels_per_pe: 2,
            log_depth: 10,
            tuning: QpTuning::default(),
            service_level: 0,
            traffic_class: 0,
            ece: true,
            fault_tolerance: true,
            step_records: false,
            queues: QueuesKind::Auto,
        }
    }
}

/// Patience of the device, from the settings; what they do not name has a default here.
pub fn policy(config: &EnvConfig) -> Policy {
    Policy {
        fault_tolerance: config.fault_tolerance as u32,
        bracket: 1,
        suspect_ns: config.suspect_ns,
        // Longer than the agent waits for a NIC and for a peer, and then for the packet lifetime: the agent's "no" is
        // an answer, the device's own patience only guards against an agent that is gone.
        fence_wait_ns: config.packet_lifetime_ns.saturating_add(2_000_000_000),
        give_up_ns: config.give_up_ns,
        recovery_window_ns: config.recovery_window_ns,
        drain_ns: 20_000_000,
        ledger_ns: ledger_patience_ns(20_000_000, config.suspect_ns),
        suspect_floor_ns: config.suspect_floor_ns.min(config.suspect_ns),
        packet_lifetime_ns: config.packet_lifetime_ns,
        fence: match config.fence {
            FenceMode::Strict => FencePolicy::Strict as u32,
            FenceMode::Time => FencePolicy::Time as u32,
        },
        ordering: config.ordering.unwrap_or(OrderPolicy::Strict) as u32,
        polled_puts: config.polled_puts as u32,
        rc_gives_up_ms: rc_gives_up_ms(&config.tuning),
    }
}

/// Longest wait for one READ of the ledger, `least_ns` or more. It is work like any other: where the operator says that
/// silence of so long is no failure, that of a READ is none either. A path that is given up too early comes back and is
/// given up again, and if all are, the channel never opens.
pub fn ledger_patience_ns(least_ns: u64, suspect_ns: u64) -> u64 {
    if Mutant::LedgerImpatient.on() { least_ns } else { least_ns.max(suspect_ns) }
}

/// When RC has given up for certain: before a retry a NIC may wait four times its time-out, which is 4.096 us doubled
/// `ack_timeout` times (IBTA volume 1, 9.7.6.1.3).
fn rc_gives_up_ms(tuning: &QpTuning) -> u32 {
    let timeout_ns = 4096_u64 << tuning.ack_timeout.min(31);
    let all_ns = 4 * timeout_ns * u64::from(tuning.retry + 1);
    u32::try_from(all_ns.div_ceil(1_000_000)).unwrap_or(u32::MAX)
}

/// How long a path may be silent: shorter is noise, longer is a wait without an end.
const SUSPECT_NS: std::ops::RangeInclusive<u64> = 100_000..=10_000_000_000;

/// For every door through which rails are opened.
impl From<&EnvConfig> for RailOptions {
    fn from(env: &EnvConfig) -> Self {
        Self {
            ordering: env.ordering,
            traffic_class: env.traffic_class,
            service_level: env.service_level,
            ece: env.ece,
            ..Self::default()
        }
    }
}

impl EnvConfig {
    /// Reads the variables through `lookup`; what is not set keeps its default.
    pub fn from_lookup(lookup: &dyn Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let env = Lookup(lookup);
        let mut config = Self::default();
        let set = |to: &mut u32, value: Option<u32>| *to = value.unwrap_or(*to);
        set(&mut config.backups, env.number("SHUNT_BACKUPS", 0..=SLOTS_MAX as u32 - 1)?);
        config.give_up_ns =
            env.parse("SHUNT_GIVE_UP", within(0..=TEN_MINUTES_NS))?.unwrap_or(config.give_up_ns);
        let (suspect, floor) = (
            env.parse("SHUNT_SUSPECT", within(SUSPECT_NS))?,
            env.parse("SHUNT_SUSPECT_FLOOR", within(SUSPECT_NS))?,
        );
        if suspect.zip(floor).is_some_and(|(suspect, floor)| floor > suspect) {
            let met = lookup("SHUNT_SUSPECT_FLOOR").unwrap_or_default();
            return Err(ConfigError {
                variable: "SHUNT_SUSPECT_FLOOR".into(),
                met,
                want: "what is not above SHUNT_SUSPECT",
            });
        }
        config.suspect_ns = suspect.unwrap_or(config.suspect_ns);
        config.suspect_floor_ns = floor.unwrap_or(config.suspect_floor_ns);
        let interval = env.number("NVSHMEM_IBGDA_RECOVERY_INTERVAL", 0..=1_000_000)?;
        let window = env.parse("SHUNT_RECOVERY_WINDOW", within(0..=TEN_MINUTES_NS))?;
        let window = window.or(interval.map(|ms| u64::from(ms) * 1_000_000));
        config.recovery_window_ns = window.unwrap_or(config.recovery_window_ns);
        set(&mut config.probes, env.number("SHUNT_PROBES", 1..=1000)?);
        let fence = env.parse("SHUNT_FENCE", |text| match text {
            "strict" => Some(FenceMode::Strict),
            "time" => Some(FenceMode::Time),
            _ => None,
        })?;
        config.fence = fence.unwrap_or(config.fence);
        let ordering = env.parse("SHUNT_ORDERING", |text| match text {
            "auto" => Some(None),
            "strict" => Some(Some(OrderPolicy::Strict)),
            "relaxed" => Some(Some(OrderPolicy::Relaxed)),
            "unordered" => Some(Some(OrderPolicy::Unordered)),
            _ => None,
        })?;
        config.ordering = ordering.unwrap_or(config.ordering);
        let polled = env.parse("SHUNT_POLLED_PUTS", parse_bool)?;
        config.polled_puts = polled.unwrap_or(config.polled_puts);
        config.fetch = env.parse("SHUNT_FETCH", FetchMode::from_name)?.unwrap_or(config.fetch);
        config.packet_lifetime_ns =
            env.parse("SHUNT_MPL", within(1..=60_000_000_000))?.unwrap_or(config.packet_lifetime_ns);
        if let Some(depth) = env.number("NVSHMEM_QP_DEPTH", 128..=32768)? {
            config.log_depth = depth.next_power_of_two().ilog2();
        }
        // 0 would be "never": every wait must end.
        set(&mut config.tuning.ack_timeout, env.number("NVSHMEM_IB_TIMEOUT", 1..=31)?);
        set(&mut config.tuning.retry, env.number("NVSHMEM_IB_RETRY_CNT", 0..=7)?);
        config.service_level = env.number("NVSHMEM_IB_SL", 0..=15)?.unwrap_or(0) as u8;
        config.traffic_class = env.number("NVSHMEM_IB_TRAFFIC_CLASS", 0..=255)?.unwrap_or(0) as u8;
        config.ece = env.parse("SHUNT_ECE", parse_bool)?.unwrap_or(config.ece);
        set(&mut config.channels_per_pe, env.number("NVSHMEM_IBGDA_NUM_RC_PER_PE", 1..=1024)?);
        let tolerant = env.parse("NVSHMEM_IBGDA_ENABLE_FAULT_TOLERANCE", parse_bool)?;
        config.fault_tolerance = tolerant.unwrap_or(config.fault_tolerance);
        let steps = env.parse("SHUNT_STEP_RECORDS", parse_bool)?;
        config.step_records = steps.unwrap_or(config.step_records);
        config.queues = QueuesKind::from_lookup(lookup)?.unwrap_or(config.queues);
        Ok(config)
    }

    /// Reads the process's environment.
    pub fn from_env() -> Result<Self, ConfigError> {
        Self::from_lookup(&|name| std::env::var(name).ok())
    }
}

/// Whether a variable may hold a value, by the parser that reads it.
pub fn check(name: &str, value: &str) -> Result<(), ConfigError> {
    let alone = |asked: &str| (asked == name).then(|| value.to_owned());
    EnvConfig::from_lookup(&alone)?;
    events::Watching::from_lookup(&alone)?;
    events::Logging::from_lookup(&alone)?;
    Selection::from_lookup(&alone)?;
    NicKind::from_lookup(&alone)?;
    Lookup(&alone).parse(MACHINE_READABLE, parse_bool)?;
    shunt_bootstrap::job::check(&alone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_and_the_settings_have_the_same_defaults() {
        let written = |name: &str| {
            let variable = VARIABLES.iter().find(|variable| variable.name == name)?;
            (!variable.default.is_empty()).then(|| variable.default.to_owned())
        };
        assert_eq!(EnvConfig::from_lookup(&written), Ok(EnvConfig::default()));
        for variable in VARIABLES.iter().filter(|variable| !variable.default.is_empty()) {
            assert_eq!(check(variable.name, variable.default), Ok(()));
        }
        assert!(check("SHUNT_BACKUPS", "9").is_err());
    }

    fn with(pairs: &[(&str, &str)]) -> Result<EnvConfig, ConfigError> {
        let pairs: Vec<(String, String)> =
            pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        EnvConfig::from_lookup(&move |name| pairs.iter().find(|(k, _)| k == name).map(|(_, v)| v.clone()))
    }

    #[test]
    fn nothing_set_is_the_default() {
        assert_eq!(with(&[]), Ok(EnvConfig::default()));
    }

    #[test]
    fn every_variable_has_its_effect() {
        let met = with(&[
            ("SHUNT_BACKUPS", "3"),
            ("SHUNT_GIVE_UP", "1.5s"),
            ("SHUNT_FENCE", "time"),
            ("SHUNT_MPL", "20ms"),
            ("SHUNT_ORDERING", "relaxed"),
            ("SHUNT_POLLED_PUTS", "1"),
            ("SHUNT_FETCH", "exact"),
            ("SHUNT_SUSPECT", "4ms"),
            ("SHUNT_SUSPECT_FLOOR", "500us"),
            ("SHUNT_RECOVERY_WINDOW", "1s"),
            ("SHUNT_PROBES", "9"),
            ("SHUNT_STEP_RECORDS", "1"),
            ("SHUNT_QUEUES", "gpu"),
            ("NVSHMEM_QP_DEPTH", "1000"),
            ("NVSHMEM_IB_TIMEOUT", "20"),
            ("NVSHMEM_IB_RETRY_CNT", "6"),
            ("NVSHMEM_IBGDA_NUM_RC_PER_PE", "24"),
            ("NVSHMEM_IB_SL", "3"),
            ("NVSHMEM_IB_TRAFFIC_CLASS", "104"),
            ("SHUNT_ECE", "off"),
            ("NVSHMEM_IBGDA_ENABLE_FAULT_TOLERANCE", "0"),
        ]);
        let want = EnvConfig {
            backups: 3,
            give_up_ns: 1_500_000_000,
            fence: FenceMode::Time,
            packet_lifetime_ns: 20_000_000,
            ordering: Some(OrderPolicy::Relaxed),
            polled_puts: true,
            fetch: FetchMode::Exact,
            suspect_ns: 4_000_000,
            suspect_floor_ns: 500_000,
            recovery_window_ns: 1_000_000_000,
            probes: 9,
            channels_per_pe: 24,
            log_depth: 10,
            tuning: QpTuning { ack_timeout: 20, retry: 6, ..QpTuning::default() },
            service_level: 3,
            traffic_class: 104,
            ece: false,
            fault_tolerance: false,
            step_records: true,
            queues: QueuesKind::Gpu,
        };
        assert_eq!(met, Ok(want));
        let policy = policy(&want);
        assert_eq!((policy.give_up_ns, policy.packet_lifetime_ns), (1_500_000_000, 20_000_000));
        assert_eq!(policy.fence_wait_ns, 2_020_000_000);
        assert_eq!(policy.fence, FencePolicy::Time as u32);
        assert_eq!((policy.ordering, policy.polled_puts), (OrderPolicy::Relaxed as u32, 1));
    }

    #[test]
    fn the_environment_reaches_every_connection() {
        let env = EnvConfig { service_level: 3, traffic_class: 104, ece: false, ..EnvConfig::default() };
        let options = RailOptions::from(&env);
        assert_eq!((options.service_level, options.traffic_class, options.ece), (3, 104, false));
    }

    #[test]
    fn the_interval_of_others_is_the_window_where_ours_is_not_set() {
        let theirs = ("NVSHMEM_IBGDA_RECOVERY_INTERVAL", "1000");
        assert_eq!(with(&[theirs]).map(|config| config.recovery_window_ns), Ok(1_000_000_000));
        let both = with(&[theirs, ("SHUNT_RECOVERY_WINDOW", "30ms")]);
        assert_eq!(both.map(|config| policy(&config).recovery_window_ns), Ok(30_000_000));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_what_would() {
        let cases = [
            ("SHUNT_BACKUPS", "8"),
            ("SHUNT_BACKUPS", "two"),
            ("SHUNT_GIVE_UP", "5"),
            ("SHUNT_GIVE_UP", "11m"),
            ("SHUNT_FENCE", "Strict!"),
            ("SHUNT_MPL", "-1ms"),
            ("SHUNT_MPL", "0"),
            ("SHUNT_MPL", "61s"),
            ("SHUNT_ORDERING", "loose"),
            ("SHUNT_ECE", "perhaps"),
            ("SHUNT_POLLED_PUTS", "some"),
            ("SHUNT_FETCH", "agent"),
            ("SHUNT_SUSPECT", "0"),
            ("SHUNT_SUSPECT", "1000s"),
            ("SHUNT_RECOVERY_WINDOW", "1000m"),
            ("SHUNT_SUSPECT_FLOOR", "0"),
            ("SHUNT_RECOVERY_WINDOW", "soon"),
            ("SHUNT_PROBES", "0"),
            ("SHUNT_QUEUES", "device"),
            ("NVSHMEM_IBGDA_RECOVERY_INTERVAL", "1s"),
            ("NVSHMEM_QP_DEPTH", "64"),
            ("NVSHMEM_IB_TIMEOUT", "0"),
            ("NVSHMEM_IB_RETRY_CNT", "8"),
            ("NVSHMEM_IB_SL", "16"),
            ("NVSHMEM_IB_TRAFFIC_CLASS", "256"),
            ("NVSHMEM_IBGDA_NUM_RC_PER_PE", "0"),
            ("NVSHMEM_IBGDA_ENABLE_FAULT_TOLERANCE", "maybe"),
        ];
        for (name, value) in cases {
            let error = with(&[(name, value)]).unwrap_err();
            assert_eq!((error.variable.as_str(), error.met.as_str()), (name, value));
            assert!(error.to_string().contains(", got "), "{error}");
        }
        let error = with(&[("SHUNT_FENCE", "loose")]).unwrap_err();
        assert_eq!(error.to_string(), "SHUNT_FENCE: expected strict or time, got \"loose\"");
    }
}
