//! The calls by which programs make channels and ask for events.

use super::channels::{CommandChannel, EventChannel, HIGH_FD, Subscription, Target, event_channel};
use super::ids::{channel, devx};
use super::object::named;
use crate::ioctl::{Call, Context, Resource};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use shunt_layout::mlx5::eqe;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};

/// Event types of one subscription.
const TYPES_MAX: usize = 16;
/// Types about an object that programs may ask for.
const ABOUT_OBJECTS: &[u16] =
    &[0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x07, 0x10, 0x11, 0x12, 0x13, 0x14, 0x18, 0x1c, 0x1d];
/// Types about none.
const ABOUT_THE_NIC: &[u16] = &[eqe::event::PORT_CHANGE as u16];

/// Gives the program its end of a new channel, or takes everything back.
fn hand_out<T: Resource>(
    context: &Context,
    call: &mut Call,
    handle: u32,
    for_program: OwnedFd,
) -> Result<(), Errno> {
    let told = call.set_fd(channel::FD, for_program.as_raw_fd());
    match told {
        // The program's from here on.
        Ok(()) => drop(for_program.into_raw_fd()),
        Err(_) => drop(context.destroy::<T>(handle)),
    }
    told
}

/// Makes a channel of events.
pub(super) fn alloc_events(context: &Context, call: &mut Call) -> Result<(), Errno> {
    let flags = call.input_or::<u32>(channel::FLAGS, 0)?;
    if flags & !channel::OMIT_DATA != 0 {
        return Err(Errno::INVAL);
    }
    let (handle, for_program) = EventChannel::open(context, flags & channel::OMIT_DATA != 0)?;
    hand_out::<EventChannel>(context, call, handle, for_program)
}

/// Makes a channel of answers.
pub(super) fn alloc_commands(context: &Context, call: &mut Call) -> Result<(), Errno> {
    let (handle, for_program) = CommandChannel::open(context)?;
    hand_out::<CommandChannel>(context, call, handle, for_program)
}

/// An eventfd of the program, held open.
fn eventfd(fd: RawFd) -> Result<OwnedFd, Errno> {
    if fd < 0 {
        return Err(Errno::BADF);
    }
    // SAFETY: only borrowed for the call, which fails if there is no such descriptor.
    let held = fcntl_dupfd_cloexec(unsafe { BorrowedFd::borrow_raw(fd) }, HIGH_FD)?;
    let what = std::fs::read_link(format!("/proc/self/fd/{}", held.as_raw_fd())).map_err(|_| Errno::BADF)?;
    if what.as_os_str() == "anon_inode:[eventfd]" { Ok(held) } else { Err(Errno::INVAL) }
}

/// Asks for events.
pub(super) fn subscribe(context: &Context, call: &mut Call) -> Result<(), Errno> {
    let channel = event_channel(call.fd(devx::SUBSCRIBE_CHANNEL)?)?;
    let list = call.input_bytes(devx::SUBSCRIBE_TYPES)?;
    let types: Vec<u16> = list.chunks_exact(2).map(|pair| u16::from_ne_bytes([pair[0], pair[1]])).collect();
    if types.is_empty() || types.len() > TYPES_MAX || types.len() * 2 != list.len() {
        return Err(Errno::INVAL);
    }
    let by_fd = call.has(devx::SUBSCRIBE_EVENTFD);
    if by_fd && call.has(devx::SUBSCRIBE_COOKIE) {
        return Err(Errno::INVAL);
    }
    let object = match call.has(devx::SUBSCRIBE_OBJECT) {
        true => Some(named(context, call.handle(devx::SUBSCRIBE_OBJECT)?)?),
        false => None,
    };
    let allowed = if object.is_some() { ABOUT_OBJECTS } else { ABOUT_THE_NIC };
    if types.iter().any(|kind| !allowed.contains(kind)) {
        return Err(Errno::INVAL);
    }
    let cookie = call.input_or::<u64>(devx::SUBSCRIBE_COOKIE, 0)?;
    let target = || match by_fd {
        true => eventfd(call.input::<u32>(devx::SUBSCRIBE_EVENTFD)? as RawFd).map(Target::Eventfd),
        false => Ok(Target::Channel { cookie }),
    };
    // All or nothing.
    let added: Result<Vec<Subscription>, Errno> =
        types.iter().map(|kind| Ok(Subscription { kind: *kind, object, target: target()? })).collect();
    channel.subscribe(added?);
    Ok(())
}
