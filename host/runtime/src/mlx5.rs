//! NICs through libibverbs and libmlx5.

use crate::nics::{Nics, NoNic};
use shunt_device::platform::host::World;
use shunt_host::clock::RealClock;
use shunt_host::devx::Devx;
use shunt_host::devx::ibverbs::{IbverbsDevx, Opening};
use shunt_host::silence::Silence;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Devices by name, and how each is opened.
pub struct Mlx5Nics {
    clock: Arc<RealClock>,
    rails: BTreeMap<u32, Vec<(String, Opening)>>,
}

impl Mlx5Nics {
    /// The rails of each PE that lives here, by rank: `mlx5_0`, ...
    pub fn new(rails: BTreeMap<u32, Vec<(String, Opening)>>) -> Self {
        Self { clock: Arc::new(RealClock::new()), rails }
    }

    /// The rails of PEs from `first` on, opened as usual.
    pub fn of_pes(first: u32, devices: &[&[&str]]) -> Self {
        let opened = |device: &&str| ((*device).to_owned(), Opening::default());
        let rails = devices.iter().map(|devices| devices.iter().map(opened).collect());
        Self::new((first..).zip(rails).collect())
    }
}

impl Nics for Mlx5Nics {
    fn clock(&self) -> Arc<dyn World> {
        self.clock.clone()
    }

    fn open(&self, pe: u32) -> Result<Vec<Arc<dyn Devx>>, NoNic> {
        let rails = self.rails.get(&pe).map_or(&[][..], Vec::as_slice);
        let open = |(device, opening): &(String, Opening)| {
            IbverbsDevx::open_with(device, *opening).map_err(|error| NoNic(error.to_string()))
        };
        rails.iter().map(open).collect()
    }

    fn silence(&self) -> Silence {
        Silence::HARDWARE
    }
}
