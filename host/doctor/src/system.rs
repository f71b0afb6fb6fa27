//! PCIe settings, memory limits, NUMA, containers.

use super::nic::{CAP_IPC_LOCK, capabilities};
use crate::check::{Check, Machine, Verdict, short_list};
use shunt_topology::discover::{PciAddress, Place};

pub(super) fn checks(machine: &Machine<'_>) -> Vec<Check> {
    vec![acs(machine), iommu(machine), memlock(machine), numa(machine), huge_pages(), container(machine)]
}

/// Places of the GPUs and of the NICs that may be used.
fn places<'a>(machine: &'a Machine<'_>) -> Vec<&'a Place> {
    let gpus = machine.inventory.gpus.iter().map(|gpu| &gpu.place);
    let rails = machine.topology.rails.iter().map(|rail| &machine.inventory.rdma[rail.device].place);
    gpus.chain(rails).collect()
}

/// Bits of the ACS control register that send peer-to-peer requests up to the root complex, or check their source:
/// source validation, P2P request and completion redirect, upstream forwarding (`PCI_ACS_SV`, `_RR`, `_CR`, `_UF` in
/// Linux, `include/uapi/linux/pci_regs.h`).
const ACS_REDIRECTS: u16 = 0x1d;
/// Extended capability of ACS (`PCI_EXT_CAP_ID_ACS`), and where its control register lies (`PCI_ACS_CTRL`).
const ACS: u16 = 0x0d;
const ACS_CONTROL: usize = 6;

/// The ACS control register in a configuration space; `None` if the function has none.
pub(super) fn acs_control(config: &[u8]) -> Option<u16> {
    let half = |at: usize| Some(u16::from_le_bytes([*config.get(at)?, *config.get(at + 1)?]));
    let mut at = 0x100;
    // A list in at most 3840 bytes, each entry 4 at least: a circle ends.
    for _ in 0..960 {
        let (id, next) = (half(at)?, half(at + 2)? >> 4);
        if id == ACS {
            return half(at + ACS_CONTROL);
        }
        at = usize::from(next);
        if at < 0x100 {
            return None;
        }
    }
    None
}

/// ACS redirects traffic between GPU and NIC through the root complex: slow, or none at all (NCCL user guide,
/// "Troubleshooting", PCI Access Control Services).
fn acs(machine: &Machine<'_>) -> Check {
    const NAME: &str = "ACS";
    let mut bridges: Vec<PciAddress> = places(machine)
        .iter()
        .filter_map(|place| place.path.as_ref())
        .flat_map(|path| path.bridges.clone())
        .collect();
    bridges.sort_unstable();
    bridges.dedup();
    if bridges.is_empty() {
        return Check::not_applicable(NAME, "no PCIe bridge above a GPU or a NIC");
    }
    let (mut on, mut unread) = (Vec::new(), 0);
    for bridge in &bridges {
        let config = machine.root.bytes(&format!("sys/bus/pci/devices/{bridge}/config")).unwrap_or_default();
        // Without CAP_SYS_ADMIN the kernel gives the first 64 bytes alone (Linux, `drivers/pci/pci-sysfs.c`).
        if config.len() <= 0x100 {
            unread += 1;
        } else if acs_control(&config).is_some_and(|control| control & ACS_REDIRECTS != 0) {
            on.push(bridge.to_string());
        }
    }
    let fix = "off in the BIOS (VT-d, AMD-Vi), or setpci -s ADDRESS ECAP_ACS+0x6.w=0000 after each boot; in a \
               virtual machine, on its host";
    if !on.is_empty() {
        let met = format!("on at {} of {} bridges: {}", on.len(), bridges.len(), short_list(&on));
        return Check::new(NAME, Verdict::Warn, met).fix(fix);
    }
    if unread > 0 {
        return Check::new(
            NAME,
            Verdict::ByHand,
            format!("{unread} of {} bridges cannot be read", bridges.len()),
        )
        .fix("run as root, or: sudo lspci -vvv | grep ACSCtl (SrcValid+ is on)");
    }
    Check::ok(NAME, format!("off at all {} bridges", bridges.len()))
}

/// GPUDirect RDMA stands on addresses that all devices see alike: an IOMMU must be off or pass them through (NVIDIA,
/// "GPUDirect RDMA", Supported Systems). Types of groups: kernel,
/// `Documentation/ABI/testing/sysfs-kernel-iommu_groups`.
fn iommu(machine: &Machine<'_>) -> Check {
    const NAME: &str = "IOMMU";
    let devices = places(machine);
    if devices.is_empty() {
        return Check::not_applicable(NAME, "no GPU and no NIC");
    }
    if machine.root.list("sys/kernel/iommu_groups").is_empty() {
        return Check::ok(NAME, "off (no groups)");
    }
    let line = machine.read("proc/cmdline").unwrap_or_default();
    let through = line.split_whitespace().any(|word| matches!(word, "iommu=pt" | "iommu.passthrough=1"));
    let mut translating = Vec::new();
    for device in devices.iter().filter_map(|place| place.path.as_ref()).map(|path| path.device) {
        let group = machine.root.real(&format!("sys/bus/pci/devices/{device}/iommu_group"));
        let group = group.as_deref().and_then(|real| real.rsplit('/').next());
        let kind = group.and_then(|group| machine.read(&format!("sys/kernel/iommu_groups/{group}/type")));
        match kind.as_deref() {
            Some("identity") => {}
            Some(kind) => translating.push(format!("{device} ({kind})")),
            None if through => {}
            None => translating
                .push(format!("{device} (not known, and no iommu=pt on the kernel's command line)")),
        }
    }
    if translating.is_empty() {
        return Check::ok(NAME, "passes addresses through");
    }
    Check::new(NAME, Verdict::Missing, format!("translates: {}", short_list(&translating)))
        .fix("iommu=pt on the kernel's command line, or off in the BIOS; reboot")
}

/// Registered host memory is pinned, and counted against this limit but for CAP_IPC_LOCK (Linux,
/// `drivers/infiniband/core/umem.c`).
fn memlock(machine: &Machine<'_>) -> Check {
    const NAME: &str = "memlock";
    /// Rings and doorbells of a PE with a few dozen peers.
    const ENOUGH: u64 = 64 << 20;
    let Some(line) = machine.field("proc/self/limits", "Max locked memory") else {
        return Check::new(NAME, Verdict::ByHand, "/proc/self/limits cannot be read")
            .fix("ulimit -l unlimited");
    };
    let soft = line.split_whitespace().next().unwrap_or("?").to_owned();
    let free = capabilities(machine).is_some_and(|bits| bits & CAP_IPC_LOCK != 0);
    let kib = soft.parse::<u64>().map(|bytes| format!("{} KiB", bytes >> 10)).unwrap_or(soft.clone());
    match soft.parse::<u64>() {
        Err(_) if soft == "unlimited" => Check::ok(NAME, "unlimited"),
        Ok(_) if free => Check::ok(NAME, format!("{kib}, and this process is free of it (CAP_IPC_LOCK)")),
        Ok(bytes) => {
            let verdict = if bytes < ENOUGH { Verdict::Missing } else { Verdict::Warn };
            Check::new(NAME, verdict, format!("{kib} of pinned memory at most")).fix(
                "ulimit -l unlimited: memlock in /etc/security/limits.conf, LimitMEMLOCK=infinity in a service, \
                 --ulimit memlock=-1 for a container",
            )
        }
        Err(_) => Check::new(NAME, Verdict::ByHand, format!("\"{soft}\" is not understood")),
    }
}

fn numa(machine: &Machine<'_>) -> Check {
    const NAME: &str = "NUMA";
    let nodes = machine.root.list("sys/devices/system/node");
    let nodes = nodes
        .iter()
        .filter(|name| name.strip_prefix("node").is_some_and(|rest| rest.parse::<u32>().is_ok()))
        .count();
    let nameless = places(machine).iter().filter(|place| place.numa.is_none()).count();
    let count = if nodes == 1 { "1 node".into() } else { format!("{nodes} nodes") };
    if nodes > 1 && nameless > 0 {
        return Check::new(
            NAME,
            Verdict::Warn,
            format!("{count}, and {nameless} devices name none (numa_node is -1)"),
        )
        .fix("distances may be wrong: check the BIOS's NUMA settings, in a virtual machine its topology");
    }
    Check::ok(NAME, if nodes == 0 { "not known".into() } else { count })
}

fn huge_pages() -> Check {
    Check::not_applicable("huge pages", "rings and heaps do not ask for them")
}

/// Whether the first process's control group, or the mounts that all see, are those of a container.
fn container_seen(machine: &Machine<'_>) -> bool {
    let group = machine.read("proc/1/cgroup").unwrap_or_default();
    let makers = ["docker", "containerd", "kubepods", "libpod", "lxc"];
    let mounts = machine.read("proc/self/mounts").unwrap_or_default();
    let of_image = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        // Docker's root is an overlay, and it lays names and addresses over the image's files.
        matches!((words.next(), words.next()), (Some("/"), Some("overlay")) | (Some("/etc/resolv.conf"), _))
    };
    makers.iter().any(|maker| group.contains(maker)) || mounts.lines().any(of_image)
}

fn container(machine: &Machine<'_>) -> Check {
    const NAME: &str = "container";
    let marks =
        [(".dockerenv", "docker"), ("run/.containerenv", "podman"), ("run/systemd/container", "systemd")];
    match marks.iter().find(|(path, _)| machine.root.exists(path)) {
        Some((_, "docker")) if !container_seen(machine) => Check::new(
            NAME,
            Verdict::ByHand,
            "a marker of docker (/.dockerenv) and nothing else: may be a VM made from an image",
        )
        .fix("systemd-detect-virt says which; in a container the limits above are its own"),
        Some((_, kind)) => Check::ok(NAME, format!("{kind}: the limits above are the container's own")),
        None => Check::ok(NAME, "none seen"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn acs_is_found_behind_other_capabilities() {
        let mut config = vec![0; 4096];
        // Advanced error reporting at 0x100, then ACS at 0x148.
        config[0x100..0x104].copy_from_slice(&[0x01, 0x00, 0x81, 0x14]);
        config[0x148..0x14c].copy_from_slice(&[0x0d, 0x00, 0x01, 0x00]);
        config[0x14e] = 0x1d;
        assert_eq!(acs_control(&config), Some(0x1d));
        config[0x148] = 0x0e;
        assert_eq!(acs_control(&config), None);
        assert_eq!(acs_control(&config[..64]), None);
        // A circle.
        config[0x14b] = 0x14;
        config[0x14a] = 0x81;
        assert_eq!(acs_control(&config), None);
    }

    proptest! {
        #[test]
        fn any_configuration_space_ends(config in proptest::collection::vec(any::<u8>(), 0..4097)) {
            let _ = acs_control(&config);
        }
    }
}
