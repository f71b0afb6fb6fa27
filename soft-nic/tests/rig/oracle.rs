//! Others who read frames: tshark and Scapy, and a checksum made bit by bit.

use std::path::Path;
use std::process::{Command, Output};

/// A program that CI has and a developer may lack: its absence is an error in CI, and loud elsewhere.
pub fn wanted(program: &str, try_with: &[&str]) -> bool {
    if Command::new(program).args(try_with).output().is_ok_and(|output| output.status.success()) {
        return true;
    }
    let line = format!("`{program} {}` does not run", try_with.join(" "));
    assert!(std::env::var_os("CI").is_none(), "{line}; in CI it must");
    eprintln!("SKIPPED: {line}: nothing of ours was shown to others");
    false
}

/// The Python that Debian's modules belong to.
pub const PYTHON: &str = "/usr/bin/python3";

fn run(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    assert!(status.success(), "{command:?}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

/// What tshark says of each frame: the fields asked for, in order; those it does not find are empty.
pub fn tshark(capture: &Path, fields: &[&str]) -> Vec<Vec<String>> {
    let mut command = Command::new("tshark");
    // Nobody's own settings.
    command
        .env("HOME", std::env::temp_dir())
        .env_remove("XDG_CONFIG_HOME")
        .env_remove("WIRESHARK_CONFIG_DIR");
    // It takes any SEND for one of its own, RPC over RDMA, and data for whatever it reminds it of.
    command.args(["-n", "--disable-protocol", "rpcordma", "-o", "infiniband.identify_payload:FALSE"]);
    command.args(["-T", "fields", "-E", "separator=/t", "-E", "occurrence=f", "-r"]).arg(capture);
    for field in fields {
        command.args(["-e", field]);
    }
    let line = |line: &str| line.split('\t').map(str::to_owned).collect();
    run(&mut command).lines().map(line).collect()
}

/// What Scapy says of each frame: opcode, PSN, destination queue pair, and whether its own checksum is the frame's.
pub fn scapy(capture: &Path) -> Vec<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rig/roce.py");
    run(Command::new(PYTHON).arg(script).arg(capture)).lines().map(str::to_owned).collect()
}

/// The invariant checksum of a RoCE v2 frame, as annex A17 of the InfiniBand specification says it: the CRC of
/// Ethernet, bit by bit, over eight bytes of ones and the packet from its IP header on, with ones in what may change.
pub fn icrc(frame: &[u8]) -> [u8; 4] {
    let mut bytes = vec![0xff; 8];
    bytes.extend_from_slice(&frame[14..frame.len() - 4]);
    let (ip, udp, bth) = (8, 8 + 20, 8 + 28);
    // Type of service, time to live, header checksum; UDP checksum; FECN, BECN and what is reserved beside them.
    for at in [ip + 1, ip + 8, ip + 10, ip + 11, udp + 6, udp + 7, bth + 4] {
        bytes[at] = 0xff;
    }
    let mut register = u32::MAX;
    for byte in bytes {
        for bit in 0..8 {
            let feedback = (register ^ (byte >> bit) as u32) & 1;
            register >>= 1;
            if feedback == 1 {
                // x^32 + x^26 + x^23 + x^22 + x^16 + x^12 + x^11 + x^10 + x^8 + x^7 + x^5 + x^4 + x^2 + x + 1,
                // the lowest power in the highest bit.
                register ^= 0xedb8_8320;
            }
        }
    }
    (!register).to_le_bytes()
}
