//! What a handle stands for. A handle is a number, given once: the caller's pointer is never followed.

use crate::engine::{Engine, RegionOf, TargetOf};
use crate::failure::{Failure, Status};
use crate::operation::Operation;
use crate::watchers::WatcherOf;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// An opaque pointer of C.
pub type Handle = *const c_void;

/// What a handle stands for.
#[derive(Clone)]
pub enum Object {
    /// `ste_engine`.
    Engine(Arc<Engine>),
    /// `ste_region`.
    Region(Arc<RegionOf>),
    /// `ste_target`.
    Target(Arc<TargetOf>),
    /// `ste_operation`.
    Operation(Arc<Operation>),
    /// `ste_watcher`.
    Watcher(Arc<WatcherOf>),
}

/// A kind of object.
pub trait Kind {
    /// Its name in messages, and what gives one.
    const NAME: &'static str;
    /// What gives one.
    const FROM: &'static str;

    /// That of an object of this kind.
    fn of(object: &Object) -> Option<&Arc<Self>>;
}

macro_rules! kind {
    ($object:ident, $of:ty, $name:literal, $from:literal) => {
        impl Kind for $of {
            const NAME: &'static str = $name;
            const FROM: &'static str = $from;

            fn of(object: &Object) -> Option<&Arc<Self>> {
                match object {
                    Object::$object(object) => Some(object),
                    _ => None,
                }
            }
        }
    };
}

kind!(Engine, Engine, "engine", "ste_open");
kind!(Region, RegionOf, "region", "ste_register");
kind!(Target, TargetOf, "target", "ste_import");
kind!(Operation, Operation, "operation", "a call that begins one, such as ste_write");
kind!(Watcher, WatcherOf, "watcher", "ste_watch");

impl Object {
    const fn name(&self) -> &'static str {
        match self {
            Self::Engine(_) => Engine::NAME,
            Self::Region(_) => RegionOf::NAME,
            Self::Target(_) => TargetOf::NAME,
            Self::Operation(_) => Operation::NAME,
            Self::Watcher(_) => WatcherOf::NAME,
        }
    }
}

static TABLE: RwLock<BTreeMap<usize, Object>> = RwLock::new(BTreeMap::new());
/// Odd numbers from here: no address of an object that C could have at hand, and none of the first page.
static NEXT: AtomicUsize = AtomicUsize::new(0x10001);

/// A handle of an object. No other one has been, or will be, this number.
pub fn give(object: Object) -> usize {
    let handle = NEXT.fetch_add(2, Ordering::Relaxed);
    TABLE.write().unwrap_or_else(PoisonError::into_inner).insert(handle, object);
    handle
}

/// As C has it.
pub const fn pointer(handle: usize) -> *mut c_void {
    std::ptr::without_provenance_mut(handle)
}

fn wrong<K: Kind>(handle: Handle, got: Option<&Object>) -> Failure {
    let got = match got {
        Some(object) => format!("a handle of another kind: {}", object.name()),
        None if handle.is_null() => "NULL".to_owned(),
        None => format!("{:#x}, which is none or was freed", handle.addr()),
    };
    Failure::new(Status::Handle, format!("{}: expected a handle of {}, got {got}", K::NAME, K::FROM))
}

/// What a handle stands for.
///
/// # Errors
/// It is none of this kind, or was freed.
pub fn find<K: Kind>(handle: Handle) -> Result<Arc<K>, Failure> {
    let table = TABLE.read().unwrap_or_else(PoisonError::into_inner);
    let object = table.get(&handle.addr());
    object.and_then(K::of).cloned().ok_or_else(|| wrong::<K>(handle, object))
}

/// Frees a handle: what it stood for. NULL stands for nothing.
///
/// # Errors
/// It is none of this kind, or was freed before.
pub fn free<K: Kind>(handle: Handle) -> Result<Option<Arc<K>>, Failure> {
    if handle.is_null() {
        return Ok(None);
    }
    let found = find::<K>(handle)?;
    // Two threads may free it at once: one of them does.
    let removed = TABLE.write().unwrap_or_else(PoisonError::into_inner).remove(&handle.addr());
    if removed.is_none() {
        return Err(wrong::<K>(handle, None));
    }
    Ok(Some(found))
}
