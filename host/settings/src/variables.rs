//! The table of every variable that is read.

use crate::syntax;

/// A variable that is read: name, meaning, what it may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Name.
    pub name: &'static str,
    /// What it sets.
    pub meaning: &'static str,
    /// What it may hold.
    pub values: &'static str,
    /// What holds where it is not set, as it would be written; empty: nothing.
    pub default: &'static str,
}

impl Variable {
    const fn default(mut self, default: &'static str) -> Self {
        self.default = default;
        self
    }
}

const fn variable(name: &'static str, meaning: &'static str, values: &'static str) -> Variable {
    Variable { name, meaning, values, default: "" }
}

/// perftest's own variable, which `shmem_put_bw` reads.
pub const MACHINE_READABLE: &str = "NVSHMEM_MACHINE_READABLE_OUTPUT";

/// Every variable that is read; `shunt env` prints them in this order.
pub const VARIABLES: &[Variable] = &[
    variable(
        "SHUNT_BACKUPS",
        "backup paths of each channel; shmem_put_bw, where it is not set: all pairs of rails, at most 7",
        "a whole number from 0 to 7",
    )
    .default("2"),
    variable(
        "SHUNT_GIVE_UP",
        "how long all paths stay dead before a peer is lost; on soft NICs of the NVSHMEM library 10s",
        GIVE_UP,
    )
    .default("1s"),
    variable(
        "SHUNT_SUSPECT",
        "longest silence of a path with work outstanding; shmem_put_bw adds the time of a put; verbs programs: 100ms",
        SUSPECT,
    )
    .default("10ms"),
    variable(
        "SHUNT_SUSPECT_FLOOR",
        "shortest such silence, for a path whose completions usually come fast; as long as SHUNT_SUSPECT: always that",
        SUSPECT,
    )
    .default("2ms"),
    variable(
        "SHUNT_RECOVERY_WINDOW",
        "how long the primary must have been ready again before channels go back; doubled by each flap",
        WINDOW,
    )
    .default("100ms"),
    variable("SHUNT_PROBES", "good probes wanted, each way, of a recreated path", "a whole number from 1 to 1000")
        .default("3"),
    variable("SHUNT_FENCE", "how an old path is fenced", "strict or time").default("strict"),
    variable("SHUNT_MPL", "packet lifetime in the network", LIFETIME).default("50ms"),
    variable("SHUNT_ORDERING", "in which order what is written may land at the receiver", ORDERING)
        .default("auto"),
    variable(
        "SHUNT_ECE",
        "whether ends of a path agree on options of their NICs (enhanced connection establishment), where both have it",
        BOOLEAN,
    )
    .default("1"),
    variable(
        "SHUNT_POLLED_PUTS",
        "whether receivers act on put data before a signal covers it: puts that may not have landed are then uncertain",
        BOOLEAN,
    )
    .default("0"),
    variable(
        "SHUNT_FETCH",
        "who executes fetching atomics: the NIC, or the word's owner, who loses no answer (auto: the owner for hosts, \
         and for kernels where a NIC keeps no count)",
        "nic, auto or exact",
    )
    .default("auto"),
    variable(
        "SHUNT_VERBS",
        "what `shunt verbs run` does for a program: its reliable connections outlive a NIC, calls are counted, nothing",
        "on, observe or off",
    )
    .default("on"),
    variable(
        "SHUNT_VERBS_ATOMIC_ANSWER",
        "what a verbs program gets for an atomic that was executed and whose answer is lost: an error, or success with \
         an unspecified value (any)",
        "error or any",
    )
    .default("error"),
    variable(
        "SHUNT_VERBS_ATOMICS",
        "whether atomics of a verbs program stay on the NIC that it connected to, or may move to another, which is \
         atomic for itself only",
        "keep or move",
    )
    .default("keep"),
    variable(
        "SHUNT_VERBS_BACKUPS",
        "backup NICs of each queue pair of a verbs program: those behind its own in the system's order, as far as \
         there are any",
        "a whole number from 1 to 7",
    )
    .default("1"),
    variable(
        "SHUNT_VERBS_PEER",
        "what becomes of a verbs program's connection that cannot be protected: it is made, or refused (required)",
        "optional or required",
    )
    .default("optional"),
    variable(
        "SHUNT_VERBS_RULE",
        "what a verbs program's queue pair posts again when it moves: what the other NIC has not executed, or, to \
         compare, all that has not completed but received messages (paper)",
        "exact or paper",
    )
    .default("exact"),
    variable(
        "SHUNT_VERBS_STORE",
        "where verbs programs find each other: on this machine, or, for several, at what `shunt store serve` keeps, at \
         a Redis server, or in a folder that all mount",
        "unix:, tcp://HOST:PORT, redis://[USER:PASSWORD@]HOST:PORT[/DB] or file:///FOLDER",
    )
    .default("unix:"),
    variable("SHUNT_STEP_RECORDS", "whether each step of a switch leaves a record", BOOLEAN).default("0"),
    variable("SHUNT_LOG", "what is said of switches and rails, on stderr; wins over NVSHMEM_DEBUG", LOG_LEVEL)
        .default("warn"),
    variable("SHUNT_LOG_FILE", "where that is written; warnings go to stderr as well", syntax::LOG_FILE),
    variable("NVSHMEM_DEBUG", "what is said, by NVSHMEM's words; VERSION and INFO: the library, too", DEBUG_LEVEL),
    variable("NVSHMEM_DEBUG_FILE", "SHUNT_LOG_FILE, where that is not set", syntax::LOG_FILE),
    variable("SHUNT_EVENTS", "timeline of every event, a line of JSON each", syntax::EVENTS_FILE),
    variable(
        "SHUNT_METRICS",
        "where Prometheus may read; each process of a machine has a port, from this one on",
        syntax::METRICS_ADDRESS,
    ),
    variable("SHUNT_STATUS", "whether each PE has a status page in shared memory", BOOLEAN)
        .default("1"),
    variable(
        "NVSHMEM_QP_DEPTH",
        "ring depth, rounded up to a power of two",
        "a whole number from 128 to 32768",
    )
    .default("1024"),
    variable(
        "NVSHMEM_IBGDA_RECOVERY_INTERVAL",
        "SHUNT_RECOVERY_WINDOW in milliseconds, where that is not set",
        "a whole number from 0 to 1000000",
    ),
    variable("NVSHMEM_IB_TIMEOUT", "local ACK timeout, 4.096 us << value", "a whole number from 1 to 31")
        .default("14"),
    variable("NVSHMEM_IB_RETRY_CNT", "transport retries", "a whole number from 0 to 7").default("7"),
    variable(
        "NVSHMEM_IB_SL",
        "service level of all connections; on Ethernet the priority, 7 at most",
        "a whole number from 0 to 15",
    )
    .default("0"),
    variable(
        "NVSHMEM_IB_TRAFFIC_CLASS",
        "traffic class of all connections; on Ethernet its upper six bits are the DSCP",
        "a whole number from 0 to 255",
    )
    .default("0"),
    variable(
        "NVSHMEM_IBGDA_NUM_RC_PER_PE",
        "channels to each peer; shmem_put_bw, where it is not set: one for each CTA",
        "a whole number from 1 to 1024",
    )
    .default("2"),
    variable(
        "NVSHMEM_IBGDA_ENABLE_FAULT_TOLERANCE",
        "whether failures switch paths",
        BOOLEAN,
    )
    .default("1"),
    variable(MACHINE_READABLE, "shmem_put_bw prints perftest's machine-readable lines too", BOOLEAN)
        .default("0"),
    variable(
        "SHUNT_NIC",
        "what carries the packets of a program that links the library: auto takes RDMA devices where there are any; \
         shmem_put_bw, where it is not set: soft",
        "auto, mlx5 or soft",
    )
    .default("auto"),
    variable(
        "SHUNT_QUEUES",
        "in whose memory queues of kernels lie: auto takes the GPU's if the heap lies there and GDRCopy maps it, else \
         the host's; gpu with soft NICs and kernels on the processor: memory that stands for a GPU's",
        "auto, gpu or host",
    )
    .default("auto"),
    variable("SHUNT_RANK", "number of this process in its job", "a whole number below SHUNT_WORLD"),
    variable("SHUNT_WORLD", "processes in the job", "a whole number from 1 to 4096"),
    variable(
        "SHUNT_LOCAL_RANK",
        "number of this process among those of its machine, where no launcher says it",
        "a whole number from 0 to 4095",
    ),
    variable("SHUNT_ROOT", "where rank 0 listens", syntax::ROOT),
    variable("SHUNT_ROOT_FD", "rank 0's listening socket, inherited", "the number of an open descriptor"),
    variable("SHUNT_SECRET", "job secret, the same in all processes", syntax::SECRET),
    variable("SHUNT_SECRET_FILE", "file with the job secret", "a path of a file that others cannot read (mode 600)"),
    variable(
        "SHUNT_FABRIC",
        "soft fabric shared by processes of one machine",
        "1 to 32 letters, digits, dots, dashes or underscores",
    )
    .default(crate::FABRIC),
    variable(
        "NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME",
        "interface of bootstrap and agents",
        syntax::INTERFACE,
    ),
    variable("NVSHMEM_HCA_LIST", "RDMA ports that are used, or with ^ not used", syntax::HCA_LIST),
    variable("NVSHMEM_HCA_PE_MAPPING", "RDMA port of each PE of a node", syntax::HCA_PE_MAPPING),
    variable("NVSHMEM_ENABLE_NIC_PE_MAPPING", "primary rail by rank, not by distance", BOOLEAN).default("0"),
    variable("NVSHMEM_HCA_PREFIX", "RDMA devices that are used, by name", syntax::HCA_PREFIX).default("^smi"),
    variable("NVSHMEM_IB_GID_INDEX", "entry of the GID table", syntax::GID_INDEX).default("-1"),
    variable("NVSHMEM_IB_ADDR_FAMILY", "kind of address a RoCE GID is made from", syntax::ADDR_FAMILY)
        .default("AF_INET"),
    variable("NVSHMEM_IB_ADDR_RANGE", "network a RoCE GID is made from", syntax::ADDR_RANGE),
    variable("NVSHMEM_IB_ROCE_VERSION_NUM", "RoCE version", syntax::ROCE_VERSION).default("2"),
];

const ORDERING: &str = "auto (strict where NICs report data_in_order, else unordered), strict, relaxed (the data of \
    puts in any order, signals behind it) or unordered (the network too; signals are atomics)";
const LOG_LEVEL: &str = "off, error, warn, info (rails, paths, a line a switch), debug (all stages) or trace";
const DEBUG_LEVEL: &str = "NONE, VERSION, WARN, ABORT, INFO or TRACE";
const GIVE_UP: &str =
    "0 (at the first moment without a path), or a number with ns, us, ms, s or m up to 10m, such as 50ms";
const WINDOW: &str = "0 (at once), or a number with ns, us, ms, s or m up to 10m, such as 50ms";
const SUSPECT: &str = "a number with ns, us, ms or s from 100us to 10s, such as 50ms";
/// Without which a proof would prove nothing. No packet lives longer in a network, and much waits for it.
const LIFETIME: &str = "a number above 0 with ns, us, ms or s up to 60s, such as 50ms";
/// Nothing that is waited for takes longer than this.
pub const TEN_MINUTES_NS: u64 = 600_000_000_000;
/// What a yes or no looks like.
pub const BOOLEAN: &str = "0, 1, true, false, yes, no, on or off";
