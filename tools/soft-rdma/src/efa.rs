//! What programs must show on soft EFAs: perftest by SRD, libfabric's efa provider, and transfers over it.

use crate::cases::{Case, Says, Sides, one, two};
use shunt_task::sh;

/// Programs of Debian's `libfabric-bin`.
const PROGRAMS: [&str; 2] = ["fi_info", "fi_pingpong"];
/// Ours, which load what that package needs.
const OURS: [&str; 2] = ["transfer_bw", "shunt"];
const EFA: &str = "--nic efa";
const ALL_BYTES: &[Says] = &[Says::Figures(8928, 8928)];
const ALL_BYTES_IN_SPITE: &[Says] = &[Says::Figures(8928, 8928), Says::Hit];
/// What `fi_pingpong` says at its largest size.
const MEGABYTE: &[Says] = &[Says::Text("1m      10      =10")];
const MEGABYTE_IN_SPITE: &[Says] = &[Says::Text("1m      10      =10"), Says::Hit];

/// Soft NICs wait for cores.
const PATIENT: &[(&str, &str)] = &[("SHUNT_GIVE_UP", "10s")];
/// What `transfer_bw` says where no promise was broken.
const CLEAN: &[Says] = &[Says::Text("\"verdict\": \"clean\"")];
const CLEAN_IN_SPITE: &[Says] = &[Says::Text("\"verdict\": \"clean\""), Says::Hit];

const fn alone(name: &'static str, program: &'static str, args: &'static str, says: &'static [Says]) -> Case {
    Case { nics: EFA, ..one(name, program, args, says) }
}

/// Two of perftest.
const fn talk(name: &'static str, program: &'static str, args: &'static str, says: &'static [Says]) -> Case {
    Case { nics: EFA, ..two(name, program, args, says) }
}

/// Two of libfabric.
const fn fabric(name: &'static str, args: &'static str, says: &'static [Says]) -> Case {
    Case { sides: Sides::Fabric, ..alone(name, "fi_pingpong", args, says) }
}

/// Transfers between two processes, while a port of each goes down.
const fn port_down(name: &'static str, nics: &'static str) -> Case {
    let args = "run -n 2 -- transfer_bw --transport libfabric --provider efa --duration 5s";
    Case { nics, environment: PATIENT, ..alone(name, "shunt", args, CLEAN_IN_SPITE) }
}

/// All of them.
pub const CASES: &[Case] = &[
    alone("efa-devices", "ibv_devices", "", &[Says::Text("efa_0")]),
    alone(
        "efa-devinfo",
        "ibv_devinfo",
        "-v",
        &[
            Says::Text("efa_0"),
            Says::Text("PORT_ACTIVE"),
            Says::Text("Unspecified"),
            Says::Text("vendor_id:\t\t\t0x1d0f"),
            Says::Text("61345"),
        ],
    ),
    alone("efa-rdma-link", "rdma", "link", &[Says::Text("link efa_0/1 state ACTIVE")]),
    talk("efa-send-bw", "ib_send_bw", "-d efa_0 -c SRD -n 2000", ALL_BYTES),
    talk("efa-send-bw-both-ways", "ib_send_bw", "-d efa_0 -c SRD -n 500 -b -q 4", ALL_BYTES),
    talk("efa-send-lat", "ib_send_lat", "-d efa_0 -c SRD -n 300", &[Says::Figures(2, 2)]),
    talk("efa-read-bw", "ib_read_bw", "-d efa_0 -c SRD -n 300", &[Says::Figures(65536, 65536)]),
    talk(
        "efa-read-bw-large",
        "ib_read_bw",
        "-d efa_0 -c SRD -n 40 -s 1048576",
        &[Says::Figures(1 << 20, 1 << 20)],
    ),
    talk("efa-read-lat", "ib_read_lat", "-d efa_0 -c SRD -n 200", &[Says::Figures(2, 2)]),
    // Without a completion for each WQE libefa refuses it.
    talk("efa-send-bw-ud", "ib_send_bw", "-d efa_0 -c UD -n 300 -Q 1", &[Says::Figures(4096, 4096)]),
    Case {
        client_nics: "--fault 0s:efa_0:drop=0.05",
        ..talk("efa-send-bw-drop", "ib_send_bw", "-d efa_0 -c SRD -n 2000", ALL_BYTES_IN_SPITE)
    },
    Case {
        client_nics: "--fault 200packets:efa_0:down=300ms",
        ..talk("efa-send-bw-down", "ib_send_bw", "-d efa_0 -c SRD -n 2000", ALL_BYTES_IN_SPITE)
    },
    Case {
        client_nics: "--fault 200packets:efa_0:down=300ms",
        ..talk(
            "efa-read-bw-down",
            "ib_read_bw",
            "-d efa_0 -c SRD -n 300",
            &[Says::Figures(65536, 65536), Says::Hit],
        )
    },
    alone("efa-fi-info", "fi_info", "-p efa", &[Says::Text("efa_0-rdm"), Says::Text("efa_0-dgrm")]),
    fabric("efa-fi-pingpong", "-p efa -e rdm", MEGABYTE),
    fabric("efa-fi-pingpong-dgram", "-p efa -e dgram", &[Says::Text("4k      10      =10")]),
    Case {
        client_nics: "--fault 0s:efa_0:drop=0.02",
        ..fabric("efa-fi-pingpong-drop", "-p efa -e rdm", MEGABYTE_IN_SPITE)
    },
    // A lane is closed under load, at one end and then at both. A fault that hits nothing makes it `not exercised`.
    Case {
        nics: "--nic efa --nics 2",
        environment: PATIENT,
        ..alone(
            "efa-transfer-lane-down",
            "transfer_bw",
            "--transport libfabric --provider efa --duration 3s --inject 1s:0.0:down --inject 2s:0.0:up",
            CLEAN,
        )
    },
    Case {
        nics: "--nic efa --nics 2",
        environment: PATIENT,
        ..alone(
            "efa-transfer-processes",
            "shunt",
            "run -n 2 -- transfer_bw --transport libfabric --provider efa --duration 3s \
             --inject 1s:0.0:down --inject 2s:0.0:up",
            CLEAN,
        )
    },
    // Shorter and longer than a lane is trusted.
    port_down("efa-transfer-port-down", "--nic efa --nics 2 --fault 600packets:efa_0:down=300ms"),
    port_down("efa-transfer-port-down-long", "--nic efa --nics 2 --fault 600packets:efa_0:down=1500ms"),
];

/// An end whose transfers all came, and whose last acknowledgement did not: the other end had ended, and does not send
/// it again. So it is with any NIC; the case is run again.
pub fn lost_the_last_answer(case: &Case, output: &str) -> bool {
    let came = case.says.iter().all(|says| !matches!(says, Says::Text(text) if !output.contains(text)));
    case.sides == Sides::Fabric && came && output.contains("Unresponsive receiver")
}

/// Why a program cannot be run here. None if it can, or is none of libfabric's.
pub fn lacks(program: &str) -> Option<String> {
    let wanted = if OURS.contains(&program) { PROGRAMS[0] } else { program };
    let found = || {
        let look = sh::command("sh").args(["-c", &format!("command -v {wanted}")]).output();
        look.is_ok_and(|found| found.status.success())
    };
    let is_missing = PROGRAMS.contains(&wanted) && !found();
    is_missing.then(|| format!("{program} needs the package libfabric-bin"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_end_that_lacks_nothing_but_the_last_answer_is_run_again() {
        let case = CASES.iter().find(|case| case.name == "efa-fi-pingpong-drop").expect("listed");
        let lost =
            "[error] util/pingpong.c:1119: cq_readerr: Unresponsive receiver\n1m      10      =10  20m\n";
        assert!(lost_the_last_answer(case, lost));
        assert!(!lost_the_last_answer(
            case,
            "[error] cq_readerr: Unresponsive receiver\n64k     10      =10\n"
        ));
        assert!(!lost_the_last_answer(case, "1m      10      =10      20m\n"));
    }
}
