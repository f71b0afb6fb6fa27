//! What programs must outlive, as data: programs, arguments, faults, and what must come of them.

use crate::mpi;
use crate::ucx;
use crate::verbs_stores::{Fate, Kind};

/// Two processes, and what must come of them.
pub struct Case {
    /// Name, also of its files under `<target>/ci/verbs`.
    pub name: &'static str,
    /// The program.
    pub program: &'static str,
    /// Its arguments, at both ends.
    pub args: &'static str,
    /// The faults at the client's end, separated by `;`; empty: none.
    pub fault: &'static str,
    /// The same at the server's end.
    pub server_fault: &'static str,
    /// Both run under `shunt verbs run`.
    pub shim: bool,
    /// Mode of it.
    pub mode: &'static str,
    /// Variables of both ends.
    pub environment: &'static [(&'static str, &'static str)],
    /// Queue pairs of each end.
    pub pairs: usize,
    /// More of each end, which are not protected and stay.
    pub beside: usize,
    /// What must come of it.
    pub must: Must,
    /// NICs of each end.
    pub nics: u32,
    /// Where the ends find each other, if not in the runtime directory.
    pub store: Option<(Kind, Fate)>,
    /// More variables of the client.
    pub client_environment: &'static [(&'static str, &'static str)],
    /// A variable of both ends that `shunt verbs run` does not see.
    pub inside: &'static str,
    /// The client says this once, if anything.
    pub says: &'static str,
}

/// What must come of a case.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Must {
    /// Both end with status 0, and each end moved at least once.
    Move,
    /// Both end with status 0, each end went on over its last backup, and is on its first NIC at the end.
    Return,
    /// Both end with status 0, and each end moved once: not back.
    Once,
    /// Both end with status 0, and nothing moved.
    Stay,
    /// Both end with status 0, and tell nothing of themselves.
    Unseen,
    /// Both end with status 0, and calls were counted.
    Count,
    /// The client ends with another status.
    Fail,
    /// The server ends with another status.
    FailThere,
    /// Both end, and found what was written again, and no message twice.
    Ghosts,
    /// The client moved, or did not, and ends with one error, which is that of an atomic.
    OneError,
}

/// The port of the client's first NIC is down for a second and a half.
const DOWN: &str = "4s:mlx5_0:down=1500ms";
/// The same for programs that end after so many messages: a quick machine has sent them before any fixed time.
const DOWN_EARLY: &str = "2000packets:mlx5_0:down=1s";
/// Answers are lost until the retries of the transport run out.
const ACKS: &str = "2s:mlx5_0:drop-acks=1500ms";
/// The same of atomics alone.
const ANSWERS: &str = "2s:mlx5_0:lost-atomic-response=1500ms";
/// Requests are, and no answer is.
const REQUESTS: &str = "2s:mlx5_0:blackhole-tx=1500ms";
const FLAP: &str = "2s:mlx5_0:flap=700ms/3";
/// perftest sleeps for so many messages, and not for so long.
const EVENTS: &str = "-e -d mlx5_0 -x 0 -F -s 65536 -n 60000";
const PERFTEST_ATOMIC: &str = "-d mlx5_0 -x 0 -F -D 9";
/// Eight queue pairs take from one shared receive queue.
const SHARED: &str = "-d mlx5_0 -x 0 -F -s 4096 -D 9 -q 8 --use-srq";
/// What UCX's perftest sends ends after so many messages, too, and it begins with its wire-up.
const UCX_DOWN: &str = "20000packets:mlx5_0:down=1s";
/// The same for one that sends a message after the other.
const UCX_DOWN_LATE: &str = "5000packets:mlx5_0:down=1s";
const RPING: &str = "-C 3000 -S 1000";
const PERFTEST: &str = "-d mlx5_0 -x 0 -F -s 4096 -D 9";

pub const fn case(
    name: &'static str,
    program: &'static str,
    args: &'static str,
    fault: &'static str,
) -> Case {
    Case {
        name,
        program,
        args,
        fault,
        server_fault: "",
        shim: true,
        mode: "on",
        environment: &[],
        pairs: 1,
        beside: 0,
        must: Must::Move,
        nics: 2,
        store: None,
        client_environment: &[],
        inside: "",
        says: "",
    }
}

const fn stored(name: &'static str, kind: Kind, fate: Fate) -> Case {
    let store = Some((kind, fate));
    Case { store, ..case(name, "shunt-verbs-count", "--seconds 9", "6s:mlx5_0:down=1500ms") }
}

/// Nothing fails, and nothing is protected.
const fn alone(name: &'static str, kind: Kind, fate: Fate, says: &'static str) -> Case {
    let args = "--seconds 2";
    Case { fault: "", must: Must::Stay, says, args, ..stored(name, kind, fate) }
}

/// Three NICs at each end, of which the first two fail.
const fn chained(name: &'static str, args: &'static str, fault: &'static str) -> Case {
    Case { nics: 3, environment: TWO, must: Must::Return, ..case(name, "shunt-verbs-count", args, fault) }
}

const TWO: &[(&str, &str)] = &[("SHUNT_VERBS_BACKUPS", "2")];
/// Both first ports at one end, a millisecond apart.
const TWO_PORTS: &str = "3s:mlx5_0:down=3s;3001ms:mlx5_1:down=2s";
/// The second while requests are posted again there.
const IN_REPLAY: &str = "3s:mlx5_0:down=3s;400packets:mlx5_1:down=2s";

/// A setting that makes no sense, met in the program.
const fn unsound(name: &'static str, inside: &'static str, says: &'static str) -> Case {
    Case { must: Must::Unseen, inside, says, ..case(name, "shunt-verbs-count", "--seconds 1", "") }
}

/// What is said where a store is not there.
const UNPROTECTED: &str = "; new connections are unprotected";

const fn ucx(name: &'static str, program: &'static str, args: &'static str, fault: &'static str) -> Case {
    Case { environment: ucx::VERBS, pairs: 2, beside: 1, ..case(name, program, args, fault) }
}

const fn mpi(name: &'static str, args: &'static str, fault: &'static str) -> Case {
    Case { environment: mpi::VERBS, pairs: 4, beside: 1, ..case(name, mpi::TAGS, args, fault) }
}

impl Case {
    /// Faults that are planned.
    pub fn faults(&self) -> usize {
        [self.fault, self.server_fault].iter().flat_map(|faults| faults.split_terminator(';')).count()
    }
}

/// Cases that `cargo xtask night` runs: each has a sister in the stage of `cargo xtask ci` that differs in little.
pub const BY_NIGHT: &[&str] = &[
    "read-nic-gone",
    "send-old-post-send",
    "events-without-shunt",
    "pingpong-events",
    "count-events-acks",
    "atomic-old-post-send",
    "atomic-without-shunt",
    "atomic-responder-keeps",
    "count-adds-requests-paper",
    "count-adds-unread",
    "send-shared-without-shunt",
    "pingpong-shared",
    "count-shared-acks",
    "count-flaps",
    "ucx-tags-devx",
    "ucx-put-lat",
    "ucx-get",
    "mpi-tags-without-shunt",
    "store-served",
    "store-folder-late",
    "store-redis-absent",
    "store-folder-required",
];

pub const CASES: &[Case] = &[
    Case {
        fault: "",
        must: Must::Stay,
        ..case("send-no-fault", "ib_send_bw", "-d mlx5_0 -x 0 -F -s 4096 -n 2000", "")
    },
    Case {
        mode: "observe",
        must: Must::Count,
        ..case("pingpong-observed", "ibv_rc_pingpong", "-d mlx5_0 -g 0 -n 200 -c", "")
    },
    Case {
        shim: false,
        must: Must::Fail,
        ..case("send-without-shunt", "ib_send_bw", PERFTEST, "4s:mlx5_0:down")
    },
    case("send", "ib_send_bw", PERFTEST, DOWN),
    case("write", "ib_write_bw", PERFTEST, DOWN),
    case("read", "ib_read_bw", PERFTEST, DOWN),
    // The program's own NIC answers nothing any more: no completion says so.
    Case { must: Must::Once, ..case("send-nic-gone", "ib_send_bw", PERFTEST, "3s:mlx5_0:nic-gone") },
    Case { must: Must::Once, ..case("read-nic-gone", "ib_read_bw", PERFTEST, "3s:mlx5_0:nic-gone") },
    // The receiver's: it cannot say what it has executed. The program gets its error, and its wait ends.
    Case {
        server_fault: "3s:mlx5_0:nic-gone",
        must: Must::Fail,
        ..case("write-receiver-gone", "ib_write_bw", PERFTEST, "")
    },
    case("send-old-post-send", "ib_send_bw", "-d mlx5_0 -x 0 -F -s 4096 -D 9 --use_old_post_send", DOWN),
    case("cm-rping", "rping", RPING, DOWN_EARLY),
    Case {
        shim: false,
        must: Must::FailThere,
        ..case("cm-rping-without", "rping", RPING, "2000packets:mlx5_0:down")
    },
    // One queue pair carries what perftest has to say to itself.
    Case { pairs: 2, ..case("cm-write", "ib_write_bw", "-R -d mlx5_0 -x 0 -F -s 4096 -D 9", DOWN) },
    case("pingpong", "ibv_rc_pingpong", "-d mlx5_0 -g 0 -n 6000 -c", DOWN_EARLY),
    Case {
        shim: false,
        must: Must::Fail,
        ..case("events-without-shunt", "ib_send_bw", EVENTS, "400000packets:mlx5_0:down")
    },
    case("send-events", "ib_send_bw", EVENTS, "400000packets:mlx5_0:down=1s"),
    case("pingpong-events", "ibv_rc_pingpong", "-e -d mlx5_0 -g 0 -n 6000 -c", DOWN_EARLY),
    case("count-down", "shunt-verbs-count", "--seconds 7", "2s:mlx5_0:down=1500ms"),
    case("count-acks", "shunt-verbs-count", "--seconds 7", ACKS),
    // Moved to RESET and connected again once it stood elsewhere, and moved again: it took nothing after that.
    Case {
        pairs: 2,
        ..case(
            "count-lives",
            "shunt-verbs-count",
            "--seconds 7 --lives 2",
            "1s:mlx5_0:down=700ms;5s:mlx5_0:down=700ms",
        )
    },
    // The backup of the other end fails as well, again and again: what is left leads from one's second NIC to the
    // other's first.
    Case {
        server_fault: "2s:mlx5_1:flap=300ms/8",
        ..case("count-two-ports", "shunt-verbs-count", "--seconds 9", "2500ms:mlx5_0:down=2s")
    },
    case("count-events-down", "shunt-verbs-count", "--seconds 7 --wait events", "2s:mlx5_0:down=1500ms"),
    case("count-events-acks", "shunt-verbs-count", "--seconds 7 --wait events", ACKS),
    Case {
        environment: &[("SHUNT_VERBS_ATOMIC_ANSWER", "any")],
        ..case("atomic", "ib_atomic_bw", PERFTEST_ATOMIC, DOWN)
    },
    Case {
        environment: &[("SHUNT_VERBS_ATOMIC_ANSWER", "any")],
        ..case(
            "atomic-old-post-send",
            "ib_atomic_bw",
            "-d mlx5_0 -x 0 -F -D 9 -A CMP_AND_SWAP --use_old_post_send",
            DOWN,
        )
    },
    Case {
        shim: false,
        must: Must::Fail,
        ..case("atomic-without-shunt", "ib_atomic_bw", PERFTEST_ATOMIC, "4s:mlx5_0:down")
    },
    // The NIC that executes atomics is gone for longer than the client waits, and no other may.
    Case {
        server_fault: "5s:mlx5_0:down=10s",
        environment: &[("SHUNT_VERBS_ATOMIC_ANSWER", "any"), ("SHUNT_GIVE_UP", "1500ms")],
        must: Must::Fail,
        ..case("atomic-responder-keeps", "ib_atomic_bw", PERFTEST_ATOMIC, "")
    },
    Case {
        server_fault: "5s:mlx5_0:down=10s",
        environment: &[("SHUNT_VERBS_ATOMIC_ANSWER", "any"), ("SHUNT_VERBS_ATOMICS", "move")],
        ..case("atomic-responder-moves", "ib_atomic_bw", PERFTEST_ATOMIC, "")
    },
    // No answer is lost, and none may be by going back.
    Case {
        must: Must::Once,
        ..case("count-adds-requests", "shunt-verbs-count", "--seconds 7 --adds seen", REQUESTS)
    },
    Case {
        must: Must::OneError,
        ..case("count-adds-answers", "shunt-verbs-count", "--seconds 7 --adds seen", ANSWERS)
    },
    // The paper's rule beside ours: it repeats WRITEs that were executed, and gives up an atomic that was not.
    Case {
        environment: &[("SHUNT_VERBS_RULE", "paper")],
        must: Must::Ghosts,
        ..case("count-acks-paper", "shunt-verbs-count", "--seconds 7", ACKS)
    },
    Case {
        environment: &[("SHUNT_VERBS_RULE", "paper")],
        must: Must::OneError,
        ..case("count-adds-requests-paper", "shunt-verbs-count", "--seconds 7 --adds seen", REQUESTS)
    },
    Case {
        environment: &[("SHUNT_VERBS_ATOMIC_ANSWER", "any")],
        ..case("count-adds-unread", "shunt-verbs-count", "--seconds 7 --adds blind", ANSWERS)
    },
    Case {
        shim: false,
        must: Must::Fail,
        ..case("send-shared-without-shunt", "ib_send_bw", SHARED, "4s:mlx5_0:down")
    },
    Case { pairs: 8, ..case("send-shared", "ib_send_bw", SHARED, DOWN) },
    Case {
        pairs: 4,
        ..case("pingpong-shared", "ibv_srq_pingpong", "-d mlx5_0 -g 0 -n 12000 -q 4", DOWN_EARLY)
    },
    // So few buffers that a queue pair which has none must get one from another.
    Case {
        pairs: 4,
        ..case("pingpong-shared-few", "ibv_srq_pingpong", "-d mlx5_0 -g 0 -n 12000 -q 4 -r 8", DOWN_EARLY)
    },
    case("count-shared", "shunt-verbs-count", "--seconds 7 --receives shared", "2s:mlx5_0:down=1500ms"),
    case("count-shared-acks", "shunt-verbs-count", "--seconds 7 --receives shared", ACKS),
    case("count-shared-flaps", "shunt-verbs-count", "--seconds 8 --receives shared", FLAP),
    // Both ends in each process. Whoever sleeps until a message comes was not woken where buffers are shared.
    Case {
        pairs: 2,
        server_fault: "1s:mlx5_0:down=1s",
        ..case(
            "count-here-shared-events",
            "shunt-verbs-count",
            "--seconds 4 --to here --receives shared --wait events",
            "1s:mlx5_0:down=1s",
        )
    },
    // One queue pair in each that is both ends.
    Case {
        server_fault: "1s:mlx5_0:down=1s",
        ..case("count-itself", "shunt-verbs-count", "--seconds 4 --to itself", "1s:mlx5_0:down=1s")
    },
    case("count-flaps", "shunt-verbs-count", "--seconds 8", FLAP),
    // UCX makes two connections, and a queue pair of datagrams for its wire-up.
    Case { shim: false, must: Must::Fail, ..ucx("ucx-tags-without-shunt", ucx::TAGS, "9", "4s:mlx5_0:down") },
    ucx("ucx-tags", ucx::TAGS, "12", "4s:mlx5_0:down=1500ms"),
    Case {
        // Its context is then opened by libmlx5's own function.
        environment: ucx::WITH_DEVX,
        ..ucx("ucx-tags-devx", ucx::TAGS, "12", "4s:mlx5_0:down=1500ms")
    },
    Case {
        // First the server's end leaves, again and again, then the client's.
        server_fault: "4s:mlx5_0:flap=400ms/3",
        ..ucx("ucx-tags-both-ports", ucx::TAGS, "14", "7s:mlx5_0:down=1500ms")
    },
    ucx("ucx-tag-bw", ucx::PERFTEST, "-t tag_bw -s 4096 -n 400000", UCX_DOWN),
    // Without messages it makes one.
    Case { pairs: 1, ..ucx("ucx-put-lat", ucx::PERFTEST, "-t ucp_put_lat -s 4096 -n 20000", UCX_DOWN_LATE) },
    Case { pairs: 1, ..ucx("ucx-get", ucx::PERFTEST, "-t ucp_get -s 4096 -n 100000", UCX_DOWN) },
    // Each rank is connected to the other and to itself, twice each, and has a queue pair of datagrams.
    Case { shim: false, must: Must::Fail, ..mpi("mpi-tags-without-shunt", "7", "4s:mlx5_0:down") },
    mpi("mpi-tags", "7", "4s:mlx5_0:down=1s"),
    chained("count-chain", "--seconds 9", TWO_PORTS),
    chained("count-chain-replay", "--seconds 9", IN_REPLAY),
    stored("store-served", Kind::Served, Fate::Goes),
    stored("store-redis", Kind::Redis, Fate::Goes),
    stored("store-redis-late", Kind::Redis, Fate::Late),
    stored("store-folder", Kind::Folder, Fate::Goes),
    stored("store-folder-late", Kind::Folder, Fate::Late),
    unsound("inside-store", "SHUNT_VERBS_STORE=ftp://x", "SHUNT_VERBS_STORE: expected unix:, "),
    unsound(
        "inside-backups",
        "SHUNT_VERBS_BACKUPS=9",
        "SHUNT_VERBS_BACKUPS: expected a whole number from 1 to 7",
    ),
    alone("store-redis-absent", Kind::Redis, Fate::Absent, UNPROTECTED),
    alone("store-folder-absent", Kind::Folder, Fate::Absent, UNPROTECTED),
    Case {
        client_environment: &[("SHUNT_SECRET", "not the secret of the other")],
        ..alone("store-folder-secret", Kind::Folder, Fate::Stays, "an entry sealed by this secret")
    },
    // The other end is never found, which is known when the connection is long made.
    Case {
        must: Must::Fail,
        program: "ib_send_bw",
        args: "-d mlx5_0 -x 0 -F -s 4096 -D 15",
        says: "got: no process with this library answers at the other end",
        client_environment: &[
            ("SHUNT_SECRET", "not that of the other end"),
            ("SHUNT_VERBS_PEER", "required"),
        ],
        ..alone("store-folder-required", Kind::Folder, Fate::Stays, "")
    },
    Case {
        must: Must::Fail,
        environment: &[("SHUNT_VERBS_PEER", "required")],
        ..alone("store-redis-required", Kind::Redis, Fate::Absent, "(SHUNT_VERBS_PEER=required), got: ")
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_night_runs_exists() {
        let named = |name: &&&str| !CASES.iter().any(|case| case.name == **name);
        assert_eq!(BY_NIGHT.iter().find(named), None);
    }
}
