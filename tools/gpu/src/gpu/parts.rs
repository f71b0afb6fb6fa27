//! What is built, and for which GPUs.

/// An architecture and the PTX version it needs: 8.3 has everything the inline assembly uses, but ptxas takes sm_100
/// from 8.6 on.
#[derive(Debug, PartialEq, Eq)]
pub struct Arch {
    /// `sm_90`.
    pub name: &'static str,
    /// `ptx83`.
    pub feature: &'static str,
}

pub const ARCHES: &[Arch] = &[
    Arch { name: "sm_80", feature: "ptx83" },
    Arch { name: "sm_90", feature: "ptx83" },
    Arch { name: "sm_100", feature: "ptx86" },
];

/// What is built from `kernels/`.
pub struct Part {
    pub name: &'static str,
    /// What cargo is told beside the rest.
    pub cargo: &'static [&'static str],
}

/// Entry points, linked into a cubin for a driver to load.
pub const KERNELS: &str = "shunt_kernels";
/// Functions, relocatable, for programs in other languages.
pub const LIBRARY: &str = "shunt_device";

pub const PARTS: &[Part] =
    &[Part { name: KERNELS, cargo: &[] }, Part { name: LIBRARY, cargo: &["--features", "library"] }];
