//! The GPU's body of [`Platform`] and of [`Lanes`]: inline PTX, the only assembly of the workspace.
//!
//! Why not `core::sync::atomic`: on nvptx its read-modify-writes lower to *relaxed* atomics of *gpu* scope,
//! whatever ordering was asked for (rust-lang/rust#136480), and it has no word for a scope at all.
//!
//! # Scopes
//! Three parties share memory here: lanes of this GPU, the NIC, and the host's agent. Each access is as wide
//! as the widest party that takes part in it, and no wider where width costs.
//!
//! - **Read-modify-writes are `.sys`.** The agent may own a switch, and then changes ticket, done and ready
//!   words too: a `.gpu` atomic is not atomic with it. On memory of the GPU itself both scopes run in the L2
//!   at the same cost. On a coherent link (C2C) that makes them truly atomic with a CPU. Over PCIe no CPU has
//!   an atomic read-modify-write on GPU memory, so there the agent owns a switch only while no kernel of this
//!   PE runs.
//! - **Plain word loads and stores are `.sys`**: mailbox, hint and path words are written by the agent while
//!   kernels run. Loads of either scope bypass the L1 alike; stores of either scope cost the same.
//! - **Fences are `.gpu` where lanes hand over to lanes and `.sys` where the NIC or the agent is next**,
//!   because a `.sys` fence waits for writes that left the GPU, about a microsecond. Causality is transitive:
//!   lane A's WQE stores, `.gpu` release into `ready`, `.gpu` acquire by lane B, B's `.sys` fence: the NIC
//!   that sees B's doorbell sees A's WQE.
//!
//! # Convergence
//! rustc does not mark inline assembly as convergent, so the optimiser may copy a warp instruction into two
//! branches. `bar.warp.sync` and `shfl.sync` allow that since sm_70: lanes meet by mask, not by address. It
//! is the reason why nothing older is supported. `barrier.sync` allows it too: it counts threads. `bar.sync` does not:
//! it is the aligned form, and all threads of a warp have to execute the same instruction. The audit of
//! `cargo xtask gpu` refuses it, and any of these operations that only some of its threads may reach.

mod lanes;
pub use lanes::{Block, WARP_LANES, Warp, block_threads, grid_position, trap};

use super::{Platform, Root};
use core::arch::asm;
use shunt_layout::mlx5::wqe::Wqebb;
use shunt_layout::state::DeviceState;

/// Device code on a GPU. Without `FT` nothing is ever switched: what fault tolerance costs is the difference.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gpu<const FT: bool = true>;

/// Makes `shunt_root`, the constant memory that a module's root lies in. The host copies the `DeviceState` there once
/// the module is loaded, as it does for NVSHMEM's state.
#[macro_export]
macro_rules! root_in_constant_memory {
    () => {
        core::arch::global_asm!(".visible .const .align 16 .b8 shunt_root[384];");
    };
}

/// Declares `shunt_root`, constant memory that holds the root of the device state: for a library whose program defines
/// it. A module calls it once, at its top.
#[macro_export]
macro_rules! root_in_the_program {
    () => {
        core::arch::global_asm!(".extern .const .align 16 .b8 shunt_root[384];");
    };
}
const _: () = assert!(size_of::<DeviceState>() == 384);

/// The root in constant memory: no register leads to it.
#[derive(Clone, Copy, Debug)]
pub struct InConstantMemory;

impl Root for InConstantMemory {
    #[inline(always)]
    fn at(_state: *const DeviceState) -> Self {
        Self
    }
    #[inline(always)]
    unsafe fn word32<const OFFSET: usize>(self) -> u32 {
        let value;
        // SAFETY: a word of the root, which is as large as the module's constant. `pure` and `nomem`: no kernel sees it
        // change; see `Root`.
        unsafe {
            asm!("ld.const.b32 {}, [shunt_root+{}];",
                 out(reg32) value, const OFFSET, options(pure, nomem, nostack))
        };
        value
    }
    #[inline(always)]
    unsafe fn word64<const OFFSET: usize>(self) -> u64 {
        let value;
        // SAFETY: a word of the root, which is as large as the module's constant. `pure` and `nomem`: no kernel sees it
        // change; see `Root`.
        unsafe {
            asm!("ld.const.b64 {}, [shunt_root+{}];",
                 out(reg64) value, const OFFSET, options(pure, nomem, nostack))
        };
        value
    }
}

/// How long `relax` lets a lane sleep: short against a round trip of 2 us, long against one poll.
const RELAX_NS: u32 = 64;

// SAFETY (all blocks below): `Platform`'s contract puts validity, alignment and atomic-only sharing on the
// caller, which is device code working on a state that `Device::attach` checked. All addresses are of the
// global state space: memory of this GPU, of a peer, of the host, or a NIC's register page, mapped by the
// host.
#[allow(clippy::undocumented_unsafe_blocks)]
#[allow(named_asm_labels)] // a label of PTX is local to its braces; it has no numbered ones
impl<const FT: bool> Platform for Gpu<FT> {
    const FAULT_TOLERANCE: bool = FT;
    const CHECKS_PEERS: bool = false;
    type Root = InConstantMemory;

    /// One clock for all SMs, in steps of 32 ns to 1 us by model; never goes back.
    #[inline(always)]
    fn now_ns(self) -> u64 {
        let now;
        unsafe { asm!("mov.u64 {}, %globaltimer;", out(reg64) now, options(nostack)) };
        now
    }

    #[inline(always)]
    fn relax(self) {
        unsafe { asm!("nanosleep.u32 {};", in(reg32) RELAX_NS, options(nostack)) };
    }

    #[inline(always)]
    unsafe fn load(self, address: *const u64) -> u64 {
        let value;
        unsafe {
            asm!("ld.relaxed.sys.global.b64 {}, [{}];", out(reg64) value, in(reg64) address, options(nostack))
        };
        value
    }

    #[inline(always)]
    unsafe fn load_acquire(self, address: *const u64) -> u64 {
        let value;
        // An acquire never waits for stores, only forgets what the L1 holds: `.sys` costs no more than
        // `.gpu`.
        unsafe {
            asm!("ld.acquire.sys.global.b64 {}, [{}];", out(reg64) value, in(reg64) address, options(nostack))
        };
        value
    }

    #[inline(always)]
    unsafe fn store(self, address: *mut u64, value: u64) {
        unsafe {
            asm!("st.relaxed.sys.global.b64 [{}], {};", in(reg64) address, in(reg64) value, options(nostack))
        };
    }

    #[inline(always)]
    unsafe fn store_release(self, address: *mut u64, value: u64) {
        // Requests to the agent and the steps of a switch: the reader may be the host. Not on the no-fault
        // path.
        unsafe {
            asm!("st.release.sys.global.b64 [{}], {};", in(reg64) address, in(reg64) value, options(nostack))
        };
    }

    #[inline(always)]
    unsafe fn fetch_add(self, address: *mut u64, value: u64) -> u64 {
        let old;
        unsafe {
            asm!("atom.acq_rel.sys.global.add.u64 {}, [{}], {};",
                 out(reg64) old, in(reg64) address, in(reg64) value, options(nostack))
        };
        old
    }

    #[inline(always)]
    unsafe fn fetch_or(self, address: *mut u64, value: u64) -> u64 {
        let old;
        unsafe {
            asm!("atom.acq_rel.sys.global.or.b64 {}, [{}], {};",
                 out(reg64) old, in(reg64) address, in(reg64) value, options(nostack))
        };
        old
    }

    #[inline(always)]
    unsafe fn fetch_and(self, address: *mut u64, value: u64) -> u64 {
        let old;
        unsafe {
            asm!("atom.acq_rel.sys.global.and.b64 {}, [{}], {};",
                 out(reg64) old, in(reg64) address, in(reg64) value, options(nostack))
        };
        old
    }

    #[inline(always)]
    unsafe fn compare_swap(self, address: *mut u64, expected: u64, new: u64) -> u64 {
        let old;
        unsafe {
            asm!("atom.acq_rel.sys.global.cas.b64 {}, [{}], {}, {};",
                 out(reg64) old, in(reg64) address, in(reg64) expected, in(reg64) new, options(nostack))
        };
        old
    }

    #[inline(always)]
    unsafe fn fetch_add_acquire(self, address: *mut u64, value: u64) -> u64 {
        let old;
        unsafe {
            asm!("atom.acquire.sys.global.add.u64 {}, [{}], {};",
                 out(reg64) old, in(reg64) address, in(reg64) value, options(nostack))
        };
        old
    }

    #[inline(always)]
    unsafe fn compare_swap_behind_barrier(self, address: *mut u64, expected: u64, new: u64) -> u64 {
        let old;
        // A fence followed by a relaxed write is a release; what a lane acquires here it reads by acquire
        // again.
        unsafe {
            asm!("atom.relaxed.sys.global.cas.b64 {}, [{}], {}, {};",
                 out(reg64) old, in(reg64) address, in(reg64) expected, in(reg64) new, options(nostack))
        };
        old
    }

    #[inline(always)]
    unsafe fn compare_swap_acquire(self, address: *mut u64, expected: u64, new: u64) -> u64 {
        let old;
        unsafe {
            asm!("atom.acquire.sys.global.cas.b64 {}, [{}], {}, {};",
                 out(reg64) old, in(reg64) address, in(reg64) expected, in(reg64) new, options(nostack))
        };
        old
    }

    // The two loops that wait a moment are assembly whole: a compiler that turns a loop round copies its head, the
    // atomic too.
    #[inline(always)]
    unsafe fn try_lock_for(self, address: *mut u32, tries: u32) -> bool {
        let old: u32;
        unsafe {
            asm!("{{ .reg .pred %more, %left; .reg .b32 %n;",
                 "mov.u32 %n, {tries};",
                 "AGAIN: atom.acquire.sys.global.cas.b32 {old}, [{address}], 0, 1;",
                 "setp.ne.u32 %more, {old}, 0;",
                 "sub.u32 %n, %n, 1;",
                 "@%more nanosleep.u32 {relax};",
                 "setp.ne.and.u32 %left, %n, 0, %more;",
                 "@%left bra AGAIN; }}",
                 old = out(reg32) old, address = in(reg64) address, tries = in(reg32) tries,
                 relax = const RELAX_NS, options(nostack))
        };
        old == 0
    }

    #[inline(always)]
    unsafe fn poll_cqe(self, address: *const u32, due: u32, mask: u32, tries: u32) -> u32 {
        let wrong;
        unsafe {
            asm!("{{ .reg .pred %more, %left; .reg .b32 %n, %is;",
                 "mov.u32 %n, {tries};",
                 "AGAIN: ld.relaxed.sys.global.b32 {wrong}, [{address}];",
                 "xor.b32 {wrong}, {wrong}, {due};",
                 "and.b32 %is, {wrong}, {mask};",
                 "setp.ne.u32 %more, %is, 0;",
                 "sub.u32 %n, %n, 1;",
                 "@%more nanosleep.u32 {relax};",
                 "setp.ne.and.u32 %left, %n, 0, %more;",
                 "@%left bra AGAIN; }}",
                 wrong = out(reg32) wrong, address = in(reg64) address, due = in(reg32) due, mask = in(reg32) mask,
                 tries = in(reg32) tries, relax = const RELAX_NS, options(nostack))
        };
        wrong
    }

    #[inline(always)]
    unsafe fn try_lock(self, address: *mut u32) -> bool {
        let old: u32;
        // `.sys`, since a switcher on the host takes the post lock as well. Acquire only: nothing is handed
        // over.
        unsafe {
            asm!("atom.acquire.sys.global.cas.b32 {}, [{}], 0, 1;",
                 out(reg32) old, in(reg64) address, options(nostack))
        };
        old == 0
    }

    #[inline(always)]
    unsafe fn unlock(self, address: *mut u32) {
        // `.gpu`: the next holder on the no-fault path is a lane. A host switcher takes the lock when the
        // channel is closed and settled, and orders itself behind that by the words it read to know so.
        unsafe { asm!("st.release.gpu.global.b32 [{}], 0;", in(reg64) address, options(nostack)) };
    }

    #[inline(always)]
    unsafe fn load32(self, address: *const u32) -> u32 {
        let value;
        unsafe {
            asm!("ld.acquire.sys.global.b32 {}, [{}];", out(reg32) value, in(reg64) address, options(nostack))
        };
        value
    }

    #[inline(always)]
    unsafe fn store32(self, address: *mut u32, value: u32) {
        unsafe {
            asm!("st.release.sys.global.b32 [{}], {};", in(reg64) address, in(reg32) value, options(nostack))
        };
    }

    #[inline(always)]
    unsafe fn load_cqe(self, address: *const u32) -> u32 {
        let value;
        // Relaxed: most polls find nothing new; `cqe_before_data` orders the one that does.
        unsafe {
            asm!("ld.relaxed.sys.global.b32 {}, [{}];", out(reg32) value, in(reg64) address, options(nostack))
        };
        value
    }

    #[inline(always)]
    unsafe fn load_two(self, address: *const u64) -> [u64; 2] {
        let (a, b);
        unsafe {
            asm!("ld.relaxed.sys.global.v2.b64 {{{}, {}}}, [{}];",
                 out(reg64) a, out(reg64) b, in(reg64) address, options(nostack))
        };
        [a, b]
    }

    #[inline(always)]
    unsafe fn load_four(self, address: *const u32) -> [u32; 4] {
        // SAFETY: forwarded to the caller.
        unsafe { load_segment(address.cast()) }
    }

    #[inline(always)]
    unsafe fn load_key(self, address: *const u32) -> u32 {
        let value;
        // The read-only path keeps keys in the L1. Correct because no kernel sees an entry change that it uses; `pure`
        // and `nomem` because of that too: two reads of one key may be one, whatever is stored between them.
        unsafe {
            asm!("ld.global.nc.b32 {}, [{}];",
                 out(reg32) value, in(reg64) address, options(pure, nomem, nostack))
        };
        value
    }

    #[inline(always)]
    unsafe fn load_base(self, address: *const u64) -> u64 {
        let value;
        // As `load_key`.
        unsafe {
            asm!("ld.global.nc.b64 {}, [{}];",
                 out(reg64) value, in(reg64) address, options(pure, nomem, nostack))
        };
        value
    }

    #[inline(always)]
    unsafe fn load_wqe(self, address: *const Wqebb) -> Wqebb {
        let segments = address.cast::<[u32; 4]>();
        let [a, b, c, d] = unsafe {
            [
                load_segment(segments),
                load_segment(segments.add(1)),
                load_segment(segments.add(2)),
                load_segment(segments.add(3)),
            ]
        };
        Wqebb([
            a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3], c[0], c[1], c[2], c[3], d[0], d[1], d[2], d[3],
        ])
    }

    #[inline(always)]
    unsafe fn store_segment(self, address: *mut u32, segment: [u32; 4]) {
        let [a, b, c, d] = segment;
        // One 16-byte store a segment. No L1 allocation: the NIC is the next reader. `relaxed` and not weak,
        // since a journal reader may look at a slot of another lane at any time.
        unsafe {
            asm!("st.relaxed.sys.global.L1::no_allocate.v4.b32 [{}], {{{}, {}, {}, {}}};",
                 in(reg64) address, in(reg32) a, in(reg32) b, in(reg32) c, in(reg32) d, options(nostack))
        };
    }

    #[inline(always)]
    unsafe fn store_segment_if(self, stores: bool, address: *mut u32, segment: [u32; 4]) {
        let [a, b, c, d] = segment;
        // A predicate and no branch: lanes that part in a loop would go through the rest of it one after the other.
        unsafe {
            asm!("{{ .reg .pred %shunt_stores; setp.ne.u32 %shunt_stores, {}, 0; \
                 @%shunt_stores st.relaxed.sys.global.L1::no_allocate.v4.b32 [{}], {{{}, {}, {}, {}}}; }}",
                 in(reg32) stores as u32, in(reg64) address, in(reg32) a, in(reg32) b, in(reg32) c, in(reg32) d,
                 options(nostack))
        };
    }

    #[inline(always)]
    fn wqes_before_publish(self) {
        // Each group does this for its own WQEs, as NVSHMEM does where rings lie in the host's memory: a NIC that
        // fetched the old WQE would repeat an old put, which nobody notices. The lane that rings for others only
        // acquires what they published.
        unsafe { asm!("fence.acq_rel.sys;", options(nostack)) };
    }

    #[inline(always)]
    fn own_stores_before_store(self) {
        unsafe { asm!("fence.acq_rel.gpu;", options(nostack)) };
    }

    #[inline(always)]
    unsafe fn store_doorbell_record(self, address: *mut u32, value: u32) {
        unsafe {
            asm!("st.relaxed.sys.global.b32 [{}], {};", in(reg64) address, in(reg32) value, options(nostack))
        };
    }

    #[inline(always)]
    fn record_before_register(self) {
        unsafe { asm!("fence.acq_rel.sys;", options(nostack)) };
    }

    #[inline(always)]
    unsafe fn store_register(self, address: *mut u64, value: u64) {
        // `.mmio`: performed exactly once, never merged or split, at the NIC and not in a cache.
        unsafe {
            asm!("st.mmio.relaxed.sys.global.b64 [{}], {};",
                 in(reg64) address, in(reg64) value, options(nostack))
        };
    }

    #[inline(always)]
    fn cqe_before_data(self) {
        unsafe { asm!("fence.acq_rel.sys;", options(nostack)) };
    }

    #[inline(always)]
    fn announce_before_recheck(self) {
        // Store to one word, then load of another, against an agent that does the same the other way round:
        // only a sequentially consistent fence keeps one of the two from missing the other.
        unsafe { asm!("fence.sc.sys;", options(nostack)) };
    }
}

/// Four words of a WQE, as they lie in memory.
///
/// # Safety
/// As [`Platform`]'s methods; 16-byte aligned.
#[inline(always)]
unsafe fn load_segment(address: *const [u32; 4]) -> [u32; 4] {
    let (a, b, c, d);
    // SAFETY: forwarded to the caller. Relaxed, because weak loads might be served by a stale L1 line.
    unsafe {
        asm!("ld.relaxed.sys.global.v4.b32 {{{}, {}, {}, {}}}, [{}];",
             out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg64) address, options(nostack))
    };
    [a, b, c, d]
}
