//! The program's objects by their addresses.

use crate::completions::CompletionQueue;
use crate::objects::{Context, Domain};
use crate::queue_pair::QueuePair;
use crate::shared_receive::SharedQueue;
use rustc_hash::FxHashMap;
use shunt_mlx5_sys::{ibv_context, ibv_cq, ibv_qp, ibv_srq};
use shunt_verbs_near::table::Near;
use std::sync::{Arc, PoisonError, RwLock};

/// Everything that is known, by address. The program chooses no key: a cheap hash.
#[derive(Default)]
pub struct Objects {
    /// Contexts.
    pub contexts: FxHashMap<usize, Arc<Context>>,
    /// Protection domains.
    pub domains: FxHashMap<usize, Arc<Domain>>,
    /// Completion queues.
    queues: FxHashMap<usize, Arc<CompletionQueue>>,
    /// Shared receive queues.
    pub shared: FxHashMap<usize, Arc<SharedQueue>>,
    /// Queue pairs that are protected, or may be.
    pairs: FxHashMap<usize, Arc<QueuePair>>,
    /// The contexts of reliable ones that never are.
    strangers: FxHashMap<usize, usize>,
}

/// The same for each call that posts or polls.
static PAIRS: Near<QueuePair> = Near::empty();
static QUEUES: Near<CompletionQueue> = Near::empty();

impl Objects {
    /// A queue pair is made.
    pub fn put_pair(&mut self, at: *mut ibv_qp, pair: Arc<QueuePair>) {
        PAIRS.put(at.addr(), &pair);
        self.pairs.insert(at.addr(), pair);
    }

    /// A reliable one is made that is never protected.
    pub fn put_stranger(&mut self, at: *mut ibv_qp, context: *mut ibv_context) {
        self.strangers.insert(at.addr(), context.addr());
    }

    /// It is to be destroyed.
    pub fn take_pair(&mut self, at: *mut ibv_qp) -> Option<Arc<QueuePair>> {
        PAIRS.remove(at.addr());
        self.strangers.remove(&at.addr());
        self.pairs.remove(&at.addr())
    }

    /// A completion queue is made.
    pub fn put_queue(&mut self, at: *mut ibv_cq, queue: Arc<CompletionQueue>) {
        QUEUES.put(at.addr(), &queue);
        self.queues.insert(at.addr(), queue);
    }

    /// A completion queue was destroyed. Its address may be that of another by now, which stays.
    pub fn take_queue(&mut self, at: *mut ibv_cq, destroyed: &Arc<CompletionQueue>) {
        if self.queues.get(&at.addr()).is_some_and(|queue| Arc::ptr_eq(queue, destroyed)) {
            QUEUES.remove(at.addr());
            self.queues.remove(&at.addr());
        }
    }

    /// The same of a shared receive queue.
    pub fn take_shared(&mut self, at: *mut ibv_srq, destroyed: &Arc<SharedQueue>) {
        if self.shared.get(&at.addr()).is_some_and(|queue| Arc::ptr_eq(queue, destroyed)) {
            self.shared.remove(&at.addr());
        }
    }

    /// The completion queue at an address.
    pub fn queue(&self, at: *mut ibv_cq) -> Option<Arc<CompletionQueue>> {
        self.queues.get(&at.addr()).cloned()
    }
}

/// What is done with the queue pair at an address if it is protected and has its place, or else: [`pair`] finds others.
///
/// # Safety
/// The program has it as long as what is done lasts, and its answer.
#[inline(always)]
pub unsafe fn near_pair<'a, R>(
    at: *mut ibv_qp,
    here: impl FnOnce(&'a QueuePair) -> R,
    far: impl FnOnce() -> R,
) -> R {
    // SAFETY: who destroys it removes it, and by the caller does not while it is used.
    unsafe { PAIRS.find(at.addr(), here, far) }
}

/// The same of completion queues and [`queue`].
///
/// # Safety
/// As above.
#[inline(always)]
pub unsafe fn near_queue<'a, R>(
    at: *mut ibv_cq,
    here: impl FnOnce(&'a CompletionQueue) -> R,
    far: impl FnOnce() -> R,
) -> R {
    // SAFETY: as above.
    unsafe { QUEUES.find(at.addr(), here, far) }
}

static OBJECTS: RwLock<Option<Objects>> = RwLock::new(None);

/// Looks something up.
pub fn with<R>(look: impl FnOnce(&Objects) -> Option<R>) -> Option<R> {
    let objects = OBJECTS.read().unwrap_or_else(PoisonError::into_inner);
    objects.as_ref().and_then(look)
}

/// Changes something.
pub fn with_mut<R>(change: impl FnOnce(&mut Objects) -> R) -> R {
    let mut objects = OBJECTS.write().unwrap_or_else(PoisonError::into_inner);
    change(objects.get_or_insert_default())
}

/// The queue pair at an address.
pub fn pair(at: *mut ibv_qp) -> Option<Arc<QueuePair>> {
    with(|objects| objects.pairs.get(&at.addr()).cloned())
}

/// The context at an address.
pub fn context(at: *mut ibv_context) -> Option<Arc<Context>> {
    with(|objects| objects.contexts.get(&at.addr()).cloned())
}

/// True if the program outlives a failure of this device: reliable queue pairs are connected there, and each of them
/// goes on elsewhere.
pub fn outlives(context: *mut ibv_context) -> bool {
    let found = with(|objects| {
        let has_strangers = objects.strangers.values().any(|of| *of == context.addr());
        let on = |pair: &&Arc<QueuePair>| pair.context.raw.0 == context;
        (!has_strangers).then(|| objects.pairs.values().filter(on).cloned().collect::<Vec<_>>())
    });
    let mut connected = found.into_iter().flatten().filter(|pair| pair.is_connected()).peekable();
    connected.peek().is_some() && connected.all(|pair| pair.is_protected())
}

/// The completion queue at an address.
pub fn queue(at: *mut ibv_cq) -> Option<Arc<CompletionQueue>> {
    with(|objects| objects.queue(at))
}

/// The shared receive queue at an address.
pub fn shared(at: *mut ibv_srq) -> Option<Arc<SharedQueue>> {
    with(|objects| objects.shared.get(&at.addr()).cloned())
}
