//! One kernel: each block sends its part of a buffer to another PE, says so, and waits for the delivery.
#![cfg_attr(target_arch = "nvptx64", no_std, feature(abi_ptx, asm_experimental_arch))]

use shunt_device::{Deadline, Device, Fault, HeapOffset, Lanes, Platform, Put, Signal};

/// What the kernel is told. It travels by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Work {
    /// Who is sent to.
    pub peer: u32,
    /// How long each block waits for its delivery, in milliseconds.
    pub patience_ms: u32,
    /// The buffer: the same heap offset here and there.
    pub buffer: u64,
    /// Bytes of each block's part.
    pub part: u64,
    /// Signal words at the receiver, one a block, all 0 before the first round.
    pub words: u64,
    /// Number of this round, from 1: what the words become.
    pub round: u64,
}

/// What one block does. The same source runs in a kernel and in a test.
pub fn send<P: Platform, L: Lanes>(
    device: Device<'_, P>,
    lanes: L,
    block: u32,
    work: &Work,
) -> Result<(), Fault> {
    let at = HeapOffset(work.buffer + u64::from(block) * work.part);
    let word = HeapOffset(work.words + u64::from(block) * 8);
    let put = Put { dst: at, src: at, bytes: work.part };
    let channel = device.channel(work.peer, block);
    let ticket = channel.put_signal_nbi(lanes, put, word, Signal::Monotone(work.round))?;
    let patience_ns = u64::from(work.patience_ms) * 1_000_000;
    channel.wait(lanes, ticket, Deadline::after(device.now_ns(), patience_ns))
}

#[cfg(target_arch = "nvptx64")]
mod gpu {
    use super::{Work, send};
    use core::panic::PanicInfo;
    use shunt_device::Device;
    use shunt_device::platform::nvptx::{Gpu, WARP_LANES, Warp, grid_position, trap};

    // The host copies the root of the device state into this constant, `shunt_root`, once the module is loaded.
    shunt_device::root_in_constant_memory!();

    /// One warp a block. `status` holds a word for each block: 0, or the kind of the fault; 0x100 stands for a state of
    /// another version.
    ///
    /// # Safety
    /// `status` is the address of that many words.
    #[unsafe(no_mangle)]
    pub unsafe extern "ptx-kernel" fn send_parts(work: Work, status: *mut u32) {
        let (block, thread) = grid_position();
        if thread >= WARP_LANES {
            return;
        }
        // SAFETY: the root of this module is what the host wrote there, and it outlives the launch.
        let code = match unsafe { Device::attach(core::ptr::null(), <Gpu>::default()) } {
            Ok(device) => match send(device, Warp, block, &work) {
                Ok(()) => 0,
                Err(fault) => fault.kind as u32,
            },
            Err(_) => 0x100,
        };
        if thread == 0 {
            // SAFETY: one word a block, as the caller promises.
            unsafe { status.add(block as usize).write(code) };
        }
    }

    #[panic_handler]
    fn panic(_: &PanicInfo) -> ! {
        trap(1)
    }
}
