//! RDMA devices, their ports, their driver and the rights to them.

use crate::check::{Check, Machine, Verdict, short_list};
use shunt_mlx5::ibverbs::IbverbsDevx;
use shunt_mlx5::nic::caps::Caps;
use shunt_topology::discover::{LinkLayer, SysRoot};

pub(super) fn checks(machine: &Machine<'_>) -> Vec<Check> {
    let mut out = vec![devices(machine), driver(machine), libraries(machine)];
    if machine.has_nic() {
        out.extend([ports(machine), bond(machine), uverbs(machine), devx(machine), cgroup(machine)]);
        out.extend([gids(machine), mtu(machine), ranking(machine)]);
    } else {
        let why = "no RDMA device";
        for name in ["ports", "uverbs", "DEVX", "GID", "MTU", "rails"] {
            out.push(Check::not_applicable(name, why));
        }
    }
    out
}

/// `/sys/class/infiniband`: the kernel's `Documentation/ABI/stable/sysfs-class-infiniband`.
fn devices(machine: &Machine<'_>) -> Check {
    const NAME: &str = "RDMA devices";
    let found: Vec<String> = machine
        .inventory
        .rdma
        .iter()
        .map(|device| format!("{} ({}, firmware {})", device.name, device.hca_type, device.firmware))
        .collect();
    if found.is_empty() {
        return Check::new(NAME, Verdict::Missing, "none in /sys/class/infiniband").fix(
            "needs a ConnectX-4 or later with its driver loaded (modprobe mlx5_ib); in a container, pass the devices \
             in",
        );
    }
    if machine.topology.rails.is_empty() {
        let why: Vec<String> =
            machine.topology.set_aside.iter().map(|port| format!("{}: {}", port.name, port.why)).collect();
        return Check::new(NAME, Verdict::Missing, format!("none that may be used: {}", why.join("; ")))
            .fix("see `shunt topology`");
    }
    Check::ok(NAME, format!("{}: {}", found.len(), short_list(&found)))
}

/// Modules as `/sys/module` lists them. User space reaches a ConnectX through mlx5_ib and ib_uverbs.
fn driver(machine: &Machine<'_>) -> Check {
    const NAME: &str = "mlx5 driver";
    let missing: Vec<&str> =
        ["mlx5_core", "mlx5_ib", "ib_uverbs"].into_iter().filter(|name| !machine.module(name)).collect();
    if missing.is_empty() {
        let version = machine.read("sys/module/mlx5_core/version");
        return Check::ok(NAME, version.map_or("loaded".into(), |version| format!("loaded, {version}")));
    }
    let verdict = if machine.has_nic() { Verdict::Warn } else { Verdict::Missing };
    Check::new(NAME, verdict, format!("not loaded: {}", missing.join(", ")))
        .fix(format!("modprobe {}", missing.join(" ")))
}

/// Folders that loaders look in.
const LIBRARIES: [&str; 9] = [
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "lib64",
    "usr/lib",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "usr/local/lib",
    "usr/local/lib64",
];

/// `libibverbs.so.1.14.39.0` of rdma-core 39: the last but one number is the package's (rdma-core, `CMakeLists.txt`).
/// `ibv_reg_dmabuf_mr` came with rdma-core 34 (`libibverbs/libibverbs.map.in`, IBVERBS_1.12).
fn libraries(machine: &Machine<'_>) -> Check {
    const NAME: &str = "libibverbs, libmlx5";
    let path = (machine.lookup)("LD_LIBRARY_PATH").unwrap_or_default();
    let mut folders: Vec<String> =
        path.split(':').map(|folder| folder.trim_matches('/').to_owned()).collect();
    folders.retain(|folder| !folder.is_empty());
    folders.extend(LIBRARIES.map(str::to_owned));
    let found: Vec<Option<String>> = ["libibverbs.so.1", "libmlx5.so.1"]
        .iter()
        .map(|name| library(machine.root, &folders, name))
        .collect();
    let [Some(verbs), Some(mlx5)] = &found[..] else {
        let missing = ["libibverbs.so.1", "libmlx5.so.1"].into_iter().zip(&found);
        let missing: Vec<&str> = missing.filter(|(_, found)| found.is_none()).map(|(name, _)| name).collect();
        return Check::new(NAME, Verdict::Missing, format!("not found: {}", missing.join(", ")))
            .fix("apt-get install libibverbs1 ibverbs-providers, or dnf install libibverbs");
    };
    if machine.root.is_machine()
        && let Err(error) = shunt_mlx5_sys::load()
    {
        return Check::new(NAME, Verdict::Missing, format!("{verbs}, {mlx5}: {error}"))
            .fix("rdma-core of this machine's own kind, as new as the message asks for");
    }
    let package = |name: &str| name.rsplit('.').nth(1).and_then(|number| number.parse::<u32>().ok());
    match package(verbs) {
        Some(version) if version < 34 => Check::new(
            NAME,
            Verdict::Warn,
            format!("{verbs}, {mlx5}: rdma-core {version} cannot register dma-buf"),
        )
        .fix("rdma-core 34 or later, or nvidia_peermem"),
        _ => Check::ok(NAME, format!("{verbs}, {mlx5}")),
    }
}

/// The library's own name with its version.
fn library(root: &SysRoot, folders: &[String], name: &str) -> Option<String> {
    let real = folders.iter().find_map(|folder| {
        let path = format!("{folder}/{name}");
        root.exists(&path).then(|| root.real(&path))?
    })?;
    Some(real.rsplit('/').next()?.to_owned())
}

fn ports(machine: &Machine<'_>) -> Check {
    const NAME: &str = "ports";
    let rails = &machine.topology.rails;
    let trouble: Vec<String> =
        rails.iter().filter_map(|rail| Some(format!("{}: {}", rail.name, rail.trouble.as_ref()?))).collect();
    let up = rails.len() - trouble.len();
    if trouble.is_empty() && up > 0 {
        return Check::ok(NAME, format!("{up} of {up} can be used"));
    }
    let verdict = if up == 0 { Verdict::Missing } else { Verdict::Warn };
    let met = format!("{up} of {} can be used; {}", rails.len(), short_list(&trouble));
    Check::new(NAME, verdict, met)
        .fix("cable, switch port, `ip link set NETDEV up`; on InfiniBand a subnet manager")
}

/// RoCE LAG: one RDMA device for both ports, and the firmware moves queue pairs between them (Linux, `net/mlx5:
/// Implement RoCE LAG feature`).
fn bond(machine: &Machine<'_>) -> Check {
    const NAME: &str = "bonds";
    let mut refused = machine.topology.set_aside.iter().filter(|port| port.refused);
    match refused.next() {
        None => Check::ok(NAME, "none"),
        Some(port) => {
            let verdict = if machine.topology.rails.is_empty() { Verdict::Missing } else { Verdict::Warn };
            Check::new(NAME, verdict, format!("{}: {}", port.name, port.why)).fix(port.fix.clone())
        }
    }
}

/// Who this process is, from `/proc/self/status` (proc(5)).
struct Identity {
    user: u32,
    groups: Vec<u32>,
    capabilities: u64,
}

/// Bits of `CapEff` (capabilities(7), `linux/capability.h`).
const CAP_DAC_OVERRIDE: u64 = 1 << 1;
pub(super) const CAP_IPC_LOCK: u64 = 1 << 14;

fn identity(machine: &Machine<'_>) -> Option<Identity> {
    const STATUS: &str = "proc/self/status";
    // Real, effective, saved, file system: the second counts.
    let second = |name| machine.field(STATUS, name)?.split_whitespace().nth(1)?.parse().ok();
    let mut groups: Vec<u32> =
        machine.field(STATUS, "Groups")?.split_whitespace().filter_map(|id| id.parse().ok()).collect();
    groups.push(second("Gid")?);
    Some(Identity { user: second("Uid")?, groups, capabilities: capabilities(machine)? })
}

/// Effective capabilities of this process.
pub(super) fn capabilities(machine: &Machine<'_>) -> Option<u64> {
    u64::from_str_radix(&machine.field("proc/self/status", "CapEff")?, 16).ok()
}

/// Device nodes below `/dev/infiniband`: to open one for reading and writing is all that verbs and DEVX ask for.
fn uverbs(machine: &Machine<'_>) -> Check {
    const NAME: &str = "uverbs";
    let devices = machine.topology.rails.iter().map(|rail| &machine.inventory.rdma[rail.device]);
    let identity = identity(machine);
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for device in devices {
        let Some(node) = &device.uverbs else {
            bad.push(format!("{} has none", device.name));
            continue;
        };
        let Some(stat) = machine.root.stat(&format!("dev/infiniband/{node}")) else {
            bad.push(format!("/dev/infiniband/{node} is not there"));
            continue;
        };
        let may = identity.as_ref().is_none_or(|me| {
            let class = if me.user == stat.user {
                stat.mode >> 6
            } else if me.groups.contains(&stat.group) {
                stat.mode >> 3
            } else {
                stat.mode
            };
            me.capabilities & CAP_DAC_OVERRIDE != 0 || class & 6 == 6
        });
        let described = format!("/dev/infiniband/{node} ({:04o}, {}:{})", stat.mode, stat.user, stat.group);
        if may { good.push(node.clone()) } else { bad.push(format!("no right to {described}")) }
    }
    good.dedup();
    bad.dedup();
    if bad.is_empty() && identity.is_none() {
        return Check::new(NAME, Verdict::ByHand, format!("{}: there", short_list(&good)))
            .fix("whether a process may open them cannot be told from this copy");
    }
    if bad.is_empty() {
        return Check::ok(NAME, format!("{}: may be opened", short_list(&good)));
    }
    Check::new(NAME, Verdict::Missing, short_list(&bad)).fix(
        "modprobe ib_uverbs; rights 0666 or a group of the user's by a udev rule; in a container, --device \
         /dev/infiniband/uverbsN",
    )
}

/// The driver makes a DEVX context for every user who may open the node: CAP_NET_RAW and CAP_SYS_RAWIO only add raw
/// packets and internal resources, which Shunt has no use for (Linux, `drivers/infiniband/hw/mlx5/devx.c`,
/// `mlx5_ib_devx_create`).
fn devx(machine: &Machine<'_>) -> Check {
    const NAME: &str = "DEVX";
    let fit = machine.topology.rails.iter().all(|rail| {
        machine.inventory.rdma[rail.device].driver.as_deref().is_none_or(|driver| driver == "mlx5_core")
    });
    if !fit {
        return Check::new(NAME, Verdict::Missing, "a device without the driver mlx5_core")
            .fix("bind it to mlx5_core, not to vfio-pci or the like");
    }
    if !machine.root.is_machine() {
        let met =
            "comes with the uverbs node, CAP_NET_RAW is not needed; its firmware is asked when it is opened";
        return Check::ok(NAME, met);
    }
    let rails = machine.topology.rails.iter();
    let mut names: Vec<&str> = rails.map(|rail| machine.inventory.rdma[rail.device].name.as_str()).collect();
    names.dedup();
    let refused: Vec<String> = names.iter().filter_map(|name| opens(name).err()).collect();
    if refused.is_empty() {
        return Check::ok(NAME, format!("{}: opened, and the firmware answers", names.join(", ")));
    }
    let verdict = if refused.len() == names.len() { Verdict::Missing } else { Verdict::Warn };
    Check::new(NAME, verdict, short_list(&refused)).fix("what each line names")
}

/// Opens a device with DEVX and asks what it can do.
fn opens(name: &str) -> Result<(), String> {
    let devx = IbverbsDevx::open(name).map_err(|error| error.to_string())?;
    Caps::query(&*devx).map(drop).map_err(|error| error.to_string())
}

/// The rdma controller of cgroup v2 (kernel, `Documentation/admin-guide/cgroup-v2.rst`, "RDMA Interface Files").
fn cgroup(machine: &Machine<'_>) -> Check {
    const NAME: &str = "rdma cgroup";
    let group = machine.read("proc/self/cgroup").unwrap_or_default();
    let path =
        group.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/").trim_matches('/').to_owned();
    let file = format!("sys/fs/cgroup/{path}/rdma.max").replace("//", "/");
    let limits = machine.read(&file).unwrap_or_default();
    let limited: Vec<String> = limits
        .lines()
        .filter(|line| line.split_whitespace().skip(1).any(|limit| !limit.ends_with("=max")))
        .map(str::to_owned)
        .collect();
    if limited.is_empty() {
        return Check::ok(NAME, "no limit");
    }
    Check::new(NAME, Verdict::Warn, short_list(&limited))
        .fix(format!("handles and objects are counted per container: raise the limits in /{file}"))
}

/// RoCE v1 frames are not routed, and a v1 end does not reach a v2 end.
fn gids(machine: &Machine<'_>) -> Check {
    const NAME: &str = "GID";
    let rails: Vec<_> =
        machine.topology.rails.iter().filter(|rail| rail.link == LinkLayer::Ethernet).collect();
    if rails.is_empty() {
        return Check::not_applicable(NAME, "InfiniBand: paths go by LID");
    }
    let short: Vec<String> = rails
        .iter()
        .filter_map(|rail| {
            let gid = rail.gid.as_ref()?;
            let lacks = gid.short_of.join(" nor ");
            (!gid.short_of.is_empty()).then(|| format!("{}: entry {} is not {lacks}", rail.name, gid.index))
        })
        .collect();
    if !short.is_empty() {
        let v1 = short.iter().any(|what| what.contains("RoCE v2"));
        let fix = if v1 {
            "version 1 is not routed: look at show_gids, and at RoCE v2 in firmware and driver; or \
             NVSHMEM_IB_ROCE_VERSION_NUM=1 at every end"
        } else {
            "give the port's network interface such an address, or say otherwise in NVSHMEM_IB_ADDR_FAMILY or \
             NVSHMEM_IB_ADDR_RANGE"
        };
        let verdict = if v1 { Verdict::Missing } else { Verdict::Warn };
        return Check::new(NAME, verdict, short_list(&short)).fix(fix);
    }
    let mut chosen: Vec<u32> = rails.iter().filter_map(|rail| Some(rail.gid.as_ref()?.index)).collect();
    chosen.sort_unstable();
    chosen.dedup();
    let indices: Vec<String> = chosen.iter().map(u32::to_string).collect();
    Check::ok(NAME, format!("RoCE v{}, entry {}", machine.selection.gid.roce_version, indices.join(", ")))
}

/// The RDMA MTU is the largest of 256 to 4096 that fits the interface's less 96 bytes of headers (Linux,
/// `include/rdma/ib_addr.h`, `iboe_get_mtu`).
fn mtu(machine: &Machine<'_>) -> Check {
    const NAME: &str = "MTU";
    const HEADERS: u32 = 96;
    let rails = machine.topology.rails.iter().filter(|rail| rail.link == LinkLayer::Ethernet);
    let mut known = false;
    let mut small = Vec::new();
    for rail in rails {
        let netdevs = machine.inventory.rdma[rail.device].netdevs.iter();
        for netdev in netdevs.filter(|netdev| netdev.port == rail.port) {
            let Some(mtu) = netdev.mtu else { continue };
            known = true;
            if mtu < 4096 + HEADERS {
                let sizes =
                    [2048, 1024, 512, 256].into_iter().find(|size| mtu >= size + HEADERS).unwrap_or(0);
                small.push(format!("{} {mtu} gives RDMA {sizes}", netdev.name));
            }
        }
    }
    if !known {
        return Check::not_applicable(
            NAME,
            "InfiniBand: the subnet manager sets it (ibv_devinfo: active_mtu)",
        );
    }
    if small.is_empty() {
        return Check::ok(NAME, "RDMA 4096 on all");
    }
    Check::new(NAME, Verdict::Warn, short_list(&small))
        .fix("ip link set NETDEV mtu 4200 or more, the same at both ends and in the switches")
}

/// What the ranking says of itself.
fn ranking(machine: &Machine<'_>) -> Check {
    const NAME: &str = "rails";
    if !machine.has_gpu() {
        return Check::not_applicable(NAME, "no GPU to rank them for");
    }
    let mut notes: Vec<String> = Vec::new();
    for gpu in &machine.topology.gpus {
        notes.extend(gpu.notes.iter().map(|note| format!("GPU {}: {note}", gpu.gpu)));
    }
    if notes.is_empty() {
        let backups = machine.topology.backups;
        return Check::ok(
            NAME,
            format!("every GPU has a near primary and backups ({backups} made at start)"),
        );
    }
    let lost = machine.topology.gpu_without_rail().is_some();
    let verdict = if lost { Verdict::Missing } else { Verdict::Warn };
    Check::new(NAME, verdict, short_list(&notes)).fix("see `shunt topology`")
}
