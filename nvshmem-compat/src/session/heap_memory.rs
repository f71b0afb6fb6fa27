//! The memory of this PE's heap: where it lies, who else maps it, how host code reaches it.

use super::access::{Access, ByDriver, ByPointer, Simulated};
use super::nics::Nics;
use crate::env::Settings;
use crate::failure::InitError;
use crate::heap_home::{Home, choose};
use crate::kernels::{Kernels, Place};
use shunt::queues::{self, KernelsOn, NoQueues, Queues};
use shunt::{HeapCard, SharedHeap, SimulatedMemory};
use shunt_host::gpu::GpuMemory;
use shunt_host::gpu::cuda::{Copies, Cuda, CudaMemory, Gdr, Home as GpuHome, Mover};
use std::sync::Arc;

/// A GPU whose memory the heap lies in.
struct OnGpu {
    gpu: Arc<Cuda>,
    memory: Arc<CudaMemory>,
}

/// The memory of a heap.
pub struct HeapMemory {
    home: Home<OnGpu>,
    simulated: Arc<SimulatedMemory>,
    shared: Arc<SharedHeap>,
    memory: Arc<dyn GpuMemory>,
    queues: Queues<()>,
}

fn open(number: u32) -> Result<OnGpu, String> {
    let opened = Cuda::open(number).and_then(|gpu| {
        let memory = Arc::new(CudaMemory::new(gpu.clone(), GpuHome::Gpu, Mover::Hardware)?);
        memory.try_split()?;
        Ok(OnGpu { gpu, memory })
    });
    opened.map_err(|error| error.to_string())
}

/// Where queues of kernels lie, beside a heap in that place; and what is said of it.
fn find_queues(
    settings: &Settings,
    place: Place,
    nics: &Nics,
    home: &Home<OnGpu>,
) -> Result<(Queues<()>, Option<String>), NoQueues> {
    let kernels = match place {
        Place::Nowhere => KernelsOn::Nothing,
        Place::Host => KernelsOn::Processor,
        Place::Gpu(number) => KernelsOn::Gpu(number),
    };
    queues::choose(settings.host.queues, kernels, nics.carrier(), |_| {
        let Home::Gpu(on) = home else {
            return Err("the heap lies there, and a completion must not be seen before its data".to_owned());
        };
        if !settings.gdrcopy {
            return Err("NVSHMEM_DISABLE_GDRCOPY is set".to_owned());
        }
        let mapped = Gdr::open().and_then(|gdr| on.memory.take_in_queues(gdr));
        mapped.map_err(|error| error.to_string())
    })
}

impl HeapMemory {
    /// Finds it, and says where it is where that was not asked for: `speaks`, one PE of a machine.
    ///
    /// # Errors
    /// It cannot lie where it was asked for, or the GPU gives none.
    pub fn find(
        settings: &Settings,
        kernels: &Kernels,
        nics: &Nics,
        speaks: bool,
    ) -> Result<Self, InitError> {
        let gpu = match kernels.place() {
            Place::Gpu(number) => Some(number),
            Place::Nowhere | Place::Host => None,
        };
        let found = choose(settings.heap_kind, gpu, nics.carrier(), open);
        let (home, said) = found.map_err(InitError::Heap)?;
        if let Some(said) = said.filter(|_| speaks) {
            shunt_host::complain!("shunt: {said}");
        }
        let (queues, said) = find_queues(settings, kernels.place(), nics, &home)?;
        if let Some(said) = said.filter(|_| speaks) {
            shunt_host::complain!("shunt: {said}");
        }
        let (simulated, shared) = (Arc::<SimulatedMemory>::default(), Arc::<SharedHeap>::default());
        let memory: Arc<dyn GpuMemory> = match &home {
            Home::Gpu(on) => on.memory.clone(),
            Home::Simulated => simulated.clone(),
            Home::Host => match gpu {
                Some(number) => {
                    let memory =
                        Cuda::open(number).and_then(|gpu| CudaMemory::new(gpu, GpuHome::Host, nics.mover()));
                    Arc::new(memory.map_err(InitError::Gpu)?)
                }
                None => shared.clone(),
            },
        };
        Ok(Self { home, simulated, shared, memory, queues })
    }

    /// As `SHUNT_HEAP` has it.
    pub fn name(&self) -> &'static str {
        self.home.name()
    }

    /// Whether a part of it is a device's, which the host does not touch.
    pub fn is_split(&self) -> bool {
        !matches!(self.home, Home::Host)
    }

    /// Where the queues of kernels lie.
    pub fn queues(&self) -> &Queues<()> {
        &self.queues
    }

    /// What the PE is brought up with.
    pub fn memory(&self) -> Arc<dyn GpuMemory> {
        self.memory.clone()
    }

    /// What the others of this node are told of it: nothing, if they are not to map it.
    pub fn card(&self, settings: &Settings) -> HeapCard {
        let heap = self.shared.heap().filter(|_| settings.p2p);
        heap.and_then(|heap| heap.card().ok()).unwrap_or_default()
    }

    /// How host code reaches it, once it is there.
    ///
    /// # Errors
    /// The GPU's driver refused.
    pub fn access(&self) -> Result<Arc<dyn Access>, InitError> {
        Ok(match (&self.home, self.simulated.heap()) {
            (Home::Gpu(on), _) => Arc::new(ByDriver(Copies::new(on.gpu.clone()).map_err(InitError::Gpu)?)),
            (Home::Simulated, Some(heap)) => Arc::new(Simulated::new(heap)),
            _ => Arc::new(ByPointer),
        })
    }
}
