//! The program's objects by their addresses.

use crate::objects::{CompletionQueue, Context, Domain};
use crate::queue_pair::QueuePair;
use rustc_hash::FxHashMap;
use shunt_mlx5_sys::{ibv_context, ibv_qp};
use std::sync::{Arc, PoisonError, RwLock};

/// Everything that is known, by address. The program chooses no key, and each call looks one up: a cheap hash.
#[derive(Default)]
pub struct Objects {
    /// Contexts.
    pub contexts: FxHashMap<usize, Arc<Context>>,
    /// Protection domains.
    pub domains: FxHashMap<usize, Arc<Domain>>,
    /// Completion queues.
    pub queues: FxHashMap<usize, Arc<CompletionQueue>>,
    /// Queue pairs that are protected, or may be.
    pub pairs: FxHashMap<usize, Arc<QueuePair>>,
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
