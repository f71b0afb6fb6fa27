//! Events of a NIC: completions are told on their channels, the rest is the agent's.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::event::{EventfdFlags, eventfd};
use shunt_host::devx::{Devx, MkeyShape, Neighbour, PortGid, PortReport, SubnetPort, UarPage};
use shunt_host::error::DevxError;
use shunt_host::gpu::{DmaBuf, Span};
use shunt_layout::mlx5::eqe;
use shunt_mlx5_sys as sys;
use shunt_soft_devx::SoftDevx;

/// A completion channel as libibverbs has it. What the program sees lies in front.
#[repr(C)]
pub struct VerbsChannel {
    raw: sys::ibv_comp_channel,
    /// Readable as often as there are events.
    fd: OwnedFd,
    events: RefCell<VecDeque<*mut sys::ibv_cq>>,
    told: Cell<u64>,
}

impl VerbsChannel {
    /// One of this context. None if the system gives no descriptor.
    pub fn make(context: *mut sys::ibv_context) -> Option<Box<Self>> {
        let fd = eventfd(0, EventfdFlags::SEMAPHORE | EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).ok()?;
        let raw = sys::ibv_comp_channel { context, fd: fd.as_raw_fd(), ..Default::default() };
        Some(Box::new(Self { raw, fd, events: RefCell::default(), told: Cell::new(0) }))
    }

    /// A queue has an event.
    fn tell(&self, cq: *mut sys::ibv_cq) {
        self.events.borrow_mut().push_back(cq);
        self.told.set(self.told.get() + 1);
        rustix::io::write(&self.fd, &1u64.to_ne_bytes()).expect("room for another event");
    }

    /// The next event, if there is one.
    pub fn take(&self) -> Option<*mut sys::ibv_cq> {
        let cq = self.events.borrow_mut().pop_front()?;
        self.count_down();
        Some(cq)
    }

    fn count_down(&self) {
        let mut count = [0; 8];
        rustix::io::read(&self.fd, &mut count).expect("an event that was told");
    }

    /// Nothing of this queue is told any more.
    pub fn forget(&self, cq: *mut sys::ibv_cq) {
        let mut events = self.events.borrow_mut();
        let before = events.len();
        events.retain(|one| *one != cq);
        (events.len()..before).for_each(|_| self.count_down());
    }
}

/// A completion queue that tells: which it is, and where.
#[derive(Clone, Copy)]
pub struct Told {
    /// The queue.
    pub cq: *mut sys::ibv_cq,
    /// Its channel.
    pub channel: *const VerbsChannel,
}

#[derive(Default)]
struct Inside {
    queues: HashMap<u32, Told>,
    others: VecDeque<[u8; 64]>,
}

// SAFETY: queues and channels of a simulation are used by the one thread that carries it on.
unsafe impl Send for Inside {}

/// A NIC whose events go where they belong.
pub struct Events {
    devx: SoftDevx,
    inside: Mutex<Inside>,
}

impl Events {
    /// Of this NIC.
    pub fn new(devx: SoftDevx) -> Arc<Self> {
        Arc::new(Self { devx, inside: Mutex::default() })
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().expect("one thread")
    }

    /// Completions of the queue of this number are told from now on, or are not any more.
    pub fn tell_of(&self, cqn: u32, told: Option<Told>) {
        match told {
            Some(told) => _ = self.inside().queues.insert(cqn, told),
            None => _ = self.inside().queues.remove(&cqn),
        }
    }

    /// Takes what the NIC has told.
    ///
    /// # Errors
    /// As the NIC answers.
    pub fn pull(&self) -> Result<(), DevxError> {
        while let Some(event) = self.devx.next_event()? {
            let mut inside = self.inside();
            if eqe::EVENT_TYPE.get(&event) as u8 != eqe::event::COMPLETION {
                inside.others.push_back(event);
            } else if let Some(told) = inside.queues.get(&eqe::OBJECT.get(&event)) {
                // SAFETY: who destroys either takes the queue off this list before.
                unsafe { (*told.channel).tell(told.cq) };
            }
        }
        Ok(())
    }
}

impl Devx for Events {
    fn name(&self) -> String {
        self.devx.name()
    }

    fn command(&self, input: &[u8], output: &mut [u8]) -> Result<(), DevxError> {
        self.devx.command(input, output)
    }

    unsafe fn register_umem(&self, span: Span, dmabuf: Option<DmaBuf>) -> Result<u32, DevxError> {
        // SAFETY: forwarded to the caller.
        unsafe { self.devx.register_umem(span, dmabuf) }
    }

    fn deregister_umem(&self, id: u32) -> Result<(), DevxError> {
        self.devx.deregister_umem(id)
    }

    fn alloc_pd(&self) -> Result<u32, DevxError> {
        self.devx.alloc_pd()
    }

    fn dealloc_pd(&self, pd: u32) -> Result<(), DevxError> {
        self.devx.dealloc_pd(pd)
    }

    fn keys_need_umem(&self) -> bool {
        self.devx.keys_need_umem()
    }

    unsafe fn create_key(&self, shape: &MkeyShape, dmabuf: Option<DmaBuf>) -> Result<u32, DevxError> {
        // SAFETY: forwarded to the caller.
        unsafe { self.devx.create_key(shape, dmabuf) }
    }

    fn destroy_key(&self, key: u32) -> Result<(), DevxError> {
        self.devx.destroy_key(key)
    }

    fn map_uar(&self) -> Result<UarPage, DevxError> {
        self.devx.map_uar()
    }

    fn free_uar(&self, id: u32) {
        self.devx.free_uar(id);
    }

    fn query_eqn(&self) -> Result<u32, DevxError> {
        self.devx.query_eqn()
    }

    fn gid(&self, index: u32) -> Result<Option<PortGid>, DevxError> {
        self.devx.gid(index)
    }

    fn port(&self) -> Result<Option<PortReport>, DevxError> {
        self.devx.port()
    }

    fn traffic(&self) -> Option<(u64, u64)> {
        self.devx.traffic()
    }

    fn subnet(&self) -> Result<SubnetPort, DevxError> {
        self.devx.subnet()
    }

    fn resolve_mac(&self, pd: u32, neighbour: &Neighbour) -> Result<Option<[u8; 6]>, DevxError> {
        self.devx.resolve_mac(pd, neighbour)
    }

    fn next_event(&self) -> Result<Option<[u8; 64]>, DevxError> {
        self.pull()?;
        Ok(self.inside().others.pop_front())
    }

    fn responsive(&self) -> bool {
        self.devx.responsive()
    }
}
