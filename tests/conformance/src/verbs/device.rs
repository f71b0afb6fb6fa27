//! A device, opened, with a protection domain.

use super::{VerbsError, done, made};
use shunt_mlx5_sys as sys;
use shunt_mlx5_sys::{Rdma, load};
use std::ffi::CStr;

/// Which device, port 1, and which address of it.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Name, as `ibv_devices` lists it.
    pub device: String,
    /// Index in its GID table.
    pub gid_index: u8,
}

/// An open device.
pub struct Device {
    pub(super) rdma: &'static Rdma,
    pub(super) context: *mut sys::ibv_context,
    pub(super) pd: *mut sys::ibv_pd,
    pub(super) gid_index: u8,
    pub(super) mtu: sys::ibv_mtu,
    gid: [u8; 16],
}

impl Device {
    /// Opens it and takes a protection domain.
    pub fn open(setup: &Setup) -> Result<Self, VerbsError> {
        let rdma = load()?;
        let context = open(rdma, &setup.device)?;
        // SAFETY: the context is open; the pointers are to locals.
        let (pd, mtu, gid) = unsafe {
            let pd = made("ibv_alloc_pd", rdma.verbs.ibv_alloc_pd(context))?;
            let mut port: sys::ibv_port_attr = std::mem::zeroed();
            done("ibv_query_port", rdma.verbs.query_port(context, 1, &mut port))?;
            let mut gid: sys::ibv_gid = std::mem::zeroed();
            done("ibv_query_gid", rdma.verbs.ibv_query_gid(context, 1, setup.gid_index.into(), &mut gid))?;
            (pd, port.active_mtu, gid.raw)
        };
        Ok(Self { rdma, context, pd, gid_index: setup.gid_index, mtu, gid })
    }

    /// Its address.
    pub fn gid(&self) -> [u8; 16] {
        self.gid
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: whatever was made of them holds this object, so it is gone.
        unsafe {
            self.rdma.verbs.ibv_dealloc_pd(self.pd);
            self.rdma.verbs.ibv_close_device(self.context);
        }
    }
}

fn open(rdma: &'static Rdma, wanted: &str) -> Result<*mut sys::ibv_context, VerbsError> {
    let mut count = 0;
    // SAFETY: the pointer is to a local.
    let list = unsafe { rdma.verbs.ibv_get_device_list(&mut count) };
    if list.is_null() {
        return Err(VerbsError::NoList(std::io::Error::last_os_error()));
    }
    let (mut found, mut opened) = (Vec::new(), None);
    for index in 0..count as usize {
        // SAFETY: the list has `count` devices, each with a name.
        let (device, name) = unsafe {
            let device = *list.add(index);
            (device, CStr::from_ptr(rdma.verbs.ibv_get_device_name(device)).to_string_lossy().into_owned())
        };
        if name == wanted {
            // SAFETY: the list is not freed yet.
            opened = Some(made("ibv_open_device", unsafe { rdma.verbs.ibv_open_device(device) }));
        }
        found.push(name);
    }
    // SAFETY: an open device does not need the list.
    unsafe { rdma.verbs.ibv_free_device_list(list) };
    opened.unwrap_or_else(|| match found.is_empty() {
        true => Err(VerbsError::NoDevices),
        false => Err(VerbsError::NoDevice { wanted: wanted.to_owned(), found: found.join(", ") }),
    })
}
