//! What is kept of each of the program's objects.

use crate::real;
use core::ffi::{c_int, c_uint, c_void};
use rustc_hash::FxHashMap;
use shunt_mlx5_sys::{
    ibv_comp_channel, ibv_context, ibv_context_ops, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_mr, ibv_pd, ibv_qp,
    ibv_qp_init_attr_ex, ibv_recv_wr, ibv_send_wr,
};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Address of an object of the library.
pub struct At<T>(pub *mut T);

impl<T> Clone for At<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for At<T> {}

impl<T> Default for At<T> {
    fn default() -> Self {
        Self(std::ptr::null_mut())
    }
}

// SAFETY: objects of libibverbs may be used from any thread; who dereferences the address vouches for its life.
unsafe impl<T> Send for At<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for At<T> {}

/// `create_qp_ex` of a provider.
pub type CreateQpEx = unsafe extern "C" fn(*mut ibv_context, *mut ibv_qp_init_attr_ex) -> *mut ibv_qp;

/// `create_cq_ex` of a provider.
pub type CreateCqEx = unsafe extern "C" fn(*mut ibv_context, *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex;

/// `post_send` of a provider.
pub type PostSend = unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> i32;
/// `post_recv` of a provider.
pub type PostRecv = unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> i32;

/// For a provider that has none.
pub extern "C" fn no_post<W>(_: *mut ibv_qp, _: *mut W, _: *mut *mut W) -> i32 {
    libc::EOPNOTSUPP
}

/// Functions of a context that lie beside its table.
#[derive(Clone, Copy, Default)]
pub struct Extended {
    /// Makes completion queues with more attributes.
    pub create_cq_ex: Option<CreateCqEx>,
    /// Makes queue pairs with more attributes.
    pub create_qp_ex: Option<CreateQpEx>,
}

/// An open device of the program.
pub struct Context {
    /// Its address.
    pub raw: At<ibv_context>,
    /// Name of the device.
    pub device: String,
    /// Its table as the provider made it.
    pub ops: ibv_context_ops,
    /// The same of two functions that lie beside the table.
    pub ex: Extended,
    /// Wakes the agent when a queue pair stands in here for one of a program that sleeps. It stays when the context is
    /// closed: the agent may be looking at it.
    pub channel: OnceLock<Option<Channel>>,
}

impl Context {
    /// Its channel, made if there is none.
    pub fn channel(&self) -> Option<Channel> {
        // SAFETY: a queue pair of the program is on the context, which is open.
        *self.channel.get_or_init(|| unsafe { Channel::make(self.raw) })
    }
}

/// A completion channel of this library's own, which nobody but the agent takes events from.
#[derive(Clone, Copy)]
pub struct Channel(pub At<ibv_comp_channel>);

impl Channel {
    /// Makes one. None if the system gives none.
    ///
    /// # Safety
    /// The context is open.
    pub unsafe fn make(context: At<ibv_context>) -> Option<Self> {
        // SAFETY: open, by the caller.
        let made = unsafe { real::ibv_create_comp_channel(context.0) };
        (!made.is_null()).then_some(Self(At(made)))
    }

    /// Its descriptor.
    pub fn fd(self) -> c_int {
        // SAFETY: channels of this library's own are never destroyed.
        unsafe { (*self.0.0).fd }
    }

    /// Takes the events that are there: addresses of completion queues, which may be gone.
    pub fn take_events(self) -> Vec<usize> {
        let mut taken = Vec::new();
        loop {
            let mut one = libc::pollfd { fd: self.fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one entry, which is ours.
            let count = unsafe { libc::poll(&raw mut one, 1, 0) };
            if count != 1 || one.revents & libc::POLLIN == 0 {
                return taken;
            }
            let (mut cq, mut of) = (std::ptr::null_mut(), std::ptr::null_mut());
            // SAFETY: the channel stays. Who destroys a queue of it waits until its events are acknowledged.
            unsafe {
                if real::ibv_get_cq_event(self.0.0, &raw mut cq, &raw mut of) != 0 {
                    return taken;
                }
                real::ibv_ack_cq_events(cq, 1);
            }
            taken.push(cq.addr());
        }
    }
}

/// What a region was registered with.
pub struct Region {
    /// First byte.
    pub address: u64,
    /// Bytes.
    pub length: usize,
    /// Address by which the keys name the first byte.
    pub iova: u64,
    /// Access flags.
    pub access: c_uint,
    /// The program's local key.
    pub lkey: u32,
    /// The program's remote key.
    pub rkey: u32,
    /// The same memory, registered on backup NICs: by rail; none where it could not be.
    pub spares: FxHashMap<u32, Option<At<ibv_mr>>>,
}

/// Regions of a protection domain, by address of the program's object, and the domains of backup NICs.
#[derive(Default)]
pub struct Regions {
    /// The regions.
    pub known: HashMap<usize, Region>,
    /// Local keys of backup NICs, by rail and the program's.
    pub lkeys: FxHashMap<(u32, u32), u32>,
    /// Domains of backup NICs, by rail.
    pub spares: FxHashMap<u32, At<ibv_pd>>,
}

impl Regions {
    /// Takes a region off backup NICs.
    pub fn drop_spares(&mut self, region: &Region) {
        for (rail, spare) in &region.spares {
            self.lkeys.remove(&(*rail, region.lkey));
            if let Some(spare) = spare {
                // SAFETY: registered by this library and kept here alone.
                unsafe { real::ibv_dereg_mr(spare.0) };
            }
        }
    }

    /// Registers on a backup NIC what is not registered there yet. True if there was any.
    fn spread(&mut self, rail: u32, context: At<ibv_context>) -> bool {
        let domain = match self.spares.get(&rail) {
            Some(domain) => *domain,
            None => {
                // SAFETY: the context is this library's own and stays open.
                let made = unsafe { real::ibv_alloc_pd(context.0) };
                if made.is_null() {
                    return false;
                }
                self.spares.insert(rail, At(made));
                At(made)
            }
        };
        let mut changed = false;
        for region in self.known.values_mut().filter(|region| !region.spares.contains_key(&rail)) {
            let at: *mut c_void = std::ptr::with_exposed_provenance_mut(region.address as usize);
            // SAFETY: the memory is the program's, which registered it and has not taken it back: that waits for the
            // lock that the caller holds.
            let made = unsafe {
                real::ibv_reg_mr_iova(domain.0, at, region.length, region.iova, region.access as c_int)
            };
            if !made.is_null() {
                // SAFETY: just made.
                self.lkeys.insert((rail, region.lkey), unsafe { (*made).lkey });
            }
            region.spares.insert(rail, (!made.is_null()).then_some(At(made)));
            changed = true;
        }
        changed
    }
}

/// A protection domain of the program.
pub struct Domain {
    /// Its address.
    pub raw: At<ibv_pd>,
    /// Where it was made.
    pub context: Arc<Context>,
    /// Its regions.
    pub regions: RwLock<Regions>,
    /// Counts changes of the regions, from a number on that no other domain has.
    pub changes: AtomicU64,
}

/// Changes of the regions of one domain are fewer.
const CHANGES: u64 = 1 << 40;

impl Domain {
    /// One that was made there.
    pub fn new(raw: At<ibv_pd>, context: Arc<Context>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let changes = AtomicU64::new(NEXT.fetch_add(CHANGES, Ordering::Relaxed));
        Self { raw, context, regions: RwLock::default(), changes }
    }

    /// Its regions, to read.
    pub fn regions(&self) -> RwLockReadGuard<'_, Regions> {
        self.regions.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its regions, to change.
    pub fn regions_mut(&self) -> RwLockWriteGuard<'_, Regions> {
        self.regions.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers on backup NICs, in domains of their own, what is not registered there yet. Answers with the count of
    /// changes that this covers.
    pub fn spread(&self, backups: &[(u32, At<ibv_context>)]) -> u64 {
        let before = self.changes.load(Ordering::Acquire);
        let mut regions = self.regions_mut();
        let changes = backups.iter().map(|(rail, context)| regions.spread(*rail, *context));
        let changed = changes.fold(false, |all, one| all | one);
        drop(regions);
        self.changes.fetch_add(u64::from(changed), Ordering::Release);
        before + u64::from(changed)
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        let regions = std::mem::take(&mut *self.regions_mut());
        for spare in regions.known.values().flat_map(|region| region.spares.values().flatten()) {
            // SAFETY: registered by this library and kept here alone.
            unsafe { real::ibv_dereg_mr(spare.0) };
        }
        for domain in regions.spares.values() {
            // SAFETY: made by this library; what was in it is gone.
            unsafe { real::ibv_dealloc_pd(domain.0) };
        }
    }
}
