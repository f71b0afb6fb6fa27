//! What goes through verbs proper: protection domains, memory keys, the GID table, the port, MACs.

use super::driver::Driver;
use crate::devx::SubnetPort;
use crate::devx::{Access, MkeyShape};
use crate::devx::{Neighbour, PortGid, PortReport};
use crate::error::DevxError;
use crate::memory::DmaBuf;
use crate::nic::caps::{query_roce_address_in, roce_mac};
use shunt_layout::mlx5::prm::port::ROCE_ADDRESS_OUT_BYTES;
use shunt_mlx5_sys::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_RELAXED_ORDERING, IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ,
    IBV_ACCESS_REMOTE_WRITE, IBV_GID_TYPE_ROCE_V2, IBV_PORT_ACTIVE, MLX5DV_OBJ_AH, MLX5DV_OBJ_PD,
    ibv_ah_attr, ibv_gid_entry, ibv_port_attr, mlx5dv_ah, mlx5dv_obj, mlx5dv_pd,
};
use std::ffi::c_void;
use std::io::Error;
use std::os::fd::AsRawFd;

/// All commands of Shunt are for the first port of their device: a card's second port is a device of its own.
const PORT: u8 = 1;
const HOP_LIMIT: u8 = 255;
/// Entries of a P_Key table that are read.
const PKEYS_MAX: i32 = 128;

/// Access bits of a key.
fn access_bits(access: Access) -> u32 {
    let remote = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    match access {
        Access::Local => IBV_ACCESS_LOCAL_WRITE,
        Access::Remote => IBV_ACCESS_LOCAL_WRITE | remote,
        Access::Relaxed => IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_RELAXED_ORDERING,
    }
}

impl Driver {
    pub(super) fn alloc_pd(&mut self) -> Result<u32, DevxError> {
        // SAFETY: the context is open.
        let pd = unsafe { self.rdma.verbs.ibv_alloc_pd(self.context) };
        if pd.is_null() {
            return Err(self.resource("protection domain", Error::last_os_error()));
        }
        let mut out = mlx5dv_pd::default();
        let mut obj = mlx5dv_obj::default();
        (obj.pd.in_, obj.pd.out) = (pd, &raw mut out);
        // SAFETY: the domain is alive and the request names it; what is written is `out`.
        let errno = unsafe { self.rdma.mlx5.mlx5dv_init_obj(&raw mut obj, MLX5DV_OBJ_PD.into()) };
        if errno != 0 {
            // SAFETY: made above, known to nobody else.
            unsafe { self.rdma.verbs.ibv_dealloc_pd(pd) };
            return Err(self.resource("number of a protection domain", Error::from_raw_os_error(errno)));
        }
        self.pds.insert(out.pdn, pd);
        Ok(out.pdn)
    }

    pub(super) fn dealloc_pd(&mut self, pd: u32) -> Result<(), DevxError> {
        let handle = self.pd(pd)?;
        // SAFETY: alive, and leaves the table if this succeeds.
        match unsafe { self.rdma.verbs.ibv_dealloc_pd(handle) } {
            0 => {
                self.pds.remove(&pd);
                Ok(())
            }
            errno => Err(self.resource("end of a protection domain", Error::from_raw_os_error(errno))),
        }
    }

    fn pd(&self, pd: u32) -> Result<*mut shunt_mlx5_sys::ibv_pd, DevxError> {
        let found = self.pds.get(&pd).copied();
        found.ok_or_else(|| self.resource("protection domain", format!("{pd:#x} was not made here")))
    }

    /// A key through `ibv_reg_mr`, or `ibv_reg_dmabuf_mr`: the kernel pins the memory and writes the translations,
    /// GPU memory of a peer driver among them. CREATE_MKEY through DEVX would need a umem over the same memory.
    ///
    /// # Safety
    /// As [`crate::devx::Devx::create_key`].
    pub(super) unsafe fn create_key(
        &mut self,
        shape: &MkeyShape,
        dmabuf: Option<DmaBuf>,
    ) -> Result<u32, DevxError> {
        let pd = self.pd(shape.pd)?;
        let (bytes, access) = (shape.bytes as usize, access_bits(shape.access));
        let verbs = &self.rdma.verbs;
        let region = match &dmabuf {
            None => {
                let address = std::ptr::with_exposed_provenance_mut::<c_void>(shape.address as usize);
                // SAFETY: the domain is alive; the memory is the caller's promise.
                unsafe { verbs.ibv_reg_mr(pd, address, bytes, access as i32) }
            }
            Some(buf) => {
                let fd = buf.file.as_raw_fd();
                // SAFETY: as above.
                unsafe { verbs.ibv_reg_dmabuf_mr(pd, buf.offset, bytes, shape.address, fd, access as i32) }
            }
        };
        if region.is_null() {
            let error = Error::last_os_error();
            let of = if dmabuf.is_some() { " of a dma-buf" } else { "" };
            let detail = format!("{} bytes at {:#x}{of}: {error}", shape.bytes, shape.address);
            return Err(self.resource("memory registration", detail));
        }
        // SAFETY: made above.
        let (lkey, rkey) = unsafe { ((*region).lkey, (*region).rkey) };
        if lkey != rkey && shape.access != Access::Local {
            // SAFETY: made above, known to nobody else.
            unsafe { verbs.ibv_dereg_mr(region) };
            let detail = format!("expected one key for both, got lkey {lkey:#x} and rkey {rkey:#x}");
            return Err(self.resource("memory registration", detail));
        }
        self.keys.insert(lkey, region);
        Ok(lkey)
    }

    pub(super) fn destroy_key(&mut self, key: u32) -> Result<(), DevxError> {
        // One that is gone was asked for before, and not in time.
        let Some(region) = self.keys.get(&key).copied() else { return Ok(()) };
        // SAFETY: alive, and leaves the table if this succeeds.
        match unsafe { self.rdma.verbs.ibv_dereg_mr(region) } {
            0 => {
                self.keys.remove(&key);
                Ok(())
            }
            errno => Err(self.resource("memory deregistration", Error::from_raw_os_error(errno))),
        }
    }

    /// An entry of the kernel's GID table, which has this process's entries alone; the MAC is the firmware's word for
    /// the same index.
    pub(super) fn gid(&mut self, index: u32) -> Result<Option<PortGid>, DevxError> {
        let mut entry = ibv_gid_entry::default();
        // SAFETY: the context is open and the entry ours.
        let errno =
            unsafe { self.rdma.verbs.ibv_query_gid_ex(self.context, PORT.into(), index, &raw mut entry) };
        match errno {
            0 => {}
            // Empty, or beyond the end; containers see EINVAL for entries of others.
            nix::libc::ENODATA | nix::libc::EINVAL | nix::libc::ENOENT => return Ok(None),
            errno => {
                return Err(self.resource("GID table entry", Error::from_raw_os_error(errno)));
            }
        }
        // SAFETY: both views of the union are plain bytes.
        let gid = unsafe { entry.gid.raw };
        let roce_v2 = entry.gid_type == IBV_GID_TYPE_ROCE_V2;
        let mut mac = [0; 6];
        if roce_v2 {
            let mut output = [0; ROCE_ADDRESS_OUT_BYTES];
            self.command(&query_roce_address_in(index), &mut output)?;
            mac = roce_mac(&output);
        }
        Ok((gid != [0; 16]).then_some(PortGid { gid, roce_v2, mac }))
    }

    pub(super) fn port(&mut self) -> Result<PortReport, DevxError> {
        let mut attr = ibv_port_attr::default();
        // SAFETY: the context is open and the attributes ours.
        match unsafe { self.rdma.verbs.query_port(self.context, PORT, &raw mut attr) } {
            0 => Ok(PortReport { active: attr.state == IBV_PORT_ACTIVE, mtu: attr.active_mtu }),
            errno => Err(self.resource("port query", Error::from_raw_os_error(errno))),
        }
    }

    /// MTU in use, GID 0, and the P_Key table up to the first entry that cannot be read.
    pub(super) fn subnet(&mut self) -> Result<SubnetPort, DevxError> {
        let mtu = self.port()?.mtu;
        let gid = self.gid(0)?.map(|entry| entry.gid);
        let pkeys = (0..PKEYS_MAX).map_while(|index| {
            let mut key = 0;
            // SAFETY: the context is open and the key ours.
            let errno = unsafe { self.rdma.verbs.ibv_query_pkey(self.context, PORT, index, &raw mut key) };
            (errno == 0).then_some(u16::from_be(key))
        });
        Ok(SubnetPort { mtu, gid, pkeys: pkeys.collect() })
    }

    /// The kernel resolves what an address handle leads to; nobody sends through this one.
    pub(super) fn resolve_mac(&mut self, pd: u32, neighbour: &Neighbour) -> Result<[u8; 6], DevxError> {
        let pd = self.pd(pd)?;
        let mut attr = ibv_ah_attr { is_global: 1, port_num: PORT, ..ibv_ah_attr::default() };
        attr.grh.dgid.raw = neighbour.gid;
        attr.grh.sgid_index = neighbour.gid_index as u8;
        attr.grh.hop_limit = HOP_LIMIT;
        attr.grh.traffic_class = neighbour.traffic_class;
        // SAFETY: the domain is alive.
        let ah = unsafe { self.rdma.verbs.ibv_create_ah(pd, &raw mut attr) };
        if ah.is_null() {
            let gid = std::net::Ipv6Addr::from(neighbour.gid);
            return Err(self.resource("MAC of a neighbour", format!("{gid}: {}", Error::last_os_error())));
        }
        let mut out = mlx5dv_ah::default();
        let mut obj = mlx5dv_obj::default();
        (obj.ah.in_, obj.ah.out) = (ah, &raw mut out);
        // SAFETY: the handle is alive and the request names it; `av` leads into it, so it is read before its end.
        let (errno, mac) = unsafe {
            let errno = self.rdma.mlx5.mlx5dv_init_obj(&raw mut obj, MLX5DV_OBJ_AH.into());
            let mac = if errno == 0 && !out.av.is_null() { (*out.av).rmac } else { [0; 6] };
            self.rdma.verbs.ibv_destroy_ah(ah);
            (errno, mac)
        };
        match (errno, mac) {
            (0, [0, 0, 0, 0, 0, 0]) => {
                let gid = std::net::Ipv6Addr::from(neighbour.gid);
                Err(self.resource("MAC of a neighbour", format!("{gid}: libmlx5 gives none")))
            }
            (0, mac) => Ok(mac),
            (errno, _) => Err(self.resource("MAC of a neighbour", Error::from_raw_os_error(errno))),
        }
    }
}
