//! The variables of NVSHMEM, and what becomes of each. Those that the host side reads itself stand in
//! `shunt_host::config::VARIABLES`.

use crate::heap_home::HeapKind;

/// What a variable may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// Anything.
    Any,
    /// A first letter of 0, n or f is false.
    Boolean,
    /// A whole number within bounds.
    Number(i64, i64),
    /// Bytes, at least so many.
    Size(u64),
    /// One of these, in any case.
    Word(&'static [&'static str]),
    /// A time that is not 0.
    Duration,
}

impl Values {
    /// For people.
    pub fn text(self) -> String {
        match self {
            Self::Any => "any text".to_owned(),
            Self::Boolean => "0, n.. or f.. for no, anything else for yes".to_owned(),
            Self::Number(low, high) if high > 1 << 32 => format!("a whole number, at least {low}"),
            Self::Number(low, high) => format!("a whole number from {low} to {high}"),
            Self::Size(low) => format!("a number of bytes, at least {low}, such as 512M or 1.5G"),
            Self::Word(words) => words.join(", "),
            Self::Duration => "a number with ns, us, ms or s, such as 600s".to_owned(),
        }
    }
}

/// What is refused by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Nothing.
    Never,
    /// Yes.
    True(&'static str),
    /// No.
    False(&'static str),
    /// More than 0.
    AboveZero(&'static str),
    /// Anything.
    Set(&'static str),
    /// One of these words.
    Words(&'static [&'static str], &'static str),
}

/// What becomes of a value that is not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It does what it says.
    Honoured,
    /// It is another name of this one.
    SameAs(&'static str),
    /// Nothing, for this reason.
    None(&'static str),
}

/// One variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Name.
    pub name: &'static str,
    /// What holds where it is not set; empty: nothing.
    pub default: &'static str,
    /// What it sets.
    pub meaning: &'static str,
    /// What it may hold.
    pub values: Values,
    /// What becomes of it.
    pub effect: Effect,
    /// What is refused.
    pub refused: Refused,
}

impl Known {
    const fn refused(mut self, refused: Refused) -> Self {
        self.refused = refused;
        self
    }
}

const fn honoured(name: &'static str, default: &'static str, meaning: &'static str, values: Values) -> Known {
    Known { name, default, meaning, values, effect: Effect::Honoured, refused: Refused::Never }
}

const fn idle(
    name: &'static str,
    default: &'static str,
    meaning: &'static str,
    values: Values,
    why: &'static str,
) -> Known {
    Known { name, default, meaning, values, effect: Effect::None(why), refused: Refused::Never }
}

const ANY_NUMBER: Values = Values::Number(-1, 1 << 40);
const NO_DC: &str = "there is no DC transport, RC alone carries everything";
const NO_DC_ASKED: Refused = Refused::AboveZero(NO_DC);
const NO_PROXY: &str = "there is no proxy thread and no second transport";
const NO_P2P: &str = "PEs reach each other through NICs alone";
const NO_CUDA: &str = "this library has its heap in host memory";
const NOT_SET: &str = "this library leaves it as it is";
const FIRST_KEY: &str = "the first key of a port is taken";
const BY_TOPOLOGY: &str = "the nearest are taken, or those of NVSHMEM_HCA_LIST and NVSHMEM_HCA_PE_MAPPING";
const NO_OTHER: &str = "this library has one transport, RC on mlx5 queue pairs";
const RC_AT_ONCE: &str = "a queue pair that saw one error completion is done for, so one is enough to switch";
const CHECKED_IN_WAITS: &str =
    "completions are looked at in every wait, and by the agent where no caller waits";
const NOT_CHOSEN: &str = "device code names its channel itself";
const COLLECTIVES: &str = "collectives have one algorithm";

/// All of them, in the order in which `shunt env` prints them.
pub const TABLE: &[Known] = &[
    honoured(
        "NVSHMEM_SYMMETRIC_SIZE",
        "1G",
        "bytes nvshmem_malloc has to give away on each PE; room for a few small allocations comes on top",
        Values::Size(1),
    ),
    honoured(
        "NVSHMEM_DISABLE_P2P",
        "0",
        "PEs of one node do not map each other's heaps: nvshmem_ptr is null, NVSHMEM_TEAM_SHARED each PE alone",
        Values::Boolean,
    ),
    honoured(
        "NVSHMEM_CUMEM_GRANULARITY",
        "512M",
        "bytes of the heap that one key covers, rounded up to a power of two",
        Values::Size(4096),
    ),
    honoured(
        "NVSHMEM_MAX_TEAMS",
        "128",
        "teams at a time, the six built-in ones among them",
        Values::Number(7, 4096),
    ),
    honoured(
        "NVSHMEM_ENABLE_MULTI_PORT",
        "",
        "whether a PE opens all its ports; where it is not set: if failures switch paths",
        Values::Boolean,
    ),
    Known {
        effect: Effect::SameAs("NVSHMEM_ENABLE_MULTI_PORT"),
        ..honoured("NVSHMEM_IBGDA_ENABLE_MULTI_PORT", "", "older name; the new one wins", Values::Boolean)
    },
    honoured(
        "SHUNT_HEAP",
        "auto",
        "in which memory the symmetric heap lies: auto takes the GPU's where kernels run on one and NICs are hardware, \
         else the host's; simulated: memory that stands for a GPU's, for tests",
        Values::Word(HeapKind::NAMES),
    ),
    honoured("SHUNT_SOFT_RAILS", "2", "soft NICs of each PE", Values::Number(1, 8)),
    honoured("SHUNT_CALL_DEADLINE", "600s", "longest wait of one call of the NVSHMEM API", Values::Duration),
    idle(
        "NVSHMEM_IBGDA_FAILURE_THRESHOLD",
        "1",
        "error completions in a row before a path is left",
        ANY_NUMBER,
        RC_AT_ONCE,
    ),
    idle(
        "NVSHMEM_IBGDA_CHECK_INTERVAL",
        "",
        "operations between two looks at completions",
        ANY_NUMBER,
        CHECKED_IN_WAITS,
    ),
    idle(
        "NVSHMEM_IB_ENABLE_IBGDA",
        "1",
        "whether device code rings doorbells itself",
        Values::Boolean,
        "it always does",
    )
    .refused(Refused::False("this library is nothing without it")),
    idle(
        "NVSHMEM_REMOTE_TRANSPORT",
        "ibrc",
        "transport of host-initiated transfers",
        Values::Word(&["ibrc", "ibdevx", "ibgda", "none", "ucx", "libfabric", "gpunetio"]),
        "they take the same channels as device code, with none, too: PEs of one machine reach each other by NICs",
    )
    .refused(Refused::Words(&["ucx", "libfabric", "gpunetio"], NO_OTHER)),
    idle(
        "NVSHMEM_GPUNETIO_ENABLE_GDAKI",
        "0",
        "another device transport",
        Values::Boolean,
        "it is not asked for",
    )
    .refused(Refused::True(NO_OTHER)),
    idle("NVSHMEM_IBGDA_NUM_DCT", "0", "DC targets", ANY_NUMBER, NO_DC).refused(NO_DC_ASKED),
    idle("NVSHMEM_IBGDA_NUM_DCI", "0", "DC initiators", ANY_NUMBER, NO_DC).refused(NO_DC_ASKED),
    idle("NVSHMEM_IBGDA_NUM_SHARED_DCI", "0", "DC initiators that are shared", ANY_NUMBER, NO_DC)
        .refused(NO_DC_ASKED),
    idle("NVSHMEM_IBGDA_DCI_MAP_BY", "", "which DC initiator is taken", Values::Any, NO_DC),
    idle("NVSHMEM_IBGDA_NUM_FETCH_SLOTS_PER_DCI", "", "room for answers of DC initiators", ANY_NUMBER, NO_DC),
    idle(
        "NVSHMEM_IBGDA_RC_MAP_BY",
        "none",
        "which channel device code takes",
        Values::Word(&["none", "cta", "sm", "warp"]),
        NOT_CHOSEN,
    ),
    idle(
        "NVSHMEM_IBGDA_NUM_FETCH_SLOTS_PER_RC",
        "",
        "room for answers",
        ANY_NUMBER,
        "there is a word for each slot of a ring",
    ),
    idle(
        "NVSHMEM_IBGDA_NUM_REQUESTS_IN_BATCH",
        "",
        "posts to a doorbell",
        ANY_NUMBER,
        "posts that come together share one",
    ),
    idle(
        "NVSHMEM_IBGDA_FORCE_NIC_BUF_MEMTYPE",
        "",
        "where rings lie",
        Values::Word(&["gpumem", "hostmem", "auto"]),
        NO_CUDA,
    ),
    idle(
        "NVSHMEM_IBGDA_NIC_HANDLER",
        "auto",
        "who rings doorbells",
        Values::Word(&["auto", "gpu", "cpu", "cpu_host_memory"]),
        "who posts rings",
    )
    .refused(Refused::Words(&["cpu", "cpu_host_memory"], NO_PROXY)),
    honoured(
        "NVSHMEM_MAX_NICS_PER_PE",
        "0",
        "most ports of a PE with SHUNT_NIC=mlx5, 8 at most; 0: 2",
        Values::Number(0, 1_000_000),
    ),
    idle(
        "NVSHMEM_SRQ_DEPTH",
        "",
        "depth of shared receive queues",
        ANY_NUMBER,
        "one-sided traffic needs no receive queue",
    ),
    idle("NVSHMEM_IB_ROUTABLE_FLID_GID_INDEX", "1", "GID of routed InfiniBand", ANY_NUMBER, NOT_SET),
    idle("NVSHMEM_IB_FORCE_GRH", "0", "GRH on InfiniBand", Values::Boolean, NOT_SET),
    idle("NVSHMEM_IB_PKEY_INDEX", "0", "partition key", ANY_NUMBER, FIRST_KEY),
    idle(
        "NVSHMEM_IB_ENABLE_RELAXED_ORDERING",
        "0",
        "relaxed ordering of placement",
        Values::Boolean,
        "SHUNT_ORDERING=relaxed asks for it, for data alone",
    ),
    idle("NVSHMEM_IB_DISABLE_DMABUF", "0", "no dma-buf", Values::Boolean, NO_CUDA),
    idle("NVSHMEM_DISABLE_DATA_DIRECT", "0", "no data-direct function", Values::Boolean, NO_CUDA),
    idle(
        "NVSHMEM_DISABLE_IB_NATIVE_ATOMICS",
        "0",
        "atomics by a proxy",
        Values::Boolean,
        "NICs execute atomics",
    )
    .refused(Refused::True(NO_PROXY)),
    idle("NVSHMEM_IB_NUM_RC_PER_DEVICE", "", "queue pairs of a proxy", ANY_NUMBER, NO_PROXY),
    idle(
        "NVSHMEM_IB_ATOMIC_POLICY",
        "AUTO",
        "which NIC executes atomics",
        Values::Word(&["AUTO", "SINGLE", "MULTI"]),
        "words have one home NIC at a time, as in SINGLE",
    )
    .refused(Refused::Words(&["MULTI"], "atomics of two NICs on one word are not atomic")),
    idle("NVSHMEM_NETDEVS_POLICY", "AUTO", "which NICs a PE takes", Values::Any, BY_TOPOLOGY),
    honoured(
        "NVSHMEM_DISABLE_GDRCOPY",
        "0",
        "no GDRCopy: queues of kernels lie in the host's memory",
        Values::Boolean,
    ),
    idle(
        "NVSHMEM_GDRCOPY_USE_INTERNAL_DMABUF",
        "0",
        "GDRCopy by dma-buf",
        Values::Boolean,
        "GDRCopy's own library decides how it maps",
    ),
    idle(
        "NVSHMEM_REGION_MAX_SLOTS",
        "4096",
        "regions of batched transfers",
        ANY_NUMBER,
        "there are no regions",
    ),
    idle(
        "NVSHMEM_REGION_HOST_BATCH_MAX_OPS",
        "0",
        "operations of a batch",
        ANY_NUMBER,
        "there are no regions",
    ),
    idle(
        "NVSHMEM_REGION_DEVICE_BATCH_THRESHOLD",
        "",
        "operations of a batch",
        ANY_NUMBER,
        "there are no regions",
    ),
    idle("NVSHMEM_DISABLE_LOCAL_ONLY_PROXY", "0", "no proxy for local work", Values::Boolean, NO_PROXY),
    idle(
        "NVSHMEM_MAX_MEMORY_PER_GPU",
        "",
        "addresses reserved for the heap",
        Values::Size(1),
        "the heap does not grow",
    ),
    idle("NVSHMEM_HEAP_KIND", "SYSMEM", "where the heap lies", Values::Word(&["DEVICE", "SYSMEM"]), NO_CUDA),
    idle("NVSHMEM_DISABLE_CUDA_VMM", "0", "heap without virtual memory calls", Values::Boolean, NO_CUDA),
    idle(
        "NVSHMEM_BOOTSTRAP",
        "",
        "how PEs find each other",
        Values::Word(&["UID", "PMI", "MPI", "SHMEM", "plugin"]),
        "init_attr or the launcher's variables say it; MPI: the MPI plugin",
    )
    .refused(Refused::Words(
        &["SHMEM", "plugin"],
        "a unique id, MPI, shunt run, torchrun, srun and PMI by environment are there",
    )),
    honoured(
        "NVSHMEM_BOOTSTRAP_MPI_PLUGIN",
        "",
        "plugin that asks MPI; where it is not set nvshmem_bootstrap_mpi.so.3, beside the library",
        Values::Any,
    ),
    idle(
        "NVSHMEM_BOOTSTRAP_PMI",
        "",
        "which PMI",
        Values::Any,
        "rank and size of the launcher's variables are enough",
    ),
    idle(
        "NVSHMEM_BOOTSTRAP_UID_SOCK_FAMILY",
        "",
        "address family of the bootstrap",
        Values::Any,
        "the root's address decides",
    ),
    idle(
        "NVSHMEM_BOOTSTRAP_UID_SESSION_ID",
        "",
        "address of the bootstrap",
        Values::Any,
        "the unique id holds it",
    ),
    idle("NVSHMEM_G_BUF_SIZE", "", "room for answers of proxies", Values::Any, NO_PROXY),
    idle(
        "NVSHMEM_CPU_AFFINITY",
        "AUTO",
        "where threads run",
        Values::Any,
        "the agent sleeps where nothing fails",
    ),
    idle("NVSHMEM_DISABLE_NVLS", "1", "no NVLink multicast", Values::Boolean, NO_P2P),
    idle("NVSHMEM_DISABLE_MNNVL", "1", "no NVLink between nodes", Values::Boolean, NO_P2P),
    idle("NVSHMEM_DISABLE_NCCL", "1", "collectives without NCCL", Values::Boolean, COLLECTIVES),
    idle("NVSHMEM_MAX_CTAS", "", "most blocks of a collective", ANY_NUMBER, COLLECTIVES),
    idle("NVSHMEM_CUDA_PATH", "", "where CUDA is", Values::Any, NO_CUDA),
    idle("NVSHMEM_DEBUG_SUBSYS", "", "which messages are said", Values::Any, "there are few"),
    idle(
        "NVSHMEM_DEBUG_ATTACH_DELAY",
        "0",
        "seconds to attach a debugger",
        ANY_NUMBER,
        "a debugger can start the process",
    ),
    idle("NVSHMEM_INFO", "0", "list of variables at start", Values::Boolean, "shunt env prints it"),
    idle("NVSHMEM_CONF_FILE", "", "file of variables", Values::Any, "it is not read")
        .refused(Refused::Set("such a file is not read; its lines belong into the environment")),
];
