//! Completion channels and asynchronous channels.

use super::invocation::Core;
use crate::abi::ids::HANDLE;
use crate::ioctl::{Call, Context};
use rustix::io::Errno;
use std::os::fd::{AsRawFd, IntoRawFd};

/// CREATE_COMP_CHANNEL.
pub fn create(context: &Context, core: &mut Core) -> Result<(), Errno> {
    core.check_room::<u32>()?;
    let fd = context.events().completion_channel()?;
    core.reply(&(fd.as_raw_fd() as u32))?;
    // The program's from here on.
    let _ = fd.into_raw_fd();
    Ok(())
}

/// ALLOC of an asynchronous channel.
pub fn create_asynchronous(context: &Context, call: &mut Call) -> Result<(), Errno> {
    let fd = context.events().asynchronous_channel()?;
    call.set_fd(HANDLE, fd.as_raw_fd())?;
    let _ = fd.into_raw_fd();
    Ok(())
}
