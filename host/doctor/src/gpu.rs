//! GPUs, their driver, and what lets a NIC reach their memory and a kernel reach the NIC.

use crate::check::{Check, Machine, Verdict, short_list};
use shunt_topology::discover::Distance;

pub(super) fn checks(machine: &Machine<'_>) -> Vec<Check> {
    let mut out = vec![devices(machine)];
    if machine.has_gpu() {
        out.extend([driver(machine), memory(machine), peer_mapping(machine), stream_ops(machine)]);
        out.extend([distances(machine), gdrcopy(machine)]);
    } else {
        for name in ["NVIDIA driver", "GPU memory for NICs", "PeerMappingOverride", "GPU to NIC"] {
            out.push(Check::not_applicable(name, "no GPU"));
        }
    }
    out
}

fn devices(machine: &Machine<'_>) -> Check {
    const NAME: &str = "GPUs";
    let found: Vec<String> = machine
        .inventory
        .gpus
        .iter()
        .map(|gpu| format!("{} {}", gpu.address, gpu.model.as_deref().unwrap_or("(no driver's name)")))
        .collect();
    if found.is_empty() {
        return Check::new(NAME, Verdict::Missing, "no NVIDIA GPU on the PCI bus")
            .fix("needs a data center GPU; device code runs on the CPU with the soft NIC meanwhile");
    }
    Check::ok(NAME, format!("{}: {}", found.len(), short_list(&found)))
}

const VERSION: &str = "proc/driver/nvidia/version";
const PARAMS: &str = "proc/driver/nvidia/params";

/// The driver's version from its `NVRM version:` line, and whether it is the open kernel module.
fn nvrm(machine: &Machine<'_>) -> Option<(Vec<u32>, bool)> {
    let line = machine.field(VERSION, "NVRM version")?;
    let number = |word: &str| word.split('.').map(|part| part.parse().ok()).collect::<Option<Vec<u32>>>();
    let version = line.split_whitespace().filter(|word| word.contains('.')).find_map(number)?;
    Some((version, line.contains("Open Kernel Module")))
}

/// IBGDA needs nvidia.ko 510.40.3 or later (NVSHMEM installation guide, "Software Requirements").
fn driver(machine: &Machine<'_>) -> Check {
    const NAME: &str = "NVIDIA driver";
    let Some((version, open)) = nvrm(machine) else {
        let held: Vec<String> = machine.inventory.gpus.iter().filter_map(|gpu| gpu.driver.clone()).collect();
        let met = match held.iter().find(|driver| *driver != "nvidia") {
            Some(other) => format!("not loaded: a GPU is held by {other}"),
            None => "not loaded".into(),
        };
        return Check::new(NAME, Verdict::Missing, met).fix("install the driver; modprobe nvidia");
    };
    let text: Vec<String> = version.iter().map(|part| format!("{part:02}")).collect();
    let kind = if open { "open kernel module" } else { "proprietary kernel module" };
    let met = format!("{} ({kind})", text.join("."));
    if version < vec![510, 40, 3] {
        return Check::new(NAME, Verdict::Missing, met).fix("510.40.3 or later");
    }
    Check::ok(NAME, met)
}

/// NICs register GPU memory by dma-buf (kernel 5.12 or later and the open kernel module: NVIDIA GPU Operator guide,
/// "GPUDirect RDMA", prerequisites), or through a peer memory module. The three files are those NVSHMEM looks for.
fn memory(machine: &Machine<'_>) -> Check {
    const NAME: &str = "GPU memory for NICs";
    let release = machine.read("proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let kernel = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let open = nvrm(machine).is_some_and(|(_, open)| open);
    let peer = [
        "sys/kernel/mm/memory_peers/nv_mem/version",
        "sys/kernel/mm/memory_peers/nvidia-peermem/version",
        "sys/module/nvidia_peermem/version",
    ];
    let peer = peer.iter().any(|path| machine.root.exists(path));
    match (kernel >= (5, 12) && open, peer) {
        (true, true) => Check::ok(NAME, "dma-buf; nvidia_peermem is loaded too"),
        (true, false) => Check::ok(NAME, format!("dma-buf (kernel {release}, open kernel module)")),
        (false, true) => Check::ok(NAME, "nvidia_peermem"),
        (false, false) => {
            let why = match (kernel >= (5, 12), open) {
                (false, _) => format!("kernel {release} is older than 5.12"),
                _ => "the driver is not the open kernel module".into(),
            };
            Check::new(
                NAME,
                Verdict::Missing,
                format!("no dma-buf ({why}), and nvidia_peermem is not loaded"),
            )
            .fix("modprobe nvidia_peermem, or the open kernel module on kernel 5.12 or later")
        }
    }
}

const OPTIONS: &str = "options nvidia NVreg_EnableStreamMemOPs=1 NVreg_RegistryDwords=\"PeerMappingOverride=1;\" \
                       in /etc/modprobe.d/nvidia.conf; rebuild the initramfs; reboot";

/// A kernel rings the NIC's doorbell itself only if the driver maps the NIC's registers into the GPU. The driver does
/// so for others than root where `PeerMappingOverride=1` is among its registry keys (NVSHMEM installation guide).
fn peer_mapping(machine: &Machine<'_>) -> Check {
    const NAME: &str = "PeerMappingOverride";
    let Some(words) = machine.field(PARAMS, "RegistryDwords") else {
        return match nvrm(machine) {
            None => Check::not_applicable(NAME, "the NVIDIA driver is not loaded"),
            Some(_) => Check::new(NAME, Verdict::ByHand, format!("/{PARAMS} cannot be read")).fix(OPTIONS),
        };
    };
    let set = words.trim_matches('"').split(';').any(|word| word.trim() == "PeerMappingOverride=1");
    if set {
        return Check::ok(NAME, "1");
    }
    Check::new(
        NAME,
        Verdict::Missing,
        format!("RegistryDwords: {}", if words.is_empty() { "empty" } else { &words }),
    )
    .fix(OPTIONS)
}

/// DeepEP's guide to NVSHMEM sets it together with PeerMappingOverride.
fn stream_ops(machine: &Machine<'_>) -> Check {
    const NAME: &str = "EnableStreamMemOPs";
    match machine.field(PARAMS, "EnableStreamMemOPs").as_deref() {
        Some("1") => Check::ok(NAME, "1"),
        Some(other) => {
            Check::new(NAME, Verdict::Warn, format!("{other}; DeepEP's guide asks for 1")).fix(OPTIONS)
        }
        None => Check::not_applicable(NAME, "not among the driver's parameters"),
    }
}

fn distances(machine: &Machine<'_>) -> Check {
    const NAME: &str = "GPU to NIC";
    let far: Vec<String> = machine
        .topology
        .gpus
        .iter()
        .filter_map(|gpu| {
            let primary = gpu.primary().filter(|primary| primary.distance > Distance::Pxb)?;
            Some(format!(
                "GPU {} to {} is {}",
                gpu.gpu, machine.topology.rails[primary.rail].name, primary.distance
            ))
        })
        .collect();
    if machine.topology.gpus.iter().all(|gpu| gpu.primary().is_none()) {
        return Check::not_applicable(NAME, "no port can be used");
    }
    if far.is_empty() {
        return Check::ok(NAME, "each GPU shares a PCIe switch with its primary (PIX or PXB)");
    }
    // NVSHMEM's FAQ warns of the same: GPU and HCA that are not below one PCIe switch.
    Check::new(NAME, Verdict::Warn, short_list(&far))
        .fix("traffic goes through the CPU: use ports below the GPU's own switch, or another slot")
}

/// By GDRCopy the host reaches queues that lie in the GPU's memory.
fn gdrcopy(machine: &Machine<'_>) -> Check {
    let loaded = machine.module("gdrdrv") || machine.root.exists("dev/gdrdrv");
    let met = if loaded { "loaded" } else { "not loaded" };
    Check::not_applicable(
        "GDRCopy",
        format!("{met}; without it queues lie in the host's memory (SHUNT_QUEUES)"),
    )
}
