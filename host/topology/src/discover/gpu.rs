//! NVIDIA GPUs, from the PCI bus; with the driver's name for the model where its files are there.

use super::pci::{PciAddress, PciPath, Place};
use super::sysroot::SysRoot;
use super::text::hex;

/// A GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// Address.
    pub address: PciAddress,
    /// Where it sits.
    pub place: Place,
    /// PCI device id.
    pub device: u32,
    /// Model, by the driver (`/proc/driver/nvidia/gpus/ADDRESS/information`); `None` without it.
    pub model: Option<String>,
    /// Kernel driver that holds it.
    pub driver: Option<String>,
}

const BUS: &str = "sys/bus/pci/devices";
/// PCI vendor id of NVIDIA.
const NVIDIA: u32 = 0x10de;

/// Display (0x0300) and 3D (0x0302) controllers of NVIDIA.
pub(super) fn discover(root: &SysRoot) -> Vec<Gpu> {
    let mut gpus: Vec<Gpu> = root.list(BUS).iter().filter_map(|name| gpu(root, name)).collect();
    gpus.sort_by_key(|gpu| gpu.address);
    gpus
}

fn gpu(root: &SysRoot, name: &str) -> Option<Gpu> {
    let base = format!("{BUS}/{name}");
    let number = |file: &str| hex(&root.read(&format!("{base}/{file}"))?);
    let class = number("class")? >> 8;
    if !matches!(class, 0x0300 | 0x0302) || number("vendor")? != NVIDIA {
        return None;
    }
    let Some(address) = PciAddress::parse(name) else {
        root.odd(&base, "a GPU whose name is no PCI address");
        return None;
    };
    let information = root.read(&format!("proc/driver/nvidia/gpus/{address}/information"));
    let model = information
        .as_deref()
        .and_then(|text| text.lines().find_map(|line| Some(line.strip_prefix("Model:")?.trim().to_owned())));
    Some(Gpu {
        address,
        place: place(root, &base),
        device: number("device").unwrap_or_default(),
        model,
        driver: driver(root, &base),
    })
}

/// Where a PCI device sits.
pub(super) fn place(root: &SysRoot, base: &str) -> Place {
    let real = root.real(base);
    let path = real.as_deref().and_then(PciPath::parse);
    if path.is_none() {
        root.odd(base, format!("leads to {}, not into a PCI tree", real.as_deref().unwrap_or("nothing")));
    }
    let numa = root.read(&format!("{base}/numa_node"));
    // -1: the kernel knows no node.
    Place { path, numa: numa.and_then(|text| text.parse::<i64>().ok()).and_then(|node| node.try_into().ok()) }
}

/// Name of the kernel driver that holds a PCI device.
pub(super) fn driver(root: &SysRoot, base: &str) -> Option<String> {
    let link = format!("{base}/driver");
    let real = root.real(&link).filter(|real| *real != link)?;
    Some(real.rsplit('/').next()?.to_owned())
}
