//! `shunt doctor`: a machine that lacks nothing, the same with one thing wrong at a time, and this machine.

use crate::support::{document, expect, fixture, shunt, text};
use serde_json::Value;

/// A copy of the good machine: lines whose path begins with one of `without` are left out, `with` comes at the end.
fn machine(name: &str, without: &[&str], with: &str) -> String {
    let good = std::fs::read_to_string(fixture("doctor", "good")).unwrap();
    let kept: Vec<&str> =
        good.lines().filter(|line| !without.iter().any(|prefix| line.starts_with(prefix))).collect();
    assert!(without.is_empty() || kept.len() < good.lines().count(), "{name}: nothing was left out");
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("doctor-{name}.tree"));
    std::fs::write(&path, format!("{}\n{with}\n", kept.join("\n"))).unwrap();
    path.display().to_string()
}

fn examine(root: &str, more: &[&str], environment: &[(&str, &str)]) -> (Value, Option<i32>) {
    let arguments = [&["doctor", "--json", "--root", root], more].concat();
    let output = shunt(&arguments, environment);
    (document(&output.stdout), output.status.code())
}

fn check<'v>(report: &'v Value, name: &str) -> &'v Value {
    let checks = report["checks"].as_array().unwrap();
    checks.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("no check {name}"))
}

#[test]
fn a_machine_that_lacks_nothing() {
    let root = fixture("doctor", "good");
    let output = shunt(&["doctor", "--hardware", "--root", &root], &[]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    expect("doctor/good.txt", &text(&output.stdout));
    let (report, _) = examine(&root, &[], &[]);
    for check in report["checks"].as_array().unwrap() {
        let verdict = check["verdict"].as_str().unwrap();
        assert!(["ok", "n/a", "look"].contains(&verdict), "{check}");
        assert_eq!(check["fix"] == "", verdict != "look", "{check}");
    }
}

/// What is wrong, lines left out, lines added, check, verdict, part of what was met, part of the fix.
type Case = (
    &'static str,
    &'static [&'static str],
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
);

const BAD_ACS: &str = "sys/bus/pci/devices/0000:16:00.0/config ~ 4096 100:0d000100 106:1d00";
const SHORT_CONFIG: &str = "sys/bus/pci/devices/0000:16:00.0/config ~ 64 0:86805234";
const V1: &str = "sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/1 = IB/RoCE v1\n\
                  sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/3 = IB/RoCE v1";
const CLOSED: &str =
    "proc/driver/nvidia/version = NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu";
const OLD: &str =
    "proc/driver/nvidia/version = NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  470.57.02  Thu";
const LIMITED: &str = "sys/fs/cgroup/user.slice/rdma.max = mlx5_0 hca_handle=2 hca_object=2000";
const LOW: &str = "proc/self/limits = Limit Soft Hard\\nMax locked memory  8388608  8388608  bytes";
const MOST: &str = "proc/self/limits = Limit Soft Hard\\nMax locked memory  1073741824  1073741824  bytes";
const NO_OVERRIDE: &str = "proc/driver/nvidia/params = EnableStreamMemOPs: 0\\nRegistryDwords: \"\"";
const TRANSLATES: &str = "sys/kernel/iommu_groups/0/type = DMA-FQ";
const BONDED: &str = "sys/class/net/enp24s0np0/master => sys/devices/virtual/net/bond0\n\
                      sys/class/net/bond0/bonding/mode = balance-xor 2";
const OWN: &str = "proc/net/route = Iface Destination Gateway Flags RefCnt Use Metric Mask MTU\\n\
                   enp24s0np0 00000000 010200C0 0003 0 0 100 00000000 0";
const NVIDIA: &str = "proc/driver/nvidia/";
const LIBMLX5: &str = "usr/lib/x86_64-linux-gnu/libmlx5";
const OLD_VERBS: &str = "usr/lib64/libibverbs.so.1 => usr/lib64/libibverbs.so.1.8.30.0";
const VERBS: &str = "usr/lib/x86_64-linux-gnu/libibverbs";

const CASES: &[Case] = &[
    (
        "no-uverbs-rights",
        &[],
        "dev/infiniband/uverbs0 @ 0600:0:0",
        "uverbs",
        "missing",
        "no right to /dev/infiniband/uverbs0 (0600",
        "udev",
    ),
    ("group-rights", &[], "dev/infiniband/uverbs0 @ 0660:0:4001", "uverbs", "ok", "may be opened", ""),
    (
        "no-uverbs-node",
        &["dev/infiniband/uverbs0"],
        "",
        "uverbs",
        "missing",
        "/dev/infiniband/uverbs0 is not there",
        "ib_uverbs",
    ),
    (
        "no-uverbs",
        &["sys/class/infiniband_verbs/uverbs0"],
        "",
        "uverbs",
        "missing",
        "mlx5_0 has none",
        "ib_uverbs",
    ),
    ("who-knows", &["proc/self/status"], "", "uverbs", "look", "there", "cannot be told"),
    ("no-modules", &["sys/module/"], "", "mlx5 driver", "warn", "mlx5_core, mlx5_ib, ib_uverbs", "modprobe"),
    (
        "no-mlx5-library",
        &[LIBMLX5],
        "",
        "libibverbs, libmlx5",
        "missing",
        "not found: libmlx5.so.1",
        "ibverbs-providers",
    ),
    (
        "old-verbs",
        &[VERBS],
        OLD_VERBS,
        "libibverbs, libmlx5",
        "warn",
        "rdma-core 30 cannot register dma-buf",
        "34",
    ),
    (
        "port-down",
        &[],
        "sys/class/infiniband/mlx5_0/ports/1/state = 1: DOWN",
        "ports",
        "warn",
        "1 of 2 can be used; mlx5_0:1: port DOWN",
        "cable",
    ),
    (
        "no-port",
        &["sys/class/infiniband/mlx5_4"],
        "sys/class/infiniband/mlx5_0/ports/1/state = 2: INIT",
        "ports",
        "missing",
        "0 of 1",
        "cable",
    ),
    ("bond", &[], BONDED, "bonds", "warn", "bond0 (balance-xor)", "nomaster"),
    (
        "vfio",
        &[],
        "sys/class/infiniband/mlx5_0/device/driver => sys/bus/pci/drivers/vfio-pci",
        "DEVX",
        "missing",
        "without the driver mlx5_core",
        "vfio-pci",
    ),
    (
        "cgroup",
        &[],
        LIMITED,
        "rdma cgroup",
        "warn",
        "mlx5_0 hca_handle=2",
        "/sys/fs/cgroup/user.slice/rdma.max",
    ),
    ("gid-v1", &[], V1, "GID", "missing", "mlx5_0:1: entry 2 is not RoCE v2", "version 1 is not routed"),
    (
        "mtu",
        &[],
        "sys/class/net/enp24s0np0/mtu = 1500",
        "MTU",
        "warn",
        "enp24s0np0 1500 gives RDMA 1024",
        "4200",
    ),
    ("one-rail", &["sys/class/infiniband/mlx5_4"], "", "rails", "warn", "starts degraded", "shunt topology"),
    ("no-driver", &[NVIDIA], "", "NVIDIA driver", "missing", "not loaded", "modprobe nvidia"),
    ("old-driver", &[], OLD, "NVIDIA driver", "missing", "470.57.02", "510.40.3"),
    (
        "no-peermem",
        &[],
        CLOSED,
        "GPU memory for NICs",
        "missing",
        "not the open kernel module",
        "modprobe nvidia_peermem",
    ),
    (
        "old-kernel",
        &[],
        "proc/sys/kernel/osrelease = 5.4.0-150-generic",
        "GPU memory for NICs",
        "missing",
        "older than 5.12",
        "5.12",
    ),
    (
        "peermem",
        &[],
        "sys/module/nvidia_peermem/version = 535\nproc/sys/kernel/osrelease = 5.4.0",
        "GPU memory for NICs",
        "ok",
        "nvidia_peermem",
        "",
    ),
    (
        "no-override",
        &[],
        NO_OVERRIDE,
        "PeerMappingOverride",
        "missing",
        "RegistryDwords: \"\"",
        "PeerMappingOverride=1",
    ),
    ("no-stream-ops", &[], NO_OVERRIDE, "EnableStreamMemOPs", "warn", "0", "NVreg_EnableStreamMemOPs=1"),
    (
        "params-hidden",
        &["proc/driver/nvidia/params"],
        "",
        "PeerMappingOverride",
        "look",
        "cannot be read",
        "modprobe.d",
    ),
    ("far", &["sys/class/infiniband/mlx5_4"], "", "GPU to NIC", "warn", "GPU 1 to mlx5_0:1 is SYS", "switch"),
    ("acs", &[], BAD_ACS, "ACS", "warn", "on at 1 of 8 bridges: 0000:16:00.0", "ECAP_ACS+0x6.w=0000"),
    ("acs-hidden", &[], SHORT_CONFIG, "ACS", "look", "1 of 8 bridges cannot be read", "run as root"),
    ("iommu", &[], TRANSLATES, "IOMMU", "missing", "0000:1b:00.0 (DMA-FQ)", "iommu=pt"),
    (
        "no-iommu",
        &["sys/kernel/iommu_groups", "sys/bus/pci/devices/0000:1b:00.0/iommu"],
        "",
        "IOMMU",
        "ok",
        "off",
        "",
    ),
    ("memlock", &[], LOW, "memlock", "missing", "8192 KiB", "ulimit -l unlimited"),
    ("memlock-large", &[], MOST, "memlock", "warn", "1048576 KiB", "ulimit -l unlimited"),
    (
        "memlock-free",
        &[],
        "proc/self/status = CapEff: 0000000000004000\nproc/self/limits = Max locked memory 65536 65536",
        "memlock",
        "ok",
        "CAP_IPC_LOCK",
        "",
    ),
    (
        "numa",
        &[],
        "sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:02.0/0000:1b:00.0/numa_node = -1",
        "NUMA",
        "warn",
        "1 devices name none",
        "BIOS",
    ),
    ("container", &[], "run/.containerenv/", "container", "ok", "podman", ""),
    ("marker-of-docker", &[], ".dockerenv/", "container", "look", "may be a VM made from an image", ""),
    (
        "docker",
        &[],
        ".dockerenv/\nproc/self/mounts = overlay / overlay rw 0 0",
        "container",
        "ok",
        "docker: the limits",
        "",
    ),
    (
        "no-modules-of-the-kernel",
        &["sys/module/"],
        "proc/sys/kernel/osrelease = 9.9.9\nlib/",
        "mlx5 driver",
        "warn",
        "mlx5_core",
        "/lib/modules/9.9.9 is missing",
    ),
    (
        "own-interface",
        &[],
        OWN,
        "agents' interface",
        "warn",
        "is on the rail mlx5_0:1",
        "NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME",
    ),
    (
        "no-route",
        &["proc/net/route"],
        "",
        "agents' interface",
        "warn",
        "no default route",
        "NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME",
    ),
    (
        "no-gpu",
        &["sys/bus/pci/devices/0000:1b", "sys/bus/pci/devices/0000:9d"],
        "",
        "GPUs",
        "missing",
        "no NVIDIA GPU",
        "data center",
    ),
    (
        "no-nic",
        &["sys/class/infiniband"],
        "",
        "RDMA devices",
        "missing",
        "none in /sys/class/infiniband",
        "modprobe mlx5_ib",
    ),
];

#[test]
fn one_thing_wrong_at_a_time() {
    for (name, without, with, which, verdict, met, fix) in CASES {
        let root = machine(name, without, with);
        let (report, status) = examine(&root, &["--hardware"], &[]);
        let found = check(&report, which);
        assert_eq!(found["verdict"], *verdict, "{name}: {found}");
        assert!(found["found"].as_str().unwrap().contains(met), "{name}: {found}");
        assert!(found["fix"].as_str().unwrap().contains(fix), "{name}: {found}");
        assert_eq!(found["fix"] == "", *verdict == "ok", "{name}: {found}");
        let missing = report["checks"].as_array().unwrap().iter().any(|check| check["verdict"] == "missing");
        assert_eq!(status, Some(i32::from(missing)), "{name}");
        // Without --hardware nothing of this is asked for.
        assert_eq!(examine(&root, &[], &[]).1, Some(0), "{name}");
    }
}

#[test]
fn the_environment_names_the_agents_interface() {
    let root = fixture("doctor", "good");
    let named = |value| examine(&root, &[], &[("NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME", value)]).0;
    let report = named("=enp24s0np0");
    let found = check(&report, "agents' interface");
    assert_eq!(found["verdict"], "warn", "{found}");
    assert!(found["found"].as_str().unwrap().contains("is on the rail mlx5_0:1"), "{found}");
    assert_eq!(check(&named("eno"), "agents' interface")["verdict"], "ok");
    assert!(
        check(&named("wlan"), "agents' interface")["found"].as_str().unwrap().contains("none of that name")
    );
}

#[test]
fn the_fence_is_proved_on_the_soft_nic() {
    let output = shunt(&["doctor", "--fence"], &[]);
    let words = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{words}");
    for part in
        ["soft NIC: holds: rmsn counted", "seen through: rmsn does not survive 2ERR", "soft NIC: can be used"]
    {
        assert!(words.contains(part), "{part} is not in {words}");
    }
    let (report, status) = examine(&fixture("doctor", "good"), &["--fence"], &[]);
    assert_eq!((status, &report["fence"]["holds"]), (Some(0), &Value::Bool(true)), "{report}");
    assert_eq!(report["fence"]["not_proved"], serde_json::json!(["mlx5_0:1", "mlx5_4:1"]));
}

#[test]
fn this_machine_is_told_the_truth() {
    let output = shunt(&["doctor", "--json"], &[]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let report = document(&output.stdout);
    let devices = std::fs::read_dir("/sys/class/infiniband").map_or(0, Iterator::count);
    assert_eq!(check(&report, "RDMA devices")["found"] == "none in /sys/class/infiniband", devices == 0);
    let nvidia = std::path::Path::new("/proc/driver/nvidia/version").exists();
    assert!(nvidia || check(&report, "NVIDIA driver")["verdict"] != "ok");
    assert_eq!(report["fence"], Value::Null);
    for check in report["checks"].as_array().unwrap() {
        let needs = ["missing", "warn", "look"].contains(&check["verdict"].as_str().unwrap());
        assert!(!needs || check["fix"] != "", "{check}");
    }
}

#[test]
fn bad_usage_is_status_2() {
    for (arguments, environment) in [
        (&["doctor", "--hardwear"][..], &[][..]),
        (&["doctor", "--root", "/no/such"], &[]),
        (&["doctor"], &[("NVSHMEM_HCA_LIST", "a:b")]),
        (&["doctor"], &[("SHUNT_MPL", "soon")]),
    ] {
        let output = shunt(arguments, environment);
        assert_eq!(output.status.code(), Some(2), "{arguments:?} {environment:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty());
    }
}
