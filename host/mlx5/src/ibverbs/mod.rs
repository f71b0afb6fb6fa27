//! [`Devx`] on hardware: libibverbs opens the device, libmlx5's DEVX carries the firmware commands.
//!
//! The same library runs against whatever the system's uverbs devices are, a soft NIC behind an interposer among them.
//! Every call that may hang is made by the NIC's command thread (`worker`); events are read by the thread that asks.

mod driver;
mod events;
mod open;
mod route;
mod uar;
mod verbs;
mod worker;

pub use open::{DeviceEntry, list};

use crate::devx::{Devx, MkeyShape, Neighbour, PortGid, PortReport, SubnetPort, UarPage, command_name};
use crate::error::{DevxError, IbverbsError};
use crate::memory::{DmaBuf, Span};
use events::Events;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;
use worker::Worker;

/// How a device is opened: which GID is used, and how long commands are waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// Entry of the GID table; `None`: the first one of RoCE v2.
    pub gid_index: Option<u32>,
    /// A firmware command.
    pub command: Duration,
    /// A registration of memory, which pins every page of it.
    pub registration: Duration,
}

impl Default for Opening {
    fn default() -> Self {
        let (command, registration) = (Duration::from_secs(1), Duration::from_secs(120));
        Self { gid_index: None, command, registration }
    }
}

/// An mlx5 device, opened through libibverbs and libmlx5.
pub struct IbverbsDevx {
    nic: String,
    events: Events,
    worker: Worker,
    opening: Opening,
}

impl IbverbsDevx {
    /// Opens a device by its name, e.g. `mlx5_0`.
    pub fn open(name: &str) -> Result<Arc<dyn Devx>, IbverbsError> {
        Self::open_with(name, Opening::default())
    }

    /// The same in another way.
    pub fn open_with(name: &str, opening: Opening) -> Result<Arc<dyn Devx>, IbverbsError> {
        let rdma = shunt_mlx5_sys::load()?;
        let wanted = name.to_owned();
        let late = |detail| IbverbsError::Driver { nic: name.to_owned(), what: "open", detail };
        let (worker, events) = Worker::start(name, opening.command, move || open::open(rdma, &wanted), late)?;
        Ok(Arc::new(Self { nic: name.to_owned(), events, worker, opening }))
    }
}

impl Devx for IbverbsDevx {
    fn name(&self) -> String {
        self.nic.clone()
    }

    fn traffic(&self) -> Option<(u64, u64)> {
        // Words of four bytes, as the InfiniBand specification has PortXmitData and PortRcvData.
        let bytes = |counter: &str| {
            let path = format!("/sys/class/infiniband/{}/ports/1/counters/{counter}", self.nic);
            std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok()?.checked_mul(4)
        };
        bytes("port_xmit_data").zip(bytes("port_rcv_data"))
    }

    fn command(&self, input: &[u8], output: &mut [u8]) -> Result<(), DevxError> {
        let (mailbox, mut answer) = (input.to_vec(), vec![0; output.len()]);
        let job = move |driver: &mut driver::Driver| driver.command(&mailbox, &mut answer).map(|()| answer);
        output.copy_from_slice(&self.worker.call(|| command_name(input), job)?);
        Ok(())
    }

    unsafe fn register_umem(&self, span: Span, dmabuf: Option<DmaBuf>) -> Result<u32, DevxError> {
        // SAFETY: forwarded to the caller.
        let job = move |driver: &mut driver::Driver| unsafe { driver.register_umem(span, dmabuf) };
        self.worker.call_for(self.opening.registration, || "umem registration".into(), job)
    }

    fn deregister_umem(&self, id: u32) -> Result<(), DevxError> {
        self.worker.call(|| "umem deregistration".into(), move |driver| driver.deregister_umem(id))
    }

    fn alloc_pd(&self) -> Result<u32, DevxError> {
        self.worker.call(|| "ibv_alloc_pd".into(), driver::Driver::alloc_pd)
    }

    fn dealloc_pd(&self, pd: u32) -> Result<(), DevxError> {
        self.worker.call(|| "ibv_dealloc_pd".into(), move |driver| driver.dealloc_pd(pd))
    }

    fn keys_need_umem(&self) -> bool {
        false
    }

    unsafe fn create_key(&self, shape: &MkeyShape, dmabuf: Option<DmaBuf>) -> Result<u32, DevxError> {
        let shape = *shape;
        // SAFETY: forwarded to the caller.
        let job = move |driver: &mut driver::Driver| unsafe { driver.create_key(&shape, dmabuf) };
        self.worker.call_for(self.opening.registration, || "memory registration".into(), job)
    }

    fn destroy_key(&self, key: u32) -> Result<(), DevxError> {
        self.worker.call(|| "ibv_dereg_mr".into(), move |driver| driver.destroy_key(key))
    }

    fn map_uar(&self) -> Result<UarPage, DevxError> {
        self.worker.call(|| "UAR page".into(), driver::Driver::map_uar)
    }

    fn free_uar(&self, id: u32) {
        let free = move |driver: &mut driver::Driver| {
            driver.free_uar(id);
            Ok(())
        };
        // A page that a dead NIC keeps is given back when the device closes.
        let _ = self.worker.call(|| "UAR page".into(), free);
    }

    fn query_eqn(&self) -> Result<u32, DevxError> {
        self.worker.call(|| "event queue".into(), |driver| driver.query_eqn())
    }

    fn gid(&self, index: u32) -> Result<Option<PortGid>, DevxError> {
        self.worker.call(|| "GID table entry".into(), move |driver| driver.gid(index))
    }

    fn gid_index(&self) -> Option<u32> {
        self.opening.gid_index
    }

    fn port(&self) -> Result<Option<PortReport>, DevxError> {
        self.worker.call(|| "port query".into(), driver::Driver::port).map(Some)
    }

    fn subnet(&self) -> Result<SubnetPort, DevxError> {
        self.worker.call(|| "port tables".into(), driver::Driver::subnet)
    }

    fn resolve_mac(&self, pd: u32, neighbour: &Neighbour) -> Result<Option<[u8; 6]>, DevxError> {
        let neighbour = *neighbour;
        let job = move |driver: &mut driver::Driver| driver.resolve_mac(pd, &neighbour).map(Some);
        self.worker.call(|| "MAC of a neighbour".into(), job)
    }

    fn next_event(&self) -> Result<Option<[u8; 64]>, DevxError> {
        self.events.next()
    }

    fn event_fd(&self) -> Option<RawFd> {
        self.events.fd()
    }

    fn responsive(&self) -> bool {
        self.worker.responsive()
    }
}
