//! The list of kernels, and what is made of it: entry points for a GPU, calls by name for a CPU.

/// Hands the list to a macro. A row: name, body, its entry points, each with its group of lanes.
#[cfg(not(all(target_arch = "nvptx64", feature = "library")))]
macro_rules! kernels {
    ($use:ident) => {
        $use! {
            attach crate::attach::run: shunt_kernel_attach_thread Solo;
            put crate::put::run:
                shunt_kernel_put_thread Solo, shunt_kernel_put_warp Warp, shunt_kernel_put_block Block;
            put_signal crate::put_signal::run:
                shunt_kernel_put_signal_thread Solo, shunt_kernel_put_signal_warp Warp,
                shunt_kernel_put_signal_block Block;
            put_bw crate::put_bw::run:
                shunt_kernel_put_bw_thread Solo, shunt_kernel_put_bw_warp Warp, shunt_kernel_put_bw_block Block;
            put_latency crate::put_latency::run:
                shunt_kernel_put_latency_thread Solo, shunt_kernel_put_latency_warp Warp,
                shunt_kernel_put_latency_block Block;
            get crate::get::run:
                shunt_kernel_get_thread Solo, shunt_kernel_get_warp Warp, shunt_kernel_get_block Block;
            p crate::p::run: shunt_kernel_p_thread Solo, shunt_kernel_p_warp Warp;
            signal_monotone crate::signal::monotone:
                shunt_kernel_signal_monotone_thread Solo, shunt_kernel_signal_monotone_warp Warp;
            signal_cleared crate::signal::cleared:
                shunt_kernel_signal_cleared_thread Solo, shunt_kernel_signal_cleared_warp Warp;
            signal_cleared32 crate::signal::cleared32:
                shunt_kernel_signal_cleared32_thread Solo, shunt_kernel_signal_cleared32_warp Warp;
            signal_add crate::signal::add:
                shunt_kernel_signal_add_thread Solo, shunt_kernel_signal_add_warp Warp;
            quiet crate::quiet::run:
                shunt_kernel_quiet_thread Solo, shunt_kernel_quiet_warp FirstWarp, shunt_kernel_quiet_block Block;
            wait_until crate::wait::run:
                shunt_kernel_wait_until_thread Solo, shunt_kernel_wait_until_warp Warp,
                shunt_kernel_wait_until_block Block;
            all_to_all crate::all_to_all::run:
                shunt_kernel_all_to_all_warp Warp, shunt_kernel_all_to_all_block Block;
            drill crate::drill::run:
                shunt_kernel_drill_thread Solo, shunt_kernel_drill_warp Warp, shunt_kernel_drill_block Block;
            amo_add32 crate::amo::add32:
                shunt_kernel_amo_add32_thread Solo, shunt_kernel_amo_add32_warp Warp;
            amo_add64 crate::amo::add64:
                shunt_kernel_amo_add64_thread Solo, shunt_kernel_amo_add64_warp Warp;
            amo_set32 crate::amo::set32:
                shunt_kernel_amo_set32_thread Solo, shunt_kernel_amo_set32_warp Warp;
            amo_set64 crate::amo::set64:
                shunt_kernel_amo_set64_thread Solo, shunt_kernel_amo_set64_warp Warp;
            amo_and32 crate::amo::and32:
                shunt_kernel_amo_and32_thread Solo, shunt_kernel_amo_and32_warp Warp;
            amo_and64 crate::amo::and64:
                shunt_kernel_amo_and64_thread Solo, shunt_kernel_amo_and64_warp Warp;
            amo_or32 crate::amo::or32:
                shunt_kernel_amo_or32_thread Solo, shunt_kernel_amo_or32_warp Warp;
            amo_or64 crate::amo::or64:
                shunt_kernel_amo_or64_thread Solo, shunt_kernel_amo_or64_warp Warp;
            amo_xor32 crate::amo::xor32:
                shunt_kernel_amo_xor32_thread Solo, shunt_kernel_amo_xor32_warp Warp;
            amo_xor64 crate::amo::xor64:
                shunt_kernel_amo_xor64_thread Solo, shunt_kernel_amo_xor64_warp Warp;
            amo_swap32 crate::amo::swap32:
                shunt_kernel_amo_swap32_thread Solo, shunt_kernel_amo_swap32_warp Warp;
            amo_swap64 crate::amo::swap64:
                shunt_kernel_amo_swap64_thread Solo, shunt_kernel_amo_swap64_warp Warp;
            amo_cas32 crate::amo::cas32:
                shunt_kernel_amo_cas32_thread Solo, shunt_kernel_amo_cas32_warp Warp;
            amo_cas64 crate::amo::cas64:
                shunt_kernel_amo_cas64_thread Solo, shunt_kernel_amo_cas64_warp Warp;
            fetch_add32 crate::amo::fetch_add32:
                shunt_kernel_fetch_add32_thread Solo, shunt_kernel_fetch_add32_warp Warp;
            fetch_add64 crate::amo::fetch_add64:
                shunt_kernel_fetch_add64_thread Solo, shunt_kernel_fetch_add64_warp Warp;
            fetch_set32 crate::amo::fetch_set32:
                shunt_kernel_fetch_set32_thread Solo, shunt_kernel_fetch_set32_warp Warp;
            fetch_set64 crate::amo::fetch_set64:
                shunt_kernel_fetch_set64_thread Solo, shunt_kernel_fetch_set64_warp Warp;
            fetch_and32 crate::amo::fetch_and32:
                shunt_kernel_fetch_and32_thread Solo, shunt_kernel_fetch_and32_warp Warp;
            fetch_and64 crate::amo::fetch_and64:
                shunt_kernel_fetch_and64_thread Solo, shunt_kernel_fetch_and64_warp Warp;
            fetch_or32 crate::amo::fetch_or32:
                shunt_kernel_fetch_or32_thread Solo, shunt_kernel_fetch_or32_warp Warp;
            fetch_or64 crate::amo::fetch_or64:
                shunt_kernel_fetch_or64_thread Solo, shunt_kernel_fetch_or64_warp Warp;
            fetch_xor32 crate::amo::fetch_xor32:
                shunt_kernel_fetch_xor32_thread Solo, shunt_kernel_fetch_xor32_warp Warp;
            fetch_xor64 crate::amo::fetch_xor64:
                shunt_kernel_fetch_xor64_thread Solo, shunt_kernel_fetch_xor64_warp Warp;
            fetch_swap32 crate::amo::fetch_swap32:
                shunt_kernel_fetch_swap32_thread Solo, shunt_kernel_fetch_swap32_warp Warp;
            fetch_swap64 crate::amo::fetch_swap64:
                shunt_kernel_fetch_swap64_thread Solo, shunt_kernel_fetch_swap64_warp Warp;
            fetch_cas32 crate::amo::fetch_cas32:
                shunt_kernel_fetch_cas32_thread Solo, shunt_kernel_fetch_cas32_warp Warp;
            fetch_cas64 crate::amo::fetch_cas64:
                shunt_kernel_fetch_cas64_thread Solo, shunt_kernel_fetch_cas64_warp Warp;
        }
    };
}

#[cfg(all(target_arch = "nvptx64", not(feature = "library")))]
mod gpu {
    use crate::launch::{FirstWarp, enter, enter_warp, launch, leave};
    use crate::moe::MoeCall;
    use crate::moe::normal::NormalCall;
    use crate::{Call, Outcome};
    use shunt_device::Solo;
    use shunt_device::platform::nvptx::{Block, Warp};

    /// One entry point a group.
    macro_rules! entries {
        ($($name:ident $body:path: $($entry:ident $lanes:ident),*;)*) => {$($(
            #[doc = concat!("The kernel `", stringify!($name), "`, one ", stringify!($lanes), " a block.")]
            ///
            /// # Safety
            /// The module's root names a device state of this version that outlives the launch; `out` is the address of
            /// an outcome for each block, all zero. All threads of a warp, or of a block, take part in what is theirs
            /// together.
            #[unsafe(no_mangle)]
            pub unsafe extern "ptx-kernel" fn $entry(call: Call, out: *mut Outcome) {
                // SAFETY: forwarded to the one that launches.
                unsafe { launch::<true, $lanes, _, _>(&call, out, $body) }
            }
        )*)*};
    }
    kernels!(entries);

    /// The same without fault tolerance, for those whose cost is compared: `const FT: bool` is all that differs.
    macro_rules! entries_without {
        ($($body:path: $($entry:ident $lanes:ident),*;)*) => {$($(
            #[doc = concat!("`", stringify!($body), "` without fault tolerance, one ", stringify!($lanes), " a block.")]
            ///
            /// # Safety
            /// As for the entry point with it.
            #[unsafe(no_mangle)]
            pub unsafe extern "ptx-kernel" fn $entry(call: Call, out: *mut Outcome) {
                // SAFETY: forwarded to the one that launches.
                unsafe { launch::<false, $lanes, _, _>(&call, out, $body) }
            }
        )*)*};
    }
    entries_without! {
        crate::put::run: shunt_kernel_put_ft_off_thread Solo, shunt_kernel_put_ft_off_warp Warp;
        crate::put_signal::run:
            shunt_kernel_put_signal_ft_off_thread Solo, shunt_kernel_put_signal_ft_off_warp Warp;
        crate::put_bw::run: shunt_kernel_put_bw_ft_off_thread Solo, shunt_kernel_put_bw_ft_off_warp Warp;
        crate::put_latency::run:
            shunt_kernel_put_latency_ft_off_thread Solo, shunt_kernel_put_latency_ft_off_warp Warp;
        crate::signal::monotone:
            shunt_kernel_signal_monotone_ft_off_thread Solo, shunt_kernel_signal_monotone_ft_off_warp Warp;
        crate::amo::add64: shunt_kernel_amo_add64_ft_off_thread Solo, shunt_kernel_amo_add64_ft_off_warp Warp;
        crate::quiet::run: shunt_kernel_quiet_ft_off_thread Solo, shunt_kernel_quiet_ft_off_warp FirstWarp;
    }

    /// One entry point a group for each phase of MoE, whose call is a larger one.
    macro_rules! phases {
        ($($name:ident $body:path: $($entry:ident $lanes:ident),*;)*) => {$($(
            #[doc = concat!("The phase `", stringify!($name), "` of MoE, a ", stringify!($lanes), " a block.")]
            ///
            /// # Safety
            /// As for the entry points above, with an outcome for each warp; and what `MoeCall` says of its
            /// addresses.
            #[unsafe(no_mangle)]
            pub unsafe extern "ptx-kernel" fn $entry(call: MoeCall, out: *mut Outcome) {
                // SAFETY: forwarded to the one that launches.
                if let Some((device, part)) = unsafe { enter_warp::<$lanes>(call.blocks) } {
                    let answer = $body(device, Warp, part, &call);
                    // SAFETY: as above.
                    unsafe { leave(Warp, answer, out, part.number) };
                }
            }
        )*)*};
    }
    phases! {
        moe_dispatch_send crate::moe::dispatch_send:
            shunt_kernel_moe_dispatch_send_warp Warp, shunt_kernel_moe_dispatch_send_block Block;
        moe_dispatch_receive crate::moe::dispatch_receive:
            shunt_kernel_moe_dispatch_receive_warp Warp, shunt_kernel_moe_dispatch_receive_block Block;
        moe_combine_send crate::moe::combine_send:
            shunt_kernel_moe_combine_send_warp Warp, shunt_kernel_moe_combine_send_block Block;
        moe_combine_receive crate::moe::combine_receive:
            shunt_kernel_moe_combine_receive_warp Warp, shunt_kernel_moe_combine_receive_block Block;
        moe_combine_send_log crate::moe::combine_send_log:
            shunt_kernel_moe_combine_send_log_warp Warp, shunt_kernel_moe_combine_send_log_block Block;
        moe_combine_receive_log crate::moe::combine_receive_log:
            shunt_kernel_moe_combine_receive_log_warp Warp, shunt_kernel_moe_combine_receive_log_block Block;
        moe_clean crate::moe::clean: shunt_kernel_moe_clean_warp Warp, shunt_kernel_moe_clean_block Block;
        moe_room crate::moe::room: shunt_kernel_moe_room_warp Warp, shunt_kernel_moe_room_block Block;
    }

    /// One entry point a group for each kernel of normal mode.
    macro_rules! normal {
        ($($name:ident $body:path: $($entry:ident $lanes:ident),*;)*) => {$($(
            #[doc = concat!("Normal mode's `", stringify!($name), "`, one ", stringify!($lanes), " a block.")]
            ///
            /// # Safety
            /// As for the entry points above; and what `NormalCall` says of its addresses.
            #[unsafe(no_mangle)]
            pub unsafe extern "ptx-kernel" fn $entry(call: NormalCall, out: *mut Outcome) {
                // SAFETY: forwarded to the one that launches.
                if let Some((device, lanes, block)) = unsafe { enter::<true, $lanes>() } {
                    let answer = $body(device, lanes, block, &call);
                    // SAFETY: as above.
                    unsafe { leave(lanes, answer, out, block) };
                }
            }
        )*)*};
    }
    normal! {
        moe_normal_layout crate::moe::normal::find_layout:
            shunt_kernel_moe_normal_layout_warp Warp, shunt_kernel_moe_normal_layout_block Block;
        moe_normal_notify crate::moe::normal::tell:
            shunt_kernel_moe_normal_notify_warp Warp, shunt_kernel_moe_normal_notify_block Block;
        moe_normal_dispatch crate::moe::normal::send_out:
            shunt_kernel_moe_normal_dispatch_warp Warp, shunt_kernel_moe_normal_dispatch_block Block;
        moe_normal_combine crate::moe::normal::bring_back:
            shunt_kernel_moe_normal_combine_warp Warp, shunt_kernel_moe_normal_combine_block Block;
        moe_normal_settle crate::moe::normal::come_to_rest:
            shunt_kernel_moe_normal_settle_warp Warp, shunt_kernel_moe_normal_settle_block Block;
        moe_normal_hold crate::moe::normal::hold_ranks:
            shunt_kernel_moe_normal_hold_warp Warp, shunt_kernel_moe_normal_hold_block Block;
    }
}

#[cfg(not(target_arch = "nvptx64"))]
mod cpu {
    use crate::{Answer, Call, Outcome};
    use shunt_device::{Device, Lanes, Platform};

    macro_rules! by_name {
        ($($name:ident $body:path: $($entry:ident $lanes:ident),*;)*) => {
            /// Names of all kernels, each with the names of its entry points.
            pub const KERNELS: &[(&str, &[&str])] =
                &[$((stringify!($name), &[$(stringify!($entry)),*])),*];

            /// Runs a kernel by its name, as block `block` of a launch: the same body that the entry points run. `None`
            /// if there is no such kernel. The leader's outcome counts.
            pub fn run<P: Platform, L: Lanes>(
                name: &str,
                device: Device<'_, P>,
                lanes: L,
                block: u32,
                call: &Call,
            ) -> Option<Outcome> {
                match name {
                    $(stringify!($name) => Some($body(device, lanes, block, call).outcome()),)*
                    _ => None,
                }
            }
        };
    }
    kernels!(by_name);
}

#[cfg(not(target_arch = "nvptx64"))]
pub use cpu::{KERNELS, run};
