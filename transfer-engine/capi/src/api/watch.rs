//! Words that an engine looks at.

use crate::engine::Engine;
use crate::failure::{Failure, guarded};
use crate::handles::{self, Handle, Object, find, pointer};
use crate::raw;
use crate::watchers::WatcherOf;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

/// # Safety
/// `word` is NULL or a word that can be read until `ste_unwatch` or `ste_close` has succeeded, and that is written in
/// one piece alone; `watcher` is NULL or can be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn ste_watch(
    engine: Handle,
    word: *const u64,
    call: Option<extern "C" fn(*mut c_void, u64, u64) -> c_int>,
    user: *mut c_void,
    watcher: *mut *mut c_void,
) -> c_int {
    guarded("ste_watch", || {
        let engine = find::<Engine>(engine)?;
        let call = call.ok_or_else(|| Failure::refused("call", "a function", "NULL"))?;
        raw::present("watcher", watcher)?;
        let user = user.expose_provenance();
        let each = move |before, now| call(std::ptr::with_exposed_provenance_mut(user), before, now) != 0;
        // SAFETY: the caller keeps the word, as the header says.
        let made = unsafe { WatcherOf::new(&engine, word, Box::new(each)) }?;
        let handle = pointer(handles::give(Object::Watcher(Arc::new(made))));
        // SAFETY: the caller's pointer.
        unsafe { raw::write("watcher", watcher, handle) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn ste_unwatch(watcher: Handle) -> c_int {
    guarded("ste_unwatch", || handles::free::<WatcherOf>(watcher)?.map_or(Ok(()), |freed| freed.end()))
}
