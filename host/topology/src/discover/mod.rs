//! What a machine has: RDMA devices, GPUs and the PCIe tree between them, read from sysfs.
//!
//! The root is a parameter: the machine itself, a copy of another machine's sysfs, or a listing ([`SysRoot`]). Every
//! read is bounded, and what is missing or odd is noted in [`Inventory::odd`] and worked around: a machine that is
//! half broken is the one an operator asks about.
//!
//! Names of files are the kernel's: `Documentation/ABI/stable/sysfs-class-infiniband`,
//! `Documentation/ABI/testing/sysfs-bus-pci`, `Documentation/ABI/testing/sysfs-class-net`.

mod gpu;
mod pci;
mod rdma;
mod snapshot;
mod sysroot;
mod text;

pub use gpu::Gpu;
pub use pci::{Distance, PciAddress, PciPath, Place, distance};
pub use rdma::{Bond, GidEntry, GidKind, LinkLayer, Netdev, Port, PortState, RdmaDevice};
pub use snapshot::{ListingError, Stat};
pub use sysroot::{Odd, RootError, SysRoot};
pub use text::{Gid, Guid, Rate, natural_order};

pub(crate) use text::decimal;

/// Everything that topology and doctor look at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// RDMA devices, in the order of their names (`mlx5_2` before `mlx5_10`).
    pub rdma: Vec<RdmaDevice>,
    /// NVIDIA GPUs, in the order of their PCI addresses: `nvidia-smi`'s order, and CUDA's with
    /// `CUDA_DEVICE_ORDER=PCI_BUS_ID`.
    pub gpus: Vec<Gpu>,
    /// What was missing or not understood.
    pub odd: Vec<Odd>,
}

/// Takes the inventory of a root. Never fails: an empty root is an empty inventory.
pub fn discover(root: &SysRoot) -> Inventory {
    let rdma = rdma::discover(root);
    let gpus = gpu::discover(root);
    Inventory { rdma, gpus, odd: root.take_odd() }
}
