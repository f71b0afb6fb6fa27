//! Which devices there are, and what it takes to open one.

use super::driver::Driver;
use super::events::Events;
use crate::error::IbverbsError;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use shunt_mlx5_sys::{
    MLX5DV_CONTEXT_FLAGS_DEVX, Rdma, ibv_context, ibv_device, mlx5dv_context_attr, mlx5dv_devx_event_channel,
};
use std::ffi::{CStr, c_int};
use std::io::Error;
use std::os::fd::BorrowedFd;
use std::ptr::null_mut;

/// A device that libibverbs lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceEntry {
    /// Name, e.g. `mlx5_0`.
    pub name: String,
    /// GUID of the node.
    pub guid: u64,
    /// True if libmlx5 drives it.
    pub mlx5: bool,
}

/// The RDMA devices of this machine, by name.
pub fn list() -> Result<Vec<DeviceEntry>, IbverbsError> {
    let rdma = shunt_mlx5_sys::load()?;
    let devices = Devices::get(rdma)?;
    let mut entries: Vec<DeviceEntry> =
        devices.pointers().iter().map(|device| entry(rdma, *device)).collect();
    // The library's order is that of a directory. mlx5_10 comes behind mlx5_9.
    entries.sort_by(|a, b| (a.name.len(), &a.name).cmp(&(b.name.len(), &b.name)));
    Ok(entries)
}

/// The library's list, freed with this object.
struct Devices {
    rdma: &'static Rdma,
    first: *mut *mut ibv_device,
    count: usize,
}

impl Devices {
    fn get(rdma: &'static Rdma) -> Result<Self, IbverbsError> {
        let mut count: c_int = 0;
        // SAFETY: the count is written, nothing else is asked.
        let first = unsafe { rdma.verbs.ibv_get_device_list(&raw mut count) };
        if first.is_null() {
            return Err(IbverbsError::List { detail: Error::last_os_error().to_string() });
        }
        Ok(Self { rdma, first, count: usize::try_from(count).unwrap_or_default() })
    }

    fn pointers(&self) -> &[*mut ibv_device] {
        // SAFETY: the library gave a list of this many, which lives as long as this object.
        unsafe { std::slice::from_raw_parts(self.first, self.count) }
    }
}

impl Drop for Devices {
    fn drop(&mut self) {
        // SAFETY: given by the library, freed once. Open contexts outlive the list.
        unsafe { self.rdma.verbs.ibv_free_device_list(self.first) }
    }
}

fn entry(rdma: &Rdma, device: *mut ibv_device) -> DeviceEntry {
    // SAFETY: the device is one of a list that is alive; its name is a text that lives as long.
    unsafe {
        let name = CStr::from_ptr(rdma.verbs.ibv_get_device_name(device)).to_string_lossy().into_owned();
        let guid = u64::from_be(rdma.verbs.ibv_get_device_guid(device));
        DeviceEntry { name, guid, mlx5: rdma.mlx5.mlx5dv_is_supported(device) }
    }
}

/// Opens a device with DEVX, and its events. Runs on the command thread.
pub(super) fn open(rdma: &'static Rdma, name: &str) -> Result<(Driver, Events), IbverbsError> {
    let devices = Devices::get(rdma)?;
    let entries: Vec<DeviceEntry> = devices.pointers().iter().map(|device| entry(rdma, *device)).collect();
    let Some(at) = entries.iter().position(|entry| entry.name == name) else {
        let have = entries.into_iter().map(|entry| entry.name).collect();
        return Err(IbverbsError::NoDevice { nic: name.into(), have });
    };
    if !entries[at].mlx5 {
        return Err(IbverbsError::NotMlx5 { nic: name.into() });
    }
    let context = open_devx(rdma, name, devices.pointers()[at])?;
    // SAFETY: the context is open.
    let channel = unsafe { rdma.mlx5.mlx5dv_devx_create_event_channel(context, 0) };
    // SAFETY: both are open, and this object is the one to close them.
    let driver = unsafe { Driver::new(rdma, name.into(), context, channel) };
    // SAFETY: the context is open.
    let mut files = vec![unsafe { (*context).async_fd }];
    if !channel.is_null() {
        // SAFETY: the channel is open.
        files.push(unsafe { (*channel).fd });
    }
    for file in files {
        dont_block(file).map_err(|error| IbverbsError::Driver {
            nic: name.into(),
            what: "events that are read without waiting",
            detail: error.to_string(),
        })?;
    }
    let told: *mut mlx5dv_devx_event_channel = if driver.subscribe_port() { channel } else { null_mut() };
    // SAFETY: both stay open until the driver is dropped, and the `IbverbsDevx` that holds the events goes first.
    let events = unsafe { Events::new(rdma, name.into(), context, told) };
    Ok((driver, events))
}

fn open_devx(rdma: &Rdma, name: &str, device: *mut ibv_device) -> Result<*mut ibv_context, IbverbsError> {
    let mut attr = mlx5dv_context_attr { flags: MLX5DV_CONTEXT_FLAGS_DEVX, comp_mask: 0 };
    // SAFETY: the device is one of a list that is alive, and driven by libmlx5.
    let context = unsafe { rdma.mlx5.mlx5dv_open_device(device, &raw mut attr) };
    if !context.is_null() {
        return Ok(context);
    }
    let error = Error::last_os_error();
    // SAFETY: as above.
    let plain = unsafe { rdma.verbs.ibv_open_device(device) };
    if plain.is_null() {
        return Err(IbverbsError::Open { nic: name.into(), detail: error.to_string() });
    }
    // SAFETY: opened above, used by nobody.
    unsafe { rdma.verbs.ibv_close_device(plain) };
    Err(IbverbsError::NoDevx { nic: name.into(), detail: error.to_string() })
}

fn dont_block(file: c_int) -> nix::Result<()> {
    // SAFETY: a descriptor of an open context or channel.
    let file = unsafe { BorrowedFd::borrow_raw(file) };
    let flags = OFlag::from_bits_retain(fcntl(file, FcntlArg::F_GETFL)?);
    fcntl(file, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK)).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ibverbs::IbverbsDevx;

    #[test]
    fn a_device_that_is_not_there_is_named_with_those_that_are() {
        let error = IbverbsDevx::open("mlx5_77").err().map(|error| error.to_string()).unwrap_or_default();
        // Where rdma-core or the kernel's part of it is missing, that comes first.
        let known = ["mlx5_77: libibverbs lists no such device", "install", "ib_uverbs"];
        assert!(known.iter().any(|part| error.contains(part)), "{error}");
    }

    #[test]
    fn errors_say_what_would_be_right() {
        let nic = || "mlx5_0".to_owned();
        let detail = || "Operation not permitted".to_owned();
        for (error, parts) in [
            (
                IbverbsError::NoDevice { nic: nic(), have: vec!["mlx5_2".into()] },
                ["no such device", "mlx5_2"],
            ),
            (IbverbsError::NoDevice { nic: nic(), have: vec![] }, ["no such device", "are none"]),
            (IbverbsError::NotMlx5 { nic: nic() }, ["mlx5_0", "ConnectX"]),
            (IbverbsError::Open { nic: nic(), detail: detail() }, ["not permitted", "/dev/infiniband"]),
            (IbverbsError::NoDevx { nic: nic(), detail: detail() }, ["not with DEVX", "UCTX_EN"]),
        ] {
            let text = error.to_string();
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        }
    }
}
