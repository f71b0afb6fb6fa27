//! What a panic would do on a GPU. No entry point reaches it: `cargo xtask gpu` refuses PTX that calls it.

use core::panic::PanicInfo;
use shunt_device::platform::nvptx::trap;

/// "SHNT": left in a register when a panic traps.
const PANIC: u32 = 0x5348_4e54;

#[panic_handler]
fn panic(_: &PanicInfo) -> ! {
    trap(PANIC)
}
