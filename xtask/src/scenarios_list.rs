//! What the main program must show, as data: command lines, exit statuses, and what its JSON has to say.
//!
//! Each row is one promise of the README seen from outside, on the wall clock, with real threads.

use crate::scenarios::{Holds, How, Scenario};

/// Nothing lost, nothing doubled, nothing out of order, nothing written late; and the faults did happen.
const CLEAN: &[Holds] = &[
    Holds::Is("puts_lost", 0),
    Holds::Is("signals_duplicated", 0),
    Holds::Is("order_violations", 0),
    Holds::Is("ghost_writes", 0),
    Holds::EveryFaultHit,
];

/// The same, with signals that no repetition would leave as they are, over at least one switch.
const COUNTED_ONCE: &[Holds] = &[
    Holds::Is("puts_lost", 0),
    Holds::Is("signals_duplicated", 0),
    Holds::Same("signals_applied", "signals_posted"),
    Holds::Is("uncertain", 0),
    Holds::Is("order_violations", 0),
    Holds::Is("ghost_writes", 0),
    Holds::AtLeast("failovers", 1),
    Holds::EveryFaultHit,
];

/// Far above any run's own time; only a hang reaches it.
const HANG_MS: u64 = 60_000;

/// A run in one process that must end clean.
pub const fn clean(name: &'static str, args: &'static str) -> Scenario {
    Scenario {
        name,
        how: How::Threads,
        args,
        exit: 0,
        limit_ms: HANG_MS,
        holds: CLEAN,
        or: None,
        figures: &[],
    }
}

/// A run in two processes that must end clean.
const fn clean_processes(name: &'static str, how: How, args: &'static str) -> Scenario {
    Scenario { how, ..clean(name, args) }
}

/// A run in two processes that must end for want of a path, its faults hit.
const fn lost(name: &'static str, args: &'static str) -> Scenario {
    Scenario { how: How::ShuntRun, exit: 3, holds: &[Holds::EveryFaultHit], ..clean(name, args) }
}

/// MoE layers that must all be right, over at least one switch; each byte was compared.
const fn layers(name: &'static str, args: &'static str) -> Scenario {
    const HOLDS: &[Holds] = &[
        Holds::Is("mismatches", 0),
        Holds::Is("hangs", 0),
        Holds::Is("masked_ranks", 0),
        Holds::Same("iterations", "asked"),
        Holds::AtLeast("failovers", 1),
        Holds::Says("verdict", "clean"),
    ];
    Scenario { how: How::Moe, holds: HOLDS, ..clean(name, args) }
}

/// The same on four ranks, each a process, through libibverbs: there and back.
const fn layers_mlx5(name: &'static str, args: &'static str) -> Scenario {
    const HOLDS: &[Holds] = &[
        INTERPOSER,
        Holds::Is("processes", 4),
        Holds::Is("mismatches", 0),
        Holds::Same("iterations", "asked"),
        Holds::AtLeast("failovers", 1),
        Holds::AtLeast("switchbacks", 1),
        Holds::Says("verdict", "clean"),
    ];
    Scenario { how: How::MoeSoftRdma, holds: HOLDS, ..clean(name, args) }
}

/// All of them, shortest story first.
pub const SCENARIOS: &[Scenario] = &[
    clean("default", ""),
    Scenario {
        name: "port-down-up",
        how: How::Threads,
        args: "--duration 2500ms --inject 500ms:0.0:down --inject 1500ms:0.0:up",
        exit: 0,
        limit_ms: HANG_MS,
        holds: &[
            Holds::Is("puts_lost", 0),
            Holds::Is("signals_duplicated", 0),
            Holds::Is("order_violations", 0),
            Holds::Is("ghost_writes", 0),
            Holds::EveryFaultHit,
            Holds::AtLeast("failovers", 1),
            Holds::AtLeast("switchbacks", 1),
        ],
        or: None,
        figures: &[Holds::Within("gb_s_after", "gb_s_before", 0.1)],
    },
    clean("receiver-port", "-n 0 --duration 1500ms --inject 300ms:1.0:down --inject 900ms:1.0:up"),
    clean(
        "both-primaries",
        "-n 0 --duration 1500ms --inject 300ms:0.0:down --inject 300ms:1.0:down --inject 900ms:0.0:up \
             --inject 900ms:1.0:up",
    ),
    clean("flap", "-n 0 --duration 2s --inject 300ms:0.0:flap=50ms/10"),
    clean("acks-dropped", "-n 0 --duration 1500ms --inject 300ms:0.0:drop-acks=10ms"),
    clean("acks-dropped-for-ever", "-n 0 --duration 1500ms --inject 300ms:0.0:drop-acks"),
    clean("blackhole", "-n 0 --duration 1500ms --inject 300ms:0.0:blackhole-tx"),
    clean("late-placement", "-n 0 --duration 1500ms --inject 300ms:1.0:placement-delay=2ms"),
    clean(
        "late-placement-and-port-down",
        "-n 0 --duration 1500ms --inject 200ms:1.0:placement-delay=2ms --inject 500ms:0.0:down",
    ),
    Scenario {
        name: "crossed-rails",
        how: How::Threads,
        args: "-n 0 --duration 1500ms --inject 300ms:0.0:down --inject 300ms:1.1:down",
        exit: 0,
        limit_ms: HANG_MS,
        holds: &[
            Holds::Is("puts_lost", 0),
            Holds::Is("signals_duplicated", 0),
            Holds::Is("order_violations", 0),
            Holds::Is("ghost_writes", 0),
            Holds::EveryFaultHit,
            Holds::SwitchTo("0.1>1.0"),
        ],
        or: None,
        figures: &[],
    },
    Scenario {
        holds: &[
            Holds::Is("puts_lost", 0),
            Holds::Is("signals_duplicated", 0),
            Holds::Is("order_violations", 0),
            Holds::Is("ghost_writes", 0),
            Holds::EveryFaultHit,
            Holds::RailsIdle(0, 0),
            Holds::RailsIdle(1, 1),
            Holds::RailsIdle(2, 2),
        ],
        or: None,
        figures: &[Holds::Keeps(1, 85.0), Holds::Keeps(2, 72.0)],
        ..clean(
            "eight-rails",
            "-n 0 --rails 8 --rail-gbps 0.5 --size 16K --window 32 --duration 2400ms --inject 800ms:0.0:down \
             --inject 1600ms:0.3:down",
        )
    },
    clean(
        "no-path-for-a-while",
        "-n 0 --duration 2s --inject 500ms:0.0:down --inject 501ms:1.0:down --inject 502ms:0.1:down \
             --inject 700ms:0.0:up",
    ),
    Scenario {
        name: "all-paths-down",
        how: How::Threads,
        args: "-n 0 --duration 10s --inject 300ms:0.0:down --inject 300ms:0.1:down",
        exit: 3,
        // That the give-up time is kept is held in virtual time (tests/bounds.rs); here only a hang fails. The run is
        // told to last 10 s, so its own time in the output shows when the peer was given up.
        limit_ms: HANG_MS,
        holds: &[Holds::EveryFaultHit],
        or: None,
        figures: &[],
    },
    Scenario {
        name: "without-fault-tolerance",
        how: How::Threads,
        args: "-n 0 --duration 10s --ft off --inject 300ms:0.0:down",
        exit: 3,
        limit_ms: 10_000,
        holds: &[Holds::EveryFaultHit],
        or: None,
        figures: &[],
    },
    // An atomic is applied, its answer is lost (NVIDIA/nccl#2383): each signal is counted once.
    Scenario {
        holds: COUNTED_ONCE,
        ..clean(
            "lost-atomic-response",
            "-n 0 --duration 1500ms --mode signal --signal add --inject 300ms:0.0:lost-atomic-response",
        )
    },
    Scenario {
        holds: COUNTED_ONCE,
        ..clean(
            "lost-atomic-response-cleared",
            "-n 0 --duration 1s --mode signal --signal cleared --inject 300ms:0.0:lost-atomic-response",
        )
    },
    clean(
        "adding-signals-port-down-up",
        "-n 0 --duration 1200ms --signal add --inject 300ms:0.0:down --inject 700ms:0.0:up",
    ),
    clean(
        "cleared-signals-port-down-up",
        "-n 0 --duration 1200ms --signal cleared --inject 300ms:0.0:down --inject 700ms:0.0:up",
    ),
    clean(
        "cleared-signals-acks-dropped",
        "-n 0 --duration 1s --signal cleared --inject 300ms:0.0:drop-acks=10ms",
    ),
    clean("adding-signals-blackhole", "-n 0 --duration 1s --signal add --inject 300ms:0.0:blackhole-tx"),
    clean(
        "cleared-signals-late-placement",
        "-n 0 --duration 1s --signal cleared --inject 200ms:1.0:placement-delay=2ms --inject 500ms:0.0:down",
    ),
    clean(
        "adding-signals-lossy",
        "-n 0 --duration 1s --mode p --signal add --inject 200ms:0.0:drop=0.01/300ms \
             --inject 300ms:1.0:dup=0.05/300ms --inject 400ms:0.0:reorder=7/300ms",
    ),
    clean(
        "cleared-signals-receiver-nic-gone",
        "-n 0 --duration 1s --signal cleared --inject 300ms:1.0:nic-gone",
    ),
    clean(
        "cleared-signals-time-fence",
        "-n 0 --duration 1s --signal cleared --fence time --inject 300ms:0.0:down",
    ),
    clean(
        "adding-signals-uncertain-twice",
        "-n 0 --duration 2s --signal add --uncertain not --inject 630ms:1.0:nic-gone",
    ),
    clean("atomics", "-n 0 --duration 500ms --mode amo --watch"),
    clean(
        "atomics-port-down-up",
        "-n 0 --duration 1200ms --mode amo --uncertain applied --inject 300ms:0.0:down --inject 700ms:0.0:up",
    ),
    // The answer of a fetching atomic is lost for good: named, never guessed.
    Scenario {
        exit: 3,
        holds: &[Holds::AtLeast("uncertain", 1), Holds::Says("verdict", "uncertain"), Holds::EveryFaultHit],
        ..clean("lost-fetched-value", "-n 0 --duration 5s --mode amo --inject 300ms:0.0:lost-atomic-response")
    },
    Scenario {
        exit: 1,
        holds: &[Holds::AtLeast("signals_duplicated", 1), Holds::Says("verdict", "broken")],
        ..clean(
            "sabotage-double-atomic",
            "-n 0 --duration 500ms --mode signal --signal add --inject 200ms:1.0:double-atomic",
        )
    },
    Scenario {
        exit: 1,
        holds: &[Holds::AtLeast("puts_lost", 1), Holds::Says("verdict", "broken")],
        ..clean("sabotage-skip-atomic", "-n 0 --duration 500ms --mode amo --inject 200ms:1.0:skip-atomic")
    },
    Scenario { how: How::Threads, ..lost("peer-killed", "-n 0 --duration 10s --inject 300ms:1:peer-killed") },
    clean(
        "agent-and-clock",
        "-n 0 --duration 1500ms --inject 200ms:0:clock-jump=60m --inject 300ms:1:agent-stalled=200ms \
             --inject 350ms:0:oob-cut=300ms --inject 400ms:0.0:down --inject 700ms:1:agent-restart \
             --inject 900ms:0.0:up --inject 1s:0:agent-dead=50ms",
    ),
    clean_processes(
        "processes-port-down-up",
        How::ShuntRun,
        "-e 64K -f 8 -n 20 --duration 1500ms --inject 300ms:0.0:down --inject 800ms:0.0:up",
    ),
    clean_processes(
        "processes-both-primaries",
        How::ShuntRun,
        "-n 0 --duration 1500ms --inject 300ms:0.0:down --inject 300ms:1.0:down --inject 900ms:0.0:up \
             --inject 900ms:1.0:up",
    ),
    clean_processes(
        "processes-lost-atomic-response",
        How::ShuntRun,
        "-n 0 --duration 1s --mode signal --signal add --inject 300ms:0.0:lost-atomic-response",
    ),
    clean_processes(
        "processes-cleared-signals",
        How::ShuntRun,
        "-n 0 --duration 1200ms --signal cleared --inject 300ms:1.0:down --inject 700ms:1.0:up",
    ),
    clean_processes(
        "processes-blackhole",
        How::ShuntRun,
        "-n 0 --duration 1500ms --inject 300ms:0.0:blackhole-tx",
    ),
    lost("processes-all-paths-down", "-n 0 --duration 10s --inject 300ms:0.0:down --inject 300ms:0.1:down"),
    lost("processes-peer-killed", "-n 0 --duration 10s --inject 300ms:1:peer-killed"),
    clean_processes(
        "two-shells",
        How::TwoShells,
        "-n 0 --duration 1200ms --inject 300ms:1.0:down --inject 700ms:1.0:up",
    ),
    layers("moe-random-faults", "--ranks 4 --iters 1500 --every 50ms --faults random --seed 8"),
    layers(
        "moe-cleared-signals",
        "--ranks 2 --iters 1500 --every 50ms --faults down=20ms --seed 9 --signals cleared --topk 8 --local-experts 4",
    ),
    Scenario {
        exit: 1,
        holds: &[Holds::AtLeast("mismatches", 1)],
        ..layers(
            "moe-sabotage",
            "--ranks 2 --iters 300 --tokens 3 --format bf16 --faults corrupt --every 2ms --timeout 5s",
        )
    },
];

/// What figures over the interposer's soft NICs are labelled with.
const INTERPOSER: Holds = Holds::Says("clock", "soft NIC (interposer), wall time");

/// A run through libibverbs and libmlx5 that must end clean.
const fn clean_mlx5(name: &'static str, args: &'static str) -> Scenario {
    const HOLDS: &[Holds] = &[
        Holds::Is("puts_lost", 0),
        Holds::Is("signals_duplicated", 0),
        Holds::Is("order_violations", 0),
        Holds::Is("ghost_writes", 0),
        Holds::EveryFaultHit,
        Holds::Says("verdict", "clean"),
        INTERPOSER,
    ];
    Scenario { holds: HOLDS, ..clean_processes(name, How::SoftRdma, args) }
}

/// A run through libibverbs and libmlx5 that must end for want of a path, its faults hit.
const fn lost_mlx5(name: &'static str, args: &'static str) -> Scenario {
    Scenario { how: How::SoftRdma, holds: &[Holds::EveryFaultHit, INTERPOSER], ..lost(name, args) }
}

/// The same verdicts through libibverbs and libmlx5, on the soft NICs that the interposer shows to them.
pub const SOFT_RDMA: &[Scenario] = &[
    layers_mlx5("mlx5-moe-processes", "--iters 400 --every 200ms --faults down=30ms --seed 3"),
    layers_mlx5(
        "mlx5-moe-normal-processes",
        "--mode normal --nodes 2 --iters 200 --every 200ms --faults down=30ms --seed 4",
    ),
    Scenario {
        holds: &[Holds::Is("posted_on_node", 0), Holds::Is("mismatches", 0), Holds::Says("verdict", "clean")],
        ..layers_mlx5(
            "mlx5-moe-one-node",
            "--ranks-per-node 4 --iters 400 --every 20ms --faults down --signals cleared --seed 3",
        )
    },
    clean_mlx5("mlx5-clean", "-e 64K -f 8 -n 20 --duration 500ms --watch"),
    clean_mlx5("mlx5-port-down-up", "-n 0 --duration 1500ms --inject 300ms:0.0:down --inject 800ms:0.0:up"),
    clean_mlx5(
        "mlx5-both-primaries",
        "-n 0 --duration 1500ms --inject 300ms:0.0:down --inject 300ms:1.0:down --inject 900ms:0.0:up \
             --inject 900ms:1.0:up",
    ),
    clean_mlx5("mlx5-blackhole", "-n 0 --duration 1500ms --inject 300ms:0.0:blackhole-tx"),
    clean_mlx5("mlx5-flap", "-n 0 --duration 1500ms --inject 300ms:0.0:flap=50ms/10"),
    clean_mlx5("mlx5-acks-dropped", "-n 0 --duration 1500ms --inject 300ms:0.0:drop-acks=10ms"),
    clean_mlx5("mlx5-acks-dropped-for-ever", "-n 0 --duration 1500ms --inject 300ms:0.0:drop-acks"),
    clean_mlx5("mlx5-receiver-port", "-n 0 --duration 1500ms --inject 300ms:1.0:down --inject 900ms:1.0:up"),
    clean_mlx5("mlx5-late-placement", "-n 0 --duration 1500ms --inject 300ms:1.0:placement-delay=2ms"),
    clean_mlx5(
        "mlx5-late-placement-and-port-down",
        "-n 0 --duration 1500ms --inject 200ms:1.0:placement-delay=2ms --inject 500ms:0.0:down",
    ),
    clean_mlx5(
        "mlx5-crossed-rails",
        "-n 0 --duration 1500ms --inject 300ms:0.0:down --inject 300ms:1.1:down",
    ),
    clean_mlx5(
        "mlx5-no-path-for-a-while",
        "-n 0 --duration 2s --inject 500ms:0.0:down --inject 501ms:1.0:down --inject 502ms:0.1:down \
             --inject 700ms:0.0:up",
    ),
    clean_mlx5(
        "mlx5-agent-and-clock",
        "-n 0 --duration 1500ms --inject 200ms:0:clock-jump=60m --inject 300ms:1:agent-stalled=200ms \
             --inject 350ms:0:oob-cut=300ms --inject 400ms:0.0:down --inject 900ms:0.0:up",
    ),
    clean_mlx5("mlx5-nic-gone", "-n 0 --duration 1500ms --inject 300ms:0.0:nic-gone"),
    clean_mlx5(
        "mlx5-firmware-silent",
        "-n 0 --duration 1500ms --inject 200ms:0.0:fw-timeout=100ms --inject 250ms:0.0:down",
    ),
    Scenario {
        holds: &[
            Holds::Same("signals_applied", "signals_posted"),
            Holds::Is("signals_duplicated", 0),
            Holds::Is("uncertain", 0),
            Holds::AtLeast("failovers", 1),
            Holds::EveryFaultHit,
            INTERPOSER,
        ],
        ..clean_mlx5(
            "mlx5-lost-atomic-response",
            "-n 0 --duration 1500ms --mode signal --signal add --inject 300ms:0.0:lost-atomic-response",
        )
    },
    clean_mlx5(
        "mlx5-cleared-signals",
        "-n 0 --duration 1500ms --signal cleared --inject 300ms:0.0:down --inject 800ms:0.0:up",
    ),
    clean_mlx5("mlx5-atomics", "-n 0 --duration 500ms --mode amo --watch"),
    clean_mlx5("mlx5-inline-puts", "-n 0 --duration 1s --mode p --signal add --inject 300ms:0.0:down"),
    lost_mlx5("mlx5-all-paths-down", "-n 0 --duration 10s --inject 300ms:0.0:down --inject 300ms:0.1:down"),
    lost_mlx5("mlx5-peer-killed", "-n 0 --duration 10s --inject 300ms:1:peer-killed"),
    lost_mlx5("mlx5-without-fault-tolerance", "-n 0 --duration 10s --ft off --inject 300ms:0.0:down"),
    Scenario {
        how: How::SoftRdmaThreads,
        ..clean_mlx5("mlx5-one-process", "-n 0 --duration 1s --inject 300ms:0.0:down --inject 600ms:0.0:up")
    },
    Scenario {
        exit: 1,
        holds: &[Holds::AtLeast("puts_lost", 1), Holds::Says("verdict", "broken"), INTERPOSER],
        ..clean_mlx5("mlx5-sabotage", "-n 0 --duration 500ms --inject 200ms:1.0:corrupt")
    },
    Scenario {
        exit: 1,
        holds: &[Holds::Is("puts_lost", 0), Holds::Says("verdict", "not exercised"), INTERPOSER],
        // Puts and monotone signals are no atomics: a fault that cannot strike is told from one that did no harm.
        ..clean_mlx5("mlx5-not-exercised", "-n 0 --duration 500ms --inject 200ms:0.0:lost-atomic-response")
    },
];

/// A run between two hosts that must end clean, and switch and go back.
const fn between_hosts(name: &'static str, args: &'static str) -> Scenario {
    const HOLDS: &[Holds] = &[
        Holds::Is("puts_lost", 0),
        Holds::Is("signals_duplicated", 0),
        Holds::Is("order_violations", 0),
        Holds::Is("ghost_writes", 0),
        Holds::AtLeast("switchbacks", 1),
        Holds::Cause("port-down"),
        Holds::EveryFaultHit,
        Holds::Says("verdict", "clean"),
        INTERPOSER,
    ];
    Scenario { holds: HOLDS, ..clean_processes(name, How::TwoHosts { routed: false }, args) }
}

/// The same, whatever makes a channel switch.
const fn between_flapping(name: &'static str, args: &'static str) -> Scenario {
    const HOLDS: &[Holds] = &[
        Holds::Is("puts_lost", 0),
        Holds::Is("signals_duplicated", 0),
        Holds::Is("order_violations", 0),
        Holds::Is("ghost_writes", 0),
        Holds::AtLeast("failovers", 1),
        Holds::AtLeast("switchbacks", 1),
        Holds::EveryFaultHit,
        Holds::Says("verdict", "clean"),
        INTERPOSER,
    ];
    Scenario { holds: HOLDS, ..between_hosts(name, args) }
}

/// The same with the routed rail for primary, of which no port hears that it is cut.
const fn between_routed(name: &'static str, args: &'static str) -> Scenario {
    const HOLDS: &[Holds] = &[
        Holds::Is("puts_lost", 0),
        Holds::Is("signals_duplicated", 0),
        Holds::Is("order_violations", 0),
        Holds::Is("ghost_writes", 0),
        Holds::AtLeast("failovers", 1),
        Holds::AtLeast("switchbacks", 1),
        Holds::NoCause("port-down"),
        Holds::EveryFaultHit,
        Holds::Says("verdict", "clean"),
        INTERPOSER,
    ];
    let how = How::TwoHosts { routed: true };
    Scenario { how, holds: HOLDS, ..between_hosts(name, args) }
}

/// Runs between two hosts: RoCE v2 over UDP through the kernel, whose links really go down.
pub const TWO_HOSTS: &[Scenario] = &[
    between_hosts(
        "hosts-link-down-up",
        "-n 0 --duration 3s --inject '500ms:0.0:exec=ip link set r0 down' --inject '1500ms:0.0:exec=ip link set r0 up'",
    ),
    // The sender hears of the port from the other agent, and of its own agent's fence from its queue: which comes first
    // is a matter of how busy the machine is.
    between_flapping(
        "hosts-receiver-link-down-up",
        "-n 0 --duration 3s --inject '500ms:1.0:exec=ip link set r0 down' --inject '1500ms:1.0:exec=ip link set r0 up'",
    ),
    // Of 50 ms each: whether the port is heard of before its silence is a matter of how busy the machine is.
    between_flapping(
        "hosts-link-flaps",
        "-n 0 --duration 4s --inject '500ms:0.0:exec=for n in 1 2 3 4 5; do ip link set r0 down; sleep 0.05; \
             ip link set r0 up; sleep 0.05; done'",
    ),
    // No event tells either end: packets vanish at the router, in one direction and in the other.
    between_routed(
        "hosts-cut-in-the-middle",
        "-n 0 --duration 3s --inject '500ms:0.0:exec=ip -n ROUTER route add blackhole 10.77.3.2/32' \
             --inject '1500ms:0.0:exec=ip -n ROUTER route del blackhole 10.77.3.2/32'",
    ),
    between_routed(
        "hosts-answers-cut-in-the-middle",
        "-n 0 --duration 3s --inject '500ms:0.0:exec=ip -n ROUTER route add blackhole 10.77.2.1/32' \
             --inject '1500ms:0.0:exec=ip -n ROUTER route del blackhole 10.77.2.1/32'",
    ),
];
