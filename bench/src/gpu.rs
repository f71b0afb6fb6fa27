//! Kernels on a GPU, launched for one PE: those of `kernels/`, which other PEs run as threads.
//!
//! Rings, doorbells and heap lie in memory of the host that the GPU's kernels reach, so soft NICs move the data; with
//! hardware, rings and doorbell records may lie in the GPU's (`SHUNT_QUEUES`). While
//! kernels of a PE may run, nobody on the host changes its channels' words: read-modify-writes of a GPU and of a CPU on
//! one word are not atomic with each other over PCIe. Hence whatever a sender does it has a kernel do, and its agent
//! leaves switches to kernels.

use crate::clock::PeClock;
use shunt_device::platform::host::World;
use shunt_host::gpu::cuda::{
    self, Cuda, CudaError, CudaMemory, Gdr, Graph, Home, Launch, Module, Mover, Stream,
};
use shunt_host::gpu::{GpuMemory, OwnedSpan, Placement};
use shunt_host::pe::Pe;
use shunt_kernels::moe::normal::{NormalCall, NormalKernel};
use shunt_kernels::moe::{MoeCall, Stage};
use shunt_kernels::scenarios::Group;
use shunt_kernels::{Call, Outcome, STATUS_ABI_MISMATCH, STATUS_OK};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// Blocks of a launch, at most.
pub const BLOCKS_MAX: u32 = 64;
/// Outcomes that there is room for: those of a graph of phases, two for each block.
const OUTCOMES_MAX: u32 = 4 * BLOCKS_MAX;

/// The value of an outcome before its kernel ran: no ticket, time or count, and nothing that a scenario fetches.
const UNSTORED: u64 = 0xdead_0d06_5eed_0bad;
/// It stores nothing where all was done already (`kernels/src/answer.rs`).
const SILENT: &str = "quiet";

/// The outcome of a kernel, looked at after it ran.
///
/// # Errors
/// The kernel stored none.
pub fn answered(kernel: &str, outcome: Outcome) -> Result<Outcome, CudaError> {
    match (outcome.status, outcome.value) {
        (STATUS_OK, UNSTORED) if kernel.starts_with(SILENT) => Ok(Outcome { value: 0, ..outcome }),
        (STATUS_OK, UNSTORED) => Err(CudaError::NoAnswer { kernel: kernel.to_owned() }),
        _ => Ok(outcome),
    }
}

/// Why a PE's kernels cannot run on a GPU.
#[derive(Debug, thiserror::Error)]
pub enum NoGpu {
    /// The GPU.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// Memory.
    #[error(transparent)]
    Memory(#[from] shunt_host::error::GpuError),
    /// The module's kernels understand another state.
    #[error(
        "the kernels are of state version {met}, this program of {right}: `cargo xtask gpu` rebuilds them"
    )]
    Version {
        /// Met.
        met: u64,
        /// This program's.
        right: u32,
    },
}

/// A GPU and the kernels for it.
#[derive(Clone)]
pub struct OneGpu {
    cuda: Arc<Cuda>,
    image: Arc<Vec<u8>>,
    mover: Mover,
}

impl OneGpu {
    /// The first GPU, and the kernels of a file, or of where the build leaves them.
    ///
    /// # Errors
    /// No driver, no GPU, no kernels: what was looked for, and what would be right.
    pub fn open(kernels: Option<&Path>, mover: Mover) -> Result<Self, CudaError> {
        let cuda = Cuda::open(0)?;
        let program = std::env::current_exe().unwrap_or_default();
        let image = cuda::read_first(&cuda::candidates(kernels, &program, &cuda.arch()), &cuda.arch())?;
        Ok(Self { cuda, image: Arc::new(image), mover })
    }

    /// The GPU.
    pub fn describe(&self) -> String {
        format!("{}, {}", self.cuda.name(), self.cuda.arch())
    }

    /// Memory for a PE whose kernels run here.
    ///
    /// # Errors
    /// None: soft NICs and hardware reach the host's memory.
    pub fn memory(&self) -> Result<Arc<dyn GpuMemory>, CudaError> {
        Ok(Arc::new(CudaMemory::new(self.cuda.clone(), Home::Host, self.mover)?))
    }

    /// The same with queues in the GPU's own memory, where the host reaches it as well.
    ///
    /// # Errors
    /// It does not, or the NICs do not.
    pub fn memory_with_queues(&self) -> Result<Arc<dyn GpuMemory>, CudaError> {
        let memory = CudaMemory::new(self.cuda.clone(), Home::Host, self.mover)?;
        memory.take_in_queues(Gdr::open()?)?;
        Ok(Arc::new(memory))
    }

    /// Kernels for a PE that is still to come up, whose clock is set by theirs.
    ///
    /// # Errors
    /// What the driver refused.
    pub fn prepare(&self, clock: &PeClock) -> Result<Kernels, NoGpu> {
        let memory = self.memory()?;
        let bytes = u64::from(OUTCOMES_MAX) * size_of::<Outcome>() as u64;
        let out = OwnedSpan::alloc(&memory, bytes, Placement::Control)?;
        let (module, stream) = (Module::load(&self.cuda, &self.image)?, Stream::new(&self.cuda)?);
        let kernels = Kernels { module, stream, out, busy: Mutex::new(()) };
        // The first launch loads code, too: the second tells the time.
        kernels.attach()?;
        let before = clock.now_ns();
        let shown = kernels.attach()?.ns;
        clock.jump(shown.saturating_sub(before + (clock.now_ns() - before) / 2));
        Ok(kernels)
    }
}

/// The kernels of one PE.
pub struct Kernels {
    module: Module,
    stream: Stream,
    out: Arc<OwnedSpan>,
    /// One launch at a time: they share the outcomes.
    busy: Mutex<()>,
}

impl Kernels {
    /// Gives them the state of a PE that has come up.
    ///
    /// # Safety
    /// The PE outlives every launch.
    ///
    /// # Errors
    /// The kernels are of another version, or what the driver refused.
    pub unsafe fn enter(&self, pe: &Pe) -> Result<(), NoGpu> {
        // SAFETY: the state was uploaded when the PE came up; the rest is the caller's promise.
        unsafe { self.module.set_root(pe.root())? };
        let met = self.attach()?;
        match met.status {
            STATUS_OK => Ok(()),
            STATUS_ABI_MISMATCH => Err(NoGpu::Version { met: met.value, right: shunt_layout::ABI_VERSION }),
            code => Err(CudaError::Refused { call: "attach", code, what: "an unknown status".into() }.into()),
        }
    }

    fn attach(&self) -> Result<Outcome, CudaError> {
        Ok(self.run("attach", Group::Thread, 1, 1, Call::default())?[0])
    }

    /// Launches a kernel and waits for it; the outcome of each block. Each block has `threads` threads.
    ///
    /// # Errors
    /// What the driver says: a kernel's own failure is an outcome.
    pub fn run(
        &self,
        kernel: &str,
        group: Group,
        blocks: u32,
        threads: u32,
        call: Call,
    ) -> Result<Vec<Outcome>, CudaError> {
        let _one = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        self.poison(blocks);
        self.launch_at(0, kernel, group, (blocks, threads), call)?;
        self.stream.synchronize()?;
        self.outcomes(blocks).into_iter().map(|outcome| answered(kernel, outcome)).collect()
    }

    /// Launches a kernel of blocks and threads, and does not wait. Its outcomes are those from number `first` on.
    ///
    /// # Errors
    /// What the driver refused.
    pub fn launch_at(
        &self,
        first: u32,
        kernel: &str,
        group: Group,
        (blocks, threads): (u32, u32),
        call: Call,
    ) -> Result<(), CudaError> {
        assert!(first + blocks <= BLOCKS_MAX, "{blocks} blocks, at most {BLOCKS_MAX} have outcomes");
        let entry = entry(kernel, group);
        let out = self.out.span().address + u64::from(first) * size_of::<Outcome>() as u64;
        let launch = Launch { entry: &entry, blocks, threads, call, out };
        // SAFETY: every entry point takes a `Call` and the address of an outcome for each block; `out` has that many.
        unsafe { self.module.launch(&self.stream, &launch) }
    }

    /// The same of a phase of MoE.
    ///
    /// # Errors
    /// What the driver refused.
    ///
    /// # Safety
    /// The call's tensors lie where kernels reach them, and stay until it has ended.
    pub unsafe fn launch_phase_at(
        &self,
        first: u32,
        stage: Stage,
        group: Group,
        call: &MoeCall,
    ) -> Result<(), CudaError> {
        // SAFETY: these entry points take a `MoeCall`; the rest is the caller's promise.
        unsafe {
            self.launch_moe_at(
                (first, group.warps(group.threads())),
                stage.kernel(),
                group,
                call.blocks,
                *call,
            )
        }
    }

    /// The same of a kernel of normal mode.
    ///
    /// # Errors
    /// What the driver refused.
    ///
    /// # Safety
    /// As for `launch_phase_at`; and kernels reach the heaps of the ranks of its node where the call says.
    pub unsafe fn launch_normal_at(
        &self,
        first: u32,
        kernel: NormalKernel,
        group: Group,
        call: &NormalCall,
    ) -> Result<(), CudaError> {
        // SAFETY: these entry points take a `NormalCall`; the rest is the caller's promise.
        unsafe { self.launch_moe_at((first, 1), kernel.name(), group, call.blocks, *call) }
    }

    /// Launches a kernel of MoE, each of whose blocks has so many outcomes.
    ///
    /// # Safety
    /// Its entry points take a `C`, whose tensors lie where kernels reach them, and stay until it has ended.
    unsafe fn launch_moe_at<C: Copy>(
        &self,
        (first, each): (u32, u32),
        kernel: &str,
        group: Group,
        blocks: u32,
        call: C,
    ) -> Result<(), CudaError> {
        let blocks = blocks.max(1);
        let all = first + blocks * each;
        assert!(all <= OUTCOMES_MAX, "{all} outcomes, expected {OUTCOMES_MAX} at most");
        let (entry, threads) = (entry(kernel, group), group.threads());
        let out = self.out.span().address + u64::from(first) * size_of::<Outcome>() as u64;
        let launch = Launch { entry: &entry, blocks, threads, call, out };
        // SAFETY: the caller vouches for the call; `out` has all outcomes of each block.
        unsafe { self.module.launch(&self.stream, &launch) }
    }

    /// Waits for what was launched.
    ///
    /// # Errors
    /// What the driver says.
    pub fn finish(&self) -> Result<(), CudaError> {
        self.stream.synchronize()
    }

    /// Memory that these kernels and this program reach.
    pub fn memory(&self) -> &Arc<dyn GpuMemory> {
        self.out.memory()
    }

    /// Makes outcomes those of kernels that were not there: zero, of which kernels store what is not, but for a value
    /// that none of them has.
    pub fn poison(&self, blocks: u32) {
        let unstored = Outcome { value: UNSTORED, ..Outcome::default() };
        let size = size_of::<Outcome>();
        // SAFETY: an outcome is plain integers without gaps, so all of its bytes are there.
        let bytes = unsafe { std::slice::from_raw_parts((&raw const unstored).cast::<u8>(), size) };
        let all = bytes.repeat(blocks as usize);
        self.out.memory().write(self.out.span().address, &all).expect("inside its own span");
    }

    /// The outcomes of what ran last, as they lie there; see [`answered`].
    pub fn outcomes(&self, blocks: u32) -> Vec<Outcome> {
        let mut bytes = vec![0; blocks as usize * size_of::<Outcome>()];
        self.out.memory().read(self.out.span().address, &mut bytes).expect("inside its own span");
        let outcome = |bytes: &[u8]| {
            // SAFETY: an outcome is plain integers, which any bytes are.
            unsafe { bytes.as_ptr().cast::<Outcome>().read_unaligned() }
        };
        bytes.chunks_exact(size_of::<Outcome>()).map(outcome).collect()
    }

    /// Makes a graph of what `launches` launches.
    ///
    /// # Errors
    /// What the driver refused.
    pub fn capture(&self, launches: impl FnOnce() -> Result<(), CudaError>) -> Result<Graph, CudaError> {
        self.stream.capture(launches)
    }

    /// Launches a graph of these kernels and waits for it.
    ///
    /// # Errors
    /// What the driver says.
    pub fn replay(&self, graph: &Graph) -> Result<(), CudaError> {
        // SAFETY: the graph holds launches of these kernels, whose outcomes and state are there while `self` is.
        unsafe { graph.launch(&self.stream)? };
        self.stream.synchronize()
    }
}

/// The entry point of a kernel.
fn entry(kernel: &str, group: Group) -> String {
    format!("shunt_kernel_{kernel}_{}", group.suffix())
}

/// Who acts together in a block of so many threads.
pub fn group_of(threads: u32) -> Group {
    match threads {
        1 => Group::Thread,
        2..=32 => Group::Warp,
        _ => Group::Block,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_driver_the_refusal_says_what_was_looked_for() {
        match OneGpu::open(Some(Path::new("/nowhere/kernels.cubin")), Mover::SoftNic) {
            Err(error @ CudaError::NoDriver { .. }) => {
                assert!(error.to_string().contains("libcuda.so.1"), "{error}");
            }
            Err(CudaError::NoKernels { looked, .. }) => assert_eq!(looked, "/nowhere/kernels.cubin"),
            Err(error) => panic!("{error}"),
            Ok(_) => panic!("kernels that are nowhere"),
        }
    }

    #[test]
    fn groups_are_as_large_as_what_acts_together() {
        assert_eq!([1, 32, 64].map(group_of), [Group::Thread, Group::Warp, Group::Block]);
    }

    /// What a launch hands over is what the entry points read: by value, in this order.
    #[test]
    fn a_call_is_laid_out_as_kernels_read_it() {
        use std::mem::offset_of;
        assert_eq!((size_of::<Call>(), align_of::<Call>()), (96, 8));
        assert_eq!([offset_of!(Call, peer), offset_of!(Call, channel), offset_of!(Call, dst)], [0, 4, 8]);
        assert_eq!([offset_of!(Call, word), offset_of!(Call, value)], [40, 48]);
        assert_eq!(offset_of!(Call, timeout_ns), 88);
        assert_eq!((size_of::<Outcome>(), offset_of!(Outcome, value), offset_of!(Outcome, ns)), (72, 40, 48));
    }

    /// A status of zero is "all went well": a kernel that never stored it must not pass for one that did.
    #[test]
    fn a_kernel_that_stored_nothing_has_not_answered() {
        let unstored = Outcome { value: UNSTORED, ..Outcome::default() };
        assert!(matches!(answered("put", unstored), Err(CudaError::NoAnswer { kernel }) if kernel == "put"));
        assert_eq!(answered("quiet", unstored).unwrap().value, 0);
        assert_eq!(answered("put", Outcome::ok(0)).unwrap().value, 0);
    }
}
