//! What software that is not ours must show on soft NICs, as data: programs, arguments, and what they have to say.

use crate::ucx;

/// One program alone, or two that talk.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Name, also of its files under `<target>/ci/soft-rdma`.
    pub name: &'static str,
    /// The program.
    pub program: &'static str,
    /// Its arguments, on both sides.
    pub args: &'static str,
    /// Variables, of all of them.
    pub environment: &'static [(&'static str, &'static str)],
    /// How many there are and how they find each other.
    pub sides: Sides,
    /// Options of `shunt soft-rdma run`, on both sides.
    pub nics: &'static str,
    /// More of them, on the client's side, and on the other's.
    pub client_nics: &'static str,
    /// See above.
    pub server_nics: &'static str,
    /// What the client, or the only one, must end with.
    pub ends: Ends,
    /// What its output must hold.
    pub says: &'static [Says],
}

/// How many processes there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sides {
    /// One.
    One,
    /// Two, as perftest and the examples of libibverbs do it: `-p PORT`, and the client names the host.
    Bootstrap,
    /// Two, as our own programs do it: `--listen PORT` and `--connect HOST:PORT`.
    Listen,
    /// Two, by librdmacm.
    Manager,
    /// Two, as `fi_pingpong` does it: `-B PORT`, and the client has `-P PORT HOST`.
    Fabric,
}

/// How a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// All processes with status 0.
    Well,
    /// The client with another status; how the other side takes it is its own affair.
    Badly,
}

/// A condition on the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Says {
    /// This text is in it.
    Text(&'static str),
    /// Every planned fault hit something.
    Hit,
    /// A line of figures for each power of two from the first to the last, with something above zero measured in each:
    /// bandwidth and rate, or latencies.
    Figures(u64, u64),
}

pub const fn one(
    name: &'static str,
    program: &'static str,
    args: &'static str,
    says: &'static [Says],
) -> Case {
    let (sides, ends) = (Sides::One, Ends::Well);
    Case {
        name,
        program,
        args,
        environment: &[],
        sides,
        nics: "",
        client_nics: "",
        server_nics: "",
        ends,
        says,
    }
}

pub const fn two(
    name: &'static str,
    program: &'static str,
    args: &'static str,
    says: &'static [Says],
) -> Case {
    Case { sides: Sides::Bootstrap, ..one(name, program, args, says) }
}

/// A test of UCX's perftest.
const fn ucx(name: &'static str, args: &'static str) -> Case {
    Case { environment: ucx::VERBS, ..two(name, ucx::PERFTEST, args, &[Says::Text("Final:")]) }
}

/// Two that connect by librdmacm.
const fn by_manager(
    name: &'static str,
    program: &'static str,
    args: &'static str,
    says: &'static [Says],
) -> Case {
    Case { sides: Sides::Manager, ..one(name, program, args, says) }
}

const EVERY_SIZE: &[Says] = &[Says::Figures(2, 8 << 20)];

/// A bandwidth test of perftest at all sizes, 2 B to 8 MiB.
const fn sweep(name: &'static str, program: &'static str, args: &'static str) -> Case {
    two(name, program, args, EVERY_SIZE)
}

/// What a program's end says of a fault that came too late, or for nothing.
const NOT_HIT: &str = "the program ended before it hit anything";

/// What the examples of libibverbs say at the end.
const PINGPONG: &[Says] = &[Says::Text("1638400 bytes in"), Says::Text("200 iters in")];
const SIZE_64K: &[Says] = &[Says::Figures(65536, 65536)];
const SIZE_8: &[Says] = &[Says::Figures(8, 8)];

/// All of ConnectX.
pub const CASES: &[Case] = &[
    one("devices", "ibv_devices", "", &[Says::Text("mlx5_0")]),
    one(
        "devinfo",
        "ibv_devinfo",
        "-v",
        &[
            Says::Text("mlx5_0"),
            Says::Text("PORT_ACTIVE"),
            Says::Text("Ethernet"),
            Says::Text("RoCE v2"),
            Says::Text("vendor_id:\t\t\t0x02c9"),
            Says::Text("4129"),
            Says::Text("fw_ver:\t\t\t\t28."),
            Says::Text("ATOMIC_HCA"),
        ],
    ),
    Case {
        nics: "--nics 4",
        ..one("devinfo-4-nics", "ibv_devinfo", "", &[Says::Text("mlx5_0"), Says::Text("mlx5_3")])
    },
    Case {
        nics: "--nics 2",
        ..one("rdma-dev", "rdma", "dev", &[Says::Text("1: mlx5_1: node_type ca fw 28.")])
    },
    Case {
        nics: "--nics 2",
        ..one("rdma-link", "rdma", "link", &[Says::Text("link mlx5_1/1 state ACTIVE physical_state LINK_UP")])
    },
    two("pingpong", "ibv_rc_pingpong", "-d mlx5_0 -g 0 -n 200 -c", PINGPONG),
    two("pingpong-events", "ibv_rc_pingpong", "-d mlx5_0 -g 0 -n 200 -e -c", PINGPONG),
    two("pingpong-new-send", "ibv_rc_pingpong", "-d mlx5_0 -g 0 -n 200 -N -c", PINGPONG),
    two("pingpong-srq", "ibv_srq_pingpong", "-d mlx5_0 -g 0 -n 200 -q 4", PINGPONG),
    two("pingpong-srq-events", "ibv_srq_pingpong", "-d mlx5_0 -g 0 -n 200 -q 4 -e", PINGPONG),
    two("pingpong-ud", "ibv_ud_pingpong", "-d mlx5_0 -g 0 -n 200", &[Says::Text("200 iters in")]),
    two("pingpong-mtu-4096", "ibv_rc_pingpong", "-d mlx5_0 -g 0 -n 200 -m 4096 -c", PINGPONG),
    sweep("write-bw", "ib_write_bw", "-a -n 8"),
    sweep("write-bw-old-post-send", "ib_write_bw", "-a -n 8 --use_old_post_send"),
    sweep("read-bw", "ib_read_bw", "-a -n 8"),
    sweep("read-bw-old-post-send", "ib_read_bw", "-a -n 8 --use_old_post_send"),
    sweep("send-bw", "ib_send_bw", "-a -n 8"),
    sweep("send-bw-old-post-send", "ib_send_bw", "-a -n 8 --use_old_post_send"),
    sweep("write-bw-4-queues", "ib_write_bw", "-a -n 6 -q 4"),
    two("write-bw-both-ways", "ib_write_bw", "-s 65536 -n 500 -q 4 -b", SIZE_64K),
    two("read-bw-both-ways", "ib_read_bw", "-s 65536 -n 500 -b", SIZE_64K),
    two("send-bw-events", "ib_send_bw", "-s 65536 -n 500 -e", SIZE_64K),
    two("read-bw-4-queues", "ib_read_bw", "-s 65536 -n 500 -q 4", SIZE_64K),
    two("send-bw-4-queues", "ib_send_bw", "-s 65536 -n 500 -q 4", SIZE_64K),
    two("atomic-bw-4-queues", "ib_atomic_bw", "-n 1000 -q 4", SIZE_8),
    two("send-bw-srq", "ib_send_bw", "-s 65536 -n 500 -q 2 --use-srq", SIZE_64K),
    Case {
        server_nics: "--roce 127.83.72.1",
        client_nics: "--roce 127.83.72.2",
        ..two("write-bw-udp", "ib_write_bw", "-s 65536 -n 500 -q 2", SIZE_64K)
    },
    sweep("dc-write-bw", "ib_write_bw", "-c DC -a -n 6"),
    sweep("dc-send-bw", "ib_send_bw", "-c DC -a -n 6"),
    two("dc-read-bw-4-queues", "ib_read_bw", "-c DC -s 65536 -n 200 -q 4", SIZE_64K),
    two("dc-atomic-bw", "ib_atomic_bw", "-c DC -n 500", SIZE_8),
    two("dc-write-bw-both-ways", "ib_write_bw", "-c DC -s 65536 -n 200 -q 2 -b", SIZE_64K),
    Case {
        server_nics: "--roce 127.83.73.1",
        client_nics: "--roce 127.83.73.2",
        ..two("dc-write-bw-udp", "ib_write_bw", "-c DC -s 65536 -n 200", SIZE_64K)
    },
    two("write-bw-a-completion-each", "ib_write_bw", "-s 65536 -n 500 -Q 1", SIZE_64K),
    two("atomic-bw-add", "ib_atomic_bw", "-n 1000 -A FETCH_AND_ADD", SIZE_8),
    two("atomic-bw-swap", "ib_atomic_bw", "-n 1000 -A CMP_AND_SWAP", SIZE_8),
    two("atomic-bw-old-post-send", "ib_atomic_bw", "-n 1000 --use_old_post_send", SIZE_8),
    sweep("write-lat", "ib_write_lat", "-a -n 6"),
    two("write-lat-inline", "ib_write_lat", "-s 64 -n 500 -I 128", &[Says::Figures(64, 64)]),
    two("read-lat", "ib_read_lat", "-s 4096 -n 500", &[Says::Figures(4096, 4096)]),
    two("send-lat", "ib_send_lat", "-s 4096 -n 500", &[Says::Figures(4096, 4096)]),
    two("atomic-lat", "ib_atomic_lat", "-n 500", SIZE_8),
    by_manager("cm-rping", "rping", "-C 200 -v", &[Says::Text("rdma-ping-199: ")]),
    by_manager("cm-client", "rdma_client", "", &[Says::Text("rdma_client: end 0")]),
    by_manager("cm-write-bw", "ib_write_bw", "-R -s 65536 -n 500", SIZE_64K),
    by_manager("cm-send-bw-4-queues", "ib_send_bw", "-R -s 65536 -n 500 -q 4", SIZE_64K),
    Case {
        nics: "--nics 2",
        ..by_manager("cm-rping-2-nics", "rping", "-C 50 -v", &[Says::Text("rdma-ping-49: ")])
    },
    Case { nics: "--nics 2", ..two("second-nic", "ib_write_bw", "-d mlx5_1 -s 65536 -n 500", SIZE_64K) },
    Case {
        client_nics: "--fault 1500ms:mlx5_0:down",
        ends: Ends::Badly,
        // IBV_WC_RETRY_EXC_ERR, and the vendor's code beside syndrome 0x15.
        ..two(
            "link-down",
            "ib_write_bw",
            "-s 65536 -D 20",
            &[Says::Text("Failed status 12"), Says::Text("syndrom 0x81")],
        )
    },
    one(
        "ucx-devices",
        ucx::INFO,
        "-d",
        &[Says::Text("rc_verbs"), Says::Text("ud_verbs"), Says::Text("mlx5_0:1")],
    ),
    ucx("ucx-tag-bw", "-t tag_bw -s 4096 -n 2000"),
    ucx("ucx-tag-bw-rendezvous", "-t tag_bw -s 1000000 -n 100"),
    ucx("ucx-tag-lat", "-t tag_lat -s 8 -n 1000"),
    ucx("ucx-am-bw", "-t ucp_am_bw -s 4096 -n 2000"),
    ucx("ucx-put-lat", "-t ucp_put_lat -s 4096 -n 1000"),
    ucx("ucx-get", "-t ucp_get -s 4096 -n 1000"),
    ucx("ucx-add", "-t ucp_add -s 8 -n 1000"),
    Case { environment: ucx::WITH_DEVX, ..ucx("ucx-put-bw-devx", "-t ucp_put_bw -s 4096 -n 2000") },
    Case { environment: ucx::DATAGRAMS, ..ucx("ucx-datagrams", "-t tag_bw -s 4096 -n 2000") },
    Case { environment: ucx::DATAGRAMS_MLX5, ..ucx("ucx-datagrams-mlx5", "-t tag_bw -s 4096 -n 2000") },
    Case {
        server_nics: "--roce 127.83.74.1",
        client_nics: "--roce 127.83.74.2",
        ..ucx("ucx-tag-bw-udp", "-t tag_bw -s 4096 -n 2000")
    },
    one("our-data-one-process", "shunt-verbs-check", "data", &[Says::Text(" 0 wrong")]),
    Case { sides: Sides::Listen, ..one("our-data", "shunt-verbs-check", "data", &[Says::Text(" 0 wrong")]) },
    Case {
        nics: "--nics 4",
        ..one("our-host", "shunt-devx-check", "", &[Says::Text("4 devices: all good")])
    },
    Case {
        nics: "--fault 500ms:mlx5_0:down=300ms",
        ..one("our-host-link-events", "shunt-devx-check", "--flap", &[Says::Text("mlx5_0: link up")])
    },
    Case {
        nics: "--fault 500ms:mlx5_0:nic-gone",
        ..one("our-host-dead-nic", "shunt-devx-check", "--dead", &[Says::Text("dead to commands")])
    },
    one("our-send-queues", "shunt-verbs-check", "wqes", &[Says::Text(" 0 wrong")]),
    // It took NICs of its own unless --nic mlx5 was typed.
    Case {
        nics: "--nics 4",
        environment: &[("SHUNT_GIVE_UP", "10s")],
        ..one(
            "our-transfers-take-the-devices",
            "transfer_bw",
            "--duration 3s --inject 500ms:0.0:down --inject 1500ms:0.0:up",
            &[
                Says::Text("transfer_bw: NICs: mlx5_0, mlx5_1, mlx5_2, mlx5_3 through libibverbs"),
                Says::Text("\"verdict\": \"clean\""),
            ],
        )
    },
    // Cause: the sender's process was given a fabric of its own, and its devices were on that.
    Case {
        nics: "--nics 2",
        environment: &[("SHUNT_GIVE_UP", "10s")],
        ..one(
            "our-transfers-are-cut-off",
            "transfer_bw",
            "--mode revoke --duration 4s",
            &[
                Says::Text("transfer_bw: NICs: mlx5_0, mlx5_1 through libibverbs"),
                Says::Text("\"verdict\": \"clean\""),
            ],
        )
    },
    // Cause: software that stood in for devices took the places of those in the fabric.
    Case {
        nics: "--nics 1",
        environment: &[("SHUNT_GIVE_UP", "10s")],
        ..one(
            "our-transfers-take-software",
            "transfer_bw",
            "--mode revoke --duration 4s",
            &[Says::Text("transfer_bw: NICs: software, because"), Says::Text("\"verdict\": \"clean\"")],
        )
    },
];

impl Case {
    /// Arguments that perftest needs besides: the GID to use, no remarks on the machine's clock, and the patience of
    /// 8 s that a machine with few and busy cores may need, where nothing shall time out.
    pub fn usual(&self) -> &'static str {
        match (self.program.starts_with("ib_"), self.ends, self.args.contains("-d ")) {
            (false, ..) => "",
            (true, Ends::Badly, _) => "-d mlx5_0 -x 0 -F",
            (true, Ends::Well, true) => "-x 0 -F -u 18",
            (true, Ends::Well, false) => "-d mlx5_0 -x 0 -F -u 18",
        }
    }

    /// What is wrong with the output.
    pub fn wrong(&self, output: &str) -> Vec<String> {
        self.says.iter().filter_map(|says| says.wrong(output)).collect()
    }
}

impl Says {
    fn wrong(self, output: &str) -> Option<String> {
        match self {
            Self::Text(text) => (!output.contains(text)).then(|| format!("does not say '{text}'")),
            Self::Hit => output.contains(NOT_HIT).then(|| "a fault hit nothing".to_owned()),
            Self::Figures(first, last) => wrong_figures(&figures(output), first, last),
        }
    }
}

/// Lines of numbers only, of at least four: size, iterations, and what was measured.
fn figures(output: &str) -> Vec<Vec<f64>> {
    let numbers =
        |line: &str| line.split_whitespace().map(|word| word.parse().ok()).collect::<Option<Vec<f64>>>();
    output.lines().filter_map(numbers).filter(|line| line.len() >= 4).collect()
}

fn wrong_figures(lines: &[Vec<f64>], first: u64, last: u64) -> Option<String> {
    let sizes: Vec<u64> = lines.iter().map(|line| line[0] as u64).collect();
    let want: Vec<u64> = (0..64).map(|n| first << n).take_while(|size| *size <= last).collect();
    if sizes != want {
        return Some(format!("figures for the sizes {sizes:?}, not {want:?}"));
    }
    // A slow machine's bandwidth may be printed as 0.00; the rate behind it has more digits.
    let empty = lines.iter().find(|line| line[2..].iter().all(|figure| *figure <= 0.0));
    empty.map(|line| format!("nothing was moved at size {}: {line:?}", line[0]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 2          20               4.13               3.84               2.014234
 4          20               8.30               8.15               2.136789
---------------------------------------------------------------------------------------";

    #[test]
    fn figures_are_read() {
        assert_eq!(Says::Figures(2, 4).wrong(REPORT), None);
        assert!(Says::Figures(2, 8).wrong(REPORT).is_some_and(|text| text.contains("[2, 4], not [2, 4, 8]")));
        let slow = REPORT.replace("8.30 ", "0.00").replace("8.15", "0.00");
        assert_eq!(Says::Figures(2, 4).wrong(&slow), None);
        let nothing = slow.replace("2.136789", "0.000000");
        assert!(Says::Figures(2, 4).wrong(&nothing).is_some_and(|text| text.contains("size 4")));
        assert_eq!(Says::Hit.wrong(REPORT), None);
        assert!(Says::Hit.wrong(&format!("fault mlx5_0 down: {NOT_HIT}")).is_some());
        assert!(Says::Text("Failed status 12").wrong(REPORT).is_some());
        assert_eq!(Says::Text("MsgRate").wrong(REPORT), None);
    }

    #[test]
    fn names_are_names_of_files_and_differ() {
        for (n, case) in CASES.iter().enumerate() {
            assert!(case.name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'));
            assert!(CASES[..n].iter().all(|other| other.name != case.name), "{}", case.name);
            assert!(!case.says.is_empty(), "{} proves nothing", case.name);
        }
    }
}
